"""Brokers that relay: they run ahead of gaps over hops, ask for what they do not have, and never merge two pasts."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import whence
from tests.sources.conftest import Make, Place, until
from whence.subscribe import messages as ms
from whence.subscribe.positions import Position
from whence.subscribe.ranges import RangeSet

TRADE = "CREATE STREAM trade (issue TEXT, price INT)"
HIGH = "CREATE VIEW high AS SELECT issue, MAX(price) AS high, COUNT(*) AS n, SUM(price) AS s FROM trade GROUP BY issue"


def feed_of(place: Place, name: str) -> Any:
    return place.db._now.broker.feeds[name]


def reflected(place: Place, name: str) -> str:
    return str(feed_of(place, name).record.reflected)


def retaining(relay: Place, publisher: Place, rows: int) -> None:
    """Have a source that retains few rows."""
    relay.db.execute(
        f"CREATE SOURCE trade FROM '{publisher.url('trade')}' WITH (token_file = '{publisher.token}')"
        f" AS STREAM (issue TEXT, price INT) WITH (retain = '{rows} rows')"
    )


class Losing:
    """Loses what comes of some ticks of a source, until it is healed."""

    def __init__(self, place: Place, name: str, is_lost: Callable[[int], bool]) -> None:
        self._feed, self._is_lost = feed_of(place, name), is_lost
        self.lost = set[int]()
        self._receive = self._feed.receive
        self._feed.receive = self._take

    def _take(self, wire_id: int, message: Any) -> None:
        if isinstance(message, ms.UpdateMessage | ms.Silence | ms.Lost):
            since, upto = (Position.parse(text).epoch for text in (message.since, message.at))
            if any(self._is_lost(tick) for tick in range(since + 1, upto + 1)):
                self.lost.update(range(since + 1, upto + 1))
                return
        self._receive(wire_id, message)

    def heal(self) -> None:
        self._feed.receive = self._receive


def test_relays_run_ahead_of_a_gap_and_heal(place: Make) -> None:
    """With ticks 1, 2 and 4 at the relay and 3 lost, the brokers behind it reflect 4, too, and 3 when it comes."""
    publisher, relay, next_one, last = place("p", TRADE), place("r"), place("n"), place("l")
    for near, far in ((relay, publisher), (next_one, relay), (last, next_one)):
        near.source("trade", far)
    last.db.execute(HIGH)
    start = publisher.db.epoch
    losing = Losing(relay, "trade", lambda tick: tick == start + 3)
    for price in (10, 20, 30, 40):
        publisher.db.insert("trade", ("A", price))
        until(
            lambda: publisher.db.epoch in losing.lost or publisher.db.epoch in feed_of(relay, "trade").record.reflected
        )
    until(lambda: last.rows("high") == [("A", 40, 3, 70)])
    assert RangeSet.parse(reflected(last, "trade")).gaps() == [(start + 2, start + 3)]
    update = next(last.db.subscribe("high").follow(timeout=60))
    assert list(update.reflects.values()) == [f"0-{start + 2},{start + 3}-{start + 4}"]
    losing.heal()
    until(lambda: last.rows("high") == [("A", 40, 4, 100)])
    until(lambda: not RangeSet.parse(reflected(last, "trade")).gaps())


def test_relay_asks_for_what_it_has_let_go_of(place: Make) -> None:
    """Two brokers come late, one of them with a filter. The relay retains little: it asks, once for both."""
    publisher, relay = place("p", TRADE), place("r")
    retaining(relay, publisher, 10)
    for price in range(30):
        publisher.db.insert("trade", [("A", price), ("B", -price)])
    until(lambda: publisher.db.epoch in feed_of(relay, "trade").record.reflected)
    until(lambda: len(relay.rows("trade")) == 10)
    asked: list[Any] = []
    send = feed_of(relay, "trade")._send
    feed_of(relay, "trade")._send = lambda message: asked.append(message) or send(message)
    one, other = place("one"), place("other")
    one.source("trade", relay)
    until(lambda: one.rows("trade") == sorted([("A", p) for p in range(30)] + [("B", -p) for p in range(30)]))
    other.source("trade", relay)
    other.db.execute("CREATE VIEW cheap AS SELECT issue, COUNT(*) AS n FROM trade WHERE price < -10 GROUP BY issue")
    until(lambda: other.rows("cheap") == [("B", 19)])
    for broker in (one, other):
        assert broker.db.execute("SHOW SOURCES").rows[0][6] == "", "nothing is lost"
    wants = [message for message in asked if isinstance(message, ms.Want) and message.ranges]
    assert wants
    assert len(relay.rows("trade")) == 10, "what it passes on it does not take in again"


def test_what_is_lost_at_the_publisher_is_lost_behind_a_relay(place: Make) -> None:
    publisher, relay = place("p", f"{TRADE} WITH (retain = '20 rows')"), place("r")
    retaining(relay, publisher, 5)
    for price in range(30):
        publisher.db.insert("trade", ("A", price))
    until(lambda: publisher.db.epoch in feed_of(relay, "trade").record.reflected)
    last = place("l")
    last.source("trade", relay)
    until(lambda: last.rows("trade") == [("A", price) for price in range(10, 30)])
    until(lambda: not RangeSet.parse(reflected(last, "trade")).gaps())
    lost = RangeSet.parse(last.db.execute("SHOW SOURCES").rows[0][6])
    assert lost.last == publisher.db.epoch - 20


@pytest.mark.parametrize("kind", ["stream", "table"])
def test_another_past_of_the_publisher_replaces_what_is_behind_a_relay(place: Make, tmp_path: Path, kind: str) -> None:
    publisher = place("p", f"{TRADE}; CREATE TABLE flight (id TEXT PRIMARY KEY, price INT)")
    relay, last = place("r"), place("l")
    name = "trade" if kind == "stream" else "flight"
    publisher.db.insert(name, [("A", 1)])
    publisher.db.backup(tmp_path / "copy")
    relay.source(name, publisher)
    last.source(name, relay)
    for number in range(2, 9):
        publisher.db.insert(name, [(f"B{number}", number)])
    until(lambda: len(last.rows(name)) == 8)
    publisher.stop()
    shutil.rmtree(publisher.folder)
    shutil.move(tmp_path / "copy", publisher.folder)
    publisher.start()
    for number in range(10, 30):
        publisher.db.insert(name, [(f"C{number}", number)])
    truth = sorted([("A", 1), *((f"C{number}", number) for number in range(10, 30))])
    until(lambda: relay.rows(name) == truth)
    until(lambda: last.rows(name) == truth)
    publisher.db.insert(name, [("D", 1)])
    until(lambda: last.rows(name) == sorted([*truth, ("D", 1)]))


def test_backup_of_a_broker_goes_on_from_its_ticks(place: Make, tmp_path: Path) -> None:
    publisher, relay, last = place("p", TRADE), place("r"), place("l")
    relay.source("trade", publisher)
    relay.db.execute(HIGH)
    publisher.db.insert("trade", [("A", 1), ("A", 2)])
    until(lambda: relay.rows("high") == [("A", 2, 2, 3)])
    relay.db.backup(tmp_path / "copy")
    last.source("trade", relay)
    publisher.db.insert("trade", ("A", 5))
    until(lambda: last.rows("trade") == [("A", 1), ("A", 2), ("A", 5)])
    relay.stop()
    shutil.rmtree(relay.folder)
    shutil.move(tmp_path / "copy", relay.folder)
    publisher.db.insert("trade", ("A", 7))
    relay.start()
    until(lambda: relay.rows("high") == [("A", 7, 4, 15)])
    until(lambda: last.rows("trade") == [("A", 1), ("A", 2), ("A", 5), ("A", 7)])
    with whence.open(relay.folder, read_only=True) as reader:
        assert reader.query('SELECT COUNT(*) FROM "$reflects" WHERE lost').rows == [(0,)]
