"""Statements as the parser returns them, not yet bound.

Every statement keeps the text it came from and where that text began in the script (1-based line and column); the
sqlglot expressions inside carry positions of their own (see `position.py`).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from sqlglot import exp

from whence.plan.algebra.program import Source, Table
from whence.sql.parameter_tokens import Parameter


@dataclass(frozen=True, kw_only=True)
class Statement:
    """One statement of a script. Its parameters have no values yet (`parameters.py`)."""

    sql: str = ""
    line: int = 1
    column: int = 1
    parameters: tuple[Parameter, ...] = ()


@dataclass(frozen=True, kw_only=True)
class CreateTable(Statement):
    """CREATE TABLE, or CREATE STREAM, whose table says what of it is kept."""

    table: Table
    if_not_exists: bool = False


@dataclass(frozen=True, kw_only=True)
class CreateSource(Statement):
    """CREATE SOURCE that does not say yet what it is: its columns, kind and promises come from its servers.

    With `AS STREAM (…)` or `AS TABLE (…)`, as a database keeps it, it is a `CreateTable` whose table has a source."""

    name: str
    source: Source
    if_not_exists: bool = False


@dataclass(frozen=True, kw_only=True)
class CreateView(Statement):
    """CREATE VIEW: `columns` renames the query's columns; `options` are those of `WITH (…)`; see `QueryBinder` for
    `stored`."""

    name: str
    query: exp.Expr = field(repr=False)
    columns: tuple[str, ...] | None = None
    options: tuple[tuple[str, str], ...] = ()
    replace: bool = False
    if_not_exists: bool = False
    stored: bool = False


@dataclass(frozen=True, kw_only=True)
class CreateTemplate(CreateView):
    """CREATE TEMPLATE: `name` is that of the view behind it; the query has parameters, which are columns of the table
    `template` (`templates.py`)."""

    template: str


@dataclass(frozen=True, kw_only=True)
class CreateIndex(Statement):
    """CREATE INDEX name ON relation (columns)."""

    name: str
    relation: str
    columns: tuple[str, ...]
    if_not_exists: bool = False


@dataclass(frozen=True, kw_only=True)
class Drop(Statement):
    kind: Literal["table", "stream", "source", "view", "template", "index"]
    name: str
    cascade: bool = False
    if_exists: bool = False
    moved_to: str | None = None  # of a view: the server that has it now


@dataclass(frozen=True, kw_only=True)
class InsertRows(Statement):
    table: str
    source: exp.Expr = field(repr=False)
    columns: tuple[str, ...] | None = None


@dataclass(frozen=True, kw_only=True)
class DeleteRows(Statement):
    table: str
    where: exp.Expr | None = field(default=None, repr=False)


@dataclass(frozen=True, kw_only=True)
class UpdateRows(Statement):
    table: str
    assignments: tuple[tuple[str, exp.Expr], ...] = field(repr=False)
    where: exp.Expr | None = field(default=None, repr=False)


@dataclass(frozen=True, kw_only=True)
class Query(Statement):
    query: exp.Expr = field(repr=False)


@dataclass(frozen=True, kw_only=True)
class Explain(Statement):
    """EXPLAIN of a view by its name, of a query, or of a CREATE VIEW that is not carried out."""

    what: str | Query | CreateView
    analyze: bool = False  # with what its operators have done


@dataclass(frozen=True, kw_only=True)
class Describe(Statement):
    name: str


@dataclass(frozen=True, kw_only=True)
class Show(Statement):
    what: Literal["tables", "streams", "sources", "views", "templates", "functions", "indexes", "definition"]
    name: str = ""  # of what SHOW DEFINITION is asked
