"""The function of a row as people write it: `link(A, B) ∧ (link(B, C) ∨ link(B, D) ∧ link(D, C))`.

If the minimal witnesses are few it is their disjunction, from which common rows are taken out. Else the cone is
simplified to modules, conjunctions and disjunctions of base rows that occur nowhere else (`simplify.py`), of which the
same is written. When that gets too long it is the disjunction of the smallest witnesses, and ends in `…`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any, Literal

import numpy as np

from whence.explain.ask.evaluate import Evaluator
from whence.explain.ask.simplify import System, build_system, simplify
from whence.explain.ask.witnesses import WitnessList, find_witnesses
from whence.explain.graph import Derivations
from whence.explain.kernels import best_first, spread
from whence.model.codes import Codes

LONGEST = 200  # base rows in a formula, each time it is written
SHOWN = 10  # witnesses of a formula that would be longer
LARGE = 1000  # derivations that are simplified for it
_BUDGET = 200_000


@dataclass(frozen=True)
class Expression:
    """A base row (its node), all or one of some parts, or `more`: what was left out of a disjunction."""

    kind: Literal["row", "and", "or", "more"]
    parts: tuple[Expression, ...] = ()
    node: int = -1

    @cached_property
    def size(self) -> int:
        """Count base rows, each time they are written."""
        return 1 if self.kind == "row" else sum(p.size for p in self.parts)

    @property
    def complete(self) -> bool:
        return self.kind != "more" and all(p.complete for p in self.parts)

    def nodes(self) -> Iterator[int]:
        """Yield base rows, each time they are written."""
        if self.kind == "row":
            yield self.node
        for part in self.parts:
            yield from part.nodes()

    def text(self, names: Callable[[int], str]) -> str:
        """Write the expression. True is ⊤, the conjunction of nothing; false is ⊥."""
        if self.kind == "row":
            return names(self.node)
        if self.kind == "more":
            return "…"
        if not self.parts:
            return "⊤" if self.kind == "and" else "⊥"
        if self.kind == "or":
            return " ∨ ".join(p.text(names) for p in self.parts)
        return " ∧ ".join(f"({p.text(names)})" if p.kind == "or" else p.text(names) for p in self.parts)

    def json(self, names: Callable[[int], str]) -> Any:
        """Return lists that begin with their kind; base rows are their names."""
        if self.kind == "row":
            return names(self.node)
        return [self.kind, *(p.json(names) for p in self.parts)]


def write_formula(
    graph: Derivations,
    names: Callable[[int], str] | None = None,
    longest: int = LONGEST,
    known: WitnessList | None = None,
) -> str:
    """Write the first root's formula, base rows by these names or their labels; `known` are its witnesses, if at
    hand."""
    found = build_expression(graph, longest, known)
    if names is None:
        nodes = list(found.nodes())
        names = dict(zip(nodes, graph.labels(nodes), strict=True)).__getitem__
    return found.text(names)


def build_expression(graph: Derivations, longest: int = LONGEST, known: WitnessList | None = None) -> Expression:
    """Return the first root's formula as a tree."""
    evaluator = Evaluator(graph)
    ready = evaluator.graph
    depth = spread.depths(int(ready.roots[0]), ready.first, ready.start, ready.body)
    some = find_witnesses(graph, SHOWN) if known is None else known
    if some.complete and some.count == len(some.found):
        rows = {int(n): Expression("row", (), int(n)) for w in some.found for n in w}
        found: Expression | None = _factored([frozenset(w.tolist()) for w in some.found], rows, depth)
    else:
        found = _simplified(evaluator, longest, depth)
    if found is not None and found.size <= longest:
        return found
    return _cut_short([_of("and", (Expression("row", (), n) for n in w.tolist()), depth) for w in some.found], longest)


def _cut_short(witnesses: list[Expression], longest: int) -> Expression:
    """Return the first witnesses, or the first rows of the first, if that alone is too long."""
    shown: list[Expression] = []
    for part in witnesses[:SHOWN]:
        if sum(p.size for p in shown) + part.size > longest:
            break
        shown.append(part)
    more = Expression("more")
    if witnesses and not shown:
        return Expression("and", (*witnesses[0].parts[:longest], more))
    return Expression("or", (*shown, more))


