"""Operators: the casts that their operands need, and the type of their result."""

from __future__ import annotations

from sqlglot import exp

from whence.model import types as t
from whence.model.types import Kind, Type
from whence.plan.algebra.expressions import Call, Case, Cast, Expr, Lit
from whence.sql.placeholders import ParameterRef, UntypedParameterError
from whence.sql.position import error
from whence.sql.types import (
    as_decimal,
    as_text,
    coerce,
    common_type,
    decimal_for,
    is_text_literal,
    may_cast,
    same_codes,
    unify_types,
)

_MOMENTS = (Kind.DATE, Kind.TIMESTAMP)


def arithmetic(op: str, left: Expr, right: Expr, node: exp.Expr) -> Expr:
    """Build `left op right` for + - * / // %."""
    a, b = left.type, right.type
    if any(type.kind in (*_MOMENTS, Kind.INTERVAL) for type in (a, b)):
        return _moments(op, left, right, node)
    if a.kind is Kind.NULL:
        left, a = Lit(b if b.is_numeric else t.BIGINT, None), b if b.is_numeric else t.BIGINT
    if b.kind is Kind.NULL:
        right, b = Lit(a, None), a
    if not (a.is_numeric and b.is_numeric):
        raise error(f"{op} is for numbers, found {a} and {b}; cast if that is meant", node)
    if op == "/":
        return Call(t.DOUBLE, op, (coerce(left, t.DOUBLE, node), coerce(right, t.DOUBLE, node)))
    if a.is_integer and b.is_integer:
        return Call(t.BIGINT, op, (coerce(left, t.BIGINT, node), coerce(right, t.BIGINT, node)))
    if op == "//":  # as in DuckDB: on anything but integers it is /
        return Call(t.DOUBLE, "/", (coerce(left, t.DOUBLE, node), coerce(right, t.DOUBLE, node)))
    if Kind.DOUBLE in (a.kind, b.kind):
        return Call(t.DOUBLE, op, (coerce(left, t.DOUBLE, node), coerce(right, t.DOUBLE, node)))
    return _decimals(op, left, right, node)


def _decimals(op: str, left: Expr, right: Expr, node: exp.Expr) -> Expr:
    a, b = as_decimal(left.type), as_decimal(right.type)
    left, right = coerce(left, a, node), coerce(right, b, node)
    if op == "*":
        scale = a.scale + b.scale
        if scale > t.MAX_PRECISION:
            raise error(
                f"the product of {a} and {b} needs more than {t.MAX_PRECISION} decimal places; cast one to DOUBLE", node
            )
        narrow = not a.is_wide and not b.is_wide and scale < t.NARROW_PRECISION
        digits = min(a.precision + b.precision, t.NARROW_PRECISION if narrow else t.MAX_PRECISION)
        return Call(t.decimal(digits, scale), op, (left, right))
    type = decimal_for(a, b, 0 if op == "%" else 1)
    return Call(type, op, (coerce(left, type, node), coerce(right, type, node)))


def _moments(op: str, left: Expr, right: Expr, node: exp.Expr) -> Expr:
    """Build arithmetic with dates, timestamps and intervals. DATE with INTERVAL is a TIMESTAMP; DATE with a number
    counts days."""
    if left.type.kind is Kind.INTERVAL and op in "+*" and right.type.kind is not Kind.INTERVAL:
        left, right = (right, left) if op == "+" else (left, right)
    if op == "*" and right.type.kind is Kind.INTERVAL:
        left, right = right, left
    if is_text_literal(left) and right.type.kind in _MOMENTS:
        left = coerce(left, right.type, node)
    if is_text_literal(right) and left.type.kind in _MOMENTS:
        right = coerce(right, left.type if op == "-" else t.INTERVAL, node)
    if left.type.kind is Kind.NULL:
        left = Lit(right.type, None)
    if right.type.kind is Kind.NULL:
        right = Lit(t.INTERVAL, None)
    if op == "+" and left.type.is_integer:
        left, right = right, left
    a, b = left.type.kind, right.type.kind
    if op in "+-" and a in _MOMENTS and b is Kind.INTERVAL:
        moment = t.INSTANT if left.type.is_zoned else t.TIMESTAMP
        return Call(moment, op, (coerce(left, moment, node), right))
    if op in "+-" and a is Kind.DATE and right.type.is_integer:
        return Call(t.DATE, op, (left, coerce(right, t.BIGINT, node)))
    if op == "-" and a is b is Kind.DATE:
        return Call(t.BIGINT, op, (left, right))
    if op == "-" and a in _MOMENTS and b in _MOMENTS:
        return Call(t.INTERVAL, op, (coerce(left, t.TIMESTAMP, node), coerce(right, t.TIMESTAMP, node)))
    if op in "+-" and a is b is Kind.INTERVAL:
        return Call(t.INTERVAL, op, (left, right))
    if op == "*" and a is Kind.INTERVAL and right.type.is_integer:
        return Call(t.INTERVAL, op, (left, coerce(right, t.BIGINT, node)))
    raise error(f"{op} does not take {left.type} and {right.type}", node)


def comparison(op: str, left: Expr, right: Expr, node: exp.Expr) -> Expr:
    """Build `left op right`, both at the type they share; a quoted literal takes the other's type."""
    (left, right), _ = comparable(left, right, node)
    return Call(t.BOOLEAN, op, (left, right))


