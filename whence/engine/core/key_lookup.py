"""Lookups by any columns: find the rows of a relation that have one of some keys, by an index where one pays.

Law: the result is what a scan of the relation with the filter `columns IN keys` gives, each row once; NULL equals NULL.

State: the column sets that were looked up by scanning, and the indexes that were built for lookups, most recent last.
Cost: the rows that match, once there is an index. An index that an operator or a primary key has is used if it leaves
few rows per key to compare. Else the first lookup scans, and the second one of the same columns builds an index. At
most `MOST` such indexes are kept per relation, so that a writer who filters by ever other columns does not make every
insert slower.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from whence.engine.core.kernels.batches import number_rows
from whence.engine.core.operator import Batch
from whence.model.codes import Codes

if TYPE_CHECKING:
    from whence.engine.core.relation import Relation

MOST = 4
"""Indexes per relation that are kept for lookups alone."""
SMALL = 1_000
"""Rows up to which a relation is scanned."""
_NARROW = 32  # rows per key that may be compared one by one instead of building an index


class Lookups:
    """The lookups of one relation."""

    __slots__ = ("_relation", "built", "scanned")

    def __init__(self, relation: Relation) -> None:
        self._relation = relation
        self.scanned: set[tuple[int, ...]] = set()
        self.built: list[tuple[int, ...]] = []

    def find(self, cols: tuple[int, ...], keys: Codes) -> Batch:
        """Return the rows whose `cols` equal one of the distinct `keys`."""
        relation = self._relation
        if not len(keys) or not len(relation):
            return Batch.empty(relation.width)
        order = sorted(range(len(cols)), key=lambda i: cols[i])
        cols, keys = tuple(cols[i] for i in order), np.ascontiguousarray(keys[:, order])
        if len(cols) == relation.width:
            ids = relation.lookup(keys)
            ids = ids[ids >= 0]
            return Batch(relation.rows[ids], relation.ann[ids], True)
        chosen = self._choose(cols)
        if chosen is None:
            return self._scan(cols, keys)
        part = [cols.index(c) for c in chosen]
        at, ids = relation.matches(relation.indexes[chosen], keys, np.array(part, np.int64), null_safe=True)
        if len(part) < len(cols):
            ids = ids[(relation.rows[ids][:, cols] == keys[at]).all(axis=1)]
        return Batch(relation.rows[ids], relation.ann[ids], True)

    def release(self, cols: tuple[int, ...]) -> None:
        """Leave an index to an operator that needs it from now on, so that it is not dropped here."""
        if cols in self.built:
            self.built.remove(cols)

    def _choose(self, cols: tuple[int, ...]) -> tuple[int, ...] | None:
        """Return the columns of the index to use, which may be a new one; None to scan."""
        relation = self._relation
        usable = [index for index in relation.indexes if set(index) <= set(cols)]
        best = max(usable, key=lambda index: int(relation.indexes[index].keys[0]), default=None)
        if best is not None:
            per_key = len(relation) / max(1, int(relation.indexes[best].keys[0]))
            if len(best) == len(cols) or per_key <= _NARROW:
                self._used(best)
                return best
        if len(relation) <= SMALL:
            return None
        if cols not in self.scanned:
            self.scanned.add(cols)
            return None
        relation.index(cols)
        self.built.append(cols)
        if len(self.built) > MOST:
            relation.drop_index(self.built.pop(0))
        return cols

    def _used(self, cols: tuple[int, ...]) -> None:
        if cols in self.built:
            self.built.remove(cols)
            self.built.append(cols)

    def _scan(self, cols: tuple[int, ...], keys: Codes) -> Batch:
        everything = self._relation.scan()
        values = np.ascontiguousarray(everything.rows[:, cols])
        hit = (values == keys[0]).all(axis=1) if len(keys) == 1 else among(values, keys)
        return Batch(everything.rows[hit], everything.ann[hit], True)


def among(rows: Codes, keys: Codes) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """Say of each row whether it is one of the keys.

    >>> among(np.array([[1], [2], [3]]), np.array([[3], [1]])).tolist()
    [True, False, True]
    """
    number, _ = number_rows(np.concatenate([keys, rows]))
    distinct = int(number[: len(keys)].max(initial=-1)) + 1
    hit: np.ndarray[tuple[int], np.dtype[np.bool_]] = number[len(keys) :] < distinct
    return hit
