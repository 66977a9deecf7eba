"""The pairs of rows that subscriptions select: those of an event, and all of a new subscription.

Rows of a side are in runs (`runs.py`). A box has what is asked of the own side, the interval of the value, and what is
asked of the other side beside it.
"""

from __future__ import annotations

import numpy as np

from whence.engine.core.kernels.ordered import LEAF, seek
from whence.engine.matching.kernels.lanes import prefetch
from whence.engine.matching.kernels.runs import PLAIN, first_value, line_at, run_of, step_on, value_of
from whence.engine.matching.kernels.search import with_room
from whence.model.codes import Codes
from whence.model.jit import allocating, kernel

_NULL = -(2**63)
_AHEAD = 16  # pairs whose entries are fetched before they are read


@kernel
def beside(entries: Codes, i: int, dims: int, tested: int, store: Codes, line: int, column: int) -> bool:
    """Whether the columns of a row behind its lead are inside the dimensions of an entry behind the tested ones."""
    for d in range(tested + 1, dims):
        x = store[line, column + d - tested]
        if x < entries[i, d] or x > entries[i, dims + d]:
            return False
    return True


@allocating
def expand(
    entries: Codes, dims: int, tested: int, pairs: Codes, runs: Codes, owns: Codes,
    store: Codes, size: Codes, top: Codes, column: int, mode: int, out: Codes,
) -> tuple[Codes, int]:  # fmt: skip
    """The rows of the other side behind pairs (event, entry): lines of (place of the pair, line of the row), in the
    first lines of `out`, or of a larger array; and how many there are. `runs` has the run of each event.

    Columns of a row behind its lead must be inside the dimensions of the entry behind the tested ones."""
    n = 0
    count = pairs.shape[0]
    width = entries.shape[1]
    for p in range(count):
        q = pairs[p, 0]
        i = pairs[p, 1]
        if p + _AHEAD < count:
            prefetch(entries, pairs[p + _AHEAD, 1] * width)
            prefetch(entries, pairs[p + _AHEAD, 1] * width + width - 1)
        low = runs[q, 0]
        high = runs[q, 1]
        at = first_value(store, size, top, low, high, column, owns[q], mode, entries[i, tested])
        while at < high:
            line = line_at(top, at)
            if value_of(store[line, column], owns[q], mode) > entries[i, dims + tested]:
                break
            if beside(entries, i, dims, tested, store, line, column):
                if n == out.shape[0]:
                    out = with_room(out, n, 0)
                out[n, 0] = p
                out[n, 1] = line
                n += 1
            at = step_on(size, top, at)
    return out, n


@kernel
def count_sampled(boxes: Codes, dims: int, columns: Codes, store: Codes, size: Codes, top: Codes, meta: Codes) -> float:
    """Estimate how many rows of a side have their `columns` inside the first dimensions of each box: from the first
    rows of some leaves, and one that is inside, so that the smaller side wins where none is."""
    leaves = max(1, int(meta[0]) // 128)
    some = max(1, boxes.shape[0] // 32)
    tried = 1
    found = 1
    for b in range(0, boxes.shape[0], some):
        for place in range(0, meta[0], leaves):
            line = top[place] * LEAF
            tried += 1
            found += 1
            for d in range(columns.shape[0]):
                x = store[line, columns[d]]
                if x < boxes[b, d] or x > boxes[b, dims + d]:
                    found -= 1
                    break
    return float(found / tried * meta[3])


@allocating
def selected(
    boxes: Codes, dims: int, equal: int, tested: int, places: Codes,
    asked: Codes, asked_size: Codes, asked_top: Codes, asked_meta: Codes,
    store: Codes, size: Codes, top: Codes, meta: Codes, column: int, mode: int,
) -> Codes:  # fmt: skip
    """All (box, line of a row of the own side, line of a row of the other side) of pairs that boxes select.

    `asked` has the rows of the own side in the order of the first `tested` dimensions, of which the first `equal` are
    single values; `places` says where the keys and the lead are in it."""
    out = np.empty((64, 3), np.int64)
    n = 0
    prefix = min(tested, equal + 1)
    keys = np.empty((1, column), np.int64)
    for b in range(boxes.shape[0]):
        if asked_meta[0] == 0 or meta[0] == 0:
            break
        place, position = seek(asked, asked_size, asked_top, asked_meta, boxes, b, prefix)
        at = place * LEAF + position
        if position == asked_size[asked_top[place]]:
            at = (place + 1) * LEAF
        while at < asked_meta[0] * LEAF:
            line = line_at(asked_top, at)
            at = step_on(asked_size, asked_top, at)
            over = False
            holds = True
            for d in range(tested):
                x = asked[line, d]
                if x < boxes[b, d] or x > boxes[b, dims + d]:
                    holds = False
                    over = over or (d < prefix and x > boxes[b, dims + d])
            if over:
                break
            own = asked[line, places[column]]
            if mode != PLAIN and own == _NULL:
                holds = False
            for c in range(column):
                keys[0, c] = asked[line, places[c]]
                if keys[0, c] == _NULL:
                    holds = False
            if not holds:
                continue
            low, high = run_of(store, size, top, meta, keys, 0, column)
            row = first_value(store, size, top, low, high, column, own, mode, boxes[b, tested])
            while row < high:
                other = line_at(top, row)
                if value_of(store[other, column], own, mode) > boxes[b, dims + tested]:
                    break
                if beside(boxes, b, dims, tested, store, other, column):
                    if n == out.shape[0]:
                        out_ = np.empty((2 * n, 3), np.int64)
                        out_[:n] = out
                        out = out_
                    out[n, 0] = b
                    out[n, 1] = line
                    out[n, 2] = other
                    n += 1
                row = step_on(size, top, row)
    return out[:n]
