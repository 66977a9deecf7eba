"""Retain: a stream view, whose last rows are kept.

Law: output = input. State: the last rows with what they carry; tids count the rows, from 1; and
of a view whose covering intervals are replayed, checkpoints of the network before it. Cost: a copy of the batch.
"""

from __future__ import annotations

from whence.engine.checkpoints import checkpoints_of
from whence.engine.image import Image, inside, nested
from whence.engine.operator import Batch, Operator
from whence.engine.retained import Retained
from whence.engine.stream import StreamOperator
from whence.engine.stream_scan import StreamScan, counted, time_now
from whence.model.codes import Codes
from whence.plan.stream_model import Retention


class Retain(StreamOperator):
    """A stream that can be read, row by row and by tid."""

    keeps_output = True

    def __init__(self, input: Operator, retention: Retention, name: str = "") -> None:
        self.inputs, self.schema, self.algebra, self.name = [input], input.schema, input.algebra, name
        self.kept = Retained(len(self.schema), retention, self.tracer, name)
        self.checkpoints = checkpoints_of(input)
        self.dropped_rows = 0
        self._now: int | None = None  # the time of the epoch that brought the last rows

    def apply(self, deltas: list[Batch]) -> Batch:
        (delta,) = deltas
        self._now = time_now()
        self.kept.append(delta.rows, delta.ann)
        return delta

    def prime(self, contents: list[Batch]) -> Batch:
        if self.checkpoints is not None:
            self.checkpoints.begin()
        return self.apply(contents)

    def recompute(self) -> Batch:
        return self.kept.scan()

    def fresh(self) -> Retain:
        return Retain(self.inputs[0], self.kept.retention, self.name)

    def count_of(self, rows: Codes) -> Codes:
        return counted(self.kept, rows)

    @property
    def size(self) -> int:
        return len(self.kept)

    @property
    def recalls(self) -> bool:
        return True

    def held(self) -> list[Codes]:
        return [self.kept.ann] if self.tracer is not None else []

    def commit(self) -> None:
        self.dropped_rows += self.kept.commit(self._now)

    def undo(self) -> None:
        self.kept.undo()

    def clear(self) -> None:
        self.kept.clear()

    def image(self) -> Image:
        own = self.kept.image()
        return own | nested("checkpoints", self.checkpoints.image()) if self.checkpoints is not None else own

    def restore(self, image: Image) -> None:
        if self.checkpoints is not None:
            self.checkpoints.restore(inside("checkpoints", image))
        self.kept.restore(image)

    @property
    def state_rows(self) -> int:
        return len(self.kept)

    @property
    def state_bytes(self) -> int:
        return self.kept.nbytes + (self.checkpoints.nbytes if self.checkpoints is not None else 0)

    def describe(self) -> str:
        return f"stream view, {self.kept.retention.text} kept"


def is_stream(op: Operator) -> bool:
    """Whether an operator is a stream or a stream view: its rows have an order, and `$at` is their last column."""
    return isinstance(op, (StreamScan, Retain))
