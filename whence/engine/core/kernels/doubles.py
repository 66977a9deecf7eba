"""Doubles and their codes (`model/codes.py`), one at a time: a code orders as its double does, NaN last."""

from __future__ import annotations

import numpy as np

from whence.model.jit import kernel

_FLIP = 0x7FFFFFFFFFFFFFFF


@kernel
def to_float(code):
    """Return the double that a code stands for."""
    return np.int64(code ^ ((code >> 63) & _FLIP)).view(np.float64)


@kernel
def to_code(value):
    """Return the code of a double; −0 is 0, and there is one NaN."""
    bits = np.float64(np.nan if np.isnan(value) else value + 0.0).view(np.int64)
    return bits ^ ((bits >> 63) & _FLIP)
