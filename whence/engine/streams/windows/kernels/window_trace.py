"""Annotations of buffered rows, as chunks of a column: one chunk per group, in the order of its rows.

A group's rows are in the order of their panes, and in a pane as they came. A batch's sequence of a group is what was
carried over and the batch's own rows; outputs are slices of it. Only rows that are still there after the batch go to
the column: behind the group's others if its chunk has room, else all of them to a new chunk at the end. What was there
before the epoch is never overwritten, so undo only resets the end.
"""

from __future__ import annotations

import numpy as np

from whence.engine.streams.windows.kernels import window_state as st
from whence.engine.streams.windows.kernels.window_lines import M_HIGH, lines
from whence.model.codes import Codes
from whence.model.jit import allocating, kernel

_NOWHERE = -(1 << 62)


@allocating
def sequences(group_lines: int, active: Codes, owner: Codes, info: Codes, high: int) -> tuple[Codes, Codes, Codes, int]:
    """Return the sequences that outputs need, of the active groups, if their rows came in order.

    They stand one after the other, each item a place in the column or the complement of a row of the batch; then where
    the sequence of each group begins, or -1; (to, from) of what the column takes; its new end."""
    data = lines(group_lines).data
    where, goes = np.empty(data.shape[0], np.int64), np.empty(data.shape[0], np.int64)
    filled = np.empty(data.shape[0], np.int64)
    begin = np.empty(active.shape[0], np.int64)
    for n in range(active.shape[0]):
        where[active[n]] = -1
        filled[active[n]] = 0
    for n in range(info.shape[0]):
        where[info[n, 0]] = 0
    total = 0
    moved = 0
    for n in range(active.shape[0]):
        g = active[n]
        begin[n] = -1
        if where[g] == 0:
            where[g] = total
            begin[n] = total
            total += data[g, st.G_COUNT] - data[g, st.G_BASE]
        goes[g] = _NOWHERE
        if data[g, st.G_STATE] != st.FREE:
            moved += data[g, st.G_COUNT] - data[g, st.G_FIRST]
    source = np.empty(total, np.int64)
    moves = np.empty((moved, 2), np.int64)
    moved = 0
    for n in range(active.shape[0]):
        g = active[n]
        carried = data[g, st.G_CARRIED]
        old = data[g, st.G_CHUNK] + data[g, st.G_SHIFT]
        if where[g] >= 0:
            for j in range(carried):
                source[where[g] + j] = old + j
        if data[g, st.G_STATE] == st.FREE:
            continue
        gone = data[g, st.G_FIRST] - data[g, st.G_BASE]
        live = data[g, st.G_COUNT] - data[g, st.G_FIRST]
        staying = max(0, carried - gone)
        data[g, st.G_SHIFT] += carried - staying
        if data[g, st.G_SHIFT] + live > data[g, st.G_CHUNKS]:
            data[g, st.G_CHUNK] = high
            data[g, st.G_CHUNKS] = 2 * live
            data[g, st.G_SHIFT] = 0
            high += 2 * live
            for j in range(staying):
                moves[moved, 0] = data[g, st.G_CHUNK] + j
                moves[moved, 1] = old + gone + j
                moved += 1
        goes[g] = data[g, st.G_CHUNK] + data[g, st.G_SHIFT] - gone  # plus the place in the sequence
    for i in range(owner.shape[0]):
        g = owner[i]
        if g < 0:
            continue
        place = data[g, st.G_CARRIED] + filled[g]
        filled[g] += 1
        if where[g] >= 0:
            source[where[g] + place] = ~i
        if goes[g] != _NOWHERE and place >= data[g, st.G_FIRST] - data[g, st.G_BASE]:
            moves[moved, 0] = goes[g] + place
            moves[moved, 1] = ~i
            moved += 1
    return source, begin, moves[:moved], high


