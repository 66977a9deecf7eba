"""Pairs of rows with equal keys that subscriptions select: who is affected by a row, by which rows of the other side.

The other side is an ordered multiset (`core/kernels/ordered.py`) whose first columns are the keys; the next one is its
**lead**. Rows with one key are a *run*. The **value** of a pair is what a subscription's last tested interval is about:
the lead, or a difference of both leads (a band), in a form that rises with the lead of the other side:

| mode | value |
|---|---|
| PLAIN | the lead |
| RISING, FALLING | lead - own, the complement of own - lead; integers, which end at the last number there is |
| RISING_DOUBLE, FALLING_DOUBLE | the same, of doubles as SQL subtracts them: rounded, so they rise, if not strictly |

Intervals of differences end before the first and the last number, which stand for NULL.

A **group** of subscriptions has a point that is in all their intervals. Of a run, only the rows next to the point tell
who is affected: the interval of a subscription holds a row exactly if it holds one of these two (stabbing-set index).
"""

from __future__ import annotations

import numpy as np

from whence.engine.core.kernels.doubles import to_code, to_float
from whence.engine.core.kernels.ordered import LEAF, compare
from whence.engine.matching.kernels.forest import BIN, BLOCK, FIRST, LIVE, NODE, ROOT, SIZE, Flags
from whence.model.codes import Codes
from whence.model.jit import allocating, kernel

PLAIN, RISING, FALLING, RISING_DOUBLE, FALLING_DOUBLE = range(5)
HOTSPOT, SELECT, JOIN, SCAN = range(4)
_LAST = 2**63 - 1
_FIRST = -(2**63)


@kernel
def subtract(a: int, b: int) -> int:
    """a - b, or the end that it is past."""
    if b < 0 and a > _LAST + b:
        return _LAST
    if b > 0 and a < _FIRST + b:
        return _FIRST
    return a - b


@kernel
def value_of(lead: int, own: int, mode: int) -> int:
    """The value of a pair by the leads of the other side and of one's own; least of all if the other one is NULL."""
    if mode == PLAIN or lead == _FIRST:
        return lead
    if mode == RISING:
        return subtract(lead, own)
    if mode == FALLING:
        return ~subtract(own, lead)
    a = to_float(lead)
    difference = a - to_float(own) if mode == RISING_DOUBLE else to_float(own) - a
    if np.isnan(difference):  # no number, which SQL takes for NULL: outside of every interval, where its lead is
        return _FIRST if a < 0 else _LAST
    return int(to_code(difference)) if mode == RISING_DOUBLE else ~int(to_code(difference))


@kernel
def bound(
    store: Codes, size: Codes, top: Codes, low: int, high: int, keys: Codes, i: int, columns: int, after: int
) -> int:
    """The position of the first row in [low, high) at or after a prefix; with `after`, of the first one behind it.

    A position is a leaf's place times LEAF, and a place in that leaf; that of a leaf's end is the next leaf's start."""
    first = low // LEAF
    last = (high + LEAF - 1) // LEAF
    while first < last:  # leaves whose first row is before
        middle = (first + last) >> 1
        line = top[middle] * LEAF
        if middle * LEAF < low:
            line += low - middle * LEAF
        if compare(store, line, keys, i, columns) < after:
            first = middle + 1
        else:
            last = middle
    if first * LEAF <= low:
        return low
    leaf = top[first - 1]
    start = low - (first - 1) * LEAF if (first - 1) * LEAF < low else 0
    end = size[leaf]
    if first * LEAF > high:
        end = high - (first - 1) * LEAF
    stop = end
    while start < end:
        middle = (start + end) >> 1
        if compare(store, leaf * LEAF + middle, keys, i, columns) < after:
            start = middle + 1
        else:
            end = middle
    if start == stop and first * LEAF <= high:
        return first * LEAF
    return (first - 1) * LEAF + start


