"""Copy columns of values, as Arrow has them, into the columns of rows of codes: one pass each."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from whence.model.codes import Codes
from whence.model.jit import kernel

_FLIP = 0x7FFFFFFFFFFFFFFF
_INFINITY = 0x7FF0000000000000
_NAN = 0x7FF8000000000000


@kernel
def put_integers(values: Codes | NDArray[np.int32], rows: Codes, column: int, low: int, high: int) -> bool:
    """Write whole numbers to a column; False if one is not in the range."""
    strange = 0
    for i in range(values.shape[0]):
        value = np.int64(values[i])
        strange += int(value < low) | int(value > high)
        rows[i, column] = value
    return strange == 0


@kernel
def put_floats(bits: Codes, rows: Codes, column: int) -> None:
    """Write floats, given by their bits, to a column: the codes that `model/codes.py` gives them."""
    for i in range(bits.shape[0]):
        value = bits[i]
        if value == ~_FLIP:  # -0.0
            value = 0
        if (value & _FLIP) > _INFINITY:
            value = _NAN
        rows[i, column] = value ^ ((value >> 63) & _FLIP)
