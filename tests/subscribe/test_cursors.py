"""Subscribers as cursors over shared recent changes, simulated: whatever they skip, what they have is true."""

from __future__ import annotations

import random
from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as some

from whence.model.errors import DataError, WhenceError
from whence.model.types import INTEGER, Column, Schema
from whence.subscribe.cursor import Cursor, TellLost, TellState, TellUpdate
from whence.subscribe.positions import Position
from whence.subscribe.recent import RecentChanges
from whence.subscribe.updates import SubscribedRows

SCHEMA = Schema((Column("x", INTEGER),))


def at(epoch: int) -> Position:
    return Position("0123456789ab", "00c0ffee", epoch)


class Relation:
    """A relation whose rows at every epoch are known."""

    def __init__(self, limit: int) -> None:
        self.recent = RecentChanges(in_order=False, start=0, limit=limit)
        self.now: Counter[int] = Counter()
        self.past = {0: Counter[int]()}

    def change(self, epoch: int, random: random.Random) -> None:
        delta: Counter[int] = Counter()
        for _ in range(random.choice([0, 0, 1, 2, 5])):
            value = random.randrange(6)
            sign = random.choice([1, -1]) if self.now[value] + delta[value] > 0 else 1
            delta[value] += sign
        changed = {value: count for value, count in delta.items() if count}
        if changed:
            self.recent.push(epoch, epoch, np.array([[v] for v in changed]), np.array(list(changed.values())))
        self.now.update(delta)
        self.past[epoch] = Counter({v: n for v, n in self.now.items() if n})


class Subscriber:
    def __init__(self, parts: list[Relation], **options: object) -> None:
        self.parts, self.cursor = parts, Cursor(**options)  # type: ignore[arg-type]
        self.state = SubscribedRows([str(i) for i in range(len(parts))])
        self.state.describe([SCHEMA] * len(parts))
        self.told: list[int] = []
        self.lost = 0

    def drain(self, told: int, now: float) -> bool:
        """Take one message; return whether there was one, and check that what it leaves is true."""
        step = self.cursor.next([part.recent for part in self.parts], told, now)
        match step:
            case None:
                return False
            case TellLost(since):
                assert self.cursor.every_change
                self.state.lose(at(since), at(told))
                self.lost += 1
                return True
            case TellState(reason):
                states = [([(v,) for v in part.past[told].elements()], None) for part in self.parts]
                update = self.state.replace(at(told), told, states, reason)
                reached = told
            case TellUpdate(known, since, upto):
                assert known == (self.told[-1] if self.told else self.cursor.known)
                changes = []
                for part in self.parts:
                    batch = part.recent.difference(since, upto)
                    assert batch is not None
                    rows = batch.rows[:, 0].tolist() if len(batch.ann) else []
                    went = [(v,) for v, n in zip(rows, batch.ann.tolist(), strict=True) for _ in range(-n)]
                    came = [(v,) for v, n in zip(rows, batch.ann.tolist(), strict=True) for _ in range(n)]
                    changes.append((went, came, None))
                if not any(went or came for went, came, _ in changes) and not self.cursor.is_waited_for:
                    self.cursor.passed(upto)
                    return True
                update = self.state.update(at(upto), upto, changes)
                reached = upto
        assert not self.told or reached >= self.told[-1], "positions never go back"
        self.cursor.reached(reached, now)
        self.told.append(reached)
        for part, found in zip(self.parts, update.parts, strict=True):
            assert Counter(v for (v,) in found.rows) == part.past[reached], "true at its position"
        return True


@given(seed=some.integers(0, 2**32), limit=some.sampled_from([0, 600, 2000, 1 << 20]), parts=some.integers(1, 3))
def test_what_a_subscriber_has_is_true_and_ends_current(seed: int, limit: int, parts: int) -> None:
    dice = random.Random(seed)
    relations = [Relation(limit) for _ in range(parts)]
    subscribers: list[Subscriber] = []
    told = 0
    for epoch in range(1, 40):
        for relation in relations:
            relation.change(epoch, dice)
        told = dice.randrange(told, epoch + 1)  # what is stable lags behind
        if dice.random() < 0.2:
            subscribers.append(
                Subscriber(relations, every=dice.choice([0.0, 0.0, 5.0]), every_change=dice.random() < 0.3)
            )
        for subscriber in subscribers:
            if dice.random() < 0.1:
                subscriber.cursor.wait_for(dice.randrange(epoch + 2))
            for _ in range(dice.choice([0, 0, 1, 3])):
                subscriber.drain(told, float(epoch))
    for subscriber in subscribers:
        now = 1000.0
        while subscriber.drain(39, now):
            now += 5.0
        for relation, bag in zip(relations, subscriber.state._bags, strict=True):
            assert Counter(v for (v,) in bag.rows) == relation.past[39]


