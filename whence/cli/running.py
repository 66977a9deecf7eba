"""`whence run`, `sql` and `demo`: programs at work, in memory or in a folder."""

from __future__ import annotations

import csv
import functools
import sys
import time
from collections.abc import Callable, Iterator
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.text import Text

import whence
from whence import shell
from whence.cli.console import Format, err, out, reported
from whence.cli.opening import Choice, Db, Functions, Lasting, ReadOnly, Retain, declare
from whence.connect import files
from whence.errors import DataError
from whence.runtime.changes import Change, Changes
from whence.runtime.reading import cell, grid


class DemoName(StrEnum):
    network = "network"
    access = "access"


@reported
def run(
    program: Annotated[
        Path | None,
        typer.Argument(help="A script of CREATE TABLE and CREATE VIEW statements; may be left out with --db."),
    ] = None,
    source: Annotated[
        list[str] | None,
        typer.Option(
            "--source", "-s", metavar="TABLE=FILE", help="Updates for a table: .jsonl, or rows: .csv, .parquet."
        ),
    ] = None,
    view: Annotated[list[str] | None, typer.Option("--view", help="Show only these views (default: all).")] = None,
    batch: Annotated[int, typer.Option("--batch", min=1, help="Lines of an update file that make one epoch.")] = 1,
    limit: Annotated[int, typer.Option("--limit", min=0, help="Rows shown of a view, and of an epoch's changes.")] = 20,
    format: Annotated[Format, typer.Option("--format", help="How changes are printed.")] = Format.table,
    db: Db = None,
    read_only: ReadOnly = False,
    durability: Lasting = None,
    retain: Retain = None,
    functions: Functions = None,
) -> None:
    """Run a program over files of updates and show the views as they change.

    An update file has one JSON object a line: the row by column, and + or - in "op", or around the row.

        {"op": "+", "src": "A", "dst": "B"}

        {"-": {"src": "A", "dst": "B"}}

    Examples:

        whence run network.sql --source link=links.jsonl

        whence run network.sql -s link=links.csv --view reachable

        whence run network.sql -s link=links.jsonl --batch 100 --format jsonl

        whence run network.sql --db mydb -s link=links.jsonl     (and later, without the script:)

        whence run --db mydb -s link=more.jsonl
    """
    if program is None and db is None:
        raise typer.BadParameter("Missing argument: a script, or --db with the folder of a database")
    inputs = [_source(text) for text in source or []]
    with Choice(db, read_only, durability, retain, functions).open() as database:
        if program is not None:
            declare(database, program)
        names = [v.lower() for v in view] if view else database.views
        if format is Format.csv and len(names) != 1:
            raise typer.BadParameter("csv has one set of columns: name one --view", param_hint="--format")
        feeds = [database.changes(name, snapshot=True) for name in names]
        show = _Printer(format, limit, feeds)
        show.epoch(0.0)
        for table, path in inputs:
            for apply in _epochs(database, table, path, batch):
                start = time.perf_counter()
                apply()
                show.epoch(time.perf_counter() - start)
        if format is Format.table:
            for name in names:
                found = database[name]
                out.print(grid(found.columns, found.rows[:limit], len(found), name))


def _source(text: str) -> tuple[str, Path]:
    table, found, path = text.partition("=")
    if not found or not table or not path:
        raise typer.BadParameter(f"{text!r} is not TABLE=FILE", param_hint="--source")
    files.format_of(path)
    return table.strip().lower(), Path(path)


def _epochs(db: whence.Database, table: str, path: Path, batch: int) -> Iterator[Callable[[], None]]:
    """What to do in each epoch that a file makes."""
    schema = db[table].schema
    if files.format_of(path) != "jsonl":
        for part in files.read(path, schema):
            yield functools.partial(_insert, db, table, part)
        return
    for updates in files.read_updates(path, batch):
        yield functools.partial(_apply, db, table, path, updates)


def _insert(db: whence.Database, table: str, rows: Any) -> None:
    db.insert(table, rows)


def _apply(db: whence.Database, table: str, path: Path, updates: list[files.Update]) -> None:
    schema = db[table].schema
    with db.transaction():
        for update in updates:
            try:
                row = files.prepare(update.row, schema)
                if update.sign > 0:
                    db.insert(table, [row])
                elif not db.delete(table, [row]):
                    err.print(
                        Text(f"{path}, line {update.line}: no such row to delete", style="yellow"), soft_wrap=True
                    )
            except DataError as error:
                said = str(error).replace(", row 1", "", 1)
                raise DataError(f"{path}, line {update.line}: {said}") from None


