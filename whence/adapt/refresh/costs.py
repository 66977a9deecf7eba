"""What it costs to release the pending rows of a held view.

Law: the cost of releasing `counts` rows of the tables is `shared + sum(table(count))` over the tables that have rows,
or that of recomputing the view, if it is less; nothing costs nothing. Each table's function is monotone and subadditive
(`f(x + y) <= f(x) + f(y)`), not necessarily linear or concave. `shared` is what tables that are released together pay
once: a Spark job. In one process each table is released by itself, and it is zero.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

Cost = Callable[[int], float]
"""The cost of releasing so many rows of a table; zero of none."""


@dataclass(frozen=True)
class Linear:
    """`fixed + each * rows`.

    >>> Linear(0.25)(180), Linear(0.1071, 285.71)(0)
    (45.0, 0.0)
    """

    each: float
    fixed: float = 0.0

    def __call__(self, rows: int) -> float:
        return self.fixed + self.each * rows if rows > 0 else 0.0


@dataclass(frozen=True)
class Action:
    """Releases all pending rows of some tables, by their places; `recompute` makes the view anew instead of all."""

    tables: tuple[int, ...]
    cost: float
    recompute: bool = False


@dataclass(frozen=True)
class RefreshCosts:
    """The costs of one held view."""

    tables: tuple[Cost, ...]
    shared: float = 0.0
    recompute: float = math.inf

    def incremental(self, counts: Sequence[int]) -> float:
        """Return the cost of releasing so many rows of each table."""
        found = math.fsum(table(count) for table, count in zip(self.tables, counts, strict=True) if count)
        return found + self.shared if self.shared and any(counts) else found

    def refresh(self, counts: Sequence[int]) -> float:
        """Return the cost of bringing the view up to date: of releasing everything, or recomputing.

        >>> RefreshCosts((Linear(1.0), Linear(2.0)), recompute=10.0).refresh((3, 5))
        10.0
        """
        return min(self.incremental(counts), self.recompute)

    def of_tables(self, counts: Sequence[int], tables: Iterable[int]) -> float:
        """Return the cost of releasing all pending rows of some tables."""
        chosen = set(tables)
        return self.incremental([count if i in chosen else 0 for i, count in enumerate(counts)])

    def everything(self, counts: Sequence[int]) -> Action:
        """Return the cheapest action after which nothing is pending."""
        cost = self.incremental(counts)
        pending = tuple(i for i, count in enumerate(counts) if count)
        if self.recompute < cost:
            return Action(pending, self.recompute, recompute=True)
        return Action(pending, cost)
