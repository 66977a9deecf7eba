"""Numbered writes: each is done at most once, and none that was not done is answered as if it had been."""

from __future__ import annotations

import os
import random
import select
import signal
import struct
import traceback
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path

import pytest

import whence
from tests.depth import seeds
from tests.server.test_write_queue import Replies, gathered, queue_of
from whence.model.errors import CatalogError, DataError, EvaluationError
from whence.runtime.database import Database
from whence.server.writing import publishers
from whence.server.writing.publishers import format_ranges, parse_ranges, remove_number, union
from whence.server.writing.write_queue import Outcome, TableInsert, WriteQueue


@pytest.fixture
def db() -> Iterator[Database]:
    with whence.open() as made:
        made.execute("CREATE TABLE a (x INT)")
        yield made


class Sender:
    """A publisher that counts how often it sends each number."""

    def __init__(self, queue: WriteQueue, name: str = "p") -> None:
        self.queue, self.name, self.replies, self.sent = queue, name, Replies(), 0

    def send(self, number: int, value: object = None, awaiting: int | None = None) -> Callable[[], Outcome]:
        self.sent += 1
        key = self.sent
        row = (number if value is None else value,)
        self.queue.submit(
            TableInsert("a", [row]), self.replies(key), publisher=self.name, number=number, awaiting=awaiting
        )
        return lambda: self.replies.wait(key)[0]


def test_a_number_that_is_sent_again_is_done_once(db: Database) -> None:
    with queue_of(db) as queue:
        sender = Sender(queue)
        with gathered(queue):
            found = [sender.send(number) for number in (1, 2, 2, 5, 1, 5)]
        outcomes = [outcome() for outcome in found]
        later = sender.send(5)()
    assert [outcome.repeated for outcome in outcomes] == [False, False, True, False, True, True]
    assert [outcome.count for outcome in outcomes] == [1, 1, 0, 1, 0, 0]
    assert later.repeated
    assert later.epoch >= outcomes[3].epoch
    assert sorted(db["a"]) == [(1,), (2,), (5,)]
    assert db["publishers"].rows == [("p", 5, None)]
    assert queue.metrics().repeated == 4


def test_publishers_count_for_themselves(db: Database) -> None:
    with queue_of(db) as queue:
        one, two = Sender(queue, "one"), Sender(queue, "two")
        with gathered(queue):
            found = [one.send(7, 1), two.send(3, 2), one.send(8, 3), two.send(7, 4)]
        assert [outcome().repeated for outcome in found] == [False] * 4
    assert sorted(db["publishers"]) == [("one", 8, None), ("two", 7, None)]


def test_a_failed_number_may_be_tried_again_until_a_later_one_is_done(db: Database) -> None:
    with queue_of(db) as queue:
        sender = Sender(queue)
        assert isinstance(sender.send(1, "bad")().error, DataError)
        assert sender.send(1).__call__().count == 1
        with gathered(queue):
            found = [sender.send(2, "bad"), sender.send(3), sender.send(2), sender.send(4, "bad"), sender.send(4)]
        outcomes = [outcome() for outcome in found]
    assert [outcome.error is None for outcome in outcomes] == [False, True, False, False, True]
    assert str(outcomes[2].error) == str(outcomes[0].error)
    assert sorted(db["a"]) == [(1,), (3,), (4,)]
    assert db["publishers"].rows == [("p", 4, "2")]


def test_a_row_that_no_view_takes_leaves_its_number_failed(db: Database) -> None:
    db.execute("CREATE VIEW v AS SELECT 10 // x AS y, CAST(CASE x WHEN 3 THEN 'x' ELSE '1' END AS INT) AS z FROM a")
    with queue_of(db) as queue:
        sender = Sender(queue)
        with gathered(queue):
            found = [sender.send(number) for number in range(1, 9)]
        outcomes = [outcome() for outcome in found]
        again = [sender.send(number)() for number in range(1, 9)]
    assert [isinstance(outcome.error, EvaluationError) for outcome in outcomes] == [n == 3 for n in range(1, 9)]
    assert [outcome.repeated for outcome in again] == [n != 3 for n in range(1, 9)]
    assert isinstance(again[2].error, EvaluationError)
    assert db["publishers"].rows == [("p", 8, "3")]


