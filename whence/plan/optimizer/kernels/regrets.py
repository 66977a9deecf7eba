"""Regrets: what the cheapest whole plan through an entry, or an alternative, costs more than the best.

Law: the regret of an alternative within its entry is its cost less the best. The detour of an entry is 0 for a root,
and else the least, over the alternatives that read it, of their entry's detour and their own regret: a shortest path.
Bound of Figure 22 is best cost less detour.
"""

from __future__ import annotations

from whence.model.codes import Codes
from whence.model.jit import kernel
from whence.plan.optimizer.kernels.bottom_up import plan_cost
from whence.plan.optimizer.kernels.costs import FIRST, LAST, LEFT, NO_COST, RIGHT


@kernel
def detours(entries: Codes, alternatives: Codes, local: Codes, best: Codes, roots: Codes, detour: Codes) -> None:
    """Fill in the detour of each entry."""
    for entry in range(len(entries)):
        detour[entry] = NO_COST
    for place in range(len(roots)):
        detour[roots[place]] = 0
    for entry in range(len(entries) - 1, -1, -1):
        if detour[entry] == NO_COST:
            continue
        for each in range(entries[entry, FIRST], entries[entry, LAST]):
            through = detour[entry] + plan_cost(each, alternatives, local, best) - best[entry]
            left, right = alternatives[each, LEFT], alternatives[each, RIGHT]
            if left >= 0:
                detour[left] = min(detour[left], through)
            if right >= 0:
                detour[right] = min(detour[right], through)
