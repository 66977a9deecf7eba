"""Whole numbers in as few bytes as they need: seven bits a byte, small ones of either sign first."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from whence.engine.recursion.kernels.store import Ints
from whence.model.jit import allocating, kernel

Bytes = NDArray[np.uint8]


@kernel
def packed_size(numbers: Ints) -> int:
    """How many bytes `write` takes."""
    size = 0
    for i in range(len(numbers)):
        value = (numbers[i] << 1) ^ (numbers[i] >> 63)
        size += 1
        while value & -128:
            value = (value >> 7) & 0x01FFFFFFFFFFFFFF
            size += 1
    return size


@allocating
def write(numbers: Ints) -> Bytes:
    out = np.empty(packed_size(numbers), np.uint8)
    at = 0
    for i in range(len(numbers)):
        value = (numbers[i] << 1) ^ (numbers[i] >> 63)
        while value & -128:
            out[at] = (value & 127) | 128
            value = (value >> 7) & 0x01FFFFFFFFFFFFFF
            at += 1
        out[at] = value
        at += 1
    return out


@kernel
def read(data: Bytes, at: int, out: Ints) -> int:
    """Fill `out` with the numbers that begin at a place; where they end, or -1 if the bytes end before them."""
    for i in range(len(out)):
        value, shift = np.int64(0), 0
        while True:
            if at >= len(data) or shift > 63:
                return -1
            byte = np.int64(data[at])
            at += 1
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                break
        out[i] = ((value >> 1) & 0x7FFFFFFFFFFFFFFF) ^ -(value & 1)
    return at
