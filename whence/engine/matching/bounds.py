"""From parameters to boxes, and from rows to points: in numbers that order like values.

A dimension of a box is an equality (one value) or a range. Both ends are closed: an open one moves to the next number,
and a missing one is the first number after NULL's, or the last one there is. So NULL is in no range. A subscription
whose box is empty, or that equals NULL, selects nothing and has no box.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from whence.model.codes import NULL, Codes, Dictionary
from whence.model.types import Type
from whence.plan.algebra.logical import Range

LAST = 2**63 - 1


class SubscriptionBoxes(NamedTuple):
    """The boxes of subscriptions: which of the rows of parameters have one, their ends, and their ids."""

    at: Codes
    lows: Codes
    highs: Codes
    ids: Codes


class ParameterBounds:
    """The dimensions of a template's boxes: equalities first. `types` are those of the parameters."""

    def __init__(self, equal: Sequence[int], ranges: Sequence[Range], types: Sequence[Type], dictionary: Dictionary):
        self._equal, self._ranges, self._types, self._dictionary = list(equal), ranges, types, dictionary
        used = [column for r in ranges for column in (r.low, r.high) if column is not None]
        self.is_labelled = any(types[column].needs_dictionary for column in used)

    def __len__(self) -> int:
        return len(self._equal) + len(self._ranges)

    def boxes(self, rows: Codes) -> SubscriptionBoxes:
        """Return the boxes of rows of parameters."""
        lows, highs = (np.empty((len(rows), len(self)), np.int64) for _ in range(2))
        lows[:, : len(self._equal)] = highs[:, : len(self._equal)] = rows[:, self._equal]
        holds = (lows[:, : len(self._equal)] != NULL).all(axis=1)
        for at, one in enumerate(self._ranges, len(self._equal)):
            lows[:, at] = self._ends(rows, one.low, NULL + 1)
            highs[:, at] = self._ends(rows, one.high, LAST)
            if one.open_low and one.low is not None:
                given = rows[:, one.low] != NULL
                holds &= ~given | (lows[:, at] != LAST)
                lows[given, at] += 1
            if one.open_high and one.high is not None:
                highs[rows[:, one.high] != NULL, at] -= 1
        holds &= (lows <= highs).all(axis=1)
        found = np.flatnonzero(holds)
        return SubscriptionBoxes(found, lows[found], highs[found], rows[found, 0])

    def _ends(self, rows: Codes, column: int | None, missing: int) -> Codes | int:
        if column is None:
            return missing
        codes = np.ascontiguousarray(rows[:, column])
        return np.where(codes == NULL, missing, self._dictionary.ranks(codes, self._types[column]))


class Points:
    """The points of rows: their first columns, of which those from `equal` on are compared by order."""

    def __init__(self, dims: int, equal: int, types: Sequence[Type], dictionary: Dictionary):
        self._dims, self._dictionary = dims, dictionary
        self._labelled = [(c, types[c]) for c in range(equal, dims) if types[c].needs_dictionary]

    def of(self, rows: Codes) -> Codes:
        """Return the points of rows."""
        out = rows[:, : self._dims].copy()
        for column, type in self._labelled:
            out[:, column] = self._dictionary.ranks(np.ascontiguousarray(rows[:, column]), type)
        return out
