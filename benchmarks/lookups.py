"""What users wait for between the big runs: look-ups by key, beside SQLite with an index and DuckDB.

    python -m benchmarks.lookups --rows 50000
    python -m benchmarks.lookups --json results/lookups.json

| section | what is measured |
|---|---|
| `lookups` | rows of a view of 5.6 million (`authorization`) found by key, by a prefix of it, by another column |
| `fills` | time and memory of loading the facts and filling that view, views first or tables first (`fills`) |
| `startup` | time of `whence --help` and other commands that only answer (`startup`) |

A look-up is timed alone, and right after a commit that changes the view. The peers have the view's rows as a table,
with an index for each look-up, and get its changes; every answer is compared.

To add a section, write a function that takes `Sizes` and a console and returns a `Section`: figures, of which each has
the samples of every peer, and the targets that they are held to. Put it into a module of its own if it needs more than
a page, and list it in `SECTIONS`. The table, the plot, the JSON and the targets are made of what sections return.
"""

from __future__ import annotations

import argparse
import gc
import sqlite3
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol

import duckdb
import numpy as np
import pyarrow as pa
from rich.console import Console
from rich.table import Table

import whence
from benchmarks import authorization, fills, report, startup
from benchmarks.authorization import Facts
from benchmarks.ledger import DisagreementError
from benchmarks.peers.common import installed
from benchmarks.report import WHENCE, Check, Figure

SQLITE, DUCKDB = "SQLite, indexed", "DuckDB"
QUERY, PARAMETERS = "Whence, db.query", "Whence, db.query with parameters"
MICRO = 1e6
Row = tuple[Any, ...]


@dataclass(frozen=True)
class Sizes:
    """How much is done."""

    rows: int = authorization.ROWS  # of the view
    lookups: int = 2_000  # of each kind
    slow: int = 200  # of each kind, by a peer that scans
    commits: int = 50  # after each of which there is one look-up of each kind
    turn: int = 50  # look-ups of a reader before it is the next one's turn
    warm: int = 5  # not counted
    fills: int = 3  # in each order, and by each peer
    starts: int = 10  # of each command


QUICK = Sizes(rows=20_000, lookups=50, slow=10, commits=5, fills=1, starts=1)


@dataclass
class Section:
    """What a section measured, and what it promises."""

    figures: list[Figure] = field(default_factory=list)
    checks: list[Check] = field(default_factory=list)


@dataclass(frozen=True)
class Lookup:
    """One kind of look-up: the columns whose values are given."""

    what: str
    columns: tuple[str, ...]

    @property
    def sql(self) -> str:
        return "SELECT who, doc FROM may_read WHERE " + " AND ".join(f"{column} = ?" for column in self.columns)

    def key(self, row: Row) -> Row:
        return tuple(row[("who", "doc").index(column)] for column in self.columns)


KINDS = (Lookup("point", ("who", "doc")), Lookup("prefix", ("who",)), Lookup("other column", ("doc",)))


class Reader(Protocol):
    """A system that has the rows of the view."""

    name: str
    slow: bool

    def find(self, kind: Lookup, key: Row) -> list[Row]:
        """Return the rows that have a key."""

    def change(self, gone: Sequence[Row], come: Sequence[Row]) -> None:
        """Take a change of the view."""

    def close(self) -> None:
        """Let go of it."""


class WhenceWhere:
    """Look-ups by columns."""

    name, slow = WHENCE, False

    def __init__(self, db: whence.Database) -> None:
        self._db = db

    def find(self, kind: Lookup, key: Row) -> list[Row]:
        return self._db["may_read"].where(dict(zip(kind.columns, key, strict=True))).rows

    def change(self, gone: Sequence[Row], come: Sequence[Row]) -> None:
        """Do nothing: the view has changed already."""

    def close(self) -> None:
        """Do nothing: the database is closed by who opened it."""


class WhenceQuery(WhenceWhere):
    """Look-ups by SQL."""

    name = QUERY

    def find(self, kind: Lookup, key: Row) -> list[Row]:
        values = " AND ".join(f"{column} = '{value}'" for column, value in zip(kind.columns, key, strict=True))
        return self._db.query(f"SELECT who, doc FROM may_read WHERE {values}").rows


class WhenceParameters(WhenceWhere):
    """Look-ups by SQL with parameters."""

    name = PARAMETERS

    def find(self, kind: Lookup, key: Row) -> list[Row]:
        return self._db.query(kind.sql, key).rows