def test_every_change_is_told_once_or_as_lost() -> None:
    relation = Relation(1 << 20)
    dice = random.Random(1)
    subscriber = Subscriber([relation], have=0, every_change=True)
    subscriber.state = SubscribedRows(["0"], rows=[[]])
    subscriber.state.describe([SCHEMA])
    for epoch in range(1, 30):
        relation.change(epoch, dice)
    while subscriber.drain(29, 0.0):
        pass
    assert subscriber.told == relation.recent._epochs
    assert not subscriber.lost
    small = Relation(0)
    late = Subscriber([small], have=0, every_change=True)
    for epoch in range(1, 30):
        small.change(epoch, dice)
    while late.drain(29, 0.0):
        pass
    assert late.lost == 1
    assert late.told == [29]


def test_a_position_is_reached_without_a_change() -> None:
    relation = Relation(0)
    relation.past[5] = Counter()
    subscriber = Subscriber([relation], have=3)
    subscriber.state = SubscribedRows(["0"], rows=[[]])
    subscriber.state.describe([SCHEMA])
    assert not subscriber.drain(5, 0.0)
    subscriber.cursor.wait_for(5)
    assert not subscriber.drain(4, 0.0), "not before it is stable"
    assert subscriber.drain(5, 0.0)
    assert subscriber.told == [5]


def test_updates_are_not_more_frequent_than_asked_for() -> None:
    relation = Relation(1 << 20)
    subscriber = Subscriber([relation], have=0, every=5.0)
    subscriber.state = SubscribedRows(["0"], rows=[[]])
    subscriber.state.describe([SCHEMA])
    for epoch in (1, 2, 3):
        relation.recent.push(epoch, 0, np.array([[epoch]]), np.array([1]))
        relation.past[epoch] = Counter(range(1, epoch + 1))
    assert subscriber.drain(1, 100.0)
    assert not subscriber.drain(2, 104.9)
    assert subscriber.drain(3, 105.0)
    assert subscriber.told == [1, 3]


def test_rows_of_an_older_update_are_those_of_its_position() -> None:
    state = SubscribedRows(["a"], key="x")
    state.describe([SCHEMA])
    first = state.replace(at(1), 0, [([(1,), (2,)], None)], "begin")
    second = state.update(at(2), 0, [([(1,)], [(3,)], None)])
    third = state.replace(at(9), 0, [([(7,)], None)], "behind")
    assert (sorted(first.rows), sorted(second.rows), third.rows) == ([(1,), (2,)], [(2,), (3,)], [(7,)])
    assert sorted(third.went) == [(2,), (3,)]
    assert third.came == [(7,)]
    assert third.restarted == "behind"
    assert second.changed == [(1, (1,), None), (3, None, (3,))]


def test_rows_that_are_not_known_are_not_invented() -> None:
    state = SubscribedRows(["a"])
    state.describe([SCHEMA])
    update = state.update(at(2), 0, [([(1,)], [(3,)], None)])
    with pytest.raises(WhenceError, match="rows="):
        _ = update.rows
    with pytest.raises(DataError, match="key="):
        _ = update.changed
    known = SubscribedRows(["a"], rows=[[(5,)]])
    known.describe([SCHEMA])
    with pytest.raises(WhenceError, match="subscribe again"):
        known.update(at(2), 0, [([(1,)], [], None)])


def test_witnesses_of_a_row_that_went_are_those_it_had_last() -> None:
    state = SubscribedRows(["a"])
    state.describe([SCHEMA])
    first = state.replace(at(1), 0, [([(1,), (2,)], [["w1"], ["w2"]])], "begin")
    assert first.why == {(1,): ["w1"], (2,): ["w2"]}
    second = state.update(at(2), 0, [([(1,)], [(3,)], [["w3"]])])
    assert second.why == {(1,): ["w1"], (3,): ["w3"]}
