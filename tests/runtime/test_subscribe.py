"""`db.subscribe`: states and net changes of queries, true at their positions, embedded and in partitions."""

from __future__ import annotations

import random
import shutil
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import whence

PROGRAM = """
CREATE TABLE trade (issue TEXT, price INT, shares INT);
CREATE TABLE listed (issue TEXT PRIMARY KEY, sector TEXT);
CREATE VIEW high AS SELECT issue, MAX(price) AS high, COUNT(*) AS n FROM trade GROUP BY issue;
CREATE VIEW reach AS SELECT a.issue AS a, b.issue AS b FROM listed a JOIN listed b ON a.sector = b.sector
  UNION SELECT r.a, b.issue FROM reach r JOIN listed b ON r.b < b.issue AND b.sector = 'x';
"""
QUERIES = {
    "trade": "SELECT * FROM trade",
    "high": "high",
    "filtered": "SELECT issue, price * 2 AS twice FROM trade WHERE price > 3",
    "joined": "SELECT t.issue, sector, SUM(shares) AS s FROM trade t JOIN listed l ON t.issue = l.issue GROUP BY 1, 2",
    "best": "SELECT issue, price FROM trade ORDER BY price DESC, issue LIMIT 3",
    "missing": "SELECT DISTINCT issue FROM trade WHERE issue NOT IN (SELECT issue FROM listed)",
    "reach": "SELECT b FROM reach WHERE a = 'A'",
    "recursive": "WITH RECURSIVE up(n) AS (SELECT price FROM trade UNION SELECT n + 1 FROM up WHERE n < 5) FROM up",
}


