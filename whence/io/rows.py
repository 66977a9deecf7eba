"""Rows in and out: tuples, dicts, Arrow, pandas and polars to codes, and codes back to any of them.

The invariant: what comes out of `encode` fits its table (arity, types, ranges), or nothing does and a DataError names
the table, the row (counted from 1), the column and the value.
"""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Callable, Iterable, Mapping, Sequence
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import pyarrow as pa

from whence.io.arrow import arrow_schema, decode_column, encode_column, put_column
from whence.model import wide
from whence.model.codes import (
    NULL,
    Codes,
    Dictionary,
    Interval,
    codes_to_floats,
    decode_date,
    decode_timestamp,
    encode_value,
    floats_to_codes,
    format_value,
)
from whence.model.errors import DataError, EvaluationError
from whence.model.types import Column, Kind, Schema, Type
from whence.sql.position import did_you_mean

if TYPE_CHECKING:
    import pandas
    import polars

Row = tuple[Any, ...]
_CLASS = type  # where a parameter has that name
_NONE = type(None)
_SMALL = 16  # up to this many rows, encoding by value is faster than by column
_SCHEMAS = 256  # whose encoders are cached
_FILE_NAME = re.compile(
    r"[^\n]{0,200}\S\.(csv|tsv|json|jsonl|ndjson|parquet)(\.\w+)?|(~|\.{0,2})/[^\n]{1,200}", re.IGNORECASE
)


Missing = Literal["error", "null"]
"""What becomes of a column that dicts or frames do not have: an error, or NULL."""


def encode(
    rows: Any, schema: Schema, dictionary: Dictionary, table: str, room: int = 0, missing: Missing = "error"
) -> Codes:
    """Encode rows of any supported kind as codes [n, columns]. Columnar rows get `room` more columns, whose cells are
    not set. Dicts and frames must have every column, unless `missing` says that others are NULL.

    >>> from whence.model.types import Column, INTEGER, TEXT
    >>> schema = Schema((Column("src", TEXT), Column("cost", INTEGER)))
    >>> encode([("a", 1), {"src": "b", "cost": 2}], schema, Dictionary(), "link").tolist()
    [[0, 1], [1, 2]]
    >>> encode([("a", "x")], schema, Dictionary(), "link")
    Traceback (most recent call last):
    whence.model.errors.DataError: table link, row 1, column cost: 'x' (str) is not a value of type INTEGER
    """
    if missing not in ("error", "null"):
        raise DataError(f"missing is 'error' or 'null', not {format_value(missing)}")
    given = as_list_or_arrow(rows, table)
    if isinstance(given, list):
        return _encode_rows(given, schema, dictionary, table, missing)
    lacking: Missing = missing if len(given) else "null"  # there is nothing to fill in
    check_columns(f"table {table}", given.column_names, schema, lacking, index_names(rows))
    return _encode_table(given, schema, dictionary, table, room)


def as_list_or_arrow(rows: Any, table: str) -> list[Any] | pa.Table:
    """Return rows of any kind we take as a list of rows, or as an Arrow table if they are columnar.

    >>> as_list_or_arrow((1, 2), "t"), as_list_or_arrow(((1, 2), (3, 4)), "t")
    ([(1, 2)], [(1, 2), (3, 4)])
    >>> as_list_or_arrow(7, "t")
    Traceback (most recent call last):
    whence.model.errors.DataError: table t: expected rows (tuples, dicts, Arrow, pandas, polars), not 7
    >>> as_list_or_arrow("x.csv", "t")
    Traceback (most recent call last):
    whence.model.errors.DataError: table t: expected rows (tuples, dicts, Arrow, pandas, polars), not 'x.csv'; \
for the rows of a file, give its Path: pathlib.Path('x.csv')
    """
    if isinstance(rows, list):
        return rows
    if isinstance(rows, dict) or (isinstance(rows, tuple) and not (rows and isinstance(rows[0], (tuple, dict)))):
        return [rows]
    columnar = as_arrow(rows)
    if columnar is not None:
        return columnar
    if isinstance(rows, (str, bytes)) or not isinstance(rows, Iterable) or getattr(rows, "shape", None) == ():
        raise DataError(
            f"table {table}: expected rows (tuples, dicts, Arrow, pandas, polars), not {format_value(rows)}"
            f"{_path_hint(rows)}"
        )
    return list(rows)


def _path_hint(rows: Any) -> str:
    """Return a hint to add where text stands for rows, if it looks like the name of a file."""
    if not isinstance(rows, str) or not _FILE_NAME.fullmatch(rows):
        return ""
    return f"; for the rows of a file, give its Path: pathlib.Path({rows!r})"


