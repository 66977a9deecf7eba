"""Queries straight over groups: the aggregate, the condition on its groups, and the result's columns over them."""

from __future__ import annotations

from collections.abc import Callable

from whence.model.types import BOOLEAN, Kind
from whence.plan.algebra.expressions import Call, Cast, Col, Expr, substitute
from whence.plan.algebra.logical import Aggregate, Distinct, Node, Project, Ref, Select


def peeled(query: Node, inlined: Callable[[str], Node | None]) -> tuple[Aggregate, Expr | None, list[Expr]] | None:
    """What lies over the groups of a query, if it is nothing but selections and projections; `inlined` gives the
    queries of views that may be looked into."""
    out: list[Expr] = [Col(t, i) for i, t in enumerate(query.schema.types)]
    test: Expr | None = None
    while True:
        match query:
            case Project():
                out = [_over(e, query) for e in out]
                test = test and _over(test, query)
                query = query.input
            case Select():
                test = query.predicate if test is None else Call(BOOLEAN, "and", (query.predicate, test))
                query = query.input
            case Distinct():
                query = query.input
            case Ref() if (inner := inlined(query.view)) is not None:
                query = inner
            case Aggregate():
                return query, test, out
            case _:
                return None


def _over(expr: Expr, project: Project) -> Expr:
    """An expression over a projection's columns, as one over its input's."""
    return substitute(expr, lambda c: project.exprs[c.index])


def same_code(expr: Expr) -> int | None:
    """The column that an expression has the code of, wherever it is not an error; None if there is none."""
    while isinstance(expr, Cast) and not expr.lenient:
        to, of = expr.type, expr.arg.type
        if not (to.is_integer and of.is_integer) and not (to.kind is of.kind is Kind.DECIMAL and to.scale == of.scale):
            return None
        expr = expr.arg
    return expr.index if isinstance(expr, Col) else None
