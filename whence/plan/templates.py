"""Recognise the templates whose subscriptions can be matched in groups, and plan them.

A template's view is defined by a join of its parameters with its query: a projection of
`Join(parameters, core, keys, residual)`, where a range `x >= :p` is `x >= p OR (p IS NULL AND x IS NOT NULL)`. Any such
plan can be run as an ordinary join. Where every condition on parameters is an equality or a range of something that is
computed from the data alone, it becomes a node of `algebra/logical/match.py` instead; `why` says which, or what was in
the way.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from whence.model.types import BOOLEAN, Kind, Schema, Type
from whence.plan.algebra.constructors import columns as every_column
from whence.plan.algebra.constructors import project
from whence.plan.algebra.expressions import Call, Col, Expr, Lit, columns_of, conjuncts, may_fail, substitute
from whence.plan.algebra.logical import (
    Aggregate,
    Distinct,
    Join,
    MatchDistinct,
    MatchLeast,
    MatchPairs,
    MatchRows,
    MatchTop,
    Node,
    Order,
    Project,
    Range,
    Scan,
    Select,
    Side,
    TopKPerGroup,
    walk,
)
from whence.plan.algebra.multiway_join import flatten_joins
from whence.plan.algebra.program import Program, Table
from whence.plan.streams.networks import streams_of

_FLIPPED = {">=": "<=", ">": "<", "<=": ">=", "<": ">"}


@dataclass(frozen=True)
class Recognition:
    """The plan of a template in groups, or None; and what EXPLAIN says of it."""

    plan: Node | None
    why: str


@dataclass(frozen=True)
class Comparison:
    """`value op parameter`, where the value is computed from the data and a NULL parameter is no bound."""

    value: Expr
    op: str
    parameter: int


class _NotGroupedError(Exception):
    """The shape is not one that is matched in groups; says why."""


def recognise(plan: Node, parameters: Table, program: Program) -> Recognition:
    """Return the plan of a template's view that matches its subscriptions in groups, if it has such a shape."""
    try:
        found = _recognise(plan, parameters, program)
    except _NotGroupedError as why:
        return Recognition(None, f"joined with the parameters: {why}")
    matched = next((node for node in walk(found) if isinstance(node, MatchRows | MatchTop)), found)
    return Recognition(found, f"in groups: {matched.describe()}")


def _recognise(plan: Node, parameters: Table, program: Program) -> Node:
    distinct = plan.input if isinstance(plan, Project) else plan
    if isinstance(distinct, Distinct) and isinstance(distinct.input, Project):
        shown = plan.exprs if isinstance(plan, Project) else every_column(distinct)
        return _match_distinct(plan, distinct.input, tuple(shown), parameters, program)
    if isinstance(plan, Project) and isinstance(plan.input, Join) and isinstance(plan.input.right, Aggregate):
        return _match_aggregate(plan, plan.input, plan.input.right, parameters, program)
    if isinstance(plan, Project) and isinstance(plan.input, TopKPerGroup):
        return _match_top(plan, plan.input, parameters, program)
    shape = _take_apart(plan, parameters, program)
    return _match_pairs(shape) or _match_rows(shape)


def _take_apart(plan: Node, parameters: Table, program: Program) -> _Shape:
    """Read a projection of the parameters joined with a query."""
    if not isinstance(plan, Project):
        raise _NotGroupedError(f"{plan.describe()} is not a selection or a join")
    join = plan.input
    if not (isinstance(join, Join) and join.kind == "inner" and _scans(join.left, parameters.name)):
        raise _NotGroupedError(f"{join.describe()} is not a selection or a join")
    core, width = join.right, len(join.left.schema)
    if {name for node in walk(core) for name in node.names} & streams_of(program):
        raise _NotGroupedError("its rows come from a stream, and meet the subscriptions of their time")
    for expr in plan.exprs:
        if any(0 < column < width for column in columns_of(expr)):
            raise _NotGroupedError("a parameter is in the select list")
    comparisons = [_comparison(test, width) for test in conjuncts(join.residual)]
    exprs = [substitute(e, lambda c: c if c.index == 0 else Col(c.type, c.index - width + 1)) for e in plan.exprs]
    equal = [(column, parameter) for parameter, column in join.keys]
    return _Shape(plan, join.left, core, equal, comparisons, exprs)


@dataclass(frozen=True)
class _Shape:
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


