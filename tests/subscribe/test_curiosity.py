"""Curiosity: sources are asked only for what views can use, counted in messages, and the views stay exact."""

from __future__ import annotations

from collections import Counter

import pytest

import whence
from benchmarks.curious_source import CuriousSource, databases
from whence.subscribe.amendments import FilterKeeper, RelationChange

_FLIGHTS = "CREATE TABLE flight (id TEXT PRIMARY KEY, dest TEXT, seats INT, price INT)"
_BOOKINGS = "CREATE TABLE booking (flight TEXT, n INT)"
_LEFT = "flight f LEFT JOIN (SELECT flight, SUM(n) AS n FROM booking GROUP BY flight) b ON f.id = b.flight"
_AVAILABLE = f"CREATE VIEW available AS SELECT f.id, f.price FROM {_LEFT} WHERE f.seats > COALESCE(b.n, 0)"
_CHEAPEST = (
    f"CREATE VIEW cheapest AS SELECT f.id, f.price FROM {_LEFT} WHERE f.seats > COALESCE(b.n, 0) AND f.dest = 'LHR'"
    " ORDER BY f.price LIMIT 3"
)
_ROWS = [("AA141", "LHR", 200, 600), ("UA23", "SFO", 150, 300), ("NW44", "LHR", 10, 450)]


def flights(*views: str, local: str = "", **options: object) -> tuple[whence.Database, whence.Database, CuriousSource]:
    publisher, broker = databases(_FLIGHTS, "; ".join(views), f"{_BOOKINGS}; {local}" if local else _BOOKINGS)
    publisher.insert("flight", _ROWS)
    source = CuriousSource(publisher, broker, "flight", **options)  # type: ignore[arg-type]
    source.settle()
    return publisher, broker, source


def price(db: whence.Database, flight: str, price: int) -> None:
    db.execute(f"UPDATE flight SET price = {price} WHERE id = '{flight}'")


def test_price_of_full_flight_is_not_sent_and_seats_bring_it_back() -> None:
    publisher, broker, source = flights(_AVAILABLE)
    broker.insert("booking", [("NW44", 4), ("NW44", 6)])
    source.settle()
    assert sorted(broker.query("SELECT * FROM available").rows) == [("AA141", 600), ("UA23", 300)]
    before = source.messages
    for new in range(460, 500):
        price(publisher, "NW44", new)
        source.settle()
    assert source.messages - before == 0
    price(publisher, "AA141", 610)
    source.settle()
    assert source.messages - before == 1
    publisher.execute("UPDATE flight SET seats = 12 WHERE id = 'NW44'")
    source.deliver()
    assert source.is_exposed  # no question is needed: the row came whole
    assert ("NW44", 499) in broker.query("SELECT * FROM available").rows
    price(publisher, "NW44", 555)
    source.settle()
    assert ("NW44", 555) in broker.query("SELECT * FROM available").rows


def test_row_is_current_before_it_shows_when_a_local_relation_flips() -> None:
    publisher, broker, source = flights(_AVAILABLE)
    broker.insert("booking", ("NW44", 10))
    source.settle()
    price(publisher, "NW44", 999)
    source.settle()
    broker.execute("DELETE FROM booking")
    assert not source.is_exposed  # nothing is told from here on
    assert source.settle() == 1
    assert source.is_exposed
    assert ("NW44", 999) in broker.query("SELECT * FROM available").rows


def test_what_cheapest_drops_planned_still_gets() -> None:
    planned = "CREATE VIEW planned AS SELECT f.id, f.price FROM flight f JOIN plan p ON p.flight = f.id"
    publisher, broker, source = flights(_CHEAPEST, planned, local="CREATE TABLE plan (flight TEXT)")
    broker.insert("booking", ("NW44", 10))
    broker.insert("plan", ("NW44",))
    source.settle()
    before = source.messages
    price(publisher, "NW44", 470)
    source.settle()
    assert source.messages - before == 1
    assert broker.query("SELECT * FROM planned").rows == [("NW44", 470)]
    broker.execute("DELETE FROM plan")
    source.settle()
    price(publisher, "NW44", 480)
    source.settle()
    assert source.messages - before == 1
    broker.insert("plan", ("NW44",))
    source.settle()
    assert broker.query("SELECT * FROM planned").rows == [("NW44", 480)]


