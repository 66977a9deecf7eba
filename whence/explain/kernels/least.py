"""The smallest derivations of all nodes of a graph."""

from __future__ import annotations

import numpy as np

from whence.explain.graph import Ints
from whence.model.codes import Codes
from whence.model.jit import allocating, kernel

NEVER = 1 << 62  # the size of what cannot be derived
_MOST = 1 << 40  # of a node, as part of a derivation: so many of them can be added up


@allocating
def costs(first: Codes, head: Ints, start: Codes, body: Ints, begin: Codes, user: Ints) -> Codes:
    """Count of each derivation how many steps and leaves derive its body, at least; a node that comes twice counts
    once.

    As Knuth's generalisation of Dijkstra's algorithm: a derivation is bigger than anything in its body, so the smallest
    open node is settled. `begin` and `user` are as `spread.uses` gives them."""
    nodes, derivations = len(first) - 1, len(head)
    size = np.full(nodes, NEVER, np.int64)
    left, total = np.zeros(derivations, np.int64), np.ones(derivations, np.int64)
    heap = np.empty((nodes + derivations, 2), np.int64)  # (size, node)
    count = 0
    for n in range(nodes):
        for u in range(begin[n], begin[n + 1]):
            if u == begin[n] or user[u] != user[u - 1]:  # a node's users ascend
                left[user[u]] += 1
        if first[n] == first[n + 1]:
            count = _push(heap, count, 1, n)
    for d in range(derivations):
        if left[d] == 0:
            count = _push(heap, count, 1, head[d])
    while count:
        cost, node = heap[0, 0], heap[0, 1]
        count = _pop(heap, count)
        if size[node] != NEVER:
            continue
        size[node] = cost
        for u in range(begin[node], begin[node + 1]):
            if u == begin[node] or user[u] != user[u - 1]:
                d = user[u]
                left[d] -= 1
                total[d] += min(cost, _MOST)
                if left[d] == 0:
                    count = _push(heap, count, total[d], head[d])
    for d in range(derivations):
        if left[d]:
            total[d] = NEVER
    return total


@kernel
def _push(heap, count, cost, node):
    at = count
    while at > 0 and heap[(at - 1) >> 1, 0] > cost:
        heap[at, 0], heap[at, 1] = heap[(at - 1) >> 1, 0], heap[(at - 1) >> 1, 1]
        at = (at - 1) >> 1
    heap[at, 0], heap[at, 1] = cost, node
    return count + 1


@kernel
def _pop(heap, count):
    count -= 1
    cost, node = heap[count, 0], heap[count, 1]
    at = 0
    while True:
        child = 2 * at + 1
        if child >= count:
            break
        if child + 1 < count and heap[child + 1, 0] < heap[child, 0]:
            child += 1
        if heap[child, 0] >= cost:
            break
        heap[at, 0], heap[at, 1] = heap[child, 0], heap[child, 1]
        at = child
    heap[at, 0], heap[at, 1] = cost, node
    return count
