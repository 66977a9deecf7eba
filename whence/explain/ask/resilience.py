"""Resilience: the least number of base rows whose loss removes a row, and one such set.

Without tallies a set of losses removes the row exactly if it meets every minimal witness. Three ways, each exact where
it ends:

    a network          one node a body, and each base row is an arc, or joins every one of some nodes to every one of
                       others: a least cut
    otherwise          a least set that meets the witnesses found so far; a witness that it misses is found and added;
                       until it misses none
    with tallies       all losses of one row, of two rows, ...

The second and third are bounded; when they do not end the answer is an interval.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations, islice

import numpy as np

from whence.explain.ask.critical import find_critical
from whence.explain.ask.decision_diagram import MOST
from whence.explain.ask.evaluate import Evaluator
from whence.explain.ask.frontier_order import GROUND, ROOT, list_arcs
from whence.explain.ask.simplify import System, build_system, simplify
from whence.explain.ask.witnesses import find_support, find_witness
from whence.explain.graph import Derivations, Ints
from whence.explain.kernels.flow import least_cut
from whence.model.budget import reach

BUDGET = 200_000  # sets tried
TOLD = 1_000  # sets tried between two reports
CELLS = 10_000_000  # of base rows times sets tried at once
NEVER = 1 << 40  # the capacity of an arc that cannot be lost


@dataclass(frozen=True)
class SmallestLoss:
    """Losing `rows` removes the row; no fewer than `low` do. If `rows` is None no loss removes it, or, with `low` above
    0, none was found."""

    rows: Ints | None  # base nodes
    low: int

    @property
    def exact(self) -> bool:
        return self.low == (0 if self.rows is None else len(self.rows))

    @property
    def size(self) -> int | None:
        """Return the least number, if it is known to be that; else the smallest found."""
        return None if self.rows is None else len(self.rows)


def find_smallest_loss(graph: Derivations, budget: int = BUDGET) -> SmallestLoss:
    """Find a smallest set of base rows whose loss removes the first root."""
    reach("smallest loss")
    evaluator = Evaluator(graph)
    if evaluator.holds(np.zeros(len(graph.base), bool)) and not evaluator.graph.tallies:
        return SmallestLoss(None, 0)
    if not evaluator.holds(np.ones(len(graph.base), bool)):
        return SmallestLoss(np.empty(0, np.int32), 0)
    alone = find_critical(graph)
    if len(alone):
        return SmallestLoss(alone[:1], 1)
    if evaluator.graph.tallies:
        return _all_losses(evaluator, min(budget, evaluator.affordable))
    equations = build_system(evaluator)
    cut = _cut(equations) if equations.linear else None
    if cut is None and len(evaluator.graph.head) <= MOST:
        equations = simplify(equations)  # may leave a network
        cut = _cut(equations) if equations.linear else None
    if cut is not None:
        return SmallestLoss(graph.base[cut], len(cut))
    return _meet_all(evaluator, budget)


def _cut(equations: System) -> Ints | None:
    """Return the variables of a least cut, if base rows are arcs."""
    arcs = list_arcs(equations)
    price, parts = _prices(equations)
    tails: list[int] = []
    tops: list[int] = []
    capacities: list[int] = []
    of: list[int] = []  # the variable of each arc
    vertices = 2 + max([0, *(v for pairs in arcs.values() for pair in pairs for v in pair)])

    def add(x: int, y: int, capacity: int, variable: int) -> None:
        tails.append(x)
        tops.append(y)
        capacities.append(capacity)
        of.append(variable)

    for v, pairs in arcs.items():
        heads, ends = {x for x, _ in pairs}, {y for _, y in pairs}
        if v < 0:
            add(*pairs[0], NEVER, v)
        elif len(set(pairs)) != len(heads) * len(ends):
            return None
        elif len(set(pairs)) == 1:
            add(*pairs[0], price[v], v)
        else:
            for x in heads:
                add(x, vertices, NEVER, -1)
            for y in ends:
                add(vertices + 1, y, NEVER, -1)
            add(vertices, vertices + 1, price[v], v)
            vertices += 2
    listed = [np.array(a, np.int64) for a in (tails, tops, capacities)]
    side, _ = least_cut(vertices, ROOT, GROUND, *listed)
    lost = [v for v, x, y in zip(of, tails, tops, strict=True) if side[x] and not side[y]]
    return np.array(sorted(r for v in lost for r in parts[v]), np.int32)


def _prices(equations: System) -> tuple[dict[int, int], dict[int, list[int]]]:
    """Count how many base rows must go for each variable to go, and say which."""
    parts: dict[int, list[int]] = {v: [v] for v in range(equations.rows)}
    for i, module in enumerate(equations.modules):
        of = [parts[p] for p in module.parts]
        parts[equations.rows + i] = min(of, key=len) if module.kind == "and" else [r for p in of for r in p]
    return {v: len(p) for v, p in parts.items()}, parts


def _meet_all(evaluator: Evaluator, budget: int) -> SmallestLoss:
    """Find a least set that meets all witnesses."""
    rows = len(evaluator.graph.base)
    known: list[int] = []  # witnesses as bits
    best: set[int] | None = None
    low = 1
    met: list[int] = []
    while budget > 0:
        alive = np.ones(rows, bool)
        alive[met] = False
        lost = set(met)
        while (witness := find_witness(evaluator, alive)) is not None:  # disjoint ones, until nothing is left
            known.append(sum(1 << int(v) for v in witness))
            alive[witness] = False
            lost.update(witness.tolist())
        if len(lost) == len(met):
            return SmallestLoss(evaluator.graph.base[sorted(met)], len(met))
        reach(f"smallest loss: at least {low:,} rows, {len(known):,} witnesses")
        enough = _spare_losses(evaluator, lost)
        best = enough if best is None or len(enough) < len(best) else best
        found, low, budget = _least_meeting(known, low, budget)
        if low >= len(best):
            return SmallestLoss(evaluator.graph.base[sorted(best)], len(best))
        if found is None:
            break
        met = found
    assert best is not None
    return SmallestLoss(evaluator.graph.base[sorted(best)], low)


def _spare_losses(evaluator: Evaluator, lost: set[int]) -> set[int]:
    """Keep some of these losses that are enough, none of which can be spared; those that meet most are spared last."""
    left = set(lost)
    alive = np.ones(len(evaluator.graph.base), bool)
    alive[list(left)] = False
    for v in sorted(lost):
        alive[v] = True
        if evaluator.holds(alive):
            alive[v] = False
        else:
            left.discard(v)
    return left


def _least_meeting(known: list[int], low: int, budget: int) -> tuple[list[int] | None, int, int]:
    """Find a least set that meets each of the known sets, its size at least `low`; None when the budget ends."""
    size = low
    while True:
        stack: list[tuple[list[int], int, int]] = [([], 0, 0)]  # chosen, as bits, and what is ruled out
        while stack:
            budget -= 1
            if budget <= 0:
                return None, size, 0
            if budget % TOLD == 0:
                reach(f"smallest loss: at least {size:,} rows, {len(known):,} witnesses")
            chosen, bits, out = stack.pop()
            open_sets = sorted((w & ~out for w in known if not w & bits), key=int.bit_count)
            if not open_sets:
                return chosen, size, budget
            if not open_sets[0] or _disjoint(open_sets) > size - len(chosen):
                continue
            ruled = out
            for v in sorted(_members(open_sets[0]), key=lambda v: sum(w >> v & 1 for w in open_sets)):
                stack.append(([*chosen, v], bits | 1 << v, ruled))
                ruled |= 1 << v
        size += 1


def _disjoint(sets: list[int]) -> int:
    """Count how many of the sets, taken greedily, have nothing in common: that many are needed to meet all."""
    used = count = 0
    for w in sets:
        if not w & used:
            used |= w
            count += 1
    return count


def _members(bits: int) -> list[int]:
    return [i for i in range(bits.bit_length()) if bits >> i & 1]


def _all_losses(evaluator: Evaluator, budget: int) -> SmallestLoss:
    """Try every set of one row, of two rows, and so on, with tallies."""
    graph = evaluator.graph
    below = find_support(graph).tolist()
    best: set[int] | None = None
    many = max(64, min(4096, CELLS // len(graph.base)))
    for size in range(1, len(below) + 1):
        if size == 2 and not evaluator.holds(np.zeros(len(graph.base), bool)):
            best = _spare_losses(evaluator, set(below))
        if best is not None and size >= len(best):
            break
        tried = combinations(below, size)
        while chunk := list(islice(tried, many)):
            if budget <= 0:
                return SmallestLoss(None if best is None else graph.base[sorted(best)], size)
            budget -= len(chunk)
            reach(f"smallest loss: trying sets of {size:,} rows")
            alive = np.ones((len(graph.base), len(chunk)), bool)
            alive[np.array(chunk).T, np.arange(len(chunk))] = False
            lost = np.flatnonzero(~evaluator.root(alive))
            if len(lost):
                return SmallestLoss(graph.base[sorted(chunk[lost[0]])], size)
    return SmallestLoss(None, 0) if best is None else SmallestLoss(graph.base[sorted(best)], len(best))
