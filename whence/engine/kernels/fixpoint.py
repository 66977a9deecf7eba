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
which is safe because deriving a live row again changes nothing.
"""

from __future__ import annotations

from typing import Any

from numba import types
from numba.extending import intrinsic

from whence.engine.kernels.record import kernel
from whence.engine.kernels.store import (
    ABSENCE,
    ALIVE,
    BEST,
    DRED,
    FOREIGN_FULL,
    GROW,
    LIMIT,
    MISSING,
    OVERFLOW,
    R_BACKWARD,
    R_BACKWARDS,
    R_FORWARD,
    R_FORWARDS,
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
    S_BUCKET,
    S_CANDIDATE,
    S_CHOSEN,
    S_CULPRIT,
    S_CURSOR,
    S_DEAD,
    S_DEPTH,
    S_FOREIGN,
    S_FORGETS,
    S_FOUND,
    S_HEAD,
    S_HEAP,
    S_HOPES,
    S_MAXRANK,
    S_META,
    S_POLICY,
    S_SCRATCH,
    S_STACK,
    S_STATUS,
    S_TAIL,
    S_TOUCHED,
    S_VALUE,
    S_WITHDRAWN,
    S_WORK,
    SET,
    TOUCHED,
    WITHDRAWN,
    add_row,
    find,
    find_chain,
    store,
)

NULL = -(2**63)
FORWARD, SEARCH_SAME, SEARCH_ANY, OVERDELETE = range(4)

# Steps of a plan
PROBE, LOOKUP, ABSENT = range(3)
# Tests and computations on bound variables
EQ, NE, LT, LE, GT, GE, SAME, NOT_NULL, IS_NULL, MUST_BE = range(10)
ADD, SUB, MUL, FADD, FSUB, FMUL, LEAST, GREATEST, TO_FLOAT = range(16, 25)


def _bitcast(source: Any, target: Any) -> Any:
    """An intrinsic that reads the same 64 bits as another type."""

    @intrinsic
    def cast(typing_context, value):
        def codegen(context, builder, signature, args):
            return builder.bitcast(args[0], context.get_value_type(target))

        return target(source), codegen

    return cast


_as_float = _bitcast(types.int64, types.float64)
_as_bits = _bitcast(types.float64, types.int64)


@kernel
def _to_float(code):
    return _as_float(code ^ ((code >> 63) & 0x7FFFFFFFFFFFFFFF))


@kernel
def _of_float(number):
    bits = _as_bits(number + 0.0)
    return bits ^ ((bits >> 63) & 0x7FFFFFFFFFFFFFFF)


@kernel
def _compute(k, rule, op, to, a, b):
    """One operation on the binding: a test says whether it holds, a computation sets a variable and holds."""
    env = k.env
    x = env[rule, a]
    if op == NOT_NULL:
        return x != NULL
    if op == IS_NULL:
        return x == NULL
    if op == MUST_BE:
        if x == NULL:
            k.scalar[S_STATUS] = MISSING
        return x != NULL
    if op == TO_FLOAT:
        env[rule, to] = NULL if x == NULL else _of_float(float(x) / float(env[rule, b]))
        return True
    y = env[rule, b]
    if op == SAME:
        return x == y
    if op < ADD:
        if x == NULL or y == NULL:
            return False
        if op == EQ:
            return x == y
        if op == NE:
            return x != y
        if op == LT:
            return x < y
        if op == LE:
            return x <= y
        if op == GT:
            return x > y
        return x >= y
    if x == NULL or y == NULL:
        if op >= LEAST:
            env[rule, to] = y if x == NULL else x
        else:
            env[rule, to] = NULL
        return True
    z = x
    if op == ADD:
        z = x + y
        if ((x ^ z) & (y ^ z)) < 0 or z == NULL:
            k.scalar[S_STATUS] = OVERFLOW
    elif op == SUB:
        z = x - y
        if ((x ^ y) & (x ^ z)) < 0 or z == NULL:
            k.scalar[S_STATUS] = OVERFLOW
    elif op == MUL:
        z = x * y
        wide = float(x) * float(y)
        if wide > 9.2e18 or wide < -9.2e18:
            k.scalar[S_STATUS] = OVERFLOW
    elif op == FADD:
        z = _of_float(_to_float(x) + _to_float(y))
    elif op == FSUB:
        z = _of_float(_to_float(x) - _to_float(y))
    elif op == FMUL:
        z = _of_float(_to_float(x) * _to_float(y))
    elif op == LEAST:
        z = min(x, y)
    else:
        z = max(x, y)
    env[rule, to] = z
    return True


@kernel
def _bind(k, rule, row, at):
    """Take a row into the binding: variables, then checks, then operations; `at` is where the plan lists them."""
    plans, env, cells = k.plans, k.env, k.cells
    n = plans[at]
    at += 1
    for _ in range(n):
        env[rule, plans[at + 1]] = cells[row, plans[at]]
        at += 2
    n = plans[at]
    at += 1
    for _ in range(n):
        if env[rule, plans[at + 1]] != cells[row, plans[at]]:
            return False
        at += 2
    n = plans[at]
    at += 1
    for _ in range(n):
        if not _compute(k, rule, plans[at], plans[at + 1], plans[at + 2], plans[at + 3]):
            return False
        at += 4
    return True


@kernel
def _has_room(k):
    """Whether one more row can be queued and touched; else GROW. One queue place stays free for an interrupted item."""
    if k.scalar[S_TAIL] - k.scalar[S_HEAD] >= len(k.queue) - 2 or k.scalar[S_TOUCHED] >= len(k.touched):
        k.scalar[S_STATUS] = GROW
        return False
    return True


@kernel
def _push(k, priority, row):
    """Queue a row; the caller has seen that there is room."""
    queue, scalar = k.queue, k.scalar
    tail = scalar[S_TAIL]
    scalar[S_TAIL] = tail + 1
    if scalar[S_HEAP] == 0:
        queue[tail & (len(queue) - 1), 1] = row
        return
    while tail > 0:
        parent = (tail - 1) >> 1
        if queue[parent, 0] <= priority:
            break
        queue[tail, 0] = queue[parent, 0]
        queue[tail, 1] = queue[parent, 1]
        tail = parent
    queue[tail, 0] = priority
    queue[tail, 1] = row


@kernel
def _pop_heap(k):
    """Drop the heap's first entry."""
    queue, scalar = k.queue, k.scalar
    size = scalar[S_TAIL] - 1
    scalar[S_TAIL] = size
    priority, row = queue[size, 0], queue[size, 1]
    at = 0
    while True:
        child = 2 * at + 1
        if child >= size:
            break
        if child + 1 < size and queue[child + 1, 0] < queue[child, 0]:
            child += 1
        if queue[child, 0] >= priority:
            break
        queue[at, 0] = queue[child, 0]
        queue[at, 1] = queue[child, 1]
        at = child
    queue[at, 0] = priority
    queue[at, 1] = row


