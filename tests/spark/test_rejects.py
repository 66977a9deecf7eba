"""Records of Spark's sources that do not fit: found, left out or rejected, in the epoch of those that do."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import pytest

import whence
from whence.model.errors import DataError, EvaluationError, WhenceError
from whence.runtime.spark.frames.lines import numbered

LINK = "CREATE TABLE link (src TEXT, cost INT)"
LINES = ['{"op": "+", "src": "a", "cost": 1}', '{"op": "+", "src": "b", "cost": "x"}', "not json"]
LINES += ['{"op": "?", "src": "c", "cost": 3}', '{"op": "+", "src": "d", "cost": 1.5}']
LINES += ['{"op": "+", "src": "e", "cost": 5}']
COLUMNS = "op string, src string, cost int"
FOUND = "SELECT source, batch, line, reason, record FROM rejects ORDER BY batch, line"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    path = tmp_path / "in"
    path.mkdir()
    (path / "1.json").write_text("\n".join(LINES))
    return path


def opened(spark: Any, tmp_path: Path, sql: str = LINK) -> whence.Database:
    db = whence.open(tmp_path / "db", spark=spark, partitions=2)
    db.execute(sql)
    return db


def run(db: whence.Database, **options: Any) -> Any:
    running = db.start(trigger="availableNow", **options)
    running.awaitTermination(120)
    return running


def test_bad_records_of_a_stream_are_rejected_with_batch_file_and_line(
    spark: Any, tmp_path: Path, folder: Path
) -> None:
    (folder / "2.json").write_text('{"op": "+", "src": "f", "cost": true}\n{"op": "-", "src": "a", "cost": 1}')
    with opened(spark, tmp_path) as db:
        stream = spark.readStream.schema(COLUMNS).option("maxFilesPerTrigger", 1).option("latestFirst", False)
        db.attach("link", stream.json(str(folder)), op="op", on_error="reject")
        running = run(db)
        rows = db.query(FOUND).rows
        assert sorted(db["link"]) == [("e", 5)]
        assert {(row[0], row[2], row[4]) for row in rows} == {
            ("link", 2, LINES[1]),
            ("link", 3, LINES[2]),
            ("link", 4, json.dumps({"op": "?", "src": "c", "cost": "3"}).replace(": ", ":").replace(", ", ",")),
            ("link", 5, LINES[4]),
            ("link", 1, '{"op": "+", "src": "f", "cost": true}'),
        }
        assert {row[1] for row in rows} == {0, 1}
        files = {row[0] for row in db.query("SELECT DISTINCT file FROM rejects").rows}
        assert {Path(file).name for file in files} == {"1.json", "2.json"}
        assert "Spark's reader cannot read" in next(row[3] for row in rows if row[4] == "not json")
        assert running.lastProgress["skipped"] == 5
    with whence.open(tmp_path / "db") as db:
        assert len(db["rejects"]) == 5


def test_values_that_a_permissive_reader_made_null_stop_the_stream(spark: Any, tmp_path: Path, folder: Path) -> None:
    with opened(spark, tmp_path) as db:
        db.attach("link", spark.readStream.schema(COLUMNS).json(str(folder)), op="op")
        with pytest.raises(DataError, match=r"stream link, batch 0: table link: Spark's reader cannot read '\{.op"):
            run(db)
        assert len(db["link"]) == 0


def test_explicit_mode_of_a_reader_is_respected(spark: Any, tmp_path: Path, folder: Path) -> None:
    (folder / "1.json").write_text("\n".join([LINES[0], LINES[1]]))
    with opened(spark, tmp_path) as db:
        reader = spark.readStream.schema(COLUMNS).option("mode", "PERMISSIVE")
        db.attach("link", reader.json(str(folder)), op="op")
        run(db)
        assert sorted(db["link"].rows, key=str) == [("a", 1), ("b", None)]


def test_reader_beneath_other_operations_warns(
    spark: Any, tmp_path: Path, folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with opened(spark, tmp_path) as db, caplog.at_level(logging.WARNING, "whence"):
        db.attach("link", spark.readStream.schema(COLUMNS).json(str(folder)).where("cost > 0"), op="op")
    assert "add it, or .option('mode', 'FAILFAST')" in caplog.text


def test_bad_csv_records_of_a_dataframe_are_skipped(spark: Any, tmp_path: Path) -> None:
    path = tmp_path / "links.csv"
    path.write_text("src,cost\na,1\nb,x\nc,3,4\nd,4\n")
    with opened(spark, tmp_path) as db:
        df = spark.read.schema("src string, cost int").option("header", True).csv(str(path))
        assert db.insert("link", df, on_error="skip") == 2
        assert sorted(db["link"]) == [("a", 1), ("d", 4)]
        with pytest.raises(DataError, match="Spark's reader cannot read 'b,x'"):
            db.insert("link", df)


def test_text_columns_of_csv_are_rejected_with_their_lines(spark: Any, tmp_path: Path) -> None:
    path = tmp_path / "links.csv"
    path.write_text('src,cost\na,1\n"b,c",x\nd,\n"b,c",x\n')
    with opened(spark, tmp_path) as db:
        df = spark.read.schema("src string, cost string").option("header", True).csv(str(path))
        assert db.insert("link", df, on_error="reject") == 2
        assert [(row[1], row[2], row[3]) for row in db.query(FOUND).rows] == [
            (None, 3, "column cost: 'x' is not a value of type INTEGER"),
            (None, 5, "column cost: 'x' is not a value of type INTEGER"),
        ]


@pytest.mark.parametrize("size", [3, 5000])
def test_rows_that_only_workers_find_bad_are_rejected(spark: Any, tmp_path: Path, size: int) -> None:
    with opened(spark, tmp_path, "CREATE TABLE t (x BIGINT NOT NULL)") as db:
        df = spark.range(0, size, 1, 2).selectExpr("if(id % 2 = 1, null, id) x")
        assert db.insert("t", df, on_error="reject") == size - size // 2
        assert db.query("SELECT COUNT(*), MIN(reason) FROM rejects").rows == [
            (size // 2, "column x: NULL in a NOT NULL column")
        ]


def test_debezium_messages_are_rejected_whole_or_by_value(spark: Any, tmp_path: Path) -> None:
    messages = [
        {"op": "c", "before": None, "after": {"src": "a", "cost": 1}},
        {"op": "c", "before": None, "after": {"src": "b", "cost": "x"}},
        {"op": "c", "before": None, "after": {"src": "c"}},
        {"op": "c", "before": None, "after": None},
        {"hello": "world"},
    ]
    folder = tmp_path / "in"
    folder.mkdir()
    (folder / "1.txt").write_text("\n".join(json.dumps(message) for message in messages))
    with opened(spark, tmp_path) as db:
        db.attach("link", spark.readStream.text(str(folder)), format="debezium", on_error="reject")
        run(db)
        assert db["link"].rows == [("a", 1)]
        reasons = [row[0] for row in db.query("SELECT reason FROM rejects ORDER BY reason").rows]
        assert [reason.partition(": ")[0] for reason in reasons] == [
            "a creation without its new row",
            "column cost",
            "column cost",
            "no message of Debezium",
        ]


def test_error_of_an_epoch_names_stream_and_batch(spark: Any, tmp_path: Path, folder: Path) -> None:
    (folder / "1.json").write_text('{"op": "+", "src": "a", "cost": 0}')
    with opened(spark, tmp_path, f"{LINK}; CREATE VIEW inverse AS SELECT 10 // cost AS n FROM link") as db:
        db.attach("link", spark.readStream.schema(COLUMNS).json(str(folder)), op="op", on_error="skip")
        with pytest.raises(EvaluationError, match="stream link, batch 0: "):
            run(db)


def test_wrong_choice_is_refused(spark: Any, tmp_path: Path, folder: Path) -> None:
    with opened(spark, tmp_path) as db, pytest.raises(WhenceError, match="'fail', 'skip' or 'reject'"):
        db.attach("link", spark.readStream.schema(COLUMNS).json(str(folder)), op="op", on_error="never")


def test_lines_of_other_files_stay_unknown(spark: Any) -> None:
    rejects = [whence.io.files.Reject("data.parquet", None, "bad", "{}")]
    assert numbered(spark, rejects) == rejects
