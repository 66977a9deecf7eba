"""Ordered columns: the greatest code, and the code a width below a value.

NULL and NaN have none: a row with either is late wherever a stream is ordered by the column.
"""

from __future__ import annotations

import numpy as np

from whence.model.codes import NULL, Codes, codes_to_floats, floats_to_codes
from whence.model.types import Kind, Type


def greatest(type: Type) -> int:
    """Return the code of the greatest value that has a place in the order.

    >>> greatest(Type(Kind.BIGINT)) == 2**63 - 1, greatest(Type(Kind.DOUBLE)) < 2**63 - 1
    (True, True)
    """
    return int(floats_to_codes(np.array([np.inf]))[0]) if type.kind is Kind.DOUBLE else 2**63 - 1


def below(values: Codes, width: int | float | None, type: Type) -> Codes:
    """Return value − width of each as codes, always below the value; NULL, below all, if there is no width or no such
    value.

    >>> below(np.array([7, NULL + 2]), 5, Type(Kind.BIGINT)).tolist() == [2, NULL]
    True
    """
    if width is None:
        return np.full(len(values), NULL, np.int64)
    if type.kind is Kind.DOUBLE:
        floats = codes_to_floats(values)
        low = floats_to_codes(np.minimum(floats - width, np.nextafter(floats, -np.inf)))
        return np.where(floats == -np.inf, NULL, low)
    step = min(int(width), 2**63 - 1)
    return np.where(values < NULL + step, NULL, values - step)
