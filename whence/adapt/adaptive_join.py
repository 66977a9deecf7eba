"""One running join as the optimizer sees it: statistics, the space of its paths, the margin, and advice.

A reading goes through up to four gates, each dearer than the one before: has a statistic moved by more than the filter;
is the margin used up; is another plan cheaper; does a switch pay. Most readings end at the first.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from whence.adapt.history import describe_path
from whence.adapt.margin import Margin
from whence.adapt.policy import SwitchPolicy
from whence.adapt.statistics import JoinReading, JoinStatistics
from whence.engine.core.machine_costs import machine_costs
from whence.plan.algebra.join_paths import JoinOrders, JoinShape, PathCode
from whence.plan.optimizer.kernels.paths import FAN_OUT, PASSING, SCALE
from whence.plan.optimizer.paths import IndexKey, PathSpace


class JoinAdvice(NamedTuple):
    """Another plan for a join: which part of its work it saves, and the indexes that it needs and that are missing."""

    plan: JoinOrders
    gain: float
    missing: tuple[IndexKey, ...]
    reason: str


class PathFigures(NamedTuple):
    """A delta's path: what it costs for each row, in probes, and what the best one would; rows per second; and steps
    that are not taken, by how much of the path's cost the cheapest path through each costs more than the best."""

    path: PathCode
    cost: float
    best: float
    rate: float
    roads: tuple[tuple[tuple[int, ...], int, float], ...]


class AdaptiveJoin:
    """Keeps the best plan of one join while its statistics change."""

    def __init__(self, shape: JoinShape, policy: SwitchPolicy, now: float) -> None:
        self.space, self.policy = PathSpace(shape, machine_costs()), policy
        self.statistics = JoinStatistics(self.space)
        self.switched = now  # when it last was
        self.readings = self.moves = self.searches = 0
        self._plan: JoinOrders = ()
        self._running: list[list[int]] = []  # alternatives of each path
        self._margin: Margin | None = None
        self._best: list[PathCode] = []

    def take(self, reading: JoinReading, now: float) -> JoinAdvice | None:
        """Take a reading; return another plan if a switch to it pays."""
        self.readings += 1
        moved = self.statistics.take(reading, now)
        self.moves += moved
        if reading.plan != self._plan:
            self._plan, self._margin = reading.plan, None
            self._running = [self.space.numbers_of(first, path) for first, path in enumerate(reading.plan)]
        if moved or self._margin is None:
            self._fill()
            if self._margin is None or self._margin.used() > 1:
                self._search()
        return self._advice(now) if self._best_plan() != self._plan else None

    def _fill(self) -> None:
        known = self.statistics
        self.space.fill(known.fan, known.passing, known.met, known.passed, known.indexed)

    def _search(self) -> None:
        self.searches += 1
        space, costs = self.space, self.space.search()
        running = [space.cost_of(path) for path in self._running]
        best = [int(costs.best[root]) for root in space.roots]
        behind = [mine - least for mine, least in zip(running, best, strict=True)]
        slack = [int(self.policy.least_gain * mine) for mine in running]
        self._best = [
            space.path_of(first, costs) if behind[first] > slack[first] else path
            for first, path in enumerate(self._plan)
        ]
        self._margin = Margin(space, space.regrets(costs), self._running, behind, slack)

    def _best_plan(self) -> JoinOrders:
        return tuple(self._best)

    def _advice(self, now: float) -> JoinAdvice | None:
        space, policy, rates = self.space, self.policy, self.statistics.rates
        chosen = [space.numbers_of(first, path) for first, path in enumerate(self._best)]
        running = np.array([space.cost_of(path) for path in self._running]) / SCALE
        saved = running - np.array([space.cost_of(path) for path in chosen]) / SCALE
        second = policy.probe_seconds
        whole, less = float(rates @ running) * second, float(rates @ saved) * second
        numbers = {int(space.index[n]) for path in chosen for n in path}
        missing = tuple(space.index_keys[n] for n in sorted(numbers) if not self.statistics.indexed[n])
        rows = self.statistics.rows
        build = policy.switch_seconds + sum(policy.build(rows[input], ordered) for input, _, ordered in missing)
        if not policy.pays(less, whole, build, now - self.switched):
            return None
        gain = less / whole if whole else 0.0
        paths = [
            f"path of {describe_path(first, path)} at {running[first] - saved[first]:.3g} instead of "
            f"{describe_path(first, self._plan[first]).partition(': ')[2]} at {running[first]:.3g} probes a row"
            for first, path in enumerate(self._best)
            if path != self._plan[first]
        ]
        return JoinAdvice(self._best_plan(), gain, missing, f"{gain:.0%} less work: {'; '.join(paths)}")

    @property
    def margin(self) -> list[float]:
        """Return what may be used of the margin of each path, in probes a row."""
        return [each / SCALE for each in self._margin.smallest] if self._margin is not None else []

    def steps_of(self, first: int) -> list[dict[str, float | int | None]]:
        """Return what each step of a path is expected to match for a row, corrected by what was met, and what it has
        met lately."""
        found: list[dict[str, float | int | None]] = []
        for number in self._running[first]:
            figures, code = self.space.figures[number], self.space.steps[number]
            met = self.statistics.observed.get(self.space.met_key(number))
            input = (code if code >= 0 else ~code) + 1
            found.append(
                {"input": input, "expected": float(figures[FAN_OUT]), "passing": float(figures[PASSING]), "met": met}
            )
        return found

    def figures(self) -> list[PathFigures]:
        """Return each path with what it costs, and what the roads not taken would cost more."""
        space = self.space
        self._fill()
        costs = space.search()
        regrets, found = space.regrets(costs), []
        for first, path in enumerate(self._plan):
            best, mine = int(costs.best[space.roots[first]]), space.cost_of(self._running[first])
            taken, roads, met = set(self._running[first]), [], 1 << first
            for number in self._running[first]:
                entry = int(space.alternatives[number, 2])
                for other, step in space.steps_from(entry):
                    if other not in taken:
                        roads.append((space.members(met, first), step, int(regrets[other]) / max(1, best)))
                code = space.steps[number]
                met |= 1 << (code if code >= 0 else ~code)
            rate = float(self.statistics.rates[first])
            found.append(PathFigures(path, mine / SCALE, best / SCALE, rate, tuple(roads)))
        return found
