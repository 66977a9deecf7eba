"""Memory that several joins share: it goes to where it finds most, and everything else is as of one join."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

import whence

STREAMS = (
    "CREATE STREAM a (k INT, x INT); CREATE STREAM b (k INT, y INT); CREATE STREAM c (k INT); CREATE STREAM d (k INT)"
)
WIDE = "SELECT a.k, x, y FROM a JOIN b ON a.k = b.k"
NARROW = "SELECT c.k FROM c JOIN d ON c.k = d.k"
Step = dict[str, list[tuple[int, ...]]]


def steps(count: int, seed: int = 1) -> list[Step]:
    """Rows of all streams: a and b vary around a rising center, c and d are the same value again and again."""
    luck = random.Random(seed)
    return [
        {
            **{name: [(i + luck.randrange(-12, 13), i) for _ in range(4)] for name in "ab"},
            **{name: [(luck.randrange(2),)] for name in "cd" if luck.random() < 0.1},
        }
        for i in range(count)
    ]


def insert(db: whence.Database, step: Step) -> None:
    with db.transaction():
        for name, rows in step.items():
            db.insert(name, rows)


def views(memory: str, pool: str) -> str:
    option = f"memory = '{memory}'" + (f", pool = '{pool}'" if pool else "")
    return f"{STREAMS}; CREATE VIEW wide WITH ({option}) AS {WIDE}; CREATE VIEW narrow WITH ({option}) AS {NARROW};"


def kept(db: whence.Database, view: str) -> int:
    """The rows that the join of a view may keep now, as EXPLAIN says."""
    text = "\n".join(row[0] for row in db.execute(f"EXPLAIN {view}").rows)
    return int(text.partition(" rows, has missed")[0].rpartition(" of ")[2].replace(",", ""))


def test_memory_goes_to_the_join_that_finds_more_with_it():
    shared, halved = whence.open(), whence.open()
    shared.execute(views("48 rows", "market"))
    halved.execute(views("24 rows", ""))
    for step in steps(450):
        insert(shared, step)
        insert(halved, step)
    assert kept(shared, "wide") > 30
    assert kept(shared, "wide") + kept(shared, "narrow") == 48
    assert len(shared["wide"]) > 1.1 * len(halved["wide"])
    assert len(shared["wide"]) + len(shared["narrow"]) > 1.05 * (len(halved["wide"]) + len(halved["narrow"]))
    assert "shared in the pool market" in shared.explain("wide")


def test_reopened_database_goes_on_as_if_it_had_not_stopped(tmp_path: Path):
    steady = whence.open()
    steady.execute(views("40 rows", "p"))
    with whence.open(tmp_path / "db") as db:
        db.execute(views("40 rows", "p"))
    luck, given = random.Random(4), steps(600, 2)
    for step in given:
        if luck.random() < 0.3:  # only one of the joins runs
            step.pop("a"), step.pop("b")
    for start in range(0, len(given), 120):
        with whence.open(tmp_path / "db") as db:
            for n, step in enumerate(given[start : start + 120]):
                insert(steady, step)
                insert(db, step)
                if n == start // 7:
                    db.snapshot()
            for view in ("wide", "narrow"):
                assert db[view].rows == steady[view].rows
                assert db.missed(view) == steady.missed(view)
                assert kept(db, view) == kept(steady, view)


def test_failed_transaction_moves_no_memory():
    db, steady = whence.open(), whence.open()
    for one in (db, steady):
        one.execute(views("40 rows", "p"))
    for step in steps(400):
        if random.Random(str(step)).random() < 0.5:
            assert db.what_if(insert=step)["wide"] is not None
        insert(db, step)
        insert(steady, step)
    assert db["wide"].rows == steady["wide"].rows
    assert kept(db, "wide") == kept(steady, "wide") > 20


def test_view_that_comes_or_goes_gives_and_frees_memory():
    db = whence.open()
    db.execute(views("60 rows", "p"))
    given = steps(60)
    for step in given[:20]:
        insert(db, step)
    db.execute(
        f"CREATE VIEW more WITH (memory = '60 rows', pool = 'p') AS {NARROW.replace('c.k FROM', 'c.k + 1 AS n FROM')}"
    )
    for step in given[20:40]:
        insert(db, step)
    assert kept(db, "wide") < 30
    db.execute("DROP VIEW more; DROP VIEW narrow")
    for step in given[40:]:
        insert(db, step)
    assert kept(db, "wide") == 60


def test_pools_of_partitions_are_shares():
    db = whence.open(partitions=2)
    db.execute(views("48 rows", "p"))
    exact = whence.open()
    exact.execute(views("100000 rows", ""))
    for step in steps(60):
        insert(db, step)
        insert(exact, step)
    assert set(db["wide"].rows) < set(exact["wide"].rows)
    assert len(db["wide"]) + db.missed("wide").rows == len(exact["wide"])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("memory = '30 rows', pool = 'p'", "the pool p has 40 rows of memory"),
        ("memory = '40 rows', pool = 'q', keep = 'lru'", "pool is for keep = 'heeb'"),
        ("pool = 'p'", "say how many, with memory"),
    ],
)
def test_pool_that_cannot_be_is_refused(options, message):
    db = whence.open()
    db.execute(views("40 rows", "p"))
    with pytest.raises(whence.SqlError, match=message):
        db.execute(f"CREATE VIEW more WITH ({options}) AS {NARROW}")
