"""Templates over streams: each row meets the subscriptions of its epoch in groups, and nothing is taken back.

The oracle has the rows of one epoch in a table, writes the values of each subscription into the query, as they are
after the epoch, and lets DuckDB answer it. Aggregates, distinct values and first rows are made of all rows that a row
of parameters has met, and are taken back when it is changed or goes.
"""

from __future__ import annotations

import os
import random
import signal
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import whence
from tests.depth import seeds
from tests.templates.test_templates_random import TYPES, random_bound, write

ALL = "SELECT * FROM h"
SHAPES = {  # what selects rows, what EXPLAIN says it is found by, and what is made of the rows
    "selection": ("SELECT r.k, r.x FROM r WHERE {r.x>=low} AND {r.x<=high}", "1 range", ALL),
    "strict": ("SELECT r.x FROM r WHERE {r.x>low} AND {r.x<high} AND {r.k=key}", "1 equal and 1 range", ALL),
    "equal": ("SELECT r.x, r.y FROM r WHERE {r.k=key}", "1 equal", ALL),
    "two ranges": ("SELECT r.k FROM r WHERE {r.x>=low} AND {r.y<high}", "2 ranges", ALL),
    "computed": ("SELECT r.y FROM r WHERE {r.y+r.k>low} AND {r.x<=high}", "2 ranges", ALL),
    "other": ("SELECT r.y FROM r WHERE {r.x<=high} AND {r.y<>other}", "1 range", ALL),
    "join": (
        "SELECT r.x, s.x AS z FROM r JOIN s ON r.k = s.k WHERE {r.x>=low} AND {s.x>slow} AND {s.x<=top}",
        "2 ranges",
        ALL,
    ),
    "band": (
        "SELECT r.x, s.x AS z FROM r JOIN s ON r.k = s.k WHERE {s.k-r.y>=low} AND {s.k-r.y<high} AND {r.x>=xlow}",
        "2 ranges",
        ALL,
    ),
    "two streams": (
        "SELECT r.x FROM r WHERE {r.x>low} UNION ALL SELECT q.x FROM q WHERE {q.x<high}",
        "1 range",
        ALL,
    ),
    "view": ("SELECT v.n FROM v WHERE {v.n>=low} AND {v.n<high}", "1 range", ALL),
    "counted": (
        "SELECT r.y FROM r WHERE {r.x>low} AND {r.k=key}",
        "1 equal and 1 range",
        "SELECT COUNT(*) AS n, SUM(y) AS s, AVG(y) AS m, MAX(y) AS most FROM h",
    ),
    "least": ("SELECT r.y FROM r WHERE {r.x>=low} AND {r.x<=high}", "1 range", "SELECT MIN(y) AS least FROM h"),
    "distinct": ("SELECT r.y FROM r WHERE {r.x>=low}", "1 range", "SELECT DISTINCT y FROM h"),
    "grouped": (
        "SELECT r.k, r.y FROM r WHERE {r.x<high}",
        "1 range",
        "SELECT k, COUNT(*) AS n FROM h GROUP BY k HAVING COUNT(*) > 1",
    ),
    "first": ("SELECT r.y, r.k FROM r WHERE {r.x>=low}", "1 range", "SELECT y, k FROM h ORDER BY y DESC, k LIMIT 2"),
}


def text_of(shape: str) -> str:
    """The query of a template: what is made of the rows, over what selects them."""
    selection, _, made = SHAPES[shape]
    return selection if made == ALL else made.replace("FROM h", f"FROM ({selection}) AS h")


