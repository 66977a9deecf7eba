"""Where views are placed makes no difference in the end, and a view moves while it is followed: in virtual time, over
links that lose. Every update is checked besides (`stage_oracle`)."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from tests.depth import DEEP
from whence.subscribe.simulate.stages import VirtualStage, seeded

FLIGHT = "CREATE TABLE flight (id TEXT PRIMARY KEY, dest TEXT, price INT, seats INT)"
BOOKING = "CREATE STREAM booking (flight TEXT, seats INT CHECK (seats > 0))"
VIEWS = {
    "available": """CREATE VIEW available AS SELECT id, dest, price FROM flight LEFT JOIN
        (SELECT flight, SUM(seats) AS booked FROM booking GROUP BY flight) b ON id = b.flight
        WHERE seats > COALESCE(booked, 0)""",
    "cheapest": "CREATE VIEW cheapest AS SELECT id, price FROM available WHERE dest = 'LHR' ORDER BY price, id LIMIT 3",
    "planned": "CREATE VIEW planned AS SELECT id, price FROM flight WHERE id IN ('AA141', 'UA23')",
}
"""Figure 1."""

EVERYWHERE = list(itertools.product(range(3), repeat=3))  # the brokers of available, cheapest and planned
PLACEMENTS = [
    (where, relayed) for where in EVERYWHERE for relayed in (False, True) if not relayed or where[0] != where[2]
]
if not DEEP:  # brokers are alike: one of those that differ by their names only
    seen = {(tuple(map(where.index, where)), relayed): (where, relayed) for where, relayed in reversed(PLACEMENTS)}
    PLACEMENTS = sorted(seen.values())


@contextmanager
def staged(seed: str, *names: str) -> Iterator[VirtualStage]:
    """Have a stage for a while."""
    with seeded(seed):
        stage = VirtualStage(seed, names)
        try:
            yield stage
        finally:
            stage.close()


@pytest.mark.parametrize(("where", "relayed"), PLACEMENTS, ids=str)
def test_placement_makes_no_difference_in_the_end(where: tuple[int, int, int], relayed: bool) -> None:
    with staged(f"place {where} {relayed}", "schedule", "desk", "b0", "b1", "b2") as stage:
        schedule, desk = stage.nodes["schedule"], stage.nodes["desk"]
        schedule.execute(FLIGHT)
        desk.execute(BOOKING)
        at = dict(zip(VIEWS, (stage.nodes[f"b{number}"] for number in where), strict=True))
        stage.source(at["available"], "flight", schedule, "quench_after = '1 ms'")
        stage.source(at["available"], "booking", desk)
        at["available"].execute(VIEWS["available"])
        if at["cheapest"] is not at["available"]:
            stage.source(at["cheapest"], "available", at["available"])
        at["cheapest"].execute(VIEWS["cheapest"])
        if at["planned"] is not at["available"]:
            stage.source(at["planned"], "flight", at["available"] if relayed else schedule)
        at["planned"].execute(VIEWS["planned"])
        flights = [("AA141", "LHR", 600, 200), ("UA23", "SFO", 300, 150), ("NW44", "LHR", 450, 10)]
        schedule.insert("flight", flights)
        desk.insert("booking", ("NW44", 4))

        def rows(view: str) -> Any:
            return sorted(at[view][view].rows)

        stage.until(lambda: rows("cheapest") == [("AA141", 600), ("NW44", 450)])
        desk.insert("booking", ("NW44", 6))
        stage.until(lambda: rows("cheapest") == [("AA141", 600)])
        schedule.update("flight", {"price": 440}, {"id": "NW44"})
        schedule.update("flight", {"price": 610}, {"id": "AA141"})
        schedule.update("flight", {"seats": 12}, {"id": "NW44"})  # seats are raised after it was full
        stage.settle()
        assert rows("available") == [("AA141", "LHR", 610), ("NW44", "LHR", 440), ("UA23", "SFO", 300)]
        assert rows("cheapest") == [("AA141", 610), ("NW44", 440)]
        assert rows("planned") == [("AA141", 610), ("UA23", 300)]


@pytest.mark.parametrize("seed", range(20 if DEEP else 4))
def test_view_moves_without_loss_or_repeat(seed: int) -> None:
    with staged(f"move {seed}", "market", "one", "other") as stage:
        market, one, other = (stage.nodes[name] for name in ("market", "one", "other"))
        market.execute("CREATE STREAM trade (issue TEXT, price INT)")
        for broker in (one, other):
            stage.source(broker, "trade", market)
        total = "CREATE VIEW total AS SELECT issue, SUM(price) AS s, COUNT(*) AS n FROM trade GROUP BY issue"
        one.execute(total)
        client = stage.follow(one, "total")
        for number in range(60):
            stage.time.at(stage.time.now + number * 0.1, lambda n=number: market.insert("trade", ("AB"[n % 2], n)))  # type: ignore[misc]
        stage.time.run(stage.time.now + stage.dice.random() * 6)
        other.execute(total)
        one.execute("DROP VIEW total MOVED TO 'http://other'")
        stage.until(lambda: {row[2] for row in client.rows} == {30})
        assert client.node is other
        held: set[Any] = set()
        for update in stage.updates(client):
            assert not set(update.came) & held, "nothing comes twice"
            assert set(update.went) <= held
            held = (held - set(update.went)) | set(update.came)
        assert held == set(other["total"].rows)


@pytest.mark.parametrize("relayed", ["high", "trade"])
def test_a_dead_publisher_is_waited_for_beyond_the_next_broker(relayed: str) -> None:
    """Whether the first broker passes on a view of it or the source itself."""
    with staged(f"doubt {relayed}", "exchange", "b0", "b1") as stage:
        exchange, first, second = (stage.nodes[name] for name in ("exchange", "b0", "b1"))
        high = "CREATE VIEW {} AS SELECT issue, MAX(price) AS high FROM trade GROUP BY issue"
        exchange.execute("CREATE STREAM trade (issue TEXT, price INT)")
        stage.source(first, "trade", exchange)
        first.execute(high.format("high"))
        stage.source(second, relayed, first)
        second.execute("CREATE VIEW seen AS SELECT * FROM high" if relayed == "high" else high.format("seen"))
        client = stage.follow(second, "seen")
        stage.network.heal()  # doubt is told once: over a connection, nothing else is lost
        exchange.insert("trade", ("A", 1))
        stage.until(lambda: client.updates and client.rows == [("A", 1)])
        stage.pause(exchange)
        stage.until(lambda: client.updates[-1].waiting_for)
        [waiting] = client.updates[-1].waiting_for
        assert (waiting.source, waiting.url) == ("trade", "ws://exchange/trade")
        stage.resume(exchange)
        stage.until(lambda: not client.updates[-1].waiting_for)
        assert client.rows == [("A", 1)]
