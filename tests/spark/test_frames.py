from __future__ import annotations

import datetime as dt
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

import whence
from tests import inside
from tests.spark.pretend import Pretend
from whence.engine.core.operator import Batch
from whence.model.errors import SparkError, WhenceError
from whence.runtime.spark.frames import frames, sinks

SQL = """CREATE TABLE t (b BOOLEAN, l BIGINT, d DOUBLE, n DECIMAL(9,2), s TEXT, day DATE, at TIMESTAMP, v INTERVAL);
CREATE TABLE link (src TEXT, dst TEXT)"""


def test_insert_and_delete(spark: Any, tmp_path: Path) -> None:
    db = Pretend(spark, tmp_path, SQL)
    df = spark.createDataFrame([("a", "b"), ("a", "b"), ("b", "c")], "src string, dst string")
    assert frames.write(db, "link", df) == 3
    assert frames.write(db, "link", df.limit(1), sign=-1) == 1
    assert db.rows("link") == [("a", "b"), ("b", "c")]
    assert frames.write(db, "link", df.selectExpr("*", "'D' op"), op="op") == 3
    assert db.rows("link") == []
    assert frames.write(db, "link", df.limit(0)) == 0
    assert db.epoch == 3
    with pytest.raises(WhenceError, match="is a stream: attach it to link"):
        frames.write(db, "link", spark.readStream.format("rate").load())


def test_which_frames(spark: Any) -> None:
    assert frames.is_frame(spark.range(1))
    assert not frames.is_frame([1])
    connect = type("DataFrame", (), {"__module__": "pyspark.sql.connect.dataframe"})
    assert frames.is_frame(connect())
    with pytest.raises(WhenceError, match="is of Spark Connect, whose driver is another process"):
        frames.check(connect())


@pytest.mark.parametrize("written", [False, True])
def test_to_spark_is_a_snapshot_of_all_types(spark: Any, tmp_path: Path, written: bool) -> None:
    db = Pretend(spark, tmp_path / "db", SQL)
    at = dt.datetime(2020, 3, 29, 2, 30)  # a time that some zones do not have
    row = (True, 2**40, 0.5, Decimal("1.50"), "é", dt.date(2020, 1, 1), at, dt.timedelta(days=1, seconds=2))
    db.db.insert("t", [row, (None,) * 8])
    df = frames.to_spark(db, "t", tmp_path / "out" if written else None)
    assert dict(df.dtypes) == {
        "b": "boolean", "l": "bigint", "d": "double", "n": "decimal(9,2)", "s": "string", "day": "date",
        "at": "timestamp_ntz", "v": "string",
    }  # fmt: skip
    db.db.delete("t", [row])
    assert sorted(map(tuple, df.collect()), key=str) == sorted([(*row[:7], "P1DT2S"), (None,) * 8], key=str)


def test_wide_decimals_in_and_out(spark: Any, tmp_path: Path) -> None:
    db = Pretend(spark, tmp_path / "db", "CREATE TABLE w (n DECIMAL(38,2)); CREATE TABLE link (src TEXT, dst TEXT)")
    large = Decimal("123456789012345678901234567890.25")
    df = spark.createDataFrame([(large,), (large.copy_negate(),), (Decimal("1.50"),), (None,)], "n decimal(38,2)")
    assert frames.write(db, "w", df) == 4
    out = frames.to_spark(db, "w")
    assert out.dtypes == [("n", "decimal(38,2)")]
    assert sorted(out.collect(), key=str) == sorted(df.collect(), key=str)


class Told(Pretend):
    """A runtime that tells its hooks of what its epochs change."""

    def do(self, *rows: tuple[int, str]) -> None:
        """Rows that come or go, in one epoch."""
        import numpy as np

        codes = np.array([[self.dictionary.intern(text)] for _, text in rows], np.int64).reshape(-1, 1)
        counts = np.array([sign for sign, _ in rows], np.int64)
        with self.db.transaction():
            for sign, text in rows:
                (self.db.insert if sign > 0 else self.db.delete)("a", [(text,)] * abs(sign))
        self.epochs.append({})
        for hook in list(self.sinks):
            hook(self.epoch, {"a": Batch(codes, counts)} if len(rows) else {})


