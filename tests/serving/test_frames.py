"""What a client and a server make of frames that are lost, doubled, swapped, truncated or cut, whatever they say.

TCP does none of this, but what stands between a client and a server might. Every write that is acknowledged is done
once all the same, every read is answered, and a subscription ends with the rows that are true.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

import whence
from tests.depth import DEEP
from tests.serving.processes import PATIENCE, wait_until
from tests.serving.proxy import Direction, FaultyProxy
from whence.server.limits import Limits

UP = ("hello", "subscribe", "wait", "insert", "call", "unsubscribe")
DOWN = ("welcome", "subscribed", "state", "update", "done", "result")
FAULTS = ("drop", "double", "swap", "truncate", "cut")
LIMITS = Limits(hello_seconds=1, idle_seconds=1, pong_seconds=1)
ROWS = 3_000  # several chunks of a state


class Judge:
    """Harms messages of some types: of each as many as `most`, after as many as `spare`."""

    def __init__(self, fault: str, types: tuple[str, ...], spare: int = 0, most: int = 1) -> None:
        self._fault, self._types, self._spare, self._most = fault, types, spare, most
        self.seen: Counter[str] = Counter()
        self.harmed: Counter[str] = Counter()

    def __call__(self, way: Direction, data: bytes) -> str:
        try:
            message = msgspec.msgpack.decode(data)
        except msgspec.DecodeError:
            return ""
        type = message["type"]
        self.seen[type] += 1
        if type in self._types and self._spare < self.seen[type] and self.harmed[type] < self._most:
            self.harmed[type] += 1
            return self._fault
        return ""


@pytest.fixture
def db(tmp_path: Path) -> Iterator[whence.Database]:
    with whence.open(tmp_path / "db", durability="none") as db:
        db.execute("CREATE TABLE big (x INT, t TEXT); CREATE TABLE a (x INT); CREATE TABLE b (x INT)")
        db.execute("CREATE VIEW n AS SELECT COUNT(*) AS n FROM a")
        db.insert("big", [(i, f"{i} " * 30) for i in range(ROWS)])
        yield db


@contextmanager
def served(db: whence.Database) -> Iterator[tuple[whence.Server, FaultyProxy]]:
    with whence.serve(db, port=0, limits=LIMITS) as server, FaultyProxy(int(server.url.rpartition(":")[2])) as proxy:
        yield server, proxy


def within(seconds: float, act: Callable[[], None]) -> None:
    """Do something in another thread, so that a call that never returns is a failure."""
    failures: list[BaseException] = []

    def run() -> None:
        try:
            act()
        except BaseException as error:
            failures.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(seconds)
    assert not thread.is_alive(), f"not done within {seconds:g} s"
    if failures:
        raise failures[0]


def work(db: whence.Database, proxy: FaultyProxy, token: str | None) -> None:
    """Use everything there is, and check that it has happened once."""
    with whence.connect(proxy.url, token=token, timeout=30, patience=0.4) as client:
        big, n = client.subscribe("big"), client.subscribe({"n": "n", "a": "a"})
        assert n.next(timeout=30) is not None
        inserts = [client.insert("a", (i,), wait=False) for i in range(40)]
        with client.transaction():
            client.insert("b", (1,))
            client.insert("b", (2,))
        assert [future.result(30) for future in inserts] == [1] * 40
        more = [client.insert("a", (i,), wait=False) for i in range(40, 50)]
        assert client.query("SELECT COUNT(*) AS n FROM b").rows == [(2,)]
        assert [future.result(30) for future in more] == [1] * 10
        client.insert("big", (-1, "last"))
        assert client.position is not None
        assert Counter(db["a"].rows) == Counter((i,) for i in range(50))
        assert sorted(db["b"].rows) == [(1,), (2,)]
        last = n.wait_for(client.position, timeout=30)
        assert (last["n"].rows, sorted(last["a"].rows)) == ([(50,)], [(i,) for i in range(50)])
        assert sorted(big.wait_for(client.position, timeout=30).rows) == sorted(db["big"].rows)
        n.close()
        again = client.subscribe("b")
        assert sorted(again.next(timeout=30).rows) == [(1,), (2,)]


CASES = [(fault, types, 0, 1 if fault == "truncate" else 2) for fault in FAULTS for types in (UP, DOWN)]
if DEEP:
    CASES += [(fault, (type,), spare, 1) for fault in FAULTS for type in (*UP, *DOWN) for spare in range(4)]


@pytest.mark.parametrize(("fault", "types", "spare", "most"), CASES)
def test_faults_of_frames(db: whence.Database, fault: str, types: tuple[str, ...], spare: int, most: int) -> None:
    with served(db) as (server, proxy):
        proxy.judge = judge = Judge(fault, types, spare, most)
        within(PATIENCE, lambda: work(db, proxy, server.token))
        assert judge.harmed


def test_the_last_update_before_silence_is_not_lost(db: whence.Database) -> None:
    """Nothing comes after it that would show the gap, and nobody waits for a position."""
    with served(db) as (server, proxy), whence.connect(proxy.url, token=server.token, patience=0.3) as client:
        subscription = client.subscribe("n")
        assert subscription.next(timeout=30) is not None
        proxy.judge = judge = Judge("drop", ("update",))
        db.insert("a", (1,))
        wait_until(lambda: judge.harmed, "the update is dropped")
        update = subscription.next(timeout=30)
        assert update is not None
        assert (update.rows, update.restarted) == ([(1,)], "")
        assert subscription.next(timeout=0.7) is None, "asking whether there is more tells the user nothing"


@pytest.mark.parametrize("gone", ["server", "client"])
def test_a_half_open_connection_is_noticed(db: whence.Database, gone: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from whence.client import connection

    monkeypatch.setattr(connection, "_PING_SECONDS", 0.5)
    with served(db) as (server, proxy), whence.connect(proxy.url, token=server.token, timeout=30, patience=5) as client:
        subscription = client.subscribe("n")
        assert subscription.next(timeout=30) is not None
        proxy.half_open(gone)
        assert client.insert("a", (1,)) == 1
        assert client.position is not None
        assert subscription.wait_for(client.position, timeout=30).rows == [(1,)]
        connections = server._gateway.connections
        wait_until(lambda: len(connections) == 1, "the server lets go of the connection that is gone")
