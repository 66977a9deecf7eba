"""Workloads of `subscriptions_scale`: subscriptions, rows and events, an operator that holds them, and its times."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from benchmarks.report import WHENCE, Check, Figure
from benchmarks.subscriptions_peers import Numbers
from whence.engine.core.operator import Batch
from whence.engine.matching.hotspots import Hotspots
from whence.engine.matching.kernels import pairs
from whence.engine.matching.match_pairs import EventSide, MatchPairs
from whence.engine.relational.scan import Scan
from whence.model.codes import Dictionary
from whence.model.jit import kernel
from whence.model.types import BIGINT, Column, Schema
from whence.plan.algebra import logical
from whence.plan.algebra.expressions import Col

SPAN = 1_000_000  # of every attribute
GROUPS = 40
_SIDE = Schema(tuple(Column(name, BIGINT) for name in ("k", "c", "id")))
_PARAMETERS = Schema(tuple(Column(name, BIGINT) for name in ("id", "al", "ah", "cl", "ch")))
_OUT = Schema(tuple(Column(name, BIGINT) for name in ("id", "r", "s")))


@dataclass
class Workload:
    """Rows of the other side, subscriptions whose ranges share `groups` points, and events that affect about so many.

    With `keys` keys, `rows / keys` rows join an event; `reach` is half the length of a range of the other side."""

    subscriptions: int
    affected: float
    rows: int = 100_000
    keys: int = 10_000
    reach: int = 5_000
    groups: int = GROUPS
    seed: int = 0
    _rng: np.random.Generator = field(init=False)

    def __post_init__(self) -> None:
        self._rng = np.random.default_rng(self.seed)

    def data(self) -> Numbers:
        columns = self._rng.integers(0, self.keys, self.rows), self._rng.integers(0, SPAN, self.rows)
        return np.column_stack((*columns, np.arange(self.rows)))

    def parameters(self) -> Numbers:
        """Ranges of the other side are around the points; those of the event's own side are as long as it takes. Where
        all of few subscriptions hold an event, those of the other side are longer instead."""
        n, step = self.subscriptions, SPAN // self.groups
        least = SPAN * (1 - (1 - min(0.5, self.affected / n)) ** (self.keys / self.rows))
        reach = max(self.reach, int(least)) if self.affected else 1
        middle = self._rng.integers(0, self.groups, n) * step + step // 2
        low, high = middle - self._rng.integers(1, reach + 1, n), middle + self._rng.integers(1, reach + 1, n)
        share = 1 - (1 - reach / SPAN) ** (self.rows / self.keys)  # of the subscriptions that a run of rows affects
        own = max(1, int(SPAN * min(1.0, self.affected / (n * share)) / 2))
        center = self._rng.integers(0, SPAN, n)
        return np.column_stack((np.arange(n), center - own, center + own, low, high))

    def events(self, count: int) -> Numbers:
        return np.column_stack((self._rng.integers(0, self.keys, count), self._rng.integers(0, SPAN, count)))


def operator(data: Numbers, parameters: Numbers, band: bool = False, alpha: float | None = None) -> MatchPairs:
    """Return an operator that holds the rows of the right and the subscriptions. With `alpha` a group is a hotspot
    from that share of them on, however small it is."""
    inputs = [Scan("r", _SIDE, ()), Scan("s", _SIDE, ()), Scan("p", _PARAMETERS, (0,))]
    nothing = logical.Values(_SIDE, ())
    own, other = logical.Range(1, 1, 2), logical.Range(1, 3, 4)
    if band:
        sides = logical.Side((), None, (logical.Range(2, 1, 2),)), logical.Side((), None, ())
    else:
        sides = logical.Side((), own, ()), logical.Side((), other, ())
    exprs = Col(BIGINT, 0), Col(BIGINT, 3), Col(BIGINT, 6)
    node = logical.MatchPairs(_OUT, nothing, nothing, nothing, 1, sides, other if band else None, exprs)
    made = MatchPairs(list(inputs), node, Dictionary())
    if alpha is not None:
        for side in made.sides:
            spots = side.subscriptions
            side.subscriptions = Hotspots(spots.boxes.dims, 0, spots.on, alpha, smallest=1)
    made.meet([Batch.empty(3), Batch(data, np.ones(len(data), np.int64), True)])
    made.change(parameters[:0], parameters)
    made.commit()
    return made


def table_bytes(parameters: Numbers) -> int:
    """Return how much memory the table of subscriptions takes."""
    table = Scan("p", _PARAMETERS, (0,))
    table.relation.add(Batch(parameters, np.ones(len(parameters), np.int64), True))
    table.relation.commit()
    return table.state_bytes


@dataclass
class Matched:
    """CPU seconds of some events: of finding who is affected, and of the rows that they get."""

    events: int
    affected: int
    rows: int
    seconds: float
    delivered: float


def match(made: MatchPairs, events: Numbers, plan: int = pairs.HOTSPOT) -> Matched:
    """Match events of the left."""
    side, other = made.sides
    given = event_inputs(side, events)
    plans = np.full(len(events), plan, np.int64)
    start = time.process_time()
    found = side.affected(other, *given, plans)
    middle = time.process_time()
    rows = side.expand(other, found, given[2])
    other.rows.rows_at(rows[:, 1])
    return Matched(len(events), len(found), len(rows), middle - start, time.process_time() - start)


def affected_alone(made: MatchPairs, events: Numbers) -> Matched:
    """Find who is affected by events of the left, and leave the rows out; the best of five."""
    side, other = made.sides
    given = event_inputs(side, events)
    seconds, found = [], 0
    for _ in range(5):
        start = time.process_time()
        found = len(side.affected(other, *given, np.full(len(events), pairs.HOTSPOT, np.int64)))
        seconds.append(time.process_time() - start)
    return Matched(len(events), found, 0, min(seconds), 0.0)


def event_inputs(side: EventSide, events: Numbers) -> tuple[Numbers, Numbers, Numbers]:
    """Points, keys and leads of events, given as (key, a) or, for bands, (key, b, a)."""
    rows = np.column_stack((events, np.zeros((len(events), 3 - events.shape[1]), np.int64)))
    _, points, keys, leads = side.events(Batch(rows, np.ones(len(rows), np.int64)))
    return points, keys, leads


class Report:
    """Figures and targets as they come."""

    def __init__(self) -> None:
        self.figures: dict[str, Figure] = {}
        self.checks: list[Check] = []

    def note(self, what: str, unit: str, value: float, peer: str = WHENCE) -> None:
        self.figures.setdefault(f"{what} {unit}", Figure(what, unit)).samples.setdefault(peer, []).append(value)

    def check(self, what: str, measured: float, wanted: float, at_least: bool = True) -> None:
        self.checks.append(Check(what, measured, wanted, at_least))


def with_earlier(path: Path, figures: Sequence[Figure], checks: Sequence[Check]) -> tuple[list[Figure], list[Check]]:
    """Return figures and checks with those of an earlier run that this one has not made."""
    if not path.exists():
        return list(figures), list(checks)
    run = json.loads(path.read_text())
    made, told = {(one.what, one.unit) for one in figures}, {one.what for one in checks}
    old = [Figure(one["what"], one["unit"], one["samples"]) for one in run["figures"]]
    before = [Check(one["what"], one["measured"], one["wanted"], one["at_least"]) for one in run["checks"]]
    return (
        [one for one in old if (one.what, one.unit) not in made] + list(figures),
        [one for one in before if one.what not in told] + list(checks),
    )


def spread(parameters: Numbers, shape: str, groups: int) -> Numbers:
    """Return subscriptions whose ranges of the other side are clustered as they are, around points that are as
    popular as Zipf says, or each in a place of its own."""
    rng, out, n = np.random.default_rng(5), parameters.copy(), len(parameters)
    if shape == "Zipf":
        weight = 1 / np.arange(1, groups + 1)
        middle = rng.permutation(groups)[rng.choice(groups, n, p=weight / weight.sum())]
        step = SPAN // groups
        out[:, 3] = middle * step + step // 2 - rng.integers(1, step // 2, n)
        out[:, 4] = middle * step + step // 2 + rng.integers(1, step // 2, n)
    elif shape == "disjoint":
        middle, step = rng.permutation(n) % groups, SPAN // groups
        out[:, 3], out[:, 4] = middle * step, middle * step + step // 2
    return out


def band_events(events: Numbers) -> Numbers:
    """Return events (key, a) as rows (key, b, a) of a band join, at 0."""
    return np.column_stack((events[:, 0], np.zeros(len(events), np.int64), events[:, 1]))


def merge_joined(made: MatchPairs) -> Callable[[Numbers], int]:
    """BJ-MJ: subscriptions in the order of their low ends are merged with the rows of the event's key."""
    side, other = made.sides
    boxes = side.subscriptions.boxes
    entries = boxes.everything()
    entries = np.ascontiguousarray(entries[np.argsort(entries[:, side.tested])])
    rows = other.rows.head(-1)[0]
    keys, values = np.ascontiguousarray(rows[:, 0]), np.ascontiguousarray(rows[:, 1])

    def count(events: Numbers) -> int:
        found = 0
        for key, b, a in events.tolist():
            low, high = np.searchsorted(keys, key), np.searchsorted(keys, key, side="right")
            found += _merge(entries, boxes.dims, side.tested, values[low:high] - b, a)
        return found

    return count


@kernel
def _merge(entries: Numbers, dims: int, tested: int, values: Numbers, a: int) -> int:
    found = 0
    at = 0
    for i in range(len(entries)):
        while at < len(values) and values[at] < entries[i, tested]:
            at += 1
        if at == len(values):
            break
        if values[at] <= entries[i, dims + tested] and entries[i, 0] <= a <= entries[i, dims]:
            found += 1
    return found
