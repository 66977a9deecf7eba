"""Interval arithmetic of conditions and of choices between values: AND, OR, NOT, comparisons, CASE, COALESCE.

The law is that of `intervals.py`. NULL is a value beside the interval; AND, OR and NOT are three-valued.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from whence.plan.knowledge.bounds import (
    FALSE,
    NULL_BOUNDS,
    TRUE,
    UNDECIDED,
    Bounds,
    is_less,
)

Arguments = Sequence[Bounds]
Types = Sequence[str]

COMPARISONS = ("<", "<=", ">", ">=", "=", "<>")


def truths(bounds: Bounds) -> set[bool | None]:
    """Return what a condition may be."""
    found: set[bool | None] = {None} if bounds.null else set()
    if bounds.some:
        found |= {value for value in (False, True) if bounds.allows(value)}
    return found


def from_truths(found: set[bool | None]) -> Bounds:
    """Return the bounds of a condition that may be these."""
    known = found - {None}
    if not known:
        return NULL_BOUNDS
    made = UNDECIDED if len(known) == 2 else TRUE if True in known else FALSE
    return made.or_null() if None in found else made


def may_be_true(bounds: Bounds) -> bool:
    """Return whether a condition may become true."""
    return bounds.some and bounds.high is not False


def is_surely_true(bounds: Bounds) -> bool:
    """Return whether a condition is true for good."""
    return bounds.some and not bounds.null and bounds.low is True


def _and(args: Arguments) -> Bounds:
    found: set[bool | None] = {True}
    for arg in args:
        found = {
            False if False in (a, b) else None if None in (a, b) else True for a in found for b in truths(_truth(arg))
        }
    return from_truths(found)


def _or(args: Arguments) -> Bounds:
    found: set[bool | None] = {False}
    for arg in args:
        found = {
            True if True in (a, b) else None if None in (a, b) else False for a in found for b in truths(_truth(arg))
        }
    return from_truths(found)


def negated(args: Arguments) -> Bounds:
    return from_truths({None if value is None else not value for value in truths(_truth(args[0]))})


def _truth(bounds: Bounds) -> Bounds:
    """Return the bounds of a condition of which nothing else is known."""
    return Bounds(bool(bounds.low), bounds.high is not False, bounds.null) if bounds.some else bounds


def _is_null(args: Arguments) -> Bounds:
    (arg,) = args
    return TRUE if not arg.some else FALSE if not arg.null else UNDECIDED


def _less(a: Bounds, b: Bounds, or_equal: bool) -> Bounds:
    """Return the bounds of a < b, of values."""
    above = a.high is None or b.low is None or is_less(b.low, a.high) or (not or_equal and not is_less(a.high, b.low))
    if not above:
        return TRUE
    below = a.low is None or b.high is None or is_less(a.low, b.high) or (or_equal and not is_less(b.high, a.low))
    if not below:
        return FALSE
    return UNDECIDED


def equal(a: Bounds, b: Bounds) -> Bounds:
    ours, theirs = a.not_null(), b.not_null()
    if ours is None or theirs is None or ours.common(theirs) is None:
        return FALSE
    return TRUE if ours.is_final and theirs.is_final else UNDECIDED


def comparison(op: str) -> Callable[..., Bounds]:
    def compare(args: Arguments, type: str, types: Types, part: str) -> Bounds:
        if "INTERVAL" in types:
            return UNDECIDED
        a, b = args
        match op:
            case "<":
                return _less(a, b, or_equal=False)
            case "<=":
                return _less(a, b, or_equal=True)
            case ">":
                return _less(b, a, or_equal=False)
            case ">=":
                return _less(b, a, or_equal=True)
            case "=":
                return equal(a, b)
        return negated([equal(a, b)])

    return compare


def _is_not_distinct(args: Arguments) -> Bounds:
    a, b = args
    found: set[bool | None] = truths(equal(a, b)) if a.some and b.some else set()
    if a.null and b.null:
        found.add(True)
    if (a.null and b.some) or (a.some and b.null):
        found.add(False)
    return from_truths(found)


def _in(args: Arguments) -> Bounds:
    value, *options = args
    if not value.some:
        return NULL_BOUNDS
    tests = [equal(value, o) if o.some else NULL_BOUNDS for o in options]
    found = _or([t.or_null() if o.null else t for t, o in zip(tests, options, strict=True)])
    return found.or_null() if value.null else found


# -- choice ----------------------------------------------------------------------------------------------------------


def _case(args: Arguments) -> Bounds:
    """Return the bounds of CASE: conditions and values in turn, then the default."""
    found: Bounds | None = None
    for condition, value in zip(args[:-1:2], args[1:-1:2], strict=True):
        condition = _truth(condition)
        if may_be_true(condition):
            found = value if found is None else found.hull(value)
        if is_surely_true(condition):
            break
    else:
        found = args[-1] if found is None else found.hull(args[-1])
    assert found is not None
    return found


def _coalesce(args: Arguments) -> Bounds:
    found: Bounds | None = None
    for arg in args:
        value = arg.not_null()
        if value is not None:
            found = value if found is None else found.hull(value)
        if not arg.null:
            break
    else:
        return NULL_BOUNDS if found is None else found.or_null()
    assert found is not None
    return found


def _nullif(args: Arguments) -> Bounds:
    return args[0].or_null()


def _extreme(greatest: bool) -> Callable[[Arguments], Bounds]:
    """Return LEAST or GREATEST, which skip NULLs."""

    def compute(args: Arguments) -> Bounds:
        values = [a for a in args if a.some]
        if not values:
            return NULL_BOUNDS
        sure = [a for a in values if not a.null]
        lows, highs = [a.low for a in values], [a.high for a in values]
        if greatest:
            high = None if None in highs else _most(highs, True)
            known = [a.low for a in sure if a.low is not None]
            low = _most(known, True) if known else None if sure or None in lows else _most(lows, False)
        else:
            low = None if None in lows else _most(lows, False)
            known = [a.high for a in sure if a.high is not None]
            high = _most(known, False) if known else None if sure or None in highs else _most(highs, True)
        return Bounds(low, high, null=not sure)

    return compute


def _most(values: Sequence[Any], greatest: bool) -> Any:
    found = values[0]
    for value in values[1:]:
        if is_less(found, value) == greatest and found != value:
            found = value
    return found


WHOLE_OPERATIONS: dict[str, Callable[[Arguments], Bounds]] = {
    "case": _case,
    "and": _and,
    "or": _or,
    "not": negated,
    "is_null": _is_null,
    "is_not_distinct": _is_not_distinct,
    "is_distinct": lambda args: negated([_is_not_distinct(args)]),
    "in": _in,
    "coalesce": _coalesce,
    "nullif": _nullif,
    "least": _extreme(greatest=False),
    "greatest": _extreme(greatest=True),
}
"""The operations that look at NULL themselves, by name."""
