"""Rows with a time-to-live: they leave when their time is up, as if deleted, and everything follows."""

from __future__ import annotations

import datetime as dt
import gc
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import whence
from tests import inside
from whence.engine.core.epoch import Epoch
from whence.engine.core.ordered import Ordered
from whence.engine.core.relation import Relation
from whence.model.errors import EvaluationError, StorageError, WhenceError
from whence.sql.parse import parse_one
from whence.sql.statements import CreateTable

PATIENCE = 60.0  # seconds that a thread is given, which is far more than it needs


class Hands:
    """A clock that is turned by hand."""

    def __init__(self, now: float = 0) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now


def at(seconds: float) -> dt.datetime:
    return dt.datetime(1970, 1, 1) + dt.timedelta(seconds=seconds)


@pytest.fixture
def clock() -> Hands:
    return Hands()


@pytest.fixture
def db(clock: Hands) -> Iterator[whence.Database]:
    with whence.open(clock=clock) as db:
        db.execute("""
            CREATE TABLE link (src TEXT, dst TEXT) WITH (ttl = '60 s');
            CREATE TABLE seat (name TEXT PRIMARY KEY, n INT) WITH (ttl = '60 s');
            CREATE TABLE beacon (name TEXT, seen TIMESTAMP) WITH (ttl = '1 min', ttl_column = 'seen');
            CREATE TABLE plain (x TEXT);
            CREATE VIEW reachable AS
              SELECT src, dst FROM link
              UNION
              SELECT link.src, reachable.dst FROM link JOIN reachable ON link.dst = reachable.src;
            CREATE VIEW degree AS SELECT src, COUNT(*) AS n, MAX(dst) AS last FROM link GROUP BY src;
            CREATE VIEW number AS SELECT CAST(x AS INT) AS n FROM plain;
        """)
        yield db


def insert_and_raise(db: whence.Database) -> None:
    with db.transaction():
        db.insert("link", [("X", "Y")])
        raise RuntimeError


def write_and_fail(db: whence.Database) -> None:
    with db.transaction():
        db.insert("link", [("A", "B"), ("C", "D"), ("X", "Y")])
        db.delete("link", [("B", "C")])
        db.insert("seat", [("a", 2), ("b", 2)])
        db.insert("plain", ("not a number",))


def rows(db: whence.Database, name: str) -> list[tuple[Any, ...]]:
    return sorted(db[name].rows, key=repr)


# -- leaving -----------------------------------------------------------------------------------------------------------


def test_a_row_lives_its_time_from_its_arrival(db: whence.Database, clock: Hands) -> None:
    db.insert("link", [("A", "B"), ("B", "C")])
    clock.now = 59.999999
    assert rows(db, "reachable") == [("A", "B"), ("A", "C"), ("B", "C")]
    assert db.epoch == 1
    clock.now = 60
    assert db["link"].rows == db["reachable"].rows == db["degree"].rows == []
    assert db.epoch == 2


def test_views_follow_what_expires_and_feeds_hear_of_it(db: whence.Database, clock: Hands) -> None:
    db.insert("link", [("A", "B")])
    clock.now = 30
    db.insert("link", [("B", "C"), ("A", "C")])
    feeds = {name: db.changes(name) for name in ("link", "reachable", "degree")}
    clock.now = 60
    assert db.expire() == 1
    assert rows(db, "reachable") == [("A", "C"), ("B", "C")]
    assert [tuple(c) for c in feeds["link"]] == [(3, ("A", "B"), -1)]
    assert [tuple(c) for c in feeds["reachable"]] == [(3, ("A", "B"), -1)]
    assert [tuple(c) for c in feeds["degree"]] == [(3, ("A", 2, "C"), -1), (3, ("A", 1, "C"), 1)]
    assert db.metrics()["rows_expired"] == 1


def test_a_row_that_is_inserted_again_lives_anew_and_nothing_else_changes(db: whence.Database, clock: Hands) -> None:
    db.insert("link", [("A", "B"), ("A", "B")])
    before, feed = db["reachable"].to_arrow(), db.changes("link")
    clock.now = 40
    assert db.insert("link", [("A", "B")]) == 1
    assert (db.epoch, list(feed)) == (2, [])
    assert db["reachable"].to_arrow() is before
    clock.now = 99
    assert db["link"].rows == [("A", "B")]
    clock.now = 100
    assert db["link"].rows == []


