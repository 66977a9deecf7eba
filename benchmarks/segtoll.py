"""SegTollS of Linear Road (paper 003, Table 2) as `examples/linear_road.sql` has it: what plans of joins are worth.

    python -m benchmarks.segtoll --quick
    python -m benchmarks.segtoll --cars 400,1500 --json results/segtoll.json

The same reports go, in the same batches, to the view with plans that follow the data, to the view with orders by
connectedness and without semi-joins (as all joins were planned before), and to DuckDB, which asks the query again. All
must have the same rows after every batch. The plans by connectedness are left out where there are more cars than
`--connected-cars`: their work grows with the cube of the cars in a segment. Times are the processor's.
"""

from __future__ import annotations

import argparse
import gc
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch

import duckdb
from rich.console import Console
from rich.table import Table

import whence
from benchmarks import report
from benchmarks.report import Check
from whence.engine.relational.join import connected_joins
from whence.plan.partitions import distribute

SCRIPT = Path(__file__).parents[1] / "examples" / "linear_road.sql"
SECONDS, EVERY, TIMES = 300, 250, 20
DATA, CONNECTED, DUCKDB = "plans by data", "by connectedness", "DuckDB"
ANSWER = """
SELECT r5.carid, r2.expway, r2.dir, r2.seg, COUNT(DISTINCT r5.xpos) AS places
FROM (SELECT expway, dir, seg FROM car_location WHERE time > (SELECT MAX(time) FROM car_location) - 300) AS r1,
  (SELECT expway, dir, seg FROM car_location GROUP BY expway, dir, seg) AS r2,
  (SELECT carid, arg_max(expway, nr) AS expway, arg_max(dir, nr) AS dir, arg_max(seg, nr) AS seg
   FROM car_location GROUP BY carid) AS r3,
  (SELECT carid FROM car_location WHERE time > (SELECT MAX(time) FROM car_location) - 30) AS r4,
  (SELECT carid, xpos FROM car_location QUALIFY row_number() OVER (PARTITION BY carid ORDER BY nr DESC) <= 4) AS r5
WHERE r2.expway = r3.expway AND r2.dir = 0 AND r3.dir = 0 AND r2.seg < r3.seg AND r2.seg > r3.seg - 10
  AND r3.carid = r4.carid AND r3.carid = r5.carid
  AND r1.expway = r2.expway AND r1.dir = r2.dir AND r1.seg = r2.seg
GROUP BY r5.carid, r2.expway, r2.dir, r2.seg
"""
Answers = list[int]  # a digest of the rows after each batch


@dataclass
class Run:
    """What one peer took, batch by batch, in seconds of the processor."""

    peer: str
    cars: int
    reports: int
    seconds: list[float]

    @property
    def total(self) -> float:
        return sum(self.seconds)


def traffic(cars: int, seconds: int) -> list[tuple[int, ...]]:
    """Return the reports of the example's generator."""
    sys.path.insert(0, str(SCRIPT.parent))
    try:
        from linear_road import traffic as reports  # type: ignore[import-not-found]  # an example, not a package
    finally:
        sys.path.pop(0)
    return list(reports(cars, seconds))


@contextmanager
def planned_by_connectedness() -> Iterator[None]:
    """Let views that are made inside be planned without what their inputs hold."""
    with ExitStack() as stack:
        stack.enter_context(connected_joins())
        stack.enter_context(patch.object(distribute, "distinct_inputs", lambda plan, program: plan))
        yield


def kept(batches: Sequence[Sequence[tuple[int, ...]]]) -> tuple[list[float], Answers]:
    """Keep the example's views while the reports come; return the time and the rows after each batch."""
    with whence.open() as db:
        db.execute(SCRIPT.read_text(encoding="utf-8"))
        return _fed(batches, lambda batch, _: db.insert("car_location", batch), lambda: sorted(db["segment_toll"].rows))


