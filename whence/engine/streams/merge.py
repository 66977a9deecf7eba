"""Merge: the rows of several streams in the order they arrived.

Law: an epoch brings all rows of all inputs that arrived in it, and every later row arrives after them, so the merged
batches are the merged streams. Rows that arrived together stand by input, and in an input as they came. No state. Cost:
merging sorted runs, linear in the batch.
"""

from __future__ import annotations

import numpy as np

from whence.engine.core.batch import concat
from whence.engine.core.operator import Batch, Operator
from whence.engine.streams.stream import StreamOperator
from whence.model.types import Schema


class Merge(StreamOperator):
    """UNION ALL of streams."""

    def __init__(self, inputs: list[Operator], schema: Schema) -> None:
        self.schema, self.tracer, self.inputs = schema, inputs[0].tracer, inputs

    def apply(self, deltas: list[Batch]) -> Batch:
        both = concat(deltas, len(self.schema))
        if sum(len(delta) > 0 for delta in deltas) <= 1:
            return both
        order = np.argsort(both.rows[:, -1], kind="stable")  # finds the runs, and merges them
        return Batch(both.rows[order], both.ann[order])

    def fresh(self) -> Merge:
        return Merge(self.inputs, self.schema)

    def describe(self) -> str:
        return f"merge {len(self.inputs)} streams"