def test_a_column_says_from_when_on(db: whence.Database, clock: Hands) -> None:
    db.insert("beacon", [("a", at(0)), ("b", at(10)), ("never", None), ("late", at(-60)), ("later", at(1e9))])
    assert [r[0] for r in rows(db, "beacon")] == ["a", "b", "later", "never"]
    clock.now = 60
    assert db.insert("beacon", [("a", at(0)), ("b", at(10))]) == 2
    assert [r[0] for r in rows(db, "beacon")] == ["b", "later", "never"]
    clock.now = 70
    assert [r[0] for r in rows(db, "beacon")] == ["later", "never"]
    assert db.metrics()["rows_expired"] == 2


def test_what_is_already_over_never_appears_and_a_row_that_is_there_is_no_epoch(
    db: whence.Database, clock: Hands
) -> None:
    clock.now = 100
    feed = db.changes("beacon")
    db.insert("beacon", ("a", at(40)))
    assert (db.epoch, list(feed)) == (0, [])
    for _ in range(2):
        db.insert("beacon", ("b", at(50)))
    assert (db.epoch, len(list(feed))) == (1, 1)


def test_a_primary_key_replaces_and_refreshes(db: whence.Database, clock: Hands) -> None:
    db.insert("seat", [("a", 1), ("b", 1)])
    clock.now = 30
    db.insert("seat", [("a", 1), ("a", 2), ("a", 1), ("b", 2)])
    clock.now = 60
    assert rows(db, "seat") == [("a", 1), ("b", 2)]
    clock.now = 90
    assert rows(db, "seat") == []


def test_update_is_a_new_arrival(db: whence.Database, clock: Hands) -> None:
    db.insert("seat", [("a", 1), ("b", 2)])
    db.insert("link", [("A", "B"), ("A", "C")])
    clock.now = 30
    assert db.update("seat", {"n": 1}, {"name": "a"}) == 1
    assert db.execute("UPDATE link SET dst = 'C'").count == 2
    assert db["link"].rows == [("A", "C")]
    clock.now = 60
    assert (rows(db, "seat"), rows(db, "link")) == ([("a", 1)], [("A", "C")])
    clock.now = 90
    assert (rows(db, "seat"), rows(db, "link")) == ([], [])


def test_a_deleted_row_does_not_expire(db: whence.Database, clock: Hands) -> None:
    db.insert("link", [("A", "B"), ("B", "C")])
    assert db.delete("link", [("A", "B"), ("A", "B")]) == 1
    clock.now = 60
    assert db.expire() == 1
    assert db.metrics()["rows_expired"] == 1


def test_writers_do_not_see_what_is_over(db: whence.Database, clock: Hands) -> None:
    db.insert("link", [("A", "B")])
    db.insert("seat", ("a", 1))
    db.insert("beacon", ("a", at(0)))
    clock.now = 60
    with db.transaction():
        assert db.delete("link", [("A", "B")]) == 0
        assert db.update("seat", {"n": 5}) == 0
        assert db.execute("INSERT INTO plain SELECT '1' FROM beacon").count == 0
        with pytest.raises(RuntimeError):
            insert_and_raise(db)
        assert db.execute("DELETE FROM link").count == 0
    assert db.epoch == 4
    assert rows(db, "link") == rows(db, "seat") == rows(db, "beacon") == []


def test_every_commit_expires_in_its_own_epoch(db: whence.Database, clock: Hands) -> None:
    db.insert("link", [("A", "B")])
    feed = db.changes("link")
    clock.now = 60
    db.insert("plain", ("1",))
    assert db.epoch == 2
    assert [tuple(c) for c in feed] == [(2, ("A", "B"), -1)]
    db.insert("link", [("A", "B")])
    clock.now = 120
    db.insert("link", [("A", "B")])
    assert (db.epoch, rows(db, "link")) == (4, [("A", "B")])
    assert [tuple(c) for c in feed] == [(3, ("A", "B"), 1)]


