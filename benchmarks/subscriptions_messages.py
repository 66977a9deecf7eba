"""Range-MIN subscriptions as messages and with ids listed: `python -m benchmarks.subscriptions_messages`.

The workload is Table 5.1 of paper 002: points uniform in [0, 10,000], ranges with midpoints N(5000, 1500) and lengths
N(1000, 1000), updates that walk at random. Figures: updates a second through epochs, as messages and with the affected
subscriptions listed (Figures 5.6 and 5.7), messages against unicasts an update (Tables 5.2 and 5.3), and bytes between
the nodes of an overlay of brokers, with the most messages that start at one node (Figure 5.10).

The overlay is a tree of brokers, four links down from each. A subscriber's gateway is the broker whose cell of the
plane of ranges it lies in: the paper leaves the choice to another text. Bytes are counted between overlay nodes, as
there; the physical hops of a 20,000-node graph below are not simulated.
"""

from __future__ import annotations

import argparse
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
from rich.console import Console
from rich.table import Table

import whence
from benchmarks.report import RESULTS, Check, save, show_checks
from whence.engine.matching.range_minima import RangeMinima, Rectangles
from whence.model.codes import Codes, Dictionary
from whence.model.types import BIGINT

DOMAIN, EPOCH, WARM_UP = 10_000, 1_000, 3
HEADER, FIELD = 20, 8  # bytes
DOWN = 4
RATINGS = 280  # values of x, so that about 11.7 % of updates cannot be ignored, as in the paper's trace


def ranges(count: int, random: np.random.Generator) -> Codes:
    """Ranges of subscriptions, as Table 5.1 has them."""
    middle, length = random.normal(DOMAIN / 2, 1500, count), np.abs(random.normal(1000, 1000, count))
    ends = np.column_stack((middle - length / 2, middle + length / 2))
    return np.clip(ends, 0, DOMAIN).astype(np.int64)


