"""Promises hold of rows that Spark brings: CHECK in its tasks, order and closed keys in the driver."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import whence
from tests import inside
from whence.model.errors import DataError

SQL = """
    CREATE TABLE seat (id INT PRIMARY KEY, free INT CHECK (free >= 0), kind TEXT CHECK (kind IN ('a', 'b')));
    CREATE STREAM play (game TEXT, kind TEXT, t INT CHECK (t < 100000))
        WITH (ordered = 't', closes = 'game when kind = ''end''')
"""
COLUMNS = "game string, kind string, t int"


@pytest.fixture
def db(spark: Any, tmp_path: Path) -> Any:
    with whence.open(tmp_path / "db", spark=spark, partitions=2) as opened:
        opened.execute(SQL)
        yield opened


def known(db: whence.Database) -> tuple[Any, list[Any]]:
    horizons = inside.coordinator(db).horizons()
    found = horizons.of("play", "t")
    return found and found.value, sorted(horizons.closed_keys("play"))


def run(db: whence.Database) -> Any:
    running = db.start(trigger="availableNow")
    running.awaitTermination(120)
    return running


def test_checks_are_enforced_in_tasks(spark: Any, db: whence.Database) -> None:
    many = spark.range(5000).selectExpr("CAST(id AS INT) AS id", "CAST(4998 - id AS INT) AS free", "'a' AS kind")
    with pytest.raises(DataError, match=r"\(4999, -1, 'a'\) breaks the promise CHECK \(free >= 0\)"):
        db.insert("seat", many)
    assert len(db["seat"]) == 0
    assert db.insert("seat", many, on_error="reject") == 4999
    ((reason,),) = db.query("SELECT reason FROM rejects").rows
    assert reason == "(4999, -1, 'a') breaks the promise CHECK (free >= 0)"
    inside.run_as(db, "job")
    with pytest.raises(DataError, match=r"table seat, row 2: \(8, 1, 'c'\) breaks the promise CHECK \(kind IN"):
        db.insert("seat", [(7, 1, "b"), (8, 1, "c")])
    assert db.insert("seat", [(7, 1, "b")]) == 1


def test_order_is_enforced_over_all_tasks(spark: Any, db: whence.Database) -> None:
    rows = spark.range(0, 6000, 1, 3).selectExpr("CONCAT('g', id % 7) AS game", "'go' AS kind", "CAST(id AS INT) AS t")
    assert db.insert("play", rows) == 6000
    assert known(db) == (5999, [])
    with pytest.raises(DataError, match="breaks the promise ordered = 't': t has reached 5999"):
        db.insert("play", rows)
    ends = spark.createDataFrame([("g1", "end", 6000), ("g1", "go", 6001), ("g2", "go", 6002)], COLUMNS).coalesce(1)
    assert db.insert("play", ends, on_error="reject") == 2
    assert known(db) == (6002, [("g1",)])
    assert len(db["rejects"]) == 1


@pytest.mark.parametrize("rows", [20, 5000])
def test_attached_stream_sets_late_rows_apart(spark: Any, db: whence.Database, tmp_path: Path, rows: int) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    lines = [f"g{n % 5},{'end' if n == rows - 6 else 'go'},{n}" for n in range(rows)]
    lines[7] = "g1,go,3"
    (folder / "1.csv").write_text("\n".join(lines))
    db.attach("play", spark.readStream.schema(COLUMNS).csv(str(folder)), on_error="reject")
    running = run(db)
    closed = f"g{(rows - 6) % 5}"
    assert known(db) == (rows - 1 if (rows - 1) % 5 != (rows - 6) % 5 else rows - 2, [(closed,)])
    reasons = [reason for (reason,) in db.query("SELECT reason FROM rejects").rows]
    assert sorted(reason.split("promise ")[1][:6] for reason in reasons) == ["closes", "ordere"]
    assert len(db["play"]) == rows - 2
    assert running.lastProgress["skipped"] == 2


def test_attached_stream_fails_on_a_late_row(spark: Any, db: whence.Database, tmp_path: Path) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    (folder / "1.csv").write_text("a,go,2\na,go,1\n")
    db.attach("play", spark.readStream.schema(COLUMNS).csv(str(folder)))
    with pytest.raises(DataError, match=r"stream play, row 2: .* breaks the promise ordered"):
        run(db)
    assert (len(db["play"]), known(db)) == (0, (None, []))
