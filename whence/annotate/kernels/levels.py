"""Decision diagrams as bytes, level by level, and what must hold of nodes that come from elsewhere."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from whence.annotate.kernels.bdd import HIGH, LOW, VARIABLE
from whence.annotate.kernels.pool import get, put
from whence.model.jit import kernel

Ints = NDArray[np.int64]
Small = NDArray[np.int32]
Bytes = NDArray[np.uint8]


@kernel
def write(counts: Ints, low: Ints, high: Ints, handles: Ints, out: Bytes) -> int:
    """The bytes of a diagram whose levels have so many nodes, deepest first; where they end in `out`.

        levels, functions, then for each level: its nodes, and of each node low and high; then the functions

    A side is 0, 1 or one more than the distance to the node that was written before; a function is its number.
    """
    at = put(out, 0, len(counts))
    at = put(out, at, len(handles))
    node = 2
    for level in range(len(counts)):
        at = put(out, at, counts[level])
        for _ in range(counts[level]):
            for side in (low[node - 2], high[node - 2]):
                at = put(out, at, side if side <= 1 else node - side + 1)
            node += 1
    for i in range(len(handles)):
        at = put(out, at, handles[i])
    return int(at)


@kernel
def written(node, side):
    """The number of a side, given as it is written; -1 for one that cannot be."""
    if side <= 1:
        return side
    number = node - side + 1
    return number if number > 1 else -1


@kernel
def read(data: Bytes, names: int, level_of: Ints, low: Ints, high: Ints, handles: Ints, found: Ints) -> bool:
    """The inverse: each node's level, low and high, and the functions; how many nodes and functions are `found`.

    False if the bytes are no diagram of so many variables: all arrays have as many places as there are bytes, and every
    node and every function takes at least one.
    """
    levels, at = get(data, 0)
    roots, at = get(data, at)
    if at < 0 or levels != names or roots > len(data):
        return False
    node = 2
    for level in range(levels):
        count, at = get(data, at)
        first = node
        if at < 0 or count == 0 or count > len(data) - at:
            return False
        for _ in range(count):
            a, at = get(data, at)
            b, at = get(data, at)
            a = written(node, a)
            b = written(node, b)
            # Sides are nodes of deeper levels, and two different ones; low is never true, high never false.
            if at < 0 or a < 0 or b < 1 or a >= first or b >= first or a == b or a == 1:
                return False
            level_of[node - 2], low[node - 2], high[node - 2] = level, a, b
            node += 1
    for i in range(roots):
        handles[i], at = get(data, at)
        if at < 0 or handles[i] >= node:
            return False
    found[0], found[1] = node - 2, roots
    return bool(at == len(data))


@kernel
def ordered(nodes: Small, label: Ints) -> bool:
    """Whether nodes (after two terminals) have children that come before them and stand deeper, and are no superfluous
    ones. Whether they are all different is not asked."""
    for node in range(2, len(nodes)):
        variable = nodes[node, VARIABLE]
        if variable < 0 or variable >= len(label) or label[variable] < 0 or nodes[node, LOW] == nodes[node, HIGH]:
            return False
        for side in range(LOW, HIGH + 1):
            child = nodes[node, side]
            if child < 0 or child >= node or (child > 1 and label[nodes[child, VARIABLE]] <= label[variable]):
                return False
    return True
