"""Check the lines of a restored image, so that following their links stays inside the stores, and ends.

Each line is free or linked once: `seen` is marked when it is found, and a line that is found twice is refused. What is
kept of single rows must be what the counted and the ordered values are made of, as each is looked for when its row
leaves. Cost: a few steps per line.
"""

from __future__ import annotations

import numpy as np

from whence.engine.streams.windows.kernels import window_acc as acc
from whence.engine.streams.windows.kernels import window_state as st
from whence.engine.streams.windows.kernels.window_distinct import E_COUNT, E_GROUP, E_VALUE, E_WHICH, find_entry
from whence.engine.streams.windows.kernels.window_lines import M_FREE, M_HIGH, M_SPARE
from whence.engine.streams.windows.kernels.window_order import N_COUNT, N_LEFT, N_PARENT, N_RIGHT, N_SIZE, N_VALUE
from whence.engine.streams.windows.kernels.window_panes import last_closed_pane
from whence.model.jit import allocating, kernel

_NULL = -(2**63)
_FARTHEST = 1 << 62  # no pane has a larger number


@kernel
def _mark_free(store, reserved, seen):
    """Mark the free lines; False if their number is wrong, or one is twice among them."""
    meta, data = store.meta, store.data
    i = meta[M_FREE]
    for _ in range(meta[M_SPARE]):
        if i < reserved or i >= meta[M_HIGH] or seen[i]:
            return False
        seen[i] = 1
        i = data[i, 0]
    return i == -1


@kernel
def _mark(store, i, seen):
    """Mark a line; False if it does not exist, or was found before."""
    if i < 0 or i >= store.meta[M_HIGH] or seen[i]:
        return False
    seen[i] = 1
    return True


@kernel
def _check_labels(s, line):
    """Tell whether the interned values of a pane have labels."""
    for a in range(s.accs.shape[0]):
        if s.accs[a, acc.A_KIND] == acc.LEAST or s.accs[a, acc.A_KIND] == acc.MOST:
            code = s.panes.data[line, s.accs[a, acc.A_WORD]]
            if code != _NULL and (code < 0 or code >= s.labels.shape[0]):
                return False
    return True


@kernel
def _check_panes(s, g, done, seen):
    """Check the panes of a group, in order, the line of its back, and its number of rows."""
    panes = s.panes
    data, words = s.groups.data, panes.data
    if not _mark(panes, data[g, st.G_BACK], seen):
        return False
    if data[g, st.G_MERGED] > 0 and not _check_labels(s, data[g, st.G_BACK]):
        return False
    line, before, rows, solid, back = data[g, st.G_HEAD], -1, 0, 0, 0
    middle, pending = data[g, st.G_MIDDLE] < 0, False
    while line != -1:
        if not _mark(panes, line, seen) or words[line, st.L_PREV] != before or words[line, st.L_ROWS] < 1:
            return False
        if before >= 0 and words[line, st.L_PANE] <= words[before, st.L_PANE]:
            return False
        if not _check_labels(s, line):
            return False
        pending |= line == data[g, st.G_PENDING]
        if pending == (words[line, st.L_PANE] <= done):
            return False
        middle |= line == data[g, st.G_MIDDLE]
        rows += words[line, st.L_ROWS]
        if rows > data[g, st.G_COUNT]:
            return False
        if not pending:
            solid += words[line, st.L_ROWS]
            back += middle and data[g, st.G_MIDDLE] >= 0
        before, line = line, words[line, st.L_NEXT]
    if not middle or pending != (data[g, st.G_PENDING] >= 0) or back != data[g, st.G_MERGED]:
        return False
    if before != data[g, st.G_TAIL] or solid != data[g, st.G_SOLID]:
        return False
    if s.plan[st.P_LANDMARK] == 1 and (
        back or (solid and data[g, st.G_PENDING] not in (-1, words[data[g, st.G_HEAD], st.L_NEXT]))
    ):
        return False
    return data[g, st.G_COUNT] - data[g, st.G_FIRST] == rows


