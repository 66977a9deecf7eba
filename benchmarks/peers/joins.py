"""The join benchmark's peers: the same view, kept by Whence and by Pathway, recomputed by DuckDB."""

from __future__ import annotations

import time
from collections.abc import Sequence

import duckdb
import numpy as np
import pyarrow as pa

from benchmarks.peers.common import Change, Digest, Rows, as_rows, digest
from benchmarks.peers.pathway_peer import PathwayProcess
from benchmarks.star import COLUMNS, QUERY, SCRIPT, VIEW


class DuckdbJoin:
    """Applies a batch to indexed-by-nothing tables, then runs the query again. `recompute` is the query alone."""

    name = "DuckDB recompute"

    def __init__(self) -> None:
        self._con = duckdb.connect()
        self._con.execute(SCRIPT)
        self.recompute = 0.0

    def load(self, tables: dict[str, Rows]) -> float:
        """Time the insertion of all tables and the first query."""
        return self.update([Change(table, +1, rows) for table, rows in tables.items()])

    def update(self, batch: Sequence[Change]) -> float:
        """Time the batch and the query."""
        arrows = [
            pa.table({column: change.rows[:, i] for i, column in enumerate(COLUMNS[change.table])}) for change in batch
        ]
        started = time.perf_counter()
        self._con.execute("BEGIN")
        for change, arrow in zip(batch, arrows, strict=True):
            self._con.register("delta", arrow)
            if change.sign > 0:
                self._con.execute(f"INSERT INTO {change.table} FROM delta")
            else:
                self._con.execute(f"DELETE FROM {change.table} WHERE id IN (SELECT id FROM delta)")
            self._con.unregister("delta")
        self._con.execute("COMMIT")
        queried = time.perf_counter()
        self._con.execute(f"CREATE OR REPLACE TABLE {VIEW} AS {QUERY}")
        ended = time.perf_counter()
        self.recompute = ended - queried
        return ended - started

    def digest(self) -> Digest:
        """Fingerprint the rows."""
        return digest(self.rows())

    def rows(self) -> Rows:
        """The last answer."""
        return as_rows(list(self._con.execute(f"FROM {VIEW}").fetchnumpy().values()))

    def close(self) -> None:
        """Close the database."""
        self._con.close()


class PathwayJoin(PathwayProcess):
    """One connector carries all three tables, told apart by a column, so that a batch is one time."""

    def __init__(self) -> None:
        super().__init__("star", ("kind", "a", "b", "c", "d"))

    @property
    def since_commit(self) -> float:
        """Seconds of the last batch after its rows were handed over."""
        return self._since_commit

    def load(self, tables: dict[str, Rows]) -> float:
        """Time the first commit."""
        return self.update([Change(table, +1, rows) for table, rows in tables.items()])

    def update(self, batch: Sequence[Change]) -> float:
        """Time one commit."""
        kinds = {table: kind for kind, table in enumerate(COLUMNS)}
        parts = []
        for change in batch:
            part = np.zeros((len(change.rows), 5), dtype=np.int64)
            part[:, 0] = kinds[change.table]
            part[:, 1 : 1 + change.rows.shape[1]] = change.rows
            parts.append(part)
        signs = np.concatenate([np.full(len(change.rows), change.sign) for change in batch])
        return self.apply(signs, np.concatenate(parts))
