"""Aggregate functions: what each one is made of, and its type."""

from __future__ import annotations

from sqlglot import exp

from whence.model import types as t
from whence.model.types import Kind
from whence.plan.expr import Expr
from whence.sql import operators as op
from whence.sql.placeholders import AggRef
from whence.sql.position import error
from whence.sql.types import coerce

AGGREGATES = frozenset(("count", "sum", "avg", "mean", "min", "max", "bool_and", "bool_or", "any_value", "count_if"))


def aggregated(name: str, value: Expr, distinct: bool, node: exp.Expr) -> AggRef:
    """An aggregate of one argument; BOOL_AND is MIN, BOOL_OR is MAX, ANY_VALUE is MIN too."""
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
