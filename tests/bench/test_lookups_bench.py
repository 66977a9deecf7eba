"""The benchmark of look-ups runs, and its peers must agree."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
from rich.console import Console

from benchmarks import authorization, lookups, startup
from benchmarks.ledger import DisagreementError
from benchmarks.lookups import DUCKDB, KINDS, PARAMETERS, QUERY, QUICK, SQLITE, Lookup, Row, SqliteReader
from benchmarks.report import WHENCE, Figure
from tests.depth import deep_only

TINY = replace(QUICK, rows=2_000, lookups=6, slow=2, commits=4, warm=1)


def test_peers_agree_on_every_lookup() -> None:
    section = lookups.lookups(TINY, Console(quiet=True))
    assert len(section.figures) == 2 * len(KINDS)
    alone, after = section.figures[0], section.figures[-1]
    ours = dict.fromkeys((WHENCE, QUERY, PARAMETERS, SQLITE), 6)
    assert {peer: len(samples) for peer, samples in alone.samples.items()} == {**ours, DUCKDB: 2}
    assert {peer: len(samples) for peer, samples in after.samples.items()} == dict.fromkeys((*ours, DUCKDB), 4)
    lookups.show(section.figures, Console(quiet=True))


def test_facts_make_the_rows_asked_for() -> None:
    facts = authorization.facts(authorization.ROWS // 100)
    assert facts.count == pytest.approx(10_500, rel=0.05)


def test_a_wrong_answer_ends_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    def find(self: SqliteReader, kind: Lookup, key: Row) -> Sequence[Row]:
        return [("nobody", "nothing")]

    monkeypatch.setattr(SqliteReader, "find", find)
    with pytest.raises(DisagreementError, match="point look-up"):
        lookups.lookups(TINY, Console(quiet=True))


def test_promises_compare_medians() -> None:
    figures = [Figure("point look-up", "µs", {WHENCE: [10.0, 60.0, 20.0], QUERY: [2_000.0]})]
    assert [(check.measured, check.kept) for check in lookups.promises(figures)] == [(20.0, True), (2_000.0, False)]


@deep_only
def test_start_up_measures_every_command() -> None:
    section = lookups.start_up(replace(TINY, starts=1), Console(quiet=True))
    assert [check.what for check in section.checks] == [f"{figure.what}: ms" for figure in section.figures[:-1]]
    assert all({WHENCE, startup.PYTHON, startup.DUCKDB} == {*figure.samples} for figure in section.figures)
