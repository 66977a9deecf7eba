"""Aggregate functions: the parts each one is made of, and its type."""

from __future__ import annotations

from sqlglot import exp

from whence.model import types as t
from whence.model.types import Kind
from whence.plan.algebra.expressions import Expr
from whence.sql import operators as op
from whence.sql.placeholders import AggRef
from whence.sql.position import error
from whence.sql.types import coerce

_ANYWHERE = ("count", "sum", "avg", "mean", "min", "max", "bool_and", "bool_or", "any_value", "count_if")
BY_ARRIVAL = ("first", "last")  # over any stream, besides windows
WINDOW_AGGREGATES = frozenset(
    (*BY_ARRIVAL, "stddev", "stddev_samp", "stddev_pop", "quantile", "quantile_disc", "median")
)
AGGREGATES = frozenset((*_ANYWHERE, *WINDOW_AGGREGATES))


def bind_aggregate(name: str, value: Expr, distinct: bool, node: exp.Expr) -> AggRef:
    """Bind an aggregate of one argument; BOOL_AND is MIN, BOOL_OR is MAX, ANY_VALUE is MIN too."""
    kind = value.type.kind
    match name:
        case "count":
            return AggRef(t.BIGINT, "count", value, distinct)
        case "min" | "bool_and" | "any_value":
            value = op.boolean(value, node) if name == "bool_and" else value
            return AggRef(value.type, "min", value, False)
        case "max" | "bool_or":
            value = op.boolean(value, node) if name == "bool_or" else value
            return AggRef(value.type, "max", value, False)
    if kind is Kind.NULL or kind is Kind.BOOLEAN:
        value = coerce(value, t.BIGINT, node)
    if not value.type.is_numeric:
        raise error(f"{name} is for numbers, found {value.type}", node)
    if name in ("avg", "mean"):
        return AggRef(t.DOUBLE, "avg", value, distinct)
    returns = {Kind.DOUBLE: t.DOUBLE, Kind.DECIMAL: t.decimal(t.MAX_PRECISION, value.type.scale)}
    return AggRef(returns.get(value.type.kind, t.BIGINT), "sum", value, distinct)


def window_aggregate(name: str, value: Expr, parameter: float | None, node: exp.Expr) -> AggRef:
    """Bind an aggregate that only windows have, and streams FIRST and LAST; `parameter` is which quantile."""
    if value.type.kind is Kind.NULL:
        value = coerce(value, t.BIGINT, node)
    match name:
        case "first" | "last":
            return AggRef(value.type, "first" if name == "first" else "last", value, False)
        case "stddev" | "stddev_samp" | "stddev_pop":
            if not value.type.is_numeric:
                raise error(f"{name} is for numbers, found {value.type}", node)
            value = coerce(value, t.DOUBLE, node) if value.type.is_wide else value
            return AggRef(t.DOUBLE, "stddev_pop" if name == "stddev_pop" else "stddev", value, False)
    if value.type.is_wide:
        raise error(f"{name} is for DECIMALs of up to 18 digits, found {value.type}; cast it to one or to DOUBLE", node)
    if value.type.is_interned:
        raise error(f"{name} is for numbers, dates and times, found {value.type}", node)
    return AggRef(value.type, "quantile", value, False, parameter)
