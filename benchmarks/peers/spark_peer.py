"""The fixpoint that a PySpark user writes by hand: DataFrame joins in a loop until nothing is new.

Written as well as we can: semi-naive (only the rows of the last round are joined), the links broadcast, every round's
rows made and cut off from their history by `localCheckpoint`, as many shuffle partitions as there are cores. After an
update all of it runs again, since DataFrames do not know what changed.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from benchmarks.peers.common import Change, Digest, Rows, as_rows, digest

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


class SparkPeer:
    """Recomputes reachable or cheapest after every batch."""

    name = "DataFrames by hand"

    def __init__(self, program: str, spark: SparkSession) -> None:
        self._spark = spark
        self._make = {"reachable": self._reachable, "cheapest": self._cheapest}[program]
        self._links = np.empty((0, 3), np.int64)
        self._answer: DataFrame | None = None
        self.rounds = 0

    def load(self, tables: dict[str, Rows]) -> float:
        """Time the first computation."""
        return self.update([Change("link", +1, tables["link"])])

    def update(self, batch: Sequence[Change]) -> float:
        """Time the computation with changed links."""
        for change in batch:
            if change.sign > 0:
                self._links = np.concatenate([self._links, change.rows])
            else:
                gone = {tuple(row) for row in change.rows.tolist()}
                self._links = np.array([row for row in self._links.tolist() if tuple(row) not in gone], np.int64)
        started = time.perf_counter()
        links = self._spark.createDataFrame(self._links.tolist(), "src BIGINT, dst BIGINT, cost BIGINT").cache()
        self.rounds = 0
        self._answer = self._make(links)
        seconds = time.perf_counter() - started
        links.unpersist()
        return seconds

    def _reachable(self, links: DataFrame) -> DataFrame:
        from pyspark.sql import functions as f

        steps = f.broadcast(links.select("src", f.col("dst").alias("via")))
        known = links.select("src", "dst").distinct().localCheckpoint()
        fresh = known
        while True:
            self.rounds += 1
            found = steps.join(fresh.withColumnRenamed("src", "via"), "via").select("src", "dst").distinct()
            fresh = found.join(known, ["src", "dst"], "left_anti").localCheckpoint()
            if fresh.isEmpty():
                return known
            known = known.union(fresh).localCheckpoint()

    def _cheapest(self, links: DataFrame) -> DataFrame:
        from pyspark.sql import functions as f

        steps = f.broadcast(links.select("src", f.col("dst").alias("via"), f.col("cost").alias("step")))
        best = links.groupBy("src", "dst").agg(f.min("cost").alias("cost")).localCheckpoint()
        fresh = best
        while True:
            self.rounds += 1
            longer = steps.join(fresh.withColumnRenamed("src", "via"), "via")
            found = longer.groupBy("src", "dst").agg(f.min(f.col("step") + f.col("cost")).alias("cost"))
            had = best.withColumnRenamed("cost", "had")
            better = found.join(had, ["src", "dst"], "left").where("had IS NULL OR cost < had")
            fresh = better.select("src", "dst", "cost").localCheckpoint()
            if fresh.isEmpty():
                return best
            best = best.union(fresh).groupBy("src", "dst").agg(f.min("cost").alias("cost")).localCheckpoint()

    def digest(self) -> Digest:
        """Fingerprint the rows."""
        return digest(self.rows())

    def rows(self) -> Rows:
        """The last answer."""
        assert self._answer is not None
        return as_rows([column.to_numpy() for column in self._answer.toArrow().columns])

    def close(self) -> None:
        """Nothing is held but what Spark lets go of by itself."""
        self._answer = None
