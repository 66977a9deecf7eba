"""Unions over windows whose rows are in any order, of one source.

Windows of a few strands (`tid_strands.py`) are slices of these. Where there are too many, the ids of the rows taken so
far are **painted**: each has the number of the last row that has it, so that a window from row s on has just the ids
painted s or later. Pieces are maximal intervals of one paint, ascending. An id is painted from the end backwards,
which is where it mostly goes, a set in one pass over the pieces; reading a window off costs its pieces, and forgets
those that no later window has.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from whence.annotate.kernels.tid_runs import (
    ELSEWHERE,
    ENCODE_ADAPTIVE,
    ENCODE_DELTAS,
    ENCODE_IDS,
    ENCODE_INTERVALS,
    S_END,
    S_NUMBER,
    S_START,
    SMALL,
    follow,
    has_room,
    leave_run,
    new_set,
    overlaps,
    pool,
    resume,
    unions,
    write_set,
)
from whence.annotate.kernels.tid_sets import DELTA
from whence.annotate.kernels.tid_strands import (
    FEW,
    STRANDS,
    T_FIELDS,
    T_HEAD,
    T_ROWS,
    T_TAIL,
    add_interval,
    count_before,
    drop_rows,
    extent,
    last_of,
    latest_head,
    merge_set,
    read_before,
    read_from,
    seek,
    strand_of,
    word,
)
from whence.model.jit import allocating, kernel

Ints = NDArray[np.int64]


@kernel
def paint(pieces, count, first, last, row):
    """Paint first to last; there is room for two pieces more. Return the number of pieces."""
    above = count  # the first piece that begins after `last`
    while above > 0 and pieces[above - 1, 0] > last:
        above -= 1
    below = above  # the first piece that does not end before `first`
    while below > 0 and pieces[below - 1, 1] >= first:
        below -= 1
    left = right = 0
    right_end = right_row = 0
    if below < above:
        left = pieces[below, 0] < first
        right = pieces[above - 1, 1] > last
        right_end, right_row = pieces[above - 1, 1], pieces[above - 1, 2]
    new = left + 1 + right
    shift = below + new - above
    if shift > 0:
        for i in range(count - 1, above - 1, -1):
            pieces[i + shift, 0], pieces[i + shift, 1], pieces[i + shift, 2] = pieces[i, 0], pieces[i, 1], pieces[i, 2]
    elif shift < 0:
        for i in range(above, count):
            pieces[i + shift, 0], pieces[i + shift, 1], pieces[i + shift, 2] = pieces[i, 0], pieces[i, 1], pieces[i, 2]
    at = below
    if left:
        pieces[at, 1] = first - 1
        at += 1
    pieces[at, 0], pieces[at, 1], pieces[at, 2] = first, last, row
    if right:
        pieces[at + 1, 0], pieces[at + 1, 1], pieces[at + 1, 2] = last + 1, right_end, right_row
    return count + shift


@kernel
def paint_set(pieces, count, items, start, end, step, row, to):
    """Paint a set, writing the pieces to another place, with room for two more per element; return their number."""
    at = i = 0
    while start < end:
        first, last = items[start], items[start + step - 1]
        start += step
        while start < end and items[start] == last + 1:
            last = items[start + step - 1]
            start += step
        while i < count and pieces[i, 1] < first:
            to[at, 0], to[at, 1], to[at, 2] = pieces[i, 0], pieces[i, 1], pieces[i, 2]
            at += 1
            i += 1
        if i < count and pieces[i, 0] < first:
            to[at, 0], to[at, 1], to[at, 2] = pieces[i, 0], first - 1, pieces[i, 2]
            at += 1
        to[at, 0], to[at, 1], to[at, 2] = first, last, row
        at += 1
        while i < count and pieces[i, 1] <= last:
            i += 1
        if i < count and pieces[i, 0] <= last:
            pieces[i, 0] = last + 1
    while i < count:
        to[at, 0], to[at, 1], to[at, 2] = pieces[i, 0], pieces[i, 1], pieces[i, 2]
        at += 1
        i += 1
    return at


@kernel
def read_off(pieces, count, start, to, size):
    """Write the intervals painted `start` or later, and drop the others; `size`: pieces, intervals, ids."""
    low, high = to[0], to[1]
    kept, q, ids = 0, -1, 0
    for i in range(count):
        if pieces[i, 2] >= start:
            first, last = pieces[i, 0], pieces[i, 1]
            pieces[kept, 0], pieces[kept, 1], pieces[kept, 2] = first, last, pieces[i, 2]
            kept += 1
            ids += last - first + 1
            if q >= 0 and first == high[q] + 1:
                high[q] = last
            else:
                q += 1
                low[q], high[q] = first, last
    size[0], size[1], size[2] = kept, q + 1, ids


@allocating
def write_elsewhere(pool_address: int, address: int, begin: int, encoding: int) -> int:
    """Write the unions of the windows whose handle is ELSEWHERE, from window `begin` on, as `tid_runs.write` does."""
    p, x = pool(pool_address), unions(address)
    q, a, starts, ends, out = p.q, x.a, x.starts, x.ends, x.out
    pieces, spare, count, taken, begun = np.empty((64, 3), np.int64), np.empty((64, 3), np.int64), 0, -1, 0
    found, size = np.empty((2, 64), np.int64), np.zeros(3, np.int64)
    strands, painted, left = np.zeros((STRANDS, T_FIELDS), np.int64), False, False
    owner, after = np.empty(len(a), np.int64), np.empty(len(a), np.int64)
    u, v, u_at, u_end = np.empty((2, 64), np.int64), np.empty((2, 64), np.int64), 0, 0  # the strands' list
    for w in range(begin, len(starts)):
        if out[w] != ELSEWHERE:
            continue
        s, e = starts[w], ends[w]
        if s >= taken or e < taken or s < begun:
            count, taken, painted, left = 0, s, False, False
            u_at = u_end = 0
            strands[:, T_ROWS] = 0
            leave_run(p)
        elif not painted:
            left = drop_rows(strands, owner, after, begun, s)
        begun = s
        if left:  # take the other strands' rows again
            again, u_at, u_end = s, 0, 0
            strands[:, T_ROWS] = 0
        else:
            again = taken
        while not painted and again < e:
            handle = a[again]
            k = strand_of(p, strands, a, again)
            if k < 0:
                painted, count, taken = True, 0, s
                break
            at, end, step = extent(p, handle)
            if strands[k, T_ROWS] == 0:
                strands[k, T_HEAD] = again
            else:
                tail = strands[k, T_TAIL]
                after[tail] = again
                at = seek(p, handle, at, end, step, last_of(p, a[tail]))
            owner[again], after[again] = k, again
            strands[k, T_ROWS] += 1
            strands[k, T_TAIL] = again
            again += 1
            if end - at <= FEW and u_end + FEW < u.shape[1]:
                while at < end:
                    u_end = add_interval(u, u_at, u_end, word(p, handle, at), word(p, handle, at + step - 1))
                    at += step
            else:
                if u_end - u_at + end - at > v.shape[1] // 2:
                    v = np.empty((2, 4 * (u_end - u_at + end - at)), np.int64)
                u_end = merge_set(p, u, u_at, u_end, handle, at, v)
                u_at = 0
                u, v = v, u
        left = False
        if painted:
            while taken < e:
                first = a[taken]
                start, end, step = extent(p, first)
                if count + 2 * (end - start) > len(pieces):
                    more = np.empty((2 * (count + 2 * (end - start)), 3), np.int64)
                    more[:count] = pieces[:count]
                    pieces, spare = more, np.empty_like(more)
                if first > 0:
                    count = paint(pieces, count, first, first, taken)
                else:
                    count = paint_set(pieces, count, p.items, start, end, step, taken, spare)
                    pieces, spare = spare, pieces
                taken += 1
            if count > found.shape[1]:
                found = np.empty((2, 2 * count), np.int64)
            read_off(pieces, count, s, found, size)
            count = size[0]
        else:
            taken = e
            limit = latest_head(p, strands, a)
            room = u_end - u_at + count_before(p, strands, after, a, limit)
            if room > found.shape[1]:
                found = np.empty((2, 2 * room), np.int64)
            before = read_before(p, strands, after, a, limit, found)
            read_from(u, u_at, u_end, limit, found, before, size)
            u_at = size[0]
        last, ids = size[1] - 1, size[2]
        low, high = found[0], found[1]
        if ids == 1:
            out[w] = low[0]
            continue
        shape = encoding
        if encoding == ENCODE_ADAPTIVE:
            shape = ENCODE_INTERVALS if last < SMALL else ENCODE_DELTAS
        known = False
        if shape == ENCODE_DELTAS:
            if q[S_NUMBER] < 0 and q[S_END] == 0:
                known = resume(p, low[0], high[last], 0, last, low, high)
            q[S_END] = high[last]
            skipped = follow(p, low[0], high[last], 0, last, low, high)
            if skipped >= 0:
                out[w] = new_set(p, q[S_START] + skipped, ids, DELTA, q[S_NUMBER])
                continue
            if encoding == ENCODE_ADAPTIVE and 2 * (last + 1) < ids:
                shape = ENCODE_INTERVALS
            elif encoding == ENCODE_ADAPTIVE and not known and not overlaps(x, w):
                shape = ENCODE_IDS
        words = 2 * (last + 1) if shape == ENCODE_INTERVALS else ids
        if not has_room(p, words + words // 2):
            return w
        out[w] = write_set(p, shape, low[0], high[last], 0, last, low, high)
    leave_run(p)
    return len(starts)
