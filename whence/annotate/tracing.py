"""Tracing: what the rows of an instrumented stream network carry, and the few operations its operators need.

An annotation says which tids of which source streams a row came from. A column of annotations is an array whose first
axis is the rows; operators only ever index it, concatenate it and hand it back to its tracer. Rows of streams never
leave, so nothing is ever subtracted.

| operation                | law | used by |
|--------------------------|-----|---------|
| generate(source, tids)   | each row comes from itself | generate |
| blank(n)                 | rows that come from no traced stream | generate |
| times(a, b)              | from what either came from | window join |
| over(a, starts, ends)    | of `a[starts[i]:ends[i]]`, from what any of them came from | window |
| image(a), restore(image) | self-contained arrays, and back | images |
| collect(held)            | forgets what these columns do not mention, renaming them in place | commit, if `grown` |

Passing an annotation on costs nothing, whatever it stands for: selection, projection, merge, lookup and sort do just
that.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np

from whence.model.codes import Codes

Image = dict[str, np.ndarray]


class Tracer(Protocol):
    """What the annotations of a stream network mean; `name` is shown by EXPLAIN."""

    name: str
    sources: tuple[str, ...]  # the streams that are traced

    def generate(self, source: str, tids: Codes) -> Codes: ...
    def blank(self, count: int) -> Codes: ...
    def times(self, a: Codes, b: Codes) -> Codes: ...
    def over(self, a: Codes, starts: Codes, ends: Codes) -> Codes: ...

    def tids(self, a: Codes, source: str) -> tuple[Codes, Codes]:
        """(offsets, tids): row i came from tids[offsets[i]:offsets[i+1]] of the source, ascending. Lineage only."""

    def spans(self, a: Codes, source: str) -> Codes:
        """[n, 2]: the first and the last tid of the source behind each row; (1, 0) where there is none."""

    def image(self, a: Codes) -> Image: ...
    def restore(self, image: Image) -> Codes: ...
    def collect(self, held: list[Codes]) -> None: ...

    @property
    def grown(self) -> bool: ...

    @property
    def nbytes(self) -> int: ...
