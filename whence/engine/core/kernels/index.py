"""Secondary hash indexes: from the values of some columns to the chain of rows that have them.

The table's words point to the head of a chain; `nxt` and `prv` link the rows of one key, so a row is unlinked without
a search and the cost of a probe follows its matches. `keys[0]` counts the distinct keys.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from whence.engine.core.kernels.table import find_word, hash_key, remove_slot, same_key, touch_rows
from whence.model.codes import Codes
from whence.model.jit import allocating, kernel

Links = NDArray[np.int32]
_LOW = 0xFFFFFFFF
_NULL = -(2**63)


@kernel
def find_key(rows: Codes, cols: Codes, slots: Codes, batch: Codes, i: int, bcols: Codes, tag: int) -> int:
    """The slot of a key, or the complement of the slot where it would go."""
    mask = slots.shape[0] - 1
    p = tag & mask
    while True:
        s = slots[p]
        if s == 0:
            return int(~p)
        if ((s >> 32) & _LOW) == tag and same_key(rows, (s & _LOW) - 1, cols, batch, i, bcols):
            return int(p)
        p = (p + 1) & mask


@kernel
def link(rows: Codes, cols: Codes, slots: Codes, nxt: Links, prv: Links, keys: Codes, ids: Codes, n: int) -> None:
    """Put rows at the head of their chains."""
    for i in range(n):
        r = ids[i]
        tag = hash_key(rows, r, cols)
        p = find_key(rows, cols, slots, rows, r, cols, tag)
        prv[r] = -1
        if p >= 0:
            head = (slots[p] & _LOW) - 1
            nxt[r] = head
            prv[head] = r
        else:
            p = ~p
            nxt[r] = -1
            keys[0] += 1
        slots[p] = (tag << 32) | (r + 1)


@kernel
def unlink(rows: Codes, cols: Codes, slots: Codes, nxt: Links, prv: Links, keys: Codes, ids: Codes, n: int) -> None:
    """Take rows out of their chains; their columns must still be there."""
    for i in range(n):
        r = ids[i]
        after = nxt[r]
        before = prv[r]
        if after >= 0:
            prv[after] = before
        if before >= 0:
            nxt[before] = after
            continue
        tag = hash_key(rows, r, cols)
        p = find_word(slots, tag, (tag << 32) | (r + 1))
        if after >= 0:
            slots[p] = (tag << 32) | (np.int64(after) + 1)
        else:
            remove_slot(slots, p)
            keys[0] -= 1


@kernel
def has_null(batch: Codes, i: int, cols: Codes) -> bool:
    for c in range(cols.shape[0]):
        if batch[i, cols[c]] == _NULL:
            return True
    return False


@allocating
def probe(
    rows: Codes, cols: Codes, slots: Codes, nxt: Links, batch: Codes, bcols: Codes, null_safe: int
) -> tuple[Codes, Codes]:
    """All pairs (position in the batch, row id) with equal keys."""
    many = batch.shape[0]
    tags = np.empty(many + 1, np.int64)
    for i in range(many):
        tags[i] = hash_key(batch, i, bcols)
    tags[many] = touch_rows(rows, slots, tags[:many])
    # Chains are followed side by side, a link of each at a time, so that here too cache misses overlap.
    room = 2 * many + 16
    at = np.empty(room, np.int64)
    ids = np.empty(room, np.int64)
    n = 0
    for i in range(many):
        if null_safe == 0 and has_null(batch, i, bcols):
            continue
        p = find_key(rows, cols, slots, batch, i, bcols, tags[i])
        if p >= 0:
            at[n] = i
            ids[n] = (slots[p] & _LOW) - 1
            n += 1
    start = 0
    while start < n:
        end = n
        if room < 2 * end - start:
            room = 2 * (2 * end - start)
            at_ = np.empty(room, np.int64)
            ids_ = np.empty(room, np.int64)
            at_[:n] = at[:n]
            ids_[:n] = ids[:n]
            at = at_
            ids = ids_
        for k in range(start, end):
            r = nxt[ids[k]]
            if r >= 0:
                at[n] = at[k]
                ids[n] = r
                n += 1
        start = end
    return at[:n], ids[:n]


@kernel
def multiply(a: Codes, at: Codes, b: Codes, ids: Codes, out: Codes) -> bool:
    """The products a[at] * b[ids]; False if one does not fit."""
    for k in range(at.shape[0]):
        x, y = a[at[k]], b[ids[k]]
        # Asked before multiplying: the compiler takes it that a product never overflows.
        if (abs(x) > 0x7FFFFFFF or abs(y) > 0x7FFFFFFF) and y != 0 and abs(x) > 0x7FFFFFFFFFFFFFFF // abs(y):
            return False
        out[k] = x * y
    return True


@allocating
def pair_rows(
    batch: Codes, ann: Codes, at: Codes, rows: Codes, rann: Codes, ids: Codes, cols: Codes
) -> tuple[Codes, Codes, bool]:
    """Columns of joined rows, batch row then stored row, and the products of their multiplicities, if all fit."""
    n = at.shape[0]
    out = np.empty((n, cols.shape[0]), np.int64)
    products = np.empty(n, np.int64)
    width = batch.shape[1]
    for k in range(n):
        i = at[k]
        r = ids[k]
        for c in range(cols.shape[0]):
            out[k, c] = batch[i, cols[c]] if cols[c] < width else rows[r, cols[c] - width]
    return out, products, multiply(ann, at, rann, ids, products)


@allocating
def join_rows(
    batch: Codes,
    ann: Codes,
    bcols: Codes,
    rows: Codes,
    rann: Codes,
    rcols: Codes,
    slots: Codes,
    nxt: Links,
    cols: Codes,
) -> tuple[Codes, Codes, bool]:
    """As `pair_rows`, for all pairs of a batch row and a stored row with equal keys."""
    at, ids = probe(rows, rcols, slots, nxt, batch, bcols, 0)
    return pair_rows(batch, ann, at, rows, rann, ids, cols)
