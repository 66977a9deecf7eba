"""Simplify the equations of a row: drop everything that cannot matter.

A `System` has a set of bodies for each node; a body is a set of variables (from 0 on) and nodes (`~n`, below 0). All
rewrites keep the function of the root, the least fixpoint:

    a body that includes another of its head, or its head, goes         absorption; mu x. f(x) = f(0)
    a body of x with y in it goes if x only matters through y           y has a derivation without itself
    a body of x with y in it goes if y is only derived through x        (in systems with one node a body)
    a node is put in place of its uses if bodies get no longer in all    elimination
    variables that occur only together become one                       their conjunction
    variables that occur in the same places, never together, too        their disjunction

The last two give variables that are modules: conjunctions and disjunctions of base rows that occur nowhere else. For a
probability alone (`pair`) two more variables are as good as one: when a occurs only in one body of x with y, b only in
one body of y with x, and they are equally likely. For with everything else fixed, of the two bodies at most one can add
anything, namely that of the node which is not there without them.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from whence.explain.ask.evaluate import Evaluator
from whence.explain.graph import Ints
from whence.explain.kernels import diagram
from whence.model.budget import reach
from whence.model.codes import Codes

Body = frozenset[int]
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Module:
    """A variable made of others: all of them, or one of them."""

    kind: Literal["and", "or"]
    parts: tuple[int, ...]


@dataclass
class System:
    """Equations of a root. Variables below `rows` are base rows, the others are modules of smaller ones."""

    root: int
    rows: int
    bodies: dict[int, set[Body]]
    modules: list[Module] = field(default_factory=list)
    tallied: dict[int, tuple[int, ...]] = field(default_factory=dict)  # the elements of each
    _arrays: tuple[Codes, Codes, Codes] | None = None

    @property
    def variables(self) -> list[int]:
        found = {v for bodies in self.bodies.values() for b in bodies for v in b if v >= 0}
        return sorted(found)

    @property
    def linear(self) -> bool:
        return not self.tallied and all(sum(v < 0 for v in b) <= 1 for bodies in self.bodies.values() for b in bodies)

    @property
    def constant(self) -> bool | None:
        """Return the value of the root if it does not depend on anything."""
        if self.root in self.tallied:
            return None
        own = self.bodies.get(self.root, set())
        return False if not own else True if frozenset() in own else None

    def probabilities(self, given: Floats) -> Floats:
        """Compute the probabilities of all variables from those of the base rows."""
        found = np.empty(self.rows + len(self.modules))
        found[: self.rows] = given
        diagram.up(self.rows, *self._listed(), found)
        return found

    def gradient(self, probabilities: Floats, outer: Floats) -> Floats:
        """Compute how the root's probability changes with each base row's, from how it does with each variable's."""
        found = outer.copy()
        all_of, start, parts = self._listed()
        room = np.empty(int(np.diff(start).max(initial=0)))
        diagram.down(self.rows, all_of, start, parts, probabilities, found, room)
        return found[: self.rows]

    def _listed(self) -> tuple[Codes, Codes, Codes]:
        """Return the modules as arrays: whether each is a conjunction, and where its parts are in a list of all."""
        if self._arrays is None or len(self._arrays[0]) != len(self.modules):
            start = np.cumsum([0, *(len(m.parts) for m in self.modules)]).astype(np.int64)
            parts = np.array([p for m in self.modules for p in m.parts], np.int64)
            self._arrays = np.array([m.kind == "and" for m in self.modules], np.int64), start, parts
        return self._arrays


def build_system(evaluator: Evaluator, certain: Ints | None = None, impossible: Ints | None = None) -> System:
    """Build the equations of the first root; the certain variables are there, the impossible ones are not."""
    graph = evaluator.graph
    root = int(graph.roots[0])
    sure = set() if certain is None else set(certain.tolist())
    never = set() if impossible is None else set(impossible.tolist())
    variable, absent = graph.variable.tolist(), evaluator.absences.tolist()
    first, start, body = graph.first.tolist(), graph.start.tolist(), graph.body.tolist()
    found = System(root, len(graph.base), {})
    if variable[root] >= 0:
        v = variable[root]
        found.bodies[root] = {frozenset()} if v in sure else set() if v in never else {frozenset([v])}
        return found
    todo, seen = [root], {root}
    while todo:
        n = todo.pop()
        bodies: set[Body] = set()
        for d in range(first[n], first[n + 1]):
            items = body[start[d] : start[d + 1]]
            for b in items:
                if variable[b] < 0 and not absent[b] and b not in seen:
                    seen.add(b)
                    todo.append(b)
            if n in graph.tallies:
                found.tallied[n] = tuple(variable[b] if variable[b] >= 0 else ~b for b in items)
            elif not any(variable[b] in never for b in items):
                bodies.add(
                    frozenset(
                        variable[b] if variable[b] >= 0 else ~b
                        for b in items
                        if not absent[b] and variable[b] not in sure
                    )
                )
        if n not in found.tallied and not absent[n]:
            found.bodies[n] = bodies
    if absent[root]:
        found.bodies[root] = {frozenset()}
    return found


