"""Subqueries in expressions, rewritten as joins.

As a conjunct of WHERE or HAVING, EXISTS and IN are a semi join and their negations an anti join; anywhere else they are
a mark join whose BOOLEAN column the expression reads. A scalar subquery is a join with the one row it has. NOT IN keeps
SQL's rule for NULL without ever comparing one: a row goes if its value is found, if something unknown is among the
subquery's values, or if its own value is unknown and the subquery has a row. Each is an anti join over the one before,
so the plan of many NOT IN grows with their number.
"""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot import exp

from whence.model import types as t
from whence.plan.algebra.constructors import (
    ONE_ROW,
    at_most_one_row,
    columns,
    distinct,
    exactly_one_row,
    join,
    project,
    select,
)
from whence.plan.algebra.expressions import Call, Case, Col, Expr, Lit, columns_of, rebuild
from whence.plan.algebra.logical import JoinKind, Node, Project, TopK
from whence.sql.lift import Lifted, LiftError, lift
from whence.sql.operators import comparison
from whence.sql.placeholders import Outer, Sub, map_expr, push_in, walk_expr
from whence.sql.position import error

_TRUE, _FALSE, _UNKNOWN = Lit(t.BOOLEAN, True), Lit(t.BOOLEAN, False), Lit(t.BOOLEAN, None)


def has_subquery(expr: Expr) -> bool:
    return any(isinstance(e, Sub) for e in walk_expr(expr))


def filter_rows(node: Node, terms: Sequence[Expr], at: exp.Expr) -> Node:
    """Keep the rows for which all terms are true. Columns of `node` keep their positions; marks may be appended."""
    node = select(node, [term for term in terms if not has_subquery(term)])
    for term in terms:
        if not has_subquery(term):
            continue
        negative = isinstance(term, Call) and term.op == "not"
        sub = term.args[0] if isinstance(term, Call) and negative else term
        if isinstance(sub, Sub) and sub.kind != "scalar" and not any(has_subquery(e) for e in sub.operands):
            node = _not_in(node, sub, at) if negative and sub.kind == "in" else _test(node, sub, negative, at)
        else:
            node, (term,) = attach(node, [term], at, positive=True)
            node = select(node, [term])
    return node


def attach(node: Node, exprs: Sequence[Expr], at: exp.Expr, positive: bool = False) -> tuple[Node, list[Expr]]:
    """Append columns for the subqueries in the expressions; return the node, and the expressions reading those columns.

    `positive` says that the expressions' reader treats NULL as FALSE.
    """
    done: dict[Sub, Expr] = {}

    def replaced(expr: Expr, positive: bool) -> Expr:
        nonlocal node
        if isinstance(expr, Sub):
            if expr not in done:
                operands = tuple(replaced(e, False) for e in expr.operands)
                node, found = _value(node, expr, operands, positive, at)
                done[expr] = found
            return done[expr]
        if not has_subquery(expr):
            return expr
        inner = positive and isinstance(expr, Call) and expr.op in ("and", "or")
        return rebuild(expr, tuple(replaced(c, inner) for c in expr.children))

    changed = [replaced(e, positive) for e in exprs]
    return node, changed


def _test(node: Node, sub: Sub, negative: bool, at: exp.Expr) -> Node:
    inner = _lifted(sub, exists=True, at=at)
    conds = inner.conds + _equalities(sub.operands, inner)
    return _matched(node, inner.core, "anti" if negative else "semi", conds)


def _value(node: Node, sub: Sub, operands: tuple[Expr, ...], positive: bool, at: exp.Expr) -> tuple[Node, Expr]:
    """Append the subquery's value; return the node, and the expression that reads the value."""
    if sub.kind == "scalar":
        return _scalar(node, sub, at)
    inner = _lifted(sub, exists=True, at=at)
    found, mark = _marked(node, inner, inner.conds + _equalities(operands, inner))
    if sub.kind == "exists" or positive or sub.unnullable:
        return found, mark
    # Unknown, when not found: something unknown is on either side of a comparison that nothing known decides.
    if len(operands) == 1:
        found, any_row = _marked(found, inner, inner.conds)
        found, any_null = _marked(found, inner, [*inner.conds, Call(t.BOOLEAN, "is_null", (inner.outs[0],))])
        no_value = Call(t.BOOLEAN, "and", (Call(t.BOOLEAN, "is_null", operands), any_row))
        unknown_here = Call(t.BOOLEAN, "or", (no_value, any_null))
        return found, Case(t.BOOLEAN, ((mark, _TRUE), (unknown_here, _UNKNOWN)), _FALSE)
    maybe = [_maybe_equal(push_in(x, 1), y) for x, y in zip(operands, inner.outs, strict=True)]
    found, unknown = _marked(found, inner, inner.conds + maybe)
    return found, Case(t.BOOLEAN, ((mark, _TRUE), (unknown, _UNKNOWN)), _FALSE)


