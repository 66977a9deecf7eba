"""Families of witnesses as bytes: varints, every distinct family, witness and variable once.

A column is its length and its rows. A row is 0 (false), 1 (true), 2 + 2i for the i-th family written, or 1 + 2n for a
new one, whose n witnesses follow. A witness is 2i for the i-th witness written, or 1 + 2n for a new one, whose n
variables follow: the gaps between their sorted places in `names`.
"""

from __future__ import annotations

from whence.annotate.kernels.families import (
    GROW,
    K_LONGEST,
    K_STAMP,
    K_STATUS,
    OK,
    TOO_LARGE,
    TORN,
    add_known,
    fits,
    signature,
    take,
    work,
)
from whence.annotate.kernels.pool import (
    LENGTH,
    LOW,
    P_USED,
    START,
    Bytes,
    Ints,
    get,
    has_room,
    intern,
    note,
    pool,
    put,
    set_note,
    sort_items,
)
from whence.model.jit import kernel


@kernel
def pack(work_address: int, w_address: int, f_address: int, a: Ints, names: Ints, data: Bytes, sizes: Ints) -> bool:
    """Write a column of functions; `sizes` gets (names, bytes). False if `data` is too short. Stamps are new."""
    k, w, f = work(work_address), pool(w_address), pool(f_address)
    stamp = k.scalar[K_STAMP]
    named = families = witnesses = 0
    at = put(data, 0, len(a))
    for r in range(len(a)):
        if a[r] < 2:
            at = put(data, at, a[r])
            continue
        known = note(f, a[r])
        if known >= 0:
            at = put(data, at, 2 + 2 * known)
            continue
        set_note(f, a[r], families)
        families += 1
        first, n = f.spans[a[r], START], f.spans[a[r], LENGTH]
        at = put(data, at, 1 + 2 * n)
        for j in range(first, first + n):
            x = f.items[j]
            known = note(w, x)
            if known >= 0:
                at = put(data, at, 2 * known)
                continue
            set_note(w, x, witnesses)
            witnesses += 1
            start, length = w.spans[x, START], w.spans[x, LENGTH]
            at = put(data, at, 1 + 2 * length)
            if not fits(k, length):
                return False
            for i in range(length):
                v = w.items[start + i]
                if (k.notes[v] >> 32) != stamp:
                    k.notes[v] = (stamp << 32) | named
                    names[named] = v
                    named += 1
                k.order[i] = k.notes[v] & LOW
            sort_items(k.order, 0, length)
            before = -1
            for i in range(length):
                at = put(data, at, k.order[i] - before - 1)
                before = k.order[i]
        if at < 0:
            return False
    sizes[0] = named
    sizes[1] = at
    return bool(at >= 0)


@kernel
def unpack(work_address: int, w_address: int, f_address: int, names: Ints, data: Bytes, known: Ints, out: Ints) -> None:
    """Read a column of functions from behind its length. Every count is checked against the bytes there are; families
    are made antichains again, so no bytes can make a function that is not canonical. K_STATUS says how it ended.

    `known[:, 0]` and `known[:, 1]` have room for the witnesses and families met.
    """
    k, w, f = work(work_address), pool(w_address), pool(f_address)
    scalar = k.scalar
    scalar[K_STATUS] = TORN
    families = witnesses = 0
    _, at = get(data, 0)
    for r in range(len(out)):
        code, at = get(data, at)
        if at < 0:
            return
        if code < 2:
            out[r] = code
            continue
        n = code >> 1
        if not code & 1:
            if n > families:
                return
            out[r] = known[n - 1, 1]
            continue
        if n > len(data) - at:
            return
        if not fits(k, n):
            scalar[K_STATUS] = GROW
            return
        for c in range(n):
            code, at = get(data, at)
            length = code >> 1
            if at >= 0 and not code & 1 and length < witnesses:
                add_known(k, w, c, known[length, 0])
                continue
            if at < 0 or not code & 1 or length < 1 or length > len(data) - at:
                return
            if not has_room(w, 1, length):
                scalar[K_STATUS] = GROW
                return
            start, place = w.scalar[P_USED], -1
            for i in range(length):
                step, at = get(data, at)
                place += 1 + step
                if at < 0 or place >= len(names):
                    return
                w.items[start + i] = names[place]
            sort_items(w.items, start, start + length)
            size = 1
            for i in range(1, length):
                if w.items[start + i] != w.items[start + size - 1]:
                    w.items[start + size] = w.items[start + i]
                    size += 1
            if size > scalar[K_LONGEST]:
                scalar[K_STATUS] = TOO_LARGE
                return
            number = intern(w, size, signature(w, start, size))
            known[witnesses, 0] = number
            witnesses += 1
            add_known(k, w, c, number)
        out[r] = take(k, w, f, n)
        if out[r] < 0:
            return
        known[families, 1] = out[r]
        families += 1
    if at == len(data):
        scalar[K_STATUS] = OK
