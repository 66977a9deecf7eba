"""Rows of parameters as boxes, each a line [low of each dimension, high of each, id, 0]."""

from __future__ import annotations

from whence.model.codes import Codes
from whence.model.jit import kernel

EQUAL, RANGE, DIFFERENCE, TURNED = range(4)  # TURNED: a difference whose sign is turned round, `~` of its numbers
LOW, HIGH, OPEN_LOW, OPEN_HIGH, KIND = range(5)
_NULL = -(2**63)
_LAST = 2**63 - 1


@kernel
def box_lines(rows: Codes, dimensions: Codes, out: Codes, at: Codes) -> int:
    """Write down the boxes of those rows that have one, and which rows these are; return how many there are.

    A line of `dimensions` is [column of the low end or -1, of the high one, whether it is open, the other, kind]."""
    dims = dimensions.shape[0]
    n = 0
    for i in range(rows.shape[0]):
        holds = True
        for d in range(dims):
            low = _NULL + 1
            high = _LAST
            kind = dimensions[d, KIND]
            column = dimensions[d, LOW]
            if column >= 0 and rows[i, column] != _NULL:
                low = rows[i, column]
                if dimensions[d, OPEN_LOW]:
                    if low == _LAST:
                        holds = False
                    else:
                        low += 1
            elif kind == EQUAL:
                holds = False
            column = dimensions[d, HIGH]
            if column >= 0 and rows[i, column] != _NULL:
                high = rows[i, column]
                if dimensions[d, OPEN_HIGH]:
                    high -= 1
            if low > high:
                holds = False
            if kind == TURNED:
                turned = ~high
                high = ~low
                low = turned
            if kind >= DIFFERENCE:
                low = max(low, _NULL + 1)
                high = min(high, _LAST - 1)
            out[n, d] = low
            out[n, dims + d] = high
        if holds:
            out[n, 2 * dims] = rows[i, 0]
            out[n, 2 * dims + 1] = 0
            at[n] = i
            n += 1
    return n