@kernel
def _priority(k, row, relation):
    """Best values first; rows without a value before all."""
    if k.relations[relation, R_KIND] != BEST:
        return NULL
    value = k.cells[row, k.relations[relation, R_KEYS]]
    if k.relations[relation, R_SIGN] > 0:
        return NULL if value == NULL else value
    return -(value + 1)


@kernel
def _touch(k, row, alive):
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
    if k.relations[relation, R_KIND] == BEST:
        k.touched[n, 1] = k.cells[row, k.relations[relation, R_KEYS]]
    scalar[S_TOUCHED] = n + 1
    meta[row, m] = tag | TOUCHED


@kernel
def _unlink(k, row):
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
def _link(k, row, rule, bodies):
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
def _rank_of(k, bodies):
    """One more than the largest rank among the derived rows of a body."""
    rank = 0
    m = k.scalar[S_META]
    for j in range(k.scalar[S_ATOMS]):
        row = k.scalar[bodies + j]
        if row >= 0 and k.relations[k.meta[row, m] & RELATION, R_KIND] >= SET:
            rank = max(rank, k.meta[row, m + 1])
    return rank + 1


@kernel
def _better(sign, a, b):
    """Whether value a beats b under MIN (sign 1) or MAX (sign -1); NULL is beaten by everything."""
    if a == NULL:
        return False
    if b == NULL:
        return True
    return a < b if sign > 0 else a > b


