"""Hotspots: subscriptions in groups whose last intervals share a point, where groups are large; the rest scattered.

Boxes are in bins: bin b from 1 on is a **hotspot**, a group of at least half of α n boxes, where n is their number; bin
0 has the **scattered** boxes, in a stabbing partition of their own. A scattered group of α n boxes is promoted to a
hotspot, and a hotspot with less than half of that is demoted.

Invariants, after every change, where τ is the size of the smallest stabbing partition:
I1  there are at most 2/α hotspots, since each has at least α n / 2 of n boxes;
I2  hotspots and scattered groups are at most (1 + ε) τ + 2/α;
I3  a change moves at most 5 boxes between bins, amortised.

For I2 the scattered partition has at most (1 + ε) times as many groups as there are **witnesses**: intervals of which
no two share a point, one per group when it was last made anew. A witness that leaves is not replaced. When there are
too few, the partition is made anew, and is then the smallest. Outside of that a change touches one group. Groups below
`SMALLEST` boxes are never hotspots: their fixed cost would be more than they save.
"""

from __future__ import annotations

import math

import numpy as np

from whence.engine.matching.boxes import Boxes
from whence.engine.matching.kernels import stabbing
from whence.model.codes import Codes

EPSILON = 1.0
ALPHA = 1 / 256
SMALLEST = 16
_NUMBERS = 4096  # that may be given to groups in vain


