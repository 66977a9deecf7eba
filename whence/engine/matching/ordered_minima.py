"""OrderedMinima: an ordered multiset of rows that knows the least value of one column in each of its leaves.

Law: `least[leaf]` is the least rank of column `lead` in a leaf, `blocks[b]` the least of leaves 64 b to 64 b + 63 in
their order, so that a search for small values skips what has none (`kernels/hull.py`). Both follow every change. Cost:
that of the ordered multiset, and a leaf is read again when it splits or loses its least row.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from whence.engine.core.fill import is_fill
from whence.engine.core.image import Image, with_room
from whence.engine.core.kernels.ordered import LEAF
from whence.engine.core.ordered import Ordered, Rank
from whence.engine.matching.kernels import hull
from whence.model.codes import Codes, Dictionary


class OrderedMinima(Ordered):
    """Rows ordered by `ranks`, with the least rank of the column at position `lead` among them."""

    _least: Codes
    _blocks: Codes

    def __init__(self, ranks: Sequence[Rank], lead: int, dictionary: Dictionary):
        self._lead = lead
        super().__init__(ranks, dictionary)

    @property
    def nbytes(self) -> int:
        return super().nbytes + self._least.nbytes + self._blocks.nbytes

    @property
    def searched(self) -> tuple[Codes, Codes, Codes, Codes, Codes, Codes]:
        """The arrays that kernels search."""
        return self._store, self._size, self._top, self._meta, self._least, self._blocks

    @property
    def updated(self) -> tuple[Codes, Codes, Codes, Codes, Codes, Codes, Codes, Codes]:
        """The arrays that kernels change."""
        arrays = (self._store, self._count, self._size, self._top, self._spare, self._meta)
        return (*arrays, self._least, self._blocks)

    def undo(self) -> None:
        filled = self._former is not None
        super().undo()
        if filled:
            self._compute_minima()

    def restore(self, image: Image) -> None:
        super().restore(image)
        self._compute_minima()

    def _clear(self) -> None:
        super()._clear()
        self._compute_minima()

    def _insert(self, ranked: Codes, counts: Codes) -> None:
        if not len(self) or is_fill(len(counts), len(self)):
            super()._insert(ranked, counts)
            self._compute_minima()
            return
        done = 0
        while (done := hull.add_points(*self.updated, ranked, counts, self._lead, done)) < len(counts):
            self._grow()

    def _grow(self) -> None:
        super()._grow()
        self._least = with_room(self._least, len(self._size))
        self._blocks = with_room(self._blocks, len(self._size) // LEAF + 1)

    def _compute_minima(self) -> None:
        self._least = np.zeros(len(self._size), np.int64)
        self._blocks = np.zeros(len(self._size) // LEAF + 1, np.int64)
        hull.refresh(*self.searched, self._lead)
