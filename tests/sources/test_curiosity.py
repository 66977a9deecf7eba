"""Curiosity of brokers over the network: what is sent, in rows and amendments, and what subscribers are told."""

from __future__ import annotations

import shutil
import time
from pathlib import Path
from typing import Any

import pytest

from tests.sources.conftest import Make, Place, until
from whence.model.errors import DataError
from whence.subscribe import messages as ms

_FLIGHTS = "CREATE TABLE flight (id TEXT PRIMARY KEY, dest TEXT, seats INT, price INT)"
_LEFT = "flight f LEFT JOIN (SELECT flight, SUM(n) AS n FROM booking GROUP BY flight) b ON f.id = b.flight"
_AVAILABLE = f"CREATE VIEW available AS SELECT f.id, f.price FROM {_LEFT} WHERE f.seats > COALESCE(b.n, 0)"
_CHEAPEST = (
    f"CREATE VIEW cheapest AS SELECT f.id, f.price FROM {_LEFT} WHERE f.seats > COALESCE(b.n, 0) AND f.dest = 'LHR'"
    " ORDER BY f.price LIMIT 3"
)


def source(broker: Place, name: str, publisher: Place, options: str = "") -> None:
    more = f", {options}" if options else ""
    broker.db.execute(
        f"CREATE SOURCE {name} FROM '{publisher.url(name)}' WITH (token_file = '{publisher.token}'{more})"
    )


def next_rows(subscription: Any) -> list[Any]:
    """Wait for rows that come."""
    end = time.monotonic() + 10
    while time.monotonic() < end:
        if seen := [row for update in subscription for row in update.came]:
            return seen
        time.sleep(0.005)
    raise AssertionError("nothing came")


class Counted:
    """Counts what a source receives and sends, from now on."""

    def __init__(self, broker: Place, name: str) -> None:
        self.feed = broker.db._now.broker.feeds[name]
        self.rows = self.amends = 0
        read, amend = self.feed._read, self.feed.amend

        def counting_read(message: Any) -> Any:
            for part in [*(getattr(message, "parts", None) or ()), getattr(message, "part", None)]:
                for columns in (getattr(part, "went", None), getattr(part, "came", None)):
                    self.rows += len(columns[0]) if columns else 0
            return read(message)

        def counting_amend(change: Any) -> None:
            self.amends += 1
            amend(change)

        self.feed._read, self.feed.amend = counting_read, counting_amend

    def reaches(self, publisher: Place) -> None:
        until(lambda: self.feed.record.reflected.horizon >= publisher.db.epoch)


def test_full_flight_is_quenched_and_comes_back_with_its_price(place: Make) -> None:
    publisher, broker = place("p", _FLIGHTS), place("b")
    publisher.db.insert("flight", [("AA141", "LHR", 200, 600), ("NW44", "LHR", 10, 450)])
    source(broker, "flight", publisher, "quench_after = '10 ms'")
    broker.db.execute("CREATE TABLE booking (flight TEXT, n INT)")
    broker.db.execute(_AVAILABLE)
    assert broker.rows("available") == [("AA141", 600), ("NW44", 450)]
    assert "price only of rows that available can show" in broker.db.explain("available")
    broker.db.insert("booking", [("NW44", 4), ("NW44", 6)])
    until(lambda: ("NW44",) in broker.db._now.broker.curiosity._sources["flight"].keeper.quenched)
    counted = Counted(broker, "flight")
    for price in range(500, 520):
        publisher.db.update("flight", {"price": price}, {"id": "NW44"})
    counted.reaches(publisher)
    assert counted.rows == 0
    publisher.db.update("flight", {"seats": 12}, {"id": "NW44"})
    until(lambda: ("NW44", 519) in broker.rows("available"))


def test_subscriber_never_sees_an_old_price(place: Make) -> None:
    publisher, broker = place("p", _FLIGHTS), place("b")
    publisher.db.insert("flight", [("AA141", "LHR", 200, 600), ("NW44", "LHR", 10, 450)])
    source(broker, "flight", publisher, "quench_after = '10 ms'")
    broker.db.execute("CREATE TABLE booking (flight TEXT, n INT)")
    broker.db.execute(_AVAILABLE)
    subscription = broker.db.subscribe("available")
    list(subscription)
    keeper = broker.db._now.broker.curiosity._sources["flight"].keeper
    for price in range(700, 705):
        broker.db.insert("booking", ("NW44", 10))
        until(lambda: ("NW44",) in keeper.quenched)
        list(subscription)
        publisher.db.update("flight", {"price": price}, {"id": "NW44"})
        Counted(broker, "flight").reaches(publisher)
        broker.db.execute("DELETE FROM booking")
        assert next_rows(subscription) == [("NW44", price)]


