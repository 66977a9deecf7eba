"""Rows that cross partitions: what comes with a rank, what goes out, values that senders have bettered, and an order of
derivations that all copies share."""

from __future__ import annotations

from whence.engine.recursion.kernels.binding import NULL
from whence.engine.recursion.kernels.derive import believe, chosen_rank, has_room, link, push, touch, unlink
from whence.engine.recursion.kernels.search import SEARCH_SAME, search
from whence.engine.recursion.kernels.store import (
    ALIVE,
    BEST,
    DOUBTED,
    OPENED,
    R_KEYS,
    R_KIND,
    R_WIDTH,
    RELATION,
    S_ATOMS,
    S_CHOSEN,
    S_CURSOR,
    S_DEAD,
    S_FOUND,
    S_HOPES,
    S_META,
    S_OPENED,
    S_SCRATCH,
    S_TOUCHED,
    Ints,
    add_row,
    find,
    mix,
    store,
)
from whence.model.jit import kernel


@kernel
def deliver(address: int, rows: Ints) -> None:
    """Take rows [n, 2 + columns] that were sent: relation, rank (-1: it is withdrawn), cells; queue those that come,
    go, or have a better value."""
    k = store(address)
    scalar, meta = k.scalar, k.meta
    m = scalar[S_META]
    for i in range(scalar[S_CURSOR], len(rows)):
        scalar[S_CURSOR] = i
        if not has_room(k):
            return
        relation, rank = rows[i, 0], rows[i, 1]
        keys = k.relations[relation, R_KEYS]
        for c in range(keys):
            scalar[S_SCRATCH + c] = rows[i, 2 + c]
        row = find(k, relation, keys)
        if row < 0:
            if rank < 0:
                continue
            row = add_row(k, relation)
            if row < 0:
                return
        alive = 1 if meta[row, m] & ALIVE else 0
        if rank < 0 and not alive:
            continue
        touch(k, row, alive)
        if rank < 0:
            meta[row, m] &= ~ALIVE
            scalar[S_DEAD] += 1
        else:
            meta[row, m] |= ALIVE
            scalar[S_DEAD] -= 1 - alive
            meta[row, m + 1] = rank
            if keys < k.relations[relation, R_WIDTH]:
                k.cells[row, keys] = rows[i, 2 + keys]
        push(k, NULL, row)
    scalar[S_CURSOR] = len(rows)


@kernel
def settle_doubts(address: int) -> None:
    """End a round: let the rows in doubt stand on other rows of smaller rank, where there are some."""
    k = store(address)
    scalar, meta = k.scalar, k.meta
    m = scalar[S_META]
    while scalar[S_CURSOR] < scalar[S_OPENED]:
        row = k.opened[scalar[S_CURSOR]]
        if meta[row, m] & DOUBTED:
            if chosen_rank(k, row) > meta[row, m + 1]:
                hopes = scalar[S_HOPES]
                done = search(k, row, SEARCH_SAME)
                scalar[S_HOPES] = hopes
                if not done:
                    return
                if scalar[S_FOUND]:
                    unlink(k, row)
                    link(k, row, scalar[S_FOUND] - 1, S_CHOSEN)
                    believe(k, row)
            else:
                believe(k, row)
        scalar[S_CURSOR] += 1


@kernel
def close_round(address: int, crossing: Ints, out: Ints) -> int:
    """End a round: write the rows of `crossing` relations that changed in it as out[n, 2 + columns], as in `deliver`;
    return how many."""
    k = store(address)
    m = k.scalar[S_META]
    n = 0
    for i in range(k.scalar[S_OPENED]):
        row = k.opened[i]
        tag = k.meta[row, m]
        if not tag & OPENED:
            continue
        k.meta[row, m] = tag & ~OPENED
        relation = tag & RELATION
        if crossing[relation]:
            out[n, 0] = relation
            out[n, 1] = k.meta[row, m + 1] if tag & ALIVE else -1
            for c in range(k.relations[relation, R_WIDTH]):
                out[n, 2 + c] = k.cells[row, c]
            n += 1
    k.scalar[S_OPENED] = 0
    return n


@kernel
def superseded(address: int, start: int, sent: Ints, out: Ints) -> int:
    """Write the values before of `sent` rows that got better, of those first touched at `start` or later, as
    out[n, 2 + columns]; return how many."""
    k = store(address)
    m = k.scalar[S_META]
    n = 0
    for i in range(start, k.scalar[S_TOUCHED]):
        row, before = k.touched[i, 0] >> 1, k.touched[i, 0] & 1
        relation = k.meta[row, m] & RELATION
        keys = k.relations[relation, R_KEYS]
        if (
            sent[relation]
            and before
            and k.relations[relation, R_KIND] == BEST
            and k.cells[row, keys] != k.touched[i, 1]
        ):
            out[n, 0] = relation
            out[n, 1] = -1
            for c in range(keys):
                out[n, 2 + c] = k.cells[row, c]
            out[n, 2 + keys] = k.touched[i, 1]
            n += 1
    return n


@kernel
def tickets(address: int, block: Ints, out: Ints) -> None:
    """Number each derivation (written down as in `gather.py`) by a hash of its rule and rows, whatever their slots: by
    it derivations have an order that is the same wherever the same is derived."""
    k = store(address)
    m, atoms = k.scalar[S_META], k.scalar[S_ATOMS]
    for i in range(len(block)):
        h = mix(block[i, 0] + 1, atoms)
        for j in range(atoms):
            row = block[i, 1 + j]
            if row >= 0:
                for c in range(k.relations[k.meta[row, m] & RELATION, R_WIDTH]):
                    h = mix(h, k.cells[row, c])
        out[i] = h