@kernel
def emit(k, rule, relation):
    """A derivation of the row in the scratch (key, then value) by the rows in S_BODIES; False if to be done anew."""
    scalar, meta, cells = k.scalar, k.meta, k.cells
    if not _has_room(k):
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
        if not (best and _better(sign, value, cells[row, keys])):
            if not supported or (best and value != cells[row, keys]) or meta[row, m + 2] != rule:
                return True
            for j in range(scalar[S_BODY]):
                if meta[row, m + 4 + j] != scalar[S_BODIES + j]:
                    return True
            rank = _rank_of(k, S_BODIES)
            if rank <= meta[row, m + 1]:
                return True
            if rank > scalar[S_DEPTH]:
                scalar[S_STATUS] = LIMIT
                scalar[S_CULPRIT] = row
                return False
            meta[row, m + 1] = rank  # its chosen derivation now stands on later rows: repair, and what stands on it
            _push(k, _priority(k, row, relation), row)
            return True
    rank = _rank_of(k, S_BODIES)
    if rank > scalar[S_DEPTH]:
        scalar[S_STATUS] = LIMIT
        scalar[S_CULPRIT] = row
        for j in range(scalar[S_ATOMS]):
            if scalar[S_BODIES + j] >= 0:
                scalar[S_CULPRIT] = scalar[S_BODIES + j]
        return False
    alive = 1 if tag & ALIVE else 0
    _touch(k, row, alive)
    tag = meta[row, m]
    if alive:
        if supported:
            _unlink(k, row)
    else:
        scalar[S_DEAD] -= 1
        if tag & WITHDRAWN:
            scalar[S_WITHDRAWN] -= 1
    meta[row, m] = (tag | ALIVE) & ~(WITHDRAWN | RETRY | REVIVED)
    if best:
        cells[row, keys] = value
    meta[row, m + 1] = rank
    if supported:
        _link(k, row, rule, S_BODIES)
    _push(k, _priority(k, row, relation), row)
    return True


@kernel
def _overdelete(k, relation):
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
    return _kill(k, row)


@kernel
def _kill(k, row):
    """DRED: withdraw a live derived row and queue it, so that what was derived from it follows."""
    scalar, meta = k.scalar, k.meta
    m = scalar[S_META]
    if not _has_room(k):
        return False
    _touch(k, row, 1)
    meta[row, m] = (meta[row, m] & ~ALIVE) | WITHDRAWN | RETRY
    scalar[S_DEAD] += 1
    scalar[S_WITHDRAWN] += 1
    _push(k, NULL, row)
    return True


@kernel
def _leaf(k, plan, mode, target):
    """A complete binding. Says whether to go on: 1 next binding, 0 stop (found, or interrupted)."""
    plans, env, scalar = k.plans, k.env, k.scalar
    rule, relation, head, foreign = plans[plan], plans[plan + 3], plans[plan + 4], plans[plan + 5]
    scalar[S_WORK] += 1
    if mode == FORWARD and foreign >= 0:
        n = scalar[S_FOREIGN]
        if n >= len(k.foreign):
            scalar[S_STATUS] = FOREIGN_FULL
            return 0
        atoms = scalar[S_ATOMS]
        k.foreign[n, 0] = rule
        for j in range(atoms):
            k.foreign[n, 1 + j] = scalar[S_BODIES + j]
        for c in range(plans[head]):
            k.foreign[n, 1 + atoms + c] = env[rule, plans[head + 1 + c]]
        scalar[S_FOREIGN] = n + 1
        return 1
    if mode == OVERDELETE and foreign >= 0:
        for c in range(plans[head]):
            scalar[S_SCRATCH + c] = env[rule, plans[head + 1 + c]]
        row = find_chain(k, foreign)
        chain = k.indexes[foreign, 2]
        while row >= 0:
            if k.meta[row, scalar[S_META]] & ALIVE and not _kill(k, row):
                return 0
            row = k.meta[row, chain]
        return 1
    if mode == SEARCH_SAME or mode == SEARCH_ANY:
        if k.relations[relation, R_KIND] == BEST:
            value = env[rule, plans[head + plans[head]]]
            sign = k.relations[relation, R_SIGN]
            if mode == SEARCH_SAME:
                if value != k.cells[target, k.relations[relation, R_KEYS]]:
                    scalar[S_CANDIDATE] = 1
                    return 1
            else:
                if scalar[S_FOUND] and not _better(sign, value, scalar[S_VALUE]):
                    return 1
                scalar[S_VALUE] = value
                scalar[S_FOUND] = 1 + rule
                for j in range(scalar[S_ATOMS]):
                    scalar[S_CHOSEN + j] = scalar[S_BODIES + j]
                return 1
        scalar[S_FOUND] = 1 + rule
        for j in range(scalar[S_ATOMS]):
            scalar[S_CHOSEN + j] = scalar[S_BODIES + j]
        return 0
    for c in range(plans[head]):
        scalar[S_SCRATCH + c] = env[rule, plans[head + 1 + c]]
    if mode == FORWARD:
        return 1 if emit(k, rule, relation) else 0
    return 1 if _overdelete(k, relation) else 0


