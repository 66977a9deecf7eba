"""Calling conventions of the built-in functions.

A *strict* function gets columns without NULL and may give NULL; a *whole* one gets columns as they are. Functions that
must look at each value do so once for each distinct tuple of arguments in a batch.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from whence.model.codes import NULL, Codes
from whence.model.errors import EvaluationError
from whence.model.types import Kind, Type

Strict = Callable[..., Codes]
Column = Callable[..., Codes]
_least, _greatest = np.minimum.reduce, np.maximum.reduce


def spread(function: Strict, columns: list[Codes]) -> Codes:
    """Apply a strict function to columns with NULLs: NULL wherever an argument is."""
    for column in columns:
        if not len(column) or _least(column) == NULL:  # NULL is the least code
            break
    else:
        return function(*columns)
    null = columns[0] == NULL
    for column in columns[1:]:
        null |= column == NULL
    if not null.any():
        return function(*columns)
    out = np.full(len(null), NULL, np.int64)
    known = ~null
    if known.any():
        out[known] = function(*[c[known] for c in columns])
    return out


def each(function: Callable[..., int], columns: list[Codes], n: int, distinct: bool = True) -> Codes:
    """Call a function of codes to a code once for each distinct tuple, or for each row."""
    seen: dict[tuple[int, ...], int] = {}
    out = np.empty(n, np.int64)
    tuples: Any = zip(*[c.tolist() for c in columns], strict=True) if columns else [()] * n
    for i, args in enumerate(tuples):
        code = seen.get(args) if distinct else None
        if code is None:
            code = seen[args] = function(*args)
        out[i] = code
    return out


def bound(type: Type) -> int:
    """Return the largest code of an exact number type."""
    if type.kind is Kind.DECIMAL:
        return int(10 ** int(type.precision) - 1)
    return 2**31 - 1 if type.kind is Kind.INTEGER else 2**63 - 1


def within(codes: Codes, type: Type) -> Codes:
    """Return the codes, if all of them fit the type."""
    limit = bound(type)
    if len(codes) and (_greatest(codes) > limit or _least(codes) < -limit - (type.kind is Kind.INTEGER)):
        raise EvaluationError(f"out of range for {type}")
    return codes


def from_objects(values: NDArray[Any], type: Type) -> Codes:
    """Convert Python integers to codes, if they fit."""
    limit = bound(type)
    low = -limit - (type.kind is Kind.INTEGER)
    for value in values:
        if value is not None and not low <= value <= limit:
            raise EvaluationError(f"out of range for {type}")
    return np.array([NULL if v is None else v for v in values], np.int64)


def divide_half_up(a: int, b: int) -> int:
    """Divide integers, rounding half away from zero."""
    q, r = divmod(abs(a), abs(b))
    q += 2 * r >= abs(b)
    return q if (a >= 0) == (b >= 0) else -q


def rescale(codes: Codes, old: int, new: int, type: Type) -> Codes:
    """Convert decimal codes to another scale, rounding half away from zero."""
    if old == new:
        return within(codes, type)
    if new > old:
        factor = 10 ** (new - old)
        if len(codes) and np.abs(codes).max() > (2**63 - 1) // factor:
            raise EvaluationError(f"out of range for {type}")
        return within(codes * factor, type)
    factor = 10 ** (old - new)
    if factor > 2**62:
        return np.zeros(len(codes), np.int64)
    magnitude = np.abs(codes)
    quotient = magnitude // factor
    quotient += (magnitude - quotient * factor) >= (factor + 1) // 2
    return within(np.where(codes < 0, -quotient, quotient), type)
