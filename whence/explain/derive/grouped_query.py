"""Queries directly over groups: the aggregate, the condition on its groups, and the result's columns over them."""

from __future__ import annotations

from collections.abc import Callable

from whence.model.types import BOOLEAN, Kind
from whence.plan.algebra.expressions import Call, Cast, Col, Expr, substitute
from whence.plan.algebra.logical import Aggregate, Distinct, Node, Project, Ref, Select


def peel_groups(query: Node, inlined: Callable[[str], Node | None]) -> tuple[Aggregate, Expr | None, list[Expr]] | None:
    """Return the aggregate of a query that is nothing but selections and projections over it, the condition on its
    groups, and the columns over them. `inlined` gives the queries of views that may be looked into."""
    above = []
    while not isinstance(query, Aggregate):
        above.append(query)
        match query:
            case Project() | Select() | Distinct():
                query = query.input
            case Ref() if (inner := inlined(query.view)) is not None:
                query = inner
            case _:
                return None
    out: list[Expr] = [Col(t, i) for i, t in enumerate(query.schema.types)]
    test: Expr | None = None
    for node in reversed(above):
        if isinstance(node, Project):
            out = [substitute(e, lambda c: out[c.index]) for e in node.exprs]  # noqa: B023
        elif isinstance(node, Select):
            term = substitute(node.predicate, lambda c: out[c.index])  # noqa: B023
            test = term if test is None else Call(BOOLEAN, "and", (test, term))
    return query, test, out


def find_same_code(expr: Expr) -> int | None:
    """Return the column that an expression has the code of, wherever it is not an error; None if there is none."""
    while isinstance(expr, Cast) and not expr.lenient:
        to, of = expr.type, expr.arg.type
        if not (to.is_integer and of.is_integer) and not (to.kind is of.kind is Kind.DECIMAL and to.scale == of.scale):
            return None
        expr = expr.arg
    return expr.index if isinstance(expr, Col) else None
