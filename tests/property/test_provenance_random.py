"""The annotated fixpoint on random graphs: contents as by evaluating from nothing, and annotations as they must be.

The oracle of annotations is the rules themselves over sets of witnesses in plain Python, iterated to the end; for the
smallest graphs it is in turn checked against trying every set of external rows.
"""

from __future__ import annotations

from functools import partialmethod
from itertools import combinations, product
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.depth import DEEP
from tests.oracle import Twin, drive, with_provenance
from tests.property import test_fixpoint_kernel as made
from tests.property.test_fixpoint_kernel import PROGRAMS, Row, Run, Source, evaluate, match, operate
from tests.property.test_random_programs import Case, cases, profile
from whence.annotate.absorption import Absorption
from whence.annotate.relative import Relative
from whence.engine.core.epoch_context import EpochContext
from whence.engine.recursion.fixpoint import Fixpoint
from whence.engine.recursion.kernels import heads, store
from whence.engine.recursion.policies.annotated import AnnotatedPolicy
from whence.engine.recursion.row_variables import RowVariables
from whence.engine.recursion.slot_store import SlotStore
from whence.model.codes import Dictionary
from whence.plan.recursion.rule_model import Atom, Op, Rule, RuleProgram
from whence.plan.recursion.settings import Maintain

SEEDS = 200 if DEEP else 2
Fact = tuple[int, Row]  # relation, row: of an absence relation, that the row is not there
Witness = frozenset[Fact]
KEPT = [
    Maintain("absorption"),
    Maintain("absorption", "eager"),
    Maintain("absorption", "eager", "bdd"),
    Maintain("absorption", "2 epochs", "bdd"),
    Maintain("absorption", "lazy", "witnesses"),
    Maintain("relative"),
    Maintain("relative", "eager"),
]
every_kept = pytest.mark.parametrize("maintain", KEPT, ids=lambda m: f"{m.algebra}-{m.propagate}-{m.representation}")


NEAR = made.program(  # a set that hangs on best values, and does not have them
    [made.relation("link", 3, "external"), made.relation("best", 3, "best", 1), made.relation("near", 2, "set")],
    made.rule(1, (0, 1, 2), Atom(0, (0, 1, 2))),
    made.rule(1, (0, 2, 5), Atom(0, (0, 1, 3)), Atom(1, (1, 2, 4)), Atom(2, (1, 2)), Op("+", 3, 4, 5)),
    made.rule(2, (0, 1), Atom(1, (0, 1, None))),
)


def minimal(found: set[Witness]) -> set[Witness]:
    """Without the witnesses that others are part of."""
    return {w for w in found if not any(v < w for v in found)}


def annotate(rules: RuleProgram, rows: dict[int, set[Row]]) -> dict[Fact, set[Witness]]:
    """The minimal witnesses of every fact of rules without values."""
    found: dict[Fact, set[Witness]] = {
        (at, row): {frozenset([(at, row)])}
        for at, held in rows.items()
        if rules.relations[at].kind == "external"
        for row in held
    }
    while True:
        new = dict(found)
        for rule in rules.rules:
            for fact, witness in derivations(rule, rules, rows, found):
                new[fact] = minimal(new.get(fact, set()) | {witness})
        if new == found:
            return found
        found = new


def derivations(
    rule: Rule, rules: RuleProgram, rows: dict[int, set[Row]], known: dict[Fact, set[Witness]]
) -> list[tuple[Fact, Witness]]:
    """Every way a rule derives a fact, once for each choice of witnesses of its body."""
    partial: list[tuple[dict[int, int], list[set[Witness]]]] = [({}, [])]
    absent = [a for a in rule.atoms if rules.relations[a.relation].kind == "absence"]
    for atom in (a for a in rule.atoms if a not in absent):
        partial = [
            (m, [*body, witnesses])
            for binding, body in partial
            for (at, row), witnesses in known.items()
            if at == atom.relation and (m := match(binding, atom, row)) is not None
        ]
    out = []
    for binding, body in partial:
        if not all(operate(op, binding) for op in rule.ops):
            continue
        missing = {(a.relation, tuple(binding[t] for t in a.terms if t is not None)) for a in absent}
        if not any(row in rows[at] for at, row in missing):
            head = (rule.head, tuple(binding[t] for t in rule.terms))
            out += [(head, frozenset(missing).union(*chosen)) for chosen in product(*body)]
    return out


