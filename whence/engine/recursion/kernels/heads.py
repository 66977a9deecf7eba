"""The heads of written-down derivations, as slots that live: what `emit` is to a fixpoint, but no derivation is chosen.

Kernels that meet a full array come back with GROW and go on from S_CURSOR, as in `fixpoint.py`.
"""

from __future__ import annotations

from whence.engine.recursion.kernels.derive import better, has_room, touch
from whence.engine.recursion.kernels.store import (
    ALIVE,
    BEST,
    LIMIT,
    R_KEYS,
    R_KIND,
    R_SIGN,
    RELATION,
    RETRY,
    REVIVED,
    S_ATOMS,
    S_BODIES,
    S_CULPRIT,
    S_CURSOR,
    S_DEAD,
    S_META,
    S_SCRATCH,
    S_STATUS,
    TOUCHED,
    WITHDRAWN,
    Ints,
    add_row,
    find,
    store,
)
from whence.model.jit import kernel


@kernel
def heads(address: int, block: Ints, relations: Ints, out: Ints, improved: Ints) -> None:
    """Find or add the slot of each derivation's head (block as in `gather.py`, `relations` by rule) and let it live.

    `improved[i]` is 1 where a better MIN or MAX value took the place of another. A derivation that adds nothing, of a
    worse value or through its own head, gets -1."""
    k = store(address)
    scalar, meta, cells = k.scalar, k.meta, k.cells
    m, atoms = scalar[S_META], scalar[S_ATOMS]
    for i in range(scalar[S_CURSOR], len(block)):
        scalar[S_CURSOR] = i
        if not has_room(k):
            return
        relation = relations[block[i, 0]]
        keys = k.relations[relation, R_KEYS]
        best = k.relations[relation, R_KIND] == BEST
        for c in range(keys):
            scalar[S_SCRATCH + c] = block[i, 1 + atoms + c]
        value = block[i, 1 + atoms + keys] if best else 0
        row = find(k, relation, keys)
        if row < 0:
            row = add_row(k, relation)
            if row < 0:
                if scalar[S_STATUS] == LIMIT:
                    for j in range(atoms):
                        scalar[S_BODIES + j] = block[i, 1 + j]
                        if block[i, 1 + j] >= 0:
                            scalar[S_CULPRIT] = block[i, 1 + j]
                return
        out[i] = row
        if not meta[row, m] & ALIVE:
            touch(k, row, 0)
            meta[row, m] |= ALIVE
            scalar[S_DEAD] -= 1
            if best:
                cells[row, keys] = value
        elif best and better(k.relations[relation, R_SIGN], value, cells[row, keys]):
            touch(k, row, 1)
            cells[row, keys] = value
            improved[i] = 1
        elif best and value != cells[row, keys]:
            out[i] = -1
        else:
            for j in range(atoms):
                if block[i, 1 + j] == row:
                    out[i] = -1
    scalar[S_CURSOR] = len(block)


@kernel
def drop_bettered(address: int, block: Ints, out: Ints) -> None:
    """Write -1 for the derivations of values that others in the same block have bettered."""
    k = store(address)
    m, atoms = k.scalar[S_META], k.scalar[S_ATOMS]
    for i in range(len(block)):
        if out[i] >= 0:
            relation = k.meta[out[i], m] & RELATION
            keys = k.relations[relation, R_KEYS]
            if k.relations[relation, R_KIND] == BEST and block[i, 1 + atoms + keys] != k.cells[out[i], keys]:
                out[i] = -1


@kernel
def lose(address: int, slots: Ints) -> None:
    """Let live slots die."""
    k = store(address)
    scalar, meta = k.scalar, k.meta
    m = scalar[S_META]
    for i in range(scalar[S_CURSOR], len(slots)):
        scalar[S_CURSOR] = i
        if not has_room(k):
            return
        touch(k, slots[i], 1)
        meta[slots[i], m] &= ~ALIVE
        scalar[S_DEAD] += 1
    scalar[S_CURSOR] = len(slots)


@kernel
def find_rows(address: int, relation: int, rows: Ints, out: Ints) -> None:
    """Write the slot of each live row of a relation, -1 for one that is not there."""
    k = store(address)
    keys = k.relations[relation, R_KEYS]
    for i in range(len(rows)):
        for c in range(keys):
            k.scalar[S_SCRATCH + c] = rows[i, c]
        row = find(k, relation, keys)
        if row >= 0:
            if not k.meta[row, k.scalar[S_META]] & ALIVE:
                row = -1
            elif keys < rows.shape[1] and k.cells[row, keys] != rows[i, keys]:
                row = -1
        out[i] = row


@kernel
def take_back(address: int, touched: Ints) -> None:
    """Return every row that was touched to what it was before."""
    k = store(address)
    scalar, meta = k.scalar, k.meta
    m = scalar[S_META]
    for i in range(len(touched)):
        row, before = touched[i, 0] >> 1, touched[i, 0] & 1
        tag = meta[row, m] & ~(TOUCHED | WITHDRAWN | RETRY | REVIVED)
        if (1 if tag & ALIVE else 0) != before:
            scalar[S_DEAD] += 1 - 2 * before
        meta[row, m] = tag | ALIVE if before else tag & ~ALIVE
        relation = tag & RELATION
        if k.relations[relation, R_KIND] == BEST:
            k.cells[row, k.relations[relation, R_KEYS]] = touched[i, 1]
