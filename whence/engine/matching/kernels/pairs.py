"""Pairs of rows with equal keys that subscriptions select: who is affected by a row, by which rows of the other side.

A **group** of subscriptions has a point that is in all their intervals. Of a run (`runs.py`), only the rows next to the
point tell who is affected: the interval of a subscription holds a row exactly if it holds one of these two
(stabbing-set index). So every plan asks the same of a tree: which entries hold the event, and one of some **values** in
their interval (`lanes.meeting`). Of a group these are the values of the two rows; of a run of few rows they are all of
them. Only where a run is long and a tree is no group, entries are found that reach into the run, and rows are looked up
for each.
"""

from __future__ import annotations

import numpy as np

from whence.engine.matching.kernels.forest import (
    BIN,
    DIMS,
    ENTRIES,
    FIRST,
    LIVE,
    SIZE,
    TREES,
    Forest,
    build_roof,
    forest,
)
from whence.engine.matching.kernels.histogram import Heights
from whence.engine.matching.kernels.lanes import BLOCK, BOXED, COUNT, LOWS, MARK, NUMBER, first_bit, meeting, meets
from whence.engine.matching.kernels.routing import cheapest
from whence.engine.matching.kernels.runs import count_rows, first_value, line_at, run_of, step_back, step_on, value_of
from whence.engine.matching.kernels.search import FOUND, LINE, LINES, read_all, room_to_wait, search, with_room
from whence.model.codes import Codes
from whence.model.jit import allocating, kernel

HOTSPOT, SELECT, JOIN, SCAN, ROUTED = range(5)
FEW = 16  # values that a tree is asked about at once
_NULL = -(2**63)


@kernel
def has_row(
    store: Codes, size: Codes, top: Codes, low: int, high: int, column: int, own: int, mode: int, first: int, last: int
) -> bool:
    """Whether a run has a row whose value is in an interval."""
    at = first_value(store, size, top, low, high, column, own, mode, first)
    return bool(at < high and value_of(store[line_at(top, at), column], own, mode) <= last)


@kernel
def around(
    store: Codes, size: Codes, top: Codes, low: int, high: int, column: int, own: int, mode: int, point: int,
    query: Codes, values: int,
) -> None:  # fmt: skip
    """Let a query ask about the values of a run next to a point: the last one below it and the first one from it on."""
    at = first_value(store, size, top, low, high, column, own, mode, point)
    n = 0
    if at > low:
        query[values] = value_of(store[line_at(top, step_back(size, top, at)), column], own, mode)
        n = 1
    if at < high:
        query[values + n] = value_of(store[line_at(top, at), column], own, mode)
        n += 1
    query[COUNT] = n


@kernel
def around_few(few: Codes, point: int, query: Codes, values: int) -> None:
    """The same, of the values that another query asks about, which are in order."""
    count = few[COUNT]
    at = 0
    while at < count and few[values + at] < point:
        at += 1
    n = 0
    if at > 0:
        query[values] = few[values + at - 1]
        n = 1
    if at < count:
        query[values + n] = few[values + at]
        n += 1
    query[COUNT] = n


@kernel
def next_values(
    store: Codes, size: Codes, top: Codes, at: int, high: int, column: int, own: int, mode: int,
    query: Codes, values: int,
) -> int:  # fmt: skip
    """Let a query ask about the next values of a run, each once. Return the position behind them."""
    n = 0
    while at < high:
        value = value_of(store[line_at(top, at), column], own, mode)
        if n == 0 or value != query[values + n - 1]:
            if n == FEW:
                break
            query[values + n] = value
            n += 1
        at = step_on(size, top, at)
    query[COUNT] = n
    return at


@kernel
def with_rows(
    entries: Codes, dims: int, tested: int, out: Codes, begin: int, n: int,
    store: Codes, size: Codes, top: Codes, low: int, high: int, column: int, own: int, mode: int,
) -> int:  # fmt: skip
    """Leave out what has been written down from `begin` on and has no row of a run in its interval."""
    kept = begin
    for p in range(begin, n):
        i = out[p, 1]
        if has_row(store, size, top, low, high, column, own, mode, entries[i, tested], entries[i, dims + tested]):
            out[kept, 0] = out[p, 0]
            out[kept, 1] = i
            kept += 1
    return kept


