"""Whether the join of some inputs is worth keeping: what paths over it save, beside what it takes to maintain it.

An n-way join without the kept part pays the path of each changed row through all other inputs. With it, a change of an
input inside goes through the inside, changes the kept rows (and their index), and goes on from these; a change of one
outside looks the kept rows up in one step. Rates are rows that have changed since orders were chosen, so costs are of
that while, and a part pays if the like of it would pay for building, too. What several joins keep is paid once.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import combinations
from typing import NamedTuple, Protocol

from whence.plan.algebra.join_bounds import ColumnBound
from whence.plan.algebra.join_paths import Estimates, JoinShape, Members, PathOrder, PathStep, cheapest_order
from whence.plan.algebra.work_costs import WorkCosts

_MOST = 8  # inputs of a join whose parts are weighed
_CELL = 8  # bytes


class CountedEstimates(Estimates, Protocol):
    """Estimates that count rows and keys, too."""

    def rows_of(self, input: int) -> float:
        """Return how many rows an input has."""

    def count_keys(self, input: int, cols: tuple[int, ...]) -> float:
        """Return how many distinct keys an input has in some columns."""


class KeptPart(NamedTuple):
    """A part of a join, and in picoseconds what all changes cost without it, with it over it, and inside; what it takes
    to build; and its rows."""

    inputs: tuple[int, ...]
    flat: int
    over: int
    inside: int
    build: int
    rows: int

    @property
    def saved(self) -> int:
        """What keeping it for this join alone saves."""
        return self.flat - self.over - self.inside


def weigh_parts(
    shape: JoinShape, estimates: CountedEstimates, running: Sequence[tuple[int, PathOrder]]
) -> Iterator[KeptPart]:
    """Weigh each connected part of a join whose inputs have changed by so many rows, at so much each."""
    count = len(shape.keys)
    if not 3 <= count <= _MOST:
        return
    flat = sum(rate * order.cost for rate, order in running)
    for size in range(2, count):
        for inputs in combinations(range(count), size):
            if _is_connected(shape, inputs):
                yield _weigh(shape, estimates, [rate for rate, _ in running], flat, inputs)


def _is_connected(shape: JoinShape, inputs: tuple[int, ...]) -> bool:
    met, left = 1 << inputs[0], set(inputs[1:])
    while tied := [i for i in left if shape.cols(i, met)]:
        left.difference_update(tied)
        met |= sum(1 << i for i in tied)
    return not left


def _weigh(
    shape: JoinShape, estimates: CountedEstimates, rates: Sequence[int], flat: int, inputs: tuple[int, ...]
) -> KeptPart:
    costs, part = estimates.costs, _Inside(shape, inputs)
    paths = {i: cheapest_order(part, i, estimates) for i in inputs}
    made = {i: math.prod(step.fan_out * step.passing for step in path.steps) for i, path in paths.items()}
    rows = max(1.0, estimates.rows_of(inputs[0]) * made[inputs[0]])
    outer = _Outside(shape, inputs)
    over = _OverKept(outer, estimates, rows)
    each = costs.keep + costs.upkeep + cheapest_order(outer, outer.kept, over).cost
    inside = sum(rates[i] * (paths[i].cost + round(made[i] * (costs.keep + costs.upkeep))) for i in inputs)
    onward = sum(round(rates[i] * made[i] * (each - costs.keep - costs.upkeep)) for i in inputs)
    outside = sum(rates[i] * cheapest_order(outer, i, over).cost for i in outer.outside)
    held = round(rows * _CELL * sum(shape.starts[i + 1] - shape.starts[i] for i in inputs))
    build = round(rows * (costs.keep + costs.upkeep + costs.match)) + held * costs.byte
    return KeptPart(inputs, flat, onward + outside, inside, build, round(rows))


class _Inside:
    """The paths of a part of a join."""

    def __init__(self, shape: JoinShape, inputs: tuple[int, ...]) -> None:
        self._shape, self._inputs = shape, inputs
        self.follows, self.cols, self.known = shape.follows, shape.cols, shape.known
        self.decided, self.bounded, self.range_columns = shape.decided, shape.bounded, shape.range_columns

    def others(self, first: int) -> tuple[int, ...]:
        return tuple(i for i in self._inputs if i != first)


class _Outside:
    """The paths of a join of which a part is kept: it is the input after the last one, and its columns are numbered as
    those of the joined row."""

    def __init__(self, shape: JoinShape, inputs: tuple[int, ...]) -> None:
        self.shape, self.kept = shape, len(shape.keys)
        self.outside = tuple(i for i in range(self.kept) if i not in inputs)
        self.inside = sum(1 << i for i in inputs)
        self._inputs = inputs

    def expanded(self, met: int) -> int:
        """Return the inputs that have been met, with those of the part in its place."""
        return met & ~(1 << self.kept) | self.inside if met >> self.kept & 1 else met

    def others(self, first: int) -> tuple[int, ...]:
        return tuple(i for i in (*self.outside, self.kept) if i != first)

    def follows(self, input: int, met: int) -> bool:
        return True

    def cols(self, input: int, met: int) -> tuple[int, ...]:
        if input != self.kept:
            return self.shape.cols(input, self.expanded(met))
        starts = self.shape.starts
        return tuple(starts[i] + c for i in self._inputs for c, others in self.shape.keys[i] if others & met)

    def known(self, input: int, cols: tuple[int, ...], met: int) -> tuple[Members, ...]:
        if input != self.kept:
            return self.shape.known(input, cols, self.expanded(met))
        owners = [(self.shape.owner(c), c) for c in cols]
        equals = [self.shape.equals[i, c - self.shape.starts[i]] for i, c in owners]
        return tuple(tuple(m for m in members if met >> m[0] & 1) for members in equals)

    def decided(self, met: int, input: int) -> list[int]:
        before, after = self.expanded(met), self.expanded(met | 1 << input)
        return [
            i for i, mask in enumerate(self.shape.tests) if not mask & ~after and mask & ~before and mask & ~self.inside
        ]

    def bounded(self, input: int, met: int) -> tuple[ColumnBound, ...]:
        return () if input == self.kept else self.shape.bounded(input, self.expanded(met))

    def range_columns(self, step: PathStep) -> tuple[int, ...]:
        return self.shape.range_columns(step)


class _OverKept:
    """What is known of the inputs of a join of which a part is kept."""

    def __init__(self, outer: _Outside, estimates: CountedEstimates, rows: float) -> None:
        self._outer, self._estimates, self._rows = outer, estimates, rows
        self.costs: WorkCosts = estimates.costs

    def fan_out(self, first: int, input: int, cols: tuple[int, ...], known: tuple[Members, ...]) -> float:
        if input != self._outer.kept:
            return self._estimates.fan_out(first, input, cols, known)
        asked = math.prod(
            min((self._estimates.count_keys(i, (c,)) for i, c in members), default=1.0) for members in known
        )
        return self._rows / max(1.0, self._keys(cols), asked)

    def _keys(self, cols: tuple[int, ...]) -> float:
        shape, owners = self._outer.shape, dict[int, list[int]]()
        for column in cols:
            owners.setdefault(shape.owner(column), []).append(column - shape.starts[shape.owner(column)])
        keys = math.prod(self._estimates.count_keys(i, tuple(sorted(c))) for i, c in owners.items())
        return min(self._rows, keys)

    def passing(self, tests: Sequence[int]) -> float:
        return self._estimates.passing(tests)

    def has_index(self, input: int, cols: tuple[int, ...], ordered: bool) -> bool:
        return input == self._outer.kept or self._estimates.has_index(input, cols, ordered)
