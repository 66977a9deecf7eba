"""Rows of a DataFrame to the partitions they belong to: one Spark job, in which each task encodes and routes its own.

The law: the parts that `route_frame` gives hold exactly the rows that the DataFrame had in the one attempt of each task
that Spark counted, in the order of Spark's partitions and in theirs within one. A task with few rows gives them back as
they are, so that a small epoch touches no file. One with many writes files that only what it returns makes known; their
names are of the attempt and of this call, so a task that was retried, or run twice, meets nobody.

A task holds at most a section of rows (`section_rows`) in memory. What fails on a row fails the job, as an error of
ours; then the files of this call are removed. A task that is killed while it writes may leave a file behind that nobody
knows; opening the database removes it.
"""

from __future__ import annotations

import json
import re
import secrets
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from whence.connect import rows as rows_
from whence.engine.epoch import Piece
from whence.engine.kernels.routing import route, split
from whence.errors import DataError, StorageError
from whence.model.codes import Codes, Dictionary
from whence.model.types import Schema
from whence.runtime.spark.words import Address, RemoteDictionary
from whence.state.disk import Disk
from whence.state.inputs import write_input
from whence.state.manifest import INPUTS

if TYPE_CHECKING:
    from whence.plan.distribute import Dist

SMALL = 2_000
"""Rows up to which a task gives them back in place of writing a file."""

SECTION = 1_000_000
"""Rows that a task holds in memory before it writes them."""

EVERY = -1
"""The partition of a piece that goes to all of them."""

_CELLS = 1_000_000  # of a batch that Spark hands over: tens of thousands of rows are handled much faster than 10,000
_BATCH = "spark.sql.execution.arrow.maxRecordsPerBatch"
_BYTES = "spark.sql.execution.arrow.maxBytesPerBatch"
_ANY = str(2**31 - 1)  # the one value with which Spark does not add up the bytes after every single row
_RESULT = "partition int, number int, kind string, skipped bigint, data binary"
_SCHEMA = pa.schema(
    [
        ("partition", pa.int32()),
        ("number", pa.int32()),
        ("kind", pa.string()),
        ("skipped", pa.int64()),
        ("data", pa.binary()),
    ]
)


@dataclass(frozen=True)
class Routing:
    """Everything that a task needs to know to encode and route rows of a table."""

    partitions: int
    tables: dict[str, tuple[Schema, Dist]]
    words: Address
    folder: str  # of the database
    nonce: str  # of the driver: no other ever has the same
    streams: frozenset[str] = frozenset()  # the tables that are streams


@dataclass(frozen=True)
class RawRows:
    """Rows with their signs, in the order in which they came."""

    rows: Codes
    signs: Codes


Part = RawRows | Piece


@dataclass(frozen=True)
class Section:
    """Parts that belong into one epoch: rows of one task, of which those of one partition are in one part."""

    rows: int
    parts: tuple[Part, ...]


@dataclass(frozen=True)
class Routed:
    """The rows of a DataFrame."""

    sections: tuple[Section, ...]
    skipped: int = 0  # rows that were to be passed over

    @property
    def rows(self) -> int:
        return sum(section.rows for section in self.sections)

    @property
    def parts(self) -> list[Part]:
        return [part for section in self.sections for part in section.parts]


