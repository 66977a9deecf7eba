"""Streams and windows on Spark: rows of DataFrames arrive in the order of Spark's partitions, however they travel."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import whence
from tests import inside
from tests.spark.test_jobs import opened
from whence.model.errors import DataError
from whence.runtime import database

VIEWS = """
    CREATE STREAM reading (sensor INT, name TEXT, v INT);
    CREATE VIEW mean WITH (provenance = '{mode}') AS
      SELECT sensor, COUNT(*) AS n, SUM(v) AS s, LAST(name) AS name
      FROM slide(reading, rows => 6, every => 4{by}) GROUP BY sensor;
"""
ASKED = (
    "SELECT * FROM numbered(reading)",
    "SELECT * FROM provenance(mean, reading) WHERE n > 1",
    "SELECT * FROM mean",
)


def row(i: int) -> tuple[int, str, int]:
    return i % 5, f"n{i % 7}", i * 31 % 101


def frame(spark: Any, first: int, last: int, slices: int) -> Any:
    """Rows by their numbers, in order over the partitions."""
    from pyspark.sql import functions as F  # noqa: N812

    i = F.col("id")
    return spark.range(first, last, 1, slices).select(
        (i % 5).cast("int").alias("sensor"),
        F.concat(F.lit("n"), (i % 7).cast("string")).alias("name"),
        (i * 31 % 101).cast("int").alias("v"),
    )


def answers(db: whence.Database) -> list[list[tuple[Any, ...]]]:
    return [[tuple(row) for row in db.query(sql).rows] for sql in ASKED]


@pytest.mark.parametrize("by", ["", ", by => sensor"], ids=["in one place", "by key"])
def test_frames_arrive_in_order(spark: Any, tmp_path: Path, by: str) -> None:
    script = VIEWS.format(mode="lineage", by=by)
    db, plain = opened(spark, tmp_path / "db", partitions=3), database.open()
    for each in (db, plain):
        each.execute(script)
    at = 0
    for count, slices, mode in ((9_000, 3, "job"), (40, 2, "inline"), (5, 1, "job"), (7_000, 2, "auto")):
        inside.run_as(db, mode)
        assert db.insert("reading", frame(spark, at, at + count, slices)) == count
        plain.insert("reading", [row(i) for i in range(at, at + count)])
        at += count
    inside.run_as(db, "inline")
    expected = answers(plain)
    assert [len(found) for found in expected] == [at, len(expected[1]), len(expected[2])]
    assert answers(db) == expected
    db.close()
    for options in ({"spark": spark, "partitions": 3}, {"partitions": 2}, {}):
        with database.open(tmp_path / "db", **options) as again:
            assert answers(again) == expected
    plain.close()


def test_batches_of_a_stream_arrive_once_and_in_order(spark: Any, tmp_path: Path) -> None:
    folder, at, every = tmp_path / "in", 0, 1_500
    folder.mkdir()
    db = opened(spark, tmp_path / "db", partitions=2)
    db.execute(VIEWS.format(mode="none", by=", by => sensor"))
    for number in range(3):
        lines = [f'{{"sensor": {s}, "name": "{n}", "v": {v}}}' for s, n, v in map(row, range(at, at + 4_000))]
        (folder / f"{number}.json").write_text("\n".join(lines))
        at += 4_000
        if number == 1:  # another life
            db.close()
            db = opened(spark, tmp_path / "db", partitions=2)
        source = spark.readStream.schema("sensor int, name string, v int").option("maxFilesPerTrigger", 1)
        db.attach("reading", source.json(str(folder)), max_rows_per_epoch=every)
        db.start(trigger="availableNow").awaitTermination()
        inside.driver(db).streams.detach("reading")
    inside.run_as(db, "inline")
    with database.open() as plain:
        plain.execute(VIEWS.format(mode="none", by=", by => sensor"))
        plain.insert("reading", [row(i) for i in range(at)])
        assert db.query(ASKED[0]).rows == plain.query(ASKED[0]).rows
        assert db["mean"].rows == plain["mean"].rows
    db.close()


def test_a_stream_goes_out_in_order_and_nothing_is_taken_from_it(spark: Any, tmp_path: Path) -> None:
    with opened(spark, tmp_path / "db") as db:
        db.execute(VIEWS.format(mode="none", by=""))
        heard: list[Any] = []
        db.changes_to("reading", lambda df, epoch: heard.extend(tuple(row) for row in df.collect()))
        db.insert("reading", frame(spark, 0, 10, 1))
        assert heard == [(*row(i), "+", 1, 1) for i in range(10)]
        assert [tuple(found) for found in db["reading"].to_spark().collect()] == [row(i) for i in range(10)]
        with pytest.raises(DataError, match="reading is a stream"):
            db.delete("reading", frame(spark, 0, 5, 1))
        with pytest.raises(DataError, match="reading is a stream"):
            db.delete("reading", frame(spark, 0, 9_000, 1))
        with pytest.raises(DataError, match="reading is a stream"):
            db.delete("reading", [row(1)])
        assert len(db["reading"]) == 10
