"""The fixpoint: deriving rows forward, searching derivations backward, and what a deletion removes.

Laws. Every live derived row has a *chosen derivation* of live rows (SUPPORT), each derived row of it having a smaller
rank, so chosen derivations form no cycle and a row whose derivation stands is derivable. When rows die:

1. withdraw: rows that lost their derivation are looked at in order of rank. If another derivation gives the same row
   (and the same MIN/MAX value) from rows of smaller rank, it is chosen and nothing else happens; else the row dies too.
   Everything of smaller rank is settled by then, so each row is looked at once.
2. rederive: only when all are withdrawn is each dead row searched for again, if a row of too large a rank that might
   have derived it still lives.
3. propagate: what came back, then what is new, is joined forward until nothing changes.

No row is ever revived by a row that is itself about to die, so a region cut off goes at once and no cost counts up.

DRED withdraws forward instead: whatever has *some* derivation through a dead row dies, then 2 and 3.

A kernel that meets a full array returns GROW; the driver doubles it and calls again; the interrupted item is done anew,
which is safe because deriving a live row again changes nothing. One that has worked for long returns PAUSED between two
items, so that the driver can be interrupted.
"""

from __future__ import annotations

from whence.engine.recursion.kernels.derive import (
    believe,
    chosen_rank,
    emit,
    has_room,
    heap_rank,
    link,
    open_row,
    pop_heap,
    priority_of,
    push,
    rank_of,
    touch,
    unlink,
)
from whence.engine.recursion.kernels.search import FORWARD, OVERDELETE, SEARCH_ANY, SEARCH_SAME, run, search
from whence.engine.recursion.kernels.store import (
    ALIVE,
    BEST,
    DOUBTED,
    DRED,
    FOREIGN_FULL,
    GROW,
    OPENED,
    PAUSED,
    R_FORWARD,
    R_FORWARDS,
    R_KEYS,
    R_KIND,
    R_WIDTH,
    RELATION,
    RETRY,
    REVIVED,
    S_ATOMS,
    S_BODIES,
    S_BODY,
    S_BUCKET,
    S_CANDIDATE,
    S_CHOSEN,
    S_CURSOR,
    S_DEAD,
    S_DOUBTS,
    S_FOREIGN,
    S_FOUND,
    S_HEAD,
    S_HEAP,
    S_HOPES,
    S_MAXRANK,
    S_META,
    S_OPENED,
    S_PAUSE,
    S_PEERS,
    S_POLICY,
    S_RETRIES,
    S_SCRATCH,
    S_STATUS,
    S_TAIL,
    S_TOUCHED,
    S_VALUE,
    S_WANTED,
    S_WITHDRAWN,
    S_WORK,
    SET,
    TOUCHED,
    UNFOUNDED,
    WITHDRAWN,
    Ints,
    store,
)
from whence.model.jit import kernel


@kernel
def _suspect_row(k, row):
    """Put a row into the bucket of its rank: it stands on nothing for now."""
    scalar, meta, buckets = k.scalar, k.meta, k.buckets
    m, body = scalar[S_META], scalar[S_BODY]
    rank = meta[row, m + 1]
    if rank >= len(buckets):
        scalar[S_STATUS] = GROW
        scalar[S_WANTED] = rank
        return False
    if scalar[S_PEERS]:  # what it stood on will not be known any more: an undo has to look for it
        if not has_room(k):
            return False
        touch(k, row, 1)
    unlink(k, row)
    meta[row, m + 4 + body] = buckets[rank]  # unlinked, so its first `next` is free to chain the bucket
    buckets[rank] = row
    scalar[S_MAXRANK] = max(scalar[S_MAXRANK], rank)
    return True


