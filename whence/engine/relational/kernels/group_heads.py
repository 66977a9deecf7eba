"""The first rows of groups: of an ordered multiset whose first columns are the keys of a group."""

from __future__ import annotations

import numpy as np

from whence.engine.core.kernels.ordered import LEAF, compare, seek
from whence.model.codes import Codes
from whence.model.jit import allocating


@allocating
def group_heads(
    store: Codes, count: Codes, size: Codes, top: Codes, meta: Codes, keys: Codes, start: int, ends: Codes
) -> tuple[Codes, Codes, Codes]:
    """The lines of rows from position `start` to `ends[i]` of the group with the i-th key, and how many of each are.

    Returns the position of the key, the line and the count of each."""
    columns = keys.shape[1]
    room = 4 * keys.shape[0] + 64
    at = np.empty(room, np.int64)
    lines = np.empty(room, np.int64)
    counts = np.empty(room, np.int64)
    n = 0
    for i in range(keys.shape[0]):
        if meta[0] == 0:
            break
        place, position = seek(store, size, top, meta, keys, i, columns)
        passed = 0
        while passed < ends[i]:
            if place < meta[0] and position >= size[top[place]]:
                place += 1
                position = 0
            if place >= meta[0]:
                break
            line = top[place] * LEAF + position
            if compare(store, line, keys, i, columns) != 0:
                break
            first = max(passed, start)
            passed += count[line]
            if min(passed, ends[i]) > first:
                if n == room:
                    room *= 2
                    at_ = np.empty(room, np.int64)
                    lines_ = np.empty(room, np.int64)
                    counts_ = np.empty(room, np.int64)
                    at_[:n] = at
                    lines_[:n] = lines
                    counts_[:n] = counts
                    at = at_
                    lines = lines_
                    counts = counts_
                at[n] = i
                lines[n] = line
                counts[n] = min(passed, ends[i]) - first
                n += 1
            position += 1
    return at[:n], lines[:n], counts[:n]
