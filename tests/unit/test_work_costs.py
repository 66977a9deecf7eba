"""Costs of work: measured, stored and read again, and used by the optimizers."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import pytest

from whence.engine.core import machine_costs as stored
from whence.engine.work_calibration import calibrate_work, measure_costs
from whence.plan.algebra.work_costs import DEFAULTS, WorkCosts
from whence.plan.optimizer.cost import CostModel


def test_all_costs_are_measured_as_positive_integers() -> None:
    found = measure_costs(rows=2_000, rounds=2)
    assert all(isinstance(cost, int) and cost > 0 for cost in asdict(found).values())
    assert found.superstep == DEFAULTS.superstep, "which takes partitions"


def test_costs_are_stored_once_and_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "work_costs.now.json"
    monkeypatch.setattr(stored, "stored_file", lambda: path)
    monkeypatch.setattr("whence.engine.work_calibration.stored_file", lambda: path)
    stored.machine_costs.cache_clear()
    try:
        assert stored.machine_costs() == DEFAULTS
        (tmp_path / "work_costs.before.json").write_text("{}")
        stored.store_costs(WorkCosts(probe=7))
        assert stored.machine_costs() == WorkCosts(probe=7)
        assert [p.name for p in tmp_path.iterdir()] == [path.name]
        calibrate_work()
        assert stored.machine_costs() == WorkCosts(probe=7), "what is there is not measured again"
        path.write_text("not JSON")
        stored.machine_costs.cache_clear()
        assert stored.machine_costs() == DEFAULTS
    finally:
        stored.machine_costs.cache_clear()


def test_optimizers_take_the_costs_of_the_machine() -> None:
    model = CostModel.of_work(WorkCosts(probe=20_000, match=5_000, upkeep=30_000))
    assert (model.probe, model.match, model.build) == (2_000, 500, 3_000)
