"""Which orders of a view's join are best while data drift: every order of every delta, measured in probes and matches.

Deltas do not depend on one another's orders, so each is measured alone: with five inputs, 5 x 24 orders. The best
static plan has, for each delta, the order of least work in all phases together; an oracle has that of each phase. What
the static plan does more than the oracle is the room that adapting has.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import permutations

import whence
from whence.engine.core.operator import Batch, upwards
from whence.engine.relational.join import Join
from whence.plan.algebra.join_paths import JoinOrders, JoinShape, PathCode, weigh_order

Work = list[dict[PathCode, float]]  # of a delta of each input: probes and matches by order
Rows = Sequence[tuple[int, ...]]
SETTLED = 60  # seconds after which windows have followed a phase
_HOPELESS = 30.0  # times the least estimate: orders that are not measured


def join_of(db: whence.Database, view: str = "segment_toll") -> Join:
    """Return the join that a view runs."""
    top = db._coordinator.catalog.backend.operator(view)
    return next(op for op in upwards([top]) if isinstance(op, Join))


def code_order(shape: JoinShape, first: int, order: Sequence[int]) -> PathCode:
    """Return an order that looks columns up by an ordered index wherever they are bounded."""
    found, met = [], 1 << first
    for input in order:
        found.append(~input if shape.bounded(input, met) else input)
        met |= 1 << input
    return tuple(found)


class OrderMeter:
    """Follows the deltas of some epochs along every order, beside the join's own, and counts the work.

    Orders that should be `_HOPELESS` times dearer than the cheapest are counted as their estimate."""

    def __init__(self, join: Join) -> None:
        self._join, self._apply = join, join.apply
        self.work: Work = [{} for _ in join.inputs]
        self.active = False
        join.apply = self._measured  # type: ignore[method-assign]  # of this join alone

    def take(self) -> Work:
        """Return the work since the last call."""
        found, self.work = self.work, [{} for _ in self.work]
        return found

    def _measured(self, deltas: list[Batch]) -> Batch:
        join, changed = self._join, [first for first, delta in enumerate(deltas) if len(delta.ann)]
        if self.active and not any(join.relations[first].was_empty for first in changed):
            plan, paths = join.plan, list(join.paths)
            for first in changed:
                self._measure(first, join._read_changes(first, deltas[first]), deltas)
            join.pin(plan)
            join.paths[:] = paths
        return self._apply(deltas)

    def _measure(self, first: int, delta: Batch, deltas: list[Batch]) -> None:
        join, work = self._join, self.work[first]
        estimates, others = join._estimates(), (i for i in range(len(join.inputs)) if i != first)
        codes = [code_order(join.shape, first, order) for order in permutations(others)]
        costs = [weigh_order(join.shape, first, code, estimates, coded=True).cost for code in codes]
        for code, cost in zip(codes, costs, strict=True):
            if cost > _HOPELESS * min(costs):
                work[code] = work.get(code, 0.0) + cost * len(delta.ann)
                continue
            plan = list(join.plan)
            plan[first] = code
            join.pin(tuple(plan))
            join.paths[first] = None
            path = join._path(first)
            join._follow(first, delta, deltas)
            work[code] = work.get(code, 0.0) + sum(step.probes + step.matches for step in path.steps)


@dataclass(frozen=True)
class Room:
    """The work of every order, phase by phase, and the plans that follow from it."""

    work: list[Work]
    plain: JoinOrders  # of deltas of which nothing was measured

    @property
    def whole(self) -> Work:
        """The work of all phases together."""
        return _added(self.work)

    @property
    def static(self) -> JoinOrders:
        """The orders that are best for all phases together."""
        return _best(self.whole, self.plain)

    @property
    def oracle(self) -> list[JoinOrders]:
        """The orders that are best for each phase; where several are, those of the static plan."""
        static = self.static
        return [_best(work, static) for work in self.work]

    def spent(self, plans: Sequence[JoinOrders]) -> list[float]:
        """Return the work of each phase, by the plan that runs in it."""
        return [
            sum(each[order] for each, order in zip(work, plan, strict=True) if each)
            for work, plan in zip(self.work, plans, strict=True)
        ]

    @property
    def ratio(self) -> float:
        """How many times the oracle's work the best static plan does."""
        oracle = sum(self.spent(self.oracle))
        return sum(self.spent([self.static] * len(self.work))) / oracle if oracle else 1.0


def _best(work: Work, plain: JoinOrders) -> JoinOrders:
    return tuple(
        min(each, key=lambda order: (each[order], order != kept)) if each else kept
        for each, kept in zip(work, plain, strict=True)
    )


def _added(parts: Sequence[Work]) -> Work:
    found: Work = [{} for _ in parts[0]]
    for place, whole in enumerate(found):
        for part in parts:
            for order, work in part[place].items():
                whole[order] = whole.get(order, 0.0) + work
    return found


def measure_room(script: str, view: str, batches: Sequence[Rows], phases: int, every: int = 10) -> Room:
    """Run a view over the reports of each second and measure one epoch in so many."""
    length, found = len(batches) // phases, []
    with whence.open() as db:
        db.execute(script)
        meter = OrderMeter(join_of(db, view))
        for number, batch in enumerate(batches):
            meter.active = number % length >= min(SETTLED, length // 2) and not number % every
            if batch:
                db.insert("car_location", batch)
            if number % length == length - 1:
                found.append(meter.take())
        return Room(found, join_of(db, view).plan)
