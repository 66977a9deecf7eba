"""Route rows of a DataFrame to their partitions: one Spark job, in which each task encodes and routes its own rows.

The law: the parts that `route_frame` gives hold exactly the rows that the DataFrame had in the one attempt of each task
that Spark counted, in the order of Spark's partitions and in theirs within one. A task with few rows gives them back as
they are, so that a small epoch touches no file. One with many writes files that only what it returns makes known; their
names are of the attempt and of this call, so a task that was retried, or run twice, overwrites nothing.

A DataFrame that Spark estimates to be tiny is not worth a Python worker: Spark hands its rows to the driver as Arrow,
which treats them as those of a task with few rows. If they turn out not to be few, they are routed as all others are.

A task holds at most a section of rows (`section_rows`) in memory. What fails on a row fails the job, as an error of
ours; then the files of this call are removed. A task that is killed while it writes may leave a file behind that no
process knows; opening the database removes it.
"""

from __future__ import annotations

import json
import re
import secrets
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import astuple, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from whence.engine.core.epoch import InputSection
from whence.engine.core.operator import Batch
from whence.engine.exchange.kernels.routing import route, split
from whence.io import files
from whence.io import rows as rows_
from whence.io.files import Reject
from whence.io.reading import UnreadableError, read_texts
from whence.io.rejects import LONGEST, MOST, OnError, isolate, reason, record_of, too_many
from whence.model.codes import Codes, Dictionary
from whence.model.errors import DataError, StorageError
from whence.model.types import Kind, Schema
from whence.plan.algebra.program import Table
from whence.runtime.spark.worker.connections import Address
from whence.runtime.spark.worker.dictionary_server import RemoteDictionary
from whence.runtime.writing.promise_guard import PromiseGuard
from whence.state.disk import Disk
from whence.state.inputs import write_input
from whence.state.manifest import INPUTS

if TYPE_CHECKING:
    from whence.plan.partitions.distribute import Distribution

SMALL = 2_000
"""Rows up to which a task gives them back in place of writing a file."""

_TINY = 64 << 10  # bytes by Spark's estimate, of files as they are stored

SECTION = 1_000_000
"""Rows that a task holds in memory before it writes them."""

EVERY = -1
"""The partition of a piece that goes to all of them."""

_CELLS = 1_000_000  # of a batch that Spark hands over: tens of thousands of rows are handled much faster than 10,000
_BATCH = "spark.sql.execution.arrow.maxRecordsPerBatch"
_BYTES = "spark.sql.execution.arrow.maxBytesPerBatch"
_ANY = str(2**31 - 1)  # the one value with which Spark does not add up the bytes after every single row
_RESULT = "partition int, number int, kind string, skipped bigint, rejects binary, data binary"
_SCHEMA = pa.schema(
    [
        ("partition", pa.int32()),
        ("number", pa.int32()),
        ("kind", pa.string()),
        ("skipped", pa.int64()),
        ("rejects", pa.binary()),
        ("data", pa.binary()),
    ]
)


@dataclass(frozen=True)
class Routing:
    """The settings that a task needs to encode and route rows of a table."""

    partitions: int
    tables: dict[str, tuple[Schema, Distribution]]
    words: Address
    folder: str  # of the database
    nonce: str  # of the driver: no other ever has the same
    streams: frozenset[str] = frozenset()  # the tables that are streams
    checked: Mapping[str, Table] = field(default_factory=dict)  # the tables with a CHECK


Part = Batch | InputSection
"""Rows with their signs, in the order in which they came: here, or in a file."""


@dataclass(frozen=True)
class Section:
    """Parts that belong into one epoch: rows of one task, of which those of one partition are in one part."""

    rows: int
    parts: tuple[Part, ...]


