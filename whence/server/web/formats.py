"""Rows on the network: JSON, Arrow and CSV, chosen by the client and written in pieces.

The law: whatever the format, the values are those of the table; and no piece has more than some thousand rows, so that
an answer of any size needs little memory beside its table.

| format | media type                            | what it is |
|--------|---------------------------------------|------------|
| JSON   | `application/json`                    | `{"columns": [[name, type], …], "position": …, "rows": [[…], …]}` |
| Arrow  | `application/vnd.apache.arrow.stream` | an IPC stream |
| CSV    | `text/csv`                            | a header, then rows; NULL is an empty value without quotes |

Values in JSON are plain values (`subscribe/plain.py`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec
import pyarrow as pa
import pyarrow.csv

from whence.io.files import intervals_out
from whence.model.types import (
    BIGINT,
    BOOLEAN,
    DATE,
    DOUBLE,
    INTEGER,
    INTERVAL,
    NULLTYPE,
    TEXT,
    TIMESTAMP,
    Column,
    Kind,
    Schema,
    Type,
)
from whence.runtime.reading.handles import python_rows
from whence.server.failures import RequestError
from whence.subscribe.plain import plain_columns, plain_schema

JSON, ARROW, CSV = "application/json", "application/vnd.apache.arrow.stream", "text/csv"
ROW_FORMATS = (JSON, ARROW, CSV)
_ROWS = 8_192  # of a piece
_MOST_RANGES = 32  # of an Accept header


def choose_format(accept: str | None, offered: Sequence[str] = ROW_FORMATS) -> str:
    """Return the media type that a client likes best of those that are offered; without wishes, the first.

    >>> choose_format(None), choose_format("text/csv;q=0.9, application/json;q=0.1"), choose_format("text/*")
    ('application/json', 'text/csv', 'text/csv')
    >>> choose_format("image/png")
    Traceback (most recent call last):
    whence.server.failures.RequestError: Accept: 'image/png' is none of application/json, \
