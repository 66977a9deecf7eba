"""Rows into windows, in the order they come: the one loop of a window operator.

For every row: its clock, the windows that its coming closes, its pane, its group. Windows over rows close behind their
last row; windows over values when the watermark reaches their end, before the row that brings this about is added. A
row that needs more room than there is stays where it is, with nothing changed, until the driver has made some; windows
that it has closed by then stay closed.
"""

from __future__ import annotations

import math

import numpy as np

from whence.engine.relational.kernels.aggregate import to_code, to_float
from whence.engine.streams.windows.kernels import window_state as st
from whence.engine.streams.windows.kernels.window_distinct import find_entries
from whence.engine.streams.windows.kernels.window_lines import M_HIGH, M_SPARE, begin, lines, room, touch
from whence.engine.streams.windows.kernels.window_panes import (
    absorb,
    clock_of,
    done_with,
    evict,
    find_groups,
    group_of,
    sweep,
)
from whence.engine.streams.windows.kernels.window_rows import add
from whence.engine.streams.windows.kernels.window_show import arrived, emit
from whence.model.codes import Codes
from whence.model.jit import allocating, kernel

_NULL = -(2**63)
_EXACT = float(1 << 51)  # panes of floats are numbered up to here
_ROUNDED = 4e-16  # more than what adding two floats can be off by


@kernel
def _far(plan, units, origin, v, bits, floats):
    """Whether a value is too far away for its pane to have a number."""
    if plan[st.P_KIND] == st.WHOLE:
        return v > st.FAR or v < -st.FAR
    x, zero = to_float(v, bits, floats), to_float(origin, bits, floats)
    return not (abs((x - zero) / units[0]) < _EXACT and abs((x - units[2] - zero) / units[0]) < _EXACT)


@kernel
def _pane_of(plan, units, origin, v, less, bits, floats):
    """The pane of a value, or if `less` of the value less the lateness; its first code, and the least past it."""
    if plan[st.P_KIND] == st.WHOLE:
        every = plan[st.P_EVERY]
        if less:
            v -= plan[st.P_LATENESS]
        block = (v - origin) // every
        low = origin + block * every
        if plan[st.P_STRIDE] == 1:
            return block, low, low + every
        middle = low + plan[st.P_REST]
        return (2 * block, low, middle) if v < middle else (2 * block + 1, middle, low + every)
    x, zero = to_float(v, bits, floats), to_float(origin, bits, floats)
    if less:
        x -= units[2]
    every = units[0]
    number = math.floor((x - zero) / every)
    if zero + number * every > x:
        number -= 1.0
    elif zero + (number + 1.0) * every <= x:
        number += 1.0
    first, edge = zero + number * every, zero + (number + 1.0) * every
    pane = int(number)
    if plan[st.P_STRIDE] == 2:
        middle = first + units[1]
        pane = 2 * pane + (x >= middle)
        if x < middle:
            edge = middle
        else:
            first = middle
    low = to_code(first, bits, floats)
    return pane, low, to_code(edge, bits, floats)