def index_names(rows: Any) -> list[Any]:
    """Return the names of a pandas DataFrame's index, which is one column per level that has a name."""
    pandas = type(rows).__module__.partition(".")[0] == "pandas" and hasattr(rows, "columns")
    return [name for name in rows.index.names if name is not None] if pandas else []


def as_arrow(rows: Any) -> pa.Table | None:
    """Convert columnar rows (Arrow, pandas, polars, anything with the Arrow stream protocol) to an Arrow table.

    Levels of a pandas index that have names are columns.

    >>> as_arrow(pa.table({"a": [1]})).num_rows, as_arrow([(1,)])
    (1, None)
    """
    if isinstance(rows, pa.Table):
        return rows
    if isinstance(rows, pa.RecordBatch):
        return pa.Table.from_batches([rows])
    if isinstance(rows, pa.RecordBatchReader):
        try:
            return rows.read_all()
        except pa.ArrowException as error:
            raise DataError(f"the record batches cannot be read: {error!s:.300}") from None
    if type(rows).__module__.partition(".")[0] == "pandas" and hasattr(rows, "columns"):
        try:
            named = index_names(rows)
            return pa.Table.from_pandas(rows.reset_index(level=named) if named else rows, preserve_index=False)
        except (pa.ArrowException, ValueError, TypeError, ArithmeticError) as error:
            mixed = "has a column of mixed types" if isinstance(error, pa.ArrowException) else "cannot be read"
            raise DataError(f"this DataFrame {mixed}: {error!s:.300}") from None
    if hasattr(rows, "__arrow_c_stream__"):
        try:
            return pa.table(rows)
        except pa.ArrowException as error:
            raise DataError(f"{type(rows).__name__} is not a table of named columns: {error}") from None
    return None


def _encode_rows(
    rows: Sequence[Any], schema: Schema, dictionary: Dictionary, table: str, missing: Missing = "error"
) -> Codes:
    rows, width = as_tuples(rows, schema, table, missing), len(schema)
    try:
        if len(rows) <= _SMALL:
            encoders = _encoders(schema)
            flat = [
                v if number and v.__class__ is int and -0x80000000 <= v < 0x80000000 else encode(v, type, dictionary)
                for row in rows
                for (number, encode, type), v in zip(encoders, row, strict=True)
            ]
            return np.array(flat, np.int64).reshape(len(rows), width)
        out = np.empty((len(rows), width), np.int64)
        for i, column in enumerate(zip(*rows, strict=True)):
            out[:, i] = _encode_values(column, schema.columns[i].type, dictionary)
        return out
    except DataError:
        raise _first_fault(rows, schema, dictionary, table) from None


def as_tuples(rows: Sequence[Any], schema: Schema, table: str, missing: Missing = "error") -> Sequence[Row]:
    """Convert rows of any kind to tuples of the right length.

    >>> from whence.model.types import Column, INTEGER
    >>> as_tuples([{"A": 1}, [2]], Schema((Column("a", INTEGER),)), "t")
    [(1,), (2,)]
    """
    width = len(schema)
    for number, row in enumerate(rows):
        if _CLASS(row) is not tuple or len(row) != width:
            rest = (_as_tuple(r, schema, table, number + i + 1, missing) for i, r in enumerate(rows[number:]))
            return [*rows[:number], *rest]
    return rows


def _as_tuple(row: Any, schema: Schema, table: str, number: int, missing: Missing) -> Row:
    try:
        return _values_of(row, schema, table, number, missing)
    except DataError:
        raise
    except Exception as failure:  # a row may be of any class; its own methods failed
        raise DataError(f"table {table}, row {number}: cannot be read: {format_value(failure)}") from failure


def _values_of(row: Any, schema: Schema, table: str, number: int, missing: Missing) -> Row:
    if isinstance(row, Mapping):
        values = [row.get(name) for name in schema.names]
        if len(row) != len(values) or any(name not in row for name in schema.names):
            lower: dict[str, Any] = {}
            for name, value in row.items():
                if (low := format_value(name).lower() if not isinstance(name, str) else name.lower()) in lower:
                    raise DataError(f"table {table}, row {number}: column {low:.80} is given twice")
                lower[low] = value
            check_columns(f"table {table}, row {number}", list(lower), schema, missing)
            values = [lower.get(name) for name in schema.names]
        return tuple(values)
    if isinstance(row, (str, bytes)) or not isinstance(row, Iterable) or getattr(row, "shape", None) == ():
        raise DataError(f"table {table}, row {number}: {format_value(row)} is not a row {schema}{_path_hint(row)}")
    values = list(row)
    if len(values) != len(schema):
        count = f"{len(values)} values for the {len(schema)} columns {schema}"
        raise DataError(f"table {table}, row {number}: {count}{schema.advise() * (len(values) > len(schema))}")
    return tuple(values)


