"""Add rows to windows, in the order they come, and close windows: the one loop of a window operator.

For every row: its clock, the windows that its coming closes, its pane, its group. Windows over rows close behind their
last row; windows over values when the watermark reaches their end, before the row that brings this about is added. A
row that needs more room than there is stays where it is, with nothing changed, until the driver has made some; windows
that it has closed by then stay closed.
"""

from __future__ import annotations

import math

from whence.engine.core.kernels.doubles import to_code, to_float
from whence.engine.streams.windows.kernels import window_state as st
from whence.engine.streams.windows.kernels.window_distinct import rebuild_entries
from whence.engine.streams.windows.kernels.window_lines import M_HIGH, M_SPARE, begin_epoch, room, touch
from whence.engine.streams.windows.kernels.window_panes import (
    absorb_pending,
    clock_of,
    evict_panes,
    finish_batch,
    group_of,
    last_closed_pane,
    rebuild_groups,
)
from whence.engine.streams.windows.kernels.window_rows import add_to_pane
from whence.engine.streams.windows.kernels.window_show import emit_row, first_arrival
from whence.model.codes import Codes
from whence.model.jit import kernel

_NULL = -(2**63)
_EXACT = float(1 << 51)  # panes of floats are numbered up to here
_ROUNDED = 4e-16  # more than what adding two floats can be off by


@kernel
def _is_out_of_range(s, origin, v):
    """Tell whether a value is too far away for its pane to have a number."""
    if s.plan[st.P_KIND] == st.WHOLE:
        return v > st.FAR or v < -st.FAR
    units, x, zero = s.units, to_float(v), to_float(origin)
    return not (abs((x - zero) / units[0]) < _EXACT and abs((x - units[2] - zero) / units[0]) < _EXACT)


@kernel
def _pane_of(s, origin, v, less):
    """Return the pane of a value, or if `less` of the value less the lateness; its first code, and the end code."""
    plan, units = s.plan, s.units
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
    x, zero = to_float(v), to_float(origin)
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
    return pane, to_code(first), to_code(edge)


@kernel
def _limit(s, high):
    """Return a value such that no smaller one, less the lateness, is past `high`."""
    if s.plan[st.P_KIND] == st.WHOLE:
        return high + s.plan[st.P_LATENESS]
    if s.units[2] == 0.0:
        return high
    x = to_float(high) + s.units[2]
    return to_code(x - abs(x) * _ROUNDED)


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
def _close_window(s, c, k, at, out, info):
    """Emit window k of a clock, and evict the panes that no later one has; False if a value does not fit."""
    plan = s.plan
    landmark = plan[st.P_LANDMARK] == 1
    last = k - 1 if landmark else plan[st.P_STRIDE] * k + plan[st.P_DEPTH]
    least = plan[st.P_STRIDE] * (k + 1)
    data = s.groups.data
    g = s.clocks.data[c, st.C_GROUPS]
    if plan[st.P_SINGLE] == 1:
        if g < 0:
            return True
        absorb_pending(s, g, last)
        if data[g, st.G_SOLID] > 0:
            if not emit_row(s, g, k, at, out, info):
                return False
            if not landmark:
                evict_panes(s, g, least)
        return True
    scratch = s.scratch
    n = 0
    while g >= 0:
        absorb_pending(s, g, last)
        if data[g, st.G_SOLID] > 0:
            scratch[n, 0] = first_arrival(s, g)
            scratch[n, 1] = g
            n += 1
        g = data[g, st.G_NEXT]
    _sort(scratch, n)
    for i in range(n):
        if not emit_row(s, scratch[i, 1], k, at, out, info):
            return False
    if not landmark:
        for i in range(n):
            evict_panes(s, scratch[i, 1], least)
    return True


