"""ORDER BY, LIMIT and OFFSET: sort terms by position, name or expression, and the TopK they become."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sqlglot import exp

from whence.model.types import BIGINT, Kind
from whence.plan.algebra.constructors import columns, project
from whence.plan.algebra.expressions import Expr
from whence.plan.algebra.logical import Node, Order, TopK, TopKPerGroup
from whence.sql.expressions import ExpressionBinder
from whence.sql.ledger import Ledger
from whence.sql.position import error
from whence.sql.scope import Scope, fields_of
from whence.sql.subqueries import has_subquery
from whence.sql.types import coerce

if TYPE_CHECKING:
    from whence.sql.queries import QueryBinder

_MOST = 2**62  # rows of a LIMIT or OFFSET; their sum is a number too


@dataclass(frozen=True)
class Term:
    """One term of ORDER BY: a position of the select list (from 0) or an expression, and its text."""

    key: int | Expr
    source: exp.Expr


def direction(source: exp.Expr, place: int) -> Order:
    """Return the order of the column at `place` that a term of ORDER BY asks for."""
    return Order(place, bool(source.args.get("desc")), bool(source.args.get("nulls_first")))


def order_matters(query: exp.Expr, keep_order: bool) -> bool:
    """Return whether rows are cut off or shown in order; if not, ORDER BY is bound and then dropped."""
    return keep_order or any(query.args.get(arg) is not None for arg in ("limit", "offset"))


def read_order(binder: QueryBinder, query: exp.Expr, keep_order: bool) -> list[exp.Expr]:
    """Return the terms of ORDER BY that are to be bound."""
    clause = query.args.get("order")
    if clause is None or (binder.stored and not order_matters(query, keep_order)):
        return []
    binder.ledger.read(clause, "expressions")
    for term in clause.expressions:
        binder.ledger.read(term, "this", "desc", "nulls_first")
    return list(clause.expressions)


def is_all(node: exp.Expr) -> bool:
    """Return whether a term is the ALL of ORDER BY ALL."""
    return isinstance(node, exp.Var) and node.name.upper() == "ALL"


def read_position(ledger: Ledger, node: exp.Expr, width: int) -> int | None:
    """Return the position, from 0, that a bare number in GROUP BY or ORDER BY names; None if it is no such number."""
    number = node.this if isinstance(node, exp.Neg) else node
    if not (isinstance(number, exp.Literal) and not number.is_string and str(number.this).isdigit()):
        return None
    ledger.read(number, "this", "is_string")
    if number is not node or not 1 <= int(number.this) <= width:
        raise error(f"position {node.sql()} is not in the select list, which has {width} columns", node)
    return int(number.this) - 1


def order_set(binder: QueryBinder, query: exp.Expr, node: Node, keep_order: bool) -> Node:
    """Sort and cut the rows of a UNION and the like, by positions, names and expressions of its columns."""
    names = node.schema.names
    place = ExpressionBinder(binder, Scope(fields_of(node.schema, None)), "the ORDER BY of a set operation")
    shown, orders = columns(node), list[Order]()
    for source in read_order(binder, query, keep_order):
        if is_all(source.this):
            orders += [direction(source, at) for at in range(len(names))]
            continue
        at = read_position(binder.ledger, source.this, len(names))
        if at is None:
            key = place.bind(source.this)
            if has_subquery(key):
                raise error("the ORDER BY of a set operation takes no subquery; put the operation in FROM", source)
            if key not in shown:
                shown.append(key)
            at = shown.index(key)
        orders.append(direction(source, at))
    if not order_matters(query, keep_order):
        orders, shown = [], shown[: len(names)]
    if len(shown) == len(names):
        return cut_rows(binder, node, query, orders)
    found = cut_rows(binder, project(node, shown), query, orders)
    return project(found, columns(found)[: len(names)], names)


def cut_rows(binder: QueryBinder, node: Node, query: exp.Expr, orders: Sequence[Order]) -> Node:
    """Return a TopK for ORDER BY, LIMIT and OFFSET, or the node if there is nothing to do."""
    offset, parameter = _read_count(binder.ledger, query, "offset"), _read_parameter(binder, query)
    if parameter is not None:
        return TopKPerGroup(node.schema, node, (), tuple(orders), parameter, offset or 0)
    limit = _read_count(binder.ledger, query, "limit")
    if not orders and limit is None and not offset:
        return node
    return TopK(node.schema, node, tuple(orders), limit, offset or 0)


def _read_parameter(binder: QueryBinder, query: exp.Expr) -> Expr | None:
    """Return the parameter of a template that a LIMIT is; None if it is none."""
    node = query.args.get("limit")
    if binder.parameters is None or not isinstance(node, exp.Limit) or not isinstance(node.expression, exp.Placeholder):
        return None
    value = node.expression
    check_limit(node)
    binder.ledger.read(node, "limit_options", "expression")
    binder.ledger.read(value, "this")
    found = Scope((), binder.parameters).parameter(value)
    if found.type.is_integer:
        return found
    if found.type.kind is Kind.NULL:
        return coerce(found, BIGINT, value)
    raise error(f"LIMIT takes a whole number, not a value of type {found.type}", value)


def check_limit(node: exp.Expr) -> None:
    """Refuse a LIMIT or FETCH that is not by a number of rows."""
    said = node.args.get("limit_options")
    for arg, name in (("percent", "PERCENT"), ("with_ties", "WITH TIES")):
        if said is not None and said.args.get(arg):
            raise error(f"LIMIT and FETCH take a number of rows; {name} is not supported", node)


def _read_count(ledger: Ledger, query: exp.Expr, clause: str) -> int | None:
    node = query.args.get(clause)
    if node is None:
        return None
    check_limit(node)
    ledger.read(node, "limit_options", *(("count", "direction") if isinstance(node, exp.Fetch) else ("expression",)))
    if node.args.get("limit_options") is not None:
        ledger.read(node.args["limit_options"], "rows")
    value = node.args.get("count") if isinstance(node, exp.Fetch) else node.expression
    if isinstance(node, exp.Fetch) and value is None:  # FETCH FIRST ROW ONLY
        return 1
    if isinstance(value, exp.Var) and value.name.upper() == "ALL":
        return None
    if isinstance(value, exp.Literal) and not value.is_string and str(value.this).isdecimal():
        ledger.read(value, "this", "is_string")
        count = int(value.this)
        if count > _MOST:
            raise error(f"{clause.upper()} takes a number up to {_MOST:,}", node)
        return count
    raise error(f"{clause.upper()} takes a whole number", node)