@kernel
def _usable(k, row, mode, rank):
    """Whether a row may stand in the body of the derivation looked for."""
    m = k.scalar[S_META]
    tag = k.meta[row, m]
    if mode == OVERDELETE:
        return (tag & (ALIVE | WITHDRAWN)) != 0
    if not tag & ALIVE:
        return False
    if mode == SEARCH_SAME and k.relations[tag & RELATION, R_KIND] >= SET and k.meta[row, m + 1] >= rank:
        n = k.scalar[S_HOPES]
        if n < len(k.hopes):
            k.hopes[n, 0] = row
            k.scalar[S_HOPES] = n + 1
        else:
            k.scalar[S_CANDIDATE] = 1
        return False
    # Under MIN and MAX a row just revived may still improve: it will say so itself when its turn comes.
    return not (mode == SEARCH_ANY and tag & REVIVED and k.scalar[S_HEAP])


@kernel
def run(k, plan, mode, row):
    """Enumerate the bindings of a plan that start from `row` (a body row, or the head row of a search).

    A nested loop with an explicit stack: `S_STACK + depth` is the row now bound at that step. False if interrupted.
    """
    plans, env, scalar, meta = k.plans, k.env, k.scalar, k.meta
    rule, steps, position = plans[plan], plans[plan + 1], plans[plan + 2]
    m = scalar[S_META]
    rank = meta[row, m + 1]
    for j in range(scalar[S_ATOMS]):
        scalar[S_BODIES + j] = -1
    if position >= 0:
        scalar[S_BODIES + position] = row
    if not _bind(k, rule, row, plans[plan + 6]):
        return scalar[S_STATUS] == 0
    if scalar[S_STATUS]:
        return False
    if steps == 0:
        _leaf(k, plan, mode, row)
        return scalar[S_STATUS] == 0
    depth = 0
    enter = True
    while depth >= 0:
        step = plans[plan + 7 + depth]
        kind, relation, index, atom = plans[step], plans[step + 1], plans[step + 2], plans[step + 3]
        n = plans[step + 5]
        if enter:
            for c in range(n):
                scalar[S_SCRATCH + c] = env[rule, plans[step + 6 + c]]
            if kind == PROBE:
                current = find_chain(k, index)
            else:
                current = find(k, relation, n)
                if kind == ABSENT:
                    if current < 0:
                        current = add_row(k, relation)
                        if current < 0:
                            return False
                    elif meta[current, m] & ALIVE and not (mode == OVERDELETE and meta[current, m] & WITHDRAWN):
                        current = -1
        elif kind == PROBE:
            current = meta[scalar[S_STACK + depth], plans[step + 4]]
        else:
            current = -1
        if kind == PROBE:
            while current >= 0 and not (_usable(k, current, mode, rank) and _bind(k, rule, current, step + 6 + n)):
                current = meta[current, plans[step + 4]]
        elif current >= 0:
            usable = kind == ABSENT or _usable(k, current, mode, rank)
            if not (usable and _bind(k, rule, current, step + 6 + n)):
                current = -1
        if scalar[S_STATUS]:
            return False
        if current < 0:
            depth -= 1
            enter = False
            continue
        scalar[S_STACK + depth] = current
        scalar[S_BODIES + atom] = current
        if depth + 1 < steps:
            depth += 1
            enter = True
        else:
            if _leaf(k, plan, mode, row) == 0:
                return scalar[S_STATUS] == 0
            enter = False
    return True


@kernel
def _search(k, row, mode):
    """Look for a derivation of a row through the rules of its relation. False if interrupted."""
    scalar = k.scalar
    relation = k.meta[row, scalar[S_META]] & RELATION
    scalar[S_FOUND] = 0
    scalar[S_CANDIDATE] = 0
    first = k.relations[relation, R_BACKWARD]
    for i in range(first, first + k.relations[relation, R_BACKWARDS]):
        if not run(k, k.plans[i], mode, row):
            return False
        if scalar[S_FOUND] and (mode == SEARCH_SAME or k.relations[relation, R_KIND] != BEST):
            break
    return True


