"""A keyed aggregate over a large DataFrame: a view that is filled, beside Spark's batch GROUP BY written to Parquet.

All keys are distinct, which is the hardest for both: nothing is combined before rows are moved, and as many groups are
written as rows were read. Whence keeps the table, the view and their log, so that the next change costs what it
touches; Spark writes the result and forgets. Both read the same Parquet files on the same cores. The counts and sums of
all groups are compared with DuckDB's.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import whence
from benchmarks.report import WHENCE, Check, Figure
from benchmarks.spark_aggregation import DisagreementError
from benchmarks.spark_recursion import timed

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SPARK = "Spark, batch to Parquet"
KEYS = ("BIGINT", "TEXT")
_VIEW = "SELECT k, COUNT(*) AS n, SUM(v) AS total FROM updates GROUP BY k"
_TARGET = 0.7


def write_rows(folder: Path, rows: int, files: int, key: str) -> None:
    """Write Parquet files of (k, v), whose keys are all distinct and in no order."""
    folder.mkdir(parents=True)
    rng = np.random.default_rng(rows)
    order, values = rng.permutation(rows), rng.integers(0, 1000, rows)
    for number, part in enumerate(np.array_split(np.arange(rows), files)):
        keys: pa.Array = pa.array(order[part])
        if key == "TEXT":
            keys = pa.array([f"customer {k:012d} of Springfield" for k in order[part].tolist()])
        pq.write_table(pa.table({"k": keys, "v": values[part]}), folder / f"part-{number:05d}.parquet")


def _digest(relation: str) -> tuple[Any, ...]:
    """Return what all groups add up to, whatever their order."""
    with duckdb.connect() as connection:
        query = f"SELECT COUNT(*), SUM(n), SUM(total), BIT_XOR(HASH(k::TEXT, total)) FROM {relation}"
        found = connection.execute(query).fetchone()
    assert found is not None
    return found


def run_whence(spark: SparkSession, source: Path, folder: Path, key: str, partitions: int) -> tuple[float, Any]:
    """Insert the files as one DataFrame; return the seconds, and what the groups add up to."""
    db = whence.open(folder / "db", spark=spark, partitions=partitions)
    try:
        db.execute(f"CREATE TABLE updates (k {key}, v BIGINT); CREATE VIEW totals AS {_VIEW}")
        seconds = timed(lambda: db.insert("updates", spark.read.parquet(str(source))))
        db["totals"].to_spark().write.parquet(str(folder / "out"))
        return seconds, _digest(f"read_parquet('{folder}/out/*.parquet')")
    finally:
        db.close()


def run_spark(spark: SparkSession, source: Path, folder: Path) -> tuple[float, Any]:
    """Group and write."""

    def work() -> None:
        spark.read.parquet(str(source)).createOrReplaceTempView("updates")
        spark.sql(_VIEW).write.parquet(str(folder / "out"))

    return timed(work), _digest(f"read_parquet('{folder}/out/*.parquet')")


def run(spark: SparkSession, folder: Path, *, rows: int, files: int, rounds: int) -> tuple[list[Figure], list[Check]]:
    """Figures of both kinds of key, and what is promised."""
    figures, checks = [], []
    partitions = spark.sparkContext.defaultParallelism
    for key in KEYS:
        source = folder / f"backfill-{key}"
        write_rows(source, rows, files, key)
        read = f"read_parquet('{source}/*.parquet')"
        expected = _digest(f"({_VIEW.replace('updates', read)})")
        figure = Figure(f"{rows:,} rows, distinct {key} keys", "rows/s")
        for turn in range(rounds + 1):  # the first warms up
            runs: dict[str, Callable[[Path], tuple[float, Any]]] = {
                WHENCE: lambda path, s=source, k=key: run_whence(spark, s, path, k, partitions),  # type: ignore[misc]
                SPARK: lambda path, s=source: run_spark(spark, s, path),  # type: ignore[misc]
            }
            for name in runs if turn % 2 else reversed(runs):
                path = Path(tempfile.mkdtemp(dir=folder))
                seconds, found = runs[name](path)
                shutil.rmtree(path, ignore_errors=True)
                if found != expected:
                    raise DisagreementError(f"{name} has other groups than DuckDB: {found}, not {expected}")
                if turn:
                    figure.samples.setdefault(name, []).append(rows / seconds)
        figure.samples = {name: figure.samples[name] for name in (WHENCE, SPARK)}
        figures.append(figure)
        checks.append(Check(f"backfill, {key} keys: times {SPARK}", figure.times(WHENCE, SPARK), _TARGET))
        shutil.rmtree(source, ignore_errors=True)
    return figures, checks
