"""Routing: the plan that is chosen costs least by the formulas, and statistics follow the subscriptions."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from benchmarks.subscriptions_scale import Workload, event_inputs, operator
from tests.depth import seeds
from whence.engine import calibration
from whence.engine.calibration import Measured, fit
from whence.engine.matching import match_cost
from whence.engine.matching.kernels import pairs
from whence.engine.matching.kernels.routing import MARGIN
from whence.engine.matching.match_cost import PLANS, MatchShape, cost_lines, describe_plans, terms


@pytest.mark.parametrize("seed", seeds(5))
def test_events_take_the_plan_that_costs_least(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(seed)
    found = {p: tuple(rng.random(len(c)) * 100) for p, c in match_cost.DEFAULTS.items()}
    monkeypatch.setattr(match_cost, "ROUTED_FROM", 1)
    monkeypatch.setattr(match_cost, "coefficients", lambda: found)
    load = Workload(2_000, 10.0, rows=1_000, keys=60, groups=5, seed=seed)
    made, events = operator(load.data(), load.parameters()), load.events(100)
    side, other = made.sides
    points, keys, leads = event_inputs(side, events)
    plans = np.full(len(events), pairs.ROUTED, np.int64)
    side.affected(other, points, keys, leads, plans)
    joined = np.array([(other.rows.head(-1)[0][:, 0] == k).sum() for k in keys[:, 0]], float)
    assert ((plans == pairs.ROUTED) == (joined == 0)).all()
    shape, stabbed = side.router.shape(len(other.rows)), side.router.estimate(points)
    costs = np.column_stack([terms(p, shape, joined, stabbed) @ np.array(found[p]) for p in PLANS])
    routed = plans != pairs.ROUTED
    costs[:, pairs.HOTSPOT] *= MARGIN
    chosen = costs[routed, plans[routed]]
    assert (chosen <= 1.1 * costs[routed].min(axis=1)).all()  # rows of several leaves are counted about
    assert side.router.used.tolist() == np.bincount(plans, minlength=5).tolist()


def test_cost_lines_are_the_formulas() -> None:
    shape = MatchShape(1000, 500, 40.0, 100)
    rng = np.random.default_rng(1)
    joined, stabbed = rng.integers(1, 50, 9).astype(float), rng.random(9) * 500
    found = {p: tuple(rng.random(len(c))) for p, c in match_cost.DEFAULTS.items()}
    lines, log = cost_lines(found, shape), np.log2(1 + joined)
    for plan in PLANS:
        fixed, row, each, pair, _ = lines[plan]
        wanted = terms(plan, shape, joined, stabbed) @ np.array(found[plan])
        assert fixed + row * joined + each * log + pair * stabbed * log == pytest.approx(wanted)


def test_estimates_follow_subscriptions_that_come_and_go(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(match_cost, "ROUTED_FROM", 1)
    load = Workload(4_000, 400.0, rows=100, keys=10, groups=5)
    given = load.parameters()
    made, events = operator(load.data(), given[:2_000]), load.events(200)
    side, other = made.sides
    points, keys, leads = event_inputs(side, events)
    first = 0
    for last in (2_000, 2_300, 4_000):  # histograms are made, count a few, and are made anew for many
        made.change(given[first : first + 100], given[2_000:last] if last == 2_300 else given[2_300:last])
        first += 100
        side.affected(other, points, keys, leads)
        there = given[first:last]
        truth = ((there[:, 1] <= points) & (there[:, 2] >= points)).sum(axis=1)
        assert np.abs(side.router.estimate(points) - truth).mean() < 0.2 * truth.mean()


def test_fit_finds_the_coefficients_of_measured_batches() -> None:
    rng = np.random.default_rng(2)
    lines, affected = rng.random((200, 3)) * (10, 100, 1000), rng.random(200) * 50
    lines[:20] = 0  # events that join no row say nothing
    spent = lines @ (7.0, 0.0, 2.0) + 12 * affected + rng.normal(0, 5, 200) + np.where(lines.any(axis=1), 0, 1e6)
    found = fit(Measured(lines, affected, spent))
    for value, margin, wanted in zip(found.values, found.margins, (7.0, 0.0, 2.0), strict=True):
        assert abs(value - wanted) <= max(2 * margin, 0.05)
        assert margin < 1


def test_machine_is_measured_once_and_its_coefficients_are_used(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    path = tmp_path / "match_cost.x.json"
    (tmp_path / "match_cost.old.json").write_text("{}")
    for module in (match_cost, calibration):
        monkeypatch.setattr(module, "stored_file", lambda: path)
    monkeypatch.setattr(calibration.workloads, "__defaults__", ((2_000,), 0))
    match_cost.coefficients.cache_clear()
    try:
        calibration.calibrate()
        assert [file.name for file in tmp_path.iterdir()] == [path.name]
        found = match_cost.coefficients()
        assert {p: len(c) for p, c in found.items()} == {p: len(c) for p, c in match_cost.DEFAULTS.items()}
        assert all(sum(c) > 0 and min(c) >= 0 for c in found.values())
        written = path.stat().st_mtime_ns
        calibration.calibrate()
        assert path.stat().st_mtime_ns == written
    finally:
        match_cost.coefficients.cache_clear()


def test_shares_of_plans_are_said() -> None:
    assert describe_plans(np.zeros(5, np.int64)) == ""
    assert describe_plans(np.array([0, 3, 1, 0, 7])) == "SelectFirst 75 %, JoinFirst-E 25 %"
