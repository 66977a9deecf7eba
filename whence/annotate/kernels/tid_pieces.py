"""Deltas on intervals: windows that overlap as slices of one list of intervals.

The list has the runs of ids of all windows of a group, cut into **pieces** where a window begins or ends, so that each
window is a whole number of pieces, one after the other. A window that slides on has the pieces of the one before it,
some fewer and some more, as with deltas on ids (`tid_runs.py`); but a piece is two words, however many ids it has. The
records are those of `tid_runs.write`.
"""

from __future__ import annotations

from whence.annotate.kernels.tid_sets import BASE, INTERVALS, KIND, LENGTH, START
from whence.model.jit import kernel

GROUP = 3  # windows that are worth a list


@kernel
def group_end(x, w, r):
    """Return the window after the last one that may have its intervals in one list with those of window w: each begins
    and ends no earlier than the one before it, and before w ends."""
    starts, ends, run, head, tail, head_at, tail_at = x.starts, x.ends, x.run, x.head, x.tail, x.head_at, x.tail_at
    end = w + 1
    while end < len(starts):
        s, e = starts[end], ends[end] - 1
        if s < starts[end - 1] or s >= ends[w] or e < ends[end - 1] - 1 or e <= s:
            break
        if run[head_at[s]] != r or run[tail_at[e]] != r or head[s] == tail[e]:
            break
        end += 1
    return end


@kernel
def write_pieces(p, x, w, end, row, start, number):
    """Write the windows from w until before `end`: one list of pieces behind the first `start` words, of which each is
    a slice, as sets from `row` on. There is room. Return how many words it has."""
    sets, items, starts, ends = p.sets, p.items, x.starts, x.ends
    low, high, head, tail = x.low, x.high, x.head, x.tail
    at, value, count = x.head_at[starts[w]], head[starts[w]], 0
    opening = closing = w
    while closing < end:
        while opening < end and head[starts[opening]] == value:
            sets[row + opening - w, START] = start + 2 * count
            opening += 1
        stop = min(high[at], tail[ends[closing] - 1])
        if opening < end:
            stop = min(stop, head[starts[opening]] - 1)
        items[start + 2 * count] = value
        items[start + 2 * count + 1] = stop
        count += 1
        while closing < end and tail[ends[closing] - 1] == stop:
            mine = row + closing - w
            sets[mine, LENGTH] = start + 2 * count - sets[mine, START]
            sets[mine, KIND] = INTERVALS
            sets[mine, BASE] = number + row
            x.out[closing] = -1 - (number + mine)
            closing += 1
        value = stop + 1
        if stop == high[at]:
            at += 1
            if closing < end:
                value = low[at]
    return 2 * count
