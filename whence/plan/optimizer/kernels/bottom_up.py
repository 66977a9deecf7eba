"""Best costs from the leaves to the root (System R), of all entries or of those that a change reaches.

Entries are numbered so that inputs come first, so one pass in that order sees every entry after all of its inputs.
What is remembered between passes is the policy `memo`: the best cost of each entry (BEST), that of each alternative,
too (ALL), or of the `KEPT` cheapest alternatives and a floor under the others (LIKELY). Alternatives that only became
dearer may keep an old cost, which is a lower bound, until the best of their entry rises above it (`STALE`).

`conditional` is the test of section 5.2: while the chosen alternative has not become dearer, only those that have
become cheaper can replace it; and an entry whose best cost stands is not propagated.
"""

from __future__ import annotations

from whence.model.codes import Codes
from whence.model.jit import kernel
from whence.plan.optimizer.kernels.costs import (
    ENTRY,
    FELL,
    FIRST,
    LAST,
    LEFT,
    NO_COST,
    RIGHT,
    ROSE,
    STALE,
)

BEST, ALL, LIKELY = 1, 2, 3
KEPT = 4  # alternatives of an entry that are remembered as likely
ENTRIES, ALTERNATIVES = 0, 1  # of counts


@kernel
def plan_cost(alternative: int, alternatives: Codes, local: Codes, best: Codes) -> int:
    """Return the cost of an alternative over the best plans of its inputs."""
    cost = local[alternative]
    if alternatives[alternative, LEFT] >= 0:
        cost += best[alternatives[alternative, LEFT]]
    if alternatives[alternative, RIGHT] >= 0:
        cost += best[alternatives[alternative, RIGHT]]
    return int(cost)


@kernel
def optimize(
    entries: Codes,
    alternatives: Codes,
    local: Codes,
    best: Codes,
    choice: Codes,
    plan: Codes,
    kept: Codes,
    floors: Codes,
    memo: int,
    counts: Codes,
) -> None:
    """Compute everything."""
    for entry in range(len(entries)):
        counts[ENTRIES] += 1
        renew(entry, entries, alternatives, local, best, choice, plan, kept, floors, memo, counts)


@kernel
def renew(
    entry: int,
    entries: Codes,
    alternatives: Codes,
    local: Codes,
    best: Codes,
    choice: Codes,
    plan: Codes,
    kept: Codes,
    floors: Codes,
    memo: int,
    counts: Codes,
) -> None:
    """Compute all alternatives of an entry."""
    lowest, which = NO_COST, -1
    if memo == LIKELY:
        floors[entry] = NO_COST
        for place in range(KEPT):
            kept[entry, place] = -1
    for alternative in range(entries[entry, FIRST], entries[entry, LAST]):
        cost = plan_cost(alternative, alternatives, local, best)
        if alternatives[alternative, LEFT] >= 0:
            counts[ALTERNATIVES] += 1
        if memo == ALL:
            plan[alternative] = cost
        elif memo == LIKELY:
            keep(entry, alternative, cost, plan, kept, floors)
        if cost < lowest:
            lowest, which = cost, alternative
    best[entry], choice[entry] = lowest, which


@kernel
def keep(entry: int, alternative: int, cost: int, plan: Codes, kept: Codes, floors: Codes) -> None:
    """Remember an alternative if it is one of the cheapest; the floor is under all that are not remembered."""
    dearest = 0
    for place in range(KEPT):
        each = kept[entry, place]
        if each < 0:
            kept[entry, place], plan[alternative] = alternative, cost
            return
        if plan[each] > plan[kept[entry, dearest]]:
            dearest = place
    out = kept[entry, dearest]
    if cost < plan[out]:
        floors[entry] = min(floors[entry], plan[out])
        kept[entry, dearest], plan[alternative] = alternative, cost
    else:
        floors[entry] = min(floors[entry], cost)


@kernel
def reoptimize(
    entries: Codes,
    alternatives: Codes,
    begins: Codes,
    users: Codes,
    local: Codes,
    best: Codes,
    choice: Codes,
    plan: Codes,
    kept: Codes,
    floors: Codes,
    dirty: Codes,
    hit: Codes,
    memo: int,
    conditional: int,
    counts: Codes,
) -> None:
    """Bring best costs up to date. `dirty` marks the entries to be looked at, `hit` what happened to alternatives."""
    for entry in range(len(entries)):
        if not dirty[entry]:
            continue
        dirty[entry] = 0
        counts[ENTRIES] += 1
        old = best[entry]
        if memo == ALL:
            update_all(entry, entries, alternatives, local, best, choice, plan, hit, conditional, counts)
        elif memo == LIKELY:
            update_likely(entry, entries, alternatives, local, best, choice, plan, kept, floors, hit, counts)
        else:
            update_best(entry, entries, alternatives, local, best, choice, plan, kept, floors, hit, conditional, counts)
        new = best[entry]
        if new == old and conditional:
            continue
        what = (FELL if new < old else 0) | (ROSE if new > old else 0)
        for place in range(begins[entry], begins[entry + 1]):
            user = users[place]
            hit[user] |= what if what else FELL | ROSE
            dirty[alternatives[user, ENTRY]] = 1


