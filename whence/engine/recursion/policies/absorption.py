"""Absorption: a row's formula says which sets of base rows suffice for it, and those that another absorbs are dropped.

As a decision diagram formulas have an order of variables. Where rules follow the edges of a graph, the variables of
edges are ordered as a walk along it meets them (`plan/recursion/edges.py`, `annotate/order.py`).
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from whence.annotate.absorption import Absorption
from whence.engine.core.image import with_room
from whence.engine.recursion.mailbox import Mailbox
from whence.engine.recursion.policies.annotated import AnnotatedPolicy
from whence.engine.recursion.rule_runner import RuleRunner
from whence.model.codes import NULL, Codes
from whence.plan.partitions.exchange import Exchange
from whence.plan.recursion.edges import edges
from whence.plan.recursion.rule_model import RuleProgram
from whence.plan.recursion.settings import Maintain


class AbsorptionPolicy(AnnotatedPolicy):
    """Formulas of `annotate/absorption.py`."""

    name = "absorption"

    def __init__(self, maintain: Maintain, runner: RuleRunner, mailbox: Mailbox):
        spec = mailbox.spec
        self._edges = edges(runner.program if spec is None else _as_one(spec))  # by relation
        super().__init__(maintain, runner, mailbox)
        self._edges_of = {int(self.origin[number]): ends for number, ends in self._edges.items()}  # by origin

    def make_formulas(self) -> Absorption:
        return Absorption(self.maintain.representation)

    @property
    def _form(self) -> Absorption:
        assert isinstance(self.state.formulas, Absorption)
        return self.state.formulas

    def place(self, variables: Codes, slots: Codes) -> None:
        new = self._not_placed(variables)
        variables, (relations, cells) = variables[new], self.runner.store.describe(slots[new])
        starts, ends = np.full(len(variables), NULL), np.full(len(variables), NULL)
        for relation, (start, end) in self._edges.items():
            mine = relations == relation
            starts[mine], ends[mine] = cells[mine, start], cells[mine, end]
        if len(variables):
            self._form.place(variables, starts, ends)
            self.state.placed[variables] = True

    def place_others(self, variables: Codes, origins: Codes, cells: Codes) -> None:
        new = self._not_placed(variables)
        for origin, (start, end) in self._edges_of.items():
            mine = new[origins[new] == origin]
            if len(mine):
                self._form.place(variables[mine], cells[mine, start].copy(), cells[mine, end].copy())
                self.state.placed[variables[mine]] = True

    def _not_placed(self, variables: Codes) -> Codes:
        """Return which variables, by their positions, have no place yet."""
        state = self.state
        if len(variables) and (last := int(variables.max())) >= len(state.placed):
            state.placed = with_room(state.placed, 2 * (last + 1))
        return np.flatnonzero(~state.placed[variables])

    def displace(self, variables: Codes) -> None:
        placed = self.state.placed
        variables = variables[variables < len(placed)]  # an absence that ended before any rule read it has no place
        variables = variables[placed[variables]]
        placed[variables] = False
        self._form.lose(variables)

    @property
    def form(self) -> str:
        return self._form.form


def _as_one(spec: Exchange) -> RuleProgram:
    """Return the local rules with copies taken for what they are copies of: as in the component's own rules."""
    head = {spec.origin[number]: number for number, _ in spec.copies}
    rules = [
        replace(
            rule,
            atoms=tuple(replace(a, relation=head.get(spec.origin[a.relation], a.relation)) for a in rule.atoms),
        )
        for rule in spec.rules.rules
    ]
    return replace(spec.rules, rules=rules)
