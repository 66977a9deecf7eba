"""Values: constant rows. Law: a constant has delta zero; it is seen once, when it is primed. State: the rows."""

from __future__ import annotations

from typing import Any

import numpy as np

from whence.engine.core.operator import Batch, Operator
from whence.model.codes import Dictionary, encode_value
from whence.model.types import Schema
from whence.model.word_marks import WordMarks


class Values(Operator):
    """Rows that never change."""

    def __init__(self, rows: tuple[tuple[Any, ...], ...], schema: Schema, dictionary: Dictionary):
        self.schema, self.inputs = schema, []
        codes = [[encode_value(v, t, dictionary) for v, t in zip(row, schema.types, strict=True)] for row in rows]
        self._rows = np.array(codes, np.int64).reshape(len(rows), len(schema))

    def apply(self, deltas: list[Batch]) -> Batch:
        return Batch.empty(len(self.schema))

    def prime(self, contents: list[Batch]) -> Batch:
        return self.recompute()

    def recompute(self) -> Batch:
        return Batch(self._rows.copy(), np.ones(len(self._rows), np.int64))

    def mark_words(self, marks: WordMarks) -> None:
        marks.rows(self._rows, self.schema.types)

    @property
    def state_rows(self) -> int:
        return len(self._rows)

    @property
    def state_bytes(self) -> int:
        return self._rows.nbytes
