"""What each plan for an event of a join costs, and which one is used (paper 002, 4.5).

| plan | how an event is processed | cost |
|---|---|---|
| Hotspot | rows by each hotspot's point; SelectFirst for the rest | a log S + b Σ√Qi + c log C + d ks log kj + e √C |
| SelectFirst | subscriptions whose local ranges hold it, then rows for each | a log S + b log Q + c ks log kj + d √Q |
| JoinFirst-E | rows that join, then subscriptions that hold the event and the row | a log S + b kj √Q |
| JoinFirst-S | rows that join, then each subscription | a log S + b Q log kj |

S is the number of rows of the other side, Q that of subscriptions, Qi that of hotspot i, C that of the scattered ones.
kj rows join the event, and ks subscriptions have local ranges that hold it; for Hotspot only the scattered of them
count. What is the same for all plans, writing down who is affected, is left out. Logarithms are of 1 + x, to base 2.

The terms with √C and √Q are not the paper's: its index of intervals finds those that hold a point in logarithmic time,
ours is packed trees of boxes, whose cost the square root describes better.

Every plan finds the same. The event's own plan is chosen where its rows have been found (`kernels/routing.py`), so kj
is known; ks is estimated by interval histograms, which follow the subscriptions. Coefficients are nanoseconds, fitted
on this machine at set-up (`engine/calibration.py`); there are defaults where none are stored.
"""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import NamedTuple

import numpy as np

from whence.engine.matching.hotspots import Hotspots
from whence.engine.matching.interval_histogram import BUCKETS, IntervalHistogram, StepTable
from whence.engine.matching.kernels import pairs
from whence.engine.matching.kernels.histogram import Heights
from whence.model.codes import Codes
from whence.model.jit import stamp

PLANS = {pairs.HOTSPOT: "Hotspot", pairs.SELECT: "SelectFirst", pairs.JOIN: "JoinFirst-E", pairs.SCAN: "JoinFirst-S"}
ROUTED_FROM = 1024  # subscriptions: with fewer, a choice costs more than it saves
_SEEN = 1024  # events by which histograms know where points are

Coefficients = dict[int, tuple[float, ...]]

DEFAULTS: Coefficients = {
    pairs.HOTSPOT: (15.0, 5.1, 0.0, 6.0, 0.0),
    pairs.SELECT: (0.0, 0.0, 4.7, 60.0),
    pairs.JOIN: (160.0, 1.7),
    pairs.SCAN: (2500.0, 1.0),
}


class MatchShape(NamedTuple):
    """What is the same for all events: rows of the other side, subscriptions, Σ√Qi of hotspots, the scattered."""

    rows: int
    subscriptions: int
    roots: float
    scattered: int


def terms(plan: int, shape: MatchShape, joined: Heights, stabbed: Heights) -> Heights:
    """Return what the coefficients of a plan are multiplied with, a line per event."""
    size, log = np.log2(1.0 + np.array(shape)), np.log2(1.0 + joined)
    always = np.full(len(joined), size[0])
    share = shape.scattered / max(1, shape.subscriptions)
    columns = {
        pairs.HOTSPOT: (
            always,
            always * 0 + shape.roots,
            always * 0 + size[3],
            share * stabbed * log,
            always * 0 + np.sqrt(shape.scattered),
        ),
        pairs.SELECT: (always, always * 0 + size[1], stabbed * log, always * 0 + np.sqrt(shape.subscriptions)),
        pairs.JOIN: (always, joined * np.sqrt(shape.subscriptions)),
        pairs.SCAN: (always, shape.subscriptions * log),
    }
    return np.column_stack(columns[plan])


def cost_lines(found: Coefficients, shape: MatchShape) -> Heights:
    """Return the costs of all plans as `kernels/routing.py` takes them."""
    out = np.zeros((len(PLANS), 5))
    size = np.log2(1.0 + np.array(shape))
    share = shape.scattered / max(1, shape.subscriptions)
    a, b, c, d, e = found[pairs.HOTSPOT]
    out[pairs.HOTSPOT, 0] = a * size[0] + b * shape.roots + c * size[3] + e * np.sqrt(shape.scattered)
    out[pairs.HOTSPOT, 3] = d * share
    a, b, c, d = found[pairs.SELECT]
    out[pairs.SELECT, 0] = a * size[0] + b * size[1] + d * np.sqrt(shape.subscriptions)
    out[pairs.SELECT, 3] = c
    a, b = found[pairs.JOIN]
    out[pairs.JOIN, 0], out[pairs.JOIN, 1] = a * size[0], b * np.sqrt(shape.subscriptions)
    a, b = found[pairs.SCAN]
    out[pairs.SCAN, 0], out[pairs.SCAN, 2] = a * size[0], b * shape.subscriptions
    out[:, 4] = shape.subscriptions
    return out


