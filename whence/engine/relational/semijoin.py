"""Semijoin: left rows that have a match on the right (semi), have none (anti), or with the answer appended (mark).

Law: the output is L·φ, where φ(l) says whether l's number of matches m(l) is positive; d(L·φ) = dL·φ + L'·dφ with φ
before the epoch and L' after it. Only the columns of l that the keys and the residual read decide m, so it is kept
once for each distinct combination of them, its *pattern*. State: a relation of patterns, with the number of left rows
that have each and m; indexes on the arrangements of both inputs. Cost: the deltas, the patterns that match the right
delta, the left rows of patterns whose φ changes, and the right matches of a pattern when it first appears.
"""

from __future__ import annotations

from typing import Literal

import numpy as np

from whence.engine.core.arrangement import arranged_by
from whence.engine.core.batch import concat, consolidate
from whence.engine.core.image import Image
from whence.engine.core.kernels.batches import number_rows, sum_by
from whence.engine.core.operator import Batch, Operator
from whence.engine.core.relation import Relation
from whence.engine.expressions.evaluate import compile_expr
from whence.engine.relational.kernels.aggregate import group_rows
from whence.model.codes import Codes, Dictionary
from whence.model.errors import EvaluationError
from whence.model.types import Schema
from whence.model.word_marks import WordMarks
from whence.plan.algebra.expressions import Col, Expr, columns_of, substitute

SemiKind = Literal["semi", "anti", "mark"]


