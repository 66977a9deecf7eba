"""Lines: the memory of windows, with an undo log.

A store is an array of lines of equal width. Every write to a line is preceded by `touch`, which saves its words as they
were before the epoch, once per epoch: undoing an epoch costs what it changed, and committing it costs nothing. Free
lines are linked through their first word; lines from `M_BASE` on are new in this epoch.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from whence.model.jit import kernel
from whence.model.record import RecordType, at_address

Ints = NDArray[np.int64]
Reals = NDArray[np.float64]

LINES = RecordType(
    (
        ("data", "int64", 2),
        ("real", "float64", 2),  # the same memory
        ("old", "int64", 2),  # lines as they were before the epoch, where `stamp` is this epoch's
        ("stamp", "int64", 1),
        ("ids", "int64", 1),  # lines that were put aside
        ("meta", "int64", 1),  # M_*
    )
)
lines = at_address(LINES)

M_HIGH, M_FREE, M_SPARE, M_BASE, M_EPOCH, M_TOUCHED, M_FREE_BEFORE, M_SPARE_BEFORE = range(8)
M_FIELDS = 8


@kernel
def begin_epoch(store):
    """Start the undo log of an epoch."""
    meta = store.meta
    meta[M_BASE] = meta[M_HIGH]
    meta[M_FREE_BEFORE] = meta[M_FREE]
    meta[M_SPARE_BEFORE] = meta[M_SPARE]
    meta[M_EPOCH] += 1
    meta[M_TOUCHED] = 0


@kernel
def touch(store, i):
    """Save a line, before it is written to."""
    meta = store.meta
    if i < meta[M_BASE] and store.stamp[i] != meta[M_EPOCH]:
        store.stamp[i] = meta[M_EPOCH]
        data, old = store.data, store.old
        for c in range(data.shape[1]):
            old[i, c] = data[i, c]
        store.ids[meta[M_TOUCHED]] = i
        meta[M_TOUCHED] += 1


@kernel
def room(store):
    """Count the lines that can be allocated."""
    meta = store.meta
    return store.data.shape[0] - meta[M_HIGH] + meta[M_SPARE]


@kernel
def allocate(store):
    """Return a line to write to; its words are arbitrary."""
    meta = store.meta
    i = meta[M_FREE]
    if i >= 0:
        touch(store, i)
        meta[M_FREE] = store.data[i, 0]
        meta[M_SPARE] -= 1
    else:
        i = meta[M_HIGH]
        meta[M_HIGH] += 1
    return i


@kernel
def release(store, i):
    """Return a line to the free list."""
    touch(store, i)
    meta = store.meta
    store.data[i, 0] = meta[M_FREE]
    meta[M_FREE] = i
    meta[M_SPARE] += 1