@kernel
def beyond(entries: Codes, tested: int, out: Codes, begin: int, n: int, before: int) -> int:
    """Leave out what has been written down from `begin` on and begins at or below a value."""
    kept = begin
    for p in range(begin, n):
        i = out[p, 1]
        if entries[i, tested] > before:
            out[kept, 0] = out[p, 0]
            out[kept, 1] = i
            kept += 1
    return kept


@allocating
def ask(f: Forest, t: int, query: Codes, queries: Codes, waiting: Codes, state: Codes, out: Codes) -> Codes:
    """Ask a tree."""
    if state[LINE] == queries.shape[0]:
        out = read_all(f, queries, waiting, state, 0, out)
    line = state[LINE]
    for c in range(LOWS + 2 * f.scalar[DIMS] + query[COUNT]):
        queries[line, c] = query[c]
    state[LINE] += 1
    return search(f, t, queries, line, waiting, state, out)


@allocating
def join_first(
    f: Forest, asked: Codes, tested: int,
    store: Codes, size: Codes, top: Codes, low: int, high: int, column: int, own: int, mode: int,
    queries: Codes, waiting: Codes, state: Codes, out: Codes,
) -> Codes:  # fmt: skip
    """Find, for some values of a run after the others, the entries that hold the event and one of them, and not the
    value before them."""
    query = asked[0]
    query[BOXED] = tested
    values = LOWS + 2 * f.scalar[DIMS]
    at = low
    while at < high:
        is_later = at > low
        before = query[values + query[COUNT] - 1] if is_later else _NULL
        at = next_values(store, size, top, at, high, column, own, mode, query, values)
        if is_later:
            out = read_all(f, queries, waiting, state, 0, out)
        begin = state[FOUND]
        for b in range((f.scalar[TREES] + BLOCK - 1) // BLOCK):
            found = meeting(f.roof_frames, f.roof_lanes, b, f.scalar[DIMS], asked, 0)
            while found:
                t = b * BLOCK + first_bit(found)
                found &= found - 1
                if f.trees[t, LIVE]:
                    out = ask(f, t, query, queries, waiting, state, out)
        if is_later:
            out = read_all(f, queries, waiting, state, 0, out)
            state[FOUND] = beyond(f.entries, tested, out, begin, state[FOUND], before)
    return out


@kernel
def scan(f: Forest, asked: Codes, out: Codes, n: int) -> int:
    """Write down all entries that hold an event."""
    trees = f.trees
    for t in range(f.scalar[TREES]):
        first = trees[t, FIRST]
        for i in range(first, first + trees[t, SIZE]):
            if f.alive[i] and meets(f.entries, i, f.scalar[DIMS], asked, 0):
                out[n, 0] = asked[0, NUMBER]
                out[n, 1] = i
                n += 1
    return n


@allocating
def by_trees(
    f: Forest, stabbed: Codes, is_grouped: bool, asked: Codes, near: Codes, tested: int,
    store: Codes, size: Codes, top: Codes, low: int, high: int, column: int, own: int, mode: int,
    queries: Codes, waiting: Codes, state: Codes, out: Codes,
) -> Codes:  # fmt: skip
    """Find the entries that hold an event and a row, tree by tree. With `is_grouped`, bins from 1 on are groups, and
    few values are asked about at once; without, rows are looked up for each entry that holds the event."""
    dims = f.scalar[DIMS]
    trees = f.trees
    query = asked[0]
    values = LOWS + 2 * dims
    query[BOXED] = tested
    if is_grouped and next_values(store, size, top, low, high, column, own, mode, query, values) < high:
        query[COUNT] = 0
    is_few = query[COUNT] > 0
    for c in range(values):
        near[c] = query[c]
    if not is_few:
        query[BOXED] = tested + 1
        query[LOWS + tested] = value_of(store[line_at(top, low), column], own, mode)
        query[LOWS + dims + tested] = value_of(store[line_at(top, step_back(size, top, high)), column], own, mode)
    bin = 0
    for b in range((f.scalar[TREES] + BLOCK - 1) // BLOCK):
        found = meeting(f.roof_frames, f.roof_lanes, b, dims, asked, 0)
        while found:
            t = b * BLOCK + first_bit(found)
            found &= found - 1
            if trees[t, LIVE] == 0:
                continue
            if is_grouped and trees[t, BIN] > 0:
                if trees[t, BIN] != bin:
                    bin = trees[t, BIN]
                    if is_few:
                        around_few(query, stabbed[bin], near, values)
                    else:
                        around(store, size, top, low, high, column, own, mode, stabbed[bin], near, values)
                out = ask(f, t, near, queries, waiting, state, out)
            elif is_few:
                out = ask(f, t, query, queries, waiting, state, out)
            else:
                out = read_all(f, queries, waiting, state, 0, out)
                begin = state[FOUND]
                out = ask(f, t, query, queries, waiting, state, out)
                out = read_all(f, queries, waiting, state, 0, out)
                state[FOUND] = with_rows(
                    f.entries, dims, tested, out, begin, state[FOUND], store, size, top, low, high, column, own, mode
                )
    return out


@allocating
def affected(
    address: int, stabbed: Codes, points: Codes, keys: Codes, owns: Codes, plans: Codes,
    costs: Heights, breaks: Codes, counts: Codes, means: Heights, ratios: Heights,
    store: Codes, size: Codes, top: Codes, meta: Codes, column: int, mode: int, runs: Codes, out: Codes,
) -> tuple[Codes, int]:  # fmt: skip
    """All pairs (event, entry) of an event and a subscription that gets or loses rows by it: in the first lines of
    `out`, or of a larger array; and how many there are. `runs` gets the run of rows that each event joins.

    `stabbed` has the point of each bin, `plans` says how each event is processed: HOTSPOT takes the bins from 1 on as
    groups, and selects first in bin 0 where many rows join; SELECT finds the entries that hold the event, then looks
    for rows; JOIN finds, for rows, the entries that hold the event and one of them; SCAN goes through all entries.
    ROUTED is replaced by the cheapest of them (`routing.py`), where there are rows to join."""
    f = forest(address)
    build_roof(f)
    dims = f.scalar[DIMS]
    tested = points.shape[1]
    waiting = room_to_wait()
    state = np.zeros(4, np.int64)
    queries = np.empty((LINES, LOWS + 2 * dims + FEW), np.int64)
    asked = np.empty((1, queries.shape[1]), np.int64)
    near = np.empty(queries.shape[1], np.int64)
    asked[0, MARK] = 0
    for q in range(points.shape[0]):
        low, high = run_of(store, size, top, meta, keys, q, column)
        runs[q, 0] = low
        runs[q, 1] = high
        if low >= high:
            continue
        own = owns[q]
        if plans[q] == ROUTED:
            rows = count_rows(size, top, meta, low, high)
            plans[q] = HOTSPOT  # which never asks for more than JOIN does, if all rows are asked about at once
            if rows > FEW:
                plans[q] = cheapest(costs, breaks, counts, means, ratios, points[q], rows)
        asked[0, NUMBER] = q
        asked[0, BOXED] = tested
        asked[0, COUNT] = 0
        for d in range(tested):
            asked[0, LOWS + d] = points[q, d]
            asked[0, LOWS + dims + d] = points[q, d]
        if plans[q] == JOIN:
            out = join_first(
                f, asked, tested, store, size, top, low, high, column, own, mode, queries, waiting, state, out
            )
        elif plans[q] == SCAN:
            out = read_all(f, queries, waiting, state, 0, out)
            n = state[FOUND]
            if n + f.scalar[ENTRIES] > out.shape[0]:
                out = with_room(out, n, f.scalar[ENTRIES])
            last = scan(f, asked, out, n)
            state[FOUND] = with_rows(
                f.entries, dims, tested, out, n, last, store, size, top, low, high, column, own, mode
            )
        else:
            out = by_trees(
                f, stabbed, plans[q] == HOTSPOT, asked, near, tested,
                store, size, top, low, high, column, own, mode, queries, waiting, state, out,
            )  # fmt: skip
    out = read_all(f, queries, waiting, state, 0, out)
    return out, state[FOUND]
