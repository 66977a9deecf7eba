"""PostgreSQL's and DuckDB's planners, which plan from scratch.

PostgreSQL says itself how long it planned (EXPLAIN with SUMMARY); genetic search is off and all joins may be reordered.
DuckDB's time is that of EXPLAIN.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import duckdb

from benchmarks.peers.postgres_peer import PostgresServer, address, missing
from benchmarks.reoptimize_queries import JoinQuery

POSTGRES, DUCKDB = "PostgreSQL", "DuckDB"
_SETTINGS = ("geqo = off", "join_collapse_limit = 12", "from_collapse_limit = 12", "jit = off")


@contextmanager
def postgres(folder: Path) -> Iterator[Any]:
    """Yield a connection to a new server; None if there is none."""
    if missing() is not None:
        yield None
        return
    import psycopg

    folder.chmod(0o755)  # the server may run as another user
    server = PostgresServer(folder)
    server.start()
    server._wait_ready()
    try:
        with psycopg.connect(address(server.port), autocommit=True) as connection:
            for setting in _SETTINGS:
                connection.execute(f"SET {setting}")
            yield connection
    finally:
        server.kill()


def plan_postgres(connection: Any, query: JoinQuery, rounds: int) -> list[float]:
    """Return the milliseconds that PostgreSQL planned a query for, each time."""
    connection.execute("DROP SCHEMA IF EXISTS s CASCADE; CREATE SCHEMA s; SET search_path = s")
    for table in query.tables():
        connection.execute(table)
    for name in query.rows:
        connection.execute(f"INSERT INTO {name} SELECT FROM generate_series(1, 100)")
        connection.execute(f"ANALYZE {name}")
    times = []
    for _ in range(rounds + 1):
        lines = connection.execute(f"EXPLAIN (SUMMARY ON) {query.select()}").fetchall()
        (line,) = [text for (text,) in lines if text.startswith("Planning Time")]
        times.append(float(line.split()[2]))
    return times[1:]  # the first also reads the catalog


def plan_duckdb(query: JoinQuery, rounds: int) -> list[float]:
    """Return the milliseconds of DuckDB's EXPLAIN, each time."""
    connection = duckdb.connect(config={"threads": 1})
    for table in query.tables():
        connection.execute(table)
    times = []
    for _ in range(rounds + 1):
        begin = time.perf_counter()
        connection.execute(f"EXPLAIN {query.select()}").fetchall()
        times.append(1e3 * (time.perf_counter() - begin))
    return times[1:]
