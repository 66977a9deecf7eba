"""Windows on Spark: Whence's stream in partitions beside Spark's own window aggregation, where that can say the query.

| query | Spark |
|---|---|
| the last 100 rows, every 10 | streams have no such windows: its window function over all rows at once |
| the last 100 seconds, every 10 | `window(at, '100 seconds', '10 seconds')` over the stream, in append mode |

Both read the same Parquet files, one in a micro-batch (the order of a stream is the order of its files, and Spark
promises none within a batch), with `availableNow`, and are timed from the start of the stream to its end. Whence
keeps the stream, the view and a log on disk, Spark its state store and a checkpoint; its sink takes no row (`noop`).
The first round warms both up, and what Whence has is compared after every round.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

import whence
from benchmarks.peers.windows import Windows, agree, expected
from benchmarks.report import WHENCE, Check, Figure

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROWS, SECONDS = "the last 100 rows, every 10", "the last 100 seconds, every 10"
FUNCTION, STREAMING = "Spark, window function over all rows", "Spark, streaming"
SCHEMA = "time BIGINT, value BIGINT, at TIMESTAMP"


def write_files(folder: Path, data: pa.Table, files: int) -> None:
    """The rows in files, with a TIMESTAMP that is their number in seconds.

    Spark takes files in the order of their times of modification, so these are a second apart.
    """
    folder.mkdir(parents=True)
    at = pa.array(data["time"].to_numpy() * 1_000_000, pa.timestamp("us", tz="UTC"))
    whole = data.append_column("at", at)
    each = -(-len(data) // files)
    for number in range(files):
        path = folder / f"part-{number:05d}.parquet"
        pq.write_table(whole.slice(number * each, each), path)
        os.utime(path, (number, 1_000_000_000 + number))


def _stream(spark: SparkSession, folder: Path) -> Any:
    return spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", "1").parquet(str(folder))


def query(what: str, windows: Windows) -> str:
    """As Whence says it."""
    if what == ROWS:
        over, start = f"rows => {windows.size}, every => {windows.every}", "MIN(time)"
        return f"SELECT {start} AS start, AVG(value) AS mean FROM slide(reading, {over})"
    over = f"on => at, width => INTERVAL '{windows.size}' SECOND, every => INTERVAL '{windows.every}' SECOND"
    return f"""SELECT MIN(time) AS start, AVG(value) AS mean, COUNT(*) AS n
               FROM slide(reading, {over}) GROUP BY window_start"""


def run_whence(spark: SparkSession, files: Path, what: str, windows: Windows, partitions: int, data: pa.Table) -> float:
    """Seconds of the stream; the windows are then compared."""
    with (
        tempfile.TemporaryDirectory(dir=files.parent, ignore_cleanup_errors=True) as folder,
        closing(whence.open(Path(folder) / "db", spark=spark, partitions=partitions)) as db,
    ):
        db.execute("CREATE STREAM reading (time BIGINT, value BIGINT, at TIMESTAMP)")
        db.execute(f"CREATE VIEW average WITH (retain = 'all') AS {query(what, windows)}")
        db.attach("reading", _stream(spark, files))
        start = time.perf_counter()
        db.start(trigger="availableNow").awaitTermination()
        seconds = time.perf_counter() - start
        check(db["average"].to_arrow(), data, windows)
    return seconds


def check(found: pa.Table, data: pa.Table, windows: Windows) -> None:
    """All full windows have their mean; no row has come yet that closes the last window of time."""
    wanted = expected(data, windows)
    if "n" in found.column_names:
        found, wanted = found.filter(pc.equal(found["n"], windows.size)), wanted.slice(0, len(wanted) - 1)
    agree(WHENCE, found.sort_by("start"), wanted)


def run_function(spark: SparkSession, files: Path, windows: Windows) -> float:
    """Spark's window function over all rows at once."""
    from pyspark.sql import Window, functions

    start = time.perf_counter()
    order = Window.orderBy("time")
    frame = spark.read.schema(SCHEMA).parquet(str(files))
    mean = functions.avg("value").over(order.rowsBetween(1 - windows.size, 0))
    numbered = frame.select("time", mean.alias("mean"), functions.row_number().over(order).alias("row"))
    full = numbered.filter(f"row >= {windows.size} AND (row - {windows.size}) % {windows.every} = 0")
    full.write.format("noop").mode("overwrite").save()
    return time.perf_counter() - start


def run_streaming(spark: SparkSession, files: Path, windows: Windows) -> float:
    """Spark's windows of time over the stream."""
    from pyspark.sql import functions

    with tempfile.TemporaryDirectory(dir=files.parent, ignore_cleanup_errors=True) as folder:
        window = functions.window("at", f"{windows.size} seconds", f"{windows.every} seconds")
        frame = _stream(spark, files).withWatermark("at", "0 seconds").groupBy(window)
        writer = frame.agg(functions.avg("value")).writeStream.outputMode("append").format("noop")
        start = time.perf_counter()
        writer.option("checkpointLocation", folder).trigger(availableNow=True).start().awaitTermination()
        return time.perf_counter() - start


def run(
    spark: SparkSession, folder: Path, data: pa.Table, windows: Windows, files: int, rounds: int
) -> tuple[list[Figure], list[Check]]:
    """Rows a second of all, and what is promised."""
    place = folder / "rows"
    write_files(place, data, files)
    partitions = spark.sparkContext.defaultParallelism
    figures = {what: Figure(f"{what}, {len(data):,} rows, local[2]", "rows/s") for what in (ROWS, SECONDS)}
    peers: dict[str, tuple[str, Callable[[], float]]] = {
        ROWS: (FUNCTION, lambda: run_function(spark, place, windows)),
        SECONDS: (STREAMING, lambda: run_streaming(spark, place, windows)),
    }
    for turn in range(rounds + 1):
        for what, (peer, theirs) in peers.items():
            taken = {WHENCE: run_whence(spark, place, what, windows, partitions, data), peer: theirs()}
            if turn:  # the first warms up
                for name, seconds in taken.items():
                    figures[what].samples.setdefault(name, []).append(len(data) / seconds)
    best = max(figures[ROWS].samples[WHENCE])
    checks = [Check(f"on Spark, {ROWS}: rows per second end to end, best", best, 300_000)]
    return list(figures.values()), checks
