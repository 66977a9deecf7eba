"""The benchmark of bulk fills runs in processes of its own, and its peers must agree."""

from __future__ import annotations

import pytest
from rich.console import Console

from benchmarks import fills
from benchmarks.fills import DUCKDB, ONE_BY_ONE, TABLES_FIRST, VIEWS_FIRST, WAYS
from benchmarks.ledger import DisagreementError
from benchmarks.report import Figure
from tests.depth import deep_only


@deep_only
def test_every_way_fills_the_same_view() -> None:
    figures, checks = fills.measure(2_000, 1, Console(quiet=True))
    assert [set(figure.samples) for figure in figures] == 3 * [set(WAYS)]
    assert len(checks) == 4


def test_a_way_that_fills_something_else_ends_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fills, "_in_a_process", lambda way, rows: (1.0, 1.0, 1.0, 5 if way == DUCKDB else 6))
    with pytest.raises(DisagreementError, match="may_read"):
        fills.measure(2_000, 1, Console(quiet=True))


def test_neither_order_may_take_much_more() -> None:
    time = Figure("bulk fill", "CPU s", {TABLES_FIRST: [10.0], VIEWS_FIRST: [11.0], ONE_BY_ONE: [5.0]})
    memory = Figure("memory", "MB", {TABLES_FIRST: [10.0], VIEWS_FIRST: [13.0], ONE_BY_ONE: [10.0]})
    assert [check.kept for check in fills.promises([time, memory])] == [True, False, False, True]
