"""Queries: SELECT, set operations, VALUES and WITH, over the relations that a name may mean.

A `Session` is the work of binding one batch of statements. Views whose schema is not known yet raise
`UnresolvedError`; a set operation bound `provisional`ly leaves out the branches that do, which is how the schema of a
recursive view is found from its non-recursive branches.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from sqlglot import exp

from whence.model import types as t
from whence.model.types import Column, Kind, Schema, Type
from whence.plan.algebra.constructors import ONE_ROW, columns, distinct, label, project, relabel
from whence.plan.algebra.expressions import Expr, Lit
from whence.plan.algebra.logical import Distinct, Node, Project, Ref, Scan, SetOp, TopK, Union, Values
from whence.plan.algebra.program import Program, Table
from whence.sql.expressions import ExpressionBinder
from whence.sql.ledger import Ledger, refuse_others
from whence.sql.limits import check_size
from whence.sql.ordering import order_set
from whence.sql.placeholders import correlation
from whence.sql.position import did_you_mean, error
from whence.sql.scope import Scope
from whence.sql.select import bind_select
from whence.sql.subqueries import attach
from whence.sql.types import coerce, common_type

_OUTSIDE = ("with_", "order", "limit", "offset")  # what may stand around a query in parentheses
_COMBINING = ("this", "expression", "distinct")  # of a set operation


class UnresolvedError(Exception):
    """A reference to a view whose schema is not known yet."""


@dataclass
class UnboundView:
    """A view being bound: its query, the binder to bind it with, and the names given to its columns."""

    query: exp.Expr
    binder: QueryBinder
    columns: tuple[str, ...] | None
    owner: str | None = None
    options: tuple[tuple[str, str], ...] = ()
    parameters: Table | None = None  # of a template


@dataclass
class Session:
    """The views being bound together, and their schemas as far as they are known."""

    pending: dict[str, UnboundView] = field(default_factory=dict)
    schemas: dict[str, Schema | None] = field(default_factory=dict)
    provisional: bool = False
    hidden: dict[int, str] = field(default_factory=dict)  # id of a CTE's tree -> name of its view
    current: str | None = None  # the view being bound, for messages
    ledger: Ledger = field(default_factory=Ledger)


@dataclass
class Cte:
    """A plain CTE: bound when first used, and again when the views it may read have changed; inlined."""

    tree: exp.Expr
    binder: QueryBinder
    plan: Node | None = None
    bound_with: tuple[bool, dict[str, Schema | None]] | None = None


@dataclass(frozen=True)
class QueryBinder:
    """The binder of queries: the program, the session, and the CTEs in sight (a plain one, or the view of a recursive
    one).

    `stored` says that the query was accepted by the version of Whence that stored it. That one may have skipped what is
    refused today, and the view must still open: what says nothing in a view is then left unbound and unchecked.
    """

    program: Program
    session: Session
    owner: str = "query"
    ctes: dict[str, Cte | str] = field(default_factory=dict)
    stored: bool = False
    parameters: Scope | None = None  # around the whole query, of a template

    @property
    def ledger(self) -> Ledger:
        """The parts of the statements that have been read."""
        return self.session.ledger

    def check_read(self, tree: exp.Expr) -> None:
        """Refuse what binding the tree has not read."""
        if not self.stored:
            self.ledger.check(tree)

    def query(self, tree: exp.Expr, parent: Scope | None, keep_order: bool = False) -> Node:
        """Bind a query; `parent` is the scope of the query around it, if it may see that."""
        plan = self._query(tree, parent if parent is not None else self.parameters, keep_order)
        check_size(plan, tree)
        return plan

    def _query(self, tree: exp.Expr, parent: Scope | None, keep_order: bool) -> Node:
        binder = self._with(tree)
        plan = binder._body(tree, parent, keep_order)
        if binder is not self:
            binder._bind_unused(tree.args["with_"])
        return plan

    def _body(self, tree: exp.Expr, parent: Scope | None, keep_order: bool) -> Node:
        """Bind a query whose WITH is already in this binder."""
        if isinstance(tree, exp.Select):
            return bind_select(self, tree, parent, keep_order)
        if isinstance(tree, exp.SetOperation):
            return order_set(self, tree, self._set_operation(tree, parent), keep_order)
        if isinstance(tree, exp.Values):
            return order_set(self, tree, self._values(tree, parent), keep_order)
        if isinstance(tree, exp.Subquery):
            refuse_others(tree, "this", "alias", "joins", *_OUTSIDE)
            self.ledger.read(tree, "this", *_OUTSIDE)
            if not any(tree.args.get(arg) for arg in _OUTSIDE[1:]):
                return self._query(tree.this, parent, keep_order)
            return order_set(self, tree, self.query(tree.this, parent), keep_order)
        if isinstance(tree, exp.Table):
            return self.relation(tree)
        if isinstance(tree, exp.DML):
            raise error("INSERT, UPDATE, DELETE and MERGE cannot stand inside a query", tree)
        raise error("expected a query", tree)

    def _bind_unused(self, clause: exp.Expr) -> None:
        """Bind the CTEs of a WITH that the query after it does not read, so that nothing in them goes unseen."""
        for cte in [] if self.stored else clause.expressions:
            known = self.ctes[cte.alias.lower()]
            if isinstance(known, Cte) and known.plan is None:
                try:
                    self._cte(known)
                except UnresolvedError:
                    if not self.session.provisional:
                        raise

    def subquery(self, query: exp.Expr, scope: Scope) -> Node:
        """Bind a subquery inside an expression."""
        return self.query(query, scope)

    def test(self, query: exp.Expr, scope: Scope) -> Node | None:
        """Bind a subquery that is only tested; None while it is not known and only a schema is asked for."""
        try:
            return self.query(query, scope)
        except UnresolvedError:
            if not self.session.provisional:
                raise
            return None

    # -- relations

    def relation(self, node: exp.Expr) -> Node:
        """Resolve a name in FROM: a CTE, a view or a table."""
        name = node.name.lower()
        if node.args.get("db") is not None:
            raise error("names have no schema or catalog part", node)
        self.ledger.read(node, "this")
        if name in self.ctes:
            return self._cte(self.ctes[name])
        if name in self.session.schemas and not self.session.pending[name].owner:
            return self._ref(name)
        if name in self.program.views and not self.program.views[name].hidden:
            return Ref(self.program.views[name].schema, name)
        if name in self.program.tables:
            return Scan(self.program.tables[name].schema, name)
        views = [n for n, v in self.program.views.items() if not v.hidden]
        pending = [n for n, p in self.session.pending.items() if p.owner is None]
        known = [*self.ctes, *self.program.tables, *views, *pending]
        raise error(f'unknown table or view "{name}"{did_you_mean(name, known)}', node)

    def options_of(self, view: str) -> tuple[tuple[str, str], ...]:
        """Return the options of a view that `relation` has found."""
        pending = self.session.pending.get(view)
        return pending.options if pending is not None else self.program.views[view].options

    def _ref(self, view: str) -> Node:
        schema = self.session.schemas[view]
        if schema is None:
            raise UnresolvedError(view)
        return Ref(schema, view)

    def _cte(self, cte: Cte | str) -> Node:
        if isinstance(cte, str):
            return self._ref(cte)
        session = self.session
        if cte.plan is None or cte.bound_with != (session.provisional, session.schemas):
            names = [c.name.lower() for c in cte.tree.args["alias"].columns]
            plan = rename_columns(cte.binder.query(cte.tree.this, None), names, cte.tree)
            cte.plan = label(plan, cte.tree.alias.lower())
            cte.bound_with = (session.provisional, dict(session.schemas))
        return cte.plan

    def _with(self, tree: exp.Expr) -> QueryBinder:
        """Return a binder that also sees the CTEs of the query's WITH."""
        clause = tree.args.get("with_")
        if clause is None:
            return self
        self.ledger.read(clause, "expressions", "recursive")
        for cte in clause.expressions:
            self.ledger.read(cte, "this", "alias", "materialized")
            self.ledger.read(cte.args["alias"], "this", "columns")
        recursive = _recursive(clause) if clause.args.get("recursive") else set()
        env: dict[str, Cte | str] = dict(self.ctes)
        names = [cte.alias.lower() for cte in clause.expressions]
        for at, name in enumerate(names):
            if name in names[:at] and not self.stored:
                raise error(f'WITH defines "{name}" twice', clause.expressions[at])
        inner = replace(self, ctes=env)
        for cte in clause.expressions:
            if cte.alias.lower() in recursive:
                env[cte.alias.lower()] = self._hidden(cte, inner)
        for cte in clause.expressions:
            name = cte.alias.lower()
            if name not in recursive:
                env[name] = Cte(cte, replace(self, ctes=dict(env) if not recursive else env))
        return inner

    def _hidden(self, cte: exp.Expr, binder: QueryBinder) -> str:
        """Return the hidden view that stands for a recursive CTE."""
        session = self.session
        name = session.hidden.get(id(cte))
        if name is None:
            base = f"{self.owner}${cte.alias.lower()}"
            name, count = base, 1
            while name in session.pending or name in self.program.views or name in self.program.tables:
                count += 1
                name = f"{base}_{count}"
            session.hidden[id(cte)] = name
            session.schemas[name] = None
        given = tuple(c.name.lower() for c in cte.args["alias"].columns) or None
        binder = replace(binder, parameters=None)
        session.pending[name] = UnboundView(cte.this, binder, given, self.owner)
        return name

    # -- set operations

    def _set_operation(self, tree: exp.SetOperation, parent: Scope | None) -> Node:
        steps: list[exp.SetOperation] = []
        first: exp.Expr = tree
        while isinstance(first, exp.SetOperation) and (first is tree or not _has_own_clauses(first)):
            if first.args.get("by_name"):
                raise error("UNION BY NAME is not supported", first)
            refuse_others(first, *_COMBINING, *_OUTSIDE)
            self.ledger.read(first, *_COMBINING, *_OUTSIDE)
            steps.append(first)
            first = first.this
        node = self._branch(first, parent, None)
        for step in reversed(steps):
            other = self._branch(step.expression, parent, step)
            if node is None or other is None:
                node = _first_names(first, node or other)
                continue
            node = _combined(step, node, other)
        if node is None:
            raise UnresolvedError("every branch")
        return node

    def _branch(self, tree: exp.Expr, parent: Scope | None, step: exp.Expr | None) -> Node | None:
        """Bind a branch; None if it is not known yet and the rest may stand for it."""
        try:
            return self.query(tree, parent)
        except UnresolvedError:
            if not self.session.provisional:
                raise
            return None

    # -- VALUES

    def _values(self, tree: exp.Expr, parent: Scope | None) -> Node:
        self.ledger.read(tree, "expressions", *_OUTSIDE)
        place = ExpressionBinder(self, Scope((), parent), "VALUES")
        rows: list[list[Expr]] = []
        for source in tree.expressions:
            if isinstance(source, exp.Tuple):
                self.ledger.read(source, "expressions")
            rows.append([place.bind(e) for e in (source.expressions if isinstance(source, exp.Tuple) else [source])])
        width = len(rows[0])
        for row, source in zip(rows, tree.expressions, strict=True):
            if len(row) != width:
                raise error(f"VALUES rows differ in length: {width} and {len(row)}", source)
        types = [t.NULLTYPE] * width
        for row in rows:
            types = [set_type(a, e.type) for a, e in zip(types, row, strict=True)]
        names = [f"col{i}" for i in range(width)]
        cast_rows = [[coerce(e, type, tree) for e, type in zip(row, types, strict=True)] for row in rows]
        if all(isinstance(e, Lit) for row in cast_rows for e in row):
            schema = Schema(tuple(Column(n, type) for n, type in zip(names, types, strict=True)))
            return Values(schema, tuple(tuple(e.value for e in row) for row in cast_rows))  # type: ignore[attr-defined]
        plans: list[Node] = []
        for row, source in zip(cast_rows, tree.expressions, strict=True):
            node, values = attach(ONE_ROW, row, source)
            plans.append(project(node, values, names))
        return plans[0] if len(plans) == 1 else Union(plans[0].schema, tuple(plans))


