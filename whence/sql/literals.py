"""Literals: the values quoted in SQL text, and what becomes of them when their type is settled while binding."""

from __future__ import annotations

import datetime as dt
import re
from decimal import ROUND_HALF_UP, Decimal, InvalidOperation
from typing import Any

from sqlglot import exp

from whence.model import types as t
from whence.model import wide
from whence.model.codes import NULL, Interval
from whence.model.types import Kind, Type
from whence.plan.expr import Lit
from whence.sql.position import error

_SECOND = 1_000_000
_UNITS: dict[str, tuple[int, int, int]] = {
    "microsecond": (0, 0, 1),
    "millisecond": (0, 0, 1_000),
    "second": (0, 0, _SECOND),
    "minute": (0, 0, 60 * _SECOND),
    "hour": (0, 0, 3_600 * _SECOND),
    "day": (0, 1, 0),
    "week": (0, 7, 0),
    "month": (1, 0, 0),
    "quarter": (3, 0, 0),
    "year": (12, 0, 0),
    "decade": (120, 0, 0),
    "century": (1200, 0, 0),
}
_SHORT = {
    "us": "microsecond",
    "ms": "millisecond",
    "s": "second",
    "sec": "second",
    "m": "minute",
    "min": "minute",
    "h": "hour",
    "hr": "hour",
    "d": "day",
    "w": "week",
    "mon": "month",
    "y": "year",
    "yr": "year",
    "centurie": "century",
}
_PART = re.compile(r"\s*([+-]?\d+(?:\.\d+)?)\s*([a-zA-Z]+)\s*")
_CLOCK = re.compile(r"\s*([+-]?)(\d+):(\d\d)(?::(\d\d)(?:\.(\d{1,6}))?)?\s*$")
_LONGEST = 1_000  # characters of an interval, and places before the point of a number that is to be whole
_LIMITS = {Kind.INTEGER: 2**31, Kind.BIGINT: 2**63}


def unit_of(name: str) -> str | None:
    """The unit's name in the singular, or None: 'DAYS' is 'day'."""
    name = name.lower()
    for candidate in (name, name.removesuffix("s")):
        if candidate in _UNITS:
            return candidate
        if candidate in _SHORT:
            return _SHORT[candidate]
    return None


def parse_interval(text: str, unit: str | None = None) -> Interval:
    """The interval a literal spells.

    >>> parse_interval("1 day 2 hours")
    Interval(months=0, days=1, micros=7200000000)
    >>> parse_interval("3", "month").months
    3
    """
    if unit is not None:
        text = f"{text} {unit}"
    if len(text) > _LONGEST:
        raise ValueError(f"too long an interval: {text!r:.80}")
    months = days = micros = 0
    at = 0
    while at < len(text.rstrip()):
        clock = _CLOCK.match(text, at)
        if clock:
            sign, hours, minutes, seconds, fraction = clock.groups()
            span = (int(hours) * 3600 + int(minutes) * 60 + int(seconds or 0)) * _SECOND
            span += int((fraction or "0").ljust(6, "0"))
            micros += -span if sign == "-" else span
            break
        part = _PART.match(text, at)
        named = unit_of(part.group(2)) if part else None
        if part is None or named is None:
            raise ValueError(f"not an interval: {text!r}")
        count = Decimal(part.group(1))
        for_months, for_days, for_micros = _UNITS[named]
        whole = int(count)
        if for_micros:
            micros += int(count * for_micros)
        elif count == whole:
            months, days = months + whole * for_months, days + whole * for_days
        else:
            raise ValueError(f"not a whole number of {named}s: {text!r}")
        at = part.end()
    if at == 0 and not text.strip():
        raise ValueError("an empty interval")
    found = Interval(months, days, micros)
    if not found.fits:
        raise ValueError(f"too long an interval: {text!r}")
    return found


