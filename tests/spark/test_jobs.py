"""Supersteps as Spark jobs: whatever way each epoch takes, both runtimes hold equal views after it."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

import whence
from tests import inside
from tests.depth import deep_only, some
from tests.oracle import Recompute, assert_rows, load
from tests.partitioned.pairs import Pair, Side, assert_same, busy, held
from tests.test_sql_fixtures import FILES, Block, Runner, run_file
from whence.runtime import database


def opened(spark: Any, path: Path | None = None, mode: str = "job", **options: Any) -> whence.Database:
    """A database whose runs all go one way."""
    db = database.open(path, spark=spark, durability="none", **{"partitions": 2} | options)
    inside.run_as(db, mode)
    return db


@pytest.mark.parametrize("partitions", some([5, 2], 1))
def test_jobs_and_inline_steps_mix_freely(spark: Any, tmp_path: Path, partitions: int) -> None:
    rng = random.Random(partitions)
    few = {"inline_rows": 3}
    pair = Pair(tmp_path / "db", spark=spark, partitions=partitions, on_spark=few)
    for number, op in enumerate(busy(partitions, 10, snapshots=2)):
        inside.run_as(pair.other.db, rng.choice(("job", "inline", "auto")))
        pair.perform(op)
        if number == 12:
            pair.reopen(spark=spark, partitions=partitions, on_spark=few)
    assert pair.other.db.metrics()["runs"]["jobs"] > 0
    pair.close()


@deep_only
def test_three_ways_at_once(spark: Any, tmp_path: Path) -> None:
    sides = {
        "job": Side(tmp_path / "job", spark=spark, partitions=2),
        "auto": Side(tmp_path / "auto", spark=spark, partitions=2, on_spark={"inline_rows": 3}),
        "inline": Side(tmp_path / "inline", spark=spark, partitions=2),
    }
    plain = Side()
    for op in busy(3, 4, snapshots=1):
        plain.perform(op)
        for mode, side in sides.items():
            inside.run_as(side.db, mode)
            side.perform(op)
            assert_same(side.db, plain.db, f"{mode}, {op}")
    for side in sides.values():
        side.db.close()


def reading_inline(db: whence.Database) -> whence.Database:
    """A database that is changed by jobs, but asked in this process: a job for each question takes its time."""
    runner = inside.driver(db).runner
    ask = runner.ask

    def ask_here(calls: Any, rows: int = 0) -> Any:
        mode, runner.mode = runner.mode, "inline"
        try:
            return ask(calls, rows)
        finally:
            runner.mode = mode

    runner.ask = ask_here
    return db


class Sampler(Runner):
    """Asks only one of so many queries."""

    asked = 0

    def run(self, block: Block) -> None:
        self.asked += block.words[0] == "query"
        if block.words[0] != "query" or self.asked % 8 == 1:
            super().run(block)


@pytest.mark.parametrize("name", some(["joins", "aggregates", "recursion"], 1))
def test_sql_in_jobs(spark: Any, name: str) -> None:
    path = next(path for path in FILES if path.stem == name)
    run_file(path, Sampler("support", reading_inline(opened(spark)), Recompute({}, [])))


def test_a_view_over_rows_that_are_there(spark: Any, tmp_path: Path) -> None:
    rows = [(a, (a * 7 + 3) % 40) for a in range(40)]
    found = []
    for db in (opened(spark, tmp_path / "db"), database.open()):
        db.execute("CREATE TABLE link (src INT, dst INT)")
        db.insert("link", rows)
        db.execute(
            "CREATE VIEW reachable AS SELECT src, dst FROM link "
            "UNION SELECT link.src, reachable.dst FROM link JOIN reachable ON link.dst = reachable.src;"
            "CREATE VIEW sizes AS SELECT src, COUNT(*) AS n FROM reachable GROUP BY src"
        )
        db.delete("link", rows[:3])
        db.execute("DROP VIEW sizes; CREATE VIEW sizes AS SELECT dst, COUNT(*) AS n FROM reachable GROUP BY dst")
        found.append(held(db))
        db.close()
    assert found[0] == found[1]
    for _ in range(2):
        with opened(spark, tmp_path / "db") as db:
            assert held(db) == found[1]
            db.insert("link", rows[:3])
            db.snapshot()
            db.delete("link", rows[:3])
            assert held(db) == found[1]


DIVIDED = """
    CREATE TABLE share (who INT, a INT, b INT);
    CREATE VIEW quotient AS SELECT who, SUM(a / b) AS q FROM share GROUP BY who;
    CREATE VIEW total AS SELECT COUNT(*) AS n FROM share
