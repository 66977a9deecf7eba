"""Read values from text: the one way in which files and messages of text become values, with Spark or without.

    INTEGER, BIGINT   a decimal number that is whole: 12, +12, 12.0, 1.2e1
    DECIMAL           a decimal number, rounded half away from zero
    DOUBLE            a decimal number, or inf, infinity, nan
    BOOLEAN           true, t, yes, y, 1; false, f, no, n, 0
    DATE              2026-07-01
    TIMESTAMP         2026-07-01, with a time after a space or T, with a zone after that; then it is converted to UTC
    INTERVAL          P1M2DT3.5S, or 1 month 2 days 00:00:03.5

Case does not matter, nor do spaces around a value. The invariant: a column is read as its values are one by one. Arrow
reads a whole column where each of its texts is of a form that both understand alike; otherwise each distinct text is
read by itself.
"""

from __future__ import annotations

import re
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from whence.io.arrow import arrow_type
from whence.model.codes import DAY, FIRST_DAY, LAST_DAY, Dictionary, Interval, decode_value, encode_value, format_value
from whence.model.errors import DataError
from whence.model.text import read_interval
from whence.model.types import Kind, Schema, Type

_NUMBER = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:e[+-]?\d{1,3})?", re.IGNORECASE | re.ASCII)
_SPECIAL = re.compile(r"[+-]?(?:inf|infinity|nan)", re.IGNORECASE)
_TRUTH = dict.fromkeys(("true", "t", "yes", "y", "1"), True) | dict.fromkeys(("false", "f", "no", "n", "0"), False)
_DURATION = re.compile(
    r"P(?:(?P<Y>-?\d+)Y)?(?:(?P<M>-?\d+)M)?(?:(?P<D>-?\d+)D)?"
    r"(?:T(?:(?P<h>-?\d+)H)?(?:(?P<m>-?\d+)M)?(?:(?P<s>-?\d+(?:\.\d+)?)S)?)?"
)
_PLAIN = {  # forms that Arrow reads as we do
    Kind.BOOLEAN: r"(?i)true|false",
    Kind.INTEGER: r"-?\d{1,18}",
    Kind.BIGINT: r"-?\d{1,18}",
    Kind.DOUBLE: r"-?\d+(\.\d+)?([eE][+-]?\d{1,3})?",
    Kind.DATE: r"\d{4}-\d\d-\d\d",
}
_FIRST, _LAST = FIRST_DAY * DAY, (LAST_DAY + 1) * DAY - 1
_MOMENT = r"\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d(\.\d{1,6})?"
_ZONE = r"(Z|[+-]\d\d:\d\d)"


def read_value(text: str, type: Type) -> Any:
    """Read one value; a text that is no value of the type is a DataError.

    >>> from whence.model.types import TIMESTAMP
    >>> read_value("2026-07-01T10:00:00+02:00", TIMESTAMP)
    datetime.datetime(2026, 7, 1, 8, 0)
    """
    try:
        words = Dictionary()
        return decode_value(encode_value(_parsed(text.strip(), type), type, words), type, words)
    except (DataError, ValueError, ArithmeticError):
        raise DataError(f"{format_value(text)} is not a value of type {type}") from None


def _parsed(text: str, type: Type) -> Any:
    """Return what `encode_value` takes."""
    match type.kind:
        case Kind.BOOLEAN:
            return _TRUTH[text.lower()] if text.lower() in _TRUTH else _raise_unreadable(text)
        case Kind.DOUBLE if _SPECIAL.fullmatch(text):
            return float(text)
        case Kind.INTEGER | Kind.BIGINT | Kind.DECIMAL | Kind.DOUBLE:
            number = Decimal(text) if _NUMBER.fullmatch(text) else _raise_unreadable(text)
            return float(number) if type.kind is Kind.DOUBLE else _whole(number) if type.is_integer else number
        case Kind.INTERVAL:
            return parse_duration(text) if text[:1] in ("P", "p") else read_interval(text)
    return text


def _whole(number: Decimal) -> int:
    if number.adjusted() > 20 or number != number.to_integral_value():
        raise ValueError
    return int(number)


def _raise_unreadable(text: str) -> Any:
    raise ValueError(text)


