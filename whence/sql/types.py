"""The type rules: the type that two values share, the type of an operator's result, and conversions between types.

They are DuckDB's, except that integer arithmetic is always BIGINT. An INTEGER becomes a BIGINT, and a DECIMAL one with
more digits of the same scale, without a Cast: the codes are the same, so only the expression's type changes.
"""

from __future__ import annotations

from dataclasses import replace

from sqlglot import exp

from whence.model import types as t
from whence.model.types import Kind, Type
from whence.plan.algebra.expressions import Call, Cast, Expr, Lit
from whence.sql.literals import cast_value
from whence.sql.placeholders import ParameterRef, UntypedParameterError
from whence.sql.position import error

_NAMES: dict[str, Type] = {
    "BOOLEAN": t.BOOLEAN,
    "INT": t.INTEGER,
    "SMALLINT": t.INTEGER,
    "TINYINT": t.INTEGER,
    "BIGINT": t.BIGINT,
    "DOUBLE": t.DOUBLE,
    "FLOAT": t.DOUBLE,
    "TEXT": t.TEXT,
    "VARCHAR": t.TEXT,
    "CHAR": t.TEXT,
    "NCHAR": t.TEXT,
    "NVARCHAR": t.TEXT,
    "DATE": t.DATE,
    "DATETIME": t.TIMESTAMP,
    "TIMESTAMP": t.TIMESTAMP,
    "TIMESTAMPNTZ": t.TIMESTAMP,
    "INTERVAL": t.INTERVAL,
}
_DIGITS = {Kind.INTEGER: 10, Kind.BIGINT: 19}


def type_of(node: exp.Expr) -> Type:
    """Return the type that a `DataType` of sqlglot names."""
    name = getattr(node.this, "value", str(node.this)) if isinstance(node, exp.DataType) else str(node)
    if isinstance(node, exp.Interval):
        return t.INTERVAL
    if name == "DECIMAL":
        try:
            given = [int(p.name) for p in node.expressions]
        except ValueError:
            raise error("DECIMAL takes whole numbers, DECIMAL(digits, digits after the point)", node) from None
        precision = given[0] if given else t.NARROW_PRECISION
        scale = given[1] if len(given) > 1 else (0 if given else 3)
        if not 1 <= precision <= t.MAX_PRECISION or not 0 <= scale <= precision:
            raise error(f"DECIMAL has 1 to {t.MAX_PRECISION} digits, of which at most all after the point", node)
        return t.decimal(precision, scale)
    if name in _NAMES:
        found = _NAMES[name]
        if node.expressions and found.kind is not Kind.TEXT:
            raise error(f"{found} takes no length or precision", node)
        return found
    supported = "BOOLEAN, INTEGER, BIGINT, DOUBLE, DECIMAL, TEXT, DATE, TIMESTAMP, INTERVAL"
    raise error(f"unsupported type; the types are {supported}", node)


def cast_type(node: exp.Expr) -> Type:
    """Return the type that CAST names, which may be one that columns cannot have."""
    zoned = isinstance(node, exp.DataType) and node.this in (exp.DType.TIMESTAMPTZ, exp.DType.TIMESTAMPLTZ)
    return t.INSTANT if zoned and not node.expressions else type_of(node)


def as_decimal(type: Type) -> Type:
    """Return the DECIMAL that holds an integer type's values."""
    return type if type.kind is Kind.DECIMAL else t.decimal(_DIGITS[type.kind], 0)


def decimal_for(a: Type, b: Type, more: int = 0) -> Type:
    """Return the DECIMAL for values of both, with `more` digits before the point, as far as there are digits."""
    scale = max(a.scale, b.scale)
    whole = max(a.precision - a.scale, b.precision - b.scale)
    return t.decimal(whole + scale + more, scale)


