"""Tables and views in partitions, as the driver sees them: the same questions that a relation or an operator answers.

What is asked of rows goes to the partitions they live in; a relation that every partition has is read in the first.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from whence.engine.core.batch import concat, consolidate
from whence.engine.core.kernels.batches import number_rows
from whence.engine.core.lifetimes import NEVER
from whence.engine.core.operator import Batch
from whence.engine.exchange.kernels.routing import split
from whence.engine.exchange.ship import by_arrival, targets
from whence.model.codes import NULL, Codes
from whence.model.types import Schema
from whence.plan.algebra.distribution import Distribution
from whence.plan.algebra.program import Lifetime, is_owed, owner_of
from whence.plan.streams.model import has_at
from whence.runtime.spark.driver.supersteps import SuperstepRunner


class PartitionedRelation:
    """A table or view by name; with `$at` the last of its columns it is a stream."""

    def __init__(self, name: str, schema: Schema, runner: SuperstepRunner, dist: Callable[[], Distribution]):
        self.name, self.schema, self._runner, self._dist = name, schema, runner, dist

    @property
    def kept(self) -> PartitionedRelation:
        """Itself: of a stream what it keeps is asked."""
        return self

    @property
    def rows(self) -> Codes:
        """All rows."""
        return self.contents().rows

    @property
    def relation(self) -> PartitionedRelation:
        """Itself: of a table both the scan and its relation are asked."""
        return self

    @property
    def homes(self) -> range:
        """The partitions that, together, have each row once."""
        return range(1) if self._dist().kind in ("all", "one") else range(self._runner.partitions)

    def contents(self) -> Batch:
        """All rows, and how often each is there; those of a stream in the order of their `$at`s."""
        found = self._runner.ask(dict.fromkeys(self.homes, ("contents", (self.name,))))
        whole = concat([found[p] for p in self.homes], len(self.schema))
        if has_at(self.schema):
            return by_arrival(whole)
        # If nothing says where rows live, copies of one may live in several partitions.
        return consolidate(whole) if self._dist().kind == "spread" else whole

    scan = contents

    @property
    def size(self) -> int:
        found = self._runner.ask(dict.fromkeys(self.homes, ("size", (self.name,))))
        return int(sum(found.values()))

    def __len__(self) -> int:
        return self.size

    def __bool__(self) -> bool:
        return True  # it is there, empty or not

    def may_have_rows(self) -> bool:
        """Whether it is worth asking the partitions; of debts the driver knows."""
        return not is_owed(self.name) or any(owner_of(self.name) in owed for owed in self._runner.owed)

    def counts(self, rows: Codes) -> Codes:
        """How often each of these rows is there."""
        places = self._places(rows, self._dist().cols)
        found = self._runner.ask({p: ("counts", (self.name, rows[at])) for p, at in places.items()}, len(rows))
        out = np.zeros(len(rows), np.int64)
        for p, at in places.items():
            out[at] += found[p]
        return out

    count_of = counts

    def at_keys(self, cols: tuple[int, ...], keys: Codes) -> Batch:
        """The rows that have one of these keys in some columns, which are all that rows are routed by."""
        dist = self._dist()
        places = self._places(keys, tuple(cols.index(c) for c in dist.cols))
        found = self._runner.ask({p: ("at_keys", (self.name, cols, keys[at])) for p, at in places.items()}, len(keys))
        return concat(list(found.values()), len(self.schema))

    def find(self, cols: tuple[int, ...], keys: Codes) -> Batch:
        """The rows that have one of these distinct keys in any columns; NULL equals NULL. If rows are routed by some of
        the columns, a partition is asked for its own keys only, else every partition for all of them."""
        dist = self._dist()
        routed = dist.kind == "hash" and set(dist.cols) <= set(cols)
        if routed:
            places = self._places(keys, tuple(cols.index(c) for c in dist.cols))
        else:
            places = dict.fromkeys(self.homes if len(keys) else (), np.arange(len(keys)))
        found = self._runner.ask({p: ("find", (self.name, cols, keys[at])) for p, at in places.items()}, len(keys))
        whole = concat(list(found.values()), len(self.schema))
        if has_at(self.schema):
            return by_arrival(whole)
        return consolidate(whole) if dist.kind == "spread" else whole

    def _places(self, rows: Codes, cols: tuple[int, ...]) -> dict[int, Codes]:
        """The positions of the rows that each partition is to be asked about; `cols` of them are routed by."""
        if not len(rows):
            return {}
        if self._dist().kind != "hash":
            return {p: np.arange(len(rows)) for p in self.homes}
        order, starts = split(targets(rows, cols, self._runner.partitions), self._runner.partitions)
        return {p: order[starts[p] : starts[p + 1]] for p in self.homes if starts[p] < starts[p + 1]}


class PartitionedLifetimes:
    """The deadlines of a table whose rows are in partitions; those are kept there, and moved by epochs."""

    def __init__(self, lifetime: Lifetime, table: PartitionedRelation, runner: SuperstepRunner):
        self.lifetime, self._table, self._runner = lifetime, table, runner

    @property
    def soonest(self) -> int:
        return min((due.get(self._table.name, NEVER) for due in self._runner.deadlines), default=NEVER)

    @property
    def width(self) -> int:
        return len(self._table.schema)

    @property
    def by_arrival(self) -> bool:
        return self.lifetime.column is None

    @property
    def nbytes(self) -> int:
        return 0  # it is part of the partitions' state

    def due_rows(self, now: int) -> Codes:
        """The rows whose time is up."""
        if self.soonest > now:
            return np.empty((0, self.width), np.int64)
        found = self._runner.ask(dict.fromkeys(self._table.homes, ("due_rows", (self._table.name, now))))
        return np.concatenate(list(found.values()))

    def expire(self, delta: Batch, refreshed: Codes, now: int) -> Batch:
        """The delta of an epoch, and with it the leaving of all that is due then."""
        column = self.lifetime.column
        if column is not None:
            begins = delta.rows[:, column]
            late = (delta.ann > 0) & (begins != NULL) & (begins + self.lifetime.micros <= now)
            delta = Batch(delta.rows[~late], delta.ann[~late], True)
        due = self.due_rows(now)
        if len(due):
            due = _without(due, np.concatenate([delta.rows[delta.ann < 0], refreshed]))
        if not len(due):
            return delta
        return concat([delta, Batch(due, np.full(len(due), -1, np.int64))], self.width)


def _without(rows: Codes, others: Codes) -> Codes:
    """The distinct rows that are not among others."""
    number, _ = number_rows(np.ascontiguousarray(np.concatenate([others, rows])))
    return rows[~np.isin(number[len(others) :], number[: len(others)])]