def _combined(step: exp.SetOperation, left: Node, right: Node) -> Node:
    if len(left.schema) != len(right.schema):
        name = type(step).__name__.upper()
        raise error(f"{name} of queries with {len(left.schema)} and {len(right.schema)} columns", step)
    pairs = zip(left.schema.types, right.schema.types, strict=True)
    types = [set_type(a, b) for a, b in pairs]
    may_be_null = [a.nullable or b.nullable for a, b in zip(left.schema.columns, right.schema.columns, strict=True)]
    whole = zip(left.schema.names, types, may_be_null, strict=True)
    schema = Schema(tuple(Column(n, type, null) for n, type, null in whole))
    left, right = cast_plan(left, types), cast_plan(right, types)
    every = not step.args.get("distinct")
    if isinstance(step, exp.Union):
        if isinstance(left, Distinct) and isinstance(left.input, Union) and not every:
            left = left.input
        branches = left.branches if isinstance(left, Union) else (left,)
        union = Union(schema, (*branches, right))
        return union if every else distinct(union)
    return SetOp(schema, left, right, "intersect" if isinstance(step, exp.Intersect) else "except", every)


def _has_own_clauses(tree: exp.Expr) -> bool:
    return any(tree.args.get(arg) for arg in _OUTSIDE)


def _first_names(first: exp.Expr, node: Node | None) -> Node | None:
    """Rename a provisional plan by the names its first branch gives, as far as they can be read off its text."""
    while isinstance(first, exp.Subquery):
        first = first.this
    names = [e.alias_or_name.lower() for e in first.expressions] if isinstance(first, exp.Select) else []
    if node is None or len(names) != len(node.schema) or "*" in names or "" in names:
        return node
    return relabel(node, Schema(tuple(replace(c, name=n) for c, n in zip(node.schema.columns, names, strict=True))))