def test_what_becomes_due_during_a_transaction_leaves_at_its_end(db: whence.Database, clock: Hands) -> None:
    db.insert("link", [("A", "B"), ("B", "C")])
    with db.transaction():
        clock.now = 60
        assert db.insert("link", [("B", "C")]) == 1
        assert rows(db, "link") == [("A", "B"), ("B", "C")]
        with pytest.raises(WhenceError, match="inside a transaction"):
            db.expire()
    assert (rows(db, "link"), db.epoch) == ([("B", "C")], 2)


def test_a_transaction_that_fails_inside_another_brings_nothing_back_that_is_over(
    db: whence.Database, clock: Hands
) -> None:
    db.insert("link", [("A", "B")])
    with db.transaction():
        clock.now = 60
        with pytest.raises(RuntimeError):
            insert_and_raise(db)
        assert db.update("link", {"dst": "C"}) == 0
    assert rows(db, "link") == []


def test_time_that_goes_backwards_does_no_harm(db: whence.Database, clock: Hands) -> None:
    clock.now = 100
    db.insert("link", [("A", "B")])
    clock.now = 10
    db.insert("link", [("B", "C")])
    clock.now = 159
    assert len(db["link"]) == 2
    clock.now = 160
    assert len(db["link"]) == 0


@pytest.mark.parametrize("now", [float("nan"), float("inf"), "noon", None, True, 1e18])
def test_a_clock_that_is_none_is_an_error(db: whence.Database, clock: Hands, now: Any) -> None:
    clock.now = now
    with pytest.raises(WhenceError, match="the clock"):
        db.insert("link", [("A", "B")])
    clock.now = 0
    assert (db["link"].rows, db.epoch) == ([], 0)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("500 ms", 0.5),
        ("60 s", 60),
        ("60 seconds", 60),
        ("5 min", 300),
        ("2 hours", 7200),
        ("7 days", 604_800),
        ("1 day 12 h", 129_600),
        ("00:01:30", 90),
    ],
)
def test_durations(text: str, seconds: float) -> None:
    create = parse_one(f"CREATE TABLE t (x INT) WITH (ttl = '{text}')")
    assert isinstance(create, CreateTable)
    assert create.table.lifetime is not None
    assert create.table.lifetime.micros == seconds * 1_000_000
    assert create.table.options == (("ttl", text),)
    assert parse_one(create.table.sql) == create


# -- failing -----------------------------------------------------------------------------------------------------------


def test_an_epoch_that_fails_leaves_lifetimes_as_they_were(db: whence.Database, clock: Hands) -> None:
    db.insert("link", [("A", "B"), ("B", "C")])
    db.insert("seat", [("a", 1)])
    clock.now = 30
    db.insert("link", [("C", "D")])
    clock.now = 60
    for _ in range(2):
        with pytest.raises(EvaluationError):
            write_and_fail(db)
    assert db.epoch == 3
    assert (rows(db, "link"), rows(db, "seat")) == ([("C", "D")], [])
    clock.now = 89
    assert rows(db, "reachable") == [("C", "D")]
    clock.now = 90
    assert rows(db, "reachable") == []
    assert db.metrics()["rows_expired"] == 4


def test_expiry_that_cannot_happen_is_said_and_ends_with_its_cause(db: whence.Database, clock: Hands) -> None:
    db.insert("link", [("A", "B")])
    db.execute("CREATE VIEW share AS SELECT 100 // COUNT(*) AS percent FROM link")
    clock.now = 60
    assert db["link"].rows == [("A", "B")]
    assert db["share"].rows == [(100,)]
    assert "1 row of link were to expire" in db.metrics()["expiry_error"]
    for attempt in (db.expire, lambda: db.insert("plain", ("1",))):
        with pytest.raises(EvaluationError, match="1 row of link were to expire"):
            attempt()
    assert db.epoch == 1
    db.insert("link", [("B", "C")])
    assert (db["link"].rows, db.metrics()["expiry_error"]) == ([("B", "C")], None)
    clock.now = 120
    assert db["link"].rows == [("B", "C")]
    db.execute("DROP VIEW share")
    assert db["link"].rows == []


