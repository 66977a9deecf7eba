"""The operations by which sources mark each row as an insertion or a deletion."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from whence.io.rows import as_arrow
from whence.model.codes import Codes, Dictionary, decode_value, format_value
from whence.model.errors import DataError
from whence.model.types import BIGINT, TEXT, Column, Schema

COMES = ("i", "insert", "inserted", "+", "+1", "1", "c", "create", "r", "read", "+i", "+u", "update_postimage")
GOES = ("d", "delete", "deleted", "-", "-1", "-d", "-u", "update_preimage")
EITHER = ("u", "update", "upsert")  # the row that has the key, whether it is there or not
OPS = "I, +, insert, c or r for a row that comes; D, - or delete for one that goes; U, update or upsert"
KEYLESS = "needs to know which row is changed: give the table a PRIMARY KEY, or the old row as a deletion"


def with_operation(schema: Schema, op: str, data: Any) -> Schema:
    """Return the columns of a table and, last, the one of operations: text, or numbers if `data` has those."""
    name = op.lower()
    if name in schema.names:
        raise DataError(f"the column {op} is one of the table's: operations stand in a column of their own")
    return Schema((*schema.columns, Column(name, BIGINT if _is_number(data, name) else TEXT)))


def _is_number(data: Any, op: str) -> bool:
    """Tell whether the operations in rows of any kind are numbers; of rows that are not columns the first one
    decides."""
    columnar = as_arrow(data) if not isinstance(data, (list, tuple, dict)) else None
    if columnar is not None:
        types = [field.type for field in columnar.schema if field.name.lower() == op]
        return any(pa.types.is_integer(type) for type in types)
    rows = data if isinstance(data, list) else [data]
    first = rows[0] if rows else None
    if isinstance(first, dict):
        first = [value for name, value in first.items() if str(name).lower() == op]
    return isinstance(first, (list, tuple)) and bool(first) and isinstance(first[-1], int)


def signs(codes: Codes, schema: Schema, dictionary: Dictionary, table: str, keyed: bool) -> Codes:
    """Return the sign that each code of the last column of `with_operation` says."""
    op = schema.columns[-1]
    distinct, which = np.unique(codes, return_inverse=True)
    try:
        said = [sign(decode_value(code, op.type, dictionary), keyed) for code in distinct]
    except DataError as error:
        raise DataError(f"table {table}, column {op.name}: {error}") from None
    return np.array(said, np.int64)[which] if said else np.empty(0, np.int64)


def sign(value: object, keyed: bool) -> int:
    """Return +1 for an operation by which a row comes, -1 for one by which it goes.

    >>> sign("D", False), sign(" upsert", True), sign(1, False)
    (-1, 1, 1)
    """
    word = str(value).strip().lower() if value is not None else ""
    if word in COMES or (keyed and word in EITHER):
        return 1
    if word in GOES:
        return -1
    if word in EITHER:
        raise DataError(f"{format_value(value)} {KEYLESS}")
    raise DataError(f"{format_value(value)} is no operation; there are {OPS}")
