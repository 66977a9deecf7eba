"""From a file that a stream finds to what it brings: an epoch of Whence beside an empty `foreachBatch`.

Both read files of so many rows from a folder of their own, one at a time, and take turns. Spark's stream has a batch
function that does nothing, so its time is what a micro-batch costs whoever takes it: finding the file, planning, the
two writes of the checkpoint. Whence's is done when the epoch is in the log, synced.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import whence
from benchmarks.report import WHENCE, Check, Figure

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

EMPTY = "empty foreachBatch"
_PATIENCE = 60.0  # seconds
_TARGET = 150.0  # ms above it
_WARM = 3  # files first, of either
_ROUNDS = 2
_PAUSE = 0.3  # seconds after each file: for Spark to write that the batch is done
_SCHEMA = "k BIGINT, v BIGINT"


class _Feed:
    """A folder that a stream reads; files appear in it whole."""

    def __init__(self, folder: Path, rows: int) -> None:
        self.source, self._unseen, self._rows = folder / "source", folder / "unseen", rows
        self.source.mkdir(parents=True)
        self._unseen.mkdir()
        self._rng, self._count = np.random.default_rng(rows), 0

    def put(self) -> float:
        """Let the next file appear; return when it did."""
        name = f"{self._count:05d}.parquet"
        self._count += 1
        columns = {"k": self._rng.integers(0, 1000, self._rows), "v": self._rng.integers(0, 1000, self._rows)}
        pq.write_table(pa.table(columns), self._unseen / name)
        start = time.perf_counter()
        (self._unseen / name).rename(self.source / name)
        return start


def _waited(start: float, done: Callable[[], bool], query: Any) -> float:
    """Wait; return the ms since a moment."""
    while not done():
        if time.perf_counter() - start > _PATIENCE or not query.isActive:
            raise TimeoutError(f"a file was not taken in: {query.exception()}")
        time.sleep(0.0005)
    return 1e3 * (time.perf_counter() - start)


def _whence(db: Any, feed: _Feed, files: int) -> list[float]:
    with db.start() as running:
        found = []
        for _ in range(files + _WARM):
            before = db.epoch
            found.append(_waited(feed.put(), lambda e=before: db.epoch > e, running))  # type: ignore[misc]
            time.sleep(_PAUSE)
        running.processAllAvailable()
    return found[_WARM:]


def _empty(spark: SparkSession, feed: _Feed, checkpoint: Path, files: int) -> list[float]:
    batches: list[int] = []
    frame = spark.readStream.schema(_SCHEMA).parquet(str(feed.source))
    writer = frame.writeStream.foreachBatch(lambda frame, number: batches.append(number))
    query = writer.option("checkpointLocation", str(checkpoint)).start()
    found = []
    for _ in range(files + _WARM):
        before = len(batches)
        found.append(_waited(feed.put(), lambda n=before: len(batches) > n, query))  # type: ignore[misc]
        time.sleep(_PAUSE)
    query.processAllAvailable()
    query.stop()
    return found[_WARM:]


def run(spark: SparkSession, folder: Path, *, rows: int, files: int) -> tuple[list[Figure], list[Check]]:
    """Both medians, and what is promised of their difference."""
    figure = Figure(f"a file of {rows} rows through a stream", "ms", {WHENCE: [], EMPTY: []})
    with tempfile.TemporaryDirectory(dir=folder, ignore_cleanup_errors=True) as made:
        ours, theirs = _Feed(Path(made) / "ours", rows), _Feed(Path(made) / "theirs", rows)
        db = whence.open(Path(made) / "db", spark=spark)
        try:
            db.execute("""CREATE TABLE updates (k BIGINT, v BIGINT);
                CREATE VIEW totals AS SELECT k, COUNT(*) AS n, SUM(v) AS total FROM updates GROUP BY k""")
            db.attach("updates", spark.readStream.schema(_SCHEMA).parquet(str(ours.source)))
            for _ in range(_ROUNDS):
                # One at a time: a stream that looks for files all the while takes time from the other.
                figure.samples[WHENCE] += _whence(db, ours, files // _ROUNDS)
                figure.samples[EMPTY] += _empty(spark, theirs, Path(made) / "checkpoint", files // _ROUNDS)
        finally:
            db.close()
    above = figure.of(WHENCE) - figure.of(EMPTY)
    return [figure], [Check(f"latency: ms above an {EMPTY}", above, _TARGET, at_least=False)]
