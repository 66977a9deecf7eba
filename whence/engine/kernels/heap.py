"""A heap of positions in a store of rows, ordered by one column and then by position: the b-sort's buffer.

`heap` holds `meta[0]` positions; `meta[1]` is the last value that was given out.
"""

from __future__ import annotations

from whence.model.codes import Codes
from whence.model.jit import kernel

_NULL = -(2**63)


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
    heap: Codes,
    meta: Codes,
    out: Codes,
    cause: Codes,
    late: Codes,
) -> tuple[int, int]:
    """Rows from `start` to `end` enter; when more than `room` are in, the smallest leaves: `out` is its position,
    `cause` that of the row that made it leave. `late` are those that have no place: how many left, how many are late.
    """
    left = 0
    refused = 0
    for p in range(start, end):
        v = rows[p, column]
        if v == _NULL or v > greatest or v < meta[1]:
            late[refused] = p
            refused += 1
            continue
        push(heap, meta[0], rows, column, p)
        meta[0] += 1
        if meta[0] > room:
            least = pop(heap, meta[0], rows, column)
            meta[0] -= 1
            meta[1] = rows[least, column]
            out[left] = least
            cause[left] = p
            left += 1
    return left, refused


@kernel
def refill(heap: Codes, meta: Codes, rows: Codes, column: int, positions: Codes) -> None:
    """The heap of these positions."""
    for i in range(positions.shape[0]):
        push(heap, i, rows, column, positions[i])
    meta[0] = positions.shape[0]
