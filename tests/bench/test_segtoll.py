"""The benchmark of SegTollS runs, and its peers must agree."""

from __future__ import annotations

import pytest

from benchmarks import segtoll


def test_peers_agree_after_every_batch() -> None:
    runs = segtoll.measure(12, 90, 7, connected=True)
    assert {run.peer for run in runs} == {segtoll.DATA, segtoll.CONNECTED, segtoll.DUCKDB}
    assert all(len(run.seconds) == len(runs[0].seconds) > 4 for run in runs)


def test_disagreement_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(segtoll, "ANSWER", segtoll.ANSWER.replace("- 10", "- 9"))
    with pytest.raises(ValueError, match="other rows"):
        segtoll.measure(40, 60, 50, connected=False)
