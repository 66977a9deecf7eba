"""What is needed of a source: columns, rows, key sets, bounds, and what may be quenched.

A `SourceUse` is what one place in a plan needs, `SourceNeeds` what all of them need together. `source_uses` finds the
former, `pushdown` unites them; the law is there.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from whence.plan.algebra.expressions import Expr
from whence.plan.algebra.logical import Node
from whence.plan.algebra.program import Table
from whence.sql.plan_text import UnwritablePlanError, expression_text, plan_text, quoted


@dataclass(frozen=True)
class KeyRule:
    """Rows matter only if their `columns` together have the values of a row of a plan of as many columns."""

    columns: tuple[int, ...]
    values: Node


@dataclass(frozen=True)
class BestRule:
    """Only the first `rows` by a column are seen; `found` is the plan of that column of all rows that would be."""

    column: int
    descending: bool
    rows: int
    found: Node


@dataclass(frozen=True)
class SourceUse:
    """One place in which a view reads a source. Columns are numbers of the source's columns."""

    reader: str
    columns: frozenset[int]
    predicate: Expr | None = None
    keys: tuple[KeyRule, ...] = ()
    decides: frozenset[int] = frozenset()
    live: Node | None = None
    best: BestRule | None = None


@dataclass(frozen=True)
class LiveRule:
    """For primary keys that `live` does not have, only columns that decide matter to some uses.

    `reads` are the columns that they read of keys that are live."""

    live: Node
    reads: frozenset[int]
    readers: tuple[str, ...] = ()


@dataclass(frozen=True)
class SourceNeeds:
    """What one source is asked for.

    columns  numbers of the columns that are needed, those of the primary key and of promised order among them
    filter   a condition over the source's columns, or None
    key      the columns whose values are restricted to those of a plan, or None
    watched  columns of which every change is needed
    live     which keys need more columns than those; without any, nothing is quenched
    best     per use, how many rows of a column are seen; without any, there is no bound
    is_nothing  whether it is not asked for any row: views read results in its place (`results.py`)
    """

    table: Table
    columns: tuple[int, ...]
    filter: Expr | None = None
    key: KeyRule | None = None
    watched: frozenset[int] = frozenset()
    live: tuple[LiveRule, ...] = ()
    best: tuple[BestRule, ...] = ()
    readers: tuple[str, ...] = ()
    is_nothing: bool = False

    @property
    def is_everything(self) -> bool:
        """Whether nothing is left out."""
        narrow = self.filter is not None or self.key is not None or self.live or self.best
        return not narrow and len(self.columns) == len(self.table.schema)

    @property
    def quenchable(self) -> frozenset[int]:
        """The columns whose changes may be left out for some keys."""
        return frozenset(c for rule in self.live for c in rule.reads) - self.watched if self.live else frozenset()

    def where(self) -> str | None:
        """Return the filter as SQL."""
        return None if self.filter is None else expression_text(self.filter, lambda i: quoted(self._name(i)))

    def select(self, relation: str) -> str:
        """Return the SELECT for the source, which is called `relation` there."""
        where = self.where()
        named = ", ".join(quoted(self._name(c)) for c in self.columns)
        return f"SELECT {named} FROM {quoted(relation)}" + (f" WHERE {where}" if where else "")

    def describe(self) -> list[str]:
        """Return what is asked for, for people."""
        if self.is_everything:
            return [f"{self.table.name} is asked for everything"]
        if self.is_nothing:
            return [f"{self.table.name} is asked for results only"]
        lines = [f"{self.table.name} is asked for {', '.join(self._name(c) for c in self.columns)}"]
        if (where := self.where()) is not None:
            lines.append(f"  where {without_quotes(where)}")
        if self.key is not None:
            named = ", ".join(map(self._name, self.key.columns))
            named = named if len(self.key.columns) == 1 else f"({named})"
            lines.append(f"  of {named} in ({_shown_plan(self.key.values)})")
        for rule in self.best:
            order = "greatest" if rule.descending else "least"
            lines.append(f"  the {rule.rows} rows of {order} {self._name(rule.column)}, and a margin")
        if self.live:
            watched = ", ".join(self._name(c) for c in sorted(self.watched))
            for live in self.live:
                rest = ", ".join(self._name(c) for c in sorted(live.reads - self.watched))
                lines.append(f"  {rest} only of rows that {', '.join(live.readers)} can show; always {watched}")
        return lines

    def _name(self, column: int) -> str:
        return self.table.schema.names[column]


def _shown_plan(node: Node) -> str:
    try:
        return without_quotes(plan_text(node))
    except UnwritablePlanError:
        return node.describe()


def without_quotes(text: str) -> str:
    """Return SQL without quotes around plain names, for people."""
    return re.sub(r'"([a-z_][a-z0-9_]*)"', r"\1", text)