def common_type(a: Type, b: Type) -> Type | None:
    """Return the type that both may become without a cast in the text, or None.

    >>> str(common_type(t.INTEGER, t.decimal(4, 2)))
    'DECIMAL(12,2)'
    >>> common_type(t.TEXT, t.DATE) is None
    True
    """
    if a == b or b.kind is Kind.NULL:
        return a
    if a.kind is Kind.NULL:
        return b
    if a.is_numeric and b.is_numeric:
        if Kind.DOUBLE in (a.kind, b.kind):
            return t.DOUBLE
        if a.is_integer and b.is_integer:
            return t.BIGINT
        exact = decimal_for(as_decimal(a), as_decimal(b))
        whole = max(d.precision - d.scale for d in (as_decimal(a), as_decimal(b)))
        return t.decimal(exact.precision, min(exact.scale, t.MAX_PRECISION - whole))  # rounded rather than out of range
    if {a.kind, b.kind} <= {Kind.DATE, Kind.TIMESTAMP}:
        return t.INSTANT if a.is_zoned or b.is_zoned else t.TIMESTAMP
    if Kind.BOOLEAN in (a.kind, b.kind) and (a.is_integer or b.is_integer):
        return b if a.kind is Kind.BOOLEAN else a
    return None


def is_text_literal(expr: Expr) -> bool:
    """Tell whether an expression is a quoted literal, which takes the type of its context."""
    return isinstance(expr, Lit) and expr.type.kind is Kind.TEXT and expr.value is not None


def unify_types(exprs: list[Expr], node: exp.Expr, what: str) -> tuple[list[Expr], Type]:
    """Convert the expressions to the one type they share; quoted literals follow the others."""
    firm = [e for e in exprs if not is_text_literal(e)]
    found = t.NULLTYPE
    for expr in firm or exprs:
        shared = common_type(found, expr.type)
        if shared is None:
            raise error(f"{what} of types {found} and {expr.type}: an explicit cast is required", node)
        found = shared
    if found.kind is Kind.NULL and len(firm) < len(exprs):
        found = t.TEXT
    return [coerce(e, found, node) for e in exprs], found


def coerce(expr: Expr, type: Type, node: exp.Expr | None = None) -> Expr:
    """Convert the expression to the type: itself, a literal converted now, or a Cast."""
    have = expr.type
    if have == type or type.kind is Kind.NULL:
        return expr
    if isinstance(expr, ParameterRef) and expr.is_untyped:
        raise UntypedParameterError(expr.name, type)
    if have.kind is Kind.NULL:
        return Lit(type, None)
    if isinstance(expr, Lit):
        try:
            return Lit(type, cast_value(expr.value, have, type))
        except (ValueError, OverflowError, ArithmeticError):
            raise error(f"{expr.value!r:.80} is not a value of type {type}", node) from None
    if same_codes(have, type):
        return replace(expr, type=type)
    return Cast(type, expr)


def as_text(expr: Expr) -> Expr:
    """Convert the expression to TEXT by a cast; an instant is shown in UTC, with its offset, as in DuckDB."""
    if not expr.type.is_zoned:
        return Cast(t.TEXT, expr)
    return Call(t.TEXT, "||", (Cast(t.TEXT, coerce(expr, t.TIMESTAMP)), Lit(t.TEXT, "+00")))


def same_codes(have: Type, type: Type) -> bool:
    """Tell whether every value of the first type has the same code in the second."""
    if have.kind is Kind.INTEGER and type.kind is Kind.BIGINT:
        return True
    if have.kind is type.kind is Kind.TIMESTAMP:
        return True
    return have.kind is type.kind is Kind.DECIMAL and have.scale == type.scale and have.precision <= type.precision


def may_cast(have: Type, type: Type) -> bool:
    """Tell whether CAST from one type to the other means anything."""
    if have.kind is Kind.NULL or have == type or Kind.TEXT in (have.kind, type.kind):
        return True
    if have.is_numeric or have.kind is Kind.BOOLEAN:
        return type.is_numeric or type.kind is Kind.BOOLEAN
    return {have.kind, type.kind} <= {Kind.DATE, Kind.TIMESTAMP}
