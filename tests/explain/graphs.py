"""Graphs of derivations built by hand or at random, and what brute force says of them."""

from __future__ import annotations

from functools import reduce
from operator import and_
from typing import Any

import numpy as np
from hypothesis import strategies as st

from whence.explain.graph import DerivationRule, Derivations, GraphRelation, Tally
from whence.model.codes import Dictionary
from whence.model.types import BIGINT, Column, Schema

ONE = Schema((Column("n", BIGINT),))


def build(
    base: int,
    derivations: list[tuple[int, list[int]]],
    roots: list[int],
    absences: int = 0,
    tallies: dict[int, Tally] | None = None,
    nodes: int | None = None,
) -> Derivations:
    """Nodes 0 to base - 1 are base rows, then come absences, then derived rows."""
    size = nodes or 1 + max([base + absences - 1, *roots, *(n for h, b in derivations for n in (h, *b))])
    derivations = sorted(derivations, key=lambda d: d[0])
    kinds = np.array([0] * base + [1] * absences + [2] * (size - base - absences), np.int32)
    place = np.concatenate([np.arange(base), np.arange(absences), np.arange(size - base - absences)]).astype(np.int32)
    return Derivations(
        relations=[
            GraphRelation("b", "base", ONE),
            GraphRelation("a", "absence", ONE),
            GraphRelation("v", "view", ONE),
        ],
        relation=kinds,
        place=place,
        cells=[np.arange(n, dtype=np.int64)[:, None] for n in (base, absences, size - base - absences)],
        steps=[DerivationRule("v", "v <- ...")],
        head=np.array([h for h, _ in derivations], np.int32),
        step=np.zeros(len(derivations), np.int32),
        start=np.concatenate([[0], np.cumsum([len(b) for _, b in derivations])]).astype(np.int64),
        body=np.array([n for _, b in derivations for n in b], np.int32),
        roots=np.array(roots, np.int32),
        dictionary=Dictionary(),
        tallies=tallies or {},
    )


def reachable(arcs: list[tuple[Any, Any]], s: Any, t: Any) -> Derivations:
    """The cone of reachable(s, t) under r(x, y) <- link(x, y) and r(x, y) <- link(x, z), r(z, y)."""
    out: dict[Any, list[int]] = {}
    for i, (x, _) in enumerate(arcs):
        out.setdefault(x, []).append(i)
    number = {s: len(arcs)}
    todo, derivations = [s], []
    good = reaching(arcs, t)
    while todo:
        x = todo.pop()
        for i in out.get(x, []):
            y = arcs[i][1]
            if y == t:
                derivations.append((number[x], [i]))
            if y in good:
                if y not in number:
                    number[y] = len(arcs) + len(number)
                    todo.append(y)
                derivations.append((number[x], [i, number[y]]))
    return build(len(arcs), derivations, [len(arcs)])


def reaching(arcs: list[tuple[Any, Any]], t: Any) -> set[Any]:
    """The nodes with a path of at least one arc to t."""
    into: dict[Any, list[Any]] = {}
    for x, y in arcs:
        into.setdefault(y, []).append(x)
    found: set[Any] = set()
    todo = [t]
    while todo:
        for x in into.get(todo.pop(), []):
            if x not in found:
                found.add(x)
                todo.append(x)
    return found


def aggregate(function: str, values: list[Any]) -> Any:
    match function:
        case "count":
            return len(values)
        case "sum":
            return sum(values) if values else None
        case "avg":
            return sum(values) / len(values) if values else None
        case "min":
            return min(values, default=None)
        case _:
            return max(values, default=None)


def result(tally: Tally, there: list[bool]) -> Any:
    """The aggregates over the elements that are there, by the book; None if there is none."""
    if tally.values and not any(there):
        return None
    found = []
    for i, (function, distinct) in enumerate(tally.functions):
        values = [
            v[i]
            for v, w, t in zip(tally.values, tally.weights, there, strict=True)
            if t and v[i] is not None
            for _ in range(int(w))
        ]
        found.append(aggregate(function, sorted(set(values)) if distinct else values))
    return tuple(found)


