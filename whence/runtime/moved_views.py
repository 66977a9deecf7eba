"""Views that have moved to another server: where those who follow them find them now.

`DROP VIEW high MOVED TO 'http://127.0.0.1:8081'` drops a view and notes the address in a table of its own, so
that who follows it, or asks for it later, is told. The note is of no effect while there is a relation of that name.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from whence.io.rows import encode, to_tuples
from whence.model.errors import CatalogError, MovedError
from whence.plan.algebra.program import MOVED
from whence.sql import statements as st
from whence.sql.parse import parse_one
from whence.subscribe.urls import websocket_url

if TYPE_CHECKING:
    from whence.runtime.coordinator import Coordinator


def note_moved(coordinator: Coordinator, view: str, url: str) -> None:
    """Note that a view is at another server now."""
    websocket_url(url)  # or it is an error
    if view not in coordinator.program.views:
        raise CatalogError(f'there is no view "{view}"')
    if MOVED not in coordinator.program.tables:
        create = parse_one(f'CREATE TABLE "{MOVED}" (view TEXT PRIMARY KEY, url TEXT)')
        assert isinstance(create, st.CreateTable)
        coordinator.definitions.create_table(create, internal=True)
    with coordinator.feeding(), coordinator.transaction() as writes:
        schema = coordinator.program.tables[MOVED].schema
        writes.table(MOVED).insert(encode([(view, url)], schema, coordinator.dictionary, MOVED))


def moved_error(coordinator: Coordinator, names: Iterable[str]) -> MovedError | None:
    """Return the error for relations that are not here, if one of them has moved."""
    program = coordinator.program
    if MOVED not in program.tables:
        return None
    with coordinator.looking():
        rows, _ = coordinator.reader.contents(MOVED)
        moved: dict[str, str] = dict(to_tuples(rows, coordinator.reader.schema(MOVED), coordinator.dictionary))
    for name in names:
        if name in moved and name not in program.tables and name not in program.views:
            return MovedError(f'"{name}" has moved to {moved[name]}', moved[name])
    return None
