"""Deriving a row, or withdrawing one: the queue of rows to join, the record of what an epoch changed, and the links
from a row to those whose chosen derivation it is part of."""

from __future__ import annotations

import numpy as np

from whence.engine.recursion.kernels.binding import NULL
from whence.engine.recursion.kernels.store import (
    ALIVE,
    BEST,
    DOUBTED,
    DRED,
    GROW,
    LIMIT,
    OPENED,
    R_KEYS,
    R_KIND,
    R_SIGN,
    R_WIDTH,
    RELATION,
    RETRY,
    REVIVED,
    S_ATOMS,
    S_BODIES,
    S_BODY,
    S_CULPRIT,
    S_DEAD,
    S_DEPTH,
    S_DOUBTS,
    S_FORGETS,
    S_HEAD,
    S_HEAP,
    S_META,
    S_OPENED,
    S_PEERS,
    S_POLICY,
    S_SCRATCH,
    S_STATUS,
    S_TAIL,
    S_TOUCHED,
    S_WITHDRAWN,
    SET,
    TOUCHED,
    WITHDRAWN,
    add_row,
    find,
)
from whence.model.jit import kernel


@kernel
def has_room(k):
    """Check that one more row can be queued, touched and opened, else GROW. One queue place stays free for the row at
    work."""
    scalar = k.scalar
    queued = scalar[S_TAIL] - scalar[S_HEAD]
    if queued >= len(k.queue) - 2 or scalar[S_TOUCHED] >= len(k.touched) or scalar[S_OPENED] >= len(k.opened) - 1:
        scalar[S_STATUS] = GROW
        return False
    return True


@kernel
def _move(queue, origin, to):
    queue[to, 0] = queue[origin, 0]
    queue[to, 1] = queue[origin, 1]
    queue[to, 2] = queue[origin, 2]


@kernel
def push(k, priority, row):
    """Queue a row; the caller has seen that there is room."""
    queue, scalar = k.queue, k.scalar
    tail = scalar[S_TAIL]
    scalar[S_TAIL] = tail + 1
    if scalar[S_HEAP] == 0:
        queue[tail & (len(queue) - 1), 1] = row
        return
    rank = heap_rank(k, row)
    while tail > 0:
        parent = (tail - 1) >> 1
        if queue[parent, 0] < priority or (queue[parent, 0] == priority and queue[parent, 2] <= rank):
            break
        _move(queue, parent, tail)
        tail = parent
    queue[tail, 0] = priority
    queue[tail, 1] = row
    queue[tail, 2] = rank


@kernel
def pop_heap(k):
    """Drop the heap's first entry."""
    queue, scalar = k.queue, k.scalar
    size = scalar[S_TAIL] - 1
    scalar[S_TAIL] = size
    priority, row, rank = queue[size, 0], queue[size, 1], queue[size, 2]
    at = 0
    while True:
        child = 2 * at + 1
        if child >= size:
            break
        if child + 1 < size and (
            queue[child + 1, 0] < queue[child, 0]
            or (queue[child + 1, 0] == queue[child, 0] and queue[child + 1, 2] < queue[child, 2])
        ):
            child += 1
        if queue[child, 0] > priority or (queue[child, 0] == priority and queue[child, 2] >= rank):
            break
        _move(queue, child, at)
        at = child
    queue[at, 0] = priority
    queue[at, 1] = row
    queue[at, 2] = rank


@kernel
def priority_of(k, row, relation):
    """Return the priority of a row in the heap: best values first, rows without a value before all."""
    if k.relations[relation, R_KIND] != BEST:
        return NULL
    value = k.cells[row, k.relations[relation, R_KEYS]]
    if k.relations[relation, R_SIGN] > 0:
        return NULL if value == NULL else value
    return -(value + 1)


@kernel
def heap_rank(k, row):
    """Return what goes before what in the heap among equal priorities: with peers smaller ranks, else nothing."""
    m = k.scalar[S_META]
    if k.scalar[S_PEERS] == 0 or k.relations[k.meta[row, m] & RELATION, R_KIND] < SET:
        return 0
    return np.int64(k.meta[row, m + 1])


