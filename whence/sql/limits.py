"""Limits on the size of a query. Everything that walks plans and expressions is recursive, and meets what stands in
several places (the subject of a CASE, a CTE that is read twice) once per place."""

from __future__ import annotations

from sqlglot import exp

from whence.plan.algebra.expressions import Expr
from whence.plan.algebra.logical import Node
from whence.plan.algebra.size import size_of
from whence.sql.position import error

MAX_DEPTH = 200
MAX_SIZE = 100_000


def check_size(plan: Node | Expr, at: exp.Expr) -> None:
    """Raise SqlError if a plan or an expression is too deep or too large."""
    size = size_of(plan)
    if size.depth > MAX_DEPTH:
        raise error(f"nested too deeply: {size.depth:,} operations upon each other, at most {MAX_DEPTH:,} may be", at)
    if size.nodes > MAX_SIZE:
        raise error(f"too large: more than {MAX_SIZE:,} operations, with what is used twice counted twice", at)
