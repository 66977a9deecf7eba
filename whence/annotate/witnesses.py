"""Witnesses: an annotation is a monotone Boolean function, kept as the set of its minimal witnesses.

A witness is a set of base rows (variables) that suffice for the row; a minimal one has no part that does. The minimal
witnesses of a function are its one irredundant disjunctive form, so plus is the union and times the set of pairwise
unions, each with all absorbed members dropped, and a deletion drops the witnesses that mention a dead variable.

State: every witness and every set of witnesses once (`kernels/families.py`). A function may have at most `limit`
witnesses of at most `longest` variables; the operation that would make a larger one raises `AnnotationTooLarge`, and
what it has already stored is garbage that nobody sees. Cost: plus compares all pairs of witnesses by signature; times
builds all pairwise unions.
"""

from __future__ import annotations

import numpy as np

from whence.annotate import AnnotationTooLarge
from whence.annotate.kernels import families as fa
from whence.annotate.kernels import family_bytes
from whence.annotate.kernels.pool import stated_rows
from whence.annotate.pool import Pool
from whence.annotate.pooled import MOST, PooledFunctions, column
from whence.model.codes import Codes
from whence.model.errors import DataError, EvaluationError
from whence.model.record import KernelRecord


class Witnesses(PooledFunctions):
    """The algebra of minimal witness sets.

    >>> algebra = Witnesses()
    >>> a, b, c = (algebra.of_tid(np.array([v])) for v in (1, 2, 3))
    >>> either = algebra.plus(algebra.times(a, b), algebra.times(a, c))
    >>> algebra.witnesses(int(either[0]), 9)
    [(1, 2), (1, 3)]
    >>> algebra.plus(either, a)[0] == a[0], algebra.without(either, np.array([1])).tolist()
    (np.True_, [0])
    """

    name = "witnesses"
    kernels, weights = fa, 2  # witnesses, and variables counted once per witness

    def __init__(self, limit: int = 64, longest: int = MOST):
        self._k = KernelRecord(
            fa.WORK,
            candidates=np.zeros((64, 4), np.int64),
            order=np.zeros(64, np.int64),
            notes=np.zeros(64, np.int64),
            scalar=np.array([0, limit, longest, 1, 0], np.int64),
        )
        self._pieces, self._functions = Pool(), Pool()
        self._begin()

    def _begin(self) -> None:
        """Put false and true first: the empty witness is 0 of its pool, and 0 and 1 are the families of none and of
        it."""
        self._pieces.add(())
        self._functions.add(())
        self._functions.add((0,))
        self._alive = self._parts()

    def _too_large(self) -> AnnotationTooLarge:
        limit, longest = self._k.scalar[[fa.K_LIMIT, fa.K_LONGEST]].tolist()
        at_most = f" of at most {longest:,} base rows" if longest < MOST else ""
        return AnnotationTooLarge(f"a row has more than {limit:,} minimal witnesses{at_most}")

    def _mend(self) -> None:
        scalar = self._k.scalar
        if scalar[fa.K_STATUS] == fa.TOO_LARGE:
            raise self._too_large()
        if scalar[fa.K_STATUS] == fa.TORN:
            raise DataError("the bytes of annotations are not as they were written")
        self._grow()

    def _grow(self) -> None:
        scalar = self._k.scalar
        self._pieces.grow()
        self._functions.grow()
        if (wanted := int(scalar[fa.K_WANTED])) > len(self._k.order):
            size = 2 * wanted
            self._k.replace(candidates=np.zeros((size, 4), np.int64), order=np.zeros(size, np.int64))
        scalar[fa.K_WANTED] = 0

    def _know(self, variables: Codes) -> None:
        """Room to note something of each of these variables."""
        if not len(variables):
            return
        least, most = int(variables.min()), int(variables.max())
        if least < 0 or most >= MOST:
            raise EvaluationError(f"base rows are numbered from 0 below 2^31, not {least if least < 0 else most}")
        if most >= len(self._k.notes):
            notes = np.zeros(2 * (most + 1), np.int64)
            notes[: len(self._k.notes)] = self._k.notes
            self._k.replace(notes=notes)

    def _stamp(self, steps: int = 1) -> None:
        """Make all notes of variables void, and leave so many stamps unused."""
        scalar = self._k.scalar
        if scalar[fa.K_STAMP] + steps >= MOST:
            self._k.notes[:] = 0
            scalar[fa.K_STAMP] = 0
        scalar[fa.K_STAMP] += 1

    def of_tid(self, tids: Codes) -> Codes:
        self._know(tids)
        return self._drive(fa.variables, column(tids), rows=len(tids))

    def without(self, a: Codes, tids: Codes) -> Codes:
        self._stamp()
        bits = fa.mark_variables(self._k.address, column(tids))
        return self._drive(fa.without, bits, column(a), rows=len(a))

    def implied(self, a: Codes, b: Codes) -> Codes:
        out = np.empty(len(a), np.int64)
        fa.implied(self._pieces.address, self._functions.address, column(a), column(b), out)
        return out

    def support(self, a: Codes) -> tuple[Codes, Codes]:
        starts = np.zeros(len(a) + 1, np.int64)
        out = np.empty(int(self._weigh(a)[:, 1].sum()), np.int64)
        self._stamp(len(a) + 1)
        found = fa.support(self._k.address, self._pieces.address, self._functions.address, column(a), starts, out)
        return starts, out[:found]

    def parts(self, a: Codes) -> tuple[Codes, Codes, Codes]:
        """Return where each function's witnesses start, the length of each witness, and the variables of them all."""
        counts = self._weigh(a)
        witnesses, variables = (np.empty(total, np.int64) for total in counts.sum(axis=0).tolist())
        fa.list_parts(self._pieces.address, self._functions.address, column(a), witnesses, variables)
        return np.cumsum(counts[:, 0]) - counts[:, 0], witnesses, variables

    def _rename_pieces(self, moved: Codes) -> None:
        self._functions.items[:] = moved[self._functions.items]

    def pack(self, a: Codes) -> tuple[Codes, bytes]:
        a = column(a)
        weights = self._weigh(a)
        names = np.empty(min(int(weights[:, 1].sum()), len(self._k.notes)), np.int64)
        sizes, room = np.zeros(2, np.int64), 64 + 3 * len(a) + 2 * int(weights.sum())
        while True:
            for pool in (self._pieces, self._functions):
                pool.stamp()
            self._stamp()
            data = np.empty(room, np.uint8)
            if family_bytes.pack(self._k.address, self._pieces.address, self._functions.address, a, names, data, sizes):
                break
            self._grow()
            room *= 2
        return names[: sizes[0]].copy(), data[: sizes[1]].tobytes()

    def unpack(self, names: Codes, data: bytes) -> Codes:
        names, buffer = column(names), np.frombuffer(data, np.uint8).copy()
        if len(names) and not 0 <= int(names.min()) <= int(names.max()) < MOST:
            raise DataError("annotations that mention base rows with impossible numbers")
        self._know(names)
        if (rows := stated_rows(buffer)) < 0:
            raise DataError("the bytes of annotations end too early")
        known, out = np.empty((len(buffer), 2), np.int64), np.empty(rows, np.int64)
        while True:
            family_bytes.unpack(
                self._k.address, self._pieces.address, self._functions.address, names, buffer, known, out
            )
            if self._k.scalar[fa.K_STATUS] == fa.OK:
                return out
            self._mend()

    def image(self) -> dict[str, np.ndarray]:
        return self._pieces.image("witnesses") | self._functions.image("families")

    def restore(self, image: dict[str, np.ndarray]) -> None:
        w, f = Pool(), Pool()
        w.restore(image, "witnesses")
        f.restore(image, "families")
        members, variables = f.items, w.items
        if w.sequence(0) or f.sequence(0) or f.sequence(1) != (0,) or (members < 0).any() or (variables < 0).any():
            raise DataError("the witnesses of annotations are not as they were written")
        if (members >= w.count).any():
            raise DataError("annotations mention witnesses that are not there")
        self._know(variables.astype(np.int64))
        fa.sign(w.address)
        self._pieces, self._functions = w, f
        self._alive = self._parts()

    def witnesses(self, handle: int, limit: int) -> list[tuple[int, ...]]:
        found = sorted((self._pieces.sequence(x) for x in self._functions.sequence(handle)), key=lambda x: (len(x), x))
        return found[:limit]

    def count(self, handle: int) -> int:
        return int(self._functions.spans[handle, 1])
