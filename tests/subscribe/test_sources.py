"""The receiving end of a source: whatever is lost, repeated or overtaken, every tick is applied once."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as some

from whence.subscribe.positions import Position
from whence.subscribe.publishing import FilterAmended, RangeChange, RangeLost, RangeState
from whence.subscribe.ranges import EVER, RangeSet
from whence.subscribe.sources import (
    MOST_HELD,
    STALLS,
    Apply,
    ApplyState,
    Ask,
    LoseRange,
    Opened,
    Resubscribe,
    SendAmend,
    SourceState,
    StartOver,
)

AT = Position("0123456789ab", "00c0ffee", 0)


def opened(mode: Any = "ahead", at: int = 0, **options: Any) -> SourceState:
    source = SourceState("quote", mode, **options)
    source.connect(0.0)
    source.receive(Opened(AT._replace(epoch=at), "resumed" if len(source.reflected) else "unknown"), 1, 0.0)
    return source


def told(source: SourceState, *what: Any, now: float = 0.0) -> list[Any]:
    return [action for one in what for action in source.receive(one, source.session, now)]


def rows_of(actions: list[Any]) -> list[Any]:
    return [action.rows for action in actions if isinstance(action, Apply | ApplyState) and action.rows is not None]


def test_ticks_beyond_a_gap_are_applied_and_the_gap_counts_once() -> None:
    source = opened()
    assert rows_of(told(source, RangeChange(0, 1, "1"), RangeChange(1, 2, "2"), RangeChange(3, 4, "4"))) == [
        "1",
        "2",
        "4",
    ]
    assert str(source.reflected) == "0-2,3-4"
    assert source.waiting_for == ("quote", 0, 0.0)
    assert rows_of(told(source, RangeChange(2, 3, "3"), RangeChange(2, 3, "3"))) == ["3"]
    assert str(source.reflected) == "0-4"
    assert source.waiting_for is None


def test_in_order_a_range_waits_for_those_before_it() -> None:
    source = opened("in order")
    assert rows_of(told(source, RangeChange(2, 3, "3"), RangeChange(0, 1, "1"), RangeChange(3, 5, "5"))) == ["1"]
    assert rows_of(told(source, RangeChange(1, 2, "2"))) == ["2", "3", "5"]
    assert str(source.reflected) == "0-5"


def test_a_gap_is_asked_for_after_a_while_and_then_less_and_less_often() -> None:
    source = opened()
    told(source, RangeChange(0, 2, "a"), RangeChange(5, 6, "b"), now=1.0)
    assert source.tick(1.04) == []
    times, now = [], 1.0
    for _ in range(4):
        now = source._gaps.due
        assert [a for a in source.tick(now) if a.ranges[0][1] != EVER] == [Ask(((2, 5),))]
        times.append(round(now - 1.0, 3))
    assert times == [0.05, 0.55, 1.55, 3.55]


def test_a_part_of_a_gap_that_was_asked_for_is_not_asked_for_at_once() -> None:
    source = opened()
    told(source, RangeChange(0, 2, "a"), RangeChange(9, 10, "b"))
    assert source.tick(0.05) == [Ask(((2, 9),))]
    told(source, RangeChange(4, 5, "c"), now=0.06)
    assert source.tick(0.2) == []
    assert source.tick(0.55) == [Ask(((2, 4), (5, 9)))]


def test_a_horizon_that_stands_still_is_asked_about() -> None:
    """The last message before silence was lost: nothing else would show it."""
    source = opened()
    told(source, RangeChange(0, 3, "a"), now=1.0)
    assert source.next_timer == 3.0
    assert source.tick(3.0) == [Ask(((3, EVER),))]
    assert rows_of(told(source, RangeChange(3, 4, "b"), now=3.1)) == ["b"]
    assert source.waiting_for is None


def test_heartbeats_keep_a_source_content_and_show_what_was_lost() -> None:
    source = opened()
    told(source, RangeChange(0, 3, "a"), now=1.0)
    told(source, RangeChange(3, 3), now=2.9)
    assert source.next_timer == 4.9
    told(source, RangeChange(5, 5), now=3.0)  # the publisher is at 5: something was lost
    assert source.tick(3.05) == [Ask(((3, 5),))]


def test_a_session_that_does_not_answer_is_given_up_for_the_next_url() -> None:
    source = opened(urls=2)
    told(source, RangeChange(0, 3, "a"))
    actions = [action for k in range(1, STALLS + 1) for action in source.tick(2.0 * k)]
    assert actions[:-1] == [Ask(((3, EVER),))] * (STALLS - 1)
    assert actions[-1] == Resubscribe(2, 1, AT._replace(epoch=3), RangeSet.parse("0-3"), 0)
    assert told(source, RangeChange(3, 4, "b")) == [], "the new session does not stand yet"


def test_messages_of_an_earlier_session_are_not_taken_in() -> None:
    source = opened()
    source.connect(1.0)
    source.receive(Opened(AT, "unknown"), 2, 1.0)
    assert source.receive(RangeChange(0, 1, "a"), 1, 1.0) == []
    assert rows_of(source.receive(RangeChange(0, 1, "a"), 2, 1.0)) == ["a"]


def test_a_restart_knows_what_it_has() -> None:
    have = RangeSet.parse("0-4,6-7")
    source = SourceState("quote", "ahead", AT, have)
    assert source.connect(0.0) == [Resubscribe(1, 0, AT._replace(epoch=7), have, 0)]
    source.receive(Opened(AT._replace(epoch=9), "resumed"), 1, 0.0)
    assert told(source, RangeChange(0, 4, "old"), RangeChange(6, 7, "old")) == []
    assert source.tick(0.5) == [Ask(((4, 6), (7, 9)))]


@pytest.mark.parametrize("mode", ["ahead", "in order"])
def test_overlapping_ranges_are_asked_for_exactly(mode: Any) -> None:
    source = opened(mode)
    told(source, RangeChange(0, 4, "a"))
    assert told(source, RangeChange(2, 6, "b")) == []
    assert source.tick(0.0) == [Ask(((4, 6),))]
    assert rows_of(told(source, RangeChange(4, 6, "b"))) == ["b"]


def test_silence_may_overlap() -> None:
    source = opened("in order")
    told(source, RangeChange(0, 4, "a"), RangeChange(2, 6), RangeChange(8, 9))
    assert str(source.reflected) == "0-6,8-9"


@pytest.mark.parametrize("position", [AT._replace(history="f" * 12), AT])
def test_another_past_is_never_merged(position: Position) -> None:
    """A restored backup has another history, or another era after which our position is not known."""
    source = SourceState("quote", "ahead", AT, RangeSet.parse("0-9"), RangeSet.parse("3-4"))
    source.connect(0.0)
    assert source.receive(Opened(position._replace(epoch=7), "unknown"), 1, 0.0) == []
    assert told(source, RangeChange(7, 8, "x"), RangeChange(6, 6)) == [], "not before the beginning is here"
    actions = told(source, RangeState(7, "new"))
    assert actions[0] == StartOver(position._replace(epoch=7))
    assert rows_of(actions) == ["new", "x"]
    assert (str(source.reflected), str(source.lost)) == ("0-8", "")


def test_another_history_is_not_ours_even_if_the_server_says_so() -> None:
    source = SourceState("quote", "ahead", AT, RangeSet.parse("0-9"))
    source.connect(0.0)
    source.receive(Opened(AT._replace(history="f" * 12, epoch=9), "resumed"), 1, 0.0)
    assert isinstance(told(source, RangeState(9, "new"))[0], StartOver)


def test_a_copy_that_lags_is_left_for_another_url() -> None:
    source = SourceState("quote", "ahead", AT, RangeSet.parse("0-9"), urls=2)
    source.connect(0.0)
    again = source.receive(Opened(AT._replace(epoch=7), "behind"), 1, 0.0)
    assert again == [Resubscribe(2, 1, AT._replace(epoch=9), RangeSet.parse("0-9"), 0)]
    assert source.receive(Opened(AT._replace(epoch=8), "behind"), 2, 0.1) == [], "all lag: wait"
    assert isinstance(source.tick(2.1)[0], Resubscribe)


def test_a_state_takes_the_place_of_a_table_and_of_nothing_in_a_stream() -> None:
    table = opened("in order")
    told(table, RangeChange(0, 2, "a"), RangeChange(6, 7, "held"))
    assert rows_of(told(table, RangeState(6, "state"))) == ["state", "held"]
    assert told(table, RangeState(5, "older")) == []
    stream = opened()
    told(stream, RangeChange(0, 2, "a"))
    assert told(stream, RangeState(6, "state")) == [], "rows of a stream cannot be replaced"
    assert stream.tick(0.0) == [Ask(((2, 6),))]


def test_what_retention_has_dropped_is_lost_and_not_asked_for_again() -> None:
    source = opened()
    assert told(source, RangeState(5, "kept", lost_upto=3)) == [
        ApplyState(5, "kept", RangeSet.parse("0-5"), lost_upto=3)
    ]
    told(source, RangeChange(8, 9, "x"))
    assert told(source, RangeLost(4, 8)) == [LoseRange(5, 8, RangeSet.parse("0-9"))]
    assert str(source.lost) == "0-3,5-8"
    assert list(source._gaps) == []


def test_promises_hold_once_everything_before_them_is_known() -> None:
    source = opened()
    (first,) = told(source, RangeChange(0, 1, "a", time=10))
    assert first.time == 10
    (ahead,) = told(source, RangeChange(2, 3, "c", time=30, horizons={"t": 3}))
    assert ahead.time is None
    (fills,) = told(source, RangeChange(1, 2, "b", time=20, horizons={"t": 2}))
    assert (fills.time, fills.horizons) == (30, {"t": 3})


def test_promise_of_a_reflected_tick_outlasts_the_session() -> None:
    source = opened()
    told(source, RangeChange(1, 3, "b, c", time=30), RangeChange(6, 7, None, time=70))
    told(source, RangeChange(9, 9, None, time=90))  # as of a tick that is not here
    (again,) = source.connect(0.0)
    assert str(again.ranges) == "1-3,6-7"
    told(source, Opened(AT._replace(epoch=9), "resumed"))
    assert [action.time for action in told(source, RangeChange(0, 1, "a", time=10))] == [30]
    assert [action.time for action in told(source, RangeChange(3, 6, "d"), RangeChange(7, 9, "e"))] == [70, None]


def test_promise_is_forgotten_with_the_past_of_its_tick() -> None:
    source = opened()
    told(source, RangeChange(1, 3, "b, c", time=30))
    source.connect(0.0)
    told(source, Opened(AT._replace(era="0000beef"), "unknown"))
    _, first = told(source, RangeChange(0, 3, "of another past", time=5))
    assert first.time == 5


def test_an_amendment_is_in_effect_when_everything_before_it_is_here() -> None:
    source = opened("in order")
    told(source, RangeChange(0, 3, "a"))
    assert source.amend("change", 0.0) == [SendAmend(1, 0, "change")]
    new = RangeChange(6, 7, "by the new", 1)
    assert told(source, new, FilterAmended(1, 6, "added")) == []
    assert source.is_amending
    assert source.tick(0.05) == [Ask(((3, 6),))]
    actions = told(source, RangeChange(3, 6, "by the old"))
    assert [(action.rows, action.amends, action.number) for action in actions] == [
        ("by the old", False, 0),
        ("added", True, 1),
        ("by the new", False, 1),
    ]
    assert not source.is_amending
    assert told(source, RangeChange(7, 8, "by the old", 0)) == []


def test_an_amendment_that_is_not_answered_is_asked_for_anew() -> None:
    source = opened("in order")
    told(source, RangeChange(0, 3, "a"))
    source.amend("change", 0.0)
    assert SendAmend(2, 0, "change") in source.tick(1.0)
    assert told(source, FilterAmended(1, 3, "late"), RangeChange(3, 4, "late", 1)) == []
    assert rows_of(told(source, FilterAmended(2, 3, "added"))) == ["added"]
    assert source.connect(2.0)[0].number == 2  # type: ignore[union-attr]
    assert source.number == 0


def test_an_amendment_under_way_is_asked_for_in_the_next_session() -> None:
    source = opened("in order")
    told(source, RangeChange(0, 3, "a"))
    source.amend("change", 0.0)
    source.connect(1.0, failed=True)
    assert source.receive(Opened(AT._replace(epoch=3), "resumed"), 2, 1.0) == [SendAmend(1, 0, "change")]
    assert rows_of(told(source, FilterAmended(1, 3, "added"))) == ["added"]


def test_what_waits_is_bounded() -> None:
    source = opened("in order")
    for tick in range(1, 3 * MOST_HELD):
        told(source, RangeChange(tick, tick + 1, tick))
    assert len(source._held) == MOST_HELD
    assert len(source._held_ranges) <= 2


def test_work_in_order_does_not_grow_with_gaps() -> None:
    """A message that goes on where the last one ended looks at no gap."""
    source = opened()
    for i in range(500):
        told(source, RangeChange(4 * i + 1, 4 * i + 3, "x"))
    gaps = source._gaps
    told(source, RangeChange(source.reflected.last, source.reflected.last + 1, "y"))
    assert source._gaps is gaps


@given(
    seed=some.integers(0, 2**32),
    mode=some.sampled_from(["ahead", "in order"]),
    loss=some.sampled_from([0.0, 0.2, 0.5]),
)
def test_every_tick_is_applied_once_whatever_happens_on_the_way(seed: int, mode: Any, loss: float) -> None:
    """Rows are ticks here: what is applied is counted."""
    dice, source, last = random.Random(seed), opened(mode), 40
    events = {tick for tick in range(1, last + 1) if dice.random() < 0.6}
    applied: list[int] = []
    asked: dict[tuple[int, int], float] = {}

    def change(since: int, upto: int) -> RangeChange:
        rows = [tick for tick in range(since + 1, upto + 1) if tick in events]
        return RangeChange(since, upto, rows or None)

    def take(actions: list[Any], now: float) -> list[RangeChange]:
        answers = []
        for action in actions:
            if isinstance(action, Apply):
                applied.extend(action.rows or [])
            elif isinstance(action, Ask):
                for since, upto in action.ranges:
                    assert asked.get((since, upto), -9.0) <= now - 0.45, "once per timeout"
                    asked[since, upto] = now
                    middle = dice.randrange(since, min(upto, last) + 1)
                    answers += [change(since, middle), change(middle, min(upto, last))]
        return answers

    at, waiting = 0, list[RangeChange]()
    while at < last:
        upto = min(last, at + dice.randint(1, 4))
        waiting.append(change(at, upto))
        at = upto
    now = 0.0
    for _ in range(12_000):
        now += 0.01
        dice.shuffle(waiting)
        arriving, waiting = waiting[:2], waiting[2:]
        for one in arriving:
            if dice.random() >= loss:
                waiting += take(source.receive(one, source.session, now), now)
                if dice.random() < 0.3:
                    waiting.append(one)
        if source.next_timer is not None and source.next_timer <= now:
            actions = source.tick(now)
            if any(isinstance(action, Resubscribe) for action in actions):
                source.receive(Opened(AT._replace(epoch=last), "resumed"), source.session, now)
            waiting += take(actions, now)
        assert len(applied) == len(set(applied)), "nothing twice"
        assert set(applied) <= events
        if source.reflected.horizon == last:
            break
    assert set(applied) == events
    if mode == "in order":
        assert applied == sorted(applied)


@given(some.sampled_from(["ahead", "in order"]), some.integers(0, 2**32))
def test_gaps_are_what_is_missing(mode: Any, seed: int) -> None:
    """Gaps are kept up to date message by message: they are always what would be found by looking at everything."""
    dice, source, now = random.Random(seed), opened(mode), 0.0
    for _ in range(60):
        since = dice.randrange(40)
        upto = since + dice.randrange(5)
        what = dice.random()
        if what < 0.75:
            told(source, RangeChange(since, upto, dice.choice([None, "rows"])), now=now)
        elif what < 0.8:
            told(source, RangeState(upto, "state"), now=now)
        elif what < 0.85:
            told(source, RangeLost(since, upto), now=now)
        elif what < 0.9:
            source.amend("change", now)
            told(source, FilterAmended(source._amendment.number, upto), now=now)
        else:
            now += dice.random() * 0.3
            asked = [one for action in source.tick(now) if isinstance(action, Ask) for one in action.ranges]
            assert all(one in list(source._gaps) for one in asked if one[1] != EVER)
        have = source.reflected.union(source._held_ranges)
        assert list(source._gaps) == have.gaps(source._known)
        assert source._gaps.due == min((gap.due for gap in source._gaps._gaps), default=float("inf"))


def test_no_amendment_is_sent_while_starting_over_is_to_be_told() -> None:
    """Who asks does not know yet that the publisher has another past: its ticks are of the one before."""
    state = SourceState("s", "ahead", Position("a" * 12, "b" * 8, 3), RangeSet([(0, 3)]))
    state.connect(0.0)
    assert state.receive(Opened(Position("c" * 12, "d" * 8, 2), "unknown"), 1, 0.0) == []
    assert state.amend("since tick 3", 0.1) == []
    assert not state.is_amending
    begun = state.receive(RangeChange(0, 2, "rows"), 1, 0.2)
    assert [type(action) for action in begun] == [StartOver, Apply]
    assert state.amend("since tick 0", 0.3) == [SendAmend(1, 0, "since tick 0")]