class Hotspots:
    """Boxes whose dimension `on` is the interval that groups are made by. A scattered box's mark is twice its group's
    number, and one more if it is a witness."""

    def __init__(
        self,
        dims: int,
        equal: int,
        on: int,
        alpha: float = ALPHA,
        epsilon: float = EPSILON,
        smallest: int | None = None,
    ):
        self.boxes = Boxes(dims, equal, on)
        self._smallest = SMALLEST if smallest is None else smallest
        self.on, self.alpha, self.epsilon = on, alpha, epsilon
        self.moves = self.rebuilt = 0
        self.clear()

    def clear(self) -> None:
        """Forget all boxes."""
        self.boxes.clear()
        self._groups = np.empty((16, 3), np.int64)
        self._sizes = np.zeros(16, np.int64)  # of scattered groups, by their numbers
        self._spots = np.zeros((8, 3), np.int64)  # by bin: lowest and highest common point, boxes
        self._totals = np.zeros(3, np.int64)  # scattered groups, numbers given to groups, a size that none is above
        self._bins = 1
        self.witnesses = 0

    def __len__(self) -> int:
        return len(self.boxes)

    @property
    def groups(self) -> int:
        """Scattered groups."""
        return int(self._totals[stabbing.GROUPS])

    @property
    def hotspots(self) -> int:
        return int((self._spots[1 : self._bins, 2] > 0).sum())

    @property
    def sizes(self) -> Codes:
        """How many boxes each hotspot has."""
        return self._spots[1 : self._bins, 2].copy()

    @property
    def threshold(self) -> float:
        """Boxes from which on a group is a hotspot."""
        return max(self.alpha * len(self.boxes), self._smallest)

    @property
    def points(self) -> Codes:
        """A point of each bin that is in all its intervals."""
        return self._spots[: self._bins, stabbing.LOW].copy()

    @property
    def nbytes(self) -> int:
        return self.boxes.nbytes + self._groups.nbytes + self._sizes.nbytes + self._spots.nbytes

    def intervals(self, lines: Codes) -> tuple[Codes, Codes]:
        """Return the ends of the intervals of lines that groups are made by."""
        low, high = lines[:, self.on], lines[:, self.boxes.dims + self.on]
        return np.ascontiguousarray(low), np.ascontiguousarray(high)

    # -- changing ----------------------------------------------------------------------------------------------------

    def put(self, lines: Codes) -> None:
        """Add boxes."""
        if not len(lines):
            return
        if len(lines) > len(self.boxes):
            scattered = self.boxes.members(0)
            self.boxes.empty(0)
            self._distribute(self._join_hotspots(np.concatenate([scattered, lines])))
        else:
            self._store(lines, self._assign(lines))
        self._balance()

    def take(self, lines: Codes) -> None:
        """Remove boxes that are there."""
        if not len(lines):
            return
        found = self.boxes.take(lines)
        marks, bins = found[:, 0], found[:, 1]
        np.subtract.at(self._spots[:, 2], bins[bins > 0], 1)
        scattered = marks[bins == 0]
        self.witnesses -= int((scattered & 1).sum())
        self._leave(scattered >> 1)
        self._balance()

    def _join_hotspots(self, lines: Codes) -> Codes:
        """Add those boxes to hotspots that share their points; return the others."""
        bins = np.zeros(len(lines), np.int64)
        if self._bins > 1:
            ends = self.on, self.boxes.dims + self.on
            stabbing.join_hotspots(self._spots, self._bins, lines, *ends, bins)
            for bin in np.unique(bins[bins > 0]).tolist():
                self.boxes.put(lines[bins == bin], bin)
        others: Codes = lines[bins == 0]
        return others

    def _assign(self, lines: Codes) -> Codes:
        """Find a bin and a group for each box; return the bins."""
        n = len(lines)
        groups, numbers, _ = self._totals.tolist()
        if groups + n > len(self._groups):
            self._groups = _with_room(self._groups, 2 * (groups + n))
        if numbers + n > len(self._sizes):
            self._sizes = _with_room(self._sizes, 2 * (numbers + n))
        bins = np.empty(n, np.int64)
        ends = self.on, self.boxes.dims + self.on
        stabbing.assign(self._spots, self._bins, self._groups, self._sizes, self._totals, lines, *ends, bins)
        return bins

    def _store(self, lines: Codes, bins: Codes) -> None:
        if len(lines) == 1:
            self.boxes.put(lines, int(bins[0]))
            return
        for bin in np.unique(bins).tolist():
            self.boxes.put(lines[bins == bin], bin)

    def _leave(self, numbers: Codes) -> None:
        """Count boxes that have left scattered groups; groups without any are gone."""
        np.subtract.at(self._sizes, numbers, 1)
        if len(numbers) and (self._sizes[numbers] == 0).any():
            kept = self._groups[: self.groups]
            kept = kept[self._sizes[kept[:, stabbing.NUMBER]] > 0]
            self._totals[stabbing.GROUPS] = len(kept)
            self._groups[: len(kept)] = kept

    def _balance(self) -> None:
        """Bring the invariants about."""
        threshold = self.threshold
        while bin := stabbing.too_small(self._spots, self._bins, math.ceil(threshold / 2)):
            lines = self.boxes.members(bin)
            self.boxes.empty(bin)
            self._spots[bin, stabbing.SIZE] = 0
            self.moves += len(lines)
            self._store(lines, self._assign(lines))
        groups, numbers, largest = self._totals.tolist()
        if groups > (1 + self.epsilon) * self.witnesses or numbers > 4 * groups + _NUMBERS:
            self._partition()
            largest = int(self._totals[stabbing.LARGEST])
        if largest >= threshold:
            self._promote()
            if self.groups > (1 + self.epsilon) * self.witnesses:  # witnesses may have been promoted
                self._partition()

    def _promote(self) -> None:
        """Make hotspots of the scattered groups that are large enough."""
        numbers = self._groups[: self.groups, stabbing.NUMBER]
        large = numbers[self._sizes[numbers] >= self.threshold].tolist()
        self._totals[stabbing.LARGEST] = self._sizes[numbers].max(initial=0)
        if not large:
            return
        scattered = self.boxes.members(0)
        owner = scattered[:, -1] >> 1
        for number in large:
            (at,) = np.flatnonzero(self._groups[: self.groups, stabbing.NUMBER] == number)
            lines = scattered[owner == number]
            self.boxes.take(lines)
            self.witnesses -= int((lines[:, -1] & 1).sum())
            self._new_hotspot(lines, int(self._groups[at, stabbing.LOW]), int(self._groups[at, stabbing.HIGH]))
            self.moves += len(lines)
            self._leave(np.full(len(lines), number))
        self._totals[stabbing.LARGEST] = self._sizes[self._groups[: self.groups, stabbing.NUMBER]].max(initial=0)

    def _new_hotspot(self, lines: Codes, low: int, high: int) -> None:
        free = np.flatnonzero(self._spots[1 : self._bins, 2] == 0)
        bin = int(free[0]) + 1 if len(free) else self._bins
        if bin == self._bins:
            self._bins += 1
            if bin == len(self._spots):
                self._spots = _with_room(self._spots, 2 * bin)
        self._spots[bin] = low, high, len(lines)
        self.boxes.put(lines, bin)

    def _canonical(self, lines: Codes) -> tuple[Codes, Codes, Codes]:
        """Return the smallest partition of lines: its groups, the group of each line, and the witnesses' lines."""
        lows, highs = self.intervals(lines)
        order = np.argsort(lows, kind="stable")
        groups = np.empty((len(lines) + 16, 3), np.int64)
        owner, witnesses = np.empty(len(lines), np.int64), np.empty(len(lines), np.int64)
        count = stabbing.partition(lows, highs, order, groups, owner, witnesses)
        return groups[:count].copy(), owner, witnesses[:count]

    def _take_over(self, groups: Codes, sizes: Codes, witnesses: int) -> None:
        self._totals[:] = len(groups), len(sizes), sizes[groups[:, stabbing.NUMBER]].max(initial=0)
        self._groups, self._sizes = _with_room(groups, len(groups) + 16), _with_room(sizes, len(sizes) + 16)
        self.witnesses = witnesses
        self.rebuilt += 1

    def _partition(self) -> None:
        """Make the scattered partition anew; boxes stay where they are."""
        at = self.boxes.places(0)
        groups, owner, witnesses = self._canonical(self.boxes.entries[at])
        marks = 2 * owner
        marks[witnesses] += 1
        self.boxes.entries[at, -1] = marks
        self._take_over(groups, np.bincount(owner, minlength=len(groups)), len(groups))

    def _distribute(self, lines: Codes) -> None:
        """Partition lines that are in no bin: large groups become hotspots, the others are all that is scattered."""
        groups, owner, witnesses = self._canonical(lines)
        sizes = np.bincount(owner, minlength=len(groups))
        threshold = max(self.alpha * (len(self.boxes) + len(lines)), self._smallest)
        lines[:, -1] = 2 * owner
        lines[witnesses, -1] += 1
        order = np.argsort(owner, kind="stable")
        starts = np.searchsorted(owner[order], np.arange(len(groups) + 1))
        large = np.flatnonzero(sizes >= threshold)
        for g in large.tolist():
            self._new_hotspot(lines[order[starts[g] : starts[g + 1]]], *groups[g, : stabbing.NUMBER].tolist())
        small = sizes < threshold
        self._take_over(groups[small], sizes, int(small.sum()))
        self.boxes.put(lines[small[owner]])


def _with_room(array: Codes, room: int) -> Codes:
    grown = np.zeros((room, *array.shape[1:]), np.int64)
    grown[: len(array)] = array
    return grown
