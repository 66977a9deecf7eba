"""The figures and tables of paper 002's section 5.5, by number: what is sent, and what it takes the server.

Updates come one at a time. `felt` ones change some range, others none; where a figure asks for a share of them, others
are made too, and not counted: so values stay as the walk has them. Section 5.5.2 asks for that: a walk with a
stationary distribution of each value. Its step is not printed. Here a value moves by N(0, 10,000), reflected at both
ends, which leaves it uniform. Where all updates are to be felt, no two stocks have the same x: then none can be ignored
(t7 in the paper's example can, since t6 has its x). A spike drops a value below all others, and the next update brings
it back; both count. The values of the trace move by 2 % of themselves. Processing times are those of a call per update,
Python's own part included.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmarks.subscriptions_overlay import DOMAIN, Overlay, PhysicalTree
from whence.engine.matching.boxes import Boxes
from whence.engine.matching.range_minima import RangeMinima, Rectangles
from whence.model.codes import Codes, Dictionary
from whence.model.types import BIGINT

SPIKES = 0.005
FINE = 100
RATINGS = 400  # values of x, so that about 11.7 % of updates cannot be ignored, as in the paper's trace
DAILY = 0.02  # of a price, between its opening and its closing
PAPER: dict[str, dict[str, list[float]]] = {  # what its tables print
    "5.2": {"S-CN": [2.10, 2.15, 2.18, 2.20, 2.22], "S-UN": [726, 671, 678, 655, 654]},
    "5.3": {"S-CN": [2.08] * 5, "S-UN": [303, 616, 909, 1218, 1441]},
}


def ranges(
    count: int, random: np.random.Generator, spread: float = 1500, length: tuple[float, float] = (1000, 1000)
) -> Codes:
    """Ranges of subscriptions, by default as Table 5.1 has them; midpoints outside of the domain are drawn again."""
    middle = random.normal(DOMAIN / 2, spread, count)
    while len(out := np.flatnonzero((middle < 0) | (middle > DOMAIN))):
        middle[out] = random.normal(DOMAIN / 2, spread, len(out))
    long = np.abs(random.normal(*length, count))
    return np.clip(np.column_stack((middle - long / 2, middle + long / 2)), 0, DOMAIN).astype(np.int64)


class Market:
    """Stocks (x, y) whose y walks at random, and the points that ranges are over. Ranges and x count in units of
    1 / FINE; `values` is how many x there are, None for as many as fit."""

    def __init__(self, stocks: int, random: np.random.Generator, values: int | None = None, relative: float = 0.0):
        """With `relative` a value moves by that share of itself, else by the width of the domain (both deviations)."""
        self._random, self._relative = random, relative
        if values is None:
            self.x = random.choice(DOMAIN * FINE, stocks, replace=False)
        else:
            self.x = random.integers(0, values, stocks) * (DOMAIN * FINE // values)
        self.y = random.integers(0, DOMAIN, stocks)
        self.points = RangeMinima(0, BIGINT, BIGINT, Dictionary())
        unique, counts = np.unique(np.column_stack((self.x, self.y)), axis=0, return_counts=True)
        self.points.add(unique, counts.astype(np.int64))
        self.points.commit()
        self._back: tuple[int, int] | None = None  # a stock after a spike, and its value before
        self.seconds = 0.0  # that the last update took

    def update(self, felt: bool | None = None, spikes: float = 0.0) -> tuple[int, Rectangles]:
        """Move stocks until a move is `felt`, or is not, if that is said; return its x, and what changes."""
        if self._back is not None:
            stock, old = self._back
            self._back = None
            return self._move(stock, old)
        if self._random.random() < spikes:
            stock = int(self._random.integers(len(self.x)))
            self._back = stock, int(self.y[stock])
            return self._move(stock, -1)
        while True:
            stock = int(self._random.integers(len(self.x)))
            now = int(self.y[stock])
            new = _reflected(now + self._random.normal(0, self._relative * now or DOMAIN))
            if new != now:
                x, changed = self._move(stock, new)
                if felt is None or felt == bool(len(changed)):
                    return x, changed

    def _move(self, stock: int, new: int) -> tuple[int, Rectangles]:
        x, old = int(self.x[stock]), int(self.y[stock])
        rows, counts = np.array([[x, old], [x, new]]), np.array([-1, 1])
        start = time.perf_counter()
        changed = self.points.change(rows, counts)
        self.seconds = time.perf_counter() - start
        self.points.commit()
        self.y[stock] = new
        return x, changed


def _reflected(value: float) -> int:
    """Return a value in the domain, beyond whose ends the walk turns back."""
    inside = abs(value) % (2 * DOMAIN)
    return int(min(inside, 2 * DOMAIN - inside))


@dataclass
class Panel:
    """A figure or table: what varies along it, and a series of values for each of its lines."""

    number: str
    title: str
    across: str
    at: list[float]
    lines: dict[str, list[float]]


def processing(cases: list[tuple[int, int]], events: int) -> tuple[dict[str, list[float]], dict[str, list[float]]]:
    """Microseconds of an update, and messages of it, for each pair of stocks and subscriptions; all updates felt."""
    took: dict[str, list[float]] = {"S-CN": [], "S-UN": []}
    sent: dict[str, list[float]] = {"S-CN": [], "S-UN": []}
    for stocks, subscriptions in cases:
        random = np.random.default_rng(5)
        market, boxes = Market(stocks, random), Boxes(2)
        subscribed = ranges(subscriptions, random) * FINE
        boxes.put(boxes.lines(subscribed, subscribed, np.arange(subscriptions)))
        cn, un, messages, unicasts = [], [], 0, 0
        for _ in range(events):
            _, changed = market.update(True, SPIKES)
            start = time.perf_counter()
            at, ids = boxes.find(
                np.ascontiguousarray(changed.bounds[:, ::2]), np.ascontiguousarray(changed.bounds[:, 1::2])
            )
            np.column_stack((ids, changed.values[at]))  # what each is sent
            un.append(market.seconds + time.perf_counter() - start)
            cn.append(market.seconds)
            messages, unicasts = messages + len(changed), unicasts + len(ids)
        for name, seconds, count in (("S-CN", cn, messages), ("S-UN", un, unicasts)):
            took[name].append(float(np.mean(seconds)) * 1e6)
            sent[name].append(count / events)
    return took, sent


def traffic(overlay: Overlay, market: Market, events: int, felt: float | None, spikes: float = 0.0) -> Overlay:
    """Send updates of which a share is felt (None: as they come)."""
    random = np.random.default_rng(11)
    for _ in range(events):
        overlay.tell(*market.update(None if felt is None else bool(random.random() < felt), spikes))
    return overlay


def _bytes(found: list[Overlay]) -> dict[str, list[float]]:
    return {way: [one.means()[way]["bytes"] for one in found] for way in found[0].traffic}


def panels(events: int, scale: float = 1.0) -> tuple[list[Panel], dict[str, Any]]:
    """All figures and tables, with subscriptions scaled; and the figures of the trace with most subscriptions.

    Processing is measured over ten times the events: a few updates affect most of what is affected."""
    random, steps = np.random.default_rng(7), [1, 2, 3, 4, 5]
    tree = PhysicalTree(random)
    stocks = [20_000 * n for n in steps]
    took, sent = processing([(n, round(500_000 * scale)) for n in stocks], 10 * events)
    found = [
        Panel("5.6", "processing time (µs)", "stocks", list(stocks), took),
        Panel("5.2", "messages of an update", "stocks", list(stocks), sent),
    ]
    many = [round(200_000 * n * scale) for n in steps]
    took, sent = processing([(10_000, n) for n in many], 10 * events)
    found += [
        Panel("5.7", "processing time (µs)", "subscriptions", list(many), took),
        Panel("5.3", "messages of an update", "subscriptions", list(many), sent),
    ]
    shares = [0.0, 0.2, 0.4, 0.6, 0.8, 0.95]
    short = ranges(round(500_000 * scale), random, 10_000, (50, 10)) * FINE
    runs = [traffic(Overlay(tree, short, FINE), Market(10_000, random, DOMAIN), events, 1 - share) for share in shares]
    found.append(Panel("5.8", "bytes of an update", "share of ignorable updates", shares, _bytes(runs)))
    wide, spiked = ranges(round(500_000 * scale), random) * FINE, [0.0, 0.005, 0.01, 0.02, 0.04]
    runs = [traffic(Overlay(tree, wide, FINE), Market(50_000, random), 2 * events, None, share) for share in spiked]
    affected = [one.affected / one.events for one in runs]
    found.append(Panel("5.9", "bytes of an update", "affected subscriptions", affected, _bytes(runs)))
    some = [round(100_000 * n * scale) for n in steps]
    runs = [
        traffic(Overlay(tree, ranges(n, random) * FINE, FINE), Market(3_053, random, RATINGS, DAILY), events, None)
        for n in some
    ]
    found.append(Panel("5.10", "bytes of an update, trace", "subscriptions", list(some), _bytes(runs)))
    last = runs[-1]
    return found, {"ways": last.means(), "felt": last.felt / last.events, "subscriptions": some[-1]}
