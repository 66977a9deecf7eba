"""One set of files, read without Spark and by Spark: the same rows come of both, and the same lines are refused."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import whence
from whence.cli.file_streams import SparkFolder

TABLE = """CREATE TABLE t (k INT, i INT, n BIGINT, d DOUBLE, m DECIMAL(9, 3), b BOOLEAN, s TEXT, day DATE,
                           at TIMESTAMP, span INTERVAL)"""
TEXTS = {  # by column, texts as they stand in a CSV file
    "i": ["1", "-1", "+1", " 7", "7 ", "3.0", "1e3", "3.5", "2147483647", "2147483648", "x", '""', "1_0", "0x1F", "٣"],
    "n": ["9223372036854775807", "-9223372036854775807", "-9223372036854775808", "1e18", "12345678901234567890"],
    "d": ["1.5", "-1e-3", "+.5", "5.", "1E5", "nan", "-inf", "Infinity", "1d", "1,5", "1e400", "0x1p3", "١"],
    "m": ["1.5", "1.0005", "-1.0005", "1e2", "999999.999", "1000000", "1.", "NaN"],
    "b": ["true", "FALSE", "t", "No", "1", "0", "2", "on"],
    "s": ['""', '" a "', " a ", '"say ""hi"""', '"a\\"', "a\\b", "NULL", "null", '"1,2"', "é", "'q'"],
    "day": ["2026-07-01", "2026-7-1", "20260701", "2026-02-30", "2026-07-01T00:00:00", "0001-01-01", "9999-12-31"],
    "at": [
        "2026-07-01T10:00:00Z",
        "2026-07-01T10:00:00+02:00",
        "2026-07-01 10:00:00-0330",
        "2026-07-01 10:00:00+02",
        "2026-07-01 10:00:00 UTC",
        "2026-07-01 10:00:00 +02:00",
        "2026-07-01 10:00:00",
        "2026-03-08 02:30:00",  # an hour that New York does not have
        "2026-07-01T10:00",
        "2026-07-01",
        "2026-07-01T10:00:00.5",
        "2026-07-01T10:00:00.123456Z",
        "2026-07-01T10:00:00.123456789",
        "2026-07-01T25:00:00Z",
        "2026-07-01T10:00:00 CEST",
        "1751364000",
        "0001-01-01T00:00:00+02:00",
        "9999-12-31T23:59:59.999999",
    ],
    "span": ["P1M2DT3.5S", "1 day 00:00:01", "P", "2 hours"],
}
JSON = {  # values as they stand in JSON
    "i": ["1", "-1", "3.0", "1e3", "3.5", '"1"', "true", "2147483648", "null", "[]"],
    "n": ["9223372036854775807", "1E18", "-9223372036854775808"],
    "d": ["1", "1.5", "-1e-3", "NaN", '"NaN"', "1e400", "false"],
    "m": ["1.0005", '"1.0005"', "1e2", "1000000", '"x"'],
    "b": ["true", "false", '"true"', "1"],
    "s": ['""', '"a"', '"\\u00e9\\n"', "5", "null", '{"a": 1}'],
    "day": ['"2026-07-01"', '"2026-7-1"', "5"],
    "at": [*(json.dumps(text) for text in TEXTS["at"]), "5"],
    "span": ['"P1M2DT3.5S"', '"1 day"', '"P"', "5"],
}


def write_csv(folder: Path) -> None:
    names, lines = ["k", *TEXTS], []
    for column, texts in TEXTS.items():
        for text in texts:
            quoted = f'"{text}"' if "," in text and not text.startswith('"') else text
            lines.append(",".join([str(len(lines)), *(quoted if name == column else "" for name in names[1:])]))
    (folder / "a.csv").write_text("\n".join([",".join(names), *lines]) + "\n")


def write_json(folder: Path) -> None:
    found = [(column, value) for column, values in JSON.items() for value in values]
    lines = [f'{{"k": {k}, "{column}": {value}}}' for k, (column, value) in enumerate(found)]
    lines += ["", "nonsense", "[1]", '{"K": 900, "I": 5}', '{"k": 1, "other": 2}']
    (folder / "a.jsonl").write_text("\n".join(lines) + "\n")


def write_parquet(folder: Path) -> None:
    moments = [dt.datetime(2026, 7, 1, 10, tzinfo=dt.timezone(dt.timedelta(hours=2))), None]
    table = pa.table(
        {
            "k": pa.array([1, 2], pa.int64()),
            "i": pa.array([7, None], pa.int16()),
            "n": pa.array([2.0, None], pa.float64()),
            "d": pa.array([1, None], pa.int32()),
            "m": pa.array([5, None], pa.int64()),
            "b": [True, None],
            "s": ["", None],
            "day": pa.array([dt.date(2026, 7, 1), None]),
            "at": pa.array(moments, pa.timestamp("us", "Europe/Berlin")),
            "span": ["P1D", None],
        }
    )
    pq.write_table(table, folder / "a.parquet")


WRITERS = {"csv": write_csv, "jsonl": write_json, "parquet": write_parquet}


@pytest.fixture
def in_new_york(spark: Any) -> Iterator[None]:
    before = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", "America/New_York")
    yield
    spark.conf.set("spark.sql.session.timeZone", before)


def seen(db: Any) -> tuple[list[str], list[Any]]:
    """The rows, as texts that tell 1 from 1.0, and the lines that were refused."""
    rejects = db.query("SELECT line FROM rejects ORDER BY line").rows if "rejects" in db.tables else []
    return sorted(map(repr, db["t"].rows)), rejects


@pytest.mark.usefixtures("in_new_york")
@pytest.mark.parametrize("format", WRITERS)
def test_same_file_gives_the_same_rows_with_and_without_spark(spark: Any, tmp_path: Path, format: str) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    WRITERS[format](folder)
    with whence.open() as plain, whence.open(tmp_path / "db", spark=spark, partitions=2) as db:
        for each in (plain, db):
            each.execute(TABLE)
        plain.insert("t", next(folder.iterdir()), on_error="reject", missing="null")
        SparkFolder("t", folder, "", format).attach(db, None, 1, "reject", "null")
        db.start(trigger="availableNow").awaitTermination()
        assert seen(db) == seen(plain)
        assert len(plain["t"]) > 1
