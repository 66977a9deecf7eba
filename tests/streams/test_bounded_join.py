"""Joins of streams in bounded memory as users write them: what they keep, miss, say and survive."""

from __future__ import annotations

import random
import re
from pathlib import Path

import pytest

import whence

STREAMS = "CREATE STREAM a (k INT, x INT); CREATE STREAM b (k INT, y INT);"
JOIN = "SELECT a.k, x, y FROM a JOIN b ON a.k = b.k"
WINDOWS = "SELECT a.k, x, y FROM slide(a, rows => 9) AS a JOIN slide(b, rows => 9) AS b ON a.k = b.k"


def rising(steps: int, seed: int = 1) -> list[tuple[list[tuple[int, int]], list[tuple[int, int]]]]:
    """Rows of both streams, step by step: keys around a rising center."""
    luck = random.Random(seed)
    return [tuple([(i + luck.randrange(-6, 7), i) for _ in range(2)] for _ in "ab") for i in range(steps)]  # type: ignore[misc]


def insert(db: whence.Database, step: tuple[list[tuple[int, int]], list[tuple[int, int]]]) -> None:
    with db.transaction():
        db.insert("a", step[0])
        db.insert("b", step[1])


@pytest.mark.parametrize("options", [{}, {"partitions": 3}])
@pytest.mark.parametrize("query", [JOIN, WINDOWS])
def test_rows_and_missed_rows_are_those_of_the_exact_join(options, query):
    db = whence.open(**options)
    db.execute(f"{STREAMS} CREATE VIEW few WITH (memory = '12 rows') AS {query}")
    exact = whence.open()
    exact.execute(f"{STREAMS} CREATE VIEW every WITH (memory = '100000 rows') AS {query}")
    for step in rising(60):
        insert(db, step)
        insert(exact, step)
    found, every = db["few"].rows, exact["every"].rows
    assert exact.missed("every").rows == 0
    assert set(found) < set(every)
    missed = db.missed("few")
    assert missed.is_exact
    assert len(found) + missed.rows == len(every)
    assert db.metrics()["missed"] == {"few": missed.rows}


def test_better_knowledge_misses_less():
    found = {}
    for keep in ("heeb", "random", "prob", "lru"):
        db = whence.open()
        db.execute(f"{STREAMS} CREATE VIEW few WITH (memory = '10 rows', keep = '{keep}') AS {JOIN}")
        for step in rising(400):
            insert(db, step)
        found[keep] = len(db["few"])
    assert found["heeb"] > 1.2 * max(found["random"], found["prob"])
    assert found["heeb"] > found["lru"]


@pytest.mark.parametrize("keep", ["heeb", "random", "life"])
def test_reopened_database_goes_on_as_if_it_had_not_stopped(tmp_path: Path, keep):
    statement = f"{STREAMS} CREATE VIEW few WITH (memory = '8 rows', keep = '{keep}') AS {WINDOWS}"
    steady = whence.open()
    steady.execute(statement)
    folder = tmp_path / "db"
    with whence.open(folder) as db:
        db.execute(statement)
    steps = rising(100)
    for start in range(0, len(steps), 25):
        with whence.open(folder) as db:
            for n, step in enumerate(steps[start : start + 25]):
                insert(steady, step)
                insert(db, step)
                if n == start // 5:
                    db.snapshot()
            assert db["few"].rows == steady["few"].rows
            assert db.missed("few") == steady.missed("few")


def test_failed_transaction_changes_nothing():
    db, steady = whence.open(), whence.open()
    for one in (db, steady):
        one.execute(f"{STREAMS} CREATE VIEW few WITH (memory = '8 rows') AS {JOIN}")
    for step in rising(80):
        with pytest.raises(whence.DataError), db.transaction():  # noqa: PT012  # the last write fails
            db.insert("a", step[1])
            db.insert("b", step[0])
            db.insert("a", [("no", "number")])
        assert db.what_if(insert={"b": step[0]})["few"].inserted is not None
        insert(db, step)
        insert(steady, step)
        assert db["few"].rows == steady["few"].rows


def test_lineage_names_the_rows_behind_a_pair():
    db = whence.open()
    db.execute(f"{STREAMS} CREATE VIEW few WITH (memory = '8 rows', provenance = 'lineage') AS {JOIN}")
    for step in rising(30):
        insert(db, step)
    pairs = db.query("SELECT k, x, a_k, a_x FROM provenance(few, a)").rows
    assert len(pairs) == len(db["few"])
    assert all(row[:2] == row[2:] for row in pairs)


def test_replay_is_refused():
    db = whence.open()
    db.execute(f"{STREAMS} CREATE VIEW few WITH (memory = '8 rows') AS {JOIN}")
    insert(db, ([(1, 1)], [(1, 2)]))
    with pytest.raises(whence.CatalogError, match=r"keeps a part of the rows that it joins.*lineage"):
        db.why("few", k=1)


def test_explain_says_that_the_view_is_approximate_and_what_was_learnt():
    db = whence.open()
    db.execute(f"{STREAMS} CREATE VIEW few WITH (memory = '24 kB') AS {JOIN}")
    for step in rising(100):
        insert(db, step)
    text = "\n".join(row[0] for row in db.execute("EXPLAIN few").rows)
    assert "approximate: its join keeps at most 24 kB, and misses results" in text
    assert re.search(r"left: trend of 0\.[45]\d* per row; right: trend of 0\.[45]\d* per row; time constant", text)
    assert f"has missed {db.missed('few').rows} pairs" in text


@pytest.mark.parametrize(
    ("options", "query", "message"),
    [
        ("memory = '3 s'", JOIN, "memory is what is kept at most, such as '300 rows' or '64 MB'"),
        ("memory = '0 rows'", JOIN, "memory is what is kept"),
        ("keep = 'lru'", JOIN, "keep says which rows are kept in bounded memory: say how many"),
        ("memory = '3 rows', keep = 'best'", JOIN, "there is no keep 'best'"),
        ("memory = '3 rows', model = 'seasonal'", JOIN, "'seasonal' with the rows of a period"),
        ("memory = '3 rows', keep = 'lru', lifetime = '3'", JOIN, "lifetime is for keep = 'heeb'"),
        ("memory = '3 rows'", "SELECT k FROM a", "a limit for a join of two streams"),
        ("memory = '3 rows'", "SELECT a.k FROM a JOIN b ON a.k < b.k", "a join on equal columns"),
        ("memory = '3 rows'", WINDOWS.replace("rows => 9", "on => k, width => 9"), "without on and by"),
    ],
)
def test_limit_that_cannot_be_met_is_refused(options, query, message):
    db = whence.open()
    db.execute(STREAMS)
    with pytest.raises(whence.SqlError, match=message):
        db.execute(f"CREATE VIEW few WITH ({options}) AS {query}")
    assert "few" not in db.views


def test_missed_is_asked_of_approximate_views_only():
    db = whence.open()
    db.execute(f"{STREAMS} CREATE VIEW w AS {WINDOWS}")
    with pytest.raises(whence.CatalogError, match='"w" is exact'):
        db.missed("w")
