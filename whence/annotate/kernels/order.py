"""Depth-first traversal of edges, compiled."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from whence.model.jit import kernel
from whence.model.record import RecordType, at_address

Ints = NDArray[np.int64]

NONE = -1

TRAVERSAL = RecordType(
    tuple((name, "int64", 1) for name in ("edges", "tail", "head", "leaving", "place", "last"))  # [edge], [node]
    + tuple((name, "int64", 1) for name in ("roots", "first", "by_tail", "stack", "out"))  # scratch, and the order
)
traversal = at_address(TRAVERSAL)

READY = RecordType(
    tuple((name, "int64", 1) for name in ("x", "y", "out_first", "by_tail", "in_first", "by_head", "roots", "out"))
    + tuple((name, "int64", 1) for name in ("cursor", "taken", "following", "stack"))
    + (("ready", "int64", 2),)
)
network = at_address(READY)


@kernel
def take_roots(x: Ints, y: Ints, leaving: Ints, entering: Ints, place: Ints, roots: Ints, count: int) -> int:
    """Count new edges (x, y), and add to the `count` roots of the traversal to come; return the number of roots.

    Where x is new, it is a root: in the place of y, if y was one and has edges, so that what follows y follows x now
    (case b of Figure 9); else at the end (case a). Where x is known, y comes after what x reaches (cases c and d): that
    is left to the traversal. `place[node]` is where a root stands in `roots`, else NONE.
    """
    for i in range(len(x)):
        a, b = x[i], y[i]
        if a == NONE:
            continue
        if leaving[a] == 0 and entering[a] == 0:
            at = place[b] if b != NONE and leaving[b] else NONE
            if at == NONE:
                at = count
                count += 1
            else:
                place[b] = NONE
            roots[at], place[a] = a, at
        leaving[a] += 1
        if b != NONE:
            entering[b] += 1
    return count


@kernel
def traverse(address: int, count: int) -> int:
    """Write the edges into `out` depth-first, from the first `count` roots on; return the number of roots.

    Roots are taken in their order, then what they do not reach in the order of `edges`; the edges of a node in the
    order of `edges`; edges without a start last. `roots` and `place` become those of this traversal. `first` has one
    place a node and one more, `by_tail` and `stack` as many as there are edges or nodes, `place` and `last` one a node;
    `last[node]` becomes the last edge that it reaches before its turn is over, or the one that leads to it.
    """
    t = traversal(address)
    edges, tail, head, leaving, place, last = t.edges, t.tail, t.head, t.leaving, t.place, t.last
    roots, first, by_tail, stack, out = t.roots, t.first, t.by_tail, t.stack, t.out
    nodes = len(leaving)
    first[0] = 0
    for node in range(nodes):
        first[node + 1] = first[node] + leaving[node]
        place[node] = first[node]
    for i in range(len(edges)):
        x = tail[edges[i]]
        if x != NONE:
            by_tail[place[x]] = edges[i]
            place[x] += 1
    # From here on place[node] is the next edge to take; first[node + 1] where they end. An untouched node is a visit
    # not yet made.
    for node in range(nodes):
        place[node] = -2
    filled, kept = 0, 0
    for i in range(count + len(edges)):
        root = roots[i] if i < count else tail[edges[i - count]]
        if root == NONE or place[root] != -2 or leaving[root] == 0:
            continue
        roots[kept] = root
        kept += 1
        place[root] = first[root]
        stack[0] = root
        depth = 0
        while depth >= 0:
            node = stack[depth]
            if place[node] == first[node + 1]:
                last[node] = out[filled - 1]
                depth -= 1
                continue
            edge = by_tail[place[node]]
            place[node] += 1
            out[filled] = edge
            filled += 1
            y = head[edge]
            if y != NONE and place[y] == -2:
                place[y] = first[y]
                depth += 1
                stack[depth] = y
    for i in range(len(edges)):
        if tail[edges[i]] == NONE:
            out[filled] = edges[i]
            filled += 1
    for node in range(nodes):
        place[node] = NONE
    for i in range(kept):
        place[roots[i]] = i
    return kept


@kernel
def _visit(n, node):
    """Enter a node: edges between it and nodes visited before are ready, behind others of the same start."""
    x, y, cursor, taken, ready, following = n.x, n.y, n.cursor, n.taken, n.ready, n.following
    cursor[node] = n.out_first[node]
    for incoming in range(2):
        first, by = (n.in_first, n.by_head) if incoming else (n.out_first, n.by_tail)
        for i in range(first[node], first[node + 1]):
            edge = by[i]
            start, end = x[edge], y[edge]
            if taken[edge] or end == NONE or start == NONE or cursor[start] == NONE or cursor[end] == NONE:
                continue
            if start == end and not incoming:
                continue
            if ready[start, 0] == NONE:
                ready[start, 0] = edge
            else:
                following[ready[start, 1]] = edge
            ready[start, 1] = edge


@kernel
def ready_first(address: int) -> int:
    """Write the edges 0, 1, … from x to y depth-first, those that lead to nodes visited before first; return how many
    have a start. Paths that close at once share more than those that close late.

    Roots are tried in their order. `out_first`, `by_tail` and `in_first`, `by_head` are edges by their nodes; the rest
    is scratch: cursor [node], taken [edge], following [edge], stack [node], ready [node, 2], filled with NONE but for
    `taken`, which is 0.
    """
    n = network(address)
    y, out_first, by_tail, roots, out = n.y, n.out_first, n.by_tail, n.roots, n.out
    cursor, taken, ready, following, stack = n.cursor, n.taken, n.ready, n.following, n.stack
    filled = 0
    for r in range(len(roots)):
        if cursor[roots[r]] != NONE:
            continue
        _visit(n, roots[r])
        stack[0] = roots[r]
        depth = 0
        while depth >= 0:
            node = stack[depth]
            edge = ready[node, 0]
            if edge != NONE:
                ready[node, 0] = following[edge]
            else:
                while cursor[node] < out_first[node + 1] and taken[by_tail[cursor[node]]]:
                    cursor[node] += 1
                if cursor[node] == out_first[node + 1]:
                    depth -= 1
                    continue
                edge = by_tail[cursor[node]]
            taken[edge] = 1
            out[filled] = edge
            filled += 1
            if y[edge] != NONE and cursor[y[edge]] == NONE:
                _visit(n, y[edge])
                depth += 1
                stack[depth] = y[edge]
    return filled


@kernel
def neighbours(edges: Ints, label: Ints, labels: Ints, fresh: Ints, after: Ints) -> int:
    """Write the edges without a label, and how many of the rising `labels` come before each: those up to the one of the
    last edge before it that has one. Return their number."""
    count, low = 0, 0
    for i in range(len(edges)):
        if label[edges[i]] >= 0:
            low = label[edges[i]] + 1
            continue
        begin, end = 0, len(labels)
        while begin < end:
            middle = (begin + end) >> 1
            if labels[middle] < low:
                begin = middle + 1
            else:
                end = middle
        fresh[count], after[count] = edges[i], begin
        count += 1
    return count


@kernel
def spread(after: Ints, labels: Ints, gap: int, out: Ints) -> bool:
    """Number new variables between the rising `labels`: `after` (rising) says how many of these come before each.
    Those of one gap share it evenly; behind the last label they stand `gap` apart. False if one does not fit."""
    i = 0
    while i < len(after):
        end = i
        while end < len(after) and after[end] == after[i]:
            end += 1
        low = labels[after[i] - 1] if after[i] else 0
        step = gap
        if after[i] < len(labels):
            step = (labels[after[i]] - low) // (end - i + 1)
            if step == 0:
                return False
        for at in range(i, end):
            low += step
            out[at] = low
        i = end
    return True


@kernel
def longest_rise(values: Ints, ends: Ints) -> int:
    """Return the length of the longest rising subsequence; `ends` is scratch, as long as the values."""
    length = 0
    for i in range(len(values)):
        low, high = 0, length
        while low < high:
            middle = (low + high) >> 1
            if ends[middle] < values[i]:
                low = middle + 1
            else:
                high = middle
        ends[low] = values[i]
        length = max(length, low + 1)
    return length
