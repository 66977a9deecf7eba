"""The hulls of windows: the least first and the greatest last tid of each window's rows.

`a[row, 2s]` and `a[row, 2s + 1]` are the first and the last tid of source s, and (1, 0) where there is none. Windows
come with ascending starts and ends. Where no row of a window begins or ends before the row that precedes it, its hull
runs from its first row's first tid to its last row's last; else from its smallest to its greatest, which a queue of
the rows that can still be that gives in constant time a row.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from whence.model.jit import kernel

Ints = NDArray[np.int64]


@kernel
def hull_sorted(a: Ints, starts: Ints, ends: Ints, out: Ints) -> bool:
    """The hulls for one source; False if a window is empty, or has a row that is without tids or out of order."""
    checked, turn = 0, 0
    for w in range(len(starts)):
        start, end = starts[w], ends[w]
        if start >= end or end < checked:
            return False
        if checked <= start:
            checked = start + 1
            turn = start
            if a[start, 0] > a[start, 1]:
                return False
        while checked < end:
            low, high = a[checked, 0], a[checked, 1]
            if low > high:
                return False
            if low < a[checked - 1, 0] or high < a[checked - 1, 1]:
                turn = checked
            checked += 1
        if turn > start:
            return False
        out[w, 0] = a[start, 0]
        out[w, 1] = a[end - 1, 1]
    return True


@kernel
def hull_queued(a: Ints, starts: Ints, ends: Ints, source: int, low_queue: Ints, high_queue: Ints, out: Ints) -> None:
    """The hulls for a source of several, of rows in any order. The queues have room for all rows."""
    at, to = 2 * source, 2 * source + 1
    low_first = low_next = high_first = high_next = taken = 0
    for w in range(len(starts)):
        start, end = starts[w], ends[w]
        if start >= taken or end < taken:
            low_first = low_next = high_first = high_next = 0
            taken = start
        while taken < end:
            low, high = a[taken, at], a[taken, to]
            if low <= high:
                while low_next > low_first and a[low_queue[low_next - 1], at] >= low:
                    low_next -= 1
                low_queue[low_next] = taken
                low_next += 1
                while high_next > high_first and a[high_queue[high_next - 1], to] <= high:
                    high_next -= 1
                high_queue[high_next] = taken
                high_next += 1
            taken += 1
        while low_first < low_next and low_queue[low_first] < start:
            low_first += 1
        while high_first < high_next and high_queue[high_first] < start:
            high_first += 1
        if low_first < low_next:
            out[w, at] = a[low_queue[low_first], at]
            out[w, to] = a[high_queue[high_first], to]
        else:
            out[w, at] = 1
            out[w, to] = 0


@kernel
def hull_both(a: Ints, b: Ints, out: Ints) -> None:
    """The hulls of each row's two annotations."""
    for i in range(len(a)):
        for at in range(0, a.shape[1], 2):
            if a[i, at] > a[i, at + 1]:
                out[i, at], out[i, at + 1] = b[i, at], b[i, at + 1]
            elif b[i, at] > b[i, at + 1]:
                out[i, at], out[i, at + 1] = a[i, at], a[i, at + 1]
            else:
                out[i, at] = min(a[i, at], b[i, at])
                out[i, at + 1] = max(a[i, at + 1], b[i, at + 1])
