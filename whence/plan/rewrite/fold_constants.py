"""Compute constants once, and drop conditions that are always true or never."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from whence.model.types import BOOLEAN, Kind
from whence.plan.algebra.expressions import Call, Case, Cast, Expr, Lit, is_volatile, rebuild
from whence.plan.algebra.logical import Join, Lateral, Node, Project, Select, Values, bottom_up
from whence.plan.streams.model import AT, Lookup, WindowJoin

_INT64 = 2**63
_COMPARE: dict[str, Any] = {
    "=": lambda a, b: a == b,
    "<>": lambda a, b: a != b,
    "<": lambda a, b: a < b,
    "<=": lambda a, b: a <= b,
    ">": lambda a, b: a > b,
    ">=": lambda a, b: a >= b,
}
_ARITHMETIC: dict[str, Any] = {"+": lambda a, b: a + b, "-": lambda a, b: a - b, "*": lambda a, b: a * b}
_EXACT = (Kind.INTEGER, Kind.BIGINT, Kind.TEXT, Kind.DATE, Kind.TIMESTAMP, Kind.BOOLEAN)


def fold_constants(node: Node) -> Node:
    """Replace constant expressions by their values."""
    return bottom_up(node, _fold_node)


def _fold_node(node: Node) -> Node:
    match node:
        case Select():
            predicate = fold(node.predicate)
            if isinstance(predicate, Lit) and predicate.value:
                return node.input
            if isinstance(predicate, Lit) and AT not in node.schema.names:  # a stream stays one, without rows too
                return Values(node.schema, ())
            return replace(node, predicate=predicate)
        case Project():
            return replace(node, exprs=tuple(fold(e) for e in node.exprs))
        case Join(residual=Expr()) | Lookup(residual=Expr()) | WindowJoin(residual=Expr()):
            assert node.residual is not None
            residual = fold(node.residual)
            return replace(node, residual=None if isinstance(residual, Lit) and residual.value is True else residual)
        case Lateral():
            return replace(node, args=tuple(fold(e) for e in node.args))
    return node


def fold(expr: Expr) -> Expr:
    """Compute the constant parts of an expression.

    >>> from whence.model.types import BIGINT
    >>> one = Lit(BIGINT, 1)
    >>> str(fold(Call(BIGINT, "+", (one, one))))
    '2'
    """
    if not expr.children:
        return expr
    expr = rebuild(expr, tuple(fold(c) for c in expr.children))
    match expr:
        case Call(op="and" | "or"):
            return _logic(expr)
        case Call(op="not", args=(Lit(value=value),)):
            return Lit(BOOLEAN, None if value is None else not value)
        case Call(op="is_null", args=(Lit(value=value),)):
            return Lit(BOOLEAN, value is None)
        case Call(args=(Lit() as a, Lit() as b)):
            return _binary(expr, a, b)
        case Cast(arg=Lit(value=None)):
            return Lit(expr.type, None)
        case Case():
            return _case(expr)
    return expr


def _logic(expr: Call) -> Expr:
    """AND without its true terms, false if one is false; OR likewise."""
    absorbing = expr.op == "or"
    found: dict[object, Expr] = {}
    for arg in expr.args:
        if isinstance(arg, Lit) and arg.value is not None:
            if bool(arg.value) is absorbing:
                return Lit(BOOLEAN, absorbing)
            continue
        if arg not in found:
            found[arg] = arg
        elif is_volatile(arg):  # two calls, two answers
            found[object()] = arg
    kept = tuple(found.values())
    if not kept:
        return Lit(BOOLEAN, not absorbing)
    return kept[0] if len(kept) == 1 else Call(BOOLEAN, expr.op, kept)


def _binary(expr: Call, a: Lit, b: Lit) -> Expr:
    if a.type.kind not in _EXACT or b.type.kind not in _EXACT:
        return expr
    if expr.op in _COMPARE:
        known = a.value is not None and b.value is not None
        return Lit(BOOLEAN, _COMPARE[expr.op](a.value, b.value) if known else None)
    if expr.op in _ARITHMETIC and a.type.is_integer and b.type.is_integer:
        if a.value is None or b.value is None:
            return Lit(expr.type, None)
        value = _ARITHMETIC[expr.op](a.value, b.value)
        return Lit(expr.type, value) if -_INT64 < value < _INT64 else expr
    return expr


def _case(expr: Case) -> Expr:
    branches: list[tuple[Expr, Expr]] = []
    for condition, value in expr.branches:
        if isinstance(condition, Lit):
            if not condition.value:
                continue
            return value if not branches else Case(expr.type, tuple(branches), value)
        branches.append((condition, value))
    return Case(expr.type, tuple(branches), expr.default) if branches else expr.default
