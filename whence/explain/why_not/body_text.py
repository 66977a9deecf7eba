"""Rules and their conditions as people read them: columns by the names of their sources, values in SQL."""

from __future__ import annotations

from collections.abc import Iterable

from whence.explain.derive.parts import drop_duplicates
from whence.explain.derive.plan_evaluator import PlanEvaluator
from whence.explain.derive.sql_text import write_expr
from whence.explain.why_not.goals import GoalReader
from whence.explain.why_not.rule_bodies import source_nodes
from whence.model.codes import Codes
from whence.plan.algebra.expressions import Col, Expr, columns_of
from whence.plan.recursion.conjunctive import Body


def write_rule(query: PlanEvaluator, head: str, body: Body) -> str:
    """Write a rule, such as `may_read <- in_group, granted, no blocked`."""
    names = [*source_names(query, body), *(f"no {query.name_of(a.node)}" for a in body.absences)]
    return f"{head} <- {', '.join(names) or 'a constant'}"


def source_names(query: PlanEvaluator, body: Body) -> list[str]:
    return [query.name_of(node) for node in source_nodes(body)]


def write_conditions(query: PlanEvaluator, body: Body, tests: Iterable[Expr], of: int | None = None) -> str:
    """Write conditions that must all be true, the columns of the source `of` without its name."""

    def name(column: int) -> str:
        number = body.owner()[column]
        own = body.sources[number].schema.names[column - body.offsets()[number]]
        return own if number == of or len(body.sources) == 1 else f"{source_names(query, body)[number]}.{own}"

    return " AND ".join(write_expr(t, name) for t in tests)


def write_failure(reader: GoalReader, body: Body, test: Expr, rows: Codes) -> str:
    """Say that a condition is not true for matches, with the values that it reads of the first of them."""
    types = [t for s in body.sources for t in s.schema.types]
    distinct = drop_duplicates(rows[:, sorted(columns_of(test))])
    shown = [
        f"{write_conditions(reader.query, body, [Col(types[c], c)])} = {reader.write(v, types[c])}"
        for c, v in zip(sorted(columns_of(test)), distinct[0], strict=True)
    ]
    example = "for example " if len(distinct) > 1 else ""
    return f"{write_conditions(reader.query, body, [test])} is not true ({example}{', '.join(shown)})"
