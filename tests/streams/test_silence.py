"""Silence: time passes for streams with a tick_time() without rows, where something depends on it, and for good."""

from __future__ import annotations

import datetime as dt
import gc
import logging
import random
import subprocess
import sys
import threading
import time
from collections import Counter
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

import whence
from tests.depth import seeds
from tests.streams.test_tick_time import Hands, at
from whence.model.errors import CatalogError, EvaluationError
from whence.runtime.writing.silence import SilenceEpochs

PATIENCE = 60.0
TRADES = """
    CREATE STREAM trade (trader TEXT, shares INT, at TIMESTAMP DEFAULT tick_time());
    CREATE VIEW high AS SELECT trader, SUM(shares) AS shares FROM latest(trade, on => at, width => '1 hour')
      GROUP BY trader HAVING SUM(shares) > 500000;
"""


def silence(db: whence.Database) -> SilenceEpochs:
    return db._coordinator.silence


def threads() -> set[threading.Thread]:
    return {thread for thread in threading.enumerate() if thread.name == "whence silence"}


@pytest.mark.parametrize("partitions", [None, 2])
def test_the_high_trader_who_falls_silent_leaves_once(partitions: int | None) -> None:
    clock = Hands()
    with whence.open(clock=clock, partitions=partitions) as db:
        db.execute(TRADES)
        feed, left = db.changes("high"), []
        db.insert("trade", [("Ann", 300_000), ("Ben", 400_000)])
        clock.now += 60
        db.insert("trade", [("Ann", 300_000)])
        for minute in range(1, 100):
            clock.now = 1060 + 60 * minute
            left += [(minute, change.sign, change.row) for change in feed]
        assert left == [(1, 1, ("Ann", 600_000)), (59, -1, ("Ann", 600_000))]
        last = db.epoch
        clock.now += 100_000
        assert db["high"].rows == []
        assert db.epoch == last, "nothing is left that silence could move"


def test_a_silence_is_told_by_the_clock_alone() -> None:
    with whence.open() as db:
        db.execute("""
            CREATE STREAM s (x INT, at TIMESTAMP DEFAULT tick_time());
            CREATE VIEW now AS SELECT x FROM latest(s, on => at, width => '300 ms');
            CREATE VIEW closed AS SELECT COUNT(*) AS n FROM slide(s, on => at, width => '200 ms', every => '200 ms');
        """)
        feeds = db.changes("now"), db.changes("closed")
        db.insert("s", [(1,), (2,)])
        found = [[change.sign for change in islice(feed.follow(PATIENCE), n)]
                 for feed, n in zip(feeds, (4, 1), strict=True)]  # fmt: skip
        assert found == [[1, 1, -1, -1], [1]]
        assert len(threads()) == 1
    assert not threads()


def test_nothing_is_told_where_nothing_depends_on_it() -> None:
    clock = Hands()
    with whence.open(clock=clock) as db:
        db.execute("CREATE STREAM s (x INT, at TIMESTAMP DEFAULT tick_time()); CREATE STREAM other (t INT)")
        db.execute("CREATE VIEW total AS SELECT COUNT(*) AS n FROM s")
        db.execute("CREATE VIEW else AS SELECT t FROM latest(other, on => t, width => 3)")
        db.insert("s", [(1,)])
        db.insert("other", [(1,)])
        for _ in range(5):
            clock.now += 1000
            assert db["total"].rows == [(1,)]
            db.expire()
        assert db.epoch == 2
    with whence.open() as db:
        db.execute("CREATE STREAM s (x INT, at TIMESTAMP DEFAULT tick_time())")
        db.insert("s", [(1,)])
        assert not threads()


