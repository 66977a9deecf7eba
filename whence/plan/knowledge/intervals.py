"""Interval arithmetic: what an operation can give if its arguments are anything between their bounds.

The law: if each argument lies in its bounds, so does the result, or the engine gives an error and no result. Smaller
bounds of an argument never give larger bounds of the result. What an operation does that is not written here is
unknown, which is sound.

Numbers: rounding is monotone, so the ends of an interval are rounded outwards and hold for all in between. A DOUBLE
without an upper bound may be NaN, which is above all numbers and makes most results NaN. Exact types that overflow give
errors.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from decimal import ROUND_CEILING, ROUND_FLOOR, ROUND_HALF_UP, Context, Decimal
from fractions import Fraction
from typing import Any

from whence.plan.knowledge.bounds import (
    ANYTHING,
    NULL_BOUNDS,
    Bounds,
    BoundsError,
    exactly,
)
from whence.plan.knowledge.moments import MOMENTS, as_time, date_trunc, extract_part, shift, time_bucket
from whence.plan.knowledge.truths import COMPARISONS, WHOLE_OPERATIONS, Arguments, Types, comparison, equal, negated

_WIDE = Context(prec=120)
_EXACT = 2**53  # up to which a double has every integer


def apply(op: str, type: str, args: Arguments, types: Types) -> Bounds:
    """Return the bounds of an operation, given the bounds and types of its arguments.

    >>> apply("-", "INTEGER", [exactly(10), Bounds(6, None, null=False)], ["INTEGER", "INTEGER"]).text()
    '≤ 4'
    """
    name, _, part = op.partition(":")
    whole, strict = WHOLE_OPERATIONS.get(name), _STRICT.get(name)
    try:
        if whole is not None:
            return ANYTHING if "INTERVAL" in types and name not in _ANY_TYPE else whole(args)
        if strict is None:
            return ANYTHING
        if not all(a.some for a in args):
            return NULL_BOUNDS
        if name not in COMPARISONS and "DOUBLE" in types:
            args = [_finite(a) if t == "DOUBLE" else a for a, t in zip(args, types, strict=True)]
        made = strict(args, type, types, part)
    except (ArithmeticError, ValueError, TypeError, BoundsError):
        return ANYTHING
    return made.or_null() if any(a.null for a in args) else made


# -- numbers ---------------------------------------------------------------------------------------------------------


def _kind(type: str) -> str:
    return type.partition("(")[0]


def _scale(type: str) -> int:
    return int(type.partition(",")[2].rstrip(")")) if type.startswith("DECIMAL") else 0


def _number(low: Any, high: Any, type: str, may_be_nan: bool) -> Bounds:
    """Return the bounds of a numeric result, rounded outwards to its type."""
    if _kind(type) == "DOUBLE":
        low, high = (None if end is None else _as_float(end) for end in (low, high))
        return _finite(Bounds(low, None if may_be_nan else high, null=False))
    if may_be_nan:
        return Bounds(null=False)
    scale = _scale(type)
    return Bounds(_fitted(low, type, scale, ROUND_FLOOR), _fitted(high, type, scale, ROUND_CEILING), null=False)


def _as_float(end: Any) -> float:
    try:
        return float(end)
    except OverflowError:
        return math.inf if end > 0 else -math.inf


def _finite(bounds: Bounds) -> Bounds:
    """Return bounds of DOUBLEs whose ends are finite, or not there: then it may be an infinity, or NaN."""
    low, high = bounds.pair
    if low is not None and not math.isfinite(low):
        low = None if low == -math.inf else sys.float_info.max
    if high is not None and not math.isfinite(high):
        high = -sys.float_info.max if high == -math.inf else None
    return bounds if (low, high) == bounds.pair else Bounds(low, high, bounds.null, bounds.some)


def _fitted(end: Any, type: str, scale: int, rounding: str) -> Any:
    if end is None:
        return None
    if isinstance(end, Fraction):
        unit = end * 10**scale
        whole = math.floor(unit) if rounding == ROUND_FLOOR else math.ceil(unit)
        return Decimal(whole).scaleb(-scale, _WIDE) if _kind(type) == "DECIMAL" else whole
    if _kind(type) == "DECIMAL":
        return Decimal(end).quantize(Decimal(1).scaleb(-scale), rounding, _WIDE)
    return int(Decimal(end).to_integral_value(rounding)) if isinstance(end, Decimal) else end


def _nan(args: Arguments, types: Types) -> bool:
    """Return whether an argument may be NaN or infinite."""
    return any(_kind(t) == "DOUBLE" and (a.low is None or a.high is None) for a, t in zip(args, types, strict=True))


def _add(args: Arguments, type: str, types: Types, part: str) -> Bounds:
    if any(t in MOMENTS or t == "INTERVAL" for t in types):
        return shift(args, type, types, 1)
    a, b = args
    low = None if a.low is None or b.low is None else plus(a.low, b.low)
    high = None if a.high is None or b.high is None else plus(a.high, b.high)
    return _number(low, high, type, _nan(args, types))


def _subtract(args: Arguments, type: str, types: Types, part: str) -> Bounds:
    if any(t in MOMENTS or t == "INTERVAL" for t in types):
        return shift(args, type, types, -1)
    a, b = args
    low = None if a.low is None or b.high is None else plus(a.low, -b.high)
    high = None if a.high is None or b.low is None else plus(a.high, -b.low)
    return _number(low, high, type, _nan(args, types))


def _difference(args: Arguments, type: str, types: Types, part: str) -> Bounds:
    found = _subtract(args, type, types, part)
    return found.common(Bounds(0, None)) or found


def plus(a: Any, b: Any) -> Any:
    """Return the sum of two numbers, of DECIMALs exactly."""
    return _WIDE.add(Decimal(a), Decimal(b)) if isinstance(a, Decimal) or isinstance(b, Decimal) else a + b


def times(a: Any, b: Any) -> Any:
    """Return the product of two numbers, of DECIMALs exactly."""
    if isinstance(a, Decimal) or isinstance(b, Decimal):
        return _WIDE.multiply(Decimal(a), Decimal(b))
    return a * b


def _negate(args: Arguments, type: str, types: Types, part: str) -> Bounds:
    if type == "INTERVAL":
        return ANYTHING
    (a,) = args
    low = None if a.high is None else -a.high
    high = None if a.low is None else -a.low
    return _number(low, high, type, _nan(args, types))


def _multiply(args: Arguments, type: str, types: Types, part: str) -> Bounds:
    if type == "INTERVAL":
        return ANYTHING
    a, b = args
    ends = [_product(x, y, i, j) for i, x in enumerate(a.pair) for j, y in enumerate(b.pair)]
    low = None if -math.inf in ends else min(ends)
    high = None if math.inf in ends else max(ends)
    return _number(low, high, type, _nan(args, types))


def _product(x: Any, y: Any, x_is_high: int, y_is_high: int) -> Any:
    """Return the product of two ends, where None is the infinity of its side; 0 times that is 0."""
    if x is not None and y is not None:
        return times(x, y)
    one = (1 if x_is_high else -1) if x is None else (x > 0) - (x < 0)
    two = (1 if y_is_high else -1) if y is None else (y > 0) - (y < 0)
    return 0 if not one * two else math.inf * (one * two)


def _divide(args: Arguments, type: str, types: Types, part: str) -> Bounds:
    a, b = args
    if b.allows(0) or (b.low is None and b.high is None):
        return ANYTHING  # an infinity, NaN or an error
    exact = _kind(type) != "DOUBLE"
    ends = list[Any]()
    for i, x in enumerate(a.pair):
        for y in b.pair:
            if y is None:
                ends += [0] if x is not None else [0, math.inf if i == (b.low is not None) else -math.inf]
            elif x is None:
                ends.append(math.inf if (i == 1) == (y > 0) else -math.inf)
            else:
                ends += [Fraction(x) / Fraction(y)] if exact else _around(float(x) / float(y), x, y)
    low = None if -math.inf in ends else min(ends)
    high = None if math.inf in ends else max(ends)
    return _number(low, high, type, _nan(args, types))


def _around(result: float, *made_of: Any) -> list[float]:
    """Return a DOUBLE, or its neighbours if numbers that it is made of may have been rounded before."""
    if all(isinstance(end, float) or (isinstance(end, int) and abs(end) < _EXACT) for end in made_of):
        return [result, result]
    return [math.nextafter(result, -math.inf), math.nextafter(result, math.inf)]


def _quotient(args: Arguments, type: str, types: Types, part: str) -> Bounds:
    """Return the bounds of //, which rounds towards zero, by a constant."""
    a, b = args
    if not b.is_final or b.low == 0 or _nan(args, types):
        return ANYTHING
    by = b.low

    def one(x: Any) -> Any:
        if x is None:
            return None
        return math.trunc(x / by) if _kind(type) == "DOUBLE" else Fraction(math.trunc(Fraction(x) / Fraction(by)))

    low, high = (one(a.low), one(a.high)) if by > 0 else (one(a.high), one(a.low))
    return _number(low, high, type, may_be_nan=False)


