"""An index that is built in slices between epochs, and used from when it is whole.

Invariant: it has exactly the live rows whose ids are below `reached`. Rows that come or go in an epoch are linked or
unlinked if they are below; the others are found when the next slice gets there. Undo needs nothing more: slices are
added between epochs only. A relation that takes other arrays lets it begin anew.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from whence.model.codes import Codes

if TYPE_CHECKING:
    from whence.engine.core.range_index import RangeIndex
    from whence.engine.core.relation import Index, Relation


class GrowingIndex:
    """An index on its way; `index` is whole when `advance` says so."""

    def __init__(self, index: Index | RangeIndex) -> None:
        self.index, self.reached = index, 0

    def advance(self, relation: Relation, rows: int) -> bool:
        """Add the next slice, of so many ids; return whether the index is whole."""
        high = int(relation.meta[0])
        end = min(high, self.reached + rows)
        ids = self.reached + np.flatnonzero(relation.ann[self.reached : end])
        self.index.link(relation.rows, ids, len(ids))
        self.reached = end
        return end == high

    def link(self, rows: Codes, ids: Codes, n: int) -> None:
        below = self._below(ids, n)
        self.index.link(rows, below, len(below))

    def unlink(self, rows: Codes, ids: Codes, n: int) -> None:
        below = self._below(ids, n)
        self.index.unlink(rows, below, len(below))

    def _below(self, ids: Codes, n: int) -> Codes:
        some = ids[:n]
        return np.ascontiguousarray(some[some < self.reached])

    def fill(self, relation: Relation) -> None:
        """Begin anew."""
        self.index.clear(relation)
        self.reached = 0

    def grow(self, capacity: int) -> None:
        self.index.grow(capacity)

    @property
    def nbytes(self) -> int:
        return self.index.nbytes
