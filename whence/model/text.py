"""Values as text, and text as values: the meaning of CAST to and from TEXT, for constants and for columns alike.

DuckDB's rules, with two exceptions: a timestamp that names an offset is converted to UTC, where DuckDB passes over the
offset; and dates lie in the years 1 to 9999.
"""

from __future__ import annotations

import datetime as dt
import math
import re
from decimal import ROUND_HALF_UP, Decimal
from typing import Any

from whence.model.codes import DAY, Interval
from whence.model.types import Kind, Type

_LONGEST = 1_000  # characters of an interval
_TRUE, _FALSE = {"true", "t", "1", "yes", "y"}, {"false", "f", "0", "no", "n"}
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d{1,3})?", re.ASCII)
_PREFIXED = re.compile(r"0[xX][0-9a-fA-F]+|0[bB][01]+", re.ASCII)
_GROUPED = re.compile(r"(?<=\d)_(?=\d)", re.ASCII)
_DATE = re.compile(r"(\d{1,4})([-/ \\])(\d{1,2})\2(\d{1,2})(?!\d)", re.ASCII)
_TIME = re.compile(r"[ T] *(\d{1,3}):(\d{1,2})?(?::(\d{1,2})(?:\.(\d*))?)?", re.ASCII)
_ZONE = re.compile(r" *(?:(Z)|([+-])(\d{1,2})(?::?(\d\d))?)? *", re.ASCII)
_CLOCK = re.compile(r"(-?)(\d+):(\d{1,2})(?::(\d{1,2})(?:\.(\d*))?)?(?=\s|$)", re.ASCII)
_SPAN = re.compile(r"(-?\d+(?:\.\d*)?)\s*([a-z]+)(?=\s|$)", re.ASCII | re.IGNORECASE)
_SECOND = 1_000_000
_UNITS: dict[str, tuple[int, int, int]] = {  # months, days and microseconds
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
    "century": (1_200, 0, 0),
    "millennium": (12_000, 0, 0),
}
_SHORT = {
    "us": "microsecond",
    "usec": "microsecond",
    "ms": "millisecond",
    "msec": "millisecond",
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
    "c": "century",
    "cent": "century",
    "centurie": "century",
    "mil": "millennium",
    "millennia": "millennium",
}


def to_text(value: Any, type: Type) -> str:
    """Return the text that CAST(value AS TEXT) gives."""
    match value:
        case bool():
            return "true" if value else "false"
        case float():
            return float_text(value + 0.0)  # there is no -0.0 among values
        case Decimal():
            return f"{value:.{type.scale}f}"
        case dt.datetime():
            text = value.isoformat(" ", "seconds")
            return text + (f".{value.microsecond:06}".rstrip("0") if value.microsecond else "")
        case Interval():
            return interval_text(value)
    return str(value)


def shown_value(value: Any, type: Type) -> str:
    """Return a value as messages and plans show it: as SQL has it, text in quotes.

    >>> from whence.model.types import DATE, TEXT
    >>> shown_value(dt.date(2024, 1, 5), DATE), shown_value("a", TEXT), shown_value(None, TEXT)
    ('2024-01-05', "'a'", 'NULL')
    """
    if value is None:
        return "NULL"
    return repr(value) if isinstance(value, str) else to_text(value, type)


def float_text(value: float) -> str:
    """Return a DOUBLE as its shortest digits, always with a point or an exponent.

    >>> float_text(1.0), float_text(1e20), float_text(0.1)
    ('1.0', '1e+20', '0.1')
    """
    if math.isnan(value):
        return "nan"
    if math.isinf(value):
        return "inf" if value > 0 else "-inf"
    text = repr(value)
    return text if "." in text or "e" in text else text + ".0"


def interval_text(value: Interval) -> str:
    """Return an INTERVAL as DuckDB shows it."""
    years, months = divmod(abs(value.months), 12)
    sign = 1 if value.months >= 0 else -1
    parts = [(sign * years, "year"), (sign * months, "month"), (value.days, "day")]
    words = [f"{n} {unit}{'' if n in (1, -1) else 's'}" for n, unit in parts if n]
    if value.micros or not words:
        clock = abs(value.micros)
        seconds, micros = divmod(clock, _SECOND)
        text = f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}"
        if micros:
            text += f".{micros:06}".rstrip("0")
        words.append(("-" if value.micros < 0 else "") + text)
    return " ".join(words)


def from_text(text: str, type: Type) -> Any:
    """Return the value that CAST(text AS type) gives, before its range is checked; ValueError if it is none."""
    trimmed = text.strip()
    match type.kind:
        case Kind.BOOLEAN:
            if trimmed.lower() in _TRUE:
                return True
            if trimmed.lower() in _FALSE:
                return False
            raise ValueError(text)
        case Kind.INTEGER | Kind.BIGINT:
            if _PREFIXED.fullmatch(trimmed):
                return int(trimmed, 0)
            return int(_number(trimmed).to_integral_value(ROUND_HALF_UP))
        case Kind.DECIMAL:
            return _number(trimmed)
        case Kind.DOUBLE:
            if not trimmed.isascii() or trimmed.startswith("_") or trimmed.endswith("_"):
                raise ValueError(text)
            return float(trimmed)
        case Kind.DATE:
            return _read_moment(trimmed)[0]
        case Kind.TIMESTAMP:
            return read_timestamp(text.lstrip())
        case Kind.INTERVAL:
            return read_interval(text)
    raise ValueError(text)


