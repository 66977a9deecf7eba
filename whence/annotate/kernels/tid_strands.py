"""Unions over windows whose rows come from a few paths that take turns, of one source.

The rows of one path are a **strand**: each set begins and ends no earlier than the one before it and agrees with it
where they overlap, so that a strand's union over a window is the slice of one ascending list from its first row's first
id to its last row's last. A window is the union of a slice of each strand, kept as a list of intervals while windows
slide on: what a row has beyond its strand's last id is added near the list's end. From the greatest of the slices'
first ids on the list is the window's union; what is before that is read off the strands' first rows. Both are as much
as paths are apart, so a window costs what is new in it, and its intervals. When a strand has left the window, the list
is rebuilt. `p` is the pool (`tid_runs.py`); a list is [2, …], the first and the last id of each interval.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from whence.annotate.kernels.tid_runs import Q_FIRST
from whence.annotate.kernels.tid_sets import BASE, INTERVALS, KIND, LENGTH, START
from whence.model.jit import kernel

Ints = NDArray[np.int64]

# of a strand: rows in the window, the first, the last; while it is read the row, the word, and the least id wanted
T_ROWS, T_HEAD, T_TAIL, T_NOW, T_WORD, T_FROM = range(6)
T_FIELDS, STRANDS = 6, 8
FEW = 8  # words that are added one by one


@kernel
def extent(p, handle):
    """Return where the words of a set begin and end, and how many an element has."""
    if handle > 0:
        return 0, 1, 1
    row, sets = -1 - handle - p.q[Q_FIRST], p.sets
    start = sets[row, START]
    return start, start + sets[row, LENGTH], 2 if sets[row, KIND] == INTERVALS else 1


@kernel
def word(p, handle, at):
    """Return a word of a set; an id has one, itself."""
    return handle if handle > 0 else p.items[at]


@kernel
def seek(p, handle, begin, end, step, value):
    """Return the first element that ends after a value."""
    low, high = 0, (end - begin) // step
    while low < high:
        middle = (low + high) // 2
        if word(p, handle, begin + step * middle + step - 1) <= value:
            low = middle + 1
        else:
            high = middle
    return begin + step * low


@kernel
def last_of(p, handle):
    """Return the last id of a set."""
    _, end, _ = extent(p, handle)
    return word(p, handle, end - 1)


@kernel
def follows(p, one, other):
    """Tell whether a set continues a strand whose last set is `one`: 2 if they share ids, 1 if it is all behind it."""
    if one == other:
        return 2
    a, a_end, a_step = extent(p, one)
    b, b_end, b_step = extent(p, other)
    first, last = word(p, other, b), word(p, one, a_end - 1)
    if first > last:
        return 1
    if first < word(p, one, a) or word(p, other, b_end - 1) < last:
        return 0
    if one < 0 and other < 0:
        sets, number = p.sets, p.q[Q_FIRST]
        base = sets[-1 - one - number, BASE]
        if base >= 0 and base == sets[-1 - other - number, BASE]:
            return 2
    a = seek(p, one, a, a_end, a_step, first - 1)
    x, x_last = word(p, one, a), word(p, one, a + a_step - 1)
    if x > first:
        return 0
    x = first
    y, y_last = first, word(p, other, b + b_step - 1)
    while x == y:
        stop = min(x_last, y_last)
        if stop == last:
            return 2
        x = y = stop + 1
        if x_last == stop:
            a += a_step
            x, x_last = word(p, one, a), word(p, one, a + a_step - 1)
        if y_last == stop:
            b += b_step
            y, y_last = word(p, other, b), word(p, other, b + b_step - 1)
    return 0


@kernel
def strand_of(p, strands, a, i):
    """Return the strand that row i goes on with, or one that is free; -1 if there are too many."""
    free = behind = -1
    nearest = 0
    for k in range(STRANDS):
        if strands[k, T_ROWS] == 0:
            if free < 0:
                free = k
            continue
        tail = a[strands[k, T_TAIL]]
        found = follows(p, tail, a[i])
        if found == 2:
            return k
        if found == 1:
            last = last_of(p, tail)
            if last > nearest:
                behind, nearest = k, last
    return behind if behind >= 0 else free


@kernel
def drop_rows(strands, owner, after, begin, end):
    """Remove rows from the window; return whether a strand has left with them."""
    left = False
    for i in range(begin, end):
        k = owner[i]
        strands[k, T_ROWS] -= 1
        strands[k, T_HEAD] = after[i]
        left = left or strands[k, T_ROWS] == 0
    return left


@kernel
def add_interval(u, begin, count, first, last):
    """Add an interval to a list that has room for it; return the list's length."""
    low, high = u[0], u[1]
    above = count  # the first that begins after it
    while above > begin and low[above - 1] > last + 1:
        above -= 1
    below = above  # the first that does not end before it
    while below > begin and high[below - 1] >= first - 1:
        below -= 1
    if below == above:
        for i in range(count - 1, above - 1, -1):
            low[i + 1], high[i + 1] = low[i], high[i]
        low[below], high[below] = first, last
        return count + 1
    low[below], high[below] = min(first, low[below]), max(last, high[above - 1])
    gone = above - below - 1
    if gone > 0:
        for i in range(above, count):
            low[i - gone], high[i - gone] = low[i], high[i]
    return count - gone