def test_subscribers_who_want_it_are_told_how_far_time_has_come() -> None:
    clock = Hands()
    with whence.open(clock=clock) as db:
        db.execute("CREATE STREAM s (x INT, at TIMESTAMP DEFAULT tick_time()); CREATE VIEW v AS SELECT COUNT(*) FROM s")
        db.execute("CREATE TABLE plain (x INT)")
        db.insert("s", [(1,)])
        silence(db).want("plain")
        clock.now += 10
        db.expire()
        assert db.epoch == 1
        silence(db).want("v")
        db.expire()
        assert (db.epoch, db._coordinator.time) == (2, 1_010_000_000)
        clock.now += 0.5
        db.expire()
        assert db.epoch == 2, "at most one a second"
        silence(db).want("v", fast=True)
        db.expire()
        assert db.epoch == 3, "ten while somebody waits"
        clock.now += 0.2
        db.insert("plain", [(1,)])
        assert db.epoch == 5, "before the write, which tells the time as well"
        db.expire()
        assert db.epoch == 5
        silence(db).release("v", fast=True)
        silence(db).release("v")
        clock.now += 10
        db.expire()
        assert db.epoch == 5


def test_a_group_by_tick_time_becomes_final_without_a_row() -> None:
    clock = Hands()
    with whence.open(clock=clock) as db:
        db.execute("CREATE STREAM trade (price INT, at TIMESTAMP DEFAULT tick_time())")
        query = "SELECT date_trunc('minute', at) AS minute, MAX(price) AS high FROM trade GROUP BY 1"
        with db.subscribe(query, key="minute") as updates:
            db.insert("trade", [(80,)])
            [update] = updates
            assert update.row(at(960)).bounds["high"] == (80, None)
            clock.now += 60
            [update] = updates
            assert update.final == [(at(960), 80)]
            assert update.row(at(960)).is_final
        last = db.epoch
        clock.now += 60
        db.expire()
        assert db.epoch == last, "nobody wants to know any more"


def test_horizons_rise_with_every_epoch(tmp_path: Path) -> None:
    clock = Hands()
    with whence.open(tmp_path / "a", clock=clock) as db:
        db.execute("CREATE STREAM s (x INT, at TIMESTAMP DEFAULT tick_time()); CREATE TABLE t (x INT)")
        coordinator = db._coordinator
        db.insert("s", [(1,)])
        clock.now += 5
        db.insert("t", [(1,)])
        silence(db).want("s")
        clock.now += 5
        db.expire()
        values = [coordinator.horizons(epoch).of("s", "at") for epoch in (1, 2, 3)]
        assert [horizon and horizon.value for horizon in values] == [at(1000), at(1005), at(1010)]
    with whence.open(tmp_path / "a", clock=lambda: 0) as db:
        horizon = db._coordinator.horizons().of("s", "at")
        assert horizon is not None
        assert (horizon.value, horizon.strictly) == (at(1010), False)


def test_a_thread_tells_subscribers_and_ends_with_the_database() -> None:
    db = whence.open(silence=0.2)
    db.execute("CREATE STREAM s (x INT, at TIMESTAMP DEFAULT tick_time())")
    silence(db).want("s", fast=True)
    until = time.monotonic() + PATIENCE
    while db.epoch < 5 and time.monotonic() < until:
        time.sleep(0.01)
    assert db.epoch >= 5
    assert threads()
    del db
    gc.collect()
    while threads() and time.monotonic() < until:
        time.sleep(0.01)
    assert not threads()


def test_dense_rows_do_not_mean_dense_silence() -> None:
    """A window with keys is moved at most once a second, however many rows become due."""
    clock = Hands()
    with whence.open(clock=clock) as db:
        db.execute("CREATE STREAM s (k INT, at TIMESTAMP DEFAULT tick_time())")
        db.execute("CREATE VIEW now AS SELECT k FROM latest(s, on => at, width => 1, by => k)")
        for number in range(400):
            clock.now += 0.01
            db.insert("s", [(number,)])
        assert 2 <= silence(db).made <= 4


