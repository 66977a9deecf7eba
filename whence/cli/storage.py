"""`whence info`, `check`, `backup`, `export` and `import`: a database as a folder of files."""

from __future__ import annotations

import dataclasses
import json
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.text import Text

import whence
from whence.cli.console import Bar, count_of, err, out, reported
from whence.cli.database_options import Folder, Functions, find_functions
from whence.model.errors import WhenceError
from whence.model.paths import local_path
from whence.model.sizes import in_bytes

if TYPE_CHECKING:
    from rich.table import Table

    from whence.runtime.durable.checking import Report
    from whence.state.info import Info


class Compression(StrEnum):
    zstd = "zstd"
    snappy = "snappy"
    gzip = "gzip"
    lz4 = "lz4"
    brotli = "brotli"
    none = "none"


class Shape(StrEnum):
    table = "table"
    json = "json"


@reported
def info(
    path: Folder,
    quick: Annotated[
        bool, typer.Option("--quick", help="Do not load the database: print no tables, views and row counts.")
    ] = False,
    functions: Functions = None,
    format: Annotated[Shape, typer.Option("--format", help="Output format.")] = Shape.table,
) -> None:
    """Print what a database holds, its size on disk and the writing process. Works beside a writer.

    Examples:

        whence info mydb

        whence info mydb --quick --format json
    """
    from whence.state.disk import Disk
    from whence.state.info import look

    path = local_path(path)
    with Bar(f"reading {path}") as bar:
        found = look(path, Disk(), bar)
    relations, why = ([], "") if quick else _relations(path, functions)
    if format is Shape.json:
        plain = dataclasses.asdict(found) | {"path": str(path), "disk_bytes": found.log_bytes + found.image_bytes}
        for kind in () if quick or why else ("table", "stream", "view"):
            plain[f"{kind}s"] = {name: rows for k, name, rows in relations if k == kind}
        print(json.dumps(plain))
    else:
        out.print(_described(found))
        if relations:
            table = _table("", "name", "rows")
            for kind, name, rows in relations:
                table.add_row(kind, Text(name), f"{rows:,}")
            out.print(table)
    if why:
        err.print(Text(f"tables and views are not known: {why}", style="yellow"), soft_wrap=True)


def _relations(path: Path, functions: str | None) -> tuple[list[tuple[str, str, int]], str]:
    """Return kind, name and row count of each table and view, or why they are not known."""
    setup = find_functions(functions)
    try:
        with Bar(f"opening {path}") as bar, whence.open(path, read_only=True, setup=setup, progress=bar) as db:
            tables, streams, views = db.tables, db.streams, db.views
            rows = [("table", name, len(db[name])) for name in tables]
            rows += [("stream", name, len(db[name])) for name in streams]
            return [*rows, *(("view", name, len(db[name])) for name in views)], ""
    except WhenceError as error:
        return [], f"{error} (views that call Python functions need --functions)"


def _described(found: Info) -> Table:
    from rich.table import Table

    table = Table(show_header=False, box=None, pad_edge=False)
    table.add_column(style="dim")
    table.add_column()
    image = "none yet" if found.image_epoch is None else f"epoch {found.image_epoch:,}, {_moment(found.image_time)}"
    lines = {
        "database": f"{found.path}, format {found.format}, made {found.created}",
        "epoch": f"{found.epoch:,}" + (f", {_moment(found.time)}" if found.time else ""),
        "retained": f"epochs {found.oldest:,} to {found.epoch:,} (retain {found.retain})",
        "last snapshot": f"{image}; {found.records:,} records, {in_bytes(found.tail_bytes)} of log after it",
        "log": f"{in_bytes(found.log_bytes)} in {count_of(found.segments, 'segment')}",
        "images": f"{in_bytes(found.image_bytes)} in {count_of(found.images, 'file')}",
        "words": f"{found.words:,} in the last snapshot, {found.words_forgotten:,} forgotten so far",
        "on disk": in_bytes(found.log_bytes + found.image_bytes),
        "written to by": found.writer or "nobody",
    }
    for name, status in lines.items():
        table.add_row(name, Text(status))
    return table


def _moment(micros: int | None) -> str:
    return datetime.fromtimestamp((micros or 0) / 1e6, UTC).isoformat(sep=" ", timespec="seconds")


def _table(*columns: str) -> Table:
    from rich.table import Table

    table = Table(box=None, header_style="dim", pad_edge=False)
    for column in columns:
        table.add_column(column, justify="right" if column in ("rows", "bytes", "records") else "left", overflow="fold")
    return table


@reported
def check(path: Folder, functions: Functions = None) -> None:
    """Read every file of a database and recompute every view; exit code 1 if something is wrong.

    Nothing is changed, and another process may write to the database meanwhile.

    Examples:

        whence check mydb

        whence check mydb --functions myapp.views:register
    """
    with Bar(f"checking {path}") as bar:
        report = whence.check(path, setup=find_functions(functions), progress=bar)
    if report.files:
        out.print(_files(report))
    if report.views:
        out.print(_views(report))
    _notes(report)
    for problem in report.problems:
        err.print(Text(f"problem: {problem}", style="red"), soft_wrap=True)
    if not report.ok:
        out.print(Text(f"{path}: {count_of(len(report.problems), 'problem')}", style="bold red"))
        raise typer.Exit(1)
    rows = sum(report.tables.values())
    size = in_bytes(sum(file.bytes for file in report.files))
    out.print(
        Text(
            f"{path}: all is well at epoch {report.epoch}: {count_of(len(report.files), 'file')} of {size}, "
            f"{count_of(len(report.tables), 'table')} of {count_of(rows, 'row')}, "
            f"{count_of(len(report.views), 'view')}",
            style="green",
        ),
        soft_wrap=True,
    )


