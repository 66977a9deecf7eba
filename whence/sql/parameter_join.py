"""Join a template's query with the table of its parameters: every subscription beside the rows of its answer.

Law: for each row p of the parameter table, the rows of `joined_with` that begin with p's id are the rows of the query
with p's values as its parameters, each as often. The parameter table is joined as late as the query allows. Selections,
projections and inner joins only gather conditions (`_Gathered`: a plan without parameters, and what a row of it must
fulfil beside a row of parameters). Anything else gets the columns of the parameter table in front of its own, and
treats the rows of each subscription apart: they are keys of groups, and part of what DISTINCT and set operations see.

Rows of a stream meet the subscriptions of their time. What is made of them (groups, distinct values, first rows) is of
a row of parameters as it was then, and is shown while that row is there: a subscription that is changed begins anew.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from sqlglot import exp

from whence.model.errors import SqlError
from whence.model.types import BIGINT, BOOLEAN, Column, Schema
from whence.plan.algebra.constructors import columns, distinct, join, project, select
from whence.plan.algebra.expressions import Call, Col, Expr, Lit, conjuncts, shift
from whence.plan.algebra.logical import (
    Aggregate,
    Distinct,
    Join,
    Lateral,
    Node,
    Order,
    Project,
    Scan,
    Select,
    SetOp,
    TopK,
    TopKPerGroup,
    Union,
    walk,
)
from whence.plan.algebra.program import Program, Table, template_name
from whence.plan.streams.networks import gives_stream
from whence.sql.placeholders import Outer, correlation, map_expr, outers_of
from whence.sql.position import error
from whence.sql.scope import unique_names

SUBSCRIPTION = "$id"
"""The first column of the view behind a template: the id of the subscription."""


def joined_with(parameters: Table, plan: Node, at: exp.Expr, program: Program) -> Node:
    """Return the plan of a template's view: the id of each subscription, then the columns of the query."""
    whole, width = _ParameterJoin(parameters, at, program).whole(plan), len(parameters.schema)
    below, exprs = (whole.input, list(whole.exprs)) if isinstance(whole, Project) else (whole, columns(whole))
    names = unique_names([SUBSCRIPTION, *plan.schema.names])
    found = project(below, [exprs[0], *exprs[width:]], names)
    nullable = [False, *(c.nullable for c in plan.schema.columns)]
    made = zip(found.schema.columns, nullable, strict=True)
    return replace(found, schema=Schema(tuple(replace(c, nullable=null) for c, null in made)))


@dataclass
class _Gathered:
    """Rows of `core` for which the conditions hold beside a row of parameters; `outs` and `conds` are over the columns
    of the core, and `Outer`s."""

    core: Node
    outs: list[Expr]
    conds: list[Expr]


