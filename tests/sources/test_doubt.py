"""What updates say of sources: which ticks they reflect, who is waited for; and clients that move between brokers."""

from __future__ import annotations

import whence
from tests.sources.conftest import SECRET, Make, until

MARKET = "CREATE STREAM trade (issue TEXT, price INT)"
HIGH = "CREATE VIEW high AS SELECT issue, MAX(price) AS high, COUNT(*) AS n FROM trade GROUP BY issue"


def test_updates_say_what_they_reflect_and_wait_for(place: Make) -> None:
    publisher, broker = place("p", MARKET), place("b")
    broker.source("trade", publisher)
    broker.db.execute(HIGH)
    publisher.db.insert("trade", ("A", 1))
    until(lambda: broker.rows("high") == [("A", 1, 1)])
    with whence.connect(broker.server.url, token=SECRET) as client, client.subscribe("high") as subscription:
        update = subscription.next()
        history = publisher.db.position.history
        assert update.reflects == {f"trade@{history}": "0-1"}
        assert update.waiting_for == []
        with broker.db.subscribe("high") as local:
            [here] = local
            assert here.reflects == update.reflects
        publisher.db.insert("trade", ("A", 2))
        update = subscription.next()
        assert update.reflects == {f"trade@{history}": "0-2"}
        assert update.rows == [("A", 2, 2)]
        publisher.stop()
        update = subscription.next(timeout=20)  # nothing has changed but the doubt
        [waiting] = update.waiting_for
        assert (waiting.source, waiting.url) == ("trade", publisher.url("trade"))
        assert not update
        assert update.rows == [("A", 2, 2)]
        publisher.start()
        update = subscription.next(timeout=20)
        assert update.waiting_for == []


def test_a_client_moves_to_another_broker_and_never_goes_back(place: Make) -> None:
    publisher, one, other = place("p", MARKET), place("one"), place("other")
    for broker in (one, other):
        broker.source("trade", publisher)
        broker.db.execute(HIGH)
    publisher.db.insert("trade", [("A", 1)])
    until(lambda: other.rows("high") == [("A", 1, 1)])
    other.stop()
    publisher.db.insert("trade", [("A", 5), ("B", 2)])
    until(lambda: len(one.rows("high")) == 2)
    with whence.connect(one.server.url, token=SECRET) as client, client.subscribe("high") as subscription:
        last = subscription.next()
    publisher.stop()  # so that the other one stays behind
    other.start()
    with (
        whence.connect(other.server.url, token=SECRET) as client,
        client.subscribe("high", have=last.position, rows=last.rows, reflects=last.reflects) as subscription,
    ):
        assert subscription.next(timeout=1.0) is None
        publisher.start()
        update = subscription.next(timeout=20)
        assert update.restarted == "restarted"  # another broker has a history of its own
        assert (update.came, update.went) == ([], [])
        publisher.db.insert("trade", ("B", 3))
        assert subscription.next(timeout=20).came == [("B", 3, 2)]


def test_a_view_moves_between_brokers_without_loss_or_repeat(place: Make) -> None:
    """The view runs at one broker, then at another that begins while rows come; both end with what is true."""
    publisher, one, other = place("p", MARKET), place("one"), place("other")
    one.source("trade", publisher)
    one.db.execute(HIGH)
    for price in range(50):
        publisher.db.insert("trade", ("A", price))
        if price == 20:
            other.source("trade", one)  # through the first, in the publisher's ticks
            other.db.execute(HIGH)
        if price == 30:
            one.db.execute("DROP VIEW high")
    until(lambda: other.rows("high") == [("A", 49, 50)])
