"""Set operations: DISTINCT, INTERSECT and EXCEPT, with or without ALL, as one function of two counts.

Law: none of them is linear, but each row's output is a function f(l, r) of how often it is on the left and on the
right, so d(output) of a row is f(new counts) - f(old counts). NULLs are equal here. State: a relation of rows with
the two counts. Cost: one hash operation a row of the deltas.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from whence.engine.core.batch import concat, consolidate
from whence.engine.core.image import Image
from whence.engine.core.kernels.batches import number_rows, sum_by
from whence.engine.core.operator import Batch, Operator
from whence.engine.core.relation import Relation
from whence.model.codes import Codes
from whence.model.types import Schema
from whence.model.word_marks import WordMarks

_FUNCTIONS: dict[tuple[str, bool], Callable[[Codes, Codes], Codes]] = {
    ("distinct", False): lambda a, b: (a > 0).astype(np.int64),
    ("intersect", False): lambda a, b: ((a > 0) & (b > 0)).astype(np.int64),
    ("intersect", True): lambda a, b: np.maximum(np.minimum(a, b), 0),
    ("except", False): lambda a, b: ((a > 0) & (b <= 0)).astype(np.int64),
    ("except", True): lambda a, b: np.maximum(a - np.maximum(b, 0), 0),
}


class _Counting(Operator):
    """An operator whose state is one relation of counts."""

    counts: Relation

    def commit(self) -> None:
        self.counts.commit()

    def undo(self) -> None:
        self.counts.undo()

    def image(self) -> Image:
        return self.counts.image()

    def restore(self, image: Image) -> None:
        self.counts.restore(image)

    def mark_words(self, marks: WordMarks) -> None:
        self.counts.mark_words(marks, self.schema.types)

    @property
    def recalls(self) -> bool:
        return True

    @property
    def state_rows(self) -> int:
        return len(self.counts)

    @property
    def state_bytes(self) -> int:
        return self.counts.nbytes


class Distinct(_Counting):
    """Each row once."""

    def __init__(self, input: Operator):
        self.schema, self.inputs = input.schema, [input]
        self.counts = Relation(len(input.schema))

    def apply(self, deltas: list[Batch]) -> Batch:
        delta = consolidate(deltas[0])
        if not len(delta.ann):
            return delta
        _, old, new = self.counts.apply(delta)
        change = (new > 0).astype(np.int64) - (old > 0)
        keep = np.flatnonzero(change)
        return (
            Batch(delta.rows[keep], change[keep], True) if len(keep) < len(change) else Batch(delta.rows, change, True)
        )

    def recompute(self) -> Batch:
        all_ = self.counts.scan()
        return Batch(all_.rows, np.ones(len(all_), np.int64), True)


class SetOp(_Counting):
    """INTERSECT and EXCEPT. A row's annotation is its left plus its right count: it stays while either is."""

    def __init__(self, left: Operator, right: Operator, kind: str, all: bool, schema: Schema):
        self.schema, self.inputs = schema, [left, right]
        self.kind, self.all = kind, all
        self._function = _FUNCTIONS[kind, all]
        self.counts = Relation(len(schema), 2)

    def apply(self, deltas: list[Batch]) -> Batch:
        both = concat(deltas, len(self.schema))
        number, first = number_rows(both.rows)
        rows, n = both.rows[first], len(first)
        split, mult = len(deltas[0].ann), both.ann
        left, right = sum_by(number[:split], mult[:split], n), sum_by(number[split:], mult[split:], n)
        counts = self.counts
        ids, _ = counts.upsert(rows)
        before = counts.save(ids)
        after = before + np.column_stack((left, right))
        counts.acc[ids] = after
        counts.settle(np.abs(after).sum(axis=1))
        f = self._function
        change = f(after[:, 0], after[:, 1]) - f(before[:, 0], before[:, 1])
        keep = np.flatnonzero(change)
        return Batch(rows[keep], change[keep], True)

    def recompute(self) -> Batch:
        ids = self.counts.ids()
        out = self._function(self.counts.acc[ids, 0], self.counts.acc[ids, 1])
        keep = np.flatnonzero(out)
        return Batch(self.counts.rows[ids[keep]], out[keep], True)

    def describe(self) -> str:
        return self.kind + (" all" if self.all else "")