def test_pace_zero_is_exact_and_none_is_never() -> None:
    for pace, rows in ((0, []), (None, [(1,)])):
        clock = Hands()
        with whence.open(clock=clock, silence=pace) as db:
            db.execute("CREATE STREAM s (x INT, at TIMESTAMP DEFAULT tick_time())")
            db.execute("CREATE VIEW now AS SELECT x FROM latest(s, on => at, width => 1)")
            db.insert("s", [(1,)])
            clock.now += 0.9
            assert db["now"].rows == [(1,)]
            clock.now += 0.1
            assert db["now"].rows == rows
    with pytest.raises(whence.WhenceError, match="silence is the least number of seconds"):
        whence.open(silence=-1)


def test_a_tick_time_advances_with_the_clock_only() -> None:
    with whence.open(clock=Hands()) as db:
        db.execute(TRADES)
        for on in (None, "at"):
            with pytest.raises(CatalogError, match="it advances with the clock"):
                db.advance("trade", at(9999), on=on)


def test_a_view_that_cannot_follow_fails_no_writer(caplog: pytest.LogCaptureFixture) -> None:
    clock = Hands()
    with whence.open(clock=clock) as db:
        db.execute("CREATE STREAM s (x BIGINT, at TIMESTAMP DEFAULT tick_time()); CREATE TABLE t (x INT)")
        db.execute("CREATE VIEW sums AS SELECT SUM(x) AS s FROM slide(s, on => at, width => 10, every => 10)")
        db.insert("s", [(2**62,), (2**62,)])
        clock.now += 100
        with caplog.at_level(logging.WARNING, "whence"):
            assert db["sums"].rows == []
        assert "silence cannot be told: SUM does not fit BIGINT" in caplog.text
        assert isinstance(silence(db).error, EvaluationError)
        assert "SUM does not fit BIGINT" in db.metrics()["silence_error"]
        db.insert("t", [(1,)])
        assert db["t"].rows == [(1,)]


def test_followers_and_restarts_have_the_same_silence(tmp_path: Path) -> None:
    clock = Hands()
    with whence.open(tmp_path / "a", clock=clock) as db:
        db.execute(TRADES)
        db.insert("trade", [("Ann", 600_000)])
        with whence.open(tmp_path / "a", read_only=True) as follower:
            assert follower["high"].rows == [("Ann", 600_000)]
            clock.now += 3600
            assert follower["high"].rows == [("Ann", 600_000)], "a reader makes no epochs"
            assert db["high"].rows == []
            assert follower["high"].rows == []
        epoch = db.epoch
    clock.now = 7
    with whence.open(tmp_path / "a", clock=clock) as db:
        assert (db["high"].rows, db.epoch) == ([], epoch)
        db.insert("trade", [("Ben", 1)])
        assert db["trade"].rows[-1] == ("Ben", 1, at(4600))


KILLED = """
import os, sys, time, whence
db = whence.open(sys.argv[1], durability=sys.argv[2])
db.execute("CREATE STREAM s (x INT, at TIMESTAMP DEFAULT tick_time())")
db.execute("CREATE VIEW now AS SELECT x FROM latest(s, on => at, width => '300 ms')")
with db.subscribe("SELECT x FROM now") as updates:
    db.insert("s", [(1,)])
    for update in updates.follow():
        if update.went:
            break
    print(db._coordinator.time, flush=True)
    os.kill(os.getpid(), 9)
"""


@pytest.mark.parametrize("durability", ["commit", "none"])
def test_silence_that_was_told_survives_a_crash_and_a_clock_set_back(tmp_path: Path, durability: str) -> None:
    folder = str(tmp_path / "a")
    told = subprocess.run(
        [sys.executable, "-c", KILLED, folder, durability],
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE,
    )
    promised = int(told.stdout)
    with whence.open(folder, clock=lambda: promised / 1e6 - 3600) as db:
        assert db["now"].rows == []
        db.insert("s", [(2,)])
        first, second = (row[1] for row in db["s"])
        assert second >= dt.datetime(1970, 1, 1) + dt.timedelta(microseconds=promised) > first
        assert db.late("now").count == 0


