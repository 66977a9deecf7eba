"""Project: one row of expressions for each row in.

Law: projection is linear, π(A + dA) = π(A) + π(dA); rows that become equal add up their annotations downstream. No
state. Cost: the expressions on the batch; a permutation of columns is one gather.
"""

from __future__ import annotations

import numpy as np

from whence.engine.core.batch import carefully
from whence.engine.core.operator import Batch, Operator
from whence.engine.expressions.evaluate import compile_expr
from whence.model.codes import Dictionary
from whence.model.types import Schema
from whence.plan.algebra.expressions import Col, Expr


class Project(Operator):
    """Computes columns."""

    linear = True

    def __init__(self, input: Operator, exprs: tuple[Expr, ...], schema: Schema, dictionary: Dictionary):
        self.schema, self.tracer, self.inputs = schema, input.tracer, [input]
        self.exprs = exprs
        copied = {e.index for e in exprs if isinstance(e, Col)}
        self._columns = np.array([e.index if isinstance(e, Col) else min(copied, default=0) for e in exprs], np.int64)
        self._compute = [(c, compile_expr(e, dictionary)) for c, e in enumerate(exprs) if not isinstance(e, Col)]
        self._copies, self._keeps = bool(copied), copied >= set(range(len(input.schema)))

    def apply(self, deltas: list[Batch]) -> Batch:
        (delta,) = deltas
        if not self._compute:
            return Batch(delta.rows.take(self._columns, axis=1), delta.ann, delta.unique and self._keeps)
        return carefully(delta, self.tracer, self._computed)

    def _computed(self, delta: Batch) -> Batch:
        n = len(delta.ann)
        rows = delta.rows.take(self._columns, axis=1) if self._copies else np.empty((n, len(self.exprs)), np.int64)
        for c, compute in self._compute if n else ():
            rows[:, c] = compute(delta.rows)
        return Batch(rows, delta.ann)

    def recompute(self) -> Batch:
        return self.apply([self.inputs[0].contents()])

    def describe(self) -> str:
        return "project " + ", ".join(map(str, self.exprs))
