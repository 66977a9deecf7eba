"""The benchmark of re-optimization runs at a small size, and its optimizers must have the least cost."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from benchmarks import reoptimize
from benchmarks.peers.common import installed
from benchmarks.reoptimize import KEPT, QUICK, WAYS, Timing, WrongCostError
from benchmarks.reoptimize_planners import POSTGRES
from benchmarks.reoptimize_queries import QUERIES, clique, many_views, named
from benchmarks.report import Figure

TINY = replace(QUICK, clique=4, views=4, ticks=2)


def test_spaces_are_those_of_the_paper() -> None:
    """The aggregate of Q5 is one more of each; Q8Join is closed over part keys."""
    assert named("Q5S").graph().optimizer("bottom_up").recomputed == (36, 190)
    assert named("Q5").graph().optimizer("bottom_up").recomputed == (37, 191)
    assert named("Q8JoinS").graph().optimizer("bottom_up").recomputed == (48, 276)


def test_first_optimizations_prune() -> None:
    firsts = {each.way: each for each in reoptimize.first(TINY, [named("Q5")])}
    assert set(firsts) == set(WAYS)
    assert firsts["declarative, Evita Raced"].entries_pruned == 0
    assert firsts[KEPT].entries_pruned >= 0.35  # Figure 23
    assert firsts[KEPT].splits < firsts["declarative, no pruning"].splits
    assert firsts[KEPT].alternatives_pruned >= 0.55


def test_everything_is_measured_and_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        reoptimize, "planners", lambda sizes: [Figure(clique(sizes.clique).name, "ms", {POSTGRES: [9.0]})]
    )
    monkeypatch.setattr(reoptimize, "FACTORS", (0.5, 2))
    monkeypatch.setattr(reoptimize, "QUERIES", QUERIES[:1])
    checks = reoptimize.run(TINY, Console(quiet=True), tmp_path / "all.json", tmp_path / "all.png")
    written = json.loads((tmp_path / "all.json").read_text())
    assert {timing["workload"] for timing in written["changes"]} == {"Q5", "Q8Join", "clique of 4", "4 views"}
    assert all(max(timing["entries"]) <= 1 for timing in written["changes"])
    assert [check.what for check in checks if "PostgreSQL" in check.what] != []
    assert (tmp_path / "all.png").exists() == installed("matplotlib")


def test_wrong_cost_is_an_error() -> None:
    plan, other = (clique(count).graph().optimizer("bottom_up") for count in (4, 5))
    with pytest.raises(WrongCostError):
        reoptimize._measure(Timing("clique", "top", "wrong"), plan, [{"rows": {"r0": 50}}], other)


def test_many_views_share_relations() -> None:
    many = many_views(20)
    assert all(4 <= query.bit_count() <= 8 for query in many.graph.graph.queries)
    assert len(many.statistics) >= 90