"""


@pytest.mark.parametrize("partitions", some([5, 2], 1))
def test_an_epoch_that_fails_in_one_partition_has_not_been(spark: Any, partitions: int) -> None:
    db = opened(spark, partitions=partitions)
    db.execute(DIVIDED)
    db.create_function("inverse", lambda x: 1000 // x, args=["INT"], returns="INT")
    db.execute("CREATE VIEW inverses AS SELECT who, inverse(b) AS i FROM share")
    db.insert("share", [(who, who, 1 + who % 3) for who in range(12)])
    feed = db.changes("inverses")
    before, epoch = held(db), db.epoch
    for mode in ("job", "job", "inline", "job"):
        inside.run_as(db, mode)
        with pytest.raises(whence.EvaluationError, match=r"inverse|division"):
            db.insert("share", [(20, 1, 1), (21, 2, 2), (22, 3, 3), (23, 4, 0), (24, 4, 4)])
        assert (held(db), db.epoch) == (before, epoch)
        assert list(feed) == []
    db.insert("share", [(20, 1, 1)])
    assert_rows([row for _, row, _ in feed], [(20, 1000)])
    assert len(db["share"]) == 13
    db.close()


def test_a_view_that_cannot_be_filled_leaves_no_trace(spark: Any) -> None:
    """The next plan must not be taken for that of the view that failed."""
    db = opened(spark)
    db.create_function("inverse", lambda x: 1000 // x, args=["INT"], returns="INT")
    db.execute("CREATE TABLE t (a INT, b INT)")
    db.insert("t", [(1, 1), (2, 2), (3, 0), (4, 4)])
    for _ in range(2):
        with pytest.raises(whence.EvaluationError):
            db.execute("CREATE VIEW v AS SELECT a, inverse(b) AS i FROM t")
        assert db.views == []
    db.execute("CREATE VIEW v AS SELECT b, COUNT(*) AS n FROM t GROUP BY b")
    assert_rows(db["v"], [(b, 1) for b in (0, 1, 2, 4)])
    db.insert("t", [(5, 2)])
    assert_rows(db["v"], [(0, 1), (1, 1), (2, 2), (4, 1)])
    with pytest.raises(whence.EvaluationError):
        db.execute("CREATE OR REPLACE VIEW v AS SELECT a, inverse(b) AS i FROM t")
    db.delete("t", [(3, 0)])
    db.execute("CREATE OR REPLACE VIEW v AS SELECT a, inverse(b) AS i FROM t")
    assert_rows(db["v"], [(1, 1000), (2, 500), (4, 250), (5, 500)])
    db.close()


def test_functions_of_the_user_run_in_workers(spark: Any, tmp_path: Path) -> None:
    """What they close over goes with them, and what they raise comes back as our error."""
    table = {1: "one", 2: "two"}
    pids = tmp_path / "pids"
    pids.mkdir()

    def named(n: int) -> str:
        import os

        (pids / str(os.getpid())).touch()
        return table[n]

    def upto(n: int) -> list[tuple[int]]:
        return [(i,) for i in range(n)]

    db = opened(spark)
    db.create_function("named", named, args=["INT"], returns="TEXT")
    db.create_table_function("upto", upto, args=["INT"], returns="(i INT)")
    db.execute(
        "CREATE TABLE t (n INT); CREATE VIEW names AS SELECT named(n) AS name, COUNT(*) AS c FROM t GROUP BY named(n);"
        "CREATE VIEW steps AS SELECT t.n, u.i FROM t, upto(t.n) AS u"
    )
    db.insert("t", [(1,), (2,), (1,)])
    assert_rows(db["names"], [("one", 2), ("two", 1)])
    assert_rows(db["steps"], [(1, 0), (1, 0), (2, 0), (2, 1)])
    with pytest.raises(whence.EvaluationError, match=r"named"):
        db.insert("t", [(3,)])
    db.delete("t", [(1,)])
    assert_rows(db["names"], [("one", 1), ("two", 1)])
    import os

    assert {path.name for path in pids.iterdir()} - {str(os.getpid())}, "no worker has called it"
    db.close()


def test_a_partition_larger_than_its_worker_may_hold(spark: Any) -> None:
    db = opened(spark, on_spark={"worker_memory": 40_000})
    db.execute("CREATE TABLE t (a INT, b INT); CREATE VIEW v AS SELECT b, COUNT(*) AS n FROM t GROUP BY b")
    db.insert("t", [(i, i % 7) for i in range(50)])
    before = held(db)
    with pytest.raises(whence.WhenceError, match=r"worker_memory.*partitions=\d+ or more"):
        db.insert("t", [(i, i) for i in range(20_000)])
    assert held(db) == before
    db.insert("t", [(100, 3)])
    db.delete("t", [(0, 0)])
    assert dict(db["v"].rows)[3] == 8
    assert dict(db["v"].rows)[0] == 7
    db.close()


@pytest.mark.parametrize("options", some(["maintain = 'absorption'", "maintain = 'relative', propagate = 'eager'"], 1))
def test_letters_of_maintained_views_go_by_jobs(spark: Any, options: str) -> None:
    """Or inline, as it comes; with epochs that fail between."""
    view = """CREATE TABLE link (src TEXT, dst TEXT, cost INT);
              CREATE TABLE poison (x TEXT);
              CREATE VIEW cheapest WITH ({}) AS
                SELECT src, dst, MIN(cost) AS cost FROM (
                  SELECT src, dst, cost FROM link
                  UNION SELECT link.src, cheapest.dst, link.cost + cheapest.cost
                        FROM link JOIN cheapest ON link.dst = cheapest.src) AS q GROUP BY src, dst;
              CREATE VIEW poisoned AS SELECT CAST(x || CAST(cost AS TEXT) AS INT) AS n FROM poison, cheapest"""
    links = [("a", "b", 1), ("b", "c", 1), ("c", "a", 1), ("a", "c", 2), ("c", "d", 5), ("b", "d", 6)]
    with opened(spark, partitions=3) as db, database.open() as plain:
        db.execute(view.format(f"{options}, partition = 'exchange'"))
        plain.execute(view.format("policy = 'support'"))
        for each in (db, plain):
            each.insert("link", links)
        for number, link in enumerate([links[1], links[4], links[0]]):
            inside.run_as(db, ("job", "inline", "job")[number])
            with pytest.raises(whence.EvaluationError):
                load(db, [("link", links[3], -1), ("poison", ("no number",), 1)])
            for each in (db, plain):
                each.delete("link", [link])
            assert_rows(db["cheapest"].rows, plain["cheapest"].rows, f"after {link}")
        metrics = db.metrics()
        assert metrics["runs"]["jobs"] > 0
        assert metrics["shipped"]["cheapest"]["total"]["messages"] > 0