def parse_duration(text: str) -> Interval:
    """Read an ISO 8601 duration.

    >>> parse_duration("P1Y2DT1H3.5S")
    Interval(months=12, days=2, micros=3603500000)
    """
    found = _DURATION.fullmatch(text.strip().upper())
    if not found or len(text.strip()) < 3:
        raise DataError(f"{text!r} is not an ISO 8601 duration such as P1M2DT3.5S")
    part = {name: Decimal(value or 0) for name, value in found.groupdict().items()}
    seconds = part["h"] * 3600 + part["m"] * 60 + part["s"]
    span = Interval(int(part["Y"] * 12 + part["M"]), int(part["D"]), int(seconds * 1_000_000))
    if not span.fits:
        raise DataError(f"{text!r} is too long a duration")
    return span


def read_column(texts: pa.ChunkedArray, type: Type) -> pa.ChunkedArray:
    """Read a column of texts as values of a type; the DataError of a bad one has its position as `row`.

    >>> from whence.model.types import INTEGER
    >>> read_column(pa.chunked_array([["1", None, "+2"]]), INTEGER).to_pylist()
    [1, None, 2]
    """
    if type.kind is Kind.TEXT:
        return texts
    quick = _read_plain(texts, type)
    return quick if quick is not None else _read_each(texts, type)


def _read_plain(texts: pa.ChunkedArray, type: Type) -> pa.ChunkedArray | None:
    """Read a column that is written as Arrow would write it, all at once; None if it is not."""
    try:
        if type.kind is Kind.TIMESTAMP:
            for form, zone in ((_MOMENT, None), (_MOMENT + _ZONE, "UTC")):
                if _all_match(texts, form):
                    micros = texts.cast(pa.timestamp("us", zone)).cast(pa.int64())
                    bounds = pc.min_max(micros).as_py()
                    fits = bounds["min"] is None or (bounds["min"] >= _FIRST and bounds["max"] <= _LAST)
                    return micros.cast(pa.timestamp("us")) if fits else None
        elif type.kind is Kind.DECIMAL:
            digits = rf"\d{{1,{type.precision}}}" + (rf"(\.\d{{1,{type.scale}}})?" if type.scale else "")
            if _all_match(texts, f"-?{digits}"):
                return texts.cast(arrow_type(type))
        elif type.kind in _PLAIN and _all_match(texts, _PLAIN[type.kind]):
            return texts.cast(arrow_type(type))
    except pa.ArrowException:  # an hour 25, a number that is too large: to be reported for its value
        pass
    return None


def _all_match(texts: pa.ChunkedArray, form: str) -> bool:
    return pc.all(pc.match_substring_regex(texts, f"^({form})$"), min_count=0).as_py() is not False


def _read_each(texts: pa.ChunkedArray, type: Type) -> pa.ChunkedArray:
    """Read each distinct text by itself."""
    encoded = texts.combine_chunks().dictionary_encode()
    if isinstance(encoded, pa.ChunkedArray):
        encoded = encoded.combine_chunks()
    values, faults = [], dict[int, DataError]()
    for place, text in enumerate(encoded.dictionary.to_pylist()):
        try:
            values.append(read_value(text, type))
        except DataError as error:
            faults[place] = error
            values.append(None)
    if faults:
        indices = encoded.indices.fill_null(-1).to_numpy(zero_copy_only=False)
        row = int(np.flatnonzero(np.isin(indices, list(faults)))[0])
        raise UnreadableError(str(faults[int(indices[row])]), row)
    spans = [v if not isinstance(v, Interval) else (v.months, v.days, v.micros * 1000) for v in values]
    return pa.chunked_array([pa.array(spans, arrow_type(type)).take(encoded.indices)])


class UnreadableError(DataError):
    """A text in a column that is no value of its type: its row, from 0, and the column."""

    def __init__(self, message: str, row: int, column: str = "") -> None:
        super().__init__(message)
        self.row, self.column = row, column


def read_texts(data: pa.Table, schema: Schema) -> pa.Table:
    """Read columns of text as values of the types that the schema has for them; others stay as they are."""
    for at, column in enumerate(schema.columns):
        given = data.column(at)
        if column.type.kind is not Kind.TEXT and (
            pa.types.is_string(given.type) or pa.types.is_large_string(given.type)
        ):
            try:
                data = data.set_column(at, column.name, read_column(given, column.type))
            except UnreadableError as error:
                raise UnreadableError(str(error), error.row, column.name) from None
    return data
