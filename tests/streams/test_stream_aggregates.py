"""Aggregates over streams outside windows: MIN and MAX keep the best so far, since no row ever goes."""

from __future__ import annotations

import random
from pathlib import Path

import whence
from tests.inside import operator

AGGREGATES = "MAX(x) AS a, MIN(x) AS b, MAX(d) AS c, MIN(d) AS e, MAX(t) AS f, MIN(t) AS g, COUNT(*) AS n, SUM(x) AS s"
PROGRAM = """
CREATE STREAM s (k INT, x INT, d DOUBLE, t TEXT) WITH (retain = '10 rows');
CREATE TABLE r (k INT, x INT, d DOUBLE, t TEXT);
""" + "".join(
    f"CREATE VIEW {kind}_groups AS SELECT k, {AGGREGATES} FROM {kind} WHERE x IS NULL OR x <> 3 GROUP BY k;"
    f"CREATE VIEW {kind}_all AS SELECT {AGGREGATES} FROM {kind};"
    for kind in "sr"
)


def rows(dice: random.Random) -> list[tuple[object, ...]]:
    return [
        (
            dice.randrange(5),
            dice.choice([None, *range(-50, 50)]),
            dice.choice([None, float("nan"), dice.gauss(0, 10)]),
            dice.choice([None, "a", "b", "zz"]),
        )
        for _ in range(dice.choice([1, 2, 30]))
    ]


def check(db: whence.Database) -> None:
    for view in ("groups", "all"):
        assert sorted(map(repr, db[f"s_{view}"])) == sorted(map(repr, db[f"r_{view}"]))


def test_aggregates_of_a_stream_equal_those_of_a_table(tmp_path: Path) -> None:
    """Also after an epoch that was undone, and after a restart, from the log and from an image."""
    dice = random.Random(7)
    for _ in range(4):
        with whence.open(tmp_path / "db") as db:
            if not db.tables:
                db.execute(PROGRAM)
                db.execute("CREATE TABLE guard (x TEXT); CREATE VIEW fails AS SELECT CAST(x AS INT) AS x FROM guard")
            check(db)
            for _ in range(25):
                try:
                    with db.transaction():
                        given = rows(dice)
                        db.insert("s", given)
                        db.insert("r", given)
                        db.insert("guard", (dice.choice(["1", "2", "3", "no"]),))
                except whence.EvaluationError:
                    pass
                check(db)
            if dice.random() < 0.5:
                db.snapshot()


def test_state_does_not_grow_with_the_number_of_values() -> None:
    db = whence.open()
    db.execute(PROGRAM)
    sizes = []
    for first in range(0, 50_000, 5_000):
        db.insert("s", [(n % 5, n, float(n), "a") for n in range(first, first + 5_000)])
        sizes.append(operator(db, "s_groups").state_bytes)
    assert sizes[-1] == sizes[1]
