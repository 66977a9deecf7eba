"""Orders of an n-way join's paths: which input a delta of one of them is extended by next, and what that should cost.

A path is left-deep, and each input has one of its own. A step looks an input up by the columns whose equals are known
and makes the tests that it decides. The rows so far times the probe and the matches are its cost; matches that pass its
tests go on. Where tests bound a column, an ordered index may find those rows alone, for a dearer probe and upkeep. How
many rows match and how many pass is asked of `Estimates`. Of a few inputs all orders are weighed, by
dynamic programming over the sets of inputs that a path has met; of many, the step that leaves the fewest rows is next.
Without estimates the input comes next that agrees with what is known in the most columns (`connected_order`).
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import NamedTuple, Protocol

from whence.plan.algebra.expressions import columns_of, may_fail
from whence.plan.algebra.join_bounds import ColumnBound, bounds_of
from whence.plan.algebra.multiway_join import MultiwayJoin

_FEW = 8  # inputs of which all orders are weighed
_NEW_INDEX = 0.5  # of a probe: what the upkeep of an index that is not there is taken to cost
_NEW_ORDER = 2.0  # the same of an ordered index
_SEEK = 4.0  # of a probe: what one of an ordered index costs
_TEST = 0.25  # of a match: what one test of it costs


Members = tuple[tuple[int, int], ...]  # columns of inputs


class Estimates(Protocol):
    """What is known of the inputs' rows."""

    def fan_out(self, first: int, input: int, cols: tuple[int, ...], known: tuple[Members, ...]) -> float:
        """Return how many rows of an input have the key of a row on the path of `first`; `known` are the columns, of
        inputs that it has met, that each of the key's equals."""

    def passing(self, tests: Sequence[int]) -> float:
        """Return the part of rows for which these tests hold."""

    def has_index(self, input: int, cols: tuple[int, ...], ordered: bool) -> bool:
        """Return whether an input is indexed by these columns, or ordered by the last of them."""


class PathStep(NamedTuple):
    """One step: the columns by which an input is looked up, the rows that equal a row in them, and the part of these
    that pass; perhaps the bounds of one more column by which it is looked up."""

    input: int
    cols: tuple[int, ...]
    fan_out: float
    passing: float
    bounds: tuple[ColumnBound, ...] = ()


class PathOrder(NamedTuple):
    """The steps of a delta's path, and the work that a row of the delta should be."""

    steps: tuple[PathStep, ...]
    cost: float

    @property
    def inputs(self) -> tuple[int, ...]:
        return tuple(step.input for step in self.steps)


@dataclass
class JoinShape:
    """What an n-way join asks of its inputs, by sets of inputs as bits."""

    join: MultiwayJoin
    starts: list[int] = field(init=False)
    keys: list[list[tuple[int, int]]] = field(init=False)  # of each input: a column, and the inputs that have its equal
    equals: dict[tuple[int, int], Members] = field(init=False)  # of a column of an input: those of others
    tests: list[int] = field(init=False)  # the inputs that each test reads
    bounds: list[list[ColumnBound]] = field(init=False)  # of columns of each input

    def __post_init__(self) -> None:
        widths = [len(s.schema) for s in self.join.sources]
        self.starts = [*accumulate(widths, initial=0)]
        self.keys, self.equals = [[] for _ in widths], {}
        for members in self.join.classes:
            owners = [self.owner(c) for c in members]
            mask = sum(1 << o for o in set(owners))
            placed = [(owner, column - self.starts[owner]) for column, owner in zip(members, owners, strict=True)]
            for owner, column in placed:
                self.keys[owner].append((column, mask & ~(1 << owner)))
                self.equals[owner, column] = tuple(p for p in placed if p[0] != owner)
        everything = (1 << len(widths)) - 1
        self.tests = [
            everything if may_fail(t) else sum(1 << o for o in {self.owner(c) for c in columns_of(t)})
            for t in self.join.tests
        ]
        self.bounds = [[] for _ in widths]
        for bound in bounds_of(self.join.tests, self.owner):
            self.bounds[self.owner(bound.column)].append(bound)

    def owner(self, column: int) -> int:
        """Return the input that a column of the joined row is of."""
        return bisect_right(self.starts, column) - 1

    def cols(self, input: int, met: int) -> tuple[int, ...]:
        """Return the columns of an input whose equals are known when these inputs have been met."""
        return tuple(sorted(column for column, others in self.keys[input] if others & met))

    def known(self, input: int, cols: tuple[int, ...], met: int) -> tuple[Members, ...]:
        """Return the columns of inputs that have been met that each column of a key equals."""
        return tuple(tuple(m for m in self.equals[input, c] if met >> m[0] & 1) for c in cols)

    def decided(self, met: int, input: int) -> list[int]:
        """Return the tests that can be made once an input joins those that have been met."""
        return [i for i, mask in enumerate(self.tests) if not mask & ~(met | 1 << input) and mask & ~met]

    def bounded(self, input: int, met: int) -> tuple[ColumnBound, ...]:
        """Return the bounds of one column of an input that are known when these inputs have been met: of the column
        that has most of them, best from both sides."""
        found: dict[int, list[ColumnBound]] = {}
        for bound in self.bounds[input]:
            if not bound.others & ~met:
                found.setdefault(bound.column, []).append(bound)
        best = max(found.values(), key=lambda b: (len({bound.upper for bound in b}), len(b)), default=[])
        return tuple(best)


