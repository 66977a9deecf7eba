"""The write queue: acknowledged is stable and done once; what fails changes nothing and disturbs nobody."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import whence
from tests.faults import Failing
from whence.model.errors import (
    CatalogError,
    DataError,
    EvaluationError,
    LimitError,
    SparkError,
    StorageError,
    WhenceError,
)
from whence.runtime.database import Database
from whence.runtime.writing.pace import EpochPace
from whence.server.writing.write_queue import GATHER_ROWS, Outcome, Refusal, TableInsert, WriteQueue

PATIENCE = 60.0


class Replies:
    """Collects outcomes by name."""

    def __init__(self) -> None:
        self.found: dict[Any, Outcome] = {}
        self.order: list[Any] = []
        self._more = threading.Condition()

    def __call__(self, name: Any) -> Callable[[Outcome], None]:
        def reply(outcome: Outcome) -> None:
            with self._more:
                assert name not in self.found, f"{name} was answered twice"
                self.found[name] = outcome
                self.order.append(name)
                self._more.notify_all()

        return reply

    def wait(self, *names: Any) -> list[Outcome]:
        with self._more:
            assert self._more.wait_for(lambda: all(name in self.found for name in names), PATIENCE)
            return [self.found[name] for name in names]


@contextmanager
def queue_of(db: Database, **options: Any) -> Iterator[WriteQueue]:
    queue = WriteQueue(db, **options)
    try:
        yield queue
    finally:
        queue.close()


@contextmanager
def gathered(queue: WriteQueue) -> Iterator[None]:
    """Let what is submitted inside wait, so that it becomes one batch."""
    begun, go = threading.Event(), threading.Event()

    def wait(db: Database) -> int:
        begun.set()
        return int(go.wait(PATIENCE))

    queue.submit(wait, lambda outcome: None)
    assert begun.wait(PATIENCE)
    try:
        yield
    finally:
        go.set()


@pytest.fixture
def db() -> Iterator[Database]:
    with whence.open() as made:
        made.execute("CREATE TABLE a (x INT, name TEXT)")
        yield made


def test_writes_that_wait_become_one_epoch(db: Database) -> None:
    replies = Replies()
    with queue_of(db) as queue:
        before = db.epoch
        with gathered(queue):
            for x in range(100):
                queue.submit(TableInsert("a", [(x, "n")]), replies(x))
        replies.wait(*range(100))
    assert replies.order == list(range(100))
    assert {(o.count, o.epoch, o.error) for o in replies.found.values()} == {(1, before + 1, None)}
    assert sorted(db["a"]) == [(x, "n") for x in range(100)]
    assert queue.metrics().largest_epoch == 100
    assert queue.pending == (0, 0)


def rest_for_hours(queue: WriteQueue) -> None:
    """Let the next epoch be due in hours, unless it is not to be waited for."""
    queue._pace = EpochPace(1, 10_000)
    queue._pace.end(1e9)
    queue._pace.begin(time.monotonic())


def test_few_rows_of_a_publisher_that_writes_on_are_gathered(db: Database) -> None:
    replies = Replies()
    with queue_of(db) as queue:
        with gathered(queue):
            queue.submit(TableInsert("a", [(-2, "n")]), replies(-2), publisher="p", number=1)
            queue.submit(TableInsert("a", [(-1, "n")]), replies(-1), publisher="p", number=2)
            rest_for_hours(queue)
        assert not replies.found
        for x in range(GATHER_ROWS - 2):
            queue.submit(TableInsert("a", [(x, "n")]), replies(x), publisher="p", number=3 + x)
        outcomes = replies.wait(*range(-2, GATHER_ROWS - 2))
    assert len({outcome.epoch for outcome in outcomes}) == 1
    assert queue.metrics().largest_epoch == GATHER_ROWS


def test_writers_that_wait_for_each_answer_do_not_wait_for_more(db: Database) -> None:
    replies = Replies()
    with queue_of(db) as queue:
        with gathered(queue):
            queue.submit(TableInsert("a", [(1, "n")]), replies("p"), publisher="p", number=1)
            queue.submit(TableInsert("a", [(2, "n")]), replies("q"), publisher="q", number=1)
            queue.submit(TableInsert("a", [(3, "n")]), replies("nobody"))
            rest_for_hours(queue)
        assert [outcome.error for outcome in replies.wait("p", "q", "nobody")] == [None] * 3


def test_bad_rows_among_good_ones_fail_alone(db: Database) -> None:
    db.execute("CREATE TABLE b (x INT NOT NULL)")
    replies = Replies()
    with queue_of(db) as queue:
        with gathered(queue):
            queue.submit(TableInsert("a", [(1, "good")]), replies(1))
            queue.submit(TableInsert("a", [(2, "good"), ("two", "bad")]), replies(2))
            queue.submit(TableInsert("a", [{"name": "good", "x": 3}]), replies(3))
            queue.submit(TableInsert("b", [(None,)]), replies(4))
            queue.submit(TableInsert("ghost", [(1,)]), replies(5))
            queue.submit(TableInsert("a", [(6,)]), replies(6))
            queue.submit(TableInsert("a", [{"x": 7}], missing="null"), replies(7))
        one, two, three, four, five, six, seven = replies.wait(1, 2, 3, 4, 5, 6, 7)
    assert (one.count, three.count, seven.count) == (1, 1, 1)
    assert one.epoch == three.epoch == seven.epoch
    assert str(two.error) == "table a, row 2, column x: 'two' (str) is not a value of type INTEGER"
    assert isinstance(four.error, DataError)
    assert isinstance(five.error, CatalogError)
    assert str(six.error) == "table a, row 1: 1 values for the 2 columns (x INTEGER, name TEXT)"
    assert sorted(db["a"], key=str) == [(1, "good"), (3, "good"), (7, None)]
    assert len(db["b"]) == 0


def test_writes_that_break_a_promise_fail_alone(db: Database) -> None:
    db.execute("CREATE STREAM s (k TEXT, t INT) WITH (ordered = 't', closes = 'k when t % 10 = 0')")
    replies = Replies()
    with queue_of(db) as queue:
        with gathered(queue):
            queue.submit(TableInsert("s", [("a", 5)]), replies(1))
            queue.submit(TableInsert("s", [("b", 7), ("b", 6)]), replies(2))
            queue.submit(TableInsert("s", [("a", 10)]), replies(3))
            queue.submit(TableInsert("s", [("a", 11)]), replies(4))
            queue.submit(TableInsert("s", [("b", 12)]), replies(5))
        one, two, three, four, five = replies.wait(1, 2, 3, 4, 5)
    assert one.epoch == three.epoch == five.epoch
    assert "row 2: ('b', 6) breaks the promise ordered = 't': t has reached 7" in str(two.error)
    assert "row 1: ('a', 11) breaks the promise closes = 'k when t % 10 = 0'" in str(four.error)
    assert db["s"].rows == [("a", 5), ("a", 10), ("b", 12)]


def test_a_write_that_fails_takes_back_all_of_itself(db: Database) -> None:
    def half(db: Database) -> int:
        db.insert("a", (8, "half"))
        raise ValueError("changed its mind")

    replies = Replies()
    with queue_of(db) as queue:
        with gathered(queue):
            queue.submit(TableInsert("a", [(1, "x")]), replies(1))
            queue.submit(half, replies(2))
            queue.submit(lambda db: db.update("a", {"name": "y"}, {"x": 1}), replies(3))
            queue.submit(lambda db: db.delete("a", (1, "x")), replies(4))
        counts = [(outcome.count, repr(outcome.error)) for outcome in replies.wait(1, 2, 3, 4)]
    assert counts == [(1, "None"), (0, "ValueError('changed its mind')"), (1, "None"), (0, "None")]
    assert db["a"].rows == [(1, "y")]


@pytest.mark.parametrize("bad", [{3}, {0, 63}, {1, 2, 3, 30}, set(range(64))])
def test_a_row_on_which_a_view_fails_is_the_only_one_refused(db: Database, bad: set[int]) -> None:
    db.execute("CREATE VIEW v AS SELECT CAST(name AS INT) AS n FROM a")
    replies = Replies()
    with queue_of(db) as queue:
        with gathered(queue):
            for x in range(64):
                queue.submit(TableInsert("a", [(x, "oops" if x in bad else str(x))]), replies(x))
        outcomes = dict(enumerate(replies.wait(*range(64))))
    assert {x for x, outcome in outcomes.items() if outcome.error is not None} == bad
    assert all(isinstance(outcomes[x].error, EvaluationError) for x in bad)
    assert sorted(db["v"]) == [(x,) for x in range(64) if x not in bad]
    assert replies.order == list(range(64))


def test_definitions_run_alone_and_in_their_turn(db: Database) -> None:
    def define(db: Database) -> int:
        db.execute("CREATE TABLE c (x INT); INSERT INTO c SELECT x FROM a")
        return 7

    replies = Replies()
    with queue_of(db) as queue:
        with gathered(queue):
            queue.submit(TableInsert("a", [(1, "n")]), replies(1))
            queue.submit(define, replies(2), alone=True)
            queue.submit(TableInsert("c", [(2,)]), replies(3))
            queue.submit(lambda db: db.execute("nonsense").count or 0, replies(4), alone=True)
            queue.submit(lambda db: db.execute("CREATE TABLE d (x INT)").count or 0, replies(5))
        outcomes = replies.wait(1, 2, 3, 4, 5)
        with pytest.raises(WhenceError, match="runs alone has no number"):
            queue.submit(define, replies(6), alone=True, publisher="p", number=1)
    assert [outcome.count for outcome in outcomes] == [1, 7, 1, 0, 0]
    assert [outcome.error is None for outcome in outcomes] == [True, True, True, False, False]
    assert db["c"].rows == [(1,), (2,)]
    assert "d" not in db.tables


def test_limits_refuse_before_anything_waits(db: Database) -> None:
    replies = Replies()
    with queue_of(db, most_writes=3, most_bytes=100) as queue:
        with gathered(queue):
            queue.submit(TableInsert("a", [(1, "n")]), replies(1), size=60)
            with pytest.raises(LimitError, match="60 bytes wait already; with 50 more that is over 100"):
                queue.submit(TableInsert("a", [(2, "n")]), replies(2), size=50)
            queue.submit(TableInsert("a", [(3, "n")]), replies(3), size=40)
            assert queue.pending == (3, 100)
            with pytest.raises(LimitError, match="3 writes wait already, and no more than 3 may"):
                queue.submit(TableInsert("a", [(4, "n")]), replies(4))
        replies.wait(1, 3)
        queue.submit(TableInsert("a", [(5, "n")]), replies(5), size=100)
        replies.wait(5)
    assert sorted(db["a"]) == [(1, "n"), (3, "n"), (5, "n")]
    assert queue.pending == (0, 0)


def test_a_write_whose_time_is_up_has_not_begun(db: Database) -> None:
    replies = Replies()
    with queue_of(db) as queue:
        with gathered(queue):
            queue.submit(TableInsert("a", [(1, "n")]), replies(1), timeout=-1)
            queue.submit(TableInsert("a", [(2, "n")]), replies(2), timeout=PATIENCE)
            queue.submit(lambda db: db.insert("a", (3, "n")), replies(3), timeout=-1, alone=True)
        late, fine, alone = replies.wait(1, 2, 3)
    assert isinstance(late.error, LimitError)
    assert isinstance(alone.error, LimitError)
    assert fine.error is None
    assert db["a"].rows == [(2, "n")]


def test_closing_answers_everything(db: Database) -> None:
    replies = Replies()
    queue = WriteQueue(db)
    for x in range(500):
        queue.submit(TableInsert("a", [(x, "n")]), replies(x))
    queue.close()
    assert len(replies.found) == 500
    assert len(db["a"]) == 500
    with pytest.raises(WhenceError, match="takes no more writes"):
        queue.submit(TableInsert("a", [(1, "n")]), replies("late"))
    queue.close()


def test_a_database_that_is_closed_or_only_read_answers_with_its_error(tmp_path: Path) -> None:
    replies = Replies()
    with whence.open(tmp_path / "db") as db:
        db.execute("CREATE TABLE a (x INT)")
        with whence.open(tmp_path / "db", read_only=True) as reader, queue_of(reader) as queue:
            queue.submit(TableInsert("a", [(1,)]), replies(1))
            assert "reading only" in str(replies.wait(1)[0].error)
        queue = WriteQueue(db)
    queue.submit(TableInsert("a", [(1,)]), replies(2))
    assert "closed" in str(replies.wait(2)[0].error)
    queue.close()


def test_a_reply_that_raises_does_not_end_the_queue(db: Database) -> None:
    replies = Replies()

    def fail(outcome: Outcome) -> None:
        raise RuntimeError("this connection is gone")

    with queue_of(db) as queue:
        with gathered(queue):
            queue.submit(TableInsert("a", [(1, "n")]), fail)
            queue.submit(TableInsert("a", [(2, "n")]), replies(2))
        replies.wait(2)
    assert len(db["a"]) == 2


class FailingSink:
    """A sink that takes nothing."""

    view = "a"

    def __call__(self, epoch: int, changes: Any) -> None:
        raise SparkError(f"epoch {epoch} is committed, but the sink did not take it")

    def redefine(self) -> None: ...

    def end(self, why: str) -> None: ...


def test_a_sink_that_fails_does_not_undo_the_write(db: Database, caplog: pytest.LogCaptureFixture) -> None:
    replies = Replies()
    db._coordinator.sinks.append(FailingSink())
    with queue_of(db) as queue:
        with gathered(queue):
            for x in (1, 2):
                queue.submit(TableInsert("a", [(x, "n")]), replies(x), publisher="p", number=x)
        assert [outcome.error for outcome in replies.wait(1, 2)] == [None, None]
        queue.submit(TableInsert("a", [(2, "n")]), replies(3), publisher="p", number=2)
        assert replies.wait(3)[0].repeated
    assert sorted(db["a"]) == [(1, "n"), (2, "n")]
    assert "the sink did not take it" in caplog.text


# -- many writers ------------------------------------------------------------------------------------------------------


class Writer:
    """Writes keys of its own, among them rows that do not fit and rows on which a view fails."""

    def __init__(self, me: int, seed: int) -> None:
        self.me, self.rng, self.model = me, random.Random(seed), dict[int, int]()
        self.expected: dict[int, int | None] = {}  # rows of each write, or None for an error

    def write(self, queue: WriteQueue, replies: Replies, number: int, numbered: bool) -> None:
        key, value = self.me * 100 + self.rng.randrange(20), self.rng.randrange(1000)
        choice = self.rng.random()
        write: Callable[[Database], int]
        if choice < 0.6:
            write, self.expected[number] = TableInsert("t", [(key, str(value))]), 1
            self.model[key] = value
        elif choice < 0.7:
            write, self.expected[number] = TableInsert("t", [(key, str(value)), (key, 5)]), None
        elif choice < 0.8:
            alone = self.me * 100 + 20 + number  # or a good row could take its place in the same epoch
            write, self.expected[number] = TableInsert("t", [(alone, "not a number")]), None
        elif choice < 0.9:
            write, self.expected[number] = (lambda db: db.delete("t", key=key)), int(key in self.model)
            self.model.pop(key, None)
        else:
            write = lambda db: db.update("t", {"v": str(value)}, key=key)  # noqa: E731
            self.expected[number] = int(key in self.model)
            self.model.update({key: value} if key in self.model else {})
        mine = {"publisher": f"w{self.me}", "number": number} if numbered else {}
        queue.submit(write, replies((self.me, number)), **mine)


@pytest.mark.parametrize(
    "options",
    [
        {"durability": "commit"},
        {"durability": "interval", "sync_interval": 0.02},
        {"durability": "none"},
        {"partitions": 2},
        {"memory": True},
    ],
    ids=lambda options: "-".join(map(str, options.values())),
)
@pytest.mark.parametrize("numbered", [False, True])
def test_concurrent_writers_end_with_what_they_wrote(tmp_path: Path, options: dict[str, Any], numbered: bool) -> None:
    options = dict(options)
    path = None if options.pop("memory", False) else tmp_path / "db"
    replies, writers = Replies(), [Writer(me, 7 * me + numbered) for me in range(6)]
    with whence.open(path, **options) as db:
        db.execute("CREATE TABLE t (k INT PRIMARY KEY, v TEXT)")
        total = "SELECT k // 100 AS w, SUM(CAST(v AS INT)) AS s, COUNT(*) AS n FROM t GROUP BY k // 100"
        db.execute(f"CREATE VIEW total AS {total}")
        with queue_of(db, sync_every=0.005) as queue:

            def work(writer: Writer) -> None:
                for number in range(80):
                    writer.write(queue, replies, number, numbered)

            threads = [threading.Thread(target=work, args=(writer,)) for writer in writers]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        check_writers(writers, replies, db)
    if path is not None:
        with whence.open(path) as again:
            check_rows(writers, again)


def check_writers(writers: list[Writer], replies: Replies, db: Database) -> None:
    for writer in writers:
        for number, expected in writer.expected.items():
            outcome = replies.found[writer.me, number]
            assert (outcome.count if outcome.error is None else None) == expected, (number, outcome)
            assert not outcome.repeated
        epochs = [replies.found[writer.me, number].epoch for number in writer.expected]
        assert epochs == sorted(epochs)
        assert [n for me, n in replies.order if me == writer.me] == list(writer.expected)
    check_rows(writers, db)


def check_rows(writers: list[Writer], db: Database) -> None:
    rows = {key: value for writer in writers for key, value in writer.model.items()}
    assert sorted(db["t"]) == sorted((key, str(value)) for key, value in rows.items())
    totals = {(w.me, sum(w.model.values()), len(w.model)) for w in writers if w.model}
    assert set(db["total"]) == totals


def test_writes_beside_the_queue_are_in_order_with_it(tmp_path: Path) -> None:
    replies = Replies()
    with whence.open(tmp_path / "db") as db:
        db.execute("CREATE TABLE a (x INT)")
        with queue_of(db) as queue:
            for x in range(100):
                queue.submit(TableInsert("a", [(x,)]), replies(x), publisher="p", number=x)
                db.insert("a", (1000 + x,))
        assert sorted(x for (x,) in db["a"]) == [*range(100), *range(1000, 1100)]


# -- failing disks -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("durability", ["commit", "none"])
@pytest.mark.parametrize(("at", "until"), [(2, 40), (3, 40), (5, 7), (6, 20), (7, 9), (9, 14), (12, 13), (15, 30)])
def test_a_disk_that_fails_loses_only_what_was_answered_with_its_error(
    tmp_path: Path, at: int, until: int, durability: Any
) -> None:
    """Whatever was acknowledged is there once, whatever failed is not there, whether the disk heals or not."""
    replies, disk = Replies(), Failing(10**9)
    db = whence.open(tmp_path / "db", disk=disk, durability=durability)
    db.execute("CREATE TABLE a (x INT)")
    db.sync()
    with queue_of(db, sync_every=0.0) as queue:
        disk.at = disk.visited + at
        for x in range(40):
            queue.submit(TableInsert("a", [(x,)]), replies(x), publisher="p", number=x)
            if x % 4 == 3:
                replies.wait(x)
            if x > until and any(outcome.error is not None for outcome in list(replies.found.values())):
                disk.heal()
        disk.heal()
        outcomes = dict(enumerate(replies.wait(*range(40))))
        failed = {x for x, outcome in outcomes.items() if outcome.error is not None}
        assert failed
        assert all(isinstance(outcomes[x].error, StorageError) for x in failed)
        for x in range(40, 44):
            queue.submit(TableInsert("a", [(x,)]), replies(x), publisher="p", number=x)
        assert [outcome.error for outcome in replies.wait(40, 41, 42, 43)] == [None] * 4
        for x in range(44):
            queue.submit(TableInsert("a", [(x,)]), replies((x, "again")), publisher="p", number=x)
        again = {x: replies.wait((x, "again"))[0] for x in range(44)}
        assert {x for x, outcome in again.items() if not outcome.repeated} == failed
        assert all(again[x].error is not None for x in failed)
    assert sorted(x for (x,) in db["a"]) == [x for x in range(44) if x not in failed]
    db.close()
    with whence.open(tmp_path / "db") as opened:
        assert sorted(x for (x,) in opened["a"]) == [x for x in range(44) if x not in failed]


def test_a_refused_write_is_never_taken_for_one_that_was_done(db: Database) -> None:
    replies = Replies()
    with queue_of(db, most_writes=3) as queue:
        with gathered(queue):
            queue.submit(TableInsert("a", [(1, "n")]), replies(1), publisher="p", number=1)
            queue.submit(Refusal(LimitError("too fast")), replies(2), publisher="p", number=2)
            with pytest.raises(LimitError):
                queue.submit(TableInsert("a", [(3, "n")]), replies(3), publisher="p", number=3)
        replies.wait(1, 2)
        queue.submit(TableInsert("a", [(4, "n")]), replies(4), publisher="p", number=4)
        replies.wait(4)
        for number in (1, 2, 3, 4):
            queue.submit(TableInsert("a", [(9, "n")]), replies((number, 2)), publisher="p", number=number)
            replies.wait((number, 2))
        found = [replies.found[number, 2] for number in (1, 2, 3, 4)]
    assert [outcome.repeated for outcome in found] == [True, False, False, True]
    assert str(found[1].error) == "too fast"
    assert "3 writes wait already" in str(found[2].error)
    assert sorted(db["a"]) == [(1, "n"), (4, "n")]
    assert db["publishers"].rows == [("p", 4, "2-3")]