@dataclass
class _SidePlan:
    """What is asked of one source of a join, whose columns begin at `start`."""

    source: Node
    start: int
    tests: list[Expr] = field(default_factory=list)
    equal: list[tuple[int, int]] = field(default_factory=list)
    comparisons: list[Comparison] = field(default_factory=list)

    def planned(self, keys: list[int], lead: Expr | None, shown: set[int]) -> tuple[Node, Side, dict[int, int]]:
        """Return the rows in the order of columns that a Side says, and where the columns are that are shown."""
        types = self.source.schema.types

        def own(expr: Expr) -> Expr:
            return substitute(expr, lambda c: Col(c.type, c.index - self.start))

        node = self.source
        for test in self.tests:
            node = Select(node.schema, node, own(test))
        values, ranges = pair_bounds(self.comparisons, 0)
        first, rest = None, list(zip(values, ranges, strict=True))
        if lead is None and rest:
            (lead, first), *rest = rest
        if lead is None:
            lead = Col(types[keys[0] - self.start], keys[0])
        columns = [key - self.start for key in keys]
        layout: list[Expr] = [Col(types[c], c) for c in columns]
        layout.append(own(lead))
        layout += [Col(types[at - self.start], at - self.start) for at, _ in self.equal]
        after = len(layout)
        layout += [own(value) for value, _ in rest]
        needed = {c - self.start for c in shown if 0 <= c - self.start < len(types)}
        data, place = lay_out(node, layout, needed)
        side = Side(
            tuple(parameter for _, parameter in self.equal),
            replace(first, column=len(keys)) if first is not None else None,
            tuple(replace(one, column=after + n) for n, (_, one) in enumerate(rest)),
        )
        return data, side, {c + self.start: place(c) for c in needed}


def _match_rows(shape: _Shape) -> MatchRows:
    """The parameters are compared with the rows of the query without them."""
    values, ranges = pair_bounds(shape.comparisons, len(shape.equal))
    layout = [Col(shape.core.schema.types[column], column) for column, _ in shape.equal] + values
    data, place = lay_out(shape.core, layout, shape.shown)
    exprs = tuple(
        substitute(e, lambda c: c if c.index == 0 else Col(c.type, 1 + place(c.index - 1))) for e in shape.exprs
    )
    equal = tuple(parameter for _, parameter in shape.equal)
    return MatchRows(shape.plan.schema, data, shape.parameters, equal, tuple(ranges), exprs)


def _match_pairs(shape: _Shape) -> MatchPairs | None:
    """The query is a join of two relations by equal columns or by a band, and everything else is of one of them."""
    joined = flatten_joins(shape.core)
    if len(joined.sources) != 2 or any(may_fail(test) for test in joined.tests):
        return None
    width = len(joined.sources[0].schema)

    def below(expr: Expr) -> Expr:
        """Over the columns of both sources, side by side."""
        return substitute(expr, lambda c: Col(c.type, joined.out[c.index]))

    keys = [(min(members), next(c for c in members if c >= width)) for members in joined.classes]
    same = {c: key for key in keys for c in key}
    sides = [_SidePlan(source, start) for source, start in zip(joined.sources, (0, width), strict=True)]
    for test in joined.tests:
        side = _side_of(test, sides)
        if side is None:
            return None
        side.tests.append(test)
    for column, parameter in shape.equal:
        for at in same.get(joined.out[column], (joined.out[column],)):  # what equals a key is known of both sides
            sides[at >= width].equal.append((at, parameter))
    bands: list[Comparison] = []
    for one in shape.comparisons:
        value = below(one.value)
        side = _side_of(value, sides)
        if side is not None:
            side.comparisons.append(Comparison(value, one.op, one.parameter))
        elif (band := _band(Comparison(value, one.op, one.parameter), width)) is not None:
            bands.append(band)
        else:
            return None
    found = pair_bounds(bands, len(keys)) if bands else ([], [])
    if len(found[1]) > 1 or not (keys or bands):
        return None
    leads = found[0][0].children if bands else (None, None)
    shown = {joined.out[c] for c in shape.shown}
    planned = [
        side.planned([key[n] for key in keys], lead, shown)
        for n, (side, lead) in enumerate(zip(sides, reversed(leads), strict=True))
    ]
    (left, left_side, places), (right, right_side, more) = planned
    places |= {column: len(left.schema) + at for column, at in more.items()}
    exprs = tuple(
        substitute(e, lambda c: c if c.index == 0 else Col(c.type, 1 + places[joined.out[c.index - 1]]))
        for e in shape.exprs
    )
    band_range = found[1][0] if bands else None
    both = (left_side, right_side)
    return MatchPairs(shape.plan.schema, left, right, shape.parameters, len(keys), both, band_range, exprs)


def _side_of(expr: Expr, sides: Sequence[_SidePlan]) -> _SidePlan | None:
    """Return the side that has all columns of an expression."""
    columns = columns_of(expr)
    return next((s for s in sides if all(0 <= c - s.start < len(s.source.schema) for c in columns)), None)


