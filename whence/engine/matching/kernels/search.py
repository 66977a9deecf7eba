"""Searching packed trees of boxes (`forest.py`): which entries meet queries (`lanes.py`).

Searches take turns. A block that is to be read is fetched and **waits** behind those of other searches, so that it has
arrived in the cache when its turn comes. Only where many wait, the last one is read first, so that they do not become
more and more.
"""

from __future__ import annotations

import numpy as np

from whence.engine.matching.kernels.forest import DIMS, FIRST, HEIGHT, LIVE, NODE, TREES, Flags, Forest, forest
from whence.engine.matching.kernels.lanes import (
    BLOCK,
    BOXED,
    COUNT,
    LOWS,
    MARK,
    NUMBER,
    first_bit,
    is_exact,
    meeting,
    meets,
    prefetch,
)
from whence.model.codes import Codes
from whence.model.jit import allocating, kernel

LINES = 512  # of queries that blocks may wait for
HEAD, TAIL, LINE, FOUND = range(4)  # of `state`: blocks that have had their turn, and all; queries, pairs found
_RING = 1024  # blocks that may wait
_MANY = 512
_SOME = 32  # that are left waiting for their turn


@kernel
def let_wait(f: Forest, t: int, level: int, place: int, line: int, waiting: Codes, state: Codes) -> None:
    """Fetch the block of a tree at a place of a level, and let it wait."""
    dims = f.scalar[DIMS]
    k = f.trees[t, NODE + level] + place
    prefetch(f.frames, k * dims)
    for c in range(2 * dims):
        prefetch(f.lanes, (k * 2 * dims + c) * BLOCK)
    at = state[TAIL] % _RING
    waiting[at, 0] = t
    waiting[at, 1] = level
    waiting[at, 2] = place
    waiting[at, 3] = line
    state[TAIL] += 1


@kernel
def read_waiting(f: Forest, queries: Codes, waiting: Codes, state: Codes, left: int, out: Codes) -> bool:
    """Read blocks until so many are left, and write down (number of the query, entry) of the live entries that meet
    their queries and have their marks. Return whether there was room for all."""
    dims = f.scalar[DIMS]
    trees = f.trees
    frames = f.frames
    lanes = f.lanes
    tops = f.tops
    entries = f.entries
    is_marked = tops.shape[0] > 0
    behind = entries.shape[1] - 1
    n = state[FOUND]
    while state[TAIL] - state[HEAD] > left:
        if n + BLOCK > out.shape[0]:
            state[FOUND] = n
            return False
        if state[TAIL] - state[HEAD] > _MANY:
            state[TAIL] -= 1
            at = state[TAIL] % _RING
        else:
            at = state[HEAD] % _RING
            state[HEAD] += 1
        t = waiting[at, 0]
        level = waiting[at, 1]
        place = waiting[at, 2]
        line = waiting[at, 3]
        k = trees[t, NODE + level] + place
        if is_marked and tops[k] < queries[line, MARK]:
            continue
        found = meeting(frames, lanes, k, dims, queries, line)
        if level:
            while found:
                let_wait(f, t, level - 1, place * BLOCK + first_bit(found), line, waiting, state)
                found &= found - 1
            continue
        begin = trees[t, FIRST] + place * BLOCK
        if found and (is_marked or not is_exact(frames, k, queries, line)):
            rest = found
            while rest:
                j = first_bit(rest)
                rest &= rest - 1
                if (is_marked and entries[begin + j, behind] < queries[line, MARK]) or not meets(
                    entries, begin + j, dims, queries, line
                ):
                    found ^= 1 << j
        number = queries[line, NUMBER]
        while found:
            out[n, 0] = number
            out[n, 1] = begin + first_bit(found)
            found &= found - 1
            n += 1
    state[FOUND] = n
    return True


@allocating
def with_room(out: Codes, n: int, more: int) -> Codes:
    """Return an array with the first n pairs and room for more, twice as large at least."""
    grown = np.empty((max(2 * out.shape[0], n + more), 2), np.int64)
    grown[:n] = out[:n]
    return grown


@allocating
def read_all(f: Forest, queries: Codes, waiting: Codes, state: Codes, left: int, out: Codes) -> Codes:
    """Read blocks until so many are left, with room for what is found."""
    while not read_waiting(f, queries, waiting, state, left, out):
        out = with_room(out, state[FOUND], BLOCK)
    if left == 0:
        state[LINE] = 0
    return out


@allocating
def search(f: Forest, t: int, queries: Codes, line: int, waiting: Codes, state: Codes, out: Codes) -> Codes:
    """Ask a tree: some blocks are left waiting."""
    let_wait(f, t, f.trees[t, HEIGHT], 0, line, waiting, state)
    return read_all(f, queries, waiting, state, _SOME, out)


@allocating
def room_to_wait() -> Codes:
    """Return room for the blocks that wait."""
    return np.empty((_RING, 4), np.int64)


@kernel
def once(out: Codes, n: int, done: int, hit: Flags) -> int:
    """Leave out what has been written down from line n on and was hit before; the others are hit now."""
    for p in range(n, done):
        i = out[p, 1]
        if not hit[i]:
            hit[i] = 1
            out[n, 0] = out[p, 0]
            out[n, 1] = i
            n += 1
    return n


@allocating
def find(address: int, lows: Codes, highs: Codes, marks: Codes, hit: Flags) -> Codes:
    """All pairs (query, entry) of a query and a live box that meet; where marks are bounds, if the box has at least the
    query's mark. With `hit`, a zero for each entry, each entry once; it is left as it was."""
    f = forest(address)
    dims = f.scalar[DIMS]
    out = np.empty((4 * lows.shape[0] + 64, 2), np.int64)
    waiting = room_to_wait()
    state = np.zeros(4, np.int64)
    queries = np.empty((lows.shape[0], LOWS + 2 * dims), np.int64)
    for q in range(lows.shape[0]):
        queries[q, NUMBER] = q
        queries[q, BOXED] = dims
        queries[q, COUNT] = 0
        queries[q, MARK] = marks[q] if marks.shape[0] else 0
        for d in range(dims):
            queries[q, LOWS + d] = lows[q, d]
            queries[q, LOWS + dims + d] = highs[q, d]
    begin = 0
    for t in range(f.scalar[TREES]):
        if f.trees[t, LIVE] == 0:
            continue
        for q in range(lows.shape[0]):
            out = search(f, t, queries, q, waiting, state, out)
            if hit.shape[0] and state[FOUND] > begin + _RING:
                begin = once(out, begin, state[FOUND], hit)
                state[FOUND] = begin
    out = read_all(f, queries, waiting, state, 0, out)
    if hit.shape[0]:
        state[FOUND] = once(out, begin, state[FOUND], hit)
        for p in range(state[FOUND]):
            hit[out[p, 1]] = 0
    return out[: state[FOUND]]
