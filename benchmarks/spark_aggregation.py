"""COUNT, SUM and AVG by key over a stream of Parquet files: Whence beside Spark's own streaming aggregation.

All of them read the same files, as many in a micro-batch, with `availableNow`, on the same cores and as many
partitions, and are timed from the start of the stream to its end. Whence keeps the table, the view and a log on disk;
Spark its state store and a checkpoint there, and its sink takes no row (`noop`). With deletions a third of the updates
take away a row that came before; Spark's aggregation has no word for that, so Whence is alone.

The first round warms all up and is checked against DuckDB, Spark's too; so is what Whence has after every round.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import whence
from benchmarks.report import WHENCE, Check, Figure
from benchmarks.spark_processes import cpu_seconds, family

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

DEFAULT, ROCKSDB = "Spark, default store", "Spark, RocksDB"
STORES = {
    DEFAULT: "org.apache.spark.sql.execution.streaming.state.HDFSBackedStateStoreProvider",
    ROCKSDB: "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider",
}
PROGRAM = """
CREATE TABLE updates (k BIGINT, v BIGINT);
CREATE VIEW totals AS SELECT k, COUNT(*) AS n, SUM(v) AS total, AVG(v) AS mean FROM updates GROUP BY k;
"""
INSERTIONS, DELETIONS = "insertions", "a third deletions"


class DisagreementError(Exception):
    """Two peers have different rows."""


@dataclass(frozen=True)
class Files:
    """A stream as a folder of Parquet files of (k, v), with `op` if rows go as well."""

    folder: Path
    rows: int
    per_batch: int  # files
    deletes: bool

    @property
    def schema(self) -> str:
        return "k BIGINT, v BIGINT" + (", op STRING" if self.deletes else "")

    def stream(self, spark: SparkSession) -> DataFrame:
        reader = spark.readStream.schema(self.schema).option("maxFilesPerTrigger", str(self.per_batch))
        return reader.parquet(str(self.folder))

    def expected(self) -> pa.Table:
        """What the view must hold, by DuckDB."""
        sign = "CASE op WHEN '-' THEN -1 ELSE 1 END" if self.deletes else "1"
        query = f"""
            WITH counted AS (SELECT k, v, {sign} AS sign FROM read_parquet('{self.folder}/*.parquet'))
            SELECT k, SUM(sign)::BIGINT AS n, SUM(v * sign)::BIGINT AS total, SUM(v * sign) / SUM(sign) AS mean
            FROM counted GROUP BY k HAVING SUM(sign) > 0 ORDER BY k"""
        return _answer(query)


def _answer(query: str) -> pa.Table:
    with duckdb.connect() as connection:
        found = connection.sql(query)
        assert found is not None  # as it is for statements that give no rows
        return found.to_arrow_table()


def write_files(folder: Path, rows: int, files: int, per_batch: int, keys: int, deletes: bool = False) -> Files:
    """Make a stream.

    What a file deletes came in the batch before, or in the first batch earlier in the same file: Spark promises no
    order between the files of a batch.
    """
    folder.mkdir(parents=True)
    rng, each = np.random.default_rng(rows + deletes), rows // files
    earlier: list[Any] = [np.empty((0, 2), np.int64)] * files
    for number in range(files):
        going = each // 3 if deletes else 0
        coming = np.column_stack([rng.integers(0, keys, each - going), rng.integers(0, 1000, each - going)])
        first = number < per_batch
        source = coming if first else earlier[number - per_batch]
        chosen = rng.permutation(len(source))
        leaving = source[chosen[:going]]
        earlier[number] = coming[chosen[going:]] if first else coming
        both = np.concatenate([coming, leaving])
        ops = np.repeat(["+", "-"], [len(coming), len(leaving)])
        if not first:
            order = rng.permutation(len(both))
            both, ops = both[order], ops[order]
        table = pa.table({"k": both[:, 0], "v": both[:, 1], **({"op": pa.array(ops)} if deletes else {})})
        path = folder / f"part-{number:05d}.parquet"
        pq.write_table(table, path)
        os.utime(path, (number, 1_000_000_000 + number))  # Spark takes files by age, and a disk may write many at once
    return Files(folder, each * files, per_batch, deletes)


@dataclass
class Spent:
    """What one run took: in all, on the CPUs, and where Whence's time went."""

    seconds: float
    cpu: float
    parts: Mapping[str, float] = field(default_factory=dict)


@contextmanager
def _scratch(folder: Path) -> Iterator[Path]:
    path = Path(tempfile.mkdtemp(dir=folder))
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


def _timed(run: Callable[[], object]) -> Spent:
    before, start = family(), time.perf_counter()
    run()
    seconds = time.perf_counter() - start
    return Spent(seconds, cpu_seconds(before, family()))