def test_failures_are_kept_with_the_next_success(tmp_path: Path) -> None:
    with whence.open(tmp_path / "db") as db:
        db.execute("CREATE TABLE a (x INT)")
        with queue_of(db) as queue:
            sender = Sender(queue)
            for number, value in ((1, 1), (2, "bad"), (3, "bad"), (5, "bad"), (6, 6), (7, "bad")):
                sender.send(number, value)()
    with whence.open(tmp_path / "db") as db, queue_of(db) as queue:
        assert db["publishers"].rows == [("p", 6, "2-3 5")]
        sender = Sender(queue)
        outcomes = {number: sender.send(number)() for number in range(1, 8)}
        assert {n for n, outcome in outcomes.items() if outcome.error is not None} == {2, 3, 5}
        assert str(outcomes[2].error).startswith("write 2 of publisher p failed or was given up before")
        assert {n for n, outcome in outcomes.items() if outcome.repeated} == {1, 4, 6}
        assert outcomes[7].count == 1
        assert sorted(db["a"]) == [(1,), (6,), (7,)]


def test_failures_below_what_is_awaited_are_forgotten(db: Database) -> None:
    with queue_of(db) as queue:
        sender = Sender(queue)
        for number in range(1, 6):
            sender.send(number, "bad")()
        sender.send(6)()
        assert db["publishers"].rows == [("p", 6, "1-5")]
        sender.send(7, awaiting=4)()
        assert db["publishers"].rows == [("p", 7, "4-5")]
        sender.send(8, awaiting=8)()
    assert db["publishers"].rows == [("p", 8, None)]


