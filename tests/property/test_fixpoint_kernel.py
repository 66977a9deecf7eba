"""The fixpoint operator alone: rules on random graphs, both policies, against evaluating the rules from nothing.

The oracle reads the same `RuleProgram` and iterates it naively, so a rule is wrong here only if the operator is.
"""

from __future__ import annotations

import random
from collections.abc import Iterator

import numpy as np
import pytest

from tests.depth import DEEP
from tests.oracle import every_policy
from whence.engine.core.operator import Batch, Operator
from whence.engine.recursion.fixpoint import Fixpoint
from whence.model.codes import Dictionary
from whence.model.types import BIGINT, Column, Schema
from whence.plan.recursion.rule_model import Atom, Op, Rule, RuleProgram, RuleRelation

Row = tuple[int, ...]
SEEDS = 400 if DEEP else 25
LINK, SHUT = 0, 1  # external relations: links (with or without a cost), and nodes that are shut


class Source(Operator):
    """Stands for an input; the rows are handed to the fixpoint directly."""

    inputs: list[Operator] = []  # noqa: RUF012 - it has none


def relation(name: str, columns: int, kind: str, sign: int = 0) -> RuleRelation:
    return RuleRelation(name, Schema(tuple(Column(f"c{i}", BIGINT) for i in range(columns))), kind, sign)  # type: ignore[arg-type]


def rule(head: int, terms: Row, *body: Atom | Op) -> Rule:
    atoms, ops = tuple(b for b in body if isinstance(b, Atom)), tuple(b for b in body if isinstance(b, Op))
    used = [*terms, *(v for a in atoms for v in a.terms if v is not None), *(v for o in ops for v in (o.a, o.b, o.to))]
    return Rule(head, terms, atoms, ops, (), max(used) + 1)


def program(relations: list[RuleRelation], *rules: Rule) -> RuleProgram:
    return RuleProgram(relations=relations, rules=list(rules))


LINKS = relation("link", 2, "external")
COSTS = relation("link", 3, "external")
PROGRAMS = {
    "reachable": program(
        [LINKS, relation("reach", 2, "set")],
        rule(1, (0, 1), Atom(LINK, (0, 1))),
        rule(1, (0, 2), Atom(LINK, (0, 1)), Atom(1, (1, 2))),
    ),
    "non-linear": program(
        [LINKS, relation("reach", 2, "set")],
        rule(1, (0, 1), Atom(LINK, (0, 1))),
        rule(1, (0, 2), Atom(1, (0, 1)), Atom(1, (1, 2))),
    ),
    "even and odd": program(
        [LINKS, relation("odd", 2, "set"), relation("even", 2, "set")],
        rule(1, (0, 1), Atom(LINK, (0, 1))),
        rule(1, (0, 2), Atom(LINK, (0, 1)), Atom(2, (1, 2))),
        rule(2, (0, 2), Atom(LINK, (0, 1)), Atom(1, (1, 2))),
    ),
    "shut nodes": program(
        [LINKS, relation("shut", 1, "absence"), relation("reach", 2, "set")],
        rule(2, (0, 1), Atom(LINK, (0, 1)), Atom(SHUT, (1,))),
        rule(2, (0, 2), Atom(2, (0, 1)), Atom(LINK, (1, 2)), Atom(SHUT, (2,))),
    ),
    "a filter and a projection": program(
        [LINKS, relation("seen", 1, "set")],
        rule(1, (0,), Atom(LINK, (0, None))),
        rule(1, (1,), Atom(1, (0,)), Atom(LINK, (0, 1)), Op("<", 0, 1)),
    ),
    "cheapest": program(
        [COSTS, relation("best", 3, "best", 1)],
        rule(1, (0, 1, 2), Atom(LINK, (0, 1, 2))),
        rule(1, (0, 2, 5), Atom(LINK, (0, 1, 3)), Atom(1, (1, 2, 4)), Op("+", 3, 4, 5)),
    ),
    "cheapest, non-linear": program(
        [COSTS, relation("best", 3, "best", 1)],
        rule(1, (0, 1, 2), Atom(LINK, (0, 1, 2))),
        rule(1, (0, 2, 5), Atom(1, (0, 1, 3)), Atom(1, (1, 2, 4)), Op("+", 3, 4, 5)),
    ),
    "widest": program(
        [COSTS, relation("best", 3, "best", -1)],
        rule(1, (0, 1, 2), Atom(LINK, (0, 1, 2))),
        rule(1, (0, 2, 5), Atom(LINK, (0, 1, 3)), Atom(1, (1, 2, 4)), Op("least", 3, 4, 5)),
    ),
}


# -- the oracle --------------------------------------------------------------------------------------------------------


