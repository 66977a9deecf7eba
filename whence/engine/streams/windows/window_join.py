"""WindowJoin: pairs of rows of two streams, emitted when the later row comes if the earlier one is in its side's
window.

Law: rows come one by one, in the order of `$at`, the left one first of those that came together; each is joined with
the rows in the other side's window, in order of arrival, and then enters its own. A window of rows holds the last ones
(of each key). With windows by value, a row of one side is in the window of a row x of the other if its value is at most
x's, and greater than x's less the width; whichever comes later, they are joined if one is in the window of the other.
The values of each side (of each key) never fall: a row with a smaller one is late, and joins nothing. State: each
side's window (`engine/streams/windows/recent.py`), chained by the join's keys. By value, a row stays until the other
side (of its key) has come so far that no row to come can have it in its window. Cost: a constant per row, and the
pairs, which are tried in blocks.
"""

from __future__ import annotations

import numpy as np

from whence.engine.core.image import Image, StaleImage
from whence.engine.core.kernels.table import rehash
from whence.engine.core.operator import Batch, Operator
from whence.engine.expressions.conditions import Compiled
from whence.engine.expressions.evaluate import compile_expr
from whence.engine.streams.arrivals import data
from whence.engine.streams.stream import Late, StreamOperator
from whence.engine.streams.windows.kernels import join_rows as mk
from whence.engine.streams.windows.kernels import recent as rk
from whence.engine.streams.windows.latest import describe_window
from whence.engine.streams.windows.recent import KeyNumbers, Recent
from whence.model.codes import Codes, Dictionary
from whence.model.errors import DataError, SqlError
from whence.model.types import Schema
from whence.model.word_marks import WordMarks
from whence.plan.algebra.expressions import Expr
from whence.plan.streams.model import Span, counterparts

BLOCK = 1 << 16  # pairs that are tried at a time
_NAMES = ("left", "right")


