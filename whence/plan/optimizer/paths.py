"""The and-or graph of the paths of a join's deltas: what the optimizer searches when a running join is ordered anew.

An entry is a delta with the set of inputs that it has met; an alternative is the input that it met last, through a hash
index or an ordered one, over the entry without that input. The roots are the deltas that have met all inputs, one of
each input: their paths are independent. The rows of an entry follow from its set, not from the way there (those of the
cheapest last step), so the best path to an entry is a part of the best path through it.

The graph is built once for a join. Its figures are asked of statistics by keys (`fan_keys` and the others), many
alternatives by one key, and `fill` turns them into integer costs.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from itertools import combinations
from typing import Generic, TypeVar

import numpy as np

from whence.model.codes import Codes
from whence.plan.algebra.join_paths import FEW, JoinShape, Members, PathCode
from whence.plan.algebra.work_costs import DEFAULTS, WorkCosts
from whence.plan.optimizer.kernels import paths as kernels
from whence.plan.optimizer.kernels.costs import ENTRY, FIRST, LAST, LEFT
from whence.plan.optimizer.kernels.paths import EACH, FAN_OUT, LOOKED_AT, PASSING, PROBE, SCALE, UPKEEP, Figures
from whence.plan.optimizer.plans import WholeCosts, whole_costs

BEGIN, HASHED, ORDERED = 0, 1, 2  # operators
MOST_INPUTS = FEW
T = TypeVar("T", bound=Hashable)

FanKey = tuple[int, tuple[int, ...], tuple[Members, ...]]  # an input, its columns, and what each of them equals
Tests = tuple[int, ...]
MetKey = tuple[int, int, tuple[int, ...]]  # a delta, an input that it meets, and by which columns
PassKey = tuple[int, Tests]  # a delta, and tests that are made on its path
IndexKey = tuple[int, tuple[int, ...], bool]  # an input, columns, and whether the last is in order


class _Keys(Generic[T]):
    """Keys by number, each once."""

    def __init__(self) -> None:
        self.numbers: dict[T, int] = {}

    def number(self, key: T) -> int:
        return self.numbers.setdefault(key, len(self.numbers))

    @property
    def listed(self) -> list[T]:
        return list(self.numbers)


class PathSpace:
    """The paths of a join's deltas, with what they cost."""

    def __init__(self, shape: JoinShape, costs: WorkCosts = DEFAULTS) -> None:
        self.shape, self.inputs, self._costs = shape, len(shape.keys), costs
        fans, tests, met = _Keys[FanKey](), _Keys[Tests](), _Keys[MetKey]()
        passed, indexes = _Keys[PassKey](), _Keys[IndexKey]()
        self.numbers: dict[tuple[int, int], int] = {}  # entries by delta and set
        entries: list[tuple[int, int, int]] = []
        alternatives: list[tuple[int, int, int, int]] = []
        used: list[tuple[int, ...]] = []  # keys of an alternative's figures: fan-out, tests, bounds, met, passed, index
        fixed: list[tuple[float, float]] = []  # a probe, and a match
        self.steps: list[int] = []  # the code of each alternative's step
        tests.number(())  # always true
        for first in range(self.inputs):
            for met_set in _sets_with(first, self.inputs):
                entry, begin = len(entries), len(alternatives)
                self.numbers[first, met_set] = entry
                if met_set == 1 << first:
                    alternatives.append((entry, BEGIN, -1, -1))
                    used.append((0, 0, 0, 0, 0, 0))
                    fixed.append((0.0, 0.0))
                    self.steps.append(first)
                for input in range(self.inputs):
                    if input == first or not met_set >> input & 1:
                        continue
                    before = met_set & ~(1 << input)
                    cols, decided = shape.cols(input, before), tuple(shape.decided(before, input))
                    fan = fans.number((input, cols, shape.known(input, cols, before)))
                    keys = fan, tests.number(decided), met.number((first, input, cols)), passed.number((first, decided))
                    bounds = shape.bounded(input, before)
                    each = (costs.match + costs.test * len(decided)) / costs.probe
                    for operator in (HASHED, ORDERED) if bounds else (HASHED,):
                        looked, index, probe = 0, (input, cols, False), 1.0
                        if operator == ORDERED:
                            looked = tests.number(tuple(bound.test for bound in bounds))
                            column = bounds[0].column - shape.starts[input]
                            index, probe = (input, (*cols, column), True), costs.seek / costs.probe
                        alternatives.append((entry, operator, self.numbers[first, before], -1))
                        used.append((keys[0], keys[1], looked, keys[2], keys[3], indexes.number(index)))
                        fixed.append((probe, each))
                        self.steps.append(~input if operator == ORDERED else input)
                entries.append((met_set, begin, len(alternatives)))
        self.entries = np.array(entries, np.int64)
        self.alternatives = np.array(alternatives, np.int64)
        self.local = np.zeros(len(alternatives), np.int64)
        self.roots = [self.numbers[first, (1 << self.inputs) - 1] for first in range(self.inputs)]
        self.fan_numbers, self.test_numbers = fans.numbers, tests.numbers
        self.fan_keys, self.test_keys, self.met_keys = fans.listed, tests.listed, met.listed
        self.pass_keys, self.index_keys = passed.listed, indexes.listed
        self._fan, self._test, self._bound, self._met, self._passed, self.index = np.array(used, np.int64).T.copy()
        self.figures: Figures = np.zeros((len(alternatives), 6))
        self.figures[:, PROBE], self.figures[:, EACH] = np.array(fixed).T
        self._ordered = self.alternatives[:, 1] == ORDERED
        self._rows: Figures = np.zeros(len(entries))

    def fill(self, fan: Figures, passing: Figures, met: Figures, passed: Figures, indexed: Codes) -> None:
        """Compute all costs from figures by key: rows that match, the part that passes, what each of these is to be
        corrected by on its path, and whether an index is there."""
        figures = self.figures
        figures[:, FAN_OUT] = fan[self._fan] * met[self._met]
        figures[:, PASSING] = np.minimum(passing[self._test] * passed[self._passed], 1.0)
        figures[:, LOOKED_AT] = figures[:, FAN_OUT] * passing[self._bound]
        costs = self._costs
        upkeep = np.where(self._ordered, costs.ordered_upkeep, costs.upkeep) / costs.probe
        figures[:, UPKEEP] = np.where(indexed[self.index] != 0, 0.0, upkeep)
        kernels.fill_costs(self.entries, self.alternatives, figures, self._rows, self.local)

    def search(self) -> WholeCosts:
        """Return the best paths: costs and choices of all entries, and detours."""
        return whole_costs(self)

    # -- paths --------------------------------------------------------------------------------------------------------

    def numbers_of(self, first: int, code: Sequence[int]) -> list[int]:
        """Return the alternatives that a path is made of."""
        found, met = [], 1 << first
        for step in code:
            met |= 1 << (step if step >= 0 else ~step)
            entry = self.numbers[first, met]
            begin, end = self.entries[entry, FIRST], self.entries[entry, LAST]
            found.append(next(n for n in range(begin, end) if self.steps[n] == step))
        return found

    def path_of(self, first: int, costs: WholeCosts) -> PathCode:
        """Return the best path of a delta."""
        found, entry = list[int](), self.roots[first]
        while True:
            chosen = int(costs.choice[entry])
            entry = int(self.alternatives[chosen, LEFT])
            if entry < 0:
                return tuple(reversed(found))
            found.append(self.steps[chosen])

    def cost_of(self, numbers: Sequence[int]) -> int:
        """Return what a path costs for each row of its delta, in `SCALE` parts of a probe."""
        return int(self.local[numbers].sum()) if len(numbers) else 0

    def regrets(self, costs: WholeCosts) -> Codes:
        """Return how much more the cheapest whole path through each alternative costs than the best of its delta."""
        entry, left = self.alternatives[:, ENTRY], self.alternatives[:, LEFT]
        plan = self.local + np.where(left >= 0, costs.best[left], 0)
        found: Codes = costs.detour[entry] + plan - costs.best[entry]
        return found

    def steps_from(self, entry: int) -> list[tuple[int, int]]:
        """Return the alternatives that go on from an entry, and the codes of their steps."""
        return [(int(n), self.steps[n]) for n in np.flatnonzero(self.alternatives[:, LEFT] == entry)]

    def met_key(self, alternative: int) -> MetKey:
        """Return the key of what an alternative's step has met."""
        return self.met_keys[int(self._met[alternative])]

    def members(self, met: int, first: int) -> tuple[int, ...]:
        """Return the inputs of a set but one."""
        return tuple(i for i in range(self.inputs) if met >> i & 1 and i != first)


def _sets_with(first: int, inputs: int) -> list[int]:
    """Return all sets of inputs that have one, small ones first."""
    others = [i for i in range(inputs) if i != first]
    return [1 << first | sum(1 << i for i in chosen) for size in range(inputs) for chosen in combinations(others, size)]


def in_probes(cost: int) -> float:
    """Return a cost in probes."""
    return cost / SCALE
