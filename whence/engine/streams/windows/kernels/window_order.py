"""Order statistics: the i-th of a group's values, while values come and go.

A search tree whose shape is that of a heap of hashed values (a treap), so it depends on the values alone and is a few
times log2 of them deep. A node's line: [left, right, parent, value, count, values below and here]; -1 is no node.
"""

from __future__ import annotations

from whence.engine.streams.windows.kernels.window_lines import allocate, release, touch
from whence.model.jit import kernel

N_LEFT, N_RIGHT, N_PARENT, N_VALUE, N_COUNT, N_SIZE = range(6)
N_FIELDS = 6

_K = -7046029254386353131


@kernel
def _rank(value):
    h = (value ^ (value >> 31)) * _K
    h = (h ^ ((h >> 29) & 0x7FFFFFFFF)) * _K
    return h ^ ((h >> 32) & 0xFFFFFFFF)


@kernel
def _above(a, b):
    """Tell whether value a's node is above b's in the heap order."""
    x, y = _rank(a), _rank(b)
    return x > y or (x == y and a > b)


@kernel
def _raise(nodes, node, root):
    """Rotate a node above its parent; return the root."""
    data = nodes.data
    parent = data[node, N_PARENT]
    above = data[parent, N_PARENT]
    touch(nodes, node)
    touch(nodes, parent)
    near, far = (N_LEFT, N_RIGHT) if data[parent, N_LEFT] == node else (N_RIGHT, N_LEFT)
    moved = data[node, far]
    data[parent, near] = moved
    if moved >= 0:
        touch(nodes, moved)
        data[moved, N_PARENT] = parent
    data[node, far] = parent
    data[parent, N_PARENT] = node
    data[node, N_PARENT] = above
    whole = data[parent, N_SIZE]
    data[parent, N_SIZE] += (data[moved, N_SIZE] if moved >= 0 else 0) - data[node, N_SIZE]
    data[node, N_SIZE] = whole
    if above < 0:
        return node
    touch(nodes, above)
    data[above, N_LEFT if data[above, N_LEFT] == parent else N_RIGHT] = node
    return root


@kernel
def insert(nodes, root, value):
    """Add one occurrence of a value; return the root."""
    data = nodes.data
    at = root
    parent = -1
    while at >= 0:
        touch(nodes, at)
        data[at, N_SIZE] += 1
        if data[at, N_VALUE] == value:
            data[at, N_COUNT] += 1
            return root
        parent = at
        at = data[at, N_LEFT if value < data[at, N_VALUE] else N_RIGHT]
    node = allocate(nodes)
    data[node, N_LEFT] = -1
    data[node, N_RIGHT] = -1
    data[node, N_PARENT] = parent
    data[node, N_VALUE] = value
    data[node, N_COUNT] = 1
    data[node, N_SIZE] = 1
    if parent < 0:
        return node
    data[parent, N_LEFT if value < data[parent, N_VALUE] else N_RIGHT] = node
    while data[node, N_PARENT] >= 0 and _above(value, data[data[node, N_PARENT], N_VALUE]):
        root = _raise(nodes, node, root)
    return root


@kernel
def remove(nodes, root, value):
    """Remove one occurrence of a value that is in the tree; return the root."""
    data = nodes.data
    at = root
    while data[at, N_VALUE] != value:
        touch(nodes, at)
        data[at, N_SIZE] -= 1
        at = data[at, N_LEFT if value < data[at, N_VALUE] else N_RIGHT]
    touch(nodes, at)
    if data[at, N_COUNT] > 1:
        data[at, N_SIZE] -= 1
        data[at, N_COUNT] -= 1
        return root
    while data[at, N_LEFT] >= 0 and data[at, N_RIGHT] >= 0:
        left, right = data[at, N_LEFT], data[at, N_RIGHT]
        up = left if _above(data[left, N_VALUE], data[right, N_VALUE]) else right
        root = _raise(nodes, up, root)
        data[up, N_SIZE] -= 1
    below = data[at, N_LEFT] if data[at, N_LEFT] >= 0 else data[at, N_RIGHT]
    parent = data[at, N_PARENT]
    if below >= 0:
        touch(nodes, below)
        data[below, N_PARENT] = parent
    if parent >= 0:
        touch(nodes, parent)
        data[parent, N_LEFT if data[parent, N_LEFT] == at else N_RIGHT] = below
    else:
        root = below
    release(nodes, at)
    return root


@kernel
def select(nodes, root, index):
    """Return the value at an index, counted from 0."""
    data = nodes.data
    at = root
    while True:
        left = data[at, N_LEFT]
        before = data[left, N_SIZE] if left >= 0 else 0
        if index < before:
            at = left
        elif index < before + data[at, N_COUNT]:
            return data[at, N_VALUE]
        else:
            index -= before + data[at, N_COUNT]
            at = data[at, N_RIGHT]
