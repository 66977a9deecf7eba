"""Pairs of rows with equal keys that subscriptions select: who is affected by a row, by which rows of the other side.

A **group** of subscriptions has a point that is in all their intervals. Of a run (`runs.py`), only the rows next to the
point tell who is affected: the interval of a subscription holds a row exactly if it holds one of these two
(stabbing-set index).

What is asked of the interval of an entry, or of the bounds of many, has one form for all plans: `low <= reach` counts
one if there is a reach, `high >= start` counts one if there is a start, and `need` says how many must hold. For a group
the reach is the row below its point, the start the row above, and one is enough; elsewhere both are needed. Entries and
nodes are flat: the numbers of line i begin at `i * width`.
"""

from __future__ import annotations

import numpy as np

from whence.engine.matching.kernels.forest import BIN, BLOCK, FIRST, LIVE, NODE, ROOT, SIZE, Flags
from whence.engine.matching.kernels.histogram import Heights
from whence.engine.matching.kernels.routing import cheapest
from whence.engine.matching.kernels.runs import count_rows, first_value, line_at, run_of, step_back, step_on, value_of
from whence.model.codes import Codes
from whence.model.jit import allocating, kernel

HOTSPOT, SELECT, JOIN, SCAN, ROUTED = range(5)


@kernel
def holds_point(flat: Codes, at: int, dims: int, point: Codes) -> bool:
    """Whether bounds hold a point in all dimensions before the last tested one."""
    for d in range(point.shape[0]):
        if flat[at + d] > point[d] or flat[at + dims + d] < point[d]:
            return False
    return True


@kernel
def reaches(flat: Codes, at: int, high: int, reach: int, has_reach: int, start: int, has_start: int, need: int) -> bool:
    """Whether enough of the interval of [low at `at`, high at `high`] is as it is asked."""
    return bool(int(has_reach and flat[at] <= reach) + int(has_start and flat[high] >= start) >= need)


@kernel
def has_row(
    store: Codes, size: Codes, top: Codes, low: int, high: int, column: int, own: int, mode: int, first: int, last: int
) -> bool:
    """Whether a run has a row whose value is in an interval."""
    at = first_value(store, size, top, low, high, column, own, mode, first)
    return bool(at < high and value_of(store[line_at(top, at), column], own, mode) <= last)


@kernel
def around(
    store: Codes, size: Codes, top: Codes, low: int, high: int, column: int, own: int, mode: int, point: int
) -> tuple[int, int, int, int]:
    """The values of a run next to a point: the last one below it, whether there is one, the first one from it on, and
    whether there is that."""
    at = first_value(store, size, top, low, high, column, own, mode, point)
    below = 0
    above = 0
    if at < high:
        above = value_of(store[line_at(top, at), column], own, mode)
    if at > low:
        below = value_of(store[line_at(top, step_back(size, top, at)), column], own, mode)
    return below, int(at > low), above, int(at < high)


@kernel
def visit(
    entries: Codes, width: int, alive: Flags, nodes: Codes, tree: Codes, dims: int, point: Codes, q: int,
    reach: int, has_reach: int, start: int, has_start: int, need: int,
    stack: Codes, levels: Codes, out: Codes, n: int,
) -> int:  # fmt: skip
    """Write down the entries of a tree that hold a point and reach, from place n on; -1 if there is no room for more
    of them. Its root does."""
    tested = point.shape[0]
    depth = 0
    levels[0, 0] = tree[SIZE]
    first = tree[FIRST]
    node = tree[NODE]
    while levels[depth, 0] > 1 or depth == 0:
        depth += 1
        levels[depth, 0] = (levels[depth - 1, 0] + BLOCK - 1) // BLOCK
        levels[depth, 1] = node
        node += levels[depth, 0]
    stack[0, 0] = depth
    stack[0, 1] = 0
    waiting = 1
    while waiting:
        waiting -= 1
        level = stack[waiting, 0]
        begin = stack[waiting, 1] * BLOCK
        end = min(begin + BLOCK, levels[level - 1, 0])
        if level > 1:
            at = (levels[level - 1, 1] + begin) * 2 * dims
            for child in range(begin, end):
                low = at + tested
                if holds_point(nodes, at, dims, point) and reaches(
                    nodes, low, low + dims, reach, has_reach, start, has_start, need
                ):
                    stack[waiting, 0] = level - 1
                    stack[waiting, 1] = child
                    waiting += 1
                at += 2 * dims
            continue
        if n + BLOCK > out.shape[0]:
            return -1
        at = (first + begin) * width
        for i in range(first + begin, first + end):
            low = at + tested
            if (
                alive[i]
                and holds_point(entries, at, dims, point)
                and reaches(entries, low, low + dims, reach, has_reach, start, has_start, need)
            ):
                out[n, 0] = q
                out[n, 1] = i
                n += 1
            at += width
    return n