def simplify(given: System, pair: Floats | None = None) -> System:
    """Simplify a system as far as the rewrites go; systems with tallies are left as they are. With `pair`, the
    probabilities of base rows, only the root's probability is kept."""
    if given.tallied:
        return given
    before = None
    _absorb(given)
    while before != (now := _size(given)):
        before = now
        reach(f"simplifying: {now[1]:,} derivations of {now[0]:,} rows")
        _go_round(given)
        if pair is not None:
            _pair(given, pair)
        for rewrite in (_eliminate, _together, _side_by_side):
            reach()
            if rewrite(given):
                _absorb(given)
    return given


def _size(given: System) -> tuple[int, int, int, int]:
    bodies = [b for own in given.bodies.values() for b in own]
    return len(given.bodies), len(bodies), sum(map(len, bodies)), len(given.variables)


def _absorb(given: System) -> None:
    """Drop bodies that include another, and nodes that cannot be derived or do not matter."""
    root = given.root
    for i, (n, bodies) in enumerate(given.bodies.items()):
        if i % 256 == 0:
            reach()
        given.bodies[n] = _least([b for b in bodies if ~n not in b and ~root not in b])
    _derivable(given)
    seen, todo = {root}, [root]
    while todo:
        for b in given.bodies.get(todo.pop(), ()):
            for v in b:
                if v < 0 and ~v not in seen:
                    seen.add(~v)
                    todo.append(~v)
    given.bodies = {n: b for n, b in given.bodies.items() if n in seen}


def _least(bodies: list[Body]) -> set[Body]:
    """Keep the sets that include no other. Each is looked for by the member it shares with the fewest."""
    if len(bodies) < 2:
        return set(bodies)
    often = Counter(v for b in bodies for v in b)
    kept: dict[int, list[Body]] = defaultdict(list)
    for b in sorted(bodies, key=len):
        if not b:
            return {b}
        if not any(k <= b for v in b for k in kept.get(v, ())):
            kept[min(b, key=often.__getitem__)].append(b)
    return {b for listed in kept.values() for b in listed}


def _derivable(given: System) -> None:
    """Drop bodies with nodes that can never be there."""
    waiting: dict[int, list[tuple[int, Body]]] = defaultdict(list)
    missing: dict[tuple[int, Body], int] = {}
    there: set[int] = set()
    todo: list[int] = []
    for n, bodies in given.bodies.items():
        for b in bodies:
            nodes = [~v for v in b if v < 0]
            missing[n, b] = len(nodes)
            for m in nodes:
                waiting[m].append((n, b))
            if not nodes and n not in there:
                there.add(n)
                todo.append(n)
    while todo:
        for n, b in waiting[todo.pop()]:
            missing[n, b] -= 1
            if not missing[n, b] and n not in there:
                there.add(n)
                todo.append(n)
    for n, bodies in given.bodies.items():
        given.bodies[n] = {b for b in bodies if not missing[n, b]}


def _go_round(given: System) -> None:
    """Drop bodies that form a cycle: see the second and third rewrite above."""
    down = {n: {~v for b in bodies for v in b if v < 0} for n, bodies in given.bodies.items()}
    passes = _dominators(given.root, down)
    for n, bodies in given.bodies.items():
        given.bodies[n] = {b for b in bodies if not any(v < 0 and passes(~v, n) for v in b)}
    _absorb(given)
    if not given.linear:
        return
    up: dict[int, set[int]] = defaultdict(set)
    for n, bodies in given.bodies.items():
        for b in bodies:
            nodes = [~v for v in b if v < 0]
            up[nodes[0] if nodes else -1].add(n)
    passes = _dominators(-1, up)
    for n, bodies in given.bodies.items():
        given.bodies[n] = {b for b in bodies if not any(v < 0 and passes(n, ~v) for v in b)}
    _absorb(given)


def _dominators(source: int, arcs: dict[int, set[int]]) -> Callable[[int, int], bool]:
    """Test whether every path from the source to the second node passes the first (Cooper, Harvey, Kennedy)."""
    order: list[int] = []
    seen, stack = {source}, [(source, iter(sorted(arcs.get(source, ()))))]
    while stack:
        n, rest = stack[-1]
        for m in rest:
            if m not in seen:
                seen.add(m)
                stack.append((m, iter(sorted(arcs.get(m, ())))))
                break
        else:
            order.append(n)
            stack.pop()
    number = {n: i for i, n in enumerate(order)}  # ends of paths first
    into: dict[int, list[int]] = defaultdict(list)
    for n in order:
        for m in arcs.get(n, ()):
            into[m].append(n)
    above = {source: source}
    changed = True
    while changed:
        reach()
        changed = False
        for n in reversed(order[:-1]):
            found: int | None = None
            for m in into[n]:
                if m in above:
                    found = m if found is None else _meet(found, m, above, number)
            if found is not None and above.get(n) != found:
                above[n] = found
                changed = True
    below: dict[int, list[int]] = defaultdict(list)
    for n in order[:-1]:
        below[above[n]].append(n)
    begin: dict[int, int] = {}  # n is below m if its place lies between those of m
    end: dict[int, int] = {}
    todo = [source]
    while todo:
        n = todo[-1]
        if n in begin:
            end[n] = len(begin)
            todo.pop()
        else:
            begin[n] = len(begin)
            todo += below[n]
    return lambda m, n: m in begin and n in begin and begin[m] < begin[n] < end[m]


