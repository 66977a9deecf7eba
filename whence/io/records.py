"""Records of sources that are read bit by bit: consecutive lines of JSON or CSV, or rows of Parquet, of one file.

A record keeps the line it begins on, so that errors and rejects can name it. Records become updates: a line of JSON
says in `op`, or by its spelling, whether its row comes or goes (`files.py`); rows of CSV and Parquet come, unless a
column of operations says otherwise.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.csv

from whence.io import operations
from whence.io.arrow import arrow_schema
from whence.io.files import parse_object, prepare, signed, without_intervals
from whence.io.reading import UnreadableError, read_texts
from whence.io.rows import Missing, check_columns
from whence.model.errors import DataError
from whence.model.types import TEXT, Column, Schema


class UpdateLine(NamedTuple):
    """One update of a source: +1 or -1, the row by column name, and the line it begins on."""

    sign: int
    row: dict[str, Any]
    line: int


@dataclass(frozen=True)
class Target:
    """The table that records are for: its columns, whether it has a primary key, the column of operations, and what
    missing columns are."""

    schema: Schema
    keyed: bool
    op: str | None = None
    missing: Missing = "error"


@dataclass(frozen=True)
class Records:
    """Consecutive records of one file, and the positions of the source once they are in."""

    file: str
    format: str
    lines: Sequence[int]
    texts: Sequence[bytes] = ()
    header: bytes = b""  # of CSV
    rows: pa.Table | None = None  # of Parquet
    positions: Mapping[str, int] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.lines)

    def text(self, at: int) -> str:
        """Return a record as it stands in its file."""
        if self.rows is not None:
            return str(self.rows.slice(at, 1).to_pylist()[0])
        return self.texts[at].decode("utf-8", "replace").strip()

    def check_columns(self, target: Target) -> None:
        """Raise a DataError unless the columns of CSV or Parquet are those of the table."""
        if self.format == "jsonl":
            return
        names = self.rows.column_names if self.rows is not None else csv_header(self.header, self.file)
        schema = _with_operation(target)
        check_columns(self.file, [name.strip() for name in names], schema, target.missing)

    def updates(self, start: int, stop: int, target: Target) -> list[UpdateLine] | pa.Table:
        """Read the records from `start` to `stop`: as a table, if all of its rows come, else as a list of updates."""
        if self.format == "jsonl":
            return [self._update(at, target) for at in range(start, stop)]
        if self.rows is not None:
            rows = self.rows.slice(start, stop - start)
            rows = rows.rename_columns([name.strip().lower() for name in rows.column_names])
        else:
            rows = read_csv_text(self.header, b"".join(self.texts[start:stop]), _with_operation(target), self.file)
        if target.op is None:
            return rows
        updates = []
        for row, line in zip(rows.to_pylist(), self.lines[start:stop], strict=True):
            said = row.pop(target.op.lower(), None)
            try:
                updates.append(UpdateLine(operations.sign(said, target.keyed), row, line))
            except DataError as error:
                raise DataError(f"column {target.op}: {error}") from None
        return updates

    def _update(self, at: int, target: Target) -> UpdateLine:
        try:
            text = self.texts[at].decode("utf-8")
        except UnicodeDecodeError as error:
            raise DataError(f"not UTF-8: {error}") from None
        sign, row = signed(parse_object(text), target.op, target.keyed)
        return UpdateLine(sign, prepare(row, target.schema), self.lines[at])


def _with_operation(target: Target) -> Schema:
    if target.op is None:
        return target.schema
    return Schema((*target.schema.columns, Column(target.op.lower(), TEXT, nullable=False)))


def csv_header(line: bytes, file: str) -> list[str]:
    """Return the names of the columns that the first record of a CSV file has.

    >>> csv_header(b'\\xef\\xbb\\xbfsrc,"dst"\\r\\n', "links.csv")
    ['src', 'dst']
    """
    text = line.decode("utf-8-sig", "replace").rstrip("\r\n")
    try:
        return next(csv.reader([text])) if text.strip() else []
    except csv.Error as error:
        raise DataError(f"{file}, line 1: {error}") from None


def read_csv_text(header: bytes, text: bytes, schema: Schema, file: str) -> pa.Table:
    """Read records of CSV below the header of their file: typed by Arrow, or where it does not understand a value as
    texts by us. An unquoted empty value is NULL.

    >>> from whence.model.types import INTEGER
    >>> schema = Schema((Column("src", TEXT), Column("cost", INTEGER)))
    >>> read_csv_text(b"cost,src\\n", b"1,A\\n,B\\n", schema, "links.csv").to_pylist()
    [{'cost': 1, 'src': 'A'}, {'cost': None, 'src': 'B'}]
    """
    names = [name.strip().lower() for name in csv_header(header, file)]
    own = Schema(tuple(schema.columns[schema.names.index(name)] for name in names))
    wanted = {f.name: f.type for f in arrow_schema(without_intervals(own))}
    texts = dict.fromkeys(names, pa.string())
    hexadecimal = b"0x" in text or b"0X" in text  # only Arrow takes that for a whole number
    try:
        data = _parse_csv(text, names, texts if hexadecimal else wanted)
    except pa.ArrowInvalid:
        try:
            data = _parse_csv(text, names, texts)
        except pa.ArrowInvalid as error:
            raise DataError(re.sub(r"^CSV parse error: |Row #\d+: ", "", str(error).splitlines()[0])) from None
    try:
        return read_texts(data, own)
    except UnreadableError as error:
        raise DataError(f"column {error.column}: {error}") from None


def _parse_csv(text: bytes, names: list[str], types: dict[str, pa.DataType]) -> pa.Table:
    convert = pyarrow.csv.ConvertOptions(
        column_types=types, null_values=[""], strings_can_be_null=True, quoted_strings_can_be_null=False
    )
    options = pyarrow.csv.ReadOptions(column_names=names, block_size=max(len(text), 1) + 1, use_threads=False)
    parse = pyarrow.csv.ParseOptions(newlines_in_values=True)
    return pyarrow.csv.read_csv(
        pa.BufferReader(text), read_options=options, parse_options=parse, convert_options=convert
    )
