"""Held views measured: cost curves over TPC-H, schedules followed release by release, and what a bound saves.

The MIN view is the paper's: the least supply cost of a region, over partsupp and supplier, joined with nation and
region. Modifications are updates of single rows, one of each table per epoch. Whence indexes both sides of an equality,
so both curves are nearly lines with a small fixed part, and little is to be gained there: the view shows that simulated
costs are real. Neither has a join without an equality a fixed part here: each changed row is compared with every row,
so its cost is linear, too.

A fixed part is what recursion has under DRed: a deletion takes back most of a connected graph and derives it again,
and a hundred deletions in one batch cost little more than one. `measure_gain` holds such a view, joined with a table
whose rows cost the same each.
"""

from __future__ import annotations

import gc
import random
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Any

import whence
from benchmarks.bounds_schedules import Sizes
from benchmarks.report import Check
from benchmarks.tpch_data import SCRIPT, Tpch
from whence.adapt.refresh.costs import Cost, RefreshCosts
from whence.adapt.refresh.learnt_cost import isotonic
from whence.adapt.refresh.plans import Instance, RefreshPlan, search
from whence.adapt.refresh.schedulers import Naive, Online, Planned
from whence.adapt.refresh.simulate import simulate
from whence.runtime import held_views
from whence.runtime.held_views import HeldViews

MIN_VIEW = """
CREATE VIEW cheapest WITH (respond_within = '1 h') AS
  SELECT MIN(ps_supplycost) AS least FROM partsupp, supplier, nation, region
  WHERE s_suppkey = ps_suppkey AND s_nationkey = n_nationkey AND n_regionkey = r_regionkey AND r_name = 'MIDDLE EAST'
"""
TABLES = ("partsupp", "supplier")
Row = tuple[Any, ...]


@dataclass
class Measured:
    """Lines to print, what was promised, and all figures."""

    name: str
    lines: list[str] = field(default_factory=list)
    checks: list[Check] = field(default_factory=list)
    figures: dict[str, Any] = field(default_factory=dict)


@contextmanager
def _undisturbed() -> Iterator[None]:
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


# -- TPC-H -------------------------------------------------------------------------------------------------------------


class _MinView:
    """A database with the view, in which nothing is released but by `release`."""

    def __init__(self, scale: float) -> None:
        data = Tpch(scale)
        self.db = whence.open()
        self.db.execute(SCRIPT)
        for name in ("region", "nation", *TABLES):
            self.db.insert(name, data.tables[name])
        self.db.execute(MIN_VIEW)
        self._rows: dict[str, list[Row]] = {name: list(self.db[name].rows) for name in TABLES}
        self._rng = random.Random(7)
        held = self.db._coordinator.held
        held._keep_within_bound = lambda view: {}  # type: ignore[method-assign]  # schedules are the benchmark's own

    def modify(self, name: str, count: int) -> None:
        """Update so many rows of a table, as one epoch: the cost of a part, or the nation of a supplier."""
        rows, rng = self._rows[name], self._rng
        places = rng.sample(range(len(rows)), count)
        old = [rows[place] for place in places]
        for place in places:
            row = rows[place]
            rows[place] = (
                (*row[:3], Decimal(rng.randint(100, 100_000)) / 100, *row[4:])
                if name == "partsupp"
                else (*row[:3], rng.randrange(25), *row[4:])
            )
        with self.db.transaction():
            self.db.delete(name, old)
            self.db.insert(name, [rows[place] for place in places])

    def release(self, names: Sequence[str]) -> float:
        """Release what is pending of some tables, one by one; return the seconds."""
        coordinator = self.db._coordinator
        with coordinator.state:
            pending = coordinator.catalog.backend.pending()
            due = [hold for hold in sorted(pending) if hold[1] in names]
            start = held_views._clock()
            coordinator.held._release(due, pending)
            return held_views._clock() - start


