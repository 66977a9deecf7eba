"""The changes of a view add up to the view, for any listener that began at any time."""

from __future__ import annotations

import random
import threading
import time
from collections import Counter

import pytest

import whence
from whence.model.errors import CatalogError

PROGRAM = """
    CREATE TABLE a (x INT, y INT);
    CREATE VIEW doubled AS SELECT x FROM a UNION ALL SELECT y FROM a;
    CREATE VIEW grouped AS SELECT x, COUNT(*) AS n, MAX(y) AS top FROM a GROUP BY x;
"""


@pytest.mark.parametrize("view", ["doubled", "grouped", "a"])
def test_changes_add_up(view: str) -> None:
    rng = random.Random(view)
    with whence.open() as db:
        db.execute(PROGRAM)
        late, total, last = None, Counter[tuple[object, ...]](), 0
        feed = db.changes(view)
        for step in range(60):
            with db.transaction():
                for _ in range(rng.randrange(4)):
                    row = (rng.randrange(3), rng.randrange(3))
                    db.insert("a", row) if rng.random() < 0.6 else db.delete("a", [row])
            if step == 30:
                late = db.changes(view, snapshot=True)
            if rng.random() < 0.5:
                signs: dict[tuple[int, tuple[object, ...]], int] = {}
                for change in feed:
                    assert change.epoch >= last
                    last = change.epoch
                    assert signs.setdefault((change.epoch, change.row), change.sign) == change.sign
                    total[change.row] += change.sign
                assert +total == total == Counter(db[view].rows)
        assert late is not None
        caught_up = Counter[tuple[object, ...]]()
        for change in late:
            caught_up[change.row] += change.sign
        assert +caught_up == Counter(db[view].rows)


def test_a_feed_begins_when_it_is_asked_for_and_can_be_resumed() -> None:
    with whence.open() as db:
        db.execute(PROGRAM)
        db.insert("a", (1, 1))
        feed = db.changes("grouped")
        assert list(feed) == []
        db.insert("a", (1, 5))
        assert [tuple(c) for c in feed] == [(2, (1, 1, 1), -1), (2, (1, 2, 5), 1)]
        assert list(feed) == []


def test_follow_waits_for_more_and_ends_with_the_database() -> None:
    db = whence.open()
    db.execute(PROGRAM)
    heard: list[tuple[object, ...]] = []
    feed = db.changes("grouped")
    listener = threading.Thread(target=lambda: heard.extend(c.row for c in feed.follow()))
    listener.start()
    for x in range(3):
        db.insert("a", (x, x))
        time.sleep(0.01)
    db.close()
    listener.join(5)
    assert not listener.is_alive()
    assert heard == [(0, 1, 0), (1, 1, 1), (2, 1, 2)]


def test_follow_gives_up_after_its_timeout() -> None:
    with whence.open() as db:
        db.execute(PROGRAM)
        assert list(db.changes("a").follow(timeout=0.01)) == []


def test_the_feed_of_a_dropped_view_says_so() -> None:
    with whence.open() as db:
        db.execute(PROGRAM)
        feed = db.changes("grouped")
        db.insert("a", (1, 1))
        db.execute("DROP VIEW grouped")
        rows = []
        with pytest.raises(CatalogError, match='"grouped" was dropped'):
            rows.extend(c.row for c in feed)
        with pytest.raises(CatalogError):
            db.changes("grouped")


def test_readers_in_other_threads_see_whole_epochs() -> None:
    with whence.open() as db:
        db.execute("CREATE TABLE a (x INT, y INT); CREATE VIEW s AS SELECT SUM(x) AS x, SUM(y) AS y FROM a")
        db.insert("a", (0, 0))
        wrong: list[object] = []
        stop = threading.Event()

        def read() -> None:
            while not stop.is_set():
                ((x, y),) = db["s"].rows
                ((qx, qy),) = db.query("SELECT SUM(x) AS x, SUM(y) AS y FROM a").rows
                if x != -y or qx != -qy:
                    wrong.append((x, y, qx, qy))

        def write(sign: int) -> None:
            for i in range(100):
                with db.transaction():
                    db.insert("a", (i * sign, 0))
                    db.insert("a", (0, -i * sign))

        readers = [threading.Thread(target=read) for _ in range(2)]
        writers = [threading.Thread(target=write, args=(sign,)) for sign in (1, -1)]
        for thread in readers + writers:
            thread.start()
        for thread in writers:
            thread.join()
        stop.set()
        for thread in readers:
            thread.join()
        assert wrong == []
        assert db.epoch == 201
        assert db["s"].rows == [(0, 0)]
