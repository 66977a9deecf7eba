"""Orders of atoms in recursive rules: chosen by the rows that a component has, and chosen again when these have moved.

Law: of orders only the work depends, never the rows. What is chosen follows from the rows between two epochs and from
`image` alone, so that every copy of a partition chooses the same: which derivation a row stands on does depend on
orders, and peers have been told of it. Only a component without peers goes by the fan-outs that its rules have met.

A load is planned for by the external rows that it brings. Of derived relations nothing is known before the first one;
their rows are taken to be as many as those of the largest relation.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

import numpy as np

from whence.engine.core.key_estimates import KeyEstimates, Met
from whence.engine.core.statistics import distinct_in
from whence.engine.recursion.rule_plans import CompiledRules, Orders
from whence.engine.recursion.slot_store import SlotStore
from whence.model.codes import Codes
from whence.plan.algebra.join_paths import Members, PathOrder, cheapest_order, has_moved, weigh_order
from whence.plan.recursion.rule_model import RuleProgram
from whence.plan.recursion.rule_shape import RuleShape

_LOAD = 256  # changes from which a load is planned for
_FEW = 64  # changes before the first choice
_PATIENCE = 256  # changes that a choice must last at least, times the choices so far
_GAIN = 0.8  # of its cost: what another order may cost at most to take the place of the running one
_SEARCH_GAIN = 0.5  # the same of a search for derivations, which is rare beside the upkeep of its indexes
_ABSENT = 0.5  # the part of rows of which something is absent
_PASSING = {"=": 0.1, "same": 0.1, "is_null": 0.1, "<": 0.4, "<=": 0.4, ">": 0.4, ">=": 0.4}  # parts of tests

_follows_data = True


@contextmanager
def connected_rules() -> Iterator[None]:
    """Let components order their rules by connectedness alone inside: what others are measured against."""
    global _follows_data
    before, _follows_data = _follows_data, False
    try:
        yield
    finally:
        _follows_data = before


class WeighedOrder(NamedTuple):
    """An order that was chosen, and the one by connectedness, as they were weighed then."""

    rule: int
    given: int  # atom, or -1 for the head
    order: PathOrder
    connected: PathOrder


class RuleOrders:
    """Chooses the orders of a component; what it remembers is when it last did."""

    def __init__(self, program: RuleProgram, shared: bool) -> None:
        self._program, self._shared = program, shared
        self._shapes = [RuleShape(rule, program.relations) for rule in program.rules]
        self._chooses = _follows_data and any(len(rule.atoms) > 1 for rule in program.rules)
        self._planned = np.zeros(len(program.relations), np.int64)  # rows when orders were chosen
        self._changes = self._choices = 0  # since then, and ever
        self.weighed: list[WeighedOrder] = []  # those between which there was a choice

    def for_load(self, store: SlotStore, changes: Codes) -> Orders | None:
        """Return orders for an epoch that brings more than there is, or None if it does not."""
        if not self._chooses or len(changes) < _LOAD or len(changes) < 3 * store.rows:
            return None
        return self._choose(store, _Counts(self._program, store, changes[changes[:, 1] > 0]))

    def after(self, store: SlotStore, changes: int) -> Orders | None:
        """Return orders after an epoch, or None if those that run are still right."""
        self._changes += changes
        patience = max(_FEW, _PATIENCE * self._choices, int(self._planned.sum()) // 2)
        if not self._chooses or self._changes < patience:
            return None
        self._changes, sizes = 0, store.sizes()
        if not any(map(has_moved, self._planned.tolist(), sizes.tolist())):
            return None
        return self._choose(store, _Counts(self._program, store))

    def _choose(self, store: SlotStore, counts: _Counts) -> Orders:
        found, compiled = dict(store.compiled.orders), store.compiled
        connected = compiled.reordered({}).orders
        self.weighed = []
        for (rule, given), running in compiled.orders.items():
            if len(running) < 2:
                continue
            shape = self._shapes[rule]
            first = shape.head if given < 0 else given
            estimates = RuleEstimates(shape, counts, compiled, self._met(compiled, rule, given))
            now, best = weigh_order(shape, first, running, estimates), cheapest_order(shape, first, estimates)
            if best.cost < (_SEARCH_GAIN if given < 0 else _GAIN) * now.cost:
                found[rule, given] = best.inputs
            else:
                best = now
            plain = weigh_order(shape, first, connected[rule, given], estimates)
            self.weighed.append(WeighedOrder(rule, given, best, plain))
        self._planned, self._changes = counts.sizes, 0
        self._choices += 1
        return found

    def _met(self, compiled: CompiledRules, rule: int, given: int) -> Met:
        """Return what the steps of a rule have met, if that may count."""
        if self._shared or given < 0:  # a search ends at the first derivation
            return {}
        shape, met, found = self._shapes[rule], 1 << given, {}
        for atom in compiled.orders[rule, given]:
            found[given, atom, shape.cols(atom, met)] = compiled.met(rule, given, atom)
            met |= 1 << atom
        return found

    def notes(self, compiled: CompiledRules) -> tuple[str, ...]:
        """Say the orders of rules of three atoms or more, with what steps were estimated to match, and have."""
        relations, notes = self._program.relations, []
        for rule, given, order, connected in self.weighed:
            if len(self._program.rules[rule].atoms) < 3:
                continue
            shape, steps = self._shapes[rule], []
            for step in order.steps:
                relation = relations[shape.relation(step.input)]
                on = f" on {', '.join(relation.schema.names[c] for c in step.cols)}" if step.cols else ""
                probes, rows = compiled.met(rule, given, step.input)
                met = f", met {rows / probes:.3g}" if probes else ""
                steps.append(f"{relation.name}{on} (x {step.fan_out:.3g}{met})")
            head = relations[shape.rule.head].name
            start = f"{head}, searched" if given < 0 else f"{relations[shape.relation(given)].name} into {head}"
            beside = f", as connected {connected.work:.3g}" if connected.inputs != order.inputs else ""
            notes.append(f"order of {start}: {', '.join(steps)}; work {order.work:.3g}{beside}")
        return tuple(dict.fromkeys(notes))

    def image(self) -> Codes:
        """Return what the next choice depends on beside the rows."""
        return np.array([self._changes, self._choices, *self._planned], np.int64)

    def restore(self, image: Codes) -> None:
        if len(image) == 2 + len(self._planned):
            self._changes, self._choices, self._planned = int(image[0]), int(image[1]), np.array(image[2:], np.int64)


class _Counts:
    """Rows and distinct keys of the relations of a component, with those that a load brings."""

    def __init__(self, program: RuleProgram, store: SlotStore, load: Codes | None = None) -> None:
        self._program, self._store, self._load = program, store, load
        self.sizes = store.sizes()
        if load is not None:
            self.sizes = self.sizes + np.bincount(load[:, 0], minlength=len(self.sizes))
        self._most = float(max(1, self.sizes.max(initial=0)))
        self._rows: dict[int, Codes] = {}
        self._keys: dict[tuple[int, tuple[int, ...]], float] = {}

    def is_unknown(self, relation: int) -> bool:
        """Return whether a relation will have rows of which nothing is known yet."""
        return (
            self._load is not None and not self.sizes[relation] and self._program.relations[relation].kind != "absence"
        )

    def rows(self, relation: int) -> float:
        """Return how many rows a relation has, or is taken to have."""
        return self._most if self.is_unknown(relation) else float(self.sizes[relation])

    def keys(self, relation: int, cols: tuple[int, ...]) -> float:
        """Return how many distinct keys a relation has in some columns, or is taken to have."""
        if self.is_unknown(relation):
            return float(self._most ** (len(cols) / max(1, self._program.relations[relation].keys)))
        found = self._keys.get((relation, cols))
        if found is None:
            found = self._keys[relation, cols] = distinct_in(self._rows_of(relation), cols)
        return found

    def _rows_of(self, relation: int) -> Codes:
        rows = self._rows.get(relation)
        if rows is None:
            rows = self._store.live(relation)
            if self._load is not None:
                new = self._load[self._load[:, 0] == relation, 2 : 2 + rows.shape[1]]
                rows = np.ascontiguousarray(np.concatenate([rows, new]))
            self._rows[relation] = rows
        return rows


class RuleEstimates(KeyEstimates):
    """`Estimates` of one rule over the relations of its component."""

    def __init__(self, shape: RuleShape, counts: _Counts, compiled: CompiledRules, met: Met) -> None:
        super().__init__(met)
        self._shape, self._counts, self._compiled = shape, counts, compiled

    def rows_of(self, input: int) -> float:
        return self._counts.rows(self._shape.relation(input))

    def count_keys(self, input: int, cols: tuple[int, ...]) -> float:
        return self._counts.keys(self._shape.relation(input), cols)

    def fan_out(self, first: int, input: int, cols: tuple[int, ...], known: tuple[Members, ...]) -> float:
        return _ABSENT if self._shape.is_absence(input) else super().fan_out(first, input, cols, known)

    def passing(self, tests: Sequence[int]) -> float:
        part = 1.0
        for test in tests:
            part *= _PASSING.get(self._shape.rule.ops[test].name, 1.0)
        return part

    def has_index(self, input: int, cols: tuple[int, ...], ordered: bool) -> bool:
        return self._compiled.has_index(self._shape.relation(input), cols)
