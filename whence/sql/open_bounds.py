"""NULL as "no bound": comparisons of a template's query with its parameters, written out.

`x >= :low` in WHERE, ON or HAVING becomes `x >= :low OR (:low IS NULL AND x IS NOT NULL)`, and so do >, < and <=;
BETWEEN is two of them. So a range without an end holds every value on that side. A NULL is in no range, and a
parameter that is compared by `=` and is NULL matches nothing, as in SQL.
"""

from __future__ import annotations

from sqlglot import exp

from whence.sql.position import WRITTEN

_RANGES = (exp.GTE, exp.GT, exp.LTE, exp.LT)
_CLAUSES = (exp.Where, exp.Having)


def open_bounds(query: exp.Expr) -> exp.Expr:
    """Return the query with its comparisons with parameters written out; the tree that is given is changed.

    >>> from sqlglot import parse_one
    >>> open_bounds(parse_one("SELECT a FROM t WHERE a < :high", dialect="duckdb")).sql("duckdb")
    'SELECT a FROM t WHERE (a < $high OR ($high IS NULL AND NOT a IS NULL))'
    """
    conditions = [node.this for node in query.find_all(*_CLAUSES)]
    conditions += [join.args["on"] for join in query.find_all(exp.Join) if join.args.get("on") is not None]
    found = [node for condition in conditions for node in condition.find_all(exp.Between, *_RANGES)]
    for node in {id(node): node for node in found}.values():
        written = _opened_between(node) if isinstance(node, exp.Between) else _opened(node)
        if written is not None:
            written.meta[WRITTEN] = node
            node.replace(written)
    return query


def _opened_between(node: exp.Between) -> exp.Expr | None:
    low, high = node.args["low"], node.args["high"]
    if not (_is_parameter(low) or _is_parameter(high)) or node.args.get("symmetric"):
        return None
    least = exp.GTE(this=node.this.copy(), expression=low.copy())
    most = exp.LTE(this=node.this.copy(), expression=high.copy())
    return exp.Paren(this=exp.And(this=_opened(least) or least, expression=_opened(most) or most))


def _opened(node: exp.Expr) -> exp.Expr | None:
    """Return a comparison of a parameter with something else, written out; None if it is none."""
    sides = (node.this, node.expression)
    parameters = [side for side in sides if _is_parameter(side)]
    if len(parameters) != 1:
        return None
    (parameter,) = parameters
    value = sides[0] if parameter is sides[1] else sides[1]
    absent = exp.Is(this=parameter.copy(), expression=exp.Null())
    there = exp.Not(this=exp.Is(this=value.copy(), expression=exp.Null()))
    return exp.Paren(this=exp.Or(this=node.copy(), expression=exp.Paren(this=exp.And(this=absent, expression=there))))


def _is_parameter(node: exp.Expr) -> bool:
    """Tell whether a side of a comparison is a parameter, perhaps cast."""
    while isinstance(node, (exp.Paren, exp.Cast)):
        node = node.this
    return isinstance(node, exp.Placeholder)
