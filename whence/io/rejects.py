"""Records of a source that do not fit their table: find them, and keep the rest.

`on_error` says what becomes of such a record: "fail" stops and changes nothing, "skip" counts it, "reject" writes it to
a table with where it stood and why it was refused, in the same epoch as the records around it.
"""

from __future__ import annotations

import csv
import logging
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Literal, TypeVar

import numpy as np
import pyarrow as pa

from whence.io import files
from whence.io.files import Reject
from whence.io.rows import Missing, as_list_or_arrow, check_columns, check_not_null, encode, index_names
from whence.model.codes import Codes, Dictionary
from whence.model.errors import DataError
from whence.model.types import BIGINT, TEXT, Column, Schema

log = logging.getLogger("whence")
OnError = Literal["fail", "skip", "reject"]
TABLE = "rejects"
"""The table that rejected records are written to."""

SCHEMA = Schema(
    (
        Column("source", TEXT),
        Column("batch", BIGINT),
        Column("file", TEXT),
        Column("line", BIGINT),
        Column("reason", TEXT),
        Column("record", TEXT),
    )
)
LONGEST = 4_000
"""Characters of a record that are kept."""

MOST = 100_000
"""Records of one batch that may be rejected: with more, it is the schema that is wrong."""

T = TypeVar("T")
Accept = Callable[[Codes], object]
"""Takes rows that fit, all of them or none: it raises a DataError if one breaks a promise. Called in their order."""


def check_choice(on_error: str) -> OnError:
    """Return the choice, or raise the error that names the three.

    >>> check_choice("skip")
    'skip'
    """
    if on_error not in ("fail", "skip", "reject"):
        raise DataError(f"on_error is 'fail', 'skip' or 'reject', not {on_error!r:.100}")
    return on_error  # type: ignore[return-value]  # mypy does not narrow by `in`


def isolate(
    count: int, attempt: Callable[[int, int], T], first: bool = False
) -> tuple[list[T], list[tuple[int, DataError]]]:
    """Run `attempt(start, stop)` over all of `count` records, in halves where it raises a DataError.

    Return the results in order, and each record that fails alone with its error; with `first` stop at the first of
    those. Costs O(log count) attempts for each.

    >>> isolate(3, lambda start, stop: list(range(start, stop)))
    ([[0, 1, 2]], [])
    """
    done: list[T] = []
    faults: list[tuple[int, DataError]] = []
    waiting = [(0, count)]
    while waiting:
        start, stop = waiting.pop()
        try:
            done.append(attempt(start, stop))
        except DataError as error:
            if stop - start <= 1:
                faults.append((start, error))
                if first:
                    break
                if len(faults) > MOST:
                    raise too_many() from error
            else:
                middle = (start + stop) // 2
                waiting += [(middle, stop), (start, middle)]
    return done, faults


def too_many() -> DataError:
    return DataError(f"more than {MOST:,} records of one batch do not fit: see whether the schema is the source's")


def encode_each(
    data: Any,
    schema: Schema,
    dictionary: Dictionary,
    table: str,
    missing: Missing = "error",
    accept: Accept | None = None,
) -> tuple[Codes, list[Reject]]:
    """Encode rows of any kind, and set apart those that do not fit, or that `accept` refuses; `line` counts the rows
    from 1.

    >>> rows, rejects = encode_each([("a",), (2,)], Schema((Column("x", TEXT),)), Dictionary(), "t")
    >>> len(rows), rejects[0].line, rejects[0].reason
    (1, 2, 'column x: 2 (int) is not a value of type TEXT')
    """
    given = as_list_or_arrow(data, table)
    if not isinstance(given, list):
        check_columns(f"table {table}", given.column_names, schema, missing, index_names(data))  # no fault of a row

    def some(start: int, stop: int) -> Any:
        return given[start:stop] if isinstance(given, list) else given.slice(start, stop - start)

    def attempt(start: int, stop: int) -> Codes:
        codes = encode(some(start, stop), schema, dictionary, table, missing=missing)
        check_not_null(codes, schema, table)
        if accept is not None:
            accept(codes)
        return codes

    done, faults = isolate(len(given), attempt)
    rejects = [
        Reject(
            None, at + 1, reason(error, table), record_of(given[at] if isinstance(given, list) else some(at, at + 1))
        )
        for at, error in faults
    ]
    return np.concatenate(done) if done else _no_rows(schema), rejects