@kernel
def _suspect(k, row):
    """Put every row whose chosen derivation has `row` in its body into the bucket of its rank."""
    m, body = k.scalar[S_META], k.scalar[S_BODY]
    entry = k.meta[row, m + 3]
    while entry >= 0:
        if not _suspect_row(k, entry // body):
            return False
        entry = k.meta[row, m + 3]
    return True


@kernel
def suspect_doubted(address: int) -> None:
    """Begin to withdraw rows that stand on rows of too large a rank."""
    k = store(address)
    scalar, meta = k.scalar, k.meta
    m = scalar[S_META]
    while scalar[S_CURSOR] < scalar[S_TOUCHED]:
        row = k.touched[scalar[S_CURSOR], 0] >> 1
        if meta[row, m] & DOUBTED:
            if chosen_rank(k, row) > meta[row, m + 1] and not _suspect_row(k, row):
                return
            believe(k, row)
        scalar[S_CURSOR] += 1


@kernel
def withdraw(address: int) -> None:
    """SUPPORT, step 1: the queue holds the external rows that died; withdraw what stands on them alone."""
    k = store(address)
    scalar, meta, buckets = k.scalar, k.meta, k.buckets
    m, body = scalar[S_META], scalar[S_BODY]
    while scalar[S_HEAD] < scalar[S_TAIL]:
        if scalar[S_HEAP]:
            if not _suspect(k, k.queue[0, 1]):
                return
            pop_heap(k)
        else:
            if not _suspect(k, k.queue[scalar[S_HEAD] & (len(k.queue) - 1), 1]):
                return
            scalar[S_HEAD] += 1
    while scalar[S_BUCKET] <= scalar[S_MAXRANK]:
        scalar[S_PAUSE] -= 1
        if scalar[S_WORK] > scalar[S_PAUSE]:
            scalar[S_STATUS] = PAUSED
            return
        row = buckets[scalar[S_BUCKET]]
        if row < 0:
            scalar[S_BUCKET] += 1
            continue
        if meta[row, m] & ALIVE:
            if not has_room(k):
                return
            hopes = scalar[S_HOPES]
            if not search(k, row, SEARCH_SAME):
                scalar[S_HOPES] = hopes
                return
            if scalar[S_FOUND]:
                scalar[S_HOPES] = hopes
                buckets[scalar[S_BUCKET]] = meta[row, m + 4 + body]
                link(k, row, scalar[S_FOUND] - 1, S_CHOSEN)
                continue
            touch(k, row, 1)
            believe(k, row)
            open_row(k, row)
            meta[row, m] = (meta[row, m] & ~ALIVE) | WITHDRAWN
            if scalar[S_CANDIDATE]:
                meta[row, m] |= RETRY
                scalar[S_RETRIES] += 1
            for i in range(hopes, scalar[S_HOPES]):
                k.hopes[i, 1] = row
            scalar[S_DEAD] += 1
            scalar[S_WITHDRAWN] += 1
        if not _suspect(k, row):  # first withdrawn, then its dependents: redone as a whole if interrupted
            return
        buckets[scalar[S_BUCKET]] = meta[row, m + 4 + body]
    scalar[S_BUCKET] = 0
    scalar[S_MAXRANK] = 0


@kernel
def _send(k, row, relation):
    """Write a row down in `foreign`, as (-1 - relation, …, cells), to be sent; False if there is no room."""
    n, atoms = k.scalar[S_FOREIGN], k.scalar[S_ATOMS]
    if n >= len(k.foreign):
        k.scalar[S_STATUS] = FOREIGN_FULL
        return False
    k.foreign[n, 0] = -1 - relation  # bindings stand there with their rules
    for c in range(k.relations[relation, R_WIDTH]):
        k.foreign[n, 1 + atoms + c] = k.cells[row, c]
    k.scalar[S_FOREIGN] = n + 1
    return True


@kernel
def overdelete(address: int, sent: Ints) -> None:
    """DRED, step 1: the queue holds rows that died; whatever has a derivation through them dies too.

    Rows of relations that are `sent` elsewhere are written down, not joined."""
    k = store(address)
    scalar = k.scalar
    while scalar[S_HEAD] < scalar[S_TAIL]:
        scalar[S_PAUSE] -= 1
        if scalar[S_WORK] > scalar[S_PAUSE]:
            scalar[S_STATUS] = PAUSED
            return
        heap = scalar[S_HEAP] != 0
        row = k.queue[0, 1] if heap else k.queue[scalar[S_HEAD] & (len(k.queue) - 1), 1]
        relation = k.meta[row, scalar[S_META]] & RELATION
        if sent[relation]:
            if not _send(k, row, relation):
                return
        else:
            first = k.relations[relation, R_FORWARD]
            for i in range(first, first + k.relations[relation, R_FORWARDS]):
                if not run(k, k.plans[i], OVERDELETE, row):
                    return
        if heap:
            pop_heap(k)  # all priorities are equal here, so what was pushed meanwhile stands behind it
        else:
            scalar[S_HEAD] += 1


@kernel
def rederive(address: int) -> None:
    """Step 2: every withdrawn row that may have another derivation is searched for again among live rows."""
    k = store(address)
    scalar, meta = k.scalar, k.meta
    m = scalar[S_META]
    for i in range(scalar[S_HOPES]):
        if meta[k.hopes[i, 0], m] & ALIVE:
            meta[k.hopes[i, 1], m] |= RETRY
    scalar[S_HOPES] = 0
    scalar[S_RETRIES] = 0
    while scalar[S_CURSOR] < scalar[S_TOUCHED]:
        scalar[S_PAUSE] -= 1
        if scalar[S_WORK] > scalar[S_PAUSE]:
            scalar[S_STATUS] = PAUSED
            return
        row = k.touched[scalar[S_CURSOR], 0] >> 1
        tag = meta[row, m]
        relation = tag & RELATION
        if tag & WITHDRAWN and tag & RETRY and not tag & ALIVE and k.relations[relation, R_KIND] >= SET:
            if not has_room(k):
                return
            if not search(k, row, SEARCH_ANY):
                return
            meta[row, m] = tag & ~RETRY
            if scalar[S_FOUND]:
                meta[row, m] = (tag | ALIVE | REVIVED) & ~(WITHDRAWN | RETRY)
                open_row(k, row)
                scalar[S_DEAD] -= 1
                scalar[S_WITHDRAWN] -= 1
                if k.relations[relation, R_KIND] == BEST:
                    k.cells[row, k.relations[relation, R_KEYS]] = scalar[S_VALUE]
                meta[row, m + 1] = rank_of(k, S_CHOSEN)
                if scalar[S_POLICY] != DRED:
                    link(k, row, scalar[S_FOUND] - 1, S_CHOSEN)
                push(k, priority_of(k, row, relation), row)
        scalar[S_CURSOR] += 1


@kernel
def propagate(address: int, sent: Ints) -> None:
    """Step 3: join every queued row forward until the queue is empty.

    Rows of relations that are `sent` elsewhere are written down, not joined: once, or once for each value they get."""
    k = store(address)
    scalar, meta = k.scalar, k.meta
    m = scalar[S_META]
    while scalar[S_HEAD] < scalar[S_TAIL]:
        scalar[S_PAUSE] -= 1
        if scalar[S_WORK] > scalar[S_PAUSE]:
            scalar[S_STATUS] = PAUSED
            return
        heap = scalar[S_HEAP] != 0
        row = k.queue[0, 1] if heap else k.queue[scalar[S_HEAD] & (len(k.queue) - 1), 1]
        tag = meta[row, m]
        relation = tag & RELATION
        stale = heap and (k.queue[0, 0] != priority_of(k, row, relation) or k.queue[0, 2] != heap_rank(k, row))
        away = sent[relation] != 0
        # What only came back can only bring others back: when none is missing, it has nothing to say.
        idle = not heap and tag & REVIVED and scalar[S_WITHDRAWN] == 0
        if away and not stale and not _send(k, row, relation):
            return
        if heap:
            priority = k.queue[0, 0]
            pop_heap(k)
        if not (stale or idle or away):
            first = k.relations[relation, R_FORWARD]
            for i in range(first, first + k.relations[relation, R_FORWARDS]):
                if not run(k, k.plans[i], FORWARD, row):
                    if heap:
                        push(k, priority, row)
                    return
            meta[row, m] = meta[row, m] & ~REVIVED
        if not heap:
            scalar[S_HEAD] += 1


@kernel
def emit_block(address: int, rule: int, relation: int, rows: Ints, bodies: Ints) -> None:
    """Take derivations whose heads Python has computed: rows [n, columns], their body rows [n, K]; then propagate."""
    k = store(address)
    scalar = k.scalar
    while scalar[S_CURSOR] < len(rows):
        i = scalar[S_CURSOR]
        for c in range(rows.shape[1]):
            scalar[S_SCRATCH + c] = rows[i, c]
        for j in range(scalar[S_ATOMS]):
            scalar[S_BODIES + j] = bodies[i, j]
        if not emit(k, rule, relation):
            return
        scalar[S_CURSOR] += 1


@kernel
def collect(address: int, wanted: Ints, out: Ints) -> int:
    """End an epoch: write the net changes [2 * touched, 2 + columns] (relation, change, cells) of `wanted` relations,
    forget the others, and return how many were written."""
    k = store(address)
    scalar, meta = k.scalar, k.meta
    m = scalar[S_META]
    n = 0
    for i in range(scalar[S_TOUCHED]):
        row, before = k.touched[i, 0] >> 1, k.touched[i, 0] & 1
        tag = meta[row, m]
        meta[row, m] = tag & ~(TOUCHED | WITHDRAWN | RETRY | REVIVED | OPENED | DOUBTED)
        relation = tag & RELATION
        if not wanted[relation]:
            continue
        keys, width = k.relations[relation, R_KEYS], k.relations[relation, R_WIDTH]
        after = 1 if tag & ALIVE else 0
        best = k.relations[relation, R_KIND] == BEST
        moved = best and before and after and k.cells[row, keys] != k.touched[i, 1]
        if before == after and not moved:
            continue
        if before:
            out[n, 0] = relation
            out[n, 1] = -1
            for c in range(width):
                out[n, 2 + c] = k.cells[row, c]
            if best:
                out[n, 2 + keys] = k.touched[i, 1]
            n += 1
        if after:
            out[n, 0] = relation
            out[n, 1] = 1
            for c in range(width):
                out[n, 2 + c] = k.cells[row, c]
            n += 1
    scalar[S_TOUCHED] = 0
    for field in (S_WITHDRAWN, S_OPENED, S_DOUBTS, S_HOPES, S_RETRIES):
        scalar[field] = 0
    return n


@kernel
def unwind(address: int, touched: Ints) -> None:
    """Return every row that was touched to what it was before, but for what it stands on; empty all queues."""
    k = store(address)
    scalar, meta = k.scalar, k.meta
    m = scalar[S_META]
    for rank in range(scalar[S_MAXRANK] + 1):
        k.buckets[rank] = -1
    for i in range(len(touched)):
        row, before = touched[i, 0] >> 1, touched[i, 0] & 1
        tag = meta[row, m] & ~(TOUCHED | WITHDRAWN | RETRY | REVIVED | OPENED | DOUBTED)
        relation = tag & RELATION
        unlink(k, row)
        if (1 if tag & ALIVE else 0) != before:
            scalar[S_DEAD] += 1 - 2 * before
        meta[row, m] = tag | ALIVE if before else tag & ~ALIVE
        meta[row, m + 1] = touched[i, 2]
        keys = k.relations[relation, R_KEYS]
        if keys < k.relations[relation, R_WIDTH]:
            k.cells[row, keys] = touched[i, 1]
    for field in (S_HEAD, S_TAIL, S_TOUCHED, S_WITHDRAWN, S_FOREIGN, S_BUCKET, S_MAXRANK):
        scalar[field] = 0
    for field in (S_OPENED, S_DOUBTS, S_HOPES, S_RETRIES):
        scalar[field] = 0


@kernel
def stand_again(address: int, touched: Ints) -> None:
    """After `unwind`: let every row that it returned stand on rows of smaller rank, as it did."""
    k = store(address)
    scalar, meta = k.scalar, k.meta
    m = scalar[S_META]
    while scalar[S_CURSOR] < len(touched):
        row = touched[scalar[S_CURSOR], 0] >> 1
        kind = k.relations[meta[row, m] & RELATION, R_KIND]
        if meta[row, m] & ALIVE and (kind == SET or kind == BEST):
            if not search(k, row, SEARCH_SAME):
                return
            scalar[S_HOPES] = 0
            if not scalar[S_FOUND]:
                scalar[S_STATUS] = UNFOUNDED
                return
            link(k, row, scalar[S_FOUND] - 1, S_CHOSEN)
        scalar[S_CURSOR] += 1
