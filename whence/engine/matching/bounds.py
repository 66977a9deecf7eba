"""From parameters to boxes, and from rows to points: in numbers that order like values.

A dimension of a box is an equality (one value) or a range. Both ends are closed: an open one moves to the next number,
and a missing one is the first number after NULL's, or the last one there is. So NULL is in no range. A subscription
whose box is empty, or that equals NULL, selects nothing and has no box.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from whence.engine.matching.kernels import parameters
from whence.model.codes import NULL, Codes, Dictionary
from whence.model.types import Type
from whence.plan.algebra.logical import Range


class SubscriptionBoxes(NamedTuple):
    """The boxes of subscriptions: which of the rows of parameters have one, their ends, and their ids."""

    at: Codes
    lows: Codes
    highs: Codes
    ids: Codes


class ParameterBounds:
    """The dimensions of a template's boxes: equalities, given by their parameters, and ranges. `types` are those of
    the parameters. `difference` is the place of a range of differences, which end before the first and the last number
    there is; with `turned`, their signs are turned round."""

    def __init__(
        self,
        dimensions: Sequence[int | Range],
        types: Sequence[Type],
        dictionary: Dictionary,
        difference: int | None = None,
        turned: bool = False,
    ):
        self._types, self._dictionary = types, dictionary
        used = [column for r in dimensions if isinstance(r, Range) for column in (r.low, r.high) if column is not None]
        self._labelled = sorted({column for column in used if types[column].needs_dictionary})
        self.is_labelled = bool(self._labelled)
        labels = {column: len(types) + at for at, column in enumerate(self._labelled)}
        described = [_described(one, labels) for one in dimensions]
        self._dimensions = np.array(described, np.int64).reshape(len(dimensions), 5)
        if difference is not None:
            self._dimensions[difference, parameters.KIND] = parameters.TURNED if turned else parameters.DIFFERENCE

    def __len__(self) -> int:
        return len(self._dimensions)

    def lines(self, rows: Codes) -> tuple[Codes, Codes]:
        """Return the boxes of rows of parameters, as `Boxes` stores them, and which rows have one."""
        if self._labelled:
            rows = np.column_stack((rows, *(self._labels(rows, column) for column in self._labelled)))
        rows = np.ascontiguousarray(rows)
        out, at = np.empty((len(rows), 2 * len(self) + 2), np.int64), np.empty(len(rows), np.int64)
        found = parameters.box_lines(rows, self._dimensions, out, at)
        return out[:found], at[:found]

    def _labels(self, rows: Codes, column: int) -> Codes:
        codes = np.ascontiguousarray(rows[:, column])
        return np.where(codes == NULL, NULL, self._dictionary.ranks(codes, self._types[column]))

    def boxes(self, rows: Codes) -> SubscriptionBoxes:
        """Return the boxes of rows of parameters."""
        lines, at = self.lines(rows)
        dims = len(self)
        return SubscriptionBoxes(at, lines[:, :dims].copy(), lines[:, dims:-2].copy(), lines[:, -2].copy())


def _described(dimension: int | Range, labels: Mapping[int, int]) -> tuple[int, int, bool, bool, int]:
    """A line of dimensions for the kernel; `labels` says where the labels of interned columns are."""
    if not isinstance(dimension, Range):
        return dimension, dimension, False, False, parameters.EQUAL
    low, high = (-1 if c is None else labels.get(c, c) for c in (dimension.low, dimension.high))
    return low, high, dimension.open_low, dimension.open_high, parameters.RANGE


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
