"""Debts across runtimes: whatever order and batches deletions and rows come in, and whoever opens the folder next."""

from __future__ import annotations

import random
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import whence
from tests import inside
from tests.depth import seeds
from tests.oracle import bag
from whence.engine.core.operator import Batch
from whence.runtime import database

Change = tuple[int, int, int]  # x, y, sign


def write(db: Any, rng: random.Random, some: list[Change]) -> None:
    """One of the ways in which changes come; all hold what is early."""
    way = rng.choice(("op", "apart", "files", "fails"))
    if way == "fails":
        with suppress(KeyError), db.transaction():
            db.insert("t", some, op="op")
            raise KeyError
    if way == "files" and inside.is_partitioned(db):
        codes = np.array(some, np.int64)
        raw = Batch(np.ascontiguousarray(codes[:, :2]), np.ascontiguousarray(codes[:, 2]))
        inside.driver(db).take_in_files({"t": [raw]}, {}, "hold")
    elif way == "apart":
        with db.transaction():
            db.delete("t", [(x, y) for x, y, s in some if s < 0], early="hold")
            db.insert("t", [(x, y) for x, y, s in some if s > 0])
    else:
        db.insert("t", some, op="op")


def assert_net(db: Any, net: Counter[tuple[int, int]], context: str) -> None:
    assert bag(db["t"].rows) == +net, context
    assert bag(db.owed("t").rows) == -net, context
    assert bag(db.query("SELECT * FROM owed(t)").rows) == -net, context
    wanted = Counter(x for x, _ in (+net).elements())
    assert bag(db["v"].rows) == Counter(wanted.items()), context
    assert db.metrics()["owed"] == ({"t": (-net).total()} if -net else {}), context


@pytest.mark.parametrize("seed", seeds(4))
def test_rows_are_there_as_often_as_they_came_more_than_went(seed: int, tmp_path: Path) -> None:
    rng = random.Random(f"early {seed}")
    net: Counter[tuple[int, int]] = Counter()
    opened: list[str] = []
    for turn in range(5):
        count = rng.choice((None, 1, 2, 3))
        opened.append(str(count))
        with database.open(tmp_path / "db", partitions=count, retain="all") as db:
            if not turn:
                db.execute("CREATE TABLE t (x INT, y INT)")
                db.execute("CREATE VIEW v AS SELECT x, COUNT(*) AS n FROM t GROUP BY x")
            assert_net(db, net, f"opened on {opened}")
            for _ in range(3):
                some = [(rng.randrange(3), rng.randrange(2), rng.choice((1, -1))) for _ in range(rng.randint(1, 6))]
                write(db, rng, some)
                for x, y, sign in some:
                    net[x, y] += sign
                assert_net(db, net, f"{some} on {opened}")
            if turn == 2:
                past = db.epoch, Counter(net)
            if rng.random() < 0.5:
                db.snapshot()
            with database.open(tmp_path / "db", read_only=True) as reader:
                assert bag(reader.owed("t").rows) == -net
    with database.open(tmp_path / "db", partitions=2) as db:
        before = db.at(past[0])
        assert (bag(before["t"].rows), bag(before.owed("t").rows)) == (+past[1], -past[1])


@pytest.mark.parametrize("count", [1, 3])
def test_keyed_debts_live_where_their_rows_would(count: int, tmp_path: Path) -> None:
    rows = [(key, f"v{key}") for key in range(40)]
    with database.open(tmp_path / "db", partitions=count) as db:
        db.execute("CREATE TABLE k (id INT PRIMARY KEY, v TEXT)")
        db.insert("k", [(*row, "D") for row in rows], op="op")
        db.execute("CREATE VIEW w AS SELECT v, COUNT(*) AS n FROM k GROUP BY v")  # the table stays where it is
        db.insert("k", rows[:30])
        assert (db["k"].rows, len(db.owed("k").rows)) == ([], 10)
    for after, left in ((None, 20), (2, 10)):
        with database.open(tmp_path / "db", partitions=after) as db:
            db.delete("k", rows[:10], early="hold")
            assert len(db.owed("k").rows) == left
            db.insert("k", rows[:10] + (rows[30:] if after is None else []))
            assert db["k"].rows == []


def test_debts_with_a_time_to_live_move(tmp_path: Path) -> None:
    now = 0
    with database.open(tmp_path / "db", partitions=3, clock=lambda: now) as db:
        db.execute("CREATE TABLE t (x INT) WITH (ttl = '10 s')")
        db.delete("t", [(1,), (2,)], early="hold")
    now = 5
    with database.open(tmp_path / "db", clock=lambda: now) as db:
        db.delete("t", (2,), early="hold")
    now = 12
    with database.open(tmp_path / "db", partitions=2, clock=lambda: now) as db:
        assert db.owed("t").rows == [(2,)]
        db.insert("t", [(1,), (2,)])
        assert (db["t"].rows, db.owed("t").rows) == ([(1,)], [])


def test_failed_files_count_no_deletions(tmp_path: Path) -> None:
    with database.open(tmp_path / "db", partitions=2) as db:
        db.execute("CREATE TABLE t (x INT); CREATE VIEW v AS SELECT CAST(1000 * x AS INT) AS y FROM t")
        runtime: Any = inside.coordinator(db)
        rows, signs = np.array([[5], [2_000_000_000]], np.int64), np.array([-1, 1], np.int64)
        for early in ("ignore", "hold", "error"):
            with pytest.raises(whence.WhenceError):
                runtime.driver.take_in({"t": [Batch(rows, signs)]}, {}, early)
            with pytest.raises(whence.WhenceError):
                runtime.driver.take_in_files({"t": [Batch(rows, signs)]}, {}, early)
        found = db.metrics()
        assert (found["missing_deletions"], found["held_deletions"], found["owed"]) == (0, 0, {})
        runtime.driver.take_in_files({"t": [Batch(rows[:1], signs[:1])]}, {}, "hold")
        assert runtime.driver.take("t", lambda: rows[:1], -1, "hold") == 0
        assert (db.metrics()["held_deletions"], db.metrics()["owed"]) == (1, {"t": 2})


def test_rows_are_encoded_when_the_database_is_ready_to_write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After a failed sync the dictionary is another one: codes from before it would be other texts."""
    with database.open(tmp_path / "db", partitions=2) as db:
        db.execute("CREATE TABLE t (x TEXT PRIMARY KEY); CREATE TABLE bag (x TEXT)")
        db.insert("t", [("kept",)])
        runtime: Any = inside.coordinator(db)
        monkeypatch.setattr(runtime.driver, "left_to_jobs", lambda table, sign: True)
        ready = runtime.storage.ready_to_write

        def go_back_once() -> None:
            monkeypatch.setattr(runtime.storage, "ready_to_write", ready)
            runtime.storage._mend()

        for table, rows in {"t": [("new",), ("newer",)], "bag": [("odd",), ("even",), ("odd",)]}.items():
            monkeypatch.setattr(runtime.storage, "ready_to_write", go_back_once)
            assert db.insert(table, rows) == len(rows)
        assert sorted(db["t"]) == [("kept",), ("new",), ("newer",)]
        monkeypatch.setattr(runtime.storage, "ready_to_write", go_back_once)
        assert db.delete("bag", iter([("odd",), ("none",)])) == 1
        assert db.delete("bag", iter([{"x": "even"}])) == 1
        assert list(db["bag"]) == [("odd",)]
