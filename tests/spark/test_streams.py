from __future__ import annotations

import json
import os
import threading
from pathlib import Path
from typing import Any

import pytest

from tests.spark.pretend import Pretend
from whence.model.errors import CatalogError, DataError, MissingRowError, StorageError, WhenceError
from whence.runtime.spark.frames.streams import AttachedStreams, Running

LINK = "CREATE TABLE link (src TEXT, dst TEXT)"
COLUMNS = "src string, dst string, op string"


class Folder:
    """A folder that a stream reads, one file a batch unless said otherwise."""

    def __init__(self, spark: Any, path: Path) -> None:
        self.spark, self.path, self.count = spark, path, 0
        path.mkdir()

    def put(self, *rows: str) -> None:
        """Rows such as '+ab': op, source, destination."""
        self.count += 1
        lines = [json.dumps({"op": row[0], "src": row[1], "dst": row[2]}) for row in rows]
        hidden = self.path / f".{self.count}"
        hidden.write_text("\n".join(lines))
        os.utime(hidden, (self.count, 1_000_000_000 + self.count))  # Spark takes files by age, to the millisecond
        hidden.rename(self.path / f"{self.count:04d}.json")

    def stream(self, schema: str = COLUMNS, files: int = 1) -> Any:
        return self.spark.readStream.schema(schema).option("maxFilesPerTrigger", files).json(str(self.path))


@pytest.fixture
def folder(spark: Any, tmp_path: Path) -> Folder:
    return Folder(spark, tmp_path / "in")


def start(db: Pretend, folder: Folder, **options: Any) -> Running:
    streams = AttachedStreams(db)
    streams.attach("link", folder.stream(), op="op", max_rows_per_epoch=options.pop("max_rows_per_epoch", None))
    return streams.start(trigger="availableNow", **options)


def run(db: Pretend, folder: Folder, **options: Any) -> Running:
    running = start(db, folder, **options)
    running.awaitTermination(120)
    running.stop()
    return running


def test_batches_become_epochs_and_a_restart_goes_on(spark: Any, tmp_path: Path, folder: Folder) -> None:
    db = Pretend(spark, tmp_path / "db", LINK)
    folder.put("+ab", "+bc")
    folder.put("-ab", "+cd")
    before = set(threading.enumerate())
    running = run(db, folder)
    assert db.rows("link") == [("b", "c"), ("c", "d")]
    assert db.epochs == [{"link": 2}, {"link": 2}]
    assert db.source_positions["link"] == 1
    progress = running.lastProgress
    assert progress is not None
    assert (progress["epoch"], progress["source"], progress["batch"], progress["rows"]) == (2, "link", 1, 2)
    assert progress["sources"]["link"]["batchId"] == 1
    assert [epoch["epoch"] for epoch in running.recentProgress] == [1, 2]
    assert not running.isActive
    assert running.exception() is None
    assert running.status["message"] == "stopped"
    folder.put("+de")
    run(db, folder)
    assert db.rows("link") == [("b", "c"), ("c", "d"), ("d", "e")]
    assert (db.source_positions["link"], db.epoch) == (2, 3)
    assert not [t for t in set(threading.enumerate()) - before if t.name.startswith("whence")]


@pytest.mark.parametrize(
    ("early", "rows", "owed"),
    [(None, [("b", "c")], [("x", "y")]), ("ignore", [("a", "b"), ("b", "c")], [])],
)
def test_deletion_in_an_earlier_file_waits_for_its_row(
    spark: Any, tmp_path: Path, folder: Folder, early: Any, rows: list[Any], owed: list[Any]
) -> None:
    db = Pretend(spark, tmp_path / "db", LINK)
    folder.put("-ab", "+bc", "-xy")
    folder.put("+ab")
    streams = AttachedStreams(db)
    streams.attach("link", folder.stream(), op="op", early=early)
    streams.start(trigger="availableNow").awaitTermination(120)
    assert (db.rows("link"), db.db.owed("link").rows) == (rows, owed)


