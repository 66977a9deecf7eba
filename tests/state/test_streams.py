"""Streams last: after any restart, crash or replay rows, tids, windows and late rows are those of an unbroken run."""

from __future__ import annotations

import os
import random
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import whence
from tests import inside
from tests.depth import seeds
from tests.faults import Deadly, Watched, done_before_death
from tests.workload import abandon, open_small
from whence.engine.core.epoch import Epoch
from whence.engine.core.operator import Batch, upwards
from whence.runtime.reading.late_rows import lates_of
from whence.state.codec import pack_epoch, unpack_epoch
from whence.state.disk import Disk

SQL = """
    CREATE STREAM reading (time INT, loc INT, temp DOUBLE, name TEXT) WITH (retain = '25 rows');
    CREATE STREAM other (loc INT);
    CREATE TABLE place (loc INT, city TEXT);
    CREATE VIEW sorted WITH (retain = '9 rows') AS SELECT time, loc, name FROM bsort(reading, on => time, slack => 3);
    CREATE VIEW averages AS SELECT loc, AVG(temp) AS t, MAX(time) AS time, COUNT(*) AS n
      FROM slide(reading, rows => 5, every => 2, by => loc) GROUP BY loc;
    CREATE VIEW minutes AS SELECT window_start, SUM(loc) AS s
      FROM slide(sorted, on => time, width => 10, every => 5) GROUP BY window_start;
    CREATE VIEW merged AS SELECT loc FROM averages UNION ALL SELECT loc FROM other;
    CREATE VIEW pairs AS SELECT a.loc, b.n FROM slide(other, rows => 3) AS a
      JOIN slide(averages, rows => 2) AS b ON a.loc = b.loc;
    CREATE VIEW named AS SELECT averages.t, place.city FROM averages JOIN place ON averages.loc = place.loc;
    CREATE VIEW now AS SELECT loc, COUNT(*) AS n FROM latest(reading, rows => 7) GROUP BY loc;
    CREATE VIEW total AS SELECT loc, COUNT(*) AS n FROM reading GROUP BY loc;
"""
TRACED = """
    CREATE VIEW traced WITH (provenance = 'lineage', retain = '6 rows') AS
      SELECT loc, SUM(time) AS s FROM slide(reading, rows => 4, every => 3, by => loc) GROUP BY loc;
    CREATE VIEW covered WITH (provenance = 'covering', retain = '6 rows') AS
      SELECT SUM(time) AS s FROM slide(reading, rows => 4, every => 3);
"""


def batches(seed: int, count: int) -> list[list[tuple[str, list[tuple]]]]:
    """What is written in each of some epochs."""
    rng = random.Random(seed)
    out, time = [], 0
    for number in range(count):
        epoch = []
        for _ in range(rng.randint(1, 3)):
            rows = []
            for _ in range(rng.randint(0, 6)):
                time += rng.randint(0, 3)
                row = (time - rng.randint(0, 6), rng.randint(0, 2), rng.random(), rng.choice(["a", "b", f"n{number}"]))
                rows.append(row)
            epoch.append(("reading", rows))
            epoch.append(("other", [(rng.randint(0, 2),)] * rng.randint(0, 2)))
        if number % 4 == 0:
            epoch.append(("place", [(rng.randint(0, 2), f"city {number}")]))
        out.append(epoch)
    return out


def write(db: whence.Database, epoch: list[tuple[str, list[tuple]]]) -> None:
    with db.transaction():
        for name, rows in epoch:
            db.insert(name, rows)


def state(db: whence.Database) -> dict[str, object]:
    """Everything there is of streams, `$at`s, late rows and annotations included."""
    runtime = inside.coordinator(db)
    with runtime.reading():
        flow = runtime.catalog.flow
        found: dict[str, object] = {"epoch": runtime.epoch, "last": flow.last_at}
        for name, op in (flow.streams | flow.views).items():
            late = [(kept.count, kept.rows.tolist()) for below in upwards([op]) for kept, _ in lates_of(below)]
            if not runtime.reader.is_stream(name):
                found[name] = sorted(op.contents().rows.tolist()), late
                continue
            found[name] = op.kept.first, op.kept.next, op.kept.rows.tolist(), late
            if name in ("traced", "covered"):
                found[f"behind {name}"] = op.tracer.spans(op.kept.ann, "reading").tolist()
        return found


def begun(db: whence.Database, sql: str = SQL + TRACED) -> whence.Database:
    db.execute(sql)
    return db


@pytest.mark.parametrize("seed", seeds(3))
def test_restarts_change_nothing(tmp_path: Path, seed: int):
    rng = random.Random(seed)
    twin, db = begun(whence.open()), begun(whence.open(tmp_path / "db", durability="none"))
    for epoch in batches(seed, 24):
        write(twin, epoch)
        write(db, epoch)
        match rng.choice(["go on", "go on", "snapshot", "reopen", "crash"]):
            case "snapshot":
                db.snapshot()
            case "reopen":
                db.close()
                db = whence.open(tmp_path / "db", durability="none")
                assert db.recovery.primed == 0
            case "crash":
                db.sync()
                abandon(db)
                db = whence.open(tmp_path / "db", durability="none")
                assert db.recovery.primed == 0
        assert state(db) == state(twin)
    db.close()
    report = whence.check(tmp_path / "db")
    assert report.ok, report.problems


