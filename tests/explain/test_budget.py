"""Progress, cancelling, timeouts and early refusals of questions: what ends one leaves everything as it was."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import whence
from tests import inside
from whence.engine.recursion import slot_store
from whence.model import budget
from whence.model.errors import DataError, QuestionTimeout, WhenceError
from whence.model.progress import Progress

SQL = """
    CREATE TABLE link (src INT, dst INT);
    CREATE VIEW reachable AS
      SELECT src, dst FROM link
      UNION SELECT link.src, reachable.dst FROM link JOIN reachable ON link.dst = reachable.src;
    CREATE VIEW degree AS SELECT src, COUNT(*) AS n FROM link GROUP BY src;
    CREATE VIEW most AS SELECT MAX(n) AS n FROM degree;
    CREATE VIEW busy AS SELECT src FROM link GROUP BY src HAVING SUM(dst) > 3;
    CREATE STREAM event (x INT);
    CREATE VIEW pair WITH (provenance = 'lineage') AS SELECT SUM(x) AS s FROM slide(event, rows => 2, every => 1);
"""
LINKS = [(a, b) for a in range(6) for b in range(6) if a != b and (a + b) % 3]


class Cancelled(Exception):  # noqa: N818
    """What a caller raises who wants no more."""


Ask = Callable[[whence.Database, Progress], Any]
QUESTIONS: dict[str, Ask] = {
    "why": lambda db, p: db.why("reachable", src=0, dst=5, progress=p),
    "why not": lambda db, p: db.why("reachable", src=0, dst=9, progress=p),
    "why stream": lambda db, p: db.why("pair", tid=1, progress=p),
    "trace": lambda db, p: db.trace("event", 2, progress=p),
    "provenance": lambda db, p: db.provenance("pair", progress=p),
    "critical": lambda db, p: db.critical("reachable", src=0, dst=5, progress=p),
    "critical part": lambda db, p: db.critical("reachable", src=0, progress=p),
    "critical view": lambda db, p: db.critical("busy", progress=p),
    "critical by trial": lambda db, p: db.critical("most", n=4, progress=p),
    "resilience": lambda db, p: db.resilience("reachable", src=0, dst=5, progress=p),
    "resilience of a sum": lambda db, p: db.resilience("busy", src=1, progress=p),
    "contribution": lambda db, p: db.contribution("reachable", src=0, dst=5, progress=p),
    "contribution of a sum": lambda db, p: db.contribution("busy", src=1, progress=p),
    "reliability": lambda db, p: db.reliability("reachable", src=0, dst=5, given={"link": 0.5}, progress=p),
    "reliability by trial": lambda db, p: db.reliability("most", n=4, given={"link": 0.5}, samples=50, progress=p),
    "what if": lambda db, p: db.what_if("DELETE FROM link WHERE src = 1; INSERT INTO link VALUES (7, 8)", progress=p),
}


@pytest.fixture(params=[None, 3], ids=["embedded", "partitions"])
def db(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[whence.Database]:
    monkeypatch.setattr(slot_store, "_SLICE", 4)  # so that every kernel comes back many times
    options = {} if request.param is None else {"partitions": request.param}
    with whence.open(**options) as opened:
        opened.execute(SQL)
        opened.insert("link", LINKS)
        opened.insert("event", [(x,) for x in range(5)])
        yield opened


def contents(db: whence.Database) -> dict[str, Any]:
    return {name: sorted(db[name]) for name in (*db.tables, *db.views)}


@pytest.mark.parametrize("name", QUESTIONS)
def test_question_cancelled_at_any_point_leaves_everything_as_it_was(db: whence.Database, name: str) -> None:
    ask, before, epoch = QUESTIONS[name], contents(db), db.epoch
    answer = str(ask(db, lambda *step: None))  # arrays grow at first, which makes steps of its own
    steps: list[tuple[str, int, int]] = []
    ask(db, lambda *step: steps.append(step))
    assert steps
    assert all(what and done <= (total or done) for what, done, total in steps)
    some = sorted({0, 1, 2, *range(0, len(steps), 1 + len(steps) // 25), len(steps) - 1} & set(range(len(steps))))
    for last in some:
        left = last

        def stop(what: str, done: int, total: int) -> None:
            nonlocal left
            left -= 1
            if left < 0:
                raise Cancelled(what)

        try:
            ask(db, stop)
        except Cancelled:
            pass
        else:  # undoing an epoch may leave other chosen derivations, and so some steps fewer
            assert last > len(steps) // 2
        assert_unlocked(db)
    assert str(ask(db, lambda *step: None)) == answer
    assert (contents(db), db.epoch) == (before, epoch)
    db.insert("link", [(7, 8)])
    assert (7, 8) in db["reachable"]


def assert_unlocked(db: whence.Database) -> None:
    """Another thread can take both locks at once."""
    taken: list[bool] = []

    def take() -> None:
        for lock in (inside.coordinator(db).writer, inside.coordinator(db).state):
            taken.append(lock.acquire(timeout=5))
            lock.release()

    thread = threading.Thread(target=take)
    thread.start()
    thread.join()
    assert taken == [True, True]


def test_timeout_says_how_far_it_came(db: whence.Database, monkeypatch: pytest.MonkeyPatch) -> None:
    ticks = iter(range(1000))
    monkeypatch.setattr(budget, "clock", lambda: float(next(ticks)))
    with pytest.raises(
        QuestionTimeout, match=r"not answered within 3 s; it came to: .+\. Ask about fewer rows"
    ) as told:
        db.critical("most", n=4, timeout="3 s")
    assert isinstance(told.value, TimeoutError)
    assert told.value.seconds == 3
    assert told.value.reached
    assert_unlocked(db)
    with pytest.raises(QuestionTimeout, match="not answered within 0 s"):
        db.what_if("DELETE FROM link", timeout=0)
    assert sorted(db["link"]) == sorted(LINKS)
    monkeypatch.undo()
    assert db.why("reachable", src=0, dst=5, timeout=600).holds


def test_wrong_timeouts_are_refused() -> None:
    db = whence.open()
    db.execute("CREATE TABLE a (x INT)")
    for wrong in ("soon", -1, float("nan"), True, [3], "-3 s"):
        with pytest.raises(DataError, match="a timeout is a number of seconds or a text such as '30 s', not"):
            db.why("a", x=1, timeout=wrong)  # type: ignore[arg-type]


def test_waiting_for_a_writer_can_be_cancelled(db: whence.Database) -> None:
    begun, end = threading.Event(), threading.Event()

    def write() -> None:
        with inside.coordinator(db).paused():
            begun.set()
            end.wait(60)

    thread = threading.Thread(target=write)
    thread.start()
    begun.wait(60)
    try:
        for ask in (QUESTIONS["why"], QUESTIONS["what if"]):
            with pytest.raises(Cancelled, match="waiting for the end of"):
                ask(db, lambda what, done, total: (_ for _ in ()).throw(Cancelled(what)))
    finally:
        end.set()
        thread.join()
    assert_unlocked(db)


def test_limit_is_refused_before_the_work() -> None:
    db = whence.open()
    db.execute(SQL)
    db.insert("link", LINKS)
    rows = len(db["reachable"])
    steps: list[str] = []
    with pytest.raises(WhenceError, match=rf"reachable has {rows} rows .* the limit of 10: ask about a part of it, by"):
        db.critical("reachable", limit=10, progress=lambda what, *_: steps.append(what))
    assert not steps
    with pytest.raises(WhenceError, match="more than the limit of 10: ask about fewer rows, or raise limit="):
        db.critical("reachable", src=0, limit=10)
    assert db.critical("reachable", src=0, limit=10_000).of == 6


def test_interrupt_ends_a_long_question(tmp_path: Any) -> None:
    """Ctrl-C is answered inside a kernel that would run for long; the database works afterwards."""
    program = tmp_path / "long.py"
    program.write_text(
        """
import sys, whence
db = whence.open()
db.execute("CREATE TABLE link (src INT, dst INT); CREATE VIEW reachable AS SELECT src, dst FROM link UNION "
           "SELECT link.src, reachable.dst FROM link JOIN reachable ON link.dst = reachable.src")
db.insert("link", [(i, (i * k + 1) % 600) for i in range(600) for k in (1, 2, 3)])
print("ready", flush=True)
try:
    while True:
        db.what_if("DELETE FROM link")
except KeyboardInterrupt:
    print("interrupted", len(db["link"]), db.why("reachable", src=0, dst=1).holds, flush=True)
"""
    )
    child = subprocess.Popen([sys.executable, str(program)], stdout=subprocess.PIPE, text=True, env=dict(os.environ))
    assert child.stdout is not None
    assert child.stdout.readline() == "ready\n"
    time.sleep(0.5)
    child.send_signal(signal.SIGINT)
    said, _ = child.communicate(timeout=120)
    assert said.startswith("interrupted 1")
    assert said.strip().endswith("True")
    assert child.returncode == 0
