"""One SELECT: FROM, WHERE, grouping, HAVING, the select list, DISTINCT, ORDER BY and LIMIT, in SQL's own order."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from sqlglot import exp

from whence.plan.algebra.constructors import columns, distinct, project
from whence.plan.algebra.expressions import Col, Expr, conjuncts
from whence.plan.algebra.logical import Node, Order
from whence.plan.streams.model import Slide
from whence.sql.expressions import ExpressionBinder
from whence.sql.grouping import Grouped, group_rows, has_aggregate
from whence.sql.ledger import refuse_others
from whence.sql.ordering import Term, cut_rows, direction, is_all, order_matters, read_order, read_position
from whence.sql.position import error, write_sql
from whence.sql.relations import bind_from
from whence.sql.scope import Scope, unique_names
from whence.sql.stream_functions import check_windows
from whence.sql.subqueries import attach, filter_rows

if TYPE_CHECKING:
    from whence.sql.queries import QueryBinder

_READ = ("with_", "expressions", "from_", "joins", "where", "group", "having", "distinct", "order", "limit", "offset")


@dataclass(frozen=True)
class Item:
    """One entry of the select list: its name, and its text unless it came from a star."""

    name: str
    expr: Expr
    source: exp.Expr


def bind_select(binder: QueryBinder, query: exp.Select, parent: Scope | None, keep_order: bool) -> Node:
    """Bind a SELECT (its WITH is already in the binder)."""
    refuse_others(query, *_READ)
    binder.ledger.read(query, *_READ)
    bound = bind_from(binder, query, parent)
    scope = Scope(bound.fields, parent)
    node = bound.node
    where = query.args.get("where")
    if where is not None:
        binder.ledger.read(where, "this")
        place = ExpressionBinder(binder, scope, "WHERE; use HAVING")
        node = filter_rows(node, conjuncts(place.condition(where.this)), where.this)

    place = ExpressionBinder(binder, scope, "the select list", aggregates=True, windows=isinstance(bound.node, Slide))
    items = _items(query, scope, place)
    names = unique_names(item.name for item in items)
    after = replace(place, scope=replace(scope, aliases={item.name: item.expr for item in reversed(items)}))
    having = query.args.get("having")
    terms: list[Expr] = []
    if having is not None:
        binder.ledger.read(having, "this")
        terms = conjuncts(after.condition(having.this))
    sorting = _sort_terms(read_order(binder, query, keep_order), items, after)

    exprs = [item.expr for item in items]
    keys = [term.key for term in sorting if isinstance(term.key, Expr)]
    grouping = query.args.get("group") is not None or having is not None
    grouping = grouping or any(map(has_aggregate, [*exprs, *keys]))
    check_windows(query, bound.node, grouping)
    if grouping:
        group_by = _group_by(query, items, replace(after, place="GROUP BY", aggregates=False))
        grouped: Grouped = group_rows(node, group_by, [*exprs, *terms, *keys], query)
        node = grouped.node
        exprs = [grouped.rewrite(e, i.source, scope) for e, i in zip(exprs, items, strict=True)]
        terms = [grouped.rewrite(e, query, scope) for e in terms]
        keys = [grouped.rewrite(e, query, scope) for e in keys]
        node = filter_rows(node, terms, having.this if having is not None else query)
    if query.args.get("distinct") is not None and any(key not in exprs for key in keys):
        raise error("with DISTINCT, ORDER BY may use the selected columns only", sorting[0].source)
    if not order_matters(query, keep_order):
        sorting, keys = [], []
    node, changed = attach(node, [*exprs, *keys], query)
    exprs, keys = changed[: len(exprs)], changed[len(exprs) :]
    return _finished(binder, query, node, dict(zip(names, exprs, strict=True)), sorting, keys)


def _finished(
    binder: QueryBinder, query: exp.Select, node: Node, selected: dict[str, Expr], sorting: list[Term], keys: list[Expr]
) -> Node:
    """Build projection, DISTINCT, ORDER BY and LIMIT over rows that have everything."""
    width, extra = len(selected), iter(keys)
    shown, names = list(selected.values()), list(selected)
    orders: list[Order] = []
    for term in sorting:
        place = term.key if isinstance(term.key, int) else None
        if place is None:
            expr = next(extra)
            if expr not in shown:
                shown.append(expr)
                names.append(f"order_{len(shown)}")
            place = shown.index(expr)
        orders.append(direction(term.source, place))
    node = project(node, shown, names)
    clause = query.args.get("distinct")
    if clause is not None:
        if clause.args.get("on") is not None:
            raise error("DISTINCT ON is not supported", query)
        node = distinct(node)
    node = cut_rows(binder, node, query, orders)
    return project(node, columns(node)[:width], names[:width]) if len(shown) > width else node


def _items(query: exp.Select, scope: Scope, place: ExpressionBinder) -> list[Item]:
    items: list[Item] = []
    for node in query.expressions:
        star = node if isinstance(node, exp.Star) else node.this if isinstance(node, exp.Column) else None
        if isinstance(star, exp.Star):
            place.read(node, "this", "table")
            items += _starred(node, star, scope, place)
            continue
        source = node
        if isinstance(node, exp.Alias):
            place.read(node, "this", "alias")
            source = node.this
        expr = place.bind(source)
        items.append(Item(_name(node), expr, source))
    if not items:
        raise error("SELECT needs at least one column", query)
    return items


def _starred(node: exp.Expr, star: exp.Star, scope: Scope, place: ExpressionBinder) -> list[Item]:
    if star.args.get("replace") or star.args.get("rename"):
        raise error("* REPLACE and RENAME are not supported", node)
    place.read(star, "except_")
    relation = node.table.lower() or None if isinstance(node, exp.Column) else None
    found = scope.star(relation, node)
    without = set[str]()
    for column in star.args.get("except_") or []:
        if isinstance(column, exp.Column) and not column.table:
            place.read(column, "this")
        name = column.name.lower()
        if name not in {scope.fields[i].name for i in found}:
            raise error(f'EXCLUDE names "{name}", which is not among the columns of *', column)
        without.add(name)
    items = []
    for i in found:
        field = scope.fields[i]
        if field.name not in without:
            source = exp.column(field.name, table=field.relation)
            items.append(Item(field.name, Col(field.type, i), source))
    return items


def _name(node: exp.Expr) -> str:
    if isinstance(node, (exp.Alias, exp.Column)):
        return node.alias_or_name.lower()
    while isinstance(node, exp.Paren):
        node = node.this
    if isinstance(node, exp.Cast) and isinstance(node.this, exp.Column):
        return node.this.name.lower()
    return write_sql(node).lower()


def _sort_terms(sources: list[exp.Expr], items: list[Item], place: ExpressionBinder) -> list[Term]:
    """Bind the terms of ORDER BY: a position, a name of the select list, or an expression."""
    found: list[Term] = []
    for source in sources:
        node = source.this
        if is_all(node):
            found += [Term(at, source) for at in range(len(items))]
            continue
        at = read_position(place.queries.ledger, node, len(items))
        if at is None and isinstance(node, exp.Column) and not node.table:
            at = next((i for i, item in enumerate(items) if item.name == node.name.lower()), None)
            if at is not None:
                place.read(node, "this")
        if at is None and isinstance(node, (exp.Literal, exp.Null, exp.Boolean)):
            raise error("ORDER BY a constant has no effect; name a column, or its position", node)
        found.append(Term(place.bind(node) if at is None else at, source))
    return found


def _group_by(query: exp.Select, items: list[Item], place: ExpressionBinder) -> list[Expr]:
    clause = query.args.get("group")
    if clause is None:
        return []
    place.read(clause, "expressions", "all")
    for arg in ("grouping_sets", "cube", "rollup", "totals"):
        if clause.args.get(arg):
            raise error("GROUPING SETS, CUBE and ROLLUP are not supported", clause)
    if clause.args.get("all"):
        if clause.expressions:
            raise error("GROUP BY ALL takes no expressions", clause)
        return [item.expr for item in items if not has_aggregate(item.expr)]
    found = []
    for node in clause.expressions:
        if isinstance(node, (exp.Cube, exp.Rollup, exp.GroupingSets)):
            raise error("GROUPING SETS, CUBE and ROLLUP are not supported", node)
        at = read_position(place.queries.ledger, node, len(items))
        expr = items[at].expr if at is not None else place.bind(node)
        if has_aggregate(expr):
            raise error("GROUP BY names an aggregate", node)
        found.append(expr)
    return found
