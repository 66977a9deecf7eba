"""Clocks, groups and panes: finding them, adding rows, and letting panes go.

A group's panes are two stacks. Each of the front ones stands for itself and all front ones after it, so that the
oldest can go; the back ones stand for themselves, and one line for all of them but the last. When the front is used up,
the back becomes the front, each pane taking in what follows it. So a pane is combined a few times in its life, whatever
the window's size, and nothing is ever subtracted.
"""

from __future__ import annotations

from whence.engine.kernels import window_acc as acc
from whence.engine.kernels import window_state as st
from whence.engine.kernels.table import find_word, hash_key, put_word, remove_slot
from whence.engine.kernels.window_distinct import come, flip, go
from whence.engine.kernels.window_lines import M_HIGH, give, take, touch
from whence.engine.kernels.window_order import insert, remove
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
    data[c, st.C_NEWEST] = _NULL
    data[c, st.C_LIMIT] = _NULL
    data[c, st.C_OFFSET] = 0
    for b in range(by.shape[0]):
        data[c, st.C_FIELDS + b] = rows[i, by[b]]
    slots[p] = (tag << 32) | (c + 1)
    return c


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
    data[g, st.G_BACK] = take(panes)
    data[g, st.G_KEPT] = -1
    data[g, st.G_NEWEST] = -1
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
        if s.plan[st.P_LANDMARK] == 1 and carried > 1:
            carried = 1
        data[g, st.G_CARRIED] = carried
        data[g, st.G_BASE] = data[g, st.G_COUNT] - carried
        s.active[s.scalar[st.S_ACTIVE]] = g
        s.scalar[st.S_ACTIVE] += 1


@kernel
def add(s, clocks, groups, panes, kept, entries, nodes, g, pane, rows, first, end, bits, floats, words, sums):
    """Add rows[first:end], all of one pane, to their group."""
    activate(s, groups, g)
    data = groups.data
    lines = panes.data
    accs = s.accs
    tail = data[g, st.G_TAIL]
    fresh = tail < 0 or lines[tail, st.L_PANE] != pane
    if fresh:
        line = take(panes)
        if data[g, st.G_MIDDLE] >= 0:
            back = data[g, st.G_BACK]
            touch(panes, back)
            if data[g, st.G_MERGED] == 0:
                for w in range(lines.shape[1]):
                    lines[back, w] = lines[tail, w]
            else:
                acc.combine(lines, panes.real, accs, back, tail, back, s.labels)
            data[g, st.G_MERGED] += 1
        else:
            data[g, st.G_MIDDLE] = line
        if tail >= 0:
            touch(panes, tail)
            lines[tail, st.L_NEXT] = line
        else:
            data[g, st.G_HEAD] = line
        lines[line, st.L_NEXT] = -1
        lines[line, st.L_PREV] = tail
        lines[line, st.L_PANE] = pane
        lines[line, st.L_ARRIVED] = s.scalar[st.S_ARRIVED]
        lines[line, st.L_ROWS] = 0
        data[g, st.G_TAIL] = line
        tail = line
        if data[g, st.G_STATE] == st.IDLE:
            data[g, st.G_STATE] = st.LISTED
            if s.plan[st.P_SINGLE] == 0:
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
    touch(panes, tail)
    lines[tail, st.L_ROWS] += end - first
    data[g, st.G_COUNT] += end - first
    s.scalar[st.S_ARRIVED] += end - first
    acc.add_rows(lines, panes.real, tail, fresh, accs, rows, first, end, s.labels, bits, floats)
    if s.columns.shape[0]:
        for i in range(first, end):
            _keep(s, groups, kept, entries, nodes, g, rows, i, bits, floats, words, sums)


@kernel
def _keep(s, groups, kept, entries, nodes, g, rows, i, bits, floats, words, sums):
    """What is more than adding up: values counted, values in order, and the row itself if it will go."""
    data = groups.data
    columns = s.columns
    if s.plan[st.P_KEEPS] == 1:
        line = take(kept)
        kept.data[line, 0] = -1
        for c in range(columns.shape[0]):
            kept.data[line, 1 + c] = rows[i, columns[c]]
        if data[g, st.G_NEWEST] >= 0:
            touch(kept, data[g, st.G_NEWEST])
            kept.data[data[g, st.G_NEWEST], 0] = line
        else:
            data[g, st.G_KEPT] = line
        data[g, st.G_NEWEST] = line
    for d in range(s.distincts.shape[0]):
        x = rows[i, columns[s.distincts[d, 0]]]
        if x != _NULL and come(entries, s.entry_slots, g, d, x):
            flip(data, g, s.distincts[d, 1], s.distincts[d, 2], x, 1, bits, floats, words, sums)
    for d in range(s.orders.shape[0]):
        x = rows[i, columns[s.orders[d, 0]]]
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
    gone = 0
    while head >= 0 and lines[head, st.L_PANE] < least:
        if head == data[g, st.G_MIDDLE]:
            used_up = True
            data[g, st.G_MIDDLE] = lines[head, st.L_NEXT]
        gone += lines[head, st.L_ROWS]
        after = lines[head, st.L_NEXT]
        give(panes, head)
        head = after
    data[g, st.G_HEAD] = head
    data[g, st.G_FIRST] += gone
    if head < 0:
        data[g, st.G_TAIL] = -1
        data[g, st.G_MIDDLE] = -1
        data[g, st.G_MERGED] = 0
        data[g, st.G_STATE] = st.IDLE
        if s.plan[st.P_SINGLE] == 0:
            _unlist(clocks, groups, g)
    else:
        touch(panes, head)
        lines[head, st.L_PREV] = -1
        if used_up:
            _turn(s, groups, panes, g)
    if s.plan[st.P_KEEPS] == 1:
        for _ in range(gone):
            _forget(s, groups, kept, entries, nodes, g, bits, floats, words, sums)


@kernel
def _turn(s, groups, panes, g):
    """The back becomes the front."""
    data = groups.data
    lines = panes.data
    after = data[g, st.G_TAIL]
    line = lines[after, st.L_PREV]
    while line >= 0:
        touch(panes, line)
        acc.combine(lines, panes.real, s.accs, line, after, line, s.labels)
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
def _forget(s, groups, kept, entries, nodes, g, bits, floats, words, sums):
    """The oldest kept row goes."""
    data = groups.data
    line = data[g, st.G_KEPT]
    data[g, st.G_KEPT] = kept.data[line, 0]
    if data[g, st.G_KEPT] < 0:
        data[g, st.G_NEWEST] = -1
    for d in range(s.distincts.shape[0]):
        x = kept.data[line, 1 + s.distincts[d, 0]]
        if x != _NULL and go(entries, s.entry_slots, g, d, x):
            flip(data, g, s.distincts[d, 1], s.distincts[d, 2], x, -1, bits, floats, words, sums)
    for d in range(s.orders.shape[0]):
        x = kept.data[line, 1 + s.orders[d, 0]]
        if x != _NULL:
            data[g, s.orders[d, 1]] = remove(nodes, data[g, s.orders[d, 1]], x)
    give(kept, line)


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
