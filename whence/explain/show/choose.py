"""Choose the part of a graph that is shown, when it is too large to be read.

The law: the smallest derivation of the row that was asked for comes first, whole unless it is `_LONG` times the room,
or `_LONGEST`: then the part near the row. After it come other ways, the smallest and those near the row first, each
with all that it needs, as long as there is room.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np

from whence.explain.ask.evaluate import Evaluator
from whence.explain.graph import Derivations, Ints
from whence.explain.kernels import least, spread
from whence.model.codes import Codes

_SHARE = 5  # a body may fill one part in so many of the room
_LONG = 10  # so many times the room is the most of one derivation,
_LONGEST = 2_400  # and no more than this


@dataclass(frozen=True)
class Chosen:
    """Nodes, the root first; derivations, each with the part of its body that is shown; and whether that is all."""

    nodes: list[int]
    derivations: dict[int, list[int]]
    whole: bool


@dataclass
class Ways:
    """The derivations of a graph's nodes, those that need least first."""

    graph: Derivations
    _cost: Codes = field(init=False)  # of each derivation
    _known: dict[int, list[int]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        graph = self.graph
        uses = spread.uses(len(graph), graph.start, graph.body)
        self._cost = least.costs(graph.first, graph.head, graph.start, graph.body, *uses)

    def of(self, node: int) -> list[int]:
        found = self._known.get(node)
        if found is None:
            mine = self.graph.derivations_of(node)
            order = np.argsort(self._cost[mine.start : mine.stop], kind="stable")
            found = self._known[node] = [mine[i] for i in order.tolist()]
        return found


def choose(ways: Ways, root: int, room: int, each: int | None = None) -> Chosen:
    """Choose a part of some `room` nodes and derivations, with at most `each` ways of each node."""
    nodes, taken = {root: None}, dict[int, list[int]]()
    waiting = [(0, 0, root, 0)]  # steps from the root and ways chosen together; steps; a node; how many are chosen
    whole = True
    while waiting:
        _, depth, node, done = heapq.heappop(waiting)
        if done >= len(ways.of(node)):
            continue
        new_nodes, new = _closed(ways, ways.of(node)[done], nodes, max(8, room // _SHARE), min(_LONG * room, _LONGEST))
        if taken and (done == each or len(nodes) + len(taken) + len(new_nodes) + len(new) > room):
            whole = False
            continue
        nodes |= dict.fromkeys(new_nodes)
        taken |= new
        heapq.heappush(waiting, (depth + done + 1, depth, node, done + 1))
        for n in new_nodes:
            if ways.graph.derivations_of(n):
                heapq.heappush(waiting, (depth + 2, depth + 1, n, 1))
    whole = whole and all(ways.of(n)[0] in taken for n in nodes if ways.graph.derivations_of(n))
    whole = whole and all(len(body) == len(set(ways.graph.bodies(d).tolist())) for d, body in taken.items())
    return Chosen(list(nodes), taken, whole)


def behind(graph: Derivations, root: int, witnesses: Iterable[Ints], room: int) -> Chosen:
    """Choose a derivation of the root from each of some witnesses alone, as many as there is room for. Without
    tallies."""
    evaluator = Evaluator(graph)
    nodes, taken = {root: None}, dict[int, list[int]]()
    for witness in witnesses:
        if len(nodes) + len(taken) > room:
            break
        alive = np.zeros(len(graph.base), bool)
        alive[graph.variable[witness]] = True
        _, by = evaluator.derive(alive)
        todo = deque([root])
        seen = {root}
        while todo:
            n = todo.popleft()
            nodes[n] = None
            if len(nodes) + len(taken) > min(_LONG * room, _LONGEST):
                continue
            if by[n] >= 0:
                body = taken[int(by[n])] = list(dict.fromkeys(graph.bodies(int(by[n])).tolist()))
                todo += [b for b in body if b not in seen]
                seen.update(body)
    return Chosen(list(nodes), taken, False)


def _closed(
    ways: Ways, derivation: int, there: dict[int, None], most: int, room: int
) -> tuple[list[int], dict[int, list[int]]]:
    """Return a derivation, and all that its body needs in the smallest way: the nodes and derivations that are new. Of
    a body `most` rows, and no further down when there is no room."""
    nodes, found, todo = dict[int, None](), dict[int, list[int]](), deque([derivation])
    while todo:
        d = todo.popleft()
        found[d] = list(dict.fromkeys(ways.graph.bodies(d).tolist()))[:most]
        for n in found[d]:
            if n not in there and n not in nodes:
                nodes[n] = None
                if ways.graph.derivations_of(n) and len(nodes) + len(found) < room:
                    todo.append(ways.of(n)[0])
    return list(nodes), found
