"""Unions over windows of a sequence of sets, of one source.

Where each set of a sequence begins and ends no earlier than the one before it, and agrees with it where they overlap,
the sets are slices of one ascending list, and a window's union is the slice from its first row's first id to its last
row's last. Such a stretch of the sequence is a **run**. `lay` writes the lists of all runs, as intervals, one after the
other, without expanding what is intervals already; singletons in ascending order are their own list. `write` makes
sets of slices: it costs what it writes, which for a window that slides on is what is new in it. Windows that are not
in one run are left to `tid_paint.py`.

The list: interval q is `low[q]` to `high[q]`, with `before[q]` ids before it, in run `run[q]`. Row i begins at id
`head[i]` in interval `head_at[i]` and ends at `tail[i]` in `tail_at[i]`. Kernels take it, the windows and their handles
as one record, `x`, and the pool that sets are written to as another, `p`.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from whence.annotate.kernels.tid_pieces import GROUP, group_end, write_pieces
from whence.annotate.kernels.tid_sets import (
    ALL_IDS,
    BASE,
    DELTA,
    INTERVALS,
    KIND,
    LENGTH,
    SOURCE_BIT,
    START,
)
from whence.model.jit import kernel
from whence.model.record import RecordType, at_address

Ints = NDArray[np.int64]

POOL = RecordType(
    (
        ("sets", "int64", 2),  # START, LENGTH, KIND, BASE (`tid_sets.py`)
        ("items", "int64", 1),  # their words
        ("q", "int64", 1),  # Q_* and S_*
        ("open_sets", "int64", 2),  # C_*
    )
)
pool = at_address(POOL)

UNIONS = RecordType(
    (
        ("a", "int64", 1),  # the handles of the sequence
        ("starts", "int64", 1),  # the first row of each window
        ("ends", "int64", 1),  # and the one after its last
        ("out", "int64", 1),  # its handle
        ("low", "int64", 1),
        ("high", "int64", 1),
        ("before", "int64", 1),
        ("run", "int64", 1),
        ("head", "int64", 1),
        ("tail", "int64", 1),
        ("head_at", "int64", 1),
        ("tail_at", "int64", 1),
    )
)
unions = at_address(UNIONS)

ENCODE_IDS, ENCODE_INTERVALS, ENCODE_DELTAS, ENCODE_ADAPTIVE = range(4)
ELSEWHERE = -(1 << 62)  # the handle of a window that is not in one run

(
    Q_COUNT,  # sets in the pool
    Q_USED,  # words in the pool
    Q_WANTED,  # room wanted: words
    Q_LARGEST,  # words of the largest set that was written by itself
    S_NUMBER,  # the last full set that takes deltas, or -1
    S_START,  # where it is
    S_FULL,  # its ids
    S_USED,  # with those appended
    S_ROOM,  # with those that may be
    S_AT,  # its first id's place in the list
    S_RUN,  # and run
    S_LAST,  # its last id
    S_LAST_AT,  # and that one's interval
    S_END,  # the last id of the last window of the present run, or 0
    Q_GAIN,  # deltas on intervals are written where ids take this many times their words; 0: wherever they can be
    Q_FIRST,  # the number of the pool's first set
) = range(16)
Q_FIELDS = 16

# Sets that later calls may go on from, found by their last id: full sets, and others with S_NUMBER -1.
C_END, C_NUMBER, C_START, C_FULL, C_USED, C_ROOM = range(6)
C_FIELDS, C_ROWS = 6, 4096

# of lay: intervals, rows and runs done; room wanted: intervals, or -1 if it is of no use
L_COUNT, L_ROW, L_RUN, L_WANTED = range(4)
SHORT, WIDE = 64, 16  # runs of fewer rows are not worth laying out if rows have more intervals
TRIES = 4  # runs that are laid out anyhow
SMALL = 2  # intervals that are not worth a delta
PROBES = 64  # ids that are looked for among sets that were left


@kernel
def lay_singles(address: int) -> int:
    """Write the list of a sequence of singletons, where a row's first and last id are itself; return its length."""
    x = unions(address)
    a, low, high, before, run, at = x.a, x.low, x.high, x.before, x.run, x.head_at
    if len(a) == 0:
        return 0
    q, r = 0, 0
    previous = a[0]
    low[0] = previous
    before[0] = run[0] = at[0] = 0
    for i in range(1, len(a)):
        value = a[i]
        if value != previous + 1 and value != previous:
            high[q] = previous
            q += 1
            r += value < previous
            low[q] = value
            before[q] = before[q - 1] + previous - low[q - 1] + 1
            run[q] = r
        at[i] = q
        previous = value
    high[q] = previous
    return q + 1


