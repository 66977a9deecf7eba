"""Arithmetic: int64 and DECIMAL exactly, with overflow an error; DOUBLE as IEEE has it; dates with days and intervals.

Fast paths work on whole columns of int64; where a bound cannot rule out an overflow, Python integers decide.
Dividing by zero is as in DuckDB: IEEE's infinity or NaN for DOUBLE, an error for // and for % of exact numbers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from whence.engine.expressions.functions import dates
from whence.engine.expressions.functions.common import Strict, bound, divide_half_up, from_objects, rescale, within
from whence.model.codes import NULL, Codes, Dictionary, codes_to_floats, floats_to_codes
from whence.model.errors import EvaluationError
from whence.model.types import BIGINT, Kind, Type
from whence.plan.algebra.expressions import Call

_SAFE = float(2**62)


def _floats(function: Callable[..., NDArray[np.float64]]) -> Strict:
    def apply(*columns: Codes) -> Codes:
        with np.errstate(all="ignore"):
            return floats_to_codes(function(*[codes_to_floats(c) for c in columns]))

    return apply


def _scales(call: Call) -> list[int]:
    return [a.type.scale if a.type.kind is Kind.DECIMAL else 0 for a in call.args]


def _aligned(codes: Codes, scale: int, type: Type) -> Codes:
    return codes if scale == type.scale else rescale(codes, scale, type.scale, BIGINT)


def _add(call: Call, dictionary: Dictionary) -> Strict:
    return _additive(call, dictionary, 1)


def _subtract(call: Call, dictionary: Dictionary) -> Strict:
    return _additive(call, dictionary, -1)


def _additive(call: Call, dictionary: Dictionary, sign: int) -> Strict:
    type = call.type
    if not type.is_numeric or not all(a.type.is_numeric for a in call.args):
        return dates.additive(call, dictionary, sign)
    if type.kind is Kind.DOUBLE:
        return _floats(np.add if sign > 0 else np.subtract)
    scales = _scales(call)
    limit = bound(type)
    small = limit < 2**62

    def apply(a: Codes, b: Codes) -> Codes:
        a, b = _aligned(a, scales[0], type), _aligned(b, scales[1], type)
        out = a + b if sign > 0 else a - b
        if not small or type.kind is Kind.DECIMAL:
            wrapped = ((a ^ out) & (b ^ out)) < 0 if sign > 0 else ((a ^ b) & (a ^ out)) < 0
            if wrapped.any() or (out == NULL).any():
                raise EvaluationError(f"out of range for {type}")
        return within(out, type)

    return apply


def _multiply(call: Call, dictionary: Dictionary) -> Strict:
    type = call.type
    if not type.is_numeric:
        return dates.scaled(call, dictionary)
    if type.kind is Kind.DOUBLE:
        return _floats(np.multiply)
    scale = sum(_scales(call))

    def apply(a: Codes, b: Codes) -> Codes:
        if len(a) and float(np.abs(a).max()) * float(np.abs(b).max()) < _SAFE:
            return rescale(a * b, scale, type.scale, type)
        shift = scale - type.scale
        exact = [int(x) * int(y) for x, y in zip(a, b, strict=True)]
        if shift > 0:
            exact = [divide_half_up(v, 10**shift) for v in exact]
        elif shift < 0:
            exact = [v * 10**-shift for v in exact]
        return from_objects(np.array(exact, object), type)

    return apply


def _divide(call: Call, _: Dictionary) -> Strict:
    type = call.type
    if type.kind is Kind.DOUBLE:
        return _float_quotient(call)
    if type.kind is Kind.DECIMAL:
        left, right = _scales(call)

        def apply(a: Codes, b: Codes) -> Codes:
            shift = type.scale - left + right
            up, down = 10 ** max(shift, 0), 10 ** max(-shift, 0)
            _refuse_zero(b == 0)
            exact = [divide_half_up(x * up, y * down) for x, y in zip(a.tolist(), b.tolist(), strict=True)]
            return from_objects(np.array(exact, object), type)

        return apply
    return _integer_quotient(call, _)


def _float_quotient(call: Call) -> Strict:
    scales = [10.0**s for s in _scales(call)]
    kinds = [a.type.kind for a in call.args]

    def number(codes: Codes, at: int) -> NDArray[np.float64]:
        return codes_to_floats(codes) if kinds[at] is Kind.DOUBLE else codes / scales[at]

    def apply(a: Codes, b: Codes) -> Codes:
        x, y = number(a, 0), number(b, 1)
        with np.errstate(all="ignore"):
            return floats_to_codes(x / y)

    return apply


def _integer_quotient(call: Call, _: Dictionary) -> Strict:
    """Divide by //, rounding towards zero."""
    type = call.type
    if type.kind is Kind.DOUBLE:
        truncated = _floats(lambda x, y: np.trunc(x / y))

        def whole(a: Codes, b: Codes) -> Codes:
            _refuse_zero(codes_to_floats(b) == 0)
            return truncated(a, b)

        return whole
    scales = _scales(call)
    top = max(scales)

    def apply(a: Codes, b: Codes) -> Codes:
        _refuse_zero(b == 0)
        wide = Type(Kind.BIGINT)
        a, b = rescale(a, scales[0], top, wide), rescale(b, scales[1], top, wide)
        quotient = np.abs(a) // np.abs(b)
        return rescale(np.where((a < 0) != (b < 0), -quotient, quotient), 0, type.scale, type)

    return apply


def _remainder(call: Call, _: Dictionary) -> Strict:
    """Compute %, with the sign of the dividend."""
    type = call.type
    if type.kind is Kind.DOUBLE:
        return _floats(np.fmod)
    scales = _scales(call)

    def apply(a: Codes, b: Codes) -> Codes:
        _refuse_zero(b == 0)
        return np.fmod(_aligned(a, scales[0], type), _aligned(b, scales[1], type))

    return apply


def _refuse_zero(zero: NDArray[np.bool_]) -> None:
    if zero.any():
        raise EvaluationError("division by zero")


def _negate(call: Call, dictionary: Dictionary) -> Strict:
    if call.type.kind is Kind.DOUBLE:
        return _floats(np.negative)
    if call.type.kind is Kind.INTERVAL:
        return dates.negated(dictionary)
    return lambda a: within(-a, call.type)


OPS: dict[str, Callable[[Call, Dictionary], Any]] = {
    "+": _add,
    "-": _subtract,
    "*": _multiply,
    "/": _divide,
    "//": _integer_quotient,
    "%": _remainder,
    "neg": _negate,
}
