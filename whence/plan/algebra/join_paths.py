"""Orders of an n-way join's paths: which input a delta of one of them is extended by next, and what that should cost.

A path is left-deep, and each input has one of its own. A step looks an input up by the columns whose equals are known
and makes the tests that it decides. The rows so far times the probe and the matches are its cost; matches that pass its
tests go on. Where tests bound a column, an ordered index may find those rows alone, for a dearer probe and upkeep. How
many rows match and how many pass is asked of `Estimates`. Of a few inputs all orders are weighed, by
dynamic programming over the sets of inputs that a path has met; of many, the step that leaves the fewest rows is next.
Without estimates the input comes next that agrees with what is known in the most columns (`connected_order`).

What is searched is any `PathShape`: an n-way join (`JoinShape`), or a recursive rule (`plan/recursion/rule_shape.py`).
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import accumulate, pairwise
from typing import NamedTuple, Protocol

from whence.plan.algebra.expressions import columns_of, may_fail
from whence.plan.algebra.join_bounds import ColumnBound, bounds_of
from whence.plan.algebra.multiway_join import MultiwayJoin
from whence.plan.algebra.work_costs import WorkCosts

FEW = 8  # inputs of which all orders are weighed
_RATIO = 4  # how far an input's size may move before orders are chosen again
_TINY = 16  # rows below which sizes are taken to be the same


Members = tuple[tuple[int, int], ...]  # columns of inputs
PathCode = tuple[
    int, ...
]  # a path as it is written down: an input a step, `~input` where an ordered index is looked up
JoinOrders = tuple[PathCode, ...]  # one of each input


class Estimates(Protocol):
    """What is known of the inputs' rows, and what work costs."""

    costs: WorkCosts

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
    """The steps of a delta's path, and the work that a row of the delta should be: in picoseconds, and in probes."""

    steps: tuple[PathStep, ...]
    cost: int
    probe: int

    @property
    def inputs(self) -> tuple[int, ...]:
        return tuple(step.input for step in self.steps)

    @property
    def code(self) -> PathCode:
        return tuple(~step.input if step.bounds else step.input for step in self.steps)

    @property
    def work(self) -> float:
        """As many probes of a hash index take as long."""
        return self.cost / self.probe


class PathShape(Protocol):
    """What paths of a join may do; sets of inputs are bits."""

    def others(self, first: int) -> tuple[int, ...]:
        """Return the inputs that the path of one meets."""

    def follows(self, input: int, met: int) -> bool:
        """Return whether an input may come next when these have been met."""

    def cols(self, input: int, met: int) -> tuple[int, ...]:
        """Return the columns of an input whose equals are known when these inputs have been met."""

    def known(self, input: int, cols: tuple[int, ...], met: int) -> tuple[Members, ...]:
        """Return the columns of inputs that have been met that each column of a key equals."""

    def decided(self, met: int, input: int) -> list[int]:
        """Return the tests that can be made once an input joins those that have been met."""

    def bounded(self, input: int, met: int) -> tuple[ColumnBound, ...]:
        """Return bounds of one column of an input that are known when these inputs have been met."""

    def range_columns(self, step: PathStep) -> tuple[int, ...]:
        """Return the columns of the ordered index that a step with bounds looks up."""


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

    def unread(self) -> list[list[int]]:
        """Return the columns of each input that nothing reads: no key, no test, no output."""
        read = set(self.join.out).union(*self.join.classes, *map(columns_of, self.join.tests))
        return [
            [column - start for column in range(start, end) if column not in read]
            for start, end in pairwise(self.starts)
        ]

    def others(self, first: int) -> tuple[int, ...]:
        return tuple(i for i in range(len(self.keys)) if i != first)

    def follows(self, input: int, met: int) -> bool:
        return True

    def cols(self, input: int, met: int) -> tuple[int, ...]:
        return tuple(sorted(column for column, others in self.keys[input] if others & met))

    def known(self, input: int, cols: tuple[int, ...], met: int) -> tuple[Members, ...]:
        return tuple(tuple(m for m in self.equals[input, c] if met >> m[0] & 1) for c in cols)

    def decided(self, met: int, input: int) -> list[int]:
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

    def range_columns(self, step: PathStep) -> tuple[int, ...]:
        return (*step.cols, step.bounds[0].column - self.starts[step.input])


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


