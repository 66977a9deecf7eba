"""Built-in scalar functions: the arguments they take and the expression a call becomes.

One table, `BUILTINS`, from name to a `Builtin`. A function that is no operation of the engine's own is composed of some
that are (`concat` of `coalesce` and `||`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from sqlglot import exp

from whence.model import types as t
from whence.model.text import unit_of
from whence.model.types import Kind, Type
from whence.plan.algebra.expressions import Call, Case, Expr, Lit, is_volatile
from whence.sql.position import error
from whence.sql.types import as_text, coerce, common_type, is_text_literal, unify_types

Build = Callable[[list[Expr], exp.Expr], Expr]


@dataclass(frozen=True)
class Builtin:
    """A function of `least` to `most` arguments (None: any number)."""

    build: Build
    least: int
    most: int | None


BUILTINS: dict[str, Builtin] = {}
NONDETERMINISTIC = frozenset(
    [
        "now",
        "random",
        "rand",
        "uuid",
        "gen_random_uuid",
        "current_timestamp",
        "current_date",
        "current_time",
        "today",
        "localtime",
        "localtimestamp",
        "transaction_timestamp",
        "get_current_timestamp",
        "get_current_time",
        "setseed",
        "nextval",
        "current_datetime",
    ]
)
_PARTS = frozenset(
    [
        "year",
        "quarter",
        "month",
        "week",
        "day",
        "hour",
        "minute",
        "second",
        "millisecond",
        "microsecond",
        "decade",
        "century",
        "dayofweek",
        "isodow",
        "dayofyear",
        "epoch",
        "dow",
        "doy",
        "weekday",
        "isoyear",
    ]
)
_PART_NAMES = {"dow": "dayofweek", "doy": "dayofyear", "weekday": "dayofweek", "dayofmonth": "day"}
_INTERVAL_PARTS = (
    *("century", "decade", "year", "quarter", "month", "day"),
    *("hour", "minute", "second", "millisecond", "microsecond", "epoch"),
)


def call_builtin(name: str, args: list[Expr], node: exp.Expr) -> Expr:
    """Bind a call of a built-in function."""
    builtin = BUILTINS[name]
    if len(args) < builtin.least or (builtin.most is not None and len(args) > builtin.most):
        wanted = str(builtin.least) if builtin.least == builtin.most else f"{builtin.least} to {builtin.most or 'many'}"
        raise error(f"{name} takes {wanted} arguments, not {len(args)}", node)
    return builtin.build(args, node)


def _register(names: str, least: int, most: int | None) -> Callable[[Build], Build]:
    def add(build: Build) -> Build:
        for name in names.split():
            BUILTINS[name] = Builtin(build, least, most)
        return build

    return add


def _typed(op: str, returns: Type, *takes: Type) -> Build:
    """Build a call whose arguments have fixed types."""

    def build(args: list[Expr], node: exp.Expr) -> Expr:
        return Call(returns, op, tuple(argument(a, t, node) for a, t in zip(args, takes, strict=False)))

    return build


def argument(expr: Expr, type: Type, node: exp.Expr) -> Expr:
    """Make an argument fit: NULL, literals and wider numbers follow the function; anything else must have the type."""
    have = expr.type
    fits = (
        have == type
        or have.kind is Kind.NULL
        or is_text_literal(expr)
        or (type.kind is Kind.DOUBLE and have.is_numeric)
        or (type.kind is Kind.BIGINT and have.is_integer)
        or (type.kind is Kind.TIMESTAMP and have.kind is Kind.DATE)
        or (type.kind is have.kind and type.kind in (Kind.DECIMAL, Kind.TIMESTAMP))
    )
    if not fits:
        raise error(f"expected {type}, found {have}; cast it if that is meant", node)
    return coerce(expr, type, node)


def part_of(name: str, node: exp.Expr) -> str:
    """Return the canonical name of a date part."""
    part = unit_of(name) or name.lower()
    part = _PART_NAMES.get(part, part)
    if part not in _PARTS:
        raise error(f'unknown date part "{name}"', node)
    return part


def extract(part: str, value: Expr, node: exp.Expr) -> Expr:
    """Build EXTRACT(part FROM value)."""
    part = part_of(part, node)
    if is_text_literal(value) or value.type.kind is Kind.NULL:
        value = coerce(value, t.TIMESTAMP, node)
    if value.type.kind not in (Kind.DATE, Kind.TIMESTAMP, Kind.INTERVAL):
        raise error(f"a date part is taken from a DATE, TIMESTAMP or INTERVAL, not {value.type}", node)
    if value.type.kind is Kind.INTERVAL and part not in _INTERVAL_PARTS:
        raise error(f"an INTERVAL has no {part}; its parts are {', '.join(_INTERVAL_PARTS)}", node)
    return Call(t.DOUBLE if part == "epoch" else t.BIGINT, f"extract:{part}", (value,))


def text(expr: Expr, node: exp.Expr) -> Expr:
    """Convert the expression to text, by a cast if need be."""
    return coerce(expr, t.TEXT, node) if isinstance(expr, Lit) and expr.value is None else _to_text(expr, node)


def _to_text(expr: Expr, node: exp.Expr) -> Expr:
    return expr if expr.type == t.TEXT else as_text(expr)


for _name in ("lower", "upper", "reverse"):
    BUILTINS[_name] = Builtin(_typed(_name, t.TEXT, t.TEXT), 1, 1)
BUILTINS["ucase"], BUILTINS["lcase"] = BUILTINS["upper"], BUILTINS["lower"]
for _name in ("trim", "ltrim", "rtrim"):
    BUILTINS[_name] = Builtin(_typed(_name, t.TEXT, t.TEXT, t.TEXT), 1, 2)
for _name in ("length", "len", "char_length", "character_length"):
    BUILTINS[_name] = Builtin(_typed("length", t.BIGINT, t.TEXT), 1, 1)
BUILTINS["strlen"] = Builtin(_typed("strlen", t.BIGINT, t.TEXT), 1, 1)
for _name in ("substring", "substr"):
    BUILTINS[_name] = Builtin(_typed("substring", t.TEXT, t.TEXT, t.BIGINT, t.BIGINT), 2, 3)
for _name in ("left", "right", "repeat"):
    BUILTINS[_name] = Builtin(_typed(_name, t.TEXT, t.TEXT, t.BIGINT), 2, 2)
for _name in ("lpad", "rpad"):
    BUILTINS[_name] = Builtin(_typed(_name, t.TEXT, t.TEXT, t.BIGINT, t.TEXT), 3, 3)
for _name, _op in {
    "starts_with": "starts_with",
    "prefix": "starts_with",
    "ends_with": "ends_with",
    "suffix": "ends_with",
    "contains": "contains",
}.items():
    BUILTINS[_name] = Builtin(_typed(_op, t.BOOLEAN, t.TEXT, t.TEXT), 2, 2)
for _name in ("strpos", "instr"):
    BUILTINS[_name] = Builtin(_typed("strpos", t.BIGINT, t.TEXT, t.TEXT), 2, 2)
BUILTINS["replace"] = Builtin(_typed("replace", t.TEXT, t.TEXT, t.TEXT, t.TEXT), 3, 3)
BUILTINS["split_part"] = Builtin(_typed("split_part", t.TEXT, t.TEXT, t.TEXT, t.BIGINT), 3, 3)
for _name, _op in {
    "sqrt": "sqrt",
    "ln": "ln",
    "log": "log10",
    "log10": "log10",
    "exp": "exp",
}.items():
    BUILTINS[_name] = Builtin(_typed(_op, t.DOUBLE, t.DOUBLE), 1, 1)
for _name in ("power", "pow"):
    BUILTINS[_name] = Builtin(_typed("power", t.DOUBLE, t.DOUBLE, t.DOUBLE), 2, 2)


def number(expr: Expr, node: exp.Expr) -> Expr:
    """Check that the expression is a number (a bare NULL becomes one)."""
    if expr.type.kind is Kind.NULL:
        return coerce(expr, t.BIGINT, node)
    if not expr.type.is_numeric:
        raise error(f"expected a number, found {expr.type}", node)
    return expr


@_register("abs", 1, 1)
def _abs(args: list[Expr], node: exp.Expr) -> Expr:
    arg = number(args[0], node)
    return Call(arg.type, "abs", (arg,))


@_register("sign", 1, 1)
def _sign(args: list[Expr], node: exp.Expr) -> Expr:
    return Call(t.BIGINT, "sign", (number(args[0], node),))


@_register("floor", 1, 1)
def _floor(args: list[Expr], node: exp.Expr) -> Expr:
    return _whole("floor", args[0], node)


@_register("ceil ceiling", 1, 1)
def _ceil(args: list[Expr], node: exp.Expr) -> Expr:
    return _whole("ceil", args[0], node)


def _whole(op: str, arg: Expr, node: exp.Expr) -> Expr:
    arg = number(arg, node)
    if arg.type.kind is Kind.DECIMAL:
        return Call(t.decimal(arg.type.precision, 0), op, (arg,))
    return Call(t.DOUBLE, op, (coerce(arg, t.DOUBLE, node),))


@_register("round", 1, 2)
def _round(args: list[Expr], node: exp.Expr) -> Expr:
    arg = number(args[0], node)
    digits = args[1] if len(args) > 1 else Lit(t.BIGINT, 0)
    if not isinstance(digits, Lit) or not isinstance(digits.value, int):
        raise error("round takes a whole number of digits, written out", node)
    places = Lit(t.BIGINT, digits.value)
    if arg.type.is_integer:
        return arg if digits.value >= 0 else Call(arg.type, "round", (arg, places))
    if arg.type.kind is Kind.DECIMAL:
        return Call(t.decimal(arg.type.precision, max(0, min(arg.type.scale, digits.value))), "round", (arg, places))
    return Call(t.DOUBLE, "round", (arg, places))


@_register("coalesce ifnull", 1, None)
def _coalesce(args: list[Expr], node: exp.Expr) -> Expr:
    met, type = unify_types(args, node, "COALESCE")
    return met[0] if len(met) == 1 else Call(type, "coalesce", tuple(met))


@_register("least", 1, None)
def _least(args: list[Expr], node: exp.Expr) -> Expr:
    met, type = unify_types(args, node, "LEAST")
    return Call(type, "least", tuple(met))


@_register("greatest", 1, None)
def _greatest(args: list[Expr], node: exp.Expr) -> Expr:
    met, type = unify_types(args, node, "GREATEST")
    return Call(type, "greatest", tuple(met))


@_register("nullif", 2, 2)
def _nullif(args: list[Expr], node: exp.Expr) -> Expr:
    met, type = unify_types(args, node, "NULLIF")
    return Call(type, "nullif", tuple(met))


@_register("concat", 1, None)
def _concat(args: list[Expr], node: exp.Expr) -> Expr:
    parts = [Call(t.TEXT, "coalesce", (text(a, node), Lit(t.TEXT, ""))) for a in args]
    found: Expr = parts[0]
    for part in parts[1:]:
        found = Call(t.TEXT, "||", (found, part))
    return found


@_register("if iff", 3, 3)
def _if(args: list[Expr], node: exp.Expr) -> Expr:
    (yes, no), type = unify_types(args[1:], node, "IF")
    return Case(type, ((coerce(args[0], t.BOOLEAN, node), yes),), no)


@_register("mod", 2, 2)
def _mod(args: list[Expr], node: exp.Expr) -> Expr:
    from whence.sql.operators import arithmetic

    return arithmetic("%", args[0], args[1], node)


def _literal_part(expr: Expr, node: exp.Expr) -> str:
    if not is_text_literal(expr):
        raise error("the date part must be written out, like 'month'", node)
    return str(expr.value)  # type: ignore[attr-defined]  # is_text_literal says it is a Lit


def _boundary(name: str, node: exp.Expr) -> str:
    """Return the part whose boundaries are counted or cut at: any day of something is a day, the epoch is in
    seconds."""
    part = part_of(name, node)
    return {"dayofweek": "day", "isodow": "day", "dayofyear": "day", "epoch": "second"}.get(part, part)


@_register("date_part datepart", 2, 2)
def _date_part(args: list[Expr], node: exp.Expr) -> Expr:
    return extract(_literal_part(args[0], node), args[1], node)


@_register("date_trunc datetrunc", 2, 2)
def _date_trunc(args: list[Expr], node: exp.Expr) -> Expr:
    part = _boundary(_literal_part(args[0], node), node)
    moment = t.INSTANT if args[1].type.is_zoned else t.TIMESTAMP
    return Call(moment, f"date_trunc:{part}", (argument(args[1], moment, node),))


@_register("time_bucket", 2, 3)
def _time_bucket(args: list[Expr], node: exp.Expr) -> Expr:
    """Bind time_bucket(width, moment [, origin or offset]); of a DATE it is a DATE, if no TIMESTAMP is beside it."""
    width, moment, *more = args
    width = argument(width, t.INTERVAL, node)
    for arg in (moment, *more):
        if is_text_literal(arg) or arg.type.kind not in (Kind.DATE, Kind.TIMESTAMP, Kind.INTERVAL, Kind.NULL):
            raise error(
                "time_bucket takes an INTERVAL, a DATE or TIMESTAMP, and the origin as one of them or an offset as an "
                f"INTERVAL; found {arg.type}",
                node,
            )
    if moment.type.kind is Kind.INTERVAL:
        raise error("time_bucket takes a DATE or TIMESTAMP as its second argument, found INTERVAL", node)
    type = moment.type if moment.type.kind is not Kind.NULL else t.TIMESTAMP
    origin = [arg for arg in more if arg.type.kind is not Kind.INTERVAL]
    type = common_type(type, origin[0].type) or type if origin else type
    at = t.INSTANT if type.is_zoned else t.TIMESTAMP
    moment = coerce(coerce(moment, type, node), at, node)
    if origin or not more:
        found = Call(at, "time_bucket", (width, moment, *(coerce(arg, at, node) for arg in origin)))
    else:
        offset = more[0]
        if is_volatile(offset):
            raise error("the offset of time_bucket is computed twice; compute it in a subquery", node)
        moved = Call(at, "time_bucket", (width, Call(at, "-", (moment, offset))))
        found = Call(at, "+", (moved, offset))
    return coerce(found, type, node)


@_register("date_diff datediff", 3, 3)
def _date_diff(args: list[Expr], node: exp.Expr) -> Expr:
    part = _boundary(_literal_part(args[0], node), node)
    ends = tuple(argument(a, t.TIMESTAMP, node) for a in args[1:])
    return Call(t.BIGINT, f"date_diff:{part}", ends)


def _part_function(part: str) -> Build:
    return lambda args, node: extract(part, args[0], node)


for _name in sorted(_PARTS | {"dayofmonth"}):
    BUILTINS.setdefault(_name, Builtin(_part_function("day" if _name == "dayofmonth" else _name), 1, 1))
