"""Rows of an ordered multiset that are inside boxes: what new subscriptions select."""

from __future__ import annotations

import numpy as np

from whence.engine.core.kernels.ordered import LEAF, seek
from whence.model.codes import Codes
from whence.model.jit import allocating


@allocating
def inside(
    store: Codes, size: Codes, top: Codes, meta: Codes, lows: Codes, highs: Codes, equal: int
) -> tuple[Codes, Codes]:
    """All pairs (box, line of a row) where the row's first columns are inside the box.

    In the first `equal` of them a box is a single value; rows are read from the low end of the next one on."""
    dims = lows.shape[1]
    prefix = min(dims, equal + 1)
    room = 4 * lows.shape[0] + 64
    at = np.empty(room, np.int64)
    lines = np.empty(room, np.int64)
    n = 0
    for q in range(lows.shape[0]):
        if meta[0] == 0:
            break
        place, position = seek(store, size, top, meta, lows, q, prefix)
        over = False
        while not over and place < meta[0]:
            leaf = top[place]
            if n + LEAF > room:
                room *= 2
                at_ = np.empty(room, np.int64)
                lines_ = np.empty(room, np.int64)
                at_[:n] = at[:n]
                lines_[:n] = lines[:n]
                at = at_
                lines = lines_
            for line in range(leaf * LEAF + position, leaf * LEAF + size[leaf]):
                for d in range(prefix):
                    if store[line, d] > highs[q, d]:  # the first columns are at their low ends, or past their high one
                        over = True
                        break
                if over:
                    break
                holds = True
                for d in range(prefix, dims):
                    if store[line, d] < lows[q, d] or store[line, d] > highs[q, d]:
                        holds = False
                        break
                if holds:
                    at[n] = q
                    lines[n] = line
                    n += 1
            place += 1
            position = 0
    return at[:n], lines[:n]
