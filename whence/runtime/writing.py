"""Which rows a DELETE or UPDATE means, the transaction's own writes included, and what an UPDATE makes of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from sqlglot import exp

from whence.connect.rows import encode
from whence.engine.evaluate import compile_expr
from whence.errors import DataError
from whence.model.codes import Codes, Dictionary, shown
from whence.model.types import BOOLEAN, Schema
from whence.plan.expr import Col, Expr, Lit
from whence.plan.program import Table
from whence.runtime.appending import Appending
from whence.runtime.tables import Pending
from whence.sql import statements as st
from whence.sql.bind import bind_predicate
from whence.sql.parse import parse_one

if TYPE_CHECKING:
    from whence.runtime.embedded import Embedded


def matching(
    pending: Pending | Appending, where: Mapping[str, Any] | str | None, runtime: Embedded
) -> tuple[Codes, Codes]:
    """The distinct rows that match columns and values, or a SQL condition, and how often each is there."""
    if isinstance(where, str):
        table = exp.to_identifier(pending.table.name, quoted=True).sql(dialect="duckdb")
        statement = parse_one(f"DELETE FROM {table} WHERE {where}")
        if not isinstance(statement, st.Delete) or statement.where is None:
            raise DataError(f"{where!r} is not a condition")
        return selected(pending, bind_predicate(statement.where, pending.table, runtime.program), runtime.dictionary)
    rows, counts = _rows(pending)
    if where:
        columns, codes = _given(where, pending.table, runtime.dictionary)
        keep = (rows[:, columns] == codes).all(axis=1)
        rows, counts = rows[keep], counts[keep]
    return rows, counts


def selected(pending: Pending | Appending, predicate: Expr, dictionary: Dictionary) -> tuple[Codes, Codes]:
    """The distinct rows for which a predicate is true, and how often each is there."""
    rows, counts = _rows(pending)
    if not len(rows) or predicate == Lit(BOOLEAN, True):
        return rows, counts
    keep = compile_expr(predicate, dictionary)(rows) == 1
    return rows[keep], counts[keep]


def _rows(pending: Pending | Appending) -> tuple[Codes, Codes]:
    if isinstance(pending, Appending):
        pending.refuse("changes rows")
    return pending.contents()


def new_values(rows: Codes, values: Mapping[str, Any], table: Table, dictionary: Dictionary) -> Codes:
    """The rows with some columns set to constants."""
    columns, codes = _given(values, table, dictionary)
    out = rows.copy()
    out[:, columns] = codes
    return out


def computed(rows: Codes, exprs: tuple[Expr, ...], dictionary: Dictionary) -> Codes:
    """New rows from expressions over the old ones, one a column."""
    out = np.empty((len(rows), len(exprs)), np.int64)
    if len(rows):
        for at, expr in enumerate(exprs):
            out[:, at] = rows[:, expr.index] if isinstance(expr, Col) else compile_expr(expr, dictionary)(rows)
    return out


def _given(values: Mapping[str, Any], table: Table, dictionary: Dictionary) -> tuple[list[int], Codes]:
    names = table.schema.names
    if not isinstance(values, Mapping):
        raise DataError(f"table {table.name}: expected columns and their values, not {shown(values)}")
    lower = {str(name).lower(): value for name, value in values.items()}
    if len(lower) < len(values):
        raise DataError(f"table {table.name}: a column is given twice")
    for name in lower:
        if name not in names:
            raise DataError(f"table {table.name}: no column {name} in {table.schema}")
    columns = [names.index(name) for name in lower]
    part = Schema(tuple(table.schema.columns[i] for i in columns))
    if not columns:
        return [], np.empty(0, np.int64)
    return columns, encode([tuple(lower.values())], part, dictionary, table.name)[0]
