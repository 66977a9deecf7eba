"""The decision diagram of a system with at most one node a body: of paths in a network.

Variables are decided in order. What is decided so far matters to the rest only through which nodes on the frontier
(with arcs decided and arcs to come) lead to which: states with the same relation are one node of the diagram. Slot 0 is
the root, slot 1 the ground that all paths lead to. What no longer matters is left out of the relation, so that more
states meet (`settle`): of a node that the root leads to, or that leads to the ground, anything else; that a node is led
to, if no arc to come leads on from it; where it leads, if no arc to come leads to it.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from whence.model.codes import Codes
from whence.model.jit import kernel

Words = NDArray[np.uint64]


@kernel
def settle(rows, width, onward, outward, inward):
    """Drop from the relation what no longer matters: 1 if the root leads to the ground, 0 if it never will, else 2."""
    one, ground = np.uint64(1), np.uint64(2)
    reached = rows[0]
    if reached & ground:
        return 1
    lead = np.uint64(0)
    kept = ground
    entered = inward
    for i in range(2, width):
        if rows[i] & ground:
            lead |= one << np.uint64(i)
    for i in range(width):
        bit = one << np.uint64(i)
        if outward & bit or onward[i] & ~(reached | one):
            kept |= bit
        if not lead & bit:
            entered |= onward[i]
    grounded = entered & ground
    for i in range(2, width):
        bit = one << np.uint64(i)
        if reached & bit or not entered & bit:
            rows[i] = 0
        elif lead & bit:
            rows[i] = ground
            grounded = ground
        else:
            rows[i] &= kept & ~(reached | lead)
    rows[0] &= kept
    if grounded == 0 or (rows[0] == 0 and not kept & one):
        return 0
    return 2


@kernel
def hash_rows(rows, width):
    found = np.uint64(0x9E3779B97F4A7C15)
    for i in range(width):
        found = (found ^ rows[i]) * np.uint64(0xFF51AFD7ED558CCD)
        found ^= found >> np.uint64(32)
    return found


@kernel
def decide(
    k: int,
    base: int,
    made: int,
    count: int,
    states: Words,
    after: Words,
    now: Words,
    onward: Words,
    table: Codes,
    low: Codes,
    high: Codes,
    starts: Codes,
    tails: Codes,
    tops: Codes,
    slot: Codes,
    begin: Codes,
    always: Codes,
) -> int:
    """Decide the arcs `starts[k] : starts[k + 1]` of step k, which are there in any case if it is `always`, in each of
    the `count` states, which are the nodes `base` and on: write where they lead, and the states after it, which are the
    nodes `made` and on; return how many these are. Node 0 is false, 1 is true. Vertex v has its slot from step
    `begin[v]` until its last arc is decided. `table` has a power of two of places, at least twice what may come."""
    one = np.uint64(1)
    width = len(now)
    for i in range(len(table)):
        table[i] = -1
    mask = np.uint64(len(table) - 1)
    next_count = 0
    for i in range(width):
        onward[i] = 0
    outward, inward = np.uint64(0), np.uint64(0)
    for a in range(starts[k + 1], len(tails)):
        x, y = one << np.uint64(slot[tails[a]]), one << np.uint64(slot[tops[a]])
        if begin[tails[a]] > k:
            inward |= y if begin[tops[a]] <= k else np.uint64(0)
        elif begin[tops[a]] > k:
            outward |= x
        else:
            onward[slot[tails[a]]] |= y
    for s in range(count):
        for side in range(2):
            if side == 0 and always[k]:
                low[base + s] = -1
                continue
            for i in range(width):
                now[i] = states[s, i]
            if side == 1:
                for a in range(starts[k], starts[k + 1]):
                    x, y = np.uint64(slot[tails[a]]), np.uint64(slot[tops[a]])
                    gain = now[y] | one << y
                    for i in range(width):
                        if np.uint64(i) == x or now[i] >> x & one:
                            now[i] |= gain
                            now[i] &= ~(one << np.uint64(i))
            target = settle(now, width, onward, outward, inward)
            if target == 2:
                at = hash_rows(now, width) & mask
                while True:
                    t = table[at]
                    if t < 0:
                        table[at] = next_count
                        for i in range(width):
                            after[next_count, i] = now[i]
                        target = made + next_count
                        next_count += 1
                        break
                    same = True
                    for i in range(width):
                        if after[t, i] != now[i]:
                            same = False
                            break
                    if same:
                        target = made + t
                        break
                    at = (at + one) & mask
            if side == 0:
                low[base + s] = target
            else:
                high[base + s] = target
        if always[k]:
            low[base + s] = high[base + s]
    return next_count