@dataclass(frozen=True)
class Routed:
    """The rows of a DataFrame."""

    sections: tuple[Section, ...]
    skipped: int = 0  # records that do not fit
    rejects: tuple[Reject, ...] = ()  # these records, if they are to be kept

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
    order_by: Sequence[str] = (),
    on_error: OnError = "fail",
    json: JsonLines | None = None,
    small_rows: int = SMALL,
    section_rows: int = SECTION,
) -> Routed:
    """Route the rows of a batch DataFrame, in one job.

    dictionary    the driver's; rows of small tasks are encoded here
    op            the column that says whether a row comes or goes; without one all have `sign`
    keyed         whether the table has a primary key, so that an update needs no old row
    strict        whether columns that the table does not have are an error
    order_by      columns by which the rows are put in order first
    on_error      what becomes of a record that does not fit
    json          how its column `value`, lines of JSON, becomes rows; `op` is then one of their members
    """
    schema, _ = routing.tables[table]
    call = f"{routing.nonce}.{secrets.token_hex(4)}"
    task = Task(
        table,
        schema,
        routing,
        op is not None,
        sign,
        max(small_rows, 0),
        max(section_rows, 1),
        call,
        on_error,
        json,
    )
    try:
        with _errors(f"reading rows for {table}"), _in_batches(df.sparkSession, schema):
            if json is not None:
                chosen = _lines(df, on_error)
            else:
                chosen = prepared(df, table, schema, op, keyed, strict, order_by, on_error)
            few = _collected(chosen, schema, task.small)
            if few is not None:
                section, skipped, refused = task.section("rows", few, dictionary)
                return Routed((section,) if section.rows else (), skipped, tuple(refused))
            found = chosen.mapInArrow(task, _RESULT).collect()
        sections, skipped, rejects = [], 0, []
        for row in sorted(found, key=lambda row: (row.partition, row.number)):
            section, passed, refused = task.section(row.kind, row.data, dictionary)
            skipped += row.skipped + passed
            rejects += [*_unpacked(row.rejects), *refused]
            if section.rows:
                sections.append(section)
        if len(rejects) > MOST:
            raise too_many()
        if any(row.kind == "pieces" for row in found):
            _tidy(task, {part.file for section in sections for part in section.parts if isinstance(part, InputSection)})
        return Routed(tuple(sections), skipped, tuple(rejects))
    except BaseException:
        with suppress(StorageError):
            _tidy(task, set())
        raise


def _collected(chosen: Any, schema: Schema, most: int) -> bytes | None:
    """Return the rows of a DataFrame as a task with few rows does, if Spark estimates that they are few and they are
    at most so many."""
    if not most or any(type.kind is Kind.INTERVAL for type in schema.types):  # which Spark does not collect as Arrow
        return None
    if int(str(chosen._jdf.queryExecution().optimizedPlan().stats().sizeInBytes())) > _TINY:
        return None
    rows = chosen.toArrow()
    return _pack(rows.to_batches(), rows.schema) if rows.num_rows <= most else None


def prepared(
    df: Any,
    table: str,
    schema: Schema,
    op: str | None,
    keyed: bool,
    strict: bool,
    order_by: Sequence[str],
    on_error: OnError,
) -> Any:
    """Return the DataFrame with the table's columns, in their types and order; then the sign, if there is `op`; then,
    unless bad records are to fail, what is wrong with a record, its text and its file."""
    from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

    from whence.runtime.spark.frames import columns

    faults, given = columns.Faults(raising=on_error == "fail"), df.schema.fields
    names, extra = [field.name for field in given], []
    if order_by or not faults.raising:
        df = df.withColumn(columns.FILE, F.input_file_name())  # before the rows are moved
    if order_by:
        df = df.orderBy(*order_by)
    corrupt = columns.corrupt_record(names, schema)
    unreadable = columns.unreadable(corrupt, table) if corrupt is not None else None
    if unreadable is not None and not faults.raising:
        faults.add(unreadable)
    if columns.FAULT in names:  # found by `debezium.read`
        faults.add(F.col(columns.FAULT))
    chosen = columns.table_columns(given, schema, table, faults, [op or ""] if strict else ())
    if unreadable is not None and faults.raising:
        chosen[0] = faults.unless(unreadable.isNotNull(), unreadable, chosen[0]).alias(schema.names[0])
    if op is not None:
        chosen.append(columns.sign(op, given, table, keyed, faults))
    if not faults.raising:
        fault = faults.column()
        text = F.col(columns.RECORD) if columns.RECORD in names else columns.shown_record(given, corrupt)
        extra = [fault, F.when(fault.isNotNull(), text).alias(columns.RECORD), columns.FILE]
    return df.select(*chosen, *extra)