@kernel
def append(x, first, last, fresh, q, r):
    """Append an interval to the list, merged with the last one if it can be; return the last one's number."""
    low, high, before, run = x.low, x.high, x.before, x.run
    if not fresh and first <= high[q] + 1:
        high[q] = max(high[q], last)
        return q
    q += 1
    low[q] = first
    high[q] = last
    before[q] = before[q - 1] + high[q - 1] - low[q - 1] + 1 if q > 0 else 0
    run[q] = r
    return q


@kernel
def agrees(items, start, end, step, at, q, low, high):
    """Compare a set, as far as the list goes, with the list from interval `at` on; return where it goes on, or -1."""
    expected = items[start]
    if expected < low[at]:
        return -1
    while start < end:
        first, last = items[start], items[start + step - 1]
        if at > q:
            return start
        if first != expected:
            return -1
        if last > high[at]:
            return start if at == q else -1
        expected = last + 1
        if last == high[at]:
            at += 1
            if at <= q:
                expected = low[at]
        start += step
    return start if at > q else -1


@kernel
def lay(pool_address: int, address: int, s: Ints) -> bool:
    """Write the list of a sequence of sets. False if it wants room, or if it is of no use: where rows of several paths
    take turns, each begins a run with all it has."""
    p, x = pool(pool_address), unions(address)
    sets, items, number = p.sets, p.items, p.q[Q_FIRST]
    a, low, high, head, tail, head_at, tail_at = x.a, x.low, x.high, x.head, x.tail, x.head_at, x.tail_at
    q, r = s[L_COUNT] - 1, s[L_RUN]
    last_base, last_end = -1, 0
    for i in range(s[L_ROW], len(a)):
        base, begin, end, step = -1, 0, 1, 1
        first = last = a[i]
        if first < 0:
            row = -1 - first - number
            step = 2 if sets[row, KIND] == INTERVALS else 1
            begin, base = sets[row, START], sets[row, BASE]
            end = begin + sets[row, LENGTH]
            first, last = items[begin], items[end - 1]
        if q + 1 + (end - begin) // step > len(low):
            s[L_COUNT], s[L_ROW], s[L_RUN], s[L_WANTED] = q + 1, i, r, q + 1 + (end - begin) // step
            return False
        old, start, at = q, begin, q + 1
        fresh = i == 0 or first < head[i - 1] or last < tail[i - 1]
        if not fresh:
            at = head_at[i - 1]
            while at <= q and high[at] < first:
                at += 1
            if a[i] > 0:
                fresh = at < q
            elif base >= 0 and base == last_base and begin <= last_end:
                start = last_end
            elif at <= q:
                start = agrees(items, begin, end, step, at, q, low, high)
                fresh = start < 0
        if fresh:
            r += i > 0
            at, start = q + 1, begin
            if r > TRIES and r * SHORT > i and q > WIDE * i:
                s[L_WANTED] = -1
                return False
        if a[i] > 0:
            q = append(x, first, last, fresh, q, r)
        else:
            while start < end:
                q = append(x, items[start], items[start + step - 1], fresh and start == begin, q, r)
                start += step
        last_base, last_end = base, end
        if not fresh and at > old and high[old] >= first:
            at = old
        head[i], tail[i], head_at[i], tail_at[i] = first, last, at, q
    s[L_COUNT], s[L_ROW], s[L_RUN] = q + 1, len(a), r
    return True


