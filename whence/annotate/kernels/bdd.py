"""Reduced ordered decision diagrams in one array of nodes, as the kernels see them.

A node is (variable, low, high): the function that is `high` where the variable holds and `low` where it does not. Node
0 is false, node 1 is true. Three laws make handles canonical: low and high differ, the variables below a node have
larger labels than its own, and no two nodes are equal (`table` finds them). Since a node is made after its children,
these have smaller numbers: a pass by falling numbers meets parents first, one by rising numbers children.

`note[node]` is what one pass remembers of a node; it counts only while `nodes[node, STAMP]` is the forest's stamp, so
that no pass clears it. `cache` forgets: an entry is overwritten by the next one with its hash.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from whence.annotate.kernels.pool import mix
from whence.model.jit import kernel
from whence.model.record import RecordType, at_address

Ints = NDArray[np.int64]
Small = NDArray[np.int32]

FOREST = RecordType(
    (
        ("nodes", "int32", 2),  # [node, 4]
        ("note", "int64", 1),  # [node]
        ("table", "int32", 1),  # open addressing: node, 0 where empty
        ("cache", "int64", 2),  # (what was asked, the answer)
        ("label", "int64", 1),  # [variable]: its place in the order, -1 if it has none
        ("stack", "int64", 2),  # [2 * variables and some, 5]
        ("scalar", "int64", 1),  # F_*
    )
)
forest = at_address(FOREST)

VARIABLE, LOW, HIGH, STAMP = range(4)
(
    F_NODES,  # nodes in use, the two terminals included
    F_STAMP,  # the stamp of notes that count
    F_STATUS,  # why a kernel came back
    F_CURSOR,  # how far it is
    F_FILLED,  # how much of its output it has written
) = range(5)
F_FIELDS = 5
OK, ROOM, OUTPUT = range(3)
TIMES, PLUS, BELOW = range(3)
NO_ROOM = -1
FRAME = 5


@kernel
def make(f, variable, low, high):
    """The node with these parts, or NO_ROOM. The caller has seen to it that it is no superfluous one."""
    nodes, table, scalar = f.nodes, f.table, f.scalar
    mask = len(table) - 1
    at = mix(mix(variable, low), high) & mask
    while table[at]:
        node = table[at]
        if nodes[node, LOW] == low and nodes[node, HIGH] == high and nodes[node, VARIABLE] == variable:
            return np.int64(node)
        at = (at + 1) & mask
    node = scalar[F_NODES]
    if node >= len(nodes):
        scalar[F_STATUS] = ROOM
        return NO_ROOM
    nodes[node, VARIABLE] = variable
    nodes[node, LOW] = low
    nodes[node, HIGH] = high
    nodes[node, STAMP] = 0
    table[at] = node
    scalar[F_NODES] = node + 1
    return node


@kernel
def choose(f, variable, low, high):
    """The function that is `high` where the variable holds, else `low`; both are below the variable."""
    return low if low == high else make(f, variable, low, high)


@kernel
def rehash(address: int) -> None:
    """Fill the (empty) table from the nodes."""
    f = forest(address)
    nodes, table = f.nodes, f.table
    mask = len(table) - 1
    for node in range(2, f.scalar[F_NODES]):
        at = mix(mix(np.int64(nodes[node, VARIABLE]), np.int64(nodes[node, LOW])), np.int64(nodes[node, HIGH])) & mask
        while table[at]:
            at = (at + 1) & mask
        table[at] = node


@kernel
def recall(f, key):
    """What the cache knows of a question, or -1."""
    cache = f.cache
    at = mix(0, key) & (len(cache) - 1)
    return cache[at, 1] if cache[at, 0] == key else -1


@kernel
def remember(f, key, answer):
    cache = f.cache
    at = mix(0, key) & (len(cache) - 1)
    cache[at, 0] = key
    cache[at, 1] = answer


@kernel
def recache(address: int, old: Ints) -> None:
    """Carry over what a smaller cache knew."""
    f = forest(address)
    for i in range(len(old)):
        if old[i, 0] >= 0:
            remember(f, old[i, 0], old[i, 1])


@kernel
def question(op, a, b):
    """A question to the cache as one number: handles have 30 bits."""
    return (a << 33) | (b << 2) | op


@kernel
def at_once(f, op, a, b):
    """a op b (TIMES or PLUS, a <= b) if it is plain or in the cache, or -1."""
    if a == b:
        return a
    if a <= 1:
        if op == TIMES:
            return b if a else 0
        return 1 if a else b
    return recall(f, question(op, a, b))


@kernel
def combine(f, op, a, b):
    """a op b for TIMES and PLUS, or NO_ROOM.

    A frame of the stack is (a, b, node of the one on top or -1 if both, low result). The high side comes second.
    """
    if a > b:
        a, b = b, a
    result = at_once(f, op, a, b)
    if result >= 0:
        return result
    nodes, label, stack = f.nodes, f.label, f.stack
    depth = 0
    stack[0, 0], stack[0, 1], stack[0, 3] = a, b, -1
    while True:
        a, b, low = stack[depth, 0], stack[depth, 1], stack[depth, 3]
        x, y = nodes[a, VARIABLE], nodes[b, VARIABLE]
        side = LOW if low < 0 else HIGH
        if x == y:
            c, d = np.int64(nodes[a, side]), np.int64(nodes[b, side])
        elif label[x] < label[y]:
            c, d = np.int64(nodes[a, side]), b
        else:
            c, d = a, np.int64(nodes[b, side])
            x = y
        if c > d:
            c, d = d, c
        result = at_once(f, op, c, d)
        if result < 0:
            depth += 1
            stack[depth, 0], stack[depth, 1], stack[depth, 3] = c, d, -1
            continue
        # A result goes to the frame that asked; one that has both sides is itself a result.
        while low >= 0:
            result = choose(f, np.int64(x), low, result)
            if result < 0:
                return NO_ROOM
            remember(f, question(op, a, b), result)
            depth -= 1
            if depth < 0:
                return result
            a, b, low = stack[depth, 0], stack[depth, 1], stack[depth, 3]
            x, y = nodes[a, VARIABLE], nodes[b, VARIABLE]
            if x != y and label[y] < label[x]:
                x = y
        stack[depth, 3] = result


@kernel
def below(f, a, b):
    """Whether a <= b: 1 or 0. Makes no nodes."""
    if a == 0 or b == 1 or a == b:
        return 1
    if a == 1 or b == 0:
        return 0
    nodes, label, stack = f.nodes, f.label, f.stack
    depth = 0
    stack[0, 0], stack[0, 1], stack[0, 2] = a, b, LOW
    while depth >= 0:
        a, b, side = stack[depth, 0], stack[depth, 1], stack[depth, 2]
        if side > HIGH:
            remember(f, question(BELOW, a, b), 1)
            depth -= 1
            continue
        stack[depth, 2] = side + 1
        x, y = nodes[a, VARIABLE], nodes[b, VARIABLE]
        if x == y:
            a, b = np.int64(nodes[a, side]), np.int64(nodes[b, side])
        elif label[x] < label[y]:
            a = np.int64(nodes[a, side])
        else:
            b = np.int64(nodes[b, side])
        if a == 0 or b == 1 or a == b:
            continue
        known = 0 if a == 1 or b == 0 else recall(f, question(BELOW, a, b))
        if known == 0:
            for i in range(depth + 1):
                remember(f, question(BELOW, stack[i, 0], stack[i, 1]), 0)
            return 0
        if known < 0:
            depth += 1
            stack[depth, 0], stack[depth, 1], stack[depth, 2] = a, b, LOW
    return 1


@kernel
def combine_columns(address: int, op: int, a: Ints, b: Ints, out: Ints) -> None:
    """Elementwise TIMES, PLUS or BELOW, from the cursor on."""
    f = forest(address)
    scalar = f.scalar
    for i in range(scalar[F_CURSOR], len(a)):
        if op == BELOW:
            result = below(f, a[i], b[i])
        else:
            result = combine(f, op, a[i], b[i])
        if result < 0:
            scalar[F_CURSOR] = i
            return
        out[i] = result


@kernel
def total_runs(address: int, a: Ints, starts: Ints, work: Ints, out: Ints) -> None:
    """PLUS over runs, from the cursor on: pairs, then pairs of pairs, so that large functions meet late."""
    f = forest(address)
    scalar = f.scalar
    for run in range(scalar[F_CURSOR], len(starts)):
        start = starts[run]
        end = starts[run + 1] if run + 1 < len(starts) else len(a)
        for i in range(start, end):
            work[i] = a[i]
        step = 1
        while step < end - start:
            for i in range(start, end - step, 2 * step):
                work[i] = combine(f, PLUS, work[i], work[i + step])
                if work[i] < 0:
                    scalar[F_CURSOR] = run
                    return
            step *= 2
        out[run] = work[start] if start < end else 0


@kernel
def noted(f, node):
    return f.nodes[node, STAMP] == f.scalar[F_STAMP]


@kernel
def set_note(f, node, value):
    f.nodes[node, STAMP] = f.scalar[F_STAMP]
    f.note[node] = value


@kernel
def substituted(f, node, last):
    """What is known of `node` with the dead variables false: itself below the last of them, its note, or -1."""
    if node <= 1 or f.label[f.nodes[node, VARIABLE]] > last:
        return node
    return f.note[node] if noted(f, node) else -1


@kernel
def substitute(address: int, a: Ints, dead: Small, last: int, out: Ints) -> None:
    """False for each variable with dead[variable], from the cursor on; `last` is the largest of their labels."""
    f = forest(address)
    nodes, stack, scalar = f.nodes, f.stack, f.scalar
    for i in range(scalar[F_CURSOR], len(a)):
        result = substituted(f, a[i], last)
        if result < 0:
            depth = 0
            stack[0, 0] = a[i]
            while depth >= 0:
                node = stack[depth, 0]
                x = nodes[node, VARIABLE]
                low = np.int64(nodes[node, LOW])
                result = substituted(f, low, last)
                if result < 0:
                    depth += 1
                    stack[depth, 0] = low
                    continue
                if not dead[x]:
                    high = np.int64(nodes[node, HIGH])
                    side = substituted(f, high, last)
                    if side < 0:
                        depth += 1
                        stack[depth, 0] = high
                        continue
                    result = choose(f, np.int64(x), result, side)
                    if result < 0:
                        scalar[F_CURSOR] = i
                        return
                set_note(f, node, result)
                depth -= 1
        out[i] = result


@kernel
def count_below(f, root, out, filled):
    """Write the nodes of a function that have no note yet, giving them one; where the next one goes. Counts on if `out`
    is full."""
    nodes, stack, scalar = f.nodes, f.stack, f.scalar
    if root <= 1 or noted(f, root):
        return filled
    depth = 0
    stack[0, 0] = root
    set_note(f, root, 0)
    while depth >= 0:
        node = stack[depth, 0]
        side = f.note[node] + LOW
        if side > HIGH:
            if filled < len(out):
                out[filled] = node
            filled += 1
            depth -= 1
            continue
        f.note[node] += 1
        child = np.int64(nodes[node, side])
        if child > 1 and nodes[child, STAMP] != scalar[F_STAMP]:
            set_note(f, child, 0)
            depth += 1
            stack[depth, 0] = child
    return filled


@kernel
def nodes_below(address: int, roots: Ints, out: Ints) -> int:
    """The distinct nodes of all roots, and how many; only the number if `out` is too short."""
    f = forest(address)
    f.scalar[F_STAMP] += 1
    filled = 0
    for i in range(len(roots)):
        filled = count_below(f, roots[i], out, filled)
    return filled


@kernel
def count_each(address: int, a: Ints, out: Ints) -> None:
    """The nodes of each function on its own."""
    f = forest(address)
    for i in range(len(a)):
        f.scalar[F_STAMP] += 1
        out[i] = count_below(f, a[i], out[:0], 0)


@kernel
def supports(address: int, a: Ints, met: Ints, scratch: Ints, starts: Ints, out: Ints) -> None:
    """The distinct variables of each function, from the cursor on; OUTPUT if `out` is full.

    `scratch` has room for all nodes; met[variable] is the last function in which it was seen, -1 at first.
    """
    f = forest(address)
    scalar = f.scalar
    for i in range(scalar[F_CURSOR], len(a)):
        scalar[F_STAMP] += 1
        filled = begin = scalar[F_FILLED]
        for n in range(count_below(f, a[i], scratch, 0)):
            variable = f.nodes[scratch[n], VARIABLE]
            if met[variable] != i:
                met[variable] = i
                if filled == len(out):
                    for v in range(begin, filled):
                        met[out[v]] = -1
                    met[variable] = -1
                    scalar[F_CURSOR], scalar[F_STATUS] = i, OUTPUT
                    return
                out[filled] = variable
                filled += 1
        scalar[F_FILLED] = filled
        starts[i + 1] = filled


@kernel
def mention(address: int, dead: Ints, out: Ints) -> None:
    """1 for each node that has a dead variable in it or below; children have smaller numbers."""
    nodes = forest(address).nodes
    out[0] = out[1] = 0
    for node in range(2, len(out)):
        out[node] = dead[nodes[node, VARIABLE]] | out[nodes[node, LOW]] | out[nodes[node, HIGH]]


@kernel
def keep(address: int, kept_address: int, roots: Ints) -> None:
    """Copy the nodes of the roots into an empty forest with room, in order; `roots` become their new handles."""
    f, g = forest(address), forest(kept_address)
    nodes, kept, note = f.nodes, g.nodes, f.note
    f.scalar[F_STAMP] += 1
    for i in range(len(roots)):
        if roots[i] > 1:
            set_note(f, roots[i], 0)
    for node in range(f.scalar[F_NODES] - 1, 1, -1):
        if noted(f, node):
            for side in range(LOW, HIGH + 1):
                if nodes[node, side] > 1:
                    set_note(f, nodes[node, side], 0)
    note[0], note[1] = 0, 1
    count = 2
    for node in range(2, f.scalar[F_NODES]):
        if noted(f, node):
            kept[count, VARIABLE] = nodes[node, VARIABLE]
            kept[count, LOW] = note[nodes[node, LOW]]
            kept[count, HIGH] = note[nodes[node, HIGH]]
            kept[count, STAMP] = 0
            note[node] = count
            count += 1
    for i in range(len(roots)):
        roots[i] = note[roots[i]]
    g.scalar[F_NODES] = count


@kernel
def build(address: int, variables: Ints, low: Ints, high: Ints, out: Ints) -> None:
    """The functions low + variable * high, one after the other, whatever the order of their variables.

    `low` and `high` name earlier functions by their number + 2, or a terminal; `out` has two places more, for the
    terminals. From the cursor on.
    """
    f = forest(address)
    nodes, label, scalar = f.nodes, f.label, f.scalar
    out[0], out[1] = 0, 1
    for i in range(scalar[F_CURSOR], len(variables)):
        x, a, b = variables[i], out[low[i]], out[high[i]]
        over_a = a <= 1 or label[x] < label[nodes[a, VARIABLE]]
        if over_a and (b <= 1 or label[x] < label[nodes[b, VARIABLE]]):
            result = choose(f, x, a, b)
        else:
            result = make(f, x, 0, 1)
            if result >= 0:
                result = combine(f, TIMES, result, b)
            if result >= 0:
                result = combine(f, PLUS, a, result)
        if result < 0:
            scalar[F_CURSOR] = i
            return
        out[i + 2] = result