def meanings(graph: Derivations) -> list[int]:
    """Of each node the cases in which it is there, as bits; variable v is there in the cases whose bit v is set. The
    least fixpoint by the book: tallies are settled in order of their number, when all below them are."""
    cases = 1 << len(graph.base)
    there = [(1 << cases) - 1 if graph.kind(n) == "absence" else 0 for n in range(len(graph))]
    for v, n in enumerate(graph.base):
        there[n] = sum(1 << c for c in range(cases) if c >> v & 1)
    bodies = [graph.bodies(d).tolist() for d in range(len(graph.head))]
    for settled in [*sorted(graph.tallies), None]:
        changed = True
        while changed:
            changed = False
            for head, body in zip(graph.head.tolist(), bodies, strict=True):
                if head in graph.tallies:
                    continue
                now = there[head] | reduce(and_, (there[n] for n in body), (1 << cases) - 1)
                changed |= now != there[head]
                there[head] = now
        if settled is not None:
            tally, elements = graph.tallies[settled], bodies[int(graph.first[settled])]
            was = result(tally, [True] * len(elements))
            kept = (c for c in range(cases) if result(tally, [bool(there[n] >> c & 1) for n in elements]) == was)
            there[settled] = sum(1 << c for c in kept)
    return there


def table(graph: Derivations) -> dict[tuple[bool, ...], bool]:
    """The whole function of the first root."""
    root, rows = meanings(graph)[int(graph.roots[0])], len(graph.base)
    return {tuple(bool(c >> v & 1) for v in range(rows)): bool(root >> c & 1) for c in range(1 << rows)}


def minimal(function: dict[tuple[bool, ...], bool]) -> set[frozenset[int]]:
    """The minimal sets of variables that suffice."""
    true = sorted((frozenset(i for i, v in enumerate(a) if v) for a, held in function.items() if held), key=len)
    found: set[frozenset[int]] = set()
    for s in true:
        if not any(m <= s for m in found):
            found.add(s)
    return found


@st.composite
def graphs(draw: st.DrawFn, most: int = 7, tallies: bool = False) -> Derivations:
    """Random graphs whose nodes are all there when nothing is lost: circles, long bodies, absences; the last few nodes
    are tallied, if asked for, and never in circles."""
    base = draw(st.integers(1, most))
    absences = draw(st.integers(0, 1))
    derived = draw(st.integers(1, 6))
    leaves = base + absences
    size = leaves + derived
    derivations: list[tuple[int, list[int]]] = []
    for n in range(leaves, size):
        body = draw(st.lists(st.integers(0, n - 1), min_size=1, max_size=3, unique=True))
        derivations.append((n, body))
    for _ in range(draw(st.integers(0, 8))):
        head = draw(st.integers(leaves, size - 1))
        derivations.append((head, draw(st.lists(st.integers(0, size - 1), max_size=3, min_size=1))))
    found: dict[int, Tally] = {}
    last = size - 1
    for _ in range(draw(st.integers(1, 2)) if tallies else 0):
        node, size = size, size + 1
        body = draw(st.lists(st.integers(0, node - 1), min_size=1, max_size=5))
        functions = draw(
            st.lists(
                st.tuples(st.sampled_from(["sum", "sum", "avg", "count", "min", "max"]), st.booleans()),
                min_size=1,
                max_size=2,
            )
        )
        values = tuple(tuple(draw(st.sampled_from([-1, 1, 2, None, 0])) for _ in functions) for _ in body)
        weights = np.array([draw(st.integers(1, 2)) for _ in body], np.int64)
        found[node] = Tally(tuple(functions), weights, values)
        derivations.append((node, body))
        last = size
        size += 1
        derivations.append((last, [node, draw(st.integers(0, node - 1))]))
        if draw(st.booleans()):
            derivations.append((last, [draw(st.integers(0, node - 1))]))
    root = last if tallies else draw(st.integers(leaves, size - 1))
    return build(base, derivations, [root], absences, found, size)