def encode_file(
    path: Path,
    schema: Schema,
    dictionary: Dictionary,
    table: str,
    missing: Missing = "error",
    accept: Accept | None = None,
) -> tuple[Codes, list[Reject]]:
    """Encode the rows of a file, and set apart the records that do not fit, or that `accept` refuses, with the lines
    they begin on.

    What fits is read by `files.read`: the records at fault are found by reading ever smaller parts of the file.
    """
    kind = files.format_of(path)
    if kind == "parquet":
        parts = list(files.read(path, schema, missing=missing))
        whole = pa.concat_tables(parts) if parts else []
        codes, rejects = encode_each(whole, schema, dictionary, table, missing, accept)
        return codes, [reject._replace(file=str(path)) for reject in rejects]
    files.check_file(path)
    lines = path.read_bytes().splitlines(keepends=True)
    header = lines[:1] if kind == "csv" else []
    records = list(_csv_records(lines, path) if kind == "csv" else _json_records(lines))
    with tempfile.TemporaryDirectory() as folder:
        part = Path(folder) / f"part{path.suffix}"

        def attempt(start: int, stop: int) -> Codes:
            part.write_bytes(b"".join([*header, *(text for _, text in records[start:stop])]))
            try:
                read = files.read(part, schema, missing=missing)
                found = [encode(data, schema, dictionary, table, missing=missing) for data in read]
            except DataError as error:
                raise DataError(str(error).removeprefix(str(part)).removeprefix(f", line {len(header) + 1}")) from None
            codes = np.concatenate(found) if found else _no_rows(schema)
            check_not_null(codes, schema, table)
            if accept is not None and stop > start:
                accept(codes)
            return codes

        attempt(0, 0)  # a header that does not fit is no fault of a record
        done, faults = isolate(len(records), attempt)
    rejects = []
    for at, error in faults:
        line, text = records[at]
        rejects.append(Reject(str(path), line, reason(error, table), text.decode("utf-8", "replace").strip()[:LONGEST]))
    return np.concatenate(done) if done else _no_rows(schema), rejects


def _csv_records(lines: list[bytes], path: Path) -> Iterator[tuple[int, bytes]]:
    """Yield the records of a CSV file after its header; one with a quoted line break has several lines."""
    reader = csv.reader(line.decode("utf-8", "replace") for line in lines)
    begin = 0
    try:
        for _ in reader:
            if begin:
                yield begin + 1, b"".join(lines[begin : reader.line_num])
            begin = reader.line_num
    except csv.Error as error:
        raise DataError(f"{path}, line {reader.line_num}: {error}") from None


def _json_records(lines: list[bytes]) -> Iterator[tuple[int, bytes]]:
    return ((number, line) for number, line in enumerate(lines, 1) if line.strip())


def _no_rows(schema: Schema) -> Codes:
    return np.empty((0, len(schema)), np.int64)


def reason(error: DataError | str, table: str) -> str:
    """Return what an error says of a record, without the place of a batch of one."""
    text = str(error).removeprefix(f"table {table}").removeprefix(f"stream {table}")
    return text.removeprefix(", row 1").lstrip(":, ")


def record_of(row: Any) -> str:
    """Show a row as it was given, cut where it is long."""
    if isinstance(row, pa.Table):
        row = row.to_pylist()[0]
    return (files.json_line(row) if isinstance(row, dict) else repr(row))[:LONGEST]


def encode_rejects(rejects: Sequence[Reject], source: str, batch: int | None, dictionary: Dictionary) -> Codes:
    """Encode rejected records as rows of the table of rejects."""
    return encode(as_rows(rejects, source, batch), SCHEMA, dictionary, TABLE)


def as_rows(rejects: Sequence[Reject], source: str, batch: int | None) -> list[tuple[Any, ...]]:
    """Return the rows that the table of rejects takes."""
    return [(source, batch, r.file, r.line, r.reason, r.record) for r in rejects]


def report(source: str, count: int, rejects: Sequence[Reject], on_error: OnError) -> None:
    """Log how many records of a source were refused, and the first of them if it is known."""
    if not count:
        return
    message = ""
    if rejects:
        first = rejects[0]
        place = [first.file, f"line {first.line}" if first.line is not None else None]
        message = ", the first: " + ": ".join([", ".join(filter(None, place)), first.reason]).lstrip(": ")
    log.warning("%s: %d records %s%s", source, count, "rejected" if on_error == "reject" else "skipped", message)