def _band(one: Comparison, width: int) -> Comparison | None:
    """Read a comparison of `right - left`, or of `left - right` turned round; None if it is another one."""
    match one.value:
        case Call(op="-", args=(a, b)) if _differs(one.value):
            if all(c >= width for c in columns_of(a)) and all(c < width for c in columns_of(b)):
                return one
    return None


def _differs(value: Call) -> bool:
    """Whether a difference is that of the codes, or of the doubles, of its arguments."""
    kinds = {arg.type.kind for arg in value.args}
    if kinds == {Kind.DOUBLE}:
        return value.type.kind is Kind.DOUBLE
    if any(arg.type.is_wide for arg in value.args) or value.type.is_wide:
        return False
    if kinds == {Kind.DECIMAL}:
        return len({(arg.type.scale) for arg in (*value.args, value)}) == 1
    return value.type.is_integer and all(arg.type.is_integer or arg.type.kind is Kind.DATE for arg in value.args)


def _without_parameters(selected: Project, parameters: Table) -> tuple[Project, dict[int, int]]:
    """Return a selection without the columns that show a parameter, which its id determines; and where the others
    are."""
    width = len(parameters.schema)
    kept = [at for at, e in enumerate(selected.exprs) if not (isinstance(e, Col) and 0 < e.index < width)]
    schema = Schema(tuple(selected.schema.columns[at] for at in kept))
    narrow = Project(schema, selected.input, tuple(selected.exprs[at] for at in kept))
    if not columns_of(narrow.exprs[0]) == {0}:
        raise _NotGroupedError("its rows do not begin with the subscription")
    return narrow, {at: n for n, at in enumerate(kept)}


def _moved(exprs: Sequence[Expr], place: dict[int, int]) -> tuple[Expr, ...]:
    if not {c for e in exprs for c in columns_of(e)} <= place.keys():
        raise _NotGroupedError("a parameter is in the select list")
    return tuple(substitute(e, lambda c: Col(c.type, place[c.index])) for e in exprs)


def _points(rows: MatchRows, values: Sequence[Expr]) -> Node | None:
    """Return the data of a selection by one range as [equalities, the range's column, values], or None."""
    if len(rows.ranges) != 1 or any(may_fail(e) or 0 in columns_of(e) for e in values):
        return None
    first = [Col(t, at) for at, t in enumerate(rows.data.schema.types[: len(rows.equal) + 1])]
    return project(rows.data, [*first, *(substitute(e, lambda c: Col(c.type, c.index - 1)) for e in values)])


def _match_distinct(
    plan: Node, selected: Project, shown: tuple[Expr, ...], parameters: Table, program: Program
) -> Node:
    """The distinct rows of a selection, of which `shown` makes the output."""
    narrow, place = _without_parameters(selected, parameters)
    rows = _match_rows(_take_apart(narrow, parameters, program))
    exprs, points = _moved(shown, place), _points(rows, rows.exprs[1:])
    if points is None:
        return Project(plan.schema, Distinct(narrow.schema, replace(rows, is_read=True)), exprs)
    return MatchDistinct(plan.schema, points, rows.parameters, rows.equal, rows.ranges[0], exprs)


