"""Keys that most rows of a join have: found while rows come, divided among partitions, and let go of again."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pytest

import whence
from tests import inside
from tests.depth import seeds
from tests.oracle import assert_rows
from whence.engine.core.operator import Batch
from whence.engine.core.relation import Relation
from whence.engine.exchange.heavy_keys import count_heavy, with_key
from whence.runtime.spark.driver.heavy_joins import from_json, to_json

SCRIPT = """
CREATE TABLE hit (page INT, ms INT);
CREATE TABLE page (id INT, title TEXT);
CREATE VIEW seen AS SELECT title, ms FROM hit JOIN page ON hit.page = page.id;
CREATE VIEW load AS SELECT title, COUNT(*) AS n, SUM(ms) AS ms FROM seen GROUP BY title;
"""
PAGES = [(i, f"page {i}") for i in range(40)]


def settings(partitions: int = 4, **more: Any) -> dict[str, Any]:
    return {"partitions": partitions, "on_spark": {"heavy_rows": 20, "copied_rows": 5}, **more}


def busiest(db: whence.Database, view: str) -> float:
    """The largest share of a view's rows in one partition."""
    counts = [len(batch) for batch in inside.driver(db).runner.ask_all("contents", view)]
    return max(counts) / max(sum(counts), 1)


def skewed(rng: random.Random, count: int, key: int = 7) -> list[tuple[int, int]]:
    """Half of the hits are on one page."""
    return [(key if rng.random() < 0.5 else rng.randrange(40), rng.randrange(90_000)) for _ in range(count)]


def check_load(db: whence.Database, hits: list[tuple[int, int]]) -> None:
    sums = Counter[str]()
    for page, ms in hits:
        sums[f"page {page}"] += ms
    counts = Counter(f"page {page}" for page, _ in hits)
    assert {title: (n, ms) for title, n, ms in db["load"]} == {t: (counts[t], sums[t]) for t in counts}


def test_heavy_key_is_divided_and_let_go_of() -> None:
    rng = random.Random(3)
    with whence.open(**settings()) as db:
        db.execute(SCRIPT)
        db.insert("page", PAGES)
        hits = skewed(rng, 400)
        db.insert("hit", hits)
        assert busiest(db, "seen") > 0.5
        assert "heavy" not in db.explain("seen")
        feed = db.changes("load")
        hits.append((1, 1))
        db.insert("hit", [(1, 1)])  # before it, partitions are asked
        text = db.explain("seen")
        assert "ship by page, 1 heavy key divided" in text
        assert "ship by id, 1 heavy key copied" in text
        assert "heavy keys of the join on page = id: 7 divided on the left, copied on the right" in text
        assert busiest(db, "seen") < 0.45
        check_load(db, hits)
        assert {change.row[0] for change in feed} == {"page 1"}
        assert "aggregate in two steps by title" in db.explain("load")
        gone = [hit for hit in hits if hit[0] == 7]
        hits = [hit for hit in hits if hit[0] != 7]
        db.delete("hit", gone)
        check_load(db, hits)
        more = [(i % 40, i) for i in range(300)]
        for start in (0, 150):
            db.insert("hit", more[start : start + 150])
        hits += more
        db.insert("hit", [(2, 2)])
        hits.append((2, 2))
        assert "heavy" not in db.explain("seen")
        check_load(db, hits)


def test_undone_epoch_keeps_the_rows_of_heavy_keys() -> None:
    rng = random.Random(4)
    with whence.open(**settings(3)) as db:
        db.execute(SCRIPT + "CREATE VIEW far AS SELECT CAST(ms AS BIGINT) * 100000000000000 AS d FROM seen")
        db.insert("page", PAGES)
        hits = skewed(rng, 200)
        db.insert("hit", hits)
        with pytest.raises(whence.WhenceError, match="range"):
            db.insert("hit", [*hits, (7, 10_000_000)])
        assert "heavy" in db.explain("seen")
        check_load(db, hits)
        with pytest.raises(whence.WhenceError, match="range"):
            db.insert("hit", [*hits, (7, 10_000_000)])
        check_load(db, hits)
        db.what_if(delete={"hit": [hits[0]]})
        db.delete("page", [(7, "page 7")])
        check_load(db, [hit for hit in hits if hit[0] != 7])
        db.insert("page", [(7, "page 7")])
        check_load(db, hits)


