"""Subscriptions as streams of events over HTTP."""

from __future__ import annotations

import http.client
import json
import time
from pathlib import Path
from typing import Any

import pytest

import whence
from tests.server.served import PATIENCE, ServedDatabase, served, wait_until
from whence.server.access.tokens import make_token
from whence.server.sockets import gateway
from whence.server.web import sse


@pytest.fixture
def server() -> Any:
    with whence.open() as db:
        db.execute("CREATE TABLE t (a INT, b TEXT); CREATE VIEW n AS SELECT b, COUNT(*) AS n FROM t GROUP BY b")
        db.insert("t", [(1, "x")])
        with served(db) as server:
            yield server


class Events:
    """A client that reads events."""

    def __init__(
        self, server: ServedDatabase, body: Any = None, *, path: str = "", token: str | None = None, **headers: str
    ) -> None:
        self._connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=PATIENCE)
        sent = {"Authorization": f"Bearer {server.token if token is None else token}"}
        sent |= {name.replace("_", "-"): value for name, value in headers.items()}
        if body is not None:
            sent["Content-Type"] = "application/json"
        method, data = ("GET", None) if body is None else ("POST", json.dumps(body))
        self._connection.request(method, f"/v1/subscribe{path}", data, sent)
        self.response = self._connection.getresponse()
        self.comments = 0

    def next(self) -> tuple[str, str | None, Any]:
        """Return the name, the id and the data of the next event."""
        name, id, data = "", None, ""
        while True:
            line = self.response.readline().decode().rstrip("\n")
            if line.startswith(":"):
                self.comments += 1
                self.response.readline()
            elif line.startswith("event: "):
                name = line[7:]
            elif line.startswith("id: "):
                id = line[4:]
            elif line.startswith("data: "):
                data = line[6:]
            elif name:
                return name, id, json.loads(data)
            else:
                raise EOFError

    def close(self) -> None:
        self._connection.close()
        self.response.close()


def test_events_are_messages_with_positions(server: ServedDatabase) -> None:
    events = Events(server, path="?queries=n")
    assert events.response.headers["Content-Type"].startswith("text/event-stream")
    assert events.response.headers["Cache-Control"] == "no-store"
    name, id, data = events.next()
    assert (name, id, data["parts"]) == ("subscribed", None, [[["b", "TEXT"], ["n", "BIGINT"]]])
    name, id, data = events.next()
    assert (name, id, data["columns"]) == ("state", data["at"], [["x"], [1]])
    server.db.insert("t", (2, "x"))
    name, id, data = events.next()
    assert (name, id, data["parts"]) == ("update", data["at"], [{"went": [["x"], [1]], "came": [["x"], [2]]}])
    events.close()
    server.db.insert("t", (3, "x"))
    wait_until(lambda: not server.gateway.streams and not server.gateway.delivery.subscriptions)


def test_a_client_goes_on_by_its_last_event(server: ServedDatabase) -> None:
    watching = Events(server, {"queries": ["n"]})
    watching.next()
    _, id, _ = watching.next()
    server.db.insert("t", (2, "x"))
    watching.next()
    for events in (
        Events(server, {"queries": ["n"]}, Last_Event_ID=str(id)),
        Events(server, {"queries": ["n"], "have": id}),
    ):
        events.next()
        name, _, data = events.next()
        assert (name, data["since"]) == ("update", id)
        events.close()
    watching.close()


def test_a_large_state_comes_in_chunks_without_ids(server: ServedDatabase) -> None:
    server.db.insert("t", [(i, f"text {i}") for i in range(5000)])
    events = Events(server, {"queries": ["SELECT a FROM t WHERE a >= ?"], "params": [0]})
    events.next()
    rows, ids = 0, []
    while True:
        name, id, data = events.next()
        assert name == "state"
        rows += len(data["columns"][0])
        ids.append(id)
        if data.get("last"):
            break
    assert rows == 5001
    assert ids[:-1] == [None] * (len(ids) - 1)
    assert ids[-1] == data["at"]
    events.close()


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        ({"queries": ["ghost"]}, 404, "CatalogError"),
        ({"queries": ["SELECT"]}, 400, "SqlError"),
        ({"queries": []}, 400, "RequestError"),
        ({"queries": ["t"], "have": "x"}, 400, "DataError"),
        ({"queries": ["t"], "every": -1}, 400, None),
        ({"shout": 1}, 400, "RequestError"),
    ],
)
def test_what_cannot_be_followed_is_an_answer(server: ServedDatabase, body: Any, status: int, code: Any) -> None:
    events = Events(server, body)
    assert events.response.status == status
    error = json.loads(events.response.read())["error"]
    assert code is None or error["code"] == code
    assert not server.gateway.streams