@kernel
def touch(k, row, alive):
    """Note what a row was before its first change in this epoch."""
    scalar, meta = k.scalar, k.meta
    m = scalar[S_META]
    tag = meta[row, m]
    if tag & TOUCHED:
        return
    n = scalar[S_TOUCHED]
    relation = tag & RELATION
    k.touched[n, 0] = (row << 1) | alive
    k.touched[n, 1] = 0
    keys = k.relations[relation, R_KEYS]
    if keys < k.relations[relation, R_WIDTH]:
        k.touched[n, 1] = k.cells[row, keys]
    k.touched[n, 2] = meta[row, m + 1]
    scalar[S_TOUCHED] = n + 1
    meta[row, m] = tag | TOUCHED


@kernel
def open_row(k, row):
    """With peers, note that a row has changed in this round; the caller has seen that there is room."""
    m, n = k.scalar[S_META], k.scalar[S_OPENED]
    if k.scalar[S_PEERS] and not k.meta[row, m] & OPENED:
        k.meta[row, m] |= OPENED
        k.opened[n] = row
        k.scalar[S_OPENED] = n + 1


@kernel
def doubt(k, row):
    """Note that what a live row stands on may have too large a rank by now; the caller has seen that there is room."""
    m, n = k.scalar[S_META], k.scalar[S_OPENED]
    if not k.meta[row, m] & DOUBTED:
        touch(k, row, 1)
        k.meta[row, m] |= DOUBTED
        k.scalar[S_DOUBTS] += 1
        k.opened[n] = row
        k.scalar[S_OPENED] = n + 1


@kernel
def believe(k, row):
    """Take back a doubt."""
    m = k.scalar[S_META]
    if k.meta[row, m] & DOUBTED:
        k.meta[row, m] &= ~DOUBTED
        k.scalar[S_DOUBTS] -= 1


