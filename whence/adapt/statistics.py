"""What is known of a running join while updates flow: counts that are exact, and figures that fade.

`read_join` takes a reading where the join is: rows of its inputs, rows by distinct keys (exact from indexes, else
counted again when a quarter of the rows has changed), what tests let through (on a sample that is as old), and the
probes and matches of its paths so far. `JoinStatistics` keeps readings: fan-outs and rates are averages in which older
epochs count less and less. What a path met, divided by what was expected, corrects expectations of that step; it is
remembered when the path is left, and fades as the input's rows change.

Statistics are *written* to the optimizer only when they have moved by more than a filter, so that noise costs nothing.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import accumulate
from operator import or_
from typing import NamedTuple

import numpy as np

from whence.engine.core.statistics import distinct_keys
from whence.engine.relational.join import Join
from whence.engine.relational.join_estimates import JoinEstimates
from whence.engine.relational.join_steps import JoinStep
from whence.model.codes import Codes
from whence.plan.algebra.join_paths import JoinOrders
from whence.plan.optimizer.kernels.paths import Figures
from whence.plan.optimizer.paths import MetKey, PassKey, PathSpace

FILTER = 0.1  # of a statistic: what it moves by before it is written
MEMORY = 0.7  # the weight of all that was observed before, when something is
ENOUGH = 16.0  # matches that were expected: from so many on, what was met counts more than what was expected
_STALE = 4  # the part of an input's rows that may change before its keys are counted again, as a divisor
_FADED = 1.5  # inputs that have been replaced so often have nothing to do with what was met


class StepCounts(NamedTuple):
    """A step of a running path, and what it has counted since it is there."""

    met: MetKey
    tests: PassKey
    fan: int  # the number of the fan-out that is expected of it
    probes: int
    matches: int
    passed: int


class JoinReading(NamedTuple):
    """A running join, read at one moment in one partition."""

    plan: JoinOrders
    rows: tuple[int, ...]  # of the inputs
    changes: tuple[int, ...]  # rows by which the inputs have changed so far
    fan: Figures  # rows that match, by `PathSpace.fan_keys`
    passing: Figures  # what tests let through, by `PathSpace.test_keys`
    indexed: Codes  # which indexes are there, by `PathSpace.index_keys`
    steps: tuple[StepCounts, ...]
    seconds: float  # in which it has run


class JoinReader:
    """Reads a join; remembers counts that are still good."""

    def __init__(self, join: Join) -> None:
        self.join, self.space = join, PathSpace(join.shape)
        self._keys: dict[tuple[int, tuple[int, ...]], tuple[float, int]] = {}  # distinct keys, and changes by then
        self._passing: tuple[Figures, list[int]] | None = None
        self._steps: dict[tuple[int, int, int], tuple[MetKey, PassKey, int]] = {}  # by delta, what it met, and input

    def read(self) -> JoinReading:
        """Take a reading, between two epochs."""
        join, space = self.join, self.space
        estimates = _AgeingEstimates(join, self._count_keys)
        fan = np.array([estimates.fan_out(-1, *key) for key in space.fan_keys])
        indexed = np.array([estimates.has_index(*key) for key in space.index_keys], np.int64)
        steps = [
            self._counts(first, step, met)
            for first, path in enumerate(join.paths)
            if path is not None
            for step, met in zip(path.steps, _met_before(first, path.steps), strict=True)
        ]
        rows = tuple(len(relation) for relation in join.relations)
        return JoinReading(
            join.plan, rows, tuple(join.changes), fan, self._tests(estimates), indexed, tuple(steps), join.seconds
        )

    def _counts(self, first: int, step: JoinStep, met: int) -> StepCounts:
        keys = self._steps.get((first, met, step.input))
        if keys is None:
            shape, input, cols = self.join.shape, step.input, tuple(step.cols.tolist())
            fan = self.space.fan_numbers[input, cols, shape.known(input, cols, met)]
            keys = (first, input, cols), (first, tuple(shape.decided(met, input))), fan
            self._steps[first, met, input] = keys
        matches = step.matches if step.range is None else -1  # within bounds only: not what equals a row
        return StepCounts(*keys, step.probes, matches, step.passed)

    def _count_keys(self, input: int, cols: tuple[int, ...]) -> float:
        relation, changes = self.join.relations[input], self.join.changes[input]
        if cols in relation.indexes or not cols:
            return distinct_keys(relation, cols)
        keys, then = self._keys.get((input, cols), (0.0, -1))
        if then < 0 or (changes - then) * _STALE > len(relation):
            keys = distinct_keys(relation, cols)
            self._keys[input, cols] = keys, changes
        return keys

    def _tests(self, estimates: JoinEstimates) -> Figures:
        """Return what tests let through, of a sample that is not too old."""
        changes = self.join.changes
        if self._passing is not None:
            found, then = self._passing
            sizes = map(len, self.join.relations)
            if all((now - before) * _STALE <= size for now, before, size in zip(changes, then, sizes, strict=True)):
                return found
        found = np.array([estimates.passing(tests) if tests else 1.0 for tests in self.space.test_keys])
        self._passing = found, list(changes)
        return found


class _AgeingEstimates(JoinEstimates):
    """Estimates from counts that may be a little old; what the paths have met does not count here."""

    def __init__(self, join: Join, count_keys: Callable[[int, tuple[int, ...]], float]) -> None:
        super().__init__(join.relations, join.tests, {})
        self._remembered = count_keys

    def count_keys(self, input: int, cols: tuple[int, ...]) -> float:
        return self._remembered(input, cols)


def _met_before(first: int, steps: Sequence[JoinStep]) -> list[int]:
    """Return which inputs a path has met before each of its steps."""
    return list(accumulate((1 << step.input for step in steps[:-1]), or_, initial=1 << first))


def combined(readings: Sequence[JoinReading]) -> JoinReading:
    """Return the readings of a join in several partitions as one: counts added up, and what is expected of a row by
    how much each partition's inputs have changed."""
    if len(readings) == 1:
        return readings[0]
    weights = np.array([1.0 + sum(reading.changes) for reading in readings])
    weights /= weights.sum()
    counts: dict[tuple[MetKey, PassKey, int], list[int]] = {}
    for reading in readings:
        for step in reading.steps:
            held = counts.setdefault(step[:3], [0, 0, 0])
            for place, more in enumerate(step[3:]):
                held[place] += more
    return JoinReading(
        readings[0].plan,
        tuple(map(sum, zip(*(r.rows for r in readings), strict=True))),
        tuple(map(sum, zip(*(r.changes for r in readings), strict=True))),
        sum((w * r.fan for w, r in zip(weights, readings, strict=True)), np.zeros_like(readings[0].fan)),
        sum((w * r.passing for w, r in zip(weights, readings, strict=True)), np.zeros_like(readings[0].passing)),
        np.minimum.reduce([r.indexed for r in readings]),
        tuple(StepCounts(*key, *held) for key, held in counts.items()),
        sum(r.seconds for r in readings),
    )


