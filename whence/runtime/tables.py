"""The base tables as a writer sees them: the committed rows and, over them, what the transaction has written so far.

Writes become changes of multiplicity that the dataflow takes in at commit; until then the committed relation is not
touched, so readers never see them. The overlay that answers "what would be there now" is only made when a write asks:
a delete after an insert, a key that is written twice. PRIMARY KEY: an insert withdraws the row that has its key.

A table with a time-to-live is a set, and begins without the rows whose time is up; writing a row that is there is a
change of zero, which says that its life begins anew.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from whence.annotate.counting import COUNTING
from whence.connect.rows import check_not_null, to_tuples
from whence.engine.batch import codes2d, concat, consolidate
from whence.engine.kernels.batches import number_rows
from whence.engine.kernels.routing import split
from whence.engine.operator import Batch
from whence.engine.relation import Relation
from whence.errors import DataError, MissingRowError
from whence.model.codes import Codes, Dictionary, shown
from whence.plan.program import Table


class Committed(Protocol):
    """The rows of a table after the last epoch, wherever they are: a `Relation`, or its partitions."""

    def counts(self, rows: Codes) -> Codes:
        """How often each of these rows is there."""

    def at_keys(self, cols: tuple[int, ...], keys: Codes) -> Batch:
        """The rows that have one of these keys in some columns, which are indexed."""

    def find(self, cols: tuple[int, ...], keys: Codes) -> Batch:
        """The rows that have one of these distinct keys in any columns; NULL equals NULL."""

    def scan(self) -> Batch:
        """Everything."""


class Pending:
    """What one transaction has written to one table."""

    def __init__(
        self, table: Table, committed: Committed, dictionary: Dictionary, expired: Codes | None = None
    ) -> None:
        self.table, self._committed, self._dictionary = table, committed, dictionary
        self._parts: list[Batch] = []
        if expired is not None and len(expired):
            self._add(expired, np.full(len(expired), -1, np.int64))
        self._begin = len(self._parts)
        self._overlay: Relation | None = None
        self._absorbed = 0
        self._strict = any(not c.nullable for c in table.schema.columns)

    # -- writing -----------------------------------------------------------------------------------------------------

    def insert(self, rows: Codes) -> int:
        """Add rows; a row whose primary key is there already replaces the one that has it."""
        table = self.table
        if self._strict:
            check_not_null(rows, table.schema, table.name)
        if not len(rows):
            return 0
        count = len(rows)
        if table.key:
            rows = _last_by_key(rows, table.key)
            replaced = self._at_keys(rows)
            if len(replaced):
                self._add(replaced, np.full(len(replaced), -1, np.int64))
        self._put(rows, np.ones(len(rows), np.int64), unique=bool(table.key))
        return count

    def delete(self, rows: Codes, strict: bool = False) -> int:
        """Take rows away, each as often as it is given, and say how many were there."""
        if not len(rows):
            return 0
        asked = consolidate(Batch(rows, np.ones(len(rows), np.int64)), COUNTING)
        there = self.counts(asked.rows)
        taken = np.minimum(asked.ann, there)
        if strict and (taken < asked.ann).any():
            missing = asked.rows[taken < asked.ann][:1]
            row = to_tuples(missing, self.table.schema, self._dictionary)[0]
            raise MissingRowError(f"table {self.table.name}: no row {shown(row)} to delete")
        hit = taken > 0
        if hit.any():
            self._add(asked.rows[hit], -taken[hit])
        return int(taken.sum())

    def take(self, rows: Codes, signs: Codes) -> int:
        """Do what a source says, row after row: +1 inserts it, -1 deletes it, or in a table with a primary key whatever
        row has its key. How many deletions found nothing; they are passed over.

        What rows of other keys, or other rows of a table without a key, do meanwhile does not matter: parts of a table
        that share none give together what the whole gives.
        """
        table, rows = self.table, codes2d(rows)
        if self._strict:
            check_not_null(rows[signs > 0], table.schema, table.name)
        if not len(rows):
            return 0
        if table.key:
            return self._take_by_key(rows, signs)
        if table.lifetime is None and (signs > 0).all():
            self._add(rows, signs)
            return 0
        number, first = number_rows(rows)
        order, starts = split(number, len(first))
        if table.lifetime is not None:
            return self._take_as_set(rows[first], signs[order], starts)
        change, missed = _reflected(signs[order], starts, lambda which: self.counts(rows[first[which]]))
        hit = change != 0
        self._add(rows[first[hit]], change[hit], unique=True)
        return missed

    def _take_by_key(self, rows: Codes, signs: Codes) -> int:
        """The last row of a key counts."""
        key = self.table.key
        number, first = number_rows(np.ascontiguousarray(rows[:, key]))
        order, starts = split(number, len(first))
        last = order[starts[1:] - 1]
        there = self._at_keys(rows[first])
        if len(there):
            self._add(there, np.full(len(there), -1, np.int64))
        coming = rows[np.sort(last[signs[last] > 0])]
        self._add(coming, np.ones(len(coming), np.int64), unique=True)
        if (signs > 0).all():
            return 0
        known, _ = number_rows(np.ascontiguousarray(np.concatenate([rows[first], there])[:, key]))
        found = np.zeros(len(first), bool)
        found[known[len(first) :]] = True  # a key that is there has the number of the first row that has it
        return _vain(signs[order], starts, found)

    def _take_as_set(self, distinct: Codes, signs: Codes, starts: Codes) -> int:
        """Each row once; the signs are sorted by row. Writing a row that is there is a change of zero."""
        there = self.counts(distinct)
        stays = signs[starts[1:] - 1] > 0
        touched = stays | (there > 0)
        self._add(distinct[touched], (stays.astype(np.int64) - there)[touched], unique=False)
        return _vain(signs, starts, there > 0)

    def remove(self, rows: Codes, counts: Codes) -> int:
        """Take away rows that are known to be there, as often as `counts` says."""
        if len(rows):
            self._add(rows, -counts)
        return int(counts.sum())

    def replace(self, old: Codes, counts: Codes, new: Codes) -> int:
        """Put `new` in the place of `old`, row by row, each as often as `counts` says (UPDATE)."""
        table = self.table
        if self._strict:
            check_not_null(new, table.schema, table.name)
        if not len(old):
            return 0
        mark = self.mark()
        self._add(old, -counts)
        if table.key:
            taken = self._at_keys(new)
            if len(taken) or len(_last_by_key(new, table.key)) != len(new):
                self.back_to(mark)
                what = to_tuples((taken if len(taken) else new)[:1], table.schema, self._dictionary)[0]
                raise DataError(f"table {table.name}: the update gives two rows one primary key: {shown(what)}")
        self._put(new, counts)
        return int(counts.sum())

    def _put(self, rows: Codes, counts: Codes, unique: bool = False) -> None:
        """Add rows as often as `counts` says, or in a table that is a set those that are not there."""
        if self.table.lifetime is not None and not self.table.key:
            rows = rows[number_rows(rows)[1]]
            counts = (self.counts(rows) == 0).astype(np.int64)
        self._add(rows, counts, unique)

    def _add(self, rows: Codes, ann: Codes, unique: bool = False) -> None:
        self._parts.append(Batch(rows, ann, unique))

    # -- seeing ------------------------------------------------------------------------------------------------------

    def counts(self, rows: Codes) -> Codes:
        """How often each of these distinct rows is there now."""
        out = self._committed.counts(rows)
        overlay = self._over()
        return out if overlay is None else out + overlay.counts(rows)

    def contents(self) -> tuple[Codes, Codes]:
        """Every distinct row that is there now, and how often."""
        committed, overlay = self._committed.scan(), self._over()
        if overlay is None:
            return committed.rows, committed.ann
        over = overlay.scan()
        both = Batch(np.concatenate([committed.rows, over.rows]), np.concatenate([committed.ann, over.ann]))
        total = consolidate(both, COUNTING)
        return total.rows, total.ann

    def find(self, cols: tuple[int, ...], keys: Codes) -> tuple[Codes, Codes]:
        """Return the distinct rows whose `cols` equal one of the distinct `keys`, and how often each is there now."""
        found, overlay = self._committed.find(cols, keys), self._over()
        if overlay is not None:
            found = consolidate(concat([found, overlay.find(cols, keys)], len(self.table.schema)), COUNTING)
        return found.rows, found.ann

    def _at_keys(self, rows: Codes) -> Codes:
        """The rows that now have the primary keys of these rows."""
        key = self.table.key
        keys = np.ascontiguousarray(rows[:, key])
        found, overlay = self._committed.at_keys(key, keys), self._over()
        if overlay is None:
            return found.rows
        return consolidate(concat([found, overlay.at_keys(key, keys)], rows.shape[1]), COUNTING).rows

    def _over(self) -> Relation | None:
        if not self._parts:
            return None
        if self._overlay is None:
            self._overlay, self._absorbed = Relation(len(self.table.schema), COUNTING), 0
        for part in self._parts[self._absorbed :]:
            self._overlay.apply(consolidate(part, COUNTING))
        self._overlay.commit()
        self._absorbed = len(self._parts)
        return self._overlay

    # -- ending ------------------------------------------------------------------------------------------------------

    def mark(self) -> int:
        """Where the writes stand, for `back_to`."""
        return len(self._parts)

    def back_to(self, mark: int) -> None:
        """Forget the writes since a mark."""
        mark = max(mark, self._begin)
        if mark < self._absorbed:
            self._overlay = None
        del self._parts[mark:]

    def batch(self) -> Batch:
        """All writes as one batch."""
        if len(self._parts) == 1:
            return self._parts[0]
        if not self._parts:
            return Batch.empty(len(self.table.schema))
        return Batch(np.concatenate([p.rows for p in self._parts]), np.concatenate([p.ann for p in self._parts]))

    def delta(self) -> Batch:
        """What the table changes by."""
        return consolidate(self.batch(), COUNTING)

    def refreshed(self, delta: Batch) -> Codes:
        """The committed rows that were written again and that all writes together, `delta`, leave there."""
        batch = self.batch()
        written = batch.rows[batch.ann >= 0]
        rows = written[number_rows(written)[1]]
        staying = rows[self._committed.counts(rows) > 0]
        leaving = delta.rows[delta.ann < 0]
        number, _ = number_rows(np.concatenate([leaving, staying]))
        distinct = int(number[: len(leaving)].max(initial=-1)) + 1
        return staying[number[len(leaving) :] >= distinct]


def _reflected(signs: Codes, starts: Codes, counts: Callable[[Codes], Codes]) -> tuple[Codes, int]:
    """How the count of each row changes that goes up and down by its signs, but never below zero; and how often it
    would have. `counts` says how many there are of those for which that matters.

    A sum that is held at zero ends above the plain one by as much as the plain one was ever below zero.
    """
    sums = np.cumsum(signs)
    before = np.concatenate([np.zeros(1, np.int64), sums])[starts[:-1]]
    change = sums[starts[1:] - 1] - before
    lowest = np.minimum.reduceat(sums, starts[:-1]) - before
    sinking = np.flatnonzero(lowest < 0)
    missed = np.maximum(-lowest[sinking] - counts(sinking), 0) if len(sinking) else sinking
    change[sinking] += missed
    return change, int(missed.sum())


def _vain(signs: Codes, starts: Codes, there: NDArray[np.bool_]) -> int:
    """How many -1 find nothing, where each +1 and -1 says whether there is something for the next one."""
    found = np.empty(len(signs), bool)
    found[1:] = signs[:-1] > 0
    found[starts[:-1]] = there
    return int(((signs < 0) & ~found).sum())


def _last_by_key(rows: Codes, key: tuple[int, ...]) -> Codes:
    """Of rows with one key only the last, in the order they were given."""
    if len(rows) == 1:
        return rows
    number, first = number_rows(np.ascontiguousarray(rows[:, key]))
    if len(first) == len(rows):
        return rows
    last = np.empty(len(first), np.int64)
    last[number] = np.arange(len(rows))
    return rows[np.sort(last)]
