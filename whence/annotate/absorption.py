"""Absorption: an annotation is a monotone Boolean function of base rows, represented by what its size asks for.

Small functions are sets of minimal witnesses, which most operations read straight off; many or long witnesses share
little there and much in a decision diagram. So the algebra starts with `Witnesses`, and when a function gets too large
there it tells the caller (`AnnotationTooLarge`), who gives all handles it holds to `switch` and does the operation
again; from then on it is a `Bdd`. Both are canonical, so nothing else changes: equal functions have equal handles
before and after.

State: the representation, and which edge of a network each variable stands for, so that a diagram made later finds its
variables in depth-first order. The cost of a switch is that of building all functions once.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import numpy as np

from whence.annotate import AnnotationTooLarge, Provenance
from whence.annotate.bdd import Bdd
from whence.annotate.order import DepthFirst
from whence.annotate.pooled import MOST
from whence.annotate.witnesses import Witnesses
from whence.model.codes import Codes
from whence.model.errors import DataError, EvaluationError

T = TypeVar("T")

REPRESENTATIONS = ("auto", "witnesses", "bdd")
LIMIT = 64  # witnesses of a function, if it may become a diagram
LONGEST = 256  # variables of a witness, if it may
FIXED_LIMIT = 1024  # witnesses of a function, if it may not
_WITNESSES, _BDD = 0, 1


class Absorption(Provenance):
    """The algebra of absorption provenance.

    >>> algebra = Absorption()
    >>> a, b = algebra.of_tid(np.array([1])), algebra.of_tid(np.array([2]))
    >>> algebra.plus(a, algebra.times(a, b))[0] == a[0]
    np.True_
    >>> a = algebra.switch(a)
    >>> algebra.form, algebra.witnesses(int(a[0]), 9)
    ('bdd', [(1,)])
    """

    name = "absorption"

    def __init__(self, representation: str = "auto", limit: int | None = None):
        if representation not in REPRESENTATIONS:
            raise EvaluationError(f"provenance is one of {', '.join(REPRESENTATIONS)}, not {representation!r}")
        self.representation = representation
        if limit is None:
            limit = LIMIT if representation == "auto" else FIXED_LIMIT
        self._limit = limit
        self._edges = np.full((64, 3), -1, np.int64)  # of each variable: start, end, and when it was placed or -1
        self._placed = 0
        self._due = False
        self._form: Witnesses | Bdd = Bdd(order=DepthFirst()) if representation == "bdd" else self._small()

    def _small(self) -> Witnesses:
        return Witnesses(self._limit, LONGEST if self.representation == "auto" else MOST)

    @property
    def form(self) -> str:
        """The representation in use."""
        return self._form.name

    def _try(self, operation: Callable[..., T], *args: object) -> T:
        """Run an operation of the present representation; raise an error if its result is too large for the last
        one."""
        try:
            return operation(*args)
        except AnnotationTooLarge as error:
            if self.representation == "auto" and isinstance(self._form, Witnesses):
                raise
            advice = "use provenance = 'bdd' or 'auto', or propagate = 'lazy'" if self.form == "witnesses" else ""
            advice = advice or "use propagate = 'lazy', or another policy than maintain = 'absorption'"
            raise EvaluationError(f"provenance is too large: {error}; {advice}") from error

    def of_tid(self, tids: Codes) -> Codes:
        return self._try(self._form.of_tid, tids)

    def times(self, a: Codes, b: Codes) -> Codes:
        return self._try(self._form.times, a, b)

    def plus(self, a: Codes, b: Codes) -> Codes:
        return self._try(self._form.plus, a, b)

    def total(self, a: Codes, starts: Codes) -> Codes:
        return self._try(self._form.total, a, starts)

    def without(self, a: Codes, tids: Codes) -> Codes:
        return self._try(self._form.without, a, tids)

    def implied(self, a: Codes, b: Codes) -> Codes:
        return self._try(self._form.implied, a, b)

    def support(self, a: Codes) -> tuple[Codes, Codes]:
        return self._form.support(a)

    def sizes(self, a: Codes) -> Codes:
        return self._form.sizes(a)

    def nbytes(self, a: Codes) -> int:
        return self._form.nbytes(a)

    def witnesses(self, handle: int, limit: int) -> list[tuple[int, ...]]:
        return self._form.witnesses(handle, limit)

    def count(self, handle: int) -> int:
        return self._form.count(handle)

    def mentioning(self, tids: Codes) -> Codes | None:
        """For each handle 1 if its function mentions one of the variables; None where only an index can say that."""
        return self._form.mentioning(tids) if isinstance(self._form, Bdd) else None

    # -- representations ---------------------------------------------------------------------------------------------

    def switch(self, roots: Codes) -> Codes:
        """Become a diagram of the functions of the roots, and of no others; the roots' new handles."""
        if not isinstance(self._form, Witnesses):
            return roots
        diagram = Bdd(order=DepthFirst())
        tids = np.flatnonzero(self._edges[:, 2] >= 0)
        tids = tids[np.argsort(self._edges[tids, 2])]
        if len(tids):
            diagram.place(tids, *(np.ascontiguousarray(ends) for ends in self._edges[tids, :2].T))
        handles = self._try(_build, self._form, diagram, roots)
        self._form = diagram
        return handles

    def place(self, tids: Codes, starts: Codes, ends: Codes) -> None:
        """Tell which edges variables stand for (codes of nodes, NULL for none)."""
        if isinstance(self._form, Bdd):
            self._form.place(tids, starts, ends)
        elif len(tids) and self.representation == "auto":
            if (most := int(tids.max())) >= len(self._edges):
                more = np.full((2 * (most + 1) - len(self._edges), 3), -1, np.int64)
                self._edges = np.concatenate([self._edges, more])
            when = np.arange(self._placed, self._placed + len(tids))
            self._edges[tids] = np.column_stack([starts, ends, when])
            self._placed += len(tids)

    def lose(self, tids: Codes) -> None:
        """Tell that the rows of variables are gone. No function changes."""
        if isinstance(self._form, Bdd):
            self._form.lose(tids)
        else:
            self._edges[tids[tids < len(self._edges)], 2] = -1

    @property
    def grown(self) -> bool:
        """Whether there is garbage, or the order of a diagram's variables is no longer that of the network."""
        self._due = self._due or (isinstance(self._form, Bdd) and self._form.due)
        return self._due or self._form.grown

    def collect(self, roots: Codes) -> Codes:
        due, self._due = self._due, False
        if due and isinstance(self._form, Bdd):
            try:
                return self._form.reorder(roots)
            except AnnotationTooLarge:  # then the order stays as it is
                pass
        return self._form.collect(roots)

    # -- transport and images ----------------------------------------------------------------------------------------

    def pack(self, a: Codes) -> tuple[Codes, bytes]:
        """As the representation packs them, behind a byte that says which it is."""
        names, data = self._form.pack(a)
        return names, bytes([_BDD if isinstance(self._form, Bdd) else _WITNESSES]) + data

    def unpack(self, names: Codes, data: bytes) -> Codes:
        if not data or data[0] not in (_WITNESSES, _BDD):
            raise DataError("the bytes of annotations are not as they were written")
        if (data[0] == _BDD) == isinstance(self._form, Bdd):
            return self._try(self._form.unpack, names, data[1:])
        if isinstance(self._form, Bdd):
            given = Witnesses(max(self._limit, FIXED_LIMIT))
            return self._try(_build, given, self._form, given.unpack(names, data[1:]))
        # One who has diagrams has functions too large for witnesses: follow.
        return self._try(_refuse)

    def image(self) -> dict[str, np.ndarray]:
        kind = _BDD if isinstance(self._form, Bdd) else _WITNESSES
        tids = np.flatnonzero(self._edges[:, 2] >= 0)
        tids = tids[np.argsort(self._edges[tids, 2])]
        placed = np.column_stack([tids, self._edges[tids, :2]])
        return self._form.image() | {"form": np.array([kind]), "placed": placed}

    def restore(self, image: dict[str, np.ndarray]) -> None:
        kind, placed = image.get("form"), image.get("placed")
        if kind is None or placed is None or kind.tolist() not in ([_WITNESSES], [_BDD]):
            raise DataError("the annotations are not as they were written")
        form = Bdd(order=DepthFirst()) if kind[0] == _BDD else self._small()
        form.restore(image)
        self._form, self._due = form, False
        self._edges, self._placed = np.full((64, 3), -1, np.int64), 0
        if isinstance(form, Witnesses):
            self.place(*(np.ascontiguousarray(part) for part in placed.T))


def _refuse() -> Codes:
    raise AnnotationTooLarge("annotations came as decision diagrams")


def _build(witnesses: Witnesses, diagram: Bdd, roots: Codes) -> Codes:
    """Return the functions of a witness algebra in a diagram."""
    functions, where = np.unique(roots, return_inverse=True)
    members, lengths, variables = witnesses.parts(functions)
    # Conjunctions are built from the last variable of the order up, each step on all witnesses that have one so far up.
    diagram.of_tid(np.unique(variables))
    witness = np.repeat(np.arange(len(lengths)), lengths)
    variables = variables[np.lexsort((-diagram.labels.of_variable[variables], witness))]
    starts, product = np.cumsum(lengths) - lengths, np.ones(len(lengths), np.int64)
    for step in range(int(lengths.max(initial=0))):
        longer = np.flatnonzero(lengths > step)
        of_step = diagram.of_tid(variables[starts[longer] + step])
        product[longer] = diagram.times(of_step, product[longer])
    counts = np.diff(members, append=len(lengths))
    handles = np.zeros(len(functions), np.int64)
    handles[counts > 0] = diagram.total(product, members[counts > 0])
    return handles[where]
