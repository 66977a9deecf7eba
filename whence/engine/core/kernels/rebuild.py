"""The hash tables of a relation built in one go from its rows, which keep their ids.

The words that go into a table are first brought roughly into the order of their slots, so that the table is filled from
its beginning to its end: a cache line of it is fetched once, not once for each word that ends up there.
"""

from __future__ import annotations

from whence.engine.core.kernels.index import Links, find_key
from whence.engine.core.kernels.table import hash_key
from whence.model.codes import Codes
from whence.model.jit import kernel

PARTS = 256  # of a table; a part fits a near cache up to some ten million rows
_LOW = 0xFFFFFFFF


@kernel
def order_words(rows: Codes, cols: Codes, ann: Codes, high: int, slots: Codes, words: Codes, starts: Codes) -> int:
    """Words for the keys of the live ones of the first `high` rows, by the part of the table they go into; how many.

    `words` has room for the live rows, `starts` for PARTS + 1 counts."""
    mask = slots.shape[0] - 1
    shift = 0
    while slots.shape[0] >> shift > PARTS:
        shift += 1
    starts[:] = 0
    for r in range(high):
        if ann[r] != 0:
            starts[((hash_key(rows, r, cols) & mask) >> shift) + 1] += 1
    for part in range(PARTS):
        starts[part + 1] += starts[part]
    n = starts[PARTS]
    for r in range(high):
        if ann[r] != 0:
            tag = hash_key(rows, r, cols)
            part = (tag & mask) >> shift
            words[starts[part]] = (tag << 32) | (r + 1)
            starts[part] += 1
    return int(n)


@kernel
def fill_table(slots: Codes, words: Codes, n: int) -> None:
    """Put words into an empty table of rows; no two are of equal rows."""
    mask = slots.shape[0] - 1
    for i in range(n):
        p = (words[i] >> 32) & mask
        while slots[p] != 0:
            p = (p + 1) & mask
        slots[p] = words[i]


@kernel
def fill_index(
    rows: Codes, cols: Codes, slots: Codes, nxt: Links, prv: Links, keys: Codes, words: Codes, n: int
) -> None:
    """Put words into an empty index, chaining the rows of one key."""
    for i in range(n):
        r = (words[i] & _LOW) - 1
        p = find_key(rows, cols, slots, rows, r, cols, (words[i] >> 32) & _LOW)
        prv[r] = -1
        if p >= 0:
            head = (slots[p] & _LOW) - 1
            nxt[r] = head
            prv[head] = r
        else:
            p = ~p
            nxt[r] = -1
            keys[0] += 1
        slots[p] = words[i]
