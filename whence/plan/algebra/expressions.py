"""Scalar expressions, bound and typed: trees of frozen nodes over the columns of one input row.

Two expressions that compare equal compute the same value, which is what lets equal sub-plans be shared. The binder has
inserted every cast, so operands of a comparison or an arithmetic operator have the types the operator needs.

`Call.op` is one of
  arithmetic   + - * / // % neg          (int64 with overflow checked, DOUBLE, DECIMAL; dates with INTERVAL and days)
  comparison   = <> < <= > >=  is_distinct  is_not_distinct
  logic        and or not is_null        (three-valued)
  text         ||  like  ilike  lower  upper  length  substring  trim  ltrim  rtrim  replace  strpos  left  right
               starts_with  ends_with  contains  reverse  repeat  lpad  rpad  split_part
  number       abs  sign  round  floor  ceil  sqrt  power  ln  log10  exp
  choice       coalesce  nullif  least  greatest  in   (in: a value, then literals)
  date         extract:PART   date_trunc:PART   date_diff:PART
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from whence.model.text import shown_value
from whence.model.types import Kind, Type, always_fits


@dataclass(frozen=True)
class Expr:
    """A scalar expression of a known type."""

    type: Type

    @property
    def children(self) -> tuple[Expr, ...]:
        return ()


@dataclass(frozen=True)
class Col(Expr):
    """The input's column at `index`."""

    index: int

    def __str__(self) -> str:
        return f"#{self.index}"


@dataclass(frozen=True)
class Lit(Expr):
    """A constant: a Python value of the type (None for NULL)."""

    value: Any

    def __str__(self) -> str:
        return shown_value(self.value, self.type)


@dataclass(frozen=True)
class Call(Expr):
    """An operator or a built-in function; see the module's table of ops."""

    op: str
    args: tuple[Expr, ...]

    @property
    def children(self) -> tuple[Expr, ...]:
        return self.args

    def __str__(self) -> str:
        if (len(self.args) == 2 and not self.op[0].isalpha()) or self.op in ("and", "or"):
            return "(" + f" {self.op} ".join(map(str, self.args)) + ")"
        return f"{self.op}({', '.join(map(str, self.args))})"


@dataclass(frozen=True)
class Cast(Expr):
    """The argument as a value of `type`; a value that does not fit is an error (NULL if `lenient`, TRY_CAST)."""

    arg: Expr
    lenient: bool = False

    @property
    def children(self) -> tuple[Expr, ...]:
        return (self.arg,)

    def __str__(self) -> str:
        return f"{'TRY_' if self.lenient else ''}CAST({self.arg} AS {self.type})"


@dataclass(frozen=True)
class Case(Expr):
    """Searched CASE: the value of the first branch whose condition is true, else the default."""

    branches: tuple[tuple[Expr, Expr], ...]
    default: Expr

    @property
    def children(self) -> tuple[Expr, ...]:
        return (*(e for branch in self.branches for e in branch), self.default)

    def __str__(self) -> str:
        return "CASE " + " ".join(f"WHEN {c} THEN {v}" for c, v in self.branches) + f" ELSE {self.default} END"


@dataclass(frozen=True)
class Volatile:
    """A Python function that is not deterministic: calls with equal arguments may give different answers.

    It is called once per row, and no rewrite may add a call of it or merge two."""

    function: Callable[..., Any] = field(repr=False)

    def __call__(self, *args: Any) -> Any:
        return self.function(*args)


@dataclass(frozen=True)
class Udf(Expr):
    """A Python scalar function registered by the user. Called with None for NULL."""

    name: str
    function: Callable[..., Any] = field(repr=False)
    args: tuple[Expr, ...]

    @property
    def children(self) -> tuple[Expr, ...]:
        return self.args

    def __str__(self) -> str:
        return f"{self.name}({', '.join(map(str, self.args))})"


def rebuild(expr: Expr, children: tuple[Expr, ...]) -> Expr:
    """Put the same expression over other children."""
    match expr:
        case Call():
            return Call(expr.type, expr.op, children)
        case Cast():
            return Cast(expr.type, children[0], expr.lenient)
        case Case():
            pairs = tuple(zip(children[:-1:2], children[1:-1:2], strict=True))
            return Case(expr.type, pairs, children[-1])
        case Udf():
            return Udf(expr.type, expr.name, expr.function, children)
    return expr


def substitute(expr: Expr, columns: Callable[[Col], Expr]) -> Expr:
    """Replace every column of an expression."""
    if isinstance(expr, Col):
        return columns(expr)
    return rebuild(expr, tuple(substitute(c, columns) for c in expr.children)) if expr.children else expr


def shift(expr: Expr, by: int) -> Expr:
    """Move the columns of an expression right by `by`."""
    return substitute(expr, lambda c: Col(c.type, c.index + by)) if by else expr


def walk(expr: Expr) -> Iterator[Expr]:
    """Yield the expression and everything in it, parents first."""
    yield expr
    for child in expr.children:
        yield from walk(child)


def columns_of(expr: Expr) -> set[int]:
    """Positions of the input columns the expression reads."""
    return {e.index for e in walk(expr) if isinstance(e, Col)}


def conjuncts(expr: Expr | None) -> list[Expr]:
    """Split a condition into terms that must all be true."""
    if expr is None:
        return []
    if isinstance(expr, Call) and expr.op == "and":
        return [term for arg in expr.args for term in conjuncts(arg)]
    return [expr]


def is_volatile(expr: Expr) -> bool:
    """Check whether an expression calls a function that is not deterministic."""
    return any(isinstance(part, Udf) and isinstance(part.function, Volatile) for part in walk(expr))


def may_fail(expr: Expr) -> bool:
    """Return whether an expression is an error for some rows: a cast, a division, a date, a user's function."""
    for part in walk(expr):
        match part:
            case Udf():
                return True
            case Cast() if not part.lenient and not always_fits(part.arg.type, part.type):
                return True
            case Call(op="//" | "%") if not (isinstance(part.args[1], Lit) and part.args[1].value):
                return True
            case Call(op="+" | "-") if not part.type.is_numeric:
                return True
    return False


def strip_casts(expr: Expr) -> Expr:
    """Remove casts that leave every code as it is; write -x as 0 - x."""
    while isinstance(expr, Cast) and _keeps_codes(expr.arg.type, expr.type):
        expr = expr.arg
    if isinstance(expr, Call) and expr.op == "neg":
        return Call(expr.type, "-", (Lit(expr.args[0].type, 0), expr.args[0]))
    return expr


def _keeps_codes(source: Type, target: Type) -> bool:
    if source == target:
        return True
    return source.kind is Kind.INTEGER and target.kind is Kind.BIGINT
