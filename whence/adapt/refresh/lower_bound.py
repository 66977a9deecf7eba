"""A lower bound of what a plan must still pay, for A*.

A table's pending rows never exceed `capacity`: before the last instant they fitted the bound, and one burst came on
top. So all rows that are pending or still to come are released in batches of at most that many, and the cheapest way to
split them is a small dynamic program per table. Every action pays `shared` once and takes at most one batch per table;
a recomputation takes at most one batch of every table.

The bound is consistent: an action that costs c lowers it by at most c. The bound that the paper prints,
`ceil(rows / p) * f(p) + f(rows mod p)`, exceeds the true cost in most instances, with floor in some (`printed_bound`).
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from whence.adapt.refresh.costs import Cost

if TYPE_CHECKING:
    from whence.adapt.refresh.plans import Counts, Instance


class LowerBound:
    """The bound for one instance."""

    def __init__(self, instance: Instance) -> None:
        self._instance, costs = instance, instance.costs
        totals = instance.totals[-1]
        self._capacity = [capacity(instance, i) for i in range(len(totals))]
        self._least = [_least_splits(costs.tables[i], totals[i], self._capacity[i]) for i in range(len(totals))]

    def rest(self, instant: int, released: Counts) -> float:
        """Return a lower bound of what is still to be paid at an instant, before its action."""
        instance = self._instance
        left = [total - done for total, done in zip(instance.totals[-1], released, strict=True)]
        found = self._without_recomputing(left)
        price = instance.costs.recompute
        paid = price
        while paid < found:  # some recomputations, each of which takes a batch of every table
            left = [max(0, rows - most) for rows, most in zip(left, self._capacity, strict=True)]
            found = min(found, paid + self._without_recomputing(left))
            paid += price
            if price <= 0:
                return 0.0
        return found

    def _without_recomputing(self, left: list[int]) -> float:
        batches = max((math.ceil(rows / most) for rows, most in zip(left, self._capacity, strict=True)), default=0)
        return batches * self._instance.costs.shared + math.fsum(
            float(least[rows]) for least, rows in zip(self._least, left, strict=True)
        )


def capacity(instance: Instance, table: int) -> int:
    """Return the most rows of a table that can be pending at once in a lazy plan."""
    total = instance.totals[-1][table]
    start = instance.pending[table] if instance.pending else 0
    burst = max((rows[table] for rows in instance.arrivals), default=0)
    if instance.costs.recompute <= instance.bound:
        return max(total, 1)
    fits = _largest(instance.costs.tables[table], instance.bound - instance.costs.shared, total)
    return max(1, min(total, max(fits, start) + burst))


def _largest(cost: Cost, bound: float, most: int) -> int:
    """Return the largest number of rows up to `most` whose cost fits a bound."""
    low, high = 0, most
    while low < high:
        middle = (low + high + 1) // 2
        if cost(middle) <= bound:
            low = middle
        else:
            high = middle - 1
    return low


def _least_splits(cost: Cost, total: int, most: int) -> np.ndarray:
    """Return the least cost of releasing 0, 1, … `total` rows in batches of at most `most`."""
    price = np.array([cost(rows) for rows in range(1, most + 1)])
    found = np.zeros(total + 1)
    for rows in range(1, total + 1):
        largest = min(rows, most)
        found[rows] = (price[:largest] + found[rows - largest : rows][::-1]).min()
    return found


def printed_bound(instance: Instance, released: Counts, *, rounded: str = "ceil") -> float:
    """Return the heuristic of section 2.4.2 as it is printed, or with floor; neither is admissible."""
    found = 0.0
    for i, cost in enumerate(instance.costs.tables):
        rows = instance.totals[-1][i] - released[i]
        full = _largest(cost, instance.bound, max(rows, 1)) + 1
        if cost(full) <= instance.bound:  # no batch of these rows violates the bound
            found += cost(rows)
            continue
        batches = math.ceil(rows / full) if rounded == "ceil" else rows // full
        found += batches * cost(full) + cost(rows % full)
    return found
