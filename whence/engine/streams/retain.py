"""Retain: a stream view, whose last rows are retained.

Law: output = input. State: the last rows with what they carry; tids count the rows, from 1; and
of a view whose covering intervals are replayed, checkpoints of the network before it. Cost: a copy of the batch.
"""

from __future__ import annotations

from whence.engine.core.image import Image, inside, nested
from whence.engine.core.operator import Batch, Operator
from whence.engine.streams.connection_point import ConnectionPoint
from whence.engine.streams.replay.checkpoints import checkpoints_of
from whence.engine.streams.stream import StreamOperator
from whence.engine.streams.stream_scan import RetainingOperator, StreamScan
from whence.model.codes import Codes
from whence.model.word_marks import WordMarks
from whence.plan.streams.model import Retention


class Retain(RetainingOperator, StreamOperator):
    """A stream view that can be read, row by row and by tid."""

    def __init__(self, input: Operator, retention: Retention, name: str = "") -> None:
        self.inputs, self.schema, self.tracer, self.name = [input], input.schema, input.tracer, name
        self.kept = ConnectionPoint(len(self.schema), retention, self.tracer, name)
        self.checkpoints = checkpoints_of(input)

    def prime(self, contents: list[Batch]) -> Batch:
        if self.checkpoints is not None:
            self.checkpoints.begin()
        return self.apply(contents)

    def fresh(self) -> Retain:
        return Retain(self.inputs[0], self.kept.retention, self.name)

    def held(self) -> list[Codes]:
        return [self.kept.ann] if self.tracer is not None else []

    def image(self) -> Image:
        own = super().image()
        return own | nested("checkpoints", self.checkpoints.image()) if self.checkpoints is not None else own

    def restore(self, image: Image) -> None:
        if self.checkpoints is not None:
            self.checkpoints.restore(inside("checkpoints", image))
        super().restore(image)

    def mark_words(self, marks: WordMarks) -> None:
        super().mark_words(marks)
        if self.checkpoints is not None:
            self.checkpoints.mark_words(marks)

    @property
    def state_bytes(self) -> int:
        return super().state_bytes + (self.checkpoints.nbytes if self.checkpoints is not None else 0)

    def describe(self) -> str:
        return f"stream view, {self.kept.retention.text} kept"


def is_stream(op: Operator) -> bool:
    """Tell whether an operator is a stream or a stream view: its rows have an order, and `$at` is their last column."""
    return isinstance(op, (StreamScan, Retain))
