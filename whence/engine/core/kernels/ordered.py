"""An ordered multiset of fixed-width rows: leaves of up to 64 sorted rows, and the leaves' order in one array.

Leaf l owns lines [64 l, 64 l + size[l]) of `store` and `count`; `top` lists the leaves in order. Finding is a binary
search over leaves, then in a leaf; a full leaf splits, an empty one leaves. Inserting moves at most 63 rows and, once
every 32 inserts or so, the tail of `top`: with n rows, O(log n + n / 2**11) words moved, small against a cache miss
up to 10**7 rows.

`meta` is [leaves in use, leaves ever used, free leaves, distinct rows].
"""

from __future__ import annotations

import numpy as np

from whence.model.codes import Codes
from whence.model.jit import allocating, kernel

LEAF = 64
_NULL = -(2**63)


@kernel
def compare(a: Codes, i: int, b: Codes, j: int, columns: int) -> int:
    """-1, 0 or 1 as row a[i] is before, at or after b[j] in its first columns."""
    for c in range(columns):
        if a[i, c] < b[j, c]:
            return -1
        if a[i, c] > b[j, c]:
            return 1
    return 0


@kernel
def seek(store: Codes, size: Codes, top: Codes, meta: Codes, keys: Codes, i: int, columns: int) -> tuple[int, int]:
    """Where the first row at or after a prefix is or would be: place of its leaf in `top`, position in the leaf."""
    low = 0
    high = meta[0]
    while low < high:  # leaves whose first row is before the key
        middle = (low + high) >> 1
        if compare(store, top[middle] * LEAF, keys, i, columns) < 0:
            low = middle + 1
        else:
            high = middle
    place = low - 1 if low > 0 else 0
    if meta[0] == 0:
        return 0, 0
    base = top[place] * LEAF
    low = 0
    high = size[top[place]]
    while low < high:
        middle = (low + high) >> 1
        if compare(store, base + middle, keys, i, columns) < 0:
            low = middle + 1
        else:
            high = middle
    return place, low


@kernel
def new_leaf(size: Codes, spare: Codes, meta: Codes) -> int:
    if meta[2] > 0:
        meta[2] -= 1
        leaf = spare[meta[2]]
    else:
        leaf = meta[1]
        meta[1] += 1
    size[leaf] = 0
    return int(leaf)


@kernel
def place_leaf(top: Codes, meta: Codes, place: int, leaf: int) -> None:
    for t in range(meta[0], place, -1):
        top[t] = top[t - 1]
    top[place] = leaf
    meta[0] += 1


@kernel
def copy_line(store: Codes, count: Codes, to: int, at: int) -> None:
    for c in range(store.shape[1]):
        store[to, c] = store[at, c]
    count[to] = count[at]


@kernel
def clear_line(store: Codes, count: Codes, at: int) -> None:
    """Lines that no row is in are zero: they cost nothing in an image."""
    for c in range(store.shape[1]):
        store[at, c] = 0
    count[at] = 0


@kernel
def add_row(
    store: Codes,
    count: Codes,
    size: Codes,
    top: Codes,
    spare: Codes,
    meta: Codes,
    batch: Codes,
    i: int,
    change: int,
) -> int:
    """Add a count that is not zero to one row, given a free leaf; return the place of the leaf it is or was in.

    Where the number of leaves changes, it is this one that is new or gone, or has given rows to the next."""
    width = store.shape[1]
    if meta[0] == 0:
        place_leaf(top, meta, 0, new_leaf(size, spare, meta))
    place, at = seek(store, size, top, meta, batch, i, width)
    after = place + 1
    if at == size[top[place]] and after < meta[0] and compare(store, top[after] * LEAF, batch, i, width) == 0:
        place = after
        at = 0
    leaf = top[place]
    line = leaf * LEAF + at
    if at < size[leaf] and compare(store, line, batch, i, width) == 0:
        count[line] += change
        if count[line] == 0:
            for j in range(line, leaf * LEAF + size[leaf] - 1):
                copy_line(store, count, j, j + 1)
            size[leaf] -= 1
            clear_line(store, count, leaf * LEAF + size[leaf])
            meta[3] -= 1
            if size[leaf] == 0:
                for t in range(place, meta[0] - 1):
                    top[t] = top[t + 1]
                meta[0] -= 1
                spare[meta[2]] = leaf
                meta[2] += 1
        return int(place)
    if size[leaf] == LEAF:
        right = new_leaf(size, spare, meta)
        # Rows that arrive in order fill their leaves: only the last row moves on.
        keep = LEAF // 2 if place + 1 < meta[0] or at < LEAF else LEAF
        for j in range(keep, LEAF):
            copy_line(store, count, right * LEAF + j - keep, leaf * LEAF + j)
            clear_line(store, count, leaf * LEAF + j)
        size[right] = LEAF - keep
        size[leaf] = keep
        place_leaf(top, meta, place + 1, right)
        if at > keep or keep == LEAF:
            leaf = right
            at -= keep
    for j in range(leaf * LEAF + size[leaf], leaf * LEAF + at, -1):
        copy_line(store, count, j, j - 1)
    line = leaf * LEAF + at
    for c in range(width):
        store[line, c] = batch[i, c]
    count[line] = change
    size[leaf] += 1
    meta[3] += 1
    return int(place)