def route_frame(
    df: Any,
    table: str,
    routing: Routing,
    dictionary: Dictionary,
    *,
    op: str | None = None,
    sign: int = 1,
    keyed: bool = False,
    strict: bool = False,
    small_rows: int = SMALL,
    section_rows: int = SECTION,
) -> Routed:
    """Route the rows of a batch DataFrame, in one job.

    dictionary    the driver's; rows of small tasks are encoded here
    op            the column that says whether a row comes or goes; without one all have `sign`
    keyed         whether the table has a primary key, so that an update needs no old row
    strict        whether columns that the table does not have are an error
    """
    from whence.runtime.spark import columns

    schema, _ = routing.tables[table]
    fields = df.schema.fields
    chosen = columns.table_columns(fields, schema, table, [op or ""] if strict else ())
    if op is not None:
        chosen.append(columns.sign(op, fields, table, keyed))
    call = f"{routing.nonce}.{secrets.token_hex(4)}"
    task = Task(table, schema, routing, op is not None, sign, max(small_rows, 0), max(section_rows, 1), call)
    try:
        with _errors(f"reading rows for {table}"), _in_batches(df.sparkSession, schema):
            found = df.select(*chosen).mapInArrow(task, _RESULT).collect()
        sections, skipped = [], 0
        for row in sorted(found):
            section, passed = task.section(row.kind, row.data, dictionary)
            skipped += row.skipped + passed
            if section.rows:
                sections.append(section)
        if any(row.kind == "pieces" for row in found):
            _tidy(task, {part.file for section in sections for part in section.parts if isinstance(part, Piece)})
        return Routed(tuple(sections), skipped)
    except BaseException:
        with suppress(StorageError):
            _tidy(task, set())
        raise


@contextmanager
def _errors(what: str) -> Iterator[None]:
    """Spark's errors as ours, those that our SQL expressions raise with them."""
    from pyspark.errors import PySparkException

    from whence.runtime.spark.columns import raised_in_sql
    from whence.runtime.spark.errors import jvm_errors

    with jvm_errors(what):
        try:
            yield
        except PySparkException as error:
            ours = raised_in_sql(error)
            if ours is None:
                raise
            raise ours from error