def set_type(a: Type, b: Type) -> Type:
    """Return the type of a column of a set operation: what both share, else text."""
    return common_type(a, b) or t.TEXT


def cast_plan(node: Node, types: Sequence[Type]) -> Node:
    """Cast the columns of a plan to the types, inside it where that is free."""
    if node.schema.types == tuple(types):
        return node
    schema = Schema(tuple(replace(c, type=type) for c, type in zip(node.schema.columns, types, strict=True)))
    if isinstance(node, Union):
        return Union(schema, tuple(cast_plan(b, types) for b in node.branches))
    if isinstance(node, Project):
        return Project(schema, node.input, tuple(coerce(e, x) for e, x in zip(node.exprs, types, strict=True)))
    exprs: list[Expr] = [coerce(e, x) for e, x in zip(columns(node), types, strict=True)]
    return Project(schema, node, tuple(exprs))


def rename_columns(node: Node, names: Sequence[str], at: exp.Expr | None) -> Node:
    """Rename the columns of a plan by a list that must have their number (or be empty)."""
    if not names:
        return node
    if len(names) != len(node.schema):
        raise error(f"{len(names)} column names are given for {len(node.schema)} columns", at)
    if len(set(names)) < len(names):
        raise error("a column name is given twice", at)
    return relabel(node, Schema(tuple(replace(c, name=n) for c, n in zip(node.schema.columns, names, strict=True))))


