"""What one row costs: single insertions, deletions and updates under 0 to 50 views, in memory and on disk.

    python -m benchmarks.small_epochs --quick
    python -m benchmarks.small_epochs --json results/small_epochs.json

| measurement | what is done |
|---|---|
| no view | one row into a table |
| 1 to 50 aggregates, joins, filters, and all of them mixed | the same, with views over the table (`small_programs`) |
| recursive | a link into a tree, whose nodes are a recursive view |
| delete, update | a row of a table with three mixed views leaves, or is replaced by its primary key |
| durable | one event a commit, with three views, on stable storage (`ledger`) |
| 16 writers | the same from 16 threads, SQLite by one connection behind a lock |

SQLite keeps the views by triggers, DuckDB computes them again, Pathway runs one dataflow for all of them (mixed ones
only) in a process of its own. The peers take turns with the same rows; slow ones leave after the first few. When they
leave, and at the end, all must have the same rows. Every time is kept; the table shows medians, 99th percentiles and
the CPU time of this process.
"""

from __future__ import annotations

import argparse
import sqlite3
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Protocol

import duckdb
import numpy as np
from rich.console import Console
from rich.table import Table

import whence
from benchmarks import ledger, report
from benchmarks import small_programs as programs
from benchmarks.ledger import DisagreementError, Ledger, SqliteLedger, WhenceLedger
from benchmarks.peers.common import Digest, digest, installed
from benchmarks.peers.pathway_peer import PathwayProcess
from benchmarks.report import WHENCE, Check, Figure
from benchmarks.small_programs import DIMENSIONS, MEMBERS, Row, SmallView

SQLITE, DUCKDB, PATHWAY = "SQLite", "DuckDB", "Pathway"
LOCKED = "SQLite, one connection"
PEERS = (WHENCE, SQLITE, DUCKDB, PATHWAY)
PARTS = ("memory", "durable")
COUNTS = (1, 3, 10, 50)
THREADS = 16
MICRO = 1e6
RECURSIVE = "recursive"


@dataclass(frozen=True)
class Sizes:
    """How much is done."""

    rows: int = 3_000  # single operations of each kind
    warm: int = 200  # before them, not counted
    few: int = 20  # as many of them as slow peers take part in
    turn: int = 50  # rows a peer takes before it is the next one's turn
    counts: tuple[int, ...] = COUNTS
    slow_views: int = 10  # slow peers have no more views than this
    rounds: int = 11  # of commits on disk
    alone: int = 60  # commits a round from one thread
    together: int = 320  # from 16
    accounts: int = 10_000


QUICK = Sizes(
    rows=60, warm=10, few=3, turn=20, counts=(1, 3), slow_views=3, rounds=2, alone=5, together=32, accounts=100
)


@dataclass
class Timing:
    """What single operations took one peer: microseconds of each, and of CPU on average (None where unknown)."""

    what: str
    peer: str
    times: list[float] = field(default_factory=list)
    cpu: float | None = None

    @property
    def median(self) -> float:
        return statistics.median(self.times)

    @property
    def p99(self) -> float:
        return float(np.quantile(self.times, 0.99))


class SmallPeer(Protocol):
    """A system with the table and its views."""

    name: str

    def run(self, op: str, rows: Sequence[Row]) -> list[float]:
        """Insert, delete or update rows one by one; the seconds of each."""

    def digest(self) -> Digest:
        """The fingerprint of all views, or of the table if there is none."""

    def close(self) -> None:
        """Let go of it."""


