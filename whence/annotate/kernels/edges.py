"""Sets of derivation edges: fragments of the graph of derivations, and whether their heads are derivable in it.

An edge (pool `e`) is the sequence rule, head name, body names. A function (pool `s`) is the sequence

    | how many heads | heads, sorted | edges, sorted |

and holds if all its heads are derivable: a name is, if it is a variable that has not been lost or the head of an edge
whose bodies all are. 0 is the empty sequence (false); 1 is the sequence 0, of no heads (true). Law: of every function
each edge is derivable from variables, and a head needs it, directly or through others; `restrict` sees to that.

Edges are numbered in the order of derivation, bodies mostly before heads, so that passes over a function's edges in
that order and, for what is needed, against it, settle after one or two.
"""

from __future__ import annotations

from whence.annotate.kernels.pool import (
    LENGTH,
    P_USED,
    START,
    Ints,
    has_room,
    intern,
    note,
    pool,
    set_note,
    sort_items,
)
from whence.model.jit import kernel
from whence.model.record import RecordType, at_address

GRAPH = RecordType(
    (
        ("kinds", "uint8", 1),  # of each name: 1 if it is a variable
        ("derivable", "int64", 1),  # of each name: stamp of the traversal that reached it
        ("needed", "int64", 1),  # of each name: stamp of the traversal that needs it; `pack`'s notes
        ("lost", "int64", 1),  # of each name: stamp of the `without` that loses it
        ("state", "uint8", 1),  # of each edge of the function at hand
        ("scalar", "int64", 1),  # G_*
    )
)
graph = at_address(GRAPH)

G_STATUS, G_LIMIT, G_STAMP, G_LOST, G_WANTED = range(5)
OK, GROW, TOO_LARGE, TORN, OTHER_HEAD = range(5)
WAITING, DERIVED, NEEDED = range(3)
RULE, HEAD, BODIES = range(3)  # in an edge


@kernel
def first_edge(s, a):
    """Where the edges of a function start; false has none."""
    start = s.spans[a, START]
    return start + 1 + s.items[start] if s.spans[a, LENGTH] else start


@kernel
def end(s, a):
    return s.spans[a, START] + s.spans[a, LENGTH]


@kernel
def merge(items, i, stop, j, last, to):
    """Write the union of two sorted stretches to `to`; where it ends."""
    while i < stop or j < last:
        if j == last or (i < stop and items[i] <= items[j]):
            if j < last and items[i] == items[j]:
                j += 1
            items[to] = items[i]
            i += 1
        else:
            items[to] = items[j]
            j += 1
        to += 1
    return to


@kernel
def union(g, s, a, b):
    """The function of the heads and edges of both, neither of which is false; or -1 with G_STATUS set."""
    if a == b:
        return a
    room = s.spans[a, LENGTH] + s.spans[b, LENGTH]
    if not has_room(s, 1, room):
        g.scalar[G_STATUS] = GROW
        return -1
    items, at = s.items, s.scalar[P_USED]
    p, q = first_edge(s, a), first_edge(s, b)
    to = merge(items, s.spans[a, START] + 1, p, s.spans[b, START] + 1, q, at + 1)
    items[at] = to - at - 1
    stop = merge(items, p, end(s, a), q, end(s, b), to)
    if stop - to > g.scalar[G_LIMIT]:
        g.scalar[G_STATUS] = TOO_LARGE
        return -1
    return intern(s, stop - at, 0)


@kernel
def same_heads(s, a, b):
    p, q = s.spans[a, START], s.spans[b, START]
    for i in range(s.items[p] + 1):
        if s.items[p + i] != s.items[q + i]:
            return False
    return True


@kernel
def either(g, s, a, b):
    """The function of the edges of both, which have the same heads; or -1 with G_STATUS set."""
    if a == b or b == 0 or a == 1:
        return a
    if a == 0 or b == 1:
        return b
    if not same_heads(s, a, b):
        g.scalar[G_STATUS] = OTHER_HEAD
        return -1
    return union(g, s, a, b)


@kernel
def variables(graph_address: int, e_address: int, s_address: int, tids: Ints, out: Ints, row: int) -> int:
    """The functions that are one variable each, which names are known as from now on."""
    g, s = graph(graph_address), pool(s_address)
    for i in range(row, len(tids)):
        if not has_room(s, 1, 2):
            g.scalar[G_STATUS] = GROW
            return i
        g.kinds[tids[i]] = 1
        s.items[s.scalar[P_USED]] = 1
        s.items[s.scalar[P_USED] + 1] = tids[i]
        out[i] = intern(s, 2, 0)
    return len(tids)


@kernel
def times(graph_address: int, e_address: int, s_address: int, a: Ints, b: Ints, out: Ints, row: int) -> int:
    """All heads of a and b."""
    g, s = graph(graph_address), pool(s_address)
    for i in range(row, len(a)):
        if a[i] == 0 or b[i] == 1:
            out[i] = a[i]
        elif b[i] == 0 or a[i] == 1:
            out[i] = b[i]
        else:
            out[i] = union(g, s, a[i], b[i])
        if out[i] < 0:
            return i
    return len(a)


