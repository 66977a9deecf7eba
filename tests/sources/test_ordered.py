"""Views that depend on the order of rows, over several publishers: at every broker the same, whatever comes first."""

from __future__ import annotations

import random
import time

import pytest

from tests.sources.conftest import Make, Place, until
from whence.plan.order_sensitive import ordered_groups

QUOTE = "CREATE STREAM quote (issue TEXT, price INT)"
FOLLOW = "CREATE VIEW follow AS SELECT quote.issue, quote.price FROM quote JOIN buylist ON quote.issue = buylist.issue"


@pytest.mark.parametrize(
    ("view", "is_ordered"),
    [
        ("SELECT issue, MAX(price) AS p, SUM(price) AS s, COUNT(*) AS n FROM quote GROUP BY issue", False),
        ("SELECT issue, price FROM quote WHERE price > 3 UNION ALL SELECT issue, 0 FROM quote", False),
        ("SELECT DISTINCT issue FROM quote EXCEPT SELECT issue FROM buylist", False),
        ("SELECT quote.issue, price FROM quote JOIN buylist ON quote.issue = buylist.issue", True),
        ("SELECT AVG(price) AS p FROM slide(quote, rows => 3, every => 1)", True),
        ("SELECT issue, price FROM latest(quote, rows => 2)", True),
    ],
)
def test_which_views_depend_on_the_order_of_rows(place: Make, view: str, is_ordered: bool) -> None:
    publisher, broker = place("p", f"{QUOTE}; CREATE TABLE buylist (issue TEXT PRIMARY KEY)"), place("b")
    broker.source("quote", publisher)
    broker.source("buylist", publisher)
    broker.db.execute(f"CREATE VIEW v AS {view}")
    assert bool(ordered_groups(broker.db._coordinator.program)) == is_ordered


def test_the_buy_list(place: Make) -> None:
    """An issue is on the list at 10:00 and off at 11:00: each quote in between once, none outside."""
    exchange, fund = place("exchange", QUOTE), place("fund", "CREATE TABLE buylist (issue TEXT PRIMARY KEY)")
    brokers = [place("one"), place("two")]
    for broker in brokers:
        broker.source("quote", exchange)
        broker.source("buylist", fund)
        broker.db.execute(FOLLOW)
    price = 0
    for _ in range(3):
        for _ in range(4):
            exchange.db.insert("quote", [("A", price), ("B", price)])
            price += 1
        fund.db.insert("buylist", ("A",))
        time.sleep(0.002)
        for _ in range(4):
            exchange.db.insert("quote", [("A", price), ("B", price)])
            price += 1
        time.sleep(0.002)
        fund.db.delete("buylist", ("A",))
        time.sleep(0.002)
    truth = [("A", p) for block in range(3) for p in range(8 * block + 4, 8 * block + 8)]
    for broker in brokers:
        until(lambda b=broker: b.rows("follow") == truth)


def test_two_publishers_end_equal_at_every_broker(place: Make) -> None:
    """Windows over the union of two publishers' streams: brokers that hear of them in different orders agree."""
    one, other = (place(name, f"CREATE STREAM {name} (x INT)") for name in ("east", "west"))
    brokers: list[Place] = [place("near"), place("far")]
    for broker, order in zip(brokers, ((one, other), (other, one)), strict=True):
        for publisher in order:
            broker.source(publisher.name, publisher)
        broker.db.execute("""
            CREATE VIEW both AS SELECT x FROM east UNION ALL SELECT x FROM west;
            CREATE VIEW runs AS SELECT SUM(x) AS s, MIN(x) AS a FROM slide(both, rows => 3, every => 1);
            CREATE VIEW total AS SELECT SUM(x) AS s, COUNT(*) AS n FROM both;
        """)
    dice = random.Random(5)
    for number in range(60):
        publisher = one if dice.random() < 0.5 else other
        publisher.db.insert(publisher.name, (number,))
    for broker in brokers:
        until(lambda b=broker: b.rows("total") == [(sum(range(60)), 60)])
    until(lambda: len(brokers[0].rows("runs")) == 58 and len(brokers[1].rows("runs")) == 58)
    near, far = (broker.db["runs"].rows for broker in brokers)
    assert near == far
    assert near[0] == (3, 0)  # in the order of the time at which they were published
    brokers[0].stop()
    one.db.insert("east", (60,))
    other.db.insert("west", (61,))
    brokers[0].start()
    until(lambda: len(brokers[0].rows("runs")) == 60 and len(brokers[1].rows("runs")) == 60)
    assert brokers[0].db["runs"].rows == brokers[1].db["runs"].rows


def test_a_value_passes_at_once_and_the_horizon_waits_for_both(place: Make) -> None:
    """Merge: one publisher is silent up to 5, the other up to 9, and has a value at 7: sums have it, windows wait."""
    one, other, broker = (
        place("east", "CREATE STREAM east (x INT)"),
        place("west", "CREATE STREAM west (x INT)"),
        place("b"),
    )
    broker.source("east", one)
    broker.source("west", other)
    broker.db.execute("""
        CREATE VIEW both AS SELECT x FROM east UNION ALL SELECT x FROM west;
        CREATE VIEW runs AS SELECT SUM(x) AS s FROM slide(both, rows => 1, every => 1);
        CREATE VIEW total AS SELECT SUM(x) AS s FROM (SELECT x FROM east UNION ALL SELECT x FROM west) t;
    """)
    one.stop()
    other.db.insert("west", (7,))
    until(lambda: broker.rows("total") == [(7,)])
    time.sleep(0.5)
    assert broker.rows("runs") == []
    [waiting] = [row for row in broker.db.execute("SHOW SOURCES").rows if row[0] == "east"]
    assert waiting[2] == "waiting"
    assert waiting[4] is not None
    one.start()
    until(lambda: broker.rows("runs") == [(7,)])