@pytest.mark.parametrize("image", [True, False])
@pytest.mark.parametrize("after", [4, 3, 1])
def test_heavy_keys_are_there_after_reopening(tmp_path: Path, image: bool, after: int) -> None:
    """From an image of the plan that divides them, or by replaying epochs; with another number of partitions too."""
    rng = random.Random(5)
    hits = skewed(rng, 200)
    with whence.open(tmp_path / "db", **settings()) as db:
        db.execute(SCRIPT)
        db.insert("page", PAGES)
        db.snapshot()
        db.insert("hit", hits[:150])
        db.insert("hit", hits[150:])
        if image:
            db.snapshot()
        before = [line for line in db.explain("seen").splitlines() if "heavy keys of" in line]
        assert before
    with whence.open(tmp_path / "db", **settings(after)) as db:
        check_load(db, hits)
        if image and after == 4:
            assert [line for line in db.explain("seen").splitlines() if "heavy keys of" in line] == before
        for _ in range(3):
            more = skewed(rng, 50)
            gone = rng.sample(hits, 20)
            with db.transaction():
                db.insert("hit", more)
                db.delete("hit", gone)
            hits = list((Counter(hits) + Counter(more) - Counter(gone)).elements())
            check_load(db, hits)


VIEWS = {
    "both": "SELECT a.k AS k, a.v AS v, b.w AS w FROM a JOIN b ON a.k = b.k",
    "outer_left": "SELECT a.k AS k, a.v AS v, b.w AS w FROM a LEFT JOIN b ON a.k = b.k",
    "outer_right": "SELECT b.k AS k, a.v AS v, b.w AS w FROM a RIGHT JOIN b ON a.k = b.k AND a.v < b.w",
    "whole": "SELECT a.v AS v, b.w AS w FROM a FULL JOIN b ON a.k = b.k",
    "some": "SELECT k, v FROM a WHERE EXISTS (SELECT 1 FROM b WHERE b.k = a.k AND b.w > a.v)",
    "none": "SELECT k, v FROM a WHERE NOT EXISTS (SELECT 1 FROM b WHERE b.k = a.k)",
    "three": "SELECT a.v AS v, b.w AS w, c.x AS x FROM a JOIN b ON a.k = b.k JOIN c ON b.k = c.k",
    "chain": "SELECT a.v AS v, c.x AS x FROM a JOIN b ON a.k = b.k JOIN c ON b.w = c.x",
    "groups": "SELECT a.k AS k, COUNT(*) AS n, MIN(b.w) AS w FROM a JOIN b ON a.k = b.k GROUP BY a.k",
    "names": "SELECT DISTINCT a.v AS v FROM a JOIN b ON a.k = b.k AND a.t = b.t",
    "twice": "SELECT x.v AS v, y.v AS u FROM a AS x JOIN a AS y ON x.k = y.k WHERE x.v < y.v",
}
TABLES = {"a": "k INT, v INT, t TEXT", "b": "k INT, w INT, t TEXT", "c": "k INT, x INT"}