def cast_value(value: Any, have: Type, type: Type) -> Any:
    """A Python value of one type as a value of another; ValueError or OverflowError if it does not fit."""
    if value is None or have == type:
        return value
    match type.kind:
        case Kind.TEXT:
            return text_of(value)
        case Kind.BOOLEAN:
            return _boolean(value)
        case Kind.INTEGER | Kind.BIGINT:
            return _integer(value, type)
        case Kind.DOUBLE:
            return float(value)
        case Kind.DECIMAL:
            return _decimal(value, type)
        case Kind.DATE:
            if isinstance(value, str):
                value = _moment(value)
            return value.date() if isinstance(value, dt.datetime) else value
        case Kind.TIMESTAMP:
            if isinstance(value, str):
                return _moment(value)
            return value if isinstance(value, dt.datetime) else dt.datetime(value.year, value.month, value.day)
        case Kind.INTERVAL:
            if isinstance(value, str):
                return parse_interval(value)
    raise ValueError(f"{value!r} is not a value of type {type}")


def text_of(value: Any) -> str:
    """The text that CAST(value AS TEXT) gives for the plain types."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, dt.datetime):
        return value.isoformat(sep=" ")
    if isinstance(value, dt.date):
        return value.isoformat()
    if isinstance(value, Interval):
        raise ValueError("an interval has no plain text form")
    return str(value)


def _boolean(value: Any) -> bool:
    if isinstance(value, str):
        known = {"true": True, "t": True, "1": True, "false": False, "f": False, "0": False}
        if value.strip().lower() not in known:
            raise ValueError(value)
        return known[value.strip().lower()]
    return bool(value)


def _integer(value: Any, type: Type) -> int:
    try:
        exact = Decimal(str(value).strip() if isinstance(value, str) else value)
        if exact.is_finite() and exact.adjusted() > _LONGEST:
            raise OverflowError(value)
        number = int(exact.to_integral_value(ROUND_HALF_UP))
    except InvalidOperation:
        raise ValueError(value) from None
    limit = _LIMITS[type.kind]
    if not -limit <= number < limit or number == NULL:
        raise OverflowError(value)
    return number


def _decimal(value: Any, type: Type) -> Decimal:
    try:
        exact = Decimal(str(value).strip()) if not isinstance(value, (bool, int)) else Decimal(int(value))
    except InvalidOperation:
        raise ValueError(value) from None
    return wide.to_decimal(wide.scaled(exact, type), type.scale)


def _moment(text: str) -> dt.datetime:
    moment = dt.datetime.fromisoformat(text.strip())
    return moment.astimezone(dt.UTC).replace(tzinfo=None) if moment.tzinfo else moment


def read_literal(node: exp.Expr) -> Lit:
    """A quoted or numeric literal, TRUE, FALSE or NULL.

    >>> str(read_literal(exp.Literal.number("0.05")).type)
    'DECIMAL(3,2)'
    """
    if isinstance(node, exp.Null):
        return Lit(t.NULLTYPE, None)
    if isinstance(node, exp.Boolean):
        return Lit(t.BOOLEAN, bool(node.this))
    if node.is_string:
        return Lit(t.TEXT, node.this)
    try:
        return _number(str(node.this).replace("_", ""))
    except (ValueError, InvalidOperation):  # to the tokenizer 1e3+1 and 1.2.3 are words
        raise error("not a number; a space may be missing", node) from None
    except OverflowError:
        raise error("the number does not fit in a BIGINT; with a point in it, it is a DECIMAL", node) from None


def _number(text: str) -> Lit:
    if "e" in text.lower():
        return Lit(t.DOUBLE, float(text))
    if "." in text:
        number = Decimal(text)
        scale = max(0, -int(number.as_tuple().exponent))
        precision = len(text.replace(".", ""))  # zeros as well, as DuckDB counts them
        return Lit(t.decimal(precision, scale), number) if precision <= t.MAX_PRECISION else Lit(t.DOUBLE, float(text))
    value = int(text)
    if value >= 2**63:
        raise OverflowError(text)
    return Lit(t.INTEGER if value < 2**31 else t.BIGINT, value)
