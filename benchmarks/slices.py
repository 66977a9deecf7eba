"""Figures 28, 29 and Table 3 of paper 003: SegTollS re-optimized after every slice of its stream.

| plan | after each slice |
|---|---|
| incremental | statistics are read; only while the plan's margin is used up is the space searched |
| incremental, no margin | the space is searched whenever there is a slice |
| not incremental | statistics, space and search begin anew |
| best static, first seconds | nothing: the best orders of all, and those that were best in the first ten seconds |

The stream begins with no statistics, and its traffic changes every 30 seconds (`linear_road`). A slice is an epoch, of
1, 5 or 10 seconds. All plans take turns in one process; times are the processor's, of re-optimizing and of executing
apart, each the median of the rounds. All must have the same rows at the end.
"""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field

from rich.console import Console
from rich.table import Table

import whence
from benchmarks.drift import FIRST, FIRST_SECONDS, SEGTOLL, STATIC, Query, WrongRowsError
from benchmarks.drift_orders import join_of, measure_room
from benchmarks.linear_road import PHASES, Report, traffic
from benchmarks.report import Check
from whence.adapt.adaptive_join import AdaptiveJoin, JoinAdvice
from whence.adapt.policy import SwitchPolicy
from whence.adapt.statistics import JoinReader, JoinReading
from whence.engine.relational.join import Join
from whence.plan.algebra.join_paths import JoinOrders

INCREMENTAL, NO_MARGIN, ANEW = "incremental", "incremental, no margin", "not incremental"
SLICES, SECONDS, TABLE_SECONDS = (1, 5, 10), 150, 20


