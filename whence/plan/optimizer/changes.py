"""Changes of statistics and costs, and what they move: row counts of entries, and local costs of alternatives.

Several changes are one: logs are added up before a cost is computed. What moved is marked, not propagated; that is the
optimizers' work.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from whence.model.codes import Codes
from whence.model.errors import DataError
from whence.plan.optimizer.cost import Names
from whence.plan.optimizer.kernels import costs as kernels
from whence.plan.optimizer.kernels.costs import ENTRY, FELL, PASSED, ROSE, STALE
from whence.plan.optimizer.query_graph import Expression, fixed_log
from whence.plan.optimizer.space import PlanModel
from whence.plan.optimizer.split import AGGREGATED


@dataclass(frozen=True)
class CostChange:
    """New row counts of expressions, factors on what their joins find, and costs of joins and scans.

    A relation's `rows` are what it has; those of an expression are what it passes on to joins above it. A
    `selectivity` is a factor on the estimate for an expression, 1 to begin with. Costs in `local` are of pairs of
    expressions, or of alternatives by number; None gives a cost back to the cost model.
    """

    rows: Mapping[Names, float] = field(default_factory=dict)
    selectivity: Mapping[Names, float] = field(default_factory=dict)
    local: Mapping[tuple[Names, Names] | int, int | None] = field(default_factory=dict)
    scan: Mapping[str, int | None] = field(default_factory=dict)


class Moved:
    """What a change moved: flags of entries and alternatives, alternatives whose local costs were computed, and the
    most that the cost of any plan can have fallen by."""

    def __init__(self, model: PlanModel) -> None:
        self.entries = np.zeros(len(model.names), np.int64)
        self.hit = np.zeros(model.alternative_count, np.int64)
        self._touched = np.empty(model.alternative_count, np.int64)
        self.count = self.fallen = 0
        self.origins: set[Expression] = set()  # expressions some of whose costs were given

    def fits(self, model: PlanModel) -> bool:
        """Return whether the model has not grown since."""
        return len(self.entries) == len(model.names) and len(self.hit) == model.alternative_count

    @property
    def alternatives(self) -> Codes:
        """Return the alternatives whose local costs were computed."""
        return self._touched[: self.count]

    def clear(self) -> None:
        """Forget a change that the optimizer has taken in; what `hit` still has is the optimizer's."""
        self.entries[:] = 0
        self.count = self.fallen = 0
        self.origins.clear()

    def apply(self, model: PlanModel, change: CostChange) -> None:
        """Change statistics and local costs."""
        for names, rows in change.rows.items():
            self._shift(model, *_rows_change(model, names, rows))
        for names, factor in change.selectivity.items():
            self._shift(model, *_selectivity_change(model, names, factor))
        given = _given_costs(model, change, self.origins)
        for number, cost in given.items():
            model.given[number] = -1 if cost is None else cost
        if change.rows or change.selectivity:
            self.count, self.fallen = kernels.move_locals(
                model.entries,
                model.alternatives,
                model.rows,
                model.rates,
                model.given,
                self.entries,
                model.local,
                self.hit,
                self._touched,
            )
        for number in given:
            self._move_one(model, number)

    def _shift(self, model: PlanModel, expression: Expression, own: bool, change: int) -> None:
        kernels.shift_rows(expression, own, change, AGGREGATED, model.entries, model.logs, model.rows, self.entries)

    def _move_one(self, model: PlanModel, number: int) -> None:
        """Compute the local cost of one alternative, unless that has been done with its entry."""
        if self.entries[model.alternatives[number, 0]] & STALE:
            return
        old = int(model.local[number])
        new = int(kernels.local_of(number, model.alternatives, model.rows, model.rates, model.given))
        model.local[number] = new
        self.hit[number] |= FELL if new < old else ROSE
        self._touched[self.count] = number
        self.count += 1
        self.fallen += max(0, old - new)


def _rows_change(model: PlanModel, names: Names, rows: float) -> tuple[Expression, bool, int]:
    expression = model.graph.expression(names)
    if expression & (expression - 1) == 0:
        (name,) = model.graph.members(expression)
        change = fixed_log(rows) - model.base[name]
        model.base[name] += change
    else:
        _check(model, expression)
        change = fixed_log(rows) - model.logs_of(expression)[PASSED]
        model.passed[expression] = model.passed.get(expression, 0) + change
    return expression, False, change


def _selectivity_change(model: PlanModel, names: Names, factor: float) -> tuple[Expression, bool, int]:
    expression = model.graph.expression(names)
    if expression & (expression - 1) == 0:
        raise DataError(f"{model.graph.name(expression)} is one relation: give its rows, not a selectivity")
    _check(model, expression)
    change = fixed_log(factor) - model.found.get(expression, 0)
    model.found[expression] = model.found.get(expression, 0) + change
    return expression, True, change


def _check(model: PlanModel, expression: Expression) -> None:
    if not model.graph.is_connected(expression):
        raise DataError(f"{model.graph.name(expression)} are not joined with each other in any plan")


def _given_costs(model: PlanModel, change: CostChange, origins: set[Expression]) -> dict[int, int | None]:
    """Return the alternatives whose costs are given, by number; those not enumerated yet are noted in the model. Add
    the expressions that they are of."""
    found: dict[int, int | None] = {}
    for pair, cost in change.local.items():
        if isinstance(pair, int):
            found[pair] = cost
            origins.add(model.names[model.alternatives[pair, ENTRY]].expression)
        else:
            origins.add(model.graph.expression(pair[0]) | model.graph.expression(pair[1]))
            found.update(_join_costs(model, pair, cost))
    for name, cost in change.scan.items():
        relation = model.graph.expression(name)
        origins.add(relation)
        _override(model, (relation, 0), cost)
        found.update(dict.fromkeys(model.scans_of(relation), cost))
    for cost in found.values():
        if cost is not None and not 0 <= cost < 1 << 54:
            raise DataError(f"a cost is an integer from 0 to 2^54, not {cost}")
    return found


def _join_costs(model: PlanModel, pair: tuple[Names, Names], cost: int | None) -> dict[int, int | None]:
    left, right = model.graph.expression(pair[0]), model.graph.expression(pair[1])
    found = list(model.alternatives_of(left, right))
    if not found:
        if left & right or not model.graph.crossing(left, right):
            raise DataError(f"no plan joins {model.graph.name(left)} with {model.graph.name(right)}")
        for expression in (left, right):
            _check(model, expression)
    _override(model, (left, right), cost)
    if any(join.symmetric for join in model.physical.joins):
        _override(model, (right, left), cost)
        found += model.alternatives_of(right, left)
    return dict.fromkeys(found, cost)


def _override(model: PlanModel, pair: tuple[Expression, Expression], cost: int | None) -> None:
    if cost is None:
        model.overrides.pop(pair, None)
    else:
        model.overrides[pair] = cost
