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
        columns = [e.index for e in exprs if isinstance(e, Col)]
        self._columns, self._gather = np.array(columns, np.int64), len(columns) == len(exprs)
        self._keeps = self._gather and set(columns) >= set(range(len(input.schema)))
        self._compute = [] if self._gather else [compile_expr(e, dictionary) for e in exprs]

    def apply(self, deltas: list[Batch]) -> Batch:
        (delta,) = deltas
        if self._gather:
            return Batch(delta.rows.take(self._columns, axis=1), delta.ann, delta.unique and self._keeps)
        return carefully(delta, self.tracer, self._computed)

    def _computed(self, delta: Batch) -> Batch:
        rows = np.empty((len(delta.ann), len(self._compute)), np.int64)
        if len(delta.ann):
            for c, compute in enumerate(self._compute):
                rows[:, c] = compute(delta.rows)
        return Batch(rows, delta.ann)

    def recompute(self) -> Batch:
        return self.apply([self.inputs[0].contents()])

    def describe(self) -> str:
        return "project " + ", ".join(map(str, self.exprs))