class Writer:
    """Keeps what it was handed; may fail."""

    def __init__(self) -> None:
        self.seen: list[tuple[int, list[tuple[Any, ...]]]] = []
        self.broken = False

    def __call__(self, df: Any, epoch: int) -> None:
        if self.broken:
            raise OSError("no space")
        assert df.columns == ["x", "whence_op", "whence_count", "whence_epoch"]
        self.seen.append((epoch, [tuple(row) for row in df.collect()]))


def test_changes_to_a_writer_and_a_restart(spark: Any, tmp_path: Path) -> None:
    db, writer = Told(spark, tmp_path, "CREATE TABLE a (x TEXT)"), Writer()
    db.do((2, "old"))
    sink = sinks.changes_to(db, "a", writer, start="snapshot")
    db.do((1, "new"), (-1, "old"))
    db.do()
    assert writer.seen == [(1, [("old", "+", 2, 1)]), (2, [("old", "-", 1, 2), ("new", "+", 1, 2)])]
    assert sink.delivered == 3
    with pytest.raises(WhenceError, match="there is a sink a already"):
        sinks.changes_to(db, "a", writer)
    sink.stop()
    sinks.changes_to(db, "a", writer)  # nothing was missed
    db.do((1, "x"))
    assert writer.seen[2:] == [(4, [("x", "+", 1, 4)])]


def test_a_writer_that_fails_is_told_again(spark: Any, tmp_path: Path) -> None:
    db, writer = Told(spark, tmp_path, "CREATE TABLE a (x TEXT)"), Writer()
    sink = sinks.changes_to(db, "a", writer)
    writer.broken = True
    with pytest.raises(
        SparkError, match=r"epoch 1 is committed, but the sink a did not take its changes of a: no space"
    ):
        db.do((1, "x"))
    assert sink.delivered == 0
    writer.broken = False
    db.do((1, "y"))
    assert writer.seen == [(1, [("x", "+", 1, 1)]), (2, [("y", "+", 1, 2)])]
    assert (sink.delivered, sink.error) == (2, None)


def test_what_was_missed_is_found_or_an_error(spark: Any, tmp_path: Path) -> None:
    db, writer = Told(spark, tmp_path / "db", "CREATE TABLE a (x TEXT)"), Writer()
    sink = sinks.changes_to(db, "a", writer)
    db.do((1, "x"), (1, "z"))
    sink.stop()
    old = whence.open()
    old.execute("CREATE TABLE a (x TEXT)")
    old.insert("a", [("x",), ("z",)])
    db.do((1, "y"), (-1, "z"))
    with pytest.raises(WhenceError, match=r"what changed since epoch 1, .* is not known any more: open .* retain=1"):
        sinks.changes_to(db, "a", writer)
    db.retained, db.past = range(1, 3), {1: inside.coordinator(old)}
    sinks.changes_to(db, "a", writer)
    assert writer.seen[1:] == [(2, [("z", "-", 1, 2), ("y", "+", 1, 2)])]


def test_changes_to_files(spark: Any, tmp_path: Path) -> None:
    db = Told(spark, tmp_path / "db", "CREATE TABLE a (x TEXT)")
    path = tmp_path / "out"
    sinks.changes_to(db, "a", {"format": "parquet", "path": path})
    db.do((1, "x"))
    db.do((-1, "x"))
    found = spark.read.parquet(str(path)).orderBy("whence_epoch").collect()
    assert [tuple(row) for row in found] == [("x", "+", 1, 1), ("x", "-", 1, 2)]
    with pytest.raises(WhenceError, match="a writer is a function"):
        sinks.changes_to(db, "a", {"format": "parquet"}, name="b")
