"""Best costs from the root, with branch and bound (Volcano), from nothing or after a change.

Law: `low` of an entry is a lower bound on the cost of its plans; where it is `exact`, it is the cost of the best. A
search within a limit finds the best plan if it costs no more, and raises the lower bound otherwise, so no search is in
vain. A change moves bounds instead of dropping them: no plan can have become cheaper than its local costs fell
altogether, so `low - fallen` still is a lower bound of everything that the change reaches.
"""

from __future__ import annotations

from whence.model.codes import Codes
from whence.model.jit import kernel
from whence.plan.optimizer.kernels.costs import ENTRY, FIRST, LAST, LEFT, NO_COST, RIGHT

COSTED = 2  # of counts: alternatives whose whole cost was computed
PRUNES, REMEMBERS, STOPS = 1, 2, 4  # of mode: branch and bound; costs of all alternatives; conditional testing


@kernel
def search(
    entry: int,
    limit: int,
    entries: Codes,
    alternatives: Codes,
    local: Codes,
    low: Codes,
    exact: Codes,
    choice: Codes,
    plan: Codes,
    known: Codes,
    mode: int,
    counts: Codes,
) -> int:
    """Return the best cost of an entry if it is at most `limit`, or if it is known; else `NO_COST`."""
    if exact[entry]:
        return int(low[entry])
    prunes = mode & PRUNES
    if prunes and low[entry] > limit:
        return NO_COST
    counts[0] += 1
    lowest, which, under = limit + 1, -1, NO_COST
    first, last, chosen = entries[entry, FIRST], entries[entry, LAST], choice[entry]
    for place in range(first - 1, last):
        each = chosen if place < first else place
        if each < 0 or (place >= first and each == chosen):
            continue
        if known[each]:
            if plan[each] < lowest:
                lowest, which = plan[each], each
            under = min(under, plan[each])
            continue
        cost, whole = local[each], True
        left, right = alternatives[each, LEFT], alternatives[each, RIGHT]
        if left >= 0:
            cost += low[left]
            if right >= 0:
                cost += low[right]
            if not prunes or cost < lowest:
                counts[1] += 1
                for side in (left, right):
                    if side >= 0:
                        found = search(
                            side,
                            lowest - 1 - cost + low[side] if prunes else NO_COST - 1,
                            entries,
                            alternatives,
                            local,
                            low,
                            exact,
                            choice,
                            plan,
                            known,
                            mode,
                            counts,
                        )
                        if found == NO_COST:
                            whole = False
                            break
                        cost = local[each] + low[left] + (low[right] if right >= 0 else 0)
                        if prunes and cost >= lowest:
                            break
                whole = whole and exact[left] != 0 and (right < 0 or exact[right] != 0)
                cost = local[each] + low[left] + (low[right] if right >= 0 else 0)
            else:
                whole = False
        if whole:
            counts[COSTED] += 1
            plan[each] = cost
            known[each] = 1 if mode & REMEMBERS else 0
        under = min(under, cost)
        if whole and cost < lowest:
            lowest, which = cost, each
            if mode & STOPS and cost <= low[entry]:
                break
    if which < 0:
        low[entry] = max(low[entry], under)
        return NO_COST
    low[entry], exact[entry], choice[entry] = lowest, 1, which
    return lowest


@kernel
def tree_cost(entry: int, alternatives: Codes, local: Codes, choice: Codes) -> int:
    """Return what the chosen plan of an entry costs now."""
    each = choice[entry]
    cost = local[each]
    if alternatives[each, LEFT] >= 0:
        cost += tree_cost(alternatives[each, LEFT], alternatives, local, choice)
    if alternatives[each, RIGHT] >= 0:
        cost += tree_cost(alternatives[each, RIGHT], alternatives, local, choice)
    return int(cost)


@kernel
def move_bounds(
    alternatives: Codes, begins: Codes, users: Codes, dirty: Codes, known: Codes, low: Codes, exact: Codes, fallen: int
) -> None:
    """Lower the bounds of all entries that a change reaches; `dirty` marks those it begins at, and is cleared."""
    for entry in range(len(dirty)):
        if dirty[entry]:
            dirty[entry] = 0
            exact[entry], low[entry] = 0, max(0, low[entry] - fallen)
            for place in range(begins[entry], begins[entry + 1]):
                known[users[place]] = 0
                dirty[alternatives[users[place], ENTRY]] = 1