def test_a_token_is_needed(server: ServedDatabase) -> None:
    assert Events(server, {"queries": ["t"]}, token="whence_x").response.status == 401
    assert Events(server, path="?queries=t&token=x").response.status == 400
    assert Events(server, {"queries": ["t"]}, Origin="http://evil.example").response.status == 403


def test_a_dropped_view_ends_the_stream(server: ServedDatabase) -> None:
    events = Events(server, {"queries": ["n"]})
    events.next()
    events.next()
    server.db.execute("DROP VIEW n")
    name, _, data = events.next()
    assert (name, data["code"], data["final"]) == ("error", "CatalogError", True)
    with pytest.raises(EOFError):
        events.next()


def test_a_comment_says_that_it_lives(server: ServedDatabase, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sse, "BEAT", 0.05)
    monkeypatch.setattr(gateway, "SWEEP", 0.05)
    events = Events(server, {"queries": ["n"]})
    events.next()
    events.next()
    time.sleep(1.5)
    server.db.insert("t", (2, "x"))
    events.next()
    assert events.comments
    events.close()


def test_an_expired_token_ends_the_stream(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gateway, "SWEEP", 0.05)
    token = make_token(tmp_path / "tokens", "ann", expires=time.time() + 1)
    with whence.open() as db:
        db.execute("CREATE TABLE t (a INT)")
        with served(db, token_file=tmp_path / "tokens") as server:
            events = Events(server, {"queries": ["t"]}, token=token)
            names = [events.next()[0], events.next()[0], events.next()]
            assert names[:2] == ["subscribed", "state"]
            assert (names[2][0], names[2][2]["code"]) == ("error", "AuthenticationError")


def test_a_server_that_stops_ends_streams() -> None:
    with whence.open() as db:
        db.execute("CREATE TABLE t (a INT)")
        server = ServedDatabase(db)
        events = Events(server, {"queries": ["t"]})
        events.next()
        events.next()
        server.close()
        with pytest.raises(EOFError):
            events.next()


def test_a_reader_that_stalls_gets_the_net_change(server: ServedDatabase) -> None:
    server.db.execute("CREATE TABLE k (id INT PRIMARY KEY, v TEXT)")
    events = Events(server, {"queries": ["k"]})
    events.next()
    events.next()
    text = "z" * 50_000
    for i in range(300):
        server.db.insert("k", [(j, f"{text}{i}") for j in range(5)])
    [stream] = server.gateway.streams
    assert stream.blocked
    rows: dict[int, str] = {}
    count = 0
    while rows != dict.fromkeys(range(5), f"{text}299"):
        _, _, data = events.next()
        change = data["parts"][0]
        rows |= dict(zip(*change["came"], strict=True))
        count += 1
    assert count < 200
    events.close()


def test_events_have_bounds_where_they_are_asked_for() -> None:
    with whence.open() as db:
        db.execute("""
            CREATE STREAM sale (at INT, price INT) WITH (ordered = 'at');
            CREATE VIEW hourly AS SELECT at // 60 AS hour, MAX(price) AS high FROM sale GROUP BY 1;
            CREATE VIEW calm AS SELECT hour FROM hourly WHERE high < 100;
        """)
        db.insert("sale", (5, 80))
        with served(db) as server:
            plain, events = Events(server, path="?view=hourly"), Events(server, path="?view=hourly&bounds=true")
            calm = Events(server, {"queries": ["calm"], "bounds": True})
            assert "knowledge" not in plain.next()[2]
            assert "bounds" not in plain.next()[2]
            described = events.next()[2]
            assert described["knowledge"][0]["key"] == ["hour"]
            state = events.next()[2]
            assert state["columns"] == [[0], [80]]
            assert state["bounds"] == [None, [[80], [None]]]
            assert state["states"] == ["stays"]
            assert state["horizons"] == {"0": {"comes": True, "ways": [{"within": {"hour": [0, None, False]}}]}}
            assert calm.next()[2]["parts"] == [[["hour", "BIGINT"]]]
            state = calm.next()[2]
            assert (state["columns"], state["states"]) == ([[0]], ["may go"])
            db.insert("sale", (30, 90))
            change = events.next()[2]["parts"][0]
            assert (change["came"], change["bounds"]) == ([[0], [90]], [None, [[90], [None]]])
            db.advance("sale", 60, on="at")
            name, position, update = events.next()
            assert (name, position) == ("update", str(db.position))
            assert update["parts"] == [{"closed": [[0], [90]]}]
            assert update["horizons"] == {"0": {"comes": True, "ways": [{"within": {"hour": [1, None, False]}}]}}
            assert calm.next()[2]["parts"] == [{"closed": [[0]]}]