@kernel
def _limit(plan, units, high, bits, floats):
    """No smaller value, less the lateness, is past `high`."""
    if plan[st.P_KIND] == st.WHOLE:
        return high + plan[st.P_LATENESS]
    if units[2] == 0.0:
        return high
    x = to_float(high, bits, floats) + units[2]
    return to_code(x - abs(x) * _ROUNDED, bits, floats)


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
    landmark = plan[st.P_LANDMARK] == 1
    last = k - 1 if landmark else plan[st.P_STRIDE] * k + plan[st.P_DEPTH]
    least = plan[st.P_STRIDE] * (k + 1)
    data = groups.data
    g = clocks.data[c, st.C_GROUPS]
    if plan[st.P_SINGLE] == 1:
        if g < 0:
            return True
        absorb(s, groups, panes, kept, entries, nodes, g, last, bits, floats, words, sums)
        if data[g, st.G_SOLID] > 0:
            if not emit(s, clocks, groups, panes, nodes, g, k, at, out, info, bits, floats):
                return False
            if not landmark:
                evict(s, clocks, groups, panes, kept, entries, nodes, g, least, bits, floats, words, sums)
        return True
    scratch = s.scratch
    n = 0
    while g >= 0:
        absorb(s, groups, panes, kept, entries, nodes, g, last, bits, floats, words, sums)
        if data[g, st.G_SOLID] > 0:
            scratch[n, 0] = arrived(groups, panes, g)
            scratch[n, 1] = g
            n += 1
        g = data[g, st.G_NEXT]
    _sort(scratch, n)
    for i in range(n):
        if not emit(s, clocks, groups, panes, nodes, scratch[i, 1], k, at, out, info, bits, floats):
            return False
    if not landmark:
        for i in range(n):
            evict(s, clocks, groups, panes, kept, entries, nodes, scratch[i, 1], least, bits, floats, words, sums)
    return True


