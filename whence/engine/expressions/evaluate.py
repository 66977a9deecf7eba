"""Expressions, compiled to functions from a batch's rows to one column of codes.

A compiled expression is strict unless it says otherwise: it sees only rows whose arguments are all known, and the
others are NULL. CASE, COALESCE, AND and OR evaluate an operand only for the rows that need it, so an operand cannot
fail for a row that another operand decides. Errors are EvaluationError, and say the expression and the values.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from whence.engine.expressions.conditions import Compiled, compile_condition
from whence.engine.expressions.functions import arithmetic, casts, choice, compare, dates, decimals, numbers, text
from whence.engine.expressions.functions.common import Column, Strict, each, spread
from whence.model.codes import NULL, Codes, Constant, Dictionary, decode_value, encode_constant, encode_value
from whence.model.errors import DataError, EvaluationError, WhenceError
from whence.model.text import shown_value
from whence.plan.algebra.expressions import Call, Case, Cast, Col, Expr, Lit, Udf, Volatile

_STRICT: dict[str, Callable[[Call, Dictionary], Strict]] = {
    **arithmetic.OPS,
    **compare.OPS,
    **text.OPS,
    **numbers.OPS,
    **choice.STRICT,
}
_WHOLE: dict[str, Callable[[Call, Dictionary], Column]] = {**compare.WHOLE, **choice.WHOLE}


def compile_expr(expr: Expr, dictionary: Dictionary) -> Compiled:
    """Compile an expression to a function that computes it for every row.

    >>> from whence.model.types import INTEGER
    >>> plus = Call(INTEGER, "+", (Col(INTEGER, 0), Lit(INTEGER, 1)))
    >>> compile_expr(plus, Dictionary())(np.array([[4], [NULL]])).tolist() == [5, NULL]
    True
    """
    match expr:
        case Col():
            index = expr.index
            return lambda rows: np.ascontiguousarray(rows[:, index])
        case Lit():
            constant = _constant(expr, dictionary)
            return lambda rows: np.full(len(rows), constant.code, np.int64)
        case Case():
            return _case(expr, dictionary)
        case Cast():
            return _strict(expr, (expr.arg,), casts.cast(expr, dictionary), dictionary)
        case Udf():
            return _udf(expr, dictionary)
        case Call(op="coalesce"):
            return _coalesce(expr, dictionary)
        case Call():
            condition = compile_condition(
                expr, lambda leaf: compile_expr(leaf, dictionary), lambda literal: _constant(literal, dictionary)
            )
            if condition is not None:
                return condition
            return _connective(expr, dictionary) if expr.op in ("and", "or") else _call(expr, dictionary)
    raise EvaluationError(f"{expr} cannot be evaluated")


def _constant(literal: Lit, dictionary: Dictionary) -> Constant:
    try:
        return encode_constant(literal.value, literal.type, dictionary)
    except DataError as error:
        raise EvaluationError(str(error)) from None


def _call(expr: Call, dictionary: Dictionary) -> Compiled:
    if expr.op in _WHOLE:
        whole = _WHOLE[expr.op](expr, dictionary)
        args = [compile_expr(a, dictionary) for a in expr.args]
        return lambda rows: whole(*[a(rows) for a in args])
    name = expr.op.partition(":")[0]
    if name in dates.OPS:
        return _strict(expr, expr.args, dates.OPS[name](expr, dictionary), dictionary)
    if expr.op not in _STRICT:
        raise EvaluationError(f"there is no function {expr.op}")
    table = decimals.OPS if expr.op in decimals.OPS and decimals.has_wide(expr) else _STRICT
    return _strict(expr, expr.args, table[expr.op](expr, dictionary), dictionary)


def _strict(expr: Expr, args: tuple[Expr, ...], function: Strict, dictionary: Dictionary) -> Compiled:
    compiled = [compile_expr(a, dictionary) for a in args]

    def evaluate(rows: Codes) -> Codes:
        columns = [c(rows) for c in compiled]
        try:
            return spread(function, columns)
        except EvaluationError as error:
            raise _explained(error, expr, args, columns, function, dictionary) from None

    return evaluate


def _explained(
    error: EvaluationError,
    expr: Expr,
    args: tuple[Expr, ...],
    columns: list[Codes],
    function: Strict,
    dictionary: Dictionary,
) -> EvaluationError:
    """Add the values of the first row that causes the error to its message."""
    for i in range(len(columns[0]) if columns else 0):
        row = [c[i : i + 1] for c in columns]
        try:
            spread(function, row)
        except EvaluationError as single:
            values = ", ".join(
                shown_value(decode_value(int(c[0]), a.type, dictionary), a.type) for c, a in zip(row, args, strict=True)
            )
            return EvaluationError(f"{single} in {expr!s:.200} with {values:.200}")
    return error


def _case(expr: Case, dictionary: Dictionary) -> Compiled:
    branches = [(compile_expr(c, dictionary), compile_expr(v, dictionary)) for c, v in expr.branches]
    default = compile_expr(expr.default, dictionary)

    def evaluate(rows: Codes) -> Codes:
        out = np.empty(len(rows), np.int64)
        left = np.arange(len(rows))
        for condition, value in branches:
            if not len(left):
                return out
            taken = condition(rows[left]) == 1
            if taken.any():
                chosen = left[taken]
                out[chosen] = value(rows[chosen])
                left = left[~taken]
        if len(left):
            out[left] = default(rows[left])
        return out

    return evaluate


def _coalesce(expr: Call, dictionary: Dictionary) -> Compiled:
    args = [compile_expr(a, dictionary) for a in expr.args]

    def evaluate(rows: Codes) -> Codes:
        out = args[0](rows)
        for arg in args[1:]:
            missing = np.flatnonzero(out == NULL)
            if not len(missing):
                break
            out = out.copy()  # it may be a column of the rows themselves
            out[missing] = arg(rows[missing])
        return out

    return evaluate


def _connective(expr: Call, dictionary: Dictionary) -> Compiled:
    """Evaluate AND and OR: NULL unless decided; `stop` is the value that decides."""
    args = [compile_expr(a, dictionary) for a in expr.args]
    stop = 0 if expr.op == "and" else 1

    def evaluate(rows: Codes) -> Codes:
        out = args[0](rows)
        for arg in args[1:]:
            open_ = out != stop
            if open_.all():
                right = arg(rows)
                out = np.where((right == stop) | (out == 1 - stop), right, out)
            else:
                at = np.flatnonzero(open_)
                if not len(at):
                    break
                right, left = arg(rows[at]), out[at]
                out = out.copy()  # it may be a column of the rows themselves
                out[at] = np.where((right == stop) | (left == 1 - stop), right, left)
        return out

    return evaluate


def _udf(expr: Udf, dictionary: Dictionary) -> Compiled:
    compiled = [compile_expr(a, dictionary) for a in expr.args]
    types = [a.type for a in expr.args]

    def call(*codes: int) -> int:
        values = [decode_value(c, t, dictionary) for c, t in zip(codes, types, strict=True)]
        try:
            result: Any = expr.function(*values)
        except WhenceError:
            raise
        except Exception as error:
            shown = ", ".join(map(repr, values))
            raise EvaluationError(f"{expr.name}({shown}) raised {type(error).__name__}: {error}") from error
        try:
            return encode_value(result, expr.type, dictionary)
        except DataError as error:
            shown = ", ".join(map(repr, values))
            raise EvaluationError(f"{expr.name}({shown}) returned a wrong value: {error}") from None

    distinct = not isinstance(expr.function, Volatile)
    return lambda rows: each(call, [c(rows) for c in compiled], len(rows), distinct)
