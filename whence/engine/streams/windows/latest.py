"""Latest: the rows in a stream's window now, as a relation.

Law: after every epoch the output is the last `size` rows of each key, or the rows of each key whose value is greater
than its newest value less `size`; a promise that no smaller value is to come counts as such a value, for every key. A
row that comes and goes within an epoch is not seen. State: the window (`engine/streams/windows/recent.py`). Cost: a
constant per row that enters or leaves, and per key for a promise.
"""

from __future__ import annotations

import numpy as np

from whence.engine.core.image import Image
from whence.engine.core.operator import Batch, Operator
from whence.engine.streams.arrivals import data
from whence.engine.streams.stream import Late, StreamOperator
from whence.engine.streams.windows.kernels import recent as rk
from whence.engine.streams.windows.recent import KeyNumbers, Recent
from whence.model.codes import Codes
from whence.model.types import Schema
from whence.model.word_marks import WordMarks
from whence.plan.streams.model import Span


class Latest(StreamOperator):
    """The relation `latest(s, …)`."""

    def __init__(self, input: Operator, span: Span, schema: Schema) -> None:
        self.schema, self.inputs, self.span = schema, [input], span
        self._keys = KeyNumbers(len(span.by))
        self._by = np.array(span.by, np.int64)
        self._window = Recent(input.schema, span, self._keys, None, width=span.size)

    @property
    def late(self) -> Late:
        return self._window.late

    def apply(self, deltas: list[Batch]) -> Batch:
        (delta,) = deltas
        if not len(delta):
            return Batch.empty(len(self.schema))
        window = self._window
        group = self._keys.number(delta.rows, self._by)
        window.prepare()
        before = window.live
        start, end = window.admit(delta, group)
        rk.slide(window.address, start, end)
        left, entered = np.empty(before, np.int64), np.empty(end - start, np.int64)
        gone, came = rk.changes(window.address, start, end, left, entered)
        rows = self._rows(np.concatenate((left[:gone], entered[:came])))
        return Batch(rows, np.repeat(np.array([-1, 1], np.int64), (gone, came)))

    def promise(self, bound: int, at: int) -> Batch:
        """Let the rows leave that a row with the value `bound` would push out, whatever their key."""
        rows = self._rows(self._window.promise(bound))
        return Batch(rows, np.full(len(rows), -1, np.int64))

    def next_due(self) -> int | None:
        """Return the least bound of a promise by which a row would leave; of whole numbers and times only."""
        oldest = self._window.oldest
        return None if oldest is None else oldest + int(self.span.size or 0)

    def due_after(self, value: int) -> int:
        """Return the least bound by which a row could leave that comes with this value, or a greater one."""
        return value + int(self.span.size or 0)

    def _rows(self, positions: Codes) -> Codes:
        return np.ascontiguousarray(self._window.arrivals.rows[positions, :-1])

    def recompute(self) -> Batch:
        rows = self._rows(self._window.positions())
        return Batch(rows, np.ones(len(rows), np.int64))

    @property
    def recalls(self) -> bool:
        return True

    def clear(self) -> None:
        self._keys.clear()
        self._window.clear()

    def fresh(self) -> Latest:
        return Latest(self.inputs[0], self.span, self.schema)

    def commit(self) -> None:
        self._keys.commit()
        self._window.commit()

    def undo(self) -> None:
        self._keys.undo()
        self._window.undo()

    def image(self) -> Image:
        return {"keys": self._keys.image(), **self._window.image("rows")}

    def mark_words(self, marks: WordMarks) -> None:
        types = self.inputs[0].schema.types
        self._keys.mark_words(marks, [types[column] for column in self.span.by])
        self._window.mark_words(marks, types)

    def restore(self, image: Image) -> None:
        own = data(image)
        self._keys.check(own.get("keys"))
        self._window.check(own, "rows", len(own["keys"]))
        self._keys.restore(own["keys"])
        self._window.restore(own, "rows")

    @property
    def state_rows(self) -> int:
        return self._window.live

    @property
    def state_bytes(self) -> int:
        return self._keys.nbytes + self._window.nbytes

    def describe(self) -> str:
        return f"latest {describe_window(self.span, self.inputs[0].schema)}"


def describe_window(span: Span, schema: Schema) -> str:
    """Describe a window for EXPLAIN.

    >>> from whence.model.types import BIGINT, Column
    >>> describe_window(Span(3, by=(0,)), Schema((Column("loc", BIGINT),)))
    '3 rows by loc'
    """
    if span.size is None:
        size = "everything"
    elif span.on is None:
        size = f"{span.size} rows"
    else:
        size = f"{span.size} of {schema.names[span.on]}"
    return size + (f" by {', '.join(schema.names[c] for c in span.by)}" if span.by else "")
