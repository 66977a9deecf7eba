"""A plan that is found at once: relations joined one after another, the fewest rows first. Its cost bounds the best."""

from __future__ import annotations

from whence.plan.optimizer.kernels.costs import LEFT, NO_COST, RIGHT
from whence.plan.optimizer.space import PlanModel
from whence.plan.optimizer.split import AGGREGATED, MemoEntry


def greedy_cost(model: PlanModel, root: int) -> int:
    """Return what the left-deep plan costs that joins, one by one, what gives the fewest rows; the entries on the way
    are enumerated. NO_COST if some join has only operators that require an order."""
    whole = model.names[root].expression
    relations = whole & ~AGGREGATED
    parts = [1 << n for n in range(len(model.graph.relations)) if relations >> n & 1]
    done = min(parts, key=model.rows_found)
    way = [MemoEntry(done)]
    while done != relations:
        joined = [p for p in parts if not p & done and model.graph.is_connected(p | done)]
        done |= min(joined, key=lambda part, done=done: model.rows_found(part | done))  # type: ignore[misc]  # bound now
        way.append(MemoEntry(done))
    if whole != relations:
        way.append(MemoEntry(whole))
    costs: dict[int, int] = {}
    for entry in [*(MemoEntry(part) for part in parts), *way]:
        number = model.number(entry)
        costs[number] = _cheapest(model, number, costs)
        if costs[number] >= NO_COST:
            return NO_COST
    return costs[root]


def _cheapest(model: PlanModel, entry: int, costs: dict[int, int]) -> int:
    """Return the least cost of an entry over inputs whose costs are known."""
    lowest = NO_COST
    for each in model.open(entry):
        sides = [side for side in model.alternatives[each, [LEFT, RIGHT]].tolist() if side >= 0]
        if all(side in costs for side in sides):
            lowest = min(lowest, int(model.local[each]) + sum(costs[side] for side in sides))
    return lowest
