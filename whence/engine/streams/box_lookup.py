"""BoxLookup: each row of a stream joined with the subscriptions of a template that select it, found in groups.

Law: that of `lookup.py`, and the same rows in the same order. State: the boxes of the subscriptions
(`matching/boxes.py`). They follow from the relation, so images have none of it: they are built from the relation when
a row or a change first needs them, and again when labels of texts have moved. Cost: a row finds the subscriptions that
select it in O(log n) and their number; a subscription that comes or goes costs O(log n).
"""

from __future__ import annotations

import numpy as np

from whence.engine.core.operator import Batch, Operator
from whence.engine.expressions.evaluate import compile_expr
from whence.engine.matching.bounds import ParameterBounds, Points
from whence.engine.matching.boxes import Boxes
from whence.engine.streams.lookup import BLOCK, Lookup
from whence.model.codes import Codes, Dictionary
from whence.plan.algebra.expressions import Expr
from whence.plan.algebra.logical import Range
from whence.plan.streams import model as streams
from whence.plan.streams.lookup_boxes import LookupBox


class BoxLookup(Lookup):
    """An inner join of a stream with a relation whose first column identifies its rows, by boxes."""

    def __init__(self, inputs: list[Operator], node: streams.Lookup, box: LookupBox, dictionary: Dictionary) -> None:
        self._box = box
        super().__init__(inputs, node, dictionary)
        self._values = [compile_expr(value, dictionary) for value in box.values]
        equal = len(box.equal)
        types = [inputs[0].schema.types[a] for a, _ in box.equal] + [value.type for value in box.values]
        dimensions: tuple[int | Range, ...] = (*(b for _, b in box.equal), *box.ranges)
        self._bounds = ParameterBounds(dimensions, inputs[1].schema.types, dictionary)
        self._points = Points(len(dimensions), equal, types, dictionary)
        self._boxes = Boxes(len(dimensions), equal)
        self._built: int | None = None  # the order of labels that the boxes were built by; None if they were not
        self._is_new = False  # built in this epoch

    def searched_by(self) -> tuple[int, ...]:
        return (0,)  # found by their boxes, then by what identifies them

    def tested(self) -> Expr | None:
        return self._box.rest

    @property
    def block(self) -> int:
        return BLOCK

    def candidates(self, rows: Codes) -> tuple[Codes, Codes]:
        columns = [rows[:, a] for a, _ in self._box.equal] + [compute(rows) for compute in self._values]
        points = self._points.of(np.column_stack(columns))
        at, tags = self._boxes.find(points, points)
        met, ids = self._relation.matches(self._index, tags[:, None], np.zeros(1, np.int64))
        return at[met], ids

    def apply(self, deltas: list[Batch]) -> Batch:
        self._follow(deltas[1])
        return super().apply(deltas)

    def _follow(self, delta: Batch) -> None:
        """Have the boxes of the relation, which has the changes of this epoch already."""
        if self._bounds.is_labelled:
            self._dictionary.labels()
        if self._built != self._dictionary.order_version and (self._bounds.is_labelled or self._built is None):
            self._boxes.clear()
            self._boxes.put(self._bounds.lines(self._relation.scan().rows)[0])
            self._built, self._is_new = self._dictionary.order_version, True
        elif len(delta) and not self._is_new:
            for sign, change in ((-1, self._boxes.remove), (1, self._boxes.add)):
                found = self._bounds.boxes(delta.rows[np.sign(delta.ann) == sign])
                change(found.lows, found.highs, found.ids)

    def commit(self) -> None:
        self._boxes.commit()
        self._is_new = False

    def undo(self) -> None:
        if self._is_new:
            self._built, self._is_new = None, False
        else:
            self._boxes.undo()

    def fresh(self) -> Lookup:
        return BoxLookup(self.inputs, self.node, self._box, self._dictionary)

    @property
    def state_rows(self) -> int:
        return len(self._boxes)

    @property
    def state_bytes(self) -> int:
        return self._boxes.nbytes

    def describe(self) -> str:
        then = f", then where {self._box.rest}" if self._box.rest is not None else ""
        return f"match subscriptions with rows of a stream by {self._box.describe()}{then}"
