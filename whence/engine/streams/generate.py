"""Where provenance begins and ends: Generate, DropProvenance, StreamToRelation.

Law: rows pass unchanged. Generate annotates each row with its own tid, or with nothing where its stream is not traced.
DropProvenance annotates it with 1; StreamToRelation, too, and drops `$at`, or makes it a column like others: a relation
to which every row adds one. State: Generate counts the rows that came; the others have none. Cost: one column per
batch.
"""

from __future__ import annotations

import numpy as np

from whence.annotate.tracing import Tracer
from whence.engine.core.image import Image, expect
from whence.engine.core.operator import Batch, Operator
from whence.engine.streams.stream import StreamOperator
from whence.model.types import Schema


class Generate(StreamOperator):
    """A stream whose n-th row of all carries tid n of `source`."""

    def __init__(self, input: Operator, source: str | None, tracer: Tracer) -> None:
        self.schema, self.tracer, self.inputs = input.schema, tracer, [input]
        self.source, self._tracer = source, tracer
        self.next = 1  # the tid of the next row
        self._before: int | None = None

    def apply(self, deltas: list[Batch]) -> Batch:
        (delta,) = deltas
        if self._before is None:
            self._before = self.next
        first, self.next = self.next, self.next + len(delta)
        if self.source is None:
            return Batch(delta.rows, self._tracer.blank(len(delta)), delta.unique)
        return Batch(delta.rows, self._tracer.generate(self.source, np.arange(first, self.next)), delta.unique)

    def prime(self, contents: list[Batch]) -> Batch:
        """Set the number of the first row to that of the first row the stream retains."""
        kept = getattr(self.inputs[0], "kept", None)
        self.next = 1 if kept is None else int(kept.first)
        return self.apply(contents)

    def recompute(self) -> Batch:
        return self.fresh().prime([self.inputs[0].contents()])

    def fresh(self) -> Generate:
        return Generate(self.inputs[0], self.source, self._tracer)

    def commit(self) -> None:
        self._before = None

    def undo(self) -> None:
        if self._before is not None:
            self.next, self._before = self._before, None

    def clear(self) -> None:
        self.next, self._before = 1, None

    def image(self) -> Image:
        return {"next": np.array([self.next], np.int64)}

    def restore(self, image: Image) -> None:
        expect(image, next=(1,))
        self.next, self._before = int(image["next"][0]), None

    def describe(self) -> str:
        return f"generate tids of {self.source}" if self.source is not None else "generate no tids"


class DropProvenance(StreamOperator):
    """The stream without its provenance."""

    def __init__(self, input: Operator) -> None:
        self.schema, self.inputs = input.schema, [input]

    def apply(self, deltas: list[Batch]) -> Batch:
        (delta,) = deltas
        return Batch(delta.rows, np.ones(len(delta), np.int64), delta.unique)

    def fresh(self) -> DropProvenance:
        return DropProvenance(self.inputs[0])

    def describe(self) -> str:
        return "drop provenance"


class StreamToRelation(StreamOperator):
    """The relation of all rows of a stream so far."""

    only_adds = True

    def __init__(self, input: Operator, schema: Schema) -> None:
        self.schema, self.inputs = schema, [input]

    def apply(self, deltas: list[Batch]) -> Batch:
        (delta,) = deltas
        return Batch(np.ascontiguousarray(delta.rows[:, : len(self.schema)]), np.ones(len(delta), np.int64))

    def fresh(self) -> StreamToRelation:
        return StreamToRelation(self.inputs[0], self.schema)

    def describe(self) -> str:
        return "stream as relation"
