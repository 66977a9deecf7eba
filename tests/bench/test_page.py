"""Pages are made of runs, which may be in parts."""

from __future__ import annotations

import json
from pathlib import Path

from benchmarks.page import figures, promises, read_run


def test_parts_of_a_run_are_merged_and_the_last_counts(tmp_path: Path) -> None:
    def write(name: str, at: str, **medians: float) -> None:
        found = [{"what": what, "unit": "ms", "median": {"Whence": median}} for what, median in medians.items()]
        checks = [{"what": what, "measured": m, "wanted": 5, "at_least": False} for what, m in medians.items()]
        run = {"at": at, "figures": found, "checks": [one | {"kept": one["measured"] <= 5} for one in checks]}
        (tmp_path / name).write_text(json.dumps(run))

    write("delivery-late.json", "2026-11-18T12:00:00", latency=4, gaps=7)
    write("delivery.json", "2026-11-18T11:00:00", latency=9, flow=2)
    write("delivery-again.json", "2026-11-18T13:00:00", gaps=3)
    run = read_run(tmp_path, "delivery")
    rows = [line.split(" | ")[::2] for line in figures(run["figures"]).splitlines()[2:]]
    assert rows == [["| latency", "4.00"], ["| flow", "2.00"], ["| gaps", "3.00"]]
    assert "not met" not in promises(run["checks"])
    assert read_run(tmp_path, "lookups") == {}
