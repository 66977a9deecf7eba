"""Compare definitions: say of CREATE … IF NOT EXISTS when what exists is not what the statement declares."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from sqlglot import exp

from whence.plan.program import Program, Table, View
from whence.sql import statements as st
from whence.sql.parse import parse_one


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
    before = parse_one(view.sql)
    if not isinstance(before, st.CreateView):
        return False
    options = dict(view.options) == dict(create.options)
    return options and before.columns == create.columns and _canonical(before.query) == _canonical(create.query)


def _canonical(query: exp.Expr) -> exp.Expr:
    """The query with its names as they are kept, in lower case."""
    query = query.copy()
    for name in query.find_all(exp.Identifier):
        name.set("this", name.name.lower())
        name.set("quoted", False)
    return query


def _short(sql: str) -> str:
    text = " ".join(sql.split())
    return text if len(text) <= 200 else f"{text[:200]}…"
