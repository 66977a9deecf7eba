"""BSort: the rows of a stream sorted by a column, as far as a bounded buffer allows.

Law: `slack` + 1 rows are held back, or all rows that are greater than the greatest so far less `within`. With each
further row the smallest of the others leave, of equal ones the first that came, and take the `$at` of the row that made
them leave. What leaves is in order; a row that is smaller than what has left (or NULL, or NaN) is late. State: the rows
held back, in a heap. Cost: O(log rows held back) per row.
"""

from __future__ import annotations

import numpy as np

from whence.engine.core.image import Image, StaleImage, expect
from whence.engine.core.operator import Batch, Operator
from whence.engine.streams.arrivals import SPARE, Arrivals, data
from whence.engine.streams.kernels import heap as hk
from whence.engine.streams.order import below, greatest
from whence.engine.streams.stream import Late, StreamOperator
from whence.model.codes import NULL, Codes
from whence.model.word_marks import WordMarks

_ALL = 1 << 62  # rows: more than there are
_GREATEST = 2**63 - 1


class BSort(StreamOperator):
    """The bounded-pass sort of a stream."""

    def __init__(self, input: Operator, column: int, slack: int | None, within: int | float = 0) -> None:
        self.schema, self.tracer, self.inputs = input.schema, input.tracer, [input]
        self.column, self.slack, self.within = column, slack, within
        self._room = _ALL if slack is None else slack + 1
        self.late = Late(len(input.schema) - 1, column)
        self._arrivals = Arrivals(len(input.schema), self.tracer)
        self.clear()

    def clear(self) -> None:
        self._arrivals.clear()
        self.late.clear()
        self._heap = np.empty(16, np.int64)
        most = greatest(self.schema.types[self.column])
        self._meta = np.array([0, NULL, NULL, self.column, most, self._room], np.int64)  # HELD to ROOM
        self._before = self._meta.copy()
        self._left: list[Codes] = []  # positions that left since commit

    def apply(self, deltas: list[Batch]) -> Batch:
        (delta,) = deltas
        if not len(delta):
            return Batch.empty(len(self.schema))
        kept, n = self._arrivals, len(delta)
        start = kept.append(delta.rows, delta.ann)
        held = int(self._meta[hk.HELD])
        room = min(held + n, self._room + 1)
        if room > len(self._heap):
            self._heap = np.concatenate((self._heap, np.empty(max(room, len(self._heap)), np.int64)))
        moves = np.empty((3, held + n), np.int64)
        left, refused = hk.pass_through(kept.rows, start, kept.end, self._low(start), self._heap, self._meta, moves)
        out = moves[hk.OUT, :left]
        self._left.append(out)
        self.late.add(kept.rows[moves[hk.LATE, :refused], :-1], int(self._meta[hk.LAST]))
        rows = kept.rows[out]
        rows[:, -1] = kept.rows[moves[hk.CAUSE, :left], -1]
        return Batch(rows, kept.carried(out))

    def promise(self, bound: int | None, at: int) -> Batch:
        """Emit the rows below a value, or all of them, at `at`."""
        kept, out = self._arrivals, np.empty(int(self._meta[hk.HELD]), np.int64)
        most = _GREATEST if bound is None else bound
        out = out[: hk.release(kept.rows, most, self._heap, self._meta, out)]
        self._left.append(out)
        if bound is not None and self.slack is None:
            self._meta[hk.REACH] = max(int(self._meta[hk.REACH]), bound - 1)
        rows = kept.rows[out]
        rows[:, -1] = at
        return Batch(rows, kept.carried(out))

    def next_due(self) -> int | None:
        """Return the least bound of a promise by which a row would be emitted."""
        return int(self._arrivals.rows[self._heap[0], self.column]) + 1 if self._meta[hk.HELD] else None

    def due_after(self, value: int) -> int:
        """Return the least bound by which a row could be emitted that comes with this value, or a greater one."""
        return value + 1

    def _low(self, start: int) -> Codes:
        """Return, for each new row, the value up to which rows may leave, if they leave by value."""
        if self.slack is not None:
            return np.empty(0, np.int64)
        values = np.ascontiguousarray(self._arrivals.rows[start : self._arrivals.end, self.column])
        return below(values, self.within, self.schema.types[self.column])

    def fresh(self) -> BSort:
        return BSort(self.inputs[0], self.column, self.slack, self.within)

    def commit(self) -> None:
        self.late.commit()
        self._arrivals.commit()
        self._left.clear()
        size, self._before = int(self._meta[hk.HELD]), self._meta.copy()
        if self._arrivals.end > 2 * size + SPARE:
            still = np.sort(self._heap[:size])
            self._heap[:size] = np.searchsorted(still, self._heap[:size])  # a heap yet: the order is the same
            self._arrivals.retain_only(still)

    def undo(self) -> None:
        self.late.undo()
        held = np.concatenate((self._heap[: self._meta[hk.HELD]], *self._left))
        self._left.clear()
        self._fill(held[held < self._arrivals.new])
        self._meta[:] = self._before
        self._arrivals.undo()

    def _fill(self, positions: Codes) -> None:
        """Build the heap of these positions."""
        if len(positions) > len(self._heap):
            self._heap = np.empty(2 * len(positions), np.int64)
        hk.refill(self._arrivals.rows, self._heap, self._meta, positions)

    def held(self) -> list[Codes]:
        return self._arrivals.held()

    def image(self) -> Image:
        held, last = np.sort(self._heap[: self._meta[hk.HELD]]), self._meta[hk.LAST : hk.LAST + self._image_words]
        return {**self._arrivals.image(), "held": held, "last": last, **self.late.image()}

    @property
    def _image_words(self) -> int:
        """Words of `_meta` in an image: the last value emitted and, if rows leave by value, REACH."""
        return 1 if self.slack is not None else 2

    def mark_words(self, marks: WordMarks) -> None:
        marks.rows(self._arrivals.rows[: self._arrivals.end], self.schema.types)
        self.late.mark_words(marks, self.schema.types)

    def restore(self, image: Image) -> None:
        kept, own = self._arrivals, data(image)
        kept.check(image)
        if "held" not in own or "late" not in own:
            raise StaleImage("not an image of a b-sort")
        expect(
            own, rows=own["rows"].shape, held=own["held"].shape, last=(self._image_words,), late_count=(1,),
            late=(len(own["late"]), len(self.schema) - 1),
        )  # fmt: skip
        self.late.check(own)
        held = own["held"]
        if held.ndim != 1 or len(held) > self._room or (np.diff(held, prepend=-1, append=len(own["rows"])) < 1).any():
            raise StaleImage("a b-sort that holds back rows that are not there")
        self.clear()
        kept.restore(image)
        self._fill(held.copy())
        self._meta[hk.LAST : hk.LAST + self._image_words] = own["last"]
        self._before = self._meta.copy()
        self.late.restore(own)

    @property
    def state_rows(self) -> int:
        return int(self._meta[hk.HELD])

    @property
    def state_bytes(self) -> int:
        return self._arrivals.nbytes + self._heap.nbytes

    def describe(self) -> str:
        held = f"within {self.within}" if self.slack is None else f"slack {self.slack}"
        return f"b-sort by {self.schema.names[self.column]}, {held}"
