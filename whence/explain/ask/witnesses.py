"""Minimal witnesses of a row: sets of base rows that suffice for it, of which none can be spared.

Law: the function of a row without tallies is the disjunction of its minimal witnesses. They are found smallest first
(`kernels/best_first.py`) until there are no more, or enough of them and some more steps have not come to an end; then
their number is only a lower bound. When even the smallest are too far away, some minimal ones are found by sparing one
base row after another from what is there, and `smallest` is False.

With tallies that are not monotone the sets are found by trying all of them, up to `TRIED` base rows; beyond that a
tally asks for its whole body, which suffices but may not be minimal.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np

from whence.explain.ask.evaluate import Bools, Evaluator
from whence.explain.graph import Derivations, Ints
from whence.explain.kernels import best_first, spread
from whence.model.budget import reach
from whence.model.codes import Codes

BUDGET = 5_000_000  # steps to find `limit` witnesses in: some 50 ms
EXTRA = 15_000  # steps more to find all, so as to count them
TRIED = 15  # base rows of which all sets are tried
SPARED = 2_000  # base rows that are spared in several orders


@dataclass(frozen=True)
class WitnessList:
    """The witnesses found, smallest first, each an array of base nodes in order."""

    found: list[Ints]
    count: int  # of all minimal witnesses if complete, else at least so many
    complete: bool
    smallest: bool = True  # whether there are no smaller ones than those found


def find_witnesses(graph: Derivations, limit: int = 10, budget: int = BUDGET, extra: int = EXTRA) -> WitnessList:
    """Find minimal witnesses of the first root."""
    reach("witnesses")
    evaluator = Evaluator(graph)
    if evaluator.graph.tallies:
        return _with_tallies(evaluator, limit, budget, extra)
    return _monotone(evaluator, limit, budget, extra)


def _monotone(evaluator: Evaluator, limit: int, budget: int, extra: int) -> WitnessList:
    graph = evaluator.graph
    root = int(graph.roots[0])
    if graph.variable[root] >= 0:
        return WitnessList([np.array([root], np.int32)][:limit], 1, True)
    variable = graph.variable.copy()
    variable[evaluator.absences] = -2
    if variable[root] == -2:
        return WitnessList([np.empty(0, np.int32)][:limit], 1, True)
    shape = (variable, graph.first, graph.head, graph.start, graph.body, *evaluator.uses)
    need = best_first.still_needed(root, *shape)
    starts, elements, complete, _ = best_first.best_first(root, *shape, need, limit, budget, extra)
    count, ends = len(starts) - 1, list(pairwise(starts.tolist()))
    if count > limit > 0:  # no more than can be among the first in order
        largest = np.partition(np.diff(starts), limit - 1)[limit - 1]
        ends = [(a, b) for a, b in ends if b - a <= largest]
    found = [np.sort(elements[a:b]) for a, b in ends]
    found.sort(key=lambda w: (len(w), w.tolist()))
    if complete or count >= limit:
        return WitnessList(found[:limit], count, complete)
    only = _only(evaluator)
    if only is not None:
        return WitnessList([only][:limit], 1, True)
    some = {tuple(w.tolist()): w for w in [*found, *_spare(evaluator, limit)]}
    ordered = sorted(some.values(), key=lambda w: (len(w), w.tolist()))
    return WitnessList(ordered[:limit], len(ordered), False, False)


def _only(evaluator: Evaluator) -> Ints | None:
    """Return the one witness, if there is only one: then and only then do the rows that all witnesses share suffice."""
    alive = np.ones(len(evaluator.graph.base), bool)
    some = find_tree(evaluator, alive)
    if some is None:
        return None
    shared = some[~evaluator.without_each(alive, some)]
    alone = np.zeros(len(alive), bool)
    alone[shared] = True
    return np.sort(evaluator.graph.base[shared]) if evaluator.holds(alone) else None


def _spare(evaluator: Evaluator, limit: int) -> list[Ints]:
    """Find some minimal witnesses: base rows are spared in several orders, the rows of earlier witnesses first. Only
    one, if there are too many base rows for that."""
    graph, rng = evaluator.graph, np.random.default_rng(0)
    if len(graph.base) > SPARED:
        kept = find_witness(evaluator, np.ones(len(graph.base), bool))
        return [] if kept is None else [graph.base[kept]]
    seen = np.zeros(len(graph.base))
    found: list[Ints] = []
    for _ in range(limit):
        kept = find_witness(
            evaluator, np.ones(len(graph.base), bool), np.argsort(-seen - rng.random(len(seen))).astype(np.int64)
        )
        if kept is None:
            break
        seen[kept] += 1
        found.append(graph.base[kept])
    return found


def find_witness(evaluator: Evaluator, alive: Bools, order: Codes | None = None) -> Ints | None:
    """Return the variables of a minimal witness of the first root among those alive; None if there is none. Variables
    are spared in the given order. For graphs without tallies."""
    if order is not None:  # halve what is spared as long as the root stands, then go on one at a time
        alive, block = alive.copy(), len(order)
        order = order[alive[order]]
        while block > 1:
            block = -(-block // 2)
            for i in range(0, len(order), block):
                trial = alive.copy()
                trial[order[i : i + block]] = False
                if evaluator.holds(trial):
                    alive = trial
    kept = find_tree(evaluator, alive)
    if kept is None:
        return None
    left = np.zeros(len(alive), bool)
    left[kept] = True
    for v in kept[evaluator.without_each(left, kept)]:  # what cannot be spared now cannot be later
        left[v] = False
        left[v] = not evaluator.holds(left)
    return np.flatnonzero(left).astype(np.int32)


def find_tree(evaluator: Evaluator, alive: Bools) -> Ints | None:
    """Return the variables of one derivation of the first root from those alive."""
    graph = evaluator.graph
    _, chosen = evaluator.derive(alive)
    root = int(graph.roots[0])
    if chosen[root] == -2:
        return None
    seen, todo = {root}, [root]
    while todo:
        n = todo.pop()
        for b in graph.bodies(int(chosen[n])).tolist() if chosen[n] >= 0 else ():
            if b not in seen:
                seen.add(b)
                todo.append(b)
    found = graph.variable[sorted(seen)]
    return found[found >= 0]


def order_by_derivation(graph: Derivations, witnesses: list[Ints]) -> list[Ints]:
    """Return the witnesses with the rows of each in the order of a derivation of the first root from them alone, left
    to right: the links of a path in the order of the path."""
    evaluator = Evaluator(graph)
    ready, root = evaluator.graph, int(evaluator.graph.roots[0])
    found = []
    for witness in witnesses:
        alive = np.zeros(len(ready.base), bool)
        alive[ready.variable[witness]] = True
        _, by = evaluator.derive(alive)
        if by[root] == -2:  # tallies want their whole body here: any derivation will do
            _, by = evaluator.full
        met = _visit(ready, root, by)
        place = {node: at for at, node in enumerate(met)}
        found.append(np.array(sorted(witness.tolist(), key=lambda n: (place.get(n, len(place)), n)), np.int32))
    return found


def _visit(graph: Derivations, root: int, by: Ints) -> list[int]:
    """Return the nodes of a derivation, each where it is first met from left to right; `by` has that of each node."""
    seen, todo = dict[int, None](), [root]
    while todo:
        node = todo.pop()
        if node not in seen:
            seen[node] = None
            if by[node] >= 0:
                todo += graph.bodies(int(by[node])).tolist()[::-1]
    return list(seen)


def _with_tallies(evaluator: Evaluator, limit: int, budget: int, extra: int) -> WitnessList:
    graph = evaluator.graph
    below = find_support(graph)
    if len(below) <= TRIED:
        sets = (np.arange(1 << len(below))[None, :] >> np.arange(len(below))[:, None] & 1).astype(bool)
        cases = np.zeros((len(graph.base), sets.shape[1]), bool)
        cases[below] = sets
        true = np.flatnonzero(evaluator.root(cases))
        true = true[np.argsort(np.bitwise_count(true), kind="stable")]
        minimal: list[int] = []
        while len(true):
            minimal.append(int(true[0]))
            true = true[true & minimal[-1] != minimal[-1]]
        found = [graph.base[below[np.flatnonzero(m >> np.arange(len(below)) & 1)]] for m in minimal]
        found.sort(key=lambda w: (len(w), w.tolist()))
        return WitnessList(found[:limit], len(found), True)
    whole = _monotone(Evaluator(replace(graph, tallies={})), limit, budget, extra)
    return replace(whole, complete=False, smallest=False)


def find_support(graph: Derivations) -> Ints:
    """Return the variables in some derivation below the first root."""
    depth = spread.depths(int(graph.roots[0]), graph.first, graph.start, graph.body)
    found: Ints = graph.variable[(depth >= 0) & (graph.variable >= 0)]
    return found
