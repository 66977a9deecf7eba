"""Codes of wide decimals: DECIMAL(p, s) of 19 to 38 digits.

A value is a whole number of units of 10**-s. Numbers between -2**62 and 2**62 are their own codes, so most columns are
computed as those of narrow decimals are, and a DECIMAL of up to 18 digits has the same codes as a wider one of its
scale. A larger number is interned: its magnitude, as 38 digits, is a text of the dictionary, and its code is
2**62 plus the text's code, negated below zero. So equal values have equal codes, and codes of different sign or
size order like the values; among the largest the texts' labels do, because texts of equal length order like numbers.
"""

from __future__ import annotations

from decimal import ROUND_HALF_UP, Context, Decimal
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from whence.model.errors import EvaluationError
from whence.model.types import MAX_PRECISION, Type

if TYPE_CHECKING:
    from whence.model.codes import Codes, Dictionary

INLINE = 1 << 62  # magnitudes from here on are interned
_NULL = -(2**63)
_LABELS = 1 << 61  # what takes a label of the dictionary above zero
_EXACT = Context(prec=400, Emax=999_999, Emin=-999_999, traps=[])


def scaled(value: Decimal, type: Type) -> int:
    """Return a number as units of a DECIMAL type, rounded half away from zero; OverflowError if it does not fit."""
    if not value.is_finite():
        raise ValueError
    if value.adjusted() + type.scale > MAX_PRECISION + 1:
        raise OverflowError
    number = int(value.scaleb(type.scale, _EXACT).to_integral_value(ROUND_HALF_UP, _EXACT))
    if abs(number) >= 10**type.precision:
        raise OverflowError
    return number


def to_decimal(number: int, scale: int) -> Decimal:
    """Return units of 10**-scale as a Decimal, exactly.

    >>> to_decimal(12345, 2), to_decimal(10**37 + 1, 30)
    (Decimal('123.45'), Decimal('10000000.000000000000000000000000000001'))
    """
    return Decimal(number).scaleb(-scale, _EXACT)


def code_of(number: int, dictionary: Dictionary) -> int:
    """Return the code of a number of units.

    >>> from whence.model.codes import Dictionary
    >>> d = Dictionary(); code_of(-5, d), code_of(10**30, d) == INLINE, number_of(code_of(-(10**30), d), d)
    (-5, True, -1000000000000000000000000000000)
    """
    if -INLINE < number < INLINE:
        return number
    code = INLINE + dictionary.intern(text_of(number))
    return code if number > 0 else -code


def text_of(number: int) -> str:
    """Return the text that is interned for a large number."""
    return f"{abs(number):0{MAX_PRECISION}d}"


def number_of(code: int, dictionary: Dictionary) -> int:
    """Return the number of units behind a code that is not NULL."""
    if -INLINE < code < INLINE:
        return code
    magnitude = int(dictionary.value(abs(code) - INLINE))
    return magnitude if code > 0 else -magnitude


def translated(code: int, source: Dictionary, target: Dictionary) -> int | None:
    """Return the code that a value of one dictionary has in another, None if that does not know it."""
    if -INLINE < code < INLINE or code == _NULL:
        return code
    found = target.find(source.value(abs(code) - INLINE))
    return None if found is None else (INLINE + found if code > 0 else -(INLINE + found))


def is_inline(codes: Codes) -> bool:
    """Tell whether all codes, none of which is NULL, are their own numbers."""
    return not len(codes) or bool(codes.max() < INLINE and codes.min() > -INLINE)


def numbers(codes: Codes, type: Type, dictionary: Dictionary) -> NDArray[Any]:
    """Return the units behind codes of an exact type, none NULL: int64, or Python integers where one is large."""
    if not type.is_wide or is_inline(codes):
        return codes
    out = codes.astype(object)
    for at in np.flatnonzero(np.abs(codes) >= INLINE).tolist():
        out[at] = number_of(int(codes[at]), dictionary)
    return out


def encode(units: NDArray[Any], type: Type, dictionary: Dictionary) -> Codes:
    """Return the codes of numbers of units, which are int64 or Python integers, in an exact type they fit."""
    if units.dtype != object:
        limit = 10**type.precision
        if limit < 2**63 and len(units) and (units.max() >= limit or units.min() <= -limit):
            raise EvaluationError(f"out of range for {type}")
        if not type.is_wide or is_inline(units):
            return units
    listed, limit = units.tolist(), 10**type.precision
    if listed and (max(listed) >= limit or min(listed) <= -limit):
        raise EvaluationError(f"out of range for {type}")
    large = [at for at, number in enumerate(listed) if not -INLINE < number < INLINE]
    codes = _interned([listed[at] for at in large], dictionary)
    for at in large:
        listed[at] = 0
    out = np.array(listed, np.int64)
    out[large] = codes
    return out


def _interned(numbers: list[int], dictionary: Dictionary) -> Codes:
    """Return the codes of large numbers, which the dictionary is asked for at once."""
    codes = dictionary.intern_all([text_of(number) for number in numbers]) + INLINE
    return np.where(np.array([number < 0 for number in numbers], bool), -codes, codes)


def ranks(codes: Codes, dictionary: Dictionary) -> Codes:
    """Return numbers that order like the values; NULL stays NULL."""
    if not len(codes) or (codes.max() < INLINE and np.where(codes == _NULL, 0, codes).min() > -INLINE):
        return codes
    out = np.ascontiguousarray(codes).copy()
    large = np.flatnonzero((np.abs(out) >= INLINE) & (out != _NULL))
    labels = dictionary.order_of(np.abs(out[large]) - INLINE) + (INLINE + _LABELS)
    out[large] = np.where(out[large] > 0, labels, -labels)
    return out


def parts(codes: Codes, dictionary: Dictionary) -> tuple[Codes, Codes]:
    """Return the units as words (high, low) of a two's complement of 128 bits; of NULL the high one is NULL."""
    high, low = codes >> 63, np.ascontiguousarray(codes).copy()
    null = codes == _NULL
    for at in np.flatnonzero((np.abs(codes) >= INLINE) & ~null).tolist():
        number = number_of(int(codes[at]), dictionary)
        high[at], word = number >> 64, number & (2**64 - 1)
        low[at] = word - (1 << 64 if word >> 63 else 0)
    high[null] = _NULL
    return high, low


def from_parts(high: Codes, low: Codes, dictionary: Dictionary) -> tuple[Codes, int]:
    """Return the codes of words as `parts` gives them, and the first position of one with over 38 digits, or -1."""
    null = high == _NULL
    out = np.where(null, _NULL, low)
    large = np.flatnonzero(~null & ((high != low >> 63) | (np.abs(low) >= INLINE) | (low == _NULL)))
    if not len(large):
        return out, -1
    numbers = [(h << 64) + (w & (2**64 - 1)) for h, w in zip(high[large].tolist(), low[large].tolist(), strict=True)]
    for at, number in zip(large.tolist(), numbers, strict=True):
        if abs(number) >= 10**MAX_PRECISION:
            return out, at
    out[large] = _interned(numbers, dictionary)
    return out, -1