class _Printer:
    """Prints what each epoch changed, in one of the formats."""

    def __init__(self, format: Format, limit: int, feeds: list[Changes]) -> None:
        self.format, self.limit, self.feeds = format, limit, feeds
        if format is Format.csv:
            self._csv = csv.writer(sys.stdout, lineterminator="\n")
            self._csv.writerow(["epoch", "op", *feeds[0].columns])

    def epoch(self, seconds: float) -> None:
        for feed in self.feeds:
            changes = list(feed)
            if not changes:
                continue
            if self.format is Format.table:
                self._lines(feed, changes, seconds)
            for change in changes if self.format is not Format.table else ():
                op = "+" if change.sign > 0 else "-"
                if self.format is Format.csv:
                    self._csv.writerow([change.epoch, op, *change.row])
                else:
                    row = dict(zip(feed.columns, change.row, strict=True))
                    print(files.json_line({"epoch": change.epoch, "view": feed.name, "op": op, **row}))

    def _lines(self, feed: Changes, changes: list[Change], seconds: float) -> None:
        took = f"{seconds * 1000:.1f} ms" if seconds else "to begin with"
        out.print(Text.assemble((f"epoch {changes[0].epoch} ", "dim"), (feed.name, "bold"), (f"  {took}", "dim")))
        print_changes(out, changes, self.limit)


def print_changes(console: Console, changes: list[Change], limit: int) -> None:
    """Changes as lines, + green and - red, and how many were left out."""
    for change in changes[:limit]:
        mark, style = ("+", "green") if change.sign > 0 else ("-", "red")
        console.print(Text(f"  {mark} " + "  ".join(str(cell(v)) for v in change.row), style=style))
    if len(changes) > limit:
        console.print(Text(f"  … {len(changes) - limit:,} more", style="dim"))


@reported
def sql(
    program: Annotated[Path | None, typer.Argument(help="A script to run first.")] = None,
    command: Annotated[
        str | None, typer.Option("--command", "-c", help="Run this SQL, print its results, leave.")
    ] = None,
    format: Annotated[Format, typer.Option("--format", help="How results are printed.")] = Format.table,
    db: Db = None,
    read_only: ReadOnly = False,
    durability: Lasting = None,
    retain: Retain = None,
    functions: Functions = None,
) -> None:
    r"""Open an interactive SQL shell, or run SQL with -c.

    Statements may span lines and end with ; -- \q leaves, \d lists tables and views, \d NAME describes one.

    Examples:

        whence sql

        whence sql examples/network.sql -c "SELECT * FROM cheapest WHERE src = 'A'"

        echo "SELECT 1 + 1 AS two" | whence sql --format jsonl

        whence sql --db mydb

        whence sql --db mydb --read-only -c "SELECT COUNT(*) AS n FROM link"
    """
    with Choice(db, read_only, durability, retain, functions).open() as database:
        if program is not None:
            declare(database, program)
        if command is not None:
            shell.run_script(database, command, out, format.value)
        elif sys.stdin.isatty():
            shell.interact(database, out, err, format.value)
        else:
            shell.run_script(database, sys.stdin.read(), out, format.value)


@reported
def demo(
    name: Annotated[DemoName, typer.Argument(help="Which demonstration.")],
    limit: Annotated[int, typer.Option("--limit", min=0, help="Changes shown of a step.")] = 12,
) -> None:
    """Watch recursive views follow their tables: what a cut cable or a lost grant changes.

    Examples:

        whence demo network

        whence demo access
    """
    from whence.demo import DEMOS

    chosen = DEMOS[name.value]
    with whence.open() as db:
        out.rule(f"whence demo {chosen.name}")
        shell.print_sql(out, chosen.program.partition("\nINSERT")[0])
        start = time.perf_counter()
        db.execute(chosen.program)
        out.print(f"Tables filled, {len(db.views)} views up to date, in {(time.perf_counter() - start) * 1000:.0f} ms:")
        for view in chosen.views:
            out.print(grid(db[view].columns, sorted(db[view].rows)[:5], len(db[view]), view))
        feeds = [db.changes(view) for view in chosen.views]
        for step in chosen.steps:
            out.rule(style="dim")
            out.print(Text(step.title, style="bold"))
            shell.print_sql(out, step.sql)
            start = time.perf_counter()
            db.execute(step.sql)
            took = (time.perf_counter() - start) * 1000
            for feed in feeds:
                changes = sorted(feed, key=lambda c: (c.row, c.sign))
                gone = sum(c.sign < 0 for c in changes)
                out.print(Text.assemble((feed.name, "bold"), f": {gone} rows gone, {len(changes) - gone} rows new"))
                print_changes(out, changes, limit)
            out.print(Text(f"all views exact after {took:.1f} ms, epoch {db.epoch}", style="dim"))