class _Average:
    """A ratio of two counts, in which older ones fade."""

    __slots__ = ("above", "below", "then")

    def __init__(self) -> None:
        self.above = self.below = 0.0
        self.then = 0  # changes of the input by then

    def add(self, above: float, below: float) -> None:
        self.above = MEMORY * self.above + above
        self.below = MEMORY * self.below + below

    def faded(self, replaced: float) -> float:
        """Return the ratio, nearer to one the more often the rows that it is of have been replaced since, and the less
        it was observed."""
        weight = self.below / (self.below + ENOUGH) * max(0.0, 1.0 - replaced / _FADED)
        return math.exp(math.log((self.above + 0.5) / (self.below + 0.5)) * weight)


class JoinStatistics:
    """What readings of one join say, as the optimizer has it."""

    def __init__(self, space: PathSpace) -> None:
        self._space = space
        self.rates = np.zeros(space.inputs)  # rows by which inputs change, per second
        self.rows: tuple[int, ...] = (0,) * space.inputs
        self.fan, self.passing = np.ones(len(space.fan_keys)), np.ones(len(space.test_keys))
        self.met, self.passed = np.ones(len(space.met_keys)), np.ones(len(space.pass_keys))
        self.indexed = np.zeros(len(space.index_keys), np.int64)
        self.observed: dict[MetKey, float] = {}  # fan-outs that running steps have met
        self._met_of = {key: number for number, key in enumerate(space.met_keys)}
        self._pass_of = {key: number for number, key in enumerate(space.pass_keys)}
        self._met: dict[MetKey, _Average] = {}  # of what was expected
        self._passed: dict[PassKey, _Average] = {}
        self._last: JoinReading | None = None
        self._time = 0.0

    def take(self, reading: JoinReading, now: float) -> bool:
        """Take a reading; return whether anything has moved by more than the filter, and was written."""
        last, self._last = self._last, reading
        self._note_rates(reading, last, now)
        self._note_steps(reading, last)
        met, passed = self._corrections(reading)
        moved = _write(self.fan, reading.fan) | _write(self.passing, reading.passing)
        moved |= _write(self.met, met) | _write(self.passed, passed)
        if not np.array_equal(self.indexed, reading.indexed):
            self.indexed, moved = reading.indexed, True
        self.rows = reading.rows
        return moved

    def _note_rates(self, reading: JoinReading, last: JoinReading | None, now: float) -> None:
        before, self._time = self._time, now
        if last is None or now <= before:
            return
        grown = [max(0, a - b) for a, b in zip(reading.changes, last.changes, strict=True)]
        self.rates = MEMORY * self.rates + (1 - MEMORY) * np.array(grown) / (now - before)

    def _note_steps(self, reading: JoinReading, last: JoinReading | None) -> None:
        before = {step[:3]: step for step in last.steps} if last is not None else {}
        self.observed = {}
        for now in reading.steps:
            step = _since(now, before.get(now[:3]))
            if not step.probes:
                continue
            if step.matches >= 0:
                average = self._met.setdefault(step.met, _Average())
                average.add(step.matches, step.probes * max(float(reading.fan[step.fan]), 1e-9))
                average.then = reading.changes[step.met[1]]
                self.observed[step.met] = step.matches / step.probes
            if step.matches > 0 and step.tests[1]:
                average = self._passed.setdefault(step.tests, _Average())
                number = self._space.test_numbers[step.tests[1]]
                average.add(step.passed, step.matches * max(float(reading.passing[number]), 1e-9))
                average.then = sum(reading.changes)

    def _corrections(self, reading: JoinReading) -> tuple[Figures, Figures]:
        met, passed = np.ones_like(self.met), np.ones_like(self.passed)
        for key, average in self._met.items():
            size = max(1, reading.rows[key[1]])
            met[self._met_of[key]] = average.faded((reading.changes[key[1]] - average.then) / size)
        for tests, average in self._passed.items():
            size = max(1, sum(reading.rows))
            passed[self._pass_of[tests]] = average.faded((sum(reading.changes) - average.then) / size)
        return met, passed


def _since(step: StepCounts, before: StepCounts | None) -> StepCounts:
    """Return what a step has counted since an earlier reading, or since it has begun anew."""
    if before is None or before.probes > step.probes:
        return step
    matches = step.matches - before.matches if step.matches >= 0 else -1
    return step._replace(probes=step.probes - before.probes, matches=matches, passed=step.passed - before.passed)


def _write(written: Figures, now: Figures) -> bool:
    """Write what has moved by more than the filter; return whether anything has."""
    far = np.abs(now - written) > FILTER * np.maximum(written, 1e-12)
    written[far] = now[far]
    return bool(far.any())
