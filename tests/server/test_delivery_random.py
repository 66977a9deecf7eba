"""Clients that subscribe, read, stall, go and come back at random: what each is told is true at its position."""

from __future__ import annotations

import random
from typing import Any

import pytest

import whence
from tests.depth import seeds
from tests.server.served import TestClient, served, wait_until
from whence.server.delivery import audience, subscriber
from whence.subscribe import messages as ms
from whence.subscribe.positions import Position

QUERIES = {
    "t": "t",
    "n": "n",
    "few": "SELECT a, b FROM t WHERE a % 3 = 0",
    "sum": "SELECT b, SUM(a) AS s FROM t GROUP BY b",
}
DEFINITIONS = (
    "SELECT b, COUNT(*) AS n FROM t GROUP BY b",
    "SELECT b, MAX(a) AS m FROM t GROUP BY b",
    "SELECT b, a FROM t WHERE a > 40",
)


class Follower:
    """A client, and what it must have seen."""

    def __init__(self, server: Any, random_: random.Random, past: dict[str, dict[int, Any]]) -> None:
        self._random, self._past = random_, past
        self.client = TestClient(server, random_.choice(("json", "msgpack")), raw=True)
        self.names: dict[int, list[str]] = {}
        self._options: dict[int, dict[str, Any]] = {}
        self._next = 0
        self._positions: dict[int, list[int]] = {}

    def act(self) -> None:
        """Do something."""
        match self._random.randrange(10):
            case 0 | 1 if len(self.names) < 4:
                self._subscribe(self._random.choices(list(QUERIES), k=self._random.choice((1, 1, 2, 3))))
            case 2 if self.names:
                self._come_back(self._random.choice(list(self.names)))
            case _:
                for _ in range(self._random.choice((0, 0, 1, 5))):
                    self.read_some()

    def _subscribe(self, names: list[str], have: str | None = None, rows: Any = None) -> None:
        self._next += 1
        options = {"every_change": self._random.random() < 0.2, "every": self._random.choice((None, None, 0.01))}
        self.names[self._next], self._options[self._next] = names, options
        self._positions[self._next] = []
        self.client.send(ms.Subscribe(self._next, [QUERIES[name] for name in names], have=have, **options))
        if have is not None:
            self.client.at[self._next], self.client.rows[self._next] = have, rows

    def _come_back(self, id: int) -> None:
        """End a subscription, and begin another where it was."""
        names = self.names[id]
        self.catch_up()
        if id not in self.names:
            return
        self.client.send(ms.Unsubscribe(id))
        del self.names[id]
        if id in self.client.at:
            self._subscribe(names, self.client.at[id], [list(rows) for rows in self.client.rows[id]])

    def catch_up(self) -> None:
        """Read all that the server has for us now."""
        self.client.send(ms.CallMessage(0, "position", {}))
        wait_until(lambda: isinstance(self.read_some(), ms.ResultMessage))

    def read_some(self) -> Any:
        """Read one message, if one is there or surely comes; check it."""
        self.client.socket.socket.settimeout(0.02)
        try:
            message = self.client.receive()
        except TimeoutError:
            return None
        finally:
            self.client.socket.socket.settimeout(20)
        if isinstance(message, (ms.ResultMessage, ms.ErrorMessage)):
            assert not isinstance(message, ms.ErrorMessage), message
            return message
        self.client.apply(message)
        if message.id in self.names and (isinstance(message, ms.UpdateMessage) or getattr(message, "last", False)):
            self._check(message.id)
        return message

    def _check(self, id: int) -> None:
        epoch = Position.parse(self.client.at[id]).epoch
        assert all(before < epoch for before in self._positions[id][-1:]), "positions never go back"
        self._positions[id].append(epoch)
        for name, rows in zip(self.names[id], self.client.rows[id], strict=True):
            known = max(each for each in self._past[name] if each <= epoch)
            assert sorted(rows) == self._past[name][known], (name, epoch)

    def read_until_current(self, epoch: int) -> None:
        wait_until(lambda: self._is_current(epoch) or self.read_some() is self)

    def _is_current(self, epoch: int) -> bool:
        return all(
            id in self.client.rows
            and all(sorted(r) == self._past[n][epoch] for n, r in zip(names, self.client.rows[id], strict=True))
            for id, names in self.names.items()
        )


@pytest.mark.parametrize("seed", seeds(4))
def test_what_is_told_is_true_at_its_position(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    random_ = random.Random(seed)
    monkeypatch.setattr(audience, "LARGE_CHANGE", random_.choice((5, 50, 2000)))
    monkeypatch.setattr(audience, "MOST_ROWS", random_.choice((10, 10_000)))
    monkeypatch.setattr(subscriber, "STALLED", 0.01)
    with whence.open() as db:
        db.execute("CREATE TABLE t (a INT, b TEXT)")
        db.execute(f"CREATE VIEW n AS {DEFINITIONS[0]}")
        past: dict[str, dict[int, Any]] = {name: {} for name in QUERIES}

        def note() -> None:
            epoch = db._coordinator.epoch
            for name, query in QUERIES.items():
                past[name][epoch] = sorted(tuple(row) for row in (db[query] if query == name else db.query(query)))

        note()
        limits = {"ring_bytes": random_.choice((20_000, 200_000, 4_000_000))}
        with served(db, limits=limits) as server:
            followers = [Follower(server, random_, past) for _ in range(4)]
            for _ in range(80):
                match random_.randrange(12):
                    case 0 if random_.random() < 0.5:
                        db.execute(f"CREATE OR REPLACE VIEW n AS {random_.choice(DEFINITIONS)}")
                    case 1 | 2 | 3:
                        db.delete("t", where=f"a % 7 = {random_.randrange(7)}")
                    case _:
                        rows = [
                            (random_.randrange(100), random_.choice("xyz")) for _ in range(random_.choice((1, 5, 60)))
                        ]
                        db.insert("t", rows)
                note()
                random_.choice(followers).act()
            for follower in followers:
                follower.read_until_current(db._coordinator.epoch)
                follower.client.socket.close()
