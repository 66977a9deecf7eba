"""The benchmark of small epochs runs, and its peers must agree."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from benchmarks import small_epochs, small_programs
from benchmarks.ledger import DisagreementError
from benchmarks.report import WHENCE, Figure
from benchmarks.small_epochs import DUCKDB, LOCKED, QUICK, SQLITE, Timing, Workload

TINY = replace(QUICK, rows=12, warm=2, few=2, turn=5, rounds=1, alone=2, together=16, accounts=30)


@pytest.mark.parametrize("workload", small_epochs.workloads(TINY), ids=lambda workload: workload.what)
def test_peers_agree_on_every_workload(workload: Workload) -> None:
    timings = small_epochs.measure(workload, TINY, [WHENCE, SQLITE, DUCKDB])
    assert {timing.peer: len(timing.times) for timing in timings} == {WHENCE: 12, SQLITE: 12, DUCKDB: 2}


def test_durable_commits_are_measured(tmp_path: Path) -> None:
    timings, together = small_epochs.durable(tmp_path, TINY)
    assert [(timing.peer, len(timing.times)) for timing in timings] == [(WHENCE, 2), (LOCKED, 2)]
    assert set(together.samples) == {WHENCE, LOCKED}
    assert not list(tmp_path.iterdir())


def test_views_of_a_kind_differ() -> None:
    for kind in small_programs.KINDS:
        assert len({view.query for view in small_programs.views(kind, 50)}) == 50


def test_promises_compare_medians() -> None:
    timings = [
        Timing("no view", WHENCE, [10.0] * 100),
        Timing("50 joins", WHENCE, [510.0] * 98 + [2_000.0] * 2),
        Timing("durable, 3 views", WHENCE, [100.0]),
        Timing("durable, 3 views", LOCKED, [150.0]),
    ]
    together = Figure("16 writers", "commits/s", {WHENCE: [20.0], LOCKED: [10.0]})
    checks = {check.what: check for check in small_epochs.promises(timings, together)}
    assert checks["50 joins: µs a view"].measured == 10.0
    assert not checks["p99 in medians, at most (50 joins)"].kept
    assert checks["durable commits, times SQLite"].measured == 1.5
    assert checks["16 writers, times one connection"].kept
    small_epochs.show(timings, Console(quiet=True))


def test_a_disagreement_ends_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(small_programs, "REACH_TRIGGERS", "CREATE TABLE reach (node INTEGER PRIMARY KEY);")
    with pytest.raises(DisagreementError, match="a recursive view"):
        small_epochs.measure(Workload("a recursive view", small_epochs.RECURSIVE, 1), TINY, [WHENCE, SQLITE])