def test_best_rows_are_pulled_when_the_margin_has_run_out(place: Make) -> None:
    publisher, broker = place("p", _FLIGHTS), place("b")
    publisher.db.insert("flight", [(f"F{i:02}", "LHR", 10, 100 + i) for i in range(30)])
    source(broker, "flight", publisher, "margin = '2'")
    broker.db.execute("CREATE TABLE booking (flight TEXT, n INT)")
    broker.db.execute(_CHEAPEST)
    until(lambda: len(broker.rows("cheapest")) == 3)
    assert len(broker.rows("flight")) == 5
    counted = Counted(broker, "flight")
    for lost in range(2):
        broker.db.insert("booking", (f"F{lost:02}", 10))
        assert broker.rows("cheapest") == [(f"F{lost + i:02}", 100 + lost + i) for i in (1, 2, 3)]
    time.sleep(0.1)
    assert counted.amends == 0
    broker.db.insert("booking", ("F02", 10))
    until(lambda: broker.rows("cheapest") == [("F03", 103), ("F04", 104), ("F05", 105)])
    assert counted.amends == 1


def test_buy_list_is_followed(place: Make) -> None:
    publisher, broker = place("p", "CREATE STREAM quote (issue TEXT, price INT)"), place("b")
    source(broker, "quote", publisher, "quench_after = '1 ms'")
    broker.db.execute("CREATE TABLE buylist (issue TEXT PRIMARY KEY)")
    broker.db.execute("CREATE VIEW follow AS SELECT quote.issue, price FROM quote JOIN buylist USING (issue)")
    counted, number = Counted(broker, "quote"), 0

    def publish(count: int) -> None:
        nonlocal number
        for _ in range(count):
            number += 1
            publisher.db.insert("quote", [("IBM", number), ("MOT", number)])
        counted.reaches(publisher)

    publish(5)
    broker.db.insert("buylist", ("IBM",))
    publish(5)
    until(lambda: len(broker.rows("follow")) == 5)
    broker.db.execute("DELETE FROM buylist")
    until(lambda: not broker.db._now.broker.curiosity._sources["quote"].keeper.keys)
    publish(5)
    assert broker.rows("follow") == [("IBM", price) for price in range(6, 11)]
    assert counted.rows == 5


def test_new_view_widens_what_is_asked_for(place: Make) -> None:
    publisher, broker = place("p", _FLIGHTS), place("b")
    publisher.db.insert("flight", [("AA141", "LHR", 200, 600), ("UA23", "SFO", 150, 300)])
    source(broker, "flight", publisher)
    broker.db.execute("CREATE VIEW london AS SELECT id FROM flight WHERE dest = 'LHR'")
    assert broker.db.query("SELECT COUNT(*) FROM london").rows == [(1,)]
    until(lambda: broker.rows("flight") == [("AA141", "LHR", None, None)])
    assert broker.db.query("SELECT id FROM flight WHERE dest = 'LHR'").rows == [("AA141",)]
    for query in ("SELECT * FROM flight", "SELECT SUM(seats) FROM flight WHERE dest = 'LHR'", "SELECT id FROM flight"):
        with pytest.raises(DataError, match="has only what views and subscriptions need: flight is asked for id, dest"):
            broker.db.query(query)
    broker.db.execute("CREATE VIEW seats AS SELECT SUM(seats) AS n FROM flight")
    assert broker.rows("seats") == [(350,)]
    [update] = broker.db.subscribe("SELECT id, price FROM flight WHERE price < 500")
    assert update.came == [("UA23", 300)]


def test_restart_of_a_curious_broker(place: Make) -> None:
    publisher, broker = place("p", _FLIGHTS), place("b")
    publisher.db.insert("flight", [(f"F{i:02}", "LHR", 10, 100 + i) for i in range(30)])
    source(broker, "flight", publisher)
    broker.db.execute("CREATE TABLE booking (flight TEXT, n INT)")
    broker.db.execute(_CHEAPEST)
    until(lambda: len(broker.rows("cheapest")) == 3)
    broker.stop()
    publisher.db.execute("DELETE FROM flight WHERE price < 110")
    broker.start()
    until(lambda: broker.rows("cheapest") == [("F10", 110), ("F11", 111), ("F12", 112)])


