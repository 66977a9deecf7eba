"""The paper's examples over several publishers: flights, and bookings that are cancelled, with independent delays."""

from __future__ import annotations

import random

import pytest

from tests.sources.conftest import Make, Place, until

FLIGHT = "CREATE TABLE flight (id TEXT PRIMARY KEY, dest TEXT, price INT, seats INT)"
BOOKING = "CREATE STREAM booking (flight TEXT, seats INT CHECK (seats > 0))"
BOOKED = "CREATE VIEW booked AS SELECT flight, SUM(seats) AS seats FROM booking GROUP BY flight"
AVAILABLE = """CREATE VIEW available AS SELECT id, dest, price, flight.seats - COALESCE(booked.seats, 0) AS free
    FROM flight LEFT JOIN booked ON id = booked.flight WHERE flight.seats > COALESCE(booked.seats, 0)"""
CHEAPEST = """CREATE VIEW cheapest AS SELECT id, price FROM available WHERE dest = 'LHR' ORDER BY price, id LIMIT 3"""
PLANNED = "CREATE VIEW planned AS SELECT id, dest, price FROM flight WHERE id IN ('AA141', 'UA23')"


@pytest.mark.parametrize("brokers", [1, 2, 3])
def test_flights_are_the_same_wherever_views_are_placed(place: Make, brokers: int) -> None:
    """Figure 1, over two publishers; all views at one broker, or each at one of its own."""
    schedule, desk = place("schedule", FLIGHT), place("desk", BOOKING)
    made: list[Place] = [place(f"b{number}") for number in range(brokers)]
    inner, middle, outer = made[0], made[min(1, brokers - 1)], made[-1]
    inner.source("flight", schedule)
    inner.source("booking", desk)
    inner.db.execute(f"{BOOKED}; {AVAILABLE}")
    if middle is not inner:
        middle.source("available", inner)
    middle.db.execute(CHEAPEST)
    if outer is not inner:
        outer.source("flight", inner)
    outer.db.execute(PLANNED)
    schedule.db.insert("flight", [("AA141", "LHR", 600, 200), ("UA23", "SFO", 300, 150), ("NW44", "LHR", 450, 10)])
    desk.db.insert("booking", ("NW44", 4))
    until(lambda: middle.rows("cheapest") == [("AA141", 600), ("NW44", 450)])
    desk.db.insert("booking", ("NW44", 6))  # it is full
    until(lambda: [row[0] for row in inner.rows("available")] == ["AA141", "UA23"])
    until(lambda: middle.rows("cheapest") == [("AA141", 600)])
    until(lambda: outer.rows("planned") == [("AA141", "LHR", 600), ("UA23", "SFO", 300)])
    schedule.db.update("flight", {"price": 440}, {"id": "NW44"})
    schedule.db.update("flight", {"price": 610}, {"id": "AA141"})
    until(lambda: outer.rows("planned")[0] == ("AA141", "LHR", 610))
    schedule.db.update("flight", {"seats": 12}, {"id": "NW44"})  # seats are raised after it was full
    until(lambda: middle.rows("cheapest") == [("AA141", 610), ("NW44", 440)])


def test_booked_and_not_cancelled_with_independent_delays(place: Make) -> None:
    """Cancel, rebook and cancel: whichever publisher is heard of first, both brokers end with what is true."""
    booking = place("booking", "CREATE TABLE booked (id INT PRIMARY KEY, who TEXT)")
    cancel = place("cancel", "CREATE TABLE cancelled (id INT PRIMARY KEY)")
    brokers = [place("one"), place("two")]
    for broker, order in zip(brokers, ((booking, cancel), (cancel, booking)), strict=True):
        for publisher in order:
            broker.source("booked" if publisher is booking else "cancelled", publisher)
        broker.db.execute("""
            CREATE VIEW held AS SELECT id, who FROM booked WHERE id NOT IN (SELECT id FROM cancelled);
        """)
    dice, held = random.Random(11), dict[int, bool]()
    for step in range(60):
        number = dice.randrange(8)
        if held.get(number):
            cancel.db.insert("cancelled", (number,))
        elif number in held:
            cancel.db.delete("cancelled", (number,))
        else:
            booking.db.insert("booked", (number, f"p{number}"))
        held[number] = not held.get(number, False)
        if step == 30:
            cancel.stop()
            cancel.start()
    truth = sorted((number, f"p{number}") for number, is_held in held.items() if is_held)
    for broker in brokers:
        until(lambda b=broker: b.rows("held") == truth)