def weigh_order(
    shape: PathShape, first: int, order: Sequence[int], estimates: Estimates, coded: bool = False
) -> PathOrder:
    """Return an order with the estimates of its steps; if it is `coded` it says which indexes are looked up, else that
    is chosen."""
    steps, met, rows, cost = [], 1 << first, 1.0, 0
    for code in order:
        input = code if code >= 0 else ~code
        step, work = _step(shape, first, met, input, estimates, code < 0 if coded else None)
        steps.append(step)
        cost += round(work * rows) + _upkeep(shape, step, estimates)
        rows *= step.fan_out * step.passing
        met |= 1 << input
    return PathOrder(tuple(steps), cost, estimates.costs.probe)


def cheapest_order(shape: PathShape, first: int, estimates: Estimates) -> PathOrder:
    """Return the order of least cost, or of many inputs a good one."""
    others = shape.others(first)
    if len(others) >= FEW:
        return weigh_order(shape, first, _greedy(shape, first, estimates), estimates)
    everything = sum(1 << i for i in others) | 1 << first
    best: dict[int, tuple[int, float, tuple[int, ...]]] = {1 << first: (0, 1.0, ())}
    for met in range(1 << first, everything + 1):  # a set comes after all of its subsets
        found = best.get(met)
        if found is None:
            continue
        cost, rows, order = found
        for input in others:
            if met >> input & 1 or not shape.follows(input, met):
                continue
            step, work = _step(shape, first, met, input, estimates)
            total = cost + round(work * rows) + _upkeep(shape, step, estimates)
            known = best.get(met | 1 << input)
            if known is None or total < known[0]:
                best[met | 1 << input] = total, rows * step.fan_out * step.passing, (*order, input)
    return weigh_order(shape, first, best[everything][2], estimates)


def _greedy(shape: PathShape, first: int, estimates: Estimates) -> list[int]:
    order, met, others = list[int](), 1 << first, shape.others(first)
    while len(order) < len(others):
        left = [i for i in others if not met >> i & 1 and shape.follows(i, met)]
        steps = [_step(shape, first, met, i, estimates) for i in left]
        chosen, _ = min(steps, key=lambda s: (s[0].fan_out * s[0].passing, s[1], -len(s[0].cols)))
        order.append(chosen.input)
        met |= 1 << chosen.input
    return order


def _step(
    shape: PathShape, first: int, met: int, input: int, estimates: Estimates, ordered: bool | None = None
) -> tuple[PathStep, float]:
    """Return a step, and the work that it is for each row; by an ordered index if it is cheaper, or `ordered`."""
    cols, tests = shape.cols(input, met), shape.decided(met, input)
    fan_out = estimates.fan_out(first, input, cols, shape.known(input, cols, met))
    passing = estimates.passing(tests) if tests else 1.0
    costs = estimates.costs
    each = costs.match + costs.test * len(tests)
    work, bounds = costs.probe + fan_out * each, shape.bounded(input, met) if ordered is not False else ()
    if bounds:
        found = fan_out * estimates.passing([bound.test for bound in bounds])
        if ordered or costs.seek + found * each < work:
            return PathStep(input, cols, fan_out, passing, bounds), costs.seek + found * each
    return PathStep(input, cols, fan_out, passing), work


def _upkeep(shape: PathShape, step: PathStep, estimates: Estimates) -> int:
    """Return what the index of a step costs beside those that are there."""
    if not step.bounds:
        return 0 if estimates.has_index(step.input, step.cols, False) else estimates.costs.upkeep
    ordered = estimates.has_index(step.input, shape.range_columns(step), True)
    return 0 if ordered else estimates.costs.ordered_upkeep


def has_moved(planned: int, now: int) -> bool:
    """Return whether an input that had `planned` rows has so many or few that orders may no longer be right.

    >>> has_moved(0, 1), has_moved(100, 399), has_moved(100, 401), has_moved(100, 24), has_moved(2, 12)
    (True, False, True, True, False)
    """
    if not planned or not now:
        return now > planned
    return max(planned, now) > _TINY and not planned <= now * _RATIO <= planned * _RATIO * _RATIO
