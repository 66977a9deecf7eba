"""Rows as lines of JSON. Loads nothing large, so that clients and terminals can do with it."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any

from whence.model.codes import Interval


def json_line(row: dict[str, Any]) -> str:
    """Format a row as one line of JSON; dates, times and decimals become text that reads back.

    >>> json_line({"a": Decimal("1.50"), "b": "é"})
    '{"a": "1.50", "b": "é"}'
    """
    return json.dumps(row, default=_plain, ensure_ascii=False)


def _plain(value: Any) -> Any:
    if isinstance(value, Interval):
        return duration(value)
    return value.isoformat() if hasattr(value, "isoformat") else str(value)


def duration(span: Interval) -> str:
    """Format an interval as an ISO 8601 duration.

    >>> duration(Interval(1, 2, 3_500_000))
    'P1M2DT3.5S'
    """
    date = (f"{span.months}M" if span.months else "") + (f"{span.days}D" if span.days else "")
    seconds = (Decimal(span.micros) / 1_000_000).normalize()
    time = f"T{seconds:f}S" if span.micros or not date else ""
    return f"P{date}{time}"
