"""Relative: a row's annotation is its derivations themselves, edges from rows to the rows they were derived from."""

from __future__ import annotations

import numpy as np

from whence.annotate.relative import Relative
from whence.engine.recursion.policies.annotated import AnnotatedPolicy
from whence.model.codes import Codes

_NONE = np.empty(0, np.int64)


class RelativePolicy(AnnotatedPolicy):
    """Formulas of `annotate/relative.py`, which mention derived rows too: a group by its value."""

    name = "relative"
    _bodies = _NONE, _NONE  # of the derivations at hand: slots, rising, and their variables

    def make_formulas(self) -> Relative:
        return Relative()

    def prepare(self, block: Codes) -> None:
        used = np.unique(block[:, 1 : 1 + self.runner.rules.atoms])
        self._bodies = used, self.state.variables_now(used)  # groups with the values from which this derives

    def product(self, rules: Codes, slots: Codes, bodies: Codes) -> Codes:
        found = super().product(rules, slots, bodies)
        used, variables = self._bodies
        rows = np.ascontiguousarray(variables[np.searchsorted(used, bodies)].T)
        assert isinstance(self.formulas, Relative)
        return self.formulas.derived(found, np.ascontiguousarray(rules), self.state.variables_now(slots), rows)

    @property
    def form(self) -> str:
        return "edges"