@dataclass
class Sliced:
    """CPU milliseconds of every slice of one plan, a list per round; how often it switched."""

    plan: str
    slice: int
    optimizing: list[list[float]] = field(default_factory=list)
    executing: list[list[float]] = field(default_factory=list)
    switches: int = 0
    searches: int = 0

    def medians(self, what: str) -> list[float]:
        return [statistics.median(times) for times in zip(*getattr(self, what), strict=True)]

    def total(self, what: str, seconds: int = SECONDS) -> float:
        """Return the milliseconds of the first slices, so many seconds of them."""
        return sum(self.medians(what)[: seconds // self.slice])


class _WithoutMargin(AdaptiveJoin):
    """Searches at every reading."""

    def take(self, reading: JoinReading, now: float) -> JoinAdvice | None:
        self._margin = None
        return super().take(reading, now)


class Reoptimizer:
    """Optimizes a running join after each slice."""

    def __init__(self, join: Join, plan: str) -> None:
        self._join, self._plan, self._policy = join, plan, SwitchPolicy()
        self._begin(0.0)
        self.switches = self.searches = 0

    def _begin(self, now: float) -> None:
        kind = _WithoutMargin if self._plan == NO_MARGIN else AdaptiveJoin
        self._reader, self._adaptive = JoinReader(self._join), kind(self._join.shape, self._policy, now)

    def optimize(self, now: float) -> None:
        if self._plan == ANEW:
            self._begin(now)
        reading = self._reader.read()
        if not all(reading.rows):
            return  # there is nothing to join yet
        searches = self._adaptive.searches
        advice = self._adaptive.take(reading, now)
        self.searches += self._adaptive.searches - searches
        if advice is not None:
            self._join.pin(advice.plan)
            self._adaptive.switched = now
            self.switches += 1


class _Runner:
    def __init__(self, db: whence.Database, query: Query, plan: str, static: JoinOrders) -> None:
        self.db, self.view, self._plan = db, query.view, plan
        db.execute(query.script)
        self.join = join_of(db, query.view)
        self.optimizer = Reoptimizer(self.join, plan) if plan in (INCREMENTAL, NO_MARGIN, ANEW) else None
        if plan == STATIC:
            self.join.pin(static, firm=True)
        self.optimizing, self.executing = list[float](), list[float]()

    def step(self, batch: Sequence[Report], end: int) -> None:
        began = time.process_time()
        self.db.insert("car_location", batch)
        done = time.process_time()
        if self.optimizer is not None:
            self.optimizer.optimize(float(end))
        elif self._plan == FIRST and end >= FIRST_SECONDS:
            self.join.pin(self.join.plan, firm=True)
        self.executing.append(1e3 * (done - began))
        self.optimizing.append(1e3 * (time.process_time() - done))


def measure(rounds: int, cars: int, console: Console, seconds: int = SECONDS) -> list[Sliced]:
    """Run all plans over slices of each length."""
    batches = traffic(cars, seconds)
    static = measure_room(SEGTOLL.script, SEGTOLL.view, batches, len(PHASES), 5).static
    found: list[Sliced] = []
    for length in SLICES:
        sliced = {plan: Sliced(plan, length) for plan in (INCREMENTAL, NO_MARGIN, ANEW, STATIC, FIRST)}
        parts = [sum(batches[at : at + length], list[Report]()) for at in range(0, len(batches), length)]
        for number in range(rounds + 1):
            with console.status(f"slices of {length} s, round {number}"):
                _run(parts, length, sliced, static, number)
        found += sliced.values()
    return found


def _run(
    parts: Sequence[Sequence[Report]], length: int, sliced: dict[str, Sliced], static: JoinOrders, turn: int
) -> None:
    """Run one round; round 0 loads what is loaded once and does not count."""
    with ExitStack() as stack:
        runners = [_Runner(stack.enter_context(whence.open()), SEGTOLL, plan, static) for plan in sliced]
        gc.collect()
        for number, part in enumerate(parts):
            at = (number + turn) % len(runners)
            for runner in runners[at:] + runners[:at]:
                runner.step(part, (number + 1) * length)
        rows = {tuple(sorted(runner.db[runner.view].rows)) for runner in runners}
        if len(rows) > 1:
            raise WrongRowsError(f"slices of {length} s: plans have other rows")
        for runner, each in zip(runners, sliced.values(), strict=True):
            if turn:
                each.optimizing.append(runner.optimizing)
                each.executing.append(runner.executing)
            if runner.optimizer is not None:
                each.switches, each.searches = runner.optimizer.switches, runner.optimizer.searches


def show(found: Sequence[Sliced], console: Console) -> None:
    """Print Table 3, for 20 seconds and for the whole stream, and the course of Figure 28."""
    table = Table(title="SegTollS, re-optimized after every slice: CPU ms", title_justify="left")
    for column in ("slice", "plan"):
        table.add_column(column)
    for seconds in (TABLE_SECONDS, SECONDS):
        for column in ("re-opt", "exec", "total"):
            table.add_column(f"{seconds} s: {column}", justify="right")
    for column in ("searches", "switches", "re-opt a slice, first 10", "last 10"):
        table.add_column(column, justify="right")
    for each in found:
        figures = []
        for seconds in (TABLE_SECONDS, SECONDS):
            optimizing, executing = each.total("optimizing", seconds), each.total("executing", seconds)
            figures += [f"{optimizing:.2f}", f"{executing:.1f}", f"{optimizing + executing:.1f}"]
        course = each.medians("optimizing")
        ends = [f"{statistics.fmean(part):.3f}" for part in (course[:10], course[-10:])]
        table.add_row(f"{each.slice} s", each.plan, *figures, str(each.searches), str(each.switches), *ends)
    console.print(table)


def promises(found: Sequence[Sliced]) -> list[Check]:
    """Return what Figures 28 and 29 say beside what was measured, for slices of one second."""
    by = {each.plan: each for each in found if each.slice == SLICES[0]}
    last = statistics.fmean(by[INCREMENTAL].medians("optimizing")[-50:])
    anew = statistics.fmean(by[ANEW].medians("optimizing")[-50:])
    executing = by[STATIC].total("executing") / by[INCREMENTAL].total("executing")
    return [
        Check("Figure 28: re-optimization of the last 50 slices, part of one from scratch", last / anew, 0.5, False),
        Check("Figure 29: execution of the best static plan, times ours", executing, 1.0),
    ]
