"""The files that `whence run --source` names, as epochs."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import typer
from rich.text import Text

import whence
from whence.cli.console import BadRecords, err
from whence.cli.file_streams import FollowedFolder, find_folder
from whence.connect import files, rejects
from whence.connect import rows as rows_
from whence.connect.files import Reject
from whence.connect.rejects import OnError, check_choice
from whence.model.errors import DataError
from whence.model.paths import local_path


def find_source(text: str) -> tuple[str, Path] | FollowedFolder:
    table, found, path = text.partition("=")
    if not found or not table or not path:
        raise typer.BadParameter(f"{text!r} is not TABLE=FILE", param_hint="--source")
    table = table.strip().lower()
    folder = find_folder(table, path)
    if folder is not None:
        return folder
    files.format_of(path)
    return table, local_path(path)


def epochs(
    db: whence.Database, table: str, path: Path, batch: int, on_error: BadRecords, missing: rows_.Missing
) -> Iterator[Callable[[], None]]:
    """Return what to do in each epoch that a file makes."""
    schema = db[table].schema
    if files.format_of(path) == "jsonl":
        fails = on_error is BadRecords.fail
        refused: list[Reject] = []
        keyed = bool(db._coordinator.table_of(table).key)
        for updates in files.read_updates(path, batch, None if fails else refused.append, keyed):
            yield functools.partial(_apply, db, table, path, updates, on_error, refused, missing)
        if refused:
            yield functools.partial(_apply, db, table, path, [], on_error, refused, missing)
    elif on_error is BadRecords.fail:
        for part in files.read(path, schema, missing=missing):
            yield functools.partial(_insert, db, table, part, missing)
    else:
        yield functools.partial(_insert, db, table, path, missing, on_error=check_choice(on_error))


def _insert(db: whence.Database, table: str, rows: Any, missing: rows_.Missing, on_error: OnError = "fail") -> None:
    db.insert(table, rows, on_error=on_error, missing=missing)


def _apply(
    db: whence.Database,
    table: str,
    path: Path,
    updates: list[files.UpdateLine],
    on_error: BadRecords,
    refused: list[Reject],
    missing: rows_.Missing,
) -> None:
    """Carry out updates in one epoch; `refused` has what of the file could not be read since the last one."""
    schema = db[table].schema
    with db.transaction():
        for update in updates:
            try:
                row = files.prepare(update.row, schema)
                if update.sign > 0:
                    db.insert(table, [row], missing=missing)
                elif not db.delete(table, [row]):
                    err.print(
                        Text(f"{path}, line {update.line}: no such row to delete", style="yellow"), soft_wrap=True
                    )
            except DataError as error:
                if on_error is BadRecords.fail:
                    reason = str(error).replace(", row 1", "", 1)
                    raise DataError(f"{path}, line {update.line}: {reason}") from None
                record = rejects.record_of(update.row)
                refused.append(Reject(str(path), update.line, rejects.reason(error, table), record))
        if on_error is BadRecords.reject and refused:
            db.insert(rejects.TABLE, rejects.as_rows(refused, table, None))
    done = "skipped" if on_error is BadRecords.skip else "rejected"
    for reject in refused:
        err.print(Text(f"{path}, line {reject.line}: {done}: {reject.reason}", style="yellow"), soft_wrap=True)
    refused.clear()
