"""The benchmark of the pipeline on Spark runs, and its peers must agree."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from benchmarks import page, spark_aggregation, spark_pipeline, spark_recursion
from benchmarks.peers.common import digest, installed
from benchmarks.peers.spark_peer import SparkPeer
from benchmarks.spark_processes import Memory, cpu_seconds, family
from benchmarks.spark_recursion import Scale
from benchmarks.transit_stub import Link, Network
from tests.depth import deep_only, some

LINKS = tuple(Link(a, (a + 1) % 3, 2) for a in range(3))


@pytest.mark.parametrize("deletes", some([True, False], 1))
def test_a_tiny_aggregation(spark: Any, tmp_path: Path, deletes: bool) -> None:
    made = spark_aggregation.write_files(tmp_path / "s", 1_200, 4, 2, 20, deletes)
    spent = spark_aggregation.run_whence(spark, made, tmp_path, 2, made.expected())
    assert spent.seconds >= spent.parts["epochs"] > spent.parts["supersteps"] > 0
    if not deletes:
        spark_aggregation.run_spark(spark, made, tmp_path, spark_aggregation.DEFAULT, made.expected())


def test_a_third_of_the_updates_are_deletions(tmp_path: Path) -> None:
    made = spark_aggregation.write_files(tmp_path / "s", 900, 6, 2, 10, deletes=True)
    ops = pq.read_table(made.folder)["op"].to_pylist()
    assert (ops.count("-"), len(ops)) == (300, 900)
    assert sum(made.expected()["n"].to_pylist()) == 300


def test_files_are_of_different_ages(tmp_path: Path) -> None:
    made = spark_aggregation.write_files(tmp_path / "s", 900, 6, 2, 10, deletes=True)
    ages = [path.stat().st_mtime_ns // 1_000_000 for path in sorted(made.folder.iterdir())]  # Spark looks at these
    assert ages == sorted(set(ages))


def test_other_rows_are_noticed() -> None:
    one = pa.table({"k": [1, 2], "n": [3, 4]})
    spark_aggregation.agree("x", one.take([1, 0]), one)
    with pytest.raises(spark_aggregation.DisagreementError, match="x has other values of n"):
        spark_aggregation.agree("x", pa.table({"k": [1, 2], "n": [3, 5]}), one)


@deep_only
def test_the_loop_by_hand_is_right(spark: Any, tmp_path: Path) -> None:
    program = "cheapest"
    net = Network(3, LINKS)
    peer = SparkPeer(program, spark)
    peer.load({"link": np.array(net.links, np.int64)})
    with spark_recursion.database(spark, tmp_path, program, 2, "inline") as db:
        db.insert("link", spark_recursion.as_arrow(net.links))
        assert peer.digest() == spark_recursion.fingerprint(db, program) != digest(np.empty((0, 2), np.int64))


def test_scale_as_a_table_and_a_plot(tmp_path: Path) -> None:
    lines = [
        Scale("reachable", "broadcast", n, kind, 1.0, 2.0, 3e3, 0.004) for n in (1, 2) for kind in ("load", "deletion")
    ]
    table = page.scale([vars(line) for line in lines])
    assert table.splitlines()[-1] == "| reachable | broadcast | 2 | 1 | 2 | 3.0 | 4.00 | 1 | 2 | 3.0 | 4.00 |"
    if installed("matplotlib"):
        spark_pipeline.plot_scale(tmp_path / "scale.png", lines)
        assert (tmp_path / "scale.png").exists()


def test_processes_are_seen() -> None:
    before = family()
    with Memory():
        sum(range(1_000_000))
    assert cpu_seconds(before, family()) >= 0
