"""Plain values: what rows are made of on the wire, in JSON and in msgpack alike.

| type             | plain value |
|------------------|-------------|
| BOOLEAN          | true, false |
| INTEGER, BIGINT  | a number; beyond 2^53, which JavaScript cannot hold, its digits as text |
| DOUBLE           | a number, or "NaN", "Infinity", "-Infinity" |
| DECIMAL          | its digits as text |
| TEXT             | text |
| DATE, TIMESTAMP  | ISO 8601 as text, without a zone: UTC |
| INTERVAL         | text such as "1 month 2 days 00:00:03" |
| NULL             | null |

The law: `from_plain(to_plain(rows))` gives what the rows decode to, for every type. Rows travel as columns.
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Callable, Iterable, Sequence
from decimal import Decimal, InvalidOperation
from typing import Any

import numpy as np

from whence.model.codes import Codes, Dictionary, Interval, format_value
from whence.model.errors import DataError
from whence.model.text import interval_text, read_interval
from whence.model.types import Column, Kind, Schema, Type

Columns = list[list[Any]]
_EXACT = 2**53  # up to which a double, the number of JavaScript, has every integer
NAN = float("nan")
"""The one that is read from the wire: as it is one object, rows that have it are found again."""

_SPECIAL = {"NaN": NAN, "Infinity": float("inf"), "-Infinity": float("-inf")}
_DECIMAL = re.compile(r"DECIMAL\((\d+),(\d+)\)")


def to_plain(rows: Codes, schema: Schema, dictionary: Dictionary) -> Columns:
    """Return rows, given as codes, as columns of plain values."""
    from whence.io.rows import to_columns  # only a server encodes codes: clients do without the kernels behind it

    if schema.is_whole and len(rows):
        numbers: Columns = rows.T.tolist()
        if min(map(min, numbers)) >= -_EXACT and max(map(max, numbers)) <= _EXACT:  # NULL, too, is below
            return numbers
    columns = to_columns(rows, schema, dictionary)
    for i, column in enumerate(schema.columns):
        columns[i] = _plain_column(columns[i], column.type)
    return columns


def plain_columns(rows: Sequence[tuple[Any, ...]], types: Sequence[Type]) -> Columns:
    """Return rows, given as tuples of Python values, as columns of plain values.

    >>> from whence.model.types import DATE, INTEGER
    >>> plain_columns([(7, dt.date(2026, 11, 17)), (2**60, None)], [INTEGER, DATE])
    [[7, '1152921504606846976'], ['2026-11-17', None]]
    """
    columns = [list(column) for column in zip(*rows, strict=True)] or [[] for _ in types]
    return [_plain_column(column, type) for column, type in zip(columns, types, strict=True)]


def _plain_column(values: list[Any], type: Type) -> list[Any]:
    match type.kind:
        case Kind.INTEGER | Kind.BIGINT if not _has_large(values):
            return values
        case Kind.BOOLEAN | Kind.TEXT | Kind.NULL:
            return values
        case Kind.DOUBLE if None not in values and np.isfinite(values).all():
            return values
    return [plain_value(value) for value in values]


def _has_large(values: list[Any]) -> bool:
    numbers = [value for value in values if value is not None] if None in values else values
    return bool(numbers) and not -_EXACT <= min(numbers) <= max(numbers) <= _EXACT


def plain_value(value: Any) -> Any:
    """Return one Python value as its plain value.

    >>> plain_value(float("inf")), plain_value(Decimal("2.50")), plain_value(Interval(1, 2, 3_000_000))
    ('Infinity', '2.50', '1 month 2 days 00:00:03')
    """
    match value:
        case None | bool() | str():
            return value
        case int():
            return value if -_EXACT <= value <= _EXACT else str(value)
        case float():
            if value - value == 0:
                return value
            return "NaN" if value != value else "Infinity" if value > 0 else "-Infinity"
        case Decimal():
            return f"{value:f}"
        case Interval():
            return interval_text(value)
        case dt.date() | dt.datetime():
            return value.isoformat()
    raise DataError(f"{format_value(value)} has no plain value")


def from_plain(columns: Sequence[Sequence[Any]], types: Sequence[Type]) -> list[tuple[Any, ...]]:
    """Return the rows of columns of plain values as tuples of Python values.

    >>> from whence.model.types import BIGINT, DOUBLE
    >>> from_plain([["9007199254740993", 1], ["NaN", None]], [BIGINT, DOUBLE])
    [(9007199254740993, nan), (1, None)]
    """
    return PlainReader(types).rows(columns)


class PlainReader:
    """Reads rows of one schema. What there is to do for a type is looked up once, not with every few rows."""

    __slots__ = ("_numbers", "_others", "_types")

    def __init__(self, types: Sequence[Type]) -> None:
        self._types = types
        readers = [place for place, type in enumerate(types) if type.kind in _READERS]
        self._numbers = [place for place in readers if types[place].kind in _NUMBERS]
        self._others = [place for place in readers if types[place].kind not in _NUMBERS]

    def rows(self, columns: Sequence[Sequence[Any]]) -> list[tuple[Any, ...]]:
        """Return the rows of columns of plain values as tuples of Python values."""
        types = self._types
        if len(columns) != len(types):
            raise DataError(f"{len(columns)} columns of values for {len(types)} columns")
        special = [place for place in self._numbers if str in map(_class, columns[place])]
        if special or self._others:
            columns = list(columns)
            for place in (*special, *self._others):
                columns[place] = column_from_plain(columns[place], types[place])
        try:
            return list(zip(*columns, strict=True))
        except ValueError:
            raise DataError("columns of different lengths") from None


def column_from_plain(values: Sequence[Any], type: Type) -> Sequence[Any]:
    """Return a column of plain values as Python values."""
    reader = _READERS.get(type.kind)
    if reader is None or (type.kind in _NUMBERS and str not in set(map(_class, values))):
        return values
    try:
        return [None if value is None else reader(value) for value in values]
    except (ValueError, TypeError, KeyError, InvalidOperation, ArithmeticError):
        raise DataError(f"a value that is not of type {type}: {_misfit(values, reader)}") from None


_class = type
_NUMBERS = (Kind.INTEGER, Kind.BIGINT, Kind.DOUBLE)


def _misfit(values: Iterable[Any], reader: Callable[[Any], Any]) -> str:
    for value in values:
        try:
            if value is not None:
                reader(value)
        except Exception:  # whatever it was: this is the value
            return format_value(value)
    return "?"


def _read_double(value: Any) -> float:
    return _SPECIAL[value] if isinstance(value, str) else float(value)


_READERS: dict[Kind, Callable[[Any], Any]] = {
    Kind.INTEGER: int,
    Kind.BIGINT: int,
    Kind.DOUBLE: _read_double,
    Kind.DECIMAL: Decimal,
    Kind.DATE: dt.date.fromisoformat,
    Kind.TIMESTAMP: dt.datetime.fromisoformat,
    Kind.INTERVAL: read_interval,
}


def type_of(text: str) -> Type:
    """Return the type that `str(type)` was.

    >>> type_of("DECIMAL(10,2)").scale, type_of("TEXT").kind
    (2, <Kind.TEXT: 'TEXT'>)
    """
    found = _DECIMAL.fullmatch(text)
    if found:
        return Type(Kind.DECIMAL, int(found[1]), int(found[2]))
    try:
        return Type(Kind("TIMESTAMP" if text == "TIMESTAMP WITH TIME ZONE" else text))
    except ValueError:
        raise DataError(f"{text!r:.80} is not a type") from None


def plain_schema(schema: Schema) -> list[tuple[str, str]]:
    """Return the names and types of columns as texts."""
    return [(column.name, str(column.type)) for column in schema.columns]


def schema_of(columns: Iterable[tuple[str, str]]) -> Schema:
    """Return the schema that `plain_schema` wrote."""
    return Schema(tuple(Column(name, type_of(text)) for name, text in columns))
