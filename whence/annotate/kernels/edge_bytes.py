"""Sets of derivation edges as bytes: varints, every distinct function, edge and name once.

A column is its length and its rows. A row is 0 (false), 1 (true), 2 + 2i for the i-th function written, or 1 + 2n for a
new one, whose n heads follow, how many edges it has, and those. An edge is 2i for the i-th edge written, or 1 + 2n for
a new one, whose rule, head and n bodies follow. A name is 2i for the i-th name, or 1 + 2i if that is a variable.
"""

from __future__ import annotations

from whence.annotate.kernels.edges import (
    BODIES,
    G_LIMIT,
    G_STAMP,
    G_STATUS,
    GROW,
    HEAD,
    OK,
    RULE,
    TOO_LARGE,
    TORN,
    end,
    first_edge,
    graph,
    restrict,
)
from whence.annotate.kernels.pool import (
    LENGTH,
    LOW,
    P_USED,
    START,
    Bytes,
    Ints,
    get,
    has_room,
    intern,
    note,
    pool,
    put,
    set_note,
    sort_items,
)
from whence.model.jit import kernel


@kernel
def put_name(g, names, named, data, at, name):
    """Write a name as its place in `names` and whether it is a variable; (how many names, where the next one goes)."""
    if (g.needed[name] >> 32) != g.scalar[G_STAMP]:
        g.needed[name] = (g.scalar[G_STAMP] << 32) | named
        names[named] = name
        named += 1
    return named, put(data, at, ((g.needed[name] & LOW) << 1) | g.kinds[name])


@kernel
def pack(graph_address: int, e_address: int, s_address: int, a: Ints, names: Ints, data: Bytes, sizes: Ints) -> bool:
    """Write a column of functions; `sizes` gets (names, bytes). False if `data` is too short. Stamps are new."""
    g, e, s = graph(graph_address), pool(e_address), pool(s_address)
    named = functions = edges = 0
    at = put(data, 0, len(a))
    for r in range(len(a)):
        if a[r] < 2:
            at = put(data, at, a[r])
            continue
        known = note(s, a[r])
        if known >= 0:
            at = put(data, at, 2 + 2 * known)
            continue
        set_note(s, a[r], functions)
        functions += 1
        start, first, stop = s.spans[a[r], START], first_edge(s, a[r]), end(s, a[r])
        at = put(data, at, 1 + 2 * (first - start - 1))
        for i in range(start + 1, first):
            named, at = put_name(g, names, named, data, at, s.items[i])
        at = put(data, at, stop - first)
        for i in range(first, stop):
            known = note(e, s.items[i])
            if known >= 0:
                at = put(data, at, 2 * known)
                continue
            set_note(e, s.items[i], edges)
            edges += 1
            edge, length = e.spans[s.items[i], START], e.spans[s.items[i], LENGTH]
            at = put(data, put(data, at, 1 + 2 * (length - BODIES)), e.items[edge + RULE])
            named, at = put_name(g, names, named, data, at, e.items[edge + HEAD])
            for j in range(edge + BODIES, edge + length):
                named, at = put_name(g, names, named, data, at, e.items[j])
        if at < 0:
            return False
    sizes[0] = named
    sizes[1] = at
    return bool(at >= 0)


@kernel
def get_name(g, names, data, at):
    """The name at a place, and where the next one is, or -1. A variable is one from now on, another name is none."""
    code, at = get(data, at)
    if at < 0 or (code >> 1) >= len(names):
        return 0, -1
    name = names[code >> 1]
    g.kinds[name] = code & 1
    return name, at


@kernel
def read_edge(g, e, names, data, at, count):
    """The new edge of so many bodies, and where the next one is, or -1 with G_STATUS set."""
    g.scalar[G_STATUS] = TORN
    rule, at = get(data, at)
    head, at = get_name(g, names, data, at)
    if at < 0 or rule > 0x7FFFFFFF or count > len(data) - at:
        return 0, -1
    if not has_room(e, 1, BODIES + count):
        g.scalar[G_STATUS] = GROW
        return 0, -1
    to = e.scalar[P_USED]
    e.items[to + RULE] = rule
    e.items[to + HEAD] = head
    for j in range(count):
        name, at = get_name(g, names, data, at)
        e.items[to + BODIES + j] = name
    if at < 0:
        return 0, -1
    return intern(e, BODIES + count, 0), at


@kernel
def distinct(items, start, stop):
    """Sort a stretch and drop what is there twice; where it ends then."""
    sort_items(items, start, stop)
    to = start
    for i in range(start, stop):
        if i == start or items[i] != items[to - 1]:
            items[to] = items[i]
            to += 1
    return to


@kernel
def unpack(
    graph_address: int, e_address: int, s_address: int, names: Ints, data: Bytes, known: Ints, out: Ints
) -> None:
    """Read a column of functions from behind its length. Every count is checked against the bytes there are, and what
    no head needs or no variable derives is dropped. G_STATUS says how it ended.

    `known[:, 0]` and `known[:, 1]` have room for the edges and functions met.
    """
    g, e, s = graph(graph_address), pool(e_address), pool(s_address)
    scalar = g.scalar
    scalar[G_STATUS] = TORN
    functions = edges = 0
    _, at = get(data, 0)
    for r in range(len(out)):
        code, at = get(data, at)
        if at < 0:
            return
        if code < 2:
            out[r] = code
            continue
        count = code >> 1
        if not code & 1:
            if count > functions:
                return
            out[r] = known[count - 1, 1]
            continue
        if count > len(data) - at:
            return
        if not has_room(s, 1, 2 * (2 + len(data))):
            scalar[G_STATUS] = GROW
            return
        heads = s.scalar[P_USED]
        for i in range(count):
            name, at = get_name(g, names, data, at)
            s.items[heads + 1 + i] = name
        start = distinct(s.items, heads + 1, heads + 1 + count)
        s.items[heads] = start - heads - 1
        count, at = get(data, at)
        if at < 0 or count > len(data) - at:
            return
        if count > scalar[G_LIMIT]:
            scalar[G_STATUS] = TOO_LARGE
            return
        for i in range(count):
            code, at = get(data, at)
            if at < 0 or (not code & 1 and (code >> 1) >= edges):
                return
            if not code & 1:
                s.items[start + i] = known[code >> 1, 0]
                continue
            edge, at = read_edge(g, e, names, data, at, code >> 1)
            if at < 0:
                return
            known[edges, 0] = edge
            edges += 1
            s.items[start + i] = edge
        out[r] = restrict(g, e, s, heads, start, distinct(s.items, start, start + count))
        if out[r] < 0:
            return
        known[functions, 1] = out[r]
        functions += 1
    if at == len(data):
        scalar[G_STATUS] = OK
