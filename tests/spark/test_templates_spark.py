"""Every shape of template in partitions: each notification and message once, as without partitions."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import pytest

import whence
from tests import inside
from whence.runtime import database

RANGE = "x BETWEEN :low AND :high"
SHAPES = {
    "rows": f"SELECT id, y FROM r WHERE {RANGE}",
    "pairs": "SELECT r.id, s.y FROM r JOIN s ON r.k = s.k WHERE r.x BETWEEN :low AND :high AND s.y > :least",
    "bands": "SELECT r.id AS a, s.id AS b FROM r JOIN s ON TRUE WHERE s.y - r.y BETWEEN :low AND :high",
    "least": f"SELECT MIN(y) AS y FROM r WHERE {RANGE}",
    "values": f"SELECT DISTINCT y FROM r WHERE k = :key AND {RANGE}",
    "total": f"SELECT COUNT(*) AS n, SUM(y) AS s, AVG(y) AS m FROM r WHERE {RANGE}",
    "first": f"SELECT y, id FROM r WHERE {RANGE} ORDER BY y DESC LIMIT :n",
    "odd": "SELECT id FROM r WHERE x % CAST(:n AS INT) = 1",
    "groups": f"SELECT k, COUNT(*) AS n FROM r WHERE {RANGE} GROUP BY k ORDER BY n DESC LIMIT 2",
    "keyed_rows": f"SELECT id, y FROM u WHERE k = :key AND {RANGE}",
    "keyed_least": f"SELECT MIN(y) AS y FROM u WHERE k = :key AND {RANGE}",
    "keyed_first": f"SELECT y, id FROM u WHERE k = :key AND {RANGE} ORDER BY y LIMIT 2",
    "keyed_values": f"SELECT DISTINCT y FROM u WHERE k = :key AND {RANGE}",
    "arrived": f"SELECT id, y FROM tick WHERE k = :key AND {RANGE}",
    "counted": f"SELECT COUNT(*) AS n, MIN(y) AS y FROM tick WHERE {RANGE}",
}


def both_runs(other: whence.Database, epochs: int) -> None:
    """Change data and subscriptions of all templates together: both databases tell the same."""
    sides = [whence.open(), other]
    for db in sides:
        db.execute("CREATE TABLE r (id INT PRIMARY KEY, k INT, x INT, y INT)")
        db.execute("CREATE TABLE s (id INT PRIMARY KEY, k INT, y INT)")
        db.execute("CREATE TABLE u (id INT, k INT, x INT, y INT) WITH (partition_by = 'k')")
        db.execute("CREATE STREAM tick (id INT, k INT, x INT, y INT)")
        for name, query in SHAPES.items():
            db.execute(f"CREATE TEMPLATE {name} AS {query}")
    notified = [{name: db.notifications(name) for name in SHAPES} for db in sides]
    told = [{name: db.messages(name) for name in ("least", "values", "rows")} for db in sides]
    chance = random.Random(18)
    for _ in range(epochs):
        changes: list[tuple[str, tuple[int, ...]]] = []
        for _ in range(6):
            for table in ("r", "u", "tick"):
                changes.append((table, (chance.randrange(9), *(chance.randrange(4) for _ in range(3)))))
            changes.append(("s", (chance.randrange(9), chance.randrange(4), chance.randrange(4))))
        for name in SHAPES:
            width = len(sides[0][name].columns) - 1
            changes.append((name, (chance.randrange(4), *(chance.randrange(1, 4) for _ in range(width)))))
        gone = chance.randrange(9)
        for db in sides:
            with db.transaction():
                for table, row in changes:
                    db.insert(table, row)
                db.execute(f"DELETE FROM r WHERE id = {gone}; DELETE FROM u WHERE id = {gone}")
        for name in SHAPES:
            plain, parts = (Counter((n.id, n.sign, n.row) for n in feeds[name]) for feeds in notified)
            assert parts == plain, name
            for id in {row[0] for row in sides[0][name].rows}:
                plain, parts = (Counter(db.subscription(name, id).rows) for db in sides)
                assert parts == plain, (name, id)
        for name in told[0]:
            plain_messages, part_messages = (Counter(map(repr, feeds[name])) for feeds in told)
            assert part_messages == plain_messages, name
    for db in sides:
        db.close()


def test_partitions_in_this_process_tell_the_same() -> None:
    both_runs(whence.open(partitions=3), 6)


def test_spark_jobs_tell_the_same(spark: Any) -> None:
    db = database.open(spark=spark, durability="none", partitions=2)
    inside.run_as(db, "job")
    both_runs(db, 2)


@pytest.mark.parametrize("name", ["rows", "first"])
def test_explain_says_what_is_copied(name: str) -> None:
    """Rows of a selection stay where they are, and subscriptions come to them; an answer needs all of its rows."""
    with whence.open(partitions=3) as db:
        db.execute("CREATE TABLE r (id INT PRIMARY KEY, k INT, x INT, y INT)")
        db.execute(f"CREATE TEMPLATE t AS {SHAPES[name]}")
        plan = db.explain("t").partition("physical plan")[2]
        copied = plan.partition("ship to every partition")[2].lstrip().splitlines()
        assert copied, plan
        assert ("scan t" if name == "rows" else "scan r") in "\n".join(copied[:3])


@pytest.mark.parametrize("name", ["keyed_rows", "keyed_least", "keyed_first", "keyed_values"])
def test_subscriptions_live_with_their_key_where_rows_do(name: str) -> None:
    with whence.open(partitions=3) as db:
        db.execute("CREATE TABLE u (id INT, k INT, x INT, y INT) WITH (partition_by = 'k')")
        db.execute(f"CREATE TEMPLATE t AS {SHAPES[name]}")
        plan = db.explain("t").partition("physical plan")[2]
        assert "ship to every partition" not in plan
        assert plan.count("ship by key") == 1
