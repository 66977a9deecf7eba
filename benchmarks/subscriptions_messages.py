"""Range-MIN subscriptions as messages and with ids listed: `python -m benchmarks.subscriptions_messages`.

The workload is Table 5.1 of paper 002: points uniform in [0, 10,000], ranges with midpoints N(5000, 1500) and lengths
N(1000, 1000), updates that walk at random. Updates per second are measured through epochs of the database, as messages
and with the affected subscriptions listed. Figures 5.6 to 5.10 and Tables 5.2 and 5.3 of the paper follow
(`subscriptions_figures.py`), over an overlay of brokers on a physical network (`subscriptions_overlay.py`).
"""

from __future__ import annotations

import argparse
import time
from dataclasses import asdict
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pyarrow as pa
from rich.console import Console
from rich.table import Table

import whence
from benchmarks.report import RESULTS, Check, save, show_checks
from benchmarks.subscriptions_figures import PAPER, Panel, panels, ranges
from benchmarks.subscriptions_overlay import DOMAIN
from whence.model.codes import Codes

EPOCH, WARM_UP = 1_000, 3


class Walk:
    """Stocks (id, x, y) whose y walks at random."""

    def __init__(self, count: int, spread: float, random: np.random.Generator):
        self.x, self.y = random.integers(0, DOMAIN, count), random.integers(0, DOMAIN, count)
        self.spread, self._random = spread, random

    def step(self, count: int) -> tuple[Codes, Codes, Codes]:
        """Move some stocks; return them with their values before and after."""
        ids = self._random.choice(len(self.y), count, replace=False)
        before = self.y[ids]
        self.y[ids] = np.clip(before + self._random.normal(0, self.spread, count), 0, DOMAIN).astype(np.int64)
        return ids, before, self.y[ids]


RANGE = "FROM stock WHERE x BETWEEN :low AND :high"
TEMPLATES = {
    "messages": f"SELECT MIN(y) AS y {RANGE}",
    "ids": f"SELECT MIN(y) AS y {RANGE}",
    "first 10": f"SELECT y, id {RANGE} ORDER BY y LIMIT 10",
    "sum": f"SELECT SUM(y) AS y {RANGE}",
}


def rate(stocks: int, subscriptions: int, epochs: int, kind: str) -> tuple[float, float]:
    """CPU seconds of an update through epochs of 1,000, and messages (or notifications) of an update. A sum changes for
    every range that an update stabs, so its ranges are short: about ten of 100,000 are stabbed."""
    listed = kind != "messages"
    random = np.random.default_rng(5)
    walk, db = Walk(stocks, 500, random), whence.open()
    db.execute("CREATE TABLE stock (id BIGINT PRIMARY KEY, x BIGINT, y BIGINT)")
    db.execute(f"CREATE TEMPLATE cheapest AS {TEMPLATES[kind]}")
    db.insert("stock", pa.table({"id": np.arange(stocks), "x": walk.x, "y": walk.y}))
    if listed:
        low, high = (ranges(subscriptions, random, 1500, (1, 0)) if kind == "sum" else ranges(subscriptions, random)).T
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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--stocks", type=int, nargs="+", default=[10_000, 100_000])
    parser.add_argument("--subscriptions", type=int, nargs="+", default=[100_000, 1_000_000])
    parser.add_argument("--epochs", type=int, default=50)
    parser.add_argument("--events", type=int, default=1_500, help="updates at each point of a figure")
    parser.add_argument("--scale", type=float, default=1.0, help="of the subscriptions of figures")
    parser.add_argument("--json", type=Path, default=RESULTS / "subscriptions_messages.json")
    given = parser.parse_args()
    console, checks, rows = Console(), [], []
    table = Table(title="through epochs of 1,000 updates (CPU time)", title_justify="left")
    for column in ("stocks", "subscriptions", "told as", "updates/s", "an update"):
        table.add_column(column, justify="right")
    cases = [(n, 0, "messages") for n in given.stocks] + [(given.stocks[0], n, "ids") for n in given.subscriptions]
    cases += [(given.stocks[0], min(given.subscriptions), kind) for kind in ("first 10", "sum")]
    for stocks, subscribed, kind in cases:
        seconds, told = rate(stocks, subscribed, given.epochs, kind)
        rows.append({"stocks": stocks, "subscriptions": subscribed, "kind": kind, "seconds": seconds, "told": told})
        known = f"{subscribed:,}" if subscribed else "any"
        table.add_row(f"{stocks:,}", known, kind, f"{1 / seconds:,.0f}", f"{told:.2f}")
        wanted = {"messages": 100_000, "ids": 20_000}.get(kind)
        if wanted is not None:
            what = f"{kind}, {stocks:,} stocks, {subscribed:,} subscriptions: updates/s"
            checks.append(Check(what, 1 / seconds, wanted))
    console.print(table)
    figures, trace = panels(given.events, given.scale)
    for panel in figures:
        console.print(shown(panel))
    ways = trace["ways"]
    title = f"trace, {trace['subscriptions']:,} subscriptions, {trace['felt']:.1%} of updates not ignorable"
    table = Table(title=title, title_justify="left")
    for column in ("way", "bytes", "bytes times hops", "node stress"):
        table.add_column(column, justify="right")
    for name, one in ways.items():
        table.add_row(name, f"{one['bytes']:,.0f}", f"{one['hop bytes']:,.0f}", f"{one['stress']:,}")
    console.print(table)
    ours = max(ways["S-CN"]["bytes"], 1)
    checks.append(Check("trace: bytes of unicast over rectangles", ways["S-UN"]["bytes"] / ours, 10))
    checks.append(Check("trace: bytes of relaxed ranges over rectangles", ways["CN"]["bytes"] / ours, 5))
    checks.append(Check("trace: node stress of rectangles", ways["S-CN"]["stress"], 10, at_least=False))
    show_checks(checks, console)
    settings = {k: str(v) for k, v in vars(given).items()}
    save(given.json, [], checks, settings, rates=rows, panels=[asdict(panel) for panel in figures], trace=trace)
    if find_spec("matplotlib"):
        draw(given.json.with_suffix(".png"), figures)


def shown(panel: Panel) -> Table:
    """A figure as a table, the paper's printed values below ours."""
    kind = "Table" if panel.number in PAPER else "Figure"
    table = Table(title=f"{kind} {panel.number}: {panel.title} by {panel.across}", title_justify="left")
    table.add_column("")
    for at in panel.at:
        table.add_column(f"{at:,.0%}" if panel.across.startswith("share") else f"{at:,.0f}", justify="right")
    lines = panel.lines | {f"{name}, paper": values for name, values in PAPER.get(panel.number, {}).items()}
    for name, values in lines.items():
        table.add_row(name, *(f"{value:,.2f}" if value < 10 else f"{value:,.0f}" for value in values))
    return table


def draw(path: Path, figures: list[Panel]) -> None:
    """Plot all panels into one picture."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    picture, places = plt.subplots(2, 4, figsize=(18, 8))
    for place, panel in zip(places.flat, figures, strict=False):
        lines = panel.lines | {f"{name}, paper": values for name, values in PAPER.get(panel.number, {}).items()}
        for name, values in lines.items():
            place.plot(panel.at, values, marker="o", linestyle="--" if "paper" in name else "-", label=name)
        place.set(title=f"{panel.number}: {panel.title}", xlabel=panel.across, yscale="log")
        place.legend(fontsize=7)
    for place in list(places.flat)[len(figures) :]:
        place.axis("off")
    picture.tight_layout()
    picture.savefig(path, dpi=110)


if __name__ == "__main__":
    main()