@allocating
def all_sequences(group_lines: int, active: Codes, owner: Codes) -> tuple[Codes, Codes, Codes]:
    """Return the whole sequences of the active groups, as rows came, one after the other; where each begins, and its
    length."""
    data = lines(group_lines).data
    following = np.empty(data.shape[0], np.int64)
    begin, length = np.empty(active.shape[0], np.int64), np.empty(active.shape[0], np.int64)
    total = 0
    for n in range(active.shape[0]):
        begin[n] = total
        length[n] = data[active[n], st.G_COUNT] - data[active[n], st.G_BASE]
        total += length[n]
    source = np.empty(total, np.int64)
    for n in range(active.shape[0]):
        g = active[n]
        old = data[g, st.G_CHUNK] + data[g, st.G_SHIFT]
        for j in range(data[g, st.G_CARRIED]):
            source[begin[n] + j] = old + j
        following[g] = begin[n] + data[g, st.G_CARRIED]
    for i in range(owner.shape[0]):
        if owner[i] >= 0:
            source[following[owner[i]]] = ~i
            following[owner[i]] += 1
    return source, begin, length


@kernel
def gather(column: Codes, ann: Codes, source: Codes, out: Codes) -> None:
    """Gather items of the column, or of the batch where `source` is the complement of a row."""
    for n in range(source.shape[0]):
        i = source[n]
        if i >= 0:
            for w in range(out.shape[1]):
                out[n, w] = column[i, w]
        else:
            for w in range(out.shape[1]):
                out[n, w] = ann[~i, w]


@allocating
def by_group(active: Codes, begin: Codes, info: Codes, capacity: int) -> tuple[Codes, Codes, Codes]:
    """Sort outputs by group: return where each begins and ends among all sequences, and the position of each."""
    where, following = np.empty(capacity, np.int64), np.empty(capacity, np.int64)
    for n in range(active.shape[0]):
        where[active[n]] = begin[n]
        following[active[n]] = 0
    for n in range(info.shape[0]):
        following[info[n, 0]] += 1
    total = 0
    for n in range(active.shape[0]):
        count = following[active[n]]
        following[active[n]] = total
        total += count
    starts, ends, place = np.empty(total, np.int64), np.empty(total, np.int64), np.empty(total, np.int64)
    for n in range(info.shape[0]):
        g = info[n, 0]
        at = following[g]
        following[g] += 1
        starts[at] = where[g] + info[n, 1]
        ends[at] = where[g] + info[n, 2]
        place[n] = at
    return starts, ends, place


@kernel
def compact(group_lines: int, landmark: int, source: Codes) -> int:
    """Number the chunks without gaps, by group; `source` becomes where each item was. Return the number of items."""
    groups = lines(group_lines)
    data = groups.data
    n = 0
    for g in range(groups.meta[M_HIGH]):
        if data[g, st.G_STATE] == st.FREE:
            continue
        live = data[g, st.G_COUNT] - data[g, st.G_FIRST]
        if landmark == 1 and data[g, st.G_SOLID] > 1:
            live -= data[g, st.G_SOLID] - 1
        old = data[g, st.G_CHUNK] + data[g, st.G_SHIFT]
        data[g, st.G_CHUNK] = n
        data[g, st.G_CHUNKS] = live
        data[g, st.G_SHIFT] = 0
        for _ in range(live):
            source[n] = old
            old += 1
            n += 1
    return n


@kernel
def panes_in_order(group_lines: int, pane_lines: int, landmark: int, out: Codes) -> None:
    """Write the pane of each item, group by group; the one item of a landmark window's past stands before all panes."""
    groups, panes = lines(group_lines), lines(pane_lines)
    data = groups.data
    n = 0
    for g in range(groups.meta[M_HIGH]):
        if data[g, st.G_STATE] == st.FREE:
            continue
        line = data[g, st.G_HEAD]
        if landmark == 1 and data[g, st.G_SOLID] > 0:
            out[n] = st.NEVER
            n += 1
            line = data[g, st.G_PENDING]
        while line >= 0:
            for _ in range(panes.data[line, st.L_ROWS]):
                out[n] = panes.data[line, st.L_PANE]
                n += 1
            line = panes.data[line, st.L_NEXT]
