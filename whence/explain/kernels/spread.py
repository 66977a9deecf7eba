"""Least fixpoints on a graph of derivations: what is there, and in which order it gets there."""

from __future__ import annotations

from typing import Any

import numpy as np

from whence.explain.graph import Ints
from whence.model.codes import Codes
from whence.model.jit import allocating, kernel


@allocating
def uses(nodes: int, start: Codes, body: Ints) -> tuple[Codes, Ints]:
    """Return the derivations in whose bodies each node is: those of n are `user[begin[n] : begin[n + 1]]`."""
    begin = np.zeros(nodes + 1, np.int64)
    for i in range(len(body)):
        begin[body[i] + 1] += 1
    for n in range(nodes):
        begin[n + 1] += begin[n]
    at = begin[:-1].copy()
    user = np.empty(len(body), np.int32)
    for d in range(len(start) - 1):
        for i in range(start[d], start[d + 1]):
            n = body[i]
            user[at[n]] = d
            at[n] += 1
    return begin, user


@allocating
def derive(leaf: Any, head: Ints, start: Codes, begin: Codes, user: Ints) -> tuple[Ints, Ints]:
    """Return the nodes that are there when the leaves marked are, bodies before heads, and the derivation by which each
    came (-1 for leaves, -2 for nodes that are not there). Linear in the graph."""
    nodes = len(leaf)
    chosen = np.full(nodes, -2, np.int32)
    order = np.empty(nodes, np.int32)
    missing = np.empty(len(head), np.int64)
    end = 0
    for n in range(nodes):
        if leaf[n]:
            chosen[n] = -1
            order[end] = n
            end += 1
    for d in range(len(head)):
        missing[d] = start[d + 1] - start[d]
        if missing[d] == 0 and chosen[head[d]] == -2:
            chosen[head[d]] = d
            order[end] = head[d]
            end += 1
    at = 0
    while at < end:
        n = order[at]
        at += 1
        for u in range(begin[n], begin[n + 1]):
            d = user[u]
            missing[d] -= 1
            if missing[d] == 0 and chosen[head[d]] == -2:
                chosen[head[d]] = d
                order[end] = head[d]
                end += 1
    return order[:end], chosen


@allocating
def saturate(
    order: Ints, first: Codes, head: Ints, start: Codes, body: Ints, begin: Codes, user: Ints, words: Any
) -> None:
    """Compute the least fixpoint of 64 losses at a time: bit s of `words[n]` says whether n is there in case s. Given
    are the words of leaves; `order` has the other nodes, bodies before heads where there is no cycle. After the first
    pass only heads whose bodies changed are looked at."""
    due = np.zeros(len(words), np.uint8)
    for i in range(len(order)):
        due[order[i]] = 1
    changed = True
    while changed:
        changed = False
        for i in range(len(order)):
            n = order[i]
            if due[n] == 0:
                continue
            due[n] = 0
            had = words[n]
            now = had
            for d in range(first[n], first[n + 1]):
                all_of = ~np.uint64(0)
                for j in range(start[d], start[d + 1]):
                    all_of &= words[body[j]]
                now |= all_of
            if now != had:
                words[n] = now
                changed = True
                for u in range(begin[n], begin[n + 1]):
                    due[head[user[u]]] = 1


@kernel
def draw(chances: Any, words: Any, seed: int) -> Any:
    """Fill rows of words with independent bits, each set with its row's chance (to 52 binary digits), and the seed for
    the next call. The digits of the chance decide, from the last on, between AND and OR with a random word
    (splitmix64)."""
    state = np.uint64(seed)
    for v in range(len(chances)):
        digits = np.int64(chances[v] * 4503599627370496.0)
        if digits >= 4503599627370496:
            words[v, :] = ~np.uint64(0)
            continue
        low = 0
        while low < 52 and digits >> low & 1 == 0:
            low += 1
        for w in range(words.shape[1]):
            bits = np.uint64(0)
            for i in range(low, 52):
                state += np.uint64(0x9E3779B97F4A7C15)
                z = (state ^ (state >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
                z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
                z ^= z >> np.uint64(31)
                bits = bits | z if digits >> i & 1 else bits & z
            words[v, w] = bits
    return np.int64(state)


@allocating
def levels(nodes: int, head: Ints, start: Codes, body: Ints, tallied: Codes, most: int) -> Codes:
    """Count how many tallies lie on the way from leaves to each node, at most; -1 in the first place if cycles pass
    through a tally."""
    level = np.zeros(nodes, np.int64)
    changed = True
    while changed:
        changed = False
        for d in range(len(head)):
            n = head[d]
            high = level[n]
            for j in range(start[d], start[d + 1]):
                below = level[body[j]] + tallied[n]
                if below > high:
                    high = below
            if high > level[n]:
                level[n] = high
                changed = True
                if high > most:
                    level[0] = -1
                    return level
    return level


@allocating
def depths(root: int, first: Codes, start: Codes, body: Ints) -> Codes:
    """Return how far each node is below the root, -1 for those that are in no derivation of it."""
    depth = np.full(len(first) - 1, -1, np.int64)
    queue = np.empty(len(first), np.int32)
    depth[root] = 0
    queue[0] = root
    at, end = 0, 1
    while at < end:
        n = queue[at]
        at += 1
        for j in range(start[first[n]], start[first[n + 1]]):
            b = body[j]
            if depth[b] < 0:
                depth[b] = depth[n] + 1
                queue[end] = b
                end += 1
    return depth