def _remainder(args: Arguments, type: str, types: Types, part: str) -> Bounds:
    """Return the bounds of %, which has the sign of the dividend, by a constant."""
    a, b = args
    if not b.is_final or b.low == 0 or _kind(type) == "DOUBLE":
        return ANYTHING
    by = abs(Fraction(b.low))
    if a.low is not None and a.high is not None and Fraction(a.low) >= 0:
        low, high = Fraction(a.low), Fraction(a.high)
        if low // by == high // by:
            return _number(low % by, high % by, type, may_be_nan=False)
    unit = Fraction(1, 10 ** max(_scale(type), *map(_scale, types)))
    low = Fraction(0) if a.low is not None and a.low >= 0 else unit - by
    high = Fraction(0) if a.high is not None and a.high <= 0 else by - unit
    return _number(low, high, type, may_be_nan=False)


def _abs(args: Arguments, type: str, types: Types, part: str) -> Bounds:
    (a,) = args
    if a.low is not None and a.low >= 0:
        return Bounds(a.low, a.high, null=False)
    if a.high is not None and a.high <= 0:
        return _negate(args, type, types, part)
    zero = (a.low if a.low is not None else a.high if a.high is not None else 0) * 0
    high = None if a.low is None or a.high is None else max(-a.low, a.high)
    return _number(zero, high, type, _nan(args, types))


