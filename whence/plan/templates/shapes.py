"""Read the defining plan of a template: its parameters, its query, and the conditions between them.

Columns of the query are numbered as the query has them, parameters as their table has them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TypeGuard

from whence.plan.algebra.constructors import project
from whence.plan.algebra.expressions import Col, Expr, columns_of, conjuncts, may_fail, substitute
from whence.plan.algebra.logical import (
    Join,
    MatchRows,
    Node,
    Project,
    Scan,
)
from whence.plan.algebra.parameter_ranges import Comparison, is_ordered, pair_bounds, read_comparison
from whence.plan.algebra.program import Table


class NotGroupedError(Exception):
    """The shape is not one that is matched in groups; says why."""


@dataclass(frozen=True)
class TemplateShape:
    """A defining plan taken apart; columns are those of the query `core`, in `exprs` one further behind the id."""

    plan: Node
    parameters: Node
    core: Node
    equal: list[tuple[int, int]]  # (column, parameter)
    comparisons: list[Comparison]
    exprs: list[Expr]

    @property
    def shown(self) -> set[int]:
        return {c - 1 for e in self.exprs for c in columns_of(e) if c}


def take_apart(plan: Node, parameters: Table) -> TemplateShape:
    """Read a projection of the parameters joined with a query."""
    if not isinstance(plan, Project):
        raise NotGroupedError(f"{plan.describe()} is not a selection or a join")
    joined = plan.input
    if not selects(joined, parameters):
        raise NotGroupedError(f"{joined.describe()} is not a selection or a join")
    core, width = joined.right, len(joined.left.schema)
    for expr in plan.exprs:
        if any(0 < column < width for column in columns_of(expr)):
            raise NotGroupedError("a parameter is in the select list")
    comparisons = [_comparison(test, width) for test in conjuncts(joined.residual)]
    exprs = [substitute(e, lambda c: c if c.index == 0 else Col(c.type, c.index - width + 1)) for e in plan.exprs]
    equal = [(column, parameter) for parameter, column in joined.keys]
    return TemplateShape(plan, joined.left, core, equal, comparisons, exprs)


def _comparison(test: Expr, width: int) -> Comparison:
    """Read a comparison of a parameter with something over columns from `width` on."""
    found = read_comparison(test, lambda column: column < width)
    if found is None:
        raise NotGroupedError(f"the condition {test} is neither an equality nor a range of data")
    return replace(found, value=substitute(found.value, lambda c: Col(c.type, c.index - width)))


def selects(node: Node, parameters: Table) -> TypeGuard[Join]:
    """Return whether a node joins the parameters with a query."""
    return isinstance(node, Join) and node.kind == "inner" and scans(node.left, parameters.name)


def scans(node: Node, table: str) -> bool:
    return isinstance(node, Scan) and node.table == table


def lay_out(node: Node, first: Sequence[Expr], needed: set[int]) -> tuple[Node, Callable[[int], int]]:
    """Return a plan of some expressions of a node, then those of its columns that are needed beside them; and where
    each of these is."""
    for expr in first:
        if not is_ordered(expr.type):
            raise NotGroupedError(f"a value of type {expr.type} is compared")
        if may_fail(expr):
            raise NotGroupedError(f"{expr} can fail")
    there = {expr.index: at for at, expr in reversed(list(enumerate(first))) if isinstance(expr, Col)}
    more = sorted(needed - there.keys())
    place = there | {column: len(first) + at for at, column in enumerate(more)}
    columns = [Col(node.schema.types[c], c) for c in more]
    return project(node, [*first, *columns]), place.__getitem__


def match_rows(shape: TemplateShape) -> MatchRows:
    """The parameters are compared with the rows of the query without them."""
    values, ranges = pair_bounds(shape.comparisons, len(shape.equal))
    layout = [Col(shape.core.schema.types[column], column) for column, _ in shape.equal] + values
    data, place = lay_out(shape.core, layout, shape.shown)
    exprs = tuple(
        substitute(e, lambda c: c if c.index == 0 else Col(c.type, 1 + place(c.index - 1))) for e in shape.exprs
    )
    equal = tuple(parameter for _, parameter in shape.equal)
    return MatchRows(shape.plan.schema, data, shape.parameters, equal, tuple(ranges), exprs)


def moved(exprs: Sequence[Expr], place: dict[int, int]) -> tuple[Expr, ...]:
    """Return expressions over columns that are elsewhere now."""
    if not {c for e in exprs for c in columns_of(e)} <= place.keys():
        raise NotGroupedError("a parameter is in the select list")
    return tuple(substitute(e, lambda c: Col(c.type, place[c.index])) for e in exprs)