class PlanRouter:
    """Chooses plans for the events of one side of a join; `used` counts them by plan, and those that join no row."""

    def __init__(self, spots: Hotspots, tested: int):
        self._spots, self._table = spots, StepTable(tested, BUCKETS)
        self._histograms = [IntervalHistogram(table=self._table, line=d) for d in range(tested)]
        self._costs = np.zeros((len(PLANS), 5))
        self._seen: Codes | None = None
        self.used = np.zeros(len(PLANS) + 1, np.int64)
        self.clear()

    def clear(self) -> None:
        """Forget all subscriptions."""
        self._waiting: list[tuple[Codes, int]] = []
        self._changes = 0
        self._built = -1  # subscriptions when histograms were made, -1 if they are not
        self._rows = -1  # of the other side, when costs were computed

    def change(self, lines: Codes, sign: int) -> None:
        """Note subscriptions that come, or with sign -1 go. Histograms follow when the next event comes."""
        self._rows = -1
        self._changes += len(lines)
        if 2 * self._changes > self._built:
            self._built = -1
            self._waiting.clear()
        else:
            self._waiting.append((lines, sign))

    def shape(self, rows: int) -> MatchShape:
        """Return what costs depend on, beside the event."""
        sizes, n = self._spots.sizes, len(self._spots)
        return MatchShape(rows, n, float(np.sqrt(sizes).sum()), n - int(sizes.sum()))

    def statistics(self, rows: int, points: Codes) -> tuple[Heights, Codes, Codes, Heights, Heights]:
        """Return the costs of plans and the histograms, up to date, for events like some points."""
        if abs(rows - self._rows) * 8 > self._rows:
            self._rows = rows
            if len(self._spots) < ROUTED_FROM:
                self._costs[:] = 0
            else:
                self._seen = points[:_SEEN]
                self._follow()
                self._costs = cost_lines(coefficients(), self.shape(rows))
        table = self._table
        return self._costs, table.breaks, table.counts, table.means, table.ratios

    def _follow(self) -> None:
        dims = self._spots.boxes.dims
        if self._built < 0:
            lines = self._spots.boxes.everything()
            for d, histogram in enumerate(self._histograms):
                low, high = (np.ascontiguousarray(lines[:, at]) for at in (d, dims + d))
                histogram.build(low, high, None if self._seen is None else self._seen[:, d])
            self._built, self._changes = len(lines), 0
        for lines, sign in self._waiting:
            for d, histogram in enumerate(self._histograms):
                low, high = (np.ascontiguousarray(lines[:, at]) for at in (d, dims + d))
                histogram.add(low, high, sign)
        self._waiting.clear()

    def estimate(self, points: Codes) -> Heights:
        """Return about how many subscriptions have local ranges that hold each point."""
        n = max(1, len(self._spots))
        found = np.full(len(points), float(n))
        for d, histogram in enumerate(self._histograms):
            found *= histogram.estimate(points[:, d]) / n
        return found

    def count(self, plans: Codes) -> None:
        """Note by which plans events were processed."""
        self.used += np.bincount(plans, minlength=len(self.used))


def describe_plans(used: Codes) -> str:
    """Say how often each plan was used; nothing if none was.

    >>> describe_plans(np.array([70, 25, 5, 0, 900]))
    'Hotspot 70 %, SelectFirst 25 %, JoinFirst-E 5 %'
    """
    counts = used[: len(PLANS)]
    if not counts.sum():
        return ""
    shares = 100 * counts / counts.sum()
    order = np.argsort(-counts, kind="stable")
    return ", ".join(f"{PLANS[int(p)]} {shares[p]:.0f} %" for p in order if counts[p])


def stored_file() -> Path:
    """Return where coefficients of these kernels are stored: beside their compiled code."""
    code = Path(pairs.__file__)
    return Path(pairs.affected._cache._cache_path) / f"match_cost.{stamp(code)}.json"  # type: ignore[attr-defined]  # Numba's


@cache
def coefficients() -> Coefficients:
    """Return the coefficients of this machine, or defaults."""
    try:
        found = json.loads(stored_file().read_text())
    except (OSError, ValueError):
        return DEFAULTS
    return {plan: tuple(found[name]) for plan, name in PLANS.items()}
