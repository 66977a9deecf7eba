"""The cheapest plan for an event, by what each plan costs and how many rows and subscriptions it would go through.

Line p of `costs` is plan p's: [fixed, per row that joins, per logarithm of these rows, per subscription whose local
ranges hold the event and logarithm of the rows], and the number of subscriptions. Rows are known, since every plan
begins with finding them. Subscriptions are estimated by a histogram per dimension (`histogram.py`), as if dimensions
were independent.
"""

from __future__ import annotations

import numpy as np

from whence.engine.matching.kernels.histogram import Heights, place_of
from whence.model.codes import Codes
from whence.model.jit import kernel

MARGIN = 0.7


@kernel
def stabbed_by(breaks: Codes, counts: Codes, means: Heights, ratios: Heights, point: Codes, everything: float) -> float:
    """About how many subscriptions hold a point."""
    found = everything
    for d in range(point.shape[0]):
        place = place_of(breaks, d, counts[d], point[d])
        found *= max(means[d, place] * ratios[d, place], 0.0) / everything
    return found


@kernel
def cheapest(
    costs: Heights, breaks: Codes, counts: Codes, means: Heights, ratios: Heights, point: Codes, rows: int
) -> int:
    """The plan that costs least for an event that joins so many rows. Costs are estimates, so plan 0 is left only for
    one that seems to cost a third less.

    Every plan costs at least what it does for one row and no subscription. Where this tells the cheapest one, nothing
    is estimated, which would take as long as a small tree."""
    first = costs[0, 0] * MARGIN
    best = 0
    least = first
    for plan in range(1, costs.shape[0]):
        cost = costs[plan, 0] + costs[plan, 1] * rows + costs[plan, 2]
        if cost < least:
            least = cost
            best = plan
    is_known = costs[best, 2] == 0.0 and costs[best, 3] == 0.0
    if is_known:
        return best
    log = np.log2(1.0 + rows)
    each = 0.0
    if costs[0, 4] > 0.0:
        each = stabbed_by(breaks, counts, means, ratios, point, costs[0, 4]) * log
    best = 0
    least = np.inf
    for plan in range(costs.shape[0]):
        cost = costs[plan, 0] + costs[plan, 1] * rows + costs[plan, 2] * log + costs[plan, 3] * each
        if cost < least:
            least = cost * MARGIN if plan == 0 else cost
            best = plan
    return best