def run_whence(spark: SparkSession, files: Files, folder: Path, partitions: int, expected: pa.Table) -> Spent:
    """One run of Whence, and the comparison of what it has."""
    with _scratch(folder) as path:
        db = whence.open(path / "db", spark=spark, partitions=partitions)
        try:
            db.execute(PROGRAM)
            db.attach("updates", files.stream(spark), op="op" if files.deletes else None)

            def run() -> None:
                running.append(db.start(trigger="availableNow"))
                running[0].awaitTermination()

            running: list[Any] = []
            spent = _timed(run)
            batches = running[0].recentProgress
            epochs = sum(batch["seconds"] for batch in batches)  # routing included
            engine = float(db.metrics()["runs"]["seconds"])
            spent.parts = {"epochs": epochs, "supersteps": engine, "around": spent.seconds - epochs}
            agree(WHENCE, db["totals"].to_arrow(), expected)
        finally:
            db.close()
    return spent


def run_spark(spark: SparkSession, files: Files, folder: Path, store: str, expected: pa.Table | None = None) -> Spent:
    """One run of Spark's own aggregation; with something expected, to a sink that is then compared."""
    from pyspark.sql import functions

    with _scratch(folder) as path:
        spark.conf.set("spark.sql.streaming.stateStore.providerClass", STORES[store])
        aggregates = [functions.count("*").alias("n"), functions.sum("v").alias("total")]
        frame = files.stream(spark).groupBy("k").agg(*aggregates, functions.avg("v").alias("mean"))
        writer = frame.writeStream.outputMode("update").option("checkpointLocation", str(path / "checkpoint"))
        if expected is None:
            writer = writer.format("noop")
        else:
            writer = writer.foreachBatch(
                lambda batch, number: batch.write.mode("overwrite").parquet(str(path / f"out/{number:05d}"))
            )
        spent = _timed(lambda: writer.trigger(availableNow=True).start().awaitTermination())
        if expected is not None:
            last = f"""
                SELECT k, n, total, mean FROM read_parquet('{path}/out/*/*.parquet', filename = true)
                QUALIFY ROW_NUMBER() OVER (PARTITION BY k ORDER BY filename DESC) = 1"""
            agree(store, _answer(last), expected)
    return spent


def agree(name: str, found: pa.Table, expected: pa.Table) -> None:
    """The same rows, whatever their order."""
    found = found.select(expected.column_names).sort_by("k")
    for column in expected.column_names:
        same = len(found) == len(expected) and np.array_equal(
            found[column].to_numpy().astype(np.float64), expected[column].to_numpy().astype(np.float64)
        )
        if not same:
            raise DisagreementError(f"{name} has other values of {column} than DuckDB")


def run(
    spark: SparkSession, folder: Path, *, rows: int, files: int, per_batch: int, keys: int, rounds: int
) -> tuple[list[Figure], list[Check], dict[str, Any]]:
    """All figures, what is promised, and where Whence's time went."""
    partitions = spark.sparkContext.defaultParallelism
    streams = {
        what: write_files(folder / f"stream-{int(deletes)}", rows, files, per_batch, keys, deletes)
        for what, deletes in ((INSERTIONS, False), (DELETIONS, True))
    }
    rate = {what: Figure(f"{stream.rows:,} updates, {what}", "rows/s") for what, stream in streams.items()}
    cpu = {what: Figure(figure.what, "CPU s per million rows") for what, figure in rate.items()}
    where: dict[str, list[Mapping[str, float]]] = {what: [] for what in streams}
    expected = {what: stream.expected() for what, stream in streams.items()}
    for turn in range(rounds + 1):
        for what, stream in streams.items():
            runs: dict[str, Callable[[], Spent]] = {
                WHENCE: lambda s=stream, w=what: run_whence(spark, s, folder, partitions, expected[w])  # type: ignore[misc]
            }
            if what == INSERTIONS:
                for store in STORES:
                    seen = None if turn else expected[what]
                    runs[store] = lambda n=store, s=stream, e=seen: run_spark(spark, s, folder, n, e)  # type: ignore[misc]
            for name in runs if turn % 2 else reversed(runs):
                spent = runs[name]()
                if turn:
                    rate[what].samples.setdefault(name, []).append(stream.rows / spent.seconds)
                    cpu[what].samples.setdefault(name, []).append(spent.cpu / stream.rows * 1e6)
                    if spent.parts:
                        where[what].append(spent.parts)
    rate[DELETIONS].samples = {WHENCE: rate[DELETIONS].samples[WHENCE]}
    for figure in (*rate.values(), *cpu.values()):  # Whence first
        figure.samples = {WHENCE: figure.samples.pop(WHENCE), **figure.samples}
    checks = [
        Check(f"aggregation, {what}: times {store} (of insertions)", times(rate, what, store), wanted)
        for what in streams
        for store, wanted in ((DEFAULT, 0.8), (ROCKSDB, 1.0))
    ]
    return [*rate.values(), *cpu.values()], checks, {"aggregation": where}


def times(rate: Mapping[str, Figure], what: str, store: str) -> float:
    theirs = rate[INSERTIONS].samples[store]
    return Figure("", "", {WHENCE: rate[what].samples[WHENCE], store: theirs}).times(WHENCE, store)