def evaluate(rules: RuleProgram, externals: dict[int, set[Row]]) -> dict[int, set[Row]]:
    """The least fixpoint, by deriving everything over and over."""
    rows: dict[int, set[Row]] = {i: externals.get(i, set()) for i in range(len(rules.relations))}
    while True:
        found = {i: set(r) for i, r in rows.items()}
        for one in rules.rules:
            found[one.head] |= {tuple(b[t] for t in one.terms) for b in bindings(one, rules, rows)}
        for i, described in enumerate(rules.relations):
            if described.kind == "best":
                found[i] = set(best(found[i], described.sign))
        if found == rows:
            return rows
        rows = found


def bindings(one: Rule, rules: RuleProgram, rows: dict[int, set[Row]]) -> Iterator[dict[int, int]]:
    found: list[dict[int, int]] = [{}]
    absent = [a for a in one.atoms if rules.relations[a.relation].kind == "absence"]
    for atom in (a for a in one.atoms if a not in absent):
        found = [m for b in found for row in rows[atom.relation] if (m := match(b, atom, row)) is not None]
    for binding in found:
        if not all(operate(op, binding) for op in one.ops):
            continue
        if not any(match(binding, atom, row) is not None for atom in absent for row in rows[atom.relation]):
            yield binding


def match(binding: dict[int, int], atom: Atom, row: Row) -> dict[int, int] | None:
    found = dict(binding)
    for term, value in zip(atom.terms, row, strict=True):
        if term is not None and found.setdefault(term, value) != value:
            return None
    return found


def operate(op: Op, binding: dict[int, int]) -> bool:
    a, b = binding[op.a], binding[op.b]
    match op.name:
        case "+":
            binding[op.to] = a + b
        case "least":
            binding[op.to] = min(a, b)
        case "<":
            return a < b
    return True


def best(rows: set[Row], sign: int) -> Iterator[Row]:
    values: dict[Row, int] = {}
    for *key, value in rows:
        known = values.get(tuple(key))
        values[tuple(key)] = value if known is None else sign * min(sign * known, sign * value)
    return ((*key, value) for key, value in values.items())


# -- the test ----------------------------------------------------------------------------------------------------------


class Run:
    """A fixpoint under random batches, its outputs added up."""

    def __init__(self, rules: RuleProgram, policy: str, seed: int) -> None:
        self.rules, self.rng = rules, random.Random(seed)
        self.externals = [i for i, r in enumerate(rules.relations) if r.kind in ("external", "absence")]
        self.derived = [i for i, r in enumerate(rules.relations) if r.kind in ("set", "best")]
        self.fixpoint = Fixpoint(rules, [Source() for _ in self.externals], Dictionary(), {}, name="x", policy=policy)
        self.rows: dict[int, set[Row]] = {i: set() for i in self.externals}
        self.views: dict[int, set[Row]] = {i: set() for i in self.derived}
        self.nodes = self.rng.randint(2, 7)

    def batch(self) -> dict[int, dict[Row, int]]:
        """Rows that come and go: of rows that are there most go."""
        changes: dict[int, dict[Row, int]] = {i: {} for i in self.externals}
        for _ in range(self.rng.randint(1, 5)):
            at = self.rng.choice(self.externals)
            width = len(self.rules.relations[at].schema)
            nodes = tuple(self.rng.randrange(self.nodes) for _ in range(min(width, 2)))
            row = nodes if width < 3 else (*nodes, self.rng.choice([0, 0, 1, 2, 5]))
            if row not in self.rows[at]:
                changes[at][row] = 1
            elif self.rng.random() < 0.8:
                changes[at][row] = -1
        return changes

    def apply(self, changes: dict[int, dict[Row, int]]) -> None:
        deltas = []
        for at, rows in changes.items():
            width = len(self.rules.relations[at].schema)
            codes = np.array(list(rows), np.int64).reshape(len(rows), width)
            deltas.append(Batch(codes, np.array(list(rows.values()), np.int64)))
        self.fixpoint.apply(deltas)

    def step(self) -> None:
        changes = self.batch()
        self.apply(changes)
        for at, rows in changes.items():
            self.rows[at] = {r for r in self.rows[at] if rows.get(r) != -1} | {r for r, s in rows.items() if s > 0}
        for at, out in self.fixpoint.out.items():
            codes, signs = out.rows.tolist(), out.ann.tolist()
            for row, sign in zip(map(tuple, codes), signs, strict=True):
                assert (row in self.views[at]) == (sign < 0), f"{row} comes twice or goes without having come"
                self.views[at] ^= {row}
        self.fixpoint.commit()
        self.check()
        if self.rng.random() < 0.4:
            self.apply(self.batch())
            self.fixpoint.undo()
            self.check()

    def check(self) -> None:
        wanted = evaluate(self.rules, self.rows)
        for at in self.derived:
            assert self.views[at] == wanted[at]
            assert {tuple(row) for row in self.fixpoint.live(at).tolist()} == wanted[at]


@every_policy
@pytest.mark.parametrize("name", PROGRAMS)
def test_rules_on_random_graphs(name: str, policy: str) -> None:
    for seed in range(SEEDS):
        run = Run(PROGRAMS[name], policy, seed)
        for _ in range(15):
            run.step()
