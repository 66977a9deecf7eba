"""With curiosity on, a broker's views equal those with everything forwarded: random views, updates and delays."""

from __future__ import annotations

import random
from collections import Counter

import pytest

import whence
from benchmarks.curious_source import CuriousSource, databases
from tests.depth import seeds

_SCHEMA = """
CREATE TABLE t (id INT PRIMARY KEY, a INT, b INT, c INT);
CREATE TABLE u (id INT PRIMARY KEY, t_id INT, v INT)
"""
_LOCAL = "CREATE TABLE l (k INT PRIMARY KEY, w INT)"
_VIEWS = [
    "SELECT id, b FROM t WHERE a > {x}",
    "SELECT t.id, b FROM t JOIN l ON t.a = l.k",
    "SELECT t.id, b, w FROM t LEFT JOIN l ON t.id = l.k WHERE a > COALESCE(w, {x})",
    "SELECT t.id, b FROM t LEFT JOIN l ON t.id = l.k WHERE a > COALESCE(w, {x}) AND c < {y}",
    "SELECT id, b FROM t ORDER BY b LIMIT {k}",
    "SELECT id, b FROM t WHERE a > {x} ORDER BY b DESC LIMIT {k} OFFSET 1",
    "SELECT t.id, b FROM t LEFT JOIN l ON t.id = l.k WHERE a > COALESCE(w, {x}) ORDER BY b LIMIT {k}",
    "SELECT t.id, b FROM t JOIN l ON t.id = l.k AND a > w ORDER BY b LIMIT {k}",
    "SELECT a, SUM(b) AS s, COUNT(*) AS n FROM t GROUP BY a",
    "SELECT id, c FROM t WHERE NOT EXISTS (SELECT 1 FROM l WHERE l.k = t.id AND w > t.a)",
    "SELECT t.id, u.v, b FROM t JOIN u ON u.t_id = t.id WHERE t.a > u.v",
    "SELECT t.id, v FROM t LEFT JOIN u ON u.t_id = t.id",
    "SELECT id, c FROM t WHERE a IN (SELECT k FROM l)",
    "SELECT id, a IN (SELECT k FROM l) AS known, c FROM t",
    "SELECT l.k, t.b FROM l LEFT JOIN t ON t.id = l.k",
    "SELECT x.id, y.c FROM t x JOIN t y ON x.a = y.b WHERE x.c > {x}",
    "SELECT DISTINCT c FROM t WHERE a = {x}",
    "SELECT q.a, n FROM (SELECT a, COUNT(*) AS n FROM t GROUP BY a) q JOIN l ON l.k = q.a",
    "SELECT id FROM t WHERE b > {y} EXCEPT SELECT k FROM l",
    "SELECT MAX(b) AS high, MIN(c) AS low FROM t WHERE a = {x} OR a = {y}",
    "SELECT t.id, b FROM t JOIN u ON u.id = t.a JOIN l ON l.k = u.v WHERE c <> {x}",
    "SELECT t.id, c FROM t JOIN l ON t.a = l.k AND t.b = l.w",
    "SELECT t.id, c FROM t JOIN u ON t.a = u.t_id AND t.b = u.v WHERE t.c > {x}",
    "SELECT id, c FROM t WHERE (a, b) IN (SELECT k, w FROM l) OR id = {x}",
    "SELECT t.id, b, c FROM t LEFT JOIN l ON t.id = l.k WHERE a > COALESCE(w, {x}) ORDER BY b LIMIT {k}",
    "SELECT t.id, c FROM t JOIN l ON t.id = l.k AND a > w ORDER BY b DESC LIMIT {k}",
]


def _write(rnd: random.Random, dbs: list[whence.Database], table: str) -> None:
    kind, key = rnd.random(), rnd.randint(0, 5)
    names = {"t": ["a", "b", "c"], "u": ["t_id", "v"], "l": ["w"]}[table]
    if kind < 0.35:
        row = (key, *(rnd.choice([None, *range(6)]) if rnd.random() < 0.1 else rnd.randint(0, 6) for _ in names))
        for db in dbs:
            db.insert(table, row)
    elif kind < 0.8:
        column, value = rnd.choice(names), rnd.randint(0, 6)
        for db in dbs:
            db.execute(f"UPDATE {table} SET {column} = {value} WHERE {'k' if table == 'l' else 'id'} = {key}")
    else:
        for db in dbs:
            db.execute(f"DELETE FROM {table} WHERE {'k' if table == 'l' else 'id'} = {key}")


def run(seed: int, steps: int = 90) -> tuple[int, int]:
    """Run a broker with and one without curiosity side by side; return how many rows were sent to each."""
    rnd = random.Random(seed)
    chosen = rnd.sample(_VIEWS, rnd.choice([1, 1, 2, 3]))
    filled = [v.format(x=rnd.randint(0, 4), y=rnd.randint(2, 6), k=rnd.randint(1, 4)) for v in chosen]
    views = "; ".join(f"CREATE VIEW v{i} AS {query}" for i, query in enumerate(filled))
    publisher, curious = databases(_SCHEMA, views, _LOCAL)
    whole = databases(_SCHEMA, views, _LOCAL)[1]
    for _ in range(rnd.randint(0, 20)):
        _write(rnd, [publisher], rnd.choice("tu"))
    margin, delay = rnd.choice([0, 1, 3]), rnd.choice([0.0, 0.0, 2.0])
    sources = [CuriousSource(publisher, curious, n, margin, delay, sources=("u" if n == "t" else "t",)) for n in "tu"]
    mirrors = [CuriousSource(publisher, whole, name, curious=False) for name in "tu"]
    compared = 0

    def deliver() -> None:
        for each in (*sources, *mirrors):
            each.deliver()

    def compare() -> None:
        for i, query in enumerate(filled):
            expected, found = (Counter(db.query(f"SELECT * FROM v{i}").rows) for db in (whole, curious))
            assert found == expected, f"seed {seed}: {query}: {found - expected} too many, {expected - found} missing"

    for step in range(steps):
        for source in sources:
            source.now = float(step)
        action = rnd.random()
        if action < 0.35:
            _write(rnd, [publisher], rnd.choice("tu"))
        elif action < 0.5:
            _write(rnd, [curious, whole], "l")
        elif action < 0.75:
            deliver()
        else:
            rnd.choice(sources).send()
        if sources[0].reflected == sources[1].reflected and all(source.is_exposed for source in sources):
            compare()
            compared += 1
    for source in sources:
        source.now = steps + 10.0
    for _ in range(100):
        deliver()
        sent = [source.send() for source in sources]
        if not any(sent):
            break
    else:
        raise AssertionError(f"seed {seed}: amendments do not end")
    assert all(source.is_exposed for source in sources)
    compare()
    return sum(s.rows for s in sources), sum(m.rows for m in mirrors)


@pytest.mark.parametrize("seed", seeds(10))
def test_views_equal_those_with_everything_forwarded(seed: int) -> None:
    run(seed)


if __name__ == "__main__":
    import sys

    first, last = (int(text) for text in sys.argv[1:3])
    total = [run(seed) for seed in range(first, last)]
    print(f"{sum(a for a, _ in total):,} rows instead of {sum(b for _, b in total):,}")
