"""Distinct values in ranges: points in the order of their value, then of x."""

from __future__ import annotations

import numpy as np

from whence.engine.core.kernels.ordered import LEAF, compare, seek
from whence.model.codes import Codes
from whence.model.jit import allocating


@allocating
def distinct_in_ranges(
    store: Codes, size: Codes, top: Codes, meta: Codes, ranges: Codes, equal: int, prefix: int
) -> tuple[Codes, Codes]:
    """All pairs (range, line of its first point of a value), for ranges [equalities, x1, x2] and points whose first
    `prefix` columns are equalities and a value. Two searches per value that some range of the equalities has."""
    room = 4 * ranges.shape[0] + 64
    at = np.empty(room, np.int64)
    lines = np.empty(room, np.int64)
    key = np.empty((1, prefix + 1), np.int64)
    n = 0
    for i in range(ranges.shape[0]):
        if meta[0] == 0:
            break
        place, position = seek(store, size, top, meta, ranges, i, equal)
        while True:
            if place < meta[0] and position >= size[top[place]]:
                place += 1
                position = 0
            if place >= meta[0]:
                break
            line = top[place] * LEAF + position
            if compare(store, line, ranges, i, equal) != 0:
                break
            for c in range(prefix):
                key[0, c] = store[line, c]
            key[0, prefix] = ranges[i, equal]
            place, position = seek(store, size, top, meta, key, 0, prefix + 1)
            if position == size[top[place]]:
                place += 1
                position = 0
            if place < meta[0]:
                line = top[place] * LEAF + position
                if store[line, prefix] <= ranges[i, equal + 1] and compare(store, line, key, 0, prefix) == 0:
                    if n == room:
                        room *= 2
                        at_ = np.empty(room, np.int64)
                        lines_ = np.empty(room, np.int64)
                        at_[:n] = at[:n]
                        lines_[:n] = lines[:n]
                        at = at_
                        lines = lines_
                    at[n] = i
                    lines[n] = line
                    n += 1
            key[0, prefix] = 2**63 - 1
            place, position = seek(store, size, top, meta, key, 0, prefix + 1)
            if place < meta[0] and position == size[top[place]]:
                place += 1
                position = 0
            while place < meta[0] and compare(store, top[place] * LEAF + position, key, 0, prefix) == 0:
                position += 1  # a point at the last x there is
                if position == size[top[place]]:
                    place += 1
                    position = 0
    return at[:n], lines[:n]
