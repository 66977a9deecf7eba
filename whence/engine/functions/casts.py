"""Casts between all types, as DuckDB does them: to an integer from DOUBLE half to even, from DECIMAL half away from
zero.

A value that does not fit is an error, or NULL under TRY_CAST. Text is trimmed and read once for each distinct value.
"""

from __future__ import annotations

import datetime as dt
import math
import re
from collections.abc import Callable
from decimal import ROUND_HALF_UP, Decimal, InvalidOperation
from typing import Any

import numpy as np

from whence.engine.functions import decimals
from whence.engine.functions.common import Strict, bound, each, rescale
from whence.errors import DataError, EvaluationError
from whence.model.codes import (
    DAY,
    NULL,
    Codes,
    Dictionary,
    Interval,
    codes_to_floats,
    decode_value,
    encode_value,
    floats_to_codes,
)
from whence.model.types import Kind, Type
from whence.plan.expr import Cast


def cast(expr: Cast, dictionary: Dictionary) -> Strict:
    """The strict function behind a CAST or TRY_CAST."""
    convert = _convert(expr.arg.type, expr.type, dictionary)
    if not expr.lenient:
        return convert

    def attempt(a: Codes) -> Codes:
        try:
            return convert(a)
        except EvaluationError:
            return each(one, [a], len(a))

    def one(code: int) -> int:
        try:
            return int(convert(np.array([code], np.int64))[0])
        except EvaluationError:
            return NULL

    return attempt


def _convert(source: Type, target: Type, dictionary: Dictionary) -> Strict:
    a, b = source.kind, target.kind
    if source == target or a is Kind.NULL:
        return lambda codes: codes
    if b is Kind.TEXT:
        return _by_value(lambda v: to_text(v, source), source, target, dictionary)
    if a is Kind.TEXT:
        return _by_value(lambda v: from_text(v, target), source, target, dictionary)
    exact = (Kind.INTEGER, Kind.BIGINT, Kind.DECIMAL)
    if source.is_wide or target.is_wide:
        return _wide(source, target, dictionary)
    if a in (*exact, Kind.BOOLEAN) and b in exact:
        return lambda codes: rescale(codes, source.scale, target.scale, target)
    if a in exact and b is Kind.DOUBLE:
        return lambda codes: floats_to_codes(codes / 10.0**source.scale)
    if a is Kind.BOOLEAN and b is Kind.DOUBLE:
        return lambda codes: floats_to_codes(codes.astype(np.float64))
    if a is Kind.DOUBLE and b in exact:
        return _from_double(target)
    if b is Kind.BOOLEAN and source.is_numeric:
        zero = int(floats_to_codes(np.zeros(1))[0]) if a is Kind.DOUBLE else 0
        return lambda codes: (codes != zero).astype(np.int64)
    if a is Kind.DATE and b is Kind.TIMESTAMP:
        return lambda codes: codes * DAY
    if a is Kind.TIMESTAMP and b is Kind.DATE:
        return lambda codes: codes // DAY
    raise EvaluationError(f"{source} cannot be cast to {target}")


def _wide(source: Type, target: Type, dictionary: Dictionary) -> Strict:
    """Casts between numbers, one of which is a wide DECIMAL."""
    if source.kind is Kind.DOUBLE:
        return decimals.from_double(target, dictionary)
    if target.kind is Kind.DOUBLE:
        return lambda codes: floats_to_codes(decimals.to_floats(codes, source, dictionary))
    if target.kind is Kind.BOOLEAN:
        return lambda codes: (codes != 0).astype(np.int64)
    return decimals.rescaled(source, target, dictionary)


def _from_double(target: Type) -> Strict:
    limit = bound(target)

    def apply(codes: Codes) -> Codes:
        values = codes_to_floats(codes)
        if target.kind is Kind.DECIMAL:
            scaled = values * 10.0**target.scale
            rounded = np.where(scaled < 0, np.ceil(scaled - 0.5), np.floor(scaled + 0.5))
        else:
            rounded = np.rint(values)
        ok = np.abs(rounded) <= limit if limit < 2**53 else np.abs(rounded) < float(limit)
        if target.kind is Kind.INTEGER:
            ok |= rounded == -(2.0**31)
        if not ok.all():
            raise EvaluationError(f"out of range for {target}")
        return rounded.astype(np.int64)

    return apply


def _by_value(function: Callable[[Any], Any], source: Type, target: Type, dictionary: Dictionary) -> Strict:
    def one(code: int) -> int:
        value = decode_value(code, source, dictionary)
        try:
            return encode_value(function(value), target, dictionary)
        except (ValueError, OverflowError, InvalidOperation, DataError):
            raise EvaluationError(f"cannot be read as {target}") from None

    return lambda codes: each(one, [codes], len(codes))


