"""Casts between all types, as DuckDB does them: to an integer from DOUBLE half to even, from DECIMAL half away from
zero.

A value that does not fit is an error, or NULL under TRY_CAST. Text is trimmed and read once for each distinct value.
"""

from __future__ import annotations

from collections.abc import Callable
from decimal import InvalidOperation
from typing import Any

import numpy as np

from whence.engine.expressions.functions import decimals
from whence.engine.expressions.functions.common import Strict, bound, each, rescale
from whence.model.codes import (
    DAY,
    NULL,
    Codes,
    Dictionary,
    codes_to_floats,
    decode_value,
    encode_value,
    floats_to_codes,
)
from whence.model.errors import DataError, EvaluationError
from whence.model.text import from_text, to_text
from whence.model.types import Kind, Type
from whence.plan.algebra.expressions import Cast


def cast(expr: Cast, dictionary: Dictionary) -> Strict:
    """Return the strict function behind a CAST or TRY_CAST."""
    convert = _convert(expr.arg.type, expr.type, dictionary)
    if not expr.lenient:
        return convert

    def attempt(a: Codes) -> Codes:
        try:
            return convert(a)
        except EvaluationError:
            return each(one, [a], len(a))

    def one(code: int) -> int:
        try:
            return int(convert(np.array([code], np.int64))[0])
        except EvaluationError:
            return NULL

    return attempt


def _convert(source: Type, target: Type, dictionary: Dictionary) -> Strict:
    a, b = source.kind, target.kind
    if source == target or a is Kind.NULL:
        return lambda codes: codes
    if b is Kind.TEXT:
        return _by_value(lambda v: to_text(v, source), source, target, dictionary)
    if a is Kind.TEXT:
        return _by_value(lambda v: from_text(v, target), source, target, dictionary)
    exact = (Kind.INTEGER, Kind.BIGINT, Kind.DECIMAL)
    if source.is_wide or target.is_wide:
        return _wide(source, target, dictionary)
    if a in (*exact, Kind.BOOLEAN) and b in exact:
        return lambda codes: rescale(codes, source.scale, target.scale, target)
    if a in exact and b is Kind.DOUBLE:
        return lambda codes: floats_to_codes(codes / 10.0**source.scale)
    if a is Kind.BOOLEAN and b is Kind.DOUBLE:
        return lambda codes: floats_to_codes(codes.astype(np.float64))
    if a is Kind.DOUBLE and b in exact:
        return _from_double(target)
    if b is Kind.BOOLEAN and source.is_numeric:
        zero = int(floats_to_codes(np.zeros(1))[0]) if a is Kind.DOUBLE else 0
        return lambda codes: (codes != zero).astype(np.int64)
    if a is Kind.DATE and b is Kind.TIMESTAMP:
        return lambda codes: codes * DAY
    if a is Kind.TIMESTAMP and b is Kind.DATE:
        return lambda codes: codes // DAY
    raise EvaluationError(f"{source} cannot be cast to {target}")


def _wide(source: Type, target: Type, dictionary: Dictionary) -> Strict:
    """Return the cast between numbers, one of which is a wide DECIMAL."""
    if source.kind is Kind.DOUBLE:
        return decimals.from_double(target, dictionary)
    if target.kind is Kind.DOUBLE:
        return lambda codes: floats_to_codes(decimals.to_floats(codes, source, dictionary))
    if target.kind is Kind.BOOLEAN:
        return lambda codes: (codes != 0).astype(np.int64)
    return decimals.rescaled(source, target, dictionary)


def _from_double(target: Type) -> Strict:
    limit = bound(target)

    def apply(codes: Codes) -> Codes:
        values = codes_to_floats(codes)
        if target.kind is Kind.DECIMAL:
            with np.errstate(over="ignore"):  # infinity is out of range, too
                scaled = values * 10.0**target.scale
            rounded = np.where(scaled < 0, np.ceil(scaled - 0.5), np.floor(scaled + 0.5))
        else:
            rounded = np.rint(values)
        ok = np.abs(rounded) <= limit if limit < 2**53 else np.abs(rounded) < float(limit)
        if target.kind is Kind.INTEGER:
            ok |= rounded == -(2.0**31)
        if not ok.all():
            raise EvaluationError(f"out of range for {target}")
        return rounded.astype(np.int64)

    return apply


def _by_value(function: Callable[[Any], Any], source: Type, target: Type, dictionary: Dictionary) -> Strict:
    def one(code: int) -> int:
        value = decode_value(code, source, dictionary)
        try:
            return encode_value(function(value), target, dictionary)
        except (ValueError, OverflowError, InvalidOperation, DataError):
            raise EvaluationError(f"cannot be read as {target}") from None

    return lambda codes: each(one, [codes], len(codes))
