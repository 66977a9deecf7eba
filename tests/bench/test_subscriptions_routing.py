"""The benchmark of routing, small: plans agree, and every figure is there."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks import subscriptions_routing
from whence.engine import calibration
from whence.engine.matching.match_cost import PLANS


def test_small_run_writes_every_figure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calibration, "calibrate", lambda: None)
    path = tmp_path / "figures.json"
    given = "--sizes 2000 --events 40 --rounds 1 --buckets 20 --intervals 2000 --json"
    assert subscriptions_routing.main([*given.split(), str(path), "--plot", str(tmp_path / "plot.png")]) == 0
    found = json.loads(path.read_text())
    assert [line["plan"] for line in found["coefficients"]] == list(PLANS.values())
    everything = [line for line in found["routing"] if line["part"] == "all"]
    assert [line["kind"] for line in everything] == list(subscriptions_routing.KINDS)
    for line in everything:
        assert sum(line["shares"].values()) == pytest.approx(1)
        assert line["micros"]["OPT"] <= min(line["micros"][name] for name in PLANS.values())
    assert {one["intervals"] for one in found["histogram"]} == {"the paper's", "clustered"}
    for one in found["histogram"]:
        assert one["errors"]["the best"] <= one["errors"]["SSI-HIST"] * 1.5
