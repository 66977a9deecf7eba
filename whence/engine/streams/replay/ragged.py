"""Ragged columns: a list of tids per row, as `offsets` and `tids`, in whole arrays.

Row i has `tids[offsets[i]:offsets[i + 1]]`.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from whence.model.codes import Codes


def ranges(starts: Codes, sizes: Codes) -> Codes:
    """Concatenate `range(start, start + size)` of all.

    >>> ranges(np.array([5, 0]), np.array([2, 3])).tolist()
    [5, 6, 0, 1, 2]
    """
    before = np.cumsum(sizes) - sizes
    return np.repeat(starts - before, sizes) + np.arange(int(sizes.sum()))


class Ragged(NamedTuple):
    offsets: Codes
    tids: Codes

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def of(self, row: int) -> Codes:
        found: Codes = self.tids[self.offsets[row] : self.offsets[row + 1]]
        return found

    def take(self, rows: Codes) -> Ragged:
        """Return the lists of some rows, in their order.

        >>> Ragged(np.array([0, 2, 2, 3]), np.array([5, 6, 7])).take(np.array([2, 0])).tids.tolist()
        [7, 5, 6]
        """
        starts, counts = self.offsets[rows], np.diff(self.offsets)[rows]
        offsets = np.concatenate(([0], np.cumsum(counts))).astype(np.int64)
        return Ragged(offsets, self.tids[ranges(starts, counts)])


def empty(rows: int) -> Ragged:
    """Return `count` rows without tids."""
    return Ragged(np.zeros(rows + 1, np.int64), np.empty(0, np.int64))


def concat_lists(parts: list[Ragged]) -> Ragged:
    """Concatenate the lists of all parts."""
    if not parts:
        return empty(0)
    before = np.cumsum([0, *(int(p.offsets[-1]) for p in parts)])
    offsets = [p.offsets[:-1] + b for p, b in zip(parts, before.tolist(), strict=False)]
    tids = np.concatenate([p.tids for p in parts])
    return Ragged(np.concatenate([*offsets, before[-1:]]).astype(np.int64), tids)