def without_zones(node: Node) -> Node:
    """Make the columns of the plan that are instants TIMESTAMPs in UTC."""
    if not any(type.is_zoned for type in node.schema.types):
        return node
    types = [t.TIMESTAMP if type.is_zoned else type for type in node.schema.types]
    if isinstance(node, TopK):
        schema = Schema(tuple(replace(c, type=type) for c, type in zip(node.schema.columns, types, strict=True)))
        return replace(node, schema=schema, input=without_zones(node.input))
    return cast_plan(node, types)


def type_nulls(node: Node) -> Node:
    """Give a type to columns of the plan that are only ever NULL, as DuckDB does."""
    types = [t.INTEGER if x.kind is Kind.NULL else x for x in node.schema.types]
    if correlation(node):
        raise error("a query refers to a column of a query around it where it cannot", None)
    return cast_plan(node, types)


def _recursive(clause: exp.Expr) -> set[str]:
    """Return the names of the CTEs of a WITH that refer to themselves."""
    uses: dict[str, set[str]] = {}
    names = {cte.alias.lower() for cte in clause.expressions}
    for cte in clause.expressions:
        uses[cte.alias.lower()] = {table.name.lower() for table in cte.this.find_all(exp.Table)} & names
    found = set()
    for name in names:
        reached, frontier = set[str](), set(uses[name])
        while frontier:
            reached |= frontier
            frontier = set().union(*(uses[n] for n in frontier)) - reached
        if name in reached:
            found.add(name)
    return found