def test_publishers_that_are_not_in_memory_are_read_again(db: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(publishers, "MOST_CACHED", 3)
    with queue_of(db) as queue:
        senders = [Sender(queue, f"p{i}") for i in range(10)]
        for sender in senders:
            sender.send(1)()
            sender.send(2, "bad")()
            sender.send(3)()
        assert len(queue._ledger._known) == 3
        assert [sender.send(1)().repeated for sender in senders] == [True] * 10
        assert [sender.send(2)().error is None for sender in senders] == [False] * 10
        with gathered(queue):
            found = [sender.send(4) for sender in senders]
        assert [outcome().count for outcome in found] == [1] * 10
    assert sorted(db["publishers"]) == [(f"p{i}", 4, "2") for i in range(10)]


def test_the_table_may_be_dropped_and_made_again(db: Database) -> None:
    with queue_of(db) as queue:
        sender = Sender(queue)
        assert sender.send(1)().count == 1
        db.execute("DROP TABLE publishers")
        assert sender.send(1)().count == 1
        assert sender.send(1)().repeated


def test_another_table_of_that_name_refuses_numbered_writes_alone(db: Database) -> None:
    db.execute("CREATE TABLE publishers (name TEXT)")
    with queue_of(db) as queue:
        sender, replies = Sender(queue), Replies()
        with gathered(queue):
            found = sender.send(1)
            queue.submit(TableInsert("a", [(7,)]), replies(1))
        error = found().error
        assert replies.wait(1)[0].count == 1
    assert isinstance(error, CatalogError)
    assert str(error).startswith("numbered writes are noted in a table publishers (id TEXT PRIMARY KEY")
    assert db["a"].rows == [(7,)]


@pytest.mark.parametrize(("publisher", "number"), [("", 1), ("x" * 201, 1), ("p", -1), ("p", None), ("p", 2**63)])
def test_names_and_numbers_are_checked(db: Database, publisher: str, number: int) -> None:
    with queue_of(db) as queue, pytest.raises(DataError):
        queue.submit(TableInsert("a", [(1,)]), print, publisher=publisher, number=number)


@pytest.mark.parametrize("seed", seeds(20))
def test_ranges_are_sets_of_numbers(seed: int) -> None:
    rng = random.Random(seed)
    ranges: publishers.Ranges = ()
    model: set[int] = set()
    for _ in range(100):
        number = rng.randrange(60)
        if rng.random() < 0.6:
            ranges = union(ranges, ((number, number),))
            model.add(number)
        else:
            ranges = remove_number(ranges, number)
            model.discard(number)
        assert {n for first, last in ranges for n in range(first, last + 1)} == model
        assert all(last + 1 < first for (_, last), (first, _) in pairwise(ranges))
        assert parse_ranges(format_ranges(ranges)) == ranges


def test_too_many_ranges_become_fewer_and_lose_no_number() -> None:
    ranges: publishers.Ranges = ()
    for number in range(0, 1000, 2):
        ranges = union(ranges, ((number, number),))
    assert len(ranges) == publishers.MOST_RANGES
    assert all(any(first <= n <= last for first, last in ranges) for n in range(0, 1000, 2))
    assert ranges[-1] == (998, 998)


# -- kill -9 -----------------------------------------------------------------------------------------------------------

ACK = struct.Struct("<q?")  # a number, and whether it was repeated
TOTAL = 3_000


def serve(path: Path, first: int, tell: int, durability: str) -> None:
    """Send the numbers from `first` on, and pass every acknowledgement on."""
    with whence.open(path, durability=durability) as db:  # type: ignore[arg-type]  # one of them
        if "t" not in db.tables:
            db.execute("CREATE TABLE t (x INT)")
        acks: list[bytes] = []

        def deliver(answered: list[tuple[Callable[[Outcome], None], Outcome]]) -> None:
            for reply, outcome in answered:
                reply(outcome)
            os.write(tell, b"".join(acks))
            acks.clear()

        def ack(number: int, outcome: Outcome) -> None:
            assert outcome.error is None
            acks.append(ACK.pack(number, outcome.repeated))

        with queue_of(db, deliver=deliver, sync_every=0.002) as queue:
            for number in range(first, TOTAL):
                while queue.pending[0] > 50:
                    select.select([], [], [], 0.0005)
                queue.submit(
                    TableInsert("t", [(number,)]),
                    lambda outcome, n=number: ack(n, outcome),
                    publisher="p",
                    number=number,
                )


def run_and_kill(path: Path, first: int, durability: str, acks: int | None) -> list[tuple[int, bool]]:
    """Let a child send numbers, and kill it after so many acknowledgements; return all that it sent."""
    told, tell = os.pipe()
    child = os.fork()
    if child == 0:
        code = 1
        try:
            os.close(told)
            serve(path, first, tell, durability)
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code)
    os.close(tell)
    data = b""
    while some := os.read(told, 1 << 16):
        data += some
        if acks is not None and len(data) >= acks * ACK.size:
            os.kill(child, signal.SIGKILL)
            acks = None
    os.close(told)
    _, status = os.waitpid(child, 0)
    assert os.WIFSIGNALED(status) or os.waitstatus_to_exitcode(status) == 0, "the child met an error: see its output"
    return list(ACK.iter_unpack(data[: len(data) // ACK.size * ACK.size]))


@pytest.mark.parametrize("seed", seeds(2))
@pytest.mark.parametrize("durability", ["commit", "interval", "none"])
def test_acknowledged_numbers_survive_kills_and_are_in_once(tmp_path: Path, durability: str, seed: int) -> None:
    """A client that sends what has no answer again, in order: after kills at random moments every number is in once."""
    rng, path, acked = random.Random(seed), tmp_path / "db", set[int]()
    for _ in range(5):
        acked |= send_and_check(path, acked, durability, rng.randint(1, TOTAL // 4))
        with whence.open(path, read_only=True) as db:
            rows = sorted(x for (x,) in db["t"])
        assert rows == list(range(len(rows)))
        assert acked <= set(rows)
    acked |= send_and_check(path, acked, durability, None)
    with whence.open(path) as db:
        assert sorted(x for (x,) in db["t"]) == list(range(TOTAL))
    assert acked == set(range(TOTAL))


def send_and_check(path: Path, acked: set[int], durability: str, acks: int | None) -> set[int]:
    first = next(number for number in range(TOTAL + 1) if number not in acked)
    answers = run_and_kill(path, first, durability, acks)
    assert [number for number, _ in answers] == list(range(first, first + len(answers)))
    return {number for number, _ in answers}
