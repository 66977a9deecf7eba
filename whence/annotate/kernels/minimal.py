"""The minimal witnesses of a decision diagram, as a family of sets.

The arrays of a forest hold families, too (zero-suppressed diagrams): the sets of a node are those of its low side, and
those of its high side with its variable. There a node is missing where `high` is 0; 0 is the empty family and 1 the
family of the empty set. Families can be far smaller than the number of their sets.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from whence.annotate.kernels.bdd import (
    F_CURSOR,
    HIGH,
    LOW,
    NO_ROOM,
    VARIABLE,
    forest,
    make,
    question,
    recall,
    remember,
)
from whence.model.jit import kernel

Ints = NDArray[np.int64]

EXCEPT = 0  # the one operation in a family's cache


@kernel
def excluded(g, family, function):
    """`family` without the sets that satisfy `function`, if that is plain or in the cache, or -1.

    The function is monotone: the empty set satisfies none but true.
    """
    if function == 0 or family == 0:
        return family
    if function == 1:
        return 0
    return 1 if family == 1 else recall(g, question(EXCEPT, family, function))


@kernel
def exclude(f, g, family, function):
    """`family` (of g) without the sets that satisfy `function` (of f), or NO_ROOM. Stacks frames of g as `combine`."""
    result = excluded(g, family, function)
    if result >= 0:
        return result
    nodes, sets, label, stack = f.nodes, g.nodes, f.label, g.stack
    depth = 0
    stack[0, 0], stack[0, 1], stack[0, 3] = family, function, -1
    while True:
        family, function, low = stack[depth, 0], stack[depth, 1], stack[depth, 3]
        x, y = sets[family, VARIABLE], nodes[function, VARIABLE]
        side = LOW if low < 0 else HIGH
        if x == y:
            c, d = np.int64(sets[family, side]), np.int64(nodes[function, side])
        elif label[x] < label[y]:
            c, d = np.int64(sets[family, side]), function
        else:  # no set has y: only the function's low side matters
            c, d = family, np.int64(nodes[function, LOW])
        result = excluded(g, c, d)
        if result < 0:
            depth += 1
            stack[depth, 0], stack[depth, 1], stack[depth, 3] = c, d, -1
            continue
        while low >= 0 or (x != y and label[y] < label[x]):
            if x == y or label[x] < label[y]:
                result = low if result == 0 else make(g, np.int64(x), low, result)
                if result < 0:
                    return NO_ROOM
            remember(g, question(EXCEPT, family, function), result)
            depth -= 1
            if depth < 0:
                return result
            family, function, low = stack[depth, 0], stack[depth, 1], stack[depth, 3]
            x, y = sets[family, VARIABLE], nodes[function, VARIABLE]
        stack[depth, 3] = result


@kernel
def minimal(address: int, family_address: int, below_root: Ints, out: Ints) -> None:
    """The family of minimal witnesses of each node (`below_root`, children first), from g's cursor on.

    A minimal witness of a node is one of its low side, or its variable and one of its high side that does not satisfy
    the low one. Notes of f hold the families.
    """
    f, g = forest(address), forest(family_address)
    nodes, note, scalar = f.nodes, f.note, g.scalar
    note[0], note[1] = 0, 1
    for i in range(scalar[F_CURSOR], len(below_root)):
        node = below_root[i]
        low, high = nodes[node, LOW], nodes[node, HIGH]
        more = exclude(f, g, note[high], np.int64(low))
        result = NO_ROOM
        if more >= 0:
            result = note[low] if more == 0 else make(g, np.int64(nodes[node, VARIABLE]), note[low], more)
        if result < 0:
            scalar[F_CURSOR] = i
            return
        note[node] = out[i] = result