@kernel
def set_aside(address: int) -> None:
    """Mark all windows that are not one row, or none, as ELSEWHERE."""
    x = unions(address)
    for w in range(len(x.starts)):
        s, e = x.starts[w], x.ends[w]
        x.out[w] = ELSEWHERE if e - s > 1 else x.a[s] if e > s else 0


@kernel
def new_set(p, start, length, kind, base):
    """Add a set to the pool; return its handle."""
    sets, q = p.sets, p.q
    row = q[Q_COUNT]
    sets[row, START] = start
    sets[row, LENGTH] = length
    sets[row, KIND] = kind
    sets[row, BASE] = base
    q[Q_COUNT] = row + 1
    return -1 - (q[Q_FIRST] + row)


@kernel
def put_ids(items, to, first, last, at, end, low, high):
    """Write the ids of intervals `at` to `end`, from the id `first` to the id `last`; return where they end."""
    while at < end:
        for value in range(first, high[at] + 1):
            items[to] = value
            to += 1
        at += 1
        first = low[at]
    for value in range(first, last + 1):
        items[to] = value
        to += 1
    return to


@kernel
def put_intervals(items, to, first, last, at, end, low, high):
    """Write intervals `at` to `end`, from the id `first` to the id `last`; return where they end."""
    while at < end:
        items[to] = first
        items[to + 1] = high[at]
        to += 2
        at += 1
        first = low[at]
    items[to] = first
    items[to + 1] = last
    return to + 2


@kernel
def close_full(q):
    """Close the last full set to deltas: free the room it does not need, if it is the pool's last."""
    if q[S_NUMBER] >= 0 and q[S_START] + q[S_ROOM] == q[Q_USED]:
        q[Q_USED] = q[S_START] + q[S_USED]
    q[S_NUMBER] = -1


@kernel
def slot(value):
    """Return where an id's set would be among those that later calls may go on from."""
    return (((value ^ (value >> SOURCE_BIT)) & 0x3FFFFFFF) * 0x9E3779B1 >> 20) & (C_ROWS - 1)


@kernel
def leave_run(p):
    """End the present run: a later call may go on from its last window."""
    q, open_sets = p.q, p.open_sets
    if q[S_END] > 0:
        at = slot(q[S_END])
        open_sets[at, C_END] = q[S_END]
        open_sets[at, C_NUMBER] = q[S_NUMBER]
        open_sets[at, C_START] = q[S_START]
        open_sets[at, C_FULL] = q[S_FULL]
        open_sets[at, C_USED] = q[S_USED]
        open_sets[at, C_ROOM] = q[S_ROOM]
    q[S_NUMBER] = -1
    q[S_END] = 0


@kernel
def resume(p, first, last, at, end, low, high):
    """Find a set that was left and ends in this window; if it is full, make it the last full set. Return whether."""
    q, open_sets = p.q, p.open_sets
    value = last
    for _ in range(PROBES):
        row = slot(value)
        if open_sets[row, C_END] == value:
            q[S_NUMBER] = open_sets[row, C_NUMBER]
            q[S_START] = open_sets[row, C_START]
            q[S_FULL] = open_sets[row, C_FULL]
            q[S_USED] = open_sets[row, C_USED]
            q[S_ROOM] = open_sets[row, C_ROOM]
            open_sets[row, C_END] = 0
            return True
        value -= 1
        if value < low[end]:
            if end == at:
                return False
            end -= 1
            value = high[end]
        if value < first:
            return False
    return False


@kernel
def follow(p, first, last, at, end, low, high):
    """Return where in the last full set a set begins that is its end and then what is appended to it, or more, which is
    appended; -1 if the set is not such a one."""
    items, q = p.items, p.q
    if q[S_NUMBER] < 0:
        return -1
    start, used = q[S_START], q[S_USED]
    skipped, above = 0, q[S_FULL]
    while skipped < above:
        middle = (skipped + above) // 2
        if items[start + middle] < first:
            skipped = middle + 1
        else:
            above = middle
    if skipped == q[S_FULL]:
        return -1
    place = skipped
    while at <= end:
        stop = last if at == end else high[at]
        if place + stop - first + 1 > q[S_ROOM]:
            return -1
        for value in range(first, stop + 1):
            if place >= used:
                items[start + place] = value  # room that is not read until it is in use
            elif items[start + place] != value:
                return -1
            place += 1
        at += 1
        if at <= end:
            first = low[at]
    q[S_USED] = max(used, place)
    return skipped


