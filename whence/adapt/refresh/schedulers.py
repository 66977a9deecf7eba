"""What to release when the pending work no longer fits the bound: naive, online, or planned for a guessed time.

A scheduler is told of every instant (in a database: an epoch that brought rows) and asked when the bound is violated.
Time is counted in instants since the view was last brought up to date.

- `Naive` releases everything.
- `Online` releases the minimal set Z with the least `(paid + cost(Z)) / (now + until the next violation)`. When the
  next violation comes follows from the tables' arrival rates, which it estimates.
- `Planned` follows the cheapest plan for the next `horizon` instants at these rates. When arrivals differ from the
  guess it takes the plan's next set of tables, extended by the fewest others until the rest fits. When more violations
  come than were planned, it plans again for the rest of the horizon.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Protocol

from whence.adapt.refresh.costs import Action, RefreshCosts
from whence.adapt.refresh.plans import Instance, minimal_actions, search

_LONGEST = 1 << 20  # instants that are looked ahead
_LONGEST_PLAN = 2000  # instants


class Scheduler(Protocol):
    """Decides for one held view."""

    def arrived(self, rows: Sequence[int]) -> None:
        """Note the rows of each table that an instant brought."""

    def is_round_over(self) -> bool:
        """Return whether everything is to be released now, although it fits the bound."""

    def choose(self, pending: Sequence[int], costs: RefreshCosts, bound: float) -> Action:
        """Return what to release, now that the bound is violated."""

    def refreshed(self) -> None:
        """Note that nothing is pending: somebody has read the view."""


class ArrivalRates:
    """Rows per instant of each table: a mean of all at first, later of the last `memory` instants or so."""

    def __init__(self, tables: int, memory: int = 200) -> None:
        self.each = [0.0] * tables
        self._instants, self._memory = 0, memory

    def note(self, rows: Sequence[int]) -> None:
        """Note an instant."""
        self._instants += 1
        weight = 1.0 / min(self._instants, self._memory)
        self.each = [rate + weight * (count - rate) for rate, count in zip(self.each, rows, strict=True)]

    def until_violation(self, pending: Sequence[int], costs: RefreshCosts, bound: float) -> int:
        """Return in how many instants the bound is violated at these rates, from at least one on."""

        def violated(instants: int) -> bool:
            counts = [count + math.floor(rate * instants) for count, rate in zip(pending, self.each, strict=True)]
            return costs.refresh(counts) > bound

        high = 1
        while not violated(high):
            high *= 2
            if high > _LONGEST:
                return high
        low = high // 2  # not violated, or zero
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if violated(middle) else (middle, high)
        return high


class Naive:
    """Releases everything."""

    def arrived(self, rows: Sequence[int]) -> None:
        pass

    def is_round_over(self) -> bool:
        return False

    def choose(self, pending: Sequence[int], costs: RefreshCosts, bound: float) -> Action:
        return costs.everything(pending)

    def refreshed(self) -> None:
        pass


class Online:
    """Releases what keeps the cost per instant least until the next violation."""

    def __init__(self, tables: int) -> None:
        self._rates = ArrivalRates(tables)
        self._now, self._paid = 0, 0.0

    def arrived(self, rows: Sequence[int]) -> None:
        self._now += 1
        self._rates.note(rows)

    def is_round_over(self) -> bool:
        return False

    def choose(self, pending: Sequence[int], costs: RefreshCosts, bound: float) -> Action:
        def cost_per_instant(action: Action) -> tuple[float, float]:
            left = [0 if i in action.tables else count for i, count in enumerate(pending)]
            until = self._rates.until_violation(left, costs, bound)
            return (self._paid + action.cost) / (self._now + until), action.cost

        best = min(minimal_actions(costs, pending, bound), key=cost_per_instant)
        self._paid += best.cost
        return best

    def refreshed(self) -> None:
        self._now, self._paid = 0, 0.0


class Planned:
    """Follows the cheapest plan for `horizon` instants at the rates seen so far, or at `rates` that are given. At the
    end of the horizon everything is released, and a new round begins."""

    def __init__(self, tables: int, horizon: int, rates: Sequence[float] | None = None) -> None:
        self.horizon = horizon
        self._rates = ArrivalRates(tables)
        self._given = rates
        self._now = 0
        self._sets: list[Action] = []  # of the plan, in their order; a new one is made when they are used up

    def arrived(self, rows: Sequence[int]) -> None:
        self._now += 1
        self._rates.note(rows)

    def is_round_over(self) -> bool:
        if self._now < self.horizon:
            return False
        self._begin()
        return True

    def choose(self, pending: Sequence[int], costs: RefreshCosts, bound: float) -> Action:
        if not self._sets:
            self._sets = self._plan(pending, costs, bound)
        planned = self._sets.pop(0)
        if planned.recompute:
            return Action(tuple(i for i, count in enumerate(pending) if count), costs.recompute, recompute=True)
        return extended(planned.tables, pending, costs, bound)

    def refreshed(self) -> None:
        self._begin()

    def _begin(self) -> None:
        self._now, self._sets = 0, []

    def _plan(self, pending: Sequence[int], costs: RefreshCosts, bound: float) -> list[Action]:
        """Return the actions from now to the end of the horizon, of which the first is to be taken now."""
        rates = self._given if self._given is not None else self._rates.each
        length = max(1, min(self.horizon - self._now, _LONGEST_PLAN))
        nothing = (0,) * len(pending)
        instance = Instance(costs, bound, [nothing, *expected(rates, length)], tuple(pending))
        return [action for instant, action in search(instance).actions if instant <= length]


def expected(rates: Sequence[float], instants: int) -> list[tuple[int, ...]]:
    """Return arrivals at steady rates, in whole rows.

    >>> expected([1.0, 0.5], 4)
    [(1, 0), (1, 1), (1, 0), (1, 1)]
    """
    totals = [tuple(math.floor(rate * t + 1e-9) for rate in rates) for t in range(instants + 1)]
    return [tuple(map(int.__sub__, after, before)) for before, after in itertools.pairwise(totals)]


def extended(tables: Sequence[int], pending: Sequence[int], costs: RefreshCosts, bound: float) -> Action:
    """Return the release of some tables and of the fewest others, the cheapest of these, after which the rest fits."""
    chosen = {i for i in tables if pending[i]}
    others = [i for i, count in enumerate(pending) if count and i not in chosen]
    best: Action | None = None
    for size in range(len(others) + 1):
        for more in itertools.combinations(others, size):
            released = tuple(sorted(chosen | set(more)))
            left = [0 if i in released else count for i, count in enumerate(pending)]
            if costs.refresh(left) <= bound:
                cost = costs.of_tables(pending, released)
                if best is None or cost < best.cost:
                    best = Action(released, cost)
        if best is not None:
            break
    everything = costs.everything(pending)
    return everything if best is None or (everything.recompute and everything.cost < best.cost) else best