def test_early_deletion_may_be_an_error(spark: Any, tmp_path: Path, folder: Folder) -> None:
    db = Pretend(spark, tmp_path / "db", LINK)
    streams = AttachedStreams(db)
    with pytest.raises(WhenceError, match="early is 'ignore', 'hold' or 'error', not 'late'"):
        streams.attach("link", folder.stream(), op="op", early="late")  # type: ignore[arg-type]  # the point of it
    streams.attach("link", folder.stream(), op="op", early="error")
    folder.put("+bc", "-ab")
    running = streams.start(trigger="availableNow")
    with pytest.raises(MissingRowError, match=r"table link: no row \('a', 'b'\) to delete"):
        running.awaitTermination(120)
    assert (db.rows("link"), db.epoch) == ([], 0)


def test_a_batch_that_comes_again_is_passed_over(spark: Any, tmp_path: Path, folder: Folder) -> None:
    db = Pretend(spark, tmp_path / "db", LINK)
    folder.put("+ab")

    def die(epoch: int) -> None:
        raise RuntimeError("the driver died after its commit")

    db.later = die
    with pytest.raises(WhenceError, match="the driver died") as error:
        run(db, folder)
    assert isinstance(error.value.__cause__, RuntimeError)
    db.later = lambda epoch: None
    assert db.rows("link") == [("a", "b")]
    folder.put("+ab")
    run(db, folder)
    assert db.rows("link") == [("a", "b"), ("a", "b")]
    assert db.epoch == 2


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("death", [1, 2, 3])
def test_a_burst_is_split_and_resumed(spark: Any, tmp_path: Path, folder: Folder, death: int, when: str) -> None:
    db = Pretend(spark, tmp_path / "db", LINK)
    rows = [f"+{a}{b}" for a in "abcde" for b in "vwxyz"]
    folder.put(*rows)

    def die(epoch: int) -> None:
        if epoch == death:
            raise RuntimeError("died")

    db.trouble, db.later = (die, db.later) if when == "before" else (db.trouble, die)
    with pytest.raises(WhenceError, match="died"):
        run(db, folder, max_rows_per_epoch=10)
    assert db.epoch == (death - 1 if when == "before" else death)
    assert ("link" in db.source_positions) == (when == "after" and death == 3)
    db.trouble = db.later = lambda epoch: None
    if death == 2:
        db.partitions = 2  # opened with other partitions: the rest is routed anew
    run(db, folder, max_rows_per_epoch=10)
    assert db.rows("link") == sorted((row[1], row[2]) for row in rows)
    assert db.epochs == [{"link": 10}, {"link": 10}, {"link": 5}]
    assert db.source_positions["link"] == 0
    assert not (tmp_path / "db/streams/link.split").exists()


def test_a_plan_that_is_gone_is_an_error(spark: Any, tmp_path: Path, folder: Folder) -> None:
    db = Pretend(spark, tmp_path / "db", LINK)
    folder.put(*(f"+{a}x" for a in "abcdef"))
    db.later = lambda epoch: 1 / 0  # type: ignore[assignment,return-value]
    with pytest.raises(WhenceError):
        run(db, folder, max_rows_per_epoch=4)
    (tmp_path / "db/streams/link.split/plan.json").unlink()
    with pytest.raises(StorageError, match="a part of batch 0 is in, but the plan of the rest cannot be read"):
        run(db, folder, max_rows_per_epoch=4)


def test_another_checkpoint_is_an_error(spark: Any, tmp_path: Path, folder: Folder) -> None:
    db = Pretend(spark, tmp_path / "db", LINK)
    folder.put("+ab")
    run(db, folder, checkpoint=tmp_path / "one")
    with pytest.raises(WhenceError, match=r"stream link: its checkpoint is at batch .*, but 1 batches are committed"):
        run(db, folder, checkpoint=tmp_path / "two")
    assert db.rows("link") == [("a", "b")]


