"""Plans that keep a view refreshable within a bound: what is released when, and the cheapest by A*.

An instance is a sequence of instants, at each of which rows arrive; after the last one everything is released. A plan
is *valid* if after every instant but the last the pending work fits the bound. It is *lazy* if it acts only when that
would be violated, *greedy* if it releases all pending rows of a table or none, and *minimal* if no part of an action
would do. The cheapest lazy, greedy and minimal plan costs at most twice the optimum (Theorem 1 of paper 002) and, with
linear costs, exactly the optimum (Theorem 2).

The states of such plans are the pending rows at instants when the bound is violated; an action leads to the state of
the next violation. `search` finds the shortest path with the lower bound of `lower_bound.py`, which is consistent: no
state is expanded twice.
"""

from __future__ import annotations

import heapq
import itertools
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from whence.adapt.refresh.costs import Action, RefreshCosts
from whence.adapt.refresh.lower_bound import LowerBound

Counts = tuple[int, ...]
MOST_TABLES = 12
"""With more pending tables than that, one minimal action is considered in place of all."""


@dataclass(frozen=True)
class Instance:
    """Rows of each table that arrive at each instant, and what is pending before the first."""

    costs: RefreshCosts
    bound: float
    arrivals: Sequence[Counts]
    pending: Counts = ()

    @cached_property
    def totals(self) -> list[Counts]:
        """The rows of each table that have arrived before each instant, and in the end."""
        sums = [self.pending or (0,) * len(self.costs.tables)]
        for rows in self.arrivals:
            sums.append(tuple(map(int.__add__, sums[-1], rows)))
        return sums

    @property
    def last(self) -> int:
        """The instant at which everything is released, counted from 1."""
        return len(self.arrivals)

    def at(self, instant: int, released: Counts) -> Counts:
        """Return what is pending at an instant, when so many rows have been released."""
        return tuple(map(int.__sub__, self.totals[instant], released))

    def violation(self, after: int, released: Counts) -> int:
        """Return the first instant after another one at which the bound is violated, or the last instant."""
        return bisect_right(
            range(after + 1, self.last),
            self.bound,
            key=lambda instant: self.costs.refresh(self.at(instant, released)),
        ) + (after + 1)


@dataclass(frozen=True)
class RefreshPlan:
    """The actions at their instants, what they cost together, and how many states were expanded to find them."""

    actions: tuple[tuple[int, Action], ...]
    cost: float
    expanded: int = 0


def minimal_actions(costs: RefreshCosts, counts: Sequence[int], bound: float) -> Iterator[Action]:
    """Give the minimal actions after which the pending work fits the bound, and recomputing, where it can be cheaper.

    >>> from whence.adapt.refresh.costs import Linear
    >>> costs = RefreshCosts((Linear(1.0), Linear(1.0, 5.0)))
    >>> [action.tables for action in minimal_actions(costs, (4, 4), 10.0)]
    [(0,), (1,)]
    """
    pending = [i for i, count in enumerate(counts) if count]
    cheapest_all = costs.incremental(counts)
    if len(pending) > MOST_TABLES:
        tables = _one_minimal(costs, counts, bound, pending)
        yield Action(tables, costs.of_tables(counts, tables))
    else:
        found: list[set[int]] = []
        for size in range(len(pending) + 1):
            for tables in itertools.combinations(pending, size):
                if any(smaller <= set(tables) for smaller in found):
                    continue
                left = [0 if i in tables else count for i, count in enumerate(counts)]
                if costs.refresh(left) <= bound:
                    found.append(set(tables))
                    yield Action(tables, costs.of_tables(counts, tables))
    if costs.recompute < cheapest_all:
        yield Action(tuple(pending), costs.recompute, recompute=True)


def _one_minimal(costs: RefreshCosts, counts: Sequence[int], bound: float, pending: Sequence[int]) -> tuple[int, ...]:
    """Return one minimal set of tables: those stay pending first whose release would be dearest per row."""
    chosen = set(pending)
    for table in sorted(pending, key=lambda i: -costs.tables[i](counts[i]) / counts[i]):
        left = [0 if i in chosen and i != table else count for i, count in enumerate(counts)]
        if costs.refresh(left) <= bound:
            chosen.discard(table)
    return tuple(sorted(chosen))


Heuristic = Callable[[int, Counts], float]
"""A lower bound of what is still to be paid at an instant, before which so many rows have been released."""


@dataclass
class _Search:
    """Shortest path from the first violation to the end."""

    instance: Instance
    heuristic: Heuristic
    reopened: int = 0
    _came_from: dict[tuple[int, Counts], tuple[tuple[int, Counts], Action]] = field(default_factory=dict)

    def run(self) -> RefreshPlan:
        instance = self.instance
        none = (0,) * len(instance.costs.tables)
        source = instance.violation(0, none), none
        paid = {source: 0.0}
        queue = [(self.heuristic(*source), 0, source)]
        closed: set[tuple[int, Counts]] = set()
        order = itertools.count(1)
        expanded = 0
        while True:
            _, _, state = heapq.heappop(queue)
            if state in closed:
                continue
            closed.add(state)
            instant, released = state
            if instant > instance.last:
                return RefreshPlan(self._path(state), paid[state], expanded)
            expanded += 1
            for action, follower in self._edges(instant, released):
                cost = paid[state] + action.cost
                if cost >= paid.get(follower, float("inf")):
                    continue
                if follower in closed:
                    closed.discard(follower)
                    self.reopened += 1
                paid[follower] = cost
                self._came_from[follower] = state, action
                heapq.heappush(queue, (cost + self.heuristic(*follower), next(order), follower))

    def _edges(self, instant: int, released: Counts) -> Iterator[tuple[Action, tuple[int, Counts]]]:
        instance = self.instance
        counts = instance.at(instant, released)
        if instant == instance.last:
            yield instance.costs.everything(counts), (instant + 1, instance.totals[-1])
            return
        for action in minimal_actions(instance.costs, counts, instance.bound):
            after = tuple(done + counts[i] if i in action.tables else done for i, done in enumerate(released))
            yield action, (instance.violation(instant, after), after)

    def _path(self, state: tuple[int, Counts]) -> tuple[tuple[int, Action], ...]:
        found = []
        while state in self._came_from:
            state, action = self._came_from[state]
            found.append((state[0], action))
        return tuple(reversed(found))


def search(instance: Instance, heuristic: Heuristic | None = None) -> RefreshPlan:
    """Return the cheapest lazy, greedy and minimal plan, by A*; with another heuristic than the default, perhaps one
    that is dearer."""
    if instance.last == 0:
        return RefreshPlan((), 0.0)
    return _Search(instance, heuristic if heuristic is not None else LowerBound(instance).rest).run()
