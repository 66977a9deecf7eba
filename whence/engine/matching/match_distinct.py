"""MatchDistinct: the distinct values of rows in the range of each subscription.

Law: see `matching.py`; an answer is the set of values that some row in the range has. A point that comes or goes
changes the ranges around it that have no other point of its value: those within the range between its neighbours of
equal value. That is the Mar of `range_minima.py`, with each value as a group of its own in which all points are alike.
State: the points in order of value and x, and the subscriptions as points of the plane of ranges. Cost: O(log n) per
point, and the subscriptions that change; a new subscription takes O(log n) per value that there is.
"""

from __future__ import annotations

import numpy as np

from whence.engine.core.operator import Batch, Operator
from whence.engine.matching.kernels.distinct import distinct_in_ranges
from whence.engine.matching.range_matching import RangeMatching
from whence.engine.matching.range_minima import RangeMinima
from whence.model.codes import NULL, Codes, Dictionary
from whence.model.types import BIGINT
from whence.model.word_marks import WordMarks
from whence.plan.algebra import logical


class MatchDistinct(RangeMatching):
    """Ids of subscriptions, and each value that rows in their ranges have."""

    def __init__(self, inputs: list[Operator], node: logical.MatchDistinct, dictionary: Dictionary):
        types, equal = inputs[0].schema.types, len(node.equal)
        self._values = len(types) - equal - 1
        points = RangeMinima(equal + self._values, types[equal], BIGINT, dictionary)
        super().__init__(inputs, node, dictionary, points)

    @property
    def _width(self) -> int:
        return 1 + self._values

    def meet(self, deltas: list[Batch]) -> list[Batch]:
        (delta,) = deltas
        equal = self._equal
        kept = delta.rows[:, equal] != NULL
        rows, counts = delta.rows[kept], delta.ann[kept]
        alike = np.zeros(len(rows), np.int64)
        points = np.column_stack((rows[:, :equal], rows[:, equal + 1 :], rows[:, equal], alike))
        if not len(self._ranges):
            self._points.add(points, counts)
            return []
        changed = self._points.change(points, counts)
        at, lines = self._inside(changed)
        ids = self._ranges.entries[lines, -2]
        signs = np.where(changed.values[at] == NULL, -1, 1)
        return [Batch(np.column_stack((ids, changed.groups[at, equal:])), signs, True)]

    def change(self, gone: Codes, come: Codes) -> None:
        for rows, change in ((gone, self._ranges.take), (come, self._ranges.put)):
            if len(rows):
                _, ids, ranges = self._ranges_of(rows)
                change(self._ranges.lines(ranges, ranges, ids))

    def select(self, rows: Codes) -> tuple[Codes, Batch]:
        positions, ids, ranges = self._ranges_of(rows)
        at, lines = distinct_in_ranges(*self._points.leaves, ranges, self._equal, self._points.groups)
        values = self._points.rows_at(lines)[0][:, self._equal : self._points.groups]
        return positions[at], Batch(np.column_stack((ids[at], values)), np.ones(len(at), np.int64))

    def mark_words(self, marks: WordMarks) -> None:
        equal, types = self._equal, self.inputs[0].schema.types
        marks.rows(self._points.head(-1)[0], (*types[:equal], *types[equal + 1 :], types[equal], BIGINT))
