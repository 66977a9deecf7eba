"""Recent: the rows of a stream that are in the window now, per key.

Laws: a window of n rows has the last n of each key. In a window by value, a row whose value is smaller than an earlier
one of its key, or than a promise, or NULL, is late and never enters; the others are in until the operator removes them.
An epoch is undone exactly. State: the rows, and per key that ever came the ends of its queue and its newest value.
Cost: a constant per row; rows that left are dropped when they outnumber those in the window.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from whence.annotate.tracing import Tracer
from whence.engine.core.image import Image, StaleImage, expect, with_room
from whence.engine.core.operator import Batch
from whence.engine.streams.arrivals import SPARE, Arrivals, data
from whence.engine.streams.order import below, greatest
from whence.engine.streams.stream import Late
from whence.engine.streams.windows.kernels import recent as rk
from whence.model.codes import NULL, Codes
from whence.model.record import KernelRecord
from whence.model.types import Schema, Type
from whence.model.word_marks import WordMarks
from whence.plan.streams.model import Span

_EVERYTHING = 1 << 62
_NEW = np.array([0, 0, 0, NULL, NULL, -1], np.int64)  # a group that no row has come to


class KeyNumbers:
    """The keys of some columns, numbered from 0 in order of arrival. Without columns there is one from the start."""

    def __init__(self, columns: int) -> None:
        self.columns, self._whole = columns, np.arange(columns)
        self.clear()

    def clear(self) -> None:
        """Reset to the initial state."""
        self._keys = np.empty((16, self.columns), np.int64)
        self._slots = np.zeros(32, np.int64)
        self._meta = np.array([0 if self.columns else 1], np.int64)
        self._committed = len(self)

    def __len__(self) -> int:
        return int(self._meta[0])

    def number(self, rows: Codes, cols: Codes) -> Codes:
        """Number the keys that rows have in these columns; NULL is a key like others."""
        if not self.columns:
            return np.zeros(len(rows), np.int64)
        group, done = np.empty(len(rows), np.int64), 0
        while True:
            done = rk.number_keys(rows, cols, done, self._keys, self._whole, self._slots, self._meta, group)
            if done == len(rows):
                return group
            self._keys = with_room(self._keys, 2 * len(self._keys))
            self._fill(2 * len(self._slots))

    def _fill(self, room: int) -> None:
        self._slots = np.zeros(room, np.int64)
        if self.columns:
            rk.fill_keys(self._keys, self._whole, self._slots, len(self))

    def commit(self) -> None:
        """Commit; return whether rows that left were dropped, so that positions have changed."""
        self._committed = len(self)

    def undo(self) -> None:
        if len(self) > self._committed:
            self._meta[0] = self._committed
            self._fill(len(self._slots))

    def mark_words(self, marks: WordMarks, types: Sequence[Type]) -> None:
        """Mark the words that the keys, of columns of these types, refer to."""
        marks.rows(self._keys[: len(self)], types)

    def image(self) -> Codes:
        return self._keys[: len(self)]

    def check(self, image: Codes | None) -> None:
        if image is None or image.ndim != 2 or image.shape[1] != self.columns or image.dtype != np.int64:
            raise StaleImage(f"no image of keys of {self.columns} columns")
        if not self.columns and len(image) != 1:
            raise StaleImage("there is one key of no columns")

    def restore(self, image: Codes) -> None:
        """Restore a part of an image that was checked; the keys have been restored."""
        room = 16
        while room <= len(image):
            room *= 2
        self._keys = with_room(image, room)
        self._meta[0] = self._committed = len(image)
        self._fill(2 * room)

    @property
    def nbytes(self) -> int:
        return self._keys.nbytes + self._slots.nbytes


class Recent:
    """The rows in one window. Its user (`Latest`, `WindowJoin`) moves it by kernels that take `address`."""

    def __init__(
        self,
        schema: Schema,
        span: Span,
        keys: KeyNumbers,
        tracer: Tracer | None,
        cols: tuple[int, ...] = (),
        width: int | float | None = None,
    ) -> None:
        """Make an empty window. `schema` has `$at`; `cols` are the columns to be joined on; `width` is that of the
        window that ends with a row, if it is by value."""
        self.span, self.keys, self.width = span, keys, width
        self._cols = np.array(cols, np.int64)
        self._type = schema.types[span.on] if span.on is not None else None
        self._greatest = greatest(self._type) if self._type is not None else 0
        self.arrivals = Arrivals(len(schema), tracer)
        self.late = Late(len(schema) - 1, span.on)
        self.clear()

    def clear(self) -> None:
        """Reset to the initial state; the owner of the keys clears them."""
        self.arrivals.clear()
        self.late.clear()
        none = np.empty(0, np.int64)
        size = _EVERYTHING if self.span.size is None or self._type is not None else int(self.span.size)
        meta = np.array([0, 0, 0, size, -1 if self.span.on is None else self.span.on, 0], np.int64)
        self.promised = self._promised_before = NULL  # no value below this code is to come
        self.side = KernelRecord(
            rk.SIDE, rows=self.arrivals.rows, group=none, following=none, low=none, log=np.empty((0, 6), np.int64),
            attrs=np.empty((0, rk.FIELDS), np.int64), meta=meta, slots=np.zeros(16, np.int64), after=none, prior=none,
            cols=self._cols,
        )  # fmt: skip
        self._live = 0  # rows in when the last epoch was committed

    @property
    def address(self) -> int:
        return self.side.address

    @property
    def live(self) -> int:
        """Rows that are in."""
        return int(self.side.meta[rk.LIVE])

    def admit(self, batch: Batch, group: Codes) -> tuple[int, int]:
        """Append rows with the numbers of their keys. Those that are not late get positions from the first to the
        second that is returned, but are not in the window yet."""
        rows, ann = batch.rows, batch.ann
        if self._type is not None and len(rows):
            late = np.empty(len(rows), np.int64)
            late = late[: rk.admit(self.address, rows, group, self.promised, self._greatest, late)]
            if len(late):
                newest = max(self.promised, int(self.side.attrs[group[late[0]], rk.NEWEST]))
                self.late.add(rows[late, :-1], newest)
                on_time = np.ones(len(rows), bool)
                on_time[late] = False
                rows, ann, group = rows[on_time], ann[on_time], group[on_time]
        start = self.arrivals.append(rows, ann)
        self._room()
        end = self.arrivals.end
        self.side.group[start:end] = group
        self._set_low(start, end)
        return start, end

    def promise(self, bound: int) -> Codes:
        """Let rows leave that are below the window which ends with a value, and take none below that value any more;
        return the positions of those that left. Only by value."""
        assert self._type is not None
        self.prepare()
        self.promised = max(self.promised, bound)
        low, left = below(np.array([bound]), self.width, self._type), np.empty(self.live, np.int64)
        return left[: rk.let_go(self.address, len(self.keys), int(low[0]), left)]

    @property
    def oldest(self) -> int | None:
        """The least value of a row that is in, if it is by value and has rows."""
        if self._type is None or not self.live:
            return None
        self.prepare()
        return int(rk.least_value(self.address, len(self.keys), self._greatest))

    def _set_low(self, start: int, end: int) -> None:
        if self._type is not None and self.span.on is not None:
            values = np.ascontiguousarray(self.arrivals.rows[start:end, self.span.on])
            self.side.low[start:end] = below(values, self.width, self._type)

    def prepare(self) -> None:
        """Make room for the state and the log of each key, after keys have been numbered."""
        attrs = self.side.attrs
        if len(self.keys) > len(attrs):
            more = np.tile(_NEW, (2 * len(self.keys) - len(attrs), 1))
            self.side.replace(attrs=np.concatenate((attrs, more)))
        if len(self.keys) > len(self.side.log):
            log = np.empty((2 * len(self.keys), rk.FIELDS), np.int64)
            log[: len(self.side.log)] = self.side.log
            self.side.replace(log=log)

    def _room(self) -> None:
        """Make as much room for the state of rows as for rows."""
        side, room = self.side, len(self.arrivals.rows)
        if side.rows is self.arrivals.rows:
            return
        side.replace(rows=self.arrivals.rows)
        for name in ("group", "following", "low", "after", "prior"):
            if len(getattr(side, name)) < room:
                side.replace(**{name: with_room(getattr(side, name), room)})

    # -- epochs ------------------------------------------------------------------------------------------------------

    def commit(self) -> bool:
        """Whether rows that left have been forgotten, and positions are others."""
        self.arrivals.commit()
        self.late.commit()
        self._promised_before = self.promised
        meta = self.side.meta
        meta[rk.LOGGED] = 0
        meta[rk.EPOCH] += 1
        self._live = self.live
        gone = self.arrivals.end - self._live
        if gone <= max(self._live, len(self.keys)) + SPARE:
            return False
        self._forget()
        return True

    def positions(self) -> Codes:
        """Return the positions of the rows in the window."""
        end, side = self.arrivals.end, self.side
        return np.flatnonzero(np.arange(end) >= side.attrs[side.group[:end], rk.HEAD])

    def _forget(self) -> None:
        side, still = self.side, self.positions()
        attrs, group = side.attrs, side.group[still]
        some = attrs[:, rk.COUNT] > 0
        for end in (rk.HEAD, rk.TAIL):
            attrs[:, end] = np.where(some, np.searchsorted(still, attrs[:, end]), 0)
        low = side.low[still]
        self.arrivals.retain_only(still)
        none = np.empty(0, np.int64)
        side.replace(group=none, following=none, low=none, after=none, prior=none)
        self._room()
        side.group[: len(still)], side.low[: len(still)] = group, low
        self._thread()

    def _thread(self) -> None:
        rk.link_rows(self.address, self.arrivals.end, np.full(len(self.keys), -1, np.int64))

    def undo(self) -> None:
        rk.undo(self.address)
        self.arrivals.undo()
        self.late.undo()
        self.promised = self._promised_before
        self.side.meta[rk.LIVE] = self._live
        self.side.meta[rk.EPOCH] += 1

    # -- images ------------------------------------------------------------------------------------------------------

    def mark_words(self, marks: WordMarks, types: Sequence[Type]) -> None:
        """Mark the words that the rows, of columns of these types, and late ones refer to."""
        marks.rows(self.arrivals.rows[: self.arrivals.end], types)
        self.late.mark_words(marks, types)

    def image(self, name: str) -> Image:
        end, count = self.arrivals.end, len(self.keys)
        attrs = np.tile(_NEW, (count, 1))
        known = self.side.attrs[:count]
        attrs[: len(known)] = known
        late = {f"{name}_{part}": array for part, array in self.late.image().items()}
        own = {f"{name}_group": self.side.group[:end], f"{name}_attrs": attrs[:, : rk.STAMP]}
        if self.promised != NULL:
            own[f"{name}_promised"] = np.array([self.promised], np.int64)
        return {**self.arrivals.image(name), **own, **late}

    def check(self, image: Image, name: str, keys: int) -> None:
        """Raise StaleImage if the part `name` of an image with `keys` keys is not of such a window."""
        self.arrivals.check(image, name)
        own = {part: a for part, a in data(image).items() if part == name or part.startswith(f"{name}_")}
        rows = len(image[name])
        shapes: dict[str, tuple[int, ...]] = {"group": (rows,), "attrs": (keys, rk.STAMP), "late_count": (1,)}
        if f"{name}_promised" in own:
            shapes["promised"] = (1,)
        shapes["late"] = (len(own.get(f"{name}_late", ())), self.arrivals.columns - 1)
        expect(own, **{name: image[name].shape}, **{f"{name}_{part}": shape for part, shape in shapes.items()})
        self.late.check({part: own[f"{name}_{part}"] for part in ("late", "late_count")})
        if not _is_consistent(own[f"{name}_group"], own[f"{name}_attrs"]):
            raise StaleImage("the rows in a window are not those that its keys know of")

    def restore(self, image: Image, name: str) -> None:
        """Take a part of an image that was checked; the keys have been restored."""
        self.clear()
        self.arrivals.restore(image, name)
        self.prepare()
        self._room()
        side, end, count = self.side, self.arrivals.end, len(self.keys)
        side.group[:end] = image[f"{name}_group"]
        side.attrs[:count, : rk.STAMP] = image[f"{name}_attrs"]
        side.meta[rk.LIVE] = self._live = int(side.attrs[:count, rk.COUNT].sum())
        self._set_low(0, end)
        self._thread()
        self.late.restore({part: image[f"{name}_{part}"] for part in ("late", "late_count")})
        self.promised = self._promised_before = int(image.get(f"{name}_promised", np.array([NULL]))[0])

    @property
    def nbytes(self) -> int:
        arrays = self.side.arrays
        return self.arrivals.nbytes + sum(arrays[name].nbytes for name in arrays if name not in ("rows", "cols"))


def _is_consistent(group: Codes, attrs: Codes) -> bool:
    """Tell whether the rows from each key's first one on match its count, and end with its last one."""
    keys, rows = len(attrs), len(group)
    if rows and (group.min() < 0 or group.max() >= keys):
        return False
    place = np.arange(rows)
    inside = place >= attrs[group, rk.HEAD]
    group, place = group[inside], place[inside]
    first, last = np.full(keys, rows), np.full(keys, -1)
    np.minimum.at(first, group, place)
    np.maximum.at(last, group, place)
    some = attrs[:, rk.COUNT] > 0
    ends = (attrs[:, rk.HEAD] == first) & (attrs[:, rk.TAIL] == last)
    return bool((np.bincount(group, minlength=keys) == attrs[:, rk.COUNT]).all() and ends[some].all())
