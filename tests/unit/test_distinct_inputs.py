"""Inputs of joins that are made distinct where copies cannot be seen give DuckDB's rows, epoch by epoch."""

from __future__ import annotations

import random
from collections import Counter

import duckdb
import pytest

import whence
from tests.depth import examples

QUERIES = [
    "SELECT r.a, MIN(r.b) AS low, MAX(r.b) AS high FROM r JOIN s ON r.a = s.a GROUP BY r.a",
    "SELECT COUNT(DISTINCT r.a) AS n FROM r JOIN s ON r.a = s.a AND s.b < r.b JOIN t ON t.a = s.b",
    "SELECT DISTINCT r.a FROM r, s",
    "SELECT DISTINCT r.a FROM r, s, t WHERE s.a = t.a",
    "SELECT r.a, r.b FROM r WHERE EXISTS (SELECT 1 FROM s JOIN t ON s.b = t.b WHERE s.a = r.a)",
    "SELECT r.a, r.b FROM r WHERE r.a NOT IN (SELECT s.a FROM s JOIN t ON s.b = t.b WHERE s.a IS NOT NULL)",
    "SELECT r.a FROM r JOIN s ON r.b = s.b UNION SELECT t.a FROM t JOIN s ON t.a = s.a",
    "SELECT r.a FROM r JOIN s ON r.b = s.b EXCEPT SELECT t.a FROM t JOIN s ON t.a = s.a",
    "SELECT r.a, SUM(DISTINCT r.b) AS n FROM r JOIN s ON s.a = r.b JOIN k ON k.id = s.b GROUP BY r.a",
]


@pytest.mark.parametrize("seed", range(examples(3)))
def test_same_rows_as_duckdb(seed: int) -> None:
    rng = random.Random(seed)
    script = "".join(f"CREATE TABLE {name} (a INT, b INT);" for name in "rst")
    script += "CREATE TABLE k (id INT PRIMARY KEY)"
    with whence.open() as db, duckdb.connect() as peer:
        db.execute(script)
        peer.execute(script)
        for number, query in enumerate(QUERIES):
            db.execute(f"CREATE VIEW v{number} AS {query}")
        ids = rng.sample(range(5), 3)
        db.insert("k", [(i,) for i in ids])
        peer.executemany("INSERT INTO k VALUES (?)", [(i,) for i in ids])
        for _ in range(15):
            with db.transaction():
                for table in rng.sample("rst", 2):
                    rows = [tuple(rng.choice([0, 1, 2, 3, None]) for _ in "ab") for _ in range(rng.randrange(1, 5))]
                    db.insert(table, rows)
                    peer.executemany(f"INSERT INTO {table} VALUES (?, ?)", rows)
                    if rng.random() < 0.7:
                        gone = f"DELETE FROM {table} WHERE {rng.choice('ab')} = {rng.randrange(4)}"
                        db.execute(gone)
                        peer.execute(gone)
            for number, query in enumerate(QUERIES):
                assert Counter(db[f"v{number}"].rows) == Counter(peer.execute(query).fetchall()), query


def test_keys_are_distinct_already() -> None:
    with whence.open() as db:
        db.execute(
            """CREATE TABLE o (c INT, p INT); CREATE TABLE c (id INT PRIMARY KEY, s TEXT);
            CREATE VIEW cheapest AS SELECT MIN(o.p) AS p FROM o JOIN c ON c.id = o.c WHERE c.s = 'x';
            CREATE VIEW most AS SELECT MAX(c.id) AS id FROM c JOIN o ON c.id = o.c"""
        )
        plans = ["\n".join(str(row[0]) for row in db.execute(f"EXPLAIN {v}").rows) for v in ("cheapest", "most")]
        assert ["distinct" in plan for plan in plans] == [False, True]
