"""Lookups in the store of a recursive component: indexes over its slots, brought up to date when they are asked.

Law: a lookup finds the live rows of one relation that have a key in some of the columns that tell its rows apart.

State: per index a hash table of chains over slots. Slots are only added, and their key columns never change, so an
index is up to date when it has linked the slots up to the last one; dead rows stay in their chains and are passed over.
A compaction makes another store, for which indexes are built anew. So epochs, undo and images know nothing of them.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from whence.engine.core.kernels import index as ik
from whence.engine.core.key_lookup import Lookups
from whence.engine.core.operator import Batch
from whence.engine.core.relation import Index
from whence.engine.recursion.kernels import store as st
from whence.engine.recursion.slot_store import SlotStore
from whence.model.codes import Codes

_CHUNK = 1 << 16  # slots that are linked at a time, so that the table follows the keys


class SlotIndex(Index):
    """An index over the slots of one relation."""

    __slots__ = ("linked", "record")

    def __init__(self, cols: tuple[int, ...]) -> None:
        self.cols, self.keys = np.array(cols, np.int64), np.zeros(1, np.int64)
        self.record: object = None  # whose slots they are
        self.empty()

    def empty(self) -> None:
        """Begin anew."""
        self.slots, self.keys[0], self.linked = np.zeros(16, np.int64), 0, 0
        self.nxt = self.prv = np.empty(0, np.int32)

    def catch_up(self, store: SlotStore, relation: int) -> None:
        """Link the slots that are new."""
        k = store.k
        if self.record is not k:
            self.empty()
            self.record = k
        used = int(k.scalar[st.S_ROWS])
        if used == self.linked:
            return
        if used > len(self.nxt):
            nxt, prv = self.nxt, self.prv
            self.nxt, self.prv = (np.empty(used + used // 4 + 16, np.int32) for _ in range(2))
            self.nxt[: self.linked], self.prv[: self.linked] = nxt[: self.linked], prv[: self.linked]
        m = int(k.scalar[st.S_META])
        for first in range(self.linked, used, _CHUNK):
            tags = k.meta[first : min(first + _CHUNK, used), m]
            ids = np.flatnonzero((tags & st.RELATION) == relation) + first
            self.link(k.cells, ids, len(ids))
        self.linked = used


class SlotRows:
    """The rows of one relation of a component."""

    def __init__(self, store: Callable[[], SlotStore], relation: int, width: int) -> None:
        self._store, self._relation, self.width = store, relation, width
        self.indexable = store().keys(relation)
        self._indexes: dict[tuple[int, ...], SlotIndex] = {}
        self.lookups = Lookups(self)

    def __len__(self) -> int:
        """Return about how many rows there are: those of all relations of the component."""
        scalar = self._store().k.scalar
        return int(scalar[st.S_ROWS] - scalar[st.S_DEAD])

    @property
    def indexes(self) -> dict[tuple[int, ...], SlotIndex]:
        """The indexes, up to date."""
        for index in self._indexes.values():
            index.catch_up(self._store(), self._relation)
        return self._indexes

    def build_index(self, cols: tuple[int, ...]) -> None:
        if cols not in self._indexes:
            self._indexes[cols] = SlotIndex(cols)
            self._indexes[cols].catch_up(self._store(), self._relation)

    def drop_index(self, cols: tuple[int, ...]) -> None:
        self._indexes.pop(cols, None)

    def at_key(self, cols: tuple[int, ...], keys: Codes) -> Batch:
        store = self._store()
        slots = store.find(self._relation, keys[:, : self.indexable])
        there = np.flatnonzero(slots >= 0)
        rows = store.k.cells[slots[there], : self.width]
        return self._batch(rows[(rows[:, cols] == keys[there]).all(axis=1)])

    def matches(self, index: SlotIndex, batch: Codes, cols: Codes, null_safe: bool = False) -> tuple[Codes, Codes]:
        k = self._store().k
        at, ids = ik.probe(k.cells, index.cols, index.slots, index.nxt, batch, cols, int(null_safe))
        live = (k.meta[ids, int(k.scalar[st.S_META])] & st.ALIVE) != 0
        return at[live], ids[live]

    def at_ids(self, ids: Codes) -> Batch:
        return self._batch(self._store().k.cells[ids, : self.width])

    def scan(self) -> Batch:
        return self._batch(self._store().live(self._relation))

    @staticmethod
    def _batch(rows: Codes) -> Batch:
        return Batch(np.ascontiguousarray(rows), np.ones(len(rows), np.int64), True)

    @property
    def nbytes(self) -> int:
        return sum(index.nbytes for index in self._indexes.values())
