"""Watermarks that move without rows: `db.advance` promises that a stream has come so far, `db.flush` closes windows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from whence.engine.streams.promise import Promise, reaches
from whence.model.codes import NULL, encode_value
from whence.model.errors import CatalogError, DataError, WhenceError
from whence.sql.position import did_you_mean

if TYPE_CHECKING:
    from whence.runtime.coordinator import Coordinator


def advance(coordinator: Coordinator, streams: str | Sequence[str], value: Any, on: str | None) -> None:
    """Promise that no row of some streams with a smaller value of a column is to come."""
    names = _streams(coordinator, streams)
    columns = {name: _column(coordinator, name, on) for name in names}
    for name, column in columns.items():
        if coordinator.program.tables[name].tick == column:
            where = f'column "{coordinator.program.tables[name].schema.names[column]}" of "{name}"'
            raise CatalogError(f"{where} is tick_time(): it advances with the clock; db.expire() brings it up to date")
    types = {coordinator.program.tables[name].schema.types[column] for name, column in columns.items()}
    if len(types) > 1:
        raise DataError(f"the columns of {', '.join(names)} are of different types; advance one stream at a time")
    bound = encode_value(value, types.pop(), coordinator.dictionary)
    if bound == NULL:
        raise DataError("a stream advances to a value, not to NULL")
    _make(coordinator, columns, bound)


def flush(coordinator: Coordinator, streams: str | Sequence[str] | None) -> None:
    """Close every window that has rows of some streams, or of all."""
    every = [name for name, table in coordinator.program.tables.items() if table.stream is not None]
    _make(coordinator, dict.fromkeys(every if streams is None else _streams(coordinator, streams), 0), None)


def _make(coordinator: Coordinator, columns: dict[str, int], bound: int | None) -> None:
    if coordinator.is_writing:
        raise WhenceError("advance and flush are epochs of their own: they cannot stand inside a transaction")
    if columns:
        with coordinator.transaction() as writes:
            writes.source_positions = Promise(columns, bound, coordinator.catalog.flow.last_at + 1).marks()


def _streams(coordinator: Coordinator, streams: str | Sequence[str]) -> list[str]:
    names = [streams] if isinstance(streams, str) else list(streams)
    for name in names:
        if coordinator.table_of(name).stream is None:
            raise CatalogError(f'"{name}" is a table: only streams have watermarks')
    return names


def _column(coordinator: Coordinator, name: str, on: str | None) -> int:
    """The column of a stream that is meant: the one that windows and sorts over it go by, or else the one that it is
    ordered by, unless it is named."""
    table = coordinator.program.tables[name]
    schema = table.schema
    if on is not None:
        if on not in schema.names:
            raise CatalogError(f'stream "{name}" has no column "{on}"{did_you_mean(on, schema.names)}')
        return schema.names.index(on)
    order = [op for op in coordinator.catalog.flow.order if not op.transient]
    used = [c for c in range(len(schema)) if any(reaches(Promise({name: c}, 0, 0), op) for op in order)]
    if len(used) == 1:
        return used[0]
    if not used and table.promises.ordered is not None:
        return table.promises.ordered.column
    listed = ", ".join(schema.names[c] for c in used)
    why = f"are over {listed}" if used else f"of {name} alone are over none of its columns"
    raise CatalogError(f'windows and sorts {why}: say which column of "{name}" advances, on = …')
