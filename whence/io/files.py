"""Files in and out: CSV, JSON lines and Parquet as Arrow tables of a known schema, and files of updates.

A file of updates has one JSON object a line, in either of two spellings, and is read lazily:

    {"op": "+", "src": "A", "dst": "B"}          {"+": {"src": "A", "dst": "B"}}
    {"op": "-", "src": "A", "dst": "B"}          {"-": {"src": "A", "dst": "B"}}

An object without `op` is an insertion. Errors name the file and, where the format has lines, the line. An INTERVAL is
written as an ISO 8601 duration (`P1M2DT3.5S`), which every format can carry.
"""

from __future__ import annotations

import csv
import errno
import json
import mmap
import os
import re
import stat
from collections.abc import Iterator
from decimal import Decimal
from itertools import groupby, islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet

from whence.io import operations
from whence.io.arrow import arrow_schema
from whence.io.json_lines import duration as duration
from whence.io.json_lines import json_line as json_line
from whence.io.reading import UnreadableError, read_column, read_texts, read_value
from whence.io.rows import Missing, check_columns, encode, folded, to_arrow, unknown_columns
from whence.model.codes import Dictionary, Interval
from whence.model.errors import DataError
from whence.model.paths import local_path
from whence.model.types import INTERVAL, TEXT, Column, Kind, Schema
from whence.state.disk import storage_error

FORMATS = {".csv": "csv", ".jsonl": "jsonl", ".ndjson": "jsonl", ".json": "jsonl", ".parquet": "parquet"}
_LINE = 32_000_000  # bytes per line of a CSV


class Reject(NamedTuple):
    """A record that was refused: its position, the reason, and the beginning of its text."""

    file: str | None
    line: int | None
    reason: str
    record: str | None


def format_of(path: str | Path) -> str:
    """Return the format that a file's name implies.

    >>> format_of("links.csv")
    'csv'
    """
    suffix = Path(path).suffix.lower()
    if suffix not in FORMATS:
        raise DataError(f"{path}: a file's name must end in one of {', '.join(FORMATS)}")
    return FORMATS[suffix]


def read(
    path: str | Path,
    schema: Schema,
    batch: int = 65_536,
    by_columns: bool = False,
    missing: Missing = "error",
) -> Iterator[pa.Table]:
    """Read the rows of a file, as Arrow tables of at most `batch` rows.

    A column that the file does not have is an error, or with `missing` NULL. With `by_columns` it is neither, and a
    line of JSON that has only some of the columns comes in a table of these columns.

    >>> import tempfile; folder = tempfile.TemporaryDirectory(); path = Path(folder.name) / "link.csv"
    >>> _ = path.write_text("src,cost\\nA,1\\n")
    >>> from whence.model.types import INTEGER
    >>> [t.to_pylist() for t in read(path, Schema((Column("src", TEXT), Column("cost", INTEGER))))]
    [[{'src': 'A', 'cost': 1}]]
    """
    kind, path = format_of(path), local_path(path)
    check_file(path)
    if kind == "jsonl":
        yield from _read_json(path, schema, batch, by_columns, missing)
        return
    try:
        for part in _read_csv(path, schema) if kind == "csv" else _read_parquet(path, batch):
            check_columns(str(path), part.column_names, schema, "null" if by_columns else missing)
            yield _intervals_in(part, schema, path)
    except (pa.ArrowException, OSError, csv.Error) as error:
        raise DataError(f"{path}: {_arrow_message(error)}") from None


def check_file(path: str | Path) -> None:
    """Raise a DataError unless this is a file that can be read."""
    try:
        mode = os.stat(path).st_mode
    except (OSError, ValueError) as error:
        missing = isinstance(error, (FileNotFoundError, ValueError))
        message = "no such file" if missing else f"cannot be read: {getattr(error, 'strerror', error)}"
        raise DataError(f"{path!s:.300}: {message}") from None
    if not stat.S_ISREG(mode):
        raise DataError(f"{path}: not a file of rows but a {'directory' if stat.S_ISDIR(mode) else 'device or a pipe'}")


def write(data: pa.Table, path: str | Path) -> None:
    """Write an Arrow table to a file, in the format that its name implies.

    >>> import tempfile; folder = tempfile.TemporaryDirectory(); path = Path(folder.name) / "a.jsonl"
    >>> write(pa.table({"a": [1, None]}), path); path.read_text()
    '{"a": 1}\\n{"a": null}\\n'
    """
    kind, path, data = format_of(path), local_path(path), intervals_out(data)
    try:
        if kind == "parquet":
            pyarrow.parquet.write_table(data, path)
        elif kind == "csv":
            pyarrow.csv.write_csv(data, path)
        else:
            with open(path, "w", encoding="utf-8") as out:
                out.writelines(json_line(row) + "\n" for row in data.to_pylist())
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            path.unlink(missing_ok=True)  # half of it is of no use
        raise storage_error(path, "write", error) from error