class World:
    """Streams r and q and a table s, beside a database in which r and q are tables of one epoch's rows."""

    def __init__(self, shape: str, kind: str, path: Path | None = None, **options: Any) -> None:
        self.shape, self.kind = shape, kind
        self.db = whence.open(path, **options) if path else whence.open(**options)
        self.oracle = whence.open()
        streams = "CREATE {0} r (k INT, x {1}, y INT); CREATE {0} q (k INT, x {1}); CREATE TABLE s (k INT, x {1});"
        view = "CREATE VIEW v AS SELECT r.k + r.y AS n FROM r WHERE r.y > 0"
        self.db.execute(streams.format("STREAM", kind) + view)
        self.oracle.execute(streams.format("TABLE", kind) + view)
        self.db.execute(f"CREATE TEMPLATE t AS {write(text_of(shape), None)}")
        self.names = self.db["t"].columns[1:]
        self.met: dict[Any, list[Any]] = {}  # rows by subscription, or by its parameters as they were then
        self.told: dict[int, Counter[Any]] = {}
        self.news = self.db.notifications("t")

    def epoch(self, chance: random.Random) -> None:
        """Change data and subscriptions together."""
        values = TYPES[self.kind]
        came = {name: [self._row(chance, name, values) for _ in range(chance.randrange(4))] for name in ("r", "q", "s")}
        with self.db.transaction():
            for name, rows in came.items():
                self.db.insert(name, rows)
            for _ in range(chance.randrange(3)):
                id = chance.randrange(5)
                if chance.random() < 0.3:
                    self.db.delete("t", key=id)
                else:
                    self.db.insert("t", (id, *(random_bound(self.db, chance, name) for name in self.names)))
        self.oracle.execute("DELETE FROM r; DELETE FROM q")
        for name, rows in came.items():
            self.oracle.insert(name, rows)

    def _row(self, chance: random.Random, name: str, values: list[Any]) -> tuple[Any, ...]:
        row = (chance.choice([1, 1, 2, 3]), chance.choice([*values, None]))
        return (*row, chance.choice([None, 0, 1, 4])) if name == "r" else row

    def check(self) -> None:
        """What was told is what each subscription has met, or what is made of all that it has met."""
        selection, _, made = SHAPES[self.shape]
        there = {row[0]: dict(zip(self.names, row[1:], strict=True)) for row in self.db["t"].rows}
        for id, given in there.items():
            whose = id if made == ALL else (id, *given.values())
            self.met.setdefault(whose, []).extend(self.oracle.query(write(selection, given)).rows)
        for n in self.news:
            self.told.setdefault(n.id, Counter())[n.row] += n.sign
        if made == ALL:
            expected = {id: Counter(rows) for id, rows in self.met.items()}
        else:
            expected = {id: self._made(made, self.met[id, *given.values()]) for id, given in there.items()}
        assert {id: +rows for id, rows in self.told.items() if +rows} == {id: n for id, n in expected.items() if n}
        assert all(count >= 0 for rows in self.told.values() for count in rows.values())
        for id in there:
            assert Counter(self.db.subscription("t", id).rows) == +self.told.get(id, Counter())

    def _made(self, made: str, rows: list[Any]) -> Counter[Any]:
        scratch = whence.open()
        columns = {"counted": "y", "least": "y", "distinct": "y", "grouped": "k y", "first": "y k"}[self.shape].split()
        scratch.execute(f"CREATE TABLE h ({', '.join(f'{c} INT' for c in columns)})")
        scratch.insert("h", rows)
        return Counter(scratch.query(made).rows)


@pytest.mark.parametrize("seed", seeds(3))
@pytest.mark.parametrize("shape", SHAPES)
def test_rows_of_streams_meet_the_subscriptions_of_their_epoch(shape: str, seed: int) -> None:
    chance = random.Random(f"{shape} {seed}")
    world = World(shape, list(TYPES)[seed % len(TYPES)] if seed < 6 else chance.choice(list(TYPES)))
    said = world.db.explain("t").splitlines()
    assert f"in groups: match subscriptions with rows of a stream by {SHAPES[shape][1]}" in said
    assert not any("every pair" in line for line in said)
    for _ in range(6):
        world.epoch(chance)
        world.check()


@pytest.mark.parametrize("shape", ["strict", "join", "counted", "first"])
def test_partitions_tell_each_row_once(shape: str) -> None:
    chance = random.Random(shape)
    world = World(shape, "INT", partitions=3)
    for _ in range(6):
        world.epoch(chance)
        world.check()


def test_failed_epoch_leaves_subscriptions_as_they_were() -> None:
    db = whence.open()
    db.execute(
        "CREATE STREAM tick (name TEXT, x INT); CREATE VIEW bad AS SELECT CAST(name AS INT) AS n FROM tick;"
        "CREATE TEMPLATE t AS SELECT x FROM tick WHERE name >= :first AND x <= :most"
    )
    db.insert("t", [(1, "3", 9), (2, None, 4)])
    news = db.notifications("t")
    db.insert("tick", ("5", 4))
    assert sorted((n.id, n.row) for n in news) == [(1, (4,)), (2, (4,))]
    for _ in range(2):
        with pytest.raises(whence.WhenceError), db.transaction():  # noqa: PT012 - the commit fails
            db.insert("t", [(1, "0", 100), (3, None, None)])
            db.delete("t", key=2)
            db.insert("tick", [("2x", 3), ("4", 2)])
    assert list(news) == []
    db.insert("tick", [("1", 3), ("4", 2)])
    assert sorted((n.id, n.row) for n in news) == [(1, (2,)), (2, (2,)), (2, (3,))]


