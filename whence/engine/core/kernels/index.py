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
def pair_rows(
    batch: Codes, ann: Codes, at: Codes, rows: Codes, rann: Codes, ids: Codes, out: Codes, a: Codes, b: Codes
) -> None:
    """Joined rows, batch row then stored row, and the two annotations of each."""
    bw = batch.shape[1]
    rw = rows.shape[1]
    for k in range(at.shape[0]):
        i = at[k]
        r = ids[k]
        for c in range(bw):
            out[k, c] = batch[i, c]
        for c in range(rw):
            out[k, bw + c] = rows[r, c]
        a[k] = ann[i]
        b[k] = rann[r]