def folded(name: object, schema: Schema) -> str:
    """Return a column's name as the table has it, whatever case it is given in."""
    text = name if isinstance(name, str) else format_value(name)
    return text if text in schema.names else text.lower()


def check_columns(
    place: str, given: Sequence[str], schema: Schema, missing: Missing = "error", index: Sequence[Any] = ()
) -> None:
    """Raise DataError if columns are given twice, are not the table's, or are missing and must not be.

    >>> from whence.model.types import Column, INTEGER
    >>> check_columns("table t", ["A"], Schema((Column("a", INTEGER), Column("b", INTEGER))))
    Traceback (most recent call last):
    whence.model.errors.DataError: table t: no values for column b; give them, or missing="null" to make them NULL
    """
    names = [folded(name, schema) for name in given]
    if len(set(names)) < len(names):
        twice = next(name for i, name in enumerate(names) if name in names[:i])
        raise DataError(f"{place}: column {twice:.80} is given twice")
    unknown = [str(name) for name, own in zip(given, names, strict=True) if own not in schema.names]
    if unknown:
        error = unknown_columns(place, sorted(unknown), schema)
        levels = [name for name in unknown if name in {str(level) for level in index}]
        hint = f"; {list_names(levels)} is an index of the DataFrame, which reset_index(drop=True) leaves out"
        raise DataError(f"{error}{hint}") if levels else error
    lacking = [name for name in schema.names if name not in names]
    if lacking and missing == "error":
        plural = "s" * (len(lacking) > 1)
        raise DataError(
            f"{place}: no values for column{plural} {list_names(lacking)}; "
            'give them, or missing="null" to make them NULL'
        )


def unknown_columns(place: str, names: Sequence[str], schema: Schema) -> DataError:
    """Return the error for columns that a table does not have."""
    return DataError(
        f"{place}: no column {list_names(names)} in {schema}"
        f"{schema.advise(names) or did_you_mean(names[0].lower(), schema.names)}"
    )


def list_names(names: Sequence[str]) -> str:
    """List some names for a message, not too many.

    >>> list_names(["a", "b", "c", "d", "e", "f", "g"])
    'a, b, c, d, e and 2 more'
    """
    some = ", ".join(f"{name:.80}" for name in names[:5])
    return some if len(names) <= 5 else f"{some} and {len(names) - 5} more"


def _first_fault(rows: Iterable[Row], schema: Schema, dictionary: Dictionary, table: str) -> DataError:
    """Return the error for the first value that does not fit."""
    for number, row in enumerate(rows, 1):
        for column, value in zip(schema.columns, row, strict=True):
            try:
                encode_value(value, column.type, dictionary)
            except DataError as error:
                return DataError(f"table {table}, row {number}, column {column.name}: {error}")
    return DataError(f"table {table}: a value does not fit {schema}")


def _encode_values(values: Sequence[Any], type: Type, dictionary: Dictionary) -> Codes:
    """Encode a column of Python values, by the whole column where their classes allow it."""
    kinds = set(map(_CLASS, values))
    clean = _NONE not in kinds
    kinds.discard(_NONE)
    match type.kind:
        case Kind.TEXT if kinds == {str}:
            return dictionary.intern_all(values)
        case Kind.INTEGER | Kind.BIGINT if kinds == {int}:
            try:
                codes = np.array(values if clean else [NULL if v is None else v for v in values], np.int64)
            except OverflowError:
                raise DataError("out of range") from None
            checked = codes if clean else codes[np.fromiter((v is not None for v in values), bool, len(values))]
            low, high = checked.min(), checked.max()
            if low == NULL or (type.kind is Kind.INTEGER and (low < -(2**31) or high >= 2**31)):
                raise DataError("out of range")
            return codes
        case Kind.DOUBLE if clean and kinds <= {float, int}:
            try:
                return floats_to_codes(np.array(values, np.float64))
            except OverflowError:
                raise DataError("out of range") from None
    quick = _QUICK[type.kind]
    return np.array([quick(v, type, dictionary) for v in values], np.int64)


