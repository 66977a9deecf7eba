"""Traffic drifts so that the best plan changes, in work that is counted; plans agree in their rows while it does."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest
from rich.console import Console

from benchmarks import drift
from benchmarks.drift import ADAPTIVE, HAZARDS, ORACLE, PLANNED, SEGTOLL, STATIC
from benchmarks.drift_orders import Room, measure_room
from benchmarks.linear_road import EVERY, PHASES, SEGMENT, traffic
from benchmarks.segtoll import ANSWER

NAMES = [phase.name for phase in PHASES]


def test_cars_report_every_thirty_seconds_from_where_they_are() -> None:
    found = traffic(50, 150)
    assert found == traffic(50, 150)
    assert len(found) == 150
    times: dict[int, list[int]] = {}
    for second, reports in enumerate(found):
        for time, car, speed, _, direction, seg, xpos in reports:
            assert (time, seg) == (second, xpos // SEGMENT)
            assert (speed == 0) <= (direction == 0)
            times.setdefault(car, []).append(time)
    assert len(times) == 50
    assert all((b - a) % EVERY == 0 for mine in times.values() for a, b in pairwise(mine))


def test_phases_are_what_they_say() -> None:
    found, length = traffic(400, 300), 300 // len(PHASES)
    share = {}
    for number, name in enumerate(NAMES):
        reports = [r for second in found[number * length : (number + 1) * length] for r in second]
        share[name] = [
            sum(r[4] == 0 for r in reports) / len(reports), sum(r[2] == 0 for r in reports) / len(reports), len(reports)
        ]  # fmt: skip
    assert share["stop and go"][0] == 1
    assert share["rush hour"][0] > 0.8 > 0.2 > share["turned round"][0]
    assert share["accidents"][1] > 0.3 > 0.1 > share["rush hour"][1]
    assert 4 * share["emptied"][2] < share["rush hour"][2]


@pytest.fixture(scope="module")
def segtoll() -> Room:
    """Measure SegTollS's 5 x 24 orders."""
    return measure_room(SEGTOLL.script, SEGTOLL.view, traffic(150, 400), len(PHASES), 8)


def test_best_plan_of_segtoll_differs_between_phases(segtoll: Room) -> None:
    """While all creep where nobody is behind them, last_four meets the segments before the cars on the road."""
    assert [len(each) for each in segtoll.work[1] if each] == [24] * sum(map(bool, segtoll.work[1]))
    plans = dict(zip(NAMES, segtoll.oracle, strict=True))
    assert plans["stop and go"][4] == (2, ~1, 0, 3)
    assert plans["rush hour"][4] == (2, 3, ~1, 0)
    static, oracle = segtoll.spent([segtoll.static] * len(PHASES)), segtoll.spent(segtoll.oracle)
    assert static[0] > 1.5 * oracle[0]
    assert 1 < segtoll.ratio < 1.1, "semi-joins have left little room"


def test_inputs_of_hazards_trade_places() -> None:
    """In the rush hour a car meets those that stand first, after accidents those that crawl."""
    room = measure_room(HAZARDS.script, HAZARDS.view, traffic(400, 400), len(PHASES), 8)
    plans = dict(zip(NAMES, room.oracle, strict=True))
    assert (plans["rush hour"][0], plans["accidents"][0]) == ((~1, ~2), (~2, ~1))
    assert room.ratio > 1.3


def test_plans_have_the_same_rows_while_traffic_drifts() -> None:
    """SegTollS those of DuckDB, or `measure` fails."""
    for query in (SEGTOLL, HAZARDS):
        found = drift.measure(replace(query, cars=30, seconds=100), 1, 3, Console(quiet=True))
        assert {len(times) for rounds in found.epochs.values() for times in rounds} == {100}
        assert found.epochs.keys() >= {ADAPTIVE, PLANNED, STATIC, ORACLE}
        assert len(found.by_phase(ADAPTIVE)) == len(PHASES)
        assert len(drift.promises([found])) == 4


def test_other_rows_are_an_error() -> None:
    wrong = replace(SEGTOLL, cars=60, seconds=150, answer=ANSWER.replace("- 10", "- 3"))
    with pytest.raises(drift.WrongRowsError):
        drift.measure(wrong, 1, 50, Console(quiet=True))
