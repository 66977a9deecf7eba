"""The rows in a window per key: a queue of positions for every group of rows.

A group's rows are in the window from its HEAD on: a row leaves by moving HEAD, so a row is in exactly if its position
is not before the HEAD of its group. `attrs` holds what is known of a group; before it is changed in an epoch for the
first time, it goes to `log`, from where `undo` restores it.
"""

from __future__ import annotations

import numpy as np

from whence.engine.core.kernels.index import find_key
from whence.engine.core.kernels.table import hash_key
from whence.model.codes import Codes
from whence.model.jit import kernel
from whence.model.record import RecordType, at_address

_NULL = -(2**63)

HEAD, TAIL, COUNT, NEWEST, REACH, STAMP = range(6)  # attrs: positions, rows in, greatest value, `low` of the last row
FIELDS = 6
LIVE, LOGGED, EPOCH, SIZE, COLUMN, CHAINS = range(6)  # meta; COLUMN is -1 for windows of SIZE rows

SIDE = RecordType(
    (
        ("rows", "int64", 2),
        ("group", "int64", 1),  # of each row
        ("following", "int64", 1),  # the next row of the group
        ("low", "int64", 1),  # of each row: values up to this are below the window that ends with it
        ("attrs", "int64", 2),  # of each group
        ("log", "int64", 2),  # (group, attrs before)
        ("meta", "int64", 1),
        ("slots", "int64", 1),  # hash table of join keys, and chains of the rows that are in: see kernels/join_rows.py
        ("after", "int64", 1),
        ("prior", "int64", 1),
        ("cols", "int64", 1),
    )
)
side_at = at_address(SIDE)


@kernel
def number_keys(
    batch: Codes, cols: Codes, start: int, keys: Codes, whole: Codes, slots: Codes, meta: Codes, group: Codes
) -> int:
    """Number the key of each row, adding new keys; return the row reached, short of the end when there is no room."""
    for i in range(start, batch.shape[0]):
        tag = hash_key(batch, i, cols)
        p = find_key(keys, whole, slots, batch, i, cols, tag)
        if p >= 0:
            group[i] = (slots[p] & 0xFFFFFFFF) - 1
            continue
        g = meta[0]
        if g == keys.shape[0] or 2 * g >= slots.shape[0]:
            return i
        for c in range(cols.shape[0]):
            keys[g, c] = batch[i, cols[c]]
        slots[~p] = (tag << 32) | (g + 1)
        meta[0] += 1
        group[i] = g
    return int(batch.shape[0])


@kernel
def touch(side, g: int) -> None:
    """Log a group, before it is changed."""
    attrs = side.attrs
    meta = side.meta
    if attrs[g, STAMP] == meta[EPOCH]:
        return
    attrs[g, STAMP] = meta[EPOCH]
    log = side.log
    k = meta[LOGGED]
    meta[LOGGED] += 1
    log[k, 0] = g
    for c in range(STAMP):
        log[k, 1 + c] = attrs[g, c]


@kernel
def admit(address: int, batch: Codes, group: Codes, least: int, greatest: int, late: Codes) -> int:
    """Write the positions of the rows that are late by the values of their groups so far, or below the least value that
    may come; return how many."""
    side = side_at(address)
    column = side.meta[COLUMN]
    attrs = side.attrs
    n = 0
    for i in range(batch.shape[0]):
        g = group[i]
        v = batch[i, column]
        if v == _NULL or v > greatest or v < least or v < attrs[g, NEWEST]:
            late[n] = i
            n += 1
        elif v != attrs[g, NEWEST]:
            touch(side, g)
            attrs[g, NEWEST] = v
    return n


@kernel
def join_group(side, p: int) -> int:
    """Let a row enter its group's window; return the group."""
    g = side.group[p]
    touch(side, g)
    attrs = side.attrs
    if attrs[g, COUNT] == 0:
        attrs[g, HEAD] = p
    else:
        side.following[attrs[g, TAIL]] = p
    attrs[g, TAIL] = p
    attrs[g, COUNT] += 1
    side.meta[LIVE] += 1
    return int(g)


