"""Join: pairs of a left and a right row whose keys are equal and for which the residual is true.

Law: multiplication distributes over addition, so d(A·B) = dA·B + A·dB + dA·dB over the old states. Arrangements show
the new states here, hence d(A·B) = dA·B' + A'·dB - dA·dB, with the last term only when both sides changed; the two
sides may be the same relation. State: none of its own, an index on each input's arrangement. Cost: the deltas and
their matches.
"""

from __future__ import annotations

import numpy as np

from whence.engine.arrange import arranged_by
from whence.engine.batch import concat
from whence.engine.evaluate import compile_expr
from whence.engine.kernels.batches import join_batches
from whence.engine.kernels.index import pair_rows
from whence.engine.operator import Batch, Operator
from whence.engine.relation import Index, Relation
from whence.model.codes import Dictionary
from whence.model.types import Schema
from whence.plan.expr import Expr


class Join(Operator):
    """Inner join; without keys every pair is tried."""

    def __init__(
        self,
        left: Operator,
        right: Operator,
        keys: tuple[tuple[int, int], ...],
        residual: Expr | None,
        schema: Schema,
        dictionary: Dictionary,
    ):
        self.schema, self.algebra, self.inputs = schema, left.algebra, [left, right]
        self.keys, self.residual = keys, residual
        self._lcols, self._rcols = tuple(k for k, _ in keys), tuple(k for _, k in keys)
        self._lkey, self._rkey = np.array(self._lcols, np.int64), np.array(self._rcols, np.int64)
        self._left, self._lindex = arranged_by(left, self._lcols)
        self._right, self._rindex = arranged_by(right, self._rcols)
        self._test = compile_expr(residual, dictionary) if residual is not None else None

    def needs(self) -> list[tuple[Operator, tuple[int, ...]]]:
        return [(self.inputs[0], self._lcols), (self.inputs[1], self._rcols)]

    def apply(self, deltas: list[Batch]) -> Batch:
        left, right = deltas
        parts: list[Batch] = []
        if len(left.ann):
            parts.append(self._pair(left, self._right, self._rindex, 0))
        if len(right.ann):
            parts.append(self._pair(right, self._left, self._lindex, 1))
            if len(left.ann):
                parts.append(self._both(left, right))
        return self._filter(concat(parts, len(self.schema)))

    def prime(self, contents: list[Batch]) -> Batch:
        left, right = contents
        if len(left) <= len(right):
            return self._filter(self._pair(left, self._right, self._rindex, 0))
        return self._filter(self._pair(right, self._left, self._lindex, 1))

    def recompute(self) -> Batch:
        return self._filter(self._pair(self.inputs[0].contents(), self._right, self._rindex, 0))

    def _pair(self, delta: Batch, other: Relation, index: Index, flip: int) -> Batch:
        at, ids = other.matches(index, delta.rows, self._rkey if flip else self._lkey)
        n = len(at)
        out, a, b = np.empty((n, len(self.schema)), np.int64), np.empty(n, np.int64), np.empty(n, np.int64)
        pair_rows(delta.rows, delta.ann, at, other.rows, other.ann, ids, flip, out, a, b)
        times = self.algebra.times
        return Batch(out, times(b, a) if flip else times(a, b), delta.unique)

    def _both(self, left: Batch, right: Batch) -> Batch:
        at, ids = join_batches(left.rows, self._lkey, right.rows, self._rkey)
        n = len(at)
        out, a, b = np.empty((n, len(self.schema)), np.int64), np.empty(n, np.int64), np.empty(n, np.int64)
        pair_rows(left.rows, left.ann, at, right.rows, right.ann, ids, 0, out, a, b)
        twice = self.algebra.times(a, b)
        return Batch(out, self.algebra.change(twice, np.full(n, self.algebra.zero, np.int64)))

    def _filter(self, batch: Batch) -> Batch:
        if self._test is None or not len(batch.ann):
            return batch
        keep = np.flatnonzero(self._test(batch.rows) == 1)
        return Batch(batch.rows[keep], batch.ann[keep], batch.unique)

    def describe(self) -> str:
        on = " and ".join(f"left.{a} = right.{b}" for a, b in self.keys) or "every pair"
        return f"join on {on}" + (f" where {self.residual}" if self.residual is not None else "")
