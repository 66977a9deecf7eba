"""Single edges of a random graph deleted and inserted again, under a recursion by exchange over partitions.

| view | shape |
|---|---|
| reach | what can be reached from a few nodes: linear recursion over sets |
| nearest | the same with the least cost: MIN inside the recursion |

| way | what is timed |
|---|---|
| one partition | `db.delete` of an embedded database |
| support, 4 partitions | the same by exchange, all partitions in this process |
| dred, 4 partitions | the same with `policy = 'dred'`: few deletions, as they take seconds |

Every edge is deleted and inserted again, the same ones each way. Every other one is an edge that a row depends on. All
ways must have the same rows in the end, and after each of the first deletions. Nothing is written to disk.

    python -m benchmarks.exchange_deletions            # 100,000 nodes, 200,000 edges
    python -m benchmarks.exchange_deletions --quick
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from rich.console import Console
from rich.table import Table

import whence
from benchmarks import report
from benchmarks.ledger import DisagreementError
from benchmarks.peers.common import installed
from benchmarks.report import Check, Figure

Edges = np.ndarray
VIEWS = {
    "reach": """CREATE VIEW reach {options} AS
        SELECT node FROM start UNION SELECT edge.dst FROM edge JOIN reach ON edge.src = reach.node""",
    "nearest": """CREATE VIEW nearest {options} AS
        SELECT node, MIN(cost) AS cost FROM (
          SELECT node, 0 AS cost FROM start
          UNION ALL SELECT edge.dst, nearest.cost + edge.cost FROM edge JOIN nearest ON edge.src = nearest.node
        ) AS step GROUP BY node""",
}
ONE, SUPPORT, DRED = "one partition", "support, 4 partitions", "dred, 4 partitions"
WAYS = {ONE: (1, ""), SUPPORT: (4, "support"), DRED: (4, "dred")}
_START = 5  # nodes from which the graph is searched
_COMPARED = 2  # deletions after which all rows are compared


@dataclass
class Deletions:
    """What one way took for one view: the load, and per deletion seconds, CPU seconds, messages and rows shipped."""

    view: str
    way: str
    load: float = 0.0
    seconds: list[float] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)
    messages: list[int] = field(default_factory=list)
    shipped: list[int] = field(default_factory=list)
    changed: list[int] = field(default_factory=list)  # rows of the view that went, came or have another cost
    rows: list[Any] = field(default_factory=list)  # of the view after the first deletions, and in the end


def graph(nodes: int, edges: int, seed: int) -> Edges:
    """Return distinct edges with costs."""
    rng = np.random.default_rng(seed)
    pairs = np.unique(rng.integers(0, nodes, (edges, 2)), axis=0)
    return np.column_stack([pairs, rng.integers(1, 10, len(pairs))])


def chosen(edges: Edges, count: int, seed: int) -> Edges:
    """Return edges to delete: one by one any, and one that some search of the graph goes along."""
    rng, reached, along = np.random.default_rng(seed), set(range(_START)), []
    by_source: dict[int, list[int]] = {}
    for number, source in enumerate(edges[:, 0].tolist()):
        by_source.setdefault(source, []).append(number)
    front = sorted(reached)
    while front:
        found = []
        for node in front:
            for number in by_source.get(node, ()):
                target = int(edges[number, 1])
                if target not in reached:
                    reached.add(target)
                    found.append(target)
                    along.append(number)
        front = found
    half = min(count // 2, len(along))
    some, used = rng.choice(len(edges), count - half, replace=False), rng.choice(along, half, replace=False)
    numbers = [n for pair in zip(some.tolist(), used.tolist(), strict=False) for n in pair]
    return np.take(edges, list(dict.fromkeys(numbers)), axis=0)


def measure(view: str, way: str, edges: Edges, gone: Edges) -> Deletions:
    """Load the graph, and delete and insert edges one by one; the first warms up and is not counted."""
    partitions, policy = WAYS[way]
    found = Deletions(view, way)
    options = f"WITH (partition = 'exchange', policy = '{policy}')" if policy else ""
    with whence.open(partitions=partitions if partitions > 1 else None, durability="none") as db:
        db.execute(
            "CREATE TABLE edge (src BIGINT, dst BIGINT, cost BIGINT); CREATE TABLE start (node BIGINT);"
            + VIEWS[view].format(options=options)
        )
        db.insert("start", [(node,) for node in range(_START)])
        columns = {name: edges[:, c] for c, name in enumerate(("src", "dst", "cost"))}
        start = time.perf_counter()
        db.insert("edge", pa.table(columns))
        found.load = time.perf_counter() - start
        changes = db.changes(view)
        for number, edge in enumerate(map(tuple, gone.tolist())):
            start, cpu = time.perf_counter(), time.process_time()
            db.delete("edge", [edge])
            seconds, cpu = time.perf_counter() - start, time.process_time() - cpu
            rows = {change.row[0] for change in changes}
            if number:
                found.seconds.append(seconds)
                found.cpu.append(cpu)
                last = _last_run(db)
                found.messages.append(last[0])
                found.shipped.append(last[1])
                found.changed.append(len(rows))
            if number < _COMPARED:
                found.rows.append(sorted(db[view].rows))
            db.insert("edge", [edge])
            for _ in changes:  # what came back is not counted
                pass
        found.rows.append(sorted(db[view].rows))
    return found


def _last_run(db: whence.Database) -> tuple[int, int]:
    """Return the messages between partitions, and rows in them, of the last epoch."""
    driver = db._coordinator.driver
    return (0, 0) if driver is None else (driver.runner.latest.messages, driver.runner.latest.rows_shipped)


def promises(found: Sequence[Deletions], full: bool) -> list[Check]:
    """Return the targets; those of absolute times only at full size."""
    checks = []
    for view in VIEWS:
        by = {d.way: d for d in found if d.view == view}
        ours, one = statistics.median(by[SUPPORT].seconds), statistics.median(by[ONE].cpu)
        if full:
            checks.append(Check(f"{view}: a deletion over 4 partitions, ms", 1e3 * ours, 5.0, at_least=False))
        times = statistics.fmean(by[SUPPORT].cpu) / statistics.fmean(by[ONE].cpu)
        what = f"{view}: CPU of a deletion over 4 partitions, times one partition"
        checks.append(Check(f"{what}, median", statistics.median(by[SUPPORT].cpu) / one, 8.0, at_least=False))
        checks.append(Check(f"{what}, mean", times, 8.0, at_least=False))
    return checks


def show(found: Sequence[Deletions], console: Console) -> None:
    """Print a line for each view and way."""
    table = Table(title="one edge deleted", title_justify="left")
    for column in ("view", "way"):
        table.add_column(column, no_wrap=True)
    heads = ("load s", "ms median", "mean", "CPU ms median", "mean", "messages", "rows shipped", "rows changed")
    for column in heads:
        table.add_column(column, justify="right")
    for d in found:
        times = [f"{1e3 * f(part):.2f}" for part in (d.seconds, d.cpu) for f in (statistics.median, statistics.fmean)]
        means = [f"{statistics.fmean(part):.1f}" for part in (d.messages, d.shipped, d.changed)]
        table.add_row(d.view, d.way, f"{d.load:.2f}", *times, *means)
    console.print(table)


def run(nodes: int, edges: int, deletions: int, slow: int, console: Console) -> list[Deletions]:
    """Measure all ways; DisagreementError if they do not have the same rows."""
    found = []
    all_edges = graph(nodes, edges, seed=1)
    gone = chosen(all_edges, deletions + 1, seed=2)
    for view in VIEWS:
        rows: list[Any] = []
        for way in WAYS:
            with console.status(f"{view}, {way}"):
                found.append(measure(view, way, all_edges, gone[: slow + 1] if way == DRED else gone))
            mine, found[-1].rows = found[-1].rows, []
            rows = rows or mine
            if mine != rows:
                raise DisagreementError(f"{view}: {way} has other rows than {ONE}")
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--nodes", type=int, default=100_000)
    parser.add_argument("--edges", type=int, default=200_000)
    parser.add_argument("--deletions", type=int, default=100)
    parser.add_argument("--dred", type=int, default=4, help="deletions under DRed")
    parser.add_argument("--quick", action="store_true", help="a small graph")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--plot", type=Path)
    options = parser.parse_args(arguments)
    if options.quick:
        options.nodes, options.edges, options.deletions = 2_000, 4_000, 20
    console = Console()
    try:
        found = run(options.nodes, options.edges, options.deletions, options.dred, console)
    except DisagreementError as difference:
        console.print(f"[red]{difference}")
        return 1
    show(found, console)
    checks = promises(found, full=not options.quick)
    report.show_checks(checks, console)
    if installed("matplotlib"):
        figures = [Figure(v, "CPU ms", {d.way: [1e3 * s for s in d.cpu] for d in found if d.view == v}) for v in VIEWS]
        report.plot_figures(options.plot or report.RESULTS / "exchange_deletions.png", figures)
    if options.json:
        settings = {key: value for key, value in vars(options).items() if isinstance(value, int)}
        report.save(options.json, [], checks, settings, deletions=[asdict(d) for d in found])
    return 0


if __name__ == "__main__":
    sys.exit(main())