@dataclass(frozen=True)
class Workload:
    """A table that is written and the views over it."""

    what: str
    kind: str = ""  # of the views; none, or "recursive"
    count: int = 0
    op: str = "insert"

    @property
    def table(self) -> str:
        return "link" if self.kind == RECURSIVE else "sale"

    @property
    def views(self) -> list[SmallView]:
        return programs.views(self.kind, self.count) if self.kind != RECURSIVE else []

    @property
    def read(self) -> list[str]:
        """What is compared."""
        return [view.name for view in self.views] or (["reach"] if self.kind == RECURSIVE else ["sale"])

    @property
    def columns(self) -> int:
        return 2 if self.table == "link" else len(programs.COLUMNS)

    def tables(self) -> str:
        if self.table == "link":
            return programs.LINK
        return programs.TABLES + programs.sale_table(keyed=self.op == "update")

    def rows(self, first: int, count: int) -> list[Row]:
        return programs.links(first, count) if self.table == "link" else programs.sales(first, count)


def _timed(work: Callable[[Row], object], rows: Iterable[Row]) -> list[float]:
    clock, times = time.perf_counter, []
    for row in rows:
        start = clock()
        work(row)
        times.append(clock() - start)
    return times


def _digest(workload: Workload, read: Callable[[str], Sequence[Row]]) -> Digest:
    folded = [row for number, name in enumerate(workload.read) for row in programs.folded(number, read(name))]
    return digest(np.array(folded, np.int64).reshape(-1, 4))


class SmallWhence:
    """A database in memory; an update is an insertion by primary key."""

    name = WHENCE

    def __init__(self, workload: Workload) -> None:
        self._workload, self._db = workload, whence.open()
        self._db.execute(workload.tables())
        if workload.table == "sale":
            for name in DIMENSIONS:
                self._db.insert(name, MEMBERS)
        for view in workload.views:
            self._db.execute(f"CREATE VIEW {view.name} AS {view.query};")
        if workload.kind == RECURSIVE:
            self._db.execute(programs.REACH)

    def run(self, op: str, rows: Sequence[Row]) -> list[float]:
        db, table = self._db, self._workload.table
        change = db.delete if op == "delete" else db.insert
        return _timed(lambda row: change(table, row), rows)

    def digest(self) -> Digest:
        return _digest(self._workload, lambda name: self._db[name].rows)

    def close(self) -> None:
        self._db.close()


class SmallSqlite:
    """A database in memory, with triggers for each view."""

    name = SQLITE

    def __init__(self, workload: Workload) -> None:
        self._workload, self._db = workload, sqlite3.connect(":memory:", isolation_level=None)
        self._db.execute("PRAGMA recursive_triggers = ON")
        self._db.executescript(workload.tables())
        if workload.table == "sale":
            for name in DIMENSIONS:
                self._db.executemany(f"INSERT INTO {name} VALUES (?, ?, ?)", MEMBERS)
            if workload.op == "delete":
                self._db.execute("CREATE UNIQUE INDEX by_id ON sale (id)")
        for view in workload.views:
            self._db.executescript(view.triggers)
        if workload.kind == RECURSIVE:
            self._db.executescript(programs.REACH_TRIGGERS)

    def run(self, op: str, rows: Sequence[Row]) -> list[float]:
        execute = self._db.execute
        if op == "delete":
            return _timed(lambda row: execute("DELETE FROM sale WHERE id = ?", row[:1]), rows)
        if op == "update":
            change = (
                f"UPDATE sale SET ({', '.join(programs.COLUMNS[1:])}) = (?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9) WHERE id = ?1"
            )
            return _timed(lambda row: execute(change, row), rows)
        insert = f"INSERT INTO {self._workload.table} VALUES ({', '.join('?' * self._workload.columns)})"
        return _timed(lambda row: execute(insert, row), rows)

    def digest(self) -> Digest:
        return _digest(self._workload, lambda name: self._db.execute(f"SELECT * FROM {name}").fetchall())

    def close(self) -> None:
        self._db.close()