def _lines(df: Any, on_error: OnError) -> Any:
    """Return the lines of a DataFrame as `Task` takes them, with their files unless bad ones are to fail."""
    from pyspark.sql import functions as F  # noqa: N812

    from whence.runtime.spark.frames.columns import FAULT, FILE, RECORD

    text = F.col("value").cast("string").alias("value")
    if on_error == "fail":
        return df.select(text)
    none = F.lit(None).cast("string")  # a line that is no row is found when it is read
    return df.select(text, none.alias(FAULT), none.alias(RECORD), F.input_file_name().alias(FILE))


@dataclass(frozen=True)
class JsonLines:
    """The conversion of lines of JSON to rows, as in files that are read without Spark."""

    op: str | None  # the member that says whether a row comes or goes
    keyed: bool
    missing: rows_.Missing = "error"  # members that a row to insert does not have

    def encode(self, texts: list[str], schema: Schema, dictionary: Dictionary, table: str) -> tuple[Codes, Codes]:
        """Encode the rows of the lines; return codes and signs. The DataError of a line that is no row shows it."""
        try:
            return self._encode(texts, schema, dictionary, table)
        except DataError:
            for text in texts:
                try:
                    self._encode([text], schema, dictionary, table)
                except DataError as error:
                    raise DataError(f"table {table}: {reason(error, table)} in {text:.200}") from None
            raise

    def _encode(self, texts: list[str], schema: Schema, dictionary: Dictionary, table: str) -> tuple[Codes, Codes]:
        found = [files.signed(files.parse_object(text), self.op, self.keyed) for text in texts]
        signs = np.array([sign for sign, _ in found], np.int64)
        codes = np.empty((len(found), len(schema)), np.int64)
        for sign in (1, -1):
            rows = [files.prepare(row, schema) for own, row in found if own == sign]
            lacking = self.missing if sign > 0 or not self.keyed else "null"  # to delete a key is enough
            if rows:
                codes[signs == sign] = rows_.encode(rows, schema, dictionary, table, missing=lacking)
        return codes, signs


