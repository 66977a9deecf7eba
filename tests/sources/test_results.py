"""Results: the largest part of a view that reads one publisher is computed there; what views show is the same."""

from __future__ import annotations

import random
import shutil
from datetime import datetime, timedelta
from typing import Any

import pytest

from tests.depth import seeds
from tests.sources.conftest import Make, Place, until
from tests.sources.test_curiosity import Counted, source
from whence.subscribe.results import is_result

TRADE = """
    CREATE STREAM trade (at TIMESTAMP NOT NULL, issue TEXT, price INT, shares INT CHECK (shares >= 0))
        WITH (ordered = 'at')
"""
HOURLY = """
    SELECT issue, date_trunc('hour', at) AS hour, MAX(price) AS high, SUM(shares) AS shares
    FROM trade GROUP BY issue, date_trunc('hour', at)
"""
HIGH = (
    "SELECT issue, date_trunc('hour', at) AS hour, MAX(price) AS high FROM trade GROUP BY issue, date_trunc('hour', at)"
)
TEN = datetime(2026, 11, 18, 10)
ITEMS = "CREATE TABLE item (id INT PRIMARY KEY, kind TEXT, price INT); CREATE TABLE kind (name TEXT, tax INT)"


def results_of(broker: Place) -> list[str]:
    return [name for name, table in broker.db._coordinator.program.tables.items() if is_result(table)]


def trade(number: int, dice: random.Random) -> tuple[Any, ...]:
    return TEN + timedelta(minutes=3 * number), dice.choice("AB"), dice.randrange(100), dice.randrange(9)


def test_hourly_high_is_computed_by_the_publisher(place: Make) -> None:
    publisher, by_rows, by_results = place("p", TRADE), place("rows"), place("results")
    source(by_rows, "trade", publisher, "ask = 'rows'")
    source(by_results, "trade", publisher, "ask = 'results'")
    dice = random.Random(1)
    publisher.db.insert("trade", [trade(number, dice) for number in range(30)])
    for each in (publisher, by_rows, by_results):
        each.db.execute(f"CREATE VIEW high AS {HIGH}")
    [result] = results_of(by_results)
    until(lambda: by_results.rows("high") == publisher.rows("high"))
    assert by_results.rows("trade") == []
    assert "the publisher is asked for SELECT" in by_results.db.explain("high")
    rows, results = Counted(by_rows, "trade"), Counted(by_results, result)
    for number in range(30, 90):
        publisher.db.insert("trade", trade(number, dice))
    rows.reaches(publisher)
    results.reaches(publisher)
    assert by_results.rows("high") == by_rows.rows("high") == publisher.rows("high")
    assert rows.rows == 60
    assert results.rows < 40  # a trade that is not the highest of its hour changes nothing
    shown = [(row[0], row[1], row[-1]) for row in by_results.db.execute("SHOW SOURCES").rows]
    assert [each[:2] for each in shown] == [("trade", "stream"), ("trade", "result")]
    assert shown[0][2] == "trade is asked for results only"


def test_bounds_of_results_are_those_of_rows(place: Make) -> None:
    publisher, broker = place("p", TRADE), place("b")
    source(broker, "trade", publisher, "ask = 'results'")
    publisher.db.insert("trade", [(TEN, "A", 80, 1), (TEN, "B", 10, 2)])
    broker.db.execute(f"CREATE VIEW hourly AS {HOURLY}")
    publisher.db.execute(f"CREATE VIEW hourly AS {HOURLY}")
    asked = "DESCRIBE hourly"
    assert [row[-1] for row in broker.db.execute(asked).rows] == [row[-1] for row in publisher.db.execute(asked).rows]
    updates = broker.db.subscribe("hourly").follow(timeout=20)
    update = next(updates)
    row = update.row(("A", TEN))
    assert (row["high"], row.bounds["high"], row.bounds["shares"], row.is_final) == (80, (80, None), (1, None), False)
    assert [key.partition("@")[0] for key in update.reflects] == ["trade"]
    publisher.db.insert("trade", (TEN + timedelta(hours=1), "A", 5, 5))
    while not update.row(("A", TEN)).is_final:
        update = next(updates)
    row = update.row(("B", TEN))
    assert (row.bounds["high"], row.is_final) == ((10, 10), True)
    assert update.row(("A", TEN + timedelta(hours=1))).bounds["high"] == (5, None)
    assert update.row(("C", TEN)).state == "finally absent"


