"""A right that is withdrawn while updates flow: nothing of the epoch that withdraws it, or of a later one, is told."""

from __future__ import annotations

import http.client
import json
import random
import threading
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import whence
from tests.depth import seeds
from tests.server.served import PATIENCE, ServedDatabase, TestClient, served, wait_until
from whence.server.access.tokens import make_token
from whence.subscribe import messages as ms
from whence.subscribe.positions import Position

Row = tuple[Any, ...]
PROGRAM = """
CREATE TABLE note (id INT, owner TEXT, body TEXT, size INT);
CREATE VIEW total AS SELECT owner, COUNT(*) AS n, SUM(size) AS size FROM note GROUP BY owner;
CREATE TABLE granted (who TEXT, name TEXT, what TEXT);
CREATE VIEW allowed AS SELECT who, name, what FROM granted;
"""
OWN = "owner = :who"


class Watcher(threading.Thread):
    """Follows as ann, in a thread, and keeps every message: over a WebSocket, or as events of an HTTP response."""

    def __init__(self, server: ServedDatabase, token: str, options: dict[str, Any], *, events: bool = False) -> None:
        super().__init__(daemon=True)
        self._server, self._token, self._options, self._events = server, token, options, events
        self.messages: list[Any] = []
        self.has_state = threading.Event()
        self.start()

    def run(self) -> None:
        messages = self._from_events() if self._events else self._from_socket()
        for message in messages:
            self.messages.append(message)
            if isinstance(message, ms.State) and message.last:
                self.has_state.set()
            if isinstance(message, ms.ErrorMessage) and message.final:
                break

    def _from_socket(self) -> Iterator[Any]:
        with TestClient(self._server, "msgpack", token=self._token) as client:
            client.send(ms.Subscribe(1, **self._options))
            while True:
                yield client.receive()

    def _from_events(self) -> Iterator[Any]:
        connection = http.client.HTTPConnection("127.0.0.1", self._server.port, timeout=PATIENCE)
        headers = {"Authorization": f"Bearer {self._token}", "Content-Type": "application/json"}
        connection.request("POST", "/v1/subscribe", json.dumps(self._options), headers)
        for line in connection.getresponse():
            if line.startswith(b"data: "):
                yield ms.decode_down(line[6:], "json")
        connection.close()

    def has_reached(self, epoch: int) -> bool:
        """Return whether an epoch was told, or the end."""
        return self.told()[-1][0] >= epoch or not self.is_alive()

    def told(self) -> list[tuple[int, list[Row]]]:
        """Return of every message with rows its epoch and the rows of all parts."""
        found = []
        for message in self.messages:
            if isinstance(message, ms.State):
                found.append((_epoch(message.at), _rows(message.columns)))
            elif isinstance(message, ms.UpdateMessage):
                parts = [part for part in message.parts if part is not None]
                found.append((_epoch(message.at), [row for p in parts for row in _rows(p.came) + _rows(p.went)]))
        return found


def _epoch(position: str) -> int:
    return Position.parse(position).epoch


def _rows(columns: list[list[Any]] | None) -> list[Row]:
    return [] if columns is None else list(zip(*columns, strict=True))


WATCHED: list[dict[str, Any]] = [
    {"queries": ["note"]},
    {"queries": ["note"], "every_change": True},
    {"queries": ["SELECT owner, id FROM note WHERE id > 0", "total"]},
    {"queries": ["note"], "why": True},
]


class Flow:
    """Rows that keep coming, of ann and bob in turns, until the end of a `with` statement."""

    def __init__(self, server: ServedDatabase, token: str) -> None:
        self._server, self._token = server, token
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.written = 0
        self.failures: list[BaseException] = []

    def _run(self) -> None:
        try:
            with TestClient(self._server, token=self._token) as client:
                while not self._stop.is_set():
                    self.written += 1
                    row = [self.written, ("ann", "bob")[self.written % 2], "x", 1]
                    client.send(ms.InsertMessage(self.written, "note", [row]))
                    client.receive(ms.Done)
        except BaseException as error:
            self.failures.append(error)

    def __enter__(self) -> Flow:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join(PATIENCE)
        assert not self.failures


@pytest.mark.parametrize("then", ["nothing", "own rows"])
@pytest.mark.parametrize("seed", seeds(3))
def test_a_right_is_withdrawn_in_its_epoch(seed: int, then: str, tmp_path: Path) -> None:
    dice = random.Random(seed)
    tokens = {who: make_token(tmp_path / "tokens", who) for who in ("ann", "root")}
    every = [["ann", name, "read"] for name in ("note", "total")]
    own = [["ann", name, f"read where {OWN}"] for name in ("note", "total")]
    with whence.open(tmp_path / "db", durability="none") as db:
        granted = ("granted", "allowed")[seed % 2]  # rights may be a view or a table
        db.execute(PROGRAM)
        if granted == "allowed":
            db.execute("DROP VIEW allowed; CREATE TABLE allowed (who TEXT, name TEXT, what TEXT)")
        db.insert(granted, [("root", "*", "define")])
        with (
            served(db, token_file=tmp_path / "tokens") as server,
            TestClient(server, token=tokens["root"]) as root,
            Flow(server, tokens["root"]),
        ):
            for round in range(3):
                call(root, "insert", table=granted, rows=every)
                watchers = [Watcher(server, tokens["ann"], options) for options in WATCHED]
                watchers += [Watcher(server, tokens["ann"], WATCHED[round % 2], events=True)]
                for watcher in watchers:
                    assert watcher.has_state.wait(PATIENCE), watcher.messages
                time.sleep(dice.uniform(0, 0.1))
                operations = [{"verb": "delete", "table": granted, "rows": every}]
                if then == "own rows":
                    operations += [{"verb": "insert", "table": granted, "rows": own}]
                withdrawn = _epoch(call(root, "transaction", operations=operations)["position"])
                if then == "own rows":
                    time.sleep(dice.uniform(0, 0.1))
                    for watcher in watchers:
                        wait_until(partial(watcher.has_reached, withdrawn))
                    call(root, "delete", table=granted, rows=own)
                for watcher in watchers:
                    watcher.join(PATIENCE)
                    assert not watcher.is_alive(), "the subscription goes on"
                    check_told(watcher, withdrawn, then)
        assert len(db["note"]) > 0


def call(client: TestClient, verb: str, **args: Any) -> Any:
    """Call a verb, and return its answer."""
    client.send(ms.CallMessage(1, verb, args))
    return client.receive(ms.ResultMessage).value


def check_told(watcher: Watcher, withdrawn: int, then: str) -> None:
    """Check that nothing was told of the epoch that withdrew a right, or of a later one, but what is allowed then."""
    told = watcher.told()
    assert told
    for epoch, rows in told:
        if epoch >= withdrawn:
            assert then == "own rows", f"told of {epoch}, the right was withdrawn in {withdrawn}"
            assert all("bob" not in row for row in rows), (epoch, withdrawn, rows)
    last = watcher.messages[-1]
    assert isinstance(last, ms.ErrorMessage)
    assert last.code in ("ForbiddenError", "CatalogError"), last
