"""External rows: changes of their multiplicities, and what the store holds of them.

A change is [relation, change of multiplicity, cells…]. A row is present while its multiplicity is positive.
"""

from __future__ import annotations

import numpy as np

from whence.engine.recursion.kernels.binding import NULL
from whence.engine.recursion.kernels.derive import has_room, push, touch
from whence.engine.recursion.kernels.store import (
    ABSENCE,
    ALIVE,
    MAX_COPIES,
    OVERFLOW,
    R_KIND,
    R_WIDTH,
    RELATION,
    S_CURSOR,
    S_DEAD,
    S_META,
    S_PEERS,
    S_ROWS,
    S_SCRATCH,
    S_STATUS,
    SET,
    WITHDRAWN,
    Ints,
    add_row,
    find,
    store,
)
from whence.model.jit import kernel


@kernel
def feed(address: int, rows: Ints, deleting: bool) -> None:
    """Apply changes [n, 2 + columns] and queue the rows that come or go.

    With `deleting`, those that can only remove derivations (positive rows lost, absences ended); else the others.
    """
    k = store(address)
    scalar, meta = k.scalar, k.meta
    m = scalar[S_META]
    for i in range(scalar[S_CURSOR], len(rows)):
        relation, change = rows[i, 0], rows[i, 1]
        absence = k.relations[relation, R_KIND] == ABSENCE
        if ((change > 0) == absence) != deleting:
            continue
        scalar[S_CURSOR] = i
        if not has_room(k):
            return
        n = k.relations[relation, R_WIDTH]
        for c in range(n):
            scalar[S_SCRATCH + c] = rows[i, 2 + c]
        row = find(k, relation, n)
        if row < 0:
            row = add_row(k, relation)
            if row < 0:
                return
        before = np.int64(meta[row, m + 1])
        if abs(before + change) >= MAX_COPIES:
            scalar[S_STATUS] = OVERFLOW
            return
        if scalar[S_PEERS]:
            touch(k, row, 1 if meta[row, m] & ALIVE else 0)
        meta[row, m + 1] = before + change
        if before <= 0 and before + change > 0:
            touch(k, row, 0)
            meta[row, m] = meta[row, m] | ALIVE
            if absence and deleting:
                meta[row, m] |= WITHDRAWN  # DRED's join still sees the absence it was
            scalar[S_DEAD] -= 1
        elif before > 0 and before + change <= 0:
            touch(k, row, 1)
            meta[row, m] = meta[row, m] & ~ALIVE
            if not absence:
                meta[row, m] |= WITHDRAWN
            scalar[S_DEAD] += 1
        else:
            continue
        push(k, NULL, row)
    scalar[S_CURSOR] = len(rows)


@kernel
def _find_external(k, changes, i):
    """Return the slot of a change's row, or -1."""
    n = k.relations[changes[i, 0], R_WIDTH]
    for c in range(n):
        k.scalar[S_SCRATCH + c] = changes[i, 2 + c]
    return find(k, changes[i, 0], n)


@kernel
def multiplicities(address: int, changes: Ints, out: Ints) -> None:
    """Write the multiplicity of the row of each change; 0 for one that has no slot."""
    k = store(address)
    for i in range(len(changes)):
        row = _find_external(k, changes, i)
        out[i] = k.meta[row, k.scalar[S_META] + 1] if row >= 0 else 0


@kernel
def set_multiplicities(address: int, changes: Ints, before: Ints) -> None:
    """Give the row of each change the multiplicity `before[i]`."""
    k = store(address)
    for i in range(len(changes)):
        row = _find_external(k, changes, i)
        if row >= 0:
            k.meta[row, k.scalar[S_META] + 1] = before[i]


@kernel
def external_rows(address: int, out: Ints) -> int:
    """Write all external rows, as the changes that bring them, into out[slots, 2 + columns]; return how many."""
    k = store(address)
    m = k.scalar[S_META]
    n = 0
    for row in range(k.scalar[S_ROWS]):
        relation = k.meta[row, m] & RELATION
        if k.relations[relation, R_KIND] < SET and k.meta[row, m + 1] != 0:
            out[n, 0] = relation
            out[n, 1] = k.meta[row, m + 1]
            for c in range(k.relations[relation, R_WIDTH]):
                out[n, 2 + c] = k.cells[row, c]
            n += 1
    return n


@kernel
def discount(address: int, changes: Ints) -> None:
    """Apply changes that take away rows on which nothing stands."""
    k = store(address)
    scalar, meta = k.scalar, k.meta
    m = scalar[S_META]
    for i in range(len(changes)):
        row = _find_external(k, changes, i)
        meta[row, m + 1] += changes[i, 1]
        if meta[row, m + 1] <= 0 and meta[row, m] & ALIVE:
            meta[row, m] = meta[row, m] & ~ALIVE
            scalar[S_DEAD] += 1
