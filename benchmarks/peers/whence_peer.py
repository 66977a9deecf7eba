"""Whence, through its public API and nothing else.

Views are maintained before `insert`, `delete` or a transaction returns, so the time of the call is the time of the
update. Loads come as Arrow; single links as tuples, as a program that reacts to one event would hand them over.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

import pyarrow as pa

import whence
from benchmarks.peers.common import LINK_TABLE, RECURSIONS, Change, Digest, Rows, as_rows, digest

FEW_ROWS = 16
"""Batches up to this size are handed over as tuples, larger ones as Arrow."""


class WhencePeer:
    """A recursive view over link(src, dst, cost), or any other script with one view to look at."""

    name = "Whence"

    def __init__(self, program: str, nodes: int) -> None:
        recursion = RECURSIONS[program]
        self._open(LINK_TABLE + recursion.sql, recursion.name, {"link": ("src", "dst", "cost")})

    def _open(self, script: str, view: str, tables: dict[str, tuple[str, ...]]) -> None:
        self.db = whence.open()
        self.db.execute(script)
        self._view = view
        self._tables = tables

    def load(self, tables: dict[str, Rows]) -> float:
        """Time one transaction that fills all tables from Arrow."""
        batches = {table: self._arrow(table, rows) for table, rows in tables.items()}
        started = time.perf_counter()
        with self.db.transaction():
            for table, batch in batches.items():
                self.db.insert(table, batch)
        return time.perf_counter() - started

    def update(self, batch: Sequence[Change]) -> float:
        """Time one call, or one transaction if there is more than one change."""
        calls = [
            (self.db.insert if change.sign > 0 else self.db.delete, change.table, self._handed_over(change))
            for change in batch
        ]
        started = time.perf_counter()
        if len(calls) == 1:
            apply, table, rows = calls[0]
            apply(table, rows)
        else:
            with self.db.transaction():
                for apply, table, rows in calls:
                    apply(table, rows)
        return time.perf_counter() - started

    def _handed_over(self, change: Change) -> list[tuple[int, ...]] | pa.Table:
        if len(change.rows) <= FEW_ROWS:
            return [tuple(row) for row in change.rows.tolist()]
        return self._arrow(change.table, change.rows)

    def _arrow(self, table: str, rows: Rows) -> pa.Table:
        return pa.table({column: pa.array(rows[:, i]) for i, column in enumerate(self._tables[table])})

    def digest(self) -> Digest:
        """Fingerprint the rows."""
        return digest(self.rows())

    def rows(self) -> Rows:
        """The view as it is committed."""
        return as_rows([column.to_numpy() for column in self.db[self._view].to_arrow().columns])

    def state_bytes(self) -> int:
        """Bytes of all tables, operators and indexes, as the database reports them."""
        return int(self.db.metrics()["state_bytes"])

    def close(self) -> None:
        """Close the database."""
        self.db.close()
