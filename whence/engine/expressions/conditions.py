"""Comparisons and logic, compiled to programs that one kernel runs (`kernels/conditions.py`).

Codes of most types compare as integers. What does not, or is no condition, is a *leaf*: it is computed before, as a
column. AND and OR whose later operands have such leaves are left to `evaluate.py`, which computes an operand only for
the rows that it decides.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from whence.engine.core.batch import codes2d
from whence.engine.expressions.kernels import conditions as ck
from whence.model.codes import Codes, Constant
from whence.model.types import Kind
from whence.plan.algebra.expressions import Call, Col, Expr, Lit

Compiled = Callable[[Codes], Codes]

_ORDERINGS = {"<": ck.LT, "<=": ck.LE, ">": ck.GT, ">=": ck.GE}
_EQUALITIES = {"=": ck.EQ, "<>": ck.NE, "is_distinct": ck.IS_DISTINCT, "is_not_distinct": ck.IS_NOT_DISTINCT}
_LOGIC = {"not": ck.NOT, "is_null": ck.IS_NULL, "and": ck.AND, "or": ck.OR}


def compile_condition(
    expr: Call, compile_leaf: Callable[[Expr], Compiled], encode: Callable[[Lit], Constant]
) -> Compiled | None:
    """The function that decides a condition for every row; None if it is none of ours."""
    if _step_of(expr) is None:
        return None
    builder = _Builder(encode)
    builder.add(expr)
    program = np.array(builder.steps, np.int64)
    indexes = [leaf.index for leaf in builder.leaves if isinstance(leaf, Col)]
    if len(indexes) == len(builder.leaves):
        for step in program:
            if step[0] == ck.COLUMN:
                step[1] = indexes[step[1]]
        return Decision(program, builder.constants, codes2d)
    leaves = [compile_leaf(leaf) for leaf in builder.leaves]
    return Decision(program, builder.constants, lambda rows: np.column_stack([leaf(rows) for leaf in leaves]))


class Decision:
    """A program, the constants whose codes stand in it, and what makes of rows the columns that it reads."""

    __slots__ = ("_columns", "_constants", "program")

    def __init__(self, program: Codes, constants: list[Constant], columns: Callable[[Codes], Codes]) -> None:
        self.program, self._constants, self._columns = program, constants, columns

    @property
    def reads_rows(self) -> bool:
        """Whether the columns that the program reads are those of the rows."""
        return self._columns is codes2d

    def __call__(self, rows: Codes) -> Codes:
        return ck.decide(self.program, self._columns(rows))


def _step_of(expr: Expr) -> int | None:
    """What a step for this expression does; None if it is a leaf."""
    if not isinstance(expr, Call):
        return None
    if expr.op in ("and", "or"):
        return _LOGIC[expr.op] if all(map(_is_safe, expr.args[1:])) else None
    if expr.op in _LOGIC:
        return _LOGIC[expr.op]
    if expr.op in _ORDERINGS:
        return None if expr.args[0].type.needs_dictionary else _ORDERINGS[expr.op]
    if expr.op in _EQUALITIES:
        return None if expr.args[0].type.kind is Kind.INTERVAL else _EQUALITIES[expr.op]
    return None


def _is_safe(expr: Expr) -> bool:
    """Whether an expression can be computed for every row: it has steps, columns and constants only."""
    if isinstance(expr, (Col, Lit)):
        return True
    return _step_of(expr) is not None and all(map(_is_safe, expr.children))


class _Builder:
    """The steps of a program, and the expressions whose columns it reads."""

    def __init__(self, encode: Callable[[Lit], Constant]) -> None:
        self.steps: list[tuple[int, int, int]] = []
        self.leaves: list[Expr] = []
        self.constants: list[Constant] = []
        self._encode = encode

    def add(self, expr: Expr) -> int:
        """Add the steps of an expression; return the number of the one that has its result."""
        what = _step_of(expr)
        if what is None and isinstance(expr, Lit):
            self.constants.append(self._encode(expr))
            return self._step(ck.CONSTANT, self.constants[-1].code)
        if what is None:
            self.leaves.append(expr)
            return self._step(ck.COLUMN, len(self.leaves) - 1)
        assert isinstance(expr, Call)
        first, *rest = [self.add(arg) for arg in expr.args]
        if not rest:
            return self._step(what, first)
        for other in rest:
            first = self._step(what, first, other)
        return first

    def _step(self, what: int, left: int, right: int = 0) -> int:
        self.steps.append((what, left, right))
        return len(self.steps) - 1
