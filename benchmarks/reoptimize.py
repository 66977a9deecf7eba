"""Re-optimization: plans kept while statistics and costs change, beside planners that begin anew (paper 003).

    python -m benchmarks.reoptimize --quick
    python -m benchmarks.reoptimize --json results/reoptimize.json --plot results/reoptimize.png
    python -m benchmarks.reoptimize --parts drift,slices

| part | figures of the paper | what is done |
|---|---|---|
| optimizers | 23, 24, 26, 27, 31 to 34 | Q5, Q8Join, cliques and 200 views: first optimizations, then changes |
| execution | 25 | Q5 kept over ten partitions of skewed data, its plan by what was observed |
| drift | | SegTollS and another query on traffic that drifts: adaptive, best static, oracle |
| slices | 28, 29, Table 3 | SegTollS re-optimized after slices of 1, 5 and 10 seconds |
| tpch | | refreshes of TPC-H's queries, plans by data beside connectedness |

PostgreSQL's and DuckDB's planners stand beside the first two. Modules: `reoptimize_changes`, `reoptimize_ranges`,
`reoptimize_execution`, `drift`, `slices`, `tpch_plans`.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks import drift, reoptimize_execution, reoptimize_ranges, report, slices, tpch_plans
from benchmarks.peers.common import installed
from benchmarks.reoptimize_changes import (
    KEPT,
    First,
    Sizes,
    Timing,
    changes,
    cliques,
    explained,
    first,
    memory,
    procedural,
    views,
)
from benchmarks.reoptimize_execution import Partition
from benchmarks.reoptimize_planners import DUCKDB, POSTGRES, plan_duckdb, plan_postgres, postgres
from benchmarks.reoptimize_queries import QUERIES, clique
from benchmarks.report import Check, Figure

QUICK = Sizes(
    rounds=1, clique=5, views=10, ticks=4, partitions=3, scale=0.003, cars=60, traffic_rounds=1, refresh=1, quick=True
)


@dataclass
class Part:
    """What one part has measured."""

    checks: list[Check] = field(default_factory=list)
    content: dict[str, Any] = field(default_factory=dict)  # for the JSON
    figures: list[Figure] = field(default_factory=list)  # for the plot


def promises(timings: Sequence[Timing], state: dict[str, float], planned: Sequence[Figure]) -> list[Check]:
    """Return what issue 19 asks for beside what was measured."""

    def worst(workload: str, what: str, way: str, of: str = "median") -> float:
        mine = [t for t in timings if t.workload == workload and t.what.startswith(what) and t.way == way]
        return max(getattr(timing, of) for timing in mine) if mine else float("nan")

    checks = []
    for query in ("Q5", "Q8Join"):
        checks.append(Check(f"{query}: ms a selectivity, median", worst(query, "selectivity", KEPT), 1, False))
        checks.append(Check(f"{query}: ms a selectivity, p99", worst(query, "selectivity", KEPT, "p99"), 5, False))
    bounds = worst("Q5", "selectivity", "declarative, with bounds")
    checks.append(Check("Q5: ms with bounds, regrets and counts", bounds, 2, False))
    checks.append(
        Check("Q5: µs, procedural", 1e3 * worst("Q5", "join cost", "bottom-up, best, conditional"), 50, False)
    )
    name = next((t.workload for t in timings if t.workload.startswith("clique")), "")
    scratch = next((f.of(POSTGRES) for f in planned if f.what == name and POSTGRES in f.samples), None)
    for what, times in (("top", 100), ("middle", 100), ("leaf", 10)):
        if scratch is not None:
            checks.append(Check(f"{name}, {what}: times PostgreSQL", scratch / worst(name, what, KEPT), times))
    many = [t for t in timings if t.workload.endswith("views")]
    for timing in many:
        checks.append(Check(f"{timing.workload}, {timing.way}: ms a tick", timing.median, 5, False))
    checks.append(Check("Q8Join: MB of state", state["MB of state, Q8Join"], 100, False))
    return checks


def planners(sizes: Sizes) -> list[Figure]:
    """Return how long PostgreSQL and DuckDB plan the queries, from scratch."""
    queries = [*QUERIES, clique(sizes.clique)]
    found = [Figure(query.name, "ms to plan", {DUCKDB: plan_duckdb(query, sizes.rounds)}) for query in queries]
    with tempfile.TemporaryDirectory(prefix="reoptimize-") as folder, postgres(Path(folder)) as connection:
        if connection is not None:
            for figure, query in zip(found, queries, strict=True):
                figure.samples[POSTGRES] = plan_postgres(connection, query, sizes.rounds)
    return found


def show(firsts: Sequence[First], timings: Sequence[Timing], console: Console) -> None:
    """Print the tables."""
    table = Table(title="first optimization", title_justify="left")
    for column in ("query", "way", "ms", "calls of split", "entries pruned", "alternatives pruned"):
        table.add_column(column, justify="left" if column in ("query", "way") else "right")
    for each in firsts:
        parts = (f"{part:.0%}" for part in (each.entries_pruned, each.alternatives_pruned))
        table.add_row(each.query, each.way, f"{each.ms:.2f}", str(each.splits), *parts)
    console.print(table)
    table = Table(title="changes", title_justify="left")
    for column in ("workload", "what", "way", "ms median", "ms p99", "entries", "alternatives, most"):
        table.add_column(column, justify="left" if column in ("workload", "what", "way") else "right")
    for timing in timings:
        parts = (f"{max(part):.0%}" for part in (timing.entries, timing.alternatives))
        table.add_row(timing.workload, timing.what, timing.way, f"{timing.median:.3f}", f"{timing.p99:.3f}", *parts)
    console.print(table)


def optimizers(sizes: Sizes, console: Console) -> Part:
    """Measure the optimizers alone."""
    firsts = first(sizes)
    timings = [*changes(sizes), explained(sizes), *procedural(sizes), *cliques(sizes), *views(sizes)]
    planned, state, ranges = planners(sizes), memory(), reoptimize_ranges.ranges(timings)
    show(firsts, timings, console)
    reoptimize_ranges.show(ranges, console)
    report.show_figures("planners from scratch", planned, console)
    console.print("  ".join(f"{name}: {value:.1f}" for name, value in state.items()))
    content = {"first": [asdict(e) for e in firsts], "changes": [asdict(e) for e in timings], "memory": state}
    content |= {"planners": [asdict(f) for f in planned], "ranges": [asdict(r) | {"within": r.within} for r in ranges]}
    figures: dict[str, Figure] = {f.what: f for f in planned}
    for timing in timings:
        if timing.way in ("bottom-up", KEPT, "declarative, no pruning"):
            what = f"{timing.workload}, {timing.what}"
            figures.setdefault(what, Figure(what, "ms a change")).samples[timing.way] = timing.times
    return Part(promises(timings, state, planned), content, list(figures.values()))


def execution(sizes: Sizes, console: Console) -> Part:
    """Measure Figure 25."""
    with tempfile.TemporaryDirectory(prefix="reoptimize-") as folder, postgres(Path(folder)) as connection:
        found = reoptimize_execution.run(sizes.partitions, sizes.scale, connection)
    show_partitions(found, console)
    figure = Figure("Q5 after a partition", "CPU ms")
    for part in found:
        for name, ms in part.incremental.items():
            figure.samples.setdefault(name, []).append(ms)
        for name, ms in {f"{n}, from scratch": ms for n, ms in part.scratch.items()}.items() | part.planners.items():
            figure.samples.setdefault(name, []).append(ms)
    return Part([], {"execution": [asdict(part) for part in found]}, [figure])


def show_partitions(found: Sequence[Partition], console: Console) -> None:
    """Print Figure 25."""
    table = Table(title="Q5 over partitions of data, Zipf 0.5: CPU ms to re-optimize", title_justify="left")
    names = [*found[0].incremental, *(f"{name}, scratch" for name in found[0].scratch), *found[0].planners]
    for column in ("partition", *names, "entries", "alternatives", "another plan"):
        table.add_column(column, justify="right")
    for part in found:
        times = [*part.incremental.values(), *part.scratch.values(), *part.planners.values()]
        parts = [f"{each['declarative']:.0%}" for each in (part.entries, part.alternatives)]
        table.add_row(str(part.number), *(f"{ms:.2f}" for ms in times), *parts, "yes" if part.changed else "")
    console.print(table)


def drifting(sizes: Sizes, console: Console) -> Part:
    """Measure plans while traffic drifts."""
    found = drift.run(sizes.quick, sizes.traffic_rounds, console)
    drift.show(found, console)
    figures = [
        Figure(each.query, "CPU s", {plan: [sum(times) for times in each.epochs[plan]] for plan in each.epochs})
        for each in found
    ]
    return Part(drift.promises(found), {"drift": [asdict(each) for each in found]}, figures)


def slicing(sizes: Sizes, console: Console) -> Part:
    """Measure Figures 28, 29 and Table 3."""
    found = slices.measure(sizes.traffic_rounds, sizes.cars, console)
    slices.show(found, console)
    figures = [
        Figure(
            f"slices of {length} s: {what}",
            "CPU ms",
            {each.plan: [each.total(what)] for each in found if each.slice == length},
        )
        for length in slices.SLICES
        for what in ("optimizing", "executing")
    ]
    return Part(slices.promises(found), {"slices": [asdict(each) for each in found]}, figures)


def refreshing(sizes: Sizes, console: Console) -> Part:
    """Measure refreshes of TPC-H's queries."""
    found = tpch_plans.measure(0.001 if sizes.quick else 0.1, sizes.refresh, 0, None, console)
    tpch_plans.show(found, "TPC-H: plans by data, and by connectedness", console)
    return Part(tpch_plans.promises(found), {"tpch": [asdict(each) for each in found]})


