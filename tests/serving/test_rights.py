"""Two callers with different row rights over WebSocket and HTTP: neither learns anything of the other's rows.

Two worlds differ in bob's rows alone: how many there are, and what is in them. Whatever ann does, she gets the same
answers in both: rows, counts, errors, explanations, catalog, columns and sizes of states, headers. Positions are the
same, too, since bob writes as often in both.
"""

from __future__ import annotations

import json
import random
import re
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

import whence
from tests.depth import seeds
from tests.server.requesting import Requester
from tests.server.served import ServedDatabase, TestClient
from whence.server.access.tokens import make_token
from whence.subscribe import messages as ms
from whence.subscribe.positions import Position

Row = tuple[Any, ...]
PROGRAM = """
CREATE TABLE note (id INT, owner TEXT, body TEXT, size INT);
CREATE TABLE edge (owner TEXT, a INT, b INT);
CREATE TABLE task (team TEXT, points INT);
CREATE TABLE member (who TEXT, team TEXT);
CREATE TABLE word (body TEXT, means TEXT);
CREATE STREAM event (owner TEXT, t INT);
CREATE VIEW bodies AS SELECT owner, body, size FROM note;
CREATE VIEW total AS SELECT owner, COUNT(*) AS n, SUM(size) AS size FROM note GROUP BY owner;
CREATE VIEW path AS SELECT owner, a, b FROM edge UNION
    SELECT p.owner, p.a, e.b FROM path p JOIN edge e ON p.b = e.a AND p.owner = e.owner;
CREATE VIEW meaning AS SELECT n.owner, w.means FROM note n JOIN word w ON n.body = w.body;
CREATE VIEW longest AS SELECT owner, body, size FROM note ORDER BY size DESC LIMIT 3;
CREATE VIEW pairs AS SELECT owner, COUNT(*) AS n, SUM(t) AS t
    FROM slide(event, rows => 2, every => 2, by => owner) GROUP BY owner;
CREATE TABLE allowed (who TEXT, name TEXT, what TEXT);
"""
OWN = "owner = :who"
ALLOWED = [
    ("*", "note", f"insert where {OWN}"),
    ("*", "edge", f"insert where {OWN}"),
    ("*", "task", "read where team IN (SELECT team FROM member WHERE member.who = :who)"),
    ("*", "word", "read"),
    *[("*", name, f"read where {OWN}") for name in ("bodies", "total", "path", "meaning", "event", "pairs")],
    ("root", "*", "define"),
]
SUBSCRIPTIONS: list[dict[str, Any]] = [
    {"queries": ["note"]},
    {"queries": ["total", "bodies", "path"]},
    {"queries": ["SELECT body FROM note WHERE size > 3"], "every_change": True},
    {"queries": ["meaning", "word"], "why": True},
    {"queries": ["task", "event", "pairs"]},
    {"queries": ["longest"]},
    {"queries": ["SELECT COUNT(*) AS n FROM note"]},
    {"queries": ["member"]},
    {"queries": ["nothing"]},
    {"queries": ["SELECT * FROM note WHERE owner = 'bob'"]},
]
QUERIES = [
    "SELECT COUNT(*) AS n, SUM(size) AS s, MIN(id) AS l, MAX(id) AS h FROM note",
    "SELECT owner, COUNT(*) AS n FROM note GROUP BY owner",
    "SELECT * FROM note ORDER BY size DESC, id LIMIT 2",
    "SELECT 1 / (size - 7) AS x FROM note",
    "SELECT CAST(body AS INT) AS x FROM note",
    "SELECT CAST(body AS INT) AS x FROM bodies WHERE size = 1",
    "SELECT (SELECT body FROM note) AS x",
    "SELECT EXISTS (SELECT * FROM note WHERE owner = 'bob') AS x",
    "SELECT NOT EXISTS (SELECT * FROM task WHERE points > 9) AS y",
    "SELECT n.owner FROM note n LEFT JOIN task t ON n.size = t.points ORDER BY 1",
    "SELECT * FROM member",
    "SELECT * FROM longest",
    "SELECT * FROM allowed",
    "SELECT * FROM nothing",
    "SELECT * FROM publishers",
    "SELECT t.* FROM task t UNION ALL SELECT owner, n FROM total",
    "SELECT * FROM path WHERE b > 3 ORDER BY a, b",
    "SELECT bod FROM note",
]
CALLS: list[tuple[str, dict[str, Any]]] = [
    ("read", {"name": "note"}),
    ("read", {"name": "note", "where": {"owner": "bob"}}),
    ("read", {"name": "total", "columns": ["n"], "limit": 1}),
    ("read", {"name": "longest"}),
    ("read", {"name": "note", "epoch": 3}),
    ("why", {"view": "path", "row": {"a": 1, "b": 3}}),
    ("why", {"view": "path", "row": {"owner": "bob", "a": 1, "b": 2}}),
    ("why", {"view": "total", "row": {"owner": "ann"}}),
    ("why", {"view": "total", "row": {"owner": "bob"}}),
    ("why", {"view": "meaning", "row": {"means": "hello"}}),
    ("why", {"view": "longest", "row": {"owner": "ann"}}),
    ("critical", {"view": "path", "row": {"a": 1, "b": 3}}),
    ("resilience", {"view": "path", "row": {"a": 1, "b": 3}}),
    ("contribution", {"view": "path", "row": {"a": 1, "b": 3}}),
    ("reliability", {"view": "path", "row": {"a": 1, "b": 3}, "given": {"edge": 0.5}}),
    ("what_if", {"delete": {"edge": [["ann", 1, 2]]}}),
    ("what_if", {"insert": {"note": [[5, "ann", "x", 100]]}}),
    ("trace", {"stream": "event", "tid": 1}),
    ("trace", {"stream": "event", "tid": 2}),
    ("catalog", {}),
    ("describe", {"name": "note"}),
    ("describe", {"name": "longest"}),
    ("explain", {"name": "total"}),
    ("explain", {"name": "longest"}),
    ("metrics", {}),
    ("execute", {"sql": "SHOW TABLES"}),
    ("execute", {"sql": "SHOW VIEWS"}),
    ("execute", {"sql": "CREATE VIEW mine AS SELECT * FROM note"}),
    ("execute", {"sql": "DROP TABLE note"}),
    ("execute", {"sql": "DROP TABLE member"}),
    ("execute", {"sql": "DELETE FROM note WHERE owner = 'bob'"}),
    ("execute", {"sql": "UPDATE note SET size = size + 1 WHERE size > 50"}),
    ("delete", {"table": "note", "where": "size > 90"}),
    ("delete", {"table": "note", "where": {"owner": "bob"}}),
    ("delete", {"table": "note", "rows": [[1001, "bob", "BOB 1001", 99]]}),
    ("update", {"table": "note", "values": {"size": 5}, "where": {"owner": "bob"}}),
    ("update", {"table": "note", "values": {"owner": "bob"}, "where": "id = 1"}),
    ("insert", {"table": "note", "rows": [[1, "bob", "x", 1]]}),
    ("insert", {"table": "task", "rows": [["red", 1]]}),
    ("insert", {"table": "member", "rows": [["ann", "blue"]]}),
    ("insert", {"table": "edge", "rows": [["ann", "one", 1]]}),
]
ADDRESSES = [
    "/v1/view/note", "/v1/view/note?owner=bob", "/v1/view/total", "/v1/view/longest", "/v1/view/member", "/v1/catalog",
    "/v1/view/note?epoch=4", "/v1/describe/note", "/v1/describe/member", "/v1/explain/path", "/metrics", "/v1/health",
    "/v1/openapi.json", "/v1/position", f"/v1/query?sql={quote('SELECT SUM(size) AS s FROM note')}", "/v1/late/pairs",
    "/v1/owed/note",
]  # fmt: skip


