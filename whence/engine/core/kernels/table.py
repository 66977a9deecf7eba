"""The hash table of rows: which slot a row is in, where a new one goes, how one leaves.

A table is linear probing over words of (32 hash bits, row id + 1); 0 is empty. The hash bits filter comparisons, tell
a word's home when a deletion shifts words back (so there are no tombstones) and let the table grow without reading
rows.

`relation.py` has the tables that own their rows.
"""

from __future__ import annotations

from whence.model.codes import Codes
from whence.model.jit import kernel

BLOCK = 256  # rows that are touched together, before they are looked up: what they want stays in the cache
_LOW = 0xFFFFFFFF
_K = -7046029254386353131  # 0x9E3779B97F4A7C15


@kernel
def hash_row(rows: Codes, i: int) -> int:
    h = 0
    for c in range(rows.shape[1]):
        h = (h ^ rows[i, c]) * _K
        h ^= h >> 29
    return ((h * _K) >> 32) & _LOW


@kernel
def hash_key(rows: Codes, i: int, cols: Codes) -> int:
    h = 0
    for c in range(cols.shape[0]):
        h = (h ^ rows[i, cols[c]]) * _K
        h ^= h >> 29
    return ((h * _K) >> 32) & _LOW


@kernel
def same_row(a: Codes, i: int, b: Codes, j: int) -> bool:
    for c in range(a.shape[1]):
        if a[i, c] != b[j, c]:
            return False
    return True


@kernel
def same_key(a: Codes, i: int, acols: Codes, b: Codes, j: int, bcols: Codes) -> bool:
    for c in range(acols.shape[0]):
        if a[i, acols[c]] != b[j, bcols[c]]:
            return False
    return True


@kernel
def find_word(slots: Codes, tag: int, word: int) -> int:
    """The slot that holds a word, which must be there."""
    mask = slots.shape[0] - 1
    p = tag & mask
    while slots[p] != word:
        p = (p + 1) & mask
    return int(p)


@kernel
def remove_slot(slots: Codes, p: int) -> None:
    """Empty a slot, moving later words back so that every word stays reachable from its home."""
    mask = slots.shape[0] - 1
    hole = p
    j = p
    while True:
        j = (j + 1) & mask
        s = slots[j]
        if s == 0:
            break
        if ((j - (s >> 32)) & mask) >= ((j - hole) & mask):
            slots[hole] = s
            hole = j
    slots[hole] = 0


@kernel
def put_word(slots: Codes, tag: int, row: int) -> None:
    """Add a word that is known not to be there."""
    mask = slots.shape[0] - 1
    p = tag & mask
    while slots[p] != 0:
        p = (p + 1) & mask
    slots[p] = (tag << 32) | (row + 1)


@kernel
def find_row(rows: Codes, slots: Codes, batch: Codes, i: int, tag: int) -> int:
    """The id of a row, or the complement of the slot where it would go."""
    mask = slots.shape[0] - 1
    p = tag & mask
    while True:
        s = slots[p]
        if s == 0:
            return int(~p)
        if ((s >> 32) & _LOW) == tag:
            r = (s & _LOW) - 1
            if same_row(rows, r, batch, i):
                return int(r)
        p = (p + 1) & mask


@kernel
def touch_rows(rows: Codes, slots: Codes, tags: Codes) -> int:
    """Read the slots, then the rows, that a batch of look-ups will want, so that their cache misses overlap.

    What it returns has no meaning, but must be kept somewhere or the reads are optimised away."""
    mask = slots.shape[0] - 1
    seen = 0
    for i in range(tags.shape[0]):
        seen ^= slots[tags[i] & mask]
    if rows.shape[1]:
        for i in range(tags.shape[0]):
            s = slots[tags[i] & mask]
            if ((s >> 32) & _LOW) == tags[i]:
                seen ^= rows[(s & _LOW) - 1, 0]
    return seen


@kernel
def rehash(slots: Codes, larger: Codes) -> None:
    """Move all words to a larger, empty table."""
    for p in range(slots.shape[0]):
        s = slots[p]
        if s != 0:
            put_word(larger, (s >> 32) & _LOW, (s & _LOW) - 1)
