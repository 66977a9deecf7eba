"""Joins on ranges and bands: an ordered index finds the rows within the bounds, and DuckDB's rows come out."""

from __future__ import annotations

import random
from collections import Counter

import duckdb
import numpy as np
import pytest

import whence
from tests.depth import examples
from tests.unit.test_join_paths import join_of
from whence.engine.core.operator import Batch
from whence.engine.core.relation import Relation

CONDITIONS = [
    "a.x < b.y",
    "a.x BETWEEN b.y AND b.z",
    "a.x > b.y - 3 AND a.x <= b.y + 3",
    "a.k = b.k AND a.x < b.y AND a.x > b.y - 10",
    "a.k = b.k AND b.y + 2 >= a.x AND 5 + a.x > b.y",
    "a.d < b.d",
    "a.m >= b.m",
    "a.t BETWEEN b.t - 1.5 AND b.t + 1.5",
]
TABLES = "CREATE TABLE {} (k INT, x INT, y INT, z BIGINT, d DATE, m DECIMAL(6, 2), t DOUBLE)"


def drawn(rng: random.Random) -> tuple[object, ...]:
    """Return a row, of which some values are NULL."""
    day = f"2024-01-{rng.randrange(1, 29):02}"
    row = (
        rng.randrange(3), rng.randrange(40), rng.randrange(40), rng.randrange(40), day, rng.randrange(4000) / 100,
        rng.choice([0.0, -0.0, 1.5, -1e300, float("inf"), float("nan"), rng.random() * 9]),
    )  # fmt: skip
    return tuple(None if rng.random() < 0.05 else value for value in row)


@pytest.mark.parametrize("condition", CONDITIONS)
@pytest.mark.parametrize("seed", range(examples(1)))
def test_same_rows_as_duckdb(condition: str, seed: int) -> None:
    rng = random.Random(f"{condition}{seed}")
    query = f"SELECT a.k, a.x, b.y, b.z FROM a, b WHERE {condition}"
    with whence.open() as db, duckdb.connect() as peer:
        for name in "ab":
            db.execute(TABLES.format(name))
            peer.execute(TABLES.format(name))
        db.execute(f"CREATE VIEW v AS {query}")
        for size in (120, 3, 5, 2, 60, 1, 4):
            with db.transaction():
                for name in rng.sample("ab", rng.randrange(1, 3)) if size < 60 else "ab":
                    rows = [drawn(rng) for _ in range(size)]
                    db.insert(name, rows)
                    peer.executemany(f"INSERT INTO {name} VALUES ({', '.join('?' * 7)})", rows)
                    gone = f"DELETE FROM {name} WHERE x = {rng.randrange(40)}"
                    db.execute(gone)
                    peer.execute(gone)
            assert Counter(db["v"].rows) == Counter(peer.execute(query).fetchall())


def test_band_looks_up_an_ordered_index() -> None:
    with whence.open() as db:
        db.execute(
            """CREATE TABLE a (x INT); CREATE TABLE b (y INT);
            CREATE VIEW v AS SELECT x, y FROM a, b WHERE a.x > b.y - 3 AND a.x <= b.y + 3"""
        )
        with db.transaction():
            db.insert("a", [(i,) for i in range(1000)])
            db.insert("b", [(i,) for i in range(0, 1000, 7)])
        db.insert("b", [(500,)])
        step = join_of(db)._steps()[0]
        assert (step.probes, step.matches) == (1, 6)
        plan = "\n".join(str(row[0]) for row in db.execute("EXPLAIN v").rows)
        assert "order of 2: 1 on x in order (x 1e+03 of which 0.00" in plan
        db.what_if(insert={"a": [(501,)]}, delete={"b": [(500,)]})
        db.insert("a", [(501,)])
        assert sorted(db["v"].rows) == sorted(db.query("SELECT x, y FROM a, b WHERE x > y - 3 AND x <= y + 3").rows)


def test_few_rows_are_looked_up_as_pairs() -> None:
    with whence.open() as db:
        db.execute(
            "CREATE TABLE a (x INT); CREATE TABLE b (y INT); CREATE VIEW v AS SELECT x, y FROM a, b WHERE a.x < b.y"
        )
        db.insert("a", [(1,), (2,)])
        db.insert("b", [(3,)])
        db.insert("b", [(4,)])
        assert all(step.range is None for step in join_of(db)._steps())
        assert len(db["v"].rows) == 4


def test_index_follows_rows_and_undo() -> None:
    relation, rng = Relation(2), random.Random(0)
    index = relation.range_index((0, 1))
    for _ in range(40):
        before = sorted(map(tuple, relation.scan().rows.tolist()))
        drawn = {(rng.randrange(4), rng.randrange(50)) for _ in range(rng.randrange(1, 200))}
        rows = np.array(sorted(drawn), np.int64)
        relation.apply(Batch(rows, np.where(relation.counts(rows) > 0, -1, 1), True))
        if rng.random() < 0.4:
            relation.undo()
            assert sorted(map(tuple, relation.scan().rows.tolist())) == before
        relation.commit()
        index = relation.range_index((0, 1))
        keys, high = np.array([[2, 10], [3, 0], [9, 0]], np.int64), np.array([30, 49, 99], np.int64)
        at, ids = index.between(keys, high)
        found = [(int(i), *map(int, relation.rows[r])) for i, r in zip(at, ids, strict=True)]
        there = sorted(map(tuple, relation.scan().rows.tolist()))
        assert found == [
            (i, *row)
            for i, (k, low) in enumerate(keys.tolist())
            for row in there
            if row[0] == k and low <= row[1] <= high[i]
        ]
