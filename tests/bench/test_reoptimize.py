"""The benchmark of re-optimization runs at a small size, and its optimizers must have the least cost."""

from __future__ import annotations

import json
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from benchmarks import reoptimize, reoptimize_changes, slices
from benchmarks.peers.common import installed
from benchmarks.reoptimize import PARTS, QUICK
from benchmarks.reoptimize_changes import FACTORS, KEPT, WAYS, Timing, WrongCostError
from benchmarks.reoptimize_planners import POSTGRES
from benchmarks.reoptimize_queries import QUERIES, clique, many_views, named
from benchmarks.reoptimize_ranges import Range, ranges, rises
from benchmarks.report import Figure

TINY = replace(QUICK, clique=4, views=4, ticks=2)


def test_spaces_are_those_of_the_paper() -> None:
    """The aggregate of Q5 is one more of each; Q8Join is closed over part keys."""
    assert named("Q5S").graph().optimizer("bottom_up").recomputed == (36, 190)
    assert named("Q5").graph().optimizer("bottom_up").recomputed == (37, 191)
    assert named("Q8JoinS").graph().optimizer("bottom_up").recomputed == (48, 276)


def test_first_optimizations_prune() -> None:
    firsts = {each.way: each for each in reoptimize_changes.first(TINY, [named("Q5")])}
    assert set(firsts) == set(WAYS)
    assert firsts["declarative, Evita Raced"].entries_pruned == 0
    assert firsts[KEPT].entries_pruned >= 0.35  # Figure 23
    assert firsts[KEPT].splits < firsts["declarative, no pruning"].splits
    assert firsts[KEPT].alternatives_pruned >= 0.55


def test_everything_is_measured_and_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        reoptimize, "planners", lambda sizes: [Figure(clique(sizes.clique).name, "ms", {POSTGRES: [9.0]})]
    )
    monkeypatch.setattr(reoptimize_changes, "FACTORS", (0.5, 2))
    monkeypatch.setattr(reoptimize, "QUERIES", QUERIES[:1])
    monkeypatch.setattr(reoptimize, "postgres", lambda folder: nullcontext())
    monkeypatch.setattr(slices, "SLICES", (10,))
    few = [name for name in PARTS if name not in ("drift", "tpch")]  # which have tests of their own
    checks = reoptimize.run(TINY, few, Console(quiet=True), tmp_path / "all.json", tmp_path / "all.png")
    written = json.loads((tmp_path / "all.json").read_text())
    assert {timing["workload"] for timing in written["changes"]} == {"Q5", "Q8Join", "clique of 4", "4 views"}
    assert all(max(timing["entries"]) <= 1 for timing in written["changes"])
    assert {each["figure"] for each in written["ranges"]} == {"24", "31", "32", "33", "34"}
    assert [part["number"] for part in written["execution"]] == [1, 2]
    assert len(written["slices"]) == 5
    assert [check.what for check in checks if "PostgreSQL" in check.what] != []
    assert (tmp_path / "all.png").exists() == installed("matplotlib")


def test_wrong_cost_is_an_error() -> None:
    plan, other = (clique(count).graph().optimizer("bottom_up") for count in (4, 5))
    with pytest.raises(WrongCostError):
        reoptimize_changes._measure(Timing("clique", "top", "wrong"), plan, [{"rows": {"r0": 50}}], other)


def test_many_views_share_relations() -> None:
    many = many_views(20)
    assert all(4 <= query.bit_count() <= 8 for query in many.graph.graph.queries)
    assert len(many.statistics) >= 90


def test_changes_go_up_and_down_and_back() -> None:
    assert [rises(place) for place in range(2 * len(FACTORS))] == [False, True] * 3 + [True, False] * 3


def test_ranges_say_what_is_out() -> None:
    cost = Timing("Q5", "join cost A", "bottom-up, all", [1.0], [0.2, 0.4], [0.1, 0.5])
    found = {(each.figure, each.what): each for each in ranges([cost])}
    assert found["31", "OR, bottom-up"] == Range("31", "OR, bottom-up", 0, 0.3, 0.2, 0.4)
    assert (found["31", "OR, bottom-up"].within, found["31", "OR, bottom-up"].verdict) == (False, "above")
    assert found["31", "AND, bottom-up"].within
