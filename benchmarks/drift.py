"""Plans of joins while traffic drifts: Linear Road's SegTollS, and a query in which two inputs trade places.

    python -m benchmarks.drift --quick
    python -m benchmarks.drift --json results/drift.json

| plan | what it is |
|---|---|
| adaptive | `adapt = 'on'`, from no statistics |
| as planned | `adapt = 'off'`: orders are chosen again only when an input has grown or shrunk fourfold |
| best static | of all orders of each delta those that do least work over all phases (`drift_orders`) |
| first seconds | those that were best in the first ten seconds |
| oracle | those that are best in each phase, from its first second on |

The traffic of `linear_road` comes second by second, and every second is an epoch. All plans take turns in one process,
and which is first changes with every epoch, so other programs disturb all alike. Times are the processor's; that of an
epoch is its median over the rounds. All must have the same rows at the end of every phase, SegTollS those of DuckDB.
"""

from __future__ import annotations

import argparse
import gc
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import duckdb
from rich.console import Console
from rich.table import Table

import whence
from benchmarks import report
from benchmarks.drift_orders import Room, Work, join_of, measure_room
from benchmarks.linear_road import EVERY, PHASES, Report, traffic
from benchmarks.report import Check
from benchmarks.segtoll import ANSWER, SCRIPT
from whence.engine.relational.join import Join
from whence.plan.algebra.join_paths import JoinOrders

ADAPTIVE, PLANNED, STATIC, FIRST, ORACLE = "adaptive", "as planned", "best static", "first seconds", "oracle"
FIRST_SECONDS, AROUND = 10, 20
HAZARD = """
CREATE STREAM car_location (
  time INT NOT NULL, carid INT NOT NULL, speed INT NOT NULL,
  expway INT NOT NULL, dir INT NOT NULL, seg INT NOT NULL, xpos INT NOT NULL
);
CREATE VIEW last_of_car AS SELECT carid, expway, dir, seg, speed FROM latest(car_location, rows => 1, by => carid);
CREATE VIEW hazard AS
  SELECT d.carid, COUNT(DISTINCT s.carid) AS standing, COUNT(DISTINCT c.carid) AS crawling
  FROM last_of_car AS d, last_of_car AS s, last_of_car AS c
  WHERE d.speed > 0 AND s.speed = 0 AND c.speed BETWEEN 1 AND 39
    AND s.expway = d.expway AND s.dir = d.dir AND s.seg >= d.seg AND s.seg < d.seg + 5
    AND c.expway = d.expway AND c.dir = d.dir AND c.seg >= d.seg AND c.seg < d.seg + 5
  GROUP BY d.carid;
"""
"""How many cars stand, and how many crawl, in the five segments ahead of each car that has both. In the rush hour many
crawl and few stand, after accidents it is the other way round: which of the two a car should meet first changes."""


@dataclass(frozen=True)
class Query:
    """A view over the reports, and how much traffic it is given."""

    name: str
    view: str
    script: str
    cars: int
    seconds: int = 900
    answer: str | None = None  # for DuckDB


SEGTOLL = Query("SegTollS", "segment_toll", SCRIPT.read_text(encoding="utf-8"), 1500, answer=ANSWER)
HAZARDS = Query("hazards", "hazard", HAZARD, 3000)


@dataclass
class Drift:
    """What was measured of one query: CPU seconds of every epoch of each plan and round."""

    query: str
    cars: int
    room: float  # times the work that the best static plan does more than the oracle
    work: dict[str, list[float]]  # of the phases, in probes and matches
    plans: dict[str, list[JoinOrders]]  # that ran in each phase
    epochs: dict[str, list[list[float]]] = field(default_factory=dict)
    adapting: list[float] = field(default_factory=list)  # CPU seconds inside, by round
    stable: float = 0.0  # its part of the time on traffic that does not drift
    switches: list[list[int]] = field(default_factory=list)  # seconds at which the adaptive plan switched

    def medians(self, plan: str) -> list[float]:
        """Return each epoch's median over the rounds."""
        return [statistics.median(times) for times in zip(*self.epochs[plan], strict=True)]

    def total(self, plan: str) -> float:
        return sum(self.medians(plan))

    def by_phase(self, plan: str) -> list[float]:
        """Return milliseconds of an epoch in each phase, on average."""
        times, length = self.medians(plan), len(self.epochs[plan][0]) // len(PHASES)
        return [1e3 * sum(times[n * length : (n + 1) * length]) / length for n in range(len(PHASES))]

    def longest_switch(self) -> float:
        """Return how many medians of the epochs before or after it, whichever are longer, the longest epoch at a switch
        took: where traffic changes, epochs do, too."""
        worst = 0.0
        for times, switches in zip(self.epochs[ADAPTIVE], self.switches, strict=True):
            for at in switches:
                sides = times[max(0, at - AROUND) : at], times[at + 2 : at + 2 + AROUND]
                around = max((statistics.median(side) for side in sides if side), default=0.0)
                if around:
                    worst = max(worst, max(times[at : at + 2]) / around)
        return worst


