"""Packed trees of boxes whose marks are bounds: the greatest mark of every node, beside its bounds.

`tops[node]` is at least the greatest mark of the live entries below a node of `forest.py`. A query finds the boxes that
it meets and whose mark is not below its own. So a mark is one more dimension of a box, unbounded below, that may be
changed in place: the order of entries does not depend on it.
"""

from __future__ import annotations

import numpy as np

from whence.engine.matching.kernels.forest import BLOCK, FIRST, LIVE, NODE, SIZE, Flags, meets
from whence.model.codes import Codes
from whence.model.jit import allocating, kernel

LOWEST = -(2**63)


@kernel
def top_of_block(entries: Codes, alive: Flags, first: int, end: int) -> int:
    """The greatest mark of a run of entries."""
    top = LOWEST
    mark = entries.shape[1] - 1
    for i in range(first, end):
        if alive[i]:
            top = max(top, entries[i, mark])
    return top


@kernel
def top_of_nodes(tops: Codes, first: int, end: int) -> int:
    """The greatest mark below a run of nodes."""
    top = LOWEST
    for i in range(first, end):
        top = max(top, tops[i])
    return top


@kernel
def bound_marks(entries: Codes, alive: Flags, tops: Codes, tree: Codes) -> None:
    """Compute the greatest marks of a tree's nodes."""
    first = tree[FIRST]
    size = tree[SIZE]
    node = tree[NODE]
    blocks = (size + BLOCK - 1) // BLOCK
    for b in range(blocks):
        at = first + b * BLOCK
        tops[node + b] = top_of_block(entries, alive, at, min(at + BLOCK, first + size))
    while blocks > 1:
        above = node + blocks
        wide = (blocks + BLOCK - 1) // BLOCK
        for b in range(wide):
            at = node + b * BLOCK
            tops[above + b] = top_of_nodes(tops, at, min(at + BLOCK, node + blocks))
        node = above
        blocks = wide


@kernel
def set_marks(
    entries: Codes, alive: Flags, tops: Codes, trees: Codes, used: Codes, places: Codes, marks: Codes
) -> None:
    """Change the marks of entries, and the greatest ones above them."""
    for k in range(places.shape[0]):
        at = places[k]
        entries[at, entries.shape[1] - 1] = marks[k]
        for t in range(used[2]):
            first = trees[t, FIRST]
            size = trees[t, SIZE]
            if at < first or at >= first + size:
                continue
            place = (at - first) // BLOCK
            node = trees[t, NODE]
            start = first + place * BLOCK
            top = top_of_block(entries, alive, start, min(start + BLOCK, first + size))
            level = (size + BLOCK - 1) // BLOCK
            while tops[node + place] != top:
                tops[node + place] = top
                if level == 1:
                    break
                above = node + level
                place //= BLOCK
                start = node + place * BLOCK
                top = top_of_nodes(tops, start, min(start + BLOCK, node + level))
                node = above
                level = (level + BLOCK - 1) // BLOCK
            break


@allocating
def find_from(
    entries: Codes,
    alive: Flags,
    nodes: Codes,
    tops: Codes,
    trees: Codes,
    used: Codes,
    lows: Codes,
    highs: Codes,
    marks: Codes,
    dims: int,
    hit: Flags,
) -> Codes:
    """The entries that meet one of the queries and have at least its mark, each once; `hit` is all zeros, and is left
    so."""
    room = lows.shape[0] + 64
    found = np.empty(room, np.int64)
    stack = np.empty((256, 2), np.int64)
    sizes = np.empty(18, np.int64)
    firsts = np.empty(18, np.int64)
    mark = entries.shape[1] - 1
    n = 0
    for t in range(used[2]):
        tree = trees[t]
        if tree[LIVE] == 0:
            continue
        levels = 0
        sizes[0] = tree[SIZE]
        firsts[0] = tree[FIRST]
        node = tree[NODE]
        while sizes[levels] > 1 or levels == 0:
            levels += 1
            sizes[levels] = (sizes[levels - 1] + BLOCK - 1) // BLOCK
            firsts[levels] = node
            node += sizes[levels]
        for q in range(lows.shape[0]):
            depth = 1
            stack[0, 0] = levels
            stack[0, 1] = 0
            while depth:
                depth -= 1
                level = stack[depth, 0]
                place = stack[depth, 1]
                at = firsts[level] + place
                if tops[at] < marks[q] or not meets(nodes, at, lows, highs, q, dims):
                    continue
                end = min((place + 1) * BLOCK, sizes[level - 1])
                if level > 1:
                    for child in range(place * BLOCK, end):
                        stack[depth, 0] = level - 1
                        stack[depth, 1] = child
                        depth += 1
                    continue
                if n + BLOCK > room:
                    room *= 2
                    found_ = np.empty(room, np.int64)
                    found_[:n] = found[:n]
                    found = found_
                for i in range(tree[FIRST] + place * BLOCK, tree[FIRST] + end):
                    if (
                        alive[i]
                        and not hit[i]
                        and entries[i, mark] >= marks[q]
                        and meets(entries, i, lows, highs, q, dims)
                    ):
                        hit[i] = 1
                        found[n] = i
                        n += 1
    for k in range(n):
        hit[found[k]] = 0
    return found[:n]
