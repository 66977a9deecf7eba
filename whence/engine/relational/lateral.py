"""Lateral: each input row with each row that a table function yields for it.

Law: linear in its input, since the function is deterministic: the rows it yields for an input row are the same when
that row goes as when it came. (One that is not stands over streams only, whose rows do not go:
`plan/algebra/functions.py`.) No state. Cost: one call for each distinct tuple of arguments in the batch, or for each
row, and the rows out.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from whence.engine.core.batch import carefully
from whence.engine.core.operator import Batch, Operator
from whence.engine.expressions.evaluate import compile_expr
from whence.model.budget import claim, has_budget, reach
from whence.model.codes import Codes, Dictionary, decode_value, encode_value
from whence.model.errors import DataError, EvaluationError, WhenceError
from whence.model.types import Schema
from whence.plan.algebra.expressions import Expr, Volatile

_LOOK = 64  # calls between two looks at the budget


class Lateral(Operator):
    """A Python table function applied to every row."""

    def __init__(
        self,
        input: Operator,
        name: str,
        function: Callable[..., Any],
        args: tuple[Expr, ...],
        schema: Schema,
        dictionary: Dictionary,
    ):
        self.schema, self.tracer, self.inputs = schema, input.tracer, [input]
        self.call = TableCall(name, function, args, Schema(schema.columns[len(input.schema) :]), dictionary)

    def apply(self, deltas: list[Batch]) -> Batch:
        return carefully(deltas[0], self.tracer, self._called)

    def _called(self, delta: Batch) -> Batch:
        at, right = self.call(delta.rows)
        return Batch(np.concatenate((delta.rows[at], right), axis=1), delta.ann[at])

    def recompute(self) -> Batch:
        return self.apply([self.inputs[0].contents()])

    def describe(self) -> str:
        return f"lateral {self.call.name}({', '.join(map(str, self.call.args))})"


class TableCall:
    """A table function on a batch: positions of input rows, repeated, and the rows yielded for them."""

    def __init__(
        self, name: str, function: Callable[..., Any], args: tuple[Expr, ...], returns: Schema, dictionary: Dictionary
    ):
        self.name, self.function, self.args, self.returns, self.dictionary = name, function, args, returns, dictionary
        self._compiled = [compile_expr(a, dictionary) for a in args]

    def __call__(self, rows: Codes) -> tuple[Codes, Codes]:
        columns = [c(rows).tolist() for c in self._compiled]
        tuples: Any = zip(*columns, strict=True) if columns else [()] * len(rows)
        memo: dict[tuple[int, ...], list[tuple[int, ...]]] = {}
        at: list[int] = []
        out: list[tuple[int, ...]] = []
        distinct = not isinstance(self.function, Volatile)
        watched = has_budget()
        for i, codes in enumerate(tuples):
            if watched and not i % _LOOK:
                reach(f"calling {self.name}", i, len(rows))
                claim(len(out) * 8 * (2 + len(self.returns)))
            yielded = memo.get(codes) if distinct else None
            if yielded is None:
                yielded = memo[codes] = self._rows(codes)
            at.extend([i] * len(yielded))
            out.extend(yielded)
        return np.array(at, np.int64), np.array(out, np.int64).reshape(len(out), len(self.returns))

    def _rows(self, codes: tuple[int, ...]) -> list[tuple[int, ...]]:
        words = self.dictionary
        values = [decode_value(c, a.type, words) for c, a in zip(codes, self.args, strict=True)]
        types = self.returns.types
        shown = f"{self.name}({', '.join(map(repr, values))})"
        try:
            rows = [row if isinstance(row, (tuple, list)) else (row,) for row in self.function(*values)]
        except WhenceError:
            raise
        except Exception as error:
            raise EvaluationError(f"{shown} raised {type(error).__name__}: {error}") from error
        for row in rows:
            if len(row) != len(types):
                raise EvaluationError(
                    f"{shown} yielded a row of {len(row)} values, {row!r:.80};"
                    f" it should have the {len(types)} of {self.returns}"
                )
        try:
            return [tuple(encode_value(v, t, words) for v, t in zip(row, types, strict=True)) for row in rows]
        except DataError as error:
            raise EvaluationError(f"{shown} yielded a row that is not {self.returns}: {error}") from None
