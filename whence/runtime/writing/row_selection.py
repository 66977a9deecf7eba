"""Which rows a DELETE or UPDATE means, the transaction's own writes included, and what an UPDATE makes of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from sqlglot import exp

from whence.engine.expressions.evaluate import compile_expr
from whence.model.codes import Codes, Dictionary, format_value
from whence.model.errors import DataError, MissingRowError, SqlError
from whence.model.types import BOOLEAN
from whence.plan.algebra.expressions import Col, Expr, Lit
from whence.plan.algebra.pinned import pinned
from whence.plan.algebra.program import Program, Table
from whence.plan.rewrite.fold_constants import fold
from whence.runtime.writing.conditions import Condition, by_columns, by_key, by_literals, by_values, deletions
from whence.runtime.writing.stream_writes import StreamWriteSet
from whence.runtime.writing.tables import Early, WriteSet
from whence.sql import statements as st
from whence.sql.bind import bind_predicate
from whence.sql.parameter_tokens import Parameter
from whence.sql.parameters import Params, bind_parameters
from whence.sql.parse import parse_one

if TYPE_CHECKING:
    from whence.runtime.coordinator import Coordinator


def matching(
    pending: WriteSet | StreamWriteSet,
    where: Mapping[str, Any] | str | None,
    coordinator: Coordinator,
    key: Any = None,
    params: Params | None = None,
) -> tuple[Codes, Codes]:
    """The distinct rows that match columns and values, SQL or a primary key, and how often each is there."""
    if key is not None and where is not None:
        raise DataError("give key=… or where=…, not both")
    table = _changed(pending).table
    if isinstance(where, str):
        return selected(pending, condition_of(where, table, coordinator.program, params), coordinator)
    refuse_params(params)
    if where is None and key is None:
        return _changed(pending).contents()
    words = coordinator.dictionary
    return found(
        pending, by_values(where, table, words) if where is not None else by_key(key, table, words), coordinator
    )


def condition_of(where: str, table: Table, program: Program, params: Params | None = None) -> Expr:
    """Bind a condition that is given as SQL; an error in it has the position in the condition."""
    name = exp.to_identifier(table.name, quoted=True).sql(dialect="duckdb")
    before = f"DELETE FROM {name} WHERE "
    try:
        statement = parse_one(before + where)
        if not isinstance(statement, st.DeleteRows) or statement.where is None:
            raise DataError(f"{where!r} is not a condition")
        [statement] = bind_parameters([statement], params)
        return bind_predicate(statement.where, table, program)
    except SqlError as error:
        if error.line != 1 or error.column is None or error.column <= len(before):
            raise
        place = error.column - len(before)
        raise type(error)(error.message, line=1, column=place, text=error.text) from None


def refuse_params(params: Params | None) -> None:
    """Refuse parameters beside rows, keys, and conditions that are not in SQL."""
    if params is not None:
        raise DataError('params is for a condition in SQL, such as where="x > ?"')


def parameters_of(where: Any) -> tuple[Parameter, ...]:
    """Return the parameters of a condition, if it is one in SQL."""
    return parse_one(f"DELETE FROM t WHERE {where}").parameters if isinstance(where, str) else ()


def found(
    pending: WriteSet | StreamWriteSet, condition: Condition, coordinator: Coordinator, strict: bool = False
) -> tuple[Codes, Codes]:
    """The distinct rows that match a condition, and how often each is there."""
    with coordinator.looking():  # an index may be built, which readers must not do at the same time
        return condition.find(_changed(pending), strict)


def selected(pending: WriteSet | StreamWriteSet, predicate: Expr, coordinator: Coordinator) -> tuple[Codes, Codes]:
    """The distinct rows for which a predicate is true, and how often each is there.

    Where the predicate says which values some columns have, rows are looked up by them instead of scanned."""
    predicate, keys = fold(predicate), None
    if (pins := pinned(predicate)) is not None:
        keys = by_literals(pins, _changed(pending).table, coordinator.dictionary)
    rows, counts = _changed(pending).contents() if keys is None else found(pending, keys, coordinator)
    if not len(rows) or predicate == Lit(BOOLEAN, True):
        return rows, counts
    keep = compile_expr(predicate, coordinator.dictionary)(rows) == 1
    return rows[keep], counts[keep]


def delete(
    pending: WriteSet | StreamWriteSet,
    parts: Iterable[Codes | Condition],
    coordinator: Coordinator,
    early: Early = "ignore",
) -> int:
    """Delete whole rows, each once for each time it is given, and all rows that have some columns as given."""
    pending, count = _changed(pending, "delete rows"), 0
    for part in parts:
        if isinstance(part, Condition):
            _check_not_held(early, pending.table)
            count += pending.remove(*found(pending, part, coordinator, early == "error"))
        else:
            count += pending.delete(part, early)
    return count


def delete_where(
    pending: WriteSet | StreamWriteSet,
    where: Mapping[str, Any] | str | None,
    key: Any,
    coordinator: Coordinator,
    early: Early,
    params: Params | None = None,
) -> int:
    """Delete the rows that match a condition or have a primary key."""
    pending, words, strict = _changed(pending, "delete rows"), coordinator.dictionary, early == "error"
    _check_not_held(early, pending.table)
    if where is None and key is not None and params is None:
        return pending.remove(*found(pending, by_key(key, pending.table, words), coordinator, strict))
    rows, counts = matching(pending, where, coordinator, key, params)
    if strict and not len(rows):
        raise MissingRowError(f"table {pending.table.name}: no row with {format_value(where)} to delete")
    return pending.remove(rows, counts)


def _check_not_held(early: Early, table: Table) -> None:
    """Refuse to hold a condition: it does not say for which rows to wait."""
    if early == "hold":
        raise DataError(f"table {table.name}: only whole rows can be held until they come, not keys or conditions")


def read_deletions(given: Iterable[Any], table: Table, coordinator: Coordinator) -> Iterator[Codes | Condition]:
    """Read what `delete` takes: rows of any kind, of which those with only some columns are conditions."""
    return (part for some in given for part in deletions(some, table, coordinator.dictionary))


def whole_rows(parts: Sequence[Codes | Condition]) -> Codes | None:
    """Return what is to be deleted if it is all whole rows; None if there are conditions among them."""
    whole = [part for part in parts if not isinstance(part, Condition)]
    return np.concatenate(whole) if whole and len(whole) == len(parts) else None


def update(
    pending: WriteSet | StreamWriteSet,
    values: Mapping[str, Any],
    where: Mapping[str, Any] | str | None,
    coordinator: Coordinator,
    key: Any = None,
    params: Params | None = None,
) -> int:
    """Set columns to constants in the rows that match; return how many did."""
    pending = _changed(pending, "update rows")
    rows, counts = matching(pending, where, coordinator, key, params)
    return pending.replace(rows, counts, new_values(rows, values, pending.table, coordinator.dictionary))


def _changed(pending: WriteSet | StreamWriteSet, what: str = "change rows") -> WriteSet:
    """Check that rows of the table may be changed, which those of a stream may not."""
    if isinstance(pending, StreamWriteSet):
        pending.refuse(what)
    return pending


def new_values(rows: Codes, values: Mapping[str, Any], table: Table, dictionary: Dictionary) -> Codes:
    """The rows with some columns set to constants."""
    columns, codes = by_columns(values, table, dictionary)
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