def _sign(args: Arguments, type: str, types: Types, part: str) -> Bounds:
    (a,) = args
    if _nan(args, types):
        return _number(-1, 1, type, may_be_nan=False)
    low = -1 if a.low is None else (a.low > 0) - (a.low < 0)
    high = 1 if a.high is None else (a.high > 0) - (a.high < 0)
    return _number(low, high, type, may_be_nan=False)


def _rounded(down: Callable[[Any], Any], up: Callable[[Any], Any]) -> Callable[..., Bounds]:
    def compute(args: Arguments, type: str, types: Types, part: str) -> Bounds:
        (a,) = args
        if _nan(args, types):
            low = None if a.low is None else down(a.low)
            return _number(low, None, type, may_be_nan=True) if _kind(type) == "DOUBLE" else ANYTHING
        low, high = None if a.low is None else down(a.low), None if a.high is None else up(a.high)
        return _number(low, high, type, may_be_nan=False)

    return compute


def _round(args: Arguments, type: str, types: Types, part: str) -> Bounds:
    a, digits = args[0], args[1] if len(args) > 1 else exactly(0)
    if not digits.is_final or _nan(args[:1], types[:1]) or abs(digits.low) > 30:
        return ANYTHING
    if _kind(types[0]) == "DOUBLE":
        unit = float(10 ** abs(digits.low))

        def cut(x: float, whole: Callable[[float], int]) -> float:
            return float(whole(x * unit)) / unit if digits.low >= 0 else float(whole(x / unit)) * unit

        low = None if a.low is None else cut(a.low, math.floor)
        high = None if a.high is None else cut(a.high, math.ceil)
        return _number(low, high, type, may_be_nan=False)
    step = Decimal(1).scaleb(-min(digits.low, _scale(types[0])))
    ends = [None if end is None else Decimal(end).quantize(step, ROUND_HALF_UP, _WIDE) for end in a.pair]
    return _number(ends[0], ends[1], type, may_be_nan=False)


