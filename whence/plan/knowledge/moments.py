"""Interval arithmetic of dates and times: moved, cut off, taken apart.

The law is that of `intervals.py`. Ends that a move puts outside of the calendar are its first or last moment.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from typing import Any

from whence.model.codes import Interval
from whence.plan.knowledge.bounds import ANYTHING, Bounds, exactly

Arguments = Sequence[Bounds]
Types = Sequence[str]
_MOST_DAYS = 4_000_000  # more than there are dates
MOMENTS = ("DATE", "TIMESTAMP", "TIMESTAMP WITH TIME ZONE")


def shift(args: Arguments, type: str, types: Types, sign: int) -> Bounds:
    """Return the bounds of a date or time with days or an interval added."""
    a, b = args
    if types[0] not in MOMENTS:
        a, b, types = b, a, (types[1], types[0])
        if sign < 0:
            return ANYTHING
    if types[0] not in MOMENTS or types[1] in MOMENTS:
        return _days_between(a, b) if sign < 0 and tuple(types) == ("DATE", "DATE") else ANYTHING
    if types[1] == "INTERVAL":
        if not b.is_final or b.low.months:
            return ANYTHING
        moved = [None if end is None else _moved(end, sign * _delta(b.low), type) for end in a.pair]
        return Bounds(moved[0], moved[1], null=False)
    near, far = (b.low, b.high) if sign > 0 else (b.high, b.low)
    low = None if a.low is None or near is None else _moved(a.low, _days(sign * near), type)
    high = None if a.high is None or far is None else _moved(a.high, _days(sign * far), type)
    return Bounds(low, high, null=False)


def _days(count: int) -> dt.timedelta:
    return dt.timedelta(max(-_MOST_DAYS, min(count, _MOST_DAYS)))


def _days_between(a: Bounds, b: Bounds) -> Bounds:
    low = None if a.low is None or b.high is None else (a.low - b.high).days
    high = None if a.high is None or b.low is None else (a.high - b.low).days
    return Bounds(low, high, null=False)


def _delta(interval: Interval) -> dt.timedelta:
    return dt.timedelta(days=interval.days, microseconds=interval.micros)


def _moved(end: Any, by: dt.timedelta, type: str) -> Any:
    moved = _moved_time(as_time(end), by)
    return moved.date() if type == "DATE" else moved


def _moved_time(time: dt.datetime, by: dt.timedelta) -> dt.datetime:
    """Return a moved time, at most as far as the calendar goes."""
    try:
        return time + by
    except OverflowError:
        return dt.datetime.max if by > dt.timedelta() else dt.datetime.min


def as_time(end: Any) -> dt.datetime:
    return end if isinstance(end, dt.datetime) else dt.datetime.combine(end, dt.time())


def date_trunc(args: Arguments, type: str, types: Types, part: str) -> Bounds:
    (a,) = args
    if types[0] not in MOMENTS:
        return ANYTHING
    low, high = (None if end is None else _truncated(as_time(end), part.lower()) for end in a.pair)
    if type == "DATE":
        return Bounds(None if low is None else low.date(), None if high is None else high.date(), null=False)
    return Bounds(low, high, null=False)


_CLOCK = {"microsecond": 1, "millisecond": 1000, "second": 10**6, "minute": 60 * 10**6, "hour": 3600 * 10**6}
_MONTHS = {"month": 1, "quarter": 3, "year": 12, "decade": 120}


def _truncated(time: dt.datetime, part: str) -> dt.datetime:
    midnight = time.replace(hour=0, minute=0, second=0, microsecond=0)
    part = part.removesuffix("s")
    if part in _CLOCK:
        micros = (time - midnight) // dt.timedelta(microseconds=1)
        return midnight + dt.timedelta(microseconds=micros // _CLOCK[part] * _CLOCK[part])
    if part == "day":
        return midnight
    if part == "week":
        return _moved_time(midnight, -dt.timedelta(midnight.weekday()))
    if part in _MONTHS:
        months = (time.year * 12 + time.month - 1) // _MONTHS[part] * _MONTHS[part]
        return midnight.replace(year=months // 12, month=months % 12 + 1, day=1) if months >= 12 else dt.datetime.min
    raise ValueError(part)


_FIRST_BUCKET = dt.datetime(2000, 1, 3)


def time_bucket(args: Arguments, type: str, types: Types, part: str) -> Bounds:
    width, moment = args[0], args[1]
    start = args[2] if len(args) > 2 else exactly(_FIRST_BUCKET)
    if not width.is_final or not start.is_final or width.low.months or types[1] not in MOMENTS or type == "DATE":
        return ANYTHING
    step, origin = _delta(width.low), as_time(start.low)
    ends = [
        None if end is None else _moved(origin, (as_time(end) - origin) // step * step, type) for end in moment.pair
    ]
    return Bounds(ends[0], ends[1], null=False)


def extract_part(args: Arguments, type: str, types: Types, part: str) -> Bounds:
    (a,) = args
    if types[0] not in MOMENTS or part.lower() != "year":
        return ANYTHING
    low, high = (None if end is None else end.year for end in a.pair)
    return Bounds(low, high, null=False)