class SmallDuckdb:
    """A database in memory that computes every view again."""

    name = DUCKDB

    def __init__(self, workload: Workload) -> None:
        self._workload, self._db = workload, duckdb.connect(config={"threads": 1})
        self._db.execute(workload.tables())
        if workload.table == "sale":
            for name in DIMENSIONS:
                self._db.executemany(f"INSERT INTO {name} VALUES (?, ?, ?)", MEMBERS)
        queries = {view.name: view.query for view in workload.views}
        if workload.kind == RECURSIVE:
            queries = {"reach": programs.REACH_QUERY}
        self._again = [f"CREATE OR REPLACE TABLE {name} AS {query}" for name, query in queries.items()]

    def run(self, op: str, rows: Sequence[Row]) -> list[float]:
        values = ", ".join("?" * self._workload.columns)
        change = f"INSERT {'OR REPLACE ' if op == 'update' else ''}INTO {self._workload.table} VALUES ({values})"

        def work(row: Row) -> None:
            if op == "delete":
                self._db.execute("DELETE FROM sale WHERE id = ?", row[:1])
            else:
                self._db.execute(change, row)
            for query in self._again:
                self._db.execute(query)

        return _timed(work, rows)

    def digest(self) -> Digest:
        return _digest(self._workload, lambda name: self._db.execute(f"SELECT * FROM {name}").fetchall())

    def close(self) -> None:
        self._db.close()


class SmallPathway:
    """A dataflow in a process of its own; see `peers/pathway_peer.py` for what is timed."""

    name = PATHWAY

    def __init__(self, workload: Workload) -> None:
        columns = ("id_", *programs.COLUMNS[1:])  # every table of Pathway has an `id` of its own
        self._flow = PathwayProcess(f"{workload.kind} {workload.count}", columns)

    def run(self, op: str, rows: Sequence[Row]) -> list[float]:
        sign = np.array([-1 if op == "delete" else 1])
        return [self._flow.apply(sign, np.array([row])) for row in rows]

    def digest(self) -> Digest:
        return self._flow.digest()

    def close(self) -> None:
        self._flow.close()


FAST = (SmallWhence, SmallSqlite)
SLOW: dict[str, type[SmallDuckdb] | type[SmallPathway]] = {DUCKDB: SmallDuckdb, PATHWAY: SmallPathway}


def workloads(sizes: Sizes) -> list[Workload]:
    """Everything that is measured in memory."""
    found = [Workload("no view")]
    for kind in programs.KINDS:
        found += [Workload(f"{count} {kind}", kind, count) for count in sizes.counts]
    three = {"kind": "mixed", "count": 3}
    more = [Workload("delete, 3 mixed", **three, op="delete"), Workload("update, 3 mixed", **three, op="update")]  # type: ignore[arg-type]  # a mapping of both
    return [*found, Workload("a recursive view", RECURSIVE, 1), *more]


def measure(workload: Workload, sizes: Sizes, names: Sequence[str]) -> list[Timing]:
    """Let the peers do one workload in turns."""
    peers: list[SmallPeer] = [peer(workload) for peer in FAST if peer.name in names]
    if workload.count <= sizes.slow_views:
        wanted = [name for name in SLOW if name in names]
        if workload.kind != "mixed" or workload.op == "update":
            wanted = [name for name in wanted if name != PATHWAY]
        peers += [SLOW[name](workload) for name in wanted]
    timings = {peer.name: Timing(workload.what, peer.name) for peer in peers}
    cpu = dict.fromkeys(timings, 0.0)
    warm, rows = workload.rows(0, sizes.warm), workload.rows(sizes.warm, sizes.rows)
    try:
        for peer in peers:
            peer.run("insert", warm)
            if workload.op != "insert":
                peer.run("insert", rows[: sizes.few] if peer.name in SLOW else rows)
        if workload.op == "update":
            rows = [(*row[:5], *(value + 1 for value in row[5:])) for row in rows]
        first = 0
        while first < len(rows):
            turn = rows[first : first + sizes.turn] if first else rows[: sizes.few]
            for peer in peers if first % 2 else peers[::-1]:
                started = time.process_time()
                timings[peer.name].times += [MICRO * seconds for seconds in peer.run(workload.op, turn)]
                cpu[peer.name] += MICRO * (time.process_time() - started)
            if not first:
                if workload.op == "insert":
                    _agree(workload, peers)
                for peer in [peer for peer in peers if peer.name in SLOW]:
                    peers.remove(peer)
                    peer.close()
            first += len(turn)
        _agree(workload, peers)
    finally:
        for peer in peers:
            peer.close()
    for name, timing in timings.items():
        timing.cpu = cpu[name] / len(timing.times) if name != PATHWAY else None
    return list(timings.values())