application/vnd.apache.arrow.stream, text/csv
    """
    if accept is None or not accept.strip():
        return offered[0]
    wishes = [_media_range(part) for part in accept.split(",")[:_MOST_RANGES]]
    best = max(offered, key=lambda one: _quality(one, wishes))  # the first of equals
    if _quality(best, wishes) <= 0:
        raise RequestError(f"Accept: {accept!r:.100} is none of {', '.join(offered)}", status=406)
    return best


def _media_range(text: str) -> tuple[str, float]:
    name, *parameters = (part.strip().lower() for part in text.split(";"))
    quality = 1.0
    for parameter in parameters:
        if parameter.startswith("q="):
            try:
                quality = min(max(float(parameter[2:]), 0.0), 1.0)
            except ValueError:
                quality = 0.0
    return name, quality if quality == quality else 0.0


def _quality(offered: str, wishes: Sequence[tuple[str, float]]) -> float:
    """Return how much an offered type is wished for: the most specific range counts."""
    for wanted in (offered, offered.partition("/")[0] + "/*", "*/*"):
        found = [quality for name, quality in wishes if name == wanted]
        if found:
            return max(found)
    return 0.0


def arrow_to_sql(type: pa.DataType) -> Type:
    """Return the type of our own that has an Arrow type's values; TEXT for what we have none for.

    >>> str(arrow_to_sql(pa.decimal128(9, 2))), str(arrow_to_sql(pa.int16()))
    ('DECIMAL(9,2)', 'INTEGER')
    """
    for test, own in _SQL_TYPES:
        if test(type):
            return own
    if pa.types.is_decimal(type):
        return Type(Kind.DECIMAL, type.precision, type.scale)
    return TEXT


_SQL_TYPES = (
    (pa.types.is_boolean, BOOLEAN),
    (lambda t: t in (pa.int8(), pa.int16(), pa.int32(), pa.uint8(), pa.uint16()), INTEGER),
    (pa.types.is_integer, BIGINT),
    (pa.types.is_floating, DOUBLE),
    (pa.types.is_date, DATE),
    (pa.types.is_timestamp, TIMESTAMP),
    (lambda t: t == pa.month_day_nano_interval(), INTERVAL),
    (pa.types.is_null, NULLTYPE),
)


def table_schema(table: pa.Table) -> Schema:
    """Return the columns of an Arrow table, as our own types."""
    return Schema(tuple(Column(field.name, arrow_to_sql(field.type)) for field in table.schema))


def plain_rows(table: pa.Table) -> list[list[object]]:
    """Return the rows of an Arrow table as lists of plain values.

    >>> plain_rows(pa.table({"a": [1, 2**60], "b": ["x", None]}))
    [[1, 'x'], ['1152921504606846976', None]]
    """
    types = [arrow_to_sql(field.type) for field in table.schema]
    rows = python_rows(table)
    for at, (field, type) in enumerate(zip(table.schema, types, strict=True)):
        if type is TEXT and not (pa.types.is_string(field.type) or pa.types.is_large_string(field.type)):
            rows = [(*r[:at], None if r[at] is None else str(r[at]), *r[at + 1 :]) for r in rows]  # a type of DuckDB's
    return list(map(list, zip(*plain_columns(rows, types), strict=True))) if rows else []


def encode_rows(table: pa.Table, format: str, position: str | None = None) -> Iterator[bytes]:
    """Write a table in pieces.

    >>> b"".join(encode_rows(pa.table({"a": [1, None]}), JSON, "x.y.7"))
    b'{"columns":[["a","BIGINT"]],"position":"x.y.7","rows":[[1],[null]]}'
    >>> b"".join(encode_rows(pa.table({"a": ["x", None, ""]}), CSV))
    b'"a"\\n"x"\\n\\n""\\n'
    """
    if format == JSON:
        return _encode_json(table, position)
    return _encode_arrow(table) if format == ARROW else _encode_csv(table)


def _encode_json(table: pa.Table, position: str | None) -> Iterator[bytes]:
    columns = msgspec.json.encode(plain_schema(table_schema(table)))
    yield b'{"columns":%b,"position":%b,"rows":[' % (columns, msgspec.json.encode(position))
    comma = b""
    for start in range(0, table.num_rows, _ROWS):
        yield comma + msgspec.json.encode(plain_rows(table.slice(start, _ROWS)))[1:-1]
        comma = b","
    yield b"]}"


class _Pieces:
    """What a writer of Arrow writes to: collects bytes until they are taken."""

    def __init__(self) -> None:
        self._written: list[bytes] = []
        self.closed = False

    def write(self, data: object) -> int:
        piece = bytes(memoryview(data))  # type: ignore[arg-type]  # Arrow gives a buffer
        self._written.append(piece)
        return len(piece)

    def take(self) -> bytes:
        found = b"".join(self._written)
        self._written.clear()
        return found

    def flush(self) -> None: ...

    def close(self) -> None:
        self.closed = True

    def writable(self) -> bool:
        return True

    def readable(self) -> bool:
        return False

    def seekable(self) -> bool:
        return False


def _encode_arrow(table: pa.Table) -> Iterator[bytes]:
    pieces = _Pieces()
    sink = pa.PythonFile(pieces, mode="w")
    with pa.ipc.new_stream(sink, table.schema) as writer:
        for batch in table.to_batches(max_chunksize=8 * _ROWS):
            writer.write_batch(batch)
            yield pieces.take()
    sink.flush()
    yield pieces.take()


def _encode_csv(table: pa.Table) -> Iterator[bytes]:
    table, pieces = intervals_out(table), _Pieces()
    sink = pa.PythonFile(pieces, mode="w")
    with pyarrow.csv.CSVWriter(sink, table.schema) as writer:
        for start in range(0, max(table.num_rows, 1), _ROWS):
            writer.write_table(table.slice(start, _ROWS))
            yield pieces.take()
    yield pieces.take()


def arrow_bytes(table: pa.Table) -> bytes:
    """Return a table as one Arrow stream."""
    return b"".join(_encode_arrow(table))


def read_arrow(data: bytes, what: str = "the Arrow stream") -> pa.Table:
    """Read an Arrow stream that a client sent.

    >>> read_arrow(arrow_bytes(pa.table({"a": [1, 2]}))).to_pydict()
    {'a': [1, 2]}
    >>> read_arrow(b"nonsense")
    Traceback (most recent call last):
    whence.server.failures.RequestError: the Arrow stream cannot be read
    """
    try:
        with pa.ipc.open_stream(pa.BufferReader(data)) as reader:
            table = reader.read_all()
        table.validate(full=True)
    except (pa.ArrowException, OSError, ValueError, MemoryError):
        raise RequestError(f"{what} cannot be read") from None
    return table