@kernel
def feed(address, rows, deleting):
    """Apply external changes [n, 2 + columns] (relation, change of multiplicity, cells) and queue the rows that flip.

    With `deleting`, those that can only remove derivations (positive rows lost, absences ended); else the others.
    """
    k = store(address)
    scalar, meta = k.scalar, k.meta
    m = scalar[S_META]
    for i in range(scalar[S_CURSOR], len(rows)):
        relation, change = rows[i, 0], rows[i, 1]
        absence = k.relations[relation, R_KIND] == ABSENCE
        if ((change > 0) == absence) != deleting:
            continue
        scalar[S_CURSOR] = i
        if not _has_room(k):
            return
        n = k.relations[relation, R_WIDTH]
        for c in range(n):
            scalar[S_SCRATCH + c] = rows[i, 2 + c]
        row = find(k, relation, n)
        if row < 0:
            row = add_row(k, relation)
            if row < 0:
                return
        before = meta[row, m + 1]
        meta[row, m + 1] = before + change
        if before <= 0 and before + change > 0:
            _touch(k, row, 0)
            meta[row, m] = meta[row, m] | ALIVE
            if absence and deleting:
                meta[row, m] |= WITHDRAWN  # DRED's join still sees the absence it was
            scalar[S_DEAD] -= 1
        elif before > 0 and before + change <= 0:
            _touch(k, row, 1)
            meta[row, m] = meta[row, m] & ~ALIVE
            if not absence:
                meta[row, m] |= WITHDRAWN
            scalar[S_DEAD] += 1
        else:
            continue
        _push(k, NULL, row)
    scalar[S_CURSOR] = len(rows)


@kernel
def _suspect(k, row):
    """Everything whose chosen derivation has `row` in its body goes into the bucket of its rank."""
    scalar, meta, buckets = k.scalar, k.meta, k.buckets
    m, body = scalar[S_META], scalar[S_BODY]
    entry = meta[row, m + 3]
    while entry >= 0:
        dependent = entry // body
        rank = meta[dependent, m + 1]
        if rank >= len(buckets):
            scalar[S_STATUS] = GROW
            return False
        _unlink(k, dependent)
        meta[dependent, m + 4 + body] = buckets[rank]  # unlinked, so its first `next` is free to chain the bucket
        buckets[rank] = dependent
        scalar[S_MAXRANK] = max(scalar[S_MAXRANK], rank)
        entry = meta[row, m + 3]
    return True


@kernel
def withdraw(address):
    """SUPPORT, step 1: the queue holds the external rows that died; withdraw what stands on them alone."""
    k = store(address)
    scalar, meta, buckets = k.scalar, k.meta, k.buckets
    m, body = scalar[S_META], scalar[S_BODY]
    while scalar[S_HEAD] < scalar[S_TAIL]:
        if scalar[S_HEAP]:
            if not _suspect(k, k.queue[0, 1]):
                return
            _pop_heap(k)
        else:
            if not _suspect(k, k.queue[scalar[S_HEAD] & (len(k.queue) - 1), 1]):
                return
            scalar[S_HEAD] += 1
    while scalar[S_BUCKET] <= scalar[S_MAXRANK]:
        row = buckets[scalar[S_BUCKET]]
        if row < 0:
            scalar[S_BUCKET] += 1
            continue
        if meta[row, m] & ALIVE:
            if not _has_room(k):
                return
            hopes = scalar[S_HOPES]
            if not _search(k, row, SEARCH_SAME):
                scalar[S_HOPES] = hopes
                return
            if scalar[S_FOUND]:
                scalar[S_HOPES] = hopes
                buckets[scalar[S_BUCKET]] = meta[row, m + 4 + body]
                _link(k, row, scalar[S_FOUND] - 1, S_CHOSEN)
                continue
            _touch(k, row, 1)
            meta[row, m] = (meta[row, m] & ~ALIVE) | WITHDRAWN
            if scalar[S_CANDIDATE]:
                meta[row, m] |= RETRY
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
def overdelete(address):
    """DRED, step 1: the queue holds rows that died; whatever has a derivation through them dies too."""
    k = store(address)
    scalar = k.scalar
    while scalar[S_HEAD] < scalar[S_TAIL]:
        heap = scalar[S_HEAP] != 0
        row = k.queue[0, 1] if heap else k.queue[scalar[S_HEAD] & (len(k.queue) - 1), 1]
        relation = k.meta[row, scalar[S_META]] & RELATION
        first = k.relations[relation, R_FORWARD]
        for i in range(first, first + k.relations[relation, R_FORWARDS]):
            if not run(k, k.plans[i], OVERDELETE, row):
                return
        if heap:
            _pop_heap(k)  # all priorities are equal here, so what was pushed meanwhile stands behind it
        else:
            scalar[S_HEAD] += 1


