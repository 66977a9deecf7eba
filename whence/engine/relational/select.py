"""Select: rows for which a predicate is true.

Law: selection is linear, σ(A + dA) = σ(A) + σ(dA), so it has no state. Cost: the predicate on the batch.
"""

from __future__ import annotations

from whence.engine.core.batch import carefully, take
from whence.engine.core.operator import Batch, Operator
from whence.engine.expressions.conditions import Decision
from whence.engine.expressions.evaluate import compile_expr
from whence.model.codes import Codes, Dictionary
from whence.plan.algebra.expressions import Expr


class Select(Operator):
    """Keeps the rows whose predicate is true; NULL is not true."""

    linear = True

    def __init__(self, input: Operator, predicate: Expr, dictionary: Dictionary):
        self.schema, self.tracer, self.inputs = input.schema, input.tracer, [input]
        self.predicate = predicate
        self._test = compile_expr(predicate, dictionary)

    @property
    def program(self) -> Codes | None:
        """The program that decides for rows of the input, if it is one that reads nothing else."""
        test = self._test
        return test.program if isinstance(test, Decision) and test.reads_rows else None

    def apply(self, deltas: list[Batch]) -> Batch:
        return carefully(deltas[0], self.tracer, self._passing)

    def _passing(self, delta: Batch) -> Batch:
        keep = (self._test(delta.rows) == 1).nonzero()[0]
        if len(keep) == len(delta.ann):
            return delta
        return take(delta, keep) if len(keep) else Batch.empty(len(self.schema))

    def recompute(self) -> Batch:
        return self.apply([self.inputs[0].contents()])

    def describe(self) -> str:
        return f"select {self.predicate}"