@kernel
def add(
    store: Codes,
    count: Codes,
    size: Codes,
    top: Codes,
    spare: Codes,
    meta: Codes,
    batch: Codes,
    change: Codes,
    start: int,
) -> int:
    """Add counts to rows from position `start` on; gives the position reached, short of the end when leaves run out."""
    for i in range(start, batch.shape[0]):
        if change[i] == 0:
            continue
        if meta[2] == 0 and meta[1] == size.shape[0]:
            return i
        add_row(store, count, size, top, spare, meta, batch, i, change[i])
    return int(batch.shape[0])


@kernel
def first_lines(store: Codes, size: Codes, top: Codes, meta: Codes, prefixes: Codes, out: Codes) -> None:
    """The line of the first row with each prefix, or -1."""
    columns = prefixes.shape[1]
    for i in range(prefixes.shape[0]):
        out[i] = -1
        if meta[0] == 0:
            continue
        place, at = seek(store, size, top, meta, prefixes, i, columns)
        if at == size[top[place]]:
            place += 1
            at = 0
        if place < meta[0]:
            line = top[place] * LEAF + at
            if compare(store, line, prefixes, i, columns) == 0:
                out[i] = line


@allocating
def first_rows(store: Codes, count: Codes, size: Codes, top: Codes, meta: Codes, limit: int) -> tuple[Codes, Codes]:
    """The first rows up to a total count, which the last one's count is cut to (all rows under a negative limit)."""
    room = meta[3] if limit < 0 else min(meta[3], limit)
    rows = np.empty((room, store.shape[1]), np.int64)
    counts = np.empty(room, np.int64)
    n = 0
    left = limit
    for place in range(meta[0]):
        leaf = top[place]
        for line in range(leaf * LEAF, leaf * LEAF + size[leaf]):
            if left == 0:
                return rows[:n], counts[:n]
            for c in range(store.shape[1]):
                rows[n, c] = store[line, c]
            counts[n] = count[line] if limit < 0 else min(left, count[line])
            left -= counts[n]
            n += 1
    return rows[:n], counts[:n]


@allocating
def lines_between(store: Codes, size: Codes, top: Codes, meta: Codes, keys: Codes, high: Codes) -> tuple[Codes, Codes]:
    """Of each key, the last column of the lines that equal it in its columns but the last, which is at least the key's
    and at most `high`: pairs of its position and that number. A key that has NULL (the least number) finds none."""
    columns = keys.shape[1]
    room = 2 * keys.shape[0] + 16
    at = np.empty(room, np.int64)
    ids = np.empty(room, np.int64)
    n = 0
    for i in range(keys.shape[0]):
        lost = meta[0] == 0 or keys[i, columns - 1] > high[i]
        for c in range(columns):
            lost = lost or keys[i, c] == _NULL
        if lost:
            continue
        place, line = seek(store, size, top, meta, keys, i, columns)
        while place < meta[0]:
            leaf = top[place]
            if line == size[leaf]:
                place += 1
                line = 0
                continue
            s = leaf * LEAF + line
            if compare(store, s, keys, i, columns - 1) != 0 or store[s, columns - 1] > high[i]:
                break
            if n == room:
                room *= 2
                at_ = np.empty(room, np.int64)
                ids_ = np.empty(room, np.int64)
                at_[:n] = at
                ids_[:n] = ids
                at = at_
                ids = ids_
            at[n] = i
            ids[n] = store[s, columns]
            n += 1
            line += 1
    return at[:n], ids[:n]
