"""Definitions: what a table, stream or view is, as the SQL that a source of it is declared by.

The law: `parse("CREATE SOURCE q FROM … AS " + definition)` is a table with the columns, key, kind and promises of the
relation. Nothing else is told: where a broker's own sources are, how long rows stay and how they are placed is its own.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from sqlglot import exp

from whence.model.types import Schema
from whence.plan.algebra.program import Table

if TYPE_CHECKING:
    from whence.runtime.coordinator import Coordinator


CLOSED = "$closed "
"""Begins the names that closed keys have among the horizons that brokers are told."""


def define_relation(coordinator: Coordinator, name: str) -> str:
    """Return what a relation is; called while the state is looked at."""
    table = coordinator.program.tables.get(name)
    if table is not None:
        return define_table(table)
    kind = "STREAM" if coordinator.reader.is_stream(name) else "TABLE"
    return f"{kind} {define_columns(coordinator.reader.schema(name))}"


def define_columns(schema: Schema) -> str:
    """Return names and types of columns."""
    return f"({', '.join(_columns(schema))})"


def define_table(table: Table) -> str:
    """Return what a table or stream is.

    >>> from whence.sql.parse import parse_one
    >>> define_table(parse_one("CREATE TABLE a (x INT PRIMARY KEY, y DECIMAL(10, 2)) WITH (ttl = '1 h')").table)
    'TABLE ("x" INTEGER, "y" DECIMAL(10,2), PRIMARY KEY ("x"))'
    """
    parts = list(_columns(table.schema))
    if table.key:
        parts.append(f"PRIMARY KEY ({', '.join(_quoted(table.schema.names[at]) for at in table.key)})")
    promises = table.promises
    parts += [f"CHECK ({check.text})" for check in promises.checks]
    options = [str(each) for each in (promises.ordered, promises.closes) if each is not None]
    if table.tick is not None and promises.ordered is None:
        options.append(f"ordered = '{table.schema.names[table.tick]}'")
    made = f"{'TABLE' if table.stream is None else 'STREAM'} ({', '.join(parts)})"
    return f"{made} WITH ({', '.join(options)})" if options else made


def _columns(schema: Schema) -> Iterator[str]:
    for column in schema.columns:
        yield f"{_quoted(column.name)} {column.type}"


def _quoted(name: str) -> str:
    return str(exp.to_identifier(name, quoted=True).sql())
