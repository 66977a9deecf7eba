"""Lifetimes: when each row of a table with a time-to-live is due to leave.

Law: a row's deadline is its arrival, or the time in its own column, plus the table's ttl; a row is due when its
deadline is not after now. A column that is NULL gives no deadline. State: the deadlines of arrivals are the table's
accumulator, so they come and go with the rows and are part of the table's image; the rest of it, an ordered index of
(deadline, row id), can be made again from the table at any time. Cost: O(log n) a row that comes, leaves or is
refreshed; finding what is due costs what is found, never the table.

An epoch is followed in two halves, around the run of the dataflow: `before` while leaving rows still have their ids,
`after` when coming rows have theirs. Then `commit` or, after the dataflow's own undo, `undo`.
"""

from __future__ import annotations

import numpy as np

from whence.engine.core.batch import codes2d
from whence.engine.core.operator import Batch
from whence.engine.core.ordered import Ordered, Rank
from whence.engine.core.relation import Relation
from whence.model.codes import NULL, Codes, Dictionary
from whence.plan.algebra.program import Lifetime

NEVER = 2**63 - 1
_FIRST_LOOK = 64  # entries of the index looked at before it is known how many are due


class Lifetimes:
    """The deadlines of one table's rows."""

    def __init__(self, lifetime: Lifetime, relation: Relation, dictionary: Dictionary) -> None:
        self.lifetime, self._relation, self._dictionary = lifetime, relation, dictionary
        self._saved: list[tuple[Codes, Codes]] = []
        self.rebuild()

    # -- asking ------------------------------------------------------------------------------------------------------

    def due(self, now: int) -> Codes:
        """Ids of the rows whose time is up."""
        if self.soonest > now:
            return np.empty(0, np.int64)
        look = _FIRST_LOOK
        while True:
            entries, _ = self._order.head(look)
            if len(entries) < look or entries[-1, 0] > now:
                break
            look *= 4
        return np.ascontiguousarray(entries[: np.searchsorted(entries[:, 0], now, side="right"), 1])

    def due_rows(self, now: int) -> Codes:
        """The rows whose time is up."""
        return self._relation.rows[self.due(now)]

    def overdue(self, delta: Batch, now: int) -> int:
        """How many of the rows that leave by a delta, not yet applied, would have had to anyway."""
        if self.soonest > now:
            return 0
        return int((self._deadlines(self._leaving(delta)) <= now).sum())

    def expire(self, delta: Batch, refreshed: Codes, now: int) -> Batch:
        """The delta of an epoch, and with it the leaving of all that is due then.

        A row that comes with its time already up does not come; one that is refreshed stays.
        """
        if not self.by_arrival:
            coming = delta.ann > 0
            late = coming & (self._end(delta.rows) <= now)
            if late.any():
                delta = Batch(delta.rows[~late], delta.ann[~late], True)
        ids = self.due(now)
        if len(ids):
            spoken_for = np.concatenate([self._leaving(delta), self._relation.lookup(refreshed)])
            ids = ids[~np.isin(ids, spoken_for)]
        if not len(ids):
            return delta
        rows = np.concatenate([delta.rows, self._relation.rows[ids]])
        return Batch(rows, np.concatenate([delta.ann, np.full(len(ids), -1, np.int64)]), True)

    @property
    def width(self) -> int:
        return self._relation.width

    @property
    def by_arrival(self) -> bool:
        return self.lifetime.column is None

    @property
    def nbytes(self) -> int:
        return self._order.nbytes

    # -- following ---------------------------------------------------------------------------------------------------

    def before(self, delta: Batch) -> None:
        """Forget the rows that are about to leave."""
        ids = self._leaving(delta)
        self._note(ids, self._deadlines(ids), -1)

    def after(self, delta: Batch, refreshed: Codes, time: int) -> None:
        """Note the rows that have come, and begin the refreshed ones' lives anew."""
        ids = self._relation.lookup(delta.rows[delta.ann > 0])
        if self.by_arrival:
            self._relation.acc[ids, 0] = time + self.lifetime.micros
        self._note(ids, self._deadlines(ids), 1)
        if len(refreshed):
            self._refresh(self._relation.lookup(codes2d(refreshed)), time)
        self._look_ahead()

    def commit(self) -> None:
        self._order.commit()
        self._saved.clear()

    def undo(self) -> None:
        self._order.undo()
        for ids, deadlines in reversed(self._saved):
            self._relation.acc[ids, 0] = deadlines
        self._saved.clear()
        self._look_ahead()

    def rebuild(self) -> None:
        """Make the index anew from the table, whose rows and accumulators may just have been restored."""
        self._order = Ordered([Rank(0), Rank(1)], self._dictionary)
        ids = self._relation.ids()
        self._note(ids, self._deadlines(ids), 1)
        self.commit()
        self._look_ahead()

    def _refresh(self, ids: Codes, time: int) -> None:
        old = self._deadlines(ids)
        self._saved.append((ids, old))
        self._note(ids, old, -1)
        self._relation.acc[ids, 0] = time + self.lifetime.micros
        self._note(ids, self._deadlines(ids), 1)

    def _note(self, ids: Codes, deadlines: Codes, change: int) -> None:
        known = deadlines != NEVER
        if known.any():
            self._order.add(np.column_stack((deadlines[known], ids[known])), np.full(known.sum(), change, np.int64))

    def _look_ahead(self) -> None:
        first, _ = self._order.head(1)
        self.soonest = int(first[0, 0]) if len(first) else NEVER

    def _leaving(self, delta: Batch) -> Codes:
        return self._relation.lookup(delta.rows[delta.ann < 0])

    def _deadlines(self, ids: Codes) -> Codes:
        if self.by_arrival:
            deadlines: Codes = self._relation.acc[ids, 0]
            return deadlines
        return self._end(self._relation.rows[ids])

    def _end(self, rows: Codes) -> Codes:
        """The deadlines that rows carry in their own column."""
        assert self.lifetime.column is not None
        begins = rows[:, self.lifetime.column]
        return np.where(begins == NULL, NEVER, begins + self.lifetime.micros)
