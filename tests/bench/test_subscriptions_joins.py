"""The benchmark of Figures 4.8, 4.9 and 4.11 runs, and its plans agree, on a few subscriptions."""

from __future__ import annotations

import json
from pathlib import Path

from benchmarks import subscriptions_joins


def test_all_figures_are_made(tmp_path: Path) -> None:
    path = tmp_path / "joins.json"
    given = f"--subscriptions 2000 --covered 2000 --events 40 --json {path}"
    assert subscriptions_joins.main(given.split()) == 0
    run = json.loads(path.read_text())
    assert [panel["number"] for panel in run["panels"]] == ["4.8 (iii)", "4.8 (iv)", "4.9", "4.11"]
    for panel in run["panels"]:
        assert all(len(values) == len(panel["at"]) for values in panel["lines"].values())
    assert len(run["spots"]) == 10
