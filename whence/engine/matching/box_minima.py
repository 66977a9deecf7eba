"""BoxMinima: the least value of any box of points, over several ranges at once, and the boxes that an epoch changes.

Law: what `change` returns, an epoch's contours, reaches a box at most once, with its least value at the epoch's end,
and not at all if that is what it was. A **contour** is the paper's MAR2d of an update, in any number of dimensions:
boxes that contain `inner` and none of the points of `outside`. A point that comes has one contour: boxes around it
without a point that is at most as high. A point that goes has one for each point that is the least of some such box
afterwards, in ascending order, the earlier ones outside; and one for boxes that are empty then.

An epoch's points come in ascending order of their values, then others go in descending order, as in `range_minima.py`.
State: the points. Cost: O(n) per point that comes, and per point that goes O(n) and for each of its contours the points
of those before. In one dimension a contour has at most two points outside; in two it has some 4 log n of random ones,
which do not make few boxes: that is why they are points.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from whence.model.codes import NULL, Codes, Dictionary
from whence.model.types import Type


class Contour(NamedTuple):
    """Boxes of a group with a new least value: low and high ends of what they contain, points that they do not."""

    group: tuple[int, ...]
    value: int
    low: Codes
    high: Codes
    outside: Codes


class BoxMinima:
    """Points of rows [group, one column per dimension, value]; `greatest` turns the order of values round."""

    def __init__(self, groups: int, dims: int, type: Type, dictionary: Dictionary, greatest: bool = False) -> None:
        self._groups, self._dims, self._type, self._dictionary = groups, dims, type, dictionary
        self._greatest = greatest
        self._counts: dict[tuple[int, ...], int] = {}
        self._points: dict[tuple[int, ...], Codes] = {}  # by group: distinct [dimensions, value]
        self._before: dict[tuple[int, ...], Codes] = {}  # of groups that the last change has touched

    def add(self, rows: Codes, counts: Codes) -> tuple[list[tuple[int, ...]], list[tuple[int, ...]]]:
        """Add rows; return which of them came, and which went."""
        came: list[tuple[int, ...]] = []
        went: list[tuple[int, ...]] = []
        net: dict[tuple[int, ...], int] = {}
        for row, count in zip(map(tuple, rows.tolist()), counts.tolist(), strict=True):
            net[row] = net.get(row, 0) + count
        for row, count in net.items():
            before = self._counts.get(row, 0)
            after = self._counts[row] = before + count
            if not after:
                del self._counts[row]
            if bool(before) != bool(after):
                (came if after else went).append(row)
        groups = {row[: self._groups] for row in (*came, *went)}
        self._before = {group: self._points.get(group, np.empty((0, self._dims + 1), np.int64)) for group in groups}
        for group in groups:
            new = [row[self._groups :] for row in came if row[: self._groups] == group]
            kept = self._without(self._before[group], [r[self._groups :] for r in went if r[: self._groups] == group])
            self._points[group] = np.concatenate((kept, np.array(new, np.int64).reshape(-1, self._dims + 1)))
            if not len(self._points[group]):
                del self._points[group]
        return came, went

    @staticmethod
    def _without(points: Codes, gone: Sequence[tuple[int, ...]]) -> Codes:
        for point in gone:
            points = points[(points != np.array(point)).any(axis=1)]
        return points

    def change(self, rows: Codes, counts: Codes) -> list[Contour]:
        """Add rows; return what changes."""
        came, went = self.add(rows, counts)
        found: list[Contour] = []
        for group, points in self._before.items():
            new = np.array([r[self._groups :] for r in came if r[: self._groups] == group], np.int64)
            old = np.array([r[self._groups :] for r in went if r[: self._groups] == group], np.int64)
            for point in new[np.argsort(self._ranks(new), kind="stable")] if len(new) else ():
                found += self._come(group, points, point)
                points = np.concatenate((points, point[None, :]))
            for point in old[np.argsort(self._ranks(old), kind="stable")[::-1]] if len(old) else ():
                points = points[(points != point).any(axis=1)]
                found += self._go(group, points, point)
        return found

    def _ranks(self, points: Codes) -> Codes:
        """Return numbers that order like the values of points, the least first."""
        values = np.ascontiguousarray(points[:, -1])
        ranks = self._dictionary.ranks(values, self._type) if self._type.needs_dictionary else values
        return ~ranks if self._greatest else ranks

    def _come(self, group: tuple[int, ...], points: Codes, point: Codes) -> Iterator[Contour]:
        at = point[:-1]
        outside = _nearest(at, at, points[self._upto(points, point)][:, :-1])
        if not (outside == at).all(axis=1).any():
            yield Contour(group, int(point[-1]), at, at, outside)

    def _go(self, group: tuple[int, ...], points: Codes, point: Codes) -> Iterator[Contour]:
        at, lower = point[:-1], self._upto(points, point)
        outside = _nearest(at, at, points[lower][:, :-1])
        if (outside == at).all(axis=1).any():
            return
        higher = points[~lower]
        for other in higher[np.argsort(self._ranks(higher), kind="stable")]:
            low, high = np.minimum(at, other[:-1]), np.maximum(at, other[:-1])
            if not ((outside >= low) & (outside <= high)).all(axis=1).any():
                yield Contour(group, int(other[-1]), low, high, _nearest(low, high, outside))
                outside = _nearest(at, at, np.concatenate((outside, other[None, :-1])))
                if (other[:-1] == at).all():
                    return  # every box around the point has it
        yield Contour(group, NULL, at, at, outside)

    def _upto(self, points: Codes, point: Codes) -> Codes:
        """Return which points are at most as high as another."""
        ranks = self._ranks(np.concatenate((points, point[None, :])))
        upto: Codes = ranks[:-1] <= ranks[-1]
        return upto


def _nearest(low: Codes, high: Codes, points: Codes) -> Codes:
    """Return those points that no other is as near to a box as, in every direction: a box that contains this one and a
    point contains one of them."""
    ends = np.column_stack((~np.minimum(low, points), np.maximum(high, points)))  # of the box with each point
    order = np.lexsort(ends.T[::-1])
    found = []
    while len(order):
        first = order[0]
        found.append(first)
        order = order[(ends[order] < ends[first]).any(axis=1)]
    return points[found]