@kernel
def _closing_windows(plan, last, pane, top):
    """Return the first and the last window that close when a clock whose rows go up to the pane `top` moves on."""
    if plan[st.P_LANDMARK] == 1:
        return max(last, 0) + 1, pane
    stride, depth = plan[st.P_STRIDE], plan[st.P_DEPTH]
    first = -((depth - last) // stride)
    end = min(top // stride, -((depth - pane) // stride) - 1)
    return (max(first, 0) if plan[st.P_KIND] == st.ROWS or plan[st.P_FROM_FIRST] == 1 else first), end


@kernel
def _next_window(s, c, k):
    """Return the next window after k that has rows."""
    plan = s.plan
    if plan[st.P_LANDMARK] == 1:
        return k + 1
    data = s.groups.data
    g = s.clocks.data[c, st.C_GROUPS]
    pane = 1 << 62
    while g >= 0:
        if data[g, st.G_SOLID] > 0:
            return k + 1
        if data[g, st.G_PENDING] >= 0:
            pane = min(pane, s.panes.data[data[g, st.G_PENDING], st.L_PANE])
        if plan[st.P_SINGLE] == 1:
            break
        g = data[g, st.G_NEXT]
    return max(k + 1, -((plan[st.P_DEPTH] - pane) // plan[st.P_STRIDE]))


@kernel
def _move_watermark(s, c, pane, at, out, info):
    """Close the windows of a clock that end before a pane; False if it stopped halfway, with the reason as status."""
    plan, scalar, clock = s.plan, s.scalar, s.clocks.data
    first, final = _closing_windows(plan, clock[c, st.C_LAST], pane, clock[c, st.C_TOP])
    live = 1 if plan[st.P_SINGLE] == 1 else clock[c, st.C_LIVE]
    touch(s.clocks, c)
    if live > 0 and final >= first:
        most = st.MOST_AT_ONCE
        there = s.panes.meta[M_HIGH] - s.panes.meta[M_SPARE]
        windows = plan[st.P_DEPTH] // plan[st.P_STRIDE] + 2  # that a pane is in, or more
        if final - first >= most // live and (plan[st.P_LANDMARK] == 1 or windows >= most // there):
            scalar[st.S_STATUS] = st.TOO_MANY
            return False
        k = first if plan[st.P_KIND] == st.ROWS else _next_window(s, c, first - 1)
        while k <= final:
            want = scalar[st.S_OUT] + live
            if want > out.shape[0]:
                scalar[st.S_WANT] = want
                scalar[st.S_STATUS] = st.OUTPUT
                return False
            if not _close_window(s, c, k, at, out, info):
                scalar[st.S_STATUS] = st.UNFIT
                return False
            clock[c, st.C_LAST] = k if plan[st.P_LANDMARK] == 1 else plan[st.P_STRIDE] * k + plan[st.P_DEPTH] + 1
            k = _next_window(s, c, k)
    clock[c, st.C_LAST] = pane
    clock[c, st.C_DONE] = last_closed_pane(plan, pane)
    return True


@kernel
def _budget(s):
    """Count the rows that there is certainly room for, with the values of those that wait for a window to close."""
    clocks, groups, entries = s.clocks, s.groups, s.entries
    budget = min(room(clocks), room(groups), room(s.panes) // 2, room(s.kept))
    budget = min(budget, s.clock_slots.shape[0] // 2 - clocks.meta[M_HIGH])
    budget = min(budget, s.group_slots.shape[0] // 2 - groups.meta[M_HIGH] + groups.meta[M_SPARE])
    if s.distincts.shape[0]:
        live = entries.meta[M_HIGH] - entries.meta[M_SPARE]
        most = min(room(entries), s.entry_slots.shape[0] // 2 - live) // s.distincts.shape[0]
        budget = min(budget, most - s.scalar[st.S_WAITING])
    if s.orders.shape[0]:
        budget = min(budget, room(s.nodes) // s.orders.shape[0] - s.scalar[st.S_WAITING])
    return budget


@kernel
def _begin_batch(s):
    """Begin an epoch, or a batch of rows whose annotations are taken together."""
    scalar = s.scalar
    if scalar[st.S_STATUS] == st.BEGIN:
        scalar[st.S_ARRIVED_BEFORE] = scalar[st.S_ARRIVED]
        scalar[st.S_PROMISED_BEFORE] = scalar[st.S_PROMISED]
        scalar[st.S_WAITING_BEFORE] = scalar[st.S_WAITING]
        scalar[st.S_OUT] = 0
        scalar[st.S_LATE] = 0
        begin_epoch(s.clocks)
        begin_epoch(s.groups)
        begin_epoch(s.panes)
        begin_epoch(s.kept)
        begin_epoch(s.entries)
        begin_epoch(s.nodes)
    if scalar[st.S_STATUS] == st.BEGIN or scalar[st.S_STATUS] == st.SPLIT:
        scalar[st.S_BATCH] += 1
        scalar[st.S_ACTIVE] = 0
        scalar[st.S_TAKEN] = scalar[st.S_OUT]
        scalar[st.S_DISORDER] = 0


@kernel
def _start_clock(s, c, v):
    """Start a clock with its first value: set where its windows are."""
    plan, clock = s.plan, s.clocks.data
    touch(s.clocks, c)
    if plan[st.P_FROM_FIRST] == 1:
        clock[c, st.C_ORIGIN] = v
    origin = clock[c, st.C_ORIGIN]
    last, _, high = _pane_of(s, origin, v, True)
    promised = s.scalar[st.S_PROMISED]
    if promised != _NULL:
        pane, _, _ = _pane_of(s, origin, _clamp(s, origin, promised), False)
        last = max(last, pane)
    clock[c, st.C_SEEN] = 1
    clock[c, st.C_LAST] = last
    clock[c, st.C_DONE] = last_closed_pane(plan, last)
    clock[c, st.C_LIMIT] = _limit(s, high)


@kernel
def _clamp(s, origin, v):
    """Return a value, or the farthest one whose pane has a number."""
    if s.plan[st.P_KIND] == st.WHOLE:
        return min(max(v, -st.FAR), st.FAR)
    x, zero, most = to_float(v), to_float(origin), 0.5 * _EXACT * s.units[0]
    return to_code(min(max(x, zero - most), zero + most))


@kernel
def _has_no_pane(s, v):
    """Tell whether a value is in no window: NULL, or a double that is not finite."""
    if v == _NULL:
        return True
    x = to_float(v)
    return s.plan[st.P_KIND] == st.REAL and x - x != 0.0


@kernel
def _note_late(s, late, i):
    """List a row as late."""
    late[s.scalar[st.S_LATE]] = i
    s.scalar[st.S_LATE] += 1


@kernel
def advance(state: int, rows: Codes, i: int, out: Codes, info: Codes, owner: Codes, pane_of: Codes, late: Codes) -> int:
    """Add rows from the i-th on; return where it stopped, with the reason as status.

    Rows out go to `out`, with (group, first and end in its sequence) in `info` if traced; `owner` and `pane_of`, if
    they are there, are the group of each row, or -1, and its pane; `late` lists the rows late for some window."""
    s = st.state(state)
    _begin_batch(s)
    plan, scalar, clocks = s.plan, s.scalar, s.clocks
    stride, depth, every, rest = plan[st.P_STRIDE], plan[st.P_DEPTH], plan[st.P_EVERY], plan[st.P_REST]
    over_rows, on, landmark = plan[st.P_KIND] == st.ROWS, plan[st.P_ON], plan[st.P_LANDMARK] == 1
    single, keyless, owned = plan[st.P_SINGLE] == 1, s.by.shape[0] == 0, owner.shape[0] > 0
    runs = single and keyless and s.columns.shape[0] == 0
    traced, from_first = plan[st.P_TRACED] == 1, plan[st.P_FROM_FIRST] == 1
    at = rows.shape[1] - 1
    n = rows.shape[0]
    budget = 0
    while i < n:
        if budget == 0:
            budget = _budget(s)
            if budget <= 0:
                scalar[st.S_STATUS] = st.ROOM
                return i
        budget -= 1
        c = 0 if keyless and clocks.meta[M_HIGH] == 1 else clock_of(s, rows, i)
        clock = clocks.data
        end = i + 1
        solid = full = False
        if over_rows:
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
            clock[c, st.C_TOP] = pane
            clock[c, st.C_OFFSET] = 0 if offset + (end - i) == every else offset + (end - i)
            inside = landmark or stride == 1 or depth > 0 or pane & 1 == 0
        else:
            v = rows[i, on]
            if _has_no_pane(s, v):
                _note_late(s, late, i)
                i = end
                continue
            pane = clock[c, st.C_PANE]
            if v < clock[c, st.C_LOW] or v >= clock[c, st.C_HIGH] or clock[c, st.C_SEEN] == 0:
                origin = v if from_first and clock[c, st.C_SEEN] == 0 else clock[c, st.C_ORIGIN]
                if _is_out_of_range(s, origin, v):
                    scalar[st.S_STATUS] = st.TOO_FAR
                    return i
                if clock[c, st.C_SEEN] == 0:
                    _start_clock(s, c, v)
                touch(clocks, c)
                pane, low, high = _pane_of(s, origin, v, False)
                clock[c, st.C_PANE] = pane
                clock[c, st.C_LOW] = low
                clock[c, st.C_HIGH] = high
            if v >= clock[c, st.C_LIMIT]:
                moved, _, high = _pane_of(s, clock[c, st.C_ORIGIN], v, True)
                if moved > clock[c, st.C_LAST] and not _move_watermark(s, c, moved, rows[i, at], out, info):
                    return i
                touch(clocks, c)
                clock[c, st.C_LIMIT] = _limit(s, high)
            inside = pane >= 0 if landmark else stride == 1 or depth > 0 or pane & 1 == 0
            solid = inside and pane <= clock[c, st.C_DONE]
            if solid or (from_first and pane < 0):
                open_yet = landmark or stride * (pane // stride) + depth >= clock[c, st.C_LAST]
                inside = pane >= 0 and open_yet if from_first else open_yet
                if inside and traced and scalar[st.S_OUT] > scalar[st.S_TAKEN]:
                    finish_batch(s, st.SPLIT)
                    return i
                _note_late(s, late, i)
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
            g = group_of(s, c, rows, i)
            add_to_pane(s, g, pane, solid, rows, i, end)
            if owned:
                for j in range(i, end):
                    owner[j] = g
                    pane_of[j] = pane
        if full and not _move_watermark(s, c, pane + 1, rows[end - 1, at], out, info):
            return i
        i = end
    finish_batch(s, st.DONE)
    return i


@kernel
def promise(state: int, bound: int, at: int, out: Codes, info: Codes) -> None:
    """Move the watermarks of all clocks to a value, or if it is NULL as far as closes every window that has rows."""
    s = st.state(state)
    _begin_batch(s)
    plan, scalar, clock = s.plan, s.scalar, s.clocks.data
    scalar[st.S_PROMISED] = max(scalar[st.S_PROMISED], bound)
    for c in range(scalar[st.S_CLOCK], s.clocks.meta[M_HIGH]):
        scalar[st.S_CLOCK] = c
        if clock[c, st.C_SEEN] == 0:
            continue
        if bound != _NULL:
            origin = clock[c, st.C_ORIGIN]
            pane, _, _ = _pane_of(s, origin, _clamp(s, origin, bound), False)
        elif plan[st.P_LANDMARK] == 1:
            pane = clock[c, st.C_TOP] + 1
        else:
            pane = plan[st.P_STRIDE] * (clock[c, st.C_TOP] // plan[st.P_STRIDE]) + plan[st.P_DEPTH] + 1
        if pane > clock[c, st.C_LAST] and not _move_watermark(s, c, pane, at, out, info):
            return
    finish_batch(s, st.DONE)


@kernel
def rebuild_tables(state: int) -> None:
    """Rebuild all hash tables from the lines."""
    s = st.state(state)
    rebuild_groups(s)
    rebuild_entries(s.entries, s.entry_slots)
