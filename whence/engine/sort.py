"""BSort: the rows of a stream in the order of a column, as far as a buffer brings it about.

Law: `slack` + 1 rows are held back; with each further row the smallest of all leaves, of equal ones the first that
came, and takes the `$at` of the row that made it leave. What leaves is in order; a row that is smaller than what has
left (or NULL, or NaN) is late. State: the rows held back, in a heap. Cost: log(slack) a row.
"""

from __future__ import annotations

import numpy as np

from whence.engine.arrivals import SPARE, Arrivals, data
from whence.engine.image import Image, StaleImage, expect
from whence.engine.kernels import heap as hk
from whence.engine.operator import Batch, Operator
from whence.engine.order import greatest
from whence.engine.stream import Late, StreamOperator
from whence.model.codes import NULL, Codes


class BSort(StreamOperator):
    """Bounded-pass sort."""

    def __init__(self, input: Operator, column: int, slack: int) -> None:
        self.schema, self.algebra, self.inputs = input.schema, input.algebra, [input]
        self.column, self.slack = column, slack
        self.late = Late(len(input.schema) - 1)
        self._greatest = greatest(input.schema.types[column])
        self._arrivals = Arrivals(len(input.schema), self.tracer)
        self.clear()

    def clear(self) -> None:
        self._arrivals.clear()
        self.late.clear()
        self._heap = np.empty(16, np.int64)
        self._meta = np.array([0, NULL], np.int64)  # rows held back, the last value given out
        self._before = NULL
        self._left: list[Codes] = []  # positions that left since commit

    def apply(self, deltas: list[Batch]) -> Batch:
        (delta,) = deltas
        if not len(delta):
            return Batch.empty(len(self.schema))
        kept, n = self._arrivals, len(delta)
        start = kept.append(delta.rows, delta.ann)
        room = min(int(self._meta[0]) + n, self.slack + 2)
        if room > len(self._heap):
            self._heap = np.concatenate((self._heap, np.empty(max(room, len(self._heap)), np.int64)))
        out, cause, late = (np.empty(n, np.int64) for _ in range(3))
        left, refused = hk.pass_through(
            kept.rows, self.column, self._greatest, start, kept.end, self.slack + 1, self._heap, self._meta,
            out, cause, late,
        )  # fmt: skip
        out = out[:left]
        self._left.append(out)
        self.late.add(kept.rows[late[:refused], :-1])
        rows = kept.rows[out]
        rows[:, -1] = kept.rows[cause[:left], -1]
        return Batch(rows, kept.carried(out))

    def fresh(self) -> BSort:
        return BSort(self.inputs[0], self.column, self.slack)

    def commit(self) -> None:
        self.late.commit()
        self._arrivals.commit()
        self._left.clear()
        size, self._before = self._meta.tolist()
        if self._arrivals.end > 2 * size + SPARE:
            still = np.sort(self._heap[:size])
            self._heap[:size] = np.searchsorted(still, self._heap[:size])  # a heap yet: the order is the same
            self._arrivals.keep(still)

    def undo(self) -> None:
        self.late.undo()
        held = np.concatenate((self._heap[: self._meta[0]], *self._left))
        self._left.clear()
        self._fill(held[held < self._arrivals.new])
        self._meta[1] = self._before
        self._arrivals.undo()

    def _fill(self, positions: Codes) -> None:
        if len(positions) > len(self._heap):
            self._heap = np.empty(2 * len(positions), np.int64)
        hk.refill(self._heap, self._meta, self._arrivals.rows, self.column, positions)

    def held(self) -> list[Codes]:
        return self._arrivals.held()

    def image(self) -> Image:
        held = np.sort(self._heap[: self._meta[0]])
        return {**self._arrivals.image(), "held": held, "last": self._meta[1:], **self.late.image()}

    def restore(self, image: Image) -> None:
        kept, own = self._arrivals, data(image)
        kept.check(image)
        if "held" not in own or "late" not in own:
            raise StaleImage("not an image of a b-sort")
        expect(
            own, rows=own["rows"].shape, held=own["held"].shape, last=(1,), late_count=(1,),
            late=(len(own["late"]), len(self.schema) - 1),
        )  # fmt: skip
        self.late.check(own)
        held = own["held"]
        if (
            held.ndim != 1
            or len(held) > self.slack + 1
            or (np.diff(held, prepend=-1, append=len(own["rows"])) < 1).any()
        ):
            raise StaleImage("a b-sort that holds back rows that are not there")
        self.clear()
        kept.restore(image)
        self._fill(held.copy())
        self._meta[1] = self._before = int(own["last"][0])
        self.late.restore(own)

    @property
    def state_rows(self) -> int:
        return int(self._meta[0])

    @property
    def state_bytes(self) -> int:
        return self._arrivals.nbytes + self._heap.nbytes

    def describe(self) -> str:
        return f"b-sort by {self.schema.names[self.column]}, slack {self.slack}"
