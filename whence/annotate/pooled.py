"""Functions that are sequences of pieces, in two pools: what witnesses and derivation edges have in common.

A piece (a witness, an edge) is a sequence of numbers, a function a sequence of numbers of pieces; equal sequences are
stored once, so equal functions have equal handles. Kernels stop when a pool is full, and are called again where they
stopped. Functions that nothing mentions any more are garbage until `collect`.
"""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType

import numpy as np

from whence.annotate import Provenance
from whence.annotate.pool import Pool
from whence.model.codes import Codes
from whence.model.record import KernelRecord

MOST = 0x7FFFFFFF
WORTH_COLLECTING = 1 << 16  # parts from which garbage is looked at


class PooledFunctions(Provenance):
    """The part of an algebra that is the same whatever the pieces are; `kernels` has its operations on columns."""

    kernels: ModuleType
    weights: int  # how many numbers `kernels.weigh` has for each function
    _k: KernelRecord
    _pieces: Pool
    _functions: Pool
    _alive: int

    def _mend(self) -> None:
        """Make the room that a kernel wanted, or raise what else stopped it."""
        raise NotImplementedError

    def _rename_pieces(self, moved: Codes) -> None:
        """Give the pieces in all functions their new numbers."""
        raise NotImplementedError

    def _parts(self) -> int:
        return self._pieces.count + self._functions.count

    def _drive(self, kernel: Callable[..., int], *args: object, rows: int) -> Codes:
        """Call a kernel until all rows are done; return its results."""
        out = np.empty(rows, np.int64)
        row = 0
        while (row := kernel(self._k.address, self._pieces.address, self._functions.address, *args, out, row)) < rows:
            self._mend()
        return out

    def times(self, a: Codes, b: Codes) -> Codes:
        return self._drive(self.kernels.times, column(a), column(b), rows=len(a))

    def plus(self, a: Codes, b: Codes) -> Codes:
        return self._drive(self.kernels.plus, column(a), column(b), rows=len(a))

    def total(self, a: Codes, starts: Codes) -> Codes:
        return self._drive(self.kernels.total, column(a), column(starts), rows=len(starts))

    def _weigh(self, a: Codes) -> np.ndarray:
        """Count for each function what it is made of."""
        out = np.empty((len(a), self.weights), np.int64)
        self.kernels.weigh(self._pieces.address, self._functions.address, column(a), out)
        return out

    def sizes(self, a: Codes) -> Codes:
        """Return four bytes for everything that a function is made of."""
        out: Codes = 4 * self._weigh(a).sum(axis=1)
        return out

    def nbytes(self, a: Codes) -> int:
        """Return four bytes for each item and 32 for each sequence."""
        functions, members, pieces, items = self._note_parts(a).tolist()
        return int(4 * (members + items) + 32 * (functions + pieces))

    def _note_parts(self, a: Codes) -> np.ndarray:
        self._pieces.stamp()
        self._functions.stamp()
        counts = np.zeros(4, np.int64)
        self.kernels.note_parts(self._pieces.address, self._functions.address, column(a), counts)
        return counts

    @property
    def state_bytes(self) -> int:
        """Bytes of everything kept, garbage and room to grow included."""
        return self._k.nbytes + self._pieces.k.nbytes + self._functions.k.nbytes

    @property
    def grown(self) -> bool:
        return self._parts() > 2 * self._alive + WORTH_COLLECTING

    def collect(self, roots: Codes) -> Codes:
        self._note_parts(np.concatenate([np.array([0, 1], np.int64), column(roots)]))
        pieces = self._pieces.keep_noted()
        moved = self._functions.keep_noted(lambda: self._rename_pieces(pieces))
        self._alive = self._parts()
        out: Codes = moved[roots]
        return out


def column(values: Codes) -> Codes:
    """Return the values as kernels take them."""
    return np.ascontiguousarray(values, np.int64)