@contextmanager
def _in_batches(spark: Any, schema: Schema) -> Iterator[None]:
    """Let Spark hand over large batches, unless the user has said how large; their bytes need no bound of their own
    where all rows are equally long."""
    wanted, rows = {}, int(spark.conf.get(_BATCH))
    if rows == 10_000:
        wanted[_BATCH] = str(max(_CELLS // max(len(schema), 10), 1000))
    if rows > 0 and not any(type.is_interned for type in schema.types):
        wanted[_BYTES] = _ANY
    before = {name: spark.conf.get(name, None) for name in wanted}
    for name, value in wanted.items():
        spark.conf.set(name, value)
    try:
        yield
    finally:
        with suppress(Exception):  # Spark may have ended
            for name, value in before.items():
                if value is None:
                    spark.conf.unset(name)
                else:
                    spark.conf.set(name, value)


def _tidy(task: Task, keep: set[str]) -> None:
    """Remove the files of attempts that do not count."""
    folder, disk = task.folder, Disk()
    for name in disk.names(folder):
        if task.call in name and name not in keep:
            disk.remove(folder / name)


@dataclass(frozen=True)
class Task:
    """What a task does: called by Spark in a worker with its batches, it yields what becomes of them."""

    table: str
    schema: Schema
    routing: Routing
    signed: bool  # whether the last column is the sign
    sign: int
    small: int
    section_rows: int
    call: str

    @property
    def folder(self) -> Path:
        return Path(self.routing.folder) / INPUTS

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        held: list[pa.RecordBatch] = []
        rows = number = 0
        for batch in batches:
            while rows + batch.num_rows > self.section_rows:
                room = self.section_rows - rows
                yield self._write([*held, batch.slice(0, room)], number)
                held, rows, number, batch = [], 0, number + 1, batch.slice(room)
            held.append(batch)
            rows += batch.num_rows
        if rows and not number and rows <= self.small:
            yield _result(self._partition(), 0, "rows", 0, _pack(held))
        elif rows:
            yield self._write(held, number)

    def _partition(self) -> int:
        from pyspark import TaskContext

        context = TaskContext.get()
        return context.partitionId() if context is not None else 0

    def _write(self, batches: list[pa.RecordBatch], number: int) -> pa.RecordBatch:
        """Encode, route and write rows; the pieces."""
        from pyspark import TaskContext

        context = TaskContext.get()
        partition, attempt = (context.partitionId(), context.taskAttemptId()) if context is not None else (0, 0)
        rows, signs, skipped = self.encode(batches, _words(self.routing.words))
        if self.table in self.routing.streams:
            rows = counted(rows)
        label = re.sub(r"\W", "_", self.table)[:40]
        path = self.folder / f"{label}-{partition}-{attempt}-{number}-{self.call}.in"
        pieces = write_input(Disk(), path, by_partition(self.table, self.routing, rows, signs)) if len(rows) else []
        said = json.dumps([astuple(piece) for piece in pieces]).encode()
        return _result(partition, number, "pieces", skipped, said)

    def encode(self, batches: Sequence[pa.RecordBatch], dictionary: Dictionary) -> tuple[Codes, Codes, int]:
        """Rows and signs, and how many were passed over."""
        codes, signs, width = [], [], len(self.schema)
        for batch in batches:
            data = pa.Table.from_batches([batch])
            codes.append(rows_.encode(data.select(range(width)), self.schema, dictionary, self.table))
            signs.append(batch.column(width).to_numpy() if self.signed else np.full(len(batch), self.sign, np.int8))
        rows, sign = _joined(codes), _joined(signs)
        skipped = int((sign == 0).sum()) if self.signed else 0
        if skipped:
            rows, sign = rows[sign != 0], sign[sign != 0]
        if self.table in self.routing.streams and (sign < 0).any():
            raise DataError(f"{self.table} is a stream: rows are only ever appended, and none may be said to go")
        if any(not column.nullable for column in self.schema.columns):
            rows_.check_not_null(rows[sign > 0], self.schema, self.table)
        return rows, sign.astype(np.int64), skipped

    def section(self, kind: str, data: bytes, dictionary: Dictionary) -> tuple[Section, int]:
        """In the driver, what a task has returned, and how many of its rows were passed over here."""
        if kind == "rows":
            rows, signs, skipped = self.encode(pa.ipc.open_stream(data).read_all().to_batches(), dictionary)
            return Section(len(rows), (RawRows(rows, signs),)), skipped
        pieces = tuple(Piece(*fields) for fields in json.loads(data))
        return Section(sum(piece.rows for piece in pieces), pieces), 0


def counted(rows: Codes) -> Codes:
    """Rows of a stream with one more column, which counts them; they arrive in that order (`Piece.at`)."""
    out = np.empty((len(rows), rows.shape[1] + 1), np.int64)
    out[:, :-1] = rows
    out[:, -1] = np.arange(len(rows))
    return out


def by_partition(table: str, routing: Routing, rows: Codes, signs: Codes) -> list[tuple[str, int, Codes, Codes]]:
    """The rows of a table by their partition, in their order, as `write_input` takes them."""
    schema, dist = routing.tables[table]
    if dist.kind == "all":
        return [(table, EVERY, rows, signs)]
    if dist.kind == "one" or routing.partitions == 1:
        return [(table, 0, rows, signs)]
    cols = np.array(dist.cols if dist.kind == "hash" else range(len(schema)), np.int64)
    order, starts = split(route(rows, cols, routing.partitions), routing.partitions)
    mixed = bool(len(signs)) and bool((signs != signs[0]).any())
    out = []
    for partition in np.flatnonzero(np.diff(starts)).tolist():
        mine = order[starts[partition] : starts[partition + 1]]
        out.append((table, partition, rows.take(mine, 0), signs.take(mine) if mixed else signs[: len(mine)]))
    return out


def _joined(arrays: list[Any]) -> Any:
    return arrays[0] if len(arrays) == 1 else np.concatenate(arrays)


def _pack(batches: Sequence[pa.RecordBatch]) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batches[0].schema) as writer:
        for batch in batches:
            writer.write_batch(batch)
    return bytes(sink.getvalue())


def _result(partition: int, number: int, kind: str, skipped: int, data: bytes) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays(
        [
            pa.array([value], field.type)
            for value, field in zip((partition, number, kind, skipped, data), _SCHEMA, strict=True)
        ],
        schema=_SCHEMA,
    )


_KNOWN: dict[Address, RemoteDictionary] = {}


def _words(address: Address) -> RemoteDictionary:
    """The words of a database, kept as long as this worker lives. Rows without text never ask the driver."""
    if address not in _KNOWN:
        if len(_KNOWN) >= 4:  # databases that one worker has met; the words of one may be many
            _KNOWN.clear()
        _KNOWN[address] = RemoteDictionary(address)
    return _KNOWN[address]
