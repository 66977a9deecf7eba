"""Inserts over a WebSocket as writes of the queue: the caller's rights, and values of the table's types."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from whence.model.errors import DataError
from whence.server.verbs.typed_values import typed_rows
from whence.server.web.formats import read_arrow
from whence.server.writing.write_queue import TableInsert, Write
from whence.subscribe.messages import InsertMessage

if TYPE_CHECKING:
    from whence.runtime.database import Database
    from whence.server.access.tokens import Caller
    from whence.server.verbs.calls import Service


def prepare_insert(service: Service, caller: Caller, message: InsertMessage) -> tuple[Write, int]:
    """Return what inserts the rows of a message, and how many there are; an error if the caller may not, or if they are
    no rows of the table."""
    table, rights, missing = message.table.lower(), service.rights, message.missing
    rights.check(caller.who, table, "insert")
    schema = service.coordinator.table_of(table).written
    if (message.rows is None) == (message.arrow is None):
        raise DataError("an insert has either rows or an Arrow stream")
    if message.rows is not None:
        count = len(message.rows)
        service.limits.check("insert_rows", count, f"an insert of {count:,} rows")
        write = cast(Write, TableInsert(table, typed_rows(message.rows, schema, message.columns, table), missing))
    else:
        assert message.arrow is not None
        data = read_arrow(message.arrow)
        count = data.num_rows
        service.limits.check("insert_rows", count, f"an insert of {count:,} rows")

        def insert(db: Database) -> int:
            return db.insert(table, data, missing=missing)

        write = insert
    return write if rights.writes_freely(caller.who, table) else rights.guarded(caller.who, write), count