class World:
    """A served database in which bob's rows are some or others."""

    def __init__(self, folder: Path, variant: int, seed: int) -> None:
        self._dice, self._variant = random.Random(f"{seed} {variant}"), variant
        self.transcript: list[tuple[str, Any]] = []
        self._tokens = {who: make_token(folder / "tokens", who) for who in ("ann", "bob")}
        self.db = whence.open(folder / "db", durability="none", retain="all")
        self.db.execute(PROGRAM)
        self.db.insert("allowed", ALLOWED)
        self.db.insert("member", [("ann", "red"), ("bob", "blue"), ("bob", "green")][: 2 + variant])
        self.db.insert("task", [("red", 1), *[("blue", 10 + i) for i in range(1 + 3 * variant)]])
        self.db.insert("word", [("x", "hello"), ("y", "other")])
        self._server = ServedDatabase(self.db, token_file=folder / "tokens")
        self._ann = TestClient(self._server, token=self._tokens["ann"])
        self._asking = TestClient(self._server, "msgpack", token=self._tokens["ann"])
        self._bob = TestClient(self._server, token=self._tokens["bob"])
        self._http = Requester(self._server._server, self._tokens["ann"])
        self._seq = 0
        self._waits: list[int] = []

    def close(self) -> None:
        for client in (self._ann, self._asking, self._bob):
            client.__exit__()
        self._server.close()
        self.db.close()

    def note(self, what: str, answer: Any) -> None:
        """Write down what ann got, but for what is of this run alone."""
        text = answer if isinstance(answer, str) else json.dumps(answer, default=_shown, sort_keys=True)
        at = self.db.position
        text = text.replace(f"{at.history}.{at.era}", "here")
        text = re.sub(r'"(time|seconds)": [0-9.]+', r'"\1": 0', text)
        self.transcript.append((what, text))

    # -- bob -----------------------------------------------------------------------------------------------------------

    def bob_writes(self) -> None:
        """Write rows of bob's; as many epochs in both worlds, but not as many rows."""
        dice, more = self._dice, 1 + 5 * self._variant
        self._write(self._bob, "note", [[1000 + i, "bob", f"BOB {i}", dice.choice((1, 7, 99))] for i in range(more)])
        edges = [["bob", dice.randrange(5), dice.randrange(5)] for _ in range(more)]
        self._write(self._bob, "edge", edges)
        self.db.insert("event", [("bob", dice.randrange(100)) for _ in range(2 * more)])
        self.db.insert("task", [("blue", dice.randrange(20)) for _ in range(more)])

    def _write(self, client: TestClient, table: str, rows: list[list[Any]]) -> str:
        self._seq += 1
        client.send(ms.InsertMessage(self._seq, table, rows))
        while True:
            message = client.receive()
            client.apply(message)
            if getattr(message, "seq", None) == self._seq:
                assert isinstance(message, ms.Done), message
                return message.at

    # -- ann -----------------------------------------------------------------------------------------------------------

    def ann_subscribes(self) -> None:
        for id, options in enumerate(SUBSCRIPTIONS):
            self._ann.send(ms.Subscribe(id, **options))
            answer = self._ann.receive()
            self._ann.apply(answer)
            self.note(f"subscribe {options}", answer)
            if isinstance(answer, ms.Subscribed):
                self._waits.append(id)
                told = self._ann.follow_until(lambda id=id: id in self._ann.rows, id)
                self.note(f"state {options}", told)

    def ann_writes(self, step: int) -> None:
        """Write rows of ann's, and follow until all subscriptions have reached that."""
        rows = [[step * 10 + i, "ann", "x" if i else str(i), i] for i in range(3)]
        self._write(self._asking, "note", rows)
        self.db.insert("event", [("ann", step)])
        at = self._write(self._asking, "edge", [["ann", step, step + 1]])
        for id in self._waits:
            self._ann.send(ms.Wait(id, at))
        told: dict[int, list[Any]] = {id: [] for id in self._waits}
        while any(_epoch(self._ann.at[id]) < _epoch(at) for id in self._waits):
            message = self._ann.receive()
            self._ann.apply(message)
            told[message.id].append(message)
        for id, messages in told.items():
            if SUBSCRIPTIONS[id].get("every_change"):
                changes = [message.parts for message in messages if any(message.parts)]
                self.note(f"changes {SUBSCRIPTIONS[id]}", changes)
            self.note(f"rows {SUBSCRIPTIONS[id]}", [sorted(part) for part in self._ann.rows[id]])

    def ann_asks(self, verb: str, args: dict[str, Any]) -> None:
        self._seq += 1
        self._asking.send(ms.CallMessage(self._seq, verb, args))
        while True:
            message = self._asking.receive()
            if getattr(message, "seq", None) == self._seq:
                break
        self.note(f"call {verb} {args}", message)

    def ann_gets(self, path: str, accept: str) -> None:
        reply = self._http.get(path, accept=accept)
        headers = {name: value for name, value in reply.headers.items() if name not in ("date", "x-request-id")}
        self.note(f"GET {path} {accept}", [reply.status, headers, reply.body])

    def ann_posts(self, verb: str, args: dict[str, Any]) -> None:
        """Ask over HTTP what can be called over a WebSocket."""
        method, path, body = "POST", f"/v1/{verb}", dict[str, Any](args)
        for given in ("view", "stream", "name"):
            if given in body:
                path += f"/{body.pop(given)}"
        if "table" in body:
            path = f"/v1/table/{body.pop('table')}"
            method = {"insert": "POST", "delete": "DELETE", "update": "PATCH"}[verb]
            body = body["rows"] if verb == "insert" else body
        if verb in ("read", "catalog", "metrics", "describe", "explain"):
            method, body = "GET", None
            path = path.replace("/v1/read/", "/v1/view/").replace("/v1/metrics", "/metrics")
        reply = self._http(method, path, body)
        assert reply.status not in (307, 404, 405) or "there is no " in reply.text, (method, path, reply)
        self.note(f"{method} {path} {args}", [reply.status, reply.headers.get("etag"), reply.body])


