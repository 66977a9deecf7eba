"""Exact numbers where a wide DECIMAL is among the types: whole numbers of units, int64 while they are small.

A column of which every value is below 2**62 units is computed as int64. Only where one is not, or a result might not
be, are its values Python integers (`model/wide.py`). A result of more digits than its type has is an error.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from whence.engine.expressions.functions.common import Strict, bound, divide_half_up
from whence.model import wide
from whence.model.codes import Codes, Dictionary, codes_to_floats
from whence.model.errors import EvaluationError
from whence.model.types import Kind, Type
from whence.plan.algebra.expressions import Call

Units = NDArray[Any]  # int64, all below 2**62, or Python integers

_SAFE = float(2**61)
_EXACT_POWER = 22  # the greatest power of ten that is a DOUBLE


def has_wide(call: Call) -> bool:
    """Tell whether a call is one of exact numbers, some of them wide."""
    types = [call.type, *(a.type for a in call.args)]
    return any(type.is_wide for type in types) and all(type.kind is not Kind.DOUBLE for type in types)


def largest(units: Units) -> float:
    """Return the greatest magnitude, about."""
    return float(np.abs(units).max()) if len(units) else 0.0


def objects(numbers: Iterable[int]) -> Units:
    """Convert Python integers to a column."""
    listed = list(numbers)
    out = np.empty(len(listed), object)
    out[:] = listed
    return out


def shifted(units: Units, places: int) -> Units:
    """Convert units to another scale: times 10**places, rounded half away from zero if that is below zero."""
    if places == 0 or not len(units):
        return units
    if places > 0:
        factor = 10**places
        small = units.dtype != object and largest(units) * factor < _SAFE
        moved: Units = (units if small else units.astype(object)) * factor
        return moved
    factor = 10**-places
    if units.dtype == object or factor >= 2**62:
        return objects(divide_half_up(v, factor) for v in units.tolist())
    magnitude = np.abs(units)
    quotient = magnitude // factor
    quotient += (magnitude - quotient * factor) >= (factor + 1) // 2
    rounded: Units = np.where(units < 0, -quotient, quotient)
    return rounded


def added(a: Units, b: Units) -> Units:
    both = a.dtype != object and b.dtype != object
    total: Units = a + b if both else a.astype(object) + b.astype(object)
    return total


def multiplied(a: Units, b: Units) -> Units:
    both = a.dtype != object and b.dtype != object and largest(a) * largest(b) < _SAFE
    product: Units = a * b if both else a.astype(object) * b.astype(object)
    return product


def remainder(a: Units, b: Units) -> Units:
    """Compute the remainder of a divided by b, with the sign of a."""
    if a.dtype != object and b.dtype != object:
        return np.fmod(a, b)
    exact = [abs(x) % abs(y) * (1 if x >= 0 else -1) for x, y in zip(a.tolist(), b.tolist(), strict=True)]
    return objects(exact)


def to_codes(units: Units, type: Type, dictionary: Dictionary) -> Codes:
    """Encode units in any exact type, if they fit."""
    if type.kind is Kind.DECIMAL:
        return wide.encode(units, type, dictionary)
    limit = bound(type)
    low = -limit - (type.kind is Kind.INTEGER)
    if len(units) and (max(units.tolist()) > limit or min(units.tolist()) < low):
        raise EvaluationError(f"out of range for {type}")
    return units.astype(np.int64)


def to_floats(codes: Codes, type: Type, dictionary: Dictionary) -> NDArray[np.float64]:
    """Convert codes of any numeric type to DOUBLE, rounded once where they are DECIMAL."""
    if type.kind is Kind.DOUBLE:
        return codes_to_floats(codes)
    if not type.is_wide:
        return codes / 10.0**type.scale
    units = wide.numbers(codes, type, dictionary)
    if units.dtype != object and type.scale <= _EXACT_POWER and largest(units) <= 2.0**53:
        return units / 10.0**type.scale
    unit = 10**type.scale
    return np.array([n / unit for n in units.tolist()], np.float64)


def rescaled(source: Type, target: Type, dictionary: Dictionary) -> Strict:
    """Cast between exact types of which one is a wide DECIMAL."""

    def apply(codes: Codes) -> Codes:
        units = wide.numbers(codes, source, dictionary)
        if units.dtype != object and largest(units) >= _SAFE:  # a BIGINT
            units = units.astype(object)
        return to_codes(shifted(units, target.scale - source.scale), target, dictionary)

    return apply


def from_double(target: Type, dictionary: Dictionary) -> Strict:
    """Cast DOUBLE to a wide DECIMAL, half away from zero."""

    def apply(codes: Codes) -> Codes:
        scaled = codes_to_floats(codes) * 10.0**target.scale
        if not (np.abs(scaled) < 1e38).all():
            raise EvaluationError(f"out of range for {target}")
        rounded = np.where(scaled < 0, np.ceil(scaled - 0.5), np.floor(scaled + 0.5))
        if (np.abs(rounded) < _SAFE).all():
            return wide.encode(rounded.astype(np.int64), target, dictionary)
        return wide.encode(objects(map(int, rounded.tolist())), target, dictionary)

    return apply


def _computed(function: Callable[..., Units], places: Callable[[Call], list[int]]) -> Callable[..., Strict]:
    """Compile a strict function of units: arguments are shifted by `places`, and the result is one of the call's
    type."""

    def build(call: Call, dictionary: Dictionary) -> Strict:
        types, shifts = [a.type for a in call.args], places(call)

        def apply(*columns: Codes) -> Codes:
            units = [
                shifted(wide.numbers(c, type, dictionary), by)
                for c, type, by in zip(columns, types, shifts, strict=True)
            ]
            return to_codes(function(*units), call.type, dictionary)

        return apply

    return build


def _aligned(call: Call) -> list[int]:
    return [call.type.scale - a.type.scale for a in call.args]


def _divided(a: Units, b: Units) -> Units:
    if (b == 0).any():
        raise EvaluationError("division by zero")
    return remainder(a, b)


def _product(call: Call, dictionary: Dictionary) -> Strict:
    types, by = [a.type for a in call.args], call.type.scale - sum(a.type.scale for a in call.args)

    def apply(a: Codes, b: Codes) -> Codes:
        x, y = (wide.numbers(c, type, dictionary) for c, type in zip((a, b), types, strict=True))
        return to_codes(shifted(multiplied(x, y), by), call.type, dictionary)

    return apply


def _rounded(call: Call, dictionary: Dictionary) -> Strict:
    arg, result = call.args[0].type, call.type.scale

    def apply(a: Codes, digits: Codes | None = None) -> Codes:
        units = wide.numbers(a, arg, dictionary)
        out = np.zeros(len(a), object)
        for d in [0] if digits is None else np.unique(digits).tolist():
            at = np.ones(len(a), bool) if digits is None else digits == d
            cut = max(min(d, arg.scale), arg.scale - 40)
            out[at] = shifted(shifted(units[at], cut - arg.scale).astype(object), result - cut)
        return to_codes(out, call.type, dictionary)

    return apply


def _whole(up: bool) -> Callable[[Call, Dictionary], Strict]:
    """Compute FLOOR and CEIL."""

    def build(call: Call, dictionary: Dictionary) -> Strict:
        arg = call.args[0].type
        unit = 10**arg.scale

        def apply(a: Codes) -> Codes:
            units = wide.numbers(a, arg, dictionary)
            units = units.astype(object) if unit >= 2**62 else units
            quotient = -(-units // unit) if up else units // unit
            return to_codes(shifted(quotient, call.type.scale), call.type, dictionary)

        return apply

    return build


def _sign(call: Call, dictionary: Dictionary) -> Strict:
    def apply(a: Codes) -> Codes:
        return np.sign(a)  # a code has its value's sign

    return apply


OPS: dict[str, Callable[[Call, Dictionary], Strict]] = {
    "+": _computed(added, _aligned),
    "-": _computed(lambda a, b: added(a, -b), _aligned),
    "*": _product,
    "%": _computed(_divided, _aligned),
    "neg": _computed(np.negative, _aligned),
    "abs": _computed(np.abs, _aligned),
    "sign": _sign,
    "round": _rounded,
    "floor": _whole(False),
    "ceil": _whole(True),
}
