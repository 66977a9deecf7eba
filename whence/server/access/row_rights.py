"""Row rights over rows that are at hand: which of them a caller may read, and may write.

The law: every row that a write adds, removes or touches satisfies the caller's condition for writing: a row that goes
as of before the write, one that comes as of after it. So nobody overwrites or deletes another's row by its key, nor
lengthens its life. Rows that a caller may not read are not there for what they delete or update.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from sqlglot import exp

from whence.engine.core.operator import Batch
from whence.engine.expressions.evaluate import compile_expr
from whence.io.rows import to_tuples
from whence.model.codes import Codes
from whence.model.errors import ForbiddenError
from whence.model.types import BIGINT, Column, Schema
from whence.plan.algebra.logical import Node, Scan, Values
from whence.plan.algebra.program import Table, View, has_closed_keys, owner_of
from whence.runtime.coordinator import Coordinator
from whence.runtime.writing.tables import Sees
from whence.runtime.writing.transaction import Savepoint, Transaction
from whence.server.access.sight import Reach, Sight, known_relation, quote_name
from whence.sql.bind import bind_predicate, bind_query_views

Mask = NDArray[np.bool_]
Written = Callable[[str], Batch | None]
_ROWS, _PLACE = "whence rows", "whence place"  # a relation and a column that nobody else calls so
_AT_ONCE = 10_000  # rows that are constants of a plan


@dataclass(frozen=True)
class RowTest:
    """Tests rows of one relation by a condition over its columns."""

    coordinator: Coordinator
    relation: Table | View
    condition: exp.Expr

    def passing(self, rows: Codes, written: Written | None = None) -> Mask:
        """Return for which rows the condition is true. Its subqueries read what is committed, or of tables that
        `written` knows, what it gives. Called with the writer's lock held, since literals may be new words."""
        if not len(rows):
            return np.zeros(0, bool)
        if self.condition.find(exp.Query) is None:
            predicate = bind_predicate(self.condition.copy(), self._as_table(), self.coordinator.program)
            passing: Mask = compile_expr(predicate, self.coordinator.dictionary)(rows) == 1
            return passing
        parts = [self._joined(rows[at : at + _AT_ONCE], written) for at in range(0, len(rows), _AT_ONCE)]
        return np.concatenate(parts)

    def _as_table(self) -> Table:
        return Table(self.relation.name, self.relation.schema)

    def _joined(self, rows: Codes, written: Written | None) -> Mask:
        """Ask for the numbers of the rows that pass, in a query over them as constants."""
        coordinator, schema = self.coordinator, self.relation.schema
        numbered = Schema((*schema.columns, Column(_PLACE, BIGINT)))
        program = coordinator.program.copy()
        program.tables[_ROWS] = Table(_ROWS, numbered)
        name = exp.to_identifier(self.relation.name, quoted=True)
        query = exp.Select(
            expressions=[exp.Column(this=exp.to_identifier(_PLACE, quoted=True))],
            from_=exp.From(this=exp.Table(this=exp.to_identifier(_ROWS, quoted=True), alias=exp.TableAlias(this=name))),
            where=exp.Where(this=self.condition.copy()),
        )
        plan, hidden = bind_query_views(query, program)
        values = to_tuples(rows, schema, coordinator.dictionary)
        constants = Values(numbered, tuple((*value, place) for place, value in enumerate(values)))
        plan = _with_rows(plan, constants)
        hidden = {each: replace(view, query=_with_rows(view.query, constants)) for each, view in hidden.items()}
        with coordinator.state:
            found = coordinator.catalog.evaluate(plan, hidden, written)
        passing = np.zeros(len(rows), bool)
        passing[found.rows[:, 0]] = True
        return passing


def _with_rows(plan: Node, rows: Values) -> Node:
    """Return a plan that reads constants in the place of the relation that stands for them."""
    if isinstance(plan, Scan) and plan.table == _ROWS:
        return rows
    inputs = plan.inputs
    return plan.with_inputs([_with_rows(child, rows) for child in inputs]) if inputs else plan


def row_test(coordinator: Coordinator, name: str, reach: Reach) -> RowTest | None:
    """Return the test of a right that reaches some rows; None if it reaches all."""
    if reach.every:
        return None
    relation = known_relation(coordinator.program, name)
    if relation is None or reach.condition is None:
        return RowTest(coordinator, Table(name, Schema(())), exp.false())
    return RowTest(coordinator, relation, reach.condition)


def rows_seen(coordinator: Coordinator, sight: Sight, writes: Transaction) -> Callable[[str], Sees | None]:
    """Return, for a table, which of its rows a writer may see; None if all."""
    made: dict[str, Sees | None] = {}

    def seen_of(name: str) -> Sees | None:
        if name not in made:
            made[name] = _sees(row_test(coordinator, name, sight.reach(name, "read")), writes)
        return made[name]

    return seen_of


def _sees(test: RowTest | None, writes: Transaction) -> Sees | None:
    return None if test is None else lambda rows: test.passing(rows, writes.contents)


def check_written(coordinator: Coordinator, sight: Sight, writes: Transaction, since: Savepoint) -> None:
    """ForbiddenError if a caller may not write one of the rows that were written since a savepoint. Called inside the
    transaction, which is then rolled back to it."""
    for name, written in writes.written_since(since).items():
        if has_closed_keys(name):  # as the rows that closed them say
            continue
        table = owner_of(name)
        reach = sight.reach(table, "insert")
        test = row_test(coordinator, table, reach)
        if test is None:
            continue
        allowed = np.full(len(written.ann), bool(reach))
        if reach:
            went, came = written.ann <= 0, written.ann >= 0
            before = test.passing(written.rows[went], lambda each: writes.contents_at(since, each))
            after = test.passing(written.rows[came], writes.contents)
            allowed[:] = False
            allowed[np.flatnonzero(went)[before]] = True
            allowed[np.flatnonzero(came)[after]] = True
        if not allowed.all():
            raise ForbiddenError(f"you may not write these rows of {quote_name(table)}")
