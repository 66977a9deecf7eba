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
| absorption | a monotone Boolean function of base rows, kept as the two representations below | `absorption.py` |
| witnesses  | that function as the set of its minimal witnesses | `witnesses.py` |
| bdd        | that function as a shared decision diagram | `bdd.py` |
| relative   | the set of derivation edges behind a row | `relative.py` |

The last four are algebras of provenance: a handle stands for a function, 0 for false and 1 for true, and functions are
canonical (equal functions have equal handles), so that comparing handles compares what they mean. Beyond the above:

| operation                | law | used by |
|--------------------------|-----|---------|
| implied(a, b)            | whether a is absorbed by b: plus(a, b) = b | MinShip |
| support(a)               | the variables a mentions | the index from tid to rows |
| derived(a, rule, head, bodies) | a, as derived by that rule: itself, or with one edge more | fixpoint |
| pack(a), unpack(names, data) | unpack(names', pack(a)) renames a's variables | exchange |
| collect(roots)           | forgets what roots do not mention; gives the roots' new handles | commit, if `grown` |
| switch(roots)            | takes another representation, after `AnnotationTooLarge`; gives the roots' new handles |
fixpoint |
| place(tids, starts, ends), lose(tids) | tells of which edges variables stand for; changes no function | fixpoint |
| witnesses(a, limit), count(a) | the minimal sets of variables that suffice | explain |

Instrumented stream networks have algebras of their own, of another protocol (`tracing.py`), for whose rows nothing is
ever taken back:

| algebra  | annotation | here |
|----------|------------|------|
| lineage  | the set of tids that a row came from, of every traced stream; compressed | `lineage.py` |
| covering | for each traced stream the first and the last of them | `covering.py` |

`without(a, tids)` substitutes false for these variables, which commutes with plus and times: a deletion touches only
the functions that mention a dead variable, and in any order.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np

from whence.model.codes import Codes
from whence.model.errors import DataError, EvaluationError, WhenceError


class AnnotationTooLarge(WhenceError):  # noqa: N818  # what happened, and mostly no error: another representation is taken
    """A function outgrew its representation. Nothing has changed that a caller can see."""


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


class Provenance(Algebra, Protocol):
    """An algebra of functions of base rows, see above. What follows from `pack` and canonical handles stands here."""

    zero: int = 0
    one: int = 1
    additive: bool = False

    def implied(self, a: Codes, b: Codes) -> Codes: ...
    def support(self, a: Codes) -> tuple[Codes, Codes]: ...
    def pack(self, a: Codes) -> tuple[Codes, bytes]: ...
    def unpack(self, names: Codes, data: bytes) -> Codes: ...
    def sizes(self, a: Codes) -> Codes: ...
    def collect(self, roots: Codes) -> Codes: ...
    def image(self) -> dict[str, np.ndarray]: ...
    def restore(self, image: dict[str, np.ndarray]) -> None: ...
    def witnesses(self, handle: int, limit: int) -> list[tuple[int, ...]]: ...
    def count(self, handle: int) -> int: ...

    @property
    def grown(self) -> bool: ...

    def switch(self, roots: Codes) -> Codes:
        raise AnnotationTooLarge(f"the {self.name} algebra has no other representation")

    def place(self, tids: Codes, starts: Codes, ends: Codes) -> None:
        return

    def lose(self, tids: Codes) -> None:
        return

    def derived(self, a: Codes, rule: Codes, head: Codes, bodies: Codes) -> Codes:
        return a

    def holds(self, a: Codes) -> Codes:
        return np.not_equal(a, 0).astype(np.int64)

    def multiplicity(self, a: Codes) -> Codes:
        return self.holds(a)

    def change(self, old: Codes, new: Codes) -> Codes:
        """Only growth is a change: what `without` takes away no `plus` can."""
        if not self.implied(old, new).all():
            raise EvaluationError(f"a function that shrinks has no change in the {self.name} algebra")
        return new

    def to_bytes(self, a: Codes) -> bytes:
        """`pack` with its own variable numbers as names."""
        names, data = self.pack(a)
        return len(names).to_bytes(8, "little") + names.astype("<i8").tobytes() + data

    def from_bytes(self, data: bytes) -> Codes:
        count = int.from_bytes(data[:8], "little")
        if len(data) < 8 or count > (len(data) - 8) // 8:
            raise DataError(f"the bytes of {self.name} annotations end too early")
        names = np.frombuffer(data, "<i8", count, 8).astype(np.int64)
        return self.unpack(names, data[8 + 8 * count :])
