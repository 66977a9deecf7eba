"""FROM: tables, views, CTEs, subqueries, VALUES, table functions, and the joins between them.

Items separated by commas are folded apart, each with the joins written after it, and only then crossed, so that an
outer join reaches no further left than its own item. A table function is applied to everything before it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from sqlglot import exp

from whence.model.types import Schema
from whence.plan.algebra.constructors import ONE_ROW, columns, join, label, project
from whence.plan.algebra.expressions import Call, Col, Expr, conjuncts
from whence.plan.algebra.logical import JoinKind, Lateral, Node
from whence.plan.algebra.program import STREAM_FUNCTIONS
from whence.sql.expressions import ExpressionBinder, fit_arguments
from whence.sql.operators import comparable, comparison
from whence.sql.position import did_you_mean, error
from whence.sql.scope import Field, Scope, as_nullable, fields_of, unique_names
from whence.sql.stream_functions import bind_call, check_joined, is_stream_function, named_by
from whence.sql.subqueries import filter_rows, has_subquery
from whence.sql.tick_time import tick_column

if TYPE_CHECKING:
    from whence.sql.queries import QueryBinder


MAX_RELATIONS = 64


@dataclass(frozen=True)
class Bound:
    """A relation in FROM: its plan and the names of its columns."""

    node: Node
    fields: tuple[Field, ...]


def bind_from(binder: QueryBinder, query: exp.Expr, parent: Scope | None) -> Bound:
    """Bind the FROM clause of a SELECT; without one, a single row of no columns."""
    clause = query.args.get("from_")
    if clause is None:
        return Bound(ONE_ROW, ())
    binder.ledger.read(clause, "this")
    return _From(binder, parent).items(clause.this, query.args.get("joins") or [])


@dataclass(frozen=True)
class _From:
    binder: QueryBinder
    parent: Scope | None

    def items(self, first: exp.Expr, joins: Sequence[exp.Expr]) -> Bound:
        if len(joins) >= MAX_RELATIONS:
            raise error(f"a FROM may join {MAX_RELATIONS} relations, not {len(joins) + 1:,}", joins[MAX_RELATIONS - 1])
        before: Bound | None = None
        current = self.item(first, None)
        for step in joins:
            kind = self._kind(step)
            if kind is None:  # a comma
                before = self._crossed(before, current, step)
                if _is_function(step.this):
                    current, before = self.item(step.this, before), None
                else:
                    current = self.item(step.this, None)
            elif _is_function(step.this):
                if kind != "inner":
                    raise error("a table function is joined by a comma, JOIN or CROSS JOIN only", step)
                current, before = self.item(step.this, self._crossed(before, current, step)), None
                current = self._filtered(current, step)
            else:
                current = self._join(current, self.item(step.this, None), kind, step)
        return self._crossed(before, current, joins[-1] if joins else first)

    def item(self, node: exp.Expr, before: Bound | None) -> Bound:
        """Bind one item; a table function appends its columns to those of `before`."""
        alias = node.args.get("alias")
        self.binder.ledger.read(node, "alias", "joins")
        if alias is not None:
            self.binder.ledger.read(alias, "this", "columns")
        relation = alias.this.name.lower() if alias is not None and alias.this is not None else None
        renamed = [c.name.lower() for c in alias.columns] if alias is not None else []
        if _is_function(node):
            return self._function(node, relation, renamed, before or Bound(ONE_ROW, ()))
        if is_stream_function(node):
            self.binder.ledger.read(node, "this")
            plan: Node = bind_call(self.binder, node.this)
            relation = relation or named_by(node.this)
        elif isinstance(node, exp.Table):
            plan = self.binder.relation(node)
            relation = relation or node.name.lower()
        elif isinstance(node, exp.Subquery) and isinstance(node.this, (exp.Table, exp.Subquery)) and not relation:
            self.binder.ledger.read(node, "this")
            inner = self.item(node.this, None)
            return self._nested_joins(inner, node)
        elif isinstance(node, exp.Subquery) and isinstance(node.this, exp.Table):
            self.binder.ledger.read(node, "this")
            inner = self.item(node.this, None)
            visible = [i for i, f in enumerate(inner.fields) if not f.merged]
            names = unique_names(inner.fields[i].name for i in visible)
            plan = project(inner.node, [columns(inner.node)[i] for i in visible], names)
        elif isinstance(node, (exp.Query, exp.Values)):
            plan = self.binder.query(node, self.parent)
            plan = label(plan, relation) if relation else plan
        elif isinstance(node, exp.Lateral):
            raise error("LATERAL is supported for table functions, not for subqueries; use a join", node)
        else:
            raise error("this is not supported in FROM", node)
        tick = tick_column(plan, self.binder.program)
        return self._nested_joins(Bound(plan, fields_of(_renamed(plan.schema, renamed, node), relation, tick)), node)

    def _nested_joins(self, bound: Bound, node: exp.Expr) -> Bound:
        """Bind the joins inside parentheses, which hang on their first item."""
        for step in node.args.get("joins") or []:
            kind = self._kind(step)
            bound = self._join(bound, self.item(step.this, None), kind or "inner", step)
        return bound

    def _function(self, node: exp.Expr, relation: str | None, renamed: list[str], before: Bound) -> Bound:
        call = node.this
        self.binder.ledger.read(node, "this")
        self.binder.ledger.read(call, "this", "expressions")
        name = str(call.this).lower()
        functions = self.binder.program.table_functions
        if name not in functions:
            raise error(f'unknown table function "{name}"{did_you_mean(name, [*functions, *STREAM_FUNCTIONS])}', call)
        function = functions[name]
        scope = Scope(before.fields, self.parent)
        place = ExpressionBinder(self.binder, scope, "a table function's arguments")
        args = fit_arguments(name, [place.bind(a) for a in call.expressions], function.args, call)
        if any(has_subquery(a) for a in args):
            raise error("a subquery cannot be a table function's argument; join with it instead", call)
        returns = _renamed(function.returns, renamed, node)
        schema = Schema(before.node.schema.columns + returns.columns)
        plan = Lateral(schema, before.node, name, function.function, args)
        return Bound(plan, before.fields + fields_of(returns, relation or name))

    def _crossed(self, left: Bound | None, right: Bound, at: exp.Expr) -> Bound:
        if left is None:
            return right
        check_joined(left.node, right.node, "inner", at)
        return Bound(join(left.node, right.node, "inner"), left.fields + right.fields)

    def _kind(self, step: exp.Expr) -> JoinKind | None:
        """Return the kind of a join, None for a comma."""
        self.binder.ledger.read(step, "this", "on", "using", "side", "kind", "method")
        side, kind, method = ((step.args.get(a) or "").upper() for a in ("side", "kind", "method"))
        if method not in ("", "NATURAL") or kind not in ("", "INNER", "OUTER", "CROSS", "SEMI", "ANTI"):
            raise error(f"{method or kind} joins are not supported", step)
        constrained = step.args.get("on") is not None or step.args.get("using") or method == "NATURAL"
        if kind == "CROSS":
            return "inner"
        if not constrained:
            if side or kind:
                raise error("JOIN needs ON or USING; write CROSS JOIN for all pairs", step)
            return None
        if kind in ("SEMI", "ANTI"):
            return "semi" if kind == "SEMI" else "anti"
        kinds: dict[str, JoinKind] = {"LEFT": "left", "RIGHT": "right", "FULL": "full"}
        return kinds.get(side, "inner")

    def _filtered(self, bound: Bound, step: exp.Expr) -> Bound:
        on = step.args.get("on")
        if step.args.get("using") or step.args.get("method"):
            raise error("a table function is joined with ON, not USING or NATURAL", step)
        if on is None:
            return bound
        place = ExpressionBinder(self.binder, Scope(bound.fields, self.parent), "ON")
        return Bound(filter_rows(bound.node, conjuncts(place.condition(on)), on), bound.fields)

    def _join(self, left: Bound, right: Bound, kind: JoinKind, step: exp.Expr) -> Bound:
        check_joined(left.node, right.node, kind, step)
        width = len(left.fields)
        both = left.fields + right.fields
        on, using = step.args.get("on"), [u.name.lower() for u in step.args.get("using") or []]
        if (step.args.get("method") or "").upper() == "NATURAL":
            ours, theirs = ({f.name for f in side.fields if not f.merged} for side in (left, right))
            using = [f.name for f in left.fields if not f.merged and f.name in ours & theirs]
            if not using:
                raise error("NATURAL JOIN of relations without a common column name", step)
        if using:
            pairs = [(self._one(left, u, step), self._one(right, u, step)) for u in using]
            terms = [self._equal(both[a], a, both[width + b], width + b, step) for a, b in pairs]
            return self._merged(left, right, kind, pairs, terms)
        terms = []
        if on is not None:
            place = ExpressionBinder(self.binder, Scope(both, self.parent), "ON")
            terms = conjuncts(place.condition(on))
        if on is not None and any(has_subquery(term) for term in terms):
            if kind != "inner":
                raise error("a subquery in the ON of an outer join is not supported", on)
            crossed = join(left.node, right.node, "inner")
            return Bound(filter_rows(crossed, terms, on), both)
        return self._combined(left, right, kind, terms)

    def _combined(self, left: Bound, right: Bound, kind: JoinKind, terms: Sequence[Expr]) -> Bound:
        node = join(_exact(left), _exact(right), kind, terms)
        if kind in ("semi", "anti"):
            return Bound(node, left.fields)
        ours = as_nullable(left.fields) if kind in ("right", "full") else left.fields
        theirs = as_nullable(right.fields) if kind in ("left", "full") else right.fields
        return Bound(node, ours + theirs)

    def _merged(
        self, left: Bound, right: Bound, kind: JoinKind, pairs: list[tuple[int, int]], terms: Sequence[Expr]
    ) -> Bound:
        """Merge the columns of USING: one for both sides in the place of the left one; the right one needs its table's
        name."""
        bound = self._combined(left, right, kind, terms)
        if kind in ("semi", "anti"):
            return bound
        width = len(left.fields)
        fields = list(bound.fields)
        for _, b in pairs:
            fields[width + b] = replace(fields[width + b], merged=True)
        if kind in ("inner", "left"):
            return Bound(bound.node, tuple(fields))
        exprs = columns(bound.node)
        for a, b in pairs:
            ours, theirs = exprs[a], exprs[width + b]
            both = comparable(ours, theirs, exp.Null())[0]
            exprs.append(ours)
            fields.append(replace(fields[a], merged=True))
            exprs[a] = Call(both[0].type, "coalesce", tuple(both))
            fields[a] = replace(fields[a], relation=None, type=both[0].type)
        return Bound(project(bound.node, exprs, [f.name for f in fields]), tuple(fields))

    def _one(self, side: Bound, name: str, step: exp.Expr) -> int:
        found = Scope(side.fields).find(None, name)
        if len(found) != 1:
            raise error(f'column "{name}" of USING is {"ambiguous" if found else "not"} on one side of the join', step)
        return found[0]

    def _equal(self, a: Field, i: int, b: Field, j: int, step: exp.Expr) -> Expr:
        return comparison("=", Col(a.type, i), Col(b.type, j), step)


def _exact(bound: Bound) -> Node:
    """Project the plan to exactly the columns of its fields (marks of subqueries in ON are dropped)."""
    if len(bound.node.schema) == len(bound.fields):
        return bound.node
    return project(bound.node, columns(bound.node)[: len(bound.fields)])


def _is_function(node: exp.Expr) -> bool:
    if isinstance(node, exp.Lateral):
        return isinstance(node.this, (exp.Anonymous, exp.Func)) and not isinstance(node.this, exp.Subquery)
    return isinstance(node, exp.Table) and isinstance(node.this, exp.Anonymous) and not is_stream_function(node)


def _renamed(schema: Schema, names: list[str], node: exp.Expr) -> Schema:
    if len(names) > len(schema):
        raise error(f"{len(names)} column names are given for {len(schema)} columns", node)
    if not names:
        return schema
    given = [*names, *schema.names[len(names) :]]
    return Schema(tuple(replace(c, name=n) for c, n in zip(schema.columns, given, strict=True)))
