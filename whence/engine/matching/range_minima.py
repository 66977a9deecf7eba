"""RangeMinima: points (group, x, y), the least or greatest y of any range of x, and which ranges an epoch changes.

Law: for a range [x1, x2] of a group, `least` is the least y of its points. `change` adds and takes away points and
returns disjoint **rectangles** in the plane of (x1, x2), with a value each: a range lies in one exactly when its least
y has changed, and the value is the new one (NULL for an empty range). Nobody needs to know which ranges exist.

An epoch is folded by its order, not by subtracting rectangles: points are added in ascending order of y, then taken
away in descending order. A range that an addition changes has a point that stays, below all it had: no later addition
is below it, and no removal exposes anything. A range that a removal changes had all its greater points to lose removed
before, so what is exposed stays. So each range changes at most once, from its old to its final value.

An addition changes the ranges around x within its Mar, the widest open range without another y up to its own. A removal
changes the ranges within its Mar too, to the values of its hull: from the peak, the least y left at x, strictly down on
either side. (The paper's Definition 8 does not start at the peak, and lets in points above it that no range has as its
least.) Cost: O(log n) per point and rectangle, for leaves of 64; see `kernels/hull.py`.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

import numpy as np

from whence.engine.core.image import with_room
from whence.engine.core.ordered import Rank
from whence.engine.matching.kernels import hull
from whence.engine.matching.kernels.hull import HIGHEST, LOWEST
from whence.engine.matching.ordered_minima import OrderedMinima
from whence.model.codes import NULL, Codes, Dictionary
from whence.model.types import Type

_ROOM = 256  # rectangles

Update = Literal["ignorable", "easy", "difficult"]


class Rectangles(NamedTuple):
    """Disjoint rectangles: rows of `groups`, of `bounds` [lowest x1, highest x1, lowest x2, highest x2], of `values`.

    All are codes; bounds are closed, and the least and the greatest int64 mean no bound.
    """

    groups: Codes
    bounds: Codes
    values: Codes

    def __len__(self) -> int:
        return len(self.values)


def range_codes(low: Codes, high: Codes) -> tuple[Codes, Codes]:
    """Codes of closed ranges from parameters, of which NULL is no bound."""
    return low, np.where(high == NULL, HIGHEST, high)


def classify(points: RangeMinima, old: Codes, new: Codes) -> Update:
    """Say what kind of update turns a point into another y at the same x, among the other points.

    **Ignorable** updates can change no range; an **easy** one tells every range that it changes its own new value; a
    **difficult** one exposes values of other points."""
    one = np.ones(1, np.int64)
    points.add(old[None], -one)
    before, after = points.mar(old), points.mar(new)
    points.undo()
    if before is None and after is None:
        return "ignorable"
    within = before is None or (after is not None and after[0] <= before[0] and before[1] <= after[1])
    return "easy" if within else "difficult"


class RangeMinima(OrderedMinima):
    """Points in rows of `groups` columns, then x, then y; with `greatest`, MAX instead of MIN.

    Groups are compared by their codes, x and y in the order of their types: ranges of an interned x are in labels of
    the dictionary, and `refresh` comes before they are looked up."""

    def __init__(self, groups: int, x: Type, y: Type, dictionary: Dictionary, greatest: bool = False):
        self.groups = groups
        ranks = [Rank(column) for column in range(groups)]
        ranks += [Rank(groups, x), Rank(groups + 1, y, greatest, not greatest)]
        super().__init__(ranks, groups + 1, dictionary)
        interned = self.ranks[-1].interned
        self._value = self._columns - 1 if interned else groups + 1  # the column that tells the value
        self._none = HIGHEST if greatest and not interned else LOWEST

    def change(self, rows: Codes, counts: Codes) -> Rectangles:
        """Change the counts of distinct points; return the ranges whose least y is another one now."""
        if self._former is None:
            self._log.append((rows, counts))
        ranked = self.encode(rows)
        if self.refresh():
            ranked = self.encode(rows)
        order = np.lexsort(ranked[:, : self.groups + 2].T)  # by y; ties too, so that equal epochs have equal rectangles
        come, gone = order[counts[order] > 0], order[counts[order] < 0][::-1]
        out = np.empty((max(_ROOM, 2 * len(counts)), self.groups + 5), np.int64)
        key, bounds, state = np.empty((1, self.groups + 1), np.int64), np.empty(2, np.int64), np.zeros(3, np.int64)
        batch, change = ranked[come], counts[come]
        while state[0] < len(batch):
            hull.insert_points(*self.updated, batch, change, key, bounds, self.groups, self._value, out, state)
            if state[0] < len(batch):
                self._grow()
                out = with_room(out, 2 * len(out))
        state[0] = 0
        batch, change = ranked[gone], counts[gone]
        while state[0] < len(batch):
            hull.delete_points(*self.updated, batch, change, key, self.groups, self._value, self._none, out, state)
            if state[0] < len(batch):
                out = with_room(out, 2 * len(out))
        out = out[: state[1]]
        values = self._decoded(out[:, -1])
        return Rectangles(out[:, : self.groups], np.ascontiguousarray(out[:, self.groups : -1]), values)

    def least(self, ranges: Codes) -> Codes:
        """Return the least y of each range, a row of [group, x1, x2] with closed bounds, or NULL."""
        out = np.empty(len(ranges), np.int64)
        hull.range_least(*self.searched, ranges, self.groups, self._value, self._none, out)
        return self._decoded(out)

    def mar(self, point: Codes) -> tuple[int, int] | None:
        """Return the lowest and the highest x within the Mar of a point that is not here, or None if it is empty."""
        key, bounds = np.empty((1, self.groups + 1), np.int64), np.empty(2, np.int64)
        hull.mar(*self.searched, self.encode(point[None]), 0, key, self.groups, bounds)
        low, high = bounds.tolist()
        return (low, high) if low <= high else None

    def _decoded(self, values: Codes) -> Codes:
        rank = self.ranks[-1]
        return ~values if rank.descending and not rank.interned else values
