"""Union: all rows of all inputs (UNION ALL).

Law: addition, d(A + B) = dA + dB. No state; cost: a copy of the batches.
"""

from __future__ import annotations

from whence.engine.core.batch import concat
from whence.engine.core.operator import Batch, Operator
from whence.model.types import Schema


class Union(Operator):
    """Puts its inputs together."""

    def __init__(self, inputs: list[Operator], schema: Schema):
        self.schema, self.inputs = schema, inputs

    def apply(self, deltas: list[Batch]) -> Batch:
        return concat(deltas, len(self.schema))

    def recompute(self) -> Batch:
        return concat([op.contents() for op in self.inputs], len(self.schema))