@kernel
def with_rows(
    entries: Codes, width: int, dims: int, tested: int, out: Codes, begin: int, n: int,
    store: Codes, size: Codes, top: Codes, low: int, high: int, column: int, own: int, mode: int,
) -> int:  # fmt: skip
    """Leave out what has been written down from `begin` on and has no row of a run in its interval."""
    kept = begin
    for p in range(begin, n):
        at = out[p, 1] * width + tested
        if has_row(store, size, top, low, high, column, own, mode, entries[at], entries[at + dims]):
            out[kept, 0] = out[p, 0]
            out[kept, 1] = out[p, 1]
            kept += 1
    return kept


@kernel
def beyond(entries: Codes, width: int, tested: int, out: Codes, begin: int, n: int, before: int) -> int:
    """Leave out what has been written down from `begin` on and begins at or below a value."""
    kept = begin
    for p in range(begin, n):
        if entries[out[p, 1] * width + tested] > before:
            out[kept, 0] = out[p, 0]
            out[kept, 1] = out[p, 1]
            kept += 1
    return kept


@allocating
def with_room(out: Codes, n: int, more: int) -> Codes:
    """Return an array with the first n pairs and room for more, twice as large at least."""
    grown = np.empty((max(2 * out.shape[0], n + more), 2), np.int64)
    grown[:n] = out[:n]
    return grown


@allocating
def join_first(
    entries: Codes, width: int, alive: Flags, nodes: Codes, trees: Codes, used: Codes, dims: int, point: Codes, q: int,
    store: Codes, size: Codes, top: Codes, low: int, high: int, column: int, own: int, mode: int,
    stack: Codes, levels: Codes, out: Codes, n: int,
) -> tuple[Codes, int]:  # fmt: skip
    """Find, for each row of a run, the entries that hold the event and the row, and not the row before it."""
    tested = point.shape[0]
    before = 0
    has_before = False
    at = low
    while at < high:
        value = value_of(store[line_at(top, at), column], own, mode)
        at = step_on(size, top, at)
        if has_before and value == before:
            continue
        t = 0
        while t < used[2]:
            tree = trees[t]
            root = tree[ROOT] * 2 * dims
            if (
                tree[LIVE]
                and holds_point(nodes, root, dims, point)
                and reaches(nodes, root + tested, root + tested + dims, value, 1, value, 1, 2)
            ):
                done = visit(
                    entries, width, alive, nodes, tree, dims, point, q, value, 1, value, 1, 2, stack, levels, out, n
                )
                if done < 0:
                    out = with_room(out, n, 0)
                    continue
                n = beyond(entries, width, tested, out, n, done, before) if has_before else done
            t += 1
        before = value
        has_before = True
    return out, n


@kernel
def scan(
    entries: Codes, width: int, alive: Flags, trees: Codes, used: Codes, dims: int, point: Codes, q: int,
    out: Codes, n: int,
) -> int:  # fmt: skip
    """Write down all entries that hold a point."""
    for t in range(used[2]):
        first = trees[t, FIRST]
        for i in range(first, first + trees[t, SIZE]):
            if alive[i] and holds_point(entries, i * width, dims, point):
                out[n, 0] = q
                out[n, 1] = i
                n += 1
    return n


