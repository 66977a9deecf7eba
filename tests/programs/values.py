"""Types of docs/sql.md, with tiny domains of values: NULL and equal values are common."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any

from tests.programs.dice import Dice

INT, BIG, DOUBLE, DEC = "INTEGER", "BIGINT", "DOUBLE", "DECIMAL(6, 2)"
TEXT, BOOL, DATE, TIME, SPAN = "TEXT", "BOOLEAN", "DATE", "TIMESTAMP", "INTERVAL"
TYPES = (INT, DOUBLE, TEXT, DEC, BOOL, DATE, TIME, BIG, SPAN)
NUMBERS = (INT, DOUBLE, DEC, BIG)

DOMAINS: dict[str, tuple[Any, ...]] = {
    INT: (0, 1, 2, 3, -1),
    BIG: (0, 1, 2, 5_000_000_000),
    DOUBLE: (0.0, 1.5, -2.25, 0.1, 3.0, 1e308),
    DEC: (Decimal("0.00"), Decimal("1.50"), Decimal("-2.25"), Decimal("0.10")),
    TEXT: ("a", "b", "", "ab", "1", "Zoe"),
    BOOL: (False, True),
    DATE: (dt.date(2024, 1, 1), dt.date(2024, 2, 29), dt.date(2023, 12, 31)),
    TIME: (dt.datetime(2024, 1, 1), dt.datetime(2024, 1, 1, 12, 30, 0, 500_000), dt.datetime(2023, 12, 31, 23, 59, 59)),
    SPAN: (dt.timedelta(days=1), dt.timedelta(hours=2), dt.timedelta(0)),
}


def value(dice: Dice, kind: str) -> Any:
    """Return a value of a type, NULL one time in five."""
    return None if dice.chance(20) else dice.of(DOMAINS[kind])


def literal(value: Any, kind: str) -> str:
    """Return a value as SQL.

    >>> literal(None, "DATE"), literal(dt.timedelta(hours=2), "INTERVAL")
    ('CAST(NULL AS DATE)', "INTERVAL '7200 seconds'")
    """
    if value is None:
        return f"CAST(NULL AS {kind})"
    match kind:
        case "TEXT":
            return f"'{value}'"
        case "DATE" | "TIMESTAMP":
            return f"{kind} '{value}'"
        case "INTERVAL":
            return f"INTERVAL '{int(value.total_seconds())} seconds'"
        case "DOUBLE":
            return f"CAST({value!r} AS DOUBLE)"
        case "BOOLEAN":
            return str(value).lower()
    return f"({value})" if str(value).startswith("-") else str(value)
