"""Packed trees of boxes: sorted entries in blocks of 16, and blocks of the bounds of 16 blocks, up to one root.

An entry is a line [low of each dimension, high of each, tag, mark]. A tree is a run of entries in the order of
`before`, and a run of blocks (`lanes.py`): those of its entries first, then those of the bounds of 16 blocks each, up
to one. Runs are never changed but for entries that die. `trees` has a line per tree: [bin, first entry, entries, live
entries, level of the root, first block of each level], and `bounds` has the bounds of its entries. The **roof** is
blocks of the bounds of all trees; it is made when it is asked for.

Order: the first `equal` dimensions one after the other, then the low ends of the next ones along a Z-curve (the
dimension whose values differ in the highest bit decides), then all ends and the tag. It is total, so an entry is found
by binary search, and two runs can be merged. Along the curve are the dimensions before `CURVE`, for the trees of bin 0,
or before `GROUPED`, for those of other bins, whose boxes may have a point of a dimension in common.

Where marks are bounds (`marked.py`), `tops[k]` is at least the greatest mark of the live entries below block k, and
entries are found whose mark is not below the query's.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from whence.engine.matching.kernels.lanes import BLOCK, bound_block, bury, pack_block
from whence.model.codes import Codes
from whence.model.jit import allocating, kernel
from whence.model.record import RecordType, at_address

FOREST = RecordType(
    (
        ("entries", "int64", 2),
        ("alive", "uint8", 1),
        ("frames", "int64", 2),  # of blocks
        ("lanes", "uint32", 1),
        ("tops", "int64", 1),  # of blocks; none if marks are no bounds
        ("trees", "int64", 2),
        ("bounds", "int64", 2),  # of trees
        ("roof_frames", "int64", 2),
        ("roof_lanes", "uint32", 1),
        ("scalar", "int64", 1),  # see below
    )
)
forest = at_address(FOREST)
(
    ENTRIES,  # how many are used
    BLOCKS,
    TREES,
    ROOF,  # trees that the roof is made of; -1 if it is to be made anew
    DIMS,
    EQUAL,
    CURVE,
    GROUPED,
) = range(8)
BIN, FIRST, SIZE, LIVE, HEIGHT, NODE = range(6)
LEVELS = 15  # of blocks: more than there can be
_SIGN = np.uint64(1 << 63)

Flags = NDArray[np.uint8]
Forest = Any  # a record, which only Numba knows


@kernel
def before(a: Codes, i: int, b: Codes, j: int, dims: int, equal: int, curve: int) -> bool:
    """Whether entry a[i] is before b[j]."""
    for d in range(equal):
        if a[i, d] != b[j, d]:
            return bool(a[i, d] < b[j, d])
    decisive = -1
    most = np.uint64(0)
    for d in range(equal, curve):
        differs = (np.uint64(a[i, d]) ^ _SIGN) ^ (np.uint64(b[j, d]) ^ _SIGN)
        if most < differs and most < (most ^ differs):  # its highest bit is above that of `most`
            decisive = d
            most = differs
    if decisive >= 0:
        return bool(a[i, decisive] < b[j, decisive])
    for c in range(curve, 2 * dims + 1):
        if a[i, c] != b[j, c]:
            return bool(a[i, c] < b[j, c])
    return False


@kernel
def curve_of(scalar: Codes, bin: int) -> int:
    """The first dimension behind those of the curve that trees of a bin are ordered along."""
    return int(scalar[GROUPED] if bin > 0 else scalar[CURVE])


@kernel
def count_blocks(entries: int) -> int:
    """Blocks of a tree of so many entries."""
    level = (entries + BLOCK - 1) // BLOCK
    total = level
    while level > 1:
        level = (level + BLOCK - 1) // BLOCK
        total += level
    return total


@kernel
def sort_order(lines: Codes, dims: int, equal: int, curve: int, order: Codes, buffer: Codes) -> None:
    """Sort positions of entries, by merging runs that are in order already."""
    n = order.shape[0]
    width = 1
    while width < n:
        for start in range(0, n, 2 * width):
            middle = min(start + width, n)
            end = min(start + 2 * width, n)
            if middle == end or not before(lines, order[middle], lines, order[middle - 1], dims, equal, curve):
                continue
            i = start
            j = middle
            for k in range(start, end):
                if j == end or (i < middle and not before(lines, order[j], lines, order[i], dims, equal, curve)):
                    buffer[k] = order[i]
                    i += 1
                else:
                    buffer[k] = order[j]
                    j += 1
            for k in range(start, end):
                order[k] = buffer[k]
        width *= 2


@allocating
def build_blocks(f: Forest, t: int) -> None:
    """Compute the blocks and the bounds of a tree."""
    dims = f.scalar[DIMS]
    tree = f.trees[t]
    frames = f.frames
    lanes = f.lanes
    k = tree[NODE]
    count = tree[SIZE]
    blocks = (count + BLOCK - 1) // BLOCK
    height = 0
    bounds = np.empty((blocks, 2 * dims), np.int64)
    for b in range(blocks):
        first = tree[FIRST] + b * BLOCK
        some = min(BLOCK, count - b * BLOCK)
        pack_block(f.entries, first, some, dims, frames, lanes, k)
        bound_block(f.entries, first, some, dims, bounds, b)
        k += 1
    while blocks > 1:
        height += 1
        tree[NODE + height] = k
        count = blocks
        blocks = (count + BLOCK - 1) // BLOCK
        for b in range(blocks):
            some = min(BLOCK, count - b * BLOCK)
            pack_block(bounds, b * BLOCK, some, dims, frames, lanes, k)
            bound_block(bounds, b * BLOCK, some, dims, bounds, b)
            k += 1
    tree[HEIGHT] = height
    f.bounds[t] = bounds[0]


@kernel
def build_roof(f: Forest) -> None:
    """Make the blocks of the bounds of trees, if they have changed."""
    scalar = f.scalar
    if scalar[ROOF] == scalar[TREES]:
        return
    for b in range((scalar[TREES] + BLOCK - 1) // BLOCK):
        some = min(BLOCK, scalar[TREES] - b * BLOCK)
        pack_block(f.bounds, b * BLOCK, some, scalar[DIMS], f.roof_frames, f.roof_lanes, b)
    scalar[ROOF] = scalar[TREES]


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
def grow(address: int, bin: int, lines: Codes) -> None:
    """Make one tree of some lines and the trees that `absorbed` marked."""
    f = forest(address)
    entries = f.entries
    alive = f.alive
    trees = f.trees
    scalar = f.scalar
    total = lines.shape[0]
    for t in range(scalar[TREES]):
        if trees[t, BIN] == ~bin:
            total += trees[t, LIVE]
    if total == lines.shape[0]:
        gathered = lines
    else:
        gathered = np.empty((total, entries.shape[1]), np.int64)
        n = 0
        kept = 0
        for t in range(scalar[TREES]):
            if trees[t, BIN] == ~bin:
                for i in range(trees[t, FIRST], trees[t, FIRST] + trees[t, SIZE]):
                    if alive[i]:
                        gathered[n] = entries[i]
                        n += 1
            else:
                trees[kept] = trees[t]
                f.bounds[kept] = f.bounds[t]
                kept += 1
        gathered[n:] = lines
        scalar[TREES] = kept
    scalar[ROOF] = -1
    if total == 0:
        return
    order = np.arange(total)
    sort_order(gathered, scalar[DIMS], scalar[EQUAL], curve_of(scalar, bin), order, np.empty(total, np.int64))
    first = scalar[ENTRIES]
    for i in range(total):
        entries[first + i] = gathered[order[i]]
        alive[first + i] = 1
    t = scalar[TREES]
    tree = trees[t]
    tree[BIN] = bin
    tree[FIRST] = first
    tree[SIZE] = total
    tree[NODE] = scalar[BLOCKS]
    tree[LIVE] = total
    build_blocks(f, t)
    scalar[ENTRIES] += total
    scalar[BLOCKS] += count_blocks(total)
    scalar[TREES] += 1


@kernel
def locate(entries: Codes, alive: Flags, tree: Codes, lines: Codes, i: int, dims: int, equal: int, curve: int) -> int:
    """The live entry of a tree that equals lines[i], or -1."""
    low = tree[FIRST]
    high = low + tree[SIZE]
    end = high
    while low < high:
        middle = (low + high) >> 1
        if before(entries, middle, lines, i, dims, equal, curve):
            low = middle + 1
        else:
            high = middle
    while low < end and not before(lines, i, entries, low, dims, equal, curve):  # dead ones may be equal to it
        if alive[low]:
            return int(low)
        low += 1
    return -1


@kernel
def holds(bounds: Codes, t: int, lines: Codes, i: int, dims: int) -> bool:
    """Whether a box is within the bounds of a tree."""
    for d in range(dims):
        if bounds[t, d] > lines[i, d] or bounds[t, dims + d] < lines[i, dims + d]:
            return False
    return True


@kernel
def drop(address: int, lines: Codes, out: Codes) -> None:
    """Let entries that equal some lines be dead; `out` gets where each was, and its tree; -1 if there is none."""
    f = forest(address)
    dims = f.scalar[DIMS]
    alive = f.alive
    for i in range(lines.shape[0]):
        out[i, 0] = -1
        out[i, 1] = -1
        for t in range(f.scalar[TREES] - 1, -1, -1):
            tree = f.trees[t]
            if tree[LIVE] and holds(f.bounds, t, lines, i, dims):
                curve = curve_of(f.scalar, tree[BIN])
                at = locate(f.entries, alive, tree, lines, i, dims, f.scalar[EQUAL], curve)
                if at >= 0:
                    alive[at] = 0
                    place = at - tree[FIRST]
                    bury(f.lanes, tree[NODE] + place // BLOCK, place % BLOCK, dims)
                    tree[LIVE] -= 1
                    out[i, 0] = at
                    out[i, 1] = t
                    break