@kernel
def plus(graph_address: int, e_address: int, s_address: int, a: Ints, b: Ints, out: Ints, row: int) -> int:
    """The edges of a and b."""
    g, s = graph(graph_address), pool(s_address)
    for i in range(row, len(a)):
        out[i] = either(g, s, a[i], b[i])
        if out[i] < 0:
            return i
    return len(a)


@kernel
def total(graph_address: int, e_address: int, s_address: int, a: Ints, starts: Ints, out: Ints, row: int) -> int:
    """The edges of runs of functions with one head."""
    g, s = graph(graph_address), pool(s_address)
    for r in range(row, len(starts)):
        stop = starts[r + 1] if r + 1 < len(starts) else len(a)
        out[r] = 0
        for i in range(starts[r], stop):
            out[r] = either(g, s, out[r], a[i])
            if out[r] < 0:
                return r
    return len(starts)


@kernel
def derived(
    graph_address: int,
    e_address: int,
    s_address: int,
    a: Ints,
    rules: Ints,
    heads: Ints,
    bodies: Ints,
    out: Ints,
    row: int,
) -> int:
    """The functions with one edge more, of whose head they are from now on."""
    g, e, s = graph(graph_address), pool(e_address), pool(s_address)
    for i in range(row, len(a)):
        if a[i] == 0:
            out[i] = 0
            continue
        first, stop = first_edge(s, a[i]), end(s, a[i])
        if not has_room(e, 1, BODIES + bodies.shape[1]) or not has_room(s, 1, 3 + stop - first):
            g.scalar[G_STATUS] = GROW
            return i
        if stop - first >= g.scalar[G_LIMIT]:
            g.scalar[G_STATUS] = TOO_LARGE
            return i
        g.kinds[heads[i]] = 0  # a name that is given again may have been a variable
        at = e.scalar[P_USED]
        e.items[at + RULE] = rules[i]
        e.items[at + HEAD] = heads[i]
        length = BODIES
        for j in range(bodies.shape[1]):
            if bodies[i, j] >= 0:
                e.items[at + length] = bodies[i, j]
                length += 1
        at, items = s.scalar[P_USED], s.items
        items[at] = 1
        items[at + 1] = heads[i]
        items[at + 2] = intern(e, length, 0)
        # The new edge stands before the copy of the others and sinks to its place.
        to = at + 3
        for j in range(first, stop):
            if items[j] < items[to - 1]:
                items[to] = items[to - 1]
                items[to - 1] = items[j]
            elif items[j] == items[to - 1]:
                continue
            else:
                items[to] = items[j]
            to += 1
        out[i] = intern(s, to - at, 0)
    return len(a)


@kernel
def reach(g, e, s, start, stop):
    """Mark what variables derive through the edges that wait, in a stretch of `s`'s items."""
    state, derivable, stamp = g.state, g.derivable, g.scalar[G_STAMP]
    changed = True
    while changed:
        changed = False
        for i in range(start, stop):
            if state[i - start] != WAITING:
                continue
            edge = e.spans[s.items[i], START]
            ready = True
            for j in range(edge + BODIES, edge + e.spans[s.items[i], LENGTH]):
                name = e.items[j]
                if derivable[name] != stamp and (not g.kinds[name] or g.lost[name] == g.scalar[G_LOST]):
                    ready = False
                    break
            if ready:
                state[i - start] = DERIVED
                derivable[e.items[edge + HEAD]] = stamp
                changed = True


@kernel
def need(g, e, s, start, stop):
    """Mark the derived edges of a stretch that some needed name needs; how many."""
    state, needed, stamp = g.state, g.needed, g.scalar[G_STAMP]
    kept, before = 0, -1
    while kept != before:
        before = kept
        for i in range(stop - 1, start - 1, -1):
            edge = e.spans[s.items[i], START]
            if state[i - start] == DERIVED and needed[e.items[edge + HEAD]] == stamp:
                state[i - start] = NEEDED
                kept += 1
                for j in range(edge + BODIES, edge + e.spans[s.items[i], LENGTH]):
                    needed[e.items[j]] = stamp
    return kept


@kernel
def restrict(g, e, s, heads, start, stop):
    """The function of `items[heads]` heads, which follow, and what they need of the edges of a stretch, 0 if one is
    not derivable; or -1 with G_STATUS set. All of it may stand behind the last item."""
    items, count, scalar = s.items, s.items[heads], g.scalar
    if stop - start > len(g.state):
        scalar[G_WANTED] = stop - start
        scalar[G_STATUS] = GROW
        return -1
    scalar[G_STAMP] += 1
    stamp = scalar[G_STAMP]
    for i in range(stop - start):
        g.state[i] = WAITING
    reach(g, e, s, start, stop)
    for i in range(heads + 1, heads + 1 + count):
        name = items[i]
        if g.derivable[name] != stamp and (not g.kinds[name] or g.lost[name] == scalar[G_LOST]):
            return 0
        g.needed[name] = stamp
    need(g, e, s, start, stop)
    if not has_room(s, 1, 1 + count + stop - start):
        scalar[G_STATUS] = GROW
        return -1
    at = s.scalar[P_USED]
    for i in range(count + 1):
        items[at + i] = items[heads + i]
    to = at + 1 + count
    for i in range(start, stop):
        if g.state[i - start] == NEEDED:
            items[to] = items[i]
            to += 1
    return intern(s, to - at, 0)


