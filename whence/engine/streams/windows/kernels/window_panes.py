"""Clocks, groups and panes: finding them, and letting panes go. `window_rows.py` adds rows to them.

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
from whence.engine.streams.windows.kernels.window_distinct import come, flip, go
from whence.engine.streams.windows.kernels.window_lines import M_HIGH, give, take, touch
from whence.engine.streams.windows.kernels.window_order import insert, remove
from whence.model.jit import kernel

_LOW = 0xFFFFFFFF
_NULL = -(2**63)
_K = -7046029254386353131


@kernel
def clock_of(s, clocks, rows, i):
    """The clock of a row, new if there is none."""
    by = s.by
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
    c = take(clocks)
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
def done_with(plan, last):
    """The last pane of the last window that has closed, if the watermark is in the pane `last`."""
    if plan[st.P_LANDMARK] == 1:
        return last - 1
    stride, depth = plan[st.P_STRIDE], plan[st.P_DEPTH]
    k = -((depth - last) // stride) - 1
    if k < 0 and (plan[st.P_KIND] == st.ROWS or plan[st.P_FROM_FIRST] == 1):
        return st.NEVER
    return stride * k + depth


@kernel
def _group_tag(h, data, i, cols, first):
    """The hash of a clock and keys, which stand at `cols` of a row, or from a word on if there are none."""
    for k in range(cols.shape[0]):
        h = (h ^ data[i, cols[k] if first < 0 else first + k]) * _K
        h ^= h >> 29
    return ((h * _K) >> 32) & _LOW


@kernel
def group_of(s, clocks, groups, panes, c, rows, i):
    """The group of a row of a clock, new if there is none."""
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
    g = take(groups)
    for w in range(data.shape[1]):
        data[g, w] = 0
    data[g, st.G_CLOCK] = c
    data[g, st.G_STATE] = st.IDLE
    data[g, st.G_HEAD] = -1
    data[g, st.G_TAIL] = -1
    data[g, st.G_MIDDLE] = -1
    data[g, st.G_PENDING] = -1
    data[g, st.G_BACK] = take(panes)
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
def activate(s, groups, g):
    """Before anything happens to a group."""
    touch(groups, g)
    data = groups.data
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
def merge(s, panes, left, right, into):
    """Write what two lines of panes stand for, the left ones before the right ones, to a line."""
    lines = panes.data
    lines[into, st.L_ARRIVED] = min(lines[left, st.L_ARRIVED], lines[right, st.L_ARRIVED])
    acc.combine(lines, panes.real, s.accs, left, right, into, s.labels)


@kernel
def absorb(s, groups, panes, kept, entries, nodes, g, upto, bits, floats, words, sums):
    """Move pending panes up to a number to the back, and the values of their rows into the window."""
    data = groups.data
    lines = panes.data
    line = data[g, st.G_PENDING]
    if line < 0 or lines[line, st.L_PANE] > upto:
        return
    activate(s, groups, g)
    while line >= 0 and lines[line, st.L_PANE] <= upto:
        after = lines[line, st.L_NEXT]
        data[g, st.G_SOLID] += lines[line, st.L_ROWS]
        row = lines[line, st.L_KEPT]
        while row >= 0:
            following = kept.data[row, 0]
            s.scalar[st.S_WAITING] -= 1
            enter(s, groups, kept, entries, nodes, g, row, bits, floats, words, sums)
            if s.plan[st.P_KEEPS] == 0:
                give(kept, row)
            row = following
        if s.plan[st.P_LANDMARK] == 1:
            _absorb_for_good(s, groups, panes, g, line)
        else:
            back = data[g, st.G_BACK]
            touch(panes, back)
            if data[g, st.G_MERGED] == 0:
                for w in range(lines.shape[1]):
                    lines[back, w] = lines[line, w]
            else:
                merge(s, panes, back, line, back)
            data[g, st.G_MERGED] += 1
            if data[g, st.G_MIDDLE] < 0:
                data[g, st.G_MIDDLE] = line
        line = after
    data[g, st.G_PENDING] = line


@kernel
def _absorb_for_good(s, groups, panes, g, line):
    """Move the first pending pane of a landmark window to the one line that stands for all before."""
    data = groups.data
    lines = panes.data
    touch(panes, line)
    lines[line, st.L_KEPT] = -1
    lines[line, st.L_LAST] = -1
    head = data[g, st.G_HEAD]
    if head == line:
        return
    touch(panes, head)
    merge(s, panes, head, line, head)
    lines[head, st.L_ROWS] += lines[line, st.L_ROWS]
    lines[head, st.L_PANE] = lines[line, st.L_PANE]
    unlink(groups, panes, g, line)
    give(panes, line)


@kernel
def unlink(groups, panes, g, line):
    """Take a pane out of its group's list."""
    data = groups.data
    lines = panes.data
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
def enter(s, groups, kept, entries, nodes, g, row, bits, floats, words, sums):
    """Count the values of a kept row, and put them in order: it is in the window now."""
    data = groups.data
    for d in range(s.distincts.shape[0]):
        x = kept.data[row, 1 + s.distincts[d, 0]]
        if x != _NULL and come(entries, s.entry_slots, g, d, x):
            flip(data, g, s.distincts[d, 1], s.distincts[d, 2], x, 1, bits, floats, words, sums)
    for d in range(s.orders.shape[0]):
        x = kept.data[row, 1 + s.orders[d, 0]]
        if x != _NULL:
            data[g, s.orders[d, 1]] = insert(nodes, data[g, s.orders[d, 1]], x)


