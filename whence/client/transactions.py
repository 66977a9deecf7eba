"""Writes that are gathered on the client, and sent as one epoch."""

from __future__ import annotations

from contextvars import ContextVar
from typing import Any

from whence.client.encoding import WireRows

NOT_KNOWN = -1
"""A row count that is not known: of a deletion or an update inside a transaction, before its end; and of one that was
done when its connection was lost, and is then answered as done before."""


class WriteBuffer:
    """The writes of one transaction, in their order."""

    def __init__(self) -> None:
        self.operations: list[dict[str, Any]] = []

    def add(self, verb: str, **given: Any) -> int:
        """Add a deletion or an update."""
        self.operations.append({"verb": verb, **{name: value for name, value in given.items() if value is not None}})
        return NOT_KNOWN

    def add_insert(self, table: str, rows: WireRows, missing: str) -> int:
        """Add an insert; return the row count."""
        self.add("insert", table=table, rows=rows.rows, columns=rows.columns, arrow=rows.arrow, missing=missing)
        return rows.count


_OPEN: ContextVar[tuple[tuple[object, WriteBuffer], ...]] = ContextVar("transactions", default=())


def open_buffer(owner: object) -> WriteBuffer | None:
    """Return the transaction of a client that this thread or task is in."""
    return next((buffer for client, buffer in _OPEN.get() if client is owner), None)


class OpenTransaction:
    """Makes a buffer the one that a thread or task writes to."""

    def __init__(self, owner: object) -> None:
        self._owner, self.buffer = owner, WriteBuffer()
        self._token: Any = None

    def __enter__(self) -> WriteBuffer:
        self._token = _OPEN.set(((self._owner, self.buffer), *_OPEN.get()))
        return self.buffer

    def __exit__(self, *_: object) -> None:
        _OPEN.reset(self._token)
