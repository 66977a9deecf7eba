"""A pool of integer sequences, each stored once: a sequence is known by its number, equal ones by the same.

`spans[number]` is (start in `items`, length, mark, note). The mark belongs to whoever owns the pool (a witness's
signature); the note is `stamp << 32 | value`, so that one pass over sequences can remember something of each without
clearing it after: a note counts only while its stamp is the pool's. `table` is an open-addressing table of
`31 hash bits << 32 | number`. A new sequence is written behind the last item and then either taken into the pool or
found there already; kernels ask for room first and come back to the driver (`annotate/pool.py`) if there is none.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from whence.model.jit import kernel
from whence.model.record import RecordType, at_address

Ints = NDArray[np.int64]
Small = NDArray[np.int32]
Bytes = NDArray[np.uint8]

POOL = RecordType(
    (
        ("items", "int32", 1),
        ("spans", "int64", 2),  # [sequence, 4]
        ("table", "int64", 1),
        ("scalar", "int64", 1),  # P_*
    )
)
pool = at_address(POOL)

START, LENGTH, MARK, NOTE = range(4)
(
    P_COUNT,  # sequences
    P_USED,  # items
    P_STAMP,  # the stamp of notes that count
    P_ITEMS,  # room wanted: items behind the last
    P_SPANS,  # room wanted: sequences
) = range(5)
P_FIELDS = 5

_MULTIPLIER = -7046029254386353131  # 2**64 / golden ratio, as a signed number
LOW = 0xFFFFFFFF


@kernel
def mix(h, value):
    """One step of a hash."""
    h = (h ^ value) * _MULTIPLIER
    return h ^ ((h >> 32) & LOW)


@kernel
def hash_items(items, start, length):
    """31 bits. Each item is mixed on its own, so that a processor works on several at once; thoroughly, for a sum of
    what is linear in the items would be the same for all that add up to the same."""
    h = length
    for i in range(length):
        h += mix(mix(i, items[start + i]), i)
    return (mix(0, h) >> 20) & 0x7FFFFFFF


@kernel
def has_room(p, sequences, items):
    """Whether so much more fits; if not, the driver is told what is wanted."""
    scalar = p.scalar
    count = scalar[P_COUNT] + sequences
    if scalar[P_USED] + items <= len(p.items) and count <= len(p.spans) and 2 * count <= len(p.table):
        return True
    scalar[P_SPANS] = max(scalar[P_SPANS], sequences)
    scalar[P_ITEMS] = max(scalar[P_ITEMS], items)
    return False


@kernel
def intern(p, length, mark):
    """The number of the sequence of that length behind the last item; there is room for one more."""
    scalar, items, spans, table = p.scalar, p.items, p.spans, p.table
    start = scalar[P_USED]
    tag = hash_items(items, start, length)
    mask = len(table) - 1
    at = tag & mask
    while table[at] >= 0:
        if (table[at] >> 32) == tag:
            number = table[at] & LOW
            if spans[number, LENGTH] == length:
                other, same = spans[number, START], 0
                while same < length and items[start + same] == items[other + same]:
                    same += 1
                if same == length:
                    return number
        at = (at + 1) & mask
    number = scalar[P_COUNT]
    table[at] = (tag << 32) | number
    spans[number, START] = start
    spans[number, LENGTH] = length
    spans[number, MARK] = mark
    spans[number, NOTE] = 0
    scalar[P_COUNT] = number + 1
    scalar[P_USED] = start + length
    return number


@kernel
def add(address: int, sequence: Ints) -> int:
    """The number of a sequence, or -1 if there is no room."""
    p = pool(address)
    if not has_room(p, 1, len(sequence)):
        return -1
    for i in range(len(sequence)):
        p.items[p.scalar[P_USED] + i] = sequence[i]
    number: int = intern(p, len(sequence), 0)
    return number


@kernel
def rehash(address: int, old: Ints) -> None:
    """Fill the (empty) table from a smaller one: an entry's place follows from its hash bits alone."""
    table = pool(address).table
    mask = len(table) - 1
    for i in range(len(old)):
        if old[i] >= 0:
            at = (old[i] >> 32) & mask
            while table[at] >= 0:
                at = (at + 1) & mask
            table[at] = old[i]


@kernel
def fill_table(address: int) -> None:
    """Fill the (empty) table from the sequences."""
    p = pool(address)
    table = p.table
    mask = len(table) - 1
    for number in range(p.scalar[P_COUNT]):
        tag = hash_items(p.items, p.spans[number, START], p.spans[number, LENGTH])
        at = tag & mask
        while table[at] >= 0:
            at = (at + 1) & mask
        table[at] = (tag << 32) | number


@kernel
def note(p, number):
    """The value noted of a sequence under the present stamp, or -1."""
    word = p.spans[number, NOTE]
    return word & LOW if (word >> 32) == p.scalar[P_STAMP] else -1


@kernel
def set_note(p, number, value):
    p.spans[number, NOTE] = (p.scalar[P_STAMP] << 32) | value


@kernel
def copy_noted(old_address: int, address: int) -> None:
    """Copy the sequences that have a note into an empty pool with room, in order; their notes become their new numbers.

    The copies' notes are empty.
    """
    old, p = pool(old_address), pool(address)
    used, count = 0, 0
    for number in range(old.scalar[P_COUNT]):
        if note(old, number) < 0:
            continue
        start, length = old.spans[number, START], old.spans[number, LENGTH]
        p.spans[count, START] = used
        p.spans[count, LENGTH] = length
        p.spans[count, MARK] = old.spans[number, MARK]
        p.spans[count, NOTE] = 0
        for i in range(length):
            p.items[used + i] = old.items[start + i]
        set_note(old, number, count)
        used += length
        count += 1
    p.scalar[P_USED] = used
    p.scalar[P_COUNT] = count


@kernel
def sort_items(items, start, end):
    """Sort a stretch of items in place (Shell's method: no room of its own)."""
    gap = 1
    while gap < (end - start) // 3:
        gap = 3 * gap + 1
    while gap > 0:
        for i in range(start + gap, end):
            item, at = items[i], i
            while at >= start + gap and items[at - gap] > item:
                items[at] = items[at - gap]
                at -= gap
            items[at] = item
        gap //= 3


@kernel
def put(data, at, value):
    """Write a number >= 0 at seven bits a byte, low ones first; where the next one goes, or -1 if it does not fit."""
    while at >= 0 and at < len(data):
        if value < 128:
            data[at] = value
            return at + 1
        data[at] = 128 | (value & 127)
        value >>= 7
        at += 1
    return -1


@kernel
def get(data, at):
    """The number at a place, and where the next one is, or -1 if the bytes are no such number below 2**35."""
    value, shift = np.int64(0), 0
    while at >= 0 and at < len(data) and shift < 35:
        byte = np.int64(data[at])
        value |= (byte & 127) << shift
        at += 1
        if byte < 128:
            return value, at
        shift += 7
    return 0, -1


@kernel
def stated_rows(data: Bytes) -> int:
    """How many rows a packed column says it has, or -1 if the bytes cannot have so many."""
    rows, at = get(data, 0)
    stated: int = rows if at >= 0 and rows <= len(data) - at else -1
    return stated