@kernel
def lose(graph_address: int, tids: Ints) -> None:
    """Variables that `without` loses."""
    g = graph(graph_address)
    g.scalar[G_LOST] += 1
    for i in range(len(tids)):
        if 0 <= tids[i] < len(g.lost):
            g.lost[tids[i]] = g.scalar[G_LOST]


@kernel
def without(graph_address: int, e_address: int, s_address: int, a: Ints, out: Ints, row: int) -> int:
    """What is left of functions without the variables that `lose` was told of. An edge is looked at once a call."""
    g, e, s = graph(graph_address), pool(e_address), pool(s_address)
    lost = g.scalar[G_LOST]
    for r in range(row, len(a)):
        start = s.spans[a[r], START]
        first, stop = first_edge(s, a[r]), end(s, a[r])
        touched = False
        for i in range(start + 1, first):
            touched = touched or g.lost[s.items[i]] == lost
        for i in range(first, stop):
            known = note(e, s.items[i])
            if known < 0:
                edge = e.spans[s.items[i], START]
                known = 0
                for j in range(edge + BODIES, edge + e.spans[s.items[i], LENGTH]):
                    if g.lost[e.items[j]] == lost:
                        known = 1
                set_note(e, s.items[i], known)
            touched = touched or known == 1
        out[r] = restrict(g, e, s, start, first, stop) if touched else a[r]
        if out[r] < 0:
            return r
    return len(a)


@kernel
def implied(s_address: int, a: Ints, b: Ints, out: Ints) -> None:
    """Whether plus(a, b) = b."""
    s = pool(s_address)
    for r in range(len(a)):
        out[r] = a[r] == b[r] or a[r] == 0 or b[r] == 1
        if out[r] or a[r] == 1 or b[r] == 0 or not same_heads(s, a[r], b[r]):
            continue
        j, last = first_edge(s, b[r]), end(s, b[r])
        out[r] = 1
        for i in range(first_edge(s, a[r]), end(s, a[r])):
            while j < last and s.items[j] < s.items[i]:
                j += 1
            if j == last or s.items[j] != s.items[i]:
                out[r] = 0
                break


@kernel
def weigh(e_address: int, s_address: int, a: Ints, out: Ints) -> None:
    """For each function (edges, names in them, heads)."""
    e, s = pool(e_address), pool(s_address)
    for r in range(len(a)):
        first = first_edge(s, a[r])
        out[r, 0] = end(s, a[r]) - first
        out[r, 1] = 0
        out[r, 2] = s.items[s.spans[a[r], START]] if a[r] else 0
        for i in range(first, end(s, a[r])):
            out[r, 1] += e.spans[s.items[i], LENGTH] - HEAD


@kernel
def support(graph_address: int, e_address: int, s_address: int, a: Ints, starts: Ints, out: Ints) -> None:
    """The distinct variables of each function, sorted, into `out`, which has room."""
    g, e, s = graph(graph_address), pool(e_address), pool(s_address)
    at = 0
    for r in range(len(a)):
        starts[r] = at
        g.scalar[G_STAMP] += 1
        stamp = g.scalar[G_STAMP]
        first, stop = first_edge(s, a[r]), end(s, a[r])
        for i in range(s.spans[a[r], START] + 1, first):
            name = s.items[i]
            if g.kinds[name] and g.needed[name] != stamp:
                g.needed[name] = stamp
                out[at] = name
                at += 1
        for i in range(first, stop):
            edge = e.spans[s.items[i], START]
            for j in range(edge + BODIES, edge + e.spans[s.items[i], LENGTH]):
                name = e.items[j]
                if g.kinds[name] and g.needed[name] != stamp:
                    g.needed[name] = stamp
                    out[at] = name
                    at += 1
        sort_items(out, starts[r], at)
    starts[len(a)] = at


@kernel
def note_parts(e_address: int, s_address: int, a: Ints, out: Ints) -> None:
    """Note the functions of a column and their edges; how many (functions, their items, edges, their items)."""
    e, s = pool(e_address), pool(s_address)
    for r in range(len(a)):
        if note(s, a[r]) >= 0:
            continue
        set_note(s, a[r], 0)
        out[0] += 1
        out[1] += s.spans[a[r], LENGTH]
        for i in range(first_edge(s, a[r]), end(s, a[r])):
            if note(e, s.items[i]) < 0:
                set_note(e, s.items[i], 0)
                out[2] += 1
                out[3] += e.spans[s.items[i], LENGTH]


@kernel
def rename_edges(s_address: int, count: int, moved: Ints) -> None:
    """Give the edges of all functions their new numbers, which keep their order."""
    s = pool(s_address)
    for a in range(count):
        for i in range(first_edge(s, a), end(s, a)):
            s.items[i] = moved[s.items[i]]
