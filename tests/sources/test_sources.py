"""CREATE SOURCE: one publisher, brokers in a row, restarts, failover, another past."""

from __future__ import annotations

import shutil
import threading
import time
from pathlib import Path

import pytest

import whence
from tests import inside
from tests.sources.conftest import Make, until
from whence.model.errors import CatalogError, SqlError

MARKET = """
    CREATE STREAM trade (issue TEXT, price INT);
    CREATE TABLE flight (id TEXT PRIMARY KEY, price INT, seats INT);
    CREATE TABLE bag (x INT);
"""
HIGH = "CREATE VIEW high AS SELECT issue, MAX(price) AS high, COUNT(*) AS n FROM trade GROUP BY issue"


def test_a_source_has_the_rows_of_its_publisher_and_follows_them(place: Make) -> None:
    publisher, broker = place("p", MARKET), place("b")
    publisher.db.insert("trade", [("A", 1), ("B", 2)])
    publisher.db.insert("flight", ("NW44", 450, 10))
    publisher.db.insert("bag", [(1,), (1,)])
    for name in ("trade", "flight", "bag"):
        broker.source(name, publisher)
    broker.db.execute(HIGH)
    assert broker.rows("high") == [("A", 1, 1), ("B", 2, 1)]
    assert broker.rows("flight") == [("NW44", 450, 10)]
    with publisher.db.transaction():
        publisher.db.insert("trade", ("A", 7))
        publisher.db.update("flight", {"price": 460}, {"id": "NW44"})
        publisher.db.delete("bag", (1,))
    until(lambda: broker.rows("high") == [("A", 7, 2), ("B", 2, 1)])
    until(lambda: broker.rows("flight") == [("NW44", 460, 10)] and broker.rows("bag") == [(1,)])
    assert broker.db.tables == ["flight", "bag"]
    assert broker.db.streams == ["trade"]


def test_what_a_source_is_comes_with_it_and_is_kept(place: Make) -> None:
    publisher, broker = place("p", MARKET), place("b")
    broker.source("flight", publisher)
    described = broker.db.execute("DESCRIBE flight").rows
    assert [row[:4] for row in described] == [
        ("id", "TEXT", False, True),
        ("price", "INTEGER", True, False),
        ("seats", "INTEGER", True, False),
    ]
    shown = broker.db.execute("SHOW SOURCES").rows
    assert shown[0][:4] == ("flight", "table", "live", publisher.db.epoch)
    publisher.stop()
    broker.stop()
    with whence.open(broker.folder, read_only=True) as reader:  # without a publisher, and without a network
        assert reader.tables == ["flight"]
        assert reader.execute("SHOW SOURCES").rows[0][2] == "not fed"


def test_only_its_feed_writes_to_a_source(place: Make) -> None:
    publisher, broker = place("p", MARKET), place("b")
    broker.source("trade", publisher)
    with pytest.raises(CatalogError, match='"trade" is a source: its rows come from ws://'):
        broker.db.insert("trade", ("A", 1))
    with pytest.raises(CatalogError, match="database's own"):
        broker.db.execute('DELETE FROM "$reflects"')
    with pytest.raises(CatalogError, match="choose another name"):
        broker.db.execute('CREATE TABLE "$ordered_trade" (x INT)')
    assert broker.db.what_if(insert={"trade": [("A", 1)]}).tables["trade"].inserted == [("A", 1)]


@pytest.mark.parametrize(
    ("sql", "message"),
    [
        ("CREATE SOURCE q FROM 'quote'", "line 1, column 22: 'quote' is not the address of a source"),
        ("CREATE SOURCE q\nFROM quote", "line 2, column 6: syntax error: expected the address of a source in quotes"),
        ("CREATE SOURCE q FROM 'ws://u:p@h/q'", "line 1, column 22: the address of a source has no user"),
        ("CREATE SOURCE q FROM 'ws://h/q' WITH (tokn = 'x')", 'line 1, column 39: a source has no option "tokn"'),
        (
            "CREATE SOURCE q FROM 'ws://h/q' AS VIEW (x INT)",
            "line 1, column 36: syntax error: expected STREAM or TABLE",
        ),
        ("CREATE OR REPLACE SOURCE q FROM 'ws://h/q'", "drop the source first"),
    ],
)
def test_errors_say_where(sql: str, message: str) -> None:
    with pytest.raises(SqlError) as error:
        whence.open().execute(sql)
    assert message in str(error.value)


def test_a_server_that_is_not_there_or_has_no_such_relation_is_an_error(place: Make) -> None:
    publisher, broker = place("p", MARKET), place("b")
    with pytest.raises(CatalogError, match=r'source "nothing": ws://.*there is no table or view'):
        broker.source("nothing", publisher)
    with pytest.raises(CatalogError, match=r'source "q": ws://127.0.0.1:1/q'):
        broker.db.execute("CREATE SOURCE q FROM 'ws://127.0.0.1:1/q'")
    assert broker.db.execute("SHOW SOURCES").rows == []


