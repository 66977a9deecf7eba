"""An ordered index of one relation: by some columns that must be equal, then by one whose range is asked for.

Invariant: as a hash index has them, exactly the rows that are there. An entry is the equal columns, the ordered one and
the row's id, in leaves (`kernels/ordered.py`), so equal keys and values need no chain. Codes order like values in every
type but those of the dictionary, which have no such index. Cost: a binary search a row that comes or goes; of a probe,
one and what it finds. Like other indexes it has no undo of its own: the relation links and unlinks rows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from whence.engine.core.image import with_room
from whence.engine.core.kernels import ordered as ok
from whence.model.codes import Codes

if TYPE_CHECKING:
    from whence.engine.core.relation import Relation


class RangeIndex:
    """Ids of a relation's rows, in the order of some columns."""

    __slots__ = ("_count", "_meta", "_size", "_spare", "_store", "_top", "cols")

    def __init__(self, cols: tuple[int, ...], relation: Relation, empty: bool = False):
        self.cols = np.array(cols, np.int64)
        if empty:
            self.clear(relation)
        else:
            self.fill(relation)

    def link(self, rows: Codes, ids: Codes, n: int) -> None:
        self._add(rows, ids[:n], 1)

    def unlink(self, rows: Codes, ids: Codes, n: int) -> None:
        self._add(rows, ids[:n], -1)

    def clear(self, relation: Relation) -> None:
        """Begin anew, with no rows."""
        leaves = 4
        self._store = np.zeros((ok.LEAF * leaves, len(self.cols) + 1), np.int64)
        self._count = np.zeros(ok.LEAF * leaves, np.int64)
        self._size, self._top, self._spare = (np.zeros(leaves, np.int64) for _ in range(3))
        self._meta = np.zeros(4, np.int64)

    def fill(self, relation: Relation) -> None:
        """Begin anew, with all live rows of the relation."""
        self.clear(relation)
        ids = relation.ids()
        if len(ids):
            keys = relation.rows[ids][:, self.cols]
            self._add(relation.rows, ids[np.lexsort(keys.T[::-1])], 1)

    def grow(self, capacity: int) -> None:
        """Ids need no room of their own."""

    def between(self, keys: Codes, high: Codes) -> tuple[Codes, Codes]:
        """Return (position in `keys`, row id) of the rows whose columns equal a key's but the last, which is at least
        the key's and at most `high`; NULL equals nothing."""
        return ok.lines_between(self._store, self._size, self._top, self._meta, keys, high)

    def _add(self, rows: Codes, ids: Codes, change: int) -> None:
        entries = np.empty((len(ids), len(self.cols) + 1), np.int64)
        entries[:, :-1] = rows[ids][:, self.cols]
        entries[:, -1] = ids
        changes, done = np.full(len(ids), change), 0
        while True:
            done = ok.add(
                self._store, self._count, self._size, self._top, self._spare, self._meta, entries, changes, done
            )
            if done == len(ids):
                return
            leaves = 2 * len(self._size)
            self._store = with_room(self._store, leaves * ok.LEAF)
            self._count = with_room(self._count, leaves * ok.LEAF)
            self._size, self._top, self._spare = (with_room(a, leaves) for a in (self._size, self._top, self._spare))

    @property
    def nbytes(self) -> int:
        return self._store.nbytes + self._count.nbytes + 3 * self._size.nbytes