def comparable(left: Expr, right: Expr, node: exp.Expr) -> tuple[list[Expr], Type]:
    """Convert both sides to the type they are compared at."""
    a, b = left.type, right.type
    for parameter, other in ((left, right), (right, left)):
        if isinstance(parameter, ParameterRef):
            _check_parameter(parameter, other, node)
    if common_type(a, b) is None and not (is_text_literal(left) or is_text_literal(right)):
        if a.kind is Kind.TEXT and b.is_numeric:
            left = Cast(b, left)
        elif b.kind is Kind.TEXT and a.is_numeric:
            right = Cast(a, right)
        else:
            raise error(f"cannot compare {a} with {b}: an explicit cast is required", node)
    exact = [e.type for e in (left, right) if e.type.is_integer or e.type.kind is Kind.DECIMAL]
    if len(exact) == 2 and any(type.is_wide for type in exact):  # never rounded, though one may be out of range
        type = decimal_for(as_decimal(exact[0]), as_decimal(exact[1]))
        return [coerce(left, type, node), coerce(right, type, node)], type
    return unify_types([left, right], node, "a comparison")


def _check_parameter(parameter: ParameterRef, other: Expr, node: exp.Expr) -> None:
    """Check that a parameter has the type of what it is compared with, or a wider one of the same kind."""
    have, type = parameter.type, other.type
    if parameter.declared or have == type or isinstance(other, Lit) or same_codes(type, have):
        return
    if Kind.NULL in (have.kind, type.kind):
        return
    if same_codes(have, type):
        raise UntypedParameterError(parameter.name, type)
    name = f":{parameter.name}"
    raise error(
        f"{name} is compared with two types, {have} and here {type}; cast it in one place, CAST({name} AS {type})", node
    )


def negated(arg: Expr, node: exp.Expr) -> Expr:
    """Build `- arg`; of a literal, the literal below zero."""
    if isinstance(arg, Lit) and arg.value is not None and arg.type.is_numeric:
        least = arg.type.kind is Kind.BIGINT and arg.value == 2**31  # -2147483648 is an INTEGER, its digits are not
        negative = arg.value.copy_negate() if arg.type.kind is Kind.DECIMAL else -arg.value
        return Lit(t.INTEGER if least else arg.type, negative)
    if arg.type.kind is Kind.INTERVAL:
        return Call(t.INTERVAL, "*", (arg, Lit(t.BIGINT, -1)))
    if arg.type.kind is Kind.NULL:
        return Lit(t.BIGINT, None)
    if not arg.type.is_numeric:
        raise error(f"- is for numbers, found {arg.type}", node)
    return Call(t.BIGINT if arg.type.is_integer else arg.type, "neg", (arg,))


def boolean(expr: Expr, node: exp.Expr) -> Expr:
    """Check that the expression is a condition."""
    if expr.type.kind is Kind.BOOLEAN:
        return expr
    if expr.type.kind is Kind.NULL or expr.type.is_integer or is_text_literal(expr):
        return coerce(expr, t.BOOLEAN, node)
    raise error(f"expected a condition, found {expr.type}", node)


def logic(op: str, args: list[Expr], node: exp.Expr) -> Expr:
    """Build AND or OR of any number of conditions."""
    if len(args) == 1:
        return args[0]
    return Call(t.BOOLEAN, op, tuple(boolean(a, node) for a in args))


def member(value: Expr, items: list[Expr], node: exp.Expr) -> Expr:
    """Build `value IN (items)`: one operation over literals, else a comparison with each."""
    for item in items:
        comparable(value, item, node)
    (value, *items), _ = unify_types([value, *items], node, "IN")
    if all(isinstance(item, Lit) for item in items):
        return Call(t.BOOLEAN, "in", (value, *items))
    return logic("or", [comparison("=", value, item, node) for item in items], node)


def cast(arg: Expr, type: Type, lenient: bool, node: exp.Expr) -> Expr:
    """Build CAST or TRY_CAST."""
    if isinstance(arg, ParameterRef) and arg.is_untyped:
        raise UntypedParameterError(arg.name, type)
    if not may_cast(arg.type, type):
        raise error(f"{arg.type} cannot be cast to {type}", node)
    if isinstance(arg, Lit) and not (type.kind is Kind.TEXT and arg.type.kind in (Kind.DOUBLE, Kind.INTERVAL)):
        try:
            return coerce(arg, type, node)
        except Exception:
            if lenient:
                return Lit(type, None)
            raise
    if arg.type.kind is type.kind is Kind.TIMESTAMP:
        return coerce(arg, type, node)
    if arg.type.is_zoned and type.kind is Kind.TEXT:
        return as_text(arg)
    return arg if arg.type == type else Cast(type, arg, lenient)


def case(branches: list[tuple[Expr, Expr]], default: Expr | None, node: exp.Expr) -> Expr:
    """Build a searched CASE with its values at one type."""
    values = [v for _, v in branches] + [default if default is not None else Lit(t.NULLTYPE, None)]
    met, type = unify_types(values, node, "CASE")
    return Case(type, tuple((boolean(c, node), v) for (c, _), v in zip(branches, met[:-1], strict=True)), met[-1])
