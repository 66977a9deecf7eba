"""All derivations of some rows of a recursive component, and of the rows in those, down to its external rows.

A row gets a number when it is first met; `slots` lists the rows by their numbers and is the queue at the same time.
The caller owns all arrays; a kernel that finds one full says so in `state` and, called again, goes on where it was.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from whence.engine.recursion.kernels.search import GATHER_SAME, run
from whence.engine.recursion.kernels.store import (
    ALIVE,
    PAUSED,
    R_BACKWARD,
    R_BACKWARDS,
    R_KEYS,
    R_KIND,
    RELATION,
    S_ATOMS,
    S_FOREIGN,
    S_META,
    S_PAUSE,
    S_ROWS,
    S_SCRATCH,
    S_STATUS,
    S_WORK,
    SET,
    Ints,
    find,
    store,
)
from whence.model.jit import kernel

Small = NDArray[np.int32]

QUEUED, DONE, FOUND, FULL = range(4)  # what `state` holds: rows numbered, rows taken apart, derivations, what is full
NOTHING, ROWS, DERIVATIONS = range(3)


@kernel
def cone(address: int, slots: Ints, mark: Small, counts: Ints, out: Small, state: Ints) -> None:
    """Take apart every row numbered so far and everything that is met on the way: `counts[i]` derivations of row i,
    each (rule, numbers of its body's rows by atom, -1 for none) in `out`. `mark` has the number of each slot."""
    k = store(address)
    scalar = k.scalar
    m, atoms = scalar[S_META], scalar[S_ATOMS]
    state[FULL] = NOTHING
    for i in range(state[DONE], len(slots)):
        if i >= state[QUEUED]:
            return
        state[DONE] = i
        scalar[S_PAUSE] -= 1
        if scalar[S_WORK] > scalar[S_PAUSE]:
            scalar[S_STATUS] = PAUSED
            return
        counts[i] = 0
        scalar[S_FOREIGN] = 0
        relation = k.meta[slots[i], m] & RELATION
        if k.relations[relation, R_KIND] >= SET:
            first = k.relations[relation, R_BACKWARD]
            for plan in range(first, first + k.relations[relation, R_BACKWARDS]):
                if not run(k, k.plans[plan], GATHER_SAME, slots[i]):
                    return
            if scalar[S_ROWS] > len(mark) or state[QUEUED] + scalar[S_FOREIGN] * atoms > len(slots):
                state[FULL] = ROWS
                return
            found = state[FOUND]
            if found + scalar[S_FOREIGN] > len(out):
                state[FULL] = DERIVATIONS
                return
            for d in range(scalar[S_FOREIGN]):
                itself = False
                for j in range(atoms):
                    if k.foreign[d, 1 + j] == slots[i]:
                        itself = True
                if itself:
                    continue
                out[found, 0] = k.foreign[d, 0]
                for j in range(atoms):
                    body = k.foreign[d, 1 + j]
                    if body < 0:
                        out[found, 1 + j] = -1
                        continue
                    if mark[body] < 0:
                        mark[body] = state[QUEUED]
                        slots[state[QUEUED]] = body
                        state[QUEUED] += 1
                    out[found, 1 + j] = mark[body]
                found += 1
            counts[i] = found - state[FOUND]
            state[FOUND] = found
        state[DONE] = i + 1
    scalar[S_FOREIGN] = 0


@kernel
def slots_of(address: int, relation: int, rows: Ints, out: Ints) -> None:
    """Look up the slot of each live row [n, columns] of a relation, -1 for one that is not there."""
    k = store(address)
    keys = k.relations[relation, R_KEYS]
    for i in range(len(rows)):
        out[i] = -1
        for c in range(keys):
            k.scalar[S_SCRATCH + c] = rows[i, c]
        row = find(k, relation, keys)
        if row >= 0 and k.meta[row, k.scalar[S_META]] & ALIVE:
            if keys == rows.shape[1] or k.cells[row, keys] == rows[i, keys]:
                out[i] = row


@kernel
def number(found: Ints, slots: Ints, mark: Small, state: Ints) -> None:
    """Replace slots by numbers, new ones for those that have none."""
    for i in range(len(found)):
        slot = found[i]
        if mark[slot] < 0:
            mark[slot] = state[QUEUED]
            slots[state[QUEUED]] = slot
            state[QUEUED] += 1
        found[i] = mark[slot]