@pytest.fixture(params=["memory", "folder", "partitions"])
def db(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[whence.Database]:
    options: dict[str, Any] = {"partitions": 3} if request.param == "partitions" else {}
    with whence.open(None if request.param == "memory" else tmp_path / "db", **options) as found:
        found.execute(PROGRAM)
        yield found


def change(db: whence.Database, dice: random.Random) -> None:
    """Make one random epoch."""
    with db.transaction():
        for _ in range(dice.randrange(1, 4)):
            issue = dice.choice("ABCDE")
            match dice.randrange(4):
                case 0 | 1:
                    db.insert("trade", (issue, dice.randrange(8), dice.randrange(3)))
                case 2:
                    db.delete("trade", {"issue": issue, "price": dice.randrange(8)})
                case 3:
                    db.insert("listed", (issue, dice.choice("xy")))


def rows(db: whence.Database, query: str) -> Counter[Any]:
    text = query if " " in query else f"SELECT * FROM {query}"
    return Counter(db.query(text).rows)


@pytest.mark.parametrize("seed", range(3))
def test_rows_equal_the_query_after_every_update(db: whence.Database, seed: int) -> None:
    dice = random.Random(seed)
    subscriptions = {name: db.subscribe(query) for name, query in QUERIES.items()}
    together = db.subscribe(QUERIES)
    for _ in range(12):
        for _ in range(dice.randrange(1, 3)):
            change(db, dice)
        for name, subscription in subscriptions.items():
            if dice.random() < 0.6:
                before = Counter(subscription.rows if subscription.position else [])
                for update in subscription:
                    assert before - Counter(update.went) + Counter(update.came) == Counter(update.rows)
                    before = Counter(update.rows)
                assert Counter(subscription.rows) == rows(db, QUERIES[name]), name
        for update in together:
            assert {name: Counter(update[name].rows) for name in QUERIES} == {
                name: rows(db, query) for name, query in QUERIES.items()
            }
    for subscription in [*subscriptions.values(), together]:
        subscription.close()
    assert db._coordinator.hub.counts == {"channels": 0, "definitions": 0, "ring_bytes": 0}
    assert db.views == ["high", "reach"]


def test_equal_subscriptions_share_one_view(db: whence.Database) -> None:
    one = db.subscribe("SELECT issue FROM trade WHERE price > 3")
    two = db.subscribe('select "issue" from TRADE where PRICE > 3')
    other = db.subscribe("SELECT issue FROM trade WHERE price > ?", [4])
    assert db._coordinator.hub.counts["definitions"] == 2
    db.insert("trade", [("A", 4, 1), ("B", 5, 1)])
    assert [sorted(u.came) for u in one] == [sorted(u.came) for u in two] == [[("A",), ("B",)]]
    one.close()
    db.insert("trade", ("C", 9, 1))
    assert [u.came for u in two] == [[("C",)]]
    assert [sorted(u.rows) for u in other] == [[("B",), ("C",)]]


def test_going_on_from_a_position(db: whence.Database) -> None:
    db.insert("trade", ("A", 1, 1))
    with db.subscribe("high") as first:
        [begin] = first
        assert begin.restarted == "begin"
        assert begin.rows == [("A", 1, 1)]
        db.insert("trade", ("A", 7, 1))
        second = db.subscribe("high", have=begin.position, rows=begin.rows)
        [update] = second
        assert (update.went, update.came, update.rows, update.restarted) == (
            [("A", 1, 1)],
            [("A", 7, 2)],
            [("A", 7, 2)],
            "",
        )
        second.close()
    [again] = db.subscribe("high", have=begin.position, rows=begin.rows)  # the changes since are not known any more
    assert (again.went, again.came, again.restarted) == ([("A", 1, 1)], [("A", 7, 2)], "behind")


def test_a_position_of_another_history_starts_over(tmp_path: Path) -> None:
    """A folder that was restored from a copy replays epoch numbers with other rows: nothing is merged."""
    with whence.open(tmp_path / "db") as db:
        db.execute("CREATE TABLE a (x INT)")
        db.insert("a", (1,))
        before = db.position
    shutil.copytree(tmp_path / "db", tmp_path / "copy")
    with whence.open(tmp_path / "db") as db:
        db.insert("a", (2,))
        [update] = db.subscribe("a", have=before, rows=[(1,)])
        lost = update.position
        assert update.rows == [(1,), (2,)]
    with whence.open(tmp_path / "copy") as db:
        db.insert("a", (3,))
        assert lost.epoch == db.position.epoch
        [update] = db.subscribe("a", have=lost, rows=update.rows)
        assert (update.restarted, update.went, update.came, update.rows) == ("restarted", [(2,)], [(3,)], [(1,), (3,)])
        [common] = db.subscribe("a", have=before, rows=[(1,)])
        assert common.restarted == "behind"
        assert sorted(common.rows) == [(1,), (3,)]


def test_every_change(db: whence.Database) -> None:
    subscription = db.subscribe("trade", every_change=True)
    list(subscription)
    for n in range(5):
        db.insert("trade", ("A", n, 1))
    assert [u.came for u in subscription] == [[("A", n, 1)] for n in range(5)]


def test_what_retention_dropped_is_told_as_lost() -> None:
    db = whence.open()
    db.execute("CREATE TABLE a (x INT)")
    db._coordinator.hub.ring_bytes = 1000
    subscription = db.subscribe("a", every_change=True)
    [begin] = subscription
    for n in range(100):
        db.insert("a", (n,))
    [update] = subscription
    assert update.restarted == "behind"
    assert sorted(update.rows) == [(n,) for n in range(100)]
    assert update.lost is not None
    assert (update.lost[0].epoch, update.lost[1].epoch) == (begin.position.epoch, 100)


def test_a_redefined_view_goes_on_with_its_new_columns(db: whence.Database) -> None:
    db.insert("trade", ("A", 4, 2))
    view, query = db.subscribe("high"), db.subscribe("SELECT issue FROM high WHERE high > 3")
    list(view), list(query)
    db.execute(
        "CREATE OR REPLACE VIEW high AS SELECT issue, MIN(price) AS high, COUNT(*) AS n FROM trade GROUP BY issue"
    )
    db.insert("trade", ("A", 1, 2))
    assert [u.rows for u in view][-1] == [("A", 1, 2)]
    assert [u.rows for u in query][-1] == []
    db.execute("CREATE OR REPLACE VIEW high AS SELECT issue, price AS high FROM trade")
    [update] = view
    assert (update.restarted, update.columns, sorted(update.rows)) == (
        "redefined",
        ["issue", "high"],
        [("A", 1), ("A", 4)],
    )
    assert [u.rows for u in query][-1] == [("A",)]
    db.execute("CREATE OR REPLACE VIEW high AS SELECT issue AS renamed FROM trade")
    assert next(iter(view)).columns == ["renamed"]
    with pytest.raises(whence.CatalogError, match="high"):
        list(query)
    assert list(query) == []


def test_a_dropped_view_ends_its_subscription(db: whence.Database) -> None:
    view, query = db.subscribe("high"), db.subscribe("SELECT issue FROM high WHERE n > 1")
    list(view), list(query)
    db.execute("DROP VIEW high")
    for subscription in (view, query):
        with pytest.raises(whence.CatalogError, match="high"):
            list(subscription)


def test_a_query_that_fails_on_new_rows_ends_and_writers_go_on(db: whence.Database) -> None:
    subscription = db.subscribe("SELECT 10 / (price - 5) AS x, CAST(issue AS INT) AS n FROM trade")
    list(subscription)
    assert db.insert("trade", ("A", 1, 1)) == 1
    with pytest.raises(whence.WhenceError):
        list(subscription)
    assert len(db["trade"]) == 1


def test_waiting_for_a_position(db: whence.Database) -> None:
    subscription = db.subscribe("high")
    db.insert("listed", ("A", "x"))
    assert subscription.wait_for(db.position).position.epoch == db.epoch
    db.insert("trade", ("A", 1, 1))
    assert subscription.wait_for(db.position, timeout=10).rows == [("A", 1, 1)]
    assert subscription.wait_for(db.position, timeout=10).rows == [("A", 1, 1)]
    ahead = db.position._replace(epoch=db.epoch + 1)
    with pytest.raises(whence.QuestionTimeout):
        subscription.wait_for(ahead, timeout=0.01)
    with pytest.raises(whence.DataError, match="another history"):
        subscription.wait_for(whence.Position("0" * 12, "0" * 8, 3))
    threading.Timer(0.05, lambda: db.insert("trade", ("A", 9, 1))).start()
    assert subscription.wait_for(ahead, timeout=10).rows == [("A", 9, 2)]


def test_following_waits_for_updates(db: whence.Database) -> None:
    subscription = db.subscribe("trade")
    threading.Timer(0.05, lambda: db.insert("trade", ("A", 9, 1))).start()
    found = []
    for update in subscription.follow(timeout=5):
        found.append(update.rows)
        if update.rows:
            break
    assert found == [[], [("A", 9, 1)]]


def test_why_is_as_of_the_epoch_that_is_told(db: whence.Database) -> None:
    db.insert("trade", [("A", 4, 1), ("B", 2, 1)])
    subscription = db.subscribe("SELECT DISTINCT issue FROM trade WHERE price > 3", why=True)
    [begin] = subscription
    assert begin.why == {("A",): [[("trade", {"issue": "A", "price": 4, "shares": 1})]]}
    db.insert("trade", [("B", 7, 1), ("B", 8, 1)])
    [update] = subscription
    assert [len(w) for w in update.why[("B",)]] == [1, 1]
    db.delete("trade", {"issue": "B"})
    [gone] = subscription
    assert gone.went == [("B",)]
    assert gone.why == {("B",): update.why[("B",)]}


@pytest.mark.parametrize("durability", ["commit", "interval", "none"])
def test_only_stable_epochs_are_told(tmp_path: Path, durability: Any) -> None:
    with whence.open(tmp_path / "db", durability=durability, sync_interval=3600) as db:
        db.execute("CREATE TABLE a (x INT)")
        subscription = db.subscribe("a")
        list(subscription)
        db.insert("a", (1,))
        [update] = subscription
        assert update.position.epoch == db._coordinator.durable_epoch == 1


def test_streams_windows_and_special_values() -> None:
    db = whence.open()
    db.execute(
        "CREATE STREAM s (t INT, x DOUBLE); "
        "CREATE VIEW w AS SELECT COUNT(*) AS n FROM slide(s, on => t, width => 10, every => 10)"
    )
    stream, window, query = db.subscribe("s"), db.subscribe("w"), db.subscribe("SELECT x FROM s WHERE t > 1")
    db.insert("s", [(1, float("nan")), (2, float("inf")), (3, float("nan"))])
    db.insert("s", [(30, 1.5)])
    assert [u.came[0][0] for u in stream] == [1]
    assert len(stream.rows) == 4
    assert [u.rows for u in window][-1][0] == (3,)
    assert len(list(query)[-1].rows) == 3
    table = whence.open()
    table.execute("CREATE TABLE a (x DOUBLE)")
    subscription = table.subscribe("a")
    table.insert("a", [(float("nan"),), (1.0,)])
    list(subscription)
    table.delete("a", (float("nan"),))
    assert [u.rows for u in subscription] == [[(1.0,)]]


def test_words_of_recent_changes_are_not_forgotten() -> None:
    db = whence.open()
    db.execute("CREATE TABLE a (x TEXT)")
    subscription = db.subscribe("a", every_change=True)
    [begin] = subscription
    for n in range(20):
        db.insert("a", (f"word {n}",))
        db.delete("a", (f"word {n}",))
    assert db._coordinator.words.collect(asked=True) == 0
    assert [u.came or u.went for u in subscription] == [[(f"word {n}",)] for n in range(20) for _ in (0, 1)]
    assert begin.rows == []
    subscription.close()
    assert db._coordinator.words.collect(asked=True) == 20


def test_bad_subscriptions_change_nothing(db: whence.Database) -> None:
    for query, kind in [
        ("ghost", whence.CatalogError),
        ("SELECT ghost FROM trade", whence.SqlError),
        ("SELECT", whence.SqlError),
        ("INSERT INTO trade VALUES ('A', 1, 1)", whence.SqlError),
        ("SELECT issue FROM trade WHERE price > ?", whence.WhenceError),
        ({}, whence.DataError),
        ([1], whence.DataError),
    ]:
        with pytest.raises(kind):
            db.subscribe(query)  # type: ignore[arg-type]
    with pytest.raises(whence.DataError, match="key"):
        db.subscribe("trade", key="ghost")
    with pytest.raises(whence.DataError, match="position"):
        db.subscribe("trade", have="yesterday")
    with db.transaction(), pytest.raises(whence.WhenceError, match="transaction"):
        db.subscribe("SELECT issue FROM trade WHERE price > 1")
    assert db._coordinator.hub.counts == {"channels": 0, "definitions": 0, "ring_bytes": 0}


def test_closing_the_database_ends_subscriptions() -> None:
    db = whence.open()
    db.execute("CREATE TABLE a (x INT)")
    subscription = db.subscribe("a")
    list(subscription)
    db.close()
    assert list(subscription.follow()) == []


def test_on_spark(spark: Any) -> None:
    with whence.open(spark=spark, partitions=2, on_spark={"inline_rows": 0}) as db:
        db.execute(PROGRAM)
        subscription = db.subscribe({name: QUERIES[name] for name in ("high", "joined", "filtered", "reach")})
        dice = random.Random(5)
        for _ in range(3):
            change(db, dice)
            for update in subscription:
                for name in ("high", "joined", "filtered", "reach"):
                    assert Counter(update[name].rows) == rows(db, QUERIES[name])


def test_a_table_made_again_is_not_taken_for_the_one_dropped(db: whence.Database) -> None:
    """No epoch lies between DROP and CREATE but that of DROP itself: a position from before is behind both."""
    db.insert("listed", ("A", "x"))
    with db.subscribe("listed") as subscription:
        [before] = subscription
    db.execute("DROP TABLE listed CASCADE; CREATE TABLE listed (issue TEXT PRIMARY KEY, sector TEXT)")
    [after] = db.subscribe("listed", have=before.position, rows=before.rows)
    assert (after.rows, after.went) == ([], [("A", "x")])