@kernel
def _check_tree(nodes, root, seen):
    """Check a search tree: walk it in order, by parents."""
    data = nodes.data
    if root == -1:
        return True
    if not _mark(nodes, root, seen) or data[root, N_PARENT] != -1:
        return False
    at, came, value, some = root, -1, 0, False
    while at >= 0:
        left, right = data[at, N_LEFT], data[at, N_RIGHT]
        if came == data[at, N_PARENT] and left != -1:
            if not _mark(nodes, left, seen) or data[left, N_PARENT] != at:
                return False
            at, came = left, at
            continue
        if came == data[at, N_PARENT] or came == left:
            if data[at, N_COUNT] < 1 or data[at, N_VALUE] == _NULL or (some and data[at, N_VALUE] <= value):
                return False
            value, some = data[at, N_VALUE], True
            if right != -1:
                if not _mark(nodes, right, seen) or data[right, N_PARENT] != at:
                    return False
                at, came = right, at
                continue
        size = data[at, N_COUNT] + (data[left, N_SIZE] if left >= 0 else 0) + (data[right, N_SIZE] if right >= 0 else 0)
        if data[at, N_SIZE] != size:
            return False
        at, came = data[at, N_PARENT], at
    return True


@kernel
def _node_of(nodes, root, value):
    """Return the node of a value, or -1."""
    data = nodes.data
    while root >= 0 and data[root, N_VALUE] != value:
        root = data[root, N_LEFT if value < data[root, N_VALUE] else N_RIGHT]
    return root


@kernel
def _check_rows(s, g, seen, counted, ordered):
    """Check the kept rows of a group's panes: count off their values that are in the window, and the waiting rows."""
    panes, kept = s.panes, s.kept
    data, words = s.groups.data, kept.data
    pane, solid = data[g, st.G_HEAD], True
    while pane >= 0:
        solid &= pane != data[g, st.G_PENDING]
        row, last, count = panes.data[pane, st.L_KEPT], -1, 0
        while row != -1:
            if not _mark(kept, row, seen):
                return False
            if solid and not _count_off(s, g, row, counted, ordered):
                return False
            last, row, count = row, words[row, 0], count + 1
        expected = panes.data[pane, st.L_ROWS] if s.plan[st.P_KEEPS] == 1 or not solid else 0
        if last != panes.data[pane, st.L_LAST] or count != expected:
            return False
        s.scalar[st.S_WAITING] += 0 if solid else count
        pane = panes.data[pane, st.L_NEXT]
    return True


@kernel
def _count_off(s, g, row, counted, ordered):
    """Count off the values of a row; False if one is missing."""
    data, words = s.groups.data, s.kept.data
    for d in range(s.distincts.shape[0]):
        x = words[row, 1 + s.distincts[d, 0]]
        if x != _NULL:
            e = find_entry(s.entries, s.entry_slots, g, d, x)
            if e < 0:
                return False
            counted[e] -= 1
    for d in range(s.orders.shape[0]):
        x = words[row, 1 + s.orders[d, 0]]
        if x != _NULL:
            n = _node_of(s.nodes, data[g, s.orders[d, 1]], x)
            if n < 0:
                return False
            ordered[n] -= 1
    return True


@kernel
def _check_group(s, c, g, seen, seen_panes):
    """Check a group of a clock, and its panes."""
    data = s.groups.data
    if not _mark(s.groups, g, seen) or data[g, st.G_CLOCK] != c or data[g, st.G_BATCH] > s.scalar[st.S_BATCH]:
        return False
    if data[g, st.G_STATE] != (st.LISTED if data[g, st.G_HEAD] >= 0 else st.IDLE):
        return False
    done = s.clocks.data[c, st.C_DONE]
    return data[g, st.G_FIRST] >= 0 and _check_panes(s, g, done, seen_panes)