PARTS: dict[str, Callable[[Sizes, Console], Part]] = {
    "optimizers": optimizers,
    "execution": execution,
    "drift": drifting,
    "slices": slicing,
    "tpch": refreshing,
}


def run(
    sizes: Sizes, parts: Sequence[str], console: Console, save: Path | None = None, plot: Path | None = None
) -> list[Check]:
    """Measure some parts, print them, and write them where asked for."""
    whole = Part()
    for name in parts:
        found = PARTS[name](sizes, console)
        whole.checks += found.checks
        whole.content |= found.content
        whole.figures += found.figures
    report.show_checks(whole.checks, console)
    if save is not None:
        report.save(save, [], whole.checks, asdict(sizes), **whole.content)
    if plot is not None and whole.figures and installed("matplotlib"):
        report.plot_figures(plot, whole.figures)
    return whole.checks


def main(arguments: Sequence[str] | None = None) -> int:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--quick", action="store_true", help="small sizes, a minute")
    parser.add_argument("--parts", type=lambda text: text.split(","), default=list(PARTS), help=", ".join(PARTS))
    parser.add_argument("--json", type=Path, default=report.RESULTS / "reoptimize.json", help="write all figures there")
    parser.add_argument("--plot", type=Path, default=report.RESULTS / "reoptimize.png", help="draw them there")
    given = parser.parse_args(arguments)
    unknown = [name for name in given.parts if name not in PARTS]
    if unknown:
        parser.error(f"--parts: there is no {', '.join(unknown)}")
    run(QUICK if given.quick else Sizes(), given.parts, Console(width=160), given.json, given.plot)
    return 0


if __name__ == "__main__":
    sys.exit(main())
