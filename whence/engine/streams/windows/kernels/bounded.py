"""Join two streams in bounded memory, a row at a time: probe, enter, leave the window, evict.

Join keys are numbered (`id`), so the kept rows of a key are a chain: `attrs[id, FIRST + side]` is the one that came
first, `after` and `prior` lead on and back (-1 at the ends). `live` lists the positions of kept rows, `place` is where
a position stands in it (-1: not kept). With windows of rows, `queue` has every row that is still in the window, kept or
evicted (as ~id), in order of arrival. A key's attributes are logged before they first change in an epoch.

A row's score is that of keeping it for the other stream's sake, by the other side's `model`; the least leaves first,
of equal ones the older, of the same age the left one.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from whence.model.codes import Codes
from whence.model.jit import kernel
from whence.model.record import RecordType, at_address

# Attributes of a key: each, but the last two, of the left and of the right side.
FIRST, LAST, COUNT, TIME, LOST, MISSED, STAMP, FIELDS = 0, 2, 4, 6, 8, 10, 11, 12
# What is known of a side.
LIVE, CAME, SIZE, HEAD, TAIL, VALUE, GONE, SIDE_META = 0, 1, 2, 3, 4, 5, 6, 7
# What is known of both.
EPOCH, LOGGED, CAPACITY, BATCH, EVICTED, SAMPLED, CLOCK, SHARED_META = 0, 1, 2, 3, 4, 5, 6, 7
# How a side's stream goes on.
KIND, CENTER, LOW, STATE_LOW, START, SLOPE, MODEL = 0, 1, 2, 3, 4, 5, 6
HEEB_TABLE, HEEB_COUNT, PROB, LIFE, RANDOM, LRU, LFU = 0, 1, 2, 3, 4, 5, 6
NOWHERE, LINE, NEWEST, SEASON = 0, 1, 2, 3
BITS = 20  # of the fraction of START, SLOPE and weights

NOT_BEGUN = -2
NOTHING = -(1 << 62)  # in a queue: a row that nothing is known of any more
_K = -7046029254386353131

Flags = NDArray[np.bool_]

SIDE = RecordType(
    (
        ("ids", "int64", 1),  # of each position: its key, -1 with a NULL
        ("came", "int64", 1),  # its number among the arrivals of its side
        ("after", "int64", 1),
        ("prior", "int64", 1),
        ("place", "int64", 1),
        ("live", "int64", 1),
        ("queue", "int64", 1),
        ("queued", "int64", 1),  # of each position: where it stands in the queue
        ("gone", "int64", 1),  # positions that are no longer kept, since the epoch began
        ("meta", "int64", 1),
        ("model", "int64", 1),
        ("means", "int64", 1),
        ("table", "int64", 2),
        ("weights", "int64", 1),  # of a row that stays in its window for so many steps
    )
)
SHARED = RecordType(
    (
        ("attrs", "int64", 2),
        ("values", "int64", 1),
        ("log", "int64", 2),
        ("meta", "int64", 1),
        ("scores", "int64", 1),
        ("ranked", "int64", 1),
    )
)
side_at = at_address(SIDE)
shared_at = at_address(SHARED)


@kernel
def touch(shared, id: int) -> None:
    """Log the attributes of a key, before they change."""
    attrs = shared.attrs
    meta = shared.meta
    if attrs[id, STAMP] == meta[EPOCH]:
        return
    k = meta[LOGGED]
    meta[LOGGED] += 1
    shared.log[k, STAMP] = id
    for c in range(STAMP):
        shared.log[k, c] = attrs[id, c]
    attrs[id, STAMP] = meta[EPOCH]


@kernel
def restore_keys(address: int) -> None:
    """Restore the attributes of keys as they were before the epoch."""
    shared = shared_at(address)
    for k in range(shared.meta[LOGGED] - 1, -1, -1):
        for c in range(STAMP):
            shared.attrs[shared.log[k, STAMP], c] = shared.log[k, c]
    shared.meta[LOGGED] = 0


@kernel
def _enter(side, shared, s: int, p: int) -> None:
    """Keep a row: last in the chain of its key."""
    attrs = shared.attrs
    id = side.ids[p]
    last = attrs[id, LAST + s]
    side.after[p] = -1
    side.prior[p] = last
    if last >= 0:
        side.after[last] = p
    else:
        attrs[id, FIRST + s] = p
    attrs[id, LAST + s] = p
    side.place[p] = side.meta[LIVE]
    side.live[side.meta[LIVE]] = p
    side.meta[LIVE] += 1


@kernel
def _leave(side, shared, s: int, p: int) -> None:
    """Keep a row no longer."""
    attrs = shared.attrs
    id = side.ids[p]
    touch(shared, id)
    after = side.after[p]
    prior = side.prior[p]
    if prior >= 0:
        side.after[prior] = after
    else:
        attrs[id, FIRST + s] = after
    if after >= 0:
        side.prior[after] = prior
    else:
        attrs[id, LAST + s] = prior
    side.meta[LIVE] -= 1
    moved = side.live[side.meta[LIVE]]
    side.live[side.place[p]] = moved
    side.place[moved] = side.place[p]
    side.place[p] = -1
    side.gone[side.meta[GONE]] = p
    side.meta[GONE] += 1


@kernel
def is_sampled(value: int, sampled: int) -> bool:
    """Return whether what is evicted of a join value is counted, where one of 2^`sampled` values is."""
    h = value * _K
    h ^= h >> 29
    return ((h * _K) >> 40) & ((1 << sampled) - 1) == 0


@kernel
def sampled(values: Codes, bits: int, found: Flags) -> Flags:
    """Write of each join value whether it `is_sampled`."""
    for i in range(values.shape[0]):
        found[i] = is_sampled(values[i], bits)
    return found


@kernel
def _evict(side, shared, s: int, p: int) -> None:
    _leave(side, shared, s, p)
    id = side.ids[p]
    shared.meta[EVICTED] += 1
    if is_sampled(shared.values[id], shared.meta[SAMPLED]):
        shared.attrs[id, LOST + s] += 1
        if side.meta[SIZE] >= 0:
            side.queue[side.queued[p]] = ~id
    elif side.meta[SIZE] >= 0:
        side.queue[side.queued[p]] = NOTHING


@kernel
def _expire(side, shared, s: int) -> None:
    """Let the rows leave that are no longer in the window."""
    meta = side.meta
    while meta[TAIL] - meta[HEAD] > meta[SIZE]:
        entry = side.queue[meta[HEAD]]
        meta[HEAD] += 1
        if entry >= 0:
            if side.place[entry] >= 0:
                _leave(side, shared, s, entry)
        elif entry > NOTHING:
            touch(shared, ~entry)
            shared.attrs[~entry, LOST + s] -= 1


@kernel
def _arrive(side, shared, s: int, p: int) -> None:
    """Count a row that has joined the other side, and keep it, unless its key has a NULL."""
    meta = side.meta
    id = side.ids[p]
    side.came[p] = meta[CAME]
    meta[CAME] += 1
    if meta[SIZE] >= 0:
        side.queue[meta[TAIL]] = p if id >= 0 else NOTHING
        side.queued[p] = meta[TAIL]
        meta[TAIL] += 1
    if id >= 0:
        touch(shared, id)
        attrs = shared.attrs
        shared.meta[CLOCK] += 1
        attrs[id, MISSED] += attrs[id, LOST + 1 - s]
        attrs[id, COUNT + s] += 1
        attrs[id, TIME + s] = shared.meta[CLOCK]
        meta[VALUE] = shared.values[id]
        _enter(side, shared, s, p)
    if meta[SIZE] >= 0:
        _expire(side, shared, s)


@kernel
def _center(side) -> int:
    """Return the value around which the next ones of a side lie, by its model."""
    mode = side.model[CENTER]
    if mode == LINE:
        return int((side.model[START] + side.model[SLOPE] * side.meta[CAME] + (1 << (BITS - 1))) >> BITS)
    if mode == NEWEST:
        return int(side.meta[VALUE])
    if mode == SEASON:
        return int(side.means[side.meta[CAME] % side.means.shape[0]])
    return 0


@kernel
def _score(own, other, shared, s: int, p: int, center: int) -> int:
    """Return what keeping a row is worth; `center` is that of the other side."""
    attrs = shared.attrs
    model = other.model
    kind = model[KIND]
    id = own.ids[p]
    if kind == RANDOM:
        h = (own.came[p] * 2 + s) * _K ^ shared.meta[EVICTED] * -49064778989728563
        h ^= h >> 29
        return int(((h * _K) >> 20) & ((1 << 40) - 1))
    if kind == LRU:
        return max(int(attrs[id, TIME + 1 - s]), int(attrs[id, TIME + s]))
    if kind == LFU or kind == PROB:
        return int(attrs[id, COUNT + 1 - s])
    left = own.meta[SIZE] - (own.meta[CAME] - 1 - own.came[p]) if own.meta[SIZE] >= 0 else 1 << 30
    if kind == LIFE:
        return int(attrs[id, COUNT + 1 - s] * left)
    weight = other.weights[min(left, other.weights.shape[0] - 1)]
    if kind == HEEB_COUNT:
        return int(attrs[id, COUNT + 1 - s] * weight)
    table = other.table
    row = 0
    if table.shape[0] > 1:
        row = min(max(other.meta[VALUE] - center - model[STATE_LOW], 0), table.shape[0] - 1)
    column = shared.values[id] - center - model[LOW]
    if column < 0 or column >= table.shape[1]:
        return 0
    return int((table[row, column] * weight) >> BITS)


@kernel
def _rank(values: Codes, n: int, k: int) -> int:
    """Return the k-th least of the first n values, from 0; they are rearranged."""
    low = 0
    high = n - 1
    while low < high:
        pivot = values[(low + high) >> 1]
        i = low
        j = high
        while i <= j:
            while values[i] < pivot:
                i += 1
            while values[j] > pivot:
                j -= 1
            if i <= j:
                values[i], values[j] = values[j], values[i]
                i += 1
                j -= 1
        if k <= j:
            high = j
        elif k >= i:
            low = i
        else:
            break
    return int(values[k])


@kernel
def _evict_one(left, right, shared) -> None:
    """Evict the row with the least score."""
    worst = -1
    least = 0
    age = 0
    for s in range(2):
        own = right if s == 1 else left
        other = left if s == 1 else right
        center = _center(other)
        for k in range(own.meta[LIVE]):
            p = own.live[k]
            score = _score(own, other, shared, s, p, center)
            came = 2 * own.came[p] + s
            if worst < 0 or score < least or (score == least and came < age):
                worst = p
                least = score
                age = came
    _evict(right if age & 1 else left, shared, age & 1, worst)


@kernel
def _evict_batch(left, right, shared) -> None:
    """Evict as many rows as a batch has, those with the least scores."""
    scores = shared.scores
    ranked = shared.ranked
    n = 0
    for s in range(2):
        own = right if s == 1 else left
        other = left if s == 1 else right
        center = _center(other)
        for k in range(own.meta[LIVE]):
            scores[n] = _score(own, other, shared, s, own.live[k], center)
            ranked[n] = scores[n]
            n += 1
    batch = min(shared.meta[BATCH], n)
    limit = _rank(ranked, n, batch - 1)
    below = 0
    ties = 0
    k = 0
    for s in range(2):
        own = right if s == 1 else left
        for i in range(own.meta[LIVE]):
            if scores[k] < limit:
                below += 1
            elif scores[k] == limit:
                ranked[ties] = 2 * own.came[own.live[i]] + s
                ties += 1
            k += 1
    oldest = _rank(ranked, ties, batch - below - 1)
    # From the end on: what leaves `live` is replaced by what stands last there.
    for s in range(1, -1, -1):
        own = right if s == 1 else left
        base = left.meta[LIVE] if s == 1 else 0
        for i in range(own.meta[LIVE] - 1, -1, -1):
            p = own.live[i]
            score = scores[base + i]
            if score < limit or (score == limit and 2 * own.came[p] + s <= oldest):
                _evict(own, shared, s, p)


@kernel
def join_bounded(
    left_at: int, right_at: int, shared_address: int, order: Codes, end: int, state: Codes, lpos: Codes, rpos: Codes
) -> int:
    """Write the pairs of positions that rows in `order` (position · 2, and 1 more for the right) up to `end` make;
    return how many. It stops when there is no more room; `state` is the index in `order` and the row that is joined
    next, or NOT_BEGUN."""
    left = side_at(left_at)
    right = side_at(right_at)
    shared = shared_at(shared_address)
    attrs = shared.attrs
    room = lpos.shape[0]
    n = 0
    k = state[0]
    q = state[1]
    while k < end:
        p = order[k] >> 1
        s = order[k] & 1
        own = right if s == 1 else left
        other = left if s == 1 else right
        id = own.ids[p]
        if id >= 0:
            if q == NOT_BEGUN:
                q = attrs[id, FIRST + 1 - s]
            while q >= 0:
                if n == room:
                    state[0] = k
                    state[1] = q
                    return n
                lpos[n] = q if s == 1 else p
                rpos[n] = p if s == 1 else q
                n += 1
                q = other.after[q]
        _arrive(own, shared, s, p)
        while left.meta[LIVE] + right.meta[LIVE] > shared.meta[CAPACITY]:
            if shared.meta[BATCH] == 1:
                _evict_one(left, right, shared)
            else:
                _evict_batch(left, right, shared)
        q = NOT_BEGUN
        k += 1
    state[0] = k
    state[1] = NOT_BEGUN
    return n


@kernel
def refer_bounded(
    left_at: int, right_at: int, shared_address: int, left_first: int, right_first: int, found: Flags
) -> None:
    """Let references to keys arrive, as rows of the right, whose window is empty; write of each whether its key is
    kept, as a row of the left, and keep it if not. Their positions follow the first ones of either side."""
    left = side_at(left_at)
    right = side_at(right_at)
    shared = shared_at(shared_address)
    for k in range(found.shape[0]):
        id = right.ids[right_first + k]
        found[k] = shared.attrs[id, FIRST] >= 0
        _arrive(right, shared, 1, right_first + k)
        if not found[k]:
            _arrive(left, shared, 0, left_first + k)
            if left.meta[LIVE] > shared.meta[CAPACITY]:
                if shared.meta[BATCH] == 1:
                    _evict_one(left, right, shared)
                else:
                    _evict_batch(left, right, shared)


@kernel
def chain_live(address: int, shared_address: int, s: int, end: int) -> None:
    """Rebuild the chains and the list of the kept rows, which `place` marks with anything but -1."""
    side = side_at(address)
    shared = shared_at(shared_address)
    for id in range(shared.attrs.shape[0]):
        shared.attrs[id, FIRST + s] = -1
        shared.attrs[id, LAST + s] = -1
    side.meta[LIVE] = 0
    for p in range(end):
        if side.place[p] >= 0:
            _enter(side, shared, s, p)