@allocating
def affected(
    entry_lines: Codes, alive: Flags, node_lines: Codes, trees: Codes, used: Codes, dims: int, stabbed: Codes,
    points: Codes, keys: Codes, owns: Codes, plans: Codes,
    costs: Heights, breaks: Codes, counts: Codes, means: Heights, ratios: Heights,
    store: Codes, size: Codes, top: Codes, meta: Codes, column: int, mode: int, out: Codes,
) -> tuple[Codes, int]:  # fmt: skip
    """All pairs (event, entry) of an event and a subscription that gets or loses rows by it: in the first lines of
    `out`, or of a larger array; and how many there are.

    `stabbed` has the point of each bin, `plans` says how each event is processed: HOTSPOT takes the bins from 1 on as
    groups, and selects first in bin 0; SELECT finds the entries that hold the event, then looks for rows; JOIN finds,
    for each row, the entries that hold the event and the row; SCAN goes through all entries. ROUTED is replaced by the
    cheapest of them (`routing.py`), where there are rows to join."""
    entries = entry_lines.reshape(-1)
    nodes = node_lines.reshape(-1)
    width = entry_lines.shape[1]
    stack = np.empty((256, 2), np.int64)
    levels = np.empty((18, 2), np.int64)
    tested = points.shape[1]
    n = 0
    for q in range(points.shape[0]):
        low, high = run_of(store, size, top, meta, keys, q, column)
        if low >= high:
            continue
        own = owns[q]
        point = points[q]
        if plans[q] == ROUTED:
            plans[q] = cheapest(costs, breaks, counts, means, ratios, point, count_rows(size, top, meta, low, high))
        if plans[q] == JOIN:
            out, n = join_first(
                entries, width, alive, nodes, trees, used, dims, point, q,
                store, size, top, low, high, column, own, mode, stack, levels, out, n,
            )  # fmt: skip
            continue
        if plans[q] == SCAN:
            if n + used[0] > out.shape[0]:
                out = with_room(out, n, used[0])
            done = scan(entries, width, alive, trees, used, dims, point, q, out, n)
            n = with_rows(
                entries, width, dims, tested, out, n, done, store, size, top, low, high, column, own, mode
            )  # fmt: skip
            continue
        least = value_of(store[line_at(top, low), column], own, mode)
        most = value_of(store[line_at(top, step_back(size, top, high)), column], own, mode)
        bin = -1
        below = least
        above = most
        has_below = 0
        has_above = 0
        t = 0
        while t < used[2]:
            tree = trees[t]
            root = tree[ROOT] * 2 * dims
            ends = root + tested
            if (
                tree[LIVE] == 0
                or not holds_point(nodes, root, dims, point)
                or not reaches(nodes, ends, ends + dims, most, 1, least, 1, 2)
            ):
                t += 1
                continue
            is_group = plans[q] == HOTSPOT and tree[BIN] > 0
            if is_group:
                if tree[BIN] != bin:
                    bin = tree[BIN]
                    below, has_below, above, has_above = around(
                        store, size, top, low, high, column, own, mode, stabbed[bin]
                    )
                if not reaches(nodes, ends, ends + dims, below, has_below, above, has_above, 1):
                    t += 1
                    continue
                done = visit(
                    entries, width, alive, nodes, tree, dims, point, q,
                    below, has_below, above, has_above, 1, stack, levels, out, n,
                )  # fmt: skip
            else:
                done = visit(
                    entries, width, alive, nodes, tree, dims, point, q, most, 1, least, 1, 2, stack, levels, out, n
                )
            if done < 0:
                out = with_room(out, n, 0)
                continue
            if not is_group:
                done = with_rows(
                    entries, width, dims, tested, out, n, done, store, size, top, low, high, column, own, mode
                )  # fmt: skip
            n = done
            t += 1
    return out, n