def _scalar(node: Node, sub: Sub, at: exp.Expr) -> tuple[Node, Expr]:
    inner = _lifted(sub, exists=False, at=at)
    width = len(node.schema)
    if not inner.conds:
        if not at_most_one_row(inner.core):
            raise error(
                "a subquery used as a value must be sure to have one row: an aggregate without GROUP BY, or LIMIT 1", at
            )
        row = inner.core if exactly_one_row(inner.core) else join(ONE_ROW, inner.core, "left")
        return join(node, row, "inner"), _across(inner.outs[0], width)
    if not inner.one_row:
        raise error("a correlated subquery used as a value must be an aggregate without GROUP BY", at)
    joined = join(node, inner.core, "left", [_across(cond, width) for cond in inner.conds])

    def zero(e: Expr) -> Expr | None:
        if isinstance(e, Col) and e.index in inner.counts:
            return Call(e.type, "coalesce", (Col(e.type, width + e.index), Lit(e.type, 0)))
        if isinstance(e, Col):
            return Col(e.type, width + e.index)
        return Col(e.type, e.index) if isinstance(e, Outer) and e.level == 1 else None

    return joined, map_expr(inner.outs[0], zero)


def _not_in(node: Node, sub: Sub, at: exp.Expr) -> Node:
    inner = _lifted(sub, exists=True, at=at)
    if sub.unnullable:
        return _matched(node, inner.core, "anti", inner.conds + _equalities(sub.operands, inner))
    if len(sub.operands) > 1:
        maybe = [_maybe_equal(push_in(x, 1), y) for x, y in zip(sub.operands, inner.outs, strict=True)]
        return _matched(node, inner.core, "anti", inner.conds + maybe)
    (value,), width = sub.operands, len(node.schema)
    unknown = Call(t.BOOLEAN, "is_null", (inner.outs[0],))
    node = project(node, [*columns(node), Call(t.BOOLEAN, "is_null", (value,))])
    node = _matched(node, inner.core, "anti", inner.conds + _equalities(sub.operands, inner))
    node = _matched(node, inner.core, "anti", [*inner.conds, unknown])
    return _matched(node, inner.core, "anti", [*inner.conds, Outer(t.BOOLEAN, width, 1)])


def _lifted(sub: Sub, exists: bool, at: exp.Expr) -> Lifted:
    try:
        inner = lift(_uncut(sub.node) if sub.kind == "exists" else sub.node, exists)
    except LiftError as reason:
        raise error(f"this correlated subquery cannot be kept as a view: {reason}", at) from None
    if exists and inner.counts and inner.conds:
        raise error("a correlated COUNT without GROUP BY is not supported in EXISTS or IN", at)
    return inner


def _uncut(node: Node) -> Node:
    """Return a plan that has rows exactly when this one has: LIMIT does not matter to EXISTS, unless it is 0."""
    if isinstance(node, Project):
        return _uncut(node.input)
    if isinstance(node, TopK) and (node.limit is None or node.limit > 0) and not node.offset:
        return _uncut(node.input)
    return node


def _equalities(operands: Sequence[Expr], inner: Lifted) -> list[Expr]:
    """Build `operand = column` for each operand of IN."""
    pairs = zip(operands, inner.outs, strict=False)
    return [comparison("=", push_in(x, 1), y, exp.Null()) for x, y in pairs]


def _maybe_equal(value: Expr, column: Expr) -> Expr:
    nulls = [Call(t.BOOLEAN, "is_null", (e,)) for e in (value, column)]
    return Call(t.BOOLEAN, "or", (comparison("=", value, column, exp.Null()), *nulls))


def _marked(node: Node, inner: Lifted, conds: list[Expr]) -> tuple[Node, Expr]:
    found = _matched(node, inner.core, "mark", conds)
    return found, Col(t.BOOLEAN, len(found.schema) - 1)


def _matched(node: Node, core: Node, kind: JoinKind, conds: Sequence[Expr]) -> Node:
    """Build a semi, anti or mark join whose right side has only the columns the conditions read, filtered first."""
    width = len(node.schema)
    own = [cond for cond in conds if not _reads_outer(cond)]
    core = select(core, own)
    across = [_across(cond, width) for cond in conds if _reads_outer(cond)]
    read = sorted({c - width for cond in across for c in columns_of(cond) if c >= width})
    if not read or len(read) < len(core.schema):
        place = {column: i for i, column in enumerate(read)}
        core = project(core, [columns(core)[c] for c in read])
        across = [_shift_columns(cond, width, place) for cond in across]
    return join(node, distinct(core) if not read else core, kind, across)


def _shift_columns(expr: Expr, width: int, place: dict[int, int]) -> Expr:
    return map_expr(
        expr,
        lambda e: Col(e.type, width + place[e.index - width]) if isinstance(e, Col) and e.index >= width else None,
    )


def _reads_outer(expr: Expr) -> bool:
    return any(isinstance(e, Outer) for e in walk_expr(expr))


def _across(cond: Expr, width: int) -> Expr:
    """Rewrite a lifted condition as one over the columns of the outer query, then the subquery's."""

    def change(e: Expr) -> Expr | None:
        if isinstance(e, Outer):
            return Col(e.type, e.index) if e.level == 1 else Outer(e.type, e.index, e.level - 1)
        return Col(e.type, e.index + width) if isinstance(e, Col) else None

    return map_expr(cond, change)
