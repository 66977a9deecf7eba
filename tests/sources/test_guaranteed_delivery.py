"""Guaranteed delivery (paper 004, 3): with `every_change` each event comes once; `ordered`, in the order of ticks."""

from __future__ import annotations

import random
import time
from typing import Any

import pytest

import whence
from tests.sources.conftest import SECRET, Make

QUOTE = "CREATE STREAM {} (issue TEXT, price INT)"
BOTH = "SELECT issue, price FROM east WHERE price >= 0 UNION ALL SELECT issue, price FROM west WHERE price >= 0"


def came(subscription: Any, last: Any) -> list[Any]:
    """Return all rows that come up to one, in the order in which they are told."""
    rows: list[Any] = []
    for update in subscription.follow(timeout=60):
        assert update.lost is None
        rows += update.came
        if last in rows:
            return rows
    raise AssertionError(f"{last} did not come after {rows}")


@pytest.mark.parametrize("over", ["process", "network"])
def test_each_event_of_a_merge_comes_once_and_in_the_order_of_ticks(place: Make, over: str) -> None:
    """Two publishers, one of which is gone for a while: nothing is told before what comes before it."""
    east, west, broker = place("east", QUOTE.format("east")), place("west", QUOTE.format("west")), place("b")
    broker.source("west", west)
    broker.source("east", east)
    dice, published = random.Random(3), list[tuple[str, int]]()

    def publish(number: int, *places: Any) -> None:
        for _ in range(number):
            one = dice.choice(places)
            published.append((one.name, len(published)))
            one.db.insert(one.name, [published[-1], (one.name, -1)])
            time.sleep(0.001)  # their ticks are ordered by time

    publish(15, east, west)
    with whence.connect(broker.server.url, token=SECRET) as client:
        owner = broker.db if over == "process" else client
        with owner.subscribe(BOTH, every_change=True, ordered=True) as subscription:
            publish(15, east, west)
            west.stop()
            publish(5, east)
            west.start()
            publish(15, east, west)
            assert came(subscription, published[-1]) == published


def test_each_change_of_a_table_comes_once_and_in_order(place: Make) -> None:
    """A price that changes faster than it is told is not coalesced on the way, neither here nor at the publisher."""
    publisher, broker = place("p", "CREATE TABLE price (issue TEXT PRIMARY KEY, price INT)"), place("b")
    publisher.db.insert("price", ("A", 0))
    broker.source("price", publisher)
    with broker.db.subscribe("price", every_change=True, ordered=True) as subscription:
        assert came(subscription, ("A", 0)) == [("A", 0)]
        for price in range(1, 60):
            publisher.db.insert("price", ("A", price))
        assert came(subscription, ("A", 59)) == [("A", price) for price in range(1, 60)]


def test_what_is_not_remembered_is_told_as_lost(place: Make) -> None:
    publisher, broker = place("p", "CREATE TABLE price (issue TEXT PRIMARY KEY, price INT)"), place("b")
    publisher.db.insert("price", ("A", 0))
    broker.source("price", publisher)
    with broker.db.subscribe("price", every_change=True, ordered=True) as subscription:
        came(subscription, ("A", 0))
        publisher.stop()
        publisher.db = whence.open(publisher.folder)
        publisher.db.insert("price", ("A", 1))
        publisher.db.insert("price", ("A", 2))
        publisher.db.close()
        publisher.start()  # it remembers no changes of before
        lost = []
        for update in subscription.follow(timeout=60):
            lost += [update.lost] if update.lost is not None else []
            if update.rows == [("A", 2)]:
                break
        assert len(lost) == 1
        publisher.db.insert("price", ("A", 3))
        assert came(subscription, ("A", 3)) == [("A", 3)]


def test_order_is_no_other_query(place: Make) -> None:
    """In a database without sources epochs are in order anyway; those who want it share a channel of their own."""
    here = place("p", "CREATE STREAM s (x INT)")
    with here.db.subscribe("s", ordered=True) as one, here.db.subscribe("s") as other:
        for number in range(5):
            here.db.insert("s", (number,))
        assert [row for update in one for row in update.came] == [(n,) for n in range(5)]
        assert [row for update in other for row in update.came] == [(n,) for n in range(5)]
        assert one._channel is not other._channel
