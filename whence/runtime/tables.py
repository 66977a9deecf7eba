"""The base tables as a writer sees them: the committed rows and, over them, what the transaction has written so far.

Writes become changes of multiplicity that the dataflow takes in at commit; until then the committed relation is not
touched, so readers never see them. The overlay that answers "what would be there now" is only made when a write asks:
a delete after an insert, a key that is written twice. PRIMARY KEY: an insert withdraws the row that has its key.

A table with a time-to-live is a set, and begins without the rows whose time is up; writing a row that is there is a
change of zero, which says that its life begins anew.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np

from whence.annotate.counting import COUNTING
from whence.connect.rows import check_not_null, to_tuples
from whence.engine.batch import concat, consolidate
from whence.engine.kernels.batches import number_rows
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

    def refreshed(self, delta: Batch) -> Codes:
        """The committed rows that were written again and that all writes together, `delta`, leave there."""
        batch = self.batch()
        written = batch.rows[batch.ann >= 0]
        rows = written[number_rows(written)[1]]
        staying = rows[self._committed.counts(rows) > 0]
        leaving = delta.rows[delta.ann < 0]
        number, _ = number_rows(np.concatenate([leaving, staying]))
        return staying[~np.isin(number[len(leaving) :], number[: len(leaving)])]


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
