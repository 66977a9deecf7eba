"""The and-or graph of a search space in arrays, whole or grown entry by entry, with its row counts and local costs.

`PlanModel` is what all optimizers share: entries and alternatives by number, the statistics, and the costs that follow
from them. `complete` enumerates everything, inputs before what reads them; `open` enumerates one entry.
"""

from __future__ import annotations

import numpy as np

from whence.model.codes import Codes
from whence.model.errors import DataError
from whence.plan.optimizer.cost import CostModel, Costs, GivenCosts, rate_table
from whence.plan.optimizer.kernels import costs as kernels
from whence.plan.optimizer.kernels.costs import FIRST, FOUND, LAST, LEFT, PASSED, RIGHT
from whence.plan.optimizer.physical import INDEX_SCAN, SCAN, Physical
from whence.plan.optimizer.query_graph import Expression, QueryGraph, fixed_log
from whence.plan.optimizer.split import AGGREGATED, Alternative, MemoEntry, Splitter

SCANS = (SCAN, INDEX_SCAN)


class PlanModel:
    """Entries, alternatives, row counts and local costs of one search space."""

    def __init__(self, graph: QueryGraph, physical: Physical, costs: Costs | None = None) -> None:
        self.graph, self.physical = graph, physical
        self.costs: Costs = costs if costs is not None else CostModel()
        self.splitter = Splitter(graph, physical)
        self.numbers: dict[MemoEntry, int] = {}
        self.names: list[MemoEntry] = []
        self.operators: list[str] = []
        self._operator_numbers: dict[str, int] = {}
        self._entries, self._logs, self._rows = (np.zeros((16, width), np.int64) for width in (3, 2, 2))
        self._alternatives = np.zeros((64, 4), np.int64)
        self._local, self._given = np.zeros(64, np.int64), np.full(64, -1, np.int64)
        self.alternative_count = 0
        self._by_pair: dict[tuple[Expression, Expression], list[int]] = {}
        self.base = {name: fixed_log(rows) for name, rows in graph.rows.items()}
        self.passed: dict[Expression, int] = {}  # what observed rows add to the log of an expression
        self.found: dict[Expression, int] = {}  # what observed selectivities add
        self.overrides: dict[tuple[Expression, Expression], int] = {}  # costs given for pairs, or scans (of 0)
        self.rates = rate_table(self.costs, [])
        self.roots = [self.number(root) for root in self.splitter.roots]

    # -- growing ------------------------------------------------------------------------------------------------------

    def number(self, entry: MemoEntry) -> int:
        """Return the number of an entry; a new one has no alternatives yet."""
        found = self.numbers.get(entry)
        if found is None:
            found = self.numbers[entry] = len(self.names)
            self.names.append(entry)
            if found >= len(self._entries):
                self._entries, self._logs, self._rows = map(_doubled, (self._entries, self._logs, self._rows))
            self._entries[found] = entry.expression, -1, -1
            self._logs[found] = self.logs_of(entry.expression)
            kernels.fill_rows(found, self._logs[: found + 1], self._rows[: found + 1])
        return found

    def is_open(self, entry: int) -> bool:
        """Return whether the alternatives of an entry have been enumerated."""
        return bool(self._entries[entry, FIRST] >= 0)

    def open(self, entry: int) -> range:
        """Enumerate the alternatives of an entry, if that has not been done; return their numbers."""
        if not self.is_open(entry):
            first = self.alternative_count
            for each in self.splitter.split(self.names[entry]):
                self._add(entry, each)
            self._entries[entry, FIRST:] = first, self.alternative_count
            kernels.fill_locals(first, self.alternatives, self.rows, self.rates, self.given, self.local)
        return range(int(self._entries[entry, FIRST]), int(self._entries[entry, LAST]))

    def _add(self, entry: int, each: Alternative) -> None:
        number = self.alternative_count
        if number >= len(self._alternatives):
            self._alternatives, self._local = map(_doubled, (self._alternatives, self._local))
            self._given = np.concatenate([self._given, np.full(len(self._given), -1, np.int64)])
        left, right = (self.number(side) if side is not None else -1 for side in (each.left, each.right))
        operator = self._operator_numbers.get(each.operator)
        if operator is None:
            operator = self._operator_numbers[each.operator] = len(self.operators)
            self.operators.append(each.operator)
            self.rates = rate_table(self.costs, self.operators)
        self._alternatives[number] = entry, operator, left, right
        self.alternative_count += 1
        if isinstance(self.costs, GivenCosts):
            self._given[number] = self._given_cost(self.costs, entry, each)
        pair = self._pair(entry, each)
        self._by_pair.setdefault(pair, []).append(number)
        if self.overrides:
            self._given[number] = self.overrides.get(pair, self._given[number])

    def _pair(self, entry: int, each: Alternative) -> tuple[Expression, Expression]:
        if each.left is None:
            return self.names[entry].expression, 0
        return each.left.expression, each.right.expression if each.right is not None else -1

    @property
    def overridden(self) -> set[Expression]:
        """Return the expressions of which some costs are given."""
        return {left | right for left, right in self.overrides}

    def _given_cost(self, costs: GivenCosts, entry: int, each: Alternative) -> int:
        """Return the cost of an alternative that a textbook has; 0 for sorts and aggregates."""
        if each.left is None:
            (name,) = self.graph.members(self.names[entry].expression)
            if name not in costs.scan:
                raise DataError(f'no cost of scanning "{name}" is given')
            return costs.scan[name]
        if each.right is None:
            return 0
        left, right = each.left.expression, each.right.expression
        for pair, cost in costs.local.items():
            sides = self.graph.expression(pair[0]), self.graph.expression(pair[1])
            if sides in ((left, right), (right, left)):
                return cost
        raise DataError(f"no cost of joining {self.graph.name(left)} with {self.graph.name(right)} is given")

    def complete(self) -> None:
        """Enumerate the whole space, numbered so that inputs come before what reads them."""
        reached: dict[MemoEntry, None] = {}
        waiting = list(self.splitter.roots)
        while waiting:
            entry = waiting.pop()
            if entry not in reached:
                reached[entry] = None
                for each in self.splitter.split(entry):
                    waiting += [side for side in (each.left, each.right) if side is not None]
        self.numbers, self.names, self._by_pair = {}, [], {}
        for entry in sorted(reached, key=lambda e: (e.expression.bit_count(), e.property.kind != "")):
            self.number(entry)
        for number in range(len(self.names)):
            self.open(number)
        self.roots = [self.numbers[root] for root in self.splitter.roots]

    def whole(self) -> PlanModel:
        """Return a model of the whole space with the same statistics and costs."""
        found = PlanModel(self.graph, self.physical, self.costs)
        found.base, found.passed, found.found, found.overrides = self.base, self.passed, self.found, self.overrides
        found.complete()
        return found

    # -- arrays -------------------------------------------------------------------------------------------------------

    @property
    def entries(self) -> Codes:
        """Return a row an entry: expression, first alternative, and the one after the last."""
        return self._entries[: len(self.names)]

    @property
    def alternatives(self) -> Codes:
        """Return a row an alternative: entry, operator, left and right input."""
        return self._alternatives[: self.alternative_count]

    @property
    def logs(self) -> Codes:
        """Return the logs of the rows that each entry's joins find, and that it passes on."""
        return self._logs[: len(self.names)]

    @property
    def rows(self) -> Codes:
        """Return the row counts of each entry: found, and passed on."""
        return self._rows[: len(self.names)]

    @property
    def local(self) -> Codes:
        """Return the local cost of each alternative."""
        return self._local[: self.alternative_count]

    @property
    def given(self) -> Codes:
        """Return the local costs that were given, -1 where the cost model decides."""
        return self._given[: self.alternative_count]

    # -- statistics ---------------------------------------------------------------------------------------------------

    def logs_of(self, expression: Expression) -> tuple[int, int]:
        """Return the logs of the rows that the joins of an expression find, and that it passes on."""
        if expression & AGGREGATED:
            assert self.physical.aggregation is not None
            groups = fixed_log(self.physical.aggregation.groups)
            return groups, groups
        found = sum(self.base[name] for name in self.graph.members(expression))
        found += self.graph.log_selectivity(expression)
        found += sum(log for part, log in self.found.items() if part & expression == part)
        found += sum(log for part, log in self.passed.items() if part & expression == part and part != expression)
        return found, found + self.passed.get(expression, 0)

    def alternatives_of(self, left: Expression, right: Expression) -> list[int]:
        """Return the numbers of the alternatives that join two expressions, in this order."""
        return self._by_pair.get((left, right), [])

    def scans_of(self, relation: Expression) -> list[int]:
        """Return the numbers of the alternatives that scan a relation."""
        return self._by_pair.get((relation, 0), [])

    def rows_found(self, expression: Expression, passed: bool = True) -> int:
        """Return the estimate of an expression's rows."""
        return int(kernels.rows_of(self.logs_of(expression)[PASSED if passed else FOUND]))


def _doubled(array: Codes) -> Codes:
    return np.concatenate([array, np.zeros_like(array)])


def users(model: PlanModel) -> tuple[Codes, Codes]:
    """Return which alternatives read each entry: where its list begins, and all lists one after another."""
    alternatives = model.alternatives
    read = np.concatenate([alternatives[:, LEFT], alternatives[:, RIGHT]])
    by = np.concatenate([np.arange(len(alternatives))] * 2).astype(np.int64)
    by, read = by[read >= 0], read[read >= 0]
    order = np.argsort(read, kind="stable")
    begins = np.searchsorted(read[order], np.arange(len(model.names) + 1)).astype(np.int64)
    return begins, np.ascontiguousarray(by[order])
