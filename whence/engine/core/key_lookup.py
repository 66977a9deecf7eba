"""Lookups by any columns: find the rows of a relation that have one of some keys, by an index where one pays.

They are asked of a `Relation`, and of the rows that a recursive component keeps in its own store
(`engine/recursion/slot_lookup.py`).

Law: the result is what a scan of the relation with the filter `columns IN keys` gives, each row once; NULL equals NULL.

State: the column sets that were looked up by scanning, the indexes that were built for lookups, most recent last, and
those that were declared (CREATE INDEX), which stay.
Cost: the rows that match, once there is an index. An index that an operator or a primary key has is used if it leaves
few rows per key to compare. Else the first lookup scans, and the second one of the same columns builds an index. At
most `MOST` such indexes are kept per relation, so that a writer who filters by ever other columns does not make every
insert slower.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import Any, Protocol

import numpy as np

from whence.engine.core.kernels.batches import number_rows
from whence.engine.core.operator import Batch
from whence.model.codes import Codes

MOST = 4
"""Indexes per relation that are kept for lookups alone."""
SMALL = 1_000
"""Rows up to which a relation is scanned."""
_NARROW = 32  # rows per key that may be compared one by one instead of building an index


class Indexed(Protocol):
    """Rows that can be indexed."""

    width: int
    indexable: int  # of the first columns, which tell rows apart

    def __len__(self) -> int:
        """Return about how many rows there are."""

    @property
    def indexes(self) -> Mapping[tuple[int, ...], Any]:
        """The indexes by their columns; each has its number of distinct keys in `keys[0]`."""

    def build_index(self, cols: tuple[int, ...]) -> None:
        """Build an index, unless it is there."""

    def drop_index(self, cols: tuple[int, ...]) -> None:
        """Drop an index."""

    def at_key(self, cols: tuple[int, ...], keys: Codes) -> Batch:
        """Return the rows whose `cols`, all indexable ones among them, equal one of the keys."""

    def matches(self, index: Any, batch: Codes, cols: Codes, null_safe: bool = False) -> tuple[Codes, Codes]:
        """Return (position in `batch`, row id) of the rows that have the key in columns `cols` of the batch."""

    def at_ids(self, ids: Codes) -> Batch:
        """Return the rows of ids."""

    def scan(self) -> Batch:
        """Return all rows."""


class Lookups:
    """The lookups of one relation."""

    __slots__ = ("_relation", "built", "declared", "scanned")

    def __init__(self, relation: Indexed) -> None:
        self._relation = relation
        self.scanned: set[tuple[int, ...]] = set()
        self.built: list[tuple[int, ...]] = []
        self.declared: set[tuple[int, ...]] = set()

    def find(self, cols: tuple[int, ...], keys: Codes) -> Batch:
        """Return the rows whose `cols` equal one of the distinct `keys`."""
        relation = self._relation
        if not len(keys) or not len(relation):
            return Batch.empty(relation.width)
        cols, keys = in_order(cols, keys)
        if len(cols) >= relation.indexable and cols[relation.indexable - 1] == relation.indexable - 1:
            return relation.at_key(cols, keys)
        chosen = self._choose(cols)
        if chosen is None:
            return among_rows(relation.scan(), cols, keys)
        part = [cols.index(c) for c in chosen]
        at, ids = relation.matches(relation.indexes[chosen], keys, np.array(part, np.int64), null_safe=True)
        found = relation.at_ids(ids)
        if len(part) < len(cols):
            hit = (found.rows[:, cols] == keys[at]).all(axis=1)
            found = Batch(found.rows[hit], found.ann[hit], True)
        return found

    def takes(self, cols: tuple[int, ...]) -> bool:
        """Return whether these columns can be indexed."""
        return max(cols) < self._relation.indexable

    def declare(self, cols: tuple[int, ...]) -> None:
        """Build an index, of columns in ascending order, that stays until it is retracted."""
        self._relation.build_index(cols)
        self.release(cols)
        self.declared.add(cols)

    def retract(self, cols: tuple[int, ...]) -> None:
        """Let a declared index go as others do that lookups have built."""
        self.declared.remove(cols)
        self._built(cols)

    def release(self, cols: tuple[int, ...]) -> None:
        """Leave an index to an operator that needs it from now on, so that it is not dropped here."""
        if cols in self.built:
            self.built.remove(cols)

    @property
    def kept(self) -> set[tuple[int, ...]]:
        """The columns of the indexes that are here for lookups."""
        return self.declared.union(self.built)

    def _choose(self, cols: tuple[int, ...]) -> tuple[int, ...] | None:
        """Return the columns of the index to use, which may be a new one; None to scan."""
        relation = self._relation
        best, most = None, -1
        for columns, index in relation.indexes.items():
            if (columns == cols or set(columns).issubset(cols)) and (distinct := int(index.keys[0])) > most:
                best, most = columns, distinct
        if best is not None and (len(best) == len(cols) or len(relation) <= _NARROW * max(1, most)):
            self._used(best)
            return best
        wanted = tuple(c for c in cols if c < relation.indexable)
        if wanted == best:
            return best
        if len(relation) <= SMALL:
            return None
        if cols not in self.scanned:
            self.scanned.add(cols)
            return None
        relation.build_index(wanted)
        self._built(wanted)
        return wanted

    def _built(self, cols: tuple[int, ...]) -> None:
        self.built.append(cols)
        if len(self.built) > MOST:
            self._relation.drop_index(self.built.pop(0))

    def _used(self, cols: tuple[int, ...]) -> None:
        if cols in self.built:
            self.built.remove(cols)
            self.built.append(cols)


def in_order(cols: tuple[int, ...], keys: Codes) -> tuple[tuple[int, ...], Codes]:
    """Return the columns in ascending order, and the keys with them."""
    if all(a < b for a, b in pairwise(cols)):
        return cols, keys
    order = sorted(range(len(cols)), key=lambda i: cols[i])
    return tuple(cols[i] for i in order), np.ascontiguousarray(keys[:, order])


def among_rows(batch: Batch, cols: tuple[int, ...], keys: Codes) -> Batch:
    """Return the rows of a batch whose `cols` equal one of the keys."""
    values = np.ascontiguousarray(batch.rows[:, cols])
    hit = (values == keys[0]).all(axis=1) if len(keys) == 1 else among(values, keys)
    return Batch(batch.rows[hit], batch.ann[hit], True)


def among(rows: Codes, keys: Codes) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """Say of each row whether it is one of the keys.

    >>> among(np.array([[1], [2], [3]]), np.array([[3], [1]])).tolist()
    [True, False, True]
    """
    number, _ = number_rows(np.concatenate([keys, rows]))
    distinct = int(number[: len(keys)].max(initial=-1)) + 1
    hit: np.ndarray[tuple[int], np.dtype[np.bool_]] = number[len(keys) :] < distinct
    return hit
