"""The store of a partition whose rows cross to others: local rules over copies, run in rounds.

Here an epoch has many rounds, and what a round changed must be told before the epoch ends: derived rows to be sent are
written down as they come by in the queue. Which rows were alive before is known until `settle` ends the epoch.
"""

from __future__ import annotations

from whence.engine.recursion.kernels.derive import pop_heap, priority_of, push
from whence.engine.recursion.kernels.search import FORWARD, run
from whence.engine.recursion.kernels.store import (
    ALIVE,
    BEST,
    FOREIGN_FULL,
    R_FORWARD,
    R_FORWARDS,
    R_KEYS,
    R_KIND,
    R_WIDTH,
    RELATION,
    RETRY,
    REVIVED,
    S_ATOMS,
    S_DEAD,
    S_FOREIGN,
    S_HEAD,
    S_HEAP,
    S_META,
    S_ROWS,
    S_SCRATCH,
    S_STATUS,
    S_TAIL,
    S_TOUCHED,
    S_WITHDRAWN,
    SET,
    TOUCHED,
    WITHDRAWN,
    Ints,
    find,
    mix,
    store,
)
from whence.model.jit import kernel


@kernel
def spread(address: int, mode: int, sent: Ints) -> None:
    """Join the queued rows, FORWARD or to OVERDELETE, until the queue is empty; rows of relations that are `sent` are
    written down in `foreign` as (relation, …, cells) when they come by: once, or once for each value they get."""
    k = store(address)
    scalar, meta = k.scalar, k.meta
    m, atoms = scalar[S_META], scalar[S_ATOMS]
    while scalar[S_HEAD] < scalar[S_TAIL]:
        heap = scalar[S_HEAP] != 0
        row = k.queue[0, 1] if heap else k.queue[scalar[S_HEAD] & (len(k.queue) - 1), 1]
        relation = meta[row, m] & RELATION
        priority = k.queue[0, 0]
        if heap and mode == FORWARD and priority != priority_of(k, row, relation):
            pop_heap(k)  # it has a better value by now, and came by with that
            continue
        if sent[relation]:
            n = scalar[S_FOREIGN]
            if n >= len(k.foreign):
                scalar[S_STATUS] = FOREIGN_FULL
                return
            k.foreign[n, 0] = relation
            for c in range(k.relations[relation, R_WIDTH]):
                k.foreign[n, 1 + atoms + c] = k.cells[row, c]
            scalar[S_FOREIGN] = n + 1
            if heap:
                pop_heap(k)
        else:
            early = heap and mode == FORWARD  # what is derived may have to stand before it
            if early:
                pop_heap(k)
            first = k.relations[relation, R_FORWARD]
            for i in range(first, first + k.relations[relation, R_FORWARDS]):
                if not run(k, k.plans[i], mode, row):
                    if early:
                        push(k, priority, row)
                    return
            if heap and not early:
                pop_heap(k)
            meta[row, m] = meta[row, m] & ~REVIVED
        if not heap:
            scalar[S_HEAD] += 1


@kernel
def multiplicities(address: int, rows: Ints, out: Ints) -> None:
    """How often each external row [n, 2 + columns] (relation, …, cells) is there."""
    k = store(address)
    m = k.scalar[S_META]
    for i in range(len(rows)):
        keys = k.relations[rows[i, 0], R_KEYS]
        for c in range(keys):
            k.scalar[S_SCRATCH + c] = rows[i, 2 + c]
        row = find(k, rows[i, 0], keys)
        out[i] = k.meta[row, m + 1] if row >= 0 else 0


@kernel
def given(address: int, out: Ints) -> int:
    """All external rows that are there, as the changes that bring them: out[slots, 2 + columns]; how many."""
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
def superseded(address: int, start: int, sent: Ints, out: Ints) -> int:
    """Of rows first touched at `start` or later: the values before of those that got better, as out[n, 2 + columns]."""
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
def discount(address: int, rows: Ints) -> None:
    """External changes [n, 2 + columns] that take away what nothing stands on."""
    k = store(address)
    scalar, meta = k.scalar, k.meta
    m = scalar[S_META]
    for i in range(len(rows)):
        keys = k.relations[rows[i, 0], R_KEYS]
        for c in range(keys):
            scalar[S_SCRATCH + c] = rows[i, 2 + c]
        row = find(k, rows[i, 0], keys)
        meta[row, m + 1] += rows[i, 1]
        if meta[row, m + 1] <= 0 and meta[row, m] & ALIVE:
            meta[row, m] = meta[row, m] & ~ALIVE
            scalar[S_DEAD] += 1


@kernel
def settle(address: int, wanted: Ints, out: Ints) -> int:
    """End an epoch: write the net changes [2 * touched, 2 + columns] of the wanted relations, and forget the rest."""
    k = store(address)
    scalar, meta = k.scalar, k.meta
    m = scalar[S_META]
    n = 0
    for i in range(scalar[S_TOUCHED]):
        row, before = k.touched[i, 0] >> 1, k.touched[i, 0] & 1
        tag = meta[row, m]
        meta[row, m] = tag & ~(TOUCHED | WITHDRAWN | RETRY | REVIVED)
        relation = tag & RELATION
        after = 1 if tag & ALIVE else 0
        keys = k.relations[relation, R_KEYS]
        best = k.relations[relation, R_KIND] == BEST
        moved = best and before and after and k.cells[row, keys] != k.touched[i, 1]
        if not wanted[relation] or (before == after and not moved):
            continue
        for sign in (-1, 1):
            if before if sign < 0 else after:
                out[n, 0] = relation
                out[n, 1] = sign
                for c in range(k.relations[relation, R_WIDTH]):
                    out[n, 2 + c] = k.cells[row, c]
                if best and sign < 0:
                    out[n, 2 + keys] = k.touched[i, 1]
                n += 1
    scalar[S_TOUCHED] = 0
    scalar[S_WITHDRAWN] = 0
    return n


@kernel
def tickets(address: int, block: Ints, out: Ints) -> None:
    """A number for each written-down derivation (`gather.py`) that depends on its rule and rows alone, not on where in
    the store these stand: by it derivations have an order that is the same wherever the same is derived."""
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