def test_views_share_results_which_go_with_the_last_of_them(place: Make) -> None:
    publisher, broker = place("p", ITEMS), place("b")
    source(broker, "item", publisher)
    publisher.db.insert("item", [(1, "a", 5), (2, "a", 7), (3, "b", 1)])
    part = "SELECT kind, MAX(price) AS most FROM item GROUP BY kind"
    broker.db.execute(f"CREATE VIEW most AS {part}; CREATE VIEW dear AS SELECT kind FROM ({part}) t WHERE most > 2")
    assert len(results_of(broker)) == 2  # the second one is a selection of the first
    broker.db.execute(f"CREATE VIEW again AS {part}")
    assert len(results_of(broker)) == 2
    broker.db.execute("DROP VIEW most; DROP VIEW dear")
    assert len(results_of(broker)) == 1
    publisher.db.insert("item", (4, "b", 9))
    until(lambda: broker.rows("again") == [("a", 7), ("b", 9)])
    broker.db.execute("DROP VIEW again")
    assert results_of(broker) == []
    until(lambda: len(broker.rows("item")) == 4)  # whoever queries it finds its rows


def test_a_join_of_one_publisher_is_computed_there(place: Make) -> None:
    publisher, broker = place("p", ITEMS), place("b")
    for name in ("item", "kind"):
        source(broker, name, publisher, "ask = 'results'")
    publisher.db.insert("item", [(1, "a", 5), (2, "b", 7)])
    publisher.db.insert("kind", [("a", 2), ("b", 3)])
    view = "CREATE VIEW taxed AS SELECT id, price + tax AS total FROM item JOIN kind ON kind = name"
    broker.db.execute(view)
    until(lambda: broker.rows("taxed") == [(1, 7), (2, 10)])
    assert len(results_of(broker)) == 1
    publisher.db.execute("UPDATE kind SET tax = 4 WHERE name = 'b'")
    until(lambda: broker.rows("taxed") == [(1, 7), (2, 11)])
    assert broker.rows("item") == broker.rows("kind") == []


def test_a_view_that_reads_rows_too_makes_the_others_do_so(place: Make) -> None:
    """Otherwise its parts would be of different ticks; who follows the other view is told nothing by that."""
    publisher, broker = place("p", ITEMS), place("b")
    source(broker, "item", publisher)
    publisher.db.insert("item", [(1, "a", 5), (2, "a", 7), (3, "b", 1)])
    broker.db.execute("CREATE VIEW most AS SELECT kind, MAX(price) AS most FROM item GROUP BY kind")
    assert len(results_of(broker)) == 1
    subscription = broker.db.subscribe("most")
    assert sorted(list(subscription)[-1].rows) == [("a", 7), ("b", 1)]
    broker.db.execute("CREATE VIEW best AS SELECT id FROM item JOIN most ON item.kind = most.kind AND price = most")
    assert results_of(broker) == []
    assert broker.rows("best") == [(2,), (3,)]
    publisher.db.insert("item", (4, "b", 9))
    until(lambda: broker.rows("best") == [(2,), (4,)])
    changes = [change for update in subscription for change in (*update.went, *update.came)]
    assert changes == [("b", 1), ("b", 9)]


def test_rows_are_asked_for_where_a_result_is_refused(place: Make) -> None:
    publisher, broker = place("p", ITEMS), place("b")
    publisher.db.execute("CREATE TABLE allowed (who TEXT, name TEXT, what TEXT)")
    publisher.db.insert("allowed", [("broker", "item", "read")])
    publisher.db.insert("item", [(1, "a", 5), (2, "a", 7), (3, "b", 1)])
    source(broker, "item", publisher)
    broker.db.execute("CREATE VIEW most AS SELECT kind, MAX(price) AS most FROM item GROUP BY kind")
    until(lambda: broker.rows("most") == [("a", 7), ("b", 1)])
    assert results_of(broker) == []
    publisher.db.insert("item", (4, "b", 9))
    until(lambda: broker.rows("most") == [("a", 7), ("b", 9)])


def test_a_right_that_is_taken_away_leaves_rows(place: Make) -> None:
    publisher, broker = place("p", ITEMS), place("b")
    publisher.db.execute("CREATE TABLE allowed (who TEXT, name TEXT, what TEXT)")
    publisher.db.insert("allowed", [("broker", "item", "read"), ("broker", "item", "define")])
    publisher.db.insert("item", [(1, "a", 5), (2, "a", 7), (3, "b", 1)])
    source(broker, "item", publisher)
    broker.db.execute("CREATE VIEW most AS SELECT kind, MAX(price) AS most FROM item GROUP BY kind")
    assert len(results_of(broker)) == 1
    publisher.db.execute("DELETE FROM allowed WHERE what = 'define'")
    until(lambda: results_of(broker) == [])
    publisher.db.insert("item", (4, "b", 9))
    until(lambda: broker.rows("most") == [("a", 7), ("b", 9)])


