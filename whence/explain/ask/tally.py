"""Aggregates under loss: whether a group's result is what it was, though some of its rows are gone.

For most aggregates that is monotone in the rows that are left, and they become ordinary nodes (`plain`):

    COUNT, SUM of values of one sign   all rows that add to it are there
    MIN, MAX                           one of the rows with the best value is there
    DISTINCT                           for each value one of its rows is there

and in any case one row of the group is there. What is left as a tally (SUM of both signs, AVG) is compared exactly, in
whole numbers: sums of decimals and floats are scaled.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import replace
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from whence.explain.graph import DerivationRule, Derivations, GraphRelation, Tally
from whence.model.types import Schema

Bools = NDArray[np.bool_]


def eliminate_tallies(graph: Derivations) -> Derivations:
    """Return the same functions with as few tallies as can be; nodes keep their numbers, new ones come after them."""
    if not graph.tallies:
        return graph
    groups = {n: g for n, t in graph.tallies.items() if (g := _needed(t)) is not None}
    kept = np.array([int(h) not in groups for h in graph.head], bool)
    bodies = [graph.bodies(int(d)) for d in np.flatnonzero(kept)]
    heads, steps = graph.head[kept].tolist(), graph.step[kept].tolist()
    size, step = len(graph), len(graph.steps)
    for node, needed in groups.items():
        elements = graph.bodies(int(graph.first[node]))
        all_of: list[int] = []
        for ways in needed:
            nodes = sorted({int(elements[i]) for i in ways})
            if len(nodes) > 1:
                heads += [size] * len(nodes)
                bodies += [np.array([n], np.int32) for n in nodes]
                steps += [step] * len(nodes)
                nodes, size = [size], size + 1
            all_of += nodes
        heads.append(node)
        steps.append(step)
        bodies.append(np.array(sorted(set(all_of)), np.int32))
    by = np.argsort(np.array(heads, np.int32), kind="stable")
    more = size - len(graph)
    return replace(
        graph,
        relations=[*graph.relations, GraphRelation("one of", "inner", Schema(()))],
        relation=np.concatenate([graph.relation, np.full(more, len(graph.relations), np.int32)]),
        place=np.concatenate([graph.place, np.arange(more, dtype=np.int32)]),
        cells=[*graph.cells, np.empty((more, 0), np.int64)],
        steps=[*graph.steps, DerivationRule("", "aggregate")],
        head=np.array(heads, np.int32)[by],
        step=np.array(steps, np.int32)[by],
        start=np.concatenate([[0], np.cumsum([len(bodies[i]) for i in by])]).astype(np.int64),
        body=np.concatenate([np.empty(0, np.int32), *[bodies[i] for i in by]]).astype(np.int32),
        tallies={n: t for n, t in graph.tallies.items() if n not in groups},
    )


def _needed(tally: Tally) -> list[list[int]] | None:
    """Return sets of elements of each of which one is needed, and that suffices; None if the result is not monotone."""
    needed: list[list[int]] = []
    if tally.test is not None:
        return None
    for i, (function, distinct) in enumerate(tally.functions):
        values = [v[i] for v in tally.values]
        present = [e for e, v in enumerate(values) if v is not None]
        if not present:
            continue  # NULL or 0, whatever is lost
        if function in ("min", "max"):
            best = (min if function == "min" else max)((values[e] for e in present), key=_order)
            needed.append([e for e in present if _order(values[e]) == _order(best)])
        elif function == "avg" or (function == "sum" and not _one_sign(values[e] for e in present)):
            return None
        else:
            counts = [e for e in present if function == "count" or values[e] != 0]
            if function == "sum" and not counts:
                needed.append(present)  # zero, but not NULL
            elif distinct:
                needed += list(_by_value((e, values[e]) for e in counts).values())
            else:
                needed += [[e] for e in counts]
    everyone = list(range(len(tally.values)))
    return needed or ([everyone] if everyone else [])


def _order(value: Any) -> Any:
    """Compare numbers; NaN is above every number."""
    return (1, 0.0) if isinstance(value, float) and math.isnan(value) else (0, value)


def _one_sign(values: Iterable[Any]) -> bool:
    listed = list(values)
    finite = all(not isinstance(v, float) or math.isfinite(v) for v in listed)
    return finite and (all(v >= 0 for v in listed) or all(v <= 0 for v in listed))


def _by_value(pairs: Iterable[tuple[int, Any]]) -> dict[Any, list[int]]:
    found: dict[Any, list[int]] = {}
    for element, value in pairs:
        found.setdefault(_order(value), []).append(element)
    return found


class Scale:
    """A tally as sums of whole numbers, so that it can be asked of many losses at once: the result is what it was if
    of each set in `needs` an element is left and every test holds. A test is (groups, amounts, mean): over the groups
    with an element left, the sum of first amounts is that over all groups; with `mean`, its quotient by that of second
    amounts is."""

    def __init__(self, tally: Tally):
        self.size = len(tally.values)
        self.tested = TestedTally(tally) if tally.test is not None else None
        if self.tested is not None:
            return
        self.tests: list[tuple[list[list[int]], list[tuple[int, int]], bool]] = []
        self.needs: list[list[int]] = []
        for i, (function, distinct) in enumerate(tally.functions):
            alone = Tally(((function, distinct),), tally.weights, tuple((v[i],) for v in tally.values))
            needed = _needed(alone)
            if needed is not None:
                self.needs += needed
                continue
            values = [v[i] for v in tally.values]
            present = [e for e, v in enumerate(values) if v is not None]
            self.needs.append(present)  # NULL when none is left
            if distinct:
                groups = list(_by_value((e, values[e]) for e in present).values())
                weights = [1] * len(groups)
            else:
                groups, weights = [[e] for e in present], [int(tally.weights[e]) for e in present]
            scaled = _whole([values[g[0]] for g in groups])
            self.tests.append((groups, [(s * w, w) for s, w in zip(scaled, weights, strict=True)], function == "avg"))

    def holds(self, left: Bools) -> Bools:
        """Return whether the result is what it was in each case (column); `left` has a row for each element."""
        if self.tested is not None:
            return self.tested.holds(left)
        same = np.ones(left.shape[1], bool)
        if self.size:
            same &= left.any(axis=0)
        for ways in self.needs:
            same &= left[ways].any(axis=0)
        for groups, amounts, mean in self.tests:
            there = np.array([left[g].any(axis=0) for g in groups], bool).reshape(len(groups), left.shape[1])
            total, count = sum(a for a, _ in amounts), sum(w for _, w in amounts)
            biggest = max(sum(abs(a) for a, _ in amounts), 1) * (max(count, 1) if mean else 1)
            kind: Any = np.int64 if biggest < 2**62 else object
            sums = np.array([a for a, _ in amounts], kind) @ there.astype(kind)
            if mean:
                same &= (sums * count == np.array([w for _, w in amounts], kind) @ there.astype(kind) * total).astype(
                    bool
                )
            else:
                same &= (sums == total).astype(bool)
        return same

    def start(self) -> tuple[Any, ...]:
        """Return the state before any element: used with `step` and `final` to go through elements one at a time."""
        if self.tested is not None:
            return self.tested.start()
        return (False, *(frozenset() for _ in self.needs), *((0, 0, frozenset()) for _ in self.tests))

    def step(self, state: tuple[Any, ...], element: int) -> tuple[Any, ...]:
        """Return the state with the element there; what can no longer matter is forgotten, so that states meet."""
        if self.tested is not None:
            return self.tested.step(state, element)
        sets, sums = state[1 : 1 + len(self.needs)], state[1 + len(self.needs) :]
        new_sets = tuple(s or (frozenset({0}) if element in w else s) for s, w in zip(sets, self.needs, strict=True))
        new_sums = []
        for (total, weight, seen), (groups, amounts, _) in zip(sums, self.tests, strict=True):
            for g, (ways, (amount, copies)) in enumerate(zip(groups, amounts, strict=True)):
                if element in ways and g not in seen:
                    total, weight, seen = total + amount, weight + copies, seen | {g}
            new_sums.append((total, weight, frozenset(g for g in seen if any(e > element for e in groups[g]))))
        return (True, *new_sets, *new_sums)

    def final(self, state: tuple[Any, ...]) -> bool:
        if self.tested is not None:
            return self.tested.final(state)
        sets, sums = state[1 : 1 + len(self.needs)], state[1 + len(self.needs) :]
        same = bool(state[0]) or not self.size
        same = same and all(sets)
        for (total, weight, _), (_, amounts, mean) in zip(sums, self.tests, strict=True):
            whole, count = sum(a for a, _ in amounts), sum(w for _, w in amounts)
            same = same and (total * count == whole * weight if mean else total == whole)
        return same


class TestedTally:
    """A tally with a test of its own: the aggregates over what is left are computed, and asked about."""

    def __init__(self, tally: Tally):
        assert tally.test is not None
        self._tally, self._test = tally, tally.test
        self._known: dict[tuple[Any, ...], bool] = {}

    def holds(self, left: Bools) -> Bools:
        cases, back = np.unique(left, axis=1, return_inverse=True)
        found = np.zeros(cases.shape[1], bool)
        for case in range(cases.shape[1]):
            state = self.start()
            for element in np.flatnonzero(cases[:, case]).tolist():
                state = self.step(state, element)
            found[case] = self.final(state)
        return found[back.ravel()]

    def start(self) -> tuple[Any, ...]:
        """Return whether there are elements, and of each aggregate the number and amount so far; of DISTINCT the
        values."""
        return (False, *(frozenset() if distinct else (0, None) for _, distinct in self._tally.functions))

    def step(self, state: tuple[Any, ...], element: int) -> tuple[Any, ...]:
        weight = int(self._tally.weights[element])
        found: list[Any] = [True]
        for (function, distinct), value, so_far in zip(
            self._tally.functions, self._tally.values[element], state[1:], strict=True
        ):
            if value is None:
                found.append(so_far)
            elif distinct:
                found.append(so_far | {value})
            else:
                found.append(_further(function, value, weight, *so_far))
        return tuple(found)

    def final(self, state: tuple[Any, ...]) -> bool:
        values = []
        for (function, distinct), so_far in zip(self._tally.functions, state[1:], strict=True):
            if distinct:
                met, so_far = so_far, (0, None)
                for value in sorted(met, key=_order):
                    so_far = _further(function, value, 1, *so_far)
            count, amount = so_far
            mean = function == "avg" and amount is not None
            values.append(count if function == "count" else float(amount) / count if mean else amount)
        key = (*values, state[0])
        if key not in self._known:
            self._known[key] = self._test(tuple(values), state[0])
        return self._known[key]


def _further(function: str, value: Any, weight: int, count: int, amount: Any) -> tuple[int, Any]:
    """Return the number of values and their amount, with one more."""
    if function in ("min", "max"):
        return 0, value if amount is None else (min if function == "min" else max)(value, amount, key=_order)
    more = value * weight if function != "count" else None
    return count + weight, more if amount is None else amount + more


def _whole(values: list[Any]) -> list[int]:
    """Return whole numbers in proportion to these; infinities and NaN stand for amounts that nothing else makes up
    for."""
    exact = [Fraction(v) if isinstance(v, int | Decimal) or math.isfinite(v) else None for v in values]
    scale = math.lcm(*(f.denominator for f in exact if f is not None), 1)
    whole = [None if f is None else int(f * scale) for f in exact]
    beyond = 2 * sum(abs(w) for w in whole if w is not None) + 1
    return [w if w is not None else beyond << i for i, w in enumerate(whole)]