def connected_order(shape: JoinShape, first: int) -> tuple[int, ...]:
    """Return the inputs in the order of how many columns they agree in with what is known."""
    order, met = list[int](), 1 << first
    left = [i for i in range(len(shape.keys)) if i != first]
    while left:
        chosen = max(left, key=lambda i: len(shape.cols(i, met)))
        left.remove(chosen)
        order.append(chosen)
        met |= 1 << chosen
    return tuple(order)


def weigh_order(shape: JoinShape, first: int, order: Sequence[int], estimates: Estimates) -> PathOrder:
    """Return an order with the estimates of its steps."""
    steps, met, rows, cost = [], 1 << first, 1.0, 0.0
    for input in order:
        step, work = _step(shape, first, met, input, estimates)
        steps.append(step)
        cost += work * rows + _upkeep(shape, step, estimates)
        rows *= step.fan_out * step.passing
        met |= 1 << input
    return PathOrder(tuple(steps), cost)


def cheapest_order(shape: JoinShape, first: int, estimates: Estimates) -> PathOrder:
    """Return the order of least cost, or of many inputs a good one."""
    count = len(shape.keys)
    if count > _FEW:
        return weigh_order(shape, first, _greedy(shape, first, estimates), estimates)
    best: dict[int, tuple[float, float, tuple[int, ...]]] = {1 << first: (0.0, 1.0, ())}
    for met in range(1 << count):  # a set comes after all of its subsets
        found = best.get(met)
        if found is None:
            continue
        cost, rows, order = found
        for input in range(count):
            if met >> input & 1:
                continue
            step, work = _step(shape, first, met, input, estimates)
            total = cost + work * rows + _upkeep(shape, step, estimates)
            known = best.get(met | 1 << input)
            if known is None or total < known[0]:
                best[met | 1 << input] = total, rows * step.fan_out * step.passing, (*order, input)
    return weigh_order(shape, first, best[(1 << count) - 1][2], estimates)


def _greedy(shape: JoinShape, first: int, estimates: Estimates) -> list[int]:
    order, met = list[int](), 1 << first
    while len(order) < len(shape.keys) - 1:
        left = [i for i in range(len(shape.keys)) if not met >> i & 1]
        steps = [_step(shape, first, met, i, estimates) for i in left]
        chosen, _ = min(steps, key=lambda s: (s[0].fan_out * s[0].passing, s[1], -len(s[0].cols)))
        order.append(chosen.input)
        met |= 1 << chosen.input
    return order


def _step(shape: JoinShape, first: int, met: int, input: int, estimates: Estimates) -> tuple[PathStep, float]:
    """Return a step, and the work that it is for each row."""
    cols, tests = shape.cols(input, met), shape.decided(met, input)
    fan_out = estimates.fan_out(first, input, cols, shape.known(input, cols, met))
    passing = estimates.passing(tests) if tests else 1.0
    each = 1.0 + _TEST * len(tests)
    work, bounds = 1.0 + fan_out * each, shape.bounded(input, met)
    if bounds:
        found = fan_out * estimates.passing([bound.test for bound in bounds])
        if _SEEK + found * each < work:
            return PathStep(input, cols, fan_out, passing, bounds), _SEEK + found * each
    return PathStep(input, cols, fan_out, passing), work


def _upkeep(shape: JoinShape, step: PathStep, estimates: Estimates) -> float:
    """Return what the index of a step costs beside those that are there."""
    if not step.bounds:
        return 0.0 if estimates.has_index(step.input, step.cols, False) else _NEW_INDEX
    cols = range_columns(shape, step)
    return 0.0 if estimates.has_index(step.input, cols, True) else _NEW_ORDER


def range_columns(shape: JoinShape, step: PathStep) -> tuple[int, ...]:
    """Return the columns of the ordered index that a step with bounds looks up."""
    return (*step.cols, step.bounds[0].column - shape.starts[step.input])
