"""Clocks, groups and panes: find them, and evict old panes. `window_rows.py` adds rows to them.

A group's panes are a list in order: front, back, pending. **Pending** panes stand for themselves: no window that has
them has closed. When one closes, its pending panes go to the **back**; each still stands for itself, and one line for
all of the back. Each pane of the **front** stands for itself and all front ones after it, so that the oldest can go.
When the front is used up, the back becomes the front, each pane taking in what follows it. So a pane is combined a few
times in its life, whatever the window's size, and nothing is ever subtracted.
"""

from __future__ import annotations

from whence.engine.core.kernels.table import find_word, hash_key, put_word, remove_slot
from whence.engine.streams.windows.kernels import window_acc as acc
from whence.engine.streams.windows.kernels import window_state as st
from whence.engine.streams.windows.kernels.window_distinct import add_distinct, add_value, remove_value
from whence.engine.streams.windows.kernels.window_lines import M_HIGH, allocate, release, touch
from whence.engine.streams.windows.kernels.window_order import insert, remove
from whence.model.jit import kernel

_LOW = 0xFFFFFFFF
_NULL = -(2**63)
_K = -7046029254386353131


@kernel
def clock_of(s, rows, i):
    """Return the clock of a row, a new one if there is none."""
    clocks, by = s.clocks, s.by
    slots = s.clock_slots
    mask = slots.shape[0] - 1
    tag = hash_key(rows, i, by)
    data = clocks.data
    p = tag & mask
    while slots[p] != 0:
        if ((slots[p] >> 32) & _LOW) == tag:
            c = (slots[p] & _LOW) - 1
            same = True
            for b in range(by.shape[0]):
                if data[c, st.C_FIELDS + b] != rows[i, by[b]]:
                    same = False
            if same:
                return c
        p = (p + 1) & mask
    c = allocate(clocks)
    data[c, st.C_GROUPS] = -1
    data[c, st.C_LIVE] = 0
    data[c, st.C_SEEN] = 0
    data[c, st.C_LAST] = 0
    data[c, st.C_DONE] = st.NEVER
    data[c, st.C_NEWEST] = _NULL
    data[c, st.C_TOP] = st.NEVER
    data[c, st.C_LIMIT] = _NULL
    data[c, st.C_PANE] = 0
    data[c, st.C_LOW] = 0
    data[c, st.C_HIGH] = _NULL
    data[c, st.C_OFFSET] = 0
    data[c, st.C_ORIGIN] = s.plan[st.P_ORIGIN]
    for b in range(by.shape[0]):
        data[c, st.C_FIELDS + b] = rows[i, by[b]]
    slots[p] = (tag << 32) | (c + 1)
    return c