@dataclass(frozen=True)
class _ParameterJoin:
    parameters: Table
    at: exp.Expr
    program: Program

    @property
    def _width(self) -> int:
        return len(self.parameters.schema)

    @property
    def _scan(self) -> Node:
        return Scan(self.parameters.schema, self.parameters.name)

    def whole(self, plan: Node) -> Node:
        """Return a query with the columns of the parameter table in front; of what is made of a stream's rows only the
        answers of subscriptions that are there as they were then."""
        found = self.apart(plan)
        joins = [node for node in walk(found) if isinstance(node, Join) and node.left == self._scan]
        if self._is_stream(found) or not any(self._is_stream(join) for join in joins if join.kind == "inner"):
            return found
        joined = join(self._scan, found, "inner", self._same_parameters(found))
        return project(joined, columns(joined)[self._width :], found.schema.names)

    def _same_parameters(self, other: Node) -> list[Expr]:
        """Return the conditions that rows of the parameter table and the first columns of another node are the same."""
        pairs = [(a, shift(b, self._width)) for a, b in zip(columns(self._scan), columns(other), strict=False)]
        return [Call(BOOLEAN, "is_not_distinct" if n else "=", pair) for n, pair in enumerate(pairs)]

    def _is_stream(self, node: Node) -> bool:
        try:
            return gives_stream(node, self.program, template_name(self.parameters.name))
        except SqlError:  # said where the whole view is planned
            return False

    def apart(self, node: Node) -> Node:
        """Return the plan with the columns of the parameter table in front, each subscription's rows apart."""
        gathered = self._gather(node)
        if gathered is None:
            return self._split(node)
        joined = join(self._scan, gathered.core, "inner", [self._across(cond) for cond in gathered.conds])
        outs = [self._across(e) for e in gathered.outs]
        names = [*self.parameters.schema.names, *node.schema.names]
        return project(joined, [*columns(joined)[: self._width], *outs], names)

    # -- conditions that are gathered

    def _gather(self, node: Node) -> _Gathered | None:
        if not correlation(node):
            return _Gathered(node, columns(node), [])
        match node:
            case Project():
                below = self._gather(node.input)
                if below is not None:
                    below.outs = [_over(e, below.outs) for e in node.exprs]
                return below
            case Select():
                below = self._gather(node.input)
                if below is not None:
                    terms = [_over(term, below.outs) for term in conjuncts(node.predicate)]
                    below.core = select(below.core, [term for term in terms if not outers_of(term)])
                    below.conds += [term for term in terms if outers_of(term)]
                return below
            case Join(kind="inner"):
                return self._gather_join(node)
        return None

    def _gather_join(self, node: Join) -> _Gathered | None:
        left, right = self._gather(node.left), self._gather(node.right)
        if left is None or right is None:
            return None
        width = len(left.core.schema)
        outs = left.outs + [shift(e, width) for e in right.outs]
        terms: list[Expr] = [Call(BOOLEAN, "=", (outs[a], outs[len(left.outs) + b])) for a, b in node.keys]
        terms += [_over(term, outs) for term in conjuncts(node.residual)]
        conds = left.conds + [shift(cond, width) for cond in right.conds] + [t for t in terms if outers_of(t)]
        core = join(left.core, right.core, "inner", [term for term in terms if not outers_of(term)])
        return _Gathered(core, outs, conds)

    # -- everything else

    def _split(self, node: Node) -> Node:
        width, schema = self._width, Schema((*self.parameters.schema.columns, *node.schema.columns))
        match node:
            case Project():
                below = self.apart(node.input)
                exprs = [*columns(below)[:width], *(self._across(e) for e in node.exprs)]
                return project(below, exprs, schema.names)
            case Select():
                return select(self.apart(node.input), [self._across(t) for t in conjuncts(node.predicate)])
            case Distinct():
                return distinct(self.apart(node.input))
            case Union():
                return Union(schema, tuple(self.apart(branch) for branch in node.branches))
            case SetOp():
                return SetOp(schema, self.apart(node.left), self.apart(node.right), node.kind, node.all)
            case Lateral():
                args = tuple(self._across(e) for e in node.args)
                return Lateral(schema, self.apart(node.input), node.name, node.function, args)
            case Aggregate():
                return self._aggregate(node, schema)
            case Join():
                return self._join(node)
            case TopK() | TopKPerGroup():
                return self._first_of_each(node, schema)
        raise error(
            "a parameter cannot stand inside a window or a sort of a stream; make a view of that, and read the view",
            self.at,
        )

    def _first_of_each(self, node: TopK | TopKPerGroup, schema: Schema) -> Node:
        """The first rows of each subscription. Its parameters are equal in all of them, so they order nothing."""
        order = tuple(Order(self._width + o.column, o.descending, o.nulls_first) for o in node.order)
        limit: Expr | None = Lit(BIGINT, node.limit) if isinstance(node.limit, int) else node.limit
        limit = None if limit is None else self._across(limit)
        return TopKPerGroup(schema, self.apart(node.input), tuple(range(self._width)), order, limit, node.offset)

    def _aggregate(self, node: Aggregate, schema: Schema) -> Node:
        width, below = self._width, self.apart(node.input)
        aggs = tuple(a.moved(lambda column: column + width) for a in node.aggs)
        if node.keys:
            return Aggregate(schema, below, (*range(width), *(width + k for k in node.keys)), aggs)
        keys = width if self._is_stream(below) else 1  # of a relation the id determines the others
        own = (Column(SUBSCRIPTION, below.schema.types[0], nullable=False), *below.schema.columns[1:keys])
        found = Aggregate(Schema((*own, *node.schema.columns)), below, tuple(range(keys)), aggs)
        padded = join(self._scan, found, "left", self._same_parameters(found)[:keys])
        values: list[Expr] = []
        for i, agg in enumerate(aggs):
            value: Expr = Col(found.schema.types[keys + i], width + keys + i)
            zero = Lit(value.type, 0)
            values.append(Call(value.type, "coalesce", (value, zero)) if agg.function == "count" else value)
        return project(padded, [*columns(padded)[:width], *values], schema.names)

    def _join(self, node: Join) -> Node:
        """Join sides of which one has parameters below something that cannot be gathered, or whose kind is not inner.

        A side that is answered for without a partner needs the rows of every subscription, and so does one that has
        parameters; where both do, rows meet by subscription."""
        width, names = self._width, node.schema.names
        right_apart = bool(correlation(node.right)) or node.kind in ("right", "full")
        left = self.apart(node.left)
        right = self.apart(node.right) if right_apart else node.right
        lead = width if right_apart else 0
        ours = len(node.left.schema)

        def moved(e: Expr) -> Expr | None:
            if isinstance(e, Outer):
                return Col(e.type, e.index)
            if isinstance(e, Col):
                return Col(e.type, width + e.index + (lead if e.index >= ours else 0))
            return None

        terms: list[Expr] = []
        if right_apart:
            own = columns(left)[0]
            terms.append(Call(BOOLEAN, "=", (own, Col(own.type, len(left.schema)))))
        for a, b in node.keys:
            pair = (columns(left)[width + a], shift(columns(right)[lead + b], len(left.schema)))
            terms.append(Call(BOOLEAN, "=", pair))
        terms += [map_expr(term, moved) for term in conjuncts(node.residual)]
        found = join(left, right, node.kind, terms)
        if not right_apart or node.kind in ("semi", "anti"):
            return found
        own_columns = columns(found)
        second = own_columns[len(left.schema) : len(left.schema) + width]
        head: Sequence[Expr] = own_columns[:width]
        if node.kind in ("right", "full"):
            head = [Call(a.type, "coalesce", (a, b)) for a, b in zip(head, second, strict=True)]
        rest = own_columns[width : len(left.schema)] + own_columns[len(left.schema) + width :]
        if node.kind == "mark":
            rest = own_columns[width:]
            head = own_columns[:width]
        return project(found, [*head, *rest], [*self.parameters.schema.names, *names])

    def _across(self, expr: Expr) -> Expr:
        """Rewrite an expression over columns and parameters as one over a row of parameters, then the columns."""

        def change(e: Expr) -> Expr | None:
            if isinstance(e, Outer):
                return Col(e.type, e.index)
            return Col(e.type, e.index + self._width) if isinstance(e, Col) else None

        return map_expr(expr, change)


def _over(expr: Expr, outs: Sequence[Expr]) -> Expr:
    """Rewrite an expression over a query's columns as one over its core's."""

    def change(e: Expr) -> Expr | None:
        if not isinstance(e, Col):
            return None
        out = outs[e.index]
        return Col(e.type, out.index) if isinstance(out, Col) else out

    return map_expr(expr, change)
