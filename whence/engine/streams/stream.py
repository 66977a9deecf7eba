"""Stream operators: ordered batches in, an ordered batch out, append-only.

Law: for the sequence S that came in so far and the batch B, `output(S · B) = output(S) · apply(B)`: what comes out is
the same however arrivals are cut into batches. The last column of rows in and out is `$at` (`plan/algebra/arrival.py`),
and `ann` is a column of the operator's `Tracer`, or ones where nothing is traced.

An operator that has state logs what it overwrites, for `undo`; its `image` holds annotations under names that begin
with `ann/` (as `Tracer.image` gives them), and an image without these restores rows that came from nowhere.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from whence.engine.core.image import StaleImage
from whence.engine.core.operator import Batch, Operator
from whence.model.codes import NULL, Codes
from whence.model.types import Type
from whence.model.word_marks import WordMarks

ANN = "ann/"  # begins the names of annotations in images


class StreamOperator(Operator):
    """An operator whose output is a stream (or, for Latest and StreamToRelation, a relation made of one)."""

    def held(self) -> list[Codes]:
        """Return the columns of annotations in its state, to be renamed in place by `Tracer.collect`; only between
        epochs."""
        return []

    def clear(self) -> None:
        """Reset to the initial state. What could be undone cannot be any more."""

    def fresh(self) -> Operator:
        """Return a new operator of the same kind over the same inputs, in its initial state."""
        raise TypeError(f"{type(self).__name__} does not say how it is made")

    def recompute(self) -> Batch:
        """Return the output of a new operator over all that the inputs retain."""
        return self.fresh().apply([i.contents() for i in self.inputs])


@dataclass(frozen=True)
class Missed:
    """Results that a join in bounded memory did not make, since rows were evicted: pairs whose keys agree.

    `is_exact` says whether all keys were counted; else `rows` is an estimate, and `error` its standard error.

    >>> whence.Missed(17)
    Missed(rows=17, error=0.0, is_exact=True)
    """

    rows: int
    error: float = 0.0
    is_exact: bool = True


class Late:
    """The rows that came too late, counted; the last of them are kept for inspection. Rows have no `$at`."""

    KEPT = 10_000

    def __init__(self, columns: int, column: int | None = None) -> None:
        """Count late rows by the column that rows are late by."""
        self.count, self.column = 0, column
        self.first: tuple[int, int] | None = None  # the first late value, and the greatest so far: not yet warned of
        self.rows = np.empty((0, columns), np.int64)
        self._before: tuple[int, Codes] | None = None

    def add(self, rows: Codes, newest: int = NULL) -> None:
        """Take rows in, in the order they came; `newest` is the greatest value that they may be behind."""
        if not len(rows):
            return
        if self.count == 0 and self.column is not None:
            self.first = int(rows[0, self.column]), newest
        if self._before is None:
            self._before = self.count, self.rows
        self.count += len(rows)
        self.rows = np.concatenate((self.rows, rows))[-self.KEPT :]

    def commit(self) -> None:
        self._before = None

    def undo(self) -> None:
        if self._before is not None:
            self.count, self.rows = self._before
            self.first = self.first if self.count else None
        self._before = None

    def clear(self) -> None:
        self.count, self.rows, self._before, self.first = 0, self.rows[:0], None, None

    def mark_words(self, marks: WordMarks, types: Sequence[Type]) -> None:
        """Mark the words that late rows refer to; `types` are the columns that they came with."""
        marks.rows(self.rows, types[: self.rows.shape[1]])

    def image(self) -> dict[str, np.ndarray]:
        return {"late": self.rows, "late_count": np.array([self.count], np.int64)}

    def check(self, image: dict[str, np.ndarray]) -> None:
        """Raise StaleImage if the image does not have such rows."""
        rows, count = image.get("late"), image.get("late_count")
        if rows is None or rows.dtype != np.int64 or rows.ndim != 2 or rows.shape[1] != self.rows.shape[1]:
            raise StaleImage(f"no image of late rows with {self.rows.shape[1]} columns")
        if count is None or count.dtype != np.int64 or count.shape != (1,) or count[0] < len(rows):
            raise StaleImage("no image of how many rows were late")

    def restore(self, image: dict[str, np.ndarray]) -> None:
        self.rows, self.count, self._before = image["late"].copy(), int(image["late_count"][0]), None