# -- epochs as records -------------------------------------------------------------------------------------------------

TABLES = """
    CREATE TABLE a (x INT, y INT) WITH (ttl = '60 s');
    CREATE TABLE k (x INT PRIMARY KEY, y INT) WITH (ttl = '60 s');
    CREATE TABLE c (x INT, seen TIMESTAMP) WITH (ttl = '60 s', ttl_column = 'seen');
    CREATE VIEW total AS SELECT x, SUM(y) AS y FROM a GROUP BY x;
"""


class Notebook:
    """Keeps the epochs of a database in a list, or refuses them."""

    def __init__(self, db: whence.Database, full: bool = False) -> None:
        self.epochs: list[Epoch] = []
        self.full = full
        storage: Any = inside.coordinator(db).storage
        storage.write_epoch = self.write

    def write(self, epoch: Epoch) -> None:
        if self.full:
            raise StorageError("the disk is full")
        self.epochs.append(epoch)


def contents(db: whence.Database) -> dict[str, list[tuple[Any, ...]]]:
    return {name: rows(db, name) for name in [*db.tables, *db.views]}


def test_epochs_replayed_give_the_same_rows_and_the_same_lives(clock: Hands) -> None:
    again = Hands()
    with whence.open(clock=clock) as db, whence.open(clock=again) as copy:
        epochs = Notebook(db).epochs
        for each in (db, copy):
            each.execute(TABLES)
        db.insert("a", [(1, 1), (1, 2)])
        db.insert("c", [(1, at(5)), (2, at(50))])
        clock.now = 30
        db.insert("a", [(1, 1)])
        db.insert("k", [(1, 1)])
        clock.now = 65
        db.insert("k", [(1, 2)])
        assert [e.number for e in epochs] == [1, 2, 3, 4, 5]
        assert [e.time for e in epochs] == [0, 0, 30_000_000, 30_000_000, 65_000_000]
        assert (epochs[2].deltas, epochs[2].refreshed["a"].tolist()) == ({}, [[1, 1]])
        assert set(epochs[4].deltas) == {"a", "c", "k"}
        for epoch in epochs:
            inside.coordinator(copy).replay(epoch)
        assert (copy.epoch, copy.metrics()["rows_expired"]) == (5, 2)
        for moment in (65, 90, 110, 125):
            clock.now = again.now = moment
            assert contents(copy) == contents(db)
        assert contents(db) == {"a": [], "k": [], "c": [], "total": []}


def test_an_error_while_recording_undoes_the_epoch(db: whence.Database, clock: Hands) -> None:
    db.insert("link", [("A", "B")])
    clock.now = 30
    notebook = Notebook(db, full=True)
    for rows_ in ([("A", "B"), ("B", "C")], [("A", "B")]):
        with pytest.raises(StorageError):
            db.insert("link", rows_)
    assert (db.epoch, rows(db, "reachable")) == (1, [("A", "B")])
    clock.now = 60
    assert rows(db, "reachable") == [("A", "B")]
    assert db.metrics()["expiry_error"].startswith("the disk is full")
    notebook.full = False
    assert db.expire() == 1
    assert (rows(db, "reachable"), [e.number for e in notebook.epochs]) == ([], [2])


def test_lifetimes_are_made_again_from_a_restored_table(clock: Hands) -> None:
    with whence.open(clock=clock) as db, whence.open(clock=clock) as copy:
        for each in (db, copy):
            each.execute(TABLES.partition("CREATE VIEW")[0])
        db.insert("a", [(1, 1), (2, 2)])
        db.insert("c", [(1, at(5)), (2, None)])
        clock.now = 30
        db.insert("a", [(1, 1)])
        for name, scan in inside.dataflow(db).tables.items():
            image = {part: array.copy() for part, array in scan.image().items()}
            inside.table(copy, name).restore(image)
        for lifetimes in inside.coordinator(copy).catalog.backend.lifetimes.values():
            lifetimes.rebuild()
        inside.coordinator(copy).stand_at(db.epoch, inside.coordinator(db).time)
        for moment in (59, 60, 65, 90):
            clock.now = moment
            assert contents(copy) == contents(db)
        assert (rows(copy, "a"), rows(copy, "c")) == ([], [(2, None)])


