"""The benchmark of what those who outgrow one machine do runs, and its model adds up."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from benchmarks import page, spark_backfill, spark_latency, spark_simulation
from benchmarks.peers.common import installed
from benchmarks.report import WHENCE
from benchmarks.spark_simulation import Load, Trace
from tests.depth import deep_only

COSTS = {"job": 1.0, "step": 0.1, "row": 0.01, "frame": 0.001, "byte": 0.0001}


def test_slowest_executor_of_each_superstep_counts() -> None:
    trace = Trace([{0: Load(rows=10), 1: Load(rows=20, frames=2, bytes=100)}, {0: Load(rows=5)}])
    seconds, waiting = spark_simulation.predict(trace, COSTS)
    assert waiting == pytest.approx(1.0 + (0.1 + 0.002 + 0.01) + 0.1)
    assert seconds == pytest.approx(waiting + 0.2 + 0.05)
    assert trace.rows(3) == [15, 20, 0]


def test_costs_are_fitted_to_what_partitions_took() -> None:
    loads = [Load(rows=1, seconds=0.5), Load(rows=2000, seconds=20.5), Load(rows=8000, seconds=80.5)]
    step, row = spark_simulation.fit([Trace([dict(enumerate(loads))])])
    assert (step, row) == pytest.approx((0.5, 0.01))


def test_heavy_keys_are_spread_in_the_simulation() -> None:
    busiest = {}
    for divides in (False, True):
        ((_, trace, last),) = spark_simulation._zipf(2000, divides)(8)
        busiest[divides] = max(trace.rows(8)) * 8 / sum(trace.rows(8))
        assert last["supersteps"] == len(trace.supersteps)
        assert sum(load.frames for step in trace.supersteps for load in step.values()) == 2 * last["messages"]
    assert busiest[True] < 0.7 * busiest[False]


def test_predictions_as_a_table_and_a_plot(tmp_path: Path) -> None:
    line = spark_simulation.Prediction("q3", "load", 4, 3, 15, 2500, 100, 1.25, 0.4, 0.1)
    table = page.executors([vars(line)])
    assert table.splitlines()[-1] == "| q3 | load | 4 | 3 | 15 | 2 | 1.25 | 400 | 25 |"
    if installed("matplotlib"):
        spark_simulation.plot(tmp_path / "executors.png", [line])
        assert (tmp_path / "executors.png").exists()


@deep_only
def test_backfill_and_latency_run(spark: Any, tmp_path: Path) -> None:
    figures, _ = spark_backfill.run(spark, tmp_path, rows=500, files=2, rounds=1)
    assert all(len(figure.samples[WHENCE]) == 1 for figure in figures)
    figures, _ = spark_latency.run(spark, tmp_path, rows=10, files=2)
    assert len(figures[0].samples[WHENCE]) == 2
