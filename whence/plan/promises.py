"""Promises of a table or stream: what holds of every row that it takes in, and what follows for rows to come.

| promise                                    | law |
|--------------------------------------------|-----|
| `CHECK (n >= 0)`                           | no row makes it FALSE; a row that makes it NULL passes, as in SQL |
| `WITH (ordered = 'time')`                  | no row has a smaller value of the column than a row before it |
| `WITH (ordered = 'time strictly')`         | nor an equal one |
| `WITH (closes = 'game when kind = ''end''')` | no row has the key of a closing row before it |

Writers enforce them (`runtime/writing/promise_guard.py`), so that plans may rely on them. Only streams are ordered or
close keys: rows of a table change. Of NULL keys all are one key; a condition that is NULL does not close.
"""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from whence.model.types import Kind, Type
from whence.plan.algebra.expressions import Call, Cast, Col, Expr, Lit, columns_of

Domain = tuple[Any, Any]
"""The lowest and the highest value that a column may have, None where there is no bound."""

_ANY: Domain = (None, None)
_MIRRORED = {"<": ">", "<=": ">=", ">": "<", ">=": "<=", "=": "="}
_NUMBERS = (Kind.INTEGER, Kind.BIGINT, Kind.DECIMAL, Kind.DOUBLE)
_ORDERED = (*_NUMBERS, Kind.TEXT, Kind.DATE, Kind.TIMESTAMP, Kind.BOOLEAN)  # whose Python values order as SQL's do


@dataclass(frozen=True)
class Check:
    """A condition over the columns of a row, as it was written, and its name if it has one."""

    predicate: Expr
    text: str
    name: str = ""

    def __str__(self) -> str:
        return f"CHECK ({self.text})" + (f" ({self.name})" if self.name else "")


@dataclass(frozen=True)
class OrderedColumn:
    """Rows come in the order of a column; `strictly`, no two of them have the same value."""

    column: int
    strictly: bool = False
    text: str = ""

    def __str__(self) -> str:
        return f"ordered = '{self.text}'"

    def after(self, code: int) -> int:
        """Return the lowest code that may come after a row with `code`."""
        return code + 1 if self.strictly else code


@dataclass(frozen=True)
class Closes:
    """A row for which the predicate is true is the last one with its key."""

    columns: tuple[int, ...]
    predicate: Expr
    text: str = ""

    def __str__(self) -> str:
        quoted = self.text.replace("'", "''")
        return f"closes = '{quoted}'"


@dataclass(frozen=True)
class Promises:
    """All promises of one table. True if there are any."""

    checks: tuple[Check, ...] = ()
    ordered: OrderedColumn | None = None
    closes: Closes | None = None

    def __bool__(self) -> bool:
        return bool(self.checks or self.ordered or self.closes)

    @property
    def follows_order(self) -> bool:
        """Whether rows that were taken in before decide about those to come."""
        return (self.ordered or self.closes) is not None

    def __iter__(self) -> Iterator[Check | OrderedColumn | Closes]:
        yield from self.checks
        if self.ordered is not None:
            yield self.ordered
        if self.closes is not None:
            yield self.closes

    def of_column(self, column: int) -> Iterator[str]:
        """Yield the text of each promise that concerns a column."""
        for promise in self:
            match promise:
                case Check():
                    concerned = columns_of(promise.predicate)
                case OrderedColumn():
                    concerned = {promise.column}
                case Closes():
                    concerned = {*promise.columns, *columns_of(promise.predicate)}
            if column in concerned:
                yield str(promise)


NO_PROMISES = Promises()


def domain_of(checks: tuple[Check, ...], column: int, type: Type) -> Domain:
    """Return the lowest and the highest value of a column that constants in the checks allow; NULL is beside it.

    >>> from whence.sql.parse import parse_one
    >>> table = parse_one("CREATE TABLE t (a INT CHECK (a BETWEEN 0 AND 9), b INT, CHECK (a < 4), CHECK (a < b))").table
    >>> table.domain("a"), table.domain("b")
    ((0, 3), (None, None))
    """
    found = _ANY
    if type.kind in _ORDERED:
        for check in checks:
            found = _both(found, _allowed(check.predicate, column, type))
    return found


