"""A keyed multiset: each distinct row once with its annotation, found by the whole row or by any columns asked for.

Invariant: a row is in the hash table and in every index exactly when its annotation is not zero. A row keeps its id
while it lives; ids of rows that left are reused. `extra` columns of accumulators belong to the row and start at zero.
A change costs what it touches: an upsert and a settle of the table, a link or unlink per index.

Undo: rows return to the very ids they had, so accumulators and other state that names ids stay valid. It keeps the
smaller of two things (`fill.py`): a log of the changes, replayed backwards; or, if an epoch begins with a fill, the
arrays as they were before. Whoever overwrites accumulators calls `save` first.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from whence.engine.core.fill import is_fill
from whence.engine.core.growing_index import GrowingIndex
from whence.engine.core.image import Image, StaleImage, expect, taken, with_room
from whence.engine.core.kernels import index as ik
from whence.engine.core.kernels import rebuild as rk
from whence.engine.core.kernels import relation as tk
from whence.engine.core.kernels.table import rehash
from whence.engine.core.key_lookup import Lookups
from whence.engine.core.operator import Batch
from whence.engine.core.range_index import RangeIndex
from whence.model.codes import Codes
from whence.model.record import KernelRecord
from whence.model.types import Type
from whence.model.word_marks import WordMarks

T = TypeVar("T", np.int64, np.int32)
_NONE = np.empty((5, 0), np.int64)


class _Change(NamedTuple):
    """A logged upsert: its rows, what it and settle made of them (`kernels/relation.py`), and their accumulators before
    if those changed, too."""

    batch: Codes
    change: Codes
    acc: Codes | None = None


class _Saved(NamedTuple):
    """Accumulators as they were."""

    ids: Codes
    acc: Codes


class _Former(NamedTuple):
    """The arrays before a fill."""

    rows: Codes
    ann: Codes
    acc: Codes
    free: Codes
    slots: Codes
    meta: Codes


class Index:
    """A secondary hash index of one relation."""

    __slots__ = ("cols", "keys", "nxt", "prv", "slots")

    slots: Codes
    nxt: NDArray[np.int32]
    prv: NDArray[np.int32]

    def __init__(self, cols: tuple[int, ...], relation: Relation, empty: bool = False):
        self.cols = np.array(cols, np.int64)
        self.keys = np.zeros(1, np.int64)
        if empty:
            self.clear(relation)
        else:
            self.fill(relation)

    def link(self, rows: Codes, ids: Codes, n: int) -> None:
        need = 2 * (int(self.keys[0]) + n)
        if need > len(self.slots):
            self.slots = _larger(self.slots, need)
        ik.link(rows, self.cols, self.slots, self.nxt, self.prv, self.keys, ids, n)

    def unlink(self, rows: Codes, ids: Codes, n: int) -> None:
        ik.unlink(rows, self.cols, self.slots, self.nxt, self.prv, self.keys, ids, n)

    def fill(self, relation: Relation) -> None:
        """Begin anew, with all live rows of the relation."""
        self.clear(relation)
        words = relation.words(self.cols, self.slots)
        rk.fill_index(relation.rows, self.cols, self.slots, self.nxt, self.prv, self.keys, words, len(words))

    def clear(self, relation: Relation) -> None:
        """Begin anew, with no rows but room for those of the relation."""
        self.slots = np.zeros(_power(2 * len(relation), 16), np.int64)
        self.nxt = np.empty(len(relation.ann), np.int32)
        self.prv = np.empty(len(relation.ann), np.int32)
        self.keys[0] = 0

    def grow(self, capacity: int) -> None:
        self.nxt = _resized(self.nxt, capacity)
        self.prv = _resized(self.prv, capacity)

    @property
    def nbytes(self) -> int:
        return self.slots.nbytes + self.nxt.nbytes + self.prv.nbytes


class Relation:
    """The multiset; see the module's invariant."""

    for_lookups = False  # made for lookups alone: no operator needs it, and images do not have it

    def __init__(self, width: int, extra: int = 0):
        self.width = self.indexable = width
        self.rows = np.empty((16, width), np.int64)
        self.ann = np.zeros(16, np.int64)
        self.acc = np.zeros((16, extra), np.int64)
        self.free = np.empty(16, np.int64)
        self.slots = np.zeros(32, np.int64)
        self.meta = np.zeros(3, np.int64)
        self.indexes: dict[tuple[int, ...], Index] = {}
        self.ranges: dict[tuple[int, ...], RangeIndex] = {}  # by columns, of which the last is ordered
        self.growing: dict[
            tuple[tuple[int, ...], bool], GrowingIndex
        ] = {}  # by columns, and whether the last is ordered
        self._index_list: list[Index | RangeIndex | GrowingIndex] = []
        self.lookups = Lookups(self)
        self.was_empty = False  # before the batch that was added last
        self._log: list[_Change | _Saved] = []
        self._former: _Former | None = None  # in an epoch that began with a fill, which logs nothing
        self._open: Codes  # the change whose annotations are not set yet
        self._record = KernelRecord(tk.TABLE)
        self.address = self._record.address  # of the record of its arrays, for kernels
        self._point()

    def __len__(self) -> int:
        return int(self.meta[2])

    @property
    def total(self) -> int:
        """How many rows there are, copies counted."""
        return int(self.ann[: int(self.meta[0])].sum())

    def may_have_rows(self) -> bool:
        """Whether there are any."""
        return len(self) > 0

    # -- changing ----------------------------------------------------------------------------------------------------

    def apply(self, batch: Batch) -> tuple[Codes, Codes, Codes]:
        """Add a consolidated batch: row ids, annotations before, annotations after."""
        change = self.add(batch)
        if change is None:
            n = len(batch.ann)
            return np.arange(n), np.zeros(n, np.int64), batch.ann
        return change[tk.IDS, 1:], change[tk.OLD, 1:], change[tk.NEW, 1:]

    def add(self, batch: Batch) -> Codes | None:
        """Add a consolidated batch; return what changed (`kernels/relation.py`), or None if its rows are all there are,
        each with its place in the batch as its id."""
        rows = batch.rows
        n = len(rows)
        self.was_empty = not self.meta[2]
        self.make_room(n)
        if self.was_empty and self._former is not None:
            self._fill(batch)
            return None
        change = np.empty((5, n + 1), np.int64)
        moved = tk.add(self.address, rows, batch.ann, change)
        if self._former is None:
            self._log.append(_Change(rows, change))
        if moved and self._index_list:
            self._index_moved(change, moved & 0xFFFFFFFF, moved >> 32)
        return change

    def upsert(self, rows: Codes) -> tuple[Codes, Codes]:
        """Ids and annotations of distinct rows, new ones added with annotation zero; `settle` must follow."""
        n = len(rows)
        self.make_room(n)
        self._open = change = np.empty((5, n + 1), np.int64)
        born = tk.upsert(self.address, rows, n, change)
        self.log(rows, change)
        self._index_moved(change, born, 0)
        return change[tk.IDS, 1:], change[tk.OLD, 1:]

    def settle(self, new: Codes) -> None:
        """Give the rows of the last upsert their annotations; those that come to zero leave."""
        change = self._open
        change[tk.NEW, 1:] = new
        self._index_moved(change, 0, tk.settle(self.address, change))
        self._open = _NONE

    def make_room(self, n: int) -> None:
        """Get ready for a change of n rows, and for its undo."""
        if is_fill(n, int(self.meta[0])) and not self._log and self._former is None:
            self._set_aside(n)
        else:
            self.reserve(n)

    def log(self, rows: Codes, change: Codes, acc: Codes | None = None) -> None:
        """Note what a kernel does to this relation, which has no index, so that it can be undone: an upsert of these
        rows, whose accumulators were `acc`, and perhaps its settle."""
        if self._former is None:
            self._log.append(_Change(rows, change, acc))

    def _index_moved(self, change: Codes, born: int, gone: int) -> None:
        """Put new rows into the indexes, and take those out that left."""
        for index in self._index_list:
            if born:
                index.link(self.rows, change[tk.BORN, 1:], born)
            if gone:
                index.unlink(self.rows, change[tk.GONE, 1:], gone)

    def save(self, ids: Codes) -> Codes:
        """The rows' accumulators, to be overwritten; undo brings them back."""
        acc = self.acc[ids]
        if self._former is None:
            self._log.append(_Saved(ids, acc))
        return acc

    def lay_out(self, moved: Callable[[Codes], Codes]) -> None:
        """Replace all accumulators, and those that undo brings back, by what `moved` makes of them."""
        self.acc = moved(self.acc)
        self._point()
        self._log = [e if e.acc is None else e._replace(acc=moved(e.acc)) for e in self._log]
        if self._former is not None:
            self._former = self._former._replace(acc=moved(self._former.acc))

    def commit(self) -> None:
        self._log.clear()
        self._former = None

    def undo(self) -> None:
        if self._former is not None:
            self.rows, self.ann, self.acc, self.free, self.slots, self.meta = self._former
            self._former = None
            self._point()
            for index in self._index_list:
                index.fill(self)
        for entry in reversed(self._log):
            if isinstance(entry, _Saved):
                self.acc[entry.ids] = entry.acc
            else:
                self._restore(entry)
        self._log.clear()

    def _restore(self, entry: _Change) -> None:
        change = entry.change
        n = 1 + int(change[4, 0])
        ids, old = change[tk.IDS, 1:n], change[tk.OLD, 1:n]
        if entry.acc is not None:
            self.acc[ids] = entry.acc[: n - 1]
        left = (change[tk.NEW, 1:n] == 0) if change[0, 0] else np.zeros(len(ids), bool)
        born, back = ids[(old == 0) & ~left], ids[(old != 0) & left]
        for index in self._index_list:
            index.unlink(self.rows, born, len(born))
        tk.restore(self.address, entry.batch, change)
        for index in self._index_list:
            index.link(self.rows, back, len(back))

    def _set_aside(self, n: int) -> None:
        """Keep the arrays as they are for undo, and go on with copies that have room for n rows."""
        self._former = _Former(self.rows, self.ann, self.acc, self.free, self.slots, self.meta)
        high, _, live = self.meta.tolist()
        capacity = high + n + 16
        self.rows, self.acc, self.free = (_resized(a[:high], capacity) for a in (self.rows, self.acc, self.free))
        self.ann = with_room(self.ann[:high], capacity)
        self.meta = self.meta.copy()
        self.slots = _larger(self.slots, 2 * (live + n))
        for index in self._index_list:
            index.grow(capacity)
        self._point()

    def _fill(self, batch: Batch) -> None:
        """Take distinct rows as the only ones; there is room for them."""
        n = len(batch.ann)
        self.rows[:n], self.ann[:n], self.acc[:n] = batch.rows, batch.ann, 0
        self.meta[:] = n, 0, n
        self._hash()

    def _hash(self) -> None:
        """Fill the empty hash table, and the indexes anew."""
        self._point()
        words = self.words(np.arange(self.width), self.slots)
        rk.fill_table(self.slots, words, len(words))
        for index in self._index_list:
            index.fill(self)

    def _point(self) -> None:
        """Let kernels find the arrays, which have been replaced."""
        self._record.replace(
            rows=self.rows, ann=self.ann, acc=self.acc, slots=self.slots, free=self.free, meta=self.meta
        )

    def reserve(self, more: int) -> None:
        """Room for that many further rows."""
        high, free, live = self.meta.tolist()
        need = high + more - min(free, more)
        capacity = len(self.ann)
        if need > capacity:
            capacity = max(2 * capacity, need + 16)
            self.rows = _resized(self.rows, capacity)
            self.acc = _resized(self.acc, capacity)
            self.free = _resized(self.free, capacity)
            ann = np.zeros(capacity, np.int64)
            ann[: len(self.ann)] = self.ann
            self.ann = ann
            for index in self._index_list:
                index.grow(capacity)
            self._point()
        if 3 * (live + more) > 2 * len(self.slots):
            self.slots = _larger(self.slots, 2 * (live + more))
            self._point()

    # -- images ------------------------------------------------------------------------------------------------------

    def mark_words(self, marks: WordMarks, types: Sequence[Type]) -> None:
        """Mark the words that its rows, of columns of these types, refer to."""
        high = int(self.meta[0])
        marks.rows(self.rows[:high], types, self.ann[:high])

    def image(self) -> Image:
        """Rows by their ids, and the ids that are free; hash table and indexes are made anew when it is restored."""
        high, free, _ = self.meta.tolist()
        return {
            "rows": self.rows[:high],
            "ann": self.ann[:high],
            "acc": self.acc[:high],
            "free": self.free[:free],
            "meta": self.meta,
        }

    def check(self, image: Image) -> None:
        """Raise StaleImage if the image is not of such a relation."""
        if "meta" not in image or image["meta"].shape != (3,):
            raise StaleImage("not an image of a relation")
        high, free, _ = image["meta"].tolist()
        expect(image, rows=(high, self.width), ann=(high,), acc=(high, self.acc.shape[1]), free=(free,), meta=(3,))

    def restore(self, image: Image) -> None:
        """Be the relation that gave the image, every row under its own id; the indexes there are now are kept."""
        self.check(image)
        high, _, live = image["meta"].tolist()
        capacity = high + high // 4 + 16
        self.rows, self.acc, self.free = (taken(image, name, capacity) for name in ("rows", "acc", "free"))
        self.ann = taken(image, "ann", capacity)
        self.meta = image["meta"].copy()
        self.slots = np.zeros(_power(2 * live, 32), np.int64)
        self._hash()
        self.commit()

    def words(self, cols: Codes, slots: Codes) -> Codes:
        """What is to be put into an empty hash table of these columns, in an order that is quick to put."""
        words, starts = np.empty(len(self), np.int64), np.empty(rk.PARTS + 1, np.int64)
        rk.order_words(self.rows, cols, self.ann, int(self.meta[0]), slots, words, starts)
        return words

    # -- finding -----------------------------------------------------------------------------------------------------

    def index(self, cols: Sequence[int]) -> Index:
        """The index on these columns, built if it is not there."""
        key = tuple(cols)
        self.build_index(key)
        self.lookups.release(key)
        return self.indexes[key]

    def build_index(self, cols: tuple[int, ...]) -> None:
        """Build an index, unless it is there."""
        if cols not in self.indexes:
            self.indexes[cols] = Index(cols, self)
            self._list_indexes()

    def drop_index(self, cols: Sequence[int]) -> None:
        self.indexes.pop(tuple(cols), None)
        self._list_indexes()

    def range_index(self, cols: tuple[int, ...]) -> RangeIndex:
        """The index on these columns, ordered by the last of them, built if it is not there."""
        if cols not in self.ranges:
            self.ranges[cols] = RangeIndex(cols, self)
            self._list_indexes()
        return self.ranges[cols]

    def drop_ranges(self, kept: Collection[tuple[int, ...]]) -> None:
        """Drop all ordered indexes but those that are to be kept."""
        if not self.ranges.keys() <= set(kept):
            self.ranges = {cols: index for cols, index in self.ranges.items() if cols in kept}
            self._list_indexes()

    def _list_indexes(self) -> None:
        self._index_list = [*self.indexes.values(), *self.ranges.values(), *self.growing.values()]

    def grow_index(self, cols: tuple[int, ...], ordered: bool, rows: int) -> bool:
        """Build an index a slice further, of so many rows; return whether it is there. Between two epochs."""
        if cols in (self.ranges if ordered else self.indexes):
            return True
        found = self.growing.get((cols, ordered))
        if found is None:
            empty = RangeIndex(cols, self, empty=True) if ordered else Index(cols, self, empty=True)
            found = self.growing[cols, ordered] = GrowingIndex(empty)
            self._list_indexes()
        if not found.advance(self, rows):
            return False
        index = self.growing.pop((cols, ordered)).index
        if isinstance(index, RangeIndex):
            self.ranges[cols] = index
        else:
            self.indexes[cols] = index
        self._list_indexes()
        return True

    def stop_growing(self) -> None:
        """Forget indexes that are not whole."""
        if self.growing:
            self.growing = {}
            self._list_indexes()

    def probe(self, cols: Sequence[int], keys: Codes, null_safe: bool = False) -> tuple[Codes, Codes]:
        """(position in `keys`, row id) of all rows whose `cols` equal the key; NULL equals nothing unless null_safe."""
        return self.matches(self.index(cols), keys, np.arange(keys.shape[1]), null_safe)

    def matches(self, index: Index, batch: Codes, cols: Codes, null_safe: bool = False) -> tuple[Codes, Codes]:
        """As `probe`, with the key in columns `cols` of a batch."""
        return ik.probe(self.rows, index.cols, index.slots, index.nxt, batch, cols, int(null_safe))

    def lookup(self, rows: Codes) -> Codes:
        """Ids of whole rows, -1 for those that are not there."""
        ids = np.empty(len(rows), np.int64)
        tk.lookup(self.address, rows, ids)
        return ids

    def counts(self, rows: Codes) -> Codes:
        """The annotation of each of these rows, zero for those that are not there."""
        ids = self.lookup(rows)
        return np.where(ids >= 0, self.ann[ids], 0)

    def at_keys(self, cols: tuple[int, ...], keys: Codes) -> Batch:
        """The rows that have one of these keys in some columns."""
        _, ids = self.probe(cols, keys)
        return Batch(self.rows[ids], self.ann[ids])

    def find(self, cols: tuple[int, ...], keys: Codes) -> Batch:
        """The rows that have one of these distinct keys in any columns, indexed or not; NULL equals NULL."""
        return self.lookups.find(cols, keys)

    def at_key(self, cols: tuple[int, ...], keys: Codes) -> Batch:
        """Those of some distinct rows, in all columns, that are there."""
        ids = self.lookup(keys)
        return self.at_ids(ids[ids >= 0])

    def at_ids(self, ids: Codes) -> Batch:
        """The rows of ids."""
        return Batch(self.rows[ids], self.ann[ids], True)

    def ids(self) -> Codes:
        out = np.empty(len(self), np.int64)
        tk.live_ids(self.ann, int(self.meta[0]), out)
        return out

    def scan(self) -> Batch:
        """All rows with their annotations."""
        return self.at_ids(self.ids())

    @property
    def nbytes(self) -> int:
        own = self.rows.nbytes + self.ann.nbytes + self.acc.nbytes + self.free.nbytes + self.slots.nbytes
        return own + sum(index.nbytes for index in self._index_list)


def _resized(array: NDArray[T], capacity: int) -> NDArray[T]:
    grown = np.empty((capacity, *array.shape[1:]), array.dtype)
    grown[: len(array)] = array
    return grown


def _larger(slots: Codes, need: int) -> Codes:
    grown = np.zeros(_power(need, len(slots)), np.int64)
    rehash(slots, grown)
    return grown


def _power(need: int, least: int) -> int:
    """The smallest power of two that is not less than either; `least` is one."""
    return max(least, 1 << max(0, need - 1).bit_length())
