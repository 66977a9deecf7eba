"""A heap of positions in a store of rows, ordered by one column and then by position: the b-sort's buffer.

`heap` holds `meta[0]` positions; `meta[1]` is the last value that was given out.
"""

from __future__ import annotations

from whence.model.codes import Codes
from whence.model.jit import kernel

_NULL = -(2**63)

HELD, LAST, REACH = range(3)  # meta: rows held back, the last value given out, values up to here leave


@kernel
def before(rows: Codes, column: int, p: int, q: int) -> bool:
    a = rows[p, column]
    b = rows[q, column]
    return a < b or (a == b and p < q)


@kernel
def push(heap: Codes, size: int, rows: Codes, column: int, p: int) -> None:
    i = size
    while i > 0:
        up = (i - 1) >> 1
        if not before(rows, column, p, heap[up]):
            break
        heap[i] = heap[up]
        i = up
    heap[i] = p


@kernel
def pop(heap: Codes, size: int, rows: Codes, column: int) -> int:
    """Take the smallest out of a heap that has some."""
    least = heap[0]
    p = heap[size - 1]
    last = size - 1
    i = 0
    while True:
        child = 2 * i + 1
        if child >= last:
            break
        if child + 1 < last and before(rows, column, heap[child + 1], heap[child]):
            child += 1
        if not before(rows, column, heap[child], p):
            break
        heap[i] = heap[child]
        i = child
    heap[i] = p
    return int(least)


@kernel
def pass_through(
    rows: Codes,
    column: int,
    greatest: int,
    start: int,
    end: int,
    room: int,
    low: Codes,
    heap: Codes,
    meta: Codes,
    out: Codes,
    cause: Codes,
    late: Codes,
) -> tuple[int, int]:
    """Let rows from `start` to `end` enter. The smallest leaves while more than `room` are in, or while it is not
    greater than REACH, which rises to `low` of the rows if that is there: `out` is its position, `cause` that of the
    row that made it leave. `late` are those that have no place. Gives how many left, and how many are late."""
    left = 0
    refused = 0
    for p in range(start, end):
        v = rows[p, column]
        if v == _NULL or v > greatest or v < meta[LAST]:
            late[refused] = p
            refused += 1
            continue
        push(heap, meta[HELD], rows, column, p)
        meta[HELD] += 1
        if low.shape[0]:
            meta[REACH] = max(meta[REACH], low[p - start])
        while meta[HELD] > room or (meta[HELD] > 0 and rows[heap[0], column] <= meta[REACH]):
            out[left] = _leave(rows, column, heap, meta)
            cause[left] = p
            left += 1
    return left, refused


@kernel
def _leave(rows: Codes, column: int, heap: Codes, meta: Codes) -> int:
    """Let the smallest row leave; gives its position."""
    least = pop(heap, meta[HELD], rows, column)
    meta[HELD] -= 1
    meta[LAST] = rows[least, column]
    return least


@kernel
def release(rows: Codes, column: int, bound: int, heap: Codes, meta: Codes, out: Codes) -> int:
    """Let the rows leave whose values are less than a bound; gives how many did."""
    left = 0
    while meta[HELD] > 0 and rows[heap[0], column] < bound:
        out[left] = _leave(rows, column, heap, meta)
        left += 1
    return left


@kernel
def refill(heap: Codes, meta: Codes, rows: Codes, column: int, positions: Codes) -> None:
    """The heap of these positions."""
    for i in range(positions.shape[0]):
        push(heap, i, rows, column, positions[i])
    meta[HELD] = positions.shape[0]