def test_server_that_refuses_the_query_is_asked_for_everything(place: Make) -> None:
    publisher, broker = place("p", _FLIGHTS), place("b")
    publisher.db.insert("flight", [("AA141", "LHR", 200, 600), ("UA23", "SFO", 150, 300)])
    source(broker, "flight", publisher)
    feed = broker.db._now.broker.feeds["flight"]
    read = feed._read

    def refusing(message: Any) -> Any:
        if isinstance(message, ms.Subscribed) and feed.asked.needs is not None:
            message = ms.ErrorMessage("SqlError", "no such thing here", id=message.id)
        return read(message)

    feed._read = refusing
    broker.db.execute("CREATE VIEW london AS SELECT id FROM flight WHERE dest = 'LHR'")
    until(lambda: len(broker.rows("flight")) == 2 and broker.rows("flight")[0][3] == 600)
    assert broker.rows("london") == [("AA141",)]


def test_brokers_in_a_row_each_ask_for_less(place: Make) -> None:
    publisher, middle, last = place("p", _FLIGHTS), place("m"), place("l")
    publisher.db.insert("flight", [("AA141", "LHR", 200, 600), ("UA23", "SFO", 150, 300), ("NW44", "LHR", 10, 450)])
    source(middle, "flight", publisher)
    source(last, "flight", middle, "quench_after = '10 ms'")
    last.db.execute("CREATE TABLE booking (flight TEXT, n INT)")
    last.db.execute(f"{_AVAILABLE} AND f.dest = 'LHR'")
    middle.db.execute("CREATE VIEW gates AS SELECT COUNT(*) AS n FROM flight WHERE dest = 'SFO'")
    until(lambda: last.rows("available") == [("AA141", 600), ("NW44", 450)])
    last.db.insert("booking", ("NW44", 10))
    until(lambda: ("NW44",) in last.db._now.broker.curiosity._sources["flight"].keeper.quenched)
    counted = Counted(last, "flight")
    for price in range(10):
        publisher.db.update("flight", {"price": 500 + price}, {"id": "NW44"})
        publisher.db.update("flight", {"price": 400 + price}, {"id": "UA23"})
    counted.reaches(publisher)
    assert counted.rows == 0
    last.db.execute("DELETE FROM booking")
    until(lambda: last.rows("available") == [("AA141", 600), ("NW44", 509)])
    assert middle.rows("gates") == [(1,)]


def test_source_that_does_not_answer_is_what_is_waited_for(place: Make) -> None:
    publisher, broker = place("p", _FLIGHTS), place("b")
    publisher.db.insert("flight", [("AA141", "LHR", 200, 600), ("NW44", "LHR", 10, 450)])
    source(broker, "flight", publisher, "quench_after = '10 ms'")
    broker.db.execute("CREATE TABLE booking (flight TEXT, n INT)")
    broker.db.execute(_AVAILABLE)
    subscription = broker.db.subscribe("available")
    list(subscription)
    broker.db.insert("booking", ("NW44", 10))
    until(lambda: ("NW44",) in broker.db._now.broker.curiosity._sources["flight"].keeper.quenched)
    list(subscription)
    publisher.stop()
    began = time.monotonic()
    broker.db.execute("DELETE FROM booking")
    end, told = began + 20, []
    while not told and time.monotonic() < end:
        told = [update for update in subscription if update.came]
        time.sleep(0.01)
    assert [update.came for update in told] == [[("NW44", 450)]]
    assert time.monotonic() - began > 1.0  # after a while, and with doubt
    assert [waiting.source for waiting in told[0].waiting_for] == ["flight"]
    publisher.start()


def test_buy_list_goes_on_after_restarts(place: Make) -> None:
    publisher, broker = place("p", "CREATE STREAM quote (issue TEXT, price INT)"), place("b")
    source(broker, "quote", publisher)
    broker.db.execute("CREATE TABLE buylist (issue TEXT PRIMARY KEY)")
    broker.db.execute("CREATE VIEW follow AS SELECT quote.issue, price FROM quote JOIN buylist USING (issue)")
    broker.db.insert("buylist", ("IBM",))
    publisher.db.insert("quote", [("IBM", 1), ("MOT", 1)])
    until(lambda: broker.rows("follow") == [("IBM", 1)])
    broker.stop()
    publisher.db.insert("quote", [("IBM", 2), ("MOT", 2)])
    broker.start()
    until(lambda: broker.rows("follow") == [("IBM", 1), ("IBM", 2)])
    publisher.stop()
    publisher.start()
    publisher.db.insert("quote", [("IBM", 3), ("MOT", 3)])
    until(lambda: broker.rows("follow") == [("IBM", 1), ("IBM", 2), ("IBM", 3)])
    assert {row[0] for row in broker.rows("quote")} == {"IBM"}