def _number(text: str) -> Decimal:
    text = _GROUPED.sub("", text)
    if not _NUMBER.fullmatch(text):
        raise ValueError(text)
    return Decimal(text)


def read_timestamp(text: str) -> dt.datetime:
    """Return the time that a text names, in UTC if it names an offset.

    >>> read_timestamp("2024-1-5 24:00"), read_timestamp("2024-01-05T10:00:00.5+02:00").isoformat()
    (datetime.datetime(2024, 1, 6, 0, 0), '2024-01-05T08:00:00.500000')
    """
    date, time = _read_moment(text)
    return dt.datetime(date.year, date.month, date.day) + time


def _read_moment(text: str) -> tuple[dt.date, dt.timedelta]:
    """Return the date as it is written, and the time since its midnight, in UTC if there is an offset."""
    if text.lower() == "epoch":
        return dt.date(1970, 1, 1), dt.timedelta()
    found = _DATE.match(text)
    if found is None:
        raise ValueError(text)
    date = dt.date(int(found[1]), int(found[3]), int(found[4]))
    if found.end() == len(text):
        return date, dt.timedelta()
    time = _TIME.match(text, found.end())
    zone = _ZONE.fullmatch(text, time.end()) if time else None
    if time is None or zone is None:
        raise ValueError(text)
    hour, minute, second = (int(part or 0) for part in time.groups()[:3])
    micros = int((time[4] or "")[:6].ljust(6, "0"))
    if hour > 24 or minute > 59 or second > 59 or (hour == 24 and (minute or second or micros)):
        raise ValueError(text)
    since = dt.timedelta(hours=hour, minutes=minute, seconds=second, microseconds=micros)
    if zone[2]:
        offset = dt.timedelta(hours=int(zone[3]), minutes=int(zone[4] or 0))
        since += offset if zone[2] == "-" else -offset
    return date, since


def unit_of(name: str) -> str | None:
    """Return a unit of time in the singular, or None.

    >>> unit_of("DAYS"), unit_of("hr"), unit_of("parsec")
    ('day', 'hour', None)
    """
    name = name.lower()
    for candidate in (name, name.removesuffix("s")):
        if candidate in _UNITS:
            return candidate
        if candidate in _SHORT:
            return _SHORT[candidate]
    return None


def read_interval(text: str, unit: str | None = None) -> Interval:
    """Return the interval that a text spells; a bare number counts the unit, or seconds.

    >>> read_interval("1 day 2 hours"), read_interval("1.5 months ago")
    (Interval(months=0, days=1, micros=7200000000), Interval(months=-1, days=-15, micros=0))
    >>> read_interval("3", "month").months
    3
    """
    if len(text) > _LONGEST:
        raise ValueError(f"too long an interval: {text!r:.80}")
    rest = text.strip().removeprefix("@").strip()
    sign = 1
    if rest.lower().endswith(" ago"):
        rest, sign = rest[:-4].rstrip(), -1
    if re.fullmatch(r"[+-]?\d+(\.\d*)?", rest, re.ASCII):
        rest = f"{rest.removeprefix('+') if unit else rest} {unit or 'second'}"
    if not rest:
        raise ValueError("an empty interval")
    months = days = micros = 0
    while rest:
        clock, span = _CLOCK.match(rest), _SPAN.match(rest)
        named = unit_of(span[2]) if span else None
        if clock:
            micros += _clock_micros(clock)
        elif span and named:
            added = _spanned(Decimal(span[1]), _UNITS[named])
            months, days, micros = months + added.months, days + added.days, micros + added.micros
        else:
            raise ValueError(f"not an interval: {text!r}")
        rest = rest[(clock or span).end() :].lstrip()  # type: ignore[union-attr]  # one of them matched
    found = Interval(sign * months, sign * days, sign * micros)
    if not found.fits:
        raise ValueError(f"too long an interval: {text!r}")
    return found


def _clock_micros(clock: re.Match[str]) -> int:
    minutes, seconds = int(clock[3]), int(clock[4] or 0)
    if minutes > 59 or seconds > 59:
        raise ValueError(f"not a time: {clock[0]!r}")
    span = (int(clock[2]) * 3600 + minutes * 60 + seconds) * _SECOND + int((clock[5] or "")[:6].ljust(6, "0"))
    return -span if clock[1] else span


def _spanned(amount: Decimal, unit: tuple[int, int, int]) -> Interval:
    """Return an amount of a unit: parts of a month become days of 30 a month, parts of a day become time."""
    per_month, per_day, per_micro = unit
    months = int(amount * per_month)
    in_days = amount * per_day + ((amount * per_month - months) * 30 if per_month < 12 else 0)
    days = int(in_days)
    return Interval(months, days, int(amount * per_micro) + int((in_days - days) * DAY))
