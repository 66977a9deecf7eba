"""Recognise the templates whose subscriptions can be matched in groups, and plan them.

A template's view is defined by a join of its parameters with its query: a projection of
`Join(parameters, core, keys, residual)`, where a range `x >= :p` is `x >= p OR (p IS NULL AND x IS NOT NULL)`. Any such
plan can be run as an ordinary join. Where every condition on parameters is an equality or a range of something that is
computed from the data alone, it becomes a node of `algebra/logical/match.py` instead; `why` says which, or what was in
the way.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from whence.model.types import BOOLEAN, Schema
from whence.plan.algebra.constructors import columns as every_column
from whence.plan.algebra.constructors import project
from whence.plan.algebra.expressions import Call, Col, Expr, Lit, columns_of, may_fail, substitute
from whence.plan.algebra.logical import (
    Aggregate,
    Distinct,
    Join,
    MatchDistinct,
    MatchLeast,
    MatchRows,
    MatchTop,
    Node,
    Order,
    Project,
    Select,
    TopKPerGroup,
    walk,
)
from whence.plan.algebra.program import Program, Table
from whence.plan.templates.over_streams import over_stream
from whence.plan.templates.pairs import match_pairs
from whence.plan.templates.parts import match_parts
from whence.plan.templates.shapes import NotGroupedError, match_rows, moved, scans, take_apart


@dataclass(frozen=True)
class Recognition:
    """The plan of a template in groups, or None; and what EXPLAIN says of it."""

    plan: Node | None
    why: str


def recognise(plan: Node, parameters: Table, program: Program) -> Recognition:
    """Return the plan of a template's view that matches its subscriptions in groups, if it has such a shape.

    Over a stream the plan stays a join: how that finds subscriptions is decided where it becomes a lookup
    (`streams/lookup_boxes.py`)."""
    said = over_stream(plan, parameters, program)
    if said is not None:
        return Recognition(None, said)
    try:
        found = _recognise(plan, parameters)
    except NotGroupedError as why:
        parts = match_parts(plan, parameters)
        if parts is None:
            return Recognition(None, f"joined with the parameters: {why}")
        found = parts
    matched = next((node for node in walk(found) if isinstance(node, MatchRows | MatchTop)), found)
    return Recognition(found, f"in groups: {matched.describe()}")


def _recognise(plan: Node, parameters: Table) -> Node:
    distinct = plan.input if isinstance(plan, Project) else plan
    if isinstance(distinct, Distinct) and isinstance(distinct.input, Project):
        shown = plan.exprs if isinstance(plan, Project) else every_column(distinct)
        return _match_distinct(plan, distinct.input, tuple(shown), parameters)
    below = plan.input if isinstance(plan, Project) else None
    if isinstance(plan, Project) and isinstance(below, Join) and below.kind == "left":
        return _match_aggregate(plan, below, parameters)
    if isinstance(plan, Project) and isinstance(plan.input, TopKPerGroup):
        return _match_top(plan, plan.input, parameters)
    shape = take_apart(plan, parameters)
    return match_pairs(shape) or match_rows(shape)


def _without_parameters(selected: Project, parameters: Table) -> tuple[Project, dict[int, int]]:
    """Return a selection without the columns that show a parameter, which its id determines; and where the others
    are."""
    width = len(parameters.schema)
    kept = [at for at, e in enumerate(selected.exprs) if not (isinstance(e, Col) and 0 < e.index < width)]
    schema = Schema(tuple(selected.schema.columns[at] for at in kept))
    narrow = Project(schema, selected.input, tuple(selected.exprs[at] for at in kept))
    if not columns_of(narrow.exprs[0]) == {0}:
        raise NotGroupedError("its rows do not begin with the subscription")
    return narrow, {at: n for n, at in enumerate(kept)}


def _points(rows: MatchRows, values: Sequence[Expr]) -> Node | None:
    """Return the data of a selection by one range as [equalities, the range's column, values], or None."""
    if len(rows.ranges) != 1 or any(may_fail(e) or 0 in columns_of(e) for e in values):
        return None
    first = [Col(t, at) for at, t in enumerate(rows.data.schema.types[: len(rows.equal) + 1])]
    return project(rows.data, [*first, *(substitute(e, lambda c: Col(c.type, c.index - 1)) for e in values)])


def _match_distinct(plan: Node, selected: Project, shown: tuple[Expr, ...], parameters: Table) -> Node:
    """The distinct rows of a selection, of which `shown` makes the output."""
    narrow, place = _without_parameters(selected, parameters)
    rows = match_rows(take_apart(narrow, parameters))
    exprs, points = moved(shown, place), _points(rows, rows.exprs[1:])
    if points is None:
        return Project(plan.schema, Distinct(narrow.schema, replace(rows, is_read=True)), exprs)
    return MatchDistinct(plan.schema, points, rows.parameters, rows.equal, rows.ranges[0], exprs)


def _match_top(plan: Project, top: TopKPerGroup, parameters: Table) -> MatchTop:
    """The first rows of a selection in an order: the columns of the data behind the ranges, as they are ordered."""
    if not isinstance(top.input, Project):
        raise NotGroupedError(f"{top.input.describe()} is not a selection or a join")
    narrow, place = _without_parameters(top.input, parameters)
    rows = match_rows(take_apart(narrow, parameters))
    values = rows.exprs[1:]
    if any(may_fail(e) or 0 in columns_of(e) for e in values):
        raise NotGroupedError("a value that is selected can fail")
    if any(o.column not in place for o in top.order):
        raise NotGroupedError("a parameter is ordered by")
    dims = len(rows.equal) + len(rows.ranges)
    order = {place[o.column] - 1: o for o in reversed(top.order)}
    for o in top.order:
        order[place[o.column] - 1] = order.pop(place[o.column] - 1)  # in the order of the terms
    order |= {at: Order(at) for at in range(len(values)) if at not in order}
    first = [Col(t, at) for at, t in enumerate(rows.data.schema.types[:dims])]
    ordered = [substitute(values[at], lambda c: Col(c.type, c.index - 1)) for at in order]
    where = {0: 0} | {top_at: 1 + dims + [*order].index(at - 1) for top_at, at in place.items() if at}
    match top.limit:
        case Lit(value=int(value)):
            limit: int | Col | None = value
        case None | Col():
            limit = top.limit
        case _:
            raise NotGroupedError(f"{top.limit} rows are asked for")
    return MatchTop(
        plan.schema,
        project(rows.data, [*first, *ordered]),
        rows.parameters,
        rows.equal,
        rows.ranges,
        tuple(Order(dims + n, o.descending, o.nulls_first) for n, o in enumerate(order.values())),
        limit,
        top.offset,
        moved(plan.exprs, where),
    )


def _first_value(rows: MatchRows, value: Expr, greatest: bool, schema: Schema) -> MatchTop | None:
    """Return the least or greatest value of a selection by any number of ranges, as its first row."""
    if may_fail(value) or 0 in columns_of(value):
        return None
    dims, own = len(rows.equal) + len(rows.ranges), substitute(value, lambda c: Col(c.type, c.index - 1))
    there = Call(BOOLEAN, "not", (Call(BOOLEAN, "is_null", (own,)),))
    columns = [Col(t, at) for at, t in enumerate(rows.data.schema.types[:dims])]
    data = project(Select(rows.data.schema, rows.data, there), [*columns, own])
    exprs = (Col(schema.types[0], 0), Col(value.type, 1 + dims))
    order = (Order(dims, greatest),)
    return MatchTop(schema, data, rows.parameters, rows.equal, rows.ranges, order, 1, 0, exprs, is_read=True)


def _match_aggregate(plan: Project, padded: Join, parameters: Table) -> Node:
    """One row per subscription: a MIN or MAX over one range, or any aggregates over the rows that are selected."""
    grouped = padded.right
    if not (scans(padded.left, parameters.name) and isinstance(grouped, Aggregate) and grouped.keys == (0,)):
        raise NotGroupedError("its groups are not the subscriptions")
    if not isinstance(grouped.input, Project):
        raise NotGroupedError(f"{grouped.input.describe()} is not a selection or a join")
    narrow, place = _without_parameters(grouped.input, parameters)
    if not {c for agg in grouped.aggs for c in agg.reads} <= place.keys():
        raise NotGroupedError("a parameter is aggregated")
    rows = match_rows(take_apart(narrow, parameters))
    aggs, width = tuple(agg.moved(place.__getitem__) for agg in grouped.aggs), len(padded.left.schema)
    (agg, *others) = aggs
    if agg.function in ("min", "max") and not others and not agg.distinct:
        assert agg.column is not None
        points = _points(rows, [rows.exprs[agg.column]])
        if points is not None and {c for e in plan.exprs for c in columns_of(e)} <= {0, width + 1}:
            exprs, greatest = moved(plan.exprs, {0: 0, width + 1: 1}), agg.function == "max"
            return MatchLeast(plan.schema, points, rows.parameters, rows.equal, rows.ranges[0], exprs, greatest)
        first = _first_value(rows, rows.exprs[agg.column], agg.function == "max", grouped.schema)
        if first is not None:
            return plan.with_inputs([padded.with_inputs([padded.left, first])])
    inner = replace(grouped, input=replace(rows, is_read=True), aggs=aggs)
    return plan.with_inputs([padded.with_inputs([padded.left, inner])])