def measure_tpch(sizes: Sizes) -> Measured:
    """Measure what releases cost (Figure 2.4), and follow schedules that were simulated with it (Figure 2.5)."""
    found, view = Measured("tpch"), _MinView(sizes.scale)
    counts = range(1, 401, sizes.step)
    curves: dict[str, list[float]] = {}
    with _undisturbed():
        for name in TABLES:
            for rows in (400, 100, 10, 1) * 3:  # compiles, and grows arrays
                view.modify(name, rows)
                view.release([name])
            times: dict[int, list[float]] = {rows: [] for rows in counts}
            for _ in range(sizes.repeats):
                for rows in counts:
                    for _ in range(rows):  # one by one, as they come when schedules are followed
                        view.modify(name, 1)
                    times[rows].append(view.release([name]))
            curves[name] = [sorted(times[rows])[len(times[rows]) // 2] for rows in counts]
    found.figures["rows"], found.figures["seconds"] = list(counts), curves
    for name, seconds in curves.items():
        low, high = 1000 * seconds[0], 1000 * seconds[-1]
        found.lines.append(f"2.4: {name}: {low:.3f} ms for 1 row, {high:.3f} ms for {counts[-1]}")
    costs = RefreshCosts(tuple(_curve(list(counts), curves[name]) for name in TABLES))
    bound = costs.refresh((sizes.updates // 25,) * 2)  # naive refreshes about 25 times
    instance = Instance(costs, bound, [(1, 1)] * sizes.updates)
    plans = {
        "naive": simulate(Naive(), instance),
        "online": simulate(Online(2), instance),
        "planned": simulate(Planned(2, sizes.updates // 2), instance),
        "cheapest": search(instance),
    }
    for way, plan in plans.items():
        measured = min(_follow(view, plan, sizes.updates) for _ in range(3))
        error = abs(measured - plan.cost) / plan.cost
        found.figures[way] = {"simulated": plan.cost, "measured": measured, "actions": len(plan.actions)}
        found.lines.append(
            f"2.5: {way}: {len(plan.actions)} actions, simulated {1000 * plan.cost:.2f} ms, measured "
            f"{1000 * measured:.2f} ms, {error:.1%} apart"
        )
        found.checks.append(Check(f"2.5: {way}, simulated and measured apart", error, 0.10, at_least=False))
    found.checks.append(Check("2.5: naive refreshes", len(plans["naive"].actions), 20))
    return found


def _curve(counts: Sequence[int], seconds: Sequence[float]) -> Cost:
    """Return the monotone function through measured costs; between them it is a line."""
    import numpy as np

    values = isotonic(np.array(seconds), np.ones(len(seconds)))
    steep = (values[-1] - values[0]) / (counts[-1] - counts[0])

    def cost(rows: int) -> float:
        if rows > counts[-1]:
            return float(values[-1] + steep * (rows - counts[-1]))
        return float(np.interp(rows, counts, values)) if rows else 0.0

    return cost


def _follow(view: _MinView, plan: RefreshPlan, instants: int) -> float:
    """Do what a plan says while rows come, one of each table per epoch; return the seconds of all releases."""
    actions, total = dict(plan.actions), 0.0
    view.release(TABLES)
    with _undisturbed():
        for instant in range(1, instants + 1):
            for name in TABLES:
                view.modify(name, 1)
            if instant in actions:
                total += view.release([TABLES[i] for i in actions[instant].tables])
    return total


# -- a fixed cost ------------------------------------------------------------------------------------------------------

REACHABLE = """
CREATE TABLE link (src INT, dst INT);
CREATE TABLE alarm (id INT, node INT);
CREATE VIEW reaches WITH ({options}) AS
  WITH RECURSIVE path(src, dst) AS (
    SELECT src, dst FROM link UNION SELECT path.src, link.dst FROM path JOIN link ON path.dst = link.src)
  SELECT alarm.id % 10 AS kind, path.src, COUNT(*) AS n FROM path JOIN alarm ON alarm.node = path.dst
  GROUP BY alarm.id % 10, path.src
"""


TIGHT, LOOSE = 1.5, 5.0  # bounds, in fixed costs
ALARMS = 20  # per epoch
READ = f"online, a bound of {LOOSE:.0f} fixed costs, read every 10 epochs"


class _Graph:
    """Links that come and go, and alarms at nodes: the same stream for every database."""

    def __init__(self, nodes: int, seed: int) -> None:
        self._rng, self._nodes, self._alarms = random.Random(seed), nodes, 0
        ring = [(i, (i + 1) % nodes) for i in range(nodes)]
        self.links = [*ring, *((i, self._rng.randrange(nodes)) for i in range(nodes))]

    def alarms(self, count: int) -> list[Row]:
        """Return new alarms."""
        self._alarms += count
        return [(self._alarms - i, self._rng.randrange(self._nodes)) for i in range(count)]

    def moved(self) -> tuple[Row, Row]:
        """Return a link that goes, and one that comes."""
        place = self._rng.randrange(self._nodes, len(self.links))  # the ring stays: everything is always reachable
        old, new = self.links[place], (self._rng.randrange(self._nodes), self._rng.randrange(self._nodes))
        self.links[place] = new
        return old, new


def _graph_database(nodes: int, options: str, opened: Callable[[], whence.Database]) -> tuple[whence.Database, _Graph]:
    db, graph = opened(), _Graph(nodes, 3)
    for statement in REACHABLE.format(options=options).split(";\n"):
        db.execute(statement)
    db.insert("link", graph.links)
    db.insert("alarm", graph.alarms(10 * nodes))
    list(db["reaches"])
    return db, graph


def _epoch(db: whence.Database, graph: _Graph) -> None:
    old, new = graph.moved()
    with db.transaction():
        db.delete("link", [old])
        db.insert("link", [new])
        db.insert("alarm", graph.alarms(ALARMS))


def _run_stream(
    sizes: Sizes,
    options: str,
    reads: float,
    opened: Callable[[], whence.Database] = whence.open,
    epochs: int | None = None,
    setup: Callable[[whence.Database], object] = lambda db: None,
) -> dict[str, Any]:
    """Run the stream; return what releases took after a warm-up, and how reads went."""
    db, graph = _graph_database(sizes.nodes, options, opened)
    setup(db)
    count = epochs if epochs is not None else sizes.epochs
    warm, rng = count // 5, random.Random(5)
    before: dict[str, Any] = {}
    with _undisturbed():
        for epoch in range(warm + count):
            if epoch == warm:
                list(db["reaches"])
                before = db.metrics()["held"]["reaches"]
            _epoch(db, graph)
            if rng.random() < reads:
                list(db["reaches"])
        list(db["reaches"])
    after = db.metrics()["held"]["reaches"]
    rows = sorted(db["reaches"].rows)
    db.close()
    found = {name: after[name] - before[name] for name in ("seconds", "reads", "misses", "releases", "recomputed")}
    return {**found, "epochs": count, "digest": hash(tuple(rows))}


def _fixed_cost(sizes: Sizes, opened: Callable[[], whence.Database] = whence.open) -> float:
    """Return what one release of links costs: the fixed part."""
    db, graph = _graph_database(sizes.nodes, "policy = 'dred', respond_within = '1 h'", opened)
    times = []
    for _ in range(15):
        old, new = graph.moved()
        with db.transaction():
            db.delete("link", [old])
            db.insert("link", [new])
        start = held_views._clock()
        len(db["reaches"])
        times.append(held_views._clock() - start)
    db.close()
    return sorted(times)[len(times) // 2]


def measure_gain(sizes: Sizes) -> Measured:
    """Measure what a bound saves where one table has a large fixed cost, without recomputation and with it."""
    found = Measured("gain")
    fixed = _fixed_cost(sizes)
    bound = TIGHT * fixed
    option = f"policy = 'dred', respond_within = '{bound * 1e6:.0f} microseconds'"
    with _without_recomputing():
        runs = {
            "every epoch": _run_stream(sizes, "policy = 'dred', respond_within = '1 microsecond'", 0.0),
            "naive": _run_stream(sizes, f"{option}, refresh = 'naive'", 0.0),
            "online": _run_stream(sizes, option, 0.0),
            "planned": _run_stream(sizes, f"{option}, refresh = 'planned for 200 epochs'", 0.0),
        }
    runs["online, may recompute"] = _run_stream(sizes, option, 0.0)
    loose = f"policy = 'dred', respond_within = '{LOOSE * fixed * 1e6:.0f} microseconds'"
    runs[READ] = _run_stream(sizes, loose, 0.1)
    same = {run["digest"] for name, run in runs.items()}
    found.figures = {"bound": bound, **runs}
    found.lines.append(
        f"gain: a bound of {1000 * bound:.2f} ms, {TIGHT} times what one changed link costs; {sizes.nodes} nodes, "
        f"{sizes.epochs} epochs"
    )
    for name, run in runs.items():
        found.lines.append(
            f"gain: {name}: {1000 * run['seconds'] / run['epochs']:.3f} ms per epoch, {run['releases']} releases, "
            f"{run['recomputed']} recomputed, {run['misses']} of {run['reads']} reads late"
        )
    cost = {name: run["seconds"] for name, run in runs.items()}
    reads = runs[READ]
    found.checks = [
        Check("gain: naive over online", cost["naive"] / cost["online"], 1.5),
        Check("gain: every epoch over online", cost["every epoch"] / cost["online"], 3.0),
        Check("gain: reads within the bound", 1 - reads["misses"] / reads["reads"], 0.99),
        Check("gain: different answers", len(same), 1, at_least=False),
    ]
    return found


@contextmanager
def _without_recomputing() -> Iterator[None]:
    """Let views be refreshed by releases only, so that these are compared."""
    from dataclasses import replace

    estimate = HeldViews._costs_of
    HeldViews._costs_of = lambda self, view: replace(estimate(self, view), recompute=float("inf"))  # type: ignore[method-assign]
    try:
        yield
    finally:
        HeldViews._costs_of = estimate  # type: ignore[method-assign]


def measure_spark(sizes: Sizes) -> Measured:
    """Measure the same on Spark, every run a job."""
    found = Measured("spark")
    spark = whence.spark_session("local[2]")
    epochs = sizes.spark_epochs

    def opened() -> whence.Database:
        folder = tempfile.mkdtemp(prefix="whence-bounds-")
        return whence.open(Path(folder) / "db", spark=spark, partitions=2, durability="none")

    def jobs(db: whence.Database) -> None:
        driver = db._coordinator.driver
        assert driver is not None
        driver.runner.mode = "job"  # for measuring; else the size of an epoch decides

    small = Sizes(nodes=min(sizes.nodes, 40))
    options = {
        "every epoch": "respond_within = '1 microsecond'",
        "naive": "respond_within = '3 s', refresh = 'naive'",
        "online": "respond_within = '3 s'",
    }
    with _without_recomputing():
        runs = {name: _run_stream(small, text, 0.0, opened, epochs, jobs) for name, text in options.items()}
    found.figures = runs
    for name, run in runs.items():
        found.lines.append(
            f"spark: {name}: {1000 * run['seconds'] / run['epochs']:.0f} ms per epoch, {run['releases']} releases"
        )
    cost = {name: run["seconds"] for name, run in runs.items()}
    found.checks = [Check("spark: every epoch over online", cost["every epoch"] / cost["online"], 3.0)]
    return found
