"""Dates, timestamps and intervals: calendar months are added first, then days, then clock time.

Adding months keeps the day of the month, or takes the last one of a shorter month. Every function is given dates of the
years 1 to 9999 and intervals that fit, so nothing in here overflows before a result outside them is refused.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from whence.engine.expressions.functions.common import Strict, each
from whence.model.codes import DAY, FIRST_DAY, LAST_DAY, Codes, Dictionary, Interval, codes_to_floats, floats_to_codes
from whence.model.errors import EvaluationError
from whence.model.types import Kind, Type
from whence.model.zones import Zone, find_zone
from whence.plan.algebra.expressions import Call


def in_years(days: Codes) -> Codes:
    """Return the days, if all of them are in the years 1 to 9999."""
    if len(days) and (days.min() < FIRST_DAY or days.max() > LAST_DAY):
        raise EvaluationError("out of range: a date is in the years 1 to 9999")
    return days


def _interned(dictionary: Dictionary, months: int, days: int, micros: int) -> int:
    """Return the code of an interval, if it fits."""
    found = Interval(months, days, micros)
    if not found.fits:
        raise EvaluationError("out of range for INTERVAL")
    return dictionary.intern(found)


def _parts(codes: Codes, dictionary: Dictionary) -> tuple[Codes, Codes, Codes]:
    """Split interval codes into months, days and microseconds."""
    distinct, at = np.unique(codes, return_inverse=True)
    table = np.array([tuple(v) for v in dictionary.values(distinct)], np.int64).reshape(-1, 3)[at]
    return table[:, 0], table[:, 1], table[:, 2]


def _months_of(days: Codes) -> tuple[Codes, Codes]:
    """Split days into months since 1970-01 and the day within the month, from 0."""
    month = days.astype("M8[D]").astype("M8[M]").astype(np.int64)
    return month, days - _first_day(month)


def _first_day(months: Codes) -> Codes:
    out: Codes = months.astype("M8[M]").astype("M8[D]").astype(np.int64)
    return out


def add_months(days: Codes, months: Codes) -> Codes:
    """Move days since 1970 by calendar months."""
    month, day = _months_of(days)
    target = month + months
    first = _first_day(target)
    last: Codes = _first_day(target + 1) - first - 1
    return first + np.where(day < last, day, last)


def _shift(micros: Codes, interval: Codes, sign: int, dictionary: Dictionary) -> Codes:
    months, days, clock = _parts(interval, dictionary)
    day, time = micros // DAY, micros % DAY + sign * clock
    return in_years(add_months(day, sign * months) + sign * days + time // DAY) * DAY + time % DAY


def additive(call: Call, dictionary: Dictionary, sign: int) -> Strict:
    """Compute + and - with dates, timestamps or intervals."""
    kinds = tuple(a.type.kind for a in call.args)
    to_date = call.type.kind is Kind.DATE
    match kinds:
        case (Kind.DATE, Kind.INTEGER | Kind.BIGINT):
            return lambda a, b: in_years(a + sign * b)
        case (Kind.INTEGER | Kind.BIGINT, Kind.DATE):
            return lambda a, b: in_years(a + b)
        case (Kind.DATE, Kind.DATE):
            return lambda a, b: a - b
        case (Kind.DATE | Kind.TIMESTAMP, Kind.INTERVAL):
            unit = DAY if kinds[0] is Kind.DATE else 1
            return lambda a, b: _shift(a * unit, b, sign, dictionary) // (DAY if to_date else 1)
        case (Kind.INTERVAL, Kind.DATE | Kind.TIMESTAMP):
            unit = DAY if kinds[1] is Kind.DATE else 1
            return lambda a, b: _shift(b * unit, a, sign, dictionary) // (DAY if to_date else 1)
        case (Kind.TIMESTAMP | Kind.DATE, Kind.TIMESTAMP | Kind.DATE):
            left, right = (DAY if k is Kind.DATE else 1 for k in kinds)

            def difference(a: int, b: int) -> int:
                gap = a * left - b * right
                days = abs(gap) // DAY * (1 if gap >= 0 else -1)
                return _interned(dictionary, 0, days, gap - days * DAY)

            return lambda a, b: each(difference, [a, b], len(a))
        case (Kind.INTERVAL, Kind.INTERVAL):

            def total(a: int, b: int) -> int:
                x, y = dictionary.value(a), dictionary.value(b)
                return _interned(dictionary, *(p + sign * q for p, q in zip(x, y, strict=True)))

            return lambda a, b: each(total, [a, b], len(a))
    raise EvaluationError(f"{call.op} is not defined for {kinds[0].value} and {kinds[1].value}")


def scaled(call: Call, dictionary: Dictionary) -> Strict:
    """Multiply an interval by a whole number."""
    first = call.args[0].type.kind is Kind.INTERVAL
    other: Type = call.args[1 if first else 0].type

    def times(a: int, b: int) -> int:
        interval, factor = (a, b) if first else (b, a)
        if other.kind is Kind.DOUBLE:
            factor = int(codes_to_floats(np.array([factor], np.int64))[0])
        return _interned(dictionary, *(p * factor for p in dictionary.value(interval)))

    return lambda a, b: each(times, [a, b], len(a))


def negated(dictionary: Dictionary) -> Strict:
    def negative(a: int) -> int:
        return _interned(dictionary, *(-p for p in dictionary.value(a)))

    return lambda a: each(negative, [a], len(a))


def _fields(codes: Codes, kind: Kind, dictionary: Dictionary) -> tuple[Codes, Codes]:
    """Split moments into days since 1970 and microseconds of the day."""
    if kind is Kind.DATE:
        return codes, np.zeros(len(codes), np.int64)
    return codes // DAY, codes % DAY


def _extract_day(part: str, days: Codes, micros: Codes) -> Codes | NDArray[np.float64]:
    month, day = _months_of(days)
    year = 1970 + month // 12
    match part:
        case "year":
            return year
        case "month":
            return month % 12 + 1
        case "day":
            return day + 1
        case "quarter":
            return month % 12 // 3 + 1
        case "decade":
            return year // 10
        case "century":
            return np.where(year > 0, (year - 1) // 100 + 1, year // 100)
        case "hour":
            return micros // 3_600_000_000
        case "minute":
            return micros // 60_000_000 % 60
        case "second":
            return micros // 1_000_000 % 60
        case "millisecond" | "milliseconds":
            return micros // 1000 % 60_000
        case "microsecond" | "microseconds":
            return micros % 60_000_000
        case "epoch":
            return (days * DAY + micros) / 1e6
        case "dow" | "dayofweek":
            return (days + 4) % 7
        case "isodow":
            return (days + 3) % 7 + 1
        case "doy" | "dayofyear":
            return days - _first_day((year - 1970) * 12) + 1
        case "week" | "isoyear":
            of, thursday = _iso_year(days)
            start: Codes = of.astype("M8[Y]").astype("M8[D]").astype(np.int64)
            return (thursday - start) // 7 + 1 if part == "week" else of + 1970
    raise EvaluationError(f"there is no date part {part}")


def _iso_year(days: Codes) -> tuple[Codes, Codes]:
    """Return ISO years since 1970, and the Thursday of each week, which decides its year."""
    thursday = days - (days + 3) % 7 + 3
    return thursday.astype("M8[D]").astype("M8[Y]").astype(np.int64), thursday


def _extract_interval(part: str, interval: Interval) -> float | int:
    months, days, micros = interval
    clock = abs(micros)
    sign = 1 if micros >= 0 else -1
    match part:
        case "year" | "decade" | "century":
            return abs(months) // _MONTHS[part] * (1 if months >= 0 else -1)
        case "month":
            return abs(months) % 12 * (1 if months >= 0 else -1)
        case "quarter":
            return abs(months) % 12 // 3 * (1 if months >= 0 else -1) + 1
        case "millisecond":
            return sign * (clock // 1000 % 60_000)
        case "microsecond":
            return sign * (clock % 60_000_000)
        case "day":
            return days
        case "hour":
            return sign * (clock // 3_600_000_000)
        case "minute":
            return sign * (clock // 60_000_000 % 60)
        case "second":
            return sign * (clock // 1_000_000 % 60)
        case "epoch":
            years, rest = divmod(abs(months), 12)
            span = years * 365.25 * 86_400 + rest * 30 * 86_400
            return (span if months >= 0 else -span) + days * 86_400 + micros / 1e6
    raise EvaluationError(f"there is no interval part {part}")


def _extract(call: Call, dictionary: Dictionary) -> Strict:
    part, arg, double = call.op.partition(":")[2].lower(), call.args[0].type, call.type.kind is Kind.DOUBLE

    def coded(values: Codes | NDArray[np.float64]) -> Codes:
        return floats_to_codes(values.astype(np.float64)) if double else values.astype(np.int64)

    if arg.kind is Kind.INTERVAL:
        return lambda a: coded(np.array([_extract_interval(part, v) for v in dictionary.values(a)]))
    return lambda a: coded(_extract_day(part, *_fields(a, arg.kind, dictionary)))


_CLOCK = {"hour": 3_600_000_000, "minute": 60_000_000, "second": 1_000_000, "millisecond": 1000, "microsecond": 1}
_CLOCK |= {"milliseconds": 1000, "microseconds": 1}
_MONTHS = {"month": 1, "quarter": 3, "year": 12, "decade": 120, "century": 1200}


def _trunc(call: Call, dictionary: Dictionary) -> Strict:
    part, arg = call.op.partition(":")[2].lower(), call.args[0].type
    unit = DAY if call.type.kind is Kind.TIMESTAMP else 1

    def apply(a: Codes) -> Codes:
        days, micros = _fields(a, arg.kind, dictionary)
        if part in _CLOCK:
            return (days * DAY + micros // _CLOCK[part] * _CLOCK[part]) // (DAY // unit)
        if part == "day":
            return days * unit
        if part == "week":
            return (days - (days + 3) % 7) * unit
        if part == "isoyear":
            fourth = _iso_year(days)[0].astype("M8[Y]").astype("M8[D]").astype(np.int64) + 3  # of January, in week 1
            return in_years(fourth - (fourth + 3) % 7) * unit
        if part in _MONTHS:
            month = _months_of(days)[0] + 1970 * 12
            return in_years(_first_day(month // _MONTHS[part] * _MONTHS[part] - 1970 * 12)) * unit
        raise EvaluationError(f"there is no date part {part}")

    return apply


def _diff(call: Call, dictionary: Dictionary) -> Strict:
    """Count the boundaries of the part crossed from the first to the second; weeks are whole spans of seven days."""
    part = call.op.partition(":")[2].lower()
    kinds = [a.type.kind for a in call.args]

    def count(codes: Codes, kind: Kind) -> Codes:
        days, micros = _fields(codes, kind, dictionary)
        if part in _CLOCK:
            return (days * DAY + micros) // _CLOCK[part]
        if part in ("day", "week"):
            return days
        if part == "isoyear":
            return _iso_year(days)[0]
        if part in _MONTHS:
            return (_months_of(days)[0] + 1970 * 12) // _MONTHS[part]
        raise EvaluationError(f"there is no date part {part}")

    def apply(a: Codes, b: Codes) -> Codes:
        gap = count(b, kinds[1]) - count(a, kinds[0])
        return np.sign(gap) * (np.abs(gap) // 7) if part == "week" else gap

    return apply


_FIRST_MONTH = 30 * 12  # buckets of months begin with January 2000,
_FIRST_BUCKET = 10_959 * DAY  # others on Monday, 3 January 2000, as in DuckDB


def _bucket(call: Call, dictionary: Dictionary) -> Strict:
    """Find the bucket of a timestamp: the last multiple of the width, counted from the origin, that is not after it."""

    def apply(width: Codes, moment: Codes, *origin: Codes) -> Codes:
        months, days, clock = _parts(width, dictionary)
        span = days * DAY + clock
        if ((months != 0) & (span != 0)).any():
            raise EvaluationError("the width of time_bucket is months, or days and time, not both")
        if ((months < 0) | (span < 0) | ((months == 0) & (span == 0))).any():
            raise EvaluationError("the width of time_bucket must be positive")
        by_month = months > 0
        start = origin[0] if origin else np.full(len(moment), _FIRST_BUCKET)
        span = np.where(by_month, 1, span)
        found = start + (moment - start) // span * span
        if by_month.any():
            first = _months_of(start // DAY)[0] if origin else np.full(len(moment), _FIRST_MONTH)
            size = np.where(by_month, months, 1)
            month = first + (_months_of(moment // DAY)[0] - first) // size * size
            found = np.where(by_month, _first_day(month) * DAY, found)
        return in_range(found)

    return apply


def in_range(micros: Codes) -> Codes:
    """Return the timestamps, if all of them are in the years 1 to 9999."""
    in_years(micros // DAY)
    return micros


def _zone_of(call: Call) -> Zone:
    """Return the zone of a call; another release of its data than the call was planned with is an error."""
    _, name, digest = call.op.split(":")
    zone = find_zone(name)
    if zone.digest != digest:
        raise EvaluationError(f"the data of time zone {name} is not the same everywhere: install one release of tzdata")
    return zone


def _to_local(call: Call, _: Dictionary) -> Strict:
    zone = _zone_of(call)
    return lambda instants: in_range(zone.to_local(instants))


def _to_instant(call: Call, _: Dictionary) -> Strict:
    zone = _zone_of(call)
    return lambda local: in_range(zone.to_instants(local))


OPS: dict[str, Callable[[Call, Dictionary], Strict]] = {
    "extract": _extract,
    "date_trunc": _trunc,
    "date_diff": _diff,
    "time_bucket": _bucket,
    "to_local": _to_local,
    "to_instant": _to_instant,
}
