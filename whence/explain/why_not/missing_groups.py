"""Why a query over groups has no such row: its group has other values, fails HAVING, or has no rows at all.

Only in the last case there is something to look for below: rows with the keys of the group.
"""

from __future__ import annotations

from dataclasses import replace

from whence.explain.derive.sql_text import write_expr
from whence.explain.missing import MissingRows
from whence.explain.why_not.goals import GoalReader, Goals
from whence.model.types import Schema
from whence.plan.algebra.expressions import Col, Expr, Lit, conjuncts
from whence.plan.algebra.logical import Aggregate
from whence.plan.recursion.conjunctive import Body

GroupedQuery = tuple[Aggregate, Expr | None, list[Expr]]  # see `peel_groups`


def explain_group(
    reader: GoalReader, missing: MissingRows, schema: Schema, grouped: GroupedQuery, goals: Goals
) -> Goals | None:
    """Note what the group of the goals has instead and return None; if there is no such group, return the goals that
    have its keys alone."""
    aggregate, having, out = grouped
    key_of = {c: key for c in goals.cols if (key := _find_key(out[c], aggregate)) is not None}
    column_of = {key: c for c, key in key_of.items()}
    groups = reader.rows_of(aggregate, Goals(tuple(column_of), goals.of(tuple(column_of.values()))))
    if not len(groups):
        return Goals(tuple(key_of), goals.of(tuple(key_of)))
    if len(groups) > 1:
        missing.note = f"{missing.relation} has {len(groups):,} groups for this row, none with these values"
        return None
    names = [*aggregate.schema.names]
    for column, expr in enumerate(out):
        if isinstance(expr, Col):
            names[expr.index] = schema.names[column]
    cells = zip(names, groups[0], aggregate.schema.types, strict=True)
    group = ", ".join(f"{name} = {reader.write(code, kind)}" for name, code, kind in cells)
    failing = [t for t in conjuncts(having) if reader.query.value(t, groups)[0] != 1]
    if failing:
        said = " and ".join(write_expr(t, lambda c: names[c]) for t in failing)
        missing.note = f"its group is ({group}), for which {said} is not true"
    else:
        missing.note = f"its group is there with other values: {group}"
    return None


def _find_key(expr: Expr, aggregate: Aggregate) -> int | None:
    """Return which key of the groups a column of the result is."""
    return expr.index if isinstance(expr, Col) and expr.index < len(aggregate.keys) else None


def project_keys(body: Body, grouped: GroupedQuery) -> Body:
    """Return a body of the aggregate's input with the columns of the result: the keys, and NULL for others."""
    aggregate, _, out = grouped
    keys = [_find_key(e, aggregate) for e in out]
    shown = [Lit(e.type, None) if k is None else body.out[aggregate.keys[k]] for e, k in zip(out, keys, strict=True)]
    return replace(body, out=tuple(shown))
