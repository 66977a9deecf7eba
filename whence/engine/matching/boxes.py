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

from whence.engine.matching.kernels import forest, search
from whence.engine.matching.kernels.lanes import BLOCK
from whence.model.codes import Codes
from whence.model.record import KernelRecord

T = TypeVar("T", np.int64, np.uint8)
_SLACK = 4096  # lines that may be wasted before anything is packed anew
_NONE, _NO_FLAGS = np.empty(0, np.int64), np.empty(0, np.uint8)


class Boxes:
    """Boxes of `dims` dimensions, in bins that a caller may tell apart; `mark` is a number beside the tag."""

    def __init__(self, dims: int, equal: int = 0, on: int | None = None):
        """With `on`, queries ask up to that dimension, and boxes of a bin from 1 on share a point of it."""
        self.dims = dims
        curve = dims if on is None else on + 1
        self._order = dims, equal, curve, on if on is not None and on > equal else curve
        self._log: list[tuple[Codes, int | None]] = []
        self.clear()

    def clear(self) -> None:
        """Forget all boxes, and what was to be undone."""
        self.forest = self._forest(64, 16, 8)
        self.live = 0
        self._log.clear()

    def _forest(self, entries: int, blocks: int, trees: int) -> KernelRecord:
        """Return an empty forest with room for so many."""
        dims, lanes = self.dims, 2 * self.dims * BLOCK
        scalar = np.zeros(8, np.int64)
        scalar[forest.ROOF :] = -1, *self._order
        return KernelRecord(
            forest.FOREST,
            entries=np.empty((entries, 2 * dims + 2), np.int64),
            alive=np.zeros(entries, np.uint8),
            frames=np.empty((blocks, dims), np.int64),
            lanes=_aligned(blocks * lanes),
            tops=np.empty(0, np.int64),
            trees=np.zeros((trees, forest.NODE + forest.LEVELS), np.int64),
            bounds=np.empty((trees, 2 * dims), np.int64),
            roof_frames=np.empty((trees // BLOCK + 1, dims), np.int64),
            roof_lanes=_aligned((trees // BLOCK + 1) * lanes),
            scalar=scalar,
        )

    @property
    def entries(self) -> Codes:
        """Lines of all boxes, dead ones among them."""
        return self.forest.entries

    @property
    def places_used(self) -> Codes:
        """The positions of all boxes in `entries`, dead ones among them."""
        return np.arange(int(self.forest.scalar[forest.ENTRIES]))

    @property
    def trees(self) -> Codes:
        """A line per tree (`kernels/forest.py`)."""
        return self.forest.trees[: int(self.forest.scalar[forest.TREES])]

    def __len__(self) -> int:
        return self.live

    @property
    def nbytes(self) -> int:
        return sum(array.nbytes for array in self.forest.arrays.values())

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
        trees = self.trees
        self._reserve(forest.absorbed(trees, len(trees), bin, len(lines)))
        forest.grow(self.forest.address, bin, lines)
        self.live += len(lines)
        if self.forest.scalar[forest.ENTRIES] > self.live + self.live // 4 + _SLACK:
            self._pack()

    def take(self, lines: Codes) -> Codes:
        """Remove those of the lines that are there, whatever their marks; return the marks and bins that they had."""
        places = np.empty((len(lines), 2), np.int64)
        forest.drop(self.forest.address, lines, places)
        places = places[places[:, 0] >= 0]
        self.live -= len(places)
        out = np.empty_like(places)
        out[:, 0], out[:, 1] = self.entries[places[:, 0], -1], self.trees[places[:, 1], forest.BIN]
        return out

    def places(self, bin: int) -> Codes:
        """Return where the live entries of a bin are."""
        runs = [np.arange(first, first + size) for b, first, size, *_ in self.trees.tolist() if b == bin]
        at = np.concatenate(runs) if runs else np.empty(0, np.int64)
        found: Codes = at[self.forest.alive[at] == 1]
        return found

    def members(self, bin: int) -> Codes:
        """Return the live lines of a bin."""
        found: Codes = self.entries[self.places(bin)]
        return found

    def everything(self) -> Codes:
        """Return all live lines."""
        bins = np.unique(self.trees[:, forest.BIN]).tolist()
        return np.concatenate([self.entries[:0], *(self.members(bin) for bin in bins)])

    def empty(self, bin: int) -> None:
        """Remove all boxes of a bin."""
        trees, scalar = self.trees, self.forest.scalar
        kept = trees[:, forest.BIN] != bin
        self.live -= int(trees[~kept, forest.LIVE].sum())
        n = int(kept.sum())
        trees[:n], self.forest.bounds[:n] = trees[kept], self.forest.bounds[: len(kept)][kept]
        scalar[forest.TREES], scalar[forest.ROOF] = n, -1

    def _reserve(self, entries: int) -> None:
        """Make room for one more tree."""
        f = self.forest
        used, blocks, trees = f.scalar[: forest.ROOF].tolist()
        if used + entries > len(f.alive):
            room = used + entries + (used + entries) // 8 + 64
            f.replace(entries=_with_lines(f.entries, used, room), alive=_with_lines(f.alive, used, room))
        need = blocks + forest.count_blocks(entries)
        if need > len(f.frames):
            room, lanes = need + need // 8, 2 * self.dims * BLOCK
            grown = _aligned(room * lanes)
            grown[: blocks * lanes] = f.lanes[: blocks * lanes]
            f.replace(frames=_with_lines(f.frames, blocks, room), lanes=grown)
        if trees == len(f.trees):
            roof = self._forest(0, 0, 2 * trees)
            f.replace(
                trees=_with_lines(f.trees, trees, 2 * trees),
                bounds=_with_lines(f.bounds, trees, 2 * trees),
                roof_frames=roof.roof_frames,
                roof_lanes=roof.roof_lanes,
            )

    def _pack(self) -> None:
        """Copy the trees to new arrays that have nothing else, merging those of each bin."""
        bins = np.unique(self.trees[:, forest.BIN]).tolist()
        found = [self.members(bin) for bin in bins]
        sizes = [len(lines) for lines in found]
        self.forest = self._forest(sum(sizes) + 64, sum(map(forest.count_blocks, sizes)) + 16, len(bins) + 8)
        for bin, lines in zip(bins, found, strict=True):
            forest.grow(self.forest.address, bin, lines)

    # -- finding -----------------------------------------------------------------------------------------------------

    def find(self, lows: Codes, highs: Codes) -> tuple[Codes, Codes]:
        """(position of a query, tag) of all boxes that meet one of the query boxes."""
        at, lines = self.find_lines(lows, highs)
        return at, self.entries[lines, -2]

    def find_lines(self, lows: Codes, highs: Codes) -> tuple[Codes, Codes]:
        """(position of a query, position in `entries`, which is valid until boxes are added) of the same."""
        found = search.find(self.forest.address, lows, highs, _NONE, _NO_FLAGS)
        at, lines = found.T.copy()
        return at, lines


def _with_lines(array: NDArray[T], used: int, room: int) -> NDArray[T]:
    grown = np.empty((room, *array.shape[1:]), array.dtype)
    grown[:used] = array[:used]
    return grown


def _aligned(size: int) -> NDArray[np.uint32]:
    """Return room for lanes that begins where a cache line does."""
    room = np.empty(size + BLOCK, np.uint32)
    first = -room.ctypes.data % (4 * BLOCK) // 4
    return room[first : first + size]