class Walk:
    """Stocks (id, x, y) whose y walks at random. The fewer `values` x has, the more updates can be ignored."""

    def __init__(self, count: int, spread: float, random: np.random.Generator, values: int = DOMAIN):
        self.x, self.y = random.integers(0, values, count) * (DOMAIN // values), random.integers(0, DOMAIN, count)
        self.spread, self._random = spread, random

    def step(self, count: int) -> tuple[Codes, Codes, Codes]:
        """Move some stocks; return them with their values before and after."""
        ids = self._random.choice(len(self.y), count, replace=False)
        before = self.y[ids]
        self.y[ids] = np.clip(before + self._random.normal(0, self.spread, count), 0, DOMAIN).astype(np.int64)
        return ids, before, self.y[ids]


def rate(stocks: int, subscriptions: int, epochs: int, listed: bool) -> tuple[float, float]:
    """CPU seconds of an update through epochs of 1,000, and messages (or notifications) of an update."""
    random = np.random.default_rng(5)
    walk, db = Walk(stocks, 500, random), whence.open()
    db.execute("CREATE TABLE stock (id BIGINT PRIMARY KEY, x BIGINT, y BIGINT)")
    db.execute("CREATE TEMPLATE cheapest AS SELECT MIN(y) AS y FROM stock WHERE x BETWEEN :low AND :high")
    db.insert("stock", pa.table({"id": np.arange(stocks), "x": walk.x, "y": walk.y}))
    if listed:
        low, high = ranges(subscriptions, random).T
        db.insert("cheapest", pa.table({"id": np.arange(subscriptions), "low": low, "high": high}))
    feed = db.notifications("cheapest") if listed else db.messages("cheapest")
    told, spent = 0, 0.0
    for epoch in range(WARM_UP + epochs):
        ids, _, after = walk.step(EPOCH)
        rows = pa.table({"id": ids, "x": walk.x[ids], "y": after})
        start = time.process_time()
        db.insert("stock", rows)
        if isinstance(feed, whence.Notifications):
            found = sum(batch.num_rows for batch in feed.batches())
        else:
            found = sum(1 for _ in feed)
        if epoch >= WARM_UP:
            spent, told = spent + time.process_time() - start, told + found
    db.close()
    return spent / epochs / EPOCH, told / epochs / EPOCH


@dataclass
class Traffic:
    """Bytes between overlay nodes and the most messages that start at a node, over some events."""

    bytes: int = 0
    stress: int = 0

    def add(self, copies: Codes, size: int) -> None:
        """Add an event; `copies` says how many messages of a size each node sends."""
        self.bytes += int(copies.sum()) * size
        self.stress = max(self.stress, int(copies.max(initial=0)))


class Overlay:
    """A tree of brokers with the ranges at each: node 0 is the server's, the parent of n is (n - 1) // 4."""

    def __init__(self, brokers: int, subscribed: Codes):
        self.brokers, self.ranges = brokers, subscribed
        home = np.zeros(len(subscribed), np.int64)
        cells = [np.arange(len(subscribed))]
        while len(cells) < brokers:  # halve the fullest cell, across its wider side
            cells.sort(key=len)
            full = cells.pop()
            side = int(np.ptp(subscribed[full], axis=0).argmax())
            order = full[np.argsort(subscribed[full, side], kind="stable")]
            cells += [order[: len(order) // 2], order[len(order) // 2 :]]
        cells.sort(key=lambda cell: tuple(subscribed[cell].mean(axis=0)) if len(cell) else (0.0, 0.0))
        for broker, cell in zip(self._depth_first(), cells, strict=True):
            home[cell] = broker
        self.home = home

    def _depth_first(self) -> list[int]:
        """Nodes so that a subtree is a run: near cells share their way."""
        found, waiting = [], [0]
        while waiting:
            node = waiting.pop()
            found.append(node)
            waiting += [c for c in range(DOWN * node + DOWN, DOWN * node, -1) if c < self.brokers]
        return found

    def forwards(self, brokers: Codes) -> Codes:
        """How many links down from each node a message takes that these brokers need."""
        needed = np.zeros(self.brokers, bool)
        needed[brokers] = True
        sent = np.zeros(self.brokers, np.int64)
        for node in range(self.brokers - 1, 0, -1):
            if needed[node]:
                needed[(node - 1) // DOWN] = True
                sent[(node - 1) // DOWN] += 1
        return sent

    def inside(self, bounds: Codes) -> Codes:
        low, high = self.ranges.T
        return np.flatnonzero((bounds[0] <= low) & (low <= bounds[1]) & (bounds[2] <= high) & (high <= bounds[3]))


def overlay(stocks: int, subscriptions: int, events: int, values: int) -> tuple[dict[str, Traffic], float]:
    """The traffic of each way to tell, and the share of updates that could not be ignored."""
    random = np.random.default_rng(7)
    network, walk = Overlay(1_000, ranges(subscriptions, random)), Walk(stocks, 500, random, values)
    points = RangeMinima(0, BIGINT, BIGINT, Dictionary())
    points.add(*_distinct(np.column_stack((walk.x, walk.y)), np.ones(stocks, np.int64)))
    points.commit()
    found = {name: Traffic() for name in ("rectangles", "unicast", "unicast by broker", "relaxed ranges")}
    felt = 0
    for _ in range(events):
        ids, before, after = walk.step(1)
        x = walk.x[ids]
        moved = np.concatenate((np.column_stack((x, before)), np.column_stack((x, after))))
        changed: Rectangles = points.change(*_distinct(moved, np.array([-1, 1])))
        points.commit()
        felt += len(changed) > 0
        copies, affected = np.zeros(network.brokers, np.int64), []
        for bounds in changed.bounds:
            reached = network.inside(bounds)
            affected.append(network.home[reached])
            copies += network.forwards(np.unique(affected[-1]))
        found["rectangles"].add(copies, HEADER + 5 * FIELD)
        homes = np.concatenate([np.empty(0, np.int64), *affected])
        found["unicast"].add(np.array([len(homes)]), HEADER + 2 * FIELD)
        several = found["unicast by broker"]
        several.add(np.array([len(np.unique(homes))]), HEADER)
        several.bytes += 2 * FIELD * len(homes)
        stabbed = network.home[(network.ranges[:, 0] <= x) & (x <= network.ranges[:, 1])]
        found["relaxed ranges"].add(network.forwards(np.unique(stabbed)), HEADER + 3 * FIELD)
    return found, felt / events


def _distinct(rows: Codes, counts: Codes) -> tuple[Codes, Codes]:
    unique, at = np.unique(rows, axis=0, return_inverse=True)
    total = np.bincount(at.reshape(-1), counts, len(unique)).astype(np.int64)
    return np.ascontiguousarray(unique[total != 0]), total[total != 0]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--stocks", type=int, nargs="+", default=[10_000, 100_000])
    parser.add_argument("--subscriptions", type=int, nargs="+", default=[100_000, 1_000_000])
    parser.add_argument("--epochs", type=int, default=50)
    parser.add_argument("--events", type=int, default=2_000, help="updates over the overlay")
    parser.add_argument("--json", type=Path, default=RESULTS / "subscriptions_messages.json")
    given = parser.parse_args()
    console, checks, rows = Console(), [], []
    table = Table(title="range MIN, through epochs of 1,000 updates (CPU time)", title_justify="left")
    for column in ("stocks", "subscriptions", "told as", "updates/s", "an update"):
        table.add_column(column, justify="right")
    cases = [(n, 0, False) for n in given.stocks] + [(given.stocks[0], n, True) for n in given.subscriptions]
    for stocks, subscribed, listed in cases:
        seconds, told = rate(stocks, subscribed, given.epochs, listed)
        rows.append({"stocks": stocks, "subscriptions": subscribed, "seconds": seconds, "told": told})
        kind = "ids" if listed else "messages"
        table.add_row(f"{stocks:,}", f"{subscribed:,}" if listed else "any", kind, f"{1 / seconds:,.0f}", f"{told:.2f}")
        wanted = 20_000 if listed else 100_000
        checks.append(Check(f"{kind}, {stocks:,} stocks, {subscribed:,} subscriptions: updates/s", 1 / seconds, wanted))
    console.print(table)
    traffic, felt = overlay(3_053, min(given.subscriptions), given.events, RATINGS)
    table = Table(title=f"overlay of 1,000 brokers, {felt:.1%} of updates not ignorable", title_justify="left")
    for column in ("way", "bytes an event", "node stress"):
        table.add_column(column, justify="right")
    for name, one in traffic.items():
        table.add_row(name, f"{one.bytes / given.events:,.0f}", f"{one.stress:,}")
    console.print(table)
    ours = max(traffic["rectangles"].bytes, 1)
    checks.append(Check("bytes of unicast over rectangles", traffic["unicast"].bytes / ours, 10))
    checks.append(Check("bytes of relaxed ranges over rectangles", traffic["relaxed ranges"].bytes / ours, 5))
    checks.append(Check("node stress of rectangles", traffic["rectangles"].stress, 10, at_least=False))
    show_checks(checks, console)
    shown = {name: {"bytes": one.bytes / given.events, "stress": one.stress} for name, one in traffic.items()}
    settings = {k: str(v) for k, v in vars(given).items()}
    save(given.json, [], checks, settings, rates=rows, overlay=shown, not_ignorable=felt)


if __name__ == "__main__":
    main()
