"""Folders of files as Spark streams, for `whence run --spark`: each file is read once, whenever it appears."""

from __future__ import annotations

import csv
import signal
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.status import Status

import whence
from whence.cli import epoch_lines
from whence.cli.console import count_of, err
from whence.io import files
from whence.io.rejects import OnError
from whence.io.rows import Missing
from whence.model.errors import DataError
from whence.model.paths import local_path
from whence.model.types import Schema

_LOOK = 0.1  # seconds between two looks
_NOTHING = "\0"  # what no cell of a CSV file says


@dataclass(frozen=True)
class SparkFolder:
    """Files of one kind for a table; of those in the folder, the ones whose names match."""

    table: str
    path: Path
    pattern: str
    format: str

    def attach(
        self, db: whence.Database, op: str | None, files_per_epoch: int, on_error: OnError, missing: Missing
    ) -> None:
        """Make its files a source of the table."""
        schema = db[self.table].schema
        if op is None and self.format == "jsonl" and "op" not in schema.names:
            op = "op"
        reader = whence.spark_session().readStream.option("maxFilesPerTrigger", files_per_epoch)
        if self.pattern:
            reader = reader.option("pathGlobFilter", self.pattern)
        place = str(self.path.absolute())
        if self.format == "csv":
            reader = reader.option("header", True).option("enforceSchema", False).option("escape", '"')
            reader = reader.option("nullValue", _NOTHING)  # so that "" is not NULL
            df = reader.schema(_texts(self._header(schema, op))).csv(place)
        elif self.format == "jsonl":
            df = reader.text(place)
        else:
            df = reader.schema(self._columns(schema, op)).parquet(place)
        format = "json" if self.format == "jsonl" else None
        db.attach(self.table, df, op=op, on_error=on_error, format=format, missing=missing)

    def _header(self, schema: Schema, op: str | None) -> list[str]:
        """Return the columns of a CSV file, in order: as the first file has them, or else as the table."""
        path = self._first()
        if path is None:
            return [*schema.names, *([op] if op is not None else [])]
        try:
            with path.open(encoding="utf-8", newline="") as file:
                return next(csv.reader(file), [])
        except (OSError, UnicodeDecodeError, csv.Error) as error:
            raise DataError(f"{path}: {error}") from None

    def _columns(self, schema: Schema, op: str | None) -> Any:
        """Return the columns of Parquet files with their types: as the first file has them, or else as the table."""
        from whence.runtime.spark.session.errors import jvm_errors

        path = self._first()
        if path is None:
            return _typed(schema, op)
        with jvm_errors(f"reading {path}"):
            return whence.spark_session().read.parquet(str(path.absolute())).schema

    def _first(self) -> Path | None:
        """Return the first of the files that are there."""
        paths = (p for p in sorted(self.path.glob(self.pattern or "*")) if p.is_file())
        return next((path for path in paths if not path.name.startswith((".", "_"))), None)


def find_folder(table: str, text: str) -> SparkFolder | None:
    """Find the folder that a source names: `incoming`, where the names of files imply the format, or
    `incoming/*.csv`."""
    path = local_path(text)
    if "*" in path.name:
        return SparkFolder(table, path.parent, path.name, files.format_of(text))
    if not path.is_dir():
        return None
    names = [p.name for p in path.iterdir() if p.is_file() and not p.name.startswith((".", "_"))]
    formats = {files.format_of(path / name) for name in names}
    if len(formats) != 1:
        reason = "no file yet" if not formats else f"files of several kinds ({', '.join(sorted(formats))})"
        raise DataError(f"{path} has {reason}: say which to read, such as {table}={path}/*.jsonl")
    return SparkFolder(table, path, "", formats.pop())


def stream(db: whence.Database, trigger: str | None, show: Callable[[float], None]) -> None:
    """Take in what the attached folders have, showing each epoch; without an end, until Ctrl-C."""
    since, count, rows = db.epoch, 0, 0
    running = db.start(trigger=trigger)
    epochs = epoch_lines.EpochWatcher(running, since)
    status = Status("waiting for files", console=err) if err.is_terminal else None
    if status is not None:
        status.start()
    enough = threading.Event()
    main = threading.current_thread() is threading.main_thread()
    if main:  # an interrupt in the middle of a call to Java would be reported at length
        former = signal.signal(signal.SIGINT, lambda *_: enough.set())
    try:
        ended = False
        while not ended and not enough.is_set():
            ended = bool(running.awaitTermination(_LOOK))
            for epoch in epochs.fresh():
                count, rows = count + 1, rows + epoch["rows"]
                if status is not None:
                    status.update(epoch_lines.line(epoch))
                show(epoch["seconds"])
    except KeyboardInterrupt:
        pass
    finally:
        if main:
            signal.signal(signal.SIGINT, former or signal.default_int_handler)
        running.stop()
        if status is not None:
            status.stop()
    show(0.0)
    done = f"{count_of(count, 'epoch')}, {count_of(rows, 'row')} taken in; now at epoch {db.epoch}"
    err.print(done, style="dim", soft_wrap=True)


def _texts(names: list[str]) -> Any:
    from pyspark.sql import types as T  # noqa: N812 - as everybody calls it

    return T.StructType([T.StructField(name, T.StringType()) for name in names])


def _typed(schema: Schema, op: str | None) -> Any:
    from pyspark.sql import types as T  # noqa: N812

    from whence.runtime.spark.frames.frames import spark_schema

    columns = spark_schema(schema)
    return columns if op is None else columns.add(op, T.StringType())