@kernel
def merge_set(p, u, begin, count, handle, at, to):
    """Merge a list and the elements of a set from the word `at` on into another list; return its length."""
    low, high, to_low, to_high = u[0], u[1], to[0], to[1]
    _, end, step = extent(p, handle)
    n = 0
    while begin < count or at < end:
        if at >= end or (begin < count and low[begin] <= word(p, handle, at)):
            first, last = low[begin], high[begin]
            begin += 1
        else:
            first, last = word(p, handle, at), word(p, handle, at + step - 1)
            at += step
        if n > 0 and first <= to_high[n - 1] + 1:
            to_high[n - 1] = max(to_high[n - 1], last)
        else:
            to_low[n], to_high[n] = first, last
            n += 1
    return n


@kernel
def latest_head(p, strands, a):
    """Return the greatest of the strands' first ids."""
    latest = 0
    for k in range(STRANDS):
        if strands[k, T_ROWS] > 0:
            handle = a[strands[k, T_HEAD]]
            begin, _, _ = extent(p, handle)
            latest = max(latest, word(p, handle, begin))
    return latest


@kernel
def count_before(p, strands, after, a, limit):
    """Count at least as many elements as `read_before` will find."""
    count = 0
    for k in range(STRANDS):
        if strands[k, T_ROWS] == 0:
            continue
        i, last = strands[k, T_HEAD], 0
        while last < limit - 1:
            begin, end, step = extent(p, a[i])
            count += (seek(p, a[i], begin, end, step, limit - 1) - begin) // step + 1
            if i == strands[k, T_TAIL]:
                break
            last = word(p, a[i], end - 1)
            i = after[i]
    return count


@kernel
def step_on(p, strand, after, a):
    """Move on to a strand's next element, in its row or one of the next; row -1 if there is none."""
    i, at = strand[T_NOW], strand[T_WORD]
    begin, end, step = extent(p, a[i])
    at += step
    while at >= end and i != strand[T_TAIL]:
        last = word(p, a[i], end - 1)
        strand[T_FROM] = last + 1
        i = after[i]
        begin, end, step = extent(p, a[i])
        at = seek(p, a[i], begin, end, step, last)
    strand[T_NOW], strand[T_WORD] = i if at < end else -1, at


@kernel
def read_before(p, strands, after, a, limit, to):
    """Write the ids of all strands before `limit`, as intervals; return how many. There is room."""
    low, high = to[0], to[1]
    for k in range(STRANDS):
        strands[k, T_NOW] = -1
        if strands[k, T_ROWS] > 0:
            strands[k, T_NOW], strands[k, T_FROM] = strands[k, T_HEAD], 0
            strands[k, T_WORD], _, _ = extent(p, a[strands[k, T_HEAD]])
    count = 0
    while True:
        first, least = limit, -1
        for k in range(STRANDS):
            if strands[k, T_NOW] >= 0:
                value = max(strands[k, T_FROM], word(p, a[strands[k, T_NOW]], strands[k, T_WORD]))
                if value < first:
                    first, least = value, k
        if least < 0:
            return count
        handle = a[strands[least, T_NOW]]
        _, _, step = extent(p, handle)
        last = min(limit - 1, word(p, handle, strands[least, T_WORD] + step - 1))
        if count > 0 and first <= high[count - 1] + 1:
            high[count - 1] = max(high[count - 1], last)
        else:
            low[count], high[count] = first, last
            count += 1
        step_on(p, strands[least], after, a)


@kernel
def read_from(u, begin, end, limit, to, count, size):
    """Append the list from `limit` on to `count` intervals; `size`: where the list begins now, intervals, ids."""
    u_low, u_high, low, high = u[0], u[1], to[0], to[1]
    while begin < end and u_high[begin] < limit:
        begin += 1
    size[0] = begin
    for i in range(begin, end):
        first = max(u_low[i], limit)
        if count > 0 and first == high[count - 1] + 1:
            high[count - 1] = u_high[i]
        else:
            low[count], high[count] = first, u_high[i]
            count += 1
    ids = 0
    for i in range(count):
        ids += high[i] - low[i] + 1
    size[1], size[2] = count, ids