def _meet(a: int, b: int, above: dict[int, int], number: dict[int, int]) -> int:
    while a != b:
        while number[a] < number[b]:
            a = above[a]
        while number[b] < number[a]:
            b = above[b]
    return a


def _eliminate(given: System) -> bool:
    """Put nodes in place of their uses where that makes bodies no longer, all taken together."""
    uses: dict[int, set[tuple[int, Body]]] = defaultdict(set)
    for n, bodies in given.bodies.items():
        for b in bodies:
            for v in b:
                if v < 0:
                    uses[~v].add((n, b))
    any_gone = False
    for i, z in enumerate(sorted(given.bodies, key=lambda n: len(given.bodies[n]) * len(uses[n]))):
        if i % 256 == 0:
            reach()
        own = [b for b in given.bodies[z] if ~z not in b]
        old = [(n, b) for n, b in uses[z] if n != z]
        spare = sum(map(len, given.bodies[z])) + sum(len(b) for _, b in old)
        if z == given.root or len(own) * len(old) > spare:  # each new body has a member at least
            continue
        new = {(n, c) for n, b in old for o in own if ~n not in (c := b - {~z} | o)}
        if sum(len(c) for _, c in new) > spare:
            continue
        any_gone = True
        for n, b in [*old, *((z, b) for b in given.bodies[z])]:
            given.bodies[n].discard(b)
            for v in b:
                if v < 0:
                    uses[~v].discard((n, b))
        for n, c in new:
            given.bodies[n].add(c)
            for v in c:
                if v < 0:
                    uses[~v].add((n, c))
        del given.bodies[z]
    return any_gone


def _occurrences(given: System) -> dict[int, set[tuple[int, Body]]]:
    found: dict[int, set[tuple[int, Body]]] = defaultdict(set)
    for n, bodies in given.bodies.items():
        for b in bodies:
            for v in b:
                if v >= 0:
                    found[v].add((n, b))
    return found


def _together(given: System) -> bool:
    """Replace variables that occur only together by their conjunction."""
    groups: dict[frozenset[tuple[int, Body]], list[int]] = defaultdict(list)
    for v, places in _occurrences(given).items():
        groups[frozenset(places)].append(v)
    return _replace(given, "and", (sorted(g) for g in groups.values() if len(g) > 1))


def _side_by_side(given: System) -> bool:
    """Replace variables that occur in the same places, never together, by their disjunction."""
    groups: dict[frozenset[tuple[int, Body]], list[int]] = defaultdict(list)
    for v, places in _occurrences(given).items():
        groups[frozenset((n, b - {v}) for n, b in places)].append(v)
    return _replace(given, "or", (sorted(g) for g in groups.values() if len(g) > 1))


def _replace(given: System, kind: Literal["and", "or"], groups: Iterable[list[int]]) -> bool:
    module: dict[int, int] = {}
    for group in groups:
        given.modules.append(Module(kind, tuple(group)))
        module |= dict.fromkeys(group, given.rows + len(given.modules) - 1)
    if module:
        for n, bodies in given.bodies.items():
            given.bodies[n] = {frozenset(module.get(v, v) for v in b) for b in bodies}
    return bool(module)


def _pair(given: System, probabilities: Floats) -> None:
    """Put one variable for two that are equally likely and lead from x to y and back."""
    chances = given.probabilities(probabilities)
    ends: dict[tuple[int, int], int] = {}
    same: dict[int, int] = {}
    for v, places in _occurrences(given).items():
        if len(places) == 1:
            ((n, b),) = places
            for m in b:
                if m < 0:
                    other = ends.get((~m, n))
                    if other is not None and other not in same and v not in same and _equal(chances[other], chances[v]):
                        same[v] = same[other] = min(v, other)
                    ends[n, ~m] = v
    if same:
        for n, bodies in given.bodies.items():
            given.bodies[n] = {frozenset(same.get(v, v) for v in b) for b in bodies}


def _equal(a: float, b: float) -> bool:
    """Test for equality up to the rounding of products in another order."""
    return abs(a - b) <= 1e-14 * max(a, b)
