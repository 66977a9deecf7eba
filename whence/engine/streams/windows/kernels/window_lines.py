"""Lines: the memory of windows, and how an epoch is taken back.

A store is an array of lines of equal width. Whoever is about to write to a line touches it first: its words as they
were before the epoch are put aside, once an epoch, so taking the epoch back costs what it changed and keeping it costs
nothing. Lines that are free are linked through their first word; lines from `M_BASE` on are new in this epoch.
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
def begin(store):
    """Before an epoch changes anything."""
    meta = store.meta
    meta[M_BASE] = meta[M_HIGH]
    meta[M_FREE_BEFORE] = meta[M_FREE]
    meta[M_SPARE_BEFORE] = meta[M_SPARE]
    meta[M_EPOCH] += 1
    meta[M_TOUCHED] = 0


@kernel
def touch(store, i):
    """Before a line is written to."""
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
    """How many lines can be taken."""
    meta = store.meta
    return store.data.shape[0] - meta[M_HIGH] + meta[M_SPARE]


@kernel
def take(store):
    """A line to write to, with anything in it."""
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
def give(store, i):
    """A line back to the store."""
    touch(store, i)
    meta = store.meta
    store.data[i, 0] = meta[M_FREE]
    meta[M_FREE] = i
    meta[M_SPARE] += 1