def _floats(function: Callable[[float], float], above: float | None) -> Callable[..., Bounds]:
    """Return an increasing function of a DOUBLE, defined above a number; numerically within two steps."""

    def compute(args: Arguments, type: str, types: Types, part: str) -> Bounds:
        (a,) = args
        if above is not None and (a.low is None or a.low <= above):
            return ANYTHING
        low, high = (None if end is None else _computed(function, float(end)) for end in a.pair)
        low = None if low is None else math.nextafter(math.nextafter(low, -math.inf), -math.inf)
        high = None if high is None else math.nextafter(math.nextafter(high, math.inf), math.inf)
        return _number(low, high, type, _nan(args, types))

    return compute


def _computed(function: Callable[[float], float], end: float) -> float:
    try:
        return function(end)
    except OverflowError:
        return math.inf


# -- casts -----------------------------------------------------------------------------------------------------------

_NUMBERS = ("INTEGER", "BIGINT", "DECIMAL", "DOUBLE")


def _cast(args: Arguments, type: str, types: Types, part: str) -> Bounds:
    (a,), source, target = args, _kind(types[0]), _kind(type)
    if types[0] == type or (source in MOMENTS[1:] and target in MOMENTS[1:] and source == target):
        return Bounds(a.low, a.high, null=False)
    if source in (*_NUMBERS, "BOOLEAN") and target in _NUMBERS:
        low, high = (None if end is None else int(end) if source == "BOOLEAN" else end for end in a.pair)
        if source == "DOUBLE" and target != "DOUBLE":
            low, high = (None if end is None else Fraction(end) for end in (low, high))  # NaN has no cast
            return _number(low, high, type, may_be_nan=False)
        if target == "DOUBLE":
            low = None if low is None else _around(float(low), low)[0]
            high = None if high is None else _around(float(high), high)[1]
        return _number(low, high, type, _nan(args, types))
    if target == "BOOLEAN" and source in _NUMBERS:
        return negated([equal(a, exactly(0))])
    if source == "DATE" and target == "TIMESTAMP":
        low, high = (None if end is None else as_time(end) for end in a.pair)
        return Bounds(low, high, null=False)
    if source == "TIMESTAMP" and target == "DATE":
        low, high = (None if end is None else end.date() for end in a.pair)
        return Bounds(low, high, null=False)
    return ANYTHING


def _try_cast(args: Arguments, type: str, types: Types, part: str) -> Bounds:
    return _cast(args, type, types, part).or_null()


_ANY_TYPE = ("and", "or", "not", "is_null")
_STRICT: dict[str, Callable[[Arguments, str, Types, str], Bounds]] = {
    **{op: comparison(op) for op in COMPARISONS},
    "+": _add,
    "-": _subtract,
    "difference": _difference,
    "*": _multiply,
    "/": _divide,
    "//": _quotient,
    "%": _remainder,
    "neg": _negate,
    "abs": _abs,
    "sign": _sign,
    "round": _round,
    "floor": _rounded(math.floor, math.floor),
    "ceil": _rounded(math.ceil, math.ceil),
    "sqrt": _floats(math.sqrt, 0.0),
    "exp": _floats(math.exp, None),
    "ln": _floats(math.log, 0.0),
    "log10": _floats(math.log10, 0.0),
    "cast": _cast,
    "try_cast": _try_cast,
    "date_trunc": date_trunc,
    "time_bucket": time_bucket,
    "extract": extract_part,
}
