"""Running a plan: every binding of a rule that starts from a given body row (forward) or head row (backward).

A plan is a header, sections and steps in one array of integers, written by `engine/recursion/rule_plans.py`:

    header   rule, number of steps, position of the given atom (-1: the head is given), head relation, head's variables,
             foreign (an index on the bound columns of a head that Python computes, else -1), first section, steps…
    section  number of binds, (column, variable)…; number of checks, (column, variable)…; number of operations,
             (operation, to, a, b)…
    step     kind, relation, index, atom, chain, number of key variables, how often it was made, rows it looked at,
             variables…; then a section
"""

from __future__ import annotations

from whence.engine.recursion.kernels.binding import bind
from whence.engine.recursion.kernels.derive import better, emit, kill, overdelete_row, rank_of
from whence.engine.recursion.kernels.store import (
    ALIVE,
    BEST,
    FOREIGN_FULL,
    LIMIT,
    R_BACKWARD,
    R_BACKWARDS,
    R_KEYS,
    R_KIND,
    R_SIGN,
    RELATION,
    REVIVED,
    S_ATOMS,
    S_BODIES,
    S_CANDIDATE,
    S_CHOSEN,
    S_CULPRIT,
    S_EFFORT,
    S_FOREIGN,
    S_FOUND,
    S_HEAP,
    S_HOPES,
    S_META,
    S_PAUSE,
    S_PEERS,
    S_SCRATCH,
    S_STACK,
    S_STATUS,
    S_VALUE,
    S_WORK,
    SET,
    WITHDRAWN,
    add_row,
    find,
    find_chain,
)
from whence.model.jit import kernel

FORWARD, SEARCH_SAME, SEARCH_ANY, OVERDELETE, GATHER, GATHER_SAME = range(6)  # what is done with a binding

# Steps of a plan
PROBE, LOOKUP, ABSENT = range(3)
STEP_PROBES, STEP_ROWS, STEP_KEY = 6, 7, 8  # fields of a step


@kernel
def _choose(k, rule):
    """Let the running derivation be the one that a search has found."""
    k.scalar[S_FOUND] = 1 + rule
    for j in range(k.scalar[S_ATOMS]):
        k.scalar[S_CHOSEN + j] = k.scalar[S_BODIES + j]


@kernel
def _outranks(k):
    """Return whether, with peers, the running derivation has a smaller rank than the one that a search has found."""
    return k.scalar[S_PEERS] != 0 and rank_of(k, S_BODIES) < rank_of(k, S_CHOSEN)


@kernel
def _leaf(k, plan, mode, target):
    """Use a complete binding; return 1 to go on with the next one, 0 to stop (found, or interrupted)."""
    plans, env, scalar = k.plans, k.env, k.scalar
    rule, relation, head, foreign = plans[plan], plans[plan + 3], plans[plan + 4], plans[plan + 5]
    scalar[S_WORK] += 1
    if mode == FORWARD and scalar[S_EFFORT] and scalar[S_WORK] > scalar[S_EFFORT]:
        scalar[S_STATUS] = LIMIT
        scalar[S_CULPRIT] = scalar[S_BODIES]
        return 0
    if mode == GATHER_SAME and k.relations[relation, R_KIND] == BEST:
        if env[rule, plans[head + plans[head]]] != k.cells[target, k.relations[relation, R_KEYS]]:
            return 1
    if mode >= GATHER or (mode == FORWARD and foreign >= 0):
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
            if k.meta[row, scalar[S_META]] & ALIVE and not kill(k, row):
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
                found = scalar[S_FOUND] != 0
                if found and not better(sign, value, scalar[S_VALUE]):
                    if value != scalar[S_VALUE] or not _outranks(k):
                        return 1
                scalar[S_VALUE] = value
                _choose(k, rule)
                return 1
        elif mode == SEARCH_ANY and scalar[S_PEERS]:
            if scalar[S_FOUND] == 0 or _outranks(k):
                _choose(k, rule)
            return 1
        _choose(k, rule)
        return 0
    for c in range(plans[head]):
        scalar[S_SCRATCH + c] = env[rule, plans[head + 1 + c]]
    if mode == FORWARD:
        return 1 if emit(k, rule, relation) else 0
    return 1 if overdelete_row(k, relation) else 0


@kernel
def _usable(k, row, mode, rank):
    """Return whether a row may be in the body of the derivation looked for."""
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
    if not bind(k, rule, row, plans[plan + 6]):
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
            plans[step + STEP_PROBES] += 1
            for c in range(n):
                scalar[S_SCRATCH + c] = env[rule, plans[step + STEP_KEY + c]]
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
        looked = 1
        if kind == PROBE:
            while current >= 0 and not (
                _usable(k, current, mode, rank) and bind(k, rule, current, step + STEP_KEY + n)
            ):
                current = meta[current, plans[step + 4]]
                looked += 1
        elif current >= 0:
            usable = kind == ABSENT or _usable(k, current, mode, rank)
            if not (usable and bind(k, rule, current, step + STEP_KEY + n)):
                current = -1
        scalar[S_PAUSE] -= looked
        plans[step + STEP_ROWS] += looked - (current < 0)
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
def search(k, row, mode):
    """Look for a derivation of a row through the rules of its relation. False if interrupted.

    SEARCH_SAME takes the first of the row's value and of rows of smaller rank, SEARCH_ANY the first of live rows, or,
    under MIN and MAX, of the best value; with peers the one of these of the smallest rank."""
    scalar = k.scalar
    relation = k.meta[row, scalar[S_META]] & RELATION
    scalar[S_FOUND] = 0
    scalar[S_CANDIDATE] = 0
    first = k.relations[relation, R_BACKWARD]
    for i in range(first, first + k.relations[relation, R_BACKWARDS]):
        if not run(k, k.plans[i], mode, row):
            return False
        whole = k.relations[relation, R_KIND] == BEST or scalar[S_PEERS] != 0
        if scalar[S_FOUND] and (mode == SEARCH_SAME or not whole):
            break
    return True
