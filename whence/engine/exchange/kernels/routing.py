"""Which partition a row lives in: a hash of some of its columns, the same in every process and for ever.

Another hash than that of the tables (`kernels/table.py`): the rows of one partition must not crowd in their slots.
"""

from __future__ import annotations

import numpy as np

from whence.model.codes import Codes
from whence.model.jit import allocating, kernel

_A = -0x61C8864680B583EB  # of splitmix64, as signed numbers
_B = -0x40A7B892E31B1A47
_C = -0x6B2FB644ECCEEE15


@kernel
def mix(x: int) -> int:
    x = (x ^ ((x >> 30) & 0x3FFFFFFFF)) * _B
    x = (x ^ ((x >> 27) & 0x1FFFFFFFFF)) * _C
    return x ^ ((x >> 31) & 0x1FFFFFFFF)


@kernel
def route_cell(cell: int, partitions: int) -> int:
    """Return the partition of a row that is routed by one cell, as `route` does."""
    return ((mix(_A ^ cell) >> 32) & 0xFFFFFFFF) % partitions


@allocating
def route(rows: Codes, cols: Codes, partitions: int) -> Codes:
    """The partition of each row, from 0; rows that are equal in `cols` share one, and without `cols` all do."""
    out = np.empty(rows.shape[0], np.int64)
    for i in range(rows.shape[0]):
        h = 0
        for c in range(cols.shape[0]):
            h = mix((h + _A) ^ rows[i, cols[c]])
        out[i] = ((h >> 32) & 0xFFFFFFFF) % partitions
    return out


@allocating
def split(targets: Codes, partitions: int) -> tuple[Codes, Codes]:
    """The positions of rows in the order of their partitions, and where each partition's positions begin."""
    starts = np.zeros(partitions + 1, np.int64)
    for i in range(targets.shape[0]):
        starts[targets[i] + 1] += 1
    for p in range(partitions):
        starts[p + 1] += starts[p]
    place = starts[:-1].copy()
    order = np.empty(targets.shape[0], np.int64)
    for i in range(targets.shape[0]):
        order[place[targets[i]]] = i
        place[targets[i]] += 1
    return order, starts
