"""The binder's interface: statements against a `Program`, to plans and expressions."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from sqlglot import exp

from whence.model import types as t
from whence.model.errors import CatalogError, SqlError
from whence.model.types import Kind, Type
from whence.plan.algebra.constructors import columns
from whence.plan.algebra.expressions import Col, Expr, Lit
from whence.plan.algebra.logical import Node, Project, Values
from whence.plan.algebra.program import IndexDefinition, Program, Table, View
from whence.plan.rewrite.fold_constants import fold
from whence.sql import statements as st
from whence.sql.expressions import ExpressionBinder
from whence.sql.operators import cast
from whence.sql.position import did_you_mean, error
from whence.sql.queries import QueryBinder, Session, UnresolvedError, type_nulls, without_zones
from whence.sql.reader import deep_stack
from whence.sql.scope import Scope, fields_of
from whence.sql.subqueries import has_subquery
from whence.sql.types import coerce, is_text_literal
from whence.sql.views import bind_views, known_first, resolve

__all__ = [
    "bind_assignments",
    "bind_insert",
    "bind_predicate",
    "bind_query",
    "bind_query_views",
    "bind_table",
    "bind_views",
]


def bind_table(create: st.CreateTable, program: Program) -> Program:
    """Return a copy of the program with the table added (the same program, if it exists and IF NOT EXISTS is said)."""
    name, kind = create.table.name, _kind(create.table)
    if name in program.views:
        raise CatalogError(f'"{name}" is a view; a {kind} needs another name')
    if name in program.tables:
        if _kind(program.tables[name]) != kind:
            raise CatalogError(f'"{name}" is a {_kind(program.tables[name])}; a {kind} needs another name')
        if create.if_not_exists:
            return program
        raise CatalogError(f'{kind} "{name}" exists already')
    found = program.copy()
    found.tables[name] = create.table
    return found


def bind_index(create: st.CreateIndex, program: Program) -> Program:
    """Return a copy of the program with the index added (the same program, if it exists and IF NOT EXISTS is said)."""
    there = program.indexes.get(create.name)
    if there is not None:
        if create.if_not_exists:
            return program
        raise CatalogError(f'index "{create.name}" exists already, on {there.relation} ({", ".join(there.columns)})')
    found = program.copy()
    found.indexes[create.name] = index = IndexDefinition(create.name, create.relation, create.columns, create.sql)
    _check_index(index, found)
    return found


def keep_indexes(program: Program) -> Program:
    """Return the program without the indexes of tables and views that are gone; CatalogError if one has lost a column
    of its index."""
    if not program.indexes:
        return program
    found = program.copy()
    for name, index in program.indexes.items():
        if index.relation not in program.tables and index.relation not in program.views:
            del found.indexes[name]
        else:
            _check_index(index, program)
    return found


def _check_index(index: IndexDefinition, program: Program) -> None:
    relation = program.tables.get(index.relation) or program.views.get(index.relation)
    if relation is None or (isinstance(relation, View) and relation.hidden):
        known = [*program.tables, *(name for name, view in program.views.items() if not view.hidden)]
        hint = did_you_mean(index.relation, known)
        raise CatalogError(f'index "{index.name}": there is no table or view "{index.relation}"{hint}')
    if isinstance(relation, Table) and relation.stream is not None:
        raise CatalogError(f'index "{index.name}": "{index.relation}" is a stream, whose only index is its order')
    for column in index.columns:
        if column not in relation.schema.names:
            hint = did_you_mean(column, relation.schema.names)
            raise CatalogError(
                f'index "{index.name}": no column "{column}" in {index.relation} {relation.schema}{hint}; '
                f"drop the index first if the column is to go"
            )


def _kind(table: Table) -> str:
    if table.source is not None:
        return "source"
    return "table" if table.stream is None else "stream"


def bind_query_views(
    query: exp.Expr, program: Program, name: str = "query", keep_order: bool = True
) -> tuple[Node, dict[str, View]]:
    """Bind a query to its plan and the hidden views of its recursive CTEs, to which the plan refers. Rows keep their
    ORDER BY, unless they need not."""
    session = Session()
    binder = QueryBinder(program, session, name)
    with _limit_depth():
        if query.find(exp.With) is None:
            found = type_nulls(without_zones(binder.query(query, None, keep_order)))
            binder.check_read(query)
            return found, {}
        session.provisional = True
        with suppress(UnresolvedError):
            binder.query(query, None)  # finds the recursive CTEs
        session.provisional = False
        plans: dict[str, Node] = {}
        while True:
            if len(plans) < len(session.pending):
                plans = resolve(session)
            plan = known_first(session, lambda: binder.query(query, None, keep_order))
            plan = type_nulls(without_zones(plan))
            if len(plans) == len(session.pending):
                break
        binder.check_read(query)
    hidden = {n: View(n, p.schema, p, owner=session.pending[n].owner) for n, p in plans.items()}
    return plan, hidden


def bind_query(query: exp.Expr, program: Program) -> Node:
    """Bind a query whose WITH is not recursive (see `bind_query_views`)."""
    plan, hidden = bind_query_views(query, program)
    if hidden:
        raise error("WITH RECURSIVE cannot stand here; create a view of it", query)
    return plan


def bind_predicate(where: exp.Expr | None, table: str | Table, program: Program) -> Expr:
    """Bind the WHERE of a DELETE or UPDATE, over the table's columns; without one, TRUE."""
    found = _table(table, program)
    if found.stream is not None:
        raise SqlError(f'"{found.name}" is a stream: rows are only ever appended')
    if where is None:
        return Lit(t.BOOLEAN, True)
    binder = QueryBinder(program, Session())
    place = ExpressionBinder(binder, Scope(fields_of(found.schema, found.name)), "the WHERE of DELETE or UPDATE")
    with _limit_depth():
        predicate = place.condition(where)
        binder.check_read(where)
    if has_subquery(predicate):
        raise error("a subquery in the WHERE of DELETE or UPDATE is not supported; query first", where)
    return predicate


