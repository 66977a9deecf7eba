"""GROUP BY: from rows to groups, and from expressions of the query to expressions over a group's row."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from sqlglot import exp

from whence.model.types import Column, Schema
from whence.plan.algebra.constructors import project
from whence.plan.algebra.expressions import Col, Expr
from whence.plan.algebra.logical import Aggregate, Node
from whence.sql.placeholders import AggRef, map_expr, walk_expr
from whence.sql.position import error
from whence.sql.scope import Scope
from whence.sql.subqueries import attach


def has_aggregate(expr: Expr) -> bool:
    return any(isinstance(e, AggRef) for e in walk_expr(expr))


@dataclass(frozen=True)
class Grouped:
    """An Aggregate, with the meaning of its columns: keys first, then aggregates."""

    node: Node
    keys: tuple[Expr, ...]
    aggs: tuple[AggRef, ...]

    def rewrite(self, expr: Expr, source: exp.Expr, scope: Scope) -> Expr:
        """Rewrite an expression over the rows that were grouped as one over the groups."""

        def change(e: Expr) -> Expr | None:
            for i, key in enumerate(self.keys):
                if e == key or replace(e, type=key.type) == key:
                    return Col(e.type, i)
            if isinstance(e, AggRef):
                return Col(e.type, len(self.keys) + self.aggs.index(_plain(e)))
            if isinstance(e, Col):
                name = scope.fields[e.index].name if e.index < len(scope.fields) else str(e)
                raise error(f'column "{name}" must be in GROUP BY or inside an aggregate', source)
            return None

        return map_expr(expr, change)


def group_rows(node: Node, keys: Sequence[Expr], exprs: Sequence[Expr], at: exp.Expr) -> Grouped:
    """Group the rows by the keys, with every aggregate that the expressions use."""
    plain_keys = list(dict.fromkeys(keys))
    aggs = list(dict.fromkeys(_plain(e) for expr in exprs for e in walk_expr(expr) if isinstance(e, AggRef)))
    taken = list(dict.fromkeys(part for agg in aggs for part in (agg.arg, agg.order) if part is not None))
    node, read = attach(node, [*plain_keys, *taken], at)
    inputs, args = read[: len(plain_keys)], dict(zip(taken, read[len(plain_keys) :], strict=True))

    def place(part: Expr | None) -> int | None:
        """Return the column of an argument, which is made if there is none."""
        if part is None:
            return None
        value = args[part]
        if value not in inputs:
            inputs.append(value)
        return inputs.index(value)

    places = [(place(agg.arg), place(agg.order)) for agg in aggs]
    plan = project(node, inputs)
    made = [Column(f"{a.function}_{i}", a.type, a.function != "count") for i, a in enumerate(aggs)]
    schema = Schema((*plan.schema.columns[: len(plain_keys)], *made))
    functions = tuple(a.agg(*some) for a, some in zip(aggs, places, strict=True))
    grouped = Aggregate(schema, plan, tuple(range(len(plain_keys))), functions)
    return Grouped(grouped, tuple(plain_keys), tuple(aggs))


def _plain(agg: AggRef) -> AggRef:
    """Return the aggregate at its own type: widening its result does not make it another one."""
    if agg.arg is not None and agg.function in ("min", "max", "first", "last", "quantile"):
        return replace(agg, type=agg.arg.type)
    return agg