def _simplified(evaluator: Evaluator, longest: int, depth: Codes) -> Expression | None:
    """Build the expression by modules; None if there is too much to simplify or to write."""
    if evaluator.graph.tallies or len(evaluator.graph.head) > LARGE:
        return None
    equations = simplify(build_system(evaluator))
    sets = _core(equations, longest)
    if sets is None:
        return None
    rows = {v: Expression("row", (), int(n)) for v, n in enumerate(evaluator.graph.base)}
    for i, module in enumerate(equations.modules):
        rows[equations.rows + i] = _of(module.kind, (rows[p] for p in module.parts), depth)
    return _factored([frozenset(s) for s in sets], rows, depth)


def _core(equations: System, longest: int) -> list[list[int]] | None:
    """Return the minimal witnesses of a simplified system, as variables; None if there are too many."""
    if equations.constant is not None:
        return [[]] if equations.constant else []
    variables = equations.variables
    place = {v: i for i, v in enumerate(variables)}
    place |= {~n: len(variables) + i for i, n in enumerate(sorted(equations.bodies))}
    listed = [(place[~n], [place[v] for v in b]) for n in sorted(equations.bodies) for b in equations.bodies[n]]
    head = np.array([h for h, _ in listed], np.int32)
    start = np.cumsum([0, *(len(b) for _, b in listed)]).astype(np.int64)
    body = np.array([n for _, b in listed for n in b], np.int32)
    variable = np.full(len(place), -1, np.int32)
    variable[: len(variables)] = np.arange(len(variables))
    first = np.searchsorted(head, np.arange(len(place) + 1)).astype(np.int64)
    root = place[~equations.root]
    shape = (variable, first, head, start, body, *spread.uses(len(place), start, body))
    need = best_first.still_needed(root, *shape)
    starts, elements, complete, _ = best_first.best_first(root, *shape, need, longest, _BUDGET, _BUDGET)
    if not complete or len(starts) > longest + 1:
        return None
    return [[variables[e] for e in elements[a:b]] for a, b in pairwise(starts.tolist())]


def _factored(sets: list[frozenset[int]], rows: dict[int, Expression], depth: Codes) -> Expression:
    """Return the disjunction of conjunctions, with what is common to some of them taken out, the most common first."""
    if len(sets) < 2:
        return _of("and", (rows[v] for v in sets[0]), depth) if sets else Expression("or")
    shared = frozenset.intersection(*sets)
    if shared:
        rest = _factored([s - shared for s in sets], rows, depth)
        return _of("and", [*(rows[v] for v in shared), rest], depth)
    counts = Counter(v for s in sets for v in s)
    common, many = max(counts.items(), key=lambda c: (c[1], -c[0]))
    if many == 1:
        return _of("or", (_of("and", (rows[v] for v in s), depth) for s in sets), depth)
    with_it = _factored([s for s in sets if common in s], rows, depth)
    return _of("or", [with_it, _factored([s for s in sets if common not in s], rows, depth)], depth)


def _of(kind: Literal["and", "or"], parts: Iterable[Expression], depth: Codes) -> Expression:
    """Join parts. Those of the same kind are taken apart; in a conjunction what is close to the root stands first, in a
    disjunction what is short."""
    flat: list[Expression] = []
    for part in parts:
        flat += part.parts if part.kind == kind else [part]
    if len(flat) == 1:
        return flat[0]
    nearest = {id(p): _nearest(p, depth) for p in flat}
    flat.sort(key=lambda p: nearest[id(p)] if kind == "and" else (p.size, *nearest[id(p)]))
    return Expression(kind, tuple(flat))


def _nearest(part: Expression, depth: Codes) -> tuple[int, int]:
    if part.kind == "row":
        return int(depth[part.node]), part.node
    return min((_nearest(p, depth) for p in part.parts), default=(0, 0))