@contextmanager
def _errors(what: str) -> Iterator[None]:
    """Turn Spark's errors into ours, including those that our SQL expressions raise."""
    from pyspark.errors import PySparkException

    from whence.runtime.spark.frames.columns import raised_in_sql
    from whence.runtime.spark.session.errors import jvm_errors

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
    """Make Spark pass large batches, unless the user has set their size; their bytes need no bound of their own where
    all rows are equally long."""
    wanted, rows = {}, int(spark.conf.get(_BATCH))
    if rows == 10_000:
        wanted[_BATCH] = str(max(_CELLS // max(len(schema), 10), 1000))
    if rows > 0 and not any(type.needs_dictionary for type in schema.types):
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


def _unpacked(rejects: bytes) -> Iterator[Reject]:
    return (Reject(*fields) for fields in json.loads(rejects))


def _tidy(task: Task, keep: set[str]) -> None:
    """Remove the files of attempts that do not count."""
    folder, disk = task.folder, Disk()
    for name in disk.names(folder):
        if task.call in name and name not in keep:
            disk.remove(folder / name)


@dataclass(frozen=True)
class Task:
    """The work of a task: called by Spark in a worker with its batches, it yields the routed rows."""

    table: str
    schema: Schema
    routing: Routing
    signed: bool  # whether the last column is the sign
    sign: int
    small: int
    section_rows: int
    call: str
    on_error: OnError = "fail"
    json: JsonLines | None = None  # if the rows are lines of JSON

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
            yield _result(self._partition(), 0, "rows", 0, [], _pack(held, held[0].schema))
        elif rows:
            yield self._write(held, number)

    def _partition(self) -> int:
        from pyspark import TaskContext

        context = TaskContext.get()
        return context.partitionId() if context is not None else 0

    def _write(self, batches: list[pa.RecordBatch], number: int) -> pa.RecordBatch:
        """Encode, route and write rows; return the pieces."""
        from pyspark import TaskContext

        context = TaskContext.get()
        partition, attempt = (context.partitionId(), context.taskAttemptId()) if context is not None else (0, 0)
        rows, signs, skipped, rejects = self.encode(batches, _dictionary_of(self.routing.words))
        if self.table in self.routing.streams:
            rows = counted(rows)
        label = re.sub(r"\W", "_", self.table)[:40]
        path = self.folder / f"{label}-{partition}-{attempt}-{number}-{self.call}.in"
        pieces = write_input(Disk(), path, by_partition(self.table, self.routing, rows, signs)) if len(rows) else []
        listed = json.dumps([astuple(piece) for piece in pieces]).encode()
        return _result(partition, number, "pieces", skipped, rejects, listed)

    def encode(
        self, batches: Sequence[pa.RecordBatch], dictionary: Dictionary
    ) -> tuple[Codes, Codes, int, list[Reject]]:
        """Return the codes and signs of the rows that fit, how many do not, and these if they are to be rejected."""
        codes, signs, refused = [], [], []
        checked = self.routing.checked.get(self.table)
        guard = None if checked is None else PromiseGuard(checked, dictionary)
        for batch in batches:
            data = pa.Table.from_batches([batch])
            if self.on_error == "fail":
                found = self._rows(data, dictionary, guard)
                codes.append(found[0])
                signs.append(found[1])
                continue
            fitting, rejects = self._fitting(data, dictionary, guard)
            codes += [part for part, _ in fitting]
            signs += [part for _, part in fitting]
            refused += rejects
        rows = _concat(codes) if codes else np.empty((0, len(self.schema)), np.int64)
        sign = _concat(signs) if signs else np.empty(0, np.int8)
        if self.table in self.routing.streams and (sign < 0).any():
            raise DataError(f"{self.table} is a stream: rows are only ever appended, and none may be said to go")
        return rows, sign.astype(np.int64), len(refused), refused if self.on_error == "reject" else []

    def _fitting(
        self, data: pa.Table, dictionary: Dictionary, guard: PromiseGuard | None
    ) -> tuple[list[tuple[Codes, Codes]], list[Reject]]:
        """Return codes and signs of the rows that fit, in parts, and what does not."""
        data, refused = self._readable(data)

        def attempt(start: int, stop: int) -> tuple[Codes, Codes]:
            return self._rows(data.slice(start, stop - start), dictionary, guard)

        fitting, faults = isolate(data.num_rows, attempt)
        return fitting, [*refused, *(self._reject(data.slice(at, 1), error) for at, error in faults)]

    def _rows(self, data: pa.Table, dictionary: Dictionary, guard: PromiseGuard | None) -> tuple[Codes, Codes]:
        """Return the codes of rows and their signs, or raise the DataError of the first that does not fit."""
        if self.json is not None:
            texts = [text for text in data.column(0).to_pylist() if text and not text.isspace()]
            codes, signs = self.json.encode(texts, self.schema, dictionary, self.table)
        else:
            codes, signs = self._codes(data, dictionary), self._signs(data)
        if any(not column.nullable for column in self.schema.columns):
            rows_.check_not_null(codes[signs > 0], self.schema, self.table)
        if guard is not None:
            guard.check(codes, signs)
        return codes, signs

    def _codes(self, data: pa.Table, dictionary: Dictionary) -> Codes:
        data = data.select(range(len(self.schema)))
        try:
            data = read_texts(data, self.schema)
        except UnreadableError as error:
            raise DataError(f"table {self.table}, column {error.column}: {error}") from None
        return rows_.encode(data, self.schema, dictionary, self.table)

    def _signs(self, data: pa.Table) -> Codes:
        if not self.signed:
            return np.full(data.num_rows, self.sign, np.int8)
        return data.column(len(self.schema)).to_numpy()  # type: ignore[no-any-return]  # pyarrow has no types

    def _readable(self, data: pa.Table) -> tuple[pa.Table, list[Reject]]:
        """Set apart the records that Spark could not make rows of."""
        fault = data.column(data.num_columns - 3)
        if fault.null_count == data.num_rows:
            return data, []
        bad = data.filter(fault.is_valid()).columns[-3:]
        found = zip(*(column.to_pylist() for column in bad), strict=True)
        rejects = [Reject(file or None, None, reason(why, self.table), text) for why, text, file in found]
        return data.filter(fault.is_null()), rejects

    def _reject(self, row: pa.Table, error: DataError) -> Reject:
        file = row.column(row.num_columns - 1)[0].as_py()
        if self.json is not None:
            return Reject(file or None, None, str(error), row.column(0)[0].as_py()[:LONGEST])
        return Reject(file or None, None, reason(error, self.table), record_of(row.select(range(len(self.schema)))))

    def section(self, kind: str, data: bytes, dictionary: Dictionary) -> tuple[Section, int, list[Reject]]:
        """Return, in the driver, what a task has returned, and the rows that do not fit here."""
        if kind == "rows":
            batches = pa.ipc.open_stream(data).read_all().to_batches()
            rows, signs, skipped, rejects = self.encode(batches, dictionary)
            return Section(len(rows), (Batch(rows, signs),)), skipped, rejects
        pieces = tuple(InputSection(*fields) for fields in json.loads(data))
        return Section(sum(piece.rows for piece in pieces), pieces), 0, []


def counted(rows: Codes) -> Codes:
    """Append a column that counts the rows of a stream; they arrive in that order (`InputSection.at`)."""
    out = np.empty((len(rows), rows.shape[1] + 1), np.int64)
    out[:, :-1] = rows
    out[:, -1] = np.arange(len(rows))
    return out


def by_partition(table: str, routing: Routing, rows: Codes, signs: Codes) -> list[tuple[str, int, Codes, Codes]]:
    """Split the rows of a table by partition, in their order, as `write_input` takes them."""
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


def _concat(arrays: list[Any]) -> Any:
    return arrays[0] if len(arrays) == 1 else np.concatenate(arrays)


def _pack(batches: Sequence[pa.RecordBatch], schema: pa.Schema) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, schema) as writer:
        for batch in batches:
            writer.write_batch(batch)
    return bytes(sink.getvalue())


def _result(partition: int, number: int, kind: str, skipped: int, rejects: list[Reject], data: bytes) -> pa.RecordBatch:
    values = (partition, number, kind, skipped, json.dumps(rejects).encode(), data)
    arrays = [pa.array([value], field.type) for value, field in zip(values, _SCHEMA, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=_SCHEMA)


_KNOWN: dict[Address, RemoteDictionary] = {}


def _dictionary_of(address: Address) -> RemoteDictionary:
    """Return the dictionary of a database, cached as long as this worker lives. Rows without text never ask the
    driver."""
    if address not in _KNOWN:
        if len(_KNOWN) >= 4:  # databases that one worker has met; the words of one may be many
            _KNOWN.clear()
        _KNOWN[address] = RemoteDictionary(address)
    return _KNOWN[address]
