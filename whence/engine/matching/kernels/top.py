"""The first rows inside boxes: of an ordered multiset with the least `lead` of each leaf (`ordered_minima.py`).

Rows have the columns of the box first, then those of the order; a box reads its rows from the low end of its first
range on. What may still be among its first rows is kept as a heap, the last in the order on top. Once that is full,
leaves and blocks of leaves whose least lead is above the top's are passed over.
"""

from __future__ import annotations

import numpy as np

from whence.engine.core.kernels.ordered import LEAF, seek
from whence.engine.matching.kernels.hull import HIGHEST
from whence.model.codes import Codes
from whence.model.jit import allocating, kernel


@kernel
def is_after(store: Codes, a: int, b: int, first: int, end: int) -> bool:
    """Whether a line is after another in the order of some columns."""
    for c in range(first, end):
        if store[a, c] != store[b, c]:
            return bool(store[a, c] > store[b, c])
    return False


@kernel
def sift_up(store: Codes, heap: Codes, at: int, first: int, end: int) -> None:
    while at > 0:
        parent = (at - 1) >> 1
        if not is_after(store, heap[at], heap[parent], first, end):
            return
        heap[at], heap[parent] = heap[parent], heap[at]
        at = parent


@kernel
def pop(store: Codes, heap: Codes, n: int, first: int, end: int) -> int:
    """Take the last line in the order off a heap of n lines; return it."""
    last = heap[0]
    heap[0] = heap[n - 1]
    n -= 1
    at = 0
    while True:
        child = 2 * at + 1
        if child >= n:
            return int(last)
        if child + 1 < n and is_after(store, heap[child + 1], heap[child], first, end):
            child += 1
        if not is_after(store, heap[child], heap[at], first, end):
            return int(last)
        heap[at], heap[child] = heap[child], heap[at]
        at = child


@kernel
def is_inside(store: Codes, line: int, lows: Codes, highs: Codes, q: int, first: int, end: int) -> bool:
    """Whether a line is between the ends of a box in some columns."""
    for d in range(first, end):
        if store[line, d] < lows[q, d] or store[line, d] > highs[q, d]:
            return False
    return True


@kernel
def is_over(store: Codes, line: int, highs: Codes, q: int, prefix: int) -> bool:
    """Whether a line and all behind it are past the high end of a box."""
    for d in range(prefix):
        if store[line, d] > highs[q, d]:
            return True
    return False


@allocating
def top_in_boxes(
    store: Codes,
    size: Codes,
    top: Codes,
    meta: Codes,
    least: Codes,
    blocks: Codes,
    count: Codes,
    lows: Codes,
    highs: Codes,
    equal: int,
    ordered: int,
    start: int,
    ends: Codes,
) -> tuple[Codes, Codes, Codes, Codes]:
    """The rows from position `start` to `ends[q]` of each box in the order of the columns behind it, up to `ordered`.

    Returns the box, the line and the count of each; and for each box the lead of its last row up to `ends[q]`, or the
    highest number where there are fewer rows."""
    dims = lows.shape[1]
    prefix = min(dims, equal + 1)
    room = 4 * lows.shape[0] + 64
    at = np.empty(room, np.int64)
    lines = np.empty(room, np.int64)
    counts = np.empty(room, np.int64)
    bounds = np.full(lows.shape[0], HIGHEST, np.int64)
    heap = np.empty(256, np.int64)
    n = 0
    for q in range(lows.shape[0]):
        held = 0
        total = 0
        limit = HIGHEST
        place = meta[0]
        position = 0
        if ends[q] > 0 and meta[0] > 0:
            place, position = seek(store, size, top, meta, lows, q, prefix)
        while place < meta[0]:
            leaf = top[place]
            last = leaf * LEAF + size[leaf] - 1
            if least[leaf] <= limit:
                if held + LEAF > heap.shape[0]:
                    heap_ = np.empty(2 * heap.shape[0], np.int64)
                    heap_[:held] = heap[:held]
                    heap = heap_
                for line in range(leaf * LEAF + position, last + 1):
                    if is_over(store, line, highs, q, prefix):
                        break
                    if store[line, dims] > limit or not is_inside(store, line, lows, highs, q, prefix, dims):
                        continue
                    if total >= ends[q] and not is_after(store, heap[0], line, dims, ordered):
                        continue
                    heap[held] = line
                    sift_up(store, heap, held, dims, ordered)
                    held += 1
                    total += count[line]
                    while total - count[heap[0]] >= ends[q]:
                        total -= count[pop(store, heap, held, dims, ordered)]
                        held -= 1
                    if total >= ends[q]:
                        limit = store[heap[0], dims]
            if is_over(store, last, highs, q, prefix):
                break
            place += 1
            position = 0
            while place < meta[0] and place % LEAF == 0 and blocks[place // LEAF] > limit:
                ahead = min(place + LEAF, meta[0]) - 1
                if is_over(store, top[ahead] * LEAF + size[top[ahead]] - 1, highs, q, prefix):
                    break
                place += LEAF
        if total >= ends[q]:
            bounds[q] = limit if ends[q] > 0 else -HIGHEST - 1
        if n + held > room:
            room = 2 * (n + held)
            at_ = np.empty(room, np.int64)
            lines_ = np.empty(room, np.int64)
            counts_ = np.empty(room, np.int64)
            at_[:n] = at[:n]
            lines_[:n] = lines[:n]
            counts_[:n] = counts[:n]
            at = at_
            lines = lines_
            counts = counts_
        while held > 0 and total > start:
            line = pop(store, heap, held, dims, ordered)
            held -= 1
            shown = min(total, ends[q]) - max(total - count[line], start)
            total -= count[line]
            if shown > 0:
                at[n] = q
                lines[n] = line
                counts[n] = shown
                n += 1
    return at[:n], lines[:n], counts[:n], bounds