class Zipf:
    """Random epochs over tables whose most frequent key changes, beside DuckDB."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.rows = {name: Counter[tuple[Any, ...]]() for name in TABLES}
        self.views = dict(self.rng.sample(sorted(VIEWS.items()), 5))

    @property
    def script(self) -> str:
        made = [f"CREATE TABLE {name} ({columns})" for name, columns in TABLES.items()]
        return ";\n".join(made + [f"CREATE VIEW {name} AS {query}" for name, query in self.views.items()])

    def epoch(self, db: whence.Database) -> None:
        """Rows come, most of them with a few keys; or those of a key go."""
        rng, first = self.rng, self.rng.randrange(4)
        with db.transaction():
            for name, columns in TABLES.items():
                held = self.rows[name]
                if rng.random() < 0.3 and held:
                    key = rng.choice(list(held))[0]
                    gone = [row for row in held.elements() if row[0] == key]
                elif held:
                    gone = rng.sample(list(held.elements()), min(5, len(held)))
                else:
                    gone = []
                size = rng.choice((2, 10, 25)) if name == "a" else rng.choice((1, 4, 10))
                came = [self.row(first, columns.count(",")) for _ in range(size)]
                db.insert(name, came)
                db.delete(name, gone)
                self.rows[name] = held + Counter(came) - Counter(gone)

    def row(self, first: int, more: int) -> tuple[Any, ...]:
        rank = min(int(self.rng.paretovariate(1.0)), 12)
        key = None if rank == 12 else (first + rank) % 12
        return (key, self.rng.randrange(12), self.rng.choice("xyz"))[: more + 1]

    def check(self, db: whence.Database) -> None:
        with duckdb.connect() as peer:
            for name, columns in TABLES.items():
                peer.execute(f"CREATE TABLE {name} ({columns})")
                rows = list(self.rows[name].elements())
                if rows:
                    peer.executemany(f"INSERT INTO {name} VALUES ({', '.join('?' * len(rows[0]))})", rows)
            for name, query in self.views.items():
                assert_rows(db[name].rows, peer.execute(query).fetchall(), f"view {name}")


def divided(db: whence.Database) -> int:
    """How many keys are divided now."""
    heavy = inside.coordinator(db).catalog.plan.heavy
    assert from_json(to_json(heavy)) == heavy
    return sum(len(keys.left) + len(keys.right) for keys in heavy.values())


@pytest.mark.parametrize("seed", seeds(6))
def test_random_skewed_rows_as_duckdb(tmp_path: Path, seed: int) -> None:
    play, partitions, most = Zipf(seed), (1, 2, 3, 5, 7, 4)[seed % 6], 0
    options: dict[str, Any] = {"partitions": partitions, "durability": "none"}
    options["on_spark"] = {"heavy_rows": 8, "copied_rows": 0}
    db = whence.open(tmp_path / "db", **options)
    db.execute(play.script)
    for epoch in range(14):
        play.epoch(db)
        play.check(db)
        most = max(most, divided(db))
        if epoch % 5 == 4:
            if play.rng.random() < 0.5:
                db.snapshot()
            db.close()
            if epoch == 9:
                options["partitions"] = 1 + partitions % 7
            db = whence.open(tmp_path / "db", **options)
            play.check(db)
    db.close()
    assert most > 0 or partitions == 1


@pytest.mark.parametrize("seed", seeds(4))
def test_frequent_keys_are_found_and_counted(seed: int) -> None:
    rng = np.random.default_rng(seed)
    rows = np.column_stack([rng.zipf(1.3, 2000) % 500, rng.integers(0, 3, 2000), np.arange(2000)]).astype(np.int64)
    relation = Relation(3)
    relation.apply(Batch(rows, np.ones(len(rows), np.int64), True))
    gone = rows[rng.permutation(2000)[:500]]
    relation.apply(Batch(gone, np.full(len(gone), -1), True))
    exact = Counter(map(tuple, relation.scan().rows[:, [0, 1]].tolist()))
    found = count_heavy(relation, (0, 1), 16, ((1000, 0),))
    assert found.rows == 1500
    assert len(found.keys) <= 17
    assert found.keys.pop((1000, 0)) == 0
    assert {key for key, count in exact.items() if count > 1500 / 17} <= found.keys.keys()
    assert found.keys.items() <= exact.items()
    some = np.array(list(found.keys)[:3], np.int64)
    numbers = with_key(rows, (0, 1), some)
    assert all(
        (n < 0) == (tuple(r[:2]) not in map(tuple, some.tolist())) for n, r in zip(numbers, rows.tolist(), strict=True)
    )