class Model:
    """What the views of `test_views_are_as_of_the_clock` are, by definition."""

    def __init__(self) -> None:
        self.rows: list[tuple[int, int]] = []  # time in milliseconds, key

    def now(self, clock: int, width: int) -> Counter[int]:
        return Counter(key for t, key in self.rows if t > clock - width)

    def windows(self, clock: int, width: int, every: int) -> Counter[tuple[dt.datetime, int]]:
        found: Counter[tuple[dt.datetime, int]] = Counter()
        for t, _ in self.rows:
            start = t // every * every
            while start + width > t:
                if start + width <= clock:
                    found[at(start / 1000), 0] += 1
                start -= every
        return Counter((start, n) for (start, _), n in found.items())


@pytest.mark.parametrize("seed", seeds(10))
def test_views_are_as_of_the_clock(seed: int, tmp_path: Path) -> None:
    """With no pace, every read has exactly what the definition says of rows and clock, whoever moved last."""
    rng = random.Random(seed)
    clock, model, options = Hands(1000), Model(), {"partitions": rng.choice((None, None, 2))}
    db = whence.open(tmp_path / "a", clock=clock, silence=0, **options)
    try:
        db.execute("""
            CREATE STREAM s (k INT, at TIMESTAMP DEFAULT tick_time());
            CREATE VIEW plain AS SELECT k FROM latest(s, on => at, width => 7);
            CREATE VIEW keyed AS SELECT k FROM latest(s, on => at, width => 7, by => k);
            CREATE VIEW odd AS SELECT k FROM latest((SELECT at, k FROM s WHERE k % 2 = 1), on => at, width => 4);
            CREATE VIEW counts AS SELECT window_start, COUNT(*) AS n
              FROM slide(s, on => at, width => 6, every => 4) GROUP BY window_start;
            CREATE VIEW sorted AS SELECT k FROM bsort(s, on => at, within => 2);
        """)
        for _ in range(40):
            clock.now += rng.choice((0, 0.25, 1, 1, 2.5, 30))
            match rng.choice(("rows", "rows", "read", "expire", "reopen", "other")):
                case "rows":
                    keys = [rng.randrange(4) for _ in range(rng.randrange(1, 4))]
                    db.insert("s", [(key,) for key in keys])
                    model.rows += [(round(clock.now * 1000), key) for key in keys]
                case "expire":
                    db.expire()
                case "reopen":
                    db.close()
                    db = whence.open(tmp_path / "a", clock=clock, silence=0, **options)
                case "other":
                    db.execute("CREATE TABLE IF NOT EXISTS t (x INT); INSERT INTO t VALUES (1)")
            now = round(clock.now * 1000)
            assert Counter(key for (key,) in db["plain"]) == model.now(now, 7000)
            assert Counter(key for (key,) in db["keyed"]) == model.now(now, 7000)
            assert Counter(key for (key,) in db["odd"]) == Counter(
                {key: n for key, n in model.now(now, 4000).items() if key % 2}
            )
            assert Counter(db["counts"].rows) == model.windows(now, 6000, 4000)
            assert [key for (key,) in db["sorted"]] == [key for t, key in model.rows if t < now or _released(model, t)]
            assert db.late("counts").count == 0
    finally:
        db.close()


def _released(model: Model, t: int) -> bool:
    """Whether a row that came `within` later has let a b-sort emit this one."""
    return any(later - 2000 >= t for later, _ in model.rows)


def test_silence_costs_streams_without_tick_time_nothing(monkeypatch: Any) -> None:
    with whence.open() as db:
        db.execute("CREATE STREAM s (t INT)")
        db.execute("CREATE VIEW now AS SELECT t FROM latest(s, on => t, width => 3)")
        monkeypatch.setattr(SilenceEpochs, "_find_deadline", lambda self: pytest.fail("asked for a deadline"))
        db.insert("s", [(1,), (2,)])
        assert len(db["now"]) == 2
        assert silence(db)._moved == []
