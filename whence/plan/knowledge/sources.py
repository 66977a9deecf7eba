"""Facts of sources: what a stream promises of its rows, as knowledge has it."""

from __future__ import annotations

from collections.abc import Sequence

from whence.plan.algebra.expressions import columns_of, conjuncts
from whence.plan.algebra.program import Table
from whence.plan.knowledge.model import SourceColumn, SourceFacts, Term, Variable, plain_constant
from whence.plan.knowledge.terms import to_term


def source_facts(table: Table) -> SourceFacts:
    """Return what a stream promises."""
    columns = []
    for column in table.schema.columns:
        low, high = table.domain(column.name)
        columns.append(SourceColumn(str(column.type), plain_constant(low), plain_constant(high), column.nullable))
    ordered, closes = table.promises.ordered, table.promises.closes
    at = table.tick if ordered is None else ordered.column
    return SourceFacts(
        table.name,
        tuple(columns),
        at,
        "" if at is None else table.schema.names[at],
        "" if closes is None else _key_name([table.schema.names[column] for column in closes.columns]),
        ordered is not None and ordered.strictly,
        () if closes is None else closes.columns,
        checks=_checks_of(table),
    )


def _key_name(columns: Sequence[str]) -> str:
    return columns[0] if len(columns) == 1 else f"({', '.join(columns)})"


def _checks_of(table: Table) -> tuple[Term, ...]:
    """Return the checks of a table that read several columns; those of one column are in its domain."""
    columns = [Variable(str(type), 0, i) for i, type in enumerate(table.schema.types)]
    parts = [part for check in table.promises.checks for part in conjuncts(check.predicate)]
    return tuple(to_term(part, columns) for part in parts if len(columns_of(part)) > 1)