class WindowJoin(StreamOperator):
    """The inner join of two streams over windows: both of rows, or both by value."""

    def __init__(
        self,
        left: Operator,
        right: Operator,
        left_span: Span,
        right_span: Span,
        keys: tuple[tuple[int, int], ...],
        residual: Expr | None,
        schema: Schema,
        dictionary: Dictionary,
    ) -> None:
        self.schema, self.tracer, self.inputs = schema, left.tracer, [left, right]
        self.spans, self.keys, self.residual, self._dictionary = (left_span, right_span), keys, residual, dictionary
        self._test = compile_expr(residual, dictionary) if residual is not None else None
        by = [left_span.by, right_span.by]
        if left_span.on is None:
            self._keys = [KeyNumbers(len(columns)) for columns in by]
        else:
            found = counterparts(left_span.by, right_span.by, keys)
            if found is None:
                raise SqlError("windows by value that are joined must be `by` columns that the join equates")
            by = [by[0], found]
            self._keys = 2 * [KeyNumbers(len(by[0]))]  # one for both: a row must find its key's rows on the other side
        self._by = [np.array(columns, np.int64) for columns in by]
        self._sides = [
            Recent(
                self.inputs[s].schema, self.spans[s], self._keys[s], self.tracer,
                tuple(pair[s] for pair in keys), self.spans[1 - s].size,
            )
            for s in (0, 1)
        ]  # fmt: skip
        self._ran = False

    @property
    def late(self) -> list[Late]:
        """Of the left, of the right."""
        return [side.late for side in self._sides]

    def apply(self, deltas: list[Batch]) -> Batch:
        if not len(deltas[0]) and not len(deltas[1]):
            return Batch.empty(len(self.schema))
        self._ran = True
        sides, order = self._sides, self._arrive(deltas)
        rows = sides[0].arrivals.rows, sides[1].arrivals.rows
        parts: list[tuple[Codes, Codes, Codes]] = []
        state = np.array([0, mk.NOT_BEGUN], np.int64)
        while state[0] < len(order):
            lpos, rpos = np.empty(BLOCK, np.int64), np.empty(BLOCK, np.int64)
            n = mk.join_rows(sides[0].address, sides[1].address, order, state, lpos, rpos)
            if n:
                parts.append(tested_pairs(*rows, lpos[:n], rpos[:n], self._test))
        if not parts:
            return Batch.empty(len(self.schema))
        found, lpos, rpos = (np.concatenate(column) for column in zip(*parts, strict=True))
        if self.tracer is None:
            return Batch(found, np.ones(len(found), np.int64))
        return Batch(found, self.tracer.times(sides[0].arrivals.carried(lpos), sides[1].arrivals.carried(rpos)))

    def _arrive(self, deltas: list[Batch]) -> Codes:
        """Append rows to both sides; return the order in which they are joined, as `mk.join_rows` takes it."""
        groups = [self._keys[s].number(deltas[s].rows, self._by[s]) for s in (0, 1)]
        for side in self._sides:
            side.prepare()
        whens, marks = [], []
        for s, side in enumerate(self._sides):
            start, end = side.admit(deltas[s], groups[s])
            _room_for_chains(side, end - start)
            whens.append(side.arrivals.rows[start:end, -1])
            marks.append(2 * np.arange(start, end) + s)
        return np.concatenate(marks)[np.argsort(np.concatenate(whens), kind="stable")]

    # -- epochs ------------------------------------------------------------------------------------------------------

    def fresh(self) -> WindowJoin:
        (left, right), (ls, rs) = self.inputs, self.spans
        return WindowJoin(left, right, ls, rs, self.keys, self.residual, self.schema, self._dictionary)

    def clear(self) -> None:
        for keys, side in zip(self._keys, self._sides, strict=True):
            keys.clear()
            side.clear()
        self._ran = False

    def commit(self) -> None:
        for keys, side in zip(self._keys, self._sides, strict=True):
            keys.commit()
            if side.commit():
                _rebuild_chains(side)
        self._ran = False

    def undo(self) -> None:
        if not self._ran:
            return
        for side in self._sides:
            side.undo()
        for keys in self._keys:
            keys.undo()
        for side in self._sides:
            _rebuild_chains(side)
        self._ran = False

    def held(self) -> list[Codes]:
        return [column for side in self._sides for column in side.arrivals.held()]

    def image(self) -> Image:
        parts: Image = {}
        for name, keys, side in zip(_NAMES, self._keys, self._sides, strict=True):
            parts |= {f"keys_{name}": keys.image(), **side.image(name)}
        return parts

    def mark_words(self, marks: WordMarks) -> None:
        for by, keys, side, input in zip(self._by, self._keys, self._sides, self.inputs, strict=True):
            types = input.schema.types
            keys.mark_words(marks, [types[column] for column in by.tolist()])
            side.mark_words(marks, types)

    def restore(self, image: Image) -> None:
        own = data(image)
        for name, keys, side in zip(_NAMES, self._keys, self._sides, strict=True):
            keys.check(own.get(f"keys_{name}"))
            side.check(own, name, len(own[f"keys_{name}"]))
        if self._keys[0] is self._keys[1] and not np.array_equal(own["keys_left"], own["keys_right"]):
            raise StaleImage("the sides of a join by value have other keys")
        for name, keys in zip(_NAMES, self._keys, strict=True):
            keys.restore(own[f"keys_{name}"])
        try:
            for name, side in zip(_NAMES, self._sides, strict=True):
                side.restore(image, name)
                _rebuild_chains(side)
        except (StaleImage, DataError):
            self.clear()
            raise
        self._ran = False

    @property
    def state_rows(self) -> int:
        return sum(side.live for side in self._sides)

    @property
    def state_bytes(self) -> int:
        return sum(side.nbytes for side in self._sides) + sum(keys.nbytes for keys in set(self._keys))

    def describe(self) -> str:
        left, right = (i.schema for i in self.inputs)
        on = " and ".join(f"{left.names[a]} = {right.names[b]}" for a, b in self.keys) or "every pair"
        windows = f"{describe_window(self.spans[0], left)} with {describe_window(self.spans[1], right)}"
        return f"join {windows} on {on}" + (f" where {self.residual}" if self.residual is not None else "")


def tested_pairs(
    left: Codes, right: Codes, lpos: Codes, rpos: Codes, test: Compiled | None
) -> tuple[Codes, Codes, Codes]:
    """Join rows of two sides at these positions; return those that pass the test, and the positions of their parts."""
    width = left.shape[1] - 1
    rows = np.empty((len(lpos), width + right.shape[1]), np.int64)
    rows[:, :width], rows[:, width:-1] = left[lpos, :-1], right[rpos, :-1]
    rows[:, -1] = np.maximum(left[lpos, -1], right[rpos, -1])
    if test is None:
        return rows, lpos, rpos
    keep = np.flatnonzero(test(rows) == 1)
    return rows[keep], lpos[keep], rpos[keep]


def _room_for_chains(side: Recent, more: int) -> None:
    """Grow the hash table so that it is at most half full with `more` rows more."""
    slots = side.side.slots
    room = len(slots)
    while room < 2 * (int(side.side.meta[rk.CHAINS]) + more):
        room *= 2
    if room > len(slots):
        larger = np.zeros(room, np.int64)
        rehash(slots, larger)
        side.side.replace(slots=larger)


def _rebuild_chains(side: Recent) -> None:
    """Rebuild the chains of the rows in the window."""
    room = 16
    while room < 2 * side.live:
        room *= 2
    side.side.replace(slots=np.zeros(room, np.int64))
    mk.chain_all(side.address, side.arrivals.end)
