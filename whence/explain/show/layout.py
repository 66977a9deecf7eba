"""Lay out a drawing of rows and steps: layers from the row that was asked for down to base rows.

A drawing has a mark for each row and one for each derivation, and edges from a head through its derivation to its body.
Edges that close a cycle are turned around; then a mark lies one layer below the last of those above it, an edge over
several layers passes through bends in between, and the order inside a layer is improved by sweeps that move marks to
the middle of their neighbours. All of it is fast enough for a few hundred marks; of a graph with more a part is chosen.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from itertools import islice, pairwise

from whence.explain.graph import Derivations
from whence.explain.show.choose import Chosen

MOST = 1_200  # marks in the drawing of a whole graph; a page folds most of them at first
_SWEEPS = 12
_WIDTH = 7.2  # of a letter, at the page's size of text
_GAP = 18.0  # between two marks of a layer
_LONGEST = 42  # letters of a label


@dataclass
class Mark:
    """A row or a derivation in the drawing, or a bend of an edge; `wide` across the layer, in pixels."""

    kind: str  # base, absence, view, inner; step; bend
    label: str
    item: int  # the node or derivation; -1 for a bend
    wide: float
    layer: int = 0
    x: float = 0.0
    up: list[int] = field(default_factory=list)
    down: list[int] = field(default_factory=list)


@dataclass(frozen=True)
class Edge:
    """From a mark to one below it, through bends; `back` if it closes a cycle and so points the other way."""

    source: int
    target: int
    through: tuple[int, ...]
    back: bool


@dataclass
class Drawing:
    """Marks with their places, and edges."""

    marks: list[Mark]
    edges: list[Edge]
    layers: list[list[int]]
    sideways: bool  # layers are columns, from left to right
    whole: bool

    @property
    def width(self) -> float:
        """Return the extent across the layers."""
        return max((m.x + m.wide / 2 for m in self.marks), default=0.0) + _GAP


def draw(graph: Derivations, chosen: Chosen) -> Drawing:
    """Draw a part of a graph. The first node is the root."""
    marks: list[Mark] = []
    row, step = dict[int, int](), dict[int, int]()
    for n, name in zip(chosen.nodes, graph.labels(chosen.nodes), strict=True):
        row[n] = len(marks)
        label = short(name)
        marks.append(Mark(graph.kind(n), label, n, len(label) * _WIDTH + 26))
    for d in chosen.derivations:
        step[d] = len(marks)
        marks.append(Mark("step", graph.steps[graph.step[d]].text, d, 26))
    arcs = [(row[int(graph.head[d])], step[d]) for d in chosen.derivations]
    arcs += [(step[d], row[n]) for d in chosen.derivations for n in chosen.derivations[d]]
    back = _back_arcs(len(marks), arcs)
    _assign_layers(marks, [(b, a) if i in back else (a, b) for i, (a, b) in enumerate(arcs)])
    widest = _widest(marks)
    sideways = widest > 1500
    if sideways:
        for mark in marks:
            mark.wide = 34
    edges = [_edge(marks, a, b, i in back) for i, (a, b) in enumerate(arcs)]
    layers: list[list[int]] = [[] for _ in range(1 + max((m.layer for m in marks), default=0))]
    for i, mark in enumerate(marks):
        layers[mark.layer].append(i)
    _order(marks, layers)
    _place(marks, layers)
    return Drawing(marks, edges, layers, sideways, chosen.whole)


def short(label: str) -> str:
    """
    >>> short("link(A, B)"), len(short("x" * 100))
    ('link(A, B)', 42)
    """
    label = " ".join(label.split())
    return label if len(label) <= _LONGEST else label[: _LONGEST - 1] + "…"


def _back_arcs(count: int, arcs: list[tuple[int, int]]) -> set[int]:
    """Find the arcs that lead back to a mark that is being gone through, depth first from the first mark."""
    out: list[list[tuple[int, int]]] = [[] for _ in range(count)]
    for i, (a, b) in enumerate(arcs):
        out[a].append((i, b))
    state, back = [0] * count, set[int]()
    for begin in range(count):
        if state[begin]:
            continue
        state[begin] = 1
        stack = [(begin, iter(out[begin]))]
        while stack:
            node, rest = stack[-1]
            for i, b in rest:
                if state[b] == 1:
                    back.add(i)
                elif not state[b]:
                    state[b] = 1
                    stack.append((b, iter(out[b])))
                    break
            else:
                state[node] = 2
                stack.pop()
    return back


def _assign_layers(marks: list[Mark], arcs: list[tuple[int, int]]) -> None:
    """Put each mark one below the last of those above it. The arcs have no cycles."""
    above = [0] * len(marks)
    out: list[list[int]] = [[] for _ in marks]
    for a, b in arcs:
        above[b] += 1
        out[a].append(b)
    ready = deque(i for i, n in enumerate(above) if not n)
    while ready:
        a = ready.popleft()
        for b in out[a]:
            marks[b].layer = max(marks[b].layer, marks[a].layer + 1)
            above[b] -= 1
            if not above[b]:
                ready.append(b)


def _widest(marks: list[Mark]) -> float:
    total: dict[int, float] = {}
    for mark in marks:
        total[mark.layer] = total.get(mark.layer, 0.0) + mark.wide + _GAP
    return max(total.values(), default=0.0)


def _edge(marks: list[Mark], a: int, b: int, back: bool) -> Edge:
    """Return an edge, with a bend in every layer that it passes."""
    top, bottom = (a, b) if marks[a].layer <= marks[b].layer else (b, a)
    chain = [top]
    for layer in range(marks[top].layer + 1, marks[bottom].layer):
        marks.append(Mark("bend", "", -1, 8, layer))
        chain.append(len(marks) - 1)
    chain.append(bottom)
    for upper, lower in pairwise(chain):
        marks[upper].down.append(lower)
        marks[lower].up.append(upper)
    bends = tuple(chain[1:-1])
    return Edge(a, b, bends if top == a else bends[::-1], back)


def _order(marks: list[Mark], layers: list[list[int]]) -> None:
    """Sweep down and up: inside a layer marks are sorted by the middle of their neighbours in the one before."""
    place = {i: float(at) for layer in layers for at, i in enumerate(layer)}
    for sweep in range(_SWEEPS):
        down = sweep % 2 == 0
        for layer in layers[1:] if down else layers[-2::-1]:
            middle = {}
            for i in layer:
                near = marks[i].up if down else marks[i].down
                middle[i] = sum(place[n] for n in near) / len(near) if near else place[i]
            layer.sort(key=lambda i: (middle[i], place[i]))
            for at, i in enumerate(layer):
                place[i] = at * max(len(layers[0]), 1) if len(layer) == 1 else float(at)
    for layer in layers:
        for at, i in enumerate(layer):
            marks[i].x = float(at)


def _place(marks: list[Mark], layers: list[list[int]]) -> None:
    """Compute coordinates across the layers: near the middle of the neighbours, without overlapping."""
    for layer in layers:
        at = 0.0
        for i in layer:
            marks[i].x = at + marks[i].wide / 2
            at += marks[i].wide + _GAP
    for sweep in range(2 * _SWEEPS):
        down = sweep % 2 == 0
        for layer in layers if down else layers[::-1]:
            near = [(marks[i].up if down else marks[i].down) or [i] for i in layer]
            _settle(marks, layer, [sum([marks[n].x for n in some]) / len(some) for some in near])
    left = min((m.x - m.wide / 2 for m in marks), default=0.0) - _GAP
    for mark in marks:
        mark.x -= left


def _settle(marks: list[Mark], layer: list[int], wished: list[float]) -> None:
    """Place marks of a layer nearest to where they should be, keeping their order and their distance.

    Marks that would overlap are put together in a block, which stands where its marks wish to be in the mean."""
    blocks: list[tuple[float, int, float]] = []  # sum of wishes for its beginning, how many marks, how wide
    for i, wish in zip(layer, wished, strict=True):
        wide = marks[i].wide + _GAP
        total, count = wish - wide / 2, 1
        while blocks and blocks[-1][0] / blocks[-1][1] + blocks[-1][2] > total / count:
            before, others, had = blocks.pop()
            total, count, wide = before + total - count * had, others + count, had + wide
        blocks.append((total, count, wide))
    at = iter(layer)
    for total, count, _ in blocks:
        begin = total / count
        for i in islice(at, count):
            marks[i].x = begin + (marks[i].wide + _GAP) / 2
            begin += marks[i].wide + _GAP
