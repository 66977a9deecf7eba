"""Rows into windows, in the order they come: the one loop of a window operator.

For every row: its clock, its pane, the windows that its coming closes, its group. Windows over rows close behind their
last row, windows over values before the first row past their end. A row that needs more room than there is stays where
it is, with nothing changed, until the driver has made some.
"""

from __future__ import annotations

import math

import numpy as np

from whence.engine.kernels import window_state as st
from whence.engine.kernels.aggregate import to_code, to_float
from whence.engine.kernels.window_distinct import find_entries
from whence.engine.kernels.window_lines import M_HIGH, M_SPARE, begin, lines, room, touch
from whence.engine.kernels.window_panes import add, clock_of, evict, find_groups, group_of, sweep
from whence.engine.kernels.window_show import emit
from whence.model.codes import Codes
from whence.model.jit import allocating, kernel

_NULL = -(2**63)
_EXACT = float(1 << 52)  # panes of floats are numbered up to here


@kernel
def _far(plan, units, v, bits, floats):
    """Whether a value is too far away for its pane to have a number."""
    if plan[st.P_KIND] == st.WHOLE:
        return v > st.FAR or v < -st.FAR
    return not abs((to_float(v, bits, floats) - units[2]) / units[0]) < _EXACT


@kernel
def _pane_of(plan, units, v, bits, floats):
    """The pane of a value, and the least code past it."""
    if plan[st.P_KIND] == st.WHOLE:
        every = plan[st.P_EVERY]
        block = v // every
        rest = v - block * every - plan[st.P_BEGIN]
        if rest < 0:
            rest += every
            block -= 1
        block -= plan[st.P_ZERO]
        if plan[st.P_STRIDE] == 2 and rest < plan[st.P_REST]:
            limit = v - rest + plan[st.P_REST]
        else:
            limit = v - rest + every
        return (block if plan[st.P_STRIDE] == 1 else 2 * block + (rest >= plan[st.P_REST])), limit
    x = to_float(v, bits, floats)
    every, origin = units[0], units[2]
    number = math.floor((x - origin) / every)
    if origin + number * every > x:
        number -= 1.0
    elif origin + (number + 1.0) * every <= x:
        number += 1.0
    pane = int(number)
    edge = origin + (number + 1.0) * every
    if plan[st.P_STRIDE] == 2:
        middle = origin + number * every + units[1]
        pane = 2 * pane + (x >= middle)
        if x < middle:
            edge = middle
    return pane, to_code(edge, bits, floats)


@kernel
def _sort(scratch, n):
    """Order (arrival, group) pairs by arrival (Shell's sort)."""
    gap = 1
    while gap < n // 3:
        gap = 3 * gap + 1
    while gap > 0:
        for i in range(gap, n):
            key, g = scratch[i, 0], scratch[i, 1]
            j = i
            while j >= gap and scratch[j - gap, 0] > key:
                scratch[j, 0] = scratch[j - gap, 0]
                scratch[j, 1] = scratch[j - gap, 1]
                j -= gap
            scratch[j, 0] = key
            scratch[j, 1] = g
        gap //= 3


@kernel
def _close(s, clocks, groups, panes, kept, entries, nodes, c, k, at, out, info, bits, floats, words, sums):
    """Give out window k of a clock, and let go what no later one has; False if a value does not fit."""
    plan = s.plan
    least = plan[st.P_STRIDE] * (k + 1)
    g = clocks.data[c, st.C_GROUPS]
    if plan[st.P_SINGLE] == 1:
        if g >= 0 and groups.data[g, st.G_HEAD] >= 0:
            if not emit(s, groups, panes, nodes, g, k, at, out, info, bits, floats):
                return False
            if plan[st.P_LANDMARK] == 0:
                evict(s, clocks, groups, panes, kept, entries, nodes, g, least, bits, floats, words, sums)
        return True
    scratch = s.scratch
    n = 0
    while g >= 0:
        scratch[n, 0] = panes.data[groups.data[g, st.G_HEAD], st.L_ARRIVED]
        scratch[n, 1] = g
        n += 1
        g = groups.data[g, st.G_NEXT]
    _sort(scratch, n)
    for i in range(n):
        if not emit(s, groups, panes, nodes, scratch[i, 1], k, at, out, info, bits, floats):
            return False
    if plan[st.P_LANDMARK] == 0:
        for i in range(n):
            evict(s, clocks, groups, panes, kept, entries, nodes, scratch[i, 1], least, bits, floats, words, sums)
    return True


