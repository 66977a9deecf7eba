"""MatchLeast: the least or greatest value in the range of each subscription.

Law: see `matching.py`; the answer of a subscription is one row, its value (NULL for an empty range). A delta of the
data becomes rectangles in the plane of ranges (`range_minima.py`), and the subscriptions in them are those whose value
changes. State: the points of the data in order, and the subscriptions as points of that plane, each with its value.
Cost: O(log n) per point and rectangle, and the subscriptions that change. Nothing else is looked at.
"""

from __future__ import annotations

import numpy as np

from whence.engine.core.operator import Batch, Operator
from whence.engine.matching.range_matching import RangeMatching
from whence.engine.matching.range_minima import RangeMinima, Rectangles
from whence.model.codes import NULL, Codes, Dictionary
from whence.plan.algebra import logical


class MatchLeast(RangeMatching):
    """Ids of subscriptions, and the least value in their ranges."""

    def __init__(self, inputs: list[Operator], node: logical.MatchLeast, dictionary: Dictionary):
        types, equal = inputs[0].schema.types, len(node.equal)
        points = RangeMinima(equal, types[equal], types[equal + 1], dictionary, node.greatest)
        super().__init__(inputs, node, dictionary, points)  # the mark of a range is its value
        self._changed: list[Rectangles] = []

    @property
    def _width(self) -> int:
        return 2

    def meet(self, deltas: list[Batch]) -> list[Batch]:
        (delta,) = deltas
        kept = (delta.rows[:, self._equal :] != NULL).all(axis=1)
        rows, counts = np.ascontiguousarray(delta.rows[kept]), delta.ann[kept]
        if not len(self._ranges):
            self._points.add(rows, counts)
            return []
        changed = self._points.change(rows, counts)
        if not len(changed):
            return []
        self._changed.append(changed)
        at, lines = self._inside(changed)
        entries = self._ranges.entries
        ids, old, new = entries[lines, -2], entries[lines, -1], changed.values[at]
        entries[lines, -1] = new
        n = len(ids)
        rows, signs = np.empty((2 * n, 2), np.int64), np.ones(2 * n, np.int64)
        rows[:n, 0] = rows[n:, 0] = ids
        rows[:n, 1], rows[n:, 1], signs[:n] = old, new, -1
        return [Batch(rows, signs, True)]

    def change(self, gone: Codes, come: Codes) -> None:
        self._points.refresh()
        if len(gone):
            ids, ranges = self._ranges_of(gone)[1:]
            self._ranges.take(self._ranges.lines(ranges, ranges, ids))
        if len(come):
            ids, ranges = self._ranges_of(come)[1:]
            self._ranges.put(self._ranges.lines(ranges, ranges, ids, self._points.least(ranges)))

    def select(self, rows: Codes) -> tuple[Codes, Batch]:
        at, _, ranges = self._ranges_of(rows)
        values = np.full(len(rows), NULL, np.int64)
        values[at] = self._points.least(ranges)
        found = Batch(np.column_stack((rows[:, 0], values)), np.ones(len(rows), np.int64))
        return np.arange(len(rows)), found

    def commit(self) -> None:
        super().commit()
        self._changed.clear()

    def undo(self) -> None:
        super().undo()
        entries, dims = self._ranges.entries, self._equal + 2
        if self.is_labelled:  # labels may have moved since: then rectangles are of the old ones
            lines = [self._ranges.places_used]
        else:
            lines = [self._inside(changed)[1] for changed in self._changed]
        for some in lines:
            entries[some, -1] = self._points.least(np.ascontiguousarray(entries[some, :dims]))
        self._changed.clear()