class Annotated(Run):
    """A run whose annotations are looked at after every step."""

    def __init__(self, rules: RuleProgram, maintain: Maintain, seed: int) -> None:
        super().__init__(rules, "dred", seed)
        self.maintain = maintain
        self.fixpoint = Fixpoint(rules, [Source() for _ in self.externals], Dictionary(), {}, name="x", policy=maintain)

    @property
    def policy(self) -> AnnotatedPolicy:
        assert isinstance(self.fixpoint.policy, AnnotatedPolicy)
        return self.fixpoint.policy

    def witnesses(self) -> dict[Fact, set[Witness]]:
        """What the annotations of all derived rows say."""
        found: dict[Fact, set[Witness]] = {}
        for at in self.derived:
            rows = self.fixpoint.live(at)
            handles = self.policy.annotations_of(at, rows)
            for row, handle in zip(rows.tolist(), handles.tolist(), strict=True):
                said = self.policy.formulas.witnesses(handle, 10_000)
                found[at, tuple(row)] = {frozenset(map(self.fact, witness)) for witness in said}
        return found

    def fact(self, name: int) -> Fact:
        (relation,), (cells,) = self.policy.variables.rows(np.array([name]))
        width = len(self.rules.relations[relation].schema)
        return int(relation), tuple(cells[:width].tolist())

    def step(self) -> None:
        super().step()
        before = self.state()
        self.apply(self.batch())
        self.fixpoint.undo()
        assert self.state() == before

    def state(self) -> Any:
        """What must be as it was after an undo: functions, flags, values and copies of all slots that have any."""
        kept, k = self.policy.annotations, self.fixpoint.store.k
        meta = int(k.scalar[store.S_META])
        rows = {
            slot: (
                self.policy.formulas.witnesses(int(kept.published[slot]), 20),
                self.policy.formulas.witnesses(int(kept.buffered[slot]), 20),
                k.meta[slot, meta : meta + 2].tolist(),
                cells.tolist(),
            )
            for slot, cells in enumerate(k.cells[: kept.slots, : self.fixpoint.runner.rules.columns])
            if kept.published[slot] or k.meta[slot, meta + 1]
        }
        return rows, int(k.scalar[store.S_ROWS] - k.scalar[store.S_DEAD])

    def check_law(self) -> None:
        """For every derivation there is, its head shows or holds what its bodies show together; none is of a row that
        is not there, and no row that is not there has a function."""
        fixpoint, kept, k = self.fixpoint, self.policy.annotations, self.fixpoint.store.k
        atoms, meta = fixpoint.runner.rules.atoms, int(k.scalar[store.S_META])
        tags = k.meta[: int(k.scalar[store.S_ROWS]), meta]
        derived = np.isin(tags & store.RELATION, self.derived)
        alive = (tags & store.ALIVE) != 0
        assert ((kept.published[: len(tags)] != 0) == alive)[derived].all()
        assert (kept.buffered[: len(tags)] == 0)[derived & ~alive].all()
        block = fixpoint.runner.gather(np.flatnonzero(derived & alive), backward=True)
        kept.make_room(int(k.scalar[store.S_ROWS]))
        self.policy.publish_absences(np.ascontiguousarray(block[:, 1 : 1 + atoms].T))
        kept.commit()
        for number, *rest in block.tolist():
            head, bodies = self.rules.rules[number].head, [slot for slot in rest[:atoms] if slot >= 0]
            cells = np.array([rest[atoms : atoms + len(self.rules.relations[head].schema)]])
            slot = np.empty(1, np.int64)
            keys = cells if self.rules.relations[head].kind == "set" else cells[:, :-1]
            heads.find_rows(fixpoint.store.k.address, head, np.ascontiguousarray(keys), slot)
            value, sign = fixpoint.store.k.cells[slot[0], keys.shape[1]], self.rules.relations[head].sign
            if keys is not cells and value != cells[0, -1]:
                assert sign * value < sign * cells[0, -1]
            elif slot[0] not in bodies:
                has = self.sets(kept.published[slot[0]]) + self.sets(kept.buffered[slot[0]])
                for chosen in product(*(self.sets(kept.published[body]) for body in bodies)):
                    assert any(witness <= frozenset().union(*chosen) for witness in has)

    def sets(self, handle: int) -> list[frozenset[int]]:
        return [frozenset(witness) for witness in self.policy.formulas.witnesses(int(handle), 10_000)]

    def reopen(self) -> None:
        """Go on from an image."""
        image = {name: np.array(part) for name, part in self.fixpoint.image().items()}
        self.fixpoint = Annotated(self.rules, self.maintain, 0).fixpoint
        self.fixpoint.restore(image)

    def check(self) -> None:
        super().check()
        said = self.witnesses()
        assert all(said.values())
        for at, row in self.rng.sample(sorted(said), min(3, len(said))):  # evaluating is slow
            witnesses = sorted(said[at, row], key=sorted)
            self.check_suffices(at, row, self.rng.choice(witnesses))
        values = any(r.kind == "best" for r in self.rules.relations)
        if self.maintain == Maintain("absorption", "eager", self.maintain.representation) and not values:
            wanted = annotate(self.rules, self.rows)
            assert said == {fact: wanted[fact] for fact in said}

    def check_suffices(self, at: int, row: Row, witness: Witness) -> None:
        """The facts of a witness hold, and derive the row, or one of as good a value."""
        given: dict[int, set[Row]] = {i: set() for i in self.externals}
        for relation, cells in witness:
            absence = self.rules.relations[relation].kind == "absence"
            assert (cells in self.rows[relation]) != absence
            if not absence:
                given[relation].add(cells)
        for relation in self.externals:
            if self.rules.relations[relation].kind == "absence":
                everything = set(product(range(self.nodes), repeat=len(self.rules.relations[relation].schema)))
                given[relation] = everything - {cells for r, cells in witness if r == relation}
        found = evaluate(self.rules, given)[at]
        if self.rules.relations[at].kind == "set":
            assert row in found
        else:
            sign = self.rules.relations[at].sign
            assert any(f[:-1] == row[:-1] and sign * f[-1] <= sign * row[-1] for f in found)


