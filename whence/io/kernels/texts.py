"""Texts by their UTF-8: a hash table over bytes that lie one text after the other.

`starts[i]` to `starts[i + 1]` are the bytes of the text at place `i`. The table is laid out like that of rows
(`table.py`): words of (32 hash bits, place + 1), no text twice.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from whence.model.codes import Codes
from whence.model.jit import kernel

Utf8 = NDArray[np.uint8]
_LOW = 0xFFFFFFFF
_K = -7046029254386353131  # 0x9E3779B97F4A7C15
_FNV = 0x100000001B3


@kernel
def hash_text(data: Utf8, start: int, end: int) -> int:
    h = 0
    for i in range(start, end):
        h = (h ^ data[i]) * _FNV
    h ^= h >> 29
    return ((h * _K) >> 32) & _LOW


@kernel
def add_texts(starts: Codes, data: Utf8, places: Codes, slots: Codes) -> None:
    """Put the texts at these places into the table, which has room."""
    mask = slots.shape[0] - 1
    for i in range(places.shape[0]):
        place = places[i]
        tag = hash_text(data, starts[place], starts[place + 1])
        p = tag & mask
        while slots[p] != 0:
            p = (p + 1) & mask
        slots[p] = (tag << 32) | (place + 1)


@kernel
def find_texts(starts: Codes, data: Utf8, known: Codes, words: Utf8, slots: Codes, places: Codes) -> int:
    """Find the index of each text among those known, or -1; return how many are unknown."""
    mask = slots.shape[0] - 1
    missing = 0
    for i in range(places.shape[0]):
        start, size = starts[i], starts[i + 1] - starts[i]
        tag = hash_text(data, start, start + size)
        p = tag & mask
        found = -1
        while found < 0 and slots[p] != 0:
            if (slots[p] >> 32) & _LOW == tag:
                place = (slots[p] & _LOW) - 1
                at = known[place]
                same = 0
                if known[place + 1] - at == size:
                    while same < size and data[start + same] == words[at + same]:
                        same += 1
                    if same == size:
                        found = place
            p = (p + 1) & mask
        places[i] = found
        missing += found < 0
    return missing