@pytest.mark.parametrize("kind", ["STREAM", "TABLE"])
def test_key_is_asked_for_again_of_a_publisher_that_has_another_past(place: Make, tmp_path: Path, kind: str) -> None:
    """A key comes to the list while the publisher is away, and is restored from a copy: what was to be asked for is
    given up with the old past, and asked for in the new one, from its beginning."""
    publisher, broker = place("p", f"CREATE {kind} quote (issue TEXT, price INT)"), place("b")
    publisher.db.insert("quote", [("IBM", 0), ("MOT", 0)])
    publisher.stop()
    shutil.copytree(publisher.folder, tmp_path / "copy")
    publisher.start()
    source(broker, "quote", publisher, "quench_after = '1 ms'")
    broker.db.execute("CREATE TABLE buylist (issue TEXT PRIMARY KEY)")
    broker.db.execute("CREATE VIEW follow AS SELECT quote.issue, price FROM quote JOIN buylist USING (issue)")
    broker.db.insert("buylist", [("IBM",), ("MOT",)])
    for price in range(1, 8):
        publisher.db.insert("quote", [("IBM", price), ("MOT", price)])
    until(lambda: len(broker.rows("follow")) >= 14)
    keeper = broker.db._now.broker.curiosity._sources["quote"].keeper
    broker.db.delete("buylist", [("MOT",)])
    until(lambda: keeper.keys == {("IBM",)})
    publisher.stop()
    until(lambda: not broker.db._now.broker.feeds["quote"].state.is_open)
    broker.db.insert("buylist", ("MOT",))
    until(lambda: keeper.is_amending)
    shutil.rmtree(publisher.folder)
    shutil.move(tmp_path / "copy", publisher.folder)
    publisher.start()
    publisher.db.insert("quote", [("IBM", 10), ("MOT", 10)])
    until(lambda: {("IBM", 10), ("MOT", 10)} <= {*broker.rows("follow")})
    assert ("MOT", 7) not in broker.rows("follow")


def test_quenched_rows_are_current_after_the_connection_was_lost(place: Make) -> None:
    """A publisher that was restarted remembers no changes, so it tells the state."""
    publisher, broker = place("p", _FLIGHTS), place("b")
    publisher.db.insert("flight", [("AA141", "LHR", 200, 600), ("NW44", "LHR", 10, 450)])
    source(broker, "flight", publisher, "quench_after = '10 ms'")
    broker.db.execute("CREATE TABLE booking (flight TEXT, n INT)")
    broker.db.execute(_AVAILABLE)
    broker.db.insert("booking", [("NW44", 10)])
    until(lambda: ("NW44",) in broker.db._now.broker.curiosity._sources["flight"].keeper.quenched)
    publisher.db.update("flight", {"price": 470}, {"id": "NW44"})
    publisher.stop()
    publisher.start()
    publisher.db.update("flight", {"price": 480}, {"id": "NW44"})
    until(lambda: broker.db._now.broker.feeds["flight"].record.reflected.horizon >= publisher.db.epoch)
    broker.db.delete("booking", [("NW44", 10)])
    until(lambda: broker.rows("available") == [("AA141", 600), ("NW44", 480)])
    publisher.db.update("flight", {"price": 490}, {"id": "NW44"})
    until(lambda: broker.rows("available") == [("AA141", 600), ("NW44", 490)])


def test_quenched_rows_need_no_state_after_the_connection_was_lost(place: Make) -> None:
    """Both ends know which keys are quenched: the filter that is subscribed with again says so."""
    publisher, broker = place("p", _FLIGHTS), place("b")
    publisher.db.insert("flight", [("AA141", "LHR", 200, 600), ("NW44", "LHR", 10, 450)])
    source(broker, "flight", publisher, "quench_after = '10 ms'")
    broker.db.execute("CREATE TABLE booking (flight TEXT, n INT)")
    broker.db.execute(_AVAILABLE)
    broker.db.insert("booking", [("NW44", 10)])
    until(lambda: ("NW44",) in broker.db._now.broker.curiosity._sources["flight"].keeper.quenched)
    feed = broker.db._now.broker.feeds["flight"]
    heard: list[Any] = []
    read = feed._read
    feed._read = lambda message: heard.append(message) or read(message)
    publisher.db.update("flight", {"price": 470}, {"id": "NW44"})
    broker.db._now.broker.call(feed._connection.close)
    until(lambda: any(isinstance(message, ms.Subscribed) for message in heard))
    publisher.db.update("flight", {"price": 480}, {"id": "NW44"})
    until(lambda: feed.record.reflected.horizon >= publisher.db.epoch)
    broker.db.delete("booking", [("NW44", 10)])
    until(lambda: broker.rows("available") == [("AA141", 600), ("NW44", 480)])
    assert not [message for message in heard if isinstance(message, ms.State)]


