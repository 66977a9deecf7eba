"""`whence run`, `sql` and `demo`: run programs, in memory or in a folder."""

from __future__ import annotations

import sys
import time
from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.text import Text

import whence
from whence.cli.console import BadRecords, Format, err, out, reported
from whence.cli.database_options import (
    Choice,
    Db,
    Functions,
    Lasting,
    Master,
    Missing,
    MissingColumns,
    OnSpark,
    Params,
    Partitions,
    ReadOnly,
    Retain,
    declare,
    spark_session,
)
from whence.model.errors import WhenceError
from whence.model.paths import local_path


class DemoName(StrEnum):
    network = "network"
    access = "access"
    pipeline = "pipeline"


@reported
def run(
    program: Annotated[
        Path | None,
        typer.Argument(help="A script of CREATE TABLE and CREATE VIEW statements; optional with --db."),
    ] = None,
    source: Annotated[
        list[str] | None,
        typer.Option(
            "--source",
            "-s",
            metavar="TABLE=FILE",
            help="Updates of a table (.jsonl), or rows to insert (.csv, .parquet): a file, a folder, "
            "'folder/*.csv', or - for standard input (csv:- if it is CSV).",
        ),
    ] = None,
    view: Annotated[list[str] | None, typer.Option("--view", help="Show only these views (default: all).")] = None,
    batch: Annotated[
        int | None,
        typer.Option(
            "--batch",
            min=1,
            help="Lines per epoch (default: 1 of an update file, up to 10,000 of one that is followed or of standard "
            "input; of a folder, each file is an epoch).",
        ),
    ] = None,
    limit: Annotated[int, typer.Option("--limit", min=0, help="Rows to show per view, and changes per epoch.")] = 20,
    format: Annotated[Format, typer.Option("--format", help="Output format.")] = Format.table,
    db: Db = None,
    read_only: ReadOnly = False,
    durability: Lasting = None,
    retain: Retain = None,
    functions: Functions = None,
    spark: OnSpark = False,
    master: Master = None,
    partitions: Partitions = None,
    follow: Annotated[
        bool,
        typer.Option(
            "--follow", "-f", help="Go on with lines that are added to files, and files to folders, until Ctrl-C."
        ),
    ] = False,
    trigger: Annotated[
        str | None,
        typer.Option("--trigger", metavar="TIME", help="With --follow: how often to look, such as '1 second'."),
    ] = None,
    delay: Annotated[
        str | None,
        typer.Option(
            "--delay", metavar="TIME", help="How long lines wait for a --batch to become full (default: 200 ms)."
        ),
    ] = None,
    missing: Missing = MissingColumns.error,
    files_per_epoch: Annotated[
        int, typer.Option("--files-per-epoch", min=1, help="Files of a folder per epoch, oldest first.")
    ] = 1,
    on_error: Annotated[
        BadRecords,
        typer.Option(
            "--on-error",
            help="A record that does not fit: stop (fail), leave it out (skip), or write it to the table rejects.",
        ),
    ] = BadRecords.fail,
    op: Annotated[
        str | None,
        typer.Option("--op", metavar="COLUMN", help="The column that holds + or - (default: op in .jsonl)."),
    ] = None,
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

    Of a folder each file is taken in once, however often this is run with the same --db.
    With --follow also what comes later, to folders and to files, which are read like
    tail -F; - is standard input:

        whence run network.sql --db mydb -s link=incoming/ --follow

        whence run network.sql --db mydb -s link=links.jsonl -s 'site=sites/*.csv' --follow

        mosquitto_sub -t links | whence run network.sql -s link=- --format jsonl

    On Spark, which reads folders:

        whence run network.sql --spark --db mydb -s link=incoming/ --follow

        whence run network.sql --master local[2] --partitions 4 --db mydb -s 'link=incoming/*.csv' --op op
    """
    if program is None and db is None:
        raise typer.BadParameter("Missing argument: a script, or --db with the folder of a database")
    choice = Choice(db, read_only, durability, retain, functions, spark, master, partitions)
    if trigger is not None and not follow:
        raise typer.BadParameter("this says how often to look for more: give --follow, too", param_hint="--trigger")
    if follow and not source:
        raise typer.BadParameter("there is nothing to follow: give a --source", param_hint="--follow")

    from whence.cli import file_epochs, file_streams
    from whence.cli.change_printer import ChangePrinter
    from whence.io import rejects
    from whence.io.grid import Grid

    inputs = [file_epochs.parse_source(text) for text in source or []]
    folders = {}
    if choice.on_spark:
        found = {one: file_streams.find_folder(one.table, one.place) for one in inputs}
        folders = {one: folder for one, folder in found.items() if folder is not None}
        if follow and len(folders) < len(inputs):
            raise typer.BadParameter("Spark follows folders only: leave out --spark", param_hint="--follow")
    poll = file_epochs.parse_seconds(trigger, "--trigger", 0.2) if not choice.on_spark else 0.2
    patience = file_epochs.parse_seconds(delay, "--delay", 0.2)
    with choice.opened() as database:
        if program is not None:
            declare(database, program)
        names = [v.lower() for v in view] if view else database.views
        if format is Format.csv and len(names) != 1:
            raise typer.BadParameter("csv has one set of columns: name one --view", param_hint="--format")
        if on_error is BadRecords.reject:
            database.execute(f"CREATE TABLE IF NOT EXISTS {rejects.TABLE} {rejects.SCHEMA}")
        feeds = [database.changes(name, snapshot=True) for name in names]
        show = ChangePrinter(format, limit, feeds)
        show.epoch(0.0)
        records: dict[str, Any] = {"op": op, "on_error": rejects.check_choice(on_error), "missing": missing.value}
        files = [one for one in inputs if one.is_file and not follow]
        file_epochs.take_files(database, files, show.epoch, batch, **records)
        if others := [one for one in inputs if one not in files and one not in folders]:
            looks = {"poll": poll, "delay": patience, "batch": batch, "files_per_epoch": files_per_epoch}
            file_epochs.follow(database, others, show.epoch, follow, **looks, **records)
        for folder in folders.values():
            folder.attach(database, op, files_per_epoch, rejects.check_choice(on_error), missing.value)
        if folders:
            file_streams.stream(database, trigger if follow else "availableNow", show.epoch)
        if format is Format.table:
            for name in names:
                out.print(Grid(database[name].columns, database[name].rows[:limit], len(database[name]), name))


@reported
def sql(
    program: Annotated[Path | None, typer.Argument(help="A script to run first.")] = None,
    command: Annotated[
        str | None, typer.Option("--command", "-c", help="Run this SQL, print its results and exit.")
    ] = None,
    param: Params = None,
    format: Annotated[Format, typer.Option("--format", help="Output format.")] = Format.table,
    db: Db = None,
    read_only: ReadOnly = False,
    durability: Lasting = None,
    retain: Retain = None,
    functions: Functions = None,
    spark: OnSpark = False,
    master: Master = None,
    partitions: Partitions = None,
) -> None:
    r"""Open an interactive SQL shell, or run SQL with -c.

    Statements may span lines and end with ; -- Tab completes, help lists the commands (\d lists tables and views,
    \copy reads and writes files), exit leaves. SQL on standard input runs without prompts.

    Examples:

        whence sql

        whence sql examples/network.sql -c "SELECT * FROM cheapest WHERE src = 'A'"

        whence sql examples/network.sql -p src=A -c "SELECT * FROM cheapest WHERE src = :src"

        echo "SELECT 1 + 1 AS two" | whence sql --format jsonl

        whence sql --db mydb

        whence sql --db mydb --read-only -c "SELECT COUNT(*) AS n FROM link"

        whence sql --db mydb --spark
    """
    from whence.cli import shell
    from whence.cli.variables import read_params

    params = read_params(param)
    with Choice(db, read_only, durability, retain, functions, spark, master, partitions).opened() as database:
        if program is not None:
            declare(database, program)
        if command is not None:
            shell.run_script(database, command, out, format.value, params)
        elif sys.stdin.isatty():
            shell.interact(database, out, err, format.value, params)
        else:
            shell.run_input(database, sys.stdin.read(), out, format.value, params)


@reported
def demo(
    name: Annotated[DemoName, typer.Argument(help="Name of the demo.")],
    limit: Annotated[int, typer.Option("--limit", min=0, help="Changes to show per step.")] = 12,
    master: Annotated[str, typer.Option("--master", metavar="MASTER", help="pipeline: where Spark runs.")] = "local[2]",
    partitions: Annotated[
        int, typer.Option("--partitions", min=1, max=100, help="pipeline: number of partitions.")
    ] = 2,
    quick: Annotated[bool, typer.Option("--quick", help="pipeline: fewer changes, faster.")] = False,
    keep: Annotated[
        Path | None, typer.Option("--keep", metavar="DIR", help="pipeline: keep all files in this folder.")
    ] = None,
) -> None:
    """Show how recursive views change when a cable is cut or a grant is lost.

    network and access run in this process. pipeline runs on Spark: it streams a network's links from files as they
    appear, cuts a bridge, is restarted from its checkpoint, and checks itself in the end.

    Examples:

        whence demo network

        whence demo access

        whence demo pipeline
    """
    from whence.cli import shell
    from whence.cli.change_printer import print_changes
    from whence.cli.demo import DEMOS
    from whence.io.grid import Grid

    if name is DemoName.pipeline:
        _pipeline(master, partitions, quick, keep)
        return
    chosen = DEMOS[name.value]
    with whence.open() as db:
        out.rule(f"whence demo {chosen.name}")
        shell.print_sql(out, chosen.program.partition("\nINSERT")[0])
        start = time.perf_counter()
        db.execute(chosen.program)
        out.print(f"Tables filled, {len(db.views)} views up to date, in {(time.perf_counter() - start) * 1000:.0f} ms:")
        for view in chosen.views:
            out.print(Grid(db[view].columns, sorted(db[view].rows)[:5], len(db[view]), view))
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


def _pipeline(master: str, partitions: int, quick: bool, keep: Path | None) -> None:
    from whence.cli import shell
    from whence.cli.demo import pipeline

    setting = pipeline.Setting(partitions, keep=None if keep is None else local_path(keep))
    if quick:
        setting = replace(setting, changes=6, pause=0.1)
    start = time.perf_counter()
    out.rule("whence demo pipeline")
    shell.print_sql(out, pipeline.program())
    with spark_session(master) as spark:
        out.print(Text(f"Spark {spark.version} runs in {spark.sparkContext.master}", style="dim"))
        right = pipeline.run(out, spark, setting)
    out.print(Text(f"{time.perf_counter() - start:.0f} s in all", style="dim"))
    if not right:
        raise WhenceError("the views are not what they should be: this is a bug in Whence, please report it")