def _shown(value: Any) -> Any:
    if isinstance(value, bytes):
        return value.decode("utf-8", "backslashreplace")
    return {name: getattr(value, name) for name in value.__struct_fields__} | {"type": type(value).__name__}


def _epoch(position: str) -> int:
    return Position.parse(position).epoch


def run_script(world: World, seed: int) -> None:
    """Let bob and ann do what they do; the same of ann in every world."""
    dice = random.Random(seed)
    world.bob_writes()
    world.ann_writes(0)
    world.ann_subscribes()
    for step in range(1, 4):
        world.bob_writes()
        world.ann_writes(step)
        for sql in dice.sample(QUERIES, 8):
            world.ann_asks("query", {"sql": sql})
        for verb, args in dice.sample(CALLS, 16):
            if dice.random() < 0.5:
                world.ann_asks(verb, args)
            else:
                world.ann_posts(verb, args)
        for path in dice.sample(ADDRESSES, 6):
            world.ann_gets(path, dice.choice(("application/json", "text/csv", "*/*")))


@pytest.mark.parametrize("seed", seeds(2))
def test_nobody_learns_of_anothers_rows(seed: int, tmp_path: Path) -> None:
    transcripts = []
    for variant in (0, 1):
        folder = tmp_path / str(variant)
        folder.mkdir()
        world = World(folder, variant, seed)
        try:
            run_script(world, seed)
        finally:
            world.close()
        transcripts.append(world.transcript)
        shown = [(what, text) for what, text in world.transcript if "BOB" in text.replace("BOB 1001", "")]
        assert not shown, shown[:3]
    for (what, one), (same, other) in zip(*transcripts, strict=True):
        assert what == same
        assert one == other, f"{what} differs by what bob has"
