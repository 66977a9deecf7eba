"""DuckDB recomputing the view with WITH RECURSIVE after every batch, and taking the difference to the last answer.

The difference is part of the work: a database without incremental views that must say what changed has to do it.
`cheapest` uses DuckDB's USING KEY recursion, the only one of its forms that ends on cyclic networks without a bound.
DuckDB's recursion sees only the rows of the last round, so the non-linear program is run in its linear form.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

import duckdb

from benchmarks.peers.common import RECURSIONS, Change, Digest, Rows, as_rows, digest

REACHABLE = """
    WITH RECURSIVE closure AS (
        SELECT src, dst FROM link
        UNION
        SELECT link.src, closure.dst FROM link JOIN closure ON link.dst = closure.src)
    SELECT src, dst FROM closure"""

CHEAPEST = """
    WITH RECURSIVE best(src, dst, cost) USING KEY (src, dst) AS (
        SELECT src, dst, min(cost) FROM link GROUP BY src, dst
        UNION
        SELECT link.src, best.dst, min(link.cost + best.cost)
        FROM link JOIN best ON link.dst = best.src
             LEFT JOIN recurring.best AS known ON known.src = link.src AND known.dst = best.dst
        WHERE known.cost IS NULL OR link.cost + best.cost < known.cost
        GROUP BY link.src, best.dst)
    SELECT src, dst, cost FROM best"""

SAME_GENERATION = """
    WITH RECURSIVE pairs AS (
        SELECT a.dst AS x, b.dst AS y FROM link AS a JOIN link AS b ON a.src = b.src
        UNION
        SELECT a.dst, b.dst FROM link AS a JOIN pairs ON a.src = pairs.x JOIN link AS b ON b.src = pairs.y)
    SELECT x, y FROM pairs"""

QUERIES = {
    "reachable": REACHABLE,
    "reachable_nonlinear": REACHABLE,
    "cheapest": CHEAPEST,
    "same_generation": SAME_GENERATION,
}


class DuckdbPeer:
    """Recomputes the whole view after every batch, then `EXCEPT`s it both ways with what it was."""

    name = "DuckDB recompute"

    def __init__(self, program: str, nodes: int) -> None:
        self._columns = ", ".join(RECURSIONS[program].columns)
        self._query = QUERIES[program]
        self._con = duckdb.connect()
        self._con.execute("CREATE TABLE link (src INTEGER, dst INTEGER, cost INTEGER)")
        self._con.execute(f"CREATE TABLE answer AS {self._query}")
        self.changed = 0

    def load(self, tables: dict[str, Rows]) -> float:
        """Time the insertion and the first computation."""
        return self.update([Change("link", +1, tables["link"])])

    def update(self, batch: Sequence[Change]) -> float:
        """Time the change of the links, the recomputation and the difference."""
        started = time.perf_counter()
        for change in batch:
            values = ", ".join(f"({src}, {dst}, {cost})" for src, dst, cost in change.rows.tolist())
            if change.sign > 0:
                self._con.execute(f"INSERT INTO link VALUES {values}")
            else:
                self._con.execute(f"DELETE FROM link WHERE (src, dst, cost) IN (VALUES {values})")
        self._con.execute(f"CREATE OR REPLACE TABLE fresh AS {self._query}")
        self.changed = len(self._difference("answer", "fresh")) + len(self._difference("fresh", "answer"))
        self._con.execute("DROP TABLE answer")
        self._con.execute("ALTER TABLE fresh RENAME TO answer")
        return time.perf_counter() - started

    def _difference(self, left: str, right: str) -> list[tuple[int, ...]]:
        return self._con.execute(f"FROM {left} EXCEPT FROM {right}").fetchall()

    def digest(self) -> Digest:
        """Fingerprint the rows."""
        return digest(self.rows())

    def rows(self) -> Rows:
        """The last answer."""
        columns = self._con.execute(f"SELECT {self._columns} FROM answer").fetchnumpy()
        return as_rows(list(columns.values()))

    def close(self) -> None:
        """Close the database."""
        self._con.close()
