"""Packed trees of boxes: sorted entries in blocks of 16, and the bounds of every block, of 16 blocks, and so on.

An entry is a line [low of each dimension, high of each, tag, mark]. A tree is a run of entries in the order of
`before`, and a run of nodes: the bounds of its blocks first, then those of 16 blocks each, up to one root. Runs are
never changed but for `alive`. `trees` has a line per tree: [bin, first entry, entries, first node, live entries, root].

Order: the first `equal` dimensions one after the other, then the low ends of the others along a Z-curve (the dimension
whose values differ in the highest bit decides), then high ends and the tag. It is total, so an entry is found by
binary search, and two runs can be merged.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from whence.model.codes import Codes
from whence.model.jit import allocating, kernel

BLOCK = 16
BIN, FIRST, SIZE, NODE, LIVE, ROOT = range(6)
_SIGN = np.uint64(1 << 63)

Flags = NDArray[np.uint8]


@kernel
def before(a: Codes, i: int, b: Codes, j: int, dims: int, equal: int) -> bool:
    """Whether entry a[i] is before b[j]."""
    for d in range(equal):
        if a[i, d] != b[j, d]:
            return bool(a[i, d] < b[j, d])
    decisive = -1
    most = np.uint64(0)
    for d in range(equal, dims):
        differs = (np.uint64(a[i, d]) ^ _SIGN) ^ (np.uint64(b[j, d]) ^ _SIGN)
        if most < differs and most < (most ^ differs):  # its highest bit is above that of `most`
            decisive = d
            most = differs
    if decisive >= 0:
        return bool(a[i, decisive] < b[j, decisive])
    for c in range(dims, 2 * dims + 1):
        if a[i, c] != b[j, c]:
            return bool(a[i, c] < b[j, c])
    return False


@kernel
def count_nodes(entries: int) -> int:
    """Nodes of a tree of so many entries."""
    level = (entries + BLOCK - 1) // BLOCK
    total = level
    while level > 1:
        level = (level + BLOCK - 1) // BLOCK
        total += level
    return total


@kernel
def sort_order(lines: Codes, dims: int, equal: int, order: Codes, buffer: Codes) -> None:
    """Sort positions of entries, by merging runs that are in order already."""
    n = order.shape[0]
    width = 1
    while width < n:
        for start in range(0, n, 2 * width):
            middle = min(start + width, n)
            end = min(start + 2 * width, n)
            if middle == end or not before(lines, order[middle], lines, order[middle - 1], dims, equal):
                continue
            i = start
            j = middle
            for k in range(start, end):
                if j == end or (i < middle and not before(lines, order[j], lines, order[i], dims, equal)):
                    buffer[k] = order[i]
                    i += 1
                else:
                    buffer[k] = order[j]
                    j += 1
            for k in range(start, end):
                order[k] = buffer[k]
        width *= 2


@kernel
def bound_blocks(entries: Codes, nodes: Codes, first: int, size: int, node: int, dims: int) -> None:
    """Compute the nodes of a run of entries."""
    blocks = (size + BLOCK - 1) // BLOCK
    for b in range(blocks):
        at = first + b * BLOCK
        for c in range(2 * dims):
            nodes[node + b, c] = entries[at, c]
        for i in range(at + 1, min(at + BLOCK, first + size)):
            for d in range(dims):
                nodes[node + b, d] = min(nodes[node + b, d], entries[i, d])
                nodes[node + b, dims + d] = max(nodes[node + b, dims + d], entries[i, dims + d])
    while blocks > 1:
        above = node + blocks
        wide = (blocks + BLOCK - 1) // BLOCK
        for b in range(wide):
            at = node + b * BLOCK
            for c in range(2 * dims):
                nodes[above + b, c] = nodes[at, c]
            for i in range(at + 1, min(at + BLOCK, node + blocks)):
                for d in range(dims):
                    nodes[above + b, d] = min(nodes[above + b, d], nodes[i, d])
                    nodes[above + b, dims + d] = max(nodes[above + b, dims + d], nodes[i, dims + d])
        node = above
        blocks = wide


@kernel
def absorbed(trees: Codes, count: int, bin: int, more: int) -> int:
    """Mark the trees of a bin that `more` entries are merged with (bin ~bin): those not larger than all smaller ones
    together. Return how many live entries there will be."""
    total = more
    while True:
        found = -1
        for t in range(count):
            if (
                trees[t, BIN] == bin
                and trees[t, SIZE] <= 2 * total
                and (found < 0 or trees[t, SIZE] < trees[found, SIZE])
            ):
                found = t
        if found < 0:
            return total
        total += trees[found, LIVE]
        trees[found, BIN] = ~bin


@allocating
def grow(
    entries: Codes, alive: Flags, nodes: Codes, trees: Codes, used: Codes, bin: int, lines: Codes, dims: int, equal: int
) -> None:
    """Make one tree of some lines and the trees that `absorbed` marked. `used` is [entries, nodes, trees]."""
    total = lines.shape[0]
    for t in range(used[2]):
        if trees[t, BIN] == ~bin:
            total += trees[t, LIVE]
    if total == lines.shape[0]:
        gathered = lines
    else:
        gathered = np.empty((total, entries.shape[1]), np.int64)
        n = 0
        kept = 0
        for t in range(used[2]):
            if trees[t, BIN] == ~bin:
                for i in range(trees[t, FIRST], trees[t, FIRST] + trees[t, SIZE]):
                    if alive[i]:
                        gathered[n] = entries[i]
                        n += 1
            else:
                trees[kept] = trees[t]
                kept += 1
        gathered[n:] = lines
        used[2] = kept
    if total == 0:
        return
    order = np.arange(total)
    sort_order(gathered, dims, equal, order, np.empty(total, np.int64))
    first = used[0]
    for i in range(total):
        entries[first + i] = gathered[order[i]]
        alive[first + i] = 1
    bound_blocks(entries, nodes, first, total, used[1], dims)
    tree = trees[used[2]]
    tree[BIN] = bin
    tree[FIRST] = first
    tree[SIZE] = total
    tree[NODE] = used[1]
    tree[LIVE] = total
    used[0] += total
    used[1] += count_nodes(total)
    tree[ROOT] = used[1] - 1
    used[2] += 1


@kernel
def locate(entries: Codes, alive: Flags, tree: Codes, lines: Codes, i: int, dims: int, equal: int) -> int:
    """The live entry of a tree that equals lines[i], or -1."""
    low = tree[FIRST]
    high = low + tree[SIZE]
    end = high
    while low < high:
        middle = (low + high) >> 1
        if before(entries, middle, lines, i, dims, equal):
            low = middle + 1
        else:
            high = middle
    while low < end and not before(lines, i, entries, low, dims, equal):  # dead ones may be equal to it
        if alive[low]:
            return int(low)
        low += 1
    return -1


@kernel
def holds(nodes: Codes, node: int, lines: Codes, i: int, dims: int) -> bool:
    """Whether a box is within the bounds of a node."""
    for d in range(dims):
        if nodes[node, d] > lines[i, d] or nodes[node, dims + d] < lines[i, dims + d]:
            return False
    return True


@kernel
def drop(
    entries: Codes,
    alive: Flags,
    nodes: Codes,
    trees: Codes,
    used: Codes,
    lines: Codes,
    dims: int,
    equal: int,
    out: Codes,
) -> None:
    """Let entries that equal some lines be dead; `out` gets where each was, and its tree; -1 if there is none."""
    for i in range(lines.shape[0]):
        out[i, 0] = -1
        out[i, 1] = -1
        for t in range(used[2] - 1, -1, -1):
            tree = trees[t]
            if tree[LIVE] and holds(nodes, tree[ROOT], lines, i, dims):
                at = locate(entries, alive, tree, lines, i, dims, equal)
                if at >= 0:
                    alive[at] = 0
                    tree[LIVE] -= 1
                    out[i, 0] = at
                    out[i, 1] = t
                    break


@kernel
def meets(bounds: Codes, node: int, lows: Codes, highs: Codes, q: int, dims: int) -> bool:
    """Whether a box and a query have a point in common."""
    for d in range(dims):
        if bounds[node, d] > highs[q, d] or bounds[node, dims + d] < lows[q, d]:
            return False
    return True


@allocating
def find(
    entries: Codes, alive: Flags, nodes: Codes, trees: Codes, used: Codes, lows: Codes, highs: Codes, dims: int
) -> tuple[Codes, Codes]:
    """All pairs (query, entry) of a query and a live box that meet."""
    room = 4 * lows.shape[0] + 64
    at = np.empty(room, np.int64)
    found = np.empty(room, np.int64)
    stack = np.empty((256, 3), np.int64)  # a level's first node (-1 for entries), how many, which
    sizes = np.empty(18, np.int64)
    firsts = np.empty(18, np.int64)
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
                if not meets(nodes, firsts[level] + place, lows, highs, q, dims):
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
                    at_ = np.empty(room, np.int64)
                    found_ = np.empty(room, np.int64)
                    at_[:n] = at[:n]
                    found_[:n] = found[:n]
                    at = at_
                    found = found_
                for i in range(tree[FIRST] + place * BLOCK, tree[FIRST] + end):
                    if alive[i] and meets(entries, i, lows, highs, q, dims):
                        at[n] = q
                        found[n] = i
                        n += 1
    return at[:n], found[:n]
