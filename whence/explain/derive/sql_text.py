"""Conditions and values in the words of SQL, with columns by their names."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from whence.plan.algebra.expressions import Call, Case, Cast, Col, Expr, Lit, Udf


def write_value(value: Any) -> str:
    """Write a value as SQL writes it.

    >>> write_value("it's"), write_value(None), write_value(True), write_value(3)
    ("'it''s'", 'NULL', 'TRUE', '3')
    """
    if value is None:
        return "NULL"
    if isinstance(value, bool):
        return str(value).upper()
    if isinstance(value, (int, float)) or type(value).__name__ == "Decimal":
        return str(value)
    text = str(value).replace("'", "''")
    return f"'{text:.80}'"


def write_expr(expr: Expr, name: Callable[[int], str]) -> str:
    """Write an expression, its columns by name.

    >>> from whence.model.types import BOOLEAN, INTEGER
    >>> test = Call(BOOLEAN, "not", (Call(BOOLEAN, "<", (Col(INTEGER, 0), Lit(INTEGER, 3))),))
    >>> write_expr(test, lambda column: f"c{column}")
    'NOT (c0 < 3)'
    """
    match expr:
        case Col():
            return name(expr.index)
        case Lit():
            return write_value(expr.value)
        case Cast():
            return write_expr(expr.arg, name)
        case Udf():
            return f"{expr.name}({', '.join(write_expr(a, name) for a in expr.args)})"
        case Case():
            arms = " ".join(f"WHEN {write_expr(c, name)} THEN {write_expr(v, name)}" for c, v in expr.branches)
            return f"CASE {arms} ELSE {write_expr(expr.default, name)} END"
        case Call(op="not", args=(Call(op="is_null", args=(arg,)),)):
            return f"{write_expr(arg, name)} IS NOT NULL"
        case Call(op="not", args=(arg,)):
            text = write_expr(arg, name)
            return f"NOT ({text.removeprefix('(').removesuffix(')') if _binary(arg) else text})"
        case Call(op="is_null", args=(arg,)):
            return f"{write_expr(arg, name)} IS NULL"
        case Call(op="is_not_distinct" | "is_distinct" as op, args=(a, b)):
            return f"{write_expr(a, name)} IS {'NOT ' if 'not' in op else ''}DISTINCT FROM {write_expr(b, name)}"
        case Call(op="in", args=(value, *items)):
            return f"{write_expr(value, name)} IN ({', '.join(write_expr(i, name) for i in items)})"
        case Call(op="and" | "or" as op):
            return "(" + f" {op.upper()} ".join(write_expr(a, name) for a in expr.args) + ")"
        case Call() if _binary(expr):
            a, b = expr.args
            return f"{_inner(a, name)} {expr.op.upper()} {_inner(b, name)}"
        case Call():
            return f"{expr.op.upper()}({', '.join(write_expr(a, name) for a in expr.args)})"
    return str(expr)


def _binary(expr: Expr) -> bool:
    return isinstance(expr, Call) and len(expr.args) == 2 and (not expr.op[0].isalpha() or expr.op in ("like", "ilike"))


def _inner(expr: Expr, name: Callable[[int], str]) -> str:
    return f"({write_expr(expr, name)})" if _binary(expr) else write_expr(expr, name)