def test_quench_waits_for_its_delay() -> None:
    _, broker, source = flights(_AVAILABLE, delay=5.0)
    broker.insert("booking", ("NW44", 10))
    source.now = 4.0
    assert source.settle() == 0
    assert source.local.next_timer == pytest.approx(5.0)
    broker.execute("DELETE FROM booking")
    assert source.settle() == 0  # it flipped back: no message either way
    broker.insert("booking", ("NW44", 10))
    source.now = 10.0
    assert source.settle() == 1


@pytest.mark.parametrize(("margin", "free"), [(0, 0), (2, 2), (5, 5)])
def test_best_rows_are_pulled_when_the_margin_has_run_out(margin: int, free: int) -> None:
    publisher, broker = databases(_FLIGHTS, _CHEAPEST, _BOOKINGS)
    publisher.insert("flight", [(f"F{i:02}", "LHR", 10, 100 + i) for i in range(30)])
    source = CuriousSource(publisher, broker, "flight", margin=margin)
    source.settle()
    assert broker.query("SELECT COUNT(*) FROM flight").rows == [(3 + margin,)]
    for lost in range(free):
        broker.insert("booking", (f"F{lost:02}", 10))
        assert source.is_exposed
        assert [row[0] for row in broker.query("SELECT * FROM cheapest ORDER BY price").rows] == [
            f"F{lost + i:02}" for i in (1, 2, 3)
        ]
        assert source.settle() == 0
    broker.insert("booking", (f"F{free:02}", 10))
    assert not source.is_exposed
    assert source.settle() == 1
    assert [row[0] for row in broker.query("SELECT * FROM cheapest ORDER BY price").rows] == [
        f"F{free + i:02}" for i in (1, 2, 3)
    ]


def test_best_rows_hear_of_new_ones_within_the_bound_only() -> None:
    publisher, broker = databases(_FLIGHTS, _CHEAPEST, _BOOKINGS)
    publisher.insert("flight", [(f"F{i:02}", "LHR", 10, 100 + i) for i in range(30)])
    source = CuriousSource(publisher, broker, "flight", margin=2)
    source.settle()
    before = source.messages
    for i in range(50):
        publisher.insert("flight", (f"G{i:02}", "LHR", 10, 500 + i))
        source.settle()
    assert source.messages == before
    publisher.insert("flight", ("H", "LHR", 10, 50))
    source.settle()
    assert source.messages == before + 1
    assert broker.query("SELECT id FROM cheapest ORDER BY price LIMIT 1").rows == [("H",)]
    for i in range(20):  # so many that the bound comes down
        publisher.insert("flight", (f"K{i:02}", "LHR", 10, 20 + i))
        source.settle()
    assert broker.query("SELECT COUNT(*) FROM flight").rows[0][0] <= 10


def test_a_and_b_of_two_sources() -> None:
    """`a AND b > 0`: while a is false, changes of b are not sent; when it flips, b is current before the row shows."""
    schema = "CREATE TABLE x (id INT PRIMARY KEY, a BOOLEAN); CREATE TABLE y (id INT PRIMARY KEY, b INT)"
    view = "CREATE VIEW both_hold AS SELECT id, b FROM x JOIN y USING (id) WHERE a AND b > 0"
    publisher, broker = databases(schema, view)
    publisher.insert("x", [(1, False), (2, True)])
    publisher.insert("y", [(1, 5), (2, 6)])
    one = CuriousSource(publisher, broker, "x", sources=("y",))
    two = CuriousSource(publisher, broker, "y", sources=("x",))
    deciding, decided = (one, two) if two.needs.key is not None else (two, one)
    assert decided.needs.key is not None
    assert deciding.needs.key is None

    def settle() -> None:
        one.settle()
        two.settle()
        one.settle()
        two.settle()

    settle()
    assert broker.query("SELECT * FROM both_hold").rows == [(2, 6)]
    if decided is two:
        before = two.messages
        for b in range(10, 20):
            publisher.execute(f"UPDATE y SET b = {b} WHERE id = 1")
            settle()
        assert two.messages == before
        publisher.execute("UPDATE x SET a = TRUE WHERE id = 1")
        one.deliver()
        assert broker.query("SELECT * FROM both_hold").rows == [(2, 6)]
        assert not two.is_exposed
        settle()
        assert two.is_exposed
    publisher.execute("UPDATE x SET a = TRUE WHERE id = 1")
    settle()
    expected = publisher.query("SELECT id, b FROM x JOIN y USING (id) WHERE a AND b > 0").rows
    assert sorted(broker.query("SELECT * FROM both_hold").rows) == sorted(expected)


