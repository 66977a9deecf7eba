"""A transaction: writes to any tables that become one epoch, all of them or none.

A transaction inside a transaction joins it: its writes are committed by the outer one, and if it fails on its own they
alone are forgotten. Nothing here touches the committed state; that is `Coordinator.commit`.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial

import numpy as np

from whence.engine.core.operator import Batch
from whence.model.codes import Codes
from whence.plan.algebra.program import closed_name, has_closed_keys, is_beside, owed_name, owner_of
from whence.runtime.writing.stream_writes import StreamWriteSet, number_all
from whence.runtime.writing.tables import Sees, WriteSet

Savepoint = dict[str, int]


class Transaction:
    """The pending writes of one writer, by table."""

    __slots__ = ("__weakref__", "_open", "_pending", "_sees", "expired", "source_positions")

    def __init__(self, open_table: Callable[[str], WriteSet | StreamWriteSet]) -> None:
        self._open = open_table
        self._pending: dict[str, WriteSet | StreamWriteSet] = {}
        self._sees: Callable[[str], Sees | None] | None = None
        self.expired = 0  # rows whose time was up when it was committed
        self.source_positions: Mapping[str, int] = {}  # how far sources have come with it, and promises of streams

    def table(self, name: str) -> WriteSet | StreamWriteSet:
        """The table as this transaction sees it."""
        found = self._pending.get(name)
        if found is None:
            found = self._pending[name] = self._open(name)
            if isinstance(found, StreamWriteSet):
                if found.table.promises.closes is not None:
                    found.closed_keys = partial(_beside, weakref.ref(self), closed_name(name))
            elif not is_beside(name):
                found.debts = partial(_beside, weakref.ref(self), owed_name(name))
        if self._sees is not None and isinstance(found, WriteSet) and not has_closed_keys(name):
            found.sees = self._sees(owner_of(name))
        return found

    @contextmanager
    def seeing(self, sees: Callable[[str], Sees | None]) -> Iterator[None]:
        """Let the writer find, change and delete only those rows of each table that it may see."""
        before, self._sees = self._sees, sees
        try:
            yield
        finally:
            self._sees = before
            for pending in self._pending.values():
                if isinstance(pending, WriteSet):
                    pending.sees = None

    def contents(self, name: str) -> Batch | None:
        """The rows of a table as they are in this transaction; None if it has written nothing there."""
        pending = self._pending.get(name)
        return Batch(*pending.everything()) if pending is not None and pending.savepoint() else None

    def contents_at(self, savepoint: Savepoint, name: str) -> Batch | None:
        """The rows of a table as they were at a savepoint; None if nothing has been written there."""
        pending = self._pending.get(name)
        if pending is None or not pending.savepoint():
            return None
        return Batch(*pending.everything(savepoint.get(name, 0)))

    def written_since(self, savepoint: Savepoint) -> dict[str, Batch]:
        """Return what was written since a savepoint, by table or debts of a table: each row, and by how much it is
        there more often than then."""
        found = {name: pending.written_since(savepoint.get(name, 0)) for name, pending in self._pending.items()}
        return {name: written for name, written in found.items() if len(written.ann)}

    @property
    def appended(self) -> int:
        """How many rows it has for streams."""
        streams = (pending for pending in self._pending.values() if isinstance(pending, StreamWriteSet))
        return sum(len(rows) for stream in streams for _, rows in stream.parts)

    def savepoint(self) -> Savepoint:
        """Return where the writes stand, for `rollback_to`."""
        return {name: pending.savepoint() for name, pending in self._pending.items()}

    def rollback_to(self, savepoint: Savepoint) -> None:
        """Forget the writes since a savepoint."""
        for name, pending in self._pending.items():
            pending.rollback_to(savepoint.get(name, 0))

    def deltas(self, now: int) -> dict[str, Batch]:
        """What each table changes by in an epoch of this time, consolidated, and the rows of each stream in their
        order; tables that do not change are left out."""
        streams = [pending for pending in self._pending.values() if isinstance(pending, StreamWriteSet)]
        if streams:
            number_all(streams, now)
        found = {name: pending.delta() for name, pending in self._pending.items()}
        return {name: delta for name, delta in found.items() if len(delta.ann)}

    def refreshed(self, name: str, delta: Batch) -> Codes:
        """The rows of a table that were written again and stay as they are, given what it changes by."""
        pending = self._pending.get(name)
        return pending.refreshed(delta) if pending is not None else np.empty((0, delta.rows.shape[1]), np.int64)


def _beside(transaction: weakref.ref[Transaction], name: str) -> WriteSet:
    """What a table owes, or which keys of a stream are closed, as a transaction sees it. A write set must not hold its
    transaction, which holds it: the rows would stay until the garbage collector looks."""
    writes = transaction()
    assert writes is not None
    found = writes.table(name)
    assert isinstance(found, WriteSet)
    return found