def test_replaying_the_whole_log_gives_the_same(tmp_path: Path):
    twin, db = begun(whence.open()), begun(whence.open(tmp_path / "db"))
    for epoch in batches(7, 12):
        write(twin, epoch)
        write(db, epoch)
    shutil.copytree(tmp_path / "db", tmp_path / "copy")  # as a kill would leave it
    db.close()
    with whence.open(tmp_path / "copy") as again:
        assert again.recovery.image_epoch == 0
        assert state(again) == state(twin)


def test_the_past_and_readers(tmp_path: Path):
    past = []
    with begun(whence.open(tmp_path / "db", retain="all")) as db:
        with whence.open(tmp_path / "db", read_only=True) as reader:
            for number, epoch in enumerate(batches(3, 10)):
                write(db, epoch)
                past.append(state(db))
                assert state(reader) == past[-1]
                if number == 4:
                    db.snapshot()
        for then in past:
            with db.at(then["epoch"]) as old:
                assert state(old) == then
        before = db.what_if(insert={"other": [(1,)]})
        assert before.tables["other"].inserted == [(1,)]
        assert state(db) == past[-1]


def test_ages_are_those_of_the_epochs(tmp_path: Path):
    now = [1000.0]
    clock: Callable[[], float] = lambda: now[0]  # noqa: E731
    sql = "CREATE STREAM s (x INT) WITH (retain = '10 s'); CREATE VIEW v WITH (retain = '5 s') AS SELECT x FROM s"
    twin, db = begun(whence.open(clock=clock), sql), begun(whence.open(tmp_path / "db", clock=clock), sql)
    for x in range(12):
        now[0] += 1.5
        for one in (twin, db):
            one.insert("s", [(x,)])
        if x == 4:
            db.snapshot()
        if x == 8:
            db.sync()
            abandon(db)
            db = whence.open(tmp_path / "db", clock=clock)
        assert state(db) == state(twin)
    assert twin["s"].rows == [(x,) for x in range(5, 12)]
    db.close()


@pytest.mark.parametrize("sql", ["DROP VIEW averages CASCADE", "DROP STREAM reading CASCADE", "DROP VIEW total"])
def test_a_change_that_cannot_be_written_has_not_happened(tmp_path: Path, sql: str, monkeypatch: pytest.MonkeyPatch):
    twin, db = begun(whence.open()), begun(whence.open(tmp_path / "db"))
    work = batches(2, 14)
    for number, epoch in enumerate(work):
        write(twin, epoch)
        write(db, epoch)
        if number == 4:
            db.snapshot()
        if number in (9, 13):
            with monkeypatch.context() as patch:
                patch.setattr(inside.coordinator(db).storage, "write_statements", refuse)
                with pytest.raises(whence.StorageError, match="full"):
                    db.execute(sql)
        assert state(db) == state(twin)
    db.close()
    with whence.open(tmp_path / "db") as again:
        assert state(again) == state(twin)


def refuse(statements: list[str]) -> None:
    raise whence.StorageError("the disk is full")


def test_killed_anywhere(tmp_path: Path):
    """At every eleventh write point, by the real signal."""
    sql, work = SQL.replace("25 rows", "9 rows"), batches(11, 7)
    twin = begun(whence.open(), sql)
    states = [state(twin)]
    for epoch in work:
        write(twin, epoch)
        states.append(state(twin))

    def run(path: Path, disk: Disk, told: Callable[[], object]) -> None:
        db = begun(open_small(path, disk, snapshot_bytes=2000), sql)
        told()
        for epoch in work:
            write(db, epoch)
            told()
        db.close()

    with tempfile.TemporaryDirectory(dir="/dev/shm" if os.access("/dev/shm", os.W_OK) else None) as folder:
        disk = Watched()
        run(Path(folder) / "all", disk, lambda: None)
        disk.release()
        assert disk.visited > 100
        survived = 0
        for at in range(1, disk.visited, 11):
            path = Path(folder) / f"db{at}"
            done = done_before_death(lambda tell, at=at, path=path: run(path, Deadly(at), lambda: os.write(tell, b".")))
            if done is None or not done:
                continue
            with whence.open(path) as db:
                found = state(db)
                assert found in states[done - 1 : done + 1], f"point {at}, {done - 1} epochs done"
                for epoch in work[states.index(found) :]:
                    write(db, epoch)
                assert state(db) == states[-1]
            shutil.rmtree(path)
            survived += 1
        assert survived > 5


def test_a_check_finds_rows_that_are_not_right(tmp_path: Path):
    with begun(whence.open(tmp_path / "db"), SQL.replace("25 rows", "all")) as db:
        for epoch in batches(5, 4):
            write(db, epoch)
        inside.operator(db, "merged").kept._rows[0, 0] += 1
    report = whence.check(tmp_path / "db")
    assert [view.name for view in report.views if not view.ok] == ["merged"]
    assert {view.name: view.unknown for view in report.views if view.unknown} == {
        "minutes": "stream sorted has dropped rows",
        "named": "it joined rows of a stream with a relation as that was then",
    }


@pytest.mark.parametrize("rows", [3, 5000])
def test_the_log_keeps_rows_in_their_order(rows: int):
    given = np.random.default_rng(1).integers(0, 3, (rows, 3))
    given[:, -1] = np.arange(5, 5 + rows)
    epoch = Epoch(3, 9, {"s": Batch(given, np.ones(rows, np.int64), True)})
    payload = b"".join(bytes(part) for part in pack_epoch(epoch, [], 0))
    found, _, _ = unpack_epoch(3, 9, memoryview(payload))
    assert (found.deltas["s"].rows == given).all()
    assert found.deltas["s"].unique