def test_a_result_goes_on_at_another_address(place: Make) -> None:
    publisher, relay, broker = place("p", ITEMS), place("relay"), place("b")
    relay.source("item", publisher)
    broker.source("item", publisher, relay)
    broker.db.execute("CREATE VIEW most AS SELECT kind, MAX(price) AS most FROM item GROUP BY kind")
    assert len(results_of(broker)) == 1
    publisher.db.insert("item", [(1, "a", 5), (2, "b", 7)])
    until(lambda: broker.rows("most") == [("a", 5), ("b", 7)] and len(relay.rows("item")) == 2)
    publisher.stop()
    until(lambda: [row[2] for row in broker.db.execute("SHOW SOURCES").rows if row[1] == "result"] == ["live"])
    assert broker.rows("most") == [("a", 5), ("b", 7)]
    publisher.start()
    publisher.db.insert("item", (3, "b", 9))
    until(lambda: broker.rows("most") == [("a", 5), ("b", 9)])


def kill(broker: Place) -> None:
    """Stop a broker, and leave its folder as it was before: nothing is written at its end."""
    copy = broker.folder.with_name("killed")
    shutil.copytree(broker.folder, copy)
    broker.stop()
    shutil.rmtree(broker.folder)
    shutil.move(copy, broker.folder)


VIEWS = (
    "SELECT kind, MAX(price) AS a, COUNT(*) AS b FROM item GROUP BY kind",
    "SELECT kind, SUM(price) AS a FROM item WHERE price > 20 GROUP BY kind HAVING COUNT(*) > 1",
    "SELECT DISTINCT kind FROM item WHERE price < 50",
    "SELECT kind, MIN(price) AS a FROM item JOIN kind ON kind = name WHERE tax > 1 GROUP BY kind",
    "SELECT t.kind, a, note FROM (SELECT kind, COUNT(*) AS a FROM item GROUP BY kind) t JOIN note n ON n.kind = t.kind",
    "SELECT kind FROM item EXCEPT SELECT name FROM kind",
    "SELECT id, price FROM item WHERE kind = 'a'",
)


@pytest.mark.parametrize("seed", seeds(2))
def test_results_end_equal_to_rows(place: Make, seed: int) -> None:
    """Random views and updates, while the publisher is stopped, and the broker killed, and begun again."""
    dice = random.Random(seed)
    publisher, brokers = place("p", ITEMS), [place("rows"), place("results")]
    for broker, ask in zip(brokers, ("rows", "results"), strict=True):
        for name in ("item", "kind"):
            source(broker, name, publisher, f"ask = '{ask}'")
    for each in (publisher, *brokers):
        each.db.execute("CREATE TABLE note (kind TEXT, note TEXT)")
        each.db.insert("note", [("a", "good"), ("b", "bad")])
    views = list[str]()
    for step in range(12):
        match dice.randrange(6):
            case 0 | 1 if len(views) < 4:
                name, query = f"v{step}", dice.choice(VIEWS)
                views.append(name)
                for each in (publisher, *brokers):
                    each.db.execute(f"CREATE VIEW {name} AS {query}")
            case 2 if views and dice.random() < 0.5:
                name = views.pop(dice.randrange(len(views)))
                for each in (publisher, *brokers):
                    each.db.execute(f"DROP VIEW {name}")
            case 3:
                stopped = dice.choice([publisher, brokers[1]])
                if stopped is publisher:
                    stopped.stop()
                else:
                    kill(stopped)
                if stopped is not publisher:
                    publisher.db.insert("item", (dice.randrange(9), dice.choice("abc"), dice.randrange(99)))
                stopped.start()
            case _:
                for _ in range(dice.randrange(1, 5)):
                    if dice.random() < 0.2:
                        publisher.db.execute("DELETE FROM item WHERE id = ?", [dice.randrange(9)])
                    elif dice.random() < 0.2:
                        publisher.db.insert("kind", (dice.choice("abc"), dice.randrange(4)))
                    else:
                        publisher.db.insert("item", (dice.randrange(9), dice.choice("abc"), dice.randrange(99)))
    for view in views:
        for broker in brokers:
            until(lambda b=broker, v=view: b.rows(v) == publisher.rows(v), 30)
