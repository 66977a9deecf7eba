"""Plain values of a request as values of a table's types.

JSON has no dates, no exact decimals and no large numbers, so requests have texts in their place (`subscribe/plain.py`).
What is not the text of a value stays as it is: whoever takes the rows then says which row and column does not fit.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from whence.io.reading import read_value
from whence.io.records import csv_header, read_csv_text
from whence.io.rows import folded, unknown_columns
from whence.model.errors import DataError
from whence.model.types import TEXT, Column, Kind, Schema, Type
from whence.plan.algebra.program import Table

_DIGITS = re.compile(r"-?\d{1,25}", re.ASCII)
_SPECIAL = {"NaN": float("nan"), "Infinity": float("inf"), "-Infinity": float("-inf")}
_READ_HERE = (Kind.INTEGER, Kind.BIGINT, Kind.DOUBLE, Kind.INTERVAL)  # texts of other types are read by all who encode


class AddressText(str):
    """A text from the address of a request, which stands for a value of whatever type is wanted."""

    __slots__ = ()


def typed_value(value: Any, type: Type) -> Any:
    """Return a plain value as a value of a type; a list of them as a list.

    >>> from whence.model.types import BIGINT, DATE, DOUBLE
    >>> typed_value("9007199254740993", BIGINT), typed_value("Infinity", DOUBLE), typed_value("2026-11-17", DATE)
    (9007199254740993, inf, datetime.date(2026, 11, 17))
    >>> typed_value("x", BIGINT), typed_value(["1", None], BIGINT), typed_value(AddressText("1.5"), DOUBLE)
    ('x', [1, None], 1.5)
    """
    if isinstance(value, list):
        return [typed_value(one, type) for one in value]
    if isinstance(value, AddressText):
        return _text_value(str(value), type)
    if value.__class__ is not str or type.kind is Kind.TEXT:
        return value
    match type.kind:
        case Kind.INTEGER | Kind.BIGINT:
            return int(value) if _DIGITS.fullmatch(value) else value
        case Kind.DOUBLE:
            return _SPECIAL.get(value, value)
        case Kind.BOOLEAN | Kind.NULL:
            return value
    return _text_value(value, type)


def _text_value(text: str, type: Type) -> Any:
    """Return a text as a value of a type, as CSV would have it; what is none stays a text."""
    if type.kind is Kind.TEXT:
        return text
    try:
        return read_value(text, type)
    except DataError:
        return text


def typed_mapping(values: Mapping[str, Any], schema: Schema) -> dict[str, Any]:
    """Return columns and their values, typed; names of columns that are not there stay, for others to refuse."""
    types = dict(zip(schema.names, schema.types, strict=True))
    return {name: typed_value(value, types.get(folded(name, schema), TEXT)) for name, value in values.items()}


def typed_row(row: Any, schema: Schema) -> Any:
    """Return one row, given as a list of values or by column; a list becomes a tuple."""
    if isinstance(row, Mapping):
        return typed_mapping(row, schema)
    if isinstance(row, list):
        return tuple(map(typed_value, row, schema.types)) if len(row) == len(schema) else tuple(row)
    return row


def typed_rows(rows: list[Any], schema: Schema, columns: Sequence[str] | None = None, table: str = "") -> list[Any]:
    """Return rows to insert: tuples or dicts, with values of the types of a table. `columns` are those of lists.

    >>> from whence.model.types import INTEGER, TEXT
    >>> schema = Schema((Column("a", INTEGER), Column("b", TEXT)))
    >>> typed_rows([[1, "x"], {"b": "y", "a": 2}], schema), typed_rows([["x", 1]], schema, ["b", "a"])
    ([(1, 'x'), {'b': 'y', 'a': 2}], [{'b': 'x', 'a': 1}])
    """
    if columns is not None:
        rows = [_by_column(row, columns, number, table) for number, row in enumerate(rows, 1)]
    reads = [(i, column) for i, column in enumerate(schema.columns) if column.type.kind in _READ_HERE]
    if not reads:
        return [tuple(row) if row.__class__ is list else row for row in rows]
    width = len(schema)
    return [
        _typed_list(row, reads) if row.__class__ is list and len(row) == width else _typed_other(row, reads)
        for row in rows
    ]


def _typed_list(row: list[Any], reads: Iterable[tuple[int, Column]]) -> tuple[Any, ...]:
    for i, column in reads:
        if row[i].__class__ is str:
            row[i] = typed_value(row[i], column.type)
    return tuple(row)


def _typed_other(row: Any, reads: Iterable[tuple[int, Column]]) -> Any:
    if row.__class__ is not dict:
        return tuple(row) if row.__class__ is list else row
    for _, column in reads:
        if row.get(column.name).__class__ is str:
            row = {**row, column.name: typed_value(row[column.name], column.type)}
    return row


def _by_column(row: Any, columns: Sequence[str], number: int, table: str) -> Any:
    if row.__class__ is not list:
        return row
    if len(row) != len(columns):
        raise DataError(f"table {table}, row {number}: {len(row)} values for the {len(columns)} columns given")
    return dict(zip(columns, row, strict=True))


def typed_key(key: Any, table: Table) -> Any:
    """Return a primary key, or a list of them; in JSON a key of several columns is a list, too.

    >>> from whence.model.types import INTEGER, TEXT
    >>> one = Table("t", Schema((Column("a", INTEGER), Column("b", TEXT))), key=(0,))
    >>> two = Table("t", one.schema, key=(0, 1))
    >>> typed_key("7", one), typed_key([7, 8], one), typed_key([7, "x"], two), typed_key([[7, "x"]], two)
    (7, [7, 8], (7, 'x'), [(7, 'x')])
    """
    types = [table.schema.types[i] for i in table.key]
    if len(types) <= 1 or key is None:
        return typed_value(key, types[0]) if types and not isinstance(key, Mapping) else key
    if isinstance(key, Mapping):
        return typed_mapping(key, table.schema)
    if isinstance(key, list) and any(isinstance(one, (list, Mapping)) for one in key):
        return [typed_key(one, table) for one in key]
    if isinstance(key, list) and len(key) == len(types):
        return tuple(map(typed_value, key, types))
    return tuple(key) if isinstance(key, list) else key


def csv_rows(text: bytes, schema: Schema, table: str) -> Any:
    """Return the rows of CSV with a header as an Arrow table."""
    header, _, rest = text.partition(b"\n")
    names = [name.strip().lower() for name in csv_header(header, f"table {table}")]
    unknown = [name for name in names if name not in schema.names]
    if unknown:
        raise unknown_columns(f"table {table}", unknown, schema)
    if len(set(names)) < len(names):
        raise DataError(f"table {table}: a column is named twice")
    if not names:
        raise DataError(f"table {table}: CSV begins with a line that names the columns")
    try:
        return read_csv_text(header, rest, schema, f"table {table}")
    except DataError as error:
        message = str(error)
        raise DataError(message if message.startswith("table ") else f"table {table}: {message}") from None