def _encode_table(data: pa.Table, schema: Schema, dictionary: Dictionary, table: str, room: int = 0) -> Codes:
    given = {folded(name, schema): i for i, name in enumerate(data.column_names)}
    out = np.empty((data.num_rows, len(schema) + room), np.int64)
    for i, column in enumerate(schema.columns):
        if column.name not in given:
            out[:, i] = NULL
            continue
        values = data.column(given[column.name])
        if put_column(values, column.type, out, i):
            continue
        codes = encode_column(values, column.type, dictionary)
        out[:, i] = _encode_slowly(values, column, dictionary, table) if codes is None else codes
    return out


def _encode_slowly(values: pa.ChunkedArray, column: Column, dictionary: Dictionary, table: str) -> Codes:
    """Encode a column value by value; DataError names the first that does not fit."""
    try:
        found = values.to_pylist()
    except (ValueError, OverflowError):
        raise _unrepresentable(values, column, table) from None
    try:
        return _encode_values(found, column.type, dictionary)
    except DataError:
        raise _first_fault(((v,) for v in found), Schema((column,)), dictionary, table) from None


def _unrepresentable(values: pa.ChunkedArray, column: Column, table: str) -> DataError:
    """Return the error for the first value that Python has none for, such as a date in the year 10000."""
    for number, value in enumerate(values, 1):
        try:
            value.as_py()
        except (ValueError, OverflowError) as error:
            dated = pa.types.is_timestamp(values.type) or pa.types.is_date(values.type)
            reason = "outside the years 1 to 9999" if dated and isinstance(error, OverflowError) else str(error)
            place = f"table {table}, row {number}, column {column.name}"
            return DataError(f"{place}: a value that is not of type {column.type}: {reason}")
    return DataError(f"table {table}, column {column.name}: a value is not of type {column.type}")


def check_not_null(codes: Codes, schema: Schema, table: str) -> None:
    """Raise DataError if a NOT NULL column holds NULL.

    >>> from whence.model.types import Column, TEXT
    >>> check_not_null(np.array([[NULL]]), Schema((Column("src", TEXT, nullable=False),)), "link")
    Traceback (most recent call last):
    whence.model.errors.DataError: table link, row 1, column src: NULL in a NOT NULL column
    """
    if not (codes == NULL).any():
        return
    for i in schema.required:
        null = codes[:, i] == NULL
        if null.any():
            number, column = int(null.argmax()) + 1, schema.columns[i]
            raise DataError(f"table {table}, row {number}, column {column.name}: NULL in a NOT NULL column")


# One value at a time, for small batches: the common classes inline, everything else through `encode_value`.

_PACK, _UNPACK = struct.Struct("<d").pack, struct.Struct("<q").unpack
_HIGH = 0x7FFFFFFFFFFFFFFF


def _quick_text(value: Any, type: Type, dictionary: Dictionary) -> int:
    if _CLASS(value) is str:
        return dictionary.intern(value)
    return encode_value(value, type, dictionary)


def _quick_double(value: Any, type: Type, dictionary: Dictionary) -> int:
    if _CLASS(value) is float and not math.isnan(value):
        bits: int = _UNPACK(_PACK(value + 0.0))[0]
        return bits ^ _HIGH if bits < 0 else bits
    return encode_value(value, type, dictionary)


_QUICK: dict[Kind, Callable[[Any, Type, Dictionary], int]] = dict.fromkeys(Kind, encode_value)
_QUICK.update({Kind.TEXT: _quick_text, Kind.DOUBLE: _quick_double})
_Encoder = tuple[bool, Callable[[Any, Type, Dictionary], int], Type]


_known: dict[int, tuple[Schema, list[_Encoder]]] = {}


def _encoders(schema: Schema) -> list[_Encoder]:
    """Return of each column whether small integers are their own codes, how a value is encoded, and the type."""
    found = _known.get(id(schema))
    if found is None or found[0] is not schema:
        if len(_known) >= _SCHEMAS:
            _known.clear()
        found = _known[id(schema)] = schema, [(type.is_integer, _QUICK[type.kind], type) for type in schema.types]
    return found[1]


# Rows out.


def expand(rows: Codes, multiplicity: Codes) -> Codes:
    """Repeat each row as often as its multiplicity says.

    >>> expand(np.array([[7], [8]]), np.array([2, 0])).tolist()
    [[7], [7]]
    """
    if len(multiplicity) and (multiplicity.min() != 1 or multiplicity.max() != 1):
        return np.repeat(rows, multiplicity, axis=0)
    return rows


