"""Order the arcs of a network so that the frontier of its decision diagram stays narrow.

Vertices are placed one after another, each time the one next to the frontier that leaves the narrowest frontier.
Several starts are tried and the one whose frontiers promise the fewest states is taken. A variable is decided when the
last vertex it touches is placed.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

import numpy as np

from whence.explain.ask.simplify import System
from whence.explain.graph import Ints
from whence.model.budget import reach
from whence.model.codes import Codes

ROOT, GROUND = 0, 1
STARTS = 16


@dataclass(frozen=True)
class FrontierPlan:
    """What `kernels/frontier.py` goes by, and the variable of each step."""

    starts: Codes
    tails: Codes
    tops: Codes
    slot: Codes
    begin: Codes
    always: Codes
    variables: Ints
    width: int


def plan_frontier(equations: System, widest: int) -> FrontierPlan | None:
    """Order the variables of a system with at most one node per body; None if no frontier is narrow enough."""
    arcs = list_arcs(equations)
    near: dict[int, set[int]] = defaultdict(set)
    for pairs in arcs.values():
        ends = {v for pair in pairs for v in pair if v > GROUND}
        for v in ends:
            near[v] |= ends
    vertices = sorted(near)
    for v in vertices:
        near[v].discard(v)
    orders = [_grow(start, near, vertices, widest) for start in _starts(arcs, vertices)] if vertices else [[]]
    plans = [_lay(arcs, order) for order in orders if order is not None]
    found = min(plans, key=lambda p: p[0], default=(0.0, None))[1]
    return found if found is not None and found.width <= widest else None


def list_arcs(equations: System) -> dict[int, list[tuple[int, int]]]:
    """List the arcs of each variable, from head to body; a body with several variables is a chain of arcs. Arcs without
    a variable have the negative numbers."""
    number = {equations.root: ROOT}
    arcs: dict[int, list[tuple[int, int]]] = defaultdict(list)
    more = len(equations.bodies) + 2
    free = -1
    for n, bodies in sorted(equations.bodies.items()):
        for b in sorted(bodies, key=sorted):
            at = number.setdefault(n, len(number) + 1)
            nodes = [~v for v in b if v < 0]
            end = number.setdefault(nodes[0], len(number) + 1) if nodes else GROUND
            variables = sorted(v for v in b if v >= 0)
            if not variables:
                arcs[free].append((at, end))
                free -= 1
            for i, v in enumerate(variables):
                to = end if i == len(variables) - 1 else more
                more += to != end
                arcs[v].append((at, to))
                at = to
    return arcs


def _starts(arcs: dict[int, list[tuple[int, int]]], vertices: list[int]) -> list[int]:
    """Return vertices to begin with: next to the root, next to the ground, and some others."""
    pairs = [p for listed in arcs.values() for p in listed]
    first = [y for x, y in pairs if x == ROOT and y > GROUND][:2] + [x for x, y in pairs if y == GROUND and x > GROUND][
        :2
    ]
    others = vertices[:: max(1, len(vertices) // (STARTS - 4))] if len(vertices) < 400 else []
    return list(dict.fromkeys(first + others))


def _grow(start: int, near: dict[int, set[int]], vertices: list[int], widest: int) -> list[int] | None:
    """Order the vertices; None if some frontier is too wide."""
    reach()
    order: list[int] = []
    placed: set[int] = set()
    open_near = {v: len(near[v]) for v in vertices}  # neighbours not placed
    beside: dict[int, int] = {}  # vertices next to the frontier, and since when
    todo = dict.fromkeys([start, *vertices])
    wide = 0
    while todo:
        if beside:
            # what the frontier gains (the vertex, if it stays open) less what it closes
            pick = min(
                beside,
                key=lambda v: ((open_near[v] > 0) - sum(open_near[u] == 1 for u in near[v] if u in placed), beside[v]),
            )
            del beside[pick]
        else:
            pick = next(iter(todo))
        del todo[pick]
        placed.add(pick)
        order.append(pick)
        wide += (open_near[pick] > 0) - sum(open_near[u] == 1 for u in near[pick] if u in placed)
        if wide > widest:
            return None
        for u in near[pick]:
            open_near[u] -= 1
            if u not in placed:
                beside.setdefault(u, len(order))
    return order


def _lay(arcs: dict[int, list[tuple[int, int]]], order: list[int]) -> tuple[float, FrontierPlan]:
    """Return the cost that an order of vertices promises, and its plan."""
    place = {v: i for i, v in enumerate(order)} | {ROOT: -1, GROUND: -1}
    ends = {v: [e for pair in pairs for e in pair] for v, pairs in arcs.items()}
    variables = sorted(arcs, key=lambda v: (sorted((place[e] for e in ends[v]), reverse=True), v))
    last: dict[int, int] = {}
    for k, v in enumerate(variables):
        for e in ends[v]:
            last[e] = k
    closing: dict[int, list[int]] = defaultdict(list)
    for e, k in last.items():
        closing[k].append(e)
    width = 2
    slot, begin = np.zeros((2, max(last) + 2), np.int64)
    slot[GROUND] = 1
    slots, free = {ROOT, GROUND}, list[int]()
    cost = 0.0
    for k, v in enumerate(variables):
        for e in ends[v]:
            if e not in slots:
                slots.add(e)
                if not free:
                    free.append(width)
                    width += 1
                slot[e], begin[e] = free.pop(), k
        cost += 2.5 ** min(len(slots), 300)
        for e in closing[k]:
            if e > GROUND:
                slots.discard(e)
                free.append(int(slot[e]))
    pairs = [pair for v in variables for pair in arcs[v]]
    tails, tops = np.array(pairs, np.int64).T.copy()
    starts = np.cumsum([0, *(len(arcs[v]) for v in variables)]).astype(np.int64)
    always = np.array([v < 0 for v in variables], np.int64)
    return cost, FrontierPlan(starts, tails, tops, slot, begin, always, np.array(variables, np.int32), width)