_QUOTES = "CREATE STREAM quote (issue TEXT, price INT)"
_FOLLOW = "CREATE VIEW follow AS SELECT quote.issue, price FROM quote JOIN buylist USING (issue)"


def test_buy_list_gets_each_quote_in_between_once_and_none_outside() -> None:
    publisher, broker = databases(_QUOTES, _FOLLOW, "CREATE TABLE buylist (issue TEXT PRIMARY KEY)")
    source = CuriousSource(publisher, broker, "quote")
    for hour in range(9, 13):
        if hour == 10:
            broker.insert("buylist", ("IBM",))
        if hour == 11:
            broker.execute("DELETE FROM buylist WHERE issue = 'IBM'")
            source.settle()
        for minute in range(6):
            publisher.insert("quote", [("IBM", hour * 100 + minute), ("MOT", hour * 100 + minute)])
            if minute % 2:
                source.settle()
    assert sorted(broker.query("SELECT price FROM follow").rows) == [(1000 + minute,) for minute in range(6)]
    assert source.rows == 6


def test_keys_that_come_back_bring_no_row_twice() -> None:
    publisher, broker = databases(_QUOTES, _FOLLOW, "CREATE TABLE buylist (issue TEXT PRIMARY KEY)")
    source, expected = CuriousSource(publisher, broker, "quote"), list[int]()
    on = False
    for number, step in enumerate(range(60), 1):
        publisher.insert("quote", ("IBM", number))
        if step % 3 == 0:
            source.deliver()
        if step % 4 == 1:
            source.deliver()  # the list changes here with everything before it seen
            on = not on
            broker.execute("INSERT INTO buylist VALUES ('IBM')" if on else "DELETE FROM buylist")
        if step % 5 == 2:
            source.send()
        if on:
            expected.append(number + 1)
    source.settle()
    found = Counter(row[0] for row in broker.query("SELECT price FROM follow").rows)
    assert max(found.values()) == 1
    assert set(found) <= set(expected)


def test_near_my_location_moves_in_one_amendment() -> None:
    schema = "CREATE TABLE shop (id INT PRIMARY KEY, cell INT, name TEXT)"
    view = "CREATE VIEW near AS SELECT shop.id, name FROM shop JOIN here USING (cell)"
    publisher, broker = databases(schema, view, "CREATE TABLE here (cell INT PRIMARY KEY)")
    publisher.insert("shop", [(i, i // 10, f"shop {i}") for i in range(100)])
    broker.insert("here", [(0,), (1,)])
    source = CuriousSource(publisher, broker, "shop")
    source.settle()
    assert broker.query("SELECT COUNT(*) FROM shop").rows == [(20,)]
    before = source.requests
    for place in range(1, 8):
        with broker.transaction():
            broker.execute("DELETE FROM here")
            broker.insert("here", [(place,), (place + 1,)])
        publisher.execute(f"UPDATE shop SET name = 'new {place}' WHERE cell = {place + 1}")
        source.settle()
        assert source.requests - before == place
        rows = broker.query("SELECT id, name FROM near").rows
        expected = publisher.query(f"SELECT id, name FROM shop WHERE cell IN ({place}, {place + 1})").rows
        assert sorted(rows) == sorted(expected)
        assert broker.query("SELECT COUNT(*) FROM shop").rows == [(20,)]


def test_refused_key_is_not_quenched_and_is_asked_about_again() -> None:
    keeper = FilterKeeper(live_rules=1)
    keeper.start()
    keeper.change(RelationChange(rows=([("NW44",), ("AA141",)], []), live=(([], []),)), now=0.0)
    asked = keeper.next(0.0)
    assert asked is not None
    assert asked.quench == {("NW44",), ("AA141",)}
    keeper.amended(now=1.0, refused=frozenset({("NW44",)}))
    assert keeper.quenched == {("AA141",)}
    again = keeper.next(1.0)
    assert again is not None
    assert again.quench == {("NW44",)}
