"""Work within limits: paper 002's chapters on bounded resources, simulated and measured.

    python -m benchmarks.bounds --quick
    python -m benchmarks.bounds --json results/bounds.json --spark

| part | figures of the paper | what is done |
|---|---|---|
| schedules | 2.1, 2.6, 2.7 | costs of schedules over given cost functions and arrivals, beside the cheapest plan |
| curves | 2.1, 2.4 | what releases of 1 to 400 rows cost: the MIN view over TPC-H's partsupp and supplier |
| followed | 2.5 | the same schedules on the database, release by release: simulated cost beside measured cost |
| gain | | a recursive view whose deletions have a large fixed cost: a bound kept naively, on line, and at every epoch |
| spark | | the same with jobs, whose cost tables share (with `--spark`) |
| joins | 3.7, 3.9-3.13, 3.15, 3.18, 3.20 | joins in bounded memory under each policy, the optimum, FlowExpect; rates |
| caches | 3.14, 3.16, 3.17 | a cache of daily temperatures under each policy beside LFD (`--temperatures FILE`) |

Simulated costs are those of the functions. Measured times are wall-clock of releases, garbage collection off.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import asdict, replace
from pathlib import Path

from rich.console import Console

from benchmarks import report
from benchmarks.bounds_caches import measure_caches
from benchmarks.bounds_joins import QUICK_JOINS, JoinSizes, measure_joins
from benchmarks.bounds_measured import Measured, measure_gain, measure_spark, measure_tpch
from benchmarks.bounds_schedules import QUICK, Sizes, simulate_schedules
from benchmarks.report import Check
from whence.runtime import held_views

PARTS = ("schedules", "tpch", "gain", "joins", "caches")


def run(
    sizes: Sizes,
    joins: JoinSizes,
    console: Console,
    save: Path | None = None,
    spark: bool = False,
    temperatures: Path | None = None,
    only: Collection[str] = PARTS,
) -> list[Check]:
    """Simulate and measure everything, or `only` some parts; print it, and write it where asked for."""
    lines, checks = simulate_schedules(sizes) if "schedules" in only else ([], [])
    made: dict[str, Callable[[], Measured]] = {
        "tpch": lambda: measure_tpch(sizes),
        "gain": lambda: measure_gain(sizes),
        "joins": lambda: measure_joins(joins),
        "caches": lambda: measure_caches(temperatures, quick=joins.steps == QUICK_JOINS.steps),
    }
    parts = [make() for name, make in made.items() if name in only]
    if spark:
        parts.append(measure_spark(sizes))
    for part in parts:
        lines += part.lines
        checks += part.checks
    for line in lines:
        console.print(line)
    report.show_checks(checks, console)
    if save is not None:
        report.save(
            save, [], checks, asdict(sizes) | asdict(joins), lines=lines, **{part.name: part.figures for part in parts}
        )
    return checks


def main(arguments: Sequence[str] | None = None) -> int:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--quick", action="store_true", help="small sizes, some seconds")
    parser.add_argument("--spark", action="store_true", help="measure on Spark, too")
    parser.add_argument("--cpu", action="store_true", help="count the thread's CPU time: for a machine that is busy")
    parser.add_argument("--temperatures", type=Path, help="a file of days and degrees, for the part caches")
    parser.add_argument("--runs", type=int, help="how many runs of each kind of streams, in the part joins")
    parser.add_argument("--only", nargs="+", choices=PARTS, default=PARTS, help="run these parts only")
    parser.add_argument("--json", type=Path, default=report.RESULTS / "bounds.json", help="write all figures there")
    given = parser.parse_args(arguments)
    if given.cpu:
        held_views._clock = time.thread_time
    sizes, joins = (QUICK, QUICK_JOINS) if given.quick else (Sizes(), JoinSizes())
    if given.runs is not None:
        joins = replace(joins, runs=given.runs)
    run(sizes, joins, Console(width=140), given.json, given.spark, given.temperatures, given.only)
    return 0


if __name__ == "__main__":
    sys.exit(main())
