"""Literals: the values quoted in SQL text, converted when binding has found their type."""

from __future__ import annotations

import datetime as dt
from decimal import ROUND_HALF_EVEN, ROUND_HALF_UP, Decimal, InvalidOperation
from typing import Any

from sqlglot import exp

from whence.model import types as t
from whence.model import wide
from whence.model.codes import NULL, Interval
from whence.model.text import from_text, to_text
from whence.model.types import Kind, Type
from whence.plan.algebra.expressions import Lit
from whence.sql.position import error

_LONGEST = 1_000  # places before the point of a number that is to be whole
_LIMITS = {Kind.INTEGER: 2**31, Kind.BIGINT: 2**63}


def cast_value(value: Any, have: Type, type: Type) -> Any:
    """Convert a Python value of one type to a value of another; raise ValueError or OverflowError if it does not
    fit."""
    if value is None or have == type:
        return value
    if type.kind is Kind.TEXT:
        return to_text(value, have)
    if isinstance(value, str):
        value = from_text(value, type)
    match type.kind:
        case Kind.BOOLEAN:
            return bool(value)
        case Kind.INTEGER | Kind.BIGINT:
            return _integer(value, type)
        case Kind.DOUBLE:
            return float(value)
        case Kind.DECIMAL:
            return _decimal(value, type)
        case Kind.DATE:
            return value.date() if isinstance(value, dt.datetime) else value
        case Kind.TIMESTAMP:
            return value if isinstance(value, dt.datetime) else dt.datetime(value.year, value.month, value.day)
        case Kind.INTERVAL if isinstance(value, Interval):
            return value
    raise ValueError(f"{value!r} is not a value of type {type}")


def _integer(value: Any, type: Type) -> int:
    """Round to a whole number: DOUBLE half to even, DECIMAL half away from zero, as in columns."""
    try:
        exact = Decimal(value)
        if exact.is_finite() and exact.adjusted() > _LONGEST:
            raise OverflowError(value)
        number = int(exact.to_integral_value(ROUND_HALF_EVEN if isinstance(value, float) else ROUND_HALF_UP))
    except InvalidOperation:
        raise ValueError(value) from None
    limit = _LIMITS[type.kind]
    if not -limit <= number < limit or number == NULL:
        raise OverflowError(value)
    return number


def _decimal(value: Any, type: Type) -> Decimal:
    try:
        exact = Decimal(str(value).strip()) if not isinstance(value, (bool, int)) else Decimal(int(value))
    except InvalidOperation:
        raise ValueError(value) from None
    return wide.to_decimal(wide.scaled(exact, type), type.scale)


def read_literal(node: exp.Expr) -> Lit:
    """Bind a quoted or numeric literal, TRUE, FALSE or NULL.

    >>> str(read_literal(exp.Literal.number("0.05")).type)
    'DECIMAL(3,2)'
    """
    if isinstance(node, exp.Null):
        return Lit(t.NULLTYPE, None)
    if isinstance(node, exp.Boolean):
        return Lit(t.BOOLEAN, bool(node.this))
    if node.is_string:
        return Lit(t.TEXT, node.this)
    try:
        return _number(str(node.this).replace("_", ""))
    except (ValueError, InvalidOperation):  # to the tokenizer 1e3+1 and 1.2.3 are words
        raise error("not a number; a space may be missing", node) from None
    except OverflowError:
        raise error("the number does not fit in a BIGINT; with a point in it, it is a DECIMAL", node) from None


def _number(text: str) -> Lit:
    if "e" in text.lower():
        return Lit(t.DOUBLE, float(text))
    if "." in text:
        number = Decimal(text)
        scale = max(0, -int(number.as_tuple().exponent))
        precision = len(text.replace(".", ""))  # zeros as well, as DuckDB counts them
        return Lit(t.decimal(precision, scale), number) if precision <= t.MAX_PRECISION else Lit(t.DOUBLE, float(text))
    value = int(text)
    if value >= 2**63:
        raise OverflowError(text)
    return Lit(t.INTEGER if value < 2**31 else t.BIGINT, value)
