"""The b-sort's buffer: a heap of positions in a store of rows, ordered by one column and then by position."""

from __future__ import annotations

from whence.model.codes import Codes
from whence.model.jit import kernel

_NULL = -(2**63)

(
    HELD,  # rows held back: positions in the heap
    LAST,  # the last value emitted
    REACH,  # values up to here leave
    COLUMN,  # that the heap is ordered by
    GREATEST,  # value that has a place in the order
    ROOM,  # rows that are held back at most
) = range(6)  # of meta
OUT, CAUSE, LATE = range(3)  # of moves


@kernel
def _is_before(rows: Codes, column: int, p: int, q: int) -> bool:
    """Compare two positions: by value, then by position."""
    a = rows[p, column]
    b = rows[q, column]
    return a < b or (a == b and p < q)


@kernel
def push(heap: Codes, size: int, rows: Codes, column: int, p: int) -> None:
    """Push a position."""
    i = size
    while i > 0:
        up = (i - 1) >> 1
        if not _is_before(rows, column, p, heap[up]):
            break
        heap[i] = heap[up]
        i = up
    heap[i] = p


@kernel
def pop(heap: Codes, size: int, rows: Codes, column: int) -> int:
    """Remove the least position of a heap that is not empty, and return it."""
    least = heap[0]
    p = heap[size - 1]
    last = size - 1
    i = 0
    while True:
        child = 2 * i + 1
        if child >= last:
            break
        if child + 1 < last and _is_before(rows, column, heap[child + 1], heap[child]):
            child += 1
        if not _is_before(rows, column, heap[child], p):
            break
        heap[i] = heap[child]
        i = child
    heap[i] = p
    return int(least)


@kernel
def pass_through(
    rows: Codes, start: int, end: int, low: Codes, heap: Codes, meta: Codes, moves: Codes
) -> tuple[int, int]:
    """Push rows from `start` to `end`; return how many left, and how many are late.

    The smallest leaves while more than ROOM are held back, or while it is not greater than REACH, which rises to `low`
    of the rows if that is there. Of `moves`, OUT is its position, CAUSE that of the row that made it leave, and LATE
    those that have no place in the order."""
    left = 0
    refused = 0
    column = meta[COLUMN]
    for p in range(start, end):
        v = rows[p, column]
        if v == _NULL or v > meta[GREATEST] or v < meta[LAST]:
            moves[LATE, refused] = p
            refused += 1
            continue
        push(heap, meta[HELD], rows, column, p)
        meta[HELD] += 1
        if low.shape[0]:
            meta[REACH] = max(meta[REACH], low[p - start])
        while meta[HELD] > meta[ROOM] or (meta[HELD] > 0 and rows[heap[0], column] <= meta[REACH]):
            moves[OUT, left] = _pop_row(rows, heap, meta)
            moves[CAUSE, left] = p
            left += 1
    return left, refused


@kernel
def _pop_row(rows: Codes, heap: Codes, meta: Codes) -> int:
    """Emit the smallest row; return its position."""
    least = pop(heap, meta[HELD], rows, meta[COLUMN])
    meta[HELD] -= 1
    meta[LAST] = rows[least, meta[COLUMN]]
    return least


@kernel
def release(rows: Codes, bound: int, heap: Codes, meta: Codes, out: Codes) -> int:
    """Emit the rows whose values are less than a bound; return how many."""
    left = 0
    while meta[HELD] > 0 and rows[heap[0], meta[COLUMN]] < bound:
        out[left] = _pop_row(rows, heap, meta)
        left += 1
    return left


@kernel
def refill(rows: Codes, heap: Codes, meta: Codes, positions: Codes) -> None:
    """Build the heap of these positions."""
    for i in range(positions.shape[0]):
        push(heap, i, rows, meta[COLUMN], positions[i])
    meta[HELD] = positions.shape[0]
