"""The benchmark of durable state runs, and its peers must agree."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from rich.console import Console

from benchmarks import durable, ledger
from benchmarks.durable import Sizes
from benchmarks.peers.common import installed
from benchmarks.report import Figure, plot_figures
from tests.depth import deep_only

TINY = Sizes(
    rounds=1, alone=2, together=16, accounts=30, base_rows=1_000, nodes=100, opens=1, tail=3, pauses=3
)  # as small as every part allows


def test_commits_and_batches_are_measured(tmp_path: Path) -> None:
    figures, checks = durable.measure(tmp_path, TINY, ["single", "batches"], Console(quiet=True))
    assert [figure.what for figure in figures] == [
        "batches of 10,000, no views and no key",
        "one thread, no views",
        "16 threads, no views",
        "batches of 10,000, no views",
        "one thread, three views",
        "16 threads, three views",
        "batches of 10,000, three views",
    ]
    assert all(value > 0 for figure in figures for samples in figure.samples.values() for value in samples)
    assert len(checks) == 2 * len(figures)
    assert not list(tmp_path.iterdir())
    if installed("matplotlib"):
        plot_figures(tmp_path / "plot.png", figures)


@deep_only
def test_reopening_is_measured(tmp_path: Path) -> None:
    (seconds, on_disk, written, commit), checks = durable.measure(tmp_path, TINY, ["reopen"], Console(quiet=True))
    assert list(seconds.samples)[:4] == ["clean end", "kill -9", "made anew", "CREATE VIEW alone"]
    assert all(on_disk.of(peer) > 0 for peer in on_disk.samples)
    assert list(written.samples) == ["Whence, no views", "Whence, three views", "SQLite"]
    assert commit.of("median, alone") <= commit.of("largest, alone")
    assert [check.wanted for check in checks] == [5.0, 5.0, 5.0]


def test_peers_that_differ_are_noticed() -> None:
    rows = ledger.events(0, 50, 5)
    mixed = rows.take(pa.array(range(49, -1, -1)))
    ledger.agree({"one": {"event": ledger.digest(rows)}, "other": {"event": ledger.digest(mixed)}})
    with pytest.raises(ledger.DisagreementError, match="one has"):
        ledger.agree({"one": {"event": ledger.digest(rows)}, "other": {"event": ledger.digest(rows.slice(1))}})


def test_a_ratio_is_the_median_over_the_rounds() -> None:
    figure = Figure("commits", "commits/s", {"Whence": [2.0, 100.0, 9.0], "SQLite": [1.0, 10.0, 3.0]})
    assert figure.times("Whence", "SQLite") == 3.0