def _agree(workload: Workload, peers: Sequence[SmallPeer]) -> None:
    found = {peer.name: peer.digest() for peer in peers}
    if len(set(found.values())) > 1:
        raise DisagreementError(f"{workload.what}: {found}")


def durable(folder: Path, sizes: Sizes) -> tuple[list[Timing], Figure]:
    """Commit single events with three views: each time from one thread, commits a second from 16."""
    tables = ledger.base(sizes.accounts)
    with tempfile.TemporaryDirectory(dir=folder) as place:
        peers: list[Ledger] = [
            WhenceLedger(Path(place), tables, views=True),
            SqliteLedger(Path(place), tables, views=True, name=LOCKED, locked=True),
        ]
        timings = [Timing("durable, 3 views", peer.name) for peer in peers]
        together = Figure(f"{THREADS} writers, 3 views", "commits/s")
        try:
            blocks = [sizes.alone] * (sizes.rounds + 1) + [sizes.together] * (sizes.rounds + 1)
            spent, first = dict.fromkeys((peer.name for peer in peers), 0.0), 0
            for number, count in enumerate(blocks):
                table, round_ = ledger.events(first, count, sizes.accounts), number % (sizes.rounds + 1)
                first += count
                if number <= sizes.rounds:
                    for row in ledger.tuples(table):
                        for peer, timing in zip(peers, timings, strict=True):
                            started, cpu = time.perf_counter(), time.process_time()
                            peer.commit(row, 0)
                            if round_:
                                timing.times.append(MICRO * (time.perf_counter() - started))
                                spent[peer.name] += MICRO * (time.process_time() - cpu)
                else:
                    for peer in peers if number % 2 else peers[::-1]:
                        seconds = ledger.commits(peer, table, THREADS)
                        if round_:
                            together.samples.setdefault(peer.name, []).append(count / seconds)
            ledger.agree({peer.name: peer.digests() for peer in peers})
        finally:
            for peer in peers:
                peer.close()
    for timing in timings:
        timing.cpu = spent[timing.peer] / len(timing.times)
    return timings, together


def promises(timings: Sequence[Timing], together: Figure | None) -> list[Check]:
    """What the project promises of small epochs."""
    ours = {timing.what: timing for timing in timings if timing.peer == WHENCE}
    checks = []
    if "no view" in ours:
        bare = ours["no view"].median
        checks.append(Check("no view: µs a row", bare, 20.0, at_least=False))
        for kind in programs.KINDS:
            most = max((w for w in ours if w.endswith(f" {kind}") and "," not in w), key=_count, default="")
            if most:
                slope = (ours[most].median - bare) / _count(most)
                checks.append(Check(f"{most}: µs a view", slope, 15.0, at_least=False))
        worst = max(ours.values(), key=lambda timing: timing.p99 / timing.median)
        checks.append(Check(f"p99 in medians, at most ({worst.what})", worst.p99 / worst.median, 3.0, at_least=False))
    if together is not None:
        alone = {timing.peer: timing.median for timing in timings if timing.what.startswith("durable")}
        checks.append(Check("durable commits, times SQLite", alone[LOCKED] / alone[WHENCE], 1.0))
        checks.append(Check(f"{THREADS} writers, times one connection", together.times(WHENCE, LOCKED), 1.0))
    return checks


def _count(what: str) -> int:
    return int(what.partition(" ")[0])