@kernel
def _closing(plan, last, pane):
    """The first and the last window that close when a clock moves from one pane to a later one."""
    if plan[st.P_LANDMARK] == 1:
        return max(last, 0) + 1, pane
    stride, depth = plan[st.P_STRIDE], plan[st.P_DEPTH]
    first = -((depth - last) // stride)
    end = min(last // stride, -((depth - pane) // stride) - 1)
    return (max(first, 0) if plan[st.P_KIND] == st.ROWS else first), end


@kernel
def _budget(s, clocks, groups, panes, kept, entries, nodes):
    """For how many rows there is certainly room."""
    budget = min(room(clocks), room(groups), room(panes) // 2, room(kept))
    budget = min(budget, s.clock_slots.shape[0] // 2 - clocks.meta[M_HIGH])
    budget = min(budget, s.group_slots.shape[0] // 2 - groups.meta[M_HIGH] + groups.meta[M_SPARE])
    if s.distincts.shape[0]:
        live = entries.meta[M_HIGH] - entries.meta[M_SPARE]
        budget = min(budget, min(room(entries), s.entry_slots.shape[0] // 2 - live) // s.distincts.shape[0])
    if s.orders.shape[0]:
        budget = min(budget, room(nodes) // s.orders.shape[0])
    return budget


@allocating
def advance(
    state_at: int,
    clocks_at: int,
    groups_at: int,
    panes_at: int,
    kept_at: int,
    entries_at: int,
    nodes_at: int,
    rows: Codes,
    i: int,
    out: Codes,
    info: Codes,
    owner: Codes,
    late: Codes,
) -> int:
    """Take rows in from the i-th on; gives where it stopped, and why in the status.

    Rows out go to `out`, with (group, first and end in its sequence) in `info` if traced; `owner`, if it is there, is
    the group of each row, or -1; `late` lists the rows that came too late."""
    s = st.state(state_at)
    clocks, groups, panes = lines(clocks_at), lines(groups_at), lines(panes_at)
    kept, entries, nodes = lines(kept_at), lines(entries_at), lines(nodes_at)
    floats, sums = np.empty(1, np.float64), np.empty(3, np.float64)
    bits, words = floats.view(np.int64), sums.view(np.int64)
    plan, units, scalar = s.plan, s.units, s.scalar
    if scalar[st.S_STATUS] == st.BEGIN:
        scalar[st.S_ARRIVED_BEFORE] = scalar[st.S_ARRIVED]
        scalar[st.S_BATCH] += 1
        scalar[st.S_ACTIVE] = 0
        scalar[st.S_OUT] = 0
        scalar[st.S_LATE] = 0
        begin(clocks)
        begin(groups)
        begin(panes)
        begin(kept)
        begin(entries)
        begin(nodes)
    kind, stride, depth, every, rest = (
        plan[st.P_KIND],
        plan[st.P_STRIDE],
        plan[st.P_DEPTH],
        plan[st.P_EVERY],
        plan[st.P_REST],
    )
    on, landmark, owned = plan[st.P_ON], plan[st.P_LANDMARK] == 1, owner.shape[0] > 0
    single, keyless = plan[st.P_SINGLE] == 1, s.by.shape[0] == 0
    runs = single and keyless and s.columns.shape[0] == 0
    at = rows.shape[1] - 1
    n = rows.shape[0]
    budget = 0
    while i < n:
        if budget == 0:
            budget = _budget(s, clocks, groups, panes, kept, entries, nodes)
            if budget <= 0:
                scalar[st.S_STATUS] = st.ROOM
                return i
        budget -= 1
        c = 0 if keyless and clocks.meta[M_HIGH] == 1 else clock_of(s, clocks, rows, i)
        clock = clocks.data
        live = 1 if single else clock[c, st.C_LIVE]
        last = clock[c, st.C_LAST]
        end = i + 1
        if kind == st.ROWS:
            offset = clock[c, st.C_OFFSET]
            cut = rest if stride == 2 and offset < rest else every
            if runs:
                end = min(n, i + cut - offset)
            pane = last
            after = pane + 1 if offset + (end - i) == cut else pane
            if after > pane:
                first, final = _closing(plan, pane, after)
                if final >= first:
                    want = scalar[st.S_OUT] + (live + 1) * (final - first + 1)
                    if want > out.shape[0]:
                        scalar[st.S_WANT] = want
                        scalar[st.S_STATUS] = st.OUTPUT
                        return i
            else:
                first, final = 0, -1
            touch(clocks, c)
            inside = landmark or stride == 1 or depth > 0 or pane & 1 == 0
            if inside:
                g = group_of(s, clocks, groups, panes, c, rows, i)
                number = 0 if landmark else pane
                add(s, clocks, groups, panes, kept, entries, nodes, g, number, rows, i, end, bits, floats, words, sums)
                if owned:
                    for j in range(i, end):
                        owner[j] = g
            clock[c, st.C_LAST] = after
            clock[c, st.C_OFFSET] = 0 if offset + (end - i) == every else offset + (end - i)
            t = rows[end - 1, at]
            for k in range(first, final + 1):
                if not _close(
                    s, clocks, groups, panes, kept, entries, nodes, c, k, t, out, info, bits, floats, words, sums
                ):
                    scalar[st.S_STATUS] = st.UNFIT
                    return i
        else:
            v = rows[i, on]
            strange = False
            if kind == st.REAL and v != _NULL:
                x = to_float(v, bits, floats)
                strange = x - x != 0.0
            if v == _NULL or v < clock[c, st.C_NEWEST] or strange:
                late[scalar[st.S_LATE]] = i
                scalar[st.S_LATE] += 1
                i = end
                continue
            pane = last
            limit = clock[c, st.C_LIMIT]
            if v >= limit or clock[c, st.C_SEEN] == 0:
                if _far(plan, units, v, bits, floats):
                    scalar[st.S_STATUS] = st.TOO_FAR
                    return i
                pane, limit = _pane_of(plan, units, v, bits, floats)
                if clock[c, st.C_SEEN] == 1 and pane > last and live > 0:
                    first, final = _closing(plan, last, pane)
                    if final >= first:
                        if final - first >= st.MOST_AT_ONCE // (live + 1):
                            scalar[st.S_STATUS] = st.TOO_MANY
                            return i
                        want = scalar[st.S_OUT] + live * (final - first + 1)
                        if want > out.shape[0]:
                            scalar[st.S_WANT] = want
                            scalar[st.S_STATUS] = st.OUTPUT
                            return i
                        t = rows[i, at]
                        for k in range(first, final + 1):
                            if not _close(
                                s,
                                clocks,
                                groups,
                                panes,
                                kept,
                                entries,
                                nodes,
                                c,
                                k,
                                t,
                                out,
                                info,
                                bits,
                                floats,
                                words,
                                sums,
                            ):
                                scalar[st.S_STATUS] = st.UNFIT
                                return i
            touch(clocks, c)
            if runs:
                while end < n and rows[end, on] >= rows[end - 1, on] and rows[end, on] < limit:
                    end += 1
            clock[c, st.C_SEEN] = 1
            clock[c, st.C_LAST] = pane
            clock[c, st.C_LIMIT] = limit
            clock[c, st.C_NEWEST] = rows[end - 1, on]
            inside = pane >= 0 if landmark else stride == 1 or depth > 0 or pane & 1 == 0
            if inside:
                g = group_of(s, clocks, groups, panes, c, rows, i)
                number = 0 if landmark else pane
                add(s, clocks, groups, panes, kept, entries, nodes, g, number, rows, i, end, bits, floats, words, sums)
                if owned:
                    for j in range(i, end):
                        owner[j] = g
        i = end
    sweep(s, groups, panes)
    scalar[st.S_STATUS] = st.DONE
    return i


@kernel
def find_all(state_at: int, clocks_at: int, groups_at: int, entries_at: int) -> None:
    """Make all tables anew from the lines."""
    s = st.state(state_at)
    find_groups(s, lines(clocks_at), lines(groups_at))
    find_entries(lines(entries_at), s.entry_slots)
