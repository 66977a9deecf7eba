"""An ordered multiset of coded rows, in any column order, direction and place of NULLs.

Each column is mapped to a *rank*, an int64 whose order is the order wanted: a code is its own rank, `~` turns it
round, and subtracting 1 with wrap-around takes NULL (the least int64) past the greatest value. All three can be
undone, so ranks are stored instead of codes. Interned values rank by `Dictionary.order_of`; their codes are stored
behind the ranks, and the whole is rebuilt when the dictionary has moved its labels. Undo adds the inverse changes, so
it too is safe against that; after a change that outweighs what was there, it brings back the leaves as they were.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from whence.engine.core.fill import is_fill
from whence.engine.core.image import Image, StaleImage, expect, taken, with_room
from whence.engine.core.kernels import ordered as ok
from whence.model.codes import NULL, Codes, Dictionary
from whence.model.types import BIGINT, Type
from whence.model.word_marks import WordMarks

_SORTED_FROM = 1024  # rows
_NO_LIMIT = 2**62  # rows


def head_ends(limits: Codes, offset: int) -> Codes:
    """Return where heads end: after the offset and a limit, of which NULL is none, and a negative one is 0."""
    return np.where(limits == NULL, _NO_LIMIT, np.clip(limits, 0, _NO_LIMIT - offset) + offset)


class Rank(NamedTuple):
    """How one input column is ordered."""

    column: int
    type: Type = BIGINT
    descending: bool = False
    nulls_first: bool = True

    @property
    def interned(self) -> bool:
        """Whether ranks are the dictionary's, so that codes are stored beside them."""
        return self.type.needs_dictionary