@kernel
def evict(s, clocks, groups, panes, kept, entries, nodes, g, least, bits, floats, words, sums):
    """Let the panes before `least` go."""
    data = groups.data
    lines = panes.data
    head = data[g, st.G_HEAD]
    if head < 0 or lines[head, st.L_PANE] >= least:
        return
    activate(s, groups, g)
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
            _forget(s, groups, kept, entries, nodes, g, row, bits, floats, words, sums)
            row = following
        give(panes, head)
        head = after
    data[g, st.G_HEAD] = head
    if head < 0:
        data[g, st.G_TAIL] = -1
        data[g, st.G_STATE] = st.IDLE
        if s.plan[st.P_SINGLE] == 0:
            _unlist(clocks, groups, g)
    else:
        touch(panes, head)
        lines[head, st.L_PREV] = -1
    if data[g, st.G_SOLID] == 0:
        data[g, st.G_MIDDLE] = -1
        data[g, st.G_MERGED] = 0
    elif used_up:
        _turn(s, groups, panes, g)


@kernel
def last_solid(groups, panes, g):
    """The last pane of front and back, or -1."""
    pending = groups.data[g, st.G_PENDING]
    return groups.data[g, st.G_TAIL] if pending < 0 else panes.data[pending, st.L_PREV]


@kernel
def _turn(s, groups, panes, g):
    """The back becomes the front."""
    data = groups.data
    lines = panes.data
    after = last_solid(groups, panes, g)
    line = lines[after, st.L_PREV]
    while line >= 0:
        touch(panes, line)
        merge(s, panes, line, after, line)
        after = line
        line = lines[line, st.L_PREV]
    data[g, st.G_MIDDLE] = -1
    data[g, st.G_MERGED] = 0


@kernel
def _unlist(clocks, groups, g):
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
def _forget(s, groups, kept, entries, nodes, g, row, bits, floats, words, sums):
    """Let a kept row go."""
    data = groups.data
    for d in range(s.distincts.shape[0]):
        x = kept.data[row, 1 + s.distincts[d, 0]]
        if x != _NULL and go(entries, s.entry_slots, g, d, x):
            flip(data, g, s.distincts[d, 1], s.distincts[d, 2], x, -1, bits, floats, words, sums)
    for d in range(s.orders.shape[0]):
        x = kept.data[row, 1 + s.orders[d, 0]]
        if x != _NULL:
            data[g, s.orders[d, 1]] = remove(nodes, data[g, s.orders[d, 1]], x)
    give(kept, row)


@kernel
def sweep(s, groups, panes):
    """After a batch: groups that were left without rows are free."""
    if s.plan[st.P_SINGLE] == 1:
        return
    data = groups.data
    for n in range(s.scalar[st.S_ACTIVE]):
        g = s.active[n]
        if data[g, st.G_STATE] == st.IDLE:
            touch(groups, g)
            tag = _group_tag(data[g, st.G_CLOCK], data, g, s.keys, s.plan[st.P_KEYS])
            remove_slot(s.group_slots, find_word(s.group_slots, tag, (tag << 32) | (g + 1)))
            give(panes, data[g, st.G_BACK])
            data[g, st.G_STATE] = st.FREE
            give(groups, g)


@kernel
def find_groups(s, clocks, groups):
    """Make the tables of clocks and groups anew."""
    slots = s.clock_slots
    by = s.by
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
