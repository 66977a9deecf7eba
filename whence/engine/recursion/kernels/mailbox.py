"""Rows that cross partitions: values that senders have bettered, and an order of derivations that all copies share."""

from __future__ import annotations

from whence.engine.recursion.kernels.store import (
    BEST,
    R_KEYS,
    R_KIND,
    R_WIDTH,
    RELATION,
    S_ATOMS,
    S_META,
    S_TOUCHED,
    Ints,
    mix,
    store,
)
from whence.model.jit import kernel


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