def bind_assignments(update: st.UpdateRows, program: Program) -> tuple[Expr, ...]:
    """Bind the new value of every column of the table, over its old ones."""
    table = _table(update.table, program)
    scope = Scope(fields_of(table.schema, table.name))
    place = ExpressionBinder(QueryBinder(program, Session()), scope, "SET")
    found: list[Expr] = [Col(c.type, i) for i, c in enumerate(table.schema.columns)]
    done: set[str] = set()
    for name, value in update.assignments:
        at = _column(table, name, value)
        if name in done:
            raise error(f'column "{name}" is set twice', value)
        done.add(name)
        with _limit_depth():
            expr = place.bind(value)
            place.queries.ledger.check(value)
        if has_subquery(expr):
            raise error("a subquery in SET is not supported", value)
        found[at] = assign(expr, table.schema.columns[at].type, table.schema.columns[at].name, value)
    return tuple(found)


def bind_insert(insert: st.InsertRows, program: Program) -> Node:
    """Bind the rows to insert, with the columns that are written in their order; those that are not named are NULL."""
    table = _table(insert.table, program)
    named = insert.columns if insert.columns is not None else table.written.names
    places = [_written_column(table, name, insert.source) for name in named]
    if len(set(places)) < len(places):
        raise error("a column is named twice", insert.source)
    constant = _constant_rows(insert, table, places, program)
    if constant is not None:
        return constant
    source = bind_query(insert.source, program)
    if len(source.schema) != len(places):
        raise error(f"{len(places)} columns are to be inserted, {len(source.schema)} are given", insert.source)
    given = dict(zip(places, columns(source), strict=True))
    exprs: list[Expr] = []
    for i, column in enumerate(table.written.columns):
        value = given.get(i, Lit(t.NULLTYPE, None))
        exprs.append(assign(value, column.type, column.name, insert.source))
    return Project(table.written, source, tuple(exprs))


def _constant_rows(insert: st.InsertRows, table: Table, places: list[int], program: Program) -> Node | None:
    """Return the rows of a plain VALUES, each value read as one of its column's type; None if some value is no
    constant."""
    if not isinstance(insert.source, exp.Values) or insert.source.args.get("with_"):
        return None
    place = ExpressionBinder(QueryBinder(program, Session()), Scope(), "VALUES")
    targets = [table.written.columns[i] for i in places]
    rows = []
    place.read(insert.source, "expressions")
    for source in insert.source.expressions:
        place.read(source, "expressions")
        given = source.expressions if isinstance(source, exp.Tuple) else [source]
        if len(given) != len(places):
            raise error(f"{len(places)} columns are to be inserted, {len(given)} are given", source)
        row: list[Any] = [None] * len(table.written)
        for at, node, column in zip(places, given, targets, strict=True):
            with _limit_depth():
                value = fold(assign(fold(place.bind(node)), column.type, column.name, node))
            if not isinstance(value, Lit):
                return None
            row[at] = value.value
        rows.append(tuple(row))
    place.queries.ledger.check(insert.source)
    return Values(table.written, tuple(rows))


def assign(expr: Expr, type: Type, column: str, node: exp.Expr) -> Expr:
    """Make a value fit a column, as assignment does: by a cast where types are of one family, or text is read."""
    have = expr.type
    if have.kind is Kind.NULL:
        return Lit(type, None)
    fits = have == type or is_text_literal(expr) or Kind.TEXT in (have.kind, type.kind)
    fits = fits or (have.is_numeric and type.is_numeric) or {have.kind, type.kind} <= {Kind.DATE, Kind.TIMESTAMP}
    if not fits:
        raise error(f'column "{column}" is {type}, the value {have}; an explicit cast is required', node)
    return coerce(expr, type, node) if isinstance(expr, Lit) else cast(expr, type, False, node)


def _table(table: str | Table, program: Program) -> Table:
    if isinstance(table, Table):
        return table
    name = table.lower()
    if name in program.tables:
        return program.tables[name]
    if name in program.views:
        raise CatalogError(f'"{name}" is a view; only tables and streams can be changed')
    raise CatalogError(f'unknown table "{name}"{did_you_mean(name, program.tables)}')


def _column(table: Table, name: str, node: exp.Expr) -> int:
    if name not in table.schema.names:
        raise error(f'table "{table.name}" has no column "{name}"{did_you_mean(name, table.schema.names)}', node)
    return table.schema.names.index(name)


def _written_column(table: Table, name: str, node: exp.Expr) -> int:
    """Return the place of a column among those that writers give."""
    at = _column(table, name, node)
    if at == table.tick:
        raise error(f'column "{name}" cannot be given{table.written.advise()}', node)
    return table.written.names.index(name)


@contextmanager
def _limit_depth() -> Iterator[None]:
    """Bind a deep query, turning Python's recursion error into ours."""
    try:
        with deep_stack():
            yield
    except RecursionError:
        raise SqlError("the query is nested too deeply") from None
