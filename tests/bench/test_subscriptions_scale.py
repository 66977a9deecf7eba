"""The benchmark of standing queries on a few of them: peers agree, and every figure is there."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks import subscriptions_peers, subscriptions_scale


def test_small_run_writes_every_figure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subscriptions_peers, "postgres_peer", lambda *_: None)  # a server takes seconds to start
    path = tmp_path / "figures.json"
    assert (
        subscriptions_scale.main(
            [
                "--sizes",
                "50",
                "--bands",
                "50",
                "--shapes",
                "200",
                "--peers",
                "500",
                "--json",
                str(path),
                "--plot",
                str(tmp_path / "plot.png"),
            ]
        )
        == 0
    )
    figures = {f["what"]: f for f in json.loads(path.read_text())["figures"]}
    beside = figures["500 subscriptions, 10 affected, beside peers"]["samples"]
    assert {"Whence", "select first (ours)", "NumPy", "DuckDB"} <= set(beside)
    assert "50 subscriptions, epochs of 1,000" in figures
