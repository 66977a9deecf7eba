"""Align: the covering intervals of a stream, laid out for a network that traces more sources.

Law: identity on rows and on what annotations mean. No state.
"""

from __future__ import annotations

import numpy as np

from whence.annotate.tracing import Tracer
from whence.engine.core.operator import Batch, Operator
from whence.engine.streams.stream import StreamOperator


class Align(StreamOperator):
    """A stream whose columns of each source are moved to their new places; a source that was not traced has none."""

    def __init__(self, input: Operator, tracer: Tracer) -> None:
        assert input.tracer is not None
        self.schema, self.tracer, self.inputs = input.schema, tracer, [input]
        before = input.tracer.sources
        self._from = [2 * before.index(s) + end for s in tracer.sources if s in before for end in (0, 1)]
        self._to = [2 * n + end for n, s in enumerate(tracer.sources) if s in before for end in (0, 1)]

    def apply(self, deltas: list[Batch]) -> Batch:
        (delta,) = deltas
        tracer = self.tracer
        assert tracer is not None
        ann = tracer.blank(len(delta.rows))
        if len(ann):
            ann[:, self._to] = delta.ann[:, self._from]
        return Batch(delta.rows, np.ascontiguousarray(ann), delta.unique)

    def fresh(self) -> Operator:
        assert self.tracer is not None
        return Align(self.inputs[0], self.tracer)

    def describe(self) -> str:
        return "align covering intervals"
