"""Open rows: each is found when the horizons make it final, once, whatever comes and goes meanwhile."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import pytest

from whence.subscribe.horizons import NO_HORIZONS, HorizonView, KnownHorizons
from whence.subscribe.open_rows import ClosingEvent, OpenRows, Values


def bound_of(use: int) -> Any:
    def passed(horizons: HorizonView) -> Any:
        found = horizons.bound(use)
        return None if found is None else found[0] + found[1]

    return passed


HOUR = ClosingEvent(0, "passes", (0,), bound_of(0))
DAY = ClosingEvent(1, "passes", (1,), bound_of(1))
GAME = ClosingEvent(2, "closes", (2,))
END = ClosingEvent(0, "ends", (), lambda horizons: (bound_of(0)(horizons) or 0) > 10)


def opened(*events: ClosingEvent) -> OpenRows:
    """Rows that are final when all of it has happened."""
    return OpenRows(events, lambda values, _, horizons: all(each.has_happened(values, horizons) for each in events))


def test_row_is_final_when_its_hour_is_passed() -> None:
    rows = opened(HOUR)
    rows.add((9,), "a")
    rows.add((10,), "b")
    assert rows.advance(NO_HORIZONS) == []
    assert not rows.is_due(KnownHorizons({0: (9, False)}))
    assert rows.is_due(KnownHorizons({0: (9, True)}))
    assert rows.advance(KnownHorizons({0: (9, True)})) == ["a"]
    assert rows.advance(KnownHorizons({0: (12, False)})) == ["b"]
    assert len(rows) == 0


def test_row_of_a_passed_hour_is_final_at_once() -> None:
    rows = opened(HOUR)
    rows.add((9,), "late")
    assert rows.advance(KnownHorizons({0: (10, False)})) == ["late"]


def test_row_with_null_never_closes() -> None:
    rows = opened(HOUR)
    rows.add((None,), "a")
    assert rows.advance(KnownHorizons({0: (10**9, True)})) == []
    assert len(rows) == 1


def test_replaced_row_is_told_as_it_is_last() -> None:
    rows = opened(HOUR)
    for value in range(1_000):
        rows.add((9,), value)
        rows.add((9,), value - 1, -1)
        rows.advance(NO_HORIZONS)
    assert len(rows._heaps[0]) == 1
    assert rows.advance(KnownHorizons({0: (10, False)})) == [999]


def test_closed_keys_are_not_looked_through_twice() -> None:
    rows = opened(GAME)
    rows.add((0, 0, "NY"), "4-2")
    assert rows.advance(NO_HORIZONS) == []
    horizons = NO_HORIZONS.moved({}, {2: [("DET",), ("BOS",)]})
    assert rows.advance(horizons) == []
    later = horizons.moved({}, {2: [("NY",)]})
    assert list(later.closed_after(2, 2)) == [("NY",)]
    assert rows.is_due(later)
    assert rows.advance(later) == ["4-2"]
    assert not horizons.is_closed(2, ("NY",))


@pytest.mark.parametrize("seed", range(40))
def test_rows_close_as_if_all_were_looked_at(seed: int) -> None:
    dice = random.Random(seed)
    events = dice.choice([[HOUR], [GAME], [HOUR, DAY], [DAY, GAME], [HOUR, DAY, GAME], [END, GAME], [END]])
    all_or_any = dice.choice([all, any])

    def is_final(values: Values, horizons: HorizonView) -> bool:
        return all_or_any(event.has_happened(values, horizons) for event in events)

    rows, there, horizons = OpenRows(events, lambda values, _, at: is_final(values, at)), Counter[Any](), NO_HORIZONS
    for number in range(200):
        values = dice.choice([None, *range(10)]), dice.randrange(10), dice.choice("abcdef")
        if not is_final(values, horizons):
            rows.add(values, (values, number))
            there[values, number] += 1
        if there and dice.random() < 0.5:
            gone = dice.choice(list(there))
            rows.add(gone[0], gone, -1)
            there -= Counter([gone])
        if dice.random() < 0.3:
            bounds = {use: (dice.randrange(12), dice.random() < 0.5) for use in (0, 1)}
            risen = {
                use: bound
                for use, bound in bounds.items()
                if bound_of(use)(KnownHorizons({use: bound})) >= (bound_of(use)(horizons) or 0)
            }
            horizons = horizons.moved(risen, {2: [(dice.choice("abcdef"),)]} if dice.random() < 0.2 else {})
            due = rows.is_due(horizons)
            final = Counter(rows.advance(horizons))
            assert due or not final
            assert final == Counter({row: n for row, n in there.items() if is_final(row[0], horizons)})
            there -= final
    assert len(rows) == there.total()
