"""A connection point: the retained rows of a stream, where readers, joins and explanations find them.

State: one buffer of rows (and one of annotations, if something is traced) that ends with the newest row. Tids are
contiguous, so a row's place is its tid less that of the first row in the buffer. What is dropped is first only passed
over; when the buffer is full, the rows that are left move to its beginning, or to a larger one.

Laws: a row is kept until `commit`, whatever came in its epoch; then the last rows stay, as the retention says. Rows of
an age are dropped by the times of epochs, never by a clock, so doing epochs again drops the same. Cost: amortized a
constant per row, in memory half as much again as what is kept and one batch.

Slices that are handed out are of the live buffer: they are good until the next `append`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

import numpy as np

from whence.annotate.tracing import Tracer
from whence.engine.core.image import Image, StaleImage, inside, nested
from whence.engine.core.operator import Batch
from whence.engine.streams.stream import ANN
from whence.model.codes import Codes
from whence.model.errors import ExpiredError
from whence.model.types import Type
from whence.model.word_marks import WordMarks
from whence.plan.streams.model import Retention

_CHUNK = 16_384  # tids whose rows are an array of an image: those that stay are written once (`state/chain.py`)
_PARTS = 1024  # of an age: rows may stay so much longer than it
_LEAST = 64  # rows of a buffer
_CELL = 8


class ConnectionPoint:
    """The last rows of one stream, with `$at` as their last column."""

    def __init__(self, columns: int, retention: Retention, tracer: Tracer | None = None, name: str = "") -> None:
        self.columns, self.retention, self.tracer, self.name = columns, retention, tracer, name
        self.first = self.next = 1  # tids: of the first row that is kept, and that the next row will get
        self.last_at = 0  # `$at` of the last row that ever came
        self.promised = 0  # `$at` of the last promise: rows alone do not tell what was made of them
        self._base = 1  # tid of the first row of the buffer
        self._rows = np.empty((0, columns), np.int64)
        self._ann = tracer.blank(0) if tracer is not None else None
        self._ages: deque[tuple[int, int]] = deque()  # (the next tid, the time) after some epochs
        self._before: tuple[int, int, int] | None = None

    # -- seeing ------------------------------------------------------------------------------------------------------

    def __len__(self) -> int:
        return self.next - self.first

    @property
    def reached(self) -> int:
        """`$at` of the last row or promise."""
        return max(self.last_at, self.promised)

    @property
    def complete(self) -> bool:
        """Whether no row was ever dropped."""
        return self.first == 1

    @property
    def rows(self) -> Codes:
        """All rows that are kept."""
        return self._rows[self.first - self._base : self.next - self._base]

    @property
    def ann(self) -> Codes:
        """What they carry."""
        if self._ann is None:
            return np.ones(len(self), np.int64)
        return self._ann[self.first - self._base : self.next - self._base]

    def scan(self) -> Batch:
        """Return all retained rows, in order."""
        return Batch(self.rows, self.ann, True)

    def between(self, first: int, last: int) -> tuple[Codes, Codes]:
        """Return the rows of the tids from `first` to `last`, and their annotations."""
        if first > last:
            return self.rows[:0], self.ann[:0]
        self._check(first, last)
        start, end = first - self.first, last - self.first + 1
        return self.rows[start:end], np.ones(end - start, np.int64) if self._ann is None else self.ann[start:end]

    def at(self, tids: Codes) -> Codes:
        """Return the rows of some tids."""
        if not len(tids):
            return self.rows[:0]
        self._check(int(tids.min()), int(tids.max()))
        found: Codes = self._rows[tids - self._base]
        return found

    def find_at(self, at: int) -> int:
        """Return the tid of the first retained row whose `$at` is not smaller; `next` if there is none."""
        low, high, arrived = 0, len(self), self.rows[:, -1]
        while low < high:
            middle = (low + high) // 2
            if arrived[middle] < at:
                low = middle + 1
            else:
                high = middle
        return self.first + low

    def _check(self, first: int, last: int) -> None:
        if first < self.first:
            kept = f"tid {self.first:,} is the first it still keeps" if len(self) else "it keeps no row at present"
            raise ExpiredError(
                f"stream {self.name or '?'} no longer has tid {first:,}: {kept} (retain = '{self.retention.text}')"
            )
        if last >= self.next:
            raise ExpiredError(f"stream {self.name or '?'} has no tid {last:,} yet: its last is {self.next - 1:,}")

    @property
    def nbytes(self) -> int:
        return self._rows.nbytes + (self._ann.nbytes if self._ann is not None else 0)

    # -- changing ----------------------------------------------------------------------------------------------------

    def append(self, rows: Codes, ann: Codes) -> None:
        """Take rows in, behind the others."""
        if self._before is None:
            self._before = self.next, self.last_at, self.promised
        count = len(rows)
        if not count:
            return
        self._make_room(count)
        place = self.next - self._base
        self._rows[place : place + count] = rows
        if self._ann is not None:
            self._ann[place : place + count] = ann
        self.next += count
        self.last_at = int(rows[-1, -1])

    def reach(self, at: int) -> None:
        """Note that a promise has arrived."""
        self.append(self._rows[:0], self._rows[:0])
        self.promised = at

    def _make_room(self, count: int) -> None:
        """Make room for rows at the end, so that it will not be asked for again before half of what is
        kept has come."""
        if self.next - self._base + count <= len(self._rows):
            return
        start, end, live = self.first - self._base, self.next - self._base, len(self)
        wanted = live + live // 2 + count
        here = wanted <= len(self._rows)
        size = len(self._rows) if here else max(wanted, _LEAST)
        self._rows = _copy_rows(self._rows, start, end, size)
        if self._ann is not None:
            self._ann = _copy_rows(self._ann, start, end, size)
        self._base += start

    def commit(self, now: int | None) -> int:
        """Keep what came, and drop what is no longer retained at that time (in microseconds; None: unknown); return how
        many rows were dropped."""
        self._before = None
        retention, first = self.retention, self.first
        if retention.rows is not None:
            first = max(first, self.next - retention.rows)
        if retention.nbytes is not None:
            first = max(first, self.next - max(1, retention.nbytes // (_CELL * self._width)))
        if retention.micros is not None and now is not None:
            self._note(now, max(1, retention.micros // _PARTS))
            while self._ages and self._ages[0][1] <= now - retention.micros:
                first = max(first, self._ages.popleft()[0])
        dropped, self.first = first - self.first, first
        return dropped

    @property
    def _width(self) -> int:
        """Cells of a row and of what it carries."""
        carried = 0 if self._ann is None else self._ann.shape[1] if self._ann.ndim > 1 else 1
        return self.columns + carried

    def _note(self, now: int, part: int) -> None:
        """Record the time at which the rows since the last call arrived."""
        if self._ages and self._ages[-1][1] // part == now // part:
            self._ages.pop()
        self._ages.append((self.next, now))

    def undo(self) -> None:
        """Remove what came since the last commit."""
        if self._before is not None:
            self.next, self.last_at, self.promised = self._before
        self._before = None

    def clear(self) -> None:
        """Reset to the initial state."""
        self.first = self.next = self._base = 1
        self.last_at = self.promised = 0
        self._before = None
        self._ages.clear()

    # -- images ------------------------------------------------------------------------------------------------------

    def mark_words(self, marks: WordMarks, types: Sequence[Type]) -> None:
        """Mark the words that the retained rows, of columns of these types, refer to."""
        marks.rows(self.rows, types)

    def image(self) -> Image:
        """Return the image, between epochs."""
        found: Image = {
            "numbers": np.array([self.first, self.next, self.last_at], np.int64),
            "ages": np.array(self._ages, np.int64).reshape(-1, 2),
        }
        for chunk in range(self.first // _CHUNK, -(-self.next // _CHUNK)):
            start, end = max(chunk * _CHUNK, self.first), min((chunk + 1) * _CHUNK, self.next)
            found[f"rows/{chunk}"] = self._rows[start - self._base : end - self._base]
        if self.promised:
            found["promised"] = np.array([self.promised], np.int64)
        if self.tracer is not None:
            found |= nested(ANN[:-1], self.tracer.image(self.ann))
        return found

    def restore(self, image: Image) -> None:
        """Take the rows from an image; without annotations they came from nowhere."""
        if "numbers" not in image or "ages" not in image or image["numbers"].shape != (3,):
            raise StaleImage(f"an image of {sorted(image)} where one of a stream was expected")
        first, following, last_at = image["numbers"].tolist()
        chunks = inside("rows", image)
        parts = [chunks[number] for number in sorted(chunks, key=int)]
        if any(part.ndim != 2 or part.shape[1] != self.columns or part.dtype != np.int64 for part in parts):
            raise StaleImage(f"rows that are not of the {self.columns} columns of a stream")
        if not 1 <= first <= following or following - first != sum(map(len, parts)):
            raise StaleImage(f"{sum(map(len, parts))} rows for the tids {first} to {following - 1}")
        ann = None
        if self.tracer is not None:
            traced = inside(ANN[:-1], image)
            ann = self.tracer.restore(traced) if traced else self.tracer.blank(following - first)
            if len(ann) != following - first:
                raise StaleImage(f"annotations of {len(ann)} rows where {following - first} were expected")
        self._base = self.first = first
        self.next, self.last_at, self._before = following, last_at, None
        self.promised = int(image["promised"].max(initial=0)) if "promised" in image else 0
        self._rows, self._ann = np.concatenate([np.empty((0, self.columns), np.int64), *parts]), ann
        self._ages = deque((tid, time) for tid, time in image["ages"].tolist())


def _copy_rows(buffer: Codes, start: int, end: int, size: int) -> Codes:
    """Copy some rows of a buffer to the beginning of one of a size, the same buffer if the size is."""
    if size != len(buffer):
        there = np.empty((size, *buffer.shape[1:]), buffer.dtype)
        there[: end - start] = buffer[start:end]
        return there
    for place in range(start, end, start):  # parts that do not overlap where they go
        part = buffer[place : min(place + start, end)]
        buffer[place - start : place - start + len(part)] = part
    return buffer