class SqliteReader:
    """A table in memory whose primary key is the row, with an index of the other column."""

    name, slow = SQLITE, False

    def __init__(self, rows: pa.Table) -> None:
        self._db = sqlite3.connect(":memory:", isolation_level=None)
        self._db.execute("CREATE TABLE may_read (who TEXT, doc TEXT, PRIMARY KEY (who, doc)) WITHOUT ROWID")
        self._db.execute("BEGIN")
        for batch in rows.sort_by([("who", "ascending"), ("doc", "ascending")]).to_batches(max_chunksize=100_000):
            columns = [column.to_pylist() for column in batch.columns]
            self._db.executemany("INSERT INTO may_read VALUES (?, ?)", zip(*columns, strict=True))
        self._db.execute("CREATE INDEX by_doc ON may_read (doc)")
        self._db.execute("COMMIT")

    def find(self, kind: Lookup, key: Row) -> list[Row]:
        return self._db.execute(kind.sql, key).fetchall()

    def change(self, gone: Sequence[Row], come: Sequence[Row]) -> None:
        self._db.execute("BEGIN")
        self._db.executemany("DELETE FROM may_read WHERE who = ? AND doc = ?", gone)
        self._db.executemany("INSERT INTO may_read VALUES (?, ?)", come)
        self._db.execute("COMMIT")

    def close(self) -> None:
        self._db.close()


class DuckdbReader:
    """A table in memory, with an index of each column."""

    name, slow = DUCKDB, True

    def __init__(self, rows: pa.Table) -> None:
        self._db = duckdb.connect(config={"threads": 1})
        self._db.register("given", rows)
        self._db.execute("CREATE TABLE may_read AS SELECT who, doc FROM given ORDER BY who, doc")
        self._db.unregister("given")
        self._db.execute("CREATE INDEX by_who ON may_read (who); CREATE INDEX by_doc ON may_read (doc)")

    def find(self, kind: Lookup, key: Row) -> list[Row]:
        return self._db.execute(kind.sql, key).fetchall()

    def change(self, gone: Sequence[Row], come: Sequence[Row]) -> None:
        self._db.execute("BEGIN")
        for row in gone:
            self._db.execute("DELETE FROM may_read WHERE who = ? AND doc = ?", row)
        for row in come:
            self._db.execute("INSERT INTO may_read VALUES (?, ?)", row)
        self._db.execute("COMMIT")

    def close(self) -> None:
        self._db.close()


def lookups(sizes: Sizes, console: Console) -> Section:
    """Find rows of `may_read` by key, alone and right after commits."""
    facts = authorization.facts(sizes.rows)
    with console.status(f"{facts.count:,} facts"), whence.open() as db:
        db.execute(authorization.TABLES)
        for name, table in facts.tables.items():
            db.insert(name, table)
        db.execute(authorization.VIEWS)
        rows = db["may_read"].to_arrow()
        console.print(f"{facts.count:,} facts, {rows.num_rows:,} rows of may_read")
        chosen = np.random.default_rng(1).integers(0, rows.num_rows, sizes.lookups + sizes.warm)
        some = list(zip(*(column.to_pylist() for column in rows.take(chosen).columns), strict=True))
        readers: list[Reader] = [
            WhenceWhere(db),
            WhenceQuery(db),
            WhenceParameters(db),
            SqliteReader(rows),
            DuckdbReader(rows),
        ]
        del rows
        gc.collect()
        try:
            figures = [_alone(kind, readers, some, sizes) for kind in KINDS]
            figures += _after_commits(db, readers, some, facts, sizes)
        finally:
            for reader in readers:
                reader.close()
    return Section(figures, promises(figures))


def _alone(kind: Lookup, readers: Sequence[Reader], some: Sequence[Row], sizes: Sizes) -> Figure:
    """Let the readers take turns with the same keys."""
    figure = Figure(f"{kind.what} look-up", "µs")
    for first in range(0, len(some), sizes.turn):
        turn, answers = some[first : first + sizes.turn], dict[str, list[list[Row]]]()
        for reader in readers:
            for place, row in enumerate(turn, first):
                if place < sizes.warm + (sizes.slow if reader.slow else sizes.lookups):
                    seconds, found = _timed(reader, kind, kind.key(row))
                    answers.setdefault(reader.name, []).append(found)
                    if place >= sizes.warm:
                        figure.samples.setdefault(reader.name, []).append(MICRO * seconds)
        for place, row in enumerate(turn):
            _agree(kind, row, {name: found[place] for name, found in answers.items() if place < len(found)})
    return figure


def _after_commits(
    db: whence.Database, readers: Sequence[Reader], some: Sequence[Row], facts: Facts, sizes: Sizes
) -> list[Figure]:
    """Grant a document to a group and take it back, and look rows up after each commit."""
    figures = {kind: Figure(f"{kind.what}, after a commit", "µs") for kind in KINDS}
    random, feed = np.random.default_rng(2), db.changes("may_read")
    granted: Row = ()
    for place in range(sizes.commits):
        if granted:
            db.delete("granted", granted)
            granted = ()
        else:
            granted = (str(random.choice(facts.groups)), f"new-{place}")
            db.insert("granted", granted)
        changes = list(feed)
        gone = [change.row for change in changes if change.sign < 0]
        come = [change.row for change in changes if change.sign > 0]
        for reader in readers:
            reader.change(gone, come)
        for number, kind in enumerate(KINDS):
            row = (come or some)[0] if place % 2 else some[(place + number) % len(some)]
            answers = {}
            for reader in readers:
                seconds, answers[reader.name] = _timed(reader, kind, kind.key(row))
                figures[kind].samples.setdefault(reader.name, []).append(MICRO * seconds)
            _agree(kind, row, answers)
    return list(figures.values())