@kernel
def first_value(
    store: Codes, size: Codes, top: Codes, low: int, high: int, column: int, own: int, mode: int, target: int
) -> int:
    """The position of the first row of a run whose value is at least the target; `high` if there is none."""
    first = low // LEAF
    last = (high + LEAF - 1) // LEAF
    while first < last:
        middle = (first + last) >> 1
        line = top[middle] * LEAF
        if middle * LEAF < low:
            line += low - middle * LEAF
        if value_of(store[line, column], own, mode) < target:
            first = middle + 1
        else:
            last = middle
    if first * LEAF <= low:
        return low
    leaf = top[first - 1]
    start = low - (first - 1) * LEAF if (first - 1) * LEAF < low else 0
    end = size[leaf]
    if first * LEAF > high:
        end = high - (first - 1) * LEAF
    stop = end
    while start < end:
        middle = (start + end) >> 1
        if value_of(store[leaf * LEAF + middle, column], own, mode) < target:
            start = middle + 1
        else:
            end = middle
    if start == stop:
        return first * LEAF if first * LEAF <= high else high
    return (first - 1) * LEAF + start


@kernel
def line_at(top: Codes, position: int) -> int:
    return int(top[position // LEAF] * LEAF + position % LEAF)


@kernel
def step_back(size: Codes, top: Codes, position: int) -> int:
    """The position before one that is not the first."""
    if position % LEAF:
        return position - 1
    place = position // LEAF - 1
    return int(place * LEAF + size[top[place]] - 1)


@kernel
def step_on(size: Codes, top: Codes, position: int) -> int:
    place = position // LEAF
    if position % LEAF + 1 < size[top[place]]:
        return position + 1
    return (place + 1) * LEAF


@kernel
def may_hold(
    bounds: Codes, i: int, dims: int, points: Codes, q: int,
    kind: int, below: int, has_below: int, above: int, has_above: int,
) -> bool:  # fmt: skip
    """Whether bounds hold a point in all but the last tested dimension, and there reach the row below a group's point
    or the one above it (kind HOTSPOT), or are not all outside the values from `below` to `above`."""
    tested = points.shape[1]
    for d in range(tested):
        if bounds[i, d] > points[q, d] or bounds[i, dims + d] < points[q, d]:
            return False
    if kind == HOTSPOT:
        return bool((has_below and bounds[i, tested] <= below) or (has_above and bounds[i, dims + tested] >= above))
    return bool(bounds[i, tested] <= above and bounds[i, dims + tested] >= below)


@kernel
def visit(
    entries: Codes, alive: Flags, nodes: Codes, tree: Codes, dims: int, points: Codes, q: int,
    kind: int, below: int, has_below: int, above: int, has_above: int,
    store: Codes, size: Codes, top: Codes, low: int, high: int, column: int, own: int, mode: int,
    stack: Codes, levels: Codes, out: Codes, n: int,
) -> int:  # fmt: skip
    """Write down the entries of a tree that an event affects, from place n on; -1 if there may be no room for them.

    Kind SELECT looks for a row of the run in the interval of each; kind JOIN has one row, of value `above`, and leaves
    out what the row before it, of value `has_below`, has found already if `has_above`."""
    tested = points.shape[1]
    depth = 0
    levels[0, 0] = tree[SIZE]
    levels[0, 1] = tree[FIRST]
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
        place = stack[waiting, 1]
        if not may_hold(nodes, levels[level, 1] + place, dims, points, q, kind, below, has_below, above, has_above):
            continue
        end = min((place + 1) * BLOCK, levels[level - 1, 0])
        if level > 1:
            for child in range(place * BLOCK, end):
                stack[waiting, 0] = level - 1
                stack[waiting, 1] = child
                waiting += 1
            continue
        if n + BLOCK > out.shape[0]:
            return -1
        for i in range(tree[FIRST] + place * BLOCK, tree[FIRST] + end):
            if not alive[i]:
                continue
            if not may_hold(entries, i, dims, points, q, kind, below, has_below, above, has_above):
                continue
            if kind == SELECT:
                at = first_value(store, size, top, low, high, column, own, mode, entries[i, tested])
                if at == high:
                    continue
                if value_of(store[line_at(top, at), column], own, mode) > entries[i, dims + tested]:
                    continue
            if kind == JOIN and has_above and entries[i, tested] <= has_below:
                continue
            out[n, 0] = q
            out[n, 1] = i
            n += 1
    return n


@allocating
def affected(
    entries: Codes, alive: Flags, nodes: Codes, trees: Codes, used: Codes, dims: int, stabbed: Codes,
    points: Codes, keys: Codes, owns: Codes, plans: Codes,
    store: Codes, size: Codes, top: Codes, meta: Codes, column: int, mode: int,
) -> Codes:  # fmt: skip
    """All pairs (event, entry) of an event and a subscription that gets or loses rows by it.

    `stabbed` has the point of each bin, `plans` says how each event is processed: HOTSPOT takes the bins from 1 on as
    groups, and selects first in bin 0; SELECT finds the entries that hold the event, then looks for rows; JOIN finds,
    for each row, the entries that hold the event and the row; SCAN goes through all entries."""
    out = np.empty((4 * points.shape[0] + 256, 2), np.int64)
    stack = np.empty((256, 2), np.int64)
    levels = np.empty((18, 2), np.int64)
    tested = points.shape[1]
    n = 0
    everything = int(meta[0]) * LEAF
    for q in range(points.shape[0]):
        low = 0
        high = everything
        if column:
            low = bound(store, size, top, 0, everything, keys, q, column, 0)
            high = bound(store, size, top, low, everything, keys, q, column, 1)
        if low >= high:
            continue
        own = owns[q]
        least = value_of(store[line_at(top, low), column], own, mode)
        most = value_of(store[line_at(top, step_back(size, top, high)), column], own, mode)
        plan = plans[q]
        bin = -1
        below = least
        above = most
        has_below = 0
        has_above = 0
        if plan == JOIN:
            at = low
            before = 0
            has_before = 0
            while at < high:
                value = value_of(store[line_at(top, at), column], own, mode)
                if not has_before or value != before:
                    t = 0
                    while t < used[2]:
                        if trees[t, LIVE]:
                            done = visit(
                                entries, alive, nodes, trees[t], dims, points, q,
                                JOIN, value, before, value, has_before,
                                store, size, top, low, high, column, own, mode, stack, levels, out, n,
                            )  # fmt: skip
                            if done < 0:
                                out_ = np.empty((2 * out.shape[0], 2), np.int64)
                                out_[:n] = out[:n]
                                out = out_
                                continue
                            n = done
                        t += 1
                before = value
                has_before = 1
                at = step_on(size, top, at)
            continue
        t = 0
        while t < used[2]:
            tree = trees[t]
            if tree[LIVE] == 0:
                t += 1
                continue
            if plan == SCAN:
                if n + tree[SIZE] > out.shape[0]:
                    out_ = np.empty((2 * (n + tree[SIZE]), 2), np.int64)
                    out_[:n] = out[:n]
                    out = out_
                for i in range(tree[FIRST], tree[FIRST] + tree[SIZE]):
                    if alive[i] and may_hold(entries, i, dims, points, q, SELECT, least, 0, most, 0):
                        at = first_value(store, size, top, low, high, column, own, mode, entries[i, tested])
                        if at == high:
                            continue
                        if value_of(store[line_at(top, at), column], own, mode) <= entries[i, dims + tested]:
                            out[n, 0] = q
                            out[n, 1] = i
                            n += 1
                t += 1
                continue
            if not may_hold(nodes, tree[ROOT], dims, points, q, SELECT, least, 0, most, 0):
                t += 1
                continue
            kind = SELECT
            if plan == HOTSPOT and tree[BIN]:
                kind = HOTSPOT
                if tree[BIN] != bin:
                    bin = tree[BIN]
                    at = first_value(store, size, top, low, high, column, own, mode, stabbed[bin])
                    has_above = int(at < high)
                    has_below = int(at > low)
                    if has_above:
                        above = value_of(store[line_at(top, at), column], own, mode)
                    if has_below:
                        below = value_of(store[line_at(top, step_back(size, top, at)), column], own, mode)
            if kind == SELECT:
                done = visit(
                    entries, alive, nodes, tree, dims, points, q, SELECT, least, 0, most, 0,
                    store, size, top, low, high, column, own, mode, stack, levels, out, n,
                )  # fmt: skip
            elif not may_hold(nodes, tree[ROOT], dims, points, q, HOTSPOT, below, has_below, above, has_above):
                done = n
            else:
                done = visit(
                    entries, alive, nodes, tree, dims, points, q, HOTSPOT, below, has_below, above, has_above,
                    store, size, top, low, high, column, own, mode, stack, levels, out, n,
                )  # fmt: skip
            if done < 0:
                out_ = np.empty((2 * out.shape[0], 2), np.int64)
                out_[:n] = out[:n]
                out = out_
                continue
            n = done
            t += 1
    return out[:n]


@allocating
def expand(
    entries: Codes, dims: int, tested: int, pairs: Codes, keys: Codes, owns: Codes,
    store: Codes, size: Codes, top: Codes, meta: Codes, column: int, mode: int,
) -> Codes:  # fmt: skip
    """The rows of the other side behind pairs (event, entry): lines of (place of the pair, line of the row).

    Columns of a row behind its lead must be inside the dimensions of the entry behind the tested ones."""
    out = np.empty((2 * pairs.shape[0] + 64, 2), np.int64)
    n = 0
    everything = int(meta[0]) * LEAF
    last = -1
    low = 0
    high = everything
    for p in range(pairs.shape[0]):
        q = pairs[p, 0]
        i = pairs[p, 1]
        if column and q != last:
            low = bound(store, size, top, 0, everything, keys, q, column, 0)
            high = bound(store, size, top, low, everything, keys, q, column, 1)
        last = q
        at = first_value(store, size, top, low, high, column, owns[q], mode, entries[i, tested])
        while at < high:
            line = line_at(top, at)
            if value_of(store[line, column], owns[q], mode) > entries[i, dims + tested]:
                break
            holds = True
            for d in range(tested + 1, dims):
                x = store[line, column + d - tested]
                if x < entries[i, d] or x > entries[i, dims + d]:
                    holds = False
                    break
            if holds:
                if n == out.shape[0]:
                    out_ = np.empty((2 * n, 2), np.int64)
                    out_[:n] = out
                    out = out_
                out[n, 0] = p
                out[n, 1] = line
                n += 1
            at = step_on(size, top, at)
    return out[:n]


@allocating
def candidates(
    boxes: Codes, dims: int, columns: Codes, leads: int, left: Codes, size: Codes, top: Codes, meta: Codes, column: int
) -> Codes:
    """Lines of (box, line) of all rows of one side whose `columns` are inside the first dimensions of a box. With
    `leads`, the first range is that of the side's lead, by which each run is entered."""
    out = np.empty((64, 2), np.int64)
    n = 0
    everything = int(meta[0]) * LEAF
    for b in range(boxes.shape[0]):
        at = 0
        run = everything
        fresh = True
        while at < everything:
            if leads >= 0:
                if fresh:
                    line = line_at(top, at)
                    run = bound(left, size, top, at, everything, left, line, column, 1)
                    at = first_value(left, size, top, at, run, column, 0, PLAIN, boxes[b, leads])
                    fresh = False
                    if at >= run:
                        fresh = True
                        continue
                if left[line_at(top, at), column] > boxes[b, dims + leads]:
                    at = run
                    fresh = True
                    continue
            line = line_at(top, at)
            holds = True
            for d in range(columns.shape[0]):
                x = left[line, columns[d]]
                if x < boxes[b, d] or x > boxes[b, dims + d]:
                    holds = False
                    break
            if holds:
                if n == out.shape[0]:
                    out_ = np.empty((2 * n, 2), np.int64)
                    out_[:n] = out
                    out = out_
                out[n, 0] = b
                out[n, 1] = line
                n += 1
            at = step_on(size, top, at)
            if at >= run:
                fresh = True
    return out[:n]
