"""Join two sides of a window join, a row at a time.

The rows in a side's window that have the same join key are a chain, from the first that came on: `after` leads from row
to row (-1 at the end), `prior` back, and from the first row to the last. The hash table's words point to first rows. A
row whose key has a NULL is in no chain.
"""

from __future__ import annotations

from whence.engine.core.kernels.index import find_key, has_null
from whence.engine.core.kernels.table import find_word, hash_key, remove_slot
from whence.engine.streams.windows.kernels.recent import (
    CHAINS,
    COLUMN,
    COUNT,
    HEAD,
    REACH,
    SIZE,
    TAIL,
    join_group,
    leave_group,
    side_at,
    touch,
)
from whence.model.codes import Codes
from whence.model.jit import kernel

_LOW = 0xFFFFFFFF
NOT_BEGUN = -2  # the next row has not begun to join the other side


@kernel
def enter_chain(side, p: int) -> None:
    """Append a row to the chain of its join key."""
    rows = side.rows
    cols = side.cols
    if has_null(rows, p, cols):
        return
    slots = side.slots
    tag = hash_key(rows, p, cols)
    s = find_key(rows, cols, slots, rows, p, cols, tag)
    side.after[p] = -1
    if s >= 0:
        first = (slots[s] & _LOW) - 1
        last = side.prior[first]
        side.after[last] = p
        side.prior[p] = last
        side.prior[first] = p
    else:
        slots[~s] = (tag << 32) | (p + 1)
        side.prior[p] = p
        side.meta[CHAINS] += 1


@kernel
def leave_chain(side, p: int) -> None:
    """Remove a row from the chain of its join key."""
    rows = side.rows
    cols = side.cols
    if has_null(rows, p, cols):
        return
    slots = side.slots
    after = side.after[p]
    prior = side.prior[p]
    tag = hash_key(rows, p, cols)
    if side.after[prior] >= 0:  # not the first: before that one stands the last, after which there is none
        side.after[prior] = after
        if after >= 0:
            side.prior[after] = prior
        else:
            s = find_key(rows, cols, slots, rows, p, cols, tag)
            side.prior[(slots[s] & _LOW) - 1] = prior
        return
    s = find_word(slots, tag, (tag << 32) | (p + 1))
    if after >= 0:
        slots[s] = (tag << 32) | (after + 1)
        side.prior[after] = prior
    else:
        remove_slot(slots, s)
        side.meta[CHAINS] -= 1


@kernel
def _begin_row(own, other, p: int) -> int:
    """Remove what a new row puts out of reach on the other side; return the first row with its key there."""
    column = other.meta[COLUMN]
    if column >= 0:
        g = own.group[p]
        low = own.low[p]
        touch(own, g)
        own.attrs[g, REACH] = low
        attrs = other.attrs
        if attrs[g, COUNT] > 0 and other.rows[attrs[g, HEAD], column] <= low:
            touch(other, g)
            while attrs[g, COUNT] > 0 and other.rows[attrs[g, HEAD], column] <= low:
                leave_chain(other, attrs[g, HEAD])
                leave_group(other, g)
    if has_null(own.rows, p, own.cols):
        return -1
    tag = hash_key(own.rows, p, own.cols)
    s = find_key(other.rows, other.cols, other.slots, own.rows, p, own.cols, tag)
    return (other.slots[s] & _LOW) - 1 if s >= 0 else -1


@kernel
def _enter_window(own, other, p: int) -> None:
    """Let a row enter its window, and others leave for it; a row that no later one can reach does not enter."""
    column = own.meta[COLUMN]
    attrs = own.attrs
    if column >= 0:
        g = own.group[p]
        if other.attrs[g, REACH] >= own.rows[p, column]:
            touch(own, g)
            attrs[g, HEAD] = p + 1
            attrs[g, TAIL] = p
            return
    g = join_group(own, p)
    enter_chain(own, p)
    if column < 0 and attrs[g, COUNT] > own.meta[SIZE]:
        leave_chain(own, attrs[g, HEAD])
        leave_group(own, g)


@kernel
def join_rows(left: int, right: int, order: Codes, state: Codes, lpos: Codes, rpos: Codes) -> int:
    """Write the pairs of positions that rows in `order` (position · 2, and 1 more for the right) make; return how many.

    It stops when there is no more room.

    `state` is where to go on: the index in `order`, and the row it joins next, or NOT_BEGUN."""
    room = lpos.shape[0]
    n = 0
    k = state[0]
    q = state[1]
    while k < order.shape[0]:
        p = order[k] >> 1
        turned = order[k] & 1
        own = side_at(right if turned == 1 else left)
        other = side_at(left if turned == 1 else right)
        if q == NOT_BEGUN:
            q = _begin_row(own, other, p)
        column = other.meta[COLUMN]
        while q >= 0:
            if column >= 0:
                v = own.rows[p, own.meta[COLUMN]]
                if other.rows[q, column] > v and other.low[q] >= v:
                    break  # too far ahead, as all after it
            if n == room:
                state[0] = k
                state[1] = q
                return n
            lpos[n] = q if turned == 1 else p
            rpos[n] = p if turned == 1 else q
            n += 1
            q = other.after[q]
        _enter_window(own, other, p)
        q = NOT_BEGUN
        k += 1
    state[0] = k
    state[1] = NOT_BEGUN
    return n


@kernel
def chain_all(address: int, end: int) -> None:
    """Rebuild the chains of all rows in the window."""
    side = side_at(address)
    side.meta[CHAINS] = 0
    for p in range(end):
        if p >= side.attrs[side.group[p], HEAD]:
            enter_chain(side, p)