def _timed(reader: Reader, kind: Lookup, key: Row) -> tuple[float, list[Row]]:
    start = time.perf_counter()
    found = reader.find(kind, key)
    return time.perf_counter() - start, found


def _agree(kind: Lookup, row: Row, answers: dict[str, list[Row]]) -> None:
    distinct = {tuple(sorted(answer)) for answer in answers.values()}
    if len(distinct) > 1:
        found = {name: len(answer) for name, answer in answers.items()}
        raise DisagreementError(f"{kind.what} look-up of {row}: {found} rows, and they differ")


def promises(figures: Sequence[Figure]) -> list[Check]:
    """Return the targets of look-ups."""
    checks = []
    for figure in figures:
        for peer, bound in ((WHENCE, 50.0), (QUERY, 1_000.0), (PARAMETERS, 1_000.0)):
            if peer in figure.samples:
                checks.append(Check(f"{figure.what}, {peer}: µs", figure.of(peer), bound, at_least=False))
    return checks


def bulk_fills(sizes: Sizes, console: Console) -> Section:
    """Load the facts and fill the view, in either order."""
    return Section(*fills.measure(sizes.rows, sizes.fills, console))


def start_up(sizes: Sizes, console: Console) -> Section:
    """Start commands that only answer."""
    return Section(*startup.measure(sizes.starts, console))


SECTIONS: dict[str, Callable[[Sizes, Console], Section]] = {
    "lookups": lookups,
    "fills": bulk_fills,
    "startup": start_up,
}


def show(figures: Sequence[Figure], console: Console) -> None:
    """Print one line for each figure and peer."""
    table = Table(title="look-ups", title_justify="left")
    for column in ("", "unit", "peer"):
        table.add_column(column, no_wrap=column == "peer")
    for column in ("median", "p99", "samples"):
        table.add_column(column, justify="right")
    for figure in figures:
        table.add_section()
        for place, (peer, samples) in enumerate(figure.samples.items()):
            label = (figure.what, figure.unit) if place == 0 else ("", "")
            median, p99 = statistics.median(samples), float(np.quantile(samples, 0.99))
            table.add_row(*label, peer, f"{median:,.1f}", f"{p99:,.1f}", f"{len(samples):,}")
    console.print(table)


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Read the command line."""
    summary = (__doc__ or "").split("\n")[0]
    parser = argparse.ArgumentParser(prog="python -m benchmarks.lookups", description=summary)
    parser.add_argument("--quick", action="store_true", help="few rows and look-ups: a check that all of it runs")
    parser.add_argument("--rows", type=int, help=f"rows of the view, about (default {authorization.ROWS:,})")
    known = ",".join(SECTIONS)
    parser.add_argument("--sections", type=lambda t: t.split(","), default=list(SECTIONS), help=f"some of {known}")
    parser.add_argument("--json", type=Path, help="write all figures to this file")
    parser.add_argument("--plot", type=Path, help=f"draw to this file (default {report.RESULTS}/lookups.png)")
    options = parser.parse_args(arguments)
    for name in options.sections:
        if name not in SECTIONS:
            parser.error(f"--sections: {name!r} is not one of {', '.join(SECTIONS)}")
    return options


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print, save; 1 if the peers disagree."""
    options = parse(arguments)
    console = Console(width=None if sys.stdout.isatty() else 120)
    sizes = QUICK if options.quick else Sizes()
    if options.rows is not None:
        sizes = replace(sizes, rows=options.rows)
    whole = Section()
    try:
        for name in options.sections:
            section = SECTIONS[name](sizes, console)
            whole.figures += section.figures
            whole.checks += section.checks
    except DisagreementError as difference:
        console.print(f"[red]{difference}")
        return 1
    show(whole.figures, console)
    report.show_checks(whole.checks, console)
    if installed("matplotlib"):
        report.plot_figures(options.plot or report.RESULTS / "lookups.png", whole.figures)
    if options.json:
        kept = [asdict(f) | {"median": {peer: f.of(peer) for peer in f.samples}} for f in whole.figures]
        settings = asdict(sizes) | {"quick": options.quick, "sections": options.sections}
        report.save(options.json, [], whole.checks, settings, figures=kept)
    return 0


if __name__ == "__main__":
    sys.exit(main())
