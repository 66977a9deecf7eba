"""Comparisons of data with parameters, read off conditions, and paired to ranges.

A template's range `x >= :p` is bound as `x >= p OR (p IS NULL AND x IS NOT NULL)` (`sql/open_bounds.py`): a NULL
parameter is no bound. Two comparisons of one value, from below and from above, are one `Range`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from whence.model.types import BOOLEAN, Kind, Type
from whence.plan.algebra.expressions import Call, Col, Expr, columns_of
from whence.plan.algebra.logical.match import Range

_FLIPPED = {">=": "<=", ">": "<", "<=": ">=", "<": ">"}


@dataclass(frozen=True)
class Comparison:
    """`value op parameter`, where the value is computed from the data and a NULL parameter is no bound."""

    value: Expr
    op: str
    parameter: int


def read_comparison(test: Expr, is_parameter: Callable[[int], bool]) -> Comparison | None:
    """Read `x >= p OR (p IS NULL AND x IS NOT NULL)`, where p is a parameter and x has columns, none of them one; None
    if a condition is not of this form."""
    match test:
        case Call(op="or", args=(Call(op=op, args=(a, b)), rest)) if op in _FLIPPED:
            if isinstance(a, Col) and is_parameter(a.index):
                a, b, op = b, a, _FLIPPED[op]
            if isinstance(b, Col) and is_parameter(b.index) and rest == _no_bound(a, b):
                read = columns_of(a)
                return Comparison(a, op, b.index) if read and not any(map(is_parameter, read)) else None
    return None


def _no_bound(value: Expr, parameter: Expr) -> Expr:
    """Return the condition under which a NULL parameter lets a value pass."""
    unbounded, missing = (Call(BOOLEAN, "is_null", (e,)) for e in (parameter, value))
    return Call(BOOLEAN, "and", (unbounded, Call(BOOLEAN, "not", (missing,))))


def is_ordered(type: Type) -> bool:
    """Return whether values of a type order by their codes or by the dictionary's labels."""
    return type.kind not in (Kind.INTERVAL, Kind.NULL)


def pair_bounds(comparisons: Sequence[Comparison], start: int) -> tuple[list[Expr], list[Range]]:
    """Return the values that are compared, one a column from `start` on, with their ranges: a low and a high end of one
    value are one range."""
    values: list[Expr] = []
    ranges: list[Range] = []
    waiting: dict[tuple[Expr, bool], int] = {}  # a value without that end, and its range
    for one in comparisons:
        is_low = one.op in (">", ">=")
        at = waiting.pop((one.value, is_low), None)
        if at is None:
            at = len(ranges)
            values.append(one.value)
            ranges.append(Range(start + at, None, None))
            waiting[one.value, not is_low] = at
        old, is_open = ranges[at], one.op in ("<", ">")
        if is_low:
            ranges[at] = Range(old.column, one.parameter, old.high, is_open, old.open_high)
        else:
            ranges[at] = Range(old.column, old.low, one.parameter, old.open_low, is_open)
    return values, ranges