@kernel
def _write_full(p, first, last, at, end, low, high):
    """Write a full set that deltas may follow; there is room for one and a half times its ids."""
    q = p.q
    close_full(q)
    start = q[Q_USED]
    ids = put_ids(p.items, start, first, last, at, end, low, high) - start
    q[S_NUMBER] = q[Q_FIRST] + q[Q_COUNT]
    q[S_START], q[S_FULL], q[S_USED], q[S_ROOM] = start, ids, ids, ids + ids // 2
    q[S_LAST], q[S_LAST_AT] = last, end
    q[Q_USED] = start + q[S_ROOM]
    return new_set(p, start, ids, ALL_IDS, q[S_NUMBER])


@kernel
def has_room(p, words):
    """Tell whether `words` more words fit; if not, note them as wanted."""
    if p.q[Q_USED] + words <= len(p.items):
        return True
    p.q[Q_WANTED] = words
    return False


@kernel
def write_set(p, shape, first, last, at, end, low, high):
    """Write intervals `at` to `end`, from the id `first` to the id `last`, as one set; return its handle.

    There is room."""
    q = p.q
    if shape == ENCODE_DELTAS:
        return _write_full(p, first, last, at, end, low, high)
    start = q[Q_USED]
    if shape == ENCODE_INTERVALS:
        q[Q_USED] = put_intervals(p.items, start, first, last, at, end, low, high)
    else:
        q[Q_USED] = put_ids(p.items, start, first, last, at, end, low, high)
    words = q[Q_USED] - start
    q[Q_LARGEST] = max(q[Q_LARGEST], words)
    return new_set(p, start, words, INTERVALS if shape == ENCODE_INTERVALS else ALL_IDS, -1)


@kernel
def overlaps(x, w):
    """Tell whether the next window has at least half of this one's rows."""
    starts, ends = x.starts, x.ends
    return w + 1 < len(starts) and starts[w + 1] >= starts[w] and 2 * (ends[w] - starts[w + 1]) >= ends[w] - starts[w]


@kernel
def slide_on(p, x, w):
    """Write windows from w on as deltas against the last full set while they can be; return the first that cannot."""
    sets, items, q = p.sets, p.items, p.q
    starts, ends, low, high, before, run = x.starts, x.ends, x.low, x.high, x.before, x.run
    head, tail, head_at, tail_at = x.head, x.tail, x.head_at, x.tail_at
    base, start, full, room, place, r = q[S_NUMBER], q[S_START], q[S_FULL], q[S_ROOM], q[S_AT], q[S_RUN]
    used, last, last_at, row = q[S_USED], q[S_LAST], q[S_LAST_AT], q[Q_COUNT]
    while w < len(starts):
        s, e = starts[w], ends[w] - 1
        if s >= e:
            break
        at, end = head_at[s], tail_at[e]
        if run[at] != r or run[end] != r:
            break
        skipped = before[at] + head[s] - low[at] - place
        after = before[end] + tail[e] - low[end] + 1 - place
        if skipped < 0 or skipped >= full or after > room or after - skipped <= 1:
            break
        while used < after:
            if last == high[last_at]:
                last_at += 1
                last = low[last_at]
            else:
                last += 1
            items[start + used] = last
            used += 1
        sets[row, START] = start + skipped
        sets[row, LENGTH] = after - skipped
        sets[row, KIND] = DELTA
        sets[row, BASE] = base
        x.out[w] = -1 - (q[Q_FIRST] + row)
        row += 1
        w += 1
        q[S_END] = tail[e]
    q[S_USED], q[S_LAST], q[S_LAST_AT], q[Q_COUNT] = used, last, last_at, row
    return w


