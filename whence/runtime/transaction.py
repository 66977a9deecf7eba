"""A transaction: writes to any tables that become one epoch, all of them or none.

A transaction inside a transaction joins it: its writes are committed by the outer one, and if it fails on its own they
alone are forgotten. Nothing here touches the committed state; that is the runtime's `commit`.
"""

from __future__ import annotations

from collections.abc import Callable

from whence.engine.operator import Batch
from whence.runtime.tables import Pending

Mark = dict[str, int]


class Transaction:
    """The pending writes of one writer, by table."""

    __slots__ = ("_open", "_pending", "depth")

    def __init__(self, open_table: Callable[[str], Pending]) -> None:
        self._open = open_table
        self._pending: dict[str, Pending] = {}
        self.depth = 0

    def table(self, name: str) -> Pending:
        """The table as this transaction sees it."""
        found = self._pending.get(name)
        if found is None:
            found = self._pending[name] = self._open(name)
        return found

    def contents(self, name: str) -> Batch | None:
        """The rows of a table as this transaction sees it; None if it has written nothing there."""
        pending = self._pending.get(name)
        return Batch(*pending.contents()) if pending is not None and pending.mark() else None

    def mark(self) -> Mark:
        return {name: pending.mark() for name, pending in self._pending.items()}

    def back_to(self, mark: Mark) -> None:
        """Forget the writes since a mark."""
        for name, pending in self._pending.items():
            pending.back_to(mark.get(name, 0))

    def deltas(self) -> dict[str, Batch]:
        """What each table changes by; tables that nothing was written to are left out."""
        return {name: pending.batch() for name, pending in self._pending.items() if pending.mark()}
