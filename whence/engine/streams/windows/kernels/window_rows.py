"""Add rows to the panes of their groups, in whatever order their values come.

A row whose windows are all open goes to its pending pane. One that is late for a window that has closed, but not for
all, goes to a pane of the back, and to the line that stands for it; or to a pane of the front, and to all before, which
stand for it. Cost: the panes that are passed on the way back from the newest; rows in order pass none.
"""

from __future__ import annotations

from whence.engine.streams.windows.kernels import window_acc as acc
from whence.engine.streams.windows.kernels import window_state as st
from whence.engine.streams.windows.kernels.window_lines import allocate, release, touch
from whence.engine.streams.windows.kernels.window_panes import activate, count_row, last_solid, start_back
from whence.model.jit import kernel


@kernel
def add_to_pane(s, g, pane, solid, rows, first, end):
    """Add rows[first:end], all of one pane, to their group; `solid` if a window with that pane has closed."""
    activate(s, g)
    panes = s.panes
    data, lines = s.groups.data, panes.data
    count = end - first
    at = data[g, st.G_TAIL]
    if solid:
        at = last_solid(s, g)
    if solid and s.plan[st.P_LANDMARK] == 1:
        fresh = at < 0
    else:
        pending = data[g, st.G_PENDING]
        low = -1 if solid else (lines[pending, st.L_PREV] if pending >= 0 else data[g, st.G_TAIL])
        while at != low and lines[at, st.L_PANE] > pane:
            at = lines[at, st.L_PREV]
        fresh = at == low or lines[at, st.L_PANE] != pane
    front = solid and (s.plan[st.P_LANDMARK] == 1 or _is_in_front(s, g, pane))
    line = _new_pane(s, g, at, pane, solid, front) if fresh else at
    if line != data[g, st.G_TAIL]:
        s.scalar[st.S_DISORDER] = 1
    if data[g, st.G_STATE] == st.IDLE:
        data[g, st.G_STATE] = st.LISTED
        if s.plan[st.P_SINGLE] == 0:
            _link_group(s, g)
    touch(panes, line)
    lines[line, st.L_ROWS] += count
    data[g, st.G_COUNT] += count
    s.scalar[st.S_ARRIVED] += count
    on = rows.shape[1] - 1 if s.plan[st.P_KIND] == st.ROWS else s.plan[st.P_ON]
    new = fresh and not (front and _stands_for_more(s, g, line))
    acc.add_rows(s, line, new, rows, first, end, on)
    if s.columns.shape[0]:
        for i in range(first, end):
            _keep_row(s, g, line, solid, rows, i)
    if not solid:
        return
    data[g, st.G_SOLID] += count
    if s.plan[st.P_LANDMARK] == 1:
        return
    if front:
        line = lines[line, st.L_PREV]
        while line >= 0:
            touch(panes, line)
            acc.add_rows(s, line, False, rows, first, end, on)
            line = lines[line, st.L_PREV]
        return
    if not start_back(s, g, line):
        acc.add_rows(s, data[g, st.G_BACK], False, rows, first, end, on)
    data[g, st.G_MERGED] += fresh


@kernel
def _is_in_front(s, g, pane):
    """Tell whether a pane of front or back, which need not exist yet, belongs to the front."""
    lines, middle = s.panes.data, s.groups.data[g, st.G_MIDDLE]
    last = lines[middle, st.L_PREV] if middle >= 0 else last_solid(s, g)
    return last >= 0 and pane <= lines[last, st.L_PANE]


@kernel
def _stands_for_more(s, g, line):
    """Tell whether front panes come after one of the front."""
    data, after = s.groups.data, s.panes.data[line, st.L_NEXT]
    return after >= 0 and after != data[g, st.G_MIDDLE] and after != data[g, st.G_PENDING]


@kernel
def _new_pane(s, g, before, pane, solid, front):
    """Insert a pane without rows behind another one, or at the head; in the front it starts as a copy of the next."""
    panes = s.panes
    data, lines = s.groups.data, panes.data
    line = allocate(panes)
    after = data[g, st.G_HEAD] if before < 0 else lines[before, st.L_NEXT]
    lines[line, st.L_NEXT] = after
    lines[line, st.L_PREV] = before
    lines[line, st.L_PANE] = pane
    lines[line, st.L_ARRIVED] = s.scalar[st.S_ARRIVED]
    lines[line, st.L_ROWS] = 0
    lines[line, st.L_KEPT] = -1
    lines[line, st.L_LAST] = -1
    if front and _stands_for_more(s, g, line):
        lines[line, st.L_ARRIVED] = lines[after, st.L_ARRIVED]
        for w in range(st.L_FIELDS, lines.shape[1]):
            lines[line, w] = lines[after, w]
    if before < 0:
        data[g, st.G_HEAD] = line
    else:
        touch(panes, before)
        lines[before, st.L_NEXT] = line
    if after < 0:
        data[g, st.G_TAIL] = line
    else:
        touch(panes, after)
        lines[after, st.L_PREV] = line
    section = st.G_MIDDLE if solid else st.G_PENDING
    if not front and (data[g, section] < 0 or after == data[g, section]):
        data[g, section] = line
    return line


@kernel
def _link_group(s, g):
    """Link a group that has its first rows into its clock's list."""
    clocks, groups = s.clocks, s.groups
    data = groups.data
    c = data[g, st.G_CLOCK]
    touch(clocks, c)
    clocks.data[c, st.C_LIVE] += 1
    head = clocks.data[c, st.C_GROUPS]
    data[g, st.G_NEXT] = head
    data[g, st.G_PREV] = -1
    if head >= 0:
        touch(groups, head)
        data[head, st.G_PREV] = g
    clocks.data[c, st.C_GROUPS] = g


@kernel
def _keep_row(s, g, pane, solid, rows, i):
    """Keep of a row what must be known when it enters or leaves a window."""
    kept = s.kept
    line = allocate(kept)
    kept.data[line, 0] = -1
    for c in range(s.columns.shape[0]):
        kept.data[line, 1 + c] = rows[i, s.columns[c]]
    if solid:
        count_row(s, g, line, 1)
        if s.plan[st.P_KEEPS] == 0:
            release(kept, line)
            return
    else:
        s.scalar[st.S_WAITING] += 1
    lines = s.panes.data
    last = lines[pane, st.L_LAST]
    if last >= 0:
        touch(kept, last)
        kept.data[last, 0] = line
    else:
        lines[pane, st.L_KEPT] = line
    lines[pane, st.L_LAST] = line
