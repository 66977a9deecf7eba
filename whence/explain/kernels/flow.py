"""The least cut between two vertices (Dinic's algorithm)."""

from __future__ import annotations

from typing import Any

import numpy as np

from whence.model.codes import Codes
from whence.model.jit import allocating


@allocating
def least_cut(vertices: int, source: int, sink: int, tail: Codes, top: Codes, capacity: Codes) -> tuple[Any, int]:
    """Return the vertices on the source's side of a least cut, and its capacity. Arc a goes from `tail[a]` to
    `top[a]`."""
    arcs = len(tail)
    begin = np.zeros(vertices + 1, np.int64)
    for a in range(arcs):
        begin[tail[a] + 1] += 1
        begin[top[a] + 1] += 1
    for v in range(vertices):
        begin[v + 1] += begin[v]
    at = begin[:-1].copy()
    out = np.empty(2 * arcs, np.int64)  # arc a is 2a, its way back 2a + 1
    end = np.empty(2 * arcs, np.int64)
    left = np.zeros(2 * arcs, np.int64)
    for a in range(arcs):
        out[at[tail[a]]] = 2 * a
        at[tail[a]] += 1
        out[at[top[a]]] = 2 * a + 1
        at[top[a]] += 1
        end[2 * a], end[2 * a + 1] = top[a], tail[a]
        left[2 * a] = capacity[a]
    depth = np.empty(vertices, np.int64)
    queue = np.empty(vertices, np.int64)
    path = np.empty(vertices, np.int64)
    flow = 0
    while True:
        depth[:] = -1
        depth[source] = 0
        queue[0] = source
        head, filled = 0, 1
        while head < filled:
            v = queue[head]
            head += 1
            for i in range(begin[v], begin[v + 1]):
                e = out[i]
                if left[e] > 0 and depth[end[e]] < 0:
                    depth[end[e]] = depth[v] + 1
                    queue[filled] = end[e]
                    filled += 1
        if depth[sink] < 0:
            return depth >= 0, flow
        at[:] = begin[:-1]
        long, v = 0, source
        while True:
            if v == sink:
                least = left[path[0]]
                for i in range(long):
                    least = min(least, left[path[i]])
                flow += least
                back = 0
                for i in range(long - 1, -1, -1):
                    left[path[i]] -= least
                    left[path[i] ^ 1] += least
                    if left[path[i]] == 0:
                        back = i
                long = back
                v = end[path[back] ^ 1]
                continue
            moved = False
            while at[v] < begin[v + 1]:
                e = out[at[v]]
                if left[e] > 0 and depth[end[e]] == depth[v] + 1:
                    path[long] = e
                    long += 1
                    v = end[e]
                    moved = True
                    break
                at[v] += 1
            if moved:
                continue
            if v == source:
                break
            long -= 1
            v = end[path[long] ^ 1]
            at[v] += 1
