"""The base tables as a writer sees them: the committed rows and, over them, what the transaction has written so far.

Writes become changes of multiplicity that the dataflow takes in at commit; until then the committed relation is not
touched, so readers never see them. The overlay that answers "what would be there now" is only made when a write asks:
a delete after an insert, a key that is written twice. PRIMARY KEY: an insert withdraws the row that has its key.

A table with a time-to-live is a set, and begins without the rows whose time is up; writing a row that is there is a
change of zero, which says that its life begins anew.

A deletion whose row is not there is *early*. If it is held, it goes to the table's debts, a relation beside the table
that is written, logged and undone as the table is; the next insertion of that row pays for it, and neither is seen.
The law, for a table without a key or time-to-live whose early deletions are all held: a row is there as often as it
was inserted more than deleted, and owed as often as it was deleted more than inserted, whatever the order.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, NamedTuple, Protocol, get_args

import numpy as np
from numpy.typing import NDArray

from whence.engine.core.batch import codes2d, concat, consolidate
from whence.engine.core.kernels.batches import number_rows, run_sums
from whence.engine.core.operator import Batch
from whence.engine.core.relation import Relation
from whence.engine.exchange.kernels.routing import split
from whence.io.rows import check_not_null, to_tuples
from whence.model.codes import NULL, Codes, Dictionary, format_value
from whence.model.errors import DataError, MissingRowError, WhenceError
from whence.plan.algebra.program import Table
from whence.runtime.writing.kernels.signs import balance, follow_keys
from whence.runtime.writing.promise_guard import PromiseGuard

Early = Literal["ignore", "hold", "error"]
"""What becomes of a deletion whose row is not there: it is passed over, waits for the row, or is an error."""


def early_choice(early: str | None, strict: bool = False, default: Early = "ignore") -> Early:
    """Check what was asked for early deletions; `strict` is the old word for 'error'."""
    if early is None:
        return "error" if strict else default
    for choice in get_args(Early):
        if early == choice:
            if strict and choice != "error":
                raise WhenceError(f"strict=True makes early deletions an error, and early={early!r} does not: give one")
            return choice  # type: ignore[no-any-return]  # one of Early's own
    raise WhenceError(f"early is 'ignore', 'hold' or 'error', not {early!r:.100}")


Sees = Callable[[Codes], NDArray[np.bool_]]
"""Which of some rows a writer may see."""


class Unmatched(NamedTuple):
    """How many deletions found no row: those that were passed over, and those that are held."""

    passed: int = 0
    held: int = 0

    def plus(self, other: Unmatched) -> Unmatched:
        """Those of both."""
        return Unmatched(self.passed + other.passed, self.held + other.held)


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

    def may_have_rows(self) -> bool:
        """Whether it is worth asking for any."""


class WriteSet:
    """What one transaction has written to one table."""

    def __init__(
        self,
        table: Table,
        committed: Committed,
        dictionary: Dictionary,
        expired: Codes | None = None,
        owed: Committed | None = None,
        guard: PromiseGuard | None = None,
    ) -> None:
        """`expired` are rows whose time is up, and `owed` what the table owes. Without a `guard` no promise is
        enforced."""
        self.table, self._committed, self._dictionary = table, committed, dictionary
        self._parts: list[Batch] = []
        if expired is not None and len(expired):
            self._add(expired, np.full(len(expired), -1, np.int64))
        self._begin = len(self._parts)
        self._overlay: Relation | None = None
        self._absorbed = 0
        self._owed, self._guard = owed, guard
        self.debts: Callable[[], WriteSet] | None = None  # of the same transaction, see the module's law
        self._debts: WriteSet | None = None  # once they are asked for
        self.sees: Sees | None = None
        """Which rows there are for the writer, who finds, changes and deletes no others. All rows have their keys."""

    # -- writing -----------------------------------------------------------------------------------------------------

    def insert(self, rows: Codes) -> int:
        """Add rows; a row whose primary key is there already replaces the one that has it, and one that is owed pays
        for its deletion instead."""
        table = self.table
        if table.schema.required:
            check_not_null(rows, table.schema, table.name)
        if not len(rows):
            return 0
        if self._guard is not None:
            self._guard.check(rows)
        count = len(rows)
        if table.key and self._owing() is not None:
            self._take_by_key(rows, np.ones(count, np.int64), "ignore")
            return count
        if table.key:
            rows = _last_by_key(rows, table.key)
            replaced = self._at_keys(rows)
            if len(replaced):
                self._add(replaced, np.full(len(replaced), -1, np.int64))
        self._put(rows, np.ones(len(rows), np.int64), unique=bool(table.key))
        return count

    def delete(self, rows: Codes, early: Early = "ignore") -> int:
        """Take rows away, each as often as it is given, and say how many were there."""
        if not len(rows):
            return 0
        asked = consolidate(Batch(rows, np.ones(len(rows), np.int64)))
        there = self.counts(asked.rows)
        taken = np.minimum(asked.ann, there)
        lacking = asked.ann - taken
        if early == "error":
            self._refuse(asked.rows, lacking)
        elif early == "hold" and lacking.any():
            some = np.flatnonzero((lacking > 0) & self._can_come(asked.rows))
            self._owe_more(asked.rows[some], lacking[some])
        hit = taken > 0
        if hit.any():
            self._add(asked.rows[hit], -taken[hit])
        return int(taken.sum())

    def take(self, rows: Codes, signs: Codes, early: Early = "ignore") -> Unmatched:
        """Do what a source says, row after row: +1 inserts it, -1 deletes it, or in a table with a primary key whatever
        row has its key. How many deletions found nothing.

        What rows of other keys, or other rows of a table without a key, do meanwhile does not matter: parts of a table
        that share none give together what the whole gives.
        """
        table, rows = self.table, codes2d(rows)
        if table.schema.required:
            check_not_null(rows[signs > 0], table.schema, table.name)
        if not len(rows):
            return Unmatched()
        if self._guard is not None:
            self._guard.check(rows, signs)
        if table.key:
            return self._take_by_key(rows, signs, early)
        debts = self._owing()
        if table.lifetime is None and debts is None and (signs > 0).all():
            self._add(rows, signs)
            return Unmatched()
        number, first = number_rows(rows)
        if table.lifetime is None and debts is None:
            sums, least = run_sums(number, signs, len(first))
            asked = np.flatnonzero(least < 0)
            if not len(asked) or (self.counts(rows[first[asked]]) + least[asked] >= 0).all():  # each finds its row
                changed = np.flatnonzero(sums)
                self._add(rows[first[changed]], sums[changed], unique=True)
                return Unmatched()
        order, starts = split(number, len(first))
        return self._take_by_row(rows[first], signs[order], starts, debts, early)

    def _take_by_row(
        self, distinct: Codes, signs: Codes, starts: Codes, debts: WriteSet | None, early: Early
    ) -> Unmatched:
        """Count each row up and down; the signs are sorted by row."""
        as_set = self.table.lifetime is not None
        owed = np.zeros(len(distinct), np.int64) if debts is None else debts.counts(distinct)
        there = np.zeros(len(distinct), np.int64)
        asked = np.flatnonzero((owed == 0) & (as_set | _sinks(signs, starts)))  # how many are there matters for these
        if len(asked):
            there[asked] = self.counts(distinct[asked])
        ends, passed, held = balance(signs, starts, there - owed, self._holds(distinct, early), as_set)
        if early == "error":
            self._refuse(distinct, passed)
        left = np.maximum(ends, 0)
        touched = (left != there) | (as_set & (left > 0))  # in a set a row that is written again lives anew
        self._add(distinct[touched], (left - there)[touched], unique=not as_set)
        self._owe(distinct, owed, np.maximum(-ends, 0), held)
        return Unmatched(int(passed.sum()), int(held.sum()))

    def _take_by_key(self, rows: Codes, signs: Codes, early: Early) -> Unmatched:
        """Go through the changes of each key: of the rows that come, the last one counts."""
        key, debts = self.table.key, self._owing()
        number, first = number_rows(np.ascontiguousarray(rows[:, key]))
        order, starts = split(number, len(first))
        there = self._at_keys(rows[first])
        found = np.zeros(len(first), bool)
        if (signs < 0).any():
            known, _ = number_rows(np.ascontiguousarray(np.concatenate([rows[first], there])[:, key]))
            found[known[len(first) :]] = True  # a key that is there has the number of the first row that has it
        row_of, distinct = number, rows[first]
        if debts is not None or early == "hold":
            row_of, at = number_rows(rows)
            distinct = rows[at]
        owed = np.zeros(len(distinct), np.int64) if debts is None else debts.counts(distinct)
        holds, as_set = self._holds(distinct, early), self.table.lifetime is not None
        last, after, passed, held = follow_keys(order, starts, signs, row_of, found, owed, holds, as_set)
        if early == "error":
            self._refuse(distinct, passed)
        if len(there):
            self._add(there, np.full(len(there), -1, np.int64))
        coming = rows[np.sort(last[last >= 0])]
        self._add(coming, np.ones(len(coming), np.int64), unique=True)
        self._owe(distinct, owed, after, held)
        return Unmatched(int(passed.sum()), int(held.sum()))

    def remove(self, rows: Codes, counts: Codes) -> int:
        """Take away rows that are known to be there, as often as `counts` says."""
        if len(rows):
            self._add(rows, -counts)
        return int(counts.sum())

    def replace(self, old: Codes, counts: Codes, new: Codes) -> int:
        """Put `new` in the place of `old`, row by row, each as often as `counts` says (UPDATE)."""
        table = self.table
        if table.schema.required:
            check_not_null(new, table.schema, table.name)
        if not len(old):
            return 0
        if self._guard is not None:
            self._guard.check(new)
        savepoint = self.savepoint()
        self._add(old, -counts)
        if table.key:
            taken = self._at_keys(new)
            if len(taken) or len(_last_by_key(new, table.key)) != len(new):
                self.rollback_to(savepoint)
                twice = taken if len(taken) and self.sees is None else new
                what = to_tuples(twice[:1], table.schema, self._dictionary)[0]
                raise DataError(f"table {table.name}: the update gives two rows one primary key: {format_value(what)}")
        self._put(new, counts)
        return int(counts.sum())

    def _put(self, rows: Codes, counts: Codes, unique: bool = False) -> None:
        """Add rows as often as `counts` says, or in a table that is a set those that are not there; less those that
        pay for a deletion."""
        debts = self._owing()
        if debts is not None:
            coming = consolidate(Batch(rows, counts))
            owed = debts.counts(coming.rows)
            self._owe(coming.rows, owed, np.maximum(owed - coming.ann, 0), np.zeros_like(owed))
            left = np.maximum(coming.ann - owed, 0)
            rows, counts, unique = coming.rows[left > 0], left[left > 0], True
        if self.table.lifetime is not None and not self.table.key:
            rows = rows[number_rows(rows)[1]]
            counts = (self.counts(rows) == 0).astype(np.int64)
        self._add(rows, counts, unique)

    def _add(self, rows: Codes, ann: Codes, unique: bool = False) -> None:
        self._parts.append(Batch(rows, ann, unique))

    # -- debts -------------------------------------------------------------------------------------------------------

    def _owing(self) -> WriteSet | None:
        """The table's debts, if it may have any."""
        if self._debts is None and (self._owed is None or not self._owed.may_have_rows()):
            return None
        return self._all_debts()

    def _all_debts(self) -> WriteSet:
        """The table's debts, if it has any or not."""
        if self._debts is None:
            assert self.debts is not None
            self._debts = self.debts()
        return self._debts

    def _holds(self, rows: Codes, early: Early) -> NDArray[np.bool_]:
        """Whether an early deletion of each of these rows is held."""
        return self._can_come(rows) if early == "hold" else np.zeros(len(rows), bool)

    def _can_come(self, rows: Codes) -> NDArray[np.bool_]:
        """Whether each of these could be a row to wait for: not one that is NULL where no row is, nor one of which only
        the primary key is told."""
        columns, key = self.table.schema.columns, self.table.key
        needed = [i for i, column in enumerate(columns) if not column.nullable]
        whole: NDArray[np.bool_] = (rows[:, needed] != NULL).all(axis=1)
        others = [i for i in range(len(columns)) if i not in key]
        if key and others:
            whole &= (rows[:, others] != NULL).any(axis=1)
        return whole

    def _refuse(self, rows: Codes, lacking: Codes) -> None:
        """MissingRowError if any of these rows was to be deleted and was not there."""
        missing = np.flatnonzero(lacking)
        if len(missing):
            row = to_tuples(rows[missing[:1]], self.table.schema, self._dictionary)[0]
            raise MissingRowError(f"table {self.table.name}: no row {format_value(row)} to delete")

    def _owe_more(self, rows: Codes, counts: Codes) -> None:
        """Owe distinct rows so many times more; in a set once."""
        if len(rows):
            owed = self._all_debts().counts(rows)
            self._owe(rows, owed, np.ones_like(owed) if self.table.lifetime is not None else owed + counts, counts)

    def _owe(self, rows: Codes, before: Codes, after: Codes, held: Codes) -> None:
        """Owe distinct rows as often as `after` says, where `before` is how often they are owed now, and `held` how
        many of their deletions are new."""
        touched = before != after
        if self.table.lifetime is not None:
            touched = touched | ((after > 0) & (held > 0))  # a debt lives anew with every deletion
        if touched.any():
            self._all_debts()._add(rows[touched], (after - before)[touched])

    # -- seeing ------------------------------------------------------------------------------------------------------

    def counts(self, rows: Codes) -> Codes:
        """How often each of these distinct rows is there now."""
        out = self._committed.counts(rows)
        overlay = self._over()
        out = out if overlay is None else out + overlay.counts(rows)
        return out if self.sees is None else np.where(self.sees(rows), out, 0)

    def found(self, rows: Codes) -> tuple[Codes, Codes]:
        """Those of some rows that are there now, each once, and how often each is."""
        distinct = rows[number_rows(codes2d(rows))[1]]
        counts = self.counts(distinct)
        return distinct[counts > 0], counts[counts > 0]

    def contents(self) -> tuple[Codes, Codes]:
        """Every distinct row that is there now for the writer, and how often."""
        return self._seen(*self.everything())

    def everything(self, until: int | None = None) -> tuple[Codes, Codes]:
        """Every distinct row that is there now, or was at a savepoint, and how often."""
        if until is not None:
            parts = [self._committed.scan(), *self._parts[: max(until, self._begin)]]
            total = consolidate(concat(parts, len(self.table.schema)))
            return total.rows, total.ann
        committed, overlay = self._committed.scan(), self._over()
        if overlay is None:
            return committed.rows, committed.ann
        over = overlay.scan()
        both = Batch(np.concatenate([committed.rows, over.rows]), np.concatenate([committed.ann, over.ann]))
        total = consolidate(both)
        return total.rows, total.ann

    def _seen(self, rows: Codes, counts: Codes) -> tuple[Codes, Codes]:
        """Return those of some rows that the writer may see, and their counts."""
        if self.sees is None or not len(rows):
            return rows, counts
        seen = self.sees(rows)
        return rows[seen], counts[seen]

    def find(self, cols: tuple[int, ...], keys: Codes) -> tuple[Codes, Codes]:
        """Return the distinct rows whose `cols` equal one of the distinct `keys`, and how often each is there now, for
        the writer."""
        return self._seen(*self.find_all(cols, keys))

    def find_all(self, cols: tuple[int, ...], keys: Codes) -> tuple[Codes, Codes]:
        """Return as `find` does, also rows that the writer may not see."""
        found, overlay = self._committed.find(cols, keys), self._over()
        if overlay is not None:
            found = consolidate(concat([found, overlay.find(cols, keys)], len(self.table.schema)))
        return found.rows, found.ann

    def _at_keys(self, rows: Codes) -> Codes:
        """The rows that now have the primary keys of these rows."""
        key = self.table.key
        keys = np.ascontiguousarray(rows[:, key])
        found, overlay = self._committed.at_keys(key, keys), self._over()
        if overlay is None:
            return found.rows
        return consolidate(concat([found, overlay.at_keys(key, keys)], rows.shape[1])).rows

    def _over(self) -> Relation | None:
        if not self._parts:
            return None
        if self._overlay is None:
            self._overlay, self._absorbed = Relation(len(self.table.schema)), 0
        for part in self._parts[self._absorbed :]:
            self._overlay.apply(consolidate(part))
        self._overlay.commit()
        self._absorbed = len(self._parts)
        return self._overlay

    # -- ending ------------------------------------------------------------------------------------------------------

    def savepoint(self) -> int:
        """Return where the writes stand, for `rollback_to`."""
        return len(self._parts)

    def rollback_to(self, savepoint: int) -> None:
        """Forget the writes since a savepoint."""
        savepoint = max(savepoint, self._begin)
        if savepoint < self._absorbed:
            self._overlay = None
        del self._parts[savepoint:]

    def written_since(self, savepoint: int) -> Batch:
        """Return every row that was written since a savepoint, once, and how much more often it is there than then;
        which is 0 for a row that was replaced by itself."""
        parts = self._parts[max(savepoint, self._begin) :]
        if not parts:
            return Batch.empty(len(self.table.schema))
        rows, signs = np.concatenate([p.rows for p in parts]), np.concatenate([p.ann for p in parts])
        number, first = number_rows(codes2d(rows))
        change = np.zeros(len(first), np.int64)
        np.add.at(change, number, signs)
        return Batch(rows[first], change)

    def batch(self) -> Batch:
        """All writes as one batch."""
        if len(self._parts) == 1:
            return self._parts[0]
        if not self._parts:
            return Batch.empty(len(self.table.schema))
        return Batch(np.concatenate([p.rows for p in self._parts]), np.concatenate([p.ann for p in self._parts]))

    def delta(self) -> Batch:
        """What the table changes by."""
        return consolidate(self.batch())

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


def _sinks(signs: Codes, starts: Codes) -> NDArray[np.bool_]:
    """Whether the signs of each row, which are sorted by row, ever sum up to less than zero."""
    sums = np.cumsum(signs)
    before = np.concatenate([np.zeros(1, np.int64), sums])[starts[:-1]]
    lowest: NDArray[np.bool_] = np.minimum.reduceat(sums, starts[:-1]) < before
    return lowest


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