@kernel
def unlink(k, row):
    """Take a row out of the dependents lists of its chosen derivation."""
    meta, scalar = k.meta, k.scalar
    m, body = scalar[S_META], scalar[S_BODY]
    for j in range(body):
        support = meta[row, m + 4 + j]
        if support >= 0:
            after, before = meta[row, m + 4 + body + j], meta[row, m + 4 + 2 * body + j]
            if before < 0:
                meta[support, m + 3] = after
            else:
                meta[before // body, m + 4 + body + before % body] = after
            if after >= 0:
                meta[after // body, m + 4 + 2 * body + after % body] = before
            meta[row, m + 4 + j] = -1


@kernel
def link(k, row, rule, bodies):
    """Choose a derivation: the rule, and the body rows found in the scalars from `bodies` on."""
    meta, scalar = k.meta, k.scalar
    m, body = scalar[S_META], scalar[S_BODY]
    meta[row, m + 2] = rule
    for j in range(body):
        support = scalar[bodies + j]
        meta[row, m + 4 + j] = support
        if support >= 0:
            first = meta[support, m + 3]
            entry = row * body + j
            meta[row, m + 4 + body + j] = first
            meta[row, m + 4 + 2 * body + j] = -1
            if first >= 0:
                meta[first // body, m + 4 + 2 * body + first % body] = entry
            meta[support, m + 3] = entry


@kernel
def rank_of(k, bodies):
    """Return one more than the largest rank among the derived rows of a body."""
    rank = 0
    m = k.scalar[S_META]
    for j in range(k.scalar[S_ATOMS]):
        row = k.scalar[bodies + j]
        if row >= 0 and k.relations[k.meta[row, m] & RELATION, R_KIND] >= SET:
            rank = max(rank, k.meta[row, m + 1])
    return rank + 1


@kernel
def chosen_rank(k, row):
    """Return one more than the largest rank among the derived rows that a row stands on."""
    rank = 0
    m = k.scalar[S_META]
    for j in range(k.scalar[S_BODY]):
        body = k.meta[row, m + 4 + j]
        if body >= 0 and k.relations[k.meta[body, m] & RELATION, R_KIND] >= SET:
            rank = max(rank, k.meta[body, m + 1])
    return rank + 1


@kernel
def better(sign, a, b):
    """Return whether value a beats b under MIN (sign 1) or MAX (sign -1); NULL is beaten by everything."""
    if a == NULL:
        return False
    if b == NULL:
        return True
    return a < b if sign > 0 else a > b


@kernel
def _is_chosen(k, row, rule):
    """Return whether a row stands on the derivation in S_BODIES."""
    m = k.scalar[S_META]
    if k.meta[row, m + 2] != rule:
        return False
    for j in range(k.scalar[S_BODY]):
        if k.meta[row, m + 4 + j] != k.scalar[S_BODIES + j]:
            return False
    return True


@kernel
def _emit_again(k, row, rule, relation):
    """With peers, take a derivation of a live row, of the value that it has.

    A row that changed in this round has the smallest rank of its derivations, whatever their order; one that did not
    keeps its rank, which other partitions know."""
    m = k.scalar[S_META]
    rank = rank_of(k, S_BODIES)
    if k.meta[row, m] & OPENED and rank < k.meta[row, m + 1]:
        unlink(k, row)
        k.meta[row, m + 1] = rank
        link(k, row, rule, S_BODIES)
        push(k, priority_of(k, row, relation), row)
    elif rank > k.meta[row, m + 1] and _is_chosen(k, row, rule):
        doubt(k, row)


@kernel
def emit(k, rule, relation):
    """Take a derivation of the row in the scratch (key, then value) by the rows in S_BODIES; False if interrupted."""
    scalar, meta, cells = k.scalar, k.meta, k.cells
    if not has_room(k):
        return False
    m = scalar[S_META]
    keys = k.relations[relation, R_KEYS]
    best = k.relations[relation, R_KIND] == BEST
    value = scalar[S_SCRATCH + keys]
    row = find(k, relation, keys)
    if row < 0:
        row = add_row(k, relation)
        if row < 0:
            if scalar[S_STATUS] == LIMIT:
                scalar[S_CULPRIT] = scalar[S_BODIES]
            return False
        if best:
            cells[row, keys] = value
    tag = meta[row, m]
    supported = scalar[S_POLICY] != DRED
    if tag & ALIVE:
        if scalar[S_HEAP] == 0:
            return True  # sets only: a derived row's rank never rises
        sign = k.relations[relation, R_SIGN]
        if not (best and better(sign, value, cells[row, keys])):
            if not supported or (best and value != cells[row, keys]):
                return True
            if scalar[S_PEERS]:
                _emit_again(k, row, rule, relation)
                return True
            if not _is_chosen(k, row, rule):
                return True
            rank = rank_of(k, S_BODIES)
            if rank <= meta[row, m + 1]:
                return True
            if rank > scalar[S_DEPTH]:
                scalar[S_STATUS] = LIMIT
                scalar[S_CULPRIT] = row
                return False
            meta[row, m + 1] = rank  # its chosen derivation now stands on later rows: repair, and what stands on it
            push(k, priority_of(k, row, relation), row)
            return True
    rank = rank_of(k, S_BODIES)
    if rank > scalar[S_DEPTH]:
        scalar[S_STATUS] = LIMIT
        scalar[S_CULPRIT] = row
        for j in range(scalar[S_ATOMS]):
            if scalar[S_BODIES + j] >= 0:
                scalar[S_CULPRIT] = scalar[S_BODIES + j]
        return False
    alive = 1 if tag & ALIVE else 0
    touch(k, row, alive)
    tag = meta[row, m]
    if alive:
        if supported:
            unlink(k, row)
    else:
        scalar[S_DEAD] -= 1
        if tag & WITHDRAWN:
            scalar[S_WITHDRAWN] -= 1
    meta[row, m] = (tag | ALIVE) & ~(WITHDRAWN | RETRY | REVIVED)
    believe(k, row)
    open_row(k, row)
    if best:
        cells[row, keys] = value
    meta[row, m + 1] = rank
    if supported:
        link(k, row, rule, S_BODIES)
    push(k, priority_of(k, row, relation), row)
    return True


@kernel
def overdelete_row(k, relation):
    """DRED: the row in the scratch has a derivation through a dead row, so it dies for now."""
    scalar, meta = k.scalar, k.meta
    m = scalar[S_META]
    keys = k.relations[relation, R_KEYS]
    value = scalar[S_SCRATCH + keys]
    row = find(k, relation, keys)
    if row < 0 or not meta[row, m] & ALIVE:
        return True
    if k.relations[relation, R_KIND] == BEST and k.cells[row, keys] != value and not scalar[S_FORGETS]:
        return True
    return kill(k, row)


@kernel
def kill(k, row):
    """DRED: withdraw a live derived row and queue it, so that what was derived from it follows."""
    scalar, meta = k.scalar, k.meta
    m = scalar[S_META]
    if not has_room(k):
        return False
    touch(k, row, 1)
    meta[row, m] = (meta[row, m] & ~ALIVE) | WITHDRAWN | RETRY
    scalar[S_DEAD] += 1
    scalar[S_WITHDRAWN] += 1
    push(k, NULL, row)
    return True
