"""What operators over one range of each subscription have in common: points in order, and ranges as points of a plane.

State: the points of the data (`range_minima.py`), and each subscription as the point [equalities, x1, x2] of its range
(`boxes.py`), so that a rectangle of that plane finds the subscriptions in it.
"""

from __future__ import annotations

import numpy as np

from whence.engine.core.operator import Operator
from whence.engine.core.ordered import Ordered
from whence.engine.matching.bounds import ParameterBounds
from whence.engine.matching.boxes import Boxes
from whence.engine.matching.matching import Matching
from whence.engine.matching.range_minima import RangeMinima, Rectangles
from whence.model.codes import Codes, Dictionary
from whence.plan.algebra import logical


class RangeMatching(Matching):
    """A matching whose subscriptions each have one range of a column, which rectangles of ranges find."""

    def __init__(
        self,
        inputs: list[Operator],
        node: logical.MatchLeast | logical.MatchDistinct,
        dictionary: Dictionary,
        points: RangeMinima,
    ):
        super().__init__(inputs, node.exprs, node.schema, dictionary)
        self._node, self._equal, self._points = node, len(node.equal), points
        self._bounds = ParameterBounds((*node.equal, node.range), inputs[1].schema.types, dictionary)
        self.is_labelled = self._bounds.is_labelled
        self._ranges = Boxes(self._equal + 2, self._equal)

    def _ranges_of(self, rows: Codes) -> tuple[Codes, Codes, Codes]:
        """Of rows of parameters, return those that select anything, their ids, and [equalities, x1, x2]."""
        found = self._bounds.boxes(rows)
        return found.at, found.ids, np.column_stack((found.lows, found.highs[:, self._equal :]))

    def _inside(self, changed: Rectangles) -> tuple[Codes, Codes]:
        """Return all pairs of a rectangle and the line of a subscription in it."""
        keys, lows, highs = changed.groups[:, : self._equal], changed.bounds[:, ::2], changed.bounds[:, 1::2]
        return self._ranges.find_lines(np.column_stack((keys, lows)), np.column_stack((keys, highs)))

    def forget(self) -> None:
        self._ranges.clear()

    def indexes(self) -> list[Ordered]:
        return [self._points]

    @property
    def state_rows(self) -> int:
        return len(self._ranges) + len(self._points)

    @property
    def state_bytes(self) -> int:
        return self._ranges.nbytes + self._points.nbytes

    def describe(self) -> str:
        return self._node.describe()
