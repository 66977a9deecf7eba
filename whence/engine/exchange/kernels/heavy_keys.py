"""Keys that many rows have: which they are (Misra and Gries), how many rows each has, and which key a row has.

Keys are rows of codes; a table of them is linear probing over words of (32 hash bits, position + 1), 0 being empty.
"""

from __future__ import annotations

import numpy as np

from whence.engine.core.kernels.table import hash_key, put_word, same_key
from whence.model.codes import Codes
from whence.model.jit import allocating, kernel

_LOW = 0xFFFFFFFF


@kernel
def find_key(slots: Codes, keys: Codes, own: Codes, rows: Codes, i: int, cols: Codes, tag: int) -> int:
    """The position of a row's key in a table of keys, whose columns are `own`; -1 if it is none of them."""
    mask = slots.shape[0] - 1
    p = tag & mask
    while slots[p] != 0:
        at = (slots[p] & _LOW) - 1
        if ((slots[p] >> 32) & _LOW) == tag and same_key(keys, at, own, rows, i, cols):
            return int(at)
        p = (p + 1) & mask
    return -1


@allocating
def number_keys(rows: Codes, cols: Codes, keys: Codes) -> Codes:
    """Which of some distinct keys each row has; -1 for another one."""
    size = 16
    while size < 2 * keys.shape[0]:
        size *= 2
    slots = np.zeros(size, np.int64)
    own = np.arange(keys.shape[1])
    for k in range(keys.shape[0]):
        put_word(slots, hash_key(keys, k, own), k)
    out = np.empty(rows.shape[0], np.int64)
    for i in range(rows.shape[0]):
        out[i] = find_key(slots, keys, own, rows, i, cols, hash_key(rows, i, cols))
    return out


@allocating
def count_keys(rows: Codes, ann: Codes, high: int, cols: Codes, keys: Codes) -> Codes:
    """How many of the first `high` rows have each of some distinct keys; rows of annotation zero are not there."""
    size = 16
    while size < 2 * keys.shape[0]:
        size *= 2
    slots = np.zeros(size, np.int64)
    own = np.arange(keys.shape[1])
    for k in range(keys.shape[0]):
        put_word(slots, hash_key(keys, k, own), k)
    out = np.zeros(keys.shape[0], np.int64)
    for i in range(high):
        if ann[i] != 0:
            at = find_key(slots, keys, own, rows, i, cols, hash_key(rows, i, cols))
            if at >= 0:
                out[at] += 1
    return out


@allocating
def frequent_keys(rows: Codes, ann: Codes, high: int, cols: Codes, room: int) -> Codes:
    """At most `room` keys, among them every one that more than a `room + 1`th of the rows have."""
    keys = np.empty((room, cols.shape[0]), np.int64)
    counts = np.zeros(room, np.int64)
    own = np.arange(cols.shape[0])
    size = 16
    while size < 2 * room:
        size *= 2
    slots = np.zeros(size, np.int64)
    used = 0
    for i in range(high):
        if ann[i] == 0:
            continue
        tag = hash_key(rows, i, cols)
        at = find_key(slots, keys, own, rows, i, cols, tag)
        if at >= 0:
            counts[at] += 1
            continue
        if used < room:
            for c in range(cols.shape[0]):
                keys[used, c] = rows[i, cols[c]]
            counts[used] = 1
            put_word(slots, tag, used)
            used += 1
            continue
        kept = 0  # one less for all, this row's own key included: done at most once in room + 1 rows
        for k in range(used):
            if counts[k] > 1:
                counts[kept] = counts[k] - 1
                for c in range(cols.shape[0]):
                    keys[kept, c] = keys[k, c]
                kept += 1
        used = kept
        slots[:] = 0
        for k in range(used):
            put_word(slots, hash_key(keys, k, own), k)
    return keys[:used].copy()