def asked(batches: Sequence[Sequence[tuple[int, ...]]]) -> tuple[list[float], Answers]:
    """Ask DuckDB the query after each batch; the insertion of the batch is not counted."""
    with duckdb.connect() as con:
        con.execute(
            "CREATE TABLE car_location (nr INT, time INT, carid INT, speed INT, expway INT, dir INT, seg INT, xpos INT)"
        )
        answer: list[tuple[Any, ...]] = []

        def ask(batch: Sequence[tuple[int, ...]], first: int) -> None:
            answer[:] = sorted(con.execute(ANSWER).fetchall())

        def insert(batch: Sequence[tuple[int, ...]], first: int) -> None:
            values = ", ".join(str((first + number, *row)) for number, row in enumerate(batch))
            con.execute(f"INSERT INTO car_location VALUES {values}")

        return _fed(batches, ask, lambda: list(answer), insert)


def _fed(
    batches: Sequence[Sequence[tuple[int, ...]]],
    take: Callable[[Sequence[tuple[int, ...]], int], object],
    read: Callable[[], list[tuple[Any, ...]]],
    before: Callable[[Sequence[tuple[int, ...]], int], object] = lambda batch, first: None,
) -> tuple[list[float], Answers]:
    gc.collect()
    times, answers, first = [], [], 0
    for batch in batches:
        before(batch, first)
        began = time.process_time()
        take(batch, first)
        times.append(time.process_time() - began)
        answers.append(hash(tuple(read())))
        first += len(batch)
    return times, answers


def measure(cars: int, seconds: int, every: int, connected: bool) -> list[Run]:
    """Run the peers on one traffic; ValueError if their rows differ after any batch."""
    reports = traffic(cars, seconds)
    batches = [reports[start : start + every] for start in range(0, len(reports), every)]
    found = {DATA: kept(batches), DUCKDB: asked(batches)}
    if connected:
        with planned_by_connectedness():
            found[CONNECTED] = kept(batches)
    for peer, (_, answers) in found.items():
        if answers != found[DUCKDB][1]:
            raise ValueError(f"{peer} and DuckDB have other rows at {cars} cars")
    return [Run(peer, cars, len(reports), times) for peer, (times, _) in found.items()]


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print, save; 1 if a target is missed."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.segtoll", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--quick", action="store_true", help="40 cars, 90 seconds: a check that all of it runs")
    parser.add_argument("--cars", type=lambda t: [int(c) for c in t.split(",")], default=[400, 1500])
    parser.add_argument("--connected-cars", type=int, default=400, help="most cars that are planned by connectedness")
    parser.add_argument("--json", type=Path, help="write all figures to this file")
    options = parser.parse_args(arguments)
    cars, seconds = ([40], 90) if options.quick else (options.cars, SECONDS)
    measure(150, 120, EVERY, True)  # kernels are loaded, that of ranges too
    runs = [run for count in cars for run in measure(count, seconds, EVERY, count <= options.connected_cars)]
    console = Console(width=None if sys.stdout.isatty() else 120)
    table = Table(title=f"SegTollS, {seconds} s of traffic, {EVERY} reports a batch", title_justify="left")
    for column in ("cars", "plan", "reports", "CPU s", "ms a batch, last"):
        table.add_column(column, justify="left" if column == "plan" else "right")
    for run in runs:
        last = f"{1e3 * run.seconds[-1]:.1f}"
        table.add_row(f"{run.cars:,}", run.peer, f"{run.reports:,}", f"{run.total:.3f}", last)
    console.print(table)
    totals = {(run.cars, run.peer): run.total for run in runs}
    checks = [
        Check(f"{count} cars: times the plan by connectedness", totals[count, CONNECTED] / totals[count, DATA], TIMES)
        for count in cars
        if (count, CONNECTED) in totals
    ]
    report.show_checks(checks, console)
    if options.json:
        settings = {"cars": cars, "seconds": seconds, "every": EVERY}
        report.save(options.json, [], checks, settings, runs=[asdict(run) for run in runs])
    return 0 if options.quick or all(check.kept for check in checks) else 1


if __name__ == "__main__":
    sys.exit(main())