@kernel
def leave_group(side, g: int) -> None:
    """Remove the first row of a group's window; `touch` was called."""
    attrs = side.attrs
    attrs[g, COUNT] -= 1
    side.meta[LIVE] -= 1
    head = attrs[g, HEAD]
    attrs[g, HEAD] = side.following[head] if attrs[g, COUNT] > 0 else head + 1


@kernel
def slide(address: int, start: int, end: int) -> None:
    """Let rows from `start` to `end` enter their windows, and others leave for them."""
    side = side_at(address)
    column = side.meta[COLUMN]
    size = side.meta[SIZE]
    attrs = side.attrs
    for p in range(start, end):
        g = join_group(side, p)
        if column < 0:
            if attrs[g, COUNT] > size:
                leave_group(side, g)
        else:
            while attrs[g, COUNT] > 0 and side.rows[attrs[g, HEAD], column] <= side.low[p]:
                leave_group(side, g)


@kernel
def let_go(address: int, groups: int, low: int, left: Codes) -> int:
    """Remove the rows of all groups whose values are not above `low`, and write their positions; return how many."""
    side = side_at(address)
    column = side.meta[COLUMN]
    attrs = side.attrs
    gone = 0
    for g in range(groups):
        while attrs[g, COUNT] > 0 and side.rows[attrs[g, HEAD], column] <= low:
            touch(side, g)
            left[gone] = attrs[g, HEAD]
            gone += 1
            leave_group(side, g)
    return gone


@kernel
def least_value(address: int, groups: int, most: int) -> int:
    """Return the least value of a row that is in, or `most` if there is none."""
    side = side_at(address)
    column = side.meta[COLUMN]
    attrs = side.attrs
    least = most
    for g in range(groups):
        if attrs[g, COUNT] > 0:
            least = min(least, side.rows[attrs[g, HEAD], column])
    return least


@kernel
def changes(address: int, start: int, end: int, left: Codes, entered: Codes) -> tuple[int, int]:
    """Write the rows that were in before the epoch and have left, and the rows from `start` on that are in."""
    side = side_at(address)
    attrs = side.attrs
    log = side.log
    gone = 0
    for k in range(side.meta[LOGGED]):
        head = attrs[log[k, 0], HEAD]
        p = log[k, 1 + HEAD]
        for _ in range(log[k, 1 + COUNT]):
            if p >= head:
                break
            left[gone] = p
            gone += 1
            p = side.following[p]
    came = 0
    for p in range(start, end):
        if p >= attrs[side.group[p], HEAD]:
            entered[came] = p
            came += 1
    return gone, came


@kernel
def undo(address: int) -> None:
    """Restore the groups as they were before the epoch."""
    side = side_at(address)
    attrs = side.attrs
    log = side.log
    for k in range(side.meta[LOGGED]):
        for c in range(STAMP):
            attrs[log[k, 0], c] = log[k, 1 + c]
    side.meta[LOGGED] = 0


@kernel
def link_rows(address: int, end: int, last: Codes) -> None:
    """Link the rows of each group that are in; `last` has a -1 for each group."""
    side = side_at(address)
    for p in range(end):
        g = side.group[p]
        if p >= side.attrs[g, HEAD]:
            if last[g] >= 0:
                side.following[last[g]] = p
            last[g] = p


@kernel
def fill_keys(keys: Codes, whole: Codes, slots: Codes, count: int) -> None:
    """Fill the hash table of the keys."""
    mask = slots.shape[0] - 1
    for g in range(count):
        tag = hash_key(keys, g, whole)
        p = tag & mask
        while slots[p] != 0:
            p = (p + 1) & mask
        slots[p] = (tag << 32) | np.int64(g + 1)