def test_a_refresh_alone_is_told_as_a_change_of_the_table(db: whence.Database) -> None:
    flow = inside.dataflow(db)
    told: list[Any] = []
    db.insert("link", [("A", "B")])
    flow.tables["link"].changed = False
    flow.before = told.append
    db.insert("link", [("A", "B")])
    assert told == [flow.tables["link"]]
    assert flow.tables["link"].changed


# -- telling -----------------------------------------------------------------------------------------------------------


def test_what_is_shown(db: whence.Database) -> None:
    assert repr(db) == "<whence database: 4 tables (3 with a ttl), 3 views, epoch 0>"
    assert db.describe("beacon").to_dicts()[1] == {
        "column": "seen",
        "type": "TIMESTAMP",
        "null": True,
        "key": False,
        "ttl": "1 min after seen",
    }
    assert "ttl" not in db.describe("plain").columns
    assert {r["table"]: r["ttl"] for r in db.execute("SHOW TABLES").to_dicts()} == {
        "link": "60 s",
        "seat": "60 s",
        "beacon": "1 min after seen",
        "plain": None,
    }
    assert "rows expire: link (60 s)" in db.explain("reachable")
    assert "expire" not in db.explain("number")


def test_a_dropped_table_no_longer_expires(db: whence.Database, clock: Hands) -> None:
    db.insert("seat", ("a", 1))
    db.execute("DROP TABLE seat; CREATE TABLE seat (name TEXT)")
    db.insert("seat", [("a",), ("a",)])
    clock.now = 60
    assert db["seat"].rows == [("a",), ("a",)]
    assert db.metrics()["rows_expired"] == 0


