"""Annotations: what a row carries beside its values, in three kinds of plan.

**Multiplicities, between ordinary operators.** Every batch and every relation has, for each row, a signed integer: how
often it is there, or by how much that changes. Operators add and multiply these integers themselves: union and
projection add, a join multiplies (and raises when a product does not fit into 64 bits), a row whose changes come to
zero is gone. There is no other algebra between ordinary operators, so no operator asks for one.

**Functions of base rows, inside a kept component** (`maintain = 'absorption'` or `'relative'`). The fixpoint keeps an
int64 *handle* beside each row of the recursion, which stands for a function of the base rows that the row follows from.
What goes in and what comes out of the component are multiplicities. `Provenance` below is the protocol; 0 is false, 1
is true, and functions are canonical: equal functions have equal handles.

| operation                | law | used by |
|--------------------------|-----|---------|
| of_tid(tids)             | the function of one base row | the fixpoint's inputs |
| times(a, b)              | of a row derived from two; distributes over plus | rules |
| plus(a, b)               | of a row with two derivations | rules |
| total(a, starts)         | plus over runs `[starts[i], starts[i+1])` of a column | rules |
| without(a, tids)         | substitutes false for these variables; commutes with plus and times | deletion |
| implied(a, b)            | whether a is absorbed by b: plus(a, b) = b | MinShip |
| support(a)               | the variables a mentions | the index from tid to rows |
| derived(a, rule, head, bodies) | a, as derived by that rule: itself, or with one edge more | rules |
| pack(a), unpack(names, data) | unpack(names', pack(a)) renames a's variables | messages |
| collect(roots)           | forgets what roots do not mention; returns the roots' new handles | commit, if `grown` |
| switch(roots)            | changes representation after `AnnotationTooLarge`; returns the roots' new handles | rules |
| place(tids, starts, ends), lose(tids) | says which edges variables stand for; changes no function | inputs |
| witnesses(a, limit), count(a) | the minimal sets of variables that suffice | questions |

**Tracers, in instrumented stream networks** (`provenance = 'lineage'` or `'covering'`). Beside each row stands which
tids of which source streams it came from. `tracing.Tracer` is the protocol; an operator has it as `tracer`, and one
without (`tracer` is None) has multiplicities. Rows of streams never leave, so nothing is ever subtracted.

| module       | what it holds |
|--------------|---------------|
| `absorption` | a monotone Boolean function of base rows, as witnesses or as a diagram, whichever is smaller |
| `witnesses`  | that function as the set of its minimal witnesses |
| `bdd`        | that function as a node of a shared decision diagram |
| `order`      | the order of a diagram's variables: depth-first along the edges that they stand for |
| `relative`   | the set of derivation edges behind a row |
| `pool`       | integer sequences stored once each |
| `pooled`     | what witnesses and relative have in common: functions as sequences of pieces |
| `tracing`    | the protocol of tracers |
| `lineage`    | the set of tids that a row came from, of every traced stream; compressed |
| `covering`   | for each traced stream the first and the last of them |
| `sources`    | the traced streams' names and numbers |
| `kernels`    | the compiled part of the above |
"""

from __future__ import annotations

from typing import Protocol

import numpy as np

from whence.model.codes import Codes
from whence.model.errors import WhenceError


class AnnotationTooLarge(WhenceError):  # noqa: N818  # what happened, and mostly no error: another representation is taken
    """A function outgrew its representation. Nothing has changed that a caller can see."""


class Provenance(Protocol):
    """Functions of base rows, see above. All columns are int64 handles, one per row."""

    name: str

    def of_tid(self, tids: Codes) -> Codes: ...
    def times(self, a: Codes, b: Codes) -> Codes: ...
    def plus(self, a: Codes, b: Codes) -> Codes: ...
    def total(self, a: Codes, starts: Codes) -> Codes: ...
    def without(self, a: Codes, tids: Codes) -> Codes: ...
    def implied(self, a: Codes, b: Codes) -> Codes: ...
    def support(self, a: Codes) -> tuple[Codes, Codes]: ...
    def pack(self, a: Codes) -> tuple[Codes, bytes]: ...
    def unpack(self, names: Codes, data: bytes) -> Codes: ...
    def sizes(self, a: Codes) -> Codes: ...
    def nbytes(self, a: Codes) -> int: ...
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
