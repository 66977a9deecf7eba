"""The giving end: ranges through a filter add up to the filtered relation, whatever is asked for again."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as some

from whence.engine.core.operator import Batch
from whence.model.codes import NULL
from whence.model.errors import WhenceError
from whence.subscribe.publishing import (
    DeliveryBound,
    DeliveryFilter,
    FilterAmended,
    FilterChange,
    Publication,
    PublishingSession,
    RangeChange,
    RangeLost,
    RangeState,
)
from whence.subscribe.ranges import EVER, RangeSet
from whence.subscribe.recent import RecentChanges

Row = tuple[int, ...]


def batch_of(bag: dict[Row, int]) -> Batch:
    rows = np.array(list(bag), np.int64).reshape(len(bag), 3)
    return Batch(rows, np.array(list(bag.values()), np.int64))


def bag_of(batch: Any) -> Counter[Row]:
    bag: Counter[Row] = Counter()
    if batch is not None:
        for row, count in zip(map(tuple, batch.rows.tolist()), batch.ann.tolist(), strict=True):
            bag[row] += count
    return Counter({row: count for row, count in bag.items() if count})


class Flights:
    """A table (flight, seats, price) with `flight` as its key, or a stream of rows; its past is known."""

    def __init__(self, limit: int = 1 << 20, append_only: bool = False, retains: bool = False) -> None:
        self.recent = RecentChanges(append_only, 0, limit)
        self.epoch, self.past = 0, [Counter[Row]()]
        self.log: list[dict[Row, int]] = []
        key = () if append_only else (0,)
        self.publication = Publication(self.recent, self.read, key, append_only, self.read_past if retains else None)

    def read(self) -> tuple[int, Batch]:
        return self.epoch, batch_of(self.past[-1])

    def read_past(self, since: int, upto: int) -> Batch | None:
        found: dict[Row, int] = {}
        for delta in self.log[since:upto]:
            found |= delta
        return batch_of(found)

    def change(self, **rows: tuple[int, int] | None) -> None:
        """Commit an epoch: flights by number (`f7`), with their seats and price, or None if it goes."""
        now, delta = {row[0]: row for row in self.past[-1]}, dict[Row, int]()
        for name, rest in rows.items():
            key = int(name[1:])
            if key in now:
                delta[now[key]] = -1
            if rest is not None:
                delta[key, *rest] = delta.get((key, *rest), 0) + 1
        self.put(delta)

    def put(self, delta: dict[Row, int]) -> None:
        delta = {row: count for row, count in delta.items() if count}
        self.epoch += 1
        self.log.append(delta)
        after = Counter(self.past[-1])
        for row, count in delta.items():
            after[row] += count
        self.past.append(Counter({row: count for row, count in after.items() if count}))
        if delta:
            batch = batch_of(delta)
            self.recent.push(self.epoch, 0, batch.rows, batch.ann)


def changes(told: list[Any]) -> list[tuple[int, int, dict[Row, int] | None, int]]:
    return [
        (one.since, one.upto, None if one.rows is None else dict(bag_of(one.rows)), one.number)
        for one in told
        if isinstance(one, RangeChange)
    ]


def test_ranges_are_told_as_they_come_and_again_when_they_are_wanted() -> None:
    flights = Flights()
    session = PublishingSession(flights.publication, have=RangeSet())
    flights.change(f1=(10, 450))
    assert changes(session.next(1)) == [(0, 1, {(1, 10, 450): 1}, 0)]
    flights.change(f1=(6, 450))
    flights.change(f1=(0, 450))
    assert session.next(1) == [], "not what is not stable"
    assert changes(session.next(3)) == [(1, 3, {(1, 10, 450): -1, (1, 0, 450): 1}, 0)]
    session.want([(1, 2), (2, EVER)])
    assert changes(session.next(3)) == [
        (1, 2, {(1, 10, 450): -1, (1, 6, 450): 1}, 0),
        (2, 3, {(1, 6, 450): -1, (1, 0, 450): 1}, 0),
    ]
    session.want([(3, EVER)])
    assert session.next(3) == [RangeChange(3, 3)], "nothing is missing"
    assert session.heartbeat(3) == RangeChange(3, 3)


def test_a_broker_that_comes_back_is_told_its_gaps_and_what_is_new() -> None:
    flights = Flights()
    for seats in (4, 3, 2, 1):
        flights.change(f1=(seats, 450))
    session = PublishingSession(flights.publication, have=RangeSet.parse("0-1,2-3"))
    assert [one[:2] for one in changes(session.next(4))] == [(1, 2), (3, 4)]


def test_what_does_not_pass_is_silence() -> None:
    flights = Flights()
    session = PublishingSession(flights.publication, DeliveryFilter((0,), frozenset({(1,)})), RangeSet())
    flights.change(f2=(5, 300))
    assert session.next(1) == [RangeChange(0, 1)]


def test_a_full_flight_is_quenched_by_column_until_it_has_seats_again() -> None:
    """Changes of its price stop, those of its seats do not; afterwards nothing needs to be asked for."""
    flights = Flights()
    session = PublishingSession(flights.publication, DeliveryFilter((0,), watched=(1,)), RangeSet())
    flights.change(f44=(0, 450))
    session.next(1)
    session.amend(1, 0, FilterChange(quench=frozenset({(44,)}), as_of=1))
    assert session.next(1) == [FilterAmended(1, 1)]
    for price in (460, 470, 480):
        flights.change(f44=(0, price))
    assert session.next(4) == [RangeChange(1, 4, number=1)], "no message has the price"
    flights.change(f44=(2, 480))
    assert changes(session.next(5)) == [(4, 5, {(44, 0, 480): -1, (44, 2, 480): 1}, 1)]
    flights.change(f44=(2, 490))
    assert changes(session.next(6)) == [(5, 6, {(44, 2, 480): -1, (44, 2, 490): 1}, 1)]


def test_a_lifted_key_comes_as_it_is_now() -> None:
    flights = Flights()
    session = PublishingSession(flights.publication, DeliveryFilter((0,), watched=(1,)), RangeSet())
    flights.change(f44=(0, 450))
    session.next(1)
    session.amend(1, 0, FilterChange(quench=frozenset({(44,)}), as_of=1))
    flights.change(f44=(0, 470))
    session.next(2)
    session.amend(2, 1, FilterChange(lift=frozenset({(44,)})))
    (amended,) = session.next(2)
    assert isinstance(amended, FilterAmended)
    assert bag_of(amended.rows) == {(44, 0, 470): 1}


def test_a_key_that_has_changed_meanwhile_is_not_quenched() -> None:
    flights = Flights()
    session = PublishingSession(flights.publication, DeliveryFilter((0,), watched=(1,)), RangeSet())
    flights.change(f44=(0, 450), f45=(0, 99))
    session.next(1)
    flights.change(f44=(3, 450))
    flights.change(f45=(0, 100))
    session.amend(1, 0, FilterChange(quench=frozenset({(44,), (45,)}), as_of=1))
    told = session.next(3)
    assert told[-1] == FilterAmended(1, 3, None, None, frozenset({(44,)}))
    flights.change(f44=(3, 460), f45=(0, 101))
    assert changes(session.next(4)) == [(3, 4, {(44, 3, 450): -1, (44, 3, 460): 1}, 1)]


def test_best_k_raises_its_bound_by_an_amendment() -> None:
    flights = Flights()
    flights.change(f1=(1, 100), f2=(1, 200), f3=(1, 300), f4=(1, 400))
    session = PublishingSession(flights.publication, DeliveryFilter((0,), bound=DeliveryBound(2, 200)))
    (state,) = session.next(1)
    assert isinstance(state, RangeState)
    assert bag_of(state.rows) == {(1, 1, 100): 1, (2, 1, 200): 1}
    flights.change(f1=None)
    assert changes(session.next(2)) == [(1, 2, {(1, 1, 100): -1}, 0)]
    session.amend(1, 0, FilterChange(bound=DeliveryBound(2, 300)))
    (amended,) = session.next(2)
    assert bag_of(amended.rows) == {(3, 1, 300): 1}  # type: ignore[union-attr]


def test_an_amendment_that_was_not_taken_in_gives_way_to_the_next() -> None:
    """Everything up to the new one is told by the filter before, also what had been told by the lost one."""
    flights = Flights()
    flights.change(f1=(1, 100), f2=(1, 200))
    session = PublishingSession(flights.publication, DeliveryFilter((0,), frozenset({(1,)})), RangeSet())
    session.next(1)
    add = FilterChange(add=frozenset({(2,)}))
    assert session.amend(1, 0, add)
    session.next(1)
    flights.change(f1=(1, 110), f2=(1, 210))
    assert [one[3] for one in changes(session.next(2))] == [1]
    assert session.amend(2, 0, add)
    assert session.amend(1, 0, add), "a repeat changes nothing"
    session.want([(1, 2)])
    told = session.next(2)
    assert changes(told) == [(1, 2, {(1, 1, 100): -1, (1, 1, 110): 1}, 0)]
    assert told[-1].number == 2  # type: ignore[union-attr]
    assert bag_of(told[-1].rows) == {(2, 1, 210): 1}  # type: ignore[union-attr]
    assert not session.amend(9, 1, add), "an unknown base: subscribe again"


def test_keys_of_a_stream_come_from_a_tick_on() -> None:
    events = Flights(append_only=True)
    session = PublishingSession(events.publication, DeliveryFilter((0,), frozenset()), RangeSet())
    for n in range(1, 5):
        events.put({(7, n, 0): 1, (8, n, 0): 1})
    session.next(4)
    session.amend(1, 0, FilterChange(add=frozenset({(7,)}), since=2))
    (amended,) = session.next(4)
    assert bag_of(amended.rows) == {(7, 3, 0): 1, (7, 4, 0): 1}  # type: ignore[union-attr]
    session.amend(2, 1, FilterChange(add=frozenset({(8,)})))
    assert session.next(4) == [FilterAmended(2, 4)]


def test_what_is_gone_is_told_as_lost_never_skipped() -> None:
    events = Flights(limit=600, append_only=True)
    session = PublishingSession(events.publication, have=RangeSet())
    for n in range(1, 9):
        events.put({(7, n, 0): 1})
    told = session.next(8)
    assert told[0] == RangeLost(0, events.recent.start)
    assert changes(told)[0][:2] == (events.recent.start, 8)
    late = Flights(limit=600, append_only=True, retains=True)
    session = PublishingSession(late.publication, have=RangeSet())
    for n in range(1, 9):
        late.put({(7, n, 0): 1})
    assert [len(one[2] or ()) for one in changes(session.next(8))] == [8], (
        "the rows that are retained are the last resort"
    )


def test_a_table_whose_changes_are_gone_is_told_as_its_state() -> None:
    flights = Flights(limit=0)
    session = PublishingSession(flights.publication, have=RangeSet())
    for seats in (3, 2, 1):
        flights.change(f1=(seats, 450))
    (state,) = session.next(3)
    assert isinstance(state, RangeState)
    assert (state.at, bag_of(state.rows)) == (3, {(1, 1, 450): 1})


def test_every_change_is_told_by_itself() -> None:
    flights = Flights()
    session = PublishingSession(flights.publication, have=RangeSet(), every_change=True)
    for seats in (3, 2, 1):
        flights.change(f1=(seats, 450))
    flights.put({})
    assert [one[:2] for one in changes(session.next(4))] == [(0, 1), (1, 2), (2, 3), (3, 4)]
    lossy = Flights(limit=0)
    session = PublishingSession(lossy.publication, have=RangeSet(), every_change=True)
    for seats in (3, 2, 1):
        lossy.change(f1=(seats, 450))
    assert isinstance(session.next(3)[0], RangeLost)


def test_filters_look_at_single_rows() -> None:
    rows = np.array([[1, 5, 10], [2, 5, NULL], [3, 5, 30]])
    assert DeliveryFilter(bound=DeliveryBound(2, 20)).passes(rows).tolist() == [True, False, False]
    assert DeliveryFilter(bound=DeliveryBound(2, 20, at_most=False)).passes(rows).tolist() == [False, False, True]
    backwards = DeliveryFilter(bound=DeliveryBound(2, 20), comparable=lambda column, codes: -codes)
    assert backwards.passes(rows).tolist() == [False, False, True]
    two = DeliveryFilter((0, 1), frozenset({(1, 5), (3, 6)}))
    assert two.passes(rows).tolist() == [True, False, False]
    many = np.array([[n, 0, 0] for n in range(200)])
    assert int(DeliveryFilter((0,), frozenset({(7,), (300,)})).passes(many).sum()) == 1
    with pytest.raises(WhenceError, match="subscribe again"):
        DeliveryFilter((0,)).amended(FilterChange(add=frozenset({(1,)})))


@given(seed=some.integers(0, 2**32), limit=some.sampled_from([0, 900, 1 << 20]))
def test_ranges_and_amendments_add_up_to_the_filtered_relation(seed: int, limit: int) -> None:
    """A subscriber that applies by key what it is told has the rows of its filter; old at most in quenched columns."""
    dice, flights = random.Random(seed), Flights(limit)
    kind = dice.choice(["keys", "bound", "quench"])
    first = {
        "keys": DeliveryFilter((0,), frozenset({(0,)})),
        "bound": DeliveryFilter((0,), bound=DeliveryBound(2, 1)),
        "quench": DeliveryFilter((0,), watched=(1,)),
    }[kind]
    session, number, taken, at = PublishingSession(flights.publication, first, RangeSet()), 0, 0, 0
    filter, mine = first, dict[int, Row]()
    for _ in range(30):
        some_of = {
            f"f{key}": dice.choice([None, (dice.randrange(2), dice.randrange(4))]) for key in dice.sample(range(4), 2)
        }
        flights.change(**some_of)
        if dice.random() < 0.3:
            key = frozenset({(dice.randrange(4),)})
            change = {
                "keys": FilterChange(add=key) if dice.random() < 0.5 else FilterChange(drop=key),
                "bound": FilterChange(bound=DeliveryBound(2, dice.randrange(4))),
                "quench": FilterChange(quench=key, as_of=at) if dice.random() < 0.6 else FilterChange(lift=key),
            }[kind]
            number += 1
            assert session.amend(number, taken, change)
        if dice.random() < 0.4:
            continue
        for told in session.next(flights.epoch):
            if isinstance(told, RangeState):
                mine = {row[0]: row for row in bag_of(told.rows)}
                at, filter, taken = told.at, session.filter, told.number
                continue
            if isinstance(told, FilterAmended):
                filter, taken = session.filter, told.number
            rows = bag_of(told.rows)  # type: ignore[union-attr]
            for row in [row for row, count in rows.items() if count < 0]:
                mine.pop(row[0], None)
            mine |= {row[0]: row for row, count in rows.items() if count > 0}
            at = told.at if isinstance(told, FilterAmended) else told.upto
        expected = {r[0]: r for r in flights.past[at] if filter.passes(np.array([r]))[0]}
        if kind == "quench":
            assert {row[:2] for row in mine.values()} == {row[:2] for row in expected.values()}
            for key in mine.keys() - {one[0] for one in session.filter.quenched}:
                assert mine[key] == expected[key]
        else:
            assert mine == expected
