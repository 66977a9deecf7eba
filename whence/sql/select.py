"""One SELECT: FROM, WHERE, grouping, HAVING, the select list, DISTINCT, ORDER BY and LIMIT, in SQL's own order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sqlglot import exp

from whence.plan.expr import Col, Expr, conjuncts
from whence.plan.logical import Node, Order, TopK
from whence.plan.nodes import columns, distinct, project
from whence.plan.stream_model import Slide
from whence.sql.expressions import ExpressionBinder
from whence.sql.grouping import Grouped, group_rows, has_aggregate
from whence.sql.position import error
from whence.sql.relations import bind_from
from whence.sql.scope import Scope, unique_names
from whence.sql.stream_functions import check_windows
from whence.sql.subqueries import attach, filter_rows

if TYPE_CHECKING:
    from whence.sql.queries import QueryBinder

_MOST = 2**62  # rows of a LIMIT or OFFSET; their sum is a number too
_UNSUPPORTED = {
    "qualify": "QUALIFY",
    "windows": "WINDOW",
    "sample": "SAMPLE",
    "laterals": "LATERAL VIEW",
    "connect": "CONNECT BY",
    "pivots": "PIVOT",
    "into": "SELECT INTO",
    "cluster": "CLUSTER BY",
    "sort": "SORT BY",
}


@dataclass(frozen=True)
class Item:
    """One entry of the select list: its name, and its text unless it came from a star."""

    name: str
    expr: Expr
    source: exp.Expr


def bind_select(binder: QueryBinder, query: exp.Select, parent: Scope | None, keep_order: bool) -> Node:
    """The plan of a SELECT (its WITH is already in the binder)."""
    for arg, name in _UNSUPPORTED.items():
        if query.args.get(arg):
            raise error(f"{name} is not supported", query)
    bound = bind_from(binder, query, parent)
    scope = Scope(bound.fields, parent)
    node = bound.node
    where = query.args.get("where")
    if where is not None:
        place = ExpressionBinder(binder, scope, "WHERE; use HAVING")
        node = filter_rows(node, conjuncts(place.condition(where.this)), where.this)

    place = ExpressionBinder(binder, scope, "the select list", aggregates=True, windows=isinstance(bound.node, Slide))
    items = _items(query, scope, place)
    names = unique_names(item.name for item in items)
    aliases = {n: item.source for n, item in zip((i.name for i in items), items, strict=True)}
    having = query.args.get("having")
    terms = conjuncts(place.condition(_dealias(having.this, aliases, scope))) if having is not None else []
    orders = _orders(query, keep_order)
    sorting = [_sort_key(o, items, aliases, scope, place) for o in orders]

    exprs = [item.expr for item in items]
    keys = [s for s in sorting if isinstance(s, Expr)]
    grouping = query.args.get("group") is not None or having is not None
    grouping = grouping or any(map(has_aggregate, [*exprs, *keys]))
    check_windows(query, bound.node, grouping)
    if grouping:
        group_by = _group_by(query, items, aliases, scope, binder)
        grouped: Grouped = group_rows(node, group_by, [*exprs, *terms, *keys], query)
        node = grouped.node
        exprs = [grouped.rewrite(e, i.source, scope) for e, i in zip(exprs, items, strict=True)]
        terms = [grouped.rewrite(e, query, scope) for e in terms]
        keys = [grouped.rewrite(e, query, scope) for e in keys]
        node = filter_rows(node, terms, having.this if having is not None else query)
    node, changed = attach(node, [*exprs, *keys], query)
    exprs, keys = changed[: len(exprs)], changed[len(exprs) :]
    return _finished(query, node, exprs, names, orders, sorting, keys)


def _finished(
    query: exp.Select,
    node: Node,
    exprs: list[Expr],
    names: list[str],
    orders: list[exp.Expr],
    sorting: list[int | Expr],
    keys: list[Expr],
) -> Node:
    """Projection, DISTINCT, ORDER BY and LIMIT over rows that have everything."""
    width = len(exprs)
    extra = iter(keys)
    places: list[int] = []
    shown, shown_names = list(exprs), list(names)
    for key in sorting:
        expr = None if isinstance(key, int) else next(extra)
        if expr is None:
            places.append(key)  # type: ignore[arg-type]  # no expression: it is a position
        elif expr in shown:
            places.append(shown.index(expr))
        else:
            places.append(len(shown))
            shown.append(expr)
            shown_names.append(f"order_{len(shown)}")
    node = project(node, shown, shown_names)
    wants_distinct = query.args.get("distinct")
    if wants_distinct is not None:
        if wants_distinct.args.get("on") is not None:
            raise error("DISTINCT ON is not supported", query)
        if len(shown) > width:
            raise error("with DISTINCT, ORDER BY may use the selected columns only", orders[0])
        node = distinct(node)
    node = top(node, query, orders, places)
    return project(node, columns(node)[:width], names) if len(shown) > width else node


def top(node: Node, query: exp.Expr, orders: Sequence[exp.Expr], places: Sequence[int]) -> Node:
    """ORDER BY and LIMIT as a TopK, if there is anything to do."""
    limit, offset = _count(query, "limit"), _count(query, "offset")
    if not orders and limit is None and not offset:
        return node
    order = tuple(
        Order(place, bool(o.args.get("desc")), bool(o.args.get("nulls_first")))
        for place, o in zip(places, orders, strict=True)
    )
    return TopK(node.schema, node, order, limit, offset or 0)


def _orders(query: exp.Expr, keep_order: bool) -> list[exp.Expr]:
    """The ORDER BY terms that matter: none, if rows are neither cut off nor shown in order."""
    clause = query.args.get("order")
    if clause is None:
        return []
    cut = query.args.get("limit") is not None or query.args.get("offset") is not None
    return list(clause.expressions) if cut or keep_order else []


def set_order(query: exp.Expr, node: Node, keep_order: bool) -> Node:
    """ORDER BY and LIMIT of a UNION and the like: by the names and positions of its columns."""
    orders = _orders(query, keep_order)
    places = []
    for order in orders:
        term = order.this
        if isinstance(term, exp.Column) and term.name.lower() in node.schema.names:
            places.append(node.schema.names.index(term.name.lower()))
        else:
            place = _position(term, len(node.schema))
            if place is None:
                raise error("ORDER BY of a set operation takes a column's name or position", order)
            places.append(place)
    return top(node, query, orders, places)


def check_limit(node: exp.Expr) -> None:
    """Refuse a LIMIT or FETCH that is not by a number of rows."""
    said = node.args.get("limit_options")
    for arg, name in (("percent", "PERCENT"), ("with_ties", "WITH TIES")):
        if said is not None and said.args.get(arg):
            raise error(f"LIMIT and FETCH take a number of rows; {name} is not supported", node)


def _count(query: exp.Expr, clause: str) -> int | None:
    node = query.args.get(clause)
    if node is None:
        return None
    check_limit(node)
    value = node.args.get("count") if isinstance(node, exp.Fetch) else node.expression
    if isinstance(value, exp.Var) and value.name.upper() == "ALL":
        return None
    if isinstance(value, exp.Literal) and not value.is_string and str(value.this).isdecimal():
        count = int(value.this)
        if count > _MOST:
            raise error(f"{clause.upper()} takes a number up to {_MOST:,}", node)
        return count
    raise error(f"{clause.upper()} takes a whole number", node)


def _items(query: exp.Select, scope: Scope, place: ExpressionBinder) -> list[Item]:
    items: list[Item] = []
    for node in query.expressions:
        star = node if isinstance(node, exp.Star) else node.this if isinstance(node, exp.Column) else None
        if isinstance(star, exp.Star):
            items += _starred(node, star, scope)
            continue
        source = node.this if isinstance(node, exp.Alias) else node
        items.append(Item(_name(node), place.bind(source), source))
    if not items:
        raise error("SELECT needs at least one column", query)
    return items


def _starred(node: exp.Expr, star: exp.Star, scope: Scope) -> list[Item]:
    if star.args.get("replace") or star.args.get("rename"):
        raise error("* REPLACE and RENAME are not supported", node)
    without = {e.name.lower() for e in star.args.get("except_") or []}
    relation = node.table.lower() or None if isinstance(node, exp.Column) else None
    items = []
    for i in scope.star(relation, node):
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
    return node.sql(dialect="duckdb").lower()


def _dealias(node: exp.Expr, aliases: dict[str, exp.Expr], scope: Scope) -> exp.Expr:
    """The expression with names that only the select list knows replaced by what they stand for."""

    def change(n: exp.Expr) -> exp.Expr:
        name = n.name.lower() if isinstance(n, exp.Column) and not n.table else None
        if name is not None and name in aliases and not scope.find(None, name):
            return exp.Paren(this=aliases[name].copy())
        return n

    return node.transform(change)


def _position(node: exp.Expr, width: int) -> int | None:
    """The position a bare number in GROUP BY or ORDER BY names, from 0."""
    if isinstance(node, exp.Literal) and not node.is_string and str(node.this).isdigit():
        if not 1 <= int(node.this) <= width:
            raise error(f"position {node.this} is not in the select list, which has {width} columns", node)
        return int(node.this) - 1
    return None


def _sort_key(
    order: exp.Expr, items: list[Item], aliases: dict[str, exp.Expr], scope: Scope, place: ExpressionBinder
) -> int | Expr:
    """What an ORDER BY term sorts by: a column of the output by its position, or an expression."""
    term = order.this
    at = _position(term, len(items))
    if at is not None:
        return at
    if isinstance(term, exp.Column) and not term.table:
        named = [i for i, item in enumerate(items) if item.name == term.name.lower()]
        if named:
            return named[0]
    return place.bind(_dealias(term, aliases, scope))


def _group_by(
    query: exp.Select, items: list[Item], aliases: dict[str, exp.Expr], scope: Scope, binder: QueryBinder
) -> list[Expr]:
    clause = query.args.get("group")
    if clause is None:
        return []
    for arg in ("grouping_sets", "cube", "rollup", "totals"):
        if clause.args.get(arg):
            raise error("GROUPING SETS, CUBE and ROLLUP are not supported", clause)
    if clause.args.get("all"):
        return [item.expr for item in items if not has_aggregate(item.expr)]
    place = ExpressionBinder(binder, scope, "GROUP BY")
    found = []
    for node in clause.expressions:
        if isinstance(node, (exp.Cube, exp.Rollup, exp.GroupingSets)):
            raise error("GROUPING SETS, CUBE and ROLLUP are not supported", node)
        at = _position(node, len(items))
        expr = items[at].expr if at is not None else place.bind(_dealias(node, aliases, scope))
        if has_aggregate(expr):
            raise error("GROUP BY names an aggregate", node)
        found.append(expr)
    return found
