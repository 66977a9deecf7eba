"""Compare definitions and contents of tables and views.

CREATE … IF NOT EXISTS says when what exists is not what the statement declares. Followers of a view that is redefined
are told how its contents differ, or end; a sink remembers the definition that it has followed (`definition_of`).
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
from sqlglot import exp

from whence.engine.core.batch import consolidate
from whence.engine.core.operator import Batch
from whence.model.codes import Codes
from whence.model.types import Schema
from whence.plan.algebra.logical import Ref, Scan, walk
from whence.plan.algebra.program import Program, Table, View
from whence.sql import statements as st
from whence.sql.parse import parse_stored

if TYPE_CHECKING:
    from whence.runtime.coordinator import Coordinator


def differences(creates: Iterable[st.CreateTable | st.CreateView], program: Program) -> Iterator[str]:
    """Tell, for each CREATE … IF NOT EXISTS that was carried out, how what exists differs from it, if it does."""
    for create in creates:
        if not create.if_not_exists:
            continue
        if isinstance(create, st.CreateView):
            view = program.views.get(create.name)
            if view is not None and not same_view(view, create):
                yield (
                    f"view {create.name} exists already with another definition, which stays: {_short(view.sql)} "
                    "(CREATE OR REPLACE VIEW replaces it)"
                )
            continue
        table = program.tables.get(create.table.name)
        if table is not None and not same_table(table, create.table):
            kind = "table" if table.stream is None else "stream"
            yield f"{kind} {table.name} exists already with another definition, which stays: {_short(table.sql)}"


def same_table(one: Table, other: Table) -> bool:
    """Say whether two tables are declared alike, however that is written."""
    return _bare(one) == _bare(other)


def _bare(table: Table) -> Table:
    return replace(table, sql="", options=tuple(sorted(table.options)))


def same_view(view: View, create: st.CreateView) -> bool:
    """Say whether a view was declared by an equal query, columns and options, however that is written."""
    before = parse_stored(view.sql)
    if not isinstance(before, st.CreateView):
        return False
    options = dict(view.options) == dict(create.options)
    return options and before.columns == create.columns and canonical(before.query) == canonical(create.query)


def canonical(query: exp.Expr) -> exp.Expr:
    """The query with its names as they are kept, in lower case."""
    query = query.copy()
    for name in query.find_all(exp.Identifier):
        name.set("this", name.name.lower())
        name.set("quoted", False)
    return query


@dataclass(frozen=True)
class Contents:
    """The columns and rows of a table or view at some moment."""

    schema: Schema
    stream: bool
    rows: Codes
    counts: Codes

    @classmethod
    def of(cls, coordinator: Coordinator, name: str) -> Contents:
        """Read a table or view as it is now."""
        return cls(
            coordinator.reader.schema(name), coordinator.reader.is_stream(name), *coordinator.reader.contents(name)
        )

    def break_with(self, now: Contents) -> str:
        """Say why no change leads from these contents to those of the new definition; nothing if one does."""
        if self.stream or now.stream:
            return "and is a stream, which takes nothing back"
        if not same_columns(self.schema, now.schema):
            return f"and has other columns, {now.schema} in place of {self.schema}"
        return ""

    def since(self, before: Contents) -> Batch:
        """The change from `before` to these contents. Codes of words mean the same then and now: none
        is forgotten in between."""
        both = Batch(np.concatenate([self.rows, before.rows]), np.concatenate([self.counts, -before.counts]))
        return consolidate(both)


def same_columns(one: Schema, other: Schema) -> bool:
    """Say whether two schemas have the same names and types, in their order."""
    return one.names == other.names and one.types == other.types


def definition_of(program: Program, name: str) -> str:
    """Return a digest of everything that declares what a table or view contains: its own statement, and those of all it
    reads. It changes if any of them does.

    >>> from whence import open
    >>> db = open(); _ = db.execute("CREATE TABLE a (x INT); CREATE VIEW b AS FROM a; CREATE VIEW c AS FROM b")
    >>> before = definition_of(db._coordinator.program, "c")
    >>> _ = db.execute("CREATE OR REPLACE VIEW b AS SELECT x + 1 AS x FROM a")
    >>> definition_of(db._coordinator.program, "c") == before
    False
    """
    seen, waiting = set[str](), [name]
    while waiting:
        at = waiting.pop()
        if at in seen:
            continue
        seen.add(at)
        view = program.views.get(at)
        if view is not None:
            waiting += [node.view for node in walk(view.query) if isinstance(node, Ref)]
            waiting += [node.table for node in walk(view.query) if isinstance(node, Scan)]
            waiting += [] if view.owner is None else [view.owner]
    known = (program.views.get(each) or program.tables.get(each) for each in sorted(seen))
    text = "\n".join(f"{each.name} {each.sql}" for each in known if each is not None)
    return hashlib.blake2b(text.encode(errors="surrogatepass"), digest_size=16).hexdigest()


def _short(sql: str) -> str:
    text = " ".join(sql.split())
    return text if len(text) <= 200 else f"{text[:200]}…"