def float_text(value: float) -> str:
    """As DuckDB shows a DOUBLE: shortest digits, always with a point or an exponent.

    >>> float_text(1.0), float_text(1e20), float_text(0.1)
    ('1.0', '1e+20', '0.1')
    """
    if math.isnan(value):
        return "nan"
    if value in (float("inf"), float("-inf")):
        return "inf" if value > 0 else "-inf"
    text = repr(value)
    return text if "." in text or "e" in text else text + ".0"


def interval_text(value: Interval) -> str:
    """As DuckDB shows an INTERVAL."""
    years, months = divmod(abs(value.months), 12)
    sign = 1 if value.months >= 0 else -1
    parts = [(sign * years, "year"), (sign * months, "month"), (value.days, "day")]
    words = [f"{n} {unit}{'' if n in (1, -1) else 's'}" for n, unit in parts if n]
    if value.micros or not words:
        clock = abs(value.micros)
        seconds, micros = divmod(clock, 1_000_000)
        text = f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}"
        if micros:
            text += f".{micros:06}".rstrip("0")
        words.append(("-" if value.micros < 0 else "") + text)
    return " ".join(words)


def to_text(value: Any, type: Type) -> str:
    match value:
        case bool():
            return "true" if value else "false"
        case float():
            return float_text(value)
        case Decimal():
            return f"{value:.{type.scale}f}"
        case dt.datetime():
            text = value.strftime("%Y-%m-%d %H:%M:%S") if value.year >= 1000 else value.isoformat(" ", "seconds")
            return text + (f".{value.microsecond:06}".rstrip("0") if value.microsecond else "")
        case Interval():
            return interval_text(value)
    return str(value)


_TRUE, _FALSE = {"true", "t", "1", "yes", "y"}, {"false", "f", "0", "no", "n"}
_UNITS = {"year": (12, 0, 0), "month": (1, 0, 0), "week": (0, 7, 0), "day": (0, 1, 0), "hour": (0, 0, 3_600_000_000)}
_UNITS |= {
    "minute": (0, 0, 60_000_000),
    "second": (0, 0, 1_000_000),
    "millisecond": (0, 0, 1000),
    "microsecond": (0, 0, 1),
}
_UNITS |= {"quarter": (3, 0, 0), "decade": (120, 0, 0), "century": (1200, 0, 0)}


def read_interval(text: str) -> Interval:
    """'1 year 2 days 03:04:05' and the like.

    >>> read_interval("1 day 00:00:01")
    Interval(months=0, days=1, micros=1000000)
    """
    months = days = micros = 0
    rest = text.strip()
    if not rest:
        raise ValueError(text)
    while rest:
        clock = re.match(r"([+-]?)(\d+):(\d\d):(\d\d)(\.\d+)?\s*", rest)
        if clock:
            sign = -1 if clock[1] == "-" else 1
            seconds = int(clock[2]) * 3600 + int(clock[3]) * 60 + int(clock[4])
            micros += sign * (seconds * 1_000_000 + int(Decimal(clock[5] or "0") * 1_000_000))
            rest = rest[clock.end() :]
            continue
        word = re.match(r"([+-]?\d+(?:\.\d+)?)\s*([a-z]+?)s?(?:\s+|$)", rest, re.IGNORECASE)
        if not word or word[2].lower() not in _UNITS:
            raise ValueError(text)
        amount, unit = Decimal(word[1]), _UNITS[word[2].lower()]
        months += int(amount * unit[0])
        whole = int(amount * unit[1])
        days += whole
        micros += int(amount * unit[2]) + int((amount * unit[1] - whole) * DAY)
        rest = rest[word.end() :]
    return Interval(months, days, micros)


def from_text(text: str, type: Type) -> Any:
    trimmed = text.strip()
    match type.kind:
        case Kind.BOOLEAN:
            if trimmed.lower() in _TRUE:
                return True
            if trimmed.lower() in _FALSE:
                return False
            raise ValueError(text)
        case Kind.INTEGER | Kind.BIGINT:
            return int(_digits(trimmed).to_integral_value(ROUND_HALF_UP))
        case Kind.DECIMAL:
            return _digits(trimmed)
        case Kind.DOUBLE:
            if "_" in trimmed:
                raise ValueError(text)
            return float(trimmed)
        case Kind.DATE:
            return _date(re.split(r"[ T]", trimmed)[0])
        case Kind.TIMESTAMP:
            if re.fullmatch(r"[\d-]+", trimmed):
                day = _date(trimmed)
                return dt.datetime(day.year, day.month, day.day)
            return dt.datetime.fromisoformat(trimmed)
        case Kind.INTERVAL:
            return read_interval(trimmed)
    raise ValueError(text)


def _digits(text: str) -> Decimal:
    if not re.fullmatch(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d{1,3})?", text):
        raise ValueError(text)
    return Decimal(text)


def _date(text: str) -> dt.date:
    parts = re.fullmatch(r"(\d{1,4})[-/](\d{1,2})[-/](\d{1,2})", text)
    if not parts:
        raise ValueError(text)
    return dt.date(int(parts[1]), int(parts[2]), int(parts[3]))