def _match_top(plan: Project, top: TopKPerGroup, parameters: Table, program: Program) -> MatchTop:
    """The first rows of a selection in an order: the columns of the data behind the ranges, as they are ordered."""
    if not isinstance(top.input, Project):
        raise _NotGroupedError(f"{top.input.describe()} is not a selection or a join")
    narrow, place = _without_parameters(top.input, parameters)
    rows = _match_rows(_take_apart(narrow, parameters, program))
    values = rows.exprs[1:]
    if any(may_fail(e) or 0 in columns_of(e) for e in values):
        raise _NotGroupedError("a value that is selected can fail")
    if any(o.column not in place for o in top.order):
        raise _NotGroupedError("a parameter is ordered by")
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
            raise _NotGroupedError(f"{top.limit} rows are asked for")
    return MatchTop(
        plan.schema,
        project(rows.data, [*first, *ordered]),
        rows.parameters,
        rows.equal,
        rows.ranges,
        tuple(Order(dims + n, o.descending, o.nulls_first) for n, o in enumerate(order.values())),
        limit,
        top.offset,
        _moved(plan.exprs, where),
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


def _match_aggregate(plan: Project, padded: Join, grouped: Aggregate, parameters: Table, program: Program) -> Node:
    """One row per subscription: a MIN or MAX over one range, or any aggregates over the rows that are selected."""
    if not (padded.kind == "left" and _scans(padded.left, parameters.name) and grouped.keys == (0,)):
        raise _NotGroupedError("its groups are not the subscriptions")
    if not isinstance(grouped.input, Project):
        raise _NotGroupedError(f"{grouped.input.describe()} is not a selection or a join")
    narrow, place = _without_parameters(grouped.input, parameters)
    if not {c for agg in grouped.aggs for c in agg.reads} <= place.keys():
        raise _NotGroupedError("a parameter is aggregated")
    rows = _match_rows(_take_apart(narrow, parameters, program))
    aggs, width = tuple(agg.moved(place.__getitem__) for agg in grouped.aggs), len(padded.left.schema)
    (agg, *others) = aggs
    if agg.function in ("min", "max") and not others and not agg.distinct:
        assert agg.column is not None
        points = _points(rows, [rows.exprs[agg.column]])
        if points is not None and {c for e in plan.exprs for c in columns_of(e)} <= {0, width + 1}:
            exprs, greatest = _moved(plan.exprs, {0: 0, width + 1: 1}), agg.function == "max"
            return MatchLeast(plan.schema, points, rows.parameters, rows.equal, rows.ranges[0], exprs, greatest)
        first = _first_value(rows, rows.exprs[agg.column], agg.function == "max", grouped.schema)
        if first is not None:
            return plan.with_inputs([padded.with_inputs([padded.left, first])])
    inner = replace(grouped, input=replace(rows, is_read=True), aggs=aggs)
    return plan.with_inputs([padded.with_inputs([padded.left, inner])])


def lay_out(node: Node, first: Sequence[Expr], needed: set[int]) -> tuple[Node, Callable[[int], int]]:
    """Return a plan of some expressions of a node, then those of its columns that are needed beside them; and where
    each of these is."""
    for expr in first:
        check_type(expr.type)
        if may_fail(expr):
            raise _NotGroupedError(f"{expr} can fail")
    there = {expr.index: at for at, expr in reversed(list(enumerate(first))) if isinstance(expr, Col)}
    more = sorted(needed - there.keys())
    place = there | {column: len(first) + at for at, column in enumerate(more)}
    columns = [Col(node.schema.types[c], c) for c in more]
    return project(node, [*first, *columns]), place.__getitem__


def check_type(type: Type) -> None:
    """Refuse a type that does not order by its codes or the dictionary's labels."""
    if type.kind in (Kind.INTERVAL, Kind.NULL):
        raise _NotGroupedError(f"a value of type {type} is compared")


def pair_bounds(comparisons: Sequence[Comparison], start: int) -> tuple[list[Expr], list[Range]]:
    """Return the values that are compared, one a column from `start` on, with their ranges: a low and a high end of one
    value are one range."""
    values: list[Expr] = []
    ranges: list[Range] = []
    waiting: dict[tuple[Expr, bool], int] = {}  # a value without that end, and its range
    for one in comparisons:
        is_low = one.op in (">", ">=")
        at = waiting.pop((one.value, is_low), None)
        if at is None:
            at = len(ranges)
            values.append(one.value)
            ranges.append(Range(start + at, None, None))
            waiting[one.value, not is_low] = at
        old, is_open = ranges[at], one.op in ("<", ">")
        if is_low:
            ranges[at] = Range(old.column, one.parameter, old.high, is_open, old.open_high)
        else:
            ranges[at] = Range(old.column, old.low, one.parameter, old.open_low, is_open)
    return values, ranges


def _comparison(test: Expr, width: int) -> Comparison:
    """Read `x >= p OR (p IS NULL AND x IS NOT NULL)`, where x is over columns from `width` on."""
    match test:
        case Call(op="or", args=(Call(op=op, args=(a, b)) as compared, rest)) if op in _FLIPPED:
            if isinstance(a, Col) and a.index < width:
                a, b, op = b, a, _FLIPPED[op]
            if isinstance(b, Col) and b.index < width and all(c >= width for c in columns_of(a)):
                if not columns_of(a):
                    raise _NotGroupedError(f"{compared} compares no data")
                if rest == _no_bound(a, b):
                    return Comparison(substitute(a, lambda c: Col(c.type, c.index - width)), op, b.index)
    raise _NotGroupedError(f"the condition {test} is neither an equality nor a range of data")


def _no_bound(value: Expr, parameter: Expr) -> Expr:
    """The condition under which a NULL parameter lets a value pass."""
    unbounded, missing = (Call(BOOLEAN, "is_null", (e,)) for e in (parameter, value))
    return Call(BOOLEAN, "and", (unbounded, Call(BOOLEAN, "not", (missing,))))


def _scans(node: Node, table: str) -> bool:
    return isinstance(node, Scan) and node.table == table
