"""Annotations: what an update says of how its row came to be, and the algebra that combines them.

An annotation is an int64 *handle*; what it stands for is the algebra's own business. A batch carries, for each row, the
**change** of that row's annotation. Operators call the algebra on whole columns of handles and never ask which it is.

| operation            | law | used by |
|----------------------|-----|---------|
| zero, one            | plus's and times's neutral elements | everywhere |
| of_tid(tids)         | the annotation of a base row | scan |
| times(a, b)          | of a joined row; distributes over plus | join, lateral |
| plus(a, b)           | of a row with two derivations; also applies a change to an annotation | union, project, state |
| total(a, starts)     | plus over runs `[starts[i], starts[i+1])` of a column | consolidation |
| change(old, new)     | the change c with plus(old, c) = new | distinct, aggregate, policies |
| without(a, tids)     | a with those base rows gone | provenance policies |
| holds(a)             | whether a row so annotated is in the relation | distinct, aggregate, reading |
| multiplicity(a)      | how many times it is in it | reading, aggregate |
| nbytes, to_bytes, from_bytes | size and transport | ship, state |

| algebra  | annotation | here |
|----------|------------|------|
| counting | a signed integer, the row's multiplicity; changes are integers too | `counting.py` |
| none     | 1 if present; changes are +1 and -1 | `none.py` |

Absorption, relative, lineage and covering join through the same protocol.
"""

from __future__ import annotations

from typing import Protocol

from whence.model.codes import Codes


class Algebra(Protocol):
    """The protocol above. All arguments and results are int64 columns of handles, one a row."""

    name: str
    zero: int
    one: int
    additive: bool  # handles are plain integers that kernels may add up themselves

    def of_tid(self, tids: Codes) -> Codes: ...
    def times(self, a: Codes, b: Codes) -> Codes: ...
    def plus(self, a: Codes, b: Codes) -> Codes: ...
    def total(self, a: Codes, starts: Codes) -> Codes: ...
    def change(self, old: Codes, new: Codes) -> Codes: ...
    def without(self, a: Codes, tids: Codes) -> Codes: ...
    def holds(self, a: Codes) -> Codes: ...
    def multiplicity(self, a: Codes) -> Codes: ...
    def nbytes(self, a: Codes) -> int: ...
    def to_bytes(self, a: Codes) -> bytes: ...
    def from_bytes(self, data: bytes) -> Codes: ...
