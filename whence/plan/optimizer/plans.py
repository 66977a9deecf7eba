"""What every optimizer can be asked: the cost and tree of the best plan, its entries, and roads not taken.

An optimizer has the best cost and the chosen alternative of those entries that it has not pruned.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np

from whence.model.codes import Codes
from whence.model.errors import DataError
from whence.plan.optimizer.changes import CostChange
from whence.plan.optimizer.cost import Names
from whence.plan.optimizer.kernels import bottom_up, regrets
from whence.plan.optimizer.kernels.costs import ENTRY, LEFT, OPERATOR, RIGHT
from whence.plan.optimizer.query_graph import Expression
from whence.plan.optimizer.space import SCANS, PlanModel
from whence.plan.optimizer.split import AGGREGATED, MemoEntry

Tree = tuple["str | Tree", ...]  # operator and inputs; a scan has its relation


@dataclass(frozen=True)
class PlanEntry:
    """An OR node: its relations, its property as text, its best cost, and how many alternatives it has."""

    relations: tuple[str, ...]
    property: str
    cost: int
    alternatives: int


@dataclass(frozen=True)
class PlanAlternative:
    """An AND node: its cost within its entry, and that of the cheapest whole plan that uses it."""

    operator: str
    local: int
    cost: int
    whole_plan: int


class Optimizer(Protocol):
    """Keeps the best plan of a query while statistics and costs change."""

    model: PlanModel
    recomputed: tuple[int, int]  # entries and alternatives, by the last change

    def apply(self, change: CostChange) -> None:
        """Take a change in."""

    def best_of(self, entry: int) -> int:
        """Return the best cost of an entry."""

    def choice_of(self, entry: int) -> int:
        """Return the alternative that an entry's best plan begins with."""

    def held(self) -> Mapping[int, int]:
        """Return the entries that are not pruned, and how many alternatives each has."""


class SearchSpace(Protocol):
    """An and-or graph with local costs, whose entries are in the order of their inputs."""

    @property
    def roots(self) -> Sequence[int]:
        """Return the entries that are asked for."""

    @property
    def entries(self) -> Codes:
        """Return a row an entry: expression, first alternative, and the one after the last."""

    @property
    def alternatives(self) -> Codes:
        """Return a row an alternative: entry, operator, left and right input."""

    @property
    def local(self) -> Codes:
        """Return the local cost of each alternative."""


class WholeCosts(NamedTuple):
    """The best cost of each entry, the alternative it begins with, and the entry's detour (`kernels/regrets.py`)."""

    best: Codes
    choice: Codes
    detour: Codes


class PlanReader:
    """The best plan of an optimizer, read."""

    def __init__(self, optimizer: Optimizer) -> None:
        self._optimizer, self._model = optimizer, optimizer.model

    def tree(self, query: int = 0) -> Tree:
        """Return the best plan of a query: operators over operators, down to scans of relations."""
        return self._tree(self._model.roots[query])

    def _tree(self, entry: int) -> Tree:
        model, number = self._model, self._optimizer.choice_of(entry)
        _, operator, left, right = model.alternatives[number].tolist()
        name = model.operators[operator]
        if name in SCANS:
            return (name, *model.graph.members(model.names[entry].expression))
        return (name, *(self._tree(side) for side in (left, right) if side >= 0))

    def entries(self) -> tuple[PlanEntry, ...]:
        """Return all entries that are not pruned."""
        return tuple(
            self._entry(self._model.names[number], self._optimizer.best_of(number), count)
            for number, count in self._optimizer.held().items()
        )

    def _entry(self, entry: MemoEntry, cost: int, count: int) -> PlanEntry:
        return PlanEntry(self._model.graph.members(entry.expression), self.property_name(entry), cost, count)

    def property_name(self, entry: MemoEntry) -> str:
        """Return the property of an entry as text, by the first of its relations that has the column."""
        kind, by = entry.property
        if not kind:
            return "aggregate" if entry.expression & AGGREGATED else ""
        graph = self._model.graph
        columns = graph.classes[by].columns
        relation = next(n for n in sorted(columns) if entry.expression >> n & 1)
        return f"{graph.relations[relation]}.{columns[relation]} {kind}"

    def alternative(self, expression: Names, pair: tuple[Names, Names] | int) -> PlanAlternative:
        """Return an alternative of an expression: the cheapest that joins a pair of expressions, or by its place."""
        model = self._model.whole()
        wanted = model.graph.expression(expression)
        best, _, detour = whole_costs(model)
        found = None
        for number in _candidates(model, wanted, pair):
            entry, operator = model.alternatives[number, [ENTRY, OPERATOR]].tolist()
            cost = int(bottom_up.plan_cost(number, model.alternatives, model.local, best))
            whole = int(best[model.roots[0]] + detour[entry] + cost - best[entry])
            each = PlanAlternative(model.operators[operator], int(model.local[number]), cost, whole)
            found = each if found is None or each.whole_plan < found.whole_plan else found
        if found is None:
            raise DataError(f"{model.graph.name(wanted)} has no such alternative")
        return found


def whole_costs(space: SearchSpace) -> WholeCosts:
    """Optimize a space bottom-up; return the best cost and choice of each entry, and its detour."""
    entries, alternatives, local = space.entries, space.alternatives, space.local
    best, choice, detour = (np.zeros(len(entries), np.int64) for _ in range(3))
    spare, counts = np.zeros((1, 1), np.int64), np.zeros(2, np.int64)
    bottom_up.optimize(entries, alternatives, local, best, choice, best, spare, best, bottom_up.BEST, counts)
    regrets.detours(entries, alternatives, local, best, np.array(space.roots, np.int64), detour)
    return WholeCosts(best, choice, detour)


def _candidates(model: PlanModel, wanted: Expression, pair: tuple[Names, Names] | int) -> list[int]:
    """Return the numbers of the alternatives of an expression that join a pair, or the one at a place."""
    if isinstance(pair, int):
        number = model.numbers.get(MemoEntry(wanted))
        return list(model.open(number))[pair : pair + 1] if number is not None else []
    left, right = (model.graph.expression(side) for side in pair)
    numbers = model.alternatives_of(left, right) or model.alternatives_of(right, left)
    return [n for n in numbers if model.entries[model.alternatives[n, ENTRY], 0] == wanted]


def recost(model: PlanModel, optimizer: Optimizer, entry: int) -> int:
    """Return the cost of the chosen plan of an entry, added up from its local costs."""
    number = optimizer.choice_of(entry)
    sides = model.alternatives[number, [LEFT, RIGHT]].tolist()
    return int(model.local[number]) + sum(recost(model, optimizer, side) for side in sides if side >= 0)
