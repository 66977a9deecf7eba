"""Functions of one or two numbers.

Rounding is half away from zero; a result outside an exact type is an error, DOUBLE is IEEE.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from whence.engine.expressions.functions.common import Strict, each, rescale, within
from whence.engine.expressions.functions.decimals import to_floats
from whence.model.codes import Codes, Dictionary, codes_to_floats, floats_to_codes
from whence.model.types import Kind, Type
from whence.plan.algebra.expressions import Call

Floats = NDArray[np.float64]


def _float(function: Callable[..., Floats]) -> Callable[[Call, Dictionary], Strict]:
    def build(call: Call, dictionary: Dictionary) -> Strict:
        types = [a.type for a in call.args]

        def apply(*columns: Codes) -> Codes:
            with np.errstate(all="ignore"):
                values = [to_floats(c, type, dictionary) for c, type in zip(columns, types, strict=True)]
                return floats_to_codes(function(*values))

        return apply

    return build


def _abs(call: Call, _: Dictionary) -> Strict:
    if call.type.kind is Kind.DOUBLE:
        return lambda a: floats_to_codes(np.abs(codes_to_floats(a)))
    return lambda a: within(np.abs(a), call.type)


def _sign(call: Call, _: Dictionary) -> Strict:
    arg = call.args[0].type
    double = call.type.kind is Kind.DOUBLE

    def apply(a: Codes) -> Codes:
        signs = np.sign(np.nan_to_num(codes_to_floats(a), nan=0.0)) if arg.kind is Kind.DOUBLE else np.sign(a)
        return floats_to_codes(signs.astype(np.float64)) if double else signs.astype(np.int64)

    return apply


_PLACES = 308  # decimal places, to either side, that a DOUBLE may have a digit at or that 10 can be raised to


def round_float(x: float, digits: int = 0) -> float:
    """Round half away from zero, at a decimal place."""
    if not math.isfinite(x) or digits > _PLACES:
        return x
    if digits < -_PLACES:
        return 0.0
    factor = 10.0 ** abs(digits)
    scaled = x / factor if digits < 0 else x * factor
    if not math.isfinite(scaled):
        return x
    whole = math.floor(abs(scaled))
    rounded = math.copysign(whole + (abs(scaled) - whole >= 0.5), x)
    result = rounded * factor if digits < 0 else rounded / factor
    return result if math.isfinite(result) else (0.0 if digits < 0 else x)


def _round(call: Call, _: Dictionary) -> Strict:
    arg = call.args[0].type
    if arg.kind is Kind.DOUBLE:

        def one(code: int, digits: int = 0) -> int:
            x = float(codes_to_floats(np.array([code], np.int64))[0])
            return int(floats_to_codes(np.array([round_float(x, digits)]))[0])

        return lambda *columns: each(one, list(columns), len(columns[0]))
    scale, result = arg.scale, call.type.scale

    def exact(a: Codes, digits: Codes | None = None) -> Codes:
        if digits is None:
            return rescale(rescale(a, scale, 0, Type(Kind.BIGINT)), 0, result, call.type)
        out = np.empty(len(a), np.int64)
        for d in np.unique(digits).tolist():
            at = digits == d
            cut = min(d, scale)
            if cut < scale - 18:
                out[at] = 0
                continue
            kept = rescale(a[at], scale, cut, Type(Kind.BIGINT)) if cut < scale else a[at]
            out[at] = rescale(kept, cut, result, call.type)
        return out

    return exact


def _whole(function: Callable[[Floats], Floats], up: bool) -> Callable[[Call, Dictionary], Strict]:
    """Compute FLOOR and CEIL."""

    def build(call: Call, _: Dictionary) -> Strict:
        arg = call.args[0].type
        if arg.kind is Kind.DOUBLE:
            return lambda a: floats_to_codes(function(codes_to_floats(a)))
        unit = 10**arg.scale

        def apply(a: Codes) -> Codes:
            quotient = -(-a // unit) if up else a // unit
            if call.type.kind is Kind.DOUBLE:
                return floats_to_codes(quotient.astype(np.float64))
            return rescale(quotient, 0, call.type.scale, call.type)

        return apply

    return build


OPS: dict[str, Callable[[Call, Dictionary], Strict]] = {
    "abs": _abs,
    "sign": _sign,
    "round": _round,
    "floor": _whole(np.floor, False),
    "ceil": _whole(np.ceil, True),
    "sqrt": _float(np.sqrt),
    "power": _float(np.power),
    "ln": _float(np.log),
    "log10": _float(np.log10),
    "exp": _float(np.exp),
}