class Semijoin(Operator):
    """SEMI, ANTI and MARK joins with equality keys and a residual over left then right columns."""

    def __init__(
        self,
        left: Operator,
        right: Operator,
        kind: SemiKind,
        keys: tuple[tuple[int, int], ...],
        residual: Expr | None,
        schema: Schema,
        dictionary: Dictionary,
    ):
        self.schema, self.inputs = schema, [left, right]
        self.kind, self.keys, self.residual = kind, keys, residual
        width = len(left.schema)
        read = sorted(c for c in columns_of(residual) if c < width) if residual is not None else []
        lkeys = [k for k, _ in keys]
        self._pattern = tuple(lkeys + [c for c in read if c not in lkeys])
        self._pattern_cols = np.array(self._pattern, np.int64)
        self._rcols = tuple(k for _, k in keys)
        self._rkey = np.array(self._rcols, np.int64)
        self._pkey = np.arange(len(keys))
        self._pall = np.arange(len(self._pattern))
        self._left, self._lindex = arranged_by(left, self._pattern)
        self._right, self._rindex = arranged_by(right, self._rcols)
        self._former: Relation | None = None
        self._forget()
        self._test = None
        if residual is not None:
            place = {c: i for i, c in enumerate(self._pattern)}
            over = substitute(
                residual,
                lambda c: Col(c.type, place[c.index] if c.index < width else len(place) + c.index - width),
            )
            self._test = compile_expr(over, dictionary)

    def needs(self) -> list[tuple[Operator, tuple[int, ...]]]:
        return [(self.inputs[0], self._pattern), (self.inputs[1], self._rcols)]

    def _forget(self) -> None:
        self.patterns = Relation(len(self._pattern), 1)
        self._index = self.patterns.index(tuple(range(len(self.keys))))

    def apply(self, deltas: list[Batch]) -> Batch:
        try:
            return self._apply(deltas)
        except EvaluationError:
            return self._anew(deltas[0])

    def _anew(self, left: Batch) -> Batch:
        """A test failed, perhaps on a pair that never was in any epoch: take the answer from the new states alone."""
        self.patterns.undo()
        now = self.inputs[0].contents()
        before = self._answers(concat([now, Batch(left.rows, self._negative(left.ann))], now.rows.shape[1]))
        self._former = self.patterns
        self._forget()
        after = self.prime([now])
        both = concat([after, Batch(before.rows, self._negative(before.ann))], len(self.schema))
        return consolidate(both)

    def _apply(self, deltas: list[Batch]) -> Batch:
        left, right = deltas
        flips, signs = (
            self._right_changes(right) if len(right.ann) else (np.empty((0, 0), np.int64), np.empty(0, np.int64))
        )
        parts = []
        if len(left.ann):
            parts.append(self._left_changes(left, flips, signs))
        if len(signs):
            at, ids = self._left.matches(self._lindex, flips, self._pall, True)
            parts.append(self._flipped(Batch(self._left.rows[ids], self._left.ann[ids]), signs[at]))
        return concat(parts, len(self.schema))

    def prime(self, contents: list[Batch]) -> Batch:
        left = contents[0]
        none = np.empty(0, np.int64)
        return (
            self._left_changes(left, none.reshape(0, len(self._pattern)), none)
            if len(left)
            else Batch.empty(len(self.schema))
        )

    def recompute(self) -> Batch:
        return self._answers(self.inputs[0].contents())

    def _answers(self, left: Batch) -> Batch:
        left = consolidate(left)
        ids = self.patterns.lookup(np.ascontiguousarray(left.rows[:, self._pattern]))
        return self._answered(left, (self.patterns.acc[ids, 0] > 0).astype(np.int64))

    def _right_changes(self, right: Batch) -> tuple[Codes, Codes]:
        """Move m by the right delta; the patterns whose φ changes, and by how much."""
        patterns = self.patterns
        at, ids = patterns.matches(self._index, right.rows, self._rkey)
        at, ids = self._kept(patterns.rows[ids], right.rows[at], at, ids)
        if not len(ids):
            return np.empty((0, len(self._pattern)), np.int64), np.empty(0, np.int64)
        number, first = number_rows(ids.reshape(-1, 1))
        touched = ids[first]
        change = sum_by(number, right.ann[at], len(first))
        before = patterns.save(touched)[:, 0]
        after = before + change
        patterns.acc[touched, 0] = after
        signs = (after > 0).astype(np.int64) - (before > 0)
        flipped = np.flatnonzero(signs)
        return patterns.rows[touched[flipped]], signs[flipped]

    def _left_changes(self, left: Batch, flips: Codes, signs: Codes) -> Batch:
        """dL·φ, with φ before the epoch; patterns that are new get theirs from the right's new state."""
        patterns = self.patterns
        number, keys, totals = group_rows(left.rows, self._pattern_cols, left.ann)
        ids, old = patterns.upsert(keys)
        fresh = np.flatnonzero(old == 0)
        if len(fresh):
            patterns.save(ids[fresh])
            patterns.acc[ids[fresh], 0] = self._count(keys[fresh])
        answer = patterns.acc[ids, 0] > 0
        if len(signs):
            # φ before: turn back the patterns that flipped (a pattern that is new did not).
            changed = patterns.lookup(flips)
            answer ^= np.isin(ids, changed[changed >= 0])
        patterns.settle(old + totals)
        return self._answered(left, answer[number].astype(np.int64))

    def _count(self, keys: Codes) -> Codes:
        """The matches of each pattern in the right input."""
        right = self._right
        at, ids = right.matches(self._rindex, keys, self._pkey)
        at, ids = self._kept(keys[at], right.rows[ids], at, ids)
        return sum_by(at, right.ann[ids], len(keys))

    def _kept(self, patterns: Codes, rows: Codes, at: Codes, ids: Codes) -> tuple[Codes, Codes]:
        if self._test is None or not len(at):
            return at, ids
        keep = np.flatnonzero(self._test(np.concatenate((patterns, rows), axis=1)) == 1)
        return at[keep], ids[keep]

    def _answered(self, rows: Batch, answer: Codes) -> Batch:
        """Rows times their answer, each as its kind shows it."""
        if self.kind == "mark":
            return Batch(np.concatenate((rows.rows, answer.reshape(-1, 1)), axis=1), rows.ann, rows.unique)
        keep = np.flatnonzero(answer == (1 if self.kind == "semi" else 0))
        return Batch(rows.rows[keep], rows.ann[keep], rows.unique)

    def _flipped(self, rows: Batch, signs: Codes) -> Batch:
        """Rows whose answer has changed by `signs`."""
        if self.kind == "mark":
            answer = (signs > 0).astype(np.int64)
            both = np.concatenate((np.column_stack((rows.rows, answer)), np.column_stack((rows.rows, 1 - answer))))
            return Batch(both, np.concatenate((rows.ann, self._negative(rows.ann))))
        gain = signs > 0 if self.kind == "semi" else signs < 0
        return Batch(rows.rows, np.where(gain, rows.ann, self._negative(rows.ann)))

    def _negative(self, ann: Codes) -> Codes:
        return -ann

    def commit(self) -> None:
        self._former = None
        self.patterns.commit()

    def undo(self) -> None:
        if self._former is not None:
            self.patterns, self._former = self._former, None
            self._index = self.patterns.index(tuple(range(len(self.keys))))
        self.patterns.undo()

    def image(self) -> Image:
        return self.patterns.image()

    def restore(self, image: Image) -> None:
        self.patterns.restore(image)

    def mark_words(self, marks: WordMarks) -> None:
        types = self.inputs[0].schema.types
        self.patterns.mark_words(marks, [types[column] for column in self._pattern])

    @property
    def state_rows(self) -> int:
        return len(self.patterns)

    @property
    def state_bytes(self) -> int:
        return self.patterns.nbytes

    def describe(self) -> str:
        on = " and ".join(f"left.{a} = right.{b}" for a, b in self.keys) or "every pair"
        return f"{self.kind} join on {on}" + (f" where {self.residual}" if self.residual is not None else "")
