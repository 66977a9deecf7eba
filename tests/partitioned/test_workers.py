"""Workers that die, lag behind, are tried again or do things twice, and a driver that is killed: nobody notices."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

import whence
from tests import inside
from tests.depth import seeds
from tests.faults import Watched
from tests.oracle import assert_rows
from tests.partitioned.kills import killed, run_on, seen_by
from tests.partitioned.pairs import Pair, Side, busy, held
from tests.partitioned.workers import FATES, Pool
from whence.runtime import database
from whence.runtime.spark.driver.supersteps import SuperstepRunner
from whence.runtime.spark.worker.replica import Replica

HERE = {"host": "127.0.0.1", "inline_rows": 3}


@pytest.mark.parametrize("seed", seeds(2))
def test_workers_do_as_they_please(seed: int, tmp_path: Path) -> None:
    rng, pool, count = random.Random(f"pool {seed}"), Pool(seed), (2, 3, 5)[seed % 3]
    pair = Pair(tmp_path / "db", spark=pool, partitions=count, on_spark=HERE)
    for number, op in enumerate(busy(100 + seed, 12, snapshots=3)):
        inside.run_as(pair.other.db, rng.choice(("job", "job", "job", "inline", "auto")))
        pair.perform(op)
        if number in (13, 19):
            pair.reopen(spark=pool, partitions=count, on_spark=HERE)
    assert pool.seen.keys() == {*FATES}
    pair.close()


def test_a_worker_that_did_what_was_taken_back_goes_on_rightly(tmp_path: Path) -> None:
    """All partitions of a run are done but one fails; or all are done, and the log cannot be written."""
    pool = Pool("taken back", workers=1, fates=("well",))
    db = database.open(tmp_path / "db", spark=pool, partitions=3, durability="none", on_spark=HERE)
    inside.run_as(db, "job")
    db.create_function("inverse", lambda x: 12 // x, args=["INT"], returns="INT")
    db.execute(
        "CREATE TABLE t (a INT, b INT); CREATE VIEW i AS SELECT inverse(a) AS i, COUNT(*) AS n FROM t GROUP BY 1;"
        "CREATE VIEW r(a, b) AS SELECT a, b FROM t UNION SELECT t.a, r.b FROM t JOIN r ON t.b = r.a"
    )
    db.insert("t", [(a, a + 1) for a in range(1, 9)])
    before = held(db)
    for attempt in range(6):
        with pytest.raises(whence.EvaluationError):
            db.insert("t", [(9 + attempt, 1), (0, 3), (2, 2)])
        if attempt % 3 == 1:
            assert held(db) == before
        if attempt == 4:
            db.snapshot()
    storage = inside.coordinator(db).storage
    write = storage.write_epoch

    def refuse(epoch: object) -> None:
        raise whence.StorageError("no room")

    storage.write_epoch = refuse
    with pytest.raises(whence.StorageError):
        db.insert("t", [(20, 1)])
    storage.write_epoch = write
    db.insert("t", [(20, 2)])
    db.delete("t", [(1, 2)])
    plain = database.open()
    plain.create_function("inverse", lambda x: 12 // x, args=["INT"], returns="INT")
    plain.execute(
        "CREATE TABLE t (a INT, b INT); CREATE VIEW i AS SELECT inverse(a) AS i, COUNT(*) AS n FROM t GROUP BY 1;"
        "CREATE VIEW r(a, b) AS SELECT a, b FROM t UNION SELECT t.a, r.b FROM t JOIN r ON t.b = r.a"
    )
    plain.insert("t", db["t"].rows)
    for name in ("i", "r"):
        assert_rows(db[name], plain[name].rows, name)
    db.close()


def test_a_driver_of_jobs_that_is_killed_anywhere_leaves_all_or_nothing(tmp_path: Path) -> None:
    ops = [op for op in busy(8, 7, snapshots=2) if op.kind != "sync"]
    options = {"spark": Pool("killed"), "partitions": 2, "on_spark": HERE}
    states, disk = seen_by(ops), Watched()
    run_on(tmp_path / "whole", disk, ops, mode="job", **options)
    for at in random.Random(0).sample(range(1, disk.visited), 5):
        path = tmp_path / f"db{at}"
        done = killed(path, ops, at, mode="job", **options)
        if done is None:
            continue  # by chance fewer workers have written something twice
        side = Side(path, now=ops[max(done - 1, 0)].at, **options)
        inside.run_as(side.db, "job")
        found = side.db.epoch, held(side.db)
        reached = [done + i for i, state in enumerate(states[done : done + 2]) if state == found]
        assert reached, f"killed at {at} of {disk.visited}, {done} operations done"
        for number in range(reached[-1], min(reached[-1] + 2, len(ops))):
            side.perform(ops[number])
            assert (side.db.epoch, held(side.db)) == states[number + 1]
        side.db.close()


@pytest.mark.parametrize("seed", seeds(2))
def test_full_disk_under_the_exchange_stops_nobody(seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rng, pool, write_down = random.Random(f"full {seed}"), Pool(f"full {seed}"), SuperstepRunner._write_down
    refused = []

    def sometimes(runner: SuperstepRunner) -> None:
        if runner._ready and rng.random() < 0.6:
            refused.append(runner)
            raise whence.StorageError("exchange: cannot write: No space left on device")
        write_down(runner)

    monkeypatch.setattr(SuperstepRunner, "_write_down", sometimes)
    pair = Pair(tmp_path / "db", spark=pool, partitions=3, on_spark=HERE)
    for op in busy(300 + seed, 8):
        inside.run_as(pair.other.db, rng.choice(("job", "job", "inline")))
        pair.perform(op)
    assert refused
    pair.close()


def test_worker_out_of_memory_names_its_partition(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pool = Pool("memory", workers=1, fates=("well",))
    db = database.open(tmp_path / "db", spark=pool, partitions=3, on_spark=HERE)
    inside.run_as(db, "job")
    db.execute("CREATE TABLE t (a INT); CREATE VIEW n AS SELECT COUNT(*) AS n FROM t")
    db.insert("t", [(a,) for a in range(9)])
    do = Replica.do

    def fail(partition: Replica, *given: Any) -> Any:
        if partition.number == 2:
            raise MemoryError
        return do(partition, *given)

    with monkeypatch.context() as patch:
        patch.setattr(Replica, "do", fail)
        with pytest.raises(whence.OutOfMemoryError, match=r"partition 2 of 3, which holds .*partitions=6 or more"):
            db.insert("t", [(a,) for a in range(9, 30)])
    assert db["n"].rows == [(9,)]
    db.insert("t", [(a,) for a in range(9, 30)])
    assert db["n"].rows == [(30,)]
    db.close()