Steer = Callable[[Join, int], None]


class WrongRowsError(Exception):
    """Two plans have other rows."""


class Runner:
    """A database that runs the view by one plan."""

    def __init__(self, db: whence.Database, query: Query, steer: Steer) -> None:
        self.db, self.query, self._steer = db, query, steer
        db.execute(query.script)
        self.join = join_of(db, query.view)
        self.times: list[float] = []

    def step(self, second: int, batch: Sequence[Report]) -> None:
        began = time.process_time()
        self._steer(self.join, second)
        if batch:
            self.db.insert("car_location", batch)
        self.times.append(time.process_time() - began)

    @property
    def rows(self) -> list[tuple[Any, ...]]:
        return sorted(self.db[self.query.view].rows)


def steering(room: Room, length: int) -> dict[str, Steer]:
    """Return what each plan does before an epoch. Static plan and oracle see to the orders of deltas that were
    measured; whether a step looks up a hash or an ordered index is the join's choice."""

    def keep(join: Join, plan: JoinOrders, measured: Work) -> None:
        wanted = [
            tuple(step if step >= 0 else ~step for step in path) if work else running
            for path, work, running in zip(plan, measured, join.orders, strict=True)
        ]
        if wanted != join.orders:
            join.reorder(wanted)

    def static(join: Join, second: int) -> None:
        if not second % EVERY:
            keep(join, room.static, room.whole)

    def oracle(join: Join, second: int) -> None:
        phase = min(second // length, len(PHASES) - 1)
        if not second % length or not second % EVERY:
            keep(join, room.oracle[phase], room.work[phase])

    def held(join: Join, second: int) -> None:
        if second == FIRST_SECONDS:
            join.pin(join.plan, firm=True)

    def nothing(join: Join, second: int) -> None:
        return

    return {PLANNED: nothing, STATIC: static, FIRST: held, ORACLE: oracle, ADAPTIVE: nothing}


def measure(query: Query, rounds: int, every: int, console: Console) -> Drift:
    """Measure the room, then run all plans in turns."""
    batches = traffic(query.cars, query.seconds)
    length = len(batches) // len(PHASES)
    with console.status(f"{query.name}: all orders"):
        room = measure_room(query.script, query.view, batches, len(PHASES), every)
    plans = {STATIC: [room.static] * len(PHASES), ORACLE: room.oracle}
    work = {name: room.spent(each) for name, each in plans.items()}
    found = Drift(query.name, query.cars, room.ratio, work, plans, stable=stable_share(query))
    for number in range(rounds):
        with console.status(f"{query.name}: round {number + 1}"):
            _run(query, batches, steering(room, length), found, number)
    return found


def _run(query: Query, batches: Sequence[Sequence[Report]], steers: dict[str, Steer], found: Drift, turn: int) -> None:
    length = len(batches) // len(PHASES)
    with ExitStack() as stack:
        runners = {name: Runner(stack.enter_context(whence.open()), query, steer) for name, steer in steers.items()}
        runners[ADAPTIVE].db.adapt("on")
        adaptation = runners[ADAPTIVE].db._coordinator.adaptation
        duck = stack.enter_context(_Asked()) if query.answer is not None else None
        switches = []
        gc.collect()
        names = list(runners)
        for second, batch in enumerate(batches):
            at = (second + turn) % len(names)
            before = adaptation.switches
            for name in names[at:] + names[:at]:
                runners[name].step(second, batch)
            if adaptation.switches > before:
                switches.append(second + 1)  # a switch comes after an epoch, and the next one builds
            if duck is not None:
                duck.insert(batch)
            if second % length == length - 1:
                _compare(query, runners, duck)
        for name, runner in runners.items():
            found.epochs.setdefault(name, []).append(runner.times)
        found.switches.append(switches)
        found.adapting.append(adaptation.seconds)


def stable_share(query: Query) -> float:
    """Return the part of the time that is spent on adapting in the second half of a rush hour that does not end."""
    batches = traffic(query.cars, query.seconds, (PHASES[1],))
    with whence.open(adapt="on") as db:
        runner = Runner(db, query, lambda join, second: None)
        spent = 0.0
        for second, batch in enumerate(batches):
            runner.step(second, batch)
            if second == len(batches) // 2:
                spent = db._coordinator.adaptation.seconds
        whole = sum(runner.times[len(batches) // 2 + 1 :])
        return (db._coordinator.adaptation.seconds - spent) / whole


class _Asked:
    """DuckDB with all reports so far."""

    def __init__(self) -> None:
        self._con, self._count = duckdb.connect(), 0
        columns = ("nr", "time", "carid", "speed", "expway", "dir", "seg", "xpos")
        self._con.execute(f"CREATE TABLE car_location ({', '.join(f'{c} INT' for c in columns)})")

    def __enter__(self) -> _Asked:
        return self

    def __exit__(self, *_: object) -> None:
        self._con.close()

    def insert(self, batch: Sequence[Report]) -> None:
        if batch:
            values = ", ".join(str((self._count + number, *row)) for number, row in enumerate(batch))
            self._con.execute(f"INSERT INTO car_location VALUES {values}")
            self._count += len(batch)

    def rows(self, query: str) -> list[tuple[Any, ...]]:
        return sorted(self._con.execute(query).fetchall())


def _compare(query: Query, runners: dict[str, Runner], duck: _Asked | None) -> None:
    wanted = runners[PLANNED].rows if duck is None or query.answer is None else duck.rows(query.answer)
    for name, runner in runners.items():
        if runner.rows != wanted:
            raise WrongRowsError(f"{query.name}: {name} has other rows")


def promises(found: Sequence[Drift]) -> list[Check]:
    """Return what issue 19 asks for beside what was measured."""
    checks = []
    for drift in found:
        against = drift.total(ADAPTIVE) / drift.total(ORACLE)
        stable, switch = drift.stable, drift.longest_switch()
        checks.append(Check(f"{drift.query}: times the oracle's CPU", against, 1.1, False))
        static = drift.total(STATIC) / drift.total(ADAPTIVE)
        checks.append(Check(f"{drift.query}: times faster than the best static plan", static, 1.0))
        checks.append(Check(f"{drift.query}: % of CPU inside adapt when stable", 100 * stable, 1, False))
        checks.append(Check(f"{drift.query}: medians of the longest epoch at a switch", switch, 3, False))
    return checks


def show(found: Sequence[Drift], console: Console) -> None:
    """Print the tables."""
    for drift in found:
        title = (
            f"{drift.query}, {drift.cars:,} cars: the best static plan does {drift.room:.3f} times the oracle's work"
        )
        table = Table(title=title, title_justify="left")
        for column in ("plan", "CPU s", *(f"{phase.name}, ms" for phase in PHASES)):
            table.add_column(column, justify="left" if column == "plan" else "right")
        for plan in (ORACLE, ADAPTIVE, PLANNED, STATIC, FIRST):
            table.add_row(plan, f"{drift.total(plan):.3f}", *(f"{ms:.2f}" for ms in drift.by_phase(plan)))
        console.print(table)
        for plan, work in drift.work.items():
            console.print(f"  probes and matches, {plan}: " + ", ".join(f"{each:,.0f}" for each in work))
        console.print(f"  switches after second: {drift.switches}")


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print, save; 1 if a target is missed."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.drift", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--quick", action="store_true", help="few cars and seconds: a check that all of it runs")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", type=Path, help="write all figures to this file")
    options = parser.parse_args(arguments)
    console = Console(width=None if sys.stdout.isatty() else 140)
    found = run(options.quick, options.rounds, console)
    show(found, console)
    checks = promises(found)
    report.show_checks(checks, console)
    if options.json:
        report.save(options.json, [], checks, {"rounds": options.rounds}, drift=[asdict(each) for each in found])
    return 0 if options.quick or all(check.kept for check in checks) else 1


def run(quick: bool, rounds: int, console: Console) -> list[Drift]:
    """Measure both queries; `quick` with little traffic. Kernels are loaded before."""
    small = [replace(query, cars=60, seconds=100 if not quick else 300) for query in (SEGTOLL, HAZARDS)]
    found = [measure(query, 1, 20, console) for query in small]
    return found if quick else [measure(query, rounds, 10, console) for query in (SEGTOLL, HAZARDS)]


if __name__ == "__main__":
    sys.exit(main())
