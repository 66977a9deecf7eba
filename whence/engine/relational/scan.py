"""Scan: a base table's port into the dataflow.

Law: output = the table, so the delta passes through unchanged. State: the table itself, a relation that other operators
index instead of copying. Cost: one hash operation a row of the batch, and one per index.
"""

from __future__ import annotations

from whence.engine.core.batch import codes2d, consolidate
from whence.engine.core.fingerprint import fingerprint
from whence.engine.core.image import Image
from whence.engine.core.operator import Batch, Operator
from whence.engine.core.relation import Relation
from whence.model.types import Schema
from whence.model.word_marks import WordMarks


class Scan(Operator):
    """A table. The dataflow gives it the epoch's delta and adds that to `relation`."""

    primed = True

    def __init__(self, name: str, schema: Schema, key: tuple[int, ...], extra: int = 0):
        self.name, self.schema, self.key, self.inputs = name, schema, key, []
        self.fingerprint = fingerprint(("scan", name, schema.types, key))
        self.relation = self.arranged = Relation(len(schema), extra)
        if key:
            self.relation.index(key)

    def apply(self, deltas: list[Batch]) -> Batch:
        (delta,) = deltas
        return consolidate(Batch(codes2d(delta.rows), codes2d(delta.ann), delta.unique))

    def recompute(self) -> Batch:
        return self.relation.scan()

    def image(self) -> Image:
        return self.relation.image()

    def restore(self, image: Image) -> None:
        self.relation.restore(image)

    def mark_words(self, marks: WordMarks) -> None:
        self.relation.mark_words(marks, self.schema.types)

    @property
    def state_rows(self) -> int:
        return len(self.relation)

    @property
    def state_bytes(self) -> int:
        return self.relation.nbytes

    def describe(self) -> str:
        return f"scan {self.name}"
