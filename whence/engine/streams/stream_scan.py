"""StreamScan: a base stream's port into the dataflow.

Law: output = the rows that came, in the order they came, each with its `$at`; it is append-only. State: the
last rows, as far as they are retained. Cost: a copy of the batch.
"""

from __future__ import annotations

import numpy as np

from whence.engine.core.fingerprint import fingerprint
from whence.engine.core.image import Image
from whence.engine.core.key_lookup import among_rows
from whence.engine.core.operator import Batch, Operator
from whence.engine.relational.scan import Scan
from whence.engine.streams.connection_point import ConnectionPoint
from whence.model.codes import Codes
from whence.model.types import Schema
from whence.model.word_marks import WordMarks
from whence.plan.streams.model import Retention, with_at, without_at


class RetainingOperator(Operator):
    """An operator whose output is a stream of which it retains the last rows."""

    keeps_output = True
    kept: ConnectionPoint
    dropped_rows = 0
    _now: int | None = None  # the time of the epoch that brought the last rows

    def apply(self, deltas: list[Batch]) -> Batch:
        (delta,) = deltas
        self._now = self.context.time if self.context.number else None
        self.kept.append(delta.rows, delta.ann)
        return delta

    def recompute(self) -> Batch:
        return self.kept.scan()

    def count_of(self, rows: Codes) -> Codes:
        """Count how often each of these rows (with or without `$at`) is retained."""
        there = self.kept.rows[:, : rows.shape[1]]
        return np.array([int((there == row).all(axis=1).sum()) for row in rows], np.int64)

    def find(self, cols: tuple[int, ...], keys: Codes) -> Batch:
        """Return the retained rows whose `cols` equal one of the distinct `keys`, in their order."""
        return among_rows(self.kept.scan(), cols, keys) if len(keys) else Batch.empty(len(self.schema))

    @property
    def size(self) -> int:
        return len(self.kept)

    def commit(self) -> None:
        self.dropped_rows += self.kept.commit(self._now)

    def undo(self) -> None:
        self.kept.undo()

    def clear(self) -> None:
        self.kept.clear()

    def image(self) -> Image:
        return self.kept.image()

    def restore(self, image: Image) -> None:
        self.kept.restore(image)

    def mark_words(self, marks: WordMarks) -> None:
        self.kept.mark_words(marks, self.schema.types)

    @property
    def recalls(self) -> bool:
        return True

    @property
    def state_rows(self) -> int:
        return len(self.kept)

    @property
    def state_bytes(self) -> int:
        return self.kept.nbytes


class StreamScan(RetainingOperator, Scan):
    """A stream among the tables. There is no `relation`: a stream is no set of rows."""

    def __init__(self, name: str, schema: Schema, retention: Retention) -> None:
        self.name, self.schema, self.key, self.inputs = name, with_at(without_at(schema)), (), []
        self.fingerprint = fingerprint(("stream", name, self.schema.types))
        self.kept = ConnectionPoint(len(self.schema), retention, name=name)

    def describe(self) -> str:
        return f"stream {self.name}, {self.kept.retention.text} kept"
