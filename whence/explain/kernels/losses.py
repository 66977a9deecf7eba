"""Which nodes go with the loss of one base row, for each base row."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from whence.explain.graph import Ints
from whence.model.codes import Codes
from whence.model.jit import allocating, kernel

Bytes = NDArray[np.uint8]


@kernel
def _stays(d, start, body, doubt):
    """Return whether nothing in the body of a derivation is in doubt."""
    for j in range(start[d], start[d + 1]):
        if doubt[body[j]]:
            return False
    return True


@allocating
def followers(nodes: int, order: Ints, chosen: Ints, start: Codes, body: Ints) -> tuple[Codes, Ints]:
    """Return the nodes in whose chosen derivation each node is: those of n are `kid[kids[n] : kids[n + 1]]`."""
    kids = np.zeros(nodes + 1, np.int64)
    for i in range(len(order)):
        d = chosen[order[i]]
        if d >= 0:
            for j in range(start[d], start[d + 1]):
                kids[body[j] + 1] += 1
    for n in range(nodes):
        kids[n + 1] += kids[n]
    fill = kids[:-1].copy()
    kid = np.empty(kids[nodes], np.int32)
    for i in range(len(order)):
        d = chosen[order[i]]
        if d >= 0:
            for j in range(start[d], start[d + 1]):
                kid[fill[body[j]]] = order[i]
                fill[body[j]] += 1
    return kids, kid


@kernel
def losses(
    v: int,
    work: int,
    counts: Codes,
    doubt: Bytes,
    below: Ints,
    stays: Ints,
    kids: Codes,
    kid: Ints,
    base: Ints,
    asked: Codes,
    first: Codes,
    head: Ints,
    start: Codes,
    body: Ints,
    begin: Codes,
    user: Ints,
) -> int:
    """Count of each variable from `v` on how many of the nodes that are `asked` for go with it; return the first that
    is left when `work` nodes have been looked at. `doubt` is zero, before and after.

    Only nodes whose chosen derivation goes back to the base row can go with it. Of these a node stays that has a
    derivation all of whose body stays, which spreads. Cost: over all base rows, the derivations of as many nodes as
    there are base rows in all chosen derivations.
    """
    while v < len(base) and work > 0:
        below[0] = base[v]
        doubt[base[v]] = 1
        many, at, kept = 1, 0, 0
        while at < many:
            n = below[at]
            at += 1
            for k in range(kids[n], kids[n + 1]):
                h = kid[k]
                if doubt[h] == 0:
                    doubt[h] = 1
                    below[many] = h
                    many += 1
        for i in range(1, many):
            n = below[i]
            for d in range(first[n], first[n + 1]):
                if _stays(d, start, body, doubt):
                    doubt[n] = 0
                    stays[kept] = n
                    kept += 1
                    break
        at = 0
        while at < kept:
            n = stays[at]
            at += 1
            for u in range(begin[n], begin[n + 1]):
                d = user[u]
                h = head[d]
                if doubt[h] and _stays(d, start, body, doubt):
                    doubt[h] = 0
                    stays[kept] = h
                    kept += 1
        for i in range(many):
            n = below[i]
            if doubt[n]:
                counts[v] += asked[n]
                doubt[n] = 0
        work -= many + kept
        v += 1
    return v
