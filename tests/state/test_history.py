"""What was: `db.at(epoch)` is the database as it stood before the epoch after, for every epoch that is retained."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

import whence
from tests.workload import Op, Session, State, history, state_of, workload
from whence.model.errors import StorageError

SCHEMA = """
CREATE TABLE a (id INT PRIMARY KEY, t TEXT);
CREATE VIEW b AS SELECT t, COUNT(*) AS n FROM a GROUP BY t;
"""


def by_epoch(states: list[State]) -> dict[int, State]:
    """The last state that each epoch had: statements that follow an epoch belong to it."""
    return {state.epoch: state for state in states}


def run(path: Path, ops: list[Op], **options: Any) -> Session:
    session = Session(path, **options)
    for op in ops:
        session.perform(op)
    return session


def check_past(db: whence.Database, past: dict[int, State]) -> None:
    for epoch in db.retained:
        with db.at(epoch) as then:
            assert state_of(then) == past[epoch], f"epoch {epoch}"


@pytest.mark.parametrize("seed", [1, 4, 5])
def test_every_epoch_of_a_workload(tmp_path: Path, seed: int) -> None:
    """With tables, views, failed transactions, expiry, snapshots and reopenings in it."""
    ops = workload(seed, 24, snapshots=3, reopenings=2)
    past = by_epoch(history(ops))
    session = run(tmp_path / "db", ops, retain="all")
    session.db.expire()
    past[session.db.epoch] = state_of(session.db)
    assert session.db.retained == range(max(past) + 1)
    check_past(session.db, past)
    session.db.close()
    with whence.open(tmp_path / "db", clock=session.clock) as db:
        assert db.retained == range(max(past) + 1), "what is retained is kept with the database"
        check_past(db, past)
    with whence.open(tmp_path / "db", read_only=True) as db:
        assert db.retained == range(max(past) + 1)
        assert state_of(db.at(3)) == past[3]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "db"


@pytest.fixture
def db(path: Path) -> Iterator[whence.Database]:
    with whence.open(path, retain="all") as db:
        db.execute(SCHEMA)
        yield db


@pytest.mark.parametrize("retain", [0, 1, 5, 12])
def test_so_many_epochs(path: Path, retain: int) -> None:
    with whence.open(path, retain=retain) as db:
        db.execute(SCHEMA)
        for number in range(1, 31):
            db.insert("a", [(number, f"t{number % 4}")])
            if number % 3 == 0:
                db.snapshot()
            assert db.retained.start <= max(number - retain, 0)
            assert db.retained.stop == number + 1
            for epoch in db.retained:
                assert len(db.at(epoch)["a"]) == epoch
        assert db.retained.start >= 30 - retain - 3, "what nobody wants is let go"
        with pytest.raises(StorageError, match=r"epoch 1 is no longer kept; the oldest one is \d+"):
            db.at(1)


def test_so_much_time(path: Path) -> None:
    now = 1_000_000.0
    with whence.open(path, retain="1 hour", clock=lambda: now) as db:
        db.execute(SCHEMA)
        times = {0: now}
        for number in range(1, 41):
            now += 600
            db.insert("a", [(number, "x")])
            times[number] = now
            if number % 2:
                db.snapshot()
            as_of = max(epoch for epoch, time in times.items() if time <= now - 3600 or epoch == 0)
            assert db.retained.start <= as_of, "the epoch of an hour ago can be read"
            assert len(db.at(db.retained.start)["a"]) == db.retained.start
        assert 30 <= db.retained.start <= 34


def test_retain_is_kept_and_can_be_changed(path: Path) -> None:
    def write(db: whence.Database, first: int) -> None:
        for number in range(first, first + 5):
            db.insert("a", [(number, "x")])
            db.snapshot()

    with whence.open(path, retain="all") as db:
        db.execute(SCHEMA)
        write(db, 1)
    with whence.open(path) as db:
        write(db, 6)
        assert db.retained == range(11)
        files = len(list((path / "log").iterdir()))
    with whence.open(path, retain=2) as db:
        write(db, 11)
        assert db.retained == range(13, 16)
        assert len(list((path / "log").iterdir())) < files
    with whence.open(path) as db:
        write(db, 16)
        assert db.retained == range(18, 21)
    with whence.open(path, retain="all") as db:
        write(db, 21)
        assert db.retained == range(18, 26)
        for epoch in db.retained:
            assert len(db.at(epoch)["a"]) == epoch


@pytest.mark.parametrize("retain", ["7 dayz", "", -1, "-3", 1.5, True, "all of it"])
def test_what_retain_cannot_be(path: Path, retain: Any) -> None:
    with pytest.raises(StorageError, match="retain is a number of epochs"):
        whence.open(path, retain=retain)
    assert not path.exists()


def test_epochs_that_never_were(db: whence.Database) -> None:
    db.insert("a", [(1, "x")])
    for epoch in (2, 1000, -1):
        with pytest.raises(StorageError, match="epoch"):
            db.at(epoch)
    assert db.at(0)["a"].rows == []


def test_the_past_is_for_reading_only(db: whence.Database) -> None:
    db.insert("a", [(1, "x")])
    with db.at(1) as then:
        for write in (
            lambda: then.insert("a", [(2, "y")]),
            lambda: then.delete("a", [(1, "x")]),
            lambda: then.execute("CREATE TABLE c (x INT)"),
            lambda: then.execute("DROP VIEW b"),
            lambda: then.snapshot(),
            lambda: then.expire(),
        ):
            with pytest.raises(whence.WhenceError, match="reading only"):
                write()
        assert then.query("SELECT SUM(n) AS n FROM b").rows == [(1,)]


def test_the_past_stands_still(db: whence.Database, path: Path) -> None:
    """Whatever is written, snapshotted, dropped or let go afterwards, and even when the files are gone."""
    db.insert("a", [(1, "x")])
    then = db.at(1)
    feed = then.changes("b", snapshot=True)
    db.insert("a", [(2, "y")])
    db.snapshot()
    db.execute("DROP TABLE a CASCADE")
    shutil.rmtree(path / "log")
    assert (then.epoch, then["a"].rows, then["b"].rows) == (1, [(1, "x")], [("x", 1)])
    assert [change.row for change in feed] == [("x", 1)]
    then.close()
    with pytest.raises(whence.WhenceError, match="closed"):
        _ = then["a"].rows


def test_closing_the_past_leaves_the_present_alone(db: whence.Database) -> None:
    db.insert("a", [(1, "x")])
    db.at(0).close()
    db.at(1).close()
    db.insert("a", [(2, "x")])
    assert db["b"].rows == [("x", 2)]
    with pytest.raises(StorageError, match="written to by this process"):
        whence.open(db.path)


def test_statements_are_part_of_the_past(db: whence.Database) -> None:
    db.insert("a", [(1, "x")])
    db.execute("CREATE TABLE c (x INT); CREATE VIEW d AS SELECT SUM(x) AS x FROM c")
    db.insert("c", [(7,)])
    db.execute("CREATE OR REPLACE VIEW d AS SELECT MAX(x) AS y FROM c; DROP VIEW b")
    db.insert("c", [(8,)])
    db.snapshot()
    db.execute("DROP TABLE c CASCADE")
    db.insert("a", [(2, "y")])
    assert [(db.at(e).tables, db.at(e).views) for e in db.retained] == [
        (["a"], ["b"]),
        (["a", "c"], ["b", "d"]),
        (["a", "c"], ["b", "d"]),
        (["a", "c"], ["b", "d"]),  # the replacement is an epoch
        (["a", "c"], ["d"]),  # and so is each DROP
        (["a", "c"], ["d"]),
        (["a"], []),
        (["a"], []),
    ]
    assert [(db.at(e)["d"].columns, db.at(e)["d"].rows) for e in (1, 2, 3)] == [
        (["x"], [(None,)]),
        (["x"], [(7,)]),
        (["y"], [(7,)]),
    ]


def test_a_table_of_the_same_name_is_another_one(db: whence.Database) -> None:
    db.insert("a", [(1, "x")])
    db.insert("a", [(2, "y")])
    db.snapshot()
    db.execute("DROP TABLE a CASCADE; CREATE TABLE a (when_ TIMESTAMP, id TEXT)")
    db.insert("a", [("2024-01-01 10:00:00", "new")])
    db.snapshot()
    db.insert("a", [("2024-01-02 10:00:00", "newer")])
    assert db.at(1)["a"].rows == [(1, "x")]
    assert sorted(db.at(2)["a"].rows) == [(1, "x"), (2, "y")], "dropping is an epoch"
    assert (db.at(3)["a"].columns, db.at(3)["a"].rows) == (["when_", "id"], []), "statements belong to the epoch before"
    assert [row[1] for row in db.at(4)["a"].rows] == ["new"]
    assert len(db.at(5)["a"]) == 2


def test_words_of_transactions_that_failed(db: whence.Database, path: Path) -> None:
    """Codes are given when a word is first seen; that they were seen in vain must not shift those that follow."""

    def fail(number: int) -> None:
        with suppress(ZeroDivisionError), db.transaction():
            db.insert("a", [(number, f"in vain {number}"), (number + 1, f"also {number}")])
            _ = 1 / 0

    expected: dict[int, list[Any]] = {0: []}
    for number in range(1, 20):
        fail(1000 * number)
        if number % 4 == 0:
            db.snapshot()
            fail(1000 * number + 500)
        if number % 7 == 0:
            db.execute(f"CREATE VIEW v{number} AS SELECT UPPER(t) AS t FROM a")
        db.insert("a", [(number, f"kept {number}")])
        expected[number] = sorted(db["b"])
    for _ in range(2):
        assert db.retained == range(20)
        for epoch in db.retained:
            assert sorted(db.at(epoch)["b"]) == expected[epoch]
        db.close()
        db = whence.open(path)
        assert sorted(db["v14"]) == sorted((f"KEPT {n}",) for n in range(1, 20))
    db.close()


def test_deadlines_of_the_past(path: Path) -> None:
    now = 1000.0
    with whence.open(path, retain="all", clock=lambda: now) as db:
        db.execute("CREATE TABLE s (x INT) WITH (ttl = '60 s')")
        db.insert("s", [(1,)])
        now = 1030
        db.insert("s", [(2,)])
        now = 1040
        db.insert("s", [(1,)])  # begins anew
        db.snapshot()
        now = 1099
        assert db["s"].rows == [(1,)]
        now = 5000
        assert db["s"].rows == []
        assert [sorted(db.at(e)["s"]) for e in db.retained] == [[], [(1,)], [(1,), (2,)], [(1,), (2,)], [(1,)], []]


def test_functions_are_known_in_the_past(path: Path) -> None:
    def setup(db: whence.Database) -> None:
        db.create_function("double", lambda x: 2 * x, args=["INT"], returns="BIGINT")

    with whence.open(path, retain="all", setup=setup) as db:
        db.execute("CREATE TABLE a (x INT); CREATE VIEW b AS SELECT double(x) AS y FROM a")
        for x in range(5):
            db.insert("a", [(x,)])
        assert sorted(db.at(3)["b"]) == [(0,), (2,), (4,)]


def test_a_database_in_memory_has_no_past() -> None:
    with whence.open() as db:
        with pytest.raises(whence.WhenceError, match="memory"):
            db.at(0)
        with pytest.raises(whence.WhenceError, match="memory"):
            _ = db.retained


def test_reading_the_past_while_it_grows(db: whence.Database) -> None:
    import threading

    stop = threading.Event()

    def write() -> None:
        number = 0
        while not stop.is_set():
            number += 1
            db.insert("a", [(number, f"t{number}")])
            if number % 10 == 0:
                db.snapshot()

    thread = threading.Thread(target=write)
    thread.start()
    try:
        for _ in range(25):
            epoch = db.retained[-1]
            assert len(db.at(epoch)["b"]) == epoch
    finally:
        stop.set()
        thread.join()