def test_a_view_that_is_made_later_has_the_order_of_time(place: Make) -> None:
    one, other = (place(name, f"CREATE STREAM {name} (x INT)") for name in ("east", "west"))
    broker = place("b")
    for number in range(20):
        publisher = (one, other)[number % 2]
        publisher.db.insert(publisher.name, (number,))
    broker.source("west", other)
    broker.source("east", one)
    broker.db.execute("CREATE VIEW w AS SELECT SUM(x) AS s FROM slide(west, rows => 1, every => 1)")
    until(lambda: broker.db["w"].rows == [(n,) for n in range(1, 20, 2)])
    broker.db.execute("""
        CREATE VIEW both AS SELECT x FROM east UNION ALL SELECT x FROM west;
        CREATE VIEW runs AS SELECT SUM(x) AS s FROM slide(both, rows => 1, every => 1);
    """)
    until(lambda: broker.db["runs"].rows == [(n,) for n in range(20)])
    assert broker.db["w"].rows == [(n,) for n in range(1, 20, 2)]


def test_a_subscription_reads_an_existing_view_in_order(place: Make) -> None:
    """The view itself runs ahead; who follows windows over it gets rows in the order of their times."""
    one, other, broker = (*(place(name, f"CREATE STREAM {name} (x INT)") for name in ("east", "west")), place("b"))
    for number in range(20):
        publisher = (one, other)[number % 2]
        publisher.db.insert(publisher.name, (number,))
    broker.source("west", other)
    broker.source("east", one)
    broker.db.execute("CREATE VIEW everything AS SELECT x FROM east UNION ALL SELECT x FROM west")
    broker.db.execute("CREATE VIEW small AS SELECT x FROM everything WHERE x < 100")
    until(lambda: broker.rows("small") == [(n,) for n in range(20)])
    before = broker.db["small"].rows
    subscription = broker.db.subscribe("SELECT SUM(x) AS s FROM slide(small, rows => 1, every => 1)")
    seen = list[tuple[int]]()

    def has_all() -> bool:
        for update in subscription:
            seen.extend(update.came)
        return len(seen) >= 20

    until(has_all)
    assert seen == [(n,) for n in range(20)]
    assert broker.db["small"].rows == before


def test_why_names_the_source_and_not_its_ordered_twin(place: Make) -> None:
    publisher, broker = place("p", f"{QUOTE}; CREATE TABLE buylist (issue TEXT PRIMARY KEY)"), place("b")
    publisher.db.insert("buylist", ("A",))
    broker.source("quote", publisher)
    broker.source("buylist", publisher)
    broker.db.execute(FOLLOW.replace(" AS ", " WITH (provenance = 'lineage') AS ", 1))
    publisher.db.insert("quote", [("A", 1), ("B", 2)])
    until(lambda: broker.rows("follow") == [("A", 1)])
    why = broker.db.why("follow", issue="A")
    assert why.base == [("quote", {"tid": 1, "issue": "A", "price": 1})]
    assert "$" not in str(why)
    assert "$" not in why.to_json()
    assert broker.db.critical("follow", issue="A").rows == why.base
    trace = broker.db.trace("quote", issue="A")
    assert trace.rows == [("follow", {"issue": "A", "price": 1})]
    assert trace.stream == "quote"
    found = broker.db.query("SELECT * FROM provenance(follow, quote)")
    assert [name for name in found.columns if "$" in name] == []


def test_promises_hold_for_views_that_are_read_in_order(place: Make) -> None:
    """A view that others read in order is final all the same, by keys that close and by an ordered column."""
    publisher, broker = place("p"), place("b")
    publisher.db.execute("""CREATE STREAM play (t INT NOT NULL, game TEXT NOT NULL, kind TEXT NOT NULL)
        WITH (ordered = 't', closes = 'game when kind = ''end''')""")
    broker.source("play", publisher)
    broker.db.execute("""
        CREATE VIEW goal AS SELECT t, game, kind FROM play;
        CREATE VIEW last_goal AS SELECT t, game FROM latest(goal, rows => 1);
        CREATE VIEW score AS SELECT game, COUNT(*) AS n FROM goal WHERE kind = 'goal' GROUP BY game;
        CREATE VIEW by_ten AS SELECT t // 10 AS ten, COUNT(*) AS n FROM goal GROUP BY t // 10;
    """)
    assert ordered_groups(broker.db._coordinator.program)
    with broker.db.subscribe({"score": "score", "by_ten": "by_ten"}) as subscription:
        publisher.db.insert("play", [(1, "NY", "goal"), (2, "BOS", "goal")])
        publisher.db.insert("play", (3, "NY", "end"))
        publisher.db.advance("play", 10, on="t")
        seen = list(subscription)

        def is_final() -> bool:
            seen.extend(subscription)
            return bool(seen[-1]["score"].row("NY").is_final and seen[-1]["by_ten"].row(0).is_final)

        until(is_final)
        assert not seen[-1]["score"].row("BOS").is_final


def test_the_last_of_several_promises_is_kept(place: Make) -> None:
    """Promises that come faster than they are written down: the last one holds, though nothing follows it."""
    publisher, broker = place("p", "CREATE STREAM s (t INT NOT NULL) WITH (ordered = 't')"), place("b")
    broker.source("s", publisher)
    broker.db.execute("CREATE VIEW n AS SELECT t // 10 AS ten, COUNT(*) AS n FROM s GROUP BY t // 10")
    with broker.db.subscribe("n") as subscription:
        publisher.db.insert("s", (1,))
        for promised in range(2, 11):
            publisher.db.advance("s", promised, on="t")
        until(lambda: any(update.row(0).is_final for update in subscription))
