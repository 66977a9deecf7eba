"""Lookup: each row of a stream joined with a relation as of the row's epoch.

Law: a row meets the relation after the changes of its own epoch, and its output is append-only: a change
of the relation alone gives nothing. The matches of a row come in the order of their codes, a row that is in the
relation m times m times. State: none of its own, an index on the relation's arrangement. Cost: the batch and its
matches, which are tried in blocks.
"""

from __future__ import annotations

import numpy as np

from whence.engine.core.arrangement import arranged_by
from whence.engine.core.batch import concat
from whence.engine.core.operator import Batch, Operator
from whence.engine.expressions.evaluate import compile_expr
from whence.engine.streams.stream import StreamOperator
from whence.model.codes import NULL, Codes, Dictionary
from whence.plan.algebra.expressions import Expr
from whence.plan.streams import model as streams

BLOCK = 1 << 16  # rows of the batch, and about the pairs to be tried, at a time


class Lookup(StreamOperator):
    """Inner, left, semi, anti and mark joins of a stream with a relation; without keys every pair is tried."""

    def __init__(self, inputs: list[Operator], node: streams.Lookup, dictionary: Dictionary) -> None:
        self.schema, self.tracer, self.inputs = node.schema, inputs[0].tracer, inputs
        self.node, self.kind, self._dictionary = node, node.kind, dictionary
        self._known = np.array([a for a, _ in node.keys], np.int64)
        self._cols = self.searched_by()
        self._relation, self._index = arranged_by(inputs[1], self._cols)
        tested = self.tested()
        self._test = compile_expr(tested, dictionary) if tested is not None else None

    # -- how matches are found ---------------------------------------------------------------------------------------

    def searched_by(self) -> tuple[int, ...]:
        """Return the columns of the relation by which its rows are found."""
        return tuple(b for _, b in self.node.keys)

    def tested(self) -> Expr | None:
        """Return what candidates are tested by."""
        return self.node.residual

    @property
    def block(self) -> int:
        """The rows of a batch that are looked up at a time."""
        return BLOCK if self.node.keys else max(1, BLOCK // max(1, len(self._relation)))

    def candidates(self, rows: Codes) -> tuple[Codes, Codes]:
        """Return (position, row id) of the pairs that are tested."""
        return self._relation.matches(self._index, rows, self._known)

    # -- epochs ------------------------------------------------------------------------------------------------------

    def needs(self) -> list[tuple[Operator, tuple[int, ...]]]:
        return [(self.inputs[1], self._cols)]

    def apply(self, deltas: list[Batch]) -> Batch:
        delta = deltas[0]
        if not len(delta):
            return Batch.empty(len(self.schema))
        step = self.block
        return concat([self._block(delta, i, i + step) for i in range(0, len(delta), step)], len(self.schema))

    def _block(self, delta: Batch, start: int, end: int) -> Batch:
        rows, ann = delta.rows[start:end], delta.ann[start:end]
        at, ids = self._matches(rows)
        if self.kind in ("semi", "anti", "mark"):
            met = np.zeros(len(rows), bool)
            met[at] = True
            if self.kind == "mark":
                return Batch(np.column_stack((rows[:, :-1], met, rows[:, -1])), ann)
            keep = np.flatnonzero(met == (self.kind == "semi"))
            return Batch(rows[keep], ann[keep])
        at, ids = self._in_order(at, ids)
        relation, width = self._relation, rows.shape[1] - 1
        copies = relation.ann[ids]
        at, ids = np.repeat(at, copies), np.repeat(ids, copies)
        if self.kind == "left":
            alone = np.ones(len(rows), bool)
            alone[at] = False
            lone = np.flatnonzero(alone)
            at, ids = np.concatenate((at, lone)), np.concatenate((ids, np.full(len(lone), -1, np.int64)))
            order = np.argsort(at, kind="stable")
            at, ids = at[order], ids[order]
        out = np.empty((len(at), len(self.schema)), np.int64)
        out[:, :width], out[:, -1] = rows[at, :-1], rows[at, -1]
        out[:, width:-1] = relation.rows[ids]
        out[ids < 0, width:-1] = NULL
        return Batch(out, ann[at])

    def _matches(self, rows: Codes) -> tuple[Codes, Codes]:
        """Return (position, row id) of all pairs that pass."""
        at, ids = self.candidates(rows)
        if self._test is not None and len(at):
            passed = [self._passed(rows, at[i : i + BLOCK], ids[i : i + BLOCK]) for i in range(0, len(at), BLOCK)]
            keep = np.flatnonzero(np.concatenate(passed) == 1)
            at, ids = at[keep], ids[keep]
        return at, ids

    def _in_order(self, at: Codes, ids: Codes) -> tuple[Codes, Codes]:
        """Sort pairs by position, and then by the codes of the relation's row."""
        if (at[1:] > at[:-1]).all():
            return at, ids
        met, number = np.unique(ids, return_inverse=True)
        columns = self._relation.rows[met].T[::-1]
        rank = np.empty(len(met), np.int64)
        rank[np.lexsort(columns) if len(columns) else np.arange(len(met))] = np.arange(len(met))
        order = np.lexsort((rank[number], at))
        return at[order], ids[order]

    def _passed(self, rows: Codes, at: Codes, ids: Codes) -> Codes:
        assert self._test is not None
        return self._test(np.concatenate((rows[at, :-1], self._relation.rows[ids]), axis=1))

    def fresh(self) -> Lookup:
        return Lookup(self.inputs, self.node, self._dictionary)

    def describe(self) -> str:
        names, others = self.inputs[0].schema.names, self.inputs[1].schema.names
        on = " and ".join(f"{names[a]} = {others[b]}" for a, b in self.node.keys) or "every pair"
        tested = f" where {self.node.residual}" if self.node.residual is not None else ""
        return f"{self.kind} lookup on {on}{tested}"