def to_arrow(rows: Codes, multiplicity: Codes, schema: Schema, dictionary: Dictionary) -> pa.Table:
    """Convert rows to an Arrow table, each as often as its multiplicity.

    >>> from whence.model.types import Column, INTEGER
    >>> to_arrow(np.array([[7]]), np.array([2]), Schema((Column("a", INTEGER),)), Dictionary()).to_pydict()
    {'a': [7, 7]}
    """
    rows = expand(rows, multiplicity)
    arrays = [decode_column(rows[:, i], c.type, dictionary) for i, c in enumerate(schema.columns)]
    return pa.Table.from_arrays(arrays, schema=arrow_schema(schema))


def to_pandas(table: pa.Table) -> pandas.DataFrame:
    """Convert rows to a pandas DataFrame; dates stay dates and decimals stay exact."""
    try:
        return table.to_pandas(date_as_object=True)
    except (ValueError, OverflowError) as error:
        raise EvaluationError(f"the rows hold a value that pandas cannot: {error}") from None


def to_polars(table: pa.Table) -> polars.DataFrame:
    """Convert rows to a polars DataFrame (an INTERVAL, which polars does not have, becomes a struct of months, days and
    micros)."""
    import polars

    for i, field in enumerate(table.schema):
        if field.type == pa.month_day_nano_interval():
            spans = [
                None if v is None else {"months": v[0], "days": v[1], "micros": v[2] // 1000}
                for v in table.column(i).to_pylist()
            ]
            struct_type = pa.struct([("months", pa.int64()), ("days", pa.int64()), ("micros", pa.int64())])
            table = table.set_column(i, field.name, pa.array(spans, struct_type))
    frame = polars.from_arrow(table)
    assert isinstance(frame, polars.DataFrame)
    return frame


def to_tuples(rows: Codes, schema: Schema, dictionary: Dictionary) -> list[Row]:
    """Convert rows to Python tuples.

    >>> from whence.model.types import Column, INTEGER
    >>> to_tuples(np.array([[7], [NULL]]), Schema((Column("a", INTEGER),)), Dictionary())
    [(7,), (None,)]
    """
    if not len(schema):
        return [()] * len(rows)
    return list(zip(*to_columns(rows, schema, dictionary), strict=True))


def to_columns(rows: Codes, schema: Schema, dictionary: Dictionary) -> list[list[Any]]:
    """Convert rows to columns of Python values.

    >>> from whence.model.types import Column, INTEGER
    >>> to_columns(np.array([[7], [NULL]]), Schema((Column("a", INTEGER),)), Dictionary())
    [[7, None]]
    """
    numbers: list[list[Any]] = rows.T.tolist()
    return [_values(rows[:, i], numbers[i], column.type, dictionary) for i, column in enumerate(schema.columns)]


def to_dicts(rows: Iterable[Row], schema: Schema) -> list[dict[str, Any]]:
    """Convert rows to dicts by column name.

    >>> from whence.model.types import Column, INTEGER
    >>> to_dicts([(7,)], Schema((Column("a", INTEGER),)))
    [{'a': 7}]
    """
    names = schema.names
    return [dict(zip(names, row, strict=True)) for row in rows]


def _values(codes: Codes, numbers: list[Any], type: Type, dictionary: Dictionary) -> list[Any]:
    """Return the values of codes, which are given as an array and as numbers."""
    if type.is_integer:
        return numbers if NULL not in numbers else [None if n == NULL else n for n in numbers]
    if type.is_interned:
        return dictionary.values(codes)
    if type.kind is Kind.DOUBLE:
        numbers = codes_to_floats(codes).tolist()
    one = _DECODE.get(type.kind)
    if type.kind is Kind.DECIMAL:
        numbers = _decimals(numbers, type, dictionary)
    elif one is not None:
        numbers = [one(n) if n != NULL else n for n in numbers]
    null = codes == NULL
    if null.any():
        for i in np.flatnonzero(null).tolist():
            numbers[i] = None
    return numbers


def _decimals(codes: list[int], type: Type, dictionary: Dictionary) -> list[Any]:
    """Return the numbers behind codes of a DECIMAL; NULL stays as it is."""
    if type.is_wide:
        unit = type.scale
        return [wide.to_decimal(wide.number_of(n, dictionary), unit) if n != NULL else n for n in codes]
    scale = -type.scale
    return [Decimal(n).scaleb(scale) if n != NULL else n for n in codes]


_DECODE: dict[Kind, Callable[[int], Any]] = {
    Kind.BOOLEAN: bool,
    Kind.DATE: decode_date,
    Kind.TIMESTAMP: decode_timestamp,
}

__all__ = [
    "Interval",
    "as_arrow",
    "as_tuples",
    "check_not_null",
    "encode",
    "expand",
    "to_arrow",
    "to_columns",
    "to_dicts",
    "to_pandas",
    "to_polars",
    "to_tuples",
]