@kernel
def last_closed_pane(plan, last):
    """Return the last pane of the last window that has closed, if the watermark is in the pane `last`."""
    if plan[st.P_LANDMARK] == 1:
        return last - 1
    stride, depth = plan[st.P_STRIDE], plan[st.P_DEPTH]
    k = -((depth - last) // stride) - 1
    if k < 0 and (plan[st.P_KIND] == st.ROWS or plan[st.P_FROM_FIRST] == 1):
        return st.NEVER
    return stride * k + depth


@kernel
def _group_tag(h, data, i, cols, first):
    """Hash a clock and keys, which stand at `cols` of a row, or from the word `first` on."""
    for k in range(cols.shape[0]):
        h = (h ^ data[i, cols[k] if first < 0 else first + k]) * _K
        h ^= h >> 29
    return ((h * _K) >> 32) & _LOW


@kernel
def group_of(s, c, rows, i):
    """Return the group of a row of a clock, a new one if there is none."""
    clocks, groups = s.clocks, s.groups
    data = groups.data
    keys = s.keys
    word = s.plan[st.P_KEYS]
    slots = s.group_slots
    tag = 0
    p = 0
    if s.plan[st.P_SINGLE] == 1:
        if clocks.data[c, st.C_GROUPS] >= 0:
            return clocks.data[c, st.C_GROUPS]
    else:
        mask = slots.shape[0] - 1
        tag = _group_tag(c, rows, i, keys, -1)
        p = tag & mask
        while slots[p] != 0:
            if ((slots[p] >> 32) & _LOW) == tag:
                g = (slots[p] & _LOW) - 1
                same = data[g, st.G_CLOCK] == c
                for k in range(keys.shape[0]):
                    if data[g, word + k] != rows[i, keys[k]]:
                        same = False
                if same:
                    return g
            p = (p + 1) & mask
    g = allocate(groups)
    for w in range(data.shape[1]):
        data[g, w] = 0
    data[g, st.G_CLOCK] = c
    data[g, st.G_STATE] = st.IDLE
    data[g, st.G_HEAD] = -1
    data[g, st.G_TAIL] = -1
    data[g, st.G_MIDDLE] = -1
    data[g, st.G_PENDING] = -1
    data[g, st.G_BACK] = allocate(s.panes)
    data[g, st.G_BATCH] = -1
    for k in range(keys.shape[0]):
        data[g, word + k] = rows[i, keys[k]]
    for d in range(s.orders.shape[0]):
        data[g, s.orders[d, 1]] = -1
    if s.plan[st.P_SINGLE] == 1:
        touch(clocks, c)
        clocks.data[c, st.C_GROUPS] = g
    else:
        slots[p] = (tag << 32) | (g + 1)
    return g


@kernel
def activate(s, g):
    """List a group as changed in this batch, before anything happens to it."""
    touch(s.groups, g)
    data = s.groups.data
    batch = s.scalar[st.S_BATCH]
    if data[g, st.G_BATCH] != batch:
        data[g, st.G_BATCH] = batch
        carried = data[g, st.G_COUNT] - data[g, st.G_FIRST]
        if s.plan[st.P_LANDMARK] == 1 and data[g, st.G_SOLID] > 1:
            carried -= data[g, st.G_SOLID] - 1
        data[g, st.G_CARRIED] = carried
        data[g, st.G_BASE] = data[g, st.G_COUNT] - carried
        s.active[s.scalar[st.S_ACTIVE]] = g
        s.scalar[st.S_ACTIVE] += 1


@kernel
def merge(s, left, right, into):
    """Write what two lines of panes stand for, the left ones before the right ones, to a line."""
    lines = s.panes.data
    lines[into, st.L_ARRIVED] = min(lines[left, st.L_ARRIVED], lines[right, st.L_ARRIVED])
    acc.combine(s, left, right, into)


@kernel
def absorb_pending(s, g, upto):
    """Move pending panes up to a number to the back, and the values of their rows into the window."""
    kept = s.kept
    data, lines = s.groups.data, s.panes.data
    line = data[g, st.G_PENDING]
    if line < 0 or lines[line, st.L_PANE] > upto:
        return
    activate(s, g)
    while line >= 0 and lines[line, st.L_PANE] <= upto:
        after = lines[line, st.L_NEXT]
        data[g, st.G_SOLID] += lines[line, st.L_ROWS]
        row = lines[line, st.L_KEPT]
        while row >= 0:
            following = kept.data[row, 0]
            s.scalar[st.S_WAITING] -= 1
            count_row(s, g, row, 1)
            if s.plan[st.P_KEEPS] == 0:
                release(kept, row)
            row = following
        if s.plan[st.P_LANDMARK] == 1:
            _absorb_for_good(s, g, line)
        else:
            if not start_back(s, g, line):
                merge(s, data[g, st.G_BACK], line, data[g, st.G_BACK])
            data[g, st.G_MERGED] += 1
            if data[g, st.G_MIDDLE] < 0:
                data[g, st.G_MIDDLE] = line
        line = after
    data[g, st.G_PENDING] = line


@kernel
def start_back(s, g, line):
    """Prepare the line of the back for writing. If it stands for no pane yet, make it a copy of one; return whether."""
    data, lines = s.groups.data, s.panes.data
    back = data[g, st.G_BACK]
    touch(s.panes, back)
    if data[g, st.G_MERGED] > 0:
        return False
    for w in range(lines.shape[1]):
        lines[back, w] = lines[line, w]
    return True


@kernel
def _absorb_for_good(s, g, line):
    """Move the first pending pane of a landmark window to the one line that stands for all before."""
    panes = s.panes
    data, lines = s.groups.data, panes.data
    touch(panes, line)
    lines[line, st.L_KEPT] = -1
    lines[line, st.L_LAST] = -1
    head = data[g, st.G_HEAD]
    if head == line:
        return
    touch(panes, head)
    merge(s, head, line, head)
    lines[head, st.L_ROWS] += lines[line, st.L_ROWS]
    lines[head, st.L_PANE] = lines[line, st.L_PANE]
    _unlink_pane(s, g, line)
    release(panes, line)


@kernel
def _unlink_pane(s, g, line):
    """Take a pane out of its group's list."""
    panes = s.panes
    data, lines = s.groups.data, panes.data
    before, after = lines[line, st.L_PREV], lines[line, st.L_NEXT]
    if before >= 0:
        touch(panes, before)
        lines[before, st.L_NEXT] = after
    else:
        data[g, st.G_HEAD] = after
    if after >= 0:
        touch(panes, after)
        lines[after, st.L_PREV] = before
    else:
        data[g, st.G_TAIL] = before


@kernel
def count_row(s, g, row, m):
    """Count the values of a kept row that enters the window (m = 1) or leaves it (m = -1), and keep them in order."""
    data, words = s.groups.data, s.kept.data
    for d in range(s.distincts.shape[0]):
        x = words[row, 1 + s.distincts[d, 0]]
        if x == _NULL:
            continue
        if add_value(s.entries, s.entry_slots, g, d, x) if m > 0 else remove_value(s.entries, s.entry_slots, g, d, x):
            add_distinct(s.groups, g, s.distincts[d, 1], s.distincts[d, 2], x, m)
    for d in range(s.orders.shape[0]):
        x, word = words[row, 1 + s.orders[d, 0]], s.orders[d, 1]
        if x != _NULL:
            data[g, word] = insert(s.nodes, data[g, word], x) if m > 0 else remove(s.nodes, data[g, word], x)


@kernel
def evict_panes(s, g, least):
    """Remove the panes before `least`."""
    panes, kept = s.panes, s.kept
    data, lines = s.groups.data, panes.data
    head = data[g, st.G_HEAD]
    if head < 0 or lines[head, st.L_PANE] >= least:
        return
    activate(s, g)
    used_up = False
    pending = data[g, st.G_PENDING]
    while head >= 0 and head != pending and lines[head, st.L_PANE] < least:
        after = lines[head, st.L_NEXT]
        if head == data[g, st.G_MIDDLE]:
            used_up = True
            data[g, st.G_MIDDLE] = -1 if after == pending else after
        data[g, st.G_FIRST] += lines[head, st.L_ROWS]
        data[g, st.G_SOLID] -= lines[head, st.L_ROWS]
        row = lines[head, st.L_KEPT]
        while row >= 0:
            following = kept.data[row, 0]
            count_row(s, g, row, -1)
            release(kept, row)
            row = following
        release(panes, head)
        head = after
    data[g, st.G_HEAD] = head
    if head < 0:
        data[g, st.G_TAIL] = -1
        data[g, st.G_STATE] = st.IDLE
        if s.plan[st.P_SINGLE] == 0:
            _unlink_group(s, g)
    else:
        touch(panes, head)
        lines[head, st.L_PREV] = -1
    if data[g, st.G_SOLID] == 0:
        data[g, st.G_MIDDLE] = -1
        data[g, st.G_MERGED] = 0
    elif used_up:
        _turn_back_to_front(s, g)


@kernel
def last_solid(s, g):
    """Return the last pane of front and back, or -1."""
    data = s.groups.data
    pending = data[g, st.G_PENDING]
    return data[g, st.G_TAIL] if pending < 0 else s.panes.data[pending, st.L_PREV]


@kernel
def _turn_back_to_front(s, g):
    """Make the back the front: each pane takes in what follows it."""
    panes = s.panes
    data, lines = s.groups.data, panes.data
    after = last_solid(s, g)
    line = lines[after, st.L_PREV]
    while line >= 0:
        touch(panes, line)
        merge(s, line, after, line)
        after = line
        line = lines[line, st.L_PREV]
    data[g, st.G_MIDDLE] = -1
    data[g, st.G_MERGED] = 0


@kernel
def _unlink_group(s, g):
    """Take a group that has no rows out of its clock's list."""
    clocks, groups = s.clocks, s.groups
    data = groups.data
    c = data[g, st.G_CLOCK]
    touch(clocks, c)
    clocks.data[c, st.C_LIVE] -= 1
    before, after = data[g, st.G_PREV], data[g, st.G_NEXT]
    if before >= 0:
        touch(groups, before)
        data[before, st.G_NEXT] = after
    else:
        clocks.data[c, st.C_GROUPS] = after
    if after >= 0:
        touch(groups, after)
        data[after, st.G_PREV] = before


@kernel
def finish_batch(s, status):
    """End a batch with a status: free the groups that were left without rows."""
    s.scalar[st.S_STATUS] = status
    if s.plan[st.P_SINGLE] == 1:
        return
    groups = s.groups
    data = groups.data
    for n in range(s.scalar[st.S_ACTIVE]):
        g = s.active[n]
        if data[g, st.G_STATE] == st.IDLE:
            touch(groups, g)
            tag = _group_tag(data[g, st.G_CLOCK], data, g, s.keys, s.plan[st.P_KEYS])
            remove_slot(s.group_slots, find_word(s.group_slots, tag, (tag << 32) | (g + 1)))
            release(s.panes, data[g, st.G_BACK])
            data[g, st.G_STATE] = st.FREE
            release(groups, g)


@kernel
def rebuild_groups(s):
    """Rebuild the hash tables of clocks and groups from their lines."""
    clocks, groups, slots, by = s.clocks, s.groups, s.clock_slots, s.by
    for p in range(slots.shape[0]):
        slots[p] = 0
    for c in range(clocks.meta[M_HIGH]):
        h = 0
        for b in range(by.shape[0]):
            h = (h ^ clocks.data[c, st.C_FIELDS + b]) * _K
            h ^= h >> 29
        put_word(slots, ((h * _K) >> 32) & _LOW, c)
    slots = s.group_slots
    for p in range(slots.shape[0]):
        slots[p] = 0
    if s.plan[st.P_SINGLE] == 0:
        data = groups.data
        for g in range(groups.meta[M_HIGH]):
            if data[g, st.G_STATE] != st.FREE:
                put_word(slots, _group_tag(data[g, st.G_CLOCK], data, g, s.keys, s.plan[st.P_KEYS]), g)
