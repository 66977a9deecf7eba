"""The decision diagram of a system with at most one node a body: of paths in a network.

Variables are decided in order. What is decided so far matters to the rest only through which nodes on the frontier
(with arcs decided and arcs to come) lead to which: states with the same relation are one node of the diagram. Slot 0 is
the root, slot 1 the ground that all paths lead to. What no longer matters is left out of the relation, so that more
states meet (`settle`): of a node that the root leads to, or that leads to the ground, anything else; that a node is led
to, if no arc to come leads on from it; where it leads, if no arc to come leads to it.
"""

from __future__ import annotations

import numpy as np

from whence.explain.graph import Ints
from whence.model.codes import Codes
from whence.model.jit import allocating, kernel


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


@allocating
def frontier(
    starts: Codes, tails: Codes, tops: Codes, slot: Codes, begin: Codes, always: Codes, width: int, limit: int
) -> tuple[Ints, Codes, Codes]:
    """Build the diagram as (step, low, high), parents before children; 0 is false, 1 is true. Empty if it has more than
    `limit` nodes. Step k decides its arcs `starts[k] : starts[k + 1]`, which are there in any case if it is `always`.
    Node v has its slot from step `begin[v]` until its last arc is decided."""
    one = np.uint64(1)
    steps = len(starts) - 1
    room = 1024
    level = np.empty(room, np.int32)
    low = np.empty(room, np.int64)
    high = np.empty(room, np.int64)
    states = np.zeros((16, width), np.uint64)
    after = np.zeros((16, width), np.uint64)
    now = np.zeros(width, np.uint64)
    count = 1
    table = np.empty(64, np.int64)
    level[:3] = 0
    made = 3
    onward = np.zeros(width, np.uint64)
    for k in range(steps):
        if len(after) < 2 * count:
            after = np.zeros((2 * count + 16, width), np.uint64)
        size = 64
        while size < 4 * count:
            size *= 2
        if len(table) < size:
            table = np.empty(size, np.int64)
        else:
            size = len(table)
        table[:size] = -1
        mask = np.uint64(size - 1)
        base = made - count  # the nodes of this step are base .. made - 1
        next_count = 0
        onward[:] = 0
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
                            after[next_count, :] = now
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
        if made + next_count > limit:
            return level[:0], low[:0], high[:0]
        while made + next_count > room:
            level = np.append(level, np.empty(room, np.int32))
            low = np.append(low, np.empty(room, np.int64))
            high = np.append(high, np.empty(room, np.int64))
            room *= 2
        level[made : made + next_count] = k + 1
        made += next_count
        count = next_count
        states, after = after, states
        if count == 0:
            break
    return level[:made], low[:made], high[:made]