def _files(report: Report) -> Table:
    table = _table("file", "kind", "bytes", "records", "")
    for file in report.files:
        name = str(file.path.relative_to(report.path) if file.path.is_relative_to(report.path) else file.path)
        status = "ok"
        if file.problem is not None:
            status = "not read" if file.problem.offset is None else f"damaged at {file.problem.offset}"
        records = "" if file.records is None else f"{file.records:,}"
        table.add_row(Text(name), file.kind, f"{file.bytes:,}", records, _verdict(status))
    return table


def _views(report: Report) -> Table:
    table = _table("view", "rows", "")
    for view in report.views:
        status = Text(f"not compared: {view.unknown}", style="dim") if view.unknown else None
        table.add_row(Text(view.name), f"{view.rows:,}", status or _verdict("ok" if view.ok else "differs"))
        for mark, style, rows in (("too many", "red", view.extra_rows), ("missing", "yellow", view.missing_rows)):
            for row in rows:
                table.add_row("", "", Text(f"{mark}: {row}", style=style))
    return table


def _verdict(status: str) -> Text:
    return Text(status, style="green" if status == "ok" else "red")


def _notes(report: Report) -> None:
    """Collect what is worth knowing and no problem."""
    from whence.state.check import is_unfinished

    if report.writer is not None:
        out.print(Text(f"written to by {report.writer}", style="dim"), soft_wrap=True)
    if report.torn is not None:
        path, offset, size = report.torn
        what = "is being written" if report.writer is not None else "was never acknowledged; opening cuts it off"
        out.print(
            Text(f"torn: {path}, offset {offset}: a record of which {size} bytes are there {what}", style="yellow")
        )
    for stray in report.strays:
        what = " (or is being made)" if report.writer is not None and is_unfinished(stray) else ""
        out.print(Text(f"stray: {stray} is no part of the database{what}", style="yellow"), soft_wrap=True)


@reported
def backup(
    path: Folder,
    to: Annotated[Path, typer.Argument(metavar="DEST", help="A folder that does not exist yet.")],
    checksums_only: Annotated[
        bool, typer.Option("--checksums-only", help="Compare the copy's checksums, but do not open it.")
    ] = False,
    functions: Functions = None,
) -> None:
    """Copy a database while it is in use, and verify the copy.

    The copy is a database of its own: open it where it is, or move it back.

    Examples:

        whence backup mydb /backups/mydb-monday

        whence backup mydb copy --functions myapp.views:register
    """
    with Bar(f"copying {path}") as bar:
        setup = find_functions(functions)
        done = whence.backup(path, to, setup=setup, checksums_only=checksums_only, progress=bar)
    epoch = "" if done.epoch is None else f"epoch {done.epoch:,}, "
    _done(f"{to}: {epoch}{count_of(done.files, 'file')}, {in_bytes(done.bytes)}")


@reported
def export(
    path: Folder,
    to: Annotated[Path, typer.Argument(metavar="OUT", help="A folder for the export.")],
    force: Annotated[bool, typer.Option("--force", help="Replace an existing export.")] = False,
    compression: Annotated[
        Compression, typer.Option("--parquet-compression", help="Compression of the Parquet files.")
    ] = Compression.zstd,
    functions: Functions = None,
) -> None:
    """Write the tables of a database as Parquet, and tables and views as SQL. Works beside a writer.

    OUT/schema.sql declares tables and views, OUT/tables has a Parquet file a table, OUT/export.json says what is what.

    Examples:

        whence export mydb out

        whence export mydb out --force --parquet-compression snappy
    """
    setup = find_functions(functions)
    with Bar(f"opening {path}") as bar, whence.open(path, read_only=True, setup=setup, progress=bar) as db:
        made = db.export(to, force=force, compression=compression.value, progress=bar)
    tables, views = count_of(len(made.tables), "table"), count_of(len(made.views), "view")
    _done(f"{to}: {tables} of {count_of(made.rows, 'row')}, {views}")


@reported
def import_(
    source: Annotated[Path, typer.Argument(metavar="OUT", help="The folder that whence export wrote.")],
    to: Annotated[Path, typer.Argument(metavar="DIR", help="The folder of a new database.")],
    retain: Annotated[
        str | None, typer.Option("--retain", metavar="HOW-MUCH", help="How much of the past to keep from now on.")
    ] = None,
    functions: Functions = None,
) -> None:
    """Make a database from an export. It appears when it is complete.

    Examples:

        whence import out mydb

        whence import out mydb --functions myapp.views:register
    """
    with Bar(f"reading {source}") as bar:
        made = whence.import_database(source, to, setup=find_functions(functions), retain=retain, progress=bar)
    rows = sum(made.tables.values())
    tables, views = count_of(len(made.tables), "table"), count_of(len(made.views), "view")
    _done(f"{to}: {tables} of {count_of(rows, 'row')}, {views}")


def _done(status: Any) -> None:
    out.print(Text(status, style="green"), soft_wrap=True)