def _allowed(expr: Expr, column: int, type: Type) -> Domain:
    """Return bounds on the values of the column, other than NULL, for which a condition is TRUE or NULL."""
    match expr:
        case Call(op="and"):
            found = _ANY
            for part in expr.args:
                found = _both(found, _allowed(part, column, type))
            return found
        case Call(op="or"):
            return _hull([_allowed(part, column, type) for part in expr.args])
        case Call(op="in", args=(tested, *choices)) if _is_column(tested, column):
            return _hull([_compared("=", choice, type) for choice in choices])
        case Call(op="<" | "<=" | ">" | ">=" | "=", args=(left, right)):
            if _is_column(left, column):
                return _compared(expr.op, right, type)
            if _is_column(right, column):
                return _compared(_MIRRORED[expr.op], left, type)
    return _ANY


def _is_column(expr: Expr, column: int) -> bool:
    """Tell whether an expression is a column, or the column as a value of a wider type."""
    while isinstance(expr, Cast) and not expr.lenient and _is_exact(expr.arg.type, expr.type):
        expr = expr.arg
    return isinstance(expr, Col) and expr.index == column


def _is_exact(source: Type, target: Type) -> bool:
    """Tell whether a cast keeps order and value."""
    if source.kind is Kind.INTEGER:
        return target.kind in (Kind.BIGINT, Kind.DECIMAL, Kind.DOUBLE)
    if source.kind is Kind.BIGINT:
        return target.kind is Kind.DECIMAL
    if source.kind is Kind.DECIMAL:
        return target.kind is Kind.DECIMAL and target.scale >= source.scale
    return source.kind is Kind.DATE and target.kind is Kind.TIMESTAMP


def _compared(op: str, expr: Expr, type: Type) -> Domain:
    """Return the values of a type that a constant allows, tight where the type has a next value."""
    if not isinstance(expr, Lit) or expr.value is None or expr.type.kind not in _ORDERED:
        return _ANY
    value = expr.value
    if isinstance(value, float) and math.isnan(value):
        return _ANY
    try:
        low = _lowest(value, type, strictly=op == ">") if op in (">", ">=", "=") else None
        high = _highest(value, type, strictly=op == "<") if op in ("<", "<=", "=") else None
    except (ArithmeticError, ValueError):  # beyond the last day, or the largest number
        return _ANY
    return low, high


def _highest(value: Any, type: Type, strictly: bool) -> Any:
    """Return the highest value of a type that is at most, or `strictly` below, a constant."""
    unit = _unit(type)
    if type.kind is Kind.DATE and isinstance(value, dt.datetime):
        day = value.date()
        return day - dt.timedelta(1) if strictly and value == dt.datetime.combine(day, dt.time()) else day
    if type.kind in (Kind.INTEGER, Kind.BIGINT, Kind.DECIMAL):
        if isinstance(value, float) and math.isinf(value):
            return None
        assert isinstance(unit, Decimal)
        count = Decimal(value) / unit
        steps = math.floor(count)
        return _number((steps - 1 if strictly and steps == count else steps) * unit, type)
    if unit is not None and strictly:
        return value - unit
    return value


def _lowest(value: Any, type: Type, strictly: bool) -> Any:
    """Return the lowest value of a type that is at least, or `strictly` above, a constant."""
    unit = _unit(type)
    if type.kind is Kind.DATE and isinstance(value, dt.datetime):
        day = value.date()
        return day + dt.timedelta(1) if strictly or value != dt.datetime.combine(day, dt.time()) else day
    if type.kind in (Kind.INTEGER, Kind.BIGINT, Kind.DECIMAL):
        if isinstance(value, float) and math.isinf(value):
            return None
        assert isinstance(unit, Decimal)
        count = Decimal(value) / unit
        steps = math.ceil(count)
        return _number((steps + 1 if strictly and steps == count else steps) * unit, type)
    if unit is not None and strictly:
        return value + unit
    return value


def _unit(type: Type) -> Decimal | dt.timedelta | None:
    match type.kind:
        case Kind.INTEGER | Kind.BIGINT:
            return Decimal(1)
        case Kind.DECIMAL:
            return Decimal(1).scaleb(-type.scale)
        case Kind.DATE:
            return dt.timedelta(1)
        case Kind.TIMESTAMP:
            return dt.timedelta(microseconds=1)
    return None


def _number(value: Decimal, type: Type) -> int | Decimal:
    return value if type.kind is Kind.DECIMAL else int(value)


def _both(one: Domain, other: Domain) -> Domain:
    lows = [low for low, _ in (one, other) if low is not None]
    highs = [high for _, high in (one, other) if high is not None]
    return max(lows, default=None), min(highs, default=None)


def _hull(domains: list[Domain]) -> Domain:
    lows, highs = [low for low, _ in domains], [high for _, high in domains]
    return (
        None if not lows or None in lows else min(lows),
        None if not highs or None in highs else max(highs),
    )
