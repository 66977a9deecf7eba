"""A policy that switches every join to a random plan after every epoch, and the tables and views it is tried on."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import duckdb

import whence
from whence.adapt.history import PlanSwitch
from whence.adapt.policy import AdaptMode
from whence.adapt.statistics import JoinReading
from whence.engine.core.operator import upwards
from whence.engine.relational.join import Join
from whence.plan.algebra.join_paths import JoinOrders, JoinShape
from whence.runtime.adaptation import Adaptation

TABLES = {"a": 2, "b": 2, "c": 2, "d": 2}
DECLARED = """
CREATE TABLE a (k INT, g INT); CREATE TABLE b (k INT, x INT);
CREATE TABLE c (g INT, y INT); CREATE TABLE d (k INT, z INT)
"""
QUERIES = {
    "v": """SELECT a.k, b.x, c.y, d.z FROM a, b, c, d
            WHERE a.k = b.k AND c.g = a.g AND d.z > c.y AND d.z < c.y + 3 AND b.x <> d.z""",
    "w": "SELECT a.k, b.x, c.y FROM a, c, b WHERE a.g = c.g AND a.k = b.k AND b.x + c.y < 6",
    "s": """SELECT a.g, count(*) AS n, sum(b.x + d.z) AS total FROM a, b, d
            WHERE a.k = b.k AND d.k = b.k GROUP BY a.g""",
}
VIEWS = "; ".join(f"CREATE VIEW {name} AS {query}" for name, query in QUERIES.items())


class RandomPlans(Adaptation):
    """Switches after every epoch."""

    random = random.Random(0)

    def consider(self) -> None:
        self._look()

    def decide(self, name: str, mode: AdaptMode, reading: JoinReading, now: float) -> PlanSwitch | None:
        shape = self.watched()[name].join.shape
        return self._entry(name, reading.plan, random_plan(shape, self.random), "by chance")


def random_plan(shape: JoinShape, rng: random.Random) -> JoinOrders:
    """Return a random path of each delta, with hash or ordered indexes where there are both."""
    found = []
    for first in range(len(shape.keys)):
        order, met = [i for i in range(len(shape.keys)) if i != first], 1 << first
        rng.shuffle(order)
        path = []
        for input in order:
            path.append(~input if shape.bounded(input, met) and rng.random() < 0.5 else input)
            met |= 1 << input
        found.append(tuple(path))
    return tuple(found)


def adapt_randomly(db: whence.Database, seed: int) -> None:
    """Let a database switch to random plans."""
    coordinator = db._coordinator
    mine = RandomPlans(coordinator)
    mine.random, mine.history, mine.mode = random.Random(seed), coordinator.adaptation.history, "on"
    coordinator.adaptation = mine


def changes(rng: random.Random) -> list[tuple[str, str, list[tuple[int, ...]]]]:
    """Return what one epoch does: insert or delete some rows of some tables."""
    found = []
    for table, width in TABLES.items():
        rows = [tuple(rng.randrange(5) for _ in range(width)) for _ in range(rng.randrange(1, 7))]
        if rng.random() < 0.7:
            found.append(("insert", table, rows))
        if rng.random() < 0.4:
            found.append(("delete", table, rows[: rng.randrange(1, 4)]))
    return found


def carry_out(db: whence.Database, writes: list[tuple[str, str, list[tuple[int, ...]]]]) -> None:
    """Make one epoch of some writes."""
    with db.transaction():
        for verb, table, rows in writes:
            if verb == "insert":
                db.insert(table, rows)
            else:
                db.execute(f"DELETE FROM {table} WHERE {'g' if table == 'c' else 'k'} = {rows[0][0]}")


def check(db: whence.Database) -> None:
    """Compare every view with DuckDB over the tables as they are."""
    with duckdb.connect() as peer:
        for each in DECLARED.split(";"):
            peer.execute(each)
        for table, width in TABLES.items():
            rows: list[Any] = list(db[table].rows)
            if rows:
                peer.executemany(f"INSERT INTO {table} VALUES ({', '.join('?' * width)})", rows)
        for name, query in QUERIES.items():
            assert Counter(db[name].rows) == Counter(peer.execute(query).fetchall()), name


def joins(db: whence.Database) -> dict[str, Join]:
    """Return the joins that run, by fingerprint; in partitions those of a template."""
    return {join.fingerprint: join for name in QUERIES for join in joins_of(db, name)}


def joins_of(db: whence.Database, view: str) -> list[Join]:
    """Return the joins that a view runs."""
    return [op for op in upwards([db._coordinator.catalog.backend.operator(view)]) if isinstance(op, Join)]


def seeded(seed: int) -> random.Random:
    """Return a source of chance."""
    return random.Random(seed)
