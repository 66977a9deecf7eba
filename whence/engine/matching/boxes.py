"""Boxes: a changing set of boxes of any dimension, each with a tag; which of them does a point or a box meet?

Law: `find` gives exactly the stored boxes that have a point in common with a query; bounds are closed int64 numbers.
State: packed trees (`kernels/forest.py`). New boxes become a tree, together with the trees of their bin that are not
twice as large as what is merged already, so a bin has O(log n) trees and a box is moved O(log n) times. A box that is
removed is marked dead, and left out when its tree is merged. Cost: O(log n) a tree and query where boxes are small
against their spread, plus the boxes found; the first `equal` dimensions are meant to be single values and partition the
rest.

Undo adds what was removed and removes what was added, so trees may differ, but never what is found.
"""

from __future__ import annotations

from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from whence.engine.matching.kernels import forest
from whence.model.codes import Codes

T = TypeVar("T", np.int64, np.uint8)
_SLACK = 4096  # lines that may be wasted before anything is packed anew


class Boxes:
    """Boxes of `dims` dimensions, in bins that a caller may tell apart; `mark` is a number beside the tag."""

    entries: Codes
    alive: NDArray[np.uint8]
    nodes: Codes
    trees: Codes
    used: Codes

    def __init__(self, dims: int, equal: int = 0):
        self.dims, self.equal = dims, equal
        self._log: list[tuple[Codes, int | None]] = []
        self.clear()

    def clear(self) -> None:
        """Forget all boxes, and what was to be undone."""
        self.entries = np.empty((64, 2 * self.dims + 2), np.int64)
        self.alive = np.zeros(64, np.uint8)
        self.nodes = np.empty((16, 2 * self.dims), np.int64)
        self.trees = np.zeros((8, 6), np.int64)
        self.used = np.zeros(3, np.int64)
        self.live = 0
        self._log.clear()

    def __len__(self) -> int:
        return self.live

    @property
    def nbytes(self) -> int:
        return self.entries.nbytes + self.alive.nbytes + self.nodes.nbytes + self.trees.nbytes

    def lines(self, lows: Codes, highs: Codes, tags: Codes, marks: Codes | int = 0) -> Codes:
        """Return boxes as they are stored."""
        out = np.empty((len(tags), 2 * self.dims + 2), np.int64)
        out[:, : self.dims], out[:, self.dims : -2], out[:, -2], out[:, -1] = lows, highs, tags, marks
        return out

    # -- changing ----------------------------------------------------------------------------------------------------

    def add(self, lows: Codes, highs: Codes, tags: Codes) -> None:
        """Add boxes."""
        lines = self.lines(lows, highs, tags)
        self.put(lines)
        self._log.append((lines, None))

    def remove(self, lows: Codes, highs: Codes, tags: Codes) -> None:
        """Remove boxes that are there."""
        lines = self.lines(lows, highs, tags)
        self.take(lines)
        self._log.append((lines, 0))

    def commit(self) -> None:
        self._log.clear()

    def undo(self) -> None:
        for lines, removed_from in reversed(self._log):
            if removed_from is None:
                self.take(lines)
            else:
                self.put(lines, removed_from)
        self._log.clear()

    def put(self, lines: Codes, bin: int = 0) -> None:
        """Add lines to a bin; the caller sees to it that it can be undone."""
        if not len(lines):
            return
        total = forest.absorbed(self.trees, int(self.used[2]), bin, len(lines))
        self._reserve(total)
        forest.grow(self.entries, self.alive, self.nodes, self.trees, self.used, bin, lines, self.dims, self.equal)
        self.live += len(lines)
        if self.used[0] > self.live + self.live // 4 + _SLACK:
            self._pack()

    def take(self, lines: Codes) -> Codes:
        """Remove those of the lines that are there, whatever their marks; return the marks and bins that they had."""
        places = np.empty((len(lines), 2), np.int64)
        forest.drop(self.entries, self.alive, self.nodes, self.trees, self.used, lines, self.dims, self.equal, places)
        places = places[places[:, 0] >= 0]
        self.live -= len(places)
        out = np.empty_like(places)
        out[:, 0], out[:, 1] = self.entries[places[:, 0], -1], self.trees[places[:, 1], forest.BIN]
        return out

    def places(self, bin: int) -> Codes:
        """Return where the live entries of a bin are."""
        trees = self.trees[: int(self.used[2])]
        runs = [np.arange(first, first + size) for b, first, size, *_ in trees.tolist() if b == bin]
        at = np.concatenate(runs) if runs else np.empty(0, np.int64)
        found: Codes = at[self.alive[at] == 1]
        return found

    def members(self, bin: int) -> Codes:
        """Return the live lines of a bin."""
        found: Codes = self.entries[self.places(bin)]
        return found

    def everything(self) -> Codes:
        """Return all live lines."""
        bins = np.unique(self.trees[: int(self.used[2]), forest.BIN]).tolist()
        return np.concatenate([self.entries[:0], *(self.members(bin) for bin in bins)])

    def empty(self, bin: int) -> None:
        """Remove all boxes of a bin."""
        n = int(self.used[2])
        kept = self.trees[:n][self.trees[:n, forest.BIN] != bin]
        self.live -= int(self.trees[:n, forest.LIVE].sum() - kept[:, forest.LIVE].sum())
        self.trees[: len(kept)], self.used[2] = kept, len(kept)

    def _reserve(self, entries: int) -> None:
        """Make room for one more tree."""
        used, nodes, trees = self.used.tolist()
        if used + entries > len(self.alive):
            room = used + entries + (used + entries) // 8 + 64
            self.entries, self.alive = _with_lines(self.entries, used, room), _with_lines(self.alive, used, room)
        need = nodes + forest.count_nodes(entries)
        if need > len(self.nodes):
            self.nodes = _with_lines(self.nodes, nodes, need + need // 4)
        if trees == len(self.trees):
            self.trees = _with_lines(self.trees, trees, 2 * trees)

    def _pack(self) -> None:
        """Copy the trees to new arrays that have nothing else, merging those of each bin."""
        bins = np.unique(self.trees[: int(self.used[2]), forest.BIN]).tolist()
        found = [self.members(bin) for bin in bins]
        sizes = [len(lines) for lines in found]
        nodes = sum(map(forest.count_nodes, sizes))
        self.entries = np.empty((sum(sizes) + 64, 2 * self.dims + 2), np.int64)
        self.alive, self.nodes = np.zeros(sum(sizes) + 64, np.uint8), np.empty((nodes + 16, 2 * self.dims), np.int64)
        self.used[:] = 0
        for bin, lines in zip(bins, found, strict=True):
            forest.grow(self.entries, self.alive, self.nodes, self.trees, self.used, bin, lines, self.dims, self.equal)

    # -- finding -----------------------------------------------------------------------------------------------------

    def find(self, lows: Codes, highs: Codes) -> tuple[Codes, Codes]:
        """(position of a query, tag) of all boxes that meet one of the query boxes."""
        at, lines = self.find_lines(lows, highs)
        return at, self.entries[lines, -2]

    def find_lines(self, lows: Codes, highs: Codes) -> tuple[Codes, Codes]:
        """(position of a query, position in `entries`, which is valid until boxes are added) of the same."""
        return forest.find(self.entries, self.alive, self.nodes, self.trees, self.used, lows, highs, self.dims)


def _with_lines(array: NDArray[T], used: int, room: int) -> NDArray[T]:
    grown = np.empty((room, *array.shape[1:]), array.dtype)
    grown[:used] = array[:used]
    return grown
