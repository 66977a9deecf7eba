"""Expressions that exist only during binding: parts that the rest of the query must supply before the plan is whole.

`Outer` is a column of an enclosing query, `AggRef` an aggregate of the query's own groups, `Sub` a subquery. None of
them is left in a finished plan: grouping replaces the second, `subqueries.attach` the third, and with it the first; the
parameters of a template, `joined_with` of `parameter_join.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields, replace
from typing import Literal

from whence.model.types import Kind, Type
from whence.plan.algebra.expressions import Col, Expr, rebuild
from whence.plan.algebra.logical import Agg, Node


@dataclass(frozen=True)
class Outer(Expr):
    """The column at `index` of the query `level` steps out (1 is the query around this one)."""

    index: int
    level: int

    def __str__(self) -> str:
        return f"outer{self.level}#{self.index}"


@dataclass(frozen=True)
class ParameterRef(Outer):
    """A parameter of a template: a column of the table of its parameters, around the whole query. While its type is
    being found by what it is compared with, it is not `declared`, and NULL's as long as nothing is known."""

    name: str
    declared: bool

    @property
    def is_untyped(self) -> bool:
        return self.type.kind is Kind.NULL


class UntypedParameterError(Exception):
    """A parameter of a template must have a type that it does not have yet."""

    def __init__(self, name: str, type: Type) -> None:
        self.name, self.type = name, type


@dataclass(frozen=True)
class AggRef(Expr):
    """An aggregate of an expression over the rows of a group (`arg` is None for COUNT(*))."""

    function: Literal["count", "sum", "avg", "min", "max", "first", "last", "stddev", "stddev_pop", "quantile"]
    arg: Expr | None
    distinct: bool
    parameter: float | None = None
    order: Expr | None = None  # FIRST and LAST go by it

    def __str__(self) -> str:
        return f"{self.function}({'*' if self.arg is None else self.arg})"

    def agg(self, column: int | None, order: int | None = None) -> Agg:
        return Agg(self.function, column, self.distinct, self.parameter, () if order is None else (order,))


@dataclass(frozen=True)
class Sub(Expr):
    """A subquery in an expression: EXISTS, `operands IN`, or a scalar."""

    kind: Literal["exists", "in", "scalar"]
    operands: tuple[Expr, ...]
    node: Node
    unnullable: bool = False  # for IN: neither side can be NULL, so two-valued logic is enough

    def __str__(self) -> str:
        return f"({self.kind.upper()} subquery)"


def map_expr(expr: Expr, change: Callable[[Expr], Expr | None]) -> Expr:
    """Replace every sub-expression for which `change` gives another, parents first.

    Inside a subquery's plan the change is seen by the columns of the query it belongs to: `Outer(level=1)` is offered
    as the column it stands for, and the answer is kept as it is seen from inside.
    """
    changed = change(expr)
    if changed is not None:
        return changed
    match expr:
        case Sub():
            operands = tuple(map_expr(e, change) for e in expr.operands)
            node = map_outer(expr.node, change)
            return replace(expr, operands=operands, node=node)
        case AggRef():
            order = None if expr.order is None else map_expr(expr.order, change)
            return expr if expr.arg is None else replace(expr, arg=map_expr(expr.arg, change), order=order)
    return rebuild(expr, tuple(map_expr(c, change) for c in expr.children)) if expr.children else expr


def map_outer(node: Node, change: Callable[[Expr], Expr | None], level: int = 1) -> Node:
    """Change the columns that a plan reads of the query `level` steps out."""

    def inside(expr: Expr) -> Expr | None:
        seen = _seen_from_outside(expr, level)
        found = change(seen) if seen is not None else None
        if found is not None:
            return push_in(found, level)
        if isinstance(expr, Outer):
            return expr
        if isinstance(expr, Sub):
            operands = tuple(map_expr(e, inside) for e in expr.operands)
            return replace(expr, operands=operands, node=map_outer(expr.node, change, level + 1))
        return None

    return map_exprs(node, lambda e: map_expr(e, inside))


def _seen_from_outside(expr: Expr, level: int) -> Expr | None:
    """Return an expression inside a subquery as one of the query `level` steps out; None if it reads anything else."""
    leaves = [e for e in walk_expr(expr) if isinstance(e, (Col, Outer, Sub, AggRef))]
    if not leaves or not all(isinstance(e, Outer) and e.level >= level for e in leaves):
        return None

    def change(e: Expr) -> Expr | None:
        if isinstance(e, Outer):
            return Col(e.type, e.index) if e.level == level else Outer(e.type, e.index, e.level - level)
        return None

    return map_expr(expr, change)


def push_in(expr: Expr, level: int) -> Expr:
    """Rewrite an expression of a query as seen from a subquery `level` steps inside it."""

    def change(e: Expr) -> Expr | None:
        if isinstance(e, Col):
            return Outer(e.type, e.index, level)
        if isinstance(e, Outer):
            return Outer(e.type, e.index, e.level + level)
        return None

    return map_expr(expr, change)


def map_exprs(node: Node, change: Callable[[Expr], Expr]) -> Node:
    """Change every expression in the plan."""
    values: dict[str, object] = {}
    for part in fields(node):
        value = getattr(node, part.name)
        if isinstance(value, Node):
            values[part.name] = map_exprs(value, change)
        elif isinstance(value, Expr):
            values[part.name] = change(value)
        elif isinstance(value, tuple) and value and isinstance(value[0], Node):
            values[part.name] = tuple(map_exprs(n, change) for n in value)
        elif isinstance(value, tuple) and value and isinstance(value[0], Expr):
            values[part.name] = tuple(change(e) for e in value)
    return replace(node, **values) if values else node  # type: ignore[arg-type]  # fields keep their own types


def walk_expr(expr: Expr) -> Iterator[Expr]:
    """Iterate over the expression and its parts, operands of subqueries and arguments of aggregates included."""
    yield expr
    parts = expr.operands if isinstance(expr, Sub) else expr.children
    if isinstance(expr, AggRef) and expr.arg is not None:
        parts = (expr.arg,) if expr.order is None else (expr.arg, expr.order)
    for part in parts:
        yield from walk_expr(part)


def exprs_of(node: Node) -> Iterator[Expr]:
    """Iterate over every expression in the plan."""
    for part in fields(node):
        value = getattr(node, part.name)
        if isinstance(value, Expr):
            yield value
        elif isinstance(value, tuple) and value and isinstance(value[0], Expr):
            yield from value
    for child in node.inputs:
        yield from exprs_of(child)


def outers_of(expr: Expr) -> set[int]:
    """Return the levels of the enclosing queries whose columns the expression reads."""
    found: set[int] = set()
    for e in walk_expr(expr):
        if isinstance(e, Outer):
            found.add(e.level)
        elif isinstance(e, Sub):
            found |= {level - 1 for level in correlation(e.node) if level > 1}
    return found


def correlation(node: Node) -> set[int]:
    """Return the levels of the enclosing queries whose columns the plan reads."""
    return set().union(*(outers_of(e) for e in exprs_of(node)))