@kernel
def _closing(plan, last, pane, top):
    """The first and the last window that close when a clock whose rows go up to the pane `top` moves on."""
    if plan[st.P_LANDMARK] == 1:
        return max(last, 0) + 1, pane
    stride, depth = plan[st.P_STRIDE], plan[st.P_DEPTH]
    first = -((depth - last) // stride)
    end = min(top // stride, -((depth - pane) // stride) - 1)
    return (max(first, 0) if plan[st.P_KIND] == st.ROWS or plan[st.P_FROM_FIRST] == 1 else first), end


@kernel
def _next(plan, clocks, groups, panes, c, k):
    """The next window after k that has rows."""
    if plan[st.P_LANDMARK] == 1:
        return k + 1
    data = groups.data
    g = clocks.data[c, st.C_GROUPS]
    pane = 1 << 62
    while g >= 0:
        if data[g, st.G_SOLID] > 0:
            return k + 1
        if data[g, st.G_PENDING] >= 0:
            pane = min(pane, panes.data[data[g, st.G_PENDING], st.L_PANE])
        if plan[st.P_SINGLE] == 1:
            break
        g = data[g, st.G_NEXT]
    return max(k + 1, -((plan[st.P_DEPTH] - pane) // plan[st.P_STRIDE]))


@kernel
def _move(s, clocks, groups, panes, kept, entries, nodes, c, pane, at, out, info, bits, floats, words, sums):
    """Close the windows of a clock that end before a pane. Gives the status: DONE, or why it stopped halfway."""
    plan, scalar, clock = s.plan, s.scalar, clocks.data
    first, final = _closing(plan, clock[c, st.C_LAST], pane, clock[c, st.C_TOP])
    live = 1 if plan[st.P_SINGLE] == 1 else clock[c, st.C_LIVE]
    touch(clocks, c)
    if live > 0 and final >= first:
        most = st.MOST_AT_ONCE
        there = panes.meta[M_HIGH] - panes.meta[M_SPARE]
        windows = plan[st.P_DEPTH] // plan[st.P_STRIDE] + 2  # that a pane is in, or more
        if final - first >= most // live and (plan[st.P_LANDMARK] == 1 or windows >= most // there):
            return st.TOO_MANY
        k = first if plan[st.P_KIND] == st.ROWS else _next(plan, clocks, groups, panes, c, first - 1)
        while k <= final:
            want = scalar[st.S_OUT] + live
            if want > out.shape[0]:
                scalar[st.S_WANT] = want
                return st.OUTPUT
            if not _close(
                s, clocks, groups, panes, kept, entries, nodes, c, k, at, out, info, bits, floats, words, sums
            ):
                return st.UNFIT
            clock[c, st.C_LAST] = k if plan[st.P_LANDMARK] == 1 else plan[st.P_STRIDE] * k + plan[st.P_DEPTH] + 1
            k = _next(plan, clocks, groups, panes, c, k)
    clock[c, st.C_LAST] = pane
    clock[c, st.C_DONE] = done_with(plan, pane)
    return st.DONE


@kernel
def _budget(s, clocks, groups, panes, kept, entries, nodes):
    """For how many rows there is certainly room, with the values of those that wait for a window to close."""
    budget = min(room(clocks), room(groups), room(panes) // 2, room(kept))
    budget = min(budget, s.clock_slots.shape[0] // 2 - clocks.meta[M_HIGH])
    budget = min(budget, s.group_slots.shape[0] // 2 - groups.meta[M_HIGH] + groups.meta[M_SPARE])
    if s.distincts.shape[0]:
        live = entries.meta[M_HIGH] - entries.meta[M_SPARE]
        most = min(room(entries), s.entry_slots.shape[0] // 2 - live) // s.distincts.shape[0]
        budget = min(budget, most - s.scalar[st.S_WAITING])
    if s.orders.shape[0]:
        budget = min(budget, room(nodes) // s.orders.shape[0] - s.scalar[st.S_WAITING])
    return budget


@kernel
def _begin(s, clocks, groups, panes, kept, entries, nodes):
    """Before an epoch, or before the rows whose annotations are taken next."""
    scalar = s.scalar
    if scalar[st.S_STATUS] == st.BEGIN:
        scalar[st.S_ARRIVED_BEFORE] = scalar[st.S_ARRIVED]
        scalar[st.S_PROMISED_BEFORE] = scalar[st.S_PROMISED]
        scalar[st.S_WAITING_BEFORE] = scalar[st.S_WAITING]
        scalar[st.S_OUT] = 0
        scalar[st.S_LATE] = 0
        begin(clocks)
        begin(groups)
        begin(panes)
        begin(kept)
        begin(entries)
        begin(nodes)
    if scalar[st.S_STATUS] == st.BEGIN or scalar[st.S_STATUS] == st.SPLIT:
        scalar[st.S_BATCH] += 1
        scalar[st.S_ACTIVE] = 0
        scalar[st.S_TAKEN] = scalar[st.S_OUT]
        scalar[st.S_DISORDER] = 0


@kernel
def _start(s, clocks, c, v, bits, floats):
    """The first value of a clock: where its windows are."""
    plan, clock = s.plan, clocks.data
    touch(clocks, c)
    if plan[st.P_FROM_FIRST] == 1:
        clock[c, st.C_ORIGIN] = v
    origin = clock[c, st.C_ORIGIN]
    last, _, high = _pane_of(plan, s.units, origin, v, True, bits, floats)
    promised = s.scalar[st.S_PROMISED]
    if promised != _NULL:
        pane, _, _ = _pane_of(plan, s.units, origin, _near(s, origin, promised, bits, floats), False, bits, floats)
        last = max(last, pane)
    clock[c, st.C_SEEN] = 1
    clock[c, st.C_LAST] = last
    clock[c, st.C_DONE] = done_with(plan, last)
    clock[c, st.C_LIMIT] = _limit(plan, s.units, high, bits, floats)


@kernel
def _near(s, origin, v, bits, floats):
    """A value, or the farthest one whose pane has a number."""
    if s.plan[st.P_KIND] == st.WHOLE:
        return min(max(v, -st.FAR), st.FAR)
    x, zero, most = to_float(v, bits, floats), to_float(origin, bits, floats), 0.5 * _EXACT * s.units[0]
    return to_code(min(max(x, zero - most), zero + most), bits, floats)


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
    pane_of: Codes,
    late: Codes,
) -> int:
    """Take rows in from the i-th on; gives where it stopped, and why in the status.

    Rows out go to `out`, with (group, first and end in its sequence) in `info` if traced; `owner` and `pane_of`, if
    they are there, are the group of each row, or -1, and its pane; `late` lists the rows late for some window."""
    s = st.state(state_at)
    clocks, groups, panes = lines(clocks_at), lines(groups_at), lines(panes_at)
    kept, entries, nodes = lines(kept_at), lines(entries_at), lines(nodes_at)
    floats, sums = np.empty(1, np.float64), np.empty(3, np.float64)
    bits, words = floats.view(np.int64), sums.view(np.int64)
    plan, units, scalar = s.plan, s.units, s.scalar
    _begin(s, clocks, groups, panes, kept, entries, nodes)
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
    traced, from_first = plan[st.P_TRACED] == 1, plan[st.P_FROM_FIRST] == 1
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
        end = i + 1
        if kind == st.ROWS:
            offset = clock[c, st.C_OFFSET]
            cut = rest if stride == 2 and offset < rest else every
            if runs:
                end = min(n, i + cut - offset)
            pane = clock[c, st.C_LAST]
            full = offset + (end - i) == cut
            if full and scalar[st.S_OUT] + (1 if single else clock[c, st.C_LIVE] + 1) > out.shape[0]:
                scalar[st.S_WANT] = scalar[st.S_OUT] + clock[c, st.C_LIVE] + 1
                scalar[st.S_STATUS] = st.OUTPUT
                return i
            touch(clocks, c)
            if landmark or stride == 1 or depth > 0 or pane & 1 == 0:
                g = group_of(s, clocks, groups, panes, c, rows, i)
                add(
                    s, clocks, groups, panes, kept, entries, nodes, g, pane, False, rows, i, end,
                    bits, floats, words, sums,
                )  # fmt: skip
                if owned:
                    for j in range(i, end):
                        owner[j] = g
                        pane_of[j] = pane
            clock[c, st.C_TOP] = pane
            clock[c, st.C_OFFSET] = 0 if offset + (end - i) == every else offset + (end - i)
            if full:
                status = _move(
                    s, clocks, groups, panes, kept, entries, nodes, c, pane + 1, rows[end - 1, at], out, info,
                    bits, floats, words, sums,
                )  # fmt: skip
                if status != st.DONE:
                    scalar[st.S_STATUS] = status
                    return i
            i = end
            continue
        v = rows[i, on]
        strange = False
        if kind == st.REAL and v != _NULL:
            x = to_float(v, bits, floats)
            strange = x - x != 0.0
        if v == _NULL or strange:
            late[scalar[st.S_LATE]] = i
            scalar[st.S_LATE] += 1
            i = end
            continue
        pane = clock[c, st.C_PANE]
        if v < clock[c, st.C_LOW] or v >= clock[c, st.C_HIGH] or clock[c, st.C_SEEN] == 0:
            origin = v if from_first and clock[c, st.C_SEEN] == 0 else clock[c, st.C_ORIGIN]
            if _far(plan, units, origin, v, bits, floats):
                scalar[st.S_STATUS] = st.TOO_FAR
                return i
            if clock[c, st.C_SEEN] == 0:
                _start(s, clocks, c, v, bits, floats)
            touch(clocks, c)
            pane, low, high = _pane_of(plan, units, origin, v, False, bits, floats)
            clock[c, st.C_PANE] = pane
            clock[c, st.C_LOW] = low
            clock[c, st.C_HIGH] = high
        if v >= clock[c, st.C_LIMIT]:
            moved, _, high = _pane_of(plan, units, clock[c, st.C_ORIGIN], v, True, bits, floats)
            if moved > clock[c, st.C_LAST]:
                status = _move(
                    s, clocks, groups, panes, kept, entries, nodes, c, moved, rows[i, at], out, info,
                    bits, floats, words, sums,
                )  # fmt: skip
                if status != st.DONE:
                    scalar[st.S_STATUS] = status
                    return i
            touch(clocks, c)
            clock[c, st.C_LIMIT] = _limit(plan, units, high, bits, floats)
        done = clock[c, st.C_DONE]
        inside = pane >= 0 if landmark else stride == 1 or depth > 0 or pane & 1 == 0
        solid = inside and pane <= done
        if solid or (from_first and pane < 0):
            open_yet = landmark or stride * (pane // stride) + depth >= clock[c, st.C_LAST]
            inside = pane >= 0 and open_yet if from_first else open_yet
            if inside and traced and scalar[st.S_OUT] > scalar[st.S_TAKEN]:
                sweep(s, groups, panes)
                scalar[st.S_STATUS] = st.SPLIT
                return i
            late[scalar[st.S_LATE]] = i
            scalar[st.S_LATE] += 1
        elif runs:
            low, high = clock[c, st.C_LOW], min(clock[c, st.C_HIGH], clock[c, st.C_LIMIT])
            while end < n and rows[end, on] >= low and rows[end, on] < high:
                v = max(v, rows[end, on])
                end += 1
        if v > clock[c, st.C_NEWEST]:
            touch(clocks, c)
            clock[c, st.C_NEWEST] = v
            clock[c, st.C_TOP] = max(clock[c, st.C_TOP], pane)
        if inside:
            g = group_of(s, clocks, groups, panes, c, rows, i)
            add(
                s, clocks, groups, panes, kept, entries, nodes, g, pane, solid, rows, i, end,
                bits, floats, words, sums,
            )  # fmt: skip
            if owned:
                for j in range(i, end):
                    owner[j] = g
                    pane_of[j] = pane
        i = end
    sweep(s, groups, panes)
    scalar[st.S_STATUS] = st.DONE
    return i


@allocating
def promise(
    state_at: int,
    clocks_at: int,
    groups_at: int,
    panes_at: int,
    kept_at: int,
    entries_at: int,
    nodes_at: int,
    bound: int,
    at: int,
    out: Codes,
    info: Codes,
) -> None:
    """Move the watermarks of all clocks to a value, or if it is NULL as far as closes every window that has rows."""
    s = st.state(state_at)
    clocks, groups, panes = lines(clocks_at), lines(groups_at), lines(panes_at)
    kept, entries, nodes = lines(kept_at), lines(entries_at), lines(nodes_at)
    floats, sums = np.empty(1, np.float64), np.empty(3, np.float64)
    bits, words = floats.view(np.int64), sums.view(np.int64)
    plan, scalar, clock = s.plan, s.scalar, clocks.data
    _begin(s, clocks, groups, panes, kept, entries, nodes)
    scalar[st.S_PROMISED] = max(scalar[st.S_PROMISED], bound)
    for c in range(scalar[st.S_CLOCK], clocks.meta[M_HIGH]):
        scalar[st.S_CLOCK] = c
        if clock[c, st.C_SEEN] == 0:
            continue
        if bound != _NULL:
            origin = clock[c, st.C_ORIGIN]
            pane, _, _ = _pane_of(plan, s.units, origin, _near(s, origin, bound, bits, floats), False, bits, floats)
        elif plan[st.P_LANDMARK] == 1:
            pane = clock[c, st.C_TOP] + 1
        else:
            pane = plan[st.P_STRIDE] * (clock[c, st.C_TOP] // plan[st.P_STRIDE]) + plan[st.P_DEPTH] + 1
        if pane > clock[c, st.C_LAST]:
            status = _move(
                s, clocks, groups, panes, kept, entries, nodes, c, pane, at, out, info, bits, floats, words, sums
            )
            if status != st.DONE:
                scalar[st.S_STATUS] = status
                return
    sweep(s, groups, panes)
    scalar[st.S_STATUS] = st.DONE


@kernel
def find_all(state_at: int, clocks_at: int, groups_at: int, entries_at: int) -> None:
    """Make all tables anew from the lines."""
    s = st.state(state_at)
    find_groups(s, lines(clocks_at), lines(groups_at))
    find_entries(lines(entries_at), s.entry_slots)