@kernel
def _check_clock(s, c, seen, seen_panes):
    """Check a clock, and its list of groups."""
    clock, data = s.clocks.data, s.groups.data
    if clock[c, st.C_OFFSET] < 0 or clock[c, st.C_OFFSET] >= max(1, s.plan[st.P_EVERY]):
        return False
    for word in (st.C_LAST, st.C_TOP, st.C_PANE):
        if clock[c, word] > _FARTHEST or clock[c, word] < -_FARTHEST:
            return False
    if clock[c, st.C_SEEN] == 1 and clock[c, st.C_DONE] != last_closed_pane(s.plan, clock[c, st.C_LAST]):
        return False
    g = clock[c, st.C_GROUPS]
    if s.plan[st.P_SINGLE] == 1:
        return g == -1 or _check_group(s, c, g, seen, seen_panes)
    before, live = -1, 0
    while g != -1:
        if not _check_group(s, c, g, seen, seen_panes):
            return False
        if data[g, st.G_STATE] != st.LISTED or data[g, st.G_PREV] != before:
            return False
        before, g, live = g, data[g, st.G_NEXT], live + 1
    return live == clock[c, st.C_LIVE]


@kernel
def _all(seen):
    """Tell whether all lines are marked."""
    for i in range(seen.shape[0]):
        if seen[i] == 0:
            return False
    return True


@allocating
def is_consistent(state: int) -> bool:
    """Tell whether all lines are consistent. The hash tables have been built from them."""
    s = st.state(state)
    clocks, groups, panes, kept, entries, nodes = s.clocks, s.groups, s.panes, s.kept, s.entries, s.nodes
    high = groups.meta[M_HIGH]
    seen_groups, seen_panes = np.zeros(high, np.int64), np.zeros(panes.meta[M_HIGH], np.int64)
    seen_kept, seen_nodes = np.zeros(kept.meta[M_HIGH], np.int64), np.zeros(nodes.meta[M_HIGH], np.int64)
    seen = np.zeros(entries.meta[M_HIGH], np.int64)
    seen_panes[0] = 1  # scratch
    if clocks.meta[M_FREE] != -1 or clocks.meta[M_SPARE] != 0 or (s.by.shape[0] == 0 and clocks.meta[M_HIGH] > 1):
        return False
    if not (_mark_free(groups, 0, seen_groups) and _mark_free(panes, 1, seen_panes) and _mark_free(kept, 0, seen_kept)):
        return False
    if not (_mark_free(entries, 0, seen) and _mark_free(nodes, 0, seen_nodes)):
        return False
    for g in range(high):
        if (groups.data[g, st.G_STATE] == st.FREE) != (seen_groups[g] == 1):
            return False
    for c in range(clocks.meta[M_HIGH]):
        if not _check_clock(s, c, seen_groups, seen_panes):
            return False
    if not (_all(seen_groups) and _all(seen_panes)):
        return False
    counted, ordered = np.zeros(seen.shape[0], np.int64), np.zeros(seen_nodes.shape[0], np.int64)
    for e in range(seen.shape[0]):
        line = entries.data[e]
        if (line[E_COUNT] == 0) != (seen[e] == 1) or line[E_COUNT] < 0:
            return False
        counted[e] = line[E_COUNT]
        g = line[E_GROUP]
        if seen[e] == 0 and (g < 0 or g >= high or groups.data[g, st.G_STATE] == st.FREE or line[E_VALUE] == _NULL):
            return False
        if seen[e] == 0 and (line[E_WHICH] < 0 or line[E_WHICH] >= s.distincts.shape[0]):
            return False
    for g in range(high):
        if groups.data[g, st.G_STATE] != st.FREE:
            for d in range(s.orders.shape[0]):
                if not _check_tree(nodes, groups.data[g, s.orders[d, 1]], seen_nodes):
                    return False
    if not _all(seen_nodes):
        return False
    for n in range(nodes.meta[M_HIGH]):
        ordered[n] = nodes.data[n, N_COUNT]
    i = nodes.meta[M_FREE]
    while i >= 0:
        ordered[i] = 0
        i = nodes.data[i, 0]
    for g in range(high):
        if groups.data[g, st.G_STATE] != st.FREE:
            if s.columns.shape[0] and not _check_rows(s, g, seen_kept, counted, ordered):
                return False
    if s.plan[st.P_KEEPS] == 0:
        return bool(_all(seen_kept))
    for e in range(counted.shape[0]):
        if counted[e] != 0:
            return False
    for n in range(ordered.shape[0]):
        if ordered[n] != 0:
            return False
    return bool(_all(seen_kept))
