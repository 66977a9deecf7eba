"""Which alternatives a search space needs to have, by lower bounds of what their inputs cost.

`known` has, of each entry, its best cost or a lower bound of it. An alternative is needed if it is the cheapest of its
entry (the first of them), or, without aggregate selection, always; but not if no plan through it stays within the
`allowed` cost of its entry.
"""

from __future__ import annotations

from whence.model.codes import Codes
from whence.model.jit import kernel
from whence.plan.optimizer.kernels.bottom_up import plan_cost
from whence.plan.optimizer.kernels.costs import FIRST, LAST, NO_COST


@kernel
def decide(
    entries: Codes,
    alternatives: Codes,
    local: Codes,
    known: Codes,
    held: Codes,
    alive: Codes,
    allowed: Codes,
    selects: int,
    changes: Codes,
) -> tuple[int, bool]:
    """List the alternatives of held entries that are needed and are not there, and, as -1 - number, those that are
    there and not needed; return how many are listed, and whether a bound has moved: an entry of which nothing is
    needed has its own in `known`."""
    count, moved = 0, False
    for entry in range(len(entries)):
        if not held[entry]:
            continue
        lowest, which = NO_COST, -1
        for each in range(entries[entry, FIRST], entries[entry, LAST]):
            cost = plan_cost(each, alternatives, local, known)
            if cost < lowest or (cost == lowest and alive[each] and not alive[which]):
                lowest, which = cost, each
        if lowest > allowed[entry] and known[entry] != lowest:
            known[entry], moved = lowest, True
        for each in range(entries[entry, FIRST], entries[entry, LAST]):
            needed = each == which or not selects
            if needed and allowed[entry] < NO_COST:
                needed = plan_cost(each, alternatives, local, known) <= allowed[entry]
            if needed and not alive[each]:
                changes[count] = each
                count += 1
            elif alive[each] and not needed:
                changes[count] = -1 - each
                count += 1
    return count, moved