@every_kept
@pytest.mark.parametrize("name", PROGRAMS)
def test_annotations_on_random_graphs(name: str, maintain: Maintain) -> None:
    for seed in range(SEEDS):
        run = Annotated(PROGRAMS[name], maintain, seed)
        run.nodes = min(run.nodes, 5)
        for _ in range(8):
            run.step()


@pytest.fixture
def restless(monkeypatch: pytest.MonkeyPatch) -> None:
    """Stores are compacted, garbage collected and names given again far too often, and small functions too large."""
    monkeypatch.setattr(SlotStore, "compact", partialmethod(SlotStore.compact, at_least=1))
    monkeypatch.setattr(RowVariables, "grown", property(lambda names: True))
    for algebra in (Absorption, Relative):
        monkeypatch.setattr(algebra, "grown", property(lambda algebra: True))
    monkeypatch.setattr("whence.annotate.absorption.LIMIT", 2)


@every_kept
@pytest.mark.parametrize("name", [*PROGRAMS, "near"])
@pytest.mark.usefixtures("restless")
def test_the_law_of_annotations_whatever_moves(name: str, maintain: Maintain) -> None:
    for seed in range(SEEDS // 2):
        run = Annotated((PROGRAMS | {"near": NEAR})[name], maintain, seed)
        run.nodes = min(run.nodes, 4)
        for number in range(1, 7):
            run.fixpoint.context = EpochContext(number, number)
            run.step()
            run.check_law()
            if run.rng.random() < 0.2:
                run.reopen()
                run.check()


def test_the_oracle_itself_against_every_set_of_rows() -> None:
    rules = PROGRAMS["reachable"]
    links: set[Row] = {(0, 1), (1, 0), (1, 2), (0, 2), (2, 0)}
    found = annotate(rules, {0: links})
    for (at, row), witnesses in found.items():
        if at == 1:
            sets = [frozenset(s) for n in range(6) for s in combinations(sorted(links), n)]
            enough = {s for s in sets if row in evaluate(rules, {0: set(s)})[1]}
            assert {frozenset(link for _, link in w) for w in witnesses} == {
                s for s in enough if not any(t < s for t in enough)
            }


OPTIONS = [
    "maintain = 'absorption'",
    "maintain = 'absorption', propagate = 'eager'",
    "maintain = 'absorption', propagate = '2 epochs', provenance = 'bdd'",
    "maintain = 'relative'",
    "maintain = 'relative', propagate = 'eager'",
]


@profile(15)
@given(cases(recursive=True), st.sampled_from(OPTIONS))
@pytest.mark.usefixtures("restless")
def test_random_programs_whatever_moves(case: Case, options: str) -> None:
    twin = Twin(with_provenance(case.sql, options))
    drive(twin, case.batches)
    twin.close()


@profile(30)
@given(cases(recursive=True), st.sampled_from(OPTIONS))
def test_random_programs(case: Case, options: str) -> None:
    twin = Twin(with_provenance(case.sql, options))
    drive(twin, case.batches)
    twin.close()
