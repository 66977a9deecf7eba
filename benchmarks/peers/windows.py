"""The peers of `window_peers`: an average of the last rows, or of the last stretch of time, over (time, value).

All of them give (window, mean) for the windows that are full, as Arrow, in the order of the windows; a window is
known by its first row, or its first unit of time, counted from 0. Whence and Pathway follow a stream; polars and
DuckDB have all rows at once and say the query once, which is the best that recomputing can be.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa


class DisagreementError(Exception):
    """A peer gives other windows, or other means."""


@dataclass(frozen=True)
class Windows:
    """The last `size` rows, every `every`."""

    size: int = 100
    every: int = 10

    def count(self, rows: int) -> int:
        """How many are full after so many rows."""
        return max(rows - self.size, -self.every) // self.every + 1


Measured = tuple[float, pa.Table]  # seconds, and what came


def table(starts: object, means: object) -> pa.Table:
    return pa.table({"start": pa.array(starts, pa.int64()), "mean": pa.array(means, pa.float64())})


def rows(count: int, seed: int = 0) -> pa.Table:
    """(time, value): the time is the row's number, values are whole numbers."""
    rng = np.random.default_rng(seed)
    return pa.table({"time": np.arange(count), "value": rng.integers(0, 1000, count)})


def expected(data: pa.Table, windows: Windows) -> pa.Table:
    """By running sums."""
    sums = np.concatenate(([0], np.cumsum(data["value"].to_numpy())))
    starts = np.arange(windows.count(len(data))) * windows.every
    return table(starts, (sums[starts + windows.size] - sums[starts]) / windows.size)


def whence_script(windows: Windows, options: str = "provenance = 'none'") -> str:
    return f"""
        CREATE STREAM reading (time BIGINT NOT NULL, value BIGINT NOT NULL);
        CREATE VIEW average WITH ({options}, retain = 'all') AS
          SELECT MIN(time) AS start, AVG(value) AS mean
          FROM slide(reading, rows => {windows.size}, every => {windows.every});
    """


def whence(data: pa.Table, windows: Windows, batch: int, options: str = "provenance = 'none'") -> Measured:
    """Batches of Arrow into a stream; from the first until the view has all of it."""
    import whence as engine

    with engine.open() as db:
        db.execute(whence_script(windows, options))
        every = [data.slice(start, batch) for start in range(0, len(data), batch)]
        started = time.perf_counter()
        for one in every:
            db.insert("reading", one)
        seconds = time.perf_counter() - started
        return seconds, db["average"].to_arrow()


def polars(data: pa.Table, windows: Windows) -> Measured:
    """`group_by_dynamic` over the row's number."""
    import polars as pl

    frame = pl.from_arrow(data)
    assert isinstance(frame, pl.DataFrame)
    started = time.perf_counter()
    found = (
        frame.lazy()
        .set_sorted("time")
        .group_by_dynamic("time", every=f"{windows.every}i", period=f"{windows.size}i", start_by="datapoint")
        .agg(pl.col("value").mean().alias("mean"), pl.len().alias("rows"))
        .filter(pl.col("rows") == windows.size)
        .collect()
    )
    seconds = time.perf_counter() - started
    return seconds, table(found["time"].to_arrow(), found["mean"].to_arrow())


def polars_rolling(data: pa.Table, windows: Windows) -> Measured:
    """`rolling_mean` of every row, and every tenth of those."""
    import polars as pl

    frame = pl.from_arrow(data)
    assert isinstance(frame, pl.DataFrame)
    started = time.perf_counter()
    means = frame["value"].rolling_mean(windows.size).gather_every(windows.every, windows.size - 1)
    starts = frame["time"].gather_every(windows.every)[: len(means)]
    seconds = time.perf_counter() - started
    return seconds, table(starts.to_arrow(), means.to_arrow())


def duckdb(data: pa.Table, windows: Windows) -> Measured:
    """AVG OVER the rows before, of every tenth row."""
    import duckdb as engine

    with engine.connect() as connection:
        started = time.perf_counter()
        connection.register("reading", data)
        frame = f"ORDER BY time ROWS BETWEEN {windows.size - 1} PRECEDING AND CURRENT ROW"
        query = f"""
            SELECT time - {windows.size - 1} AS start, mean FROM (
              SELECT time, AVG(value) OVER ({frame}) AS mean, ROW_NUMBER() OVER (ORDER BY time) AS row FROM reading)
            WHERE row >= {windows.size} AND (row - {windows.size}) % {windows.every} = 0 ORDER BY time"""
        found = connection.sql(query).to_arrow_table()
        seconds = time.perf_counter() - started
    return seconds, table(found["start"].combine_chunks(), found["mean"].combine_chunks())


def pathway(data: pa.Table, windows: Windows) -> Measured:
    """`windowby` with a sliding window over the row's number, read from a CSV file; in a process of its own.

    Timed there, from the start of `pw.run()` to its end: what is read is read by Pathway's own reader, in one batch.
    """
    import pyarrow.csv as csv

    with tempfile.TemporaryDirectory() as folder:
        csv.write_csv(data, Path(folder) / "rows.csv")
        script = _PATHWAY.format(folder=folder, size=windows.size, every=windows.every)
        done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
        if done.returncode:
            raise RuntimeError(f"the Pathway process failed:\n{done.stderr[-2000:]}")
        seconds, found = json.loads(done.stdout.strip().splitlines()[-1])
    found.sort()
    return float(seconds), table([start for start, _ in found], [mean for _, mean in found])


_PATHWAY = """
import json, logging, time
logging.disable(logging.CRITICAL)
import pathway as pw

class Row(pw.Schema):
    time: int
    value: int

found = []
readings = pw.io.csv.read({folder!r} + "/rows.csv", schema=Row, mode="static")
sliding = readings.windowby(readings.time, window=pw.temporal.sliding(hop={every}, duration={size}))
means = sliding.reduce(
    start=pw.this._pw_window_start, mean=pw.reducers.avg(pw.this.value), rows=pw.reducers.count()
)
pw.io.subscribe(
    means.filter(pw.this.rows == {size}), lambda key, row, time, is_addition: found.append((row["start"], row["mean"]))
)
started = time.perf_counter()
pw.run(monitoring_level=pw.MonitoringLevel.NONE, default_logging=False)
print(json.dumps([time.perf_counter() - started, found]))
"""


def agree(name: str, found: pa.Table, wanted: pa.Table) -> None:
    """The same windows with the same means."""
    same = len(found) == len(wanted) and all(
        np.allclose(found[column].to_numpy(), wanted[column].to_numpy()) for column in ("start", "mean")
    )
    if not same:
        raise DisagreementError(f"{name} has {len(found)} windows, {len(wanted)} were expected; or other means")
