"""BoundedJoin: pairs of rows of two streams, of which only so many rows are kept.

Law: rows come one by one, in the order of `$at`, the left one first of those that came together; each is joined with
the kept rows of the other side that are in its window, if there is one, and is then kept itself. When too many are
kept, those with the least score leave (`kernels/bounded.py`). So every pair it gives is a pair of the join, and some
are missed, which it counts. State: the kept rows, and what is known of keys (`kept_rows.py`). Cost: a constant per row
and pair, and a share of an eviction.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from whence.engine.core.image import Image, StaleImage, inside, nested
from whence.engine.core.operator import Batch, Operator
from whence.engine.expressions.evaluate import compile_expr
from whence.engine.streams.arrivals import Arrivals, data
from whence.engine.streams.stream import Missed, StreamOperator
from whence.engine.streams.windows.eviction_tuner import EvictionTuner, has_numbers
from whence.engine.streams.windows.kept_rows import KeptRows, rows_within
from whence.engine.streams.windows.kernels import bounded as bk
from whence.engine.streams.windows.latest import describe_window
from whence.engine.streams.windows.memory_pool import MemoryPool
from whence.engine.streams.windows.recent import KeyNumbers
from whence.engine.streams.windows.window_join import BLOCK, tested_pairs
from whence.model.codes import NULL, Codes, Dictionary
from whence.model.types import Schema
from whence.model.word_marks import WordMarks
from whence.plan.algebra.expressions import Expr
from whence.plan.eviction.scoring import Scoring
from whence.plan.streams.model import MemoryLimit, Span

_NAMES = ("left", "right")


class BoundedJoin(StreamOperator):
    """The inner join of two streams, over windows of rows or none, that keeps at most so many rows of both."""

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
        limit: MemoryLimit,
        pool: MemoryPool | None = None,
    ) -> None:
        self.schema, self.tracer, self.inputs = schema, left.tracer, [left, right]
        self.spans, self.keys, self.residual, self._dictionary = (left_span, right_span), keys, residual, dictionary
        self.limit = limit
        self._test = compile_expr(residual, dictionary) if residual is not None else None
        self._cols = [np.array([pair[s] for pair in keys], np.int64) for s in (0, 1)]
        self._arrivals = [Arrivals(len(i.schema), self.tracer) for i in self.inputs]
        self._numbers = KeyNumbers(len(keys))
        windows = tuple(None if span.size is None else int(span.size) for span in self.spans)
        self._kept = KeptRows(self._capacity(limit), (windows[0], windows[1]))
        self._tuner: EvictionTuner | None = None
        if limit.keep == "heeb":
            types = [input.schema.types[pair[s]] for pair in keys for s, input in enumerate(self.inputs)]
            is_numeric = len(keys) == 1 and all(has_numbers(t) for t in types)
            self._tuner = EvictionTuner(
                self._kept.capacity, self._kept.windows, is_numeric, limit.model, limit.period, limit.lifetime
            )
        self._pool = pool
        if pool is not None:
            pool.add(self)
        self._rescore()
        self._ran = False

    def _capacity(self, limit: MemoryLimit) -> int:
        """Return how many rows fit into the limit, with all that is kept of them and of their keys."""
        if limit.nbytes is None:
            return max(limit.rows or 1, 1)
        return rows_within(limit.nbytes, max(len(i.schema) for i in self.inputs))

    def _rescore(self) -> None:
        """Score rows by what is known now."""
        keep = self.limit.keep
        scorings = self._tuner.scorings() if self._tuner is not None else 2 * [Scoring(keep)]  # type: ignore[arg-type]  # not heeb
        for s, scoring in enumerate(scorings):
            self._kept.score_by(s, scoring)

    @property
    def missed(self) -> Missed:
        """The pairs with equal keys that were not made, since one of their rows had been evicted."""
        return self._kept.missed

    # -- arrivals ----------------------------------------------------------------------------------------------------

    def apply(self, deltas: list[Batch]) -> Batch:
        if not len(deltas[0]) and not len(deltas[1]):
            return Batch.empty(len(self.schema))
        self._ran = True
        self._take_share()
        order = self._arrive(deltas)
        rows = self._arrivals[0].rows, self._arrivals[1].rows
        parts: list[tuple[Codes, Codes, Codes]] = []
        state = np.array([0, bk.NOT_BEGUN], np.int64)
        while state[0] < len(order):
            start = int(state[0])
            end = min(len(order), start + self._until_change())
            while state[0] < end:
                lpos, rpos = np.empty(BLOCK, np.int64), np.empty(BLOCK, np.int64)
                n = self._kept.run(order, end, state, lpos, rpos)
                if n:
                    parts.append(tested_pairs(*rows, lpos[:n], rpos[:n], self._test))
            self._learn(order[start:end])
        if not parts:
            return Batch.empty(len(self.schema))
        found, lpos, rpos = (np.concatenate(column) for column in zip(*parts, strict=True))
        if self.tracer is None:
            return Batch(found, np.ones(len(found), np.int64))
        return Batch(found, self.tracer.times(self._arrivals[0].carried(lpos), self._arrivals[1].carried(rpos)))

    def _take_share(self) -> None:
        """Keep as many rows as the pool gives, if there is one; while it is filled, as many as there are."""
        if self._pool is None or not self.context.number:
            return
        self._pool.begin(self.context.number)
        self._kept.resize(self._rows(self._pool.share_of(self)))
        assert self._tuner is not None
        self._tuner.capacity = self._kept.capacity

    def _rows(self, share: int) -> int:
        """Return how many rows fit into a share of the pool."""
        limit = self.limit
        rows, nbytes = (share, None) if limit.nbytes is None else (None, share)
        return self._capacity(replace(limit, rows=rows, nbytes=nbytes))

    @property
    def arrivals(self) -> int:
        """The rows of both sides that have arrived so far."""
        return 0 if self._tuner is None else self._tuner.arrivals

    def finds(self, share: int) -> float:
        """Return the pairs per arrival that it would have found lately if it had this share of the pool."""
        return 0.0 if self._tuner is None else self._tuner.finds(self._rows(share))

    def _arrive(self, deltas: list[Batch]) -> Codes:
        """Append rows to both sides; return the order in which they are joined, as kernels take it."""
        known, whens, marks = len(self._numbers), [], []
        for s, delta in enumerate(deltas):
            ids = self._numbers.number(delta.rows, self._cols[s])
            ids[(delta.rows[:, self._cols[s]] == NULL).any(axis=1)] = -1
            new = self._numbers.image()[known:]
            self._kept.know_keys(_values_of(new))
            known = len(self._numbers)
            start = self._arrivals[s].append(delta.rows, delta.ann)
            assert start == self._kept.append(s, ids)
            whens.append(delta.rows[:, -1])
            marks.append(2 * np.arange(start, start + len(ids)) + s)
        return np.concatenate(marks)[np.argsort(np.concatenate(whens), kind="stable")]

    def _until_change(self) -> int:
        """Return how many arrivals there are before counts are halved or models fitted."""
        ageing = self._kept.until_ageing()
        return ageing if self._tuner is None else min(ageing, self._tuner.until_fit())

    def _learn(self, order: Codes) -> None:
        if self._tuner is not None:
            sides, values = order & 1, np.empty(len(order), np.int64)
            for s, record in enumerate(self._kept.sides):
                ids = record.ids[order[sides == s] >> 1]
                values[sides == s] = np.where(ids >= 0, self._kept.shared.values[ids], NULL)
            known = values != NULL
            if self._tuner.arrive(sides, np.where(known, values, 0), self.state_rows):
                self._rescore()
        every = self._kept.until_ageing()
        if self._kept.arrivals and every == self._kept.ageing:
            self._kept.age()

    # -- epochs ------------------------------------------------------------------------------------------------------

    def fresh(self) -> BoundedJoin:
        (left, right), (ls, rs) = self.inputs, self.spans
        return BoundedJoin(
            left, right, ls, rs, self.keys, self.residual, self.schema, self._dictionary, self.limit
        )  # fmt: skip

    def clear(self) -> None:
        for arrivals in self._arrivals:
            arrivals.clear()
        self._numbers.clear()
        self._kept.clear()
        if self._tuner is not None:
            self._tuner.clear()
        self._rescore()
        self._ran = False

    def commit(self) -> None:
        if not self._ran:
            return
        if self._pool is not None:
            self._pool.commit()
        left, keys = self._kept.commit()
        for arrivals, positions in zip(self._arrivals, left, strict=True):
            arrivals.commit()
            if positions is not None:
                arrivals.retain_only(positions)
        self._numbers.commit()
        if keys is not None:
            self._numbers.restore(self._numbers.image()[keys])
        if self._tuner is not None:
            self._tuner.commit()
        self._ran = False

    def undo(self) -> None:
        if not self._ran:
            return
        if self._pool is not None:
            self._pool.undo()
        self._kept.undo()
        self._numbers.undo()
        for arrivals in self._arrivals:
            arrivals.undo()
        if self._tuner is not None:
            self._tuner.undo()
            self._rescore()
        self._ran = False

    def held(self) -> list[Codes]:
        return [column for arrivals in self._arrivals for column in arrivals.held()]

    # -- images ------------------------------------------------------------------------------------------------------

    def image(self) -> Image:
        parts: Image = {"keys": self._numbers.image(), **nested("kept", self._kept.image())}
        for s, name in enumerate(_NAMES):
            still = Arrivals(self._arrivals[s].columns, self.tracer)
            positions = self._kept.kept(s)
            still.append(self._arrivals[s].rows[positions], self._arrivals[s].carried(positions))
            parts |= still.image(name)
        if self._tuner is not None:
            parts |= nested("tuner", self._tuner.image())
        if self._pool is not None:
            parts["pool"] = self._pool.image()
        return parts

    def restore(self, image: Image) -> None:
        own = data(image)
        self._numbers.check(own.get("keys"))
        for arrivals, name in zip(self._arrivals, _NAMES, strict=True):
            arrivals.check(own, name)
        try:
            self._numbers.restore(own["keys"])
            self._kept.restore(inside("kept", own), self._pool is not None)
            if self._pool is not None:
                self._pool.restore(own.get("pool"))
            for s, (arrivals, name) in enumerate(zip(self._arrivals, _NAMES, strict=True)):
                arrivals.restore(image, name)
                if arrivals.end != self._kept.ends[s]:
                    raise StaleImage("other rows than a bounded join keeps")
            if self._tuner is not None:
                self._tuner.restore(inside("tuner", own))
        except StaleImage:
            self.clear()
            raise
        self._rescore()
        self._ran = False

    def mark_words(self, marks: WordMarks) -> None:
        for cols, arrivals, input in zip(self._cols, self._arrivals, self.inputs, strict=True):
            types = input.schema.types
            marks.rows(arrivals.rows[: arrivals.end], types)
            self._numbers.mark_words(marks, [types[column] for column in cols.tolist()])

    @property
    def state_rows(self) -> int:
        return sum(int(side.meta[bk.LIVE]) for side in self._kept.sides)

    @property
    def state_bytes(self) -> int:
        tuner = 0 if self._tuner is None else self._tuner.nbytes
        return sum(a.nbytes for a in self._arrivals) + self._kept.nbytes + self._numbers.nbytes + tuner

    def describe(self) -> str:
        left, right = (i.schema for i in self.inputs)
        on = " and ".join(f"{left.names[a]} = {right.names[b]}" for a, b in self.keys)
        shown = [describe_window(span, input.schema) for span, input in zip(self.spans, self.inputs, strict=True)]
        windows = f"{shown[0]} with {shown[1]} " if self.spans[0].size is not None else ""
        where = f" where {self.residual}" if self.residual is not None else ""
        return f"join {windows}on {on}{where}, approximate: {self.limit.describe()} by {self.limit.keep}"

    def notes(self) -> tuple[str, ...]:
        """Say what was learnt, and what was missed."""
        missed = self.missed
        said = f"{missed.rows}" if missed.is_exact else f"about {missed.rows} ± {missed.error:.0f}"
        learnt = () if self._tuner is None else (self._tuner.describe(),)
        return (*learnt, f"keeps {self.state_rows} of {self._kept.capacity} rows, has missed {said} pairs")


def _values_of(keys: Codes) -> Codes:
    """Return a number for each key: its code, if it has one column, else a hash of its codes."""
    if keys.shape[1] == 1:
        return np.ascontiguousarray(keys[:, 0])
    mixed = np.zeros(len(keys), np.int64)
    with np.errstate(over="ignore"):
        for column in keys.T:
            mixed = (mixed ^ column) * np.int64(-7046029254386353131)
            mixed ^= mixed >> 29
    return mixed