# -- cost --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("column", ["", ", ttl_column = 'seen'"])
def test_expiring_few_of_a_million_looks_at_few(clock: Hands, monkeypatch: pytest.MonkeyPatch, column: str) -> None:
    def refuse(*_: Any) -> None:
        raise AssertionError("the whole table was looked at")

    looked = 0
    head = Ordered.head

    def counted(self: Ordered, limit: int) -> Any:
        nonlocal looked
        found = head(self, limit)
        looked += len(found[1])
        return found

    n = 1_000_000
    with whence.open(clock=clock) as db:
        db.execute(f"CREATE TABLE t (x BIGINT, seen TIMESTAMP) WITH (ttl = '60 s'{column})")
        db.execute("CREATE VIEW sizes AS SELECT x % 2 AS odd, COUNT(*) AS n FROM t GROUP BY x % 2")
        for start, size, moment in ((0, 10, 0), (10, n, 30)):
            clock.now = moment
            x = np.arange(start, start + size)
            seen = np.full(size, moment, "datetime64[s]").astype("datetime64[us]")
            db.insert("t", pa.table({"x": x, "seen": seen}))
        clock.now = 60
        with monkeypatch.context() as watched:
            for name in ("ids", "scan"):
                watched.setattr(Relation, name, refuse)
            watched.setattr(Ordered, "head", counted)
            assert db.expire() == 10
            db.insert("t", [(10, at(30))])
        assert looked < 500
        assert sorted(db["sizes"].rows) == [(0, n // 2), (1, n // 2)]
        clock.now = 90
        assert db.expire() == (n if column else n - 1)


# -- threads -----------------------------------------------------------------------------------------------------------


def expiry_threads() -> set[threading.Thread]:
    return {t for t in threading.enumerate() if t.name == "whence expiry"}


def wait_until(done: Callable[[], bool]) -> None:
    until = time.monotonic() + PATIENCE
    while not done():
        assert time.monotonic() < until, "it never happened"
        time.sleep(0.01)


def test_rows_leave_by_themselves() -> None:
    before = expiry_threads()
    with whence.open() as db:
        db.execute("CREATE TABLE plain (x INT)")
        assert expiry_threads() <= before
        db.execute("CREATE TABLE t (x INT) WITH (ttl = '7 days'); CREATE TABLE u (x INT) WITH (ttl = '100 ms')")
        db.execute("CREATE VIEW v AS SELECT SUM(x) AS x FROM u")
        assert len(expiry_threads() - before) == 1
        db.insert("t", (1,))
        changes = db.changes("v").follow(timeout=PATIENCE)
        db.insert("u", (5,))
        assert [next(changes)[1:] for _ in range(4)] == [((None,), -1), ((5,), 1), ((5,), -1), ((None,), 1)]
        assert (db["t"].rows, db.epoch) == ([(1,)], 3)
    assert expiry_threads() <= before


def test_the_thread_waits_for_the_writer_and_goes_on_after_an_error() -> None:
    before = expiry_threads()
    with whence.open() as db:
        db.execute("CREATE TABLE t (x INT) WITH (ttl = '50 ms')")
        db.insert("t", (1,))
        db.execute("CREATE VIEW share AS SELECT 100 // COUNT(*) AS percent FROM t")
        wait_until(lambda: inside.coordinator(db).expiry.error is not None)
        epoch = db.epoch
        db.execute("DROP VIEW share")
        wait_until(lambda: db.epoch == epoch + 1)
        db.insert("t", (1,))
        with db.transaction():
            time.sleep(0.1)
            assert db.epoch == epoch + 2
        wait_until(lambda: db.epoch == epoch + 3)
        db.close()
        assert expiry_threads() <= before


def test_the_thread_keeps_neither_the_database_nor_the_process() -> None:
    before = expiry_threads()
    db = whence.open()
    db.execute("CREATE TABLE t (x INT) WITH (ttl = '7 days')")
    db.insert("t", (1,))
    assert len(expiry_threads() - before) == 1
    del db
    wait_until(lambda: gc.collect() >= 0 and expiry_threads() <= before)  # the thread may be at work the first time
    program = "import whence; db = whence.open(); db.execute(\"CREATE TABLE t (x INT) WITH (ttl = '7 days')\")"
    subprocess.run([sys.executable, "-c", program], check=True, timeout=PATIENCE)


def test_expiry_beside_readers_and_writers() -> None:
    """Every reader sees whole epochs, whoever expires what and when."""
    failed: list[BaseException] = []
    stop = threading.Event()

    def run(work: Callable[[int], None]) -> None:
        try:
            turn = 0
            while not stop.is_set():
                work(turn)
                turn += 1
        except BaseException as error:
            failed.append(error)
            stop.set()

    with whence.open() as db:
        db.execute("""
            CREATE TABLE a (x INT, y INT) WITH (ttl = '5 ms');
            CREATE TABLE b (x INT PRIMARY KEY, y INT) WITH (ttl = '8 ms');
            CREATE VIEW both AS SELECT (SELECT COUNT(*) FROM a) AS n, (SELECT COUNT(*) FROM copy) AS m;
            CREATE VIEW copy AS SELECT x, y FROM a;
        """)

        def write(turn: int) -> None:
            with db.transaction():
                db.insert("a", [(turn % 7, i) for i in range(5)])
                db.insert("b", [(turn % 11, turn)])
            if turn % 5 == 0:
                db.delete("a", [(turn % 7, 1)])

        def read(turn: int) -> None:
            ((n, m),) = db["both"].rows
            assert n == m
            answer = db.query("SELECT (SELECT COUNT(*) FROM a), (SELECT COUNT(*) FROM copy)").rows
            assert answer[0][0] == answer[0][1]

        works = [write, write, read, read, lambda _: db.expire() and None]
        threads = [threading.Thread(target=run, args=(work,)) for work in works]
        for thread in threads:
            thread.start()
        try:
            wait_until(lambda: stop.is_set() or (db.epoch > 300 and db.metrics()["rows_expired"] > 100))
        finally:
            stop.set()
            for thread in threads:
                thread.join()
        assert failed == []
        wait_until(lambda: len(db["a"]) == len(db["b"]) == 0)
        assert db["both"].rows == [(0, 0)]