@kernel
def begin_run(p, x, w, place, ids):
    """Begin a run with window w: go on from a set that was left by an earlier call, if it does. Return whether."""
    q, first, last = p.q, x.starts[w], x.ends[w] - 1
    at, end = x.head_at[first], x.tail_at[last]
    leave_run(p)
    q[S_RUN] = x.run[at]
    if not resume(p, x.head[first], x.tail[last], at, end, x.low, x.high):
        return False
    skipped = follow(p, x.head[first], x.tail[last], at, end, x.low, x.high)
    if skipped >= 0 and skipped + ids == q[S_USED]:
        q[S_AT], q[S_LAST], q[S_LAST_AT] = place - skipped, x.tail[last], end
    else:
        q[S_NUMBER] = -1
    return True


@kernel
def write(pool_address: int, address: int, begin: int, encoding: int) -> int:
    """Write the unions of windows, from window `begin` on; return the window at which words are wanted, or how many
    windows there are. There is room for as many sets."""
    p, x = pool(pool_address), unions(address)
    q = p.q
    a, starts, ends, out, low, before, run = x.a, x.starts, x.ends, x.out, x.low, x.before, x.run
    head, tail, head_at, tail_at = x.head, x.tail, x.head_at, x.tail_at
    w = begin
    while w < len(starts):
        s, e = starts[w], ends[w]
        w += 1
        if e - s <= 1:
            out[w - 1] = a[s] if e > s else 0
            continue
        if w - 1 > begin and s == starts[w - 2] and e == ends[w - 2]:
            out[w - 1] = out[w - 2]
            continue
        first, at, last, end = head[s], head_at[s], tail[e - 1], tail_at[e - 1]
        r = run[at]
        if r != run[end]:
            out[w - 1] = ELSEWHERE
            continue
        if first == last:
            out[w - 1] = first
            continue
        place = before[at] + first - low[at]
        ids = before[end] + last - low[end] + 1 - place
        intervals = end - at + 1
        shape = encoding
        if encoding == ENCODE_ADAPTIVE:
            few = intervals <= SMALL and (q[S_NUMBER] < 0 or q[S_RUN] != r) and q[Q_GAIN] > 0
            shape = ENCODE_INTERVALS if few else ENCODE_DELTAS
        if shape == ENCODE_DELTAS:
            # whether other windows have most of this one
            known = encoding == ENCODE_DELTAS or overlaps(x, w - 1)
            if q[S_RUN] != r:
                known = begin_run(p, x, w - 1, place, ids) or known
            q[S_END] = last
            if q[S_NUMBER] >= 0:
                after = slide_on(p, x, w - 1)
                if after >= w:
                    w = after
                    continue
            if encoding == ENCODE_ADAPTIVE:
                group = group_end(x, w - 1, r)
                final = ends[group - 1] - 1
                pieces = 2 * (tail_at[final] - at + 1 + 2 * (group - w + 1))
                spread = before[tail_at[final]] + tail[final] - low[tail_at[final]] + 1 - place
                if group - w + 1 >= GROUP and q[Q_GAIN] * pieces <= spread:
                    close_full(q)
                    if not has_room(p, pieces):
                        return w - 1
                    q[Q_USED] += write_pieces(p, x, w - 1, group, q[Q_COUNT], q[Q_USED], q[Q_FIRST])
                    q[Q_COUNT] += group - w + 1
                    q[S_END] = tail[final]
                    w = group
                    continue
            if not known or (intervals <= SMALL and encoding == ENCODE_ADAPTIVE):
                shape = ENCODE_INTERVALS if 2 * intervals < ids else ENCODE_IDS
        words = ids + ids // 2 if shape == ENCODE_DELTAS else 2 * intervals if shape == ENCODE_INTERVALS else ids
        if not has_room(p, words):
            return w - 1
        out[w - 1] = write_set(p, shape, first, last, at, end, low, x.high)
        if shape == ENCODE_DELTAS:
            q[S_AT] = place
    leave_run(p)
    q[S_RUN] = -1
    return len(starts)