@kernel
def rederive(address):
    """Step 2: every withdrawn row that may have another derivation is searched for again among live rows."""
    k = store(address)
    scalar, meta = k.scalar, k.meta
    m = scalar[S_META]
    for i in range(scalar[S_HOPES]):
        if meta[k.hopes[i, 0], m] & ALIVE:
            meta[k.hopes[i, 1], m] |= RETRY
    scalar[S_HOPES] = 0
    while scalar[S_CURSOR] < scalar[S_TOUCHED]:
        row = k.touched[scalar[S_CURSOR], 0] >> 1
        tag = meta[row, m]
        relation = tag & RELATION
        if tag & WITHDRAWN and tag & RETRY and not tag & ALIVE and k.relations[relation, R_KIND] >= SET:
            if not _has_room(k):
                return
            if not _search(k, row, SEARCH_ANY):
                return
            if scalar[S_FOUND]:
                meta[row, m] = (tag | ALIVE | REVIVED) & ~(WITHDRAWN | RETRY)
                scalar[S_DEAD] -= 1
                scalar[S_WITHDRAWN] -= 1
                if k.relations[relation, R_KIND] == BEST:
                    k.cells[row, k.relations[relation, R_KEYS]] = scalar[S_VALUE]
                meta[row, m + 1] = _rank_of(k, S_CHOSEN)
                if scalar[S_POLICY] != DRED:
                    _link(k, row, scalar[S_FOUND] - 1, S_CHOSEN)
                _push(k, _priority(k, row, relation), row)
        scalar[S_CURSOR] += 1


@kernel
def propagate(address):
    """Step 3: join every queued row forward until the queue is empty."""
    k = store(address)
    scalar, meta = k.scalar, k.meta
    m = scalar[S_META]
    while scalar[S_HEAD] < scalar[S_TAIL]:
        heap = scalar[S_HEAP] != 0
        row = k.queue[0, 1] if heap else k.queue[scalar[S_HEAD] & (len(k.queue) - 1), 1]
        tag = meta[row, m]
        relation = tag & RELATION
        stale = heap and k.queue[0, 0] != _priority(k, row, relation)
        # What only came back can only bring others back: when none is missing, it has nothing to say.
        idle = not heap and tag & REVIVED and scalar[S_WITHDRAWN] == 0
        if heap:
            priority = k.queue[0, 0]
            _pop_heap(k)
        if not (stale or idle):
            first = k.relations[relation, R_FORWARD]
            for i in range(first, first + k.relations[relation, R_FORWARDS]):
                if not run(k, k.plans[i], FORWARD, row):
                    if heap:
                        _push(k, priority, row)
                    return
            meta[row, m] = meta[row, m] & ~REVIVED
        if not heap:
            scalar[S_HEAD] += 1


@kernel
def emit_block(address, rule, relation, rows, bodies):
    """Derivations whose heads Python has computed: rows [n, columns], their body rows [n, K]; then propagate."""
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
def collect(address, out):
    """End an epoch: write the net changes [2 * touched, 2 + columns] (relation, change, cells) and forget the rest."""
    k = store(address)
    scalar, meta = k.scalar, k.meta
    m = scalar[S_META]
    n = 0
    for i in range(scalar[S_TOUCHED]):
        row, before = k.touched[i, 0] >> 1, k.touched[i, 0] & 1
        tag = meta[row, m]
        meta[row, m] = tag & ~(TOUCHED | WITHDRAWN | RETRY | REVIVED)
        relation = tag & RELATION
        kind = k.relations[relation, R_KIND]
        if kind < SET:
            continue
        keys, width = k.relations[relation, R_KEYS], k.relations[relation, R_WIDTH]
        after = 1 if tag & ALIVE else 0
        moved = kind == BEST and before and after and k.cells[row, keys] != k.touched[i, 1]
        if before == after and not moved:
            continue
        if before:
            out[n, 0] = relation
            out[n, 1] = -1
            for c in range(width):
                out[n, 2 + c] = k.cells[row, c]
            if kind == BEST:
                out[n, 2 + keys] = k.touched[i, 1]
            n += 1
        if after:
            out[n, 0] = relation
            out[n, 1] = 1
            for c in range(width):
                out[n, 2 + c] = k.cells[row, c]
            n += 1
    scalar[S_TOUCHED] = 0
    scalar[S_WITHDRAWN] = 0
    return n