def show(timings: Sequence[Timing], console: Console) -> None:
    """Print one line for each workload and peer."""
    table = Table(title="small epochs, µs a row", title_justify="left")
    table.add_column("")
    table.add_column("peer", no_wrap=True)
    for column in ("median", "p99", "p99 in medians", "CPU", "x Whence"):
        table.add_column(column, justify="right")
    ours = {timing.what: timing.median for timing in timings if timing.peer == WHENCE}
    before = None
    for timing in timings:
        if timing.what != before:
            table.add_section()
        cpu = "" if timing.cpu is None else f"{timing.cpu:,.1f}"
        against = f"{timing.median / ours[timing.what]:.2f}" if timing.what in ours and timing.peer != WHENCE else ""
        spread = f"{timing.p99 / timing.median:.1f}"
        label = timing.what if timing.what != before else ""
        table.add_row(label, timing.peer, f"{timing.median:,.1f}", f"{timing.p99:,.1f}", spread, cpu, against)
        before = timing.what
    console.print(table)


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Read the command line."""
    summary = (__doc__ or "").split("\n")[0]
    parser = argparse.ArgumentParser(prog="python -m benchmarks.small_epochs", description=summary)
    parser.add_argument("--quick", action="store_true", help="a few rows and three views: a check that all of it runs")
    parser.add_argument("--parts", type=lambda t: t.split(","), default=list(PARTS), help=f"some of {','.join(PARTS)}")
    parser.add_argument("--peers", type=lambda t: t.split(","), default=list(PEERS), help=f"some of {','.join(PEERS)}")
    parser.add_argument(
        "--views", type=lambda t: tuple(map(int, t.split(","))), help="how many views (default 1,3,10,50)"
    )
    parser.add_argument("--dir", type=Path, help="where the databases are made: the disk to measure (default: here)")
    parser.add_argument("--json", type=Path, help="write all figures to this file")
    parser.add_argument("--plot", type=Path, help=f"draw to this file (default {report.RESULTS}/small_epochs.png)")
    options = parser.parse_args(arguments)
    for what, known in (("parts", PARTS), ("peers", PEERS)):
        for one in getattr(options, what):
            if one not in known:
                parser.error(f"--{what}: {one!r} is not one of {', '.join(known)}")
    return options


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print, save; 1 if the peers disagree."""
    options = parse(arguments)
    console = Console(width=None if sys.stdout.isatty() else 120)
    sizes = QUICK if options.quick else Sizes()
    if options.views:
        sizes = Sizes(**asdict(sizes) | {"counts": options.views})
    names = [name for name in options.peers if name != PATHWAY or installed("pathway")]
    for name in options.peers:
        if name not in names:
            console.print(f"{name} is not installed and left out")
    timings: list[Timing] = []
    together = None
    try:
        for workload in workloads(sizes) if "memory" in options.parts else ():
            with console.status(workload.what):
                timings += measure(workload, sizes, names)
        if "durable" in options.parts:
            with (
                console.status("durable"),
                tempfile.TemporaryDirectory(prefix="small-", dir=options.dir or ".") as folder,
            ):
                found, together = durable(Path(folder), sizes)
                timings += found
    except DisagreementError as difference:
        console.print(f"[red]{difference}")
        return 1
    show(timings, console)
    figures = [Figure(what, "µs") for what in dict.fromkeys(timing.what for timing in timings)]
    for figure in figures:
        figure.samples = {timing.peer: timing.times for timing in timings if timing.what == figure.what}
    if together is not None:
        report.show_figures("16 writers", [together], console)
        figures.append(together)
    checks = promises(timings, together)
    report.show_checks(checks, console)
    if installed("matplotlib"):
        report.plot_figures(options.plot or report.RESULTS / "small_epochs.png", figures)
    if options.json:
        kept = [asdict(figure) | {"median": {peer: figure.of(peer) for peer in figure.samples}} for figure in figures]
        cpu = [{"what": timing.what, "peer": timing.peer, "cpu": timing.cpu} for timing in timings]
        settings = asdict(sizes) | {"quick": options.quick, "parts": options.parts}
        report.save(options.json, [], checks, settings, figures=kept, cpu=cpu)
    return 0


if __name__ == "__main__":
    sys.exit(main())
