"""MatchRows: subscriptions that select rows of one relation by equalities and ranges.

Law: see `matching.py`, with one relation: dR·P + R'·dP. State: the boxes of the subscriptions, in which a row is a
point, and the rows in the order of their first columns, in which a new subscription finds what it selects. Cost: a row
finds the subscriptions that select it in O(log n) and their number, see `boxes.py`; a new subscription reads the rows
in its equalities and first range.
"""

from __future__ import annotations

import numpy as np

from whence.engine.core.operator import Batch, Operator
from whence.engine.core.ordered import Ordered
from whence.engine.matching.bounds import ParameterBounds, Points
from whence.engine.matching.boxes import Boxes
from whence.engine.matching.kernels.inside import inside
from whence.engine.matching.matching import Matching, index_of
from whence.model.codes import Codes, Dictionary
from whence.plan.algebra import logical


class MatchRows(Matching):
    """Ids of subscriptions, and the rows in their boxes."""

    def __init__(self, inputs: list[Operator], node: logical.MatchRows, dictionary: Dictionary):
        super().__init__(inputs, node.exprs, node.schema, dictionary)
        types, equal = inputs[0].schema.types, len(node.equal)
        self._equal, self._node = equal, node
        self._bounds = ParameterBounds((*node.equal, *node.ranges), inputs[1].schema.types, dictionary)
        self._points = Points(len(self._bounds), equal, types, dictionary)
        self.is_labelled, self.is_read = self._bounds.is_labelled, node.is_read
        self._boxes = Boxes(len(self._bounds), equal)
        self._rows = index_of(types, range(equal, len(self._bounds)), dictionary)

    def meet(self, deltas: list[Batch]) -> list[Batch]:
        (delta,) = deltas
        points = self._points.of(delta.rows)
        at, ids = self._boxes.find(points, points)
        self._rows.add(delta.rows, delta.ann)
        return [Batch(np.column_stack((ids, delta.rows[at])), delta.ann[at])]

    def change(self, gone: Codes, come: Codes) -> None:
        for rows, change in ((gone, self._boxes.take), (come, self._boxes.put)):
            if len(rows):
                change(self._bounds.lines(rows)[0])

    def select(self, rows: Codes) -> tuple[Codes, Batch]:
        found = self._bounds.boxes(rows)
        at, lines = inside(*self._rows.leaves, found.lows, found.highs, self._equal)
        selected, counts = self._rows.rows_at(lines)
        return found.at[at], Batch(np.column_stack((found.ids[at], selected)), counts)

    def forget(self) -> None:
        self._boxes.clear()

    def indexes(self) -> list[Ordered]:
        return [self._rows]

    @property
    def state_rows(self) -> int:
        return len(self._boxes) + len(self._rows)

    @property
    def state_bytes(self) -> int:
        return self._boxes.nbytes + self._rows.nbytes

    def describe(self) -> str:
        return self._node.describe()