def test_a_restarted_broker_goes_on_from_what_it_has(place: Make) -> None:
    publisher, broker = place("p", MARKET), place("b")
    for name in ("trade", "flight"):
        broker.source(name, publisher)
    broker.db.execute(HIGH)
    publisher.db.insert("trade", [("A", 1)])
    until(lambda: broker.rows("high") == [("A", 1, 1)])
    broker.stop()
    publisher.db.insert("trade", [("A", 5)])
    publisher.db.insert("flight", ("NW44", 450, 10))
    broker.start()
    until(lambda: broker.rows("high") == [("A", 5, 2)] and broker.rows("flight") == [("NW44", 450, 10)])


def test_a_restarted_publisher_tells_what_it_retains(place: Make) -> None:
    publisher, broker = place("p", MARKET), place("b")
    broker.source("trade", publisher)
    publisher.db.insert("trade", [("A", 1)])
    until(lambda: len(broker.rows("trade")) == 1)
    publisher.stop()
    with whence.open(publisher.folder) as alone:
        for price in range(2, 9):
            alone.insert("trade", ("A", price))
    publisher.start()  # the broker is not told of these by anything that the process remembers
    until(lambda: broker.rows("trade") == [("A", price) for price in range(1, 9)])
    assert broker.db.execute("SHOW SOURCES").rows[0][6] == ""  # nothing is lost


def test_three_brokers_in_a_row_have_the_ticks_of_the_publisher(place: Make) -> None:
    publisher, first, second, third = place("p", MARKET), place("b1"), place("b2"), place("b3")
    for near, far in ((first, publisher), (second, first), (third, second)):
        for name in ("trade", "flight"):
            near.source(name, far)
    third.db.execute(HIGH)
    for price in range(20):
        with publisher.db.transaction():
            publisher.db.insert("trade", [("A", price), ("B", -price)])
            publisher.db.insert("flight", ("NW44", price, 10))
    until(lambda: third.rows("high") == [("A", 19, 20), ("B", 0, 20)] and third.rows("flight") == [("NW44", 19, 10)])
    last = publisher.db.epoch
    until(lambda: [row[3] for row in third.db.execute("SHOW SOURCES").rows] == [last, last])
    second.stop()
    publisher.db.insert("trade", ("A", 99))
    second.start()
    until(lambda: third.rows("high") == [("A", 99, 21), ("B", 0, 20)])


def test_a_source_goes_on_at_another_url_of_the_same_history(place: Make) -> None:
    publisher, one, other, last = place("p", MARKET), place("one"), place("other"), place("last")
    for broker in (one, other):
        broker.source("trade", publisher)
        broker.source("flight", publisher)
    last.source("trade", one, other)
    publisher.db.insert("trade", [("A", 1)])
    until(lambda: last.rows("trade") == [("A", 1)])
    one.stop()
    publisher.db.insert("trade", [("A", 2)])
    until(lambda: last.rows("trade") == [("A", 1), ("A", 2)])
    assert last.db.execute("SHOW SOURCES").rows[0][7] == other.url("trade")


def test_readers_wait_while_a_stream_is_begun_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    with whence.open() as db:
        db.execute("CREATE STREAM trade (issue TEXT, price INT); CREATE VIEW high AS SELECT MAX(price) AS p FROM trade")
        db.insert("trade", ("A", 1))
        coordinator, dropped = inside.coordinator(db), threading.Event()
        catalog, create_table = coordinator.catalog, coordinator.catalog.create_table

        def create_later(*args: object) -> object:
            dropped.set()
            time.sleep(0.1)
            return create_table(*args)

        monkeypatch.setattr(catalog, "create_table", create_later)
        renewing = threading.Thread(target=coordinator.definitions.renew, args=(["trade"], ["trade"]))
        renewing.start()
        assert dropped.wait(10)
        assert "trade" not in coordinator.program.tables  # or nothing is tried here
        assert db["trade"].rows == []
        assert db["high"].rows == [(None,)]
        renewing.join()


@pytest.mark.parametrize("kind", ["stream", "table"])
def test_another_past_is_begun_anew_and_never_merged(place: Make, tmp_path: Path, kind: str) -> None:
    publisher, broker = place("p", MARKET), place("b")
    name, made = ("trade", lambda n: ("A", n)) if kind == "stream" else ("flight", lambda n: (f"f{n}", n, n))
    publisher.db.insert(name, [made(1)])
    broker.source(name, publisher)
    column = "issue" if kind == "stream" else "id"
    broker.db.execute(f"CREATE VIEW n AS SELECT COUNT(*) AS n, MAX({column}) AS x FROM {name}")
    broker.db.execute(f"CREATE VIEW whole AS SELECT * FROM {name}")  # so that all columns are asked for
    publisher.stop()
    shutil.copytree(publisher.folder, tmp_path / "copy")
    publisher.start()
    for price in range(2, 5):
        publisher.db.insert(name, [made(price)])
    until(lambda: len(broker.rows(name)) == 4)
    publisher.stop()
    shutil.rmtree(publisher.folder)
    shutil.move(tmp_path / "copy", publisher.folder)
    publisher.start()
    for price in range(10, 16):
        publisher.db.insert(name, [made(price)])
    truth = sorted([made(1), *(made(price) for price in range(10, 16))])
    until(lambda: broker.rows(name) == truth)
    until(lambda: broker.db["n"].rows[0][0] == 7)
    broker.stop()
    broker.start()
    assert broker.rows(name) == truth