class Ordered:
    """Rows of `width` codes, ordered by `ranks` (every column exactly once)."""

    def __init__(self, ranks: Sequence[Rank], dictionary: Dictionary):
        self.ranks, self.dictionary = tuple(ranks), dictionary
        self._interned = [r.column for r in self.ranks if r.interned]
        self._columns = len(self.ranks) + len(self._interned)
        labels = (at for at, rank in enumerate(self.ranks) if rank.interned)
        self._labels = list(zip(labels, range(len(self.ranks), self._columns), strict=True))  # and their codes' places
        self._version = dictionary.order_version
        self._log: list[tuple[Codes, Codes]] = []
        self._former: tuple[int, tuple[Codes, ...]] | None = None  # before a fill, after which nothing is logged
        self._clear()

    def _clear(self) -> None:
        self._store = np.zeros((ok.LEAF * 4, self._columns), np.int64)
        self._count = np.zeros(ok.LEAF * 4, np.int64)
        self._size, self._top, self._spare = (np.zeros(4, np.int64) for _ in range(3))
        self._meta = np.zeros(4, np.int64)

    @property
    def _arrays(self) -> tuple[Codes, ...]:
        return self._store, self._count, self._size, self._top, self._spare, self._meta

    @_arrays.setter
    def _arrays(self, arrays: tuple[Codes, ...]) -> None:
        self._store, self._count, self._size, self._top, self._spare, self._meta = arrays

    def __len__(self) -> int:
        return int(self._meta[3])

    @property
    def nbytes(self) -> int:
        return self._store.nbytes + self._count.nbytes + 3 * self._size.nbytes

    def add(self, rows: Codes, counts: Codes) -> None:
        """Change the counts of rows; a count of zero removes one."""
        if is_fill(len(counts), len(self)) and not self._log and self._former is None:
            self._former = self._version, self._arrays
            self._arrays = tuple(array.copy() for array in self._arrays)
        elif self._former is None:
            self._log.append((rows, counts))
        self._add(rows, counts)

    def commit(self) -> None:
        self._log.clear()
        self._former = None

    def undo(self) -> None:
        if self._former is not None:
            self._version, self._arrays = self._former
            self._former = None
        for rows, counts in reversed(self._log):
            self._add(rows, -counts)
        self._log.clear()

    def mark_words(self, marks: WordMarks) -> None:
        """Mark the words that its rows refer to."""
        if self._interned:
            filled = self._filled(int(self._meta[1]))
            for at, behind in self._labels:
                marks.column(self._store[filled, behind], self.ranks[at].type)

    def _filled(self, leaves: int) -> Codes:
        """Return the lines of some leaves that hold rows."""
        return np.flatnonzero(np.arange(ok.LEAF) < self._size[:leaves, None])

    def image(self) -> Image:
        """The leaves as they are."""
        used, leaves, spare, _ = self._meta.tolist()
        return {
            "store": self._store[: leaves * ok.LEAF],
            "count": self._count[: leaves * ok.LEAF],
            "size": self._size[:leaves],
            "top": self._top[:used],
            "spare": self._spare[:spare],
            "meta": self._meta,
        }

    def check(self, image: Image) -> None:
        """Raise StaleImage if the image is not of such an order."""
        if "meta" not in image or image["meta"].shape != (4,):
            raise StaleImage("not an image of an ordered multiset")
        used, leaves, spare, _ = image["meta"].tolist()
        lines = leaves * ok.LEAF
        expect(
            image,
            store=(lines, self._columns),
            count=(lines,),
            size=(leaves,),
            top=(used,),
            spare=(spare,),
            meta=(4,),
        )

    def restore(self, image: Image) -> None:
        """Be the multiset that gave the image. The order of values stands, so each leaf keeps its lines; only the
        labels that interned values rank by are this dictionary's own."""
        self.check(image)
        leaves = len(image["size"])
        room = leaves + leaves // 4 + 4
        self._store, self._count = (taken(image, name, room * ok.LEAF) for name in ("store", "count"))
        self._size, self._top, self._spare = (taken(image, name, room) for name in ("size", "top", "spare"))
        self._meta = image["meta"].copy()
        if self._interned:
            filled = self._filled(leaves)
            for at, behind in self._labels:
                self._store[filled, at] = self._ranked(self._store[filled, behind], self.ranks[at])
        self._version = self.dictionary.order_version
        self.commit()

    def first(self, prefixes: Codes) -> Codes:
        """Of each prefix of ranks, the first row with it: the position in the store for `rows_at`, or -1."""
        out = np.empty(len(prefixes), np.int64)
        ok.first_lines(self._store, self._size, self._top, self._meta, prefixes, out)
        return out

    @property
    def leaves(self) -> tuple[Codes, Codes, Codes, Codes]:
        """The rows' ranks, the sizes of leaves, their order and `meta`, as kernels seek in them (`kernels/ordered.py`);
        `refresh` comes first."""
        return self._store, self._size, self._top, self._meta

    @property
    def counts(self) -> Codes:
        """How often the row at each position in the store is there."""
        return self._count

    def rows_at(self, lines: Codes) -> tuple[Codes, Codes]:
        """Rows at positions in the store, and their counts."""
        return self._rows(self._store[lines]), self._count[lines]

    def column_at(self, lines: Codes, rank: int) -> Codes:
        """Codes of the column with that rank at positions that `first` gave."""
        return self._decode(self._store[lines], rank)

    def head(self, limit: int) -> tuple[Codes, Codes]:
        """The first rows, up to a total count of `limit` (all for a negative one), and their counts."""
        stored, counts = ok.first_rows(self._store, self._count, self._size, self._top, self._meta, limit)
        return self._rows(stored), counts

    def encode(self, rows: Codes) -> Codes:
        """The ranks of rows, as they are stored."""
        out = np.empty((len(rows), self._columns), np.int64)
        behind = len(self.ranks)
        for at, rank in enumerate(self.ranks):
            codes = np.ascontiguousarray(rows[:, rank.column])
            if rank.interned:
                out[:, behind] = codes
                behind += 1
            out[:, at] = self._ranked(codes, rank)
        return out

    def _ranked(self, codes: Codes, rank: Rank) -> Codes:
        codes = self.dictionary.ranks(codes, rank.type)
        if rank.nulls_first == rank.descending:
            codes = codes - 1
        return ~codes if rank.descending else codes

    def _decode(self, stored: Codes, at: int) -> Codes:
        rank = self.ranks[at]
        if rank.interned:
            return stored[:, len(self.ranks) + sum(r.interned for r in self.ranks[:at])]
        codes = ~stored[:, at] if rank.descending else stored[:, at]
        return codes + 1 if rank.nulls_first == rank.descending else codes

    def _rows(self, stored: Codes) -> Codes:
        out = np.empty((len(stored), len(self.ranks)), np.int64)
        for at, rank in enumerate(self.ranks):
            out[:, rank.column] = self._decode(stored, at)
        return out

    def refresh(self) -> bool:
        """Follow the dictionary, if it has moved its labels; return whether it has."""
        if not self._interned or self._version == self.dictionary.order_version:
            return False
        stored, kept = ok.first_rows(self._store, self._count, self._size, self._top, self._meta, -1)
        again = self._rows(stored)
        self._version = self.dictionary.order_version
        self._clear()
        self._insert(self.encode(again), kept)
        return True

    def _add(self, rows: Codes, counts: Codes) -> None:
        ranked = self.encode(rows)
        if self.refresh():
            ranked = self.encode(rows)
        self._insert(ranked, counts)

    def _insert(self, ranked: Codes, counts: Codes) -> None:
        if not len(self) and len(counts) >= _SORTED_FROM:  # rows that come in order fill their leaves
            order = np.lexsort(ranked.T[::-1])
            ranked, counts = ranked[order], counts[order]
        done = 0
        while True:
            done = ok.add(
                self._store, self._count, self._size, self._top, self._spare, self._meta, ranked, counts, done
            )
            if done == len(counts):
                return
            self._grow()

    def _grow(self) -> None:
        """Make room for twice as many leaves."""
        leaves = 2 * len(self._size)
        self._store = with_room(self._store, leaves * ok.LEAF)
        self._count = with_room(self._count, leaves * ok.LEAF)
        self._size, self._top, self._spare = (with_room(a, leaves) for a in (self._size, self._top, self._spare))
