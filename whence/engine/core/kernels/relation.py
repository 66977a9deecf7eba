"""A relation's rows in a hash table (`table.py`): adding a batch, taking it back, finding rows.

`meta` is [high water of row ids, length of the free stack, live rows]. A live row is one whose annotation is not zero.

A change is what a batch of n rows did, [5, n + 1] or longer: the lines IDS, OLD and NEW have each row's id and its
annotation before and after; BORN and GONE begin with the ids of the rows that came and left. Its first column is the
head: whether the annotations were set yet, `meta` before, and n.
"""

from __future__ import annotations

from typing import Any

from whence.engine.core.kernels.table import BLOCK, find_row, find_word, hash_row, put_word, remove_slot, touch_rows
from whence.model.codes import Codes
from whence.model.jit import kernel
from whence.model.record import RecordType, at_address

TABLE = RecordType(
    (
        ("rows", "int64", 2),
        ("ann", "int64", 1),
        ("acc", "int64", 2),
        ("slots", "int64", 1),
        ("free", "int64", 1),
        ("meta", "int64", 1),
    )
)
table = at_address(TABLE)
IDS, OLD, NEW, BORN, GONE = range(5)


@kernel
def insert_row(t: Any, batch: Codes, i: int, tag: int, p: int) -> int:
    """Give a new row an id and put it in the empty slot p."""
    meta, rows, acc = t.meta, t.rows, t.acc
    if meta[1] > 0:
        meta[1] -= 1
        r = t.free[meta[1]]
    else:
        r = meta[0]
        meta[0] += 1
    meta[2] += 1
    for c in range(rows.shape[1]):
        rows[r, c] = batch[i, c]
    for c in range(acc.shape[1]):
        acc[r, c] = 0
    t.ann[r] = 0
    t.slots[p] = (tag << 32) | (r + 1)
    return int(r)


@kernel
def begin(t: Any, change: Codes) -> None:
    """Make a change of no rows yet: whatever happens next can be undone."""
    change[0, 0] = 0
    for k in range(3):
        change[1 + k, 0] = t.meta[k]
    change[4, 0] = 0


@kernel
def upsert(address: int, batch: Codes, n: int, change: Codes) -> int:
    """Find or insert each of the first n rows of a batch; how many are new."""
    t = table(address)
    rows, slots, ann = t.rows, t.slots, t.ann
    begin(t, change)
    change[4, 0] = n
    born = 0
    for first in range(0, n, BLOCK):
        end = min(first + BLOCK, n)
        for i in range(first, end):
            change[IDS, 1 + i] = hash_row(batch, i)
        if n > 1:
            change[OLD, 1 + first] = touch_rows(rows, slots, change[IDS, 1 + first : 1 + end])
        for i in range(first, end):
            tag = change[IDS, 1 + i]
            r = find_row(rows, slots, batch, i, tag)
            if r < 0:
                r = insert_row(t, batch, i, tag, ~r)
                born += 1
                change[BORN, born] = r
            change[IDS, 1 + i] = r
            change[OLD, 1 + i] = ann[r]
    return born


@kernel
def settle(address: int, change: Codes) -> int:
    """Set annotations to the NEW ones; rows that come to zero leave. How many left."""
    t = table(address)
    rows, slots, ann, free, meta = t.rows, t.slots, t.ann, t.free, t.meta
    gone, n, mask = 0, change[4, 0], slots.shape[0] - 1
    for first in range(1, 1 + n, BLOCK):
        end = min(first + BLOCK, 1 + n)
        seen = 0
        for i in range(first, end):
            if change[NEW, i] == 0:
                seen ^= slots[hash_row(rows, change[IDS, i]) & mask]
        change[0, 0] = seen  # see touch_rows
        for i in range(first, end):
            r = change[IDS, i]
            ann[r] = change[NEW, i]
            if change[NEW, i] == 0:
                tag = hash_row(rows, r)
                remove_slot(slots, find_word(slots, tag, (tag << 32) | (r + 1)))
                free[meta[1]] = r  # its columns stay until the id is used again
                meta[1] += 1
                meta[2] -= 1
                gone += 1
                change[GONE, gone] = r
    change[0, 0] = 1
    return gone


@kernel
def add(address: int, batch: Codes, ann: Codes, change: Codes) -> int:
    """Upsert a batch and add to its annotations; how many rows came, and 2**32 times how many left."""
    born = upsert(address, batch, batch.shape[0], change)
    for i in range(batch.shape[0]):
        change[NEW, 1 + i] = change[OLD, 1 + i] + ann[i]
    return born | settle(address, change) << 32


@kernel
def restore(address: int, batch: Codes, change: Codes) -> None:
    """Undo an upsert and its settle: rows that came leave, rows that left return to the same ids."""
    t = table(address)
    rows, slots, ann, meta, free = t.rows, t.slots, t.ann, t.meta, t.free
    settled = change[0, 0] == 1
    stack = change[2, 0]  # the ids on top of the stack, then, were given to the first new rows
    for i in range(change[4, 0]):
        r, old = change[IDS, 1 + i], change[OLD, 1 + i]
        left = settled and change[NEW, 1 + i] == 0
        if old == 0:
            if not left:
                tag = hash_row(rows, r)
                remove_slot(slots, find_word(slots, tag, (tag << 32) | (r + 1)))
            if stack > 0:
                stack -= 1
                free[stack] = r
        elif left:
            for c in range(rows.shape[1]):
                rows[r, c] = batch[i, c]
            put_word(slots, hash_row(rows, r), r)
        ann[r] = old
    for k in range(3):
        meta[k] = change[1 + k, 0]


@kernel
def lookup(address: int, batch: Codes, ids: Codes) -> None:
    """The id of each row of a batch, or -1."""
    t = table(address)
    rows, slots = t.rows, t.slots
    for i in range(batch.shape[0]):
        ids[i] = hash_row(batch, i)
    if touch_rows(rows, slots, ids) == -1:  # never mind what it is; see touch_rows
        ids[0] = hash_row(batch, 0)
    for i in range(batch.shape[0]):
        r = find_row(rows, slots, batch, i, ids[i])
        ids[i] = r if r >= 0 else -1


@kernel
def live_ids(ann: Codes, high: int, out: Codes) -> int:
    """Ids of live rows, ascending. Relies on dead rows having annotation zero."""
    n = 0
    for r in range(high):
        if ann[r] != 0:
            out[n] = r
            n += 1
    return n