def test_keys_that_are_not_quenched_after_all_are_named(place: Make) -> None:
    """Seats were raised after the broker had decided: the publisher refuses, and says so."""
    publisher, broker = place("p", _FLIGHTS), place("b")
    publisher.db.insert("flight", [("AA141", "LHR", 200, 600), ("NW44", "LHR", 10, 450)])
    source(broker, "flight", publisher, "quench_after = '1 day'")
    broker.db.execute("CREATE TABLE booking (flight TEXT, n INT)")
    broker.db.execute(_AVAILABLE)
    before = publisher.db.epoch
    publisher.db.update("flight", {"seats": 12}, {"id": "NW44"})
    feed = broker.db._now.broker.feeds["flight"]
    heard: list[Any] = []
    read = feed._read
    feed._read = lambda message: heard.append(message) or read(message)
    broker.db._now.broker.call(feed.amend, ms.Amend(0, 0, quench=[["AA141", "NW44"]], as_of=before))
    until(lambda: any(isinstance(message, ms.Amended) for message in heard))
    assert [message.refused for message in heard if isinstance(message, ms.Amended)] == [[["NW44"]]]


def test_a_join_on_two_columns_asks_for_pairs(place: Make) -> None:
    publisher, broker = place("p", "CREATE TABLE quote (issue TEXT, market TEXT, price INT)"), place("b")
    publisher.db.insert("quote", [(i, m, 1) for i in "AB" for m in "xy"])
    broker.db.execute("CREATE TABLE wanted (issue TEXT, market TEXT)")
    broker.db.insert("wanted", [("A", "x"), ("B", "y")])
    source(broker, "quote", publisher, "quench_after = '10 ms'")
    broker.db.execute("CREATE VIEW mine AS SELECT quote.* FROM quote JOIN wanted USING (issue, market)")
    until(lambda: broker.rows("mine") == [("A", "x", 1), ("B", "y", 1)])
    assert broker.rows("quote") == [("A", "x", 1), ("B", "y", 1)]  # not A at y, although both are wanted
    assert "of (issue, market) in" in broker.db.explain("mine")
    counted = Counted(broker, "quote")
    publisher.db.execute("UPDATE quote SET price = 2 WHERE issue = 'A'")
    counted.reaches(publisher)
    assert counted.rows == 2
    broker.db.insert("wanted", ("A", "y"))
    until(lambda: broker.rows("mine") == [("A", "x", 2), ("A", "y", 2), ("B", "y", 1)])
    assert counted.amends == 1


def test_columns_of_best_rows_are_quenched_by_key(place: Make) -> None:
    publisher, broker = (
        place("p", "CREATE TABLE flight (id TEXT PRIMARY KEY, seats INT, price INT, gate TEXT)"),
        place("b"),
    )
    publisher.db.insert("flight", [(f"F{i}", 10, 100 + i, "A1") for i in range(8)])
    source(broker, "flight", publisher, "quench_after = '10 ms'")
    broker.db.execute("CREATE TABLE booking (flight TEXT, n INT)")
    broker.db.execute(_CHEAPEST.replace(" AND f.dest = 'LHR'", "").replace("f.price FROM", "f.price, f.gate FROM"))
    until(lambda: len(broker.rows("cheapest")) == 3)
    broker.db.insert("booking", ("F0", 10))
    until(lambda: ("F0",) in broker.db._now.broker.curiosity._sources["flight"].keeper.quenched)
    counted = Counted(broker, "flight")
    publisher.db.update("flight", {"gate": "B2"}, {"id": "F0"})
    publisher.db.update("flight", {"gate": "B3"}, {"id": "F7"})  # beyond the bound
    counted.reaches(publisher)
    assert counted.rows == 0
    broker.db.execute("DELETE FROM booking")
    until(lambda: ("F0", 100, "B2") in broker.rows("cheapest"))
