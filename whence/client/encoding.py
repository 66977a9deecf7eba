"""Rows and values on their way to a server, and tables on their way back.

Rows travel as lists of plain values (`subscribe/plain.py`), which the server reads as values of its columns; rows that
are columnar already travel as an Arrow stream. What does not fit the table is the server's to say, with the message
that a local database has.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from itertools import chain
from typing import Any

import numpy as np
import pyarrow as pa

from whence.io.results import Result
from whence.model.codes import Interval, format_value
from whence.model.errors import DataError
from whence.subscribe.plain import plain_value

_AS_THEY_ARE = {type(None), bool, str, float, int}
_LARGE = 2**63  # beyond that an integer is sent as text, for the server to refuse


@dataclass(frozen=True)
class WireRows:
    """Rows as a message has them: `rows`, with `columns` if they are not in the order of the table, or `arrow`.

    Rows that are dicts with different columns stay dicts: `mixed`."""

    count: int
    rows: list[Any] | None = None
    columns: list[str] | None = None
    arrow: bytes | None = None
    mixed: bool = False


def wire_value(value: Any) -> Any:
    """Return a value of Python, or of NumPy, as a message has it.

    >>> wire_value(dt.date(2026, 11, 17)), wire_value(np.int64(7)), wire_value(dt.timedelta(hours=1)), wire_value([1.5])
    ('2026-11-17', 7, '01:00:00', [1.5])
    """
    if value.__class__ in _AS_THEY_ARE and not (value.__class__ is int and not -_LARGE <= value < _LARGE):
        return value
    match value:
        case np.datetime64() | np.timedelta64():
            whole = np.datetime_data(value.dtype)[0] == "D" and isinstance(value, np.datetime64)
            return wire_value(value.item() if whole else value.astype(value.dtype.str[:3] + "[us]").item())
        case np.generic():
            return wire_value(value.item())
        case np.ndarray():
            return wire_value(value.tolist())
        case dt.datetime() if value.tzinfo is not None:
            return wire_value(value.astimezone(dt.UTC).replace(tzinfo=None))
        case dt.timedelta():
            return plain_value(Interval(0, value.days, value.seconds * 1_000_000 + value.microseconds))
        case Interval():
            return plain_value(value)
        case Mapping():
            return {str(name): wire_value(one) for name, one in value.items()}
        case list() | tuple() | set() | frozenset():
            return [wire_value(one) for one in value]
    try:
        return plain_value(value)
    except DataError:
        return repr(value)[:200] if not isinstance(value, (bytes, bytearray)) else format_value(value)


def wire_param(value: Any) -> Any:
    """Return a value for a parameter of SQL: with its type, where a plain value would have another one.

    >>> wire_param(7), wire_param("x"), wire_param(Decimal("2.50")), wire_param([dt.date(2026, 11, 17)])
    (7, 'x', {'type': 'DECIMAL', 'value': '2.50'}, [{'type': 'DATE', 'value': '2026-11-17'}])
    """
    if isinstance(value, (list, tuple, set, frozenset)) and not isinstance(value, Interval):
        return [wire_param(one) for one in value]
    if isinstance(value, np.generic):
        value = value.item() if not isinstance(value, (np.datetime64, np.timedelta64)) else _from_numpy(value)
    plain = wire_value(value)
    for kind, name in _PARAM_TYPES:
        if isinstance(value, kind):
            return {"type": name, "value": plain}
    return plain


_PARAM_TYPES: tuple[tuple[type[Any], str], ...] = (
    (Decimal, "DECIMAL"),
    (dt.datetime, "TIMESTAMP"),
    (dt.date, "DATE"),
    (dt.timedelta, "INTERVAL"),
    (Interval, "INTERVAL"),
)


def _from_numpy(value: Any) -> Any:
    whole = np.datetime_data(value.dtype)[0] == "D" and isinstance(value, np.datetime64)
    return value.item() if whole else value.astype(value.dtype.str[:3] + "[us]").item()


def wire_params(params: Any) -> Any:
    """Return the parameters of SQL, in a list or by name."""
    if params is None:
        return None
    if isinstance(params, Mapping):
        return {str(name): wire_param(value) for name, value in params.items()}
    if isinstance(params, (str, bytes)) or not isinstance(params, Iterable):
        raise DataError(f"params is a list of values or a dict by name, not {format_value(params)}")
    return [wire_param(value) for value in params]


def wire_rows(data: Any, table: str) -> WireRows:
    """Return rows of any kind that `Database.insert` takes, but for those of a file.

    >>> wire_rows([(1, "x"), (2, None)], "t"), wire_rows({"a": 1}, "t")
    (WireRows(count=2, rows=[(1, 'x'), (2, None)], columns=None, arrow=None, mixed=False), \
WireRows(count=1, rows=[(1,)], columns=['a'], arrow=None, mixed=False))
    """
    if not isinstance(data, list):
        if isinstance(data, dict) or (isinstance(data, tuple) and not (data and isinstance(data[0], (tuple, dict)))):
            data = [data]
        elif isinstance(data, tuple):
            data = list(data)
        else:
            from whence.io.rows import as_list_or_arrow  # loads what reads frames

            given = as_list_or_arrow(data, table)
            if not isinstance(given, list):
                return WireRows(given.num_rows, arrow=arrow_bytes(given))
            data = given
    return _wire_list(data)


def listed_rows(data: Any, table: str) -> list[Any]:
    """Return rows of any kind as a list of lists or dicts.

    >>> listed_rows([(1, "x")], "t"), listed_rows(pa.table({"a": [1]}), "t")
    ([(1, 'x')], [{'a': 1}])
    """
    found = wire_rows(data, table)
    if found.arrow is not None:
        columns = read_arrow(found.arrow)
        return [{name: wire_value(value) for name, value in row.items()} for row in Result(columns).to_dicts()]
    if found.columns is not None:
        return [dict(zip(found.columns, row, strict=True)) for row in found.rows or []]
    return list(found.rows or [])


def _wire_list(rows: list[Any]) -> WireRows:
    kinds = set(map(type, rows))
    if kinds <= {tuple, list}:
        return WireRows(len(rows), _plain_rows(rows))
    if kinds == {dict}:
        names = list(rows[0])
        if all(row.keys() == rows[0].keys() for row in rows) and all(isinstance(name, str) for name in names):
            return WireRows(len(rows), _plain_rows([tuple(map(row.__getitem__, names)) for row in rows]), names)
    plain = [dict(row) if isinstance(row, Mapping) else row for row in rows]
    return WireRows(len(rows), [wire_value(row) for row in plain], mixed=True)


def _plain_rows(rows: list[Any]) -> list[Any]:
    kinds = set(map(type, chain.from_iterable(rows)))
    if kinds <= _AS_THEY_ARE and (int not in kinds or _fits(rows)):
        return rows
    return [[wire_value(value) for value in row] for row in rows]


def _fits(rows: list[Any]) -> bool:
    return all(-_LARGE <= value < _LARGE for row in rows for value in row if value.__class__ is int)


def in_batches(data: Any, size: int) -> Iterator[Any]:
    """Yield rows in parts of at most `size`."""
    if size < 1:
        raise DataError(f"a batch has at least one row, not {size}")
    if isinstance(data, dict) or (isinstance(data, tuple) and not (data and isinstance(data[0], (tuple, dict)))):
        yield data
        return
    if not isinstance(data, (list, tuple)):
        from whence.io.rows import as_list_or_arrow

        data = as_list_or_arrow(data, "")
    length = len(data) if isinstance(data, (list, tuple)) else data.num_rows
    for start in range(0, length, size):
        yield data.slice(start, size) if isinstance(data, pa.Table) else list(data[start : start + size])


def arrow_bytes(table: pa.Table) -> bytes:
    """Return a table as an Arrow stream."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue())


def read_arrow(data: bytes) -> pa.Table:
    """Return the table that an Arrow stream holds."""
    try:
        with pa.ipc.open_stream(pa.BufferReader(data)) as reader:
            return reader.read_all()
    except (pa.ArrowException, OSError, ValueError) as error:
        raise DataError(f"the server sent rows that cannot be read: {error!s:.200}") from None


def plain_names(names: str | Sequence[str]) -> str | list[str]:
    """Return a name, or several."""
    return names if isinstance(names, str) else list(names)