def test_an_error_in_a_batch_stops_all(spark: Any, tmp_path: Path, folder: Folder) -> None:
    db = Pretend(spark, tmp_path / "db", LINK)
    streams = AttachedStreams(db)
    streams.attach("link", folder.stream(), op="op")
    other = Folder(spark, tmp_path / "other")
    streams.attach("link", other.stream(), op="op", name="other")
    running = streams.start()
    with pytest.raises(WhenceError, match="streams are running: stop them first"):
        streams.start()
    other.put("+xy")
    running.processAllAvailable()
    assert db.rows("link") == [("x", "y")]
    folder.put("+ab", "?bc")
    with pytest.raises(DataError, match=r"table link, column op: '\?' is no operation"):
        running.awaitTermination(120)
    assert not running.isActive
    assert isinstance(running.exception(), DataError)
    assert running.status["message"].startswith("failed: stream link, batch 0: table link, column op")
    assert db.epoch == 1


def test_debezium_and_a_stop(spark: Any, tmp_path: Path) -> None:
    db = Pretend(spark, tmp_path / "db", "CREATE TABLE orders (id INT PRIMARY KEY, who TEXT)")
    (tmp_path / "in").mkdir()
    lines = ['{"op":"c","before":null,"after":{"id":1,"who":"ann"}}', "rubbish",
             '{"op":"u","before":null,"after":{"id":1,"who":"bob"}}']  # fmt: skip
    (tmp_path / "in" / "1.txt").write_text("\n".join(lines))
    streams = AttachedStreams(db)
    streams.attach("orders", spark.readStream.text(str(tmp_path / "in")), format="debezium", on_error="skip")
    with streams.start(trigger="100 milliseconds") as running:
        running.process_all_available()
        assert running.is_active
        progress = running.last_progress
    assert progress is not None
    assert progress["skipped"] == 1
    assert not running.is_active
    assert running.exception() is None
    assert running.await_termination(1) is True
    assert db.rows("orders") == [(1, "bob")]


def test_order_by_says_what_is_last(spark: Any, tmp_path: Path, folder: Folder) -> None:
    db = Pretend(spark, tmp_path / "db", "CREATE TABLE t (src TEXT PRIMARY KEY, dst TEXT)")
    for last in "daczb":
        folder.put(f"+k{last}")
    streams = AttachedStreams(db)
    streams.attach("t", folder.stream(files=10), op="op", order_by="dst")
    streams.start(trigger="once").awaitTermination(120)
    assert db.rows("t") == [("k", "z")]


def test_what_attach_refuses(spark: Any, tmp_path: Path, folder: Folder) -> None:
    db = Pretend(spark, tmp_path / "db", LINK)
    streams = AttachedStreams(db)
    good = folder.stream()
    with pytest.raises(WhenceError, match="no stream is attached"):
        streams.start()
    with pytest.raises(CatalogError, match='there is no table "lnik"; did you mean "link"'):
        streams.attach("lnik", good)
    with pytest.raises(WhenceError, match="not a stream: insert it into link"):
        streams.attach("link", spark.range(1))
    with pytest.raises(WhenceError, match="expected a DataFrame of Spark, not list"):
        streams.attach("link", [("a", "b")])
    with pytest.raises(DataError, match="has no column dst"):
        streams.attach("link", good.drop("dst"))
    with pytest.raises(DataError, match="has no column operation"):
        streams.attach("link", good, op="operation")
    with pytest.raises(DataError, match="no column op in"):
        streams.attach("link", good, strict=True)
    with pytest.raises(DataError, match="column dst: array<int> is not TEXT"):
        streams.attach("link", good.selectExpr("src", "array(1) dst"))
    with pytest.raises(WhenceError, match="a stream's name is made of letters"):
        streams.attach("link", good, name="a/b")
    with pytest.raises(WhenceError, match="the format is 'debezium', 'json' or none"):
        streams.attach("link", good, format="avro")  # type: ignore[arg-type]
    streams.attach("LINK", good, op="op")
    with pytest.raises(WhenceError, match="there is a stream link already"):
        streams.attach("link", good)
    with pytest.raises(WhenceError, match="a trigger is"):
        streams.start(trigger={"continuous": "1 second"})
    streams.detach("link")
    with pytest.raises(WhenceError, match="no stream is attached"):
        streams.start()
