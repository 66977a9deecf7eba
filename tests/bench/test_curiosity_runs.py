"""The runs that count what curiosity saves: their views are right, and what is saved is what must be."""

from __future__ import annotations

from benchmarks.curiosity_runs import best_rows, buy_list, flights


def test_delay_trades_messages_against_waiting() -> None:
    at_once, later = flights(40, 150, 0.0), flights(40, 150, 30.0)
    assert at_once.whole_messages == later.whole_messages
    assert at_once.messages <= later.messages <= later.whole_messages
    assert len(at_once.waits) > len(later.waits) == 0


def test_only_issues_of_the_list_are_sent() -> None:
    saving = buy_list(100, 10, 300)
    assert saving.messages_saved > 4
    assert all(0.03 < wait < 0.1 for wait in saving.waits)  # there and back


def test_margin_saves_pulls() -> None:
    none, some = best_rows(60, 150, 0), best_rows(60, 150, 5)
    assert none.requests > some.requests
    assert len(none.waits) > len(some.waits)