def test_a_dropped_source_is_forgotten(place: Make) -> None:
    publisher, broker = place("p", MARKET), place("b")
    broker.source("trade", publisher)
    broker.db.execute(HIGH)
    with pytest.raises(CatalogError, match='high depends on "trade"'):
        broker.db.execute("DROP SOURCE trade")
    with pytest.raises(CatalogError, match='"trade" is a source, not a stream'):
        broker.db.execute("DROP STREAM trade")
    broker.db.execute("DROP SOURCE trade CASCADE")
    assert broker.db.execute("SHOW SOURCES").rows == []
    assert broker.db.query('SELECT * FROM "$reflects"').rows == []
    publisher.db.insert("trade", ("A", 1))
    broker.source("trade", publisher)
    assert broker.rows("trade") == [("A", 1)]


def test_rows_that_the_publisher_let_go_of_are_lost_and_said_to_be(place: Make) -> None:
    publisher, broker = place("p", "CREATE STREAM s (x INT) WITH (retain = '10 rows')"), place("b")
    for number in range(30):
        publisher.db.insert("s", (number,))
    broker.source("s", publisher)
    until(lambda: broker.rows("s") == [(number,) for number in range(20, 30)])
    assert broker.db.execute("SHOW SOURCES").rows[0][5:7] == ("0-30", "0-20")


def test_a_view_is_a_source_too(place: Make) -> None:
    publisher, broker = place("p", MARKET), place("b")
    publisher.db.execute(HIGH)
    broker.source("high", publisher)
    publisher.db.insert("trade", [("A", 1), ("A", 4)])
    until(lambda: broker.rows("high") == [("A", 4, 2)])
    publisher.db.insert("trade", [("A", 9)])
    until(lambda: broker.rows("high") == [("A", 9, 3)])


def test_promises_come_with_the_source(place: Make) -> None:
    sql = """CREATE STREAM goal (game TEXT, team TEXT, minute INT CHECK (minute >= 0), kind TEXT)
             WITH (ordered = 'minute', closes = 'game when kind = ''end''')"""
    publisher, broker = place("p", sql), place("b")
    broker.source("goal", publisher)
    table = broker.db._coordinator.program.tables["goal"]
    assert str(table.promises.ordered) == "ordered = 'minute'"
    assert table.domain("minute") == (0, None)
    publisher.db.insert("goal", [("NY", "a", 3, "goal"), ("NY", "a", 60, "end")])
    until(lambda: len(broker.rows("goal")) == 2)
    coordinator = broker.db._coordinator
    until(lambda: coordinator.horizons().of("goal", "minute") is not None)
    assert coordinator.horizons().of("goal", "minute").value == 60
    until(lambda: coordinator.horizons().is_closed("goal", ["NY"]))
    assert not coordinator.horizons().is_closed("goal", ["CH"])


def test_promise_is_in_the_epoch_of_the_rows_that_it_came_with(place: Make) -> None:
    """So bounds at a broker are as tight as those at the publisher with the update that shows the rows."""
    publisher, broker = place("p", "CREATE STREAM goal (minute INT NOT NULL) WITH (ordered = 'minute')"), place("b")
    broker.source("goal", publisher)
    broker.db.execute("CREATE VIEW by_minute AS SELECT minute, COUNT(*) AS n FROM goal GROUP BY minute")
    subscription, seen = broker.db.subscribe("by_minute", every_change=True), list[whence.Update]()
    for minute in (1, 3, 3, 21, 25, 41):
        publisher.db.insert("goal", (minute,))
    until(lambda: seen.extend(subscription) or (seen and (41, 1) in seen[-1].rows))
    for update in seen:
        assert all(update.row(minute).is_final for minute, _ in sorted(update.rows)[:-1]), update


def test_a_broker_has_the_rights_of_its_token(place: Make) -> None:
    publisher, broker = place("p", MARKET), place("b")
    publisher.db.execute("CREATE TABLE allowed (who TEXT, name TEXT, what TEXT)")
    publisher.db.insert("allowed", [("broker", "flight", "read where price < 500")])
    publisher.db.insert("flight", [("NW44", 450, 10), ("AA141", 600, 200)])
    with pytest.raises(CatalogError, match=r'source "trade": ws://.*there is no table or view'):
        broker.source("trade", publisher)
    broker.source("flight", publisher)
    assert broker.rows("flight") == [("NW44", 450, 10)]
    publisher.db.update("flight", {"price": 490}, {"id": "AA141"})
    until(lambda: len(broker.rows("flight")) == 2)
    publisher.db.execute("DELETE FROM allowed")
    publisher.db.update("flight", {"price": 1}, {"id": "NW44"})
    until(lambda: broker.db.execute("SHOW SOURCES").rows[0][8] is not None)
    assert broker.rows("flight") == [("AA141", 490, 200), ("NW44", 450, 10)]