@kernel
def update_all(
    entry: int,
    entries: Codes,
    alternatives: Codes,
    local: Codes,
    best: Codes,
    choice: Codes,
    plan: Codes,
    hit: Codes,
    conditional: int,
    counts: Codes,
) -> None:
    """Update an entry whose alternatives are all remembered."""
    first, last = entries[entry, FIRST], entries[entry, LAST]
    if not conditional:
        lowest, which = NO_COST, -1
        for each in range(first, last):
            if hit[each]:
                evaluate(each, alternatives, local, best, plan, hit, counts)
            if plan[each] < lowest:
                lowest, which = plan[each], each
        best[entry], choice[entry] = lowest, which
        return
    which = choice[entry]
    if hit[which]:
        evaluate(which, alternatives, local, best, plan, hit, counts)
    lowest, risen = plan[which], plan[which] > best[entry]
    for each in range(first, last):
        if hit[each] & FELL or (risen and hit[each] and plan[each] < lowest):
            evaluate(each, alternatives, local, best, plan, hit, counts)
        elif hit[each]:
            hit[each] = STALE
        if plan[each] < lowest:
            lowest, which = plan[each], each
    best[entry], choice[entry] = lowest, which


@kernel
def evaluate(
    alternative: int, alternatives: Codes, local: Codes, best: Codes, plan: Codes, hit: Codes, counts: Codes
) -> None:
    """Compute and remember the cost of an alternative."""
    plan[alternative] = plan_cost(alternative, alternatives, local, best)
    hit[alternative] = 0
    if alternatives[alternative, LEFT] >= 0:
        counts[ALTERNATIVES] += 1


@kernel
def update_best(
    entry: int,
    entries: Codes,
    alternatives: Codes,
    local: Codes,
    best: Codes,
    choice: Codes,
    plan: Codes,
    kept: Codes,
    floors: Codes,
    hit: Codes,
    conditional: int,
    counts: Codes,
) -> None:
    """Update an entry of which only the best cost is remembered."""
    first, last, which = entries[entry, FIRST], entries[entry, LAST], choice[entry]
    lowest = best[entry]
    if conditional and hit[which]:
        lowest = plan_cost(which, alternatives, local, best)
        if alternatives[which, LEFT] >= 0:
            counts[ALTERNATIVES] += 1
    if not conditional or lowest > best[entry]:
        if conditional and alternatives[which, LEFT] >= 0:
            counts[ALTERNATIVES] -= 1  # it is computed with the others
        renew(entry, entries, alternatives, local, best, choice, plan, kept, floors, BEST, counts)
    else:
        for each in range(first, last):
            if hit[each] & FELL and each != choice[entry]:
                cost = plan_cost(each, alternatives, local, best)
                counts[ALTERNATIVES] += 1 if alternatives[each, LEFT] >= 0 else 0
                if cost < lowest:
                    lowest, which = cost, each
        best[entry], choice[entry] = lowest, which
    for each in range(first, last):
        hit[each] = 0


@kernel
def update_likely(
    entry: int,
    entries: Codes,
    alternatives: Codes,
    local: Codes,
    best: Codes,
    choice: Codes,
    plan: Codes,
    kept: Codes,
    floors: Codes,
    hit: Codes,
    counts: Codes,
) -> None:
    """Update an entry whose likely alternatives are remembered; all are computed if the floor comes into reach."""
    lowest, which = NO_COST, -1
    for place in range(KEPT):
        each = kept[entry, place]
        if each < 0:
            continue
        if hit[each]:
            evaluate(each, alternatives, local, best, plan, hit, counts)
        if plan[each] < lowest:
            lowest, which = plan[each], each
    for each in range(entries[entry, FIRST], entries[entry, LAST]):
        if hit[each] & FELL:
            cost = plan_cost(each, alternatives, local, best)
            counts[ALTERNATIVES] += 1 if alternatives[each, LEFT] >= 0 else 0
            keep(entry, each, cost, plan, kept, floors)
            if cost < lowest:
                lowest, which = cost, each
        hit[each] = 0
    if floors[entry] < lowest:
        renew(entry, entries, alternatives, local, best, choice, plan, kept, floors, LIKELY, counts)
    else:
        best[entry], choice[entry] = lowest, which
