"""Run a schedule over given arrivals, counting costs; and find the optimum of all plans by brute force."""

from __future__ import annotations

import itertools
from functools import cache

from whence.adapt.refresh.costs import Action
from whence.adapt.refresh.plans import Counts, Instance, RefreshPlan
from whence.adapt.refresh.schedulers import Scheduler


def simulate(scheduler: Scheduler, instance: Instance) -> RefreshPlan:
    """Return what a scheduler does over the arrivals of an instance; in the end everything is released.

    >>> from whence.adapt.refresh.costs import Linear, RefreshCosts
    >>> from whence.adapt.refresh.schedulers import Naive
    >>> costs = RefreshCosts((Linear(0.25), Linear(0.1071, 285.71)))
    >>> naive = simulate(Naive(), Instance(costs, 350.0, [(1, 1)] * 1810))
    >>> len(naive.actions), round(naive.cost / 3620, 2)
    (10, 0.97)
    """
    costs, pending = instance.costs, instance.totals[0]
    actions: list[tuple[int, Action]] = []
    for instant, rows in enumerate(instance.arrivals, 1):
        pending = tuple(map(int.__add__, pending, rows))
        scheduler.arrived(rows)
        if instant == instance.last or scheduler.is_round_over():
            action = costs.everything(pending)
        elif costs.refresh(pending) > instance.bound:
            action = scheduler.choose(pending, costs, instance.bound)
        else:
            continue
        pending = tuple(0 if i in action.tables else count for i, count in enumerate(pending))
        assert instant == instance.last or costs.refresh(pending) <= instance.bound
        actions.append((instant, action))
    return RefreshPlan(tuple(actions), sum(action.cost for _, action in actions))


def optimum(instance: Instance) -> float:
    """Return the least cost of any valid plan, lazy or not, releasing any number of rows: for small instances."""
    costs, last = instance.costs, instance.last

    @cache
    def least(instant: int, pending: Counts) -> float:
        """What is still to be paid before the action at an instant."""
        if instant == last:
            return costs.refresh(pending)
        rows = instance.arrivals[instant]
        found = float("inf")
        for left in itertools.product(*(range(count + 1) for count in pending)):
            if costs.refresh(left) > instance.bound:
                continue
            released = tuple(map(int.__sub__, pending, left))
            after = tuple(map(int.__add__, left, rows))
            found = min(found, costs.incremental(released) + least(instant + 1, after))
        if any(pending) and costs.recompute < float("inf"):
            found = min(found, costs.recompute + least(instant + 1, rows))
        return found

    first = tuple(map(int.__add__, instance.totals[0], instance.arrivals[0]))
    return least(1, first)
