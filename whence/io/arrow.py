"""Conversion of Arrow columns to codes and back, a whole column at a time.

Integers, floats, dates and timestamps move as numpy arrays with a null mask; text is dictionary-encoded by Arrow and
only its distinct values are interned, or it is looked up by its bytes (`texts`); decimals are moved as their unscaled
integers, so they stay exact. A column that has no fast way (`None` from `encode_column`) is encoded value by value by
the caller, which also finds the bad row.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from whence.io.kernels.columns import put_floats, put_integers
from whence.io.texts import texts_of, worth_it
from whence.model import wide
from whence.model.codes import (
    DAY,
    FIRST_DAY,
    LAST_DAY,
    NULL,
    Codes,
    Dictionary,
    Interval,
    codes_to_floats,
    floats_to_codes,
)
from whence.model.types import Kind, Schema, Type

_PLAIN: dict[Kind, pa.DataType] = {
    Kind.BOOLEAN: pa.bool_(),
    Kind.INTEGER: pa.int32(),
    Kind.BIGINT: pa.int64(),
    Kind.DOUBLE: pa.float64(),
    Kind.TEXT: pa.string(),
    Kind.DATE: pa.date32(),
    Kind.TIMESTAMP: pa.timestamp("us"),
    Kind.INTERVAL: pa.month_day_nano_interval(),
    Kind.NULL: pa.null(),
}

_RANGE = {Kind.INTEGER: (-(2**31), 2**31 - 1), Kind.BIGINT: (NULL + 1, 2**63 - 1)}
_FEW = 100  # values that are decoded one by one
_INTEGERS = (pa.int64(), pa.int32())


def arrow_type(type: Type) -> pa.DataType:
    """Return the Arrow type that holds a SQL type's values.

    >>> from whence.model.types import decimal
    >>> arrow_type(decimal(9, 2))
    Decimal128Type(decimal128(9, 2))
    """
    if type.kind is Kind.DECIMAL:
        return pa.decimal128(type.precision, type.scale)
    return _PLAIN[type.kind]


def arrow_schema(schema: Schema) -> pa.Schema:
    """Return the Arrow schema of a relation.

    >>> from whence.model.types import Column, TEXT
    >>> arrow_schema(Schema((Column("src", TEXT),))).names
    ['src']
    """
    return pa.schema([pa.field(c.name, arrow_type(c.type), c.nullable) for c in schema.columns])


def encode_column(column: pa.ChunkedArray, type: Type, dictionary: Dictionary) -> Codes | None:
    """Encode a column; None if it needs to be encoded value by value (a wrong type, a value out of range).

    >>> encode_column(pa.chunked_array([["a", None, "a"]]), Type(Kind.TEXT), Dictionary()).tolist() == [0, NULL, 0]
    True
    """
    if pa.types.is_null(column.type):
        return np.full(len(column), NULL, np.int64)
    try:
        if pa.types.is_dictionary(column.type) and type.kind is not Kind.TEXT:
            column = column.cast(column.type.value_type)
        return _encode(column, type, dictionary)
    except (pa.ArrowException, UnicodeDecodeError):
        return None


def _encode(column: pa.ChunkedArray, type: Type, dictionary: Dictionary) -> Codes | None:
    arrow = column.type
    match type.kind:
        case Kind.TEXT:
            return _encode_text(column, dictionary)
        case Kind.BOOLEAN if pa.types.is_boolean(arrow):
            return _numpy(column.cast(pa.int8()), np.int64)
        case Kind.INTEGER | Kind.BIGINT if pa.types.is_integer(arrow) or pa.types.is_floating(arrow):
            return _encode_integer(column, type)
        case Kind.DOUBLE if pa.types.is_integer(arrow) or pa.types.is_floating(arrow) or pa.types.is_decimal(arrow):
            null = _null_mask(column)
            floats = column if arrow == pa.float64() else column.cast(pa.float64(), safe=False)
            codes = floats_to_codes((floats if null is None else floats.fill_null(0.0)).to_numpy())
            if null is not None:
                codes[null] = NULL
            return codes
        case Kind.DECIMAL if pa.types.is_decimal(arrow) or pa.types.is_integer(arrow):
            return _encode_decimal(column.cast(pa.decimal128(38, type.scale)), type, dictionary)
        case Kind.DATE if pa.types.is_date(arrow):
            return _between(_numpy(column.cast(pa.date32()).cast(pa.int32()), np.int64), FIRST_DAY, LAST_DAY)
        case Kind.TIMESTAMP if pa.types.is_timestamp(arrow) or pa.types.is_date(arrow):
            return _between(_encode_timestamp(column), FIRST_DAY * DAY, LAST_DAY * DAY + DAY - 1)
        case Kind.INTERVAL if arrow == pa.month_day_nano_interval():
            spans = (None if v is None else Interval(v[0], v[1], v[2] // 1000) for v in column.to_pylist())
            return dictionary.intern_all(spans)
    return None


def _null_mask(column: pa.ChunkedArray) -> NDArray[np.bool_] | None:
    return column.is_null().to_numpy() if column.null_count else None


def _numpy(column: pa.ChunkedArray, dtype: Any) -> Codes:
    null = _null_mask(column)
    values = (column if null is None else column.fill_null(0)).to_numpy()
    codes: Codes = values.astype(dtype, copy=null is not None)
    if null is not None:
        codes[null] = NULL
    return codes


def put_column(column: pa.ChunkedArray, type: Type, out: Codes, place: int) -> bool:
    """Write the codes of a column to one of `out`, without a copy of it, if it is one array of numbers without NULLs
    whose codes follow from their bits; False if not, or if a number is out of range.

    >>> out = np.zeros((2, 2), np.int64)
    >>> put_column(pa.chunked_array([[7, 8]]), Type(Kind.BIGINT), out, 1), out.tolist()
    (True, [[0, 7], [0, 8]])
    """
    if column.num_chunks != 1 or column.null_count:
        return False
    if type.kind in _RANGE and column.type in _INTEGERS:
        return put_integers(column.chunk(0).to_numpy(), out, place, *_RANGE[type.kind])
    if type.kind is Kind.DOUBLE and column.type == pa.float64():
        put_floats(column.chunk(0).to_numpy().view(np.int64), out, place)
        return True
    return False


def _encode_integer(column: pa.ChunkedArray, type: Type) -> Codes | None:
    """Encode whole numbers within the type's range; NULL's own code is no number."""
    codes = _numpy(column.cast(pa.int64()), np.int64)
    null = _null_mask(column)
    known = codes if null is None else codes[~null]
    low, high = _RANGE[type.kind]
    fits = not len(known) or (known.min() >= low and known.max() <= high)
    return codes if fits else None


def _encode_text(column: pa.ChunkedArray, dictionary: Dictionary) -> Codes | None:
    if not pa.types.is_dictionary(column.type):
        if not (pa.types.is_string(column.type) or pa.types.is_large_string(column.type)):
            if column.type != pa.string_view():
                return None
            column = column.cast(pa.large_string())
        if worth_it(column, dictionary):
            texts = texts_of(dictionary)
            return np.concatenate([texts.codes(chunk, dictionary) for chunk in column.chunks])
        column = column.dictionary_encode()
    out = []
    for chunk in column.chunks:
        values = chunk.dictionary
        if pa.types.is_null(values.type):
            out.append(np.full(len(chunk), NULL, np.int64))
            continue
        if values.type not in (pa.string(), pa.large_string(), pa.string_view()):
            return None
        known = np.append(dictionary.intern_all(values.to_pylist()), NULL)
        indices = chunk.indices.fill_null(len(known) - 1) if chunk.indices.null_count else chunk.indices
        out.append(known[indices.to_numpy(zero_copy_only=False)])
    return out[0] if len(out) == 1 else np.concatenate([*out, np.empty(0, np.int64)])


def _encode_decimal(column: pa.ChunkedArray, type: Type, dictionary: Dictionary) -> Codes | None:
    out = np.empty(len(column), np.int64)
    at, limit = 0, 10**type.precision
    for chunk in column.chunks:
        words = np.frombuffer(chunk.buffers()[1], np.int64, 2 * (chunk.offset + len(chunk)))[2 * chunk.offset :]
        low, high = words[::2].copy(), words[1::2]
        valid = np.ones(len(chunk), bool) if not chunk.null_count else chunk.is_valid().to_numpy(zero_copy_only=False)
        if type.is_wide:
            codes = _wide_codes(np.where(valid, high, NULL), low, type, dictionary)
        else:
            fits = (high == low >> 63) & (low > -limit) & (low < limit)
            codes = np.where(valid, low, NULL) if fits[valid].all() else None
        if codes is None:
            return None
        out[at : at + len(chunk)] = codes
        at += len(chunk)
    return out


def _wide_codes(high: Codes, low: Codes, type: Type, dictionary: Dictionary) -> Codes | None:
    """Encode decimals as words; None if one has more digits than the type."""
    limit = 10**type.precision
    for at in np.flatnonzero((high != NULL) & (high != low >> 63)).tolist():
        if not -limit < (int(high[at]) << 64) + (int(low[at]) & (2**64 - 1)) < limit:
            return None
    return wide.from_parts(high, low, dictionary)[0]


def _between(codes: Codes, low: int, high: int) -> Codes | None:
    """Return the codes, if all but NULL are in the range."""
    fits = (codes >= low) & (codes <= high) | (codes == NULL)
    return codes if fits.all() else None


def _encode_timestamp(column: pa.ChunkedArray) -> Codes:
    if pa.types.is_timestamp(column.type) and column.type.unit == "ns":
        codes = _numpy(column.cast(pa.int64()), np.int64)
        return np.where(codes == NULL, NULL, codes // 1000)
    zone = column.type.tz if pa.types.is_timestamp(column.type) else None
    return _numpy(column.cast(pa.timestamp("us", zone)).cast(pa.int64()), np.int64)


def decode_column(codes: Codes, type: Type, dictionary: Dictionary) -> pa.Array:
    """Decode a column of codes to an Arrow array.

    >>> decode_column(np.array([1, NULL]), Type(Kind.BOOLEAN), Dictionary()).to_pylist()
    [True, None]
    """
    null = codes == NULL
    mask = null if null.any() else None
    match type.kind:
        case Kind.TEXT:
            return _decode_text(codes, null, dictionary)
        case Kind.BOOLEAN:
            return pa.array(codes != 0, mask=mask)
        case Kind.INTEGER:
            return pa.array(np.where(null, 0, codes).astype(np.int32), mask=mask)
        case Kind.DOUBLE:
            return pa.array(codes_to_floats(codes), mask=mask, from_pandas=False)
        case Kind.DECIMAL:
            return _decode_decimal(codes, null, type, dictionary)
        case Kind.DATE:
            return pa.array(np.where(null, 0, codes).astype(np.int32), mask=mask).cast(pa.date32())
        case Kind.TIMESTAMP:
            return pa.array(np.where(null, 0, codes), mask=mask).cast(pa.timestamp("us"))
        case Kind.INTERVAL:
            spans = [None if v is None else (v.months, v.days, v.micros * 1000) for v in dictionary.values(codes)]
            return pa.array(spans, pa.month_day_nano_interval())
        case Kind.NULL:
            return pa.nulls(len(codes))
    return pa.array(np.ascontiguousarray(codes), mask=mask)


def _decode_text(codes: Codes, null: NDArray[np.bool_], dictionary: Dictionary) -> pa.Array:
    if len(codes) <= _FEW:
        return pa.array(dictionary.values(codes), pa.string())
    mask = null if null.any() else None
    if len(dictionary) <= 4 * len(codes):  # mark the codes that occur: linear, where sorting them would not be
        used = np.zeros(len(dictionary), bool)
        used[codes if mask is None else codes[~null]] = True
        unique = np.flatnonzero(used)
        place = np.cumsum(used, dtype=np.int32) - 1  # strings of more would not fit into one array
        known = codes if mask is None else np.where(null, 0, codes)
        indices: NDArray[np.signedinteger] = place[known] if len(place) else np.zeros(len(codes), np.int32)
    else:
        unique, indices = np.unique(codes, return_inverse=True)
    values = pa.array(dictionary.values(unique), pa.string())
    return pa.DictionaryArray.from_arrays(pa.array(indices, mask=mask), values).cast(pa.string())


def _decode_decimal(codes: Codes, null: NDArray[np.bool_], type: Type, dictionary: Dictionary) -> pa.Array:
    words = np.empty((len(codes), 2), np.int64)
    if type.is_wide:
        words[:, 1], words[:, 0] = wide.parts(codes, dictionary)
        words[null] = 0
    else:
        words[:, 0] = np.where(null, 0, codes)
        words[:, 1] = words[:, 0] >> 63
    valid = pa.py_buffer(np.packbits(~null, bitorder="little").tobytes()) if null.any() else None
    return pa.Array.from_buffers(arrow_type(type), len(codes), [valid, pa.py_buffer(words.tobytes())])