def intervals_out(data: pa.Table) -> pa.Table:
    """Convert the table's intervals to ISO 8601 durations, which every format can carry."""
    for i, field in enumerate(data.schema):
        if field.type == pa.month_day_nano_interval():
            spans = [None if v is None else Interval(v[0], v[1], v[2] // 1000) for v in data.column(i).to_pylist()]
            text = pa.array([None if v is None else duration(v) for v in spans], pa.string())
            data = data.set_column(i, field.name, text)
    return data


def signed(item: dict[str, Any], op: str | None, keyed: bool) -> tuple[int, dict[str, Any]]:
    """Return the sign of an update, which its member `op` or its spelling says, and its row."""
    if op is None:
        return 1, item
    if len(item) == 1:
        ((key, row),) = item.items()
        if key in ("+", "-") and isinstance(row, dict):
            return operations.sign(key, keyed), row
    operation = item.get(op, "+")
    try:
        return operations.sign(operation, keyed), {name: value for name, value in item.items() if name != op}
    except DataError as error:
        raise DataError(f"column {op}: {error}") from None


def _json_objects(path: str | Path) -> Iterator[tuple[int, dict[str, Any]]]:
    try:
        with open(path, encoding="utf-8") as lines:
            for number, text in enumerate(lines, 1):
                if not text.isspace():
                    yield number, _json_object(path, number, text)
    except FileNotFoundError:
        raise DataError(f"{path}: no such file") from None
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"{path}: cannot be read: {error}") from None


def _json_object(path: str | Path, line: int, text: str) -> dict[str, Any]:
    try:
        return parse_object(text)
    except DataError as error:
        raise DataError(f"{path}, line {line}: {error}") from None


def parse_object(text: str) -> dict[str, Any]:
    """Parse one JSON object; numbers stay exact."""
    try:
        item = json.loads(text, parse_float=Decimal)
    except (ValueError, RecursionError) as error:
        raise DataError(f"not JSON: {error}") from None
    if not isinstance(item, dict):
        raise DataError(f"expected an object, not {text.strip():.60}")
    return item


def _read_json(path: str | Path, schema: Schema, batch: int, by_columns: bool, missing: Missing) -> Iterator[pa.Table]:
    objects = _json_objects(path)
    while some := list(islice(objects, batch)):
        if not by_columns:
            yield _json_table(path, some, schema, missing)
            continue
        for names, alike in groupby(some, lambda item: frozenset(folded(name, schema) for name in item[1])):
            part = Schema(tuple(column for column in schema.columns if column.name in names))
            yield _json_table(path, list(alike), part if len(part) == len(names) else schema)


def _json_table(
    path: str | Path, objects: list[tuple[int, dict[str, Any]]], schema: Schema, missing: Missing = "error"
) -> pa.Table:
    words = Dictionary()
    try:
        codes = encode([prepare(row, schema) for _, row in objects], schema, words, str(path), 0, missing)
    except DataError:
        for line, row in objects:
            try:
                encode([prepare(row, schema)], schema, words, "", 0, missing)
            except DataError as error:
                message = str(error).removeprefix("table , row 1").lstrip(":, ")
                raise DataError(f"{path}, line {line}: {message}") from None
        raise
    return to_arrow(codes, np.ones(len(codes), np.int64), schema, words)


def prepare(row: dict[str, Any], schema: Schema) -> dict[str, Any]:
    """Convert the texts of intervals in a row read from JSON; `encode` does the rest."""
    for column in schema.columns:
        if column.type.kind is Kind.INTERVAL and isinstance(row.get(column.name), str):
            try:
                row = {**row, column.name: read_value(row[column.name], column.type)}
            except DataError as error:
                raise DataError(f"column {column.name}: {error}") from None
    return row


def _read_csv(path: str | Path, schema: Schema) -> Iterator[pa.Table]:
    """Read a CSV file: typed by Arrow, and from the first value on that Arrow does not understand as texts by us."""
    with open(path, encoding="utf-8", errors="replace") as text:
        header = _header(text.readline(_LINE))
    names = {name: name.strip().lower() for name in header}
    wanted = {f.name: f.type for f in arrow_schema(without_intervals(schema))}
    unknown = [name for name, low in names.items() if low not in wanted]
    if unknown:
        raise unknown_columns(str(path), [name if name.isprintable() else repr(name) for name in unknown], schema)
    if len(set(names.values())) < len(header):
        raise DataError(f"{path}: a column is named twice")
    if not header:
        return
    own = Schema(tuple(schema.columns[schema.names.index(low)] for low in names.values()))
    texts, done = dict.fromkeys(names, pa.string()), 0
    for types in [{name: wanted[low] for name, low in names.items()}, texts][_has_hex(path) :]:
        try:
            for part in _csv_tables(path, own, types, done):
                yield part
                done += part.num_rows
            return
        except pa.ArrowInvalid as error:
            if types is texts:
                raise DataError(
                    f"{path}{_with_position(_first_fault(path, texts) or _arrow_message(error), header)}"
                ) from None


def _has_hex(path: str | Path) -> bool:
    """Tell whether a file may have hexadecimal numbers, which only Arrow takes for whole numbers."""
    with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
        return content.find(b"0x") >= 0 or content.find(b"0X") >= 0


def _csv_tables(path: str | Path, own: Schema, types: dict[str, pa.DataType], done: int) -> Iterator[pa.Table]:
    """Read the rows of a CSV file after the first `done`, columns as Arrow's types; from texts come the values of
    `own`, the columns as the file has them."""
    row = 0
    for part in _parts(path, types):
        if part.schema.names != list(types):
            raise DataError(f"{path}: the names of the columns do not all stand on the first line")
        data = pa.Table.from_batches([part]).rename_columns(own.names).slice(max(done - row, 0))
        try:
            found = read_texts(data, own)
        except UnreadableError as error:
            place = f"line {_line_of(path, max(done, row) + error.row)}, column {error.column}"
            raise DataError(f"{path}, {place}: {error}") from None
        yield found
        row += part.num_rows


def _line_of(path: str | Path, row: int) -> int:
    """Return the line that a row of a CSV file, counted from 0, ends on; Arrow passes over empty lines, too."""
    with open(path, encoding="utf-8", errors="replace", newline="") as text:
        rows = csv.reader(text)
        for found in rows:
            if found and row < 0:
                break
            row -= bool(found)
        return rows.line_num


def _parts(path: str | Path, types: dict[str, pa.DataType], use_threads: bool = True) -> Iterator[pa.RecordBatch]:
    convert = pyarrow.csv.ConvertOptions(
        column_types=types, null_values=[""], strings_can_be_null=True, quoted_strings_can_be_null=False
    )
    options = pyarrow.csv.ReadOptions(block_size=min(max(os.stat(path).st_size, 1), _LINE), use_threads=use_threads)
    with pyarrow.csv.open_csv(path, read_options=options, convert_options=convert) as reader:
        yield from reader


def _first_fault(path: str | Path, types: dict[str, pa.DataType]) -> str | None:
    """Return Arrow's message of the first row that it cannot read: only with one thread does it know the row."""
    try:
        for _ in _parts(path, types, use_threads=False):
            pass
    except pa.ArrowInvalid as error:
        return _arrow_message(error)
    return None


def _header(line: str) -> list[str]:
    line = line.lstrip("\ufeff").rstrip("\r\n")
    return next(csv.reader([line])) if line.strip() else []


def _read_parquet(path: str | Path, batch: int) -> Iterator[pa.Table]:
    with pyarrow.parquet.ParquetFile(path) as file:
        for part in file.iter_batches(batch):
            yield pa.Table.from_batches([part])


def without_intervals(schema: Schema) -> Schema:
    """Return the schema in which intervals are texts, as files have them."""
    return Schema(tuple(Column(c.name, TEXT) if c.type.kind is Kind.INTERVAL else c for c in schema.columns))


def _intervals_in(data: pa.Table, schema: Schema, path: str | Path) -> pa.Table:
    spans = {c.name for c in schema.columns if c.type.kind is Kind.INTERVAL}
    for i, field in enumerate(data.schema):
        if field.name in spans and pa.types.is_string(field.type):
            try:
                data = data.set_column(i, field.name, read_column(data.column(i), INTERVAL))
            except UnreadableError as error:
                raise DataError(f"{path}, column {field.name}: {error}") from None
    return data


def _arrow_message(error: Exception) -> str:
    """Return Arrow's message without the part about Arrow."""
    return f"{str(error).splitlines()[0]:.300}"


def _with_position(message: str, header: list[str]) -> str:
    """Return Arrow's message of a CSV, with the row and column as we count and name them."""
    row, column = re.search(r"Row #(\d+)", message), re.search(r"column #(\d+)", message)
    place = [f"line {row[1]}"] if row else []
    place += [f"column {header[int(column[1])].strip().lower()}"] if column and int(column[1]) < len(header) else []
    message = re.sub(r"In CSV column #\d+: |CSV parse error: |Row #\d+: ", "", message)
    message = message.replace("CSV conversion error", "cannot be converted")
    if "straddl" in message:
        message = f"a line has more than {_LINE:,} bytes"
    return "".join(f", {part}" for part in place) + f": {message}"