@pytest.mark.parametrize("image", [False, True], ids=["log", "image"])
def test_kill_keeps_what_streams_have_told_and_whom_they_tell(tmp_path: Path, image: bool) -> None:
    path = tmp_path / "db"
    child = os.fork()
    if child == 0:
        db = whence.open(path)
        db.execute(
            "CREATE STREAM tick (name TEXT, x INT); CREATE TEMPLATE t AS SELECT name, x FROM tick WHERE x > :low;"
            "CREATE TEMPLATE n AS SELECT COUNT(*) AS n, MIN(x) AS least FROM tick WHERE name >= :first;"
            "CREATE TEMPLATE l AS SELECT MAX(x) AS most FROM latest(tick, rows => 2) AS tick WHERE x <= :high"
        )
        db.insert("t", [(1, 5), (2, 0)])
        db.insert("n", (1, "b"))
        db.insert("l", (1, 8))
        db.insert("tick", [("a", 3), ("b", 7)])
        if image:
            db.snapshot()
        db.execute("UPDATE t SET low = 8 WHERE id = 2")
        db.insert("tick", ("c", 6))
        os.kill(os.getpid(), signal.SIGKILL)
    os.waitpid(child, 0)
    with whence.open(path) as db:
        feeds = {name: db.notifications(name) for name in "tnl"}
        assert [sorted(db.subscription("t", id).rows) for id in (1, 2)] == [[("b", 7), ("c", 6)], [("a", 3), ("b", 7)]]
        assert (db.subscription("n", 1).rows, db.subscription("l", 1).rows) == ([(2, 6)], [(7,)])
        with db.transaction():
            db.insert("tick", [("bb", 9), ("a", 8)])
            db.insert("t", (3, 8))
        told = {name: sorted((n.id, n.sign, n.row) for n in feed) for name, feed in feeds.items()}
        assert told == {
            "t": [(1, 1, ("a", 8)), (1, 1, ("bb", 9)), (2, 1, ("bb", 9)), (3, 1, ("bb", 9))],
            "n": [(1, -1, (2, 6)), (1, 1, (3, 6))],
            "l": [(1, -1, (7,)), (1, 1, (8,))],
        }
    assert whence.check(path).ok


def test_what_a_stream_is_now_is_a_relation_and_matched_as_one() -> None:
    db = whence.open()
    db.execute(
        "CREATE STREAM tick (t INT, name TEXT, x INT);"
        "CREATE TEMPLATE now AS SELECT MIN(x) AS least FROM latest(tick, rows => 2) AS now WHERE t >= :first;"
        "CREATE VIEW by_name AS SELECT name, SUM(x) AS s FROM tick GROUP BY name;"
        "CREATE TEMPLATE total AS SELECT name, s FROM by_name WHERE s BETWEEN :low AND :high"
    )
    assert "in groups: MIN of each subscription's range" in db.explain("now")
    assert "in groups: match subscriptions with rows by 1 range" in db.explain("total")
    db.execute("CREATE TEMPLATE nested AS SELECT n FROM (SELECT COUNT(*) AS n FROM tick GROUP BY name) WHERE n > :low")
    assert "in groups: match subscriptions with rows by 1 range" in db.explain("nested")
    now, total = db.notifications("now"), db.notifications("total")
    db.insert("tick", [(1, "a", 5), (2, "b", 3)])
    db.insert("now", [(1, 0), (2, 2)])
    db.insert("total", (1, 4, None))
    assert sorted((n.id, n.sign, n.row) for n in now) == [(1, 1, (3,)), (2, 1, (3,))]
    assert [(n.id, n.sign, n.row) for n in total] == [(1, 1, ("a", 5))]
    db.insert("tick", [(3, "b", 9)])
    assert list(now) == []
    assert [(n.id, n.sign, n.row) for n in total] == [(1, 1, ("b", 12))]
    db.insert("tick", [(4, "b", 9)])
    assert sorted((n.id, n.sign, n.row) for n in now) == [(1, -1, (3,)), (1, 1, (9,)), (2, -1, (3,)), (2, 1, (9,))]
    assert sorted((n.id, n.sign, n.row) for n in total) == [(1, -1, ("b", 12)), (1, 1, ("b", 21))]


def test_reason_of_an_aggregate_has_the_rows_that_were_met() -> None:
    db = whence.open()
    db.execute(
        "CREATE STREAM tick (name TEXT, x INT); CREATE TEMPLATE t AS SELECT name, x FROM tick WHERE x > :low;"
        "CREATE TEMPLATE n AS SELECT COUNT(*) AS n FROM tick WHERE x > :low"
    )
    db.insert("t", (1, 5))
    db.insert("n", (1, 5))
    db.insert("tick", [("a", 7), ("b", 3)])
    found = db.subscription("n", 1).why((1,))
    assert (found.label, sorted(table for table, _ in found.base)) == ("n#1(1)", ["n", "tick"])
    with pytest.raises(whence.CatalogError, match="template t has told of a stream are not explained"):
        db.subscription("t", 1).why(("a", 7))
