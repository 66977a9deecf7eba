"""The greatest mark below every block of a forest, where marks are bounds.

So a mark is one more dimension of a box, unbounded below, that may be changed in place: the order of entries does not
depend on it.
"""

from __future__ import annotations

from whence.engine.matching.kernels.forest import FIRST, NODE, SIZE, TREES, Flags, forest
from whence.engine.matching.kernels.lanes import BLOCK
from whence.model.codes import Codes
from whence.model.jit import kernel

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
def bound_marks(address: int, t: int) -> None:
    """Compute the greatest marks of a tree's blocks."""
    f = forest(address)
    tops = f.tops
    tree = f.trees[t]
    first = tree[FIRST]
    size = tree[SIZE]
    node = tree[NODE]
    blocks = (size + BLOCK - 1) // BLOCK
    for b in range(blocks):
        at = first + b * BLOCK
        tops[node + b] = top_of_block(f.entries, f.alive, at, min(at + BLOCK, first + size))
    while blocks > 1:
        above = node + blocks
        wide = (blocks + BLOCK - 1) // BLOCK
        for b in range(wide):
            at = node + b * BLOCK
            tops[above + b] = top_of_nodes(tops, at, min(at + BLOCK, node + blocks))
        node = above
        blocks = wide


@kernel
def set_marks(address: int, places: Codes, marks: Codes) -> None:
    """Change the marks of entries, and the greatest ones above them."""
    f = forest(address)
    entries = f.entries
    tops = f.tops
    trees = f.trees
    for k in range(places.shape[0]):
        at = places[k]
        entries[at, entries.shape[1] - 1] = marks[k]
        for t in range(f.scalar[TREES]):
            first = trees[t, FIRST]
            size = trees[t, SIZE]
            if at < first or at >= first + size:
                continue
            place = (at - first) // BLOCK
            node = trees[t, NODE]
            start = first + place * BLOCK
            top = top_of_block(entries, f.alive, start, min(start + BLOCK, first + size))
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
