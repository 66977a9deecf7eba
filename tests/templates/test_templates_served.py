"""Subscriptions to templates over the network: like a view, with rights, reasons and an end."""

from __future__ import annotations

import json
import shutil
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

import whence
from tests.server.test_javascript import Script
from whence.cli import app
from whence.server.access.tokens import make_token


@pytest.fixture
def db() -> Iterator[whence.Database]:
    with whence.open() as db:
        db.execute(
            "CREATE TABLE offer (item TEXT, price INT);"
            "CREATE TABLE alert (id BIGINT PRIMARY KEY, who TEXT, most INT);"
            "CREATE TEMPLATE alert AS SELECT item, price FROM offer WHERE price <= :most"
        )
        db.insert("offer", [("tea", 3), ("gold", 900)])
        yield db


def test_client_subscribes_with_parameters_is_told_why_and_cancels(db: whence.Database) -> None:
    with whence.serve(db, port=0) as server, whence.connect(server.url, token=server.token) as client:
        subscription = client.subscribe("alert", most=10, why=True)
        update = subscription.next()
        assert update is not None
        assert (subscription.id, update.came) == (1, [("tea", 3)])
        assert [sorted(table for table, _ in witness) for witness in update.why[("tea", 3)]] == [["alert", "offer"]]
        client.insert("offer", [("pen", 2), ("car", 9000)])
        update = subscription.next()
        assert update is not None
        assert (update.came, update.went) == ([("pen", 2)], [])
        db.execute("UPDATE alert SET most = 2 WHERE id = 1")  # takes the old answer back
        update = subscription.next()
        assert update is not None
        assert (update.came, update.went) == ([], [("tea", 3)])
        again = client.subscribe("alert#1")
        first = again.next()
        assert first is not None
        assert first.rows == [("pen", 2)]
        subscription.cancel()
        assert db["alert"].rows == []
        last = again.next()
        assert last is not None
        assert last.went == [("pen", 2)]
        with pytest.raises(whence.MissingRowError, match="no subscription 9 to alert"):
            client.subscribe("alert#9")
        with pytest.raises(whence.DataError, match='no parameter "least"'):
            client.subscribe("alert", least=1)


def test_subscription_is_ones_own_where_the_table_says_who(db: whence.Database, tmp_path: Path) -> None:
    db.execute("CREATE TABLE allowed (who TEXT, name TEXT, what TEXT)")
    db.insert("allowed", [("*", "alert", "read where who = :who"), ("*", "alert", "insert where who = :who")])
    tokens = tmp_path / "tokens"
    ann, bob = (make_token(tokens, who) for who in ("ann", "bob"))
    with (
        whence.serve(db, port=0, token_file=tokens) as server,
        whence.connect(server.url, token=ann) as hers,
        whence.connect(server.url, token=bob) as his,
    ):
        subscription = hers.subscribe("alert", most=10)
        update = subscription.next()
        assert update is not None
        assert update.came == [("tea", 3)]
        assert db["alert"].rows == [(1, "ann", 10)]
        with pytest.raises(whence.WhenceError, match="no subscription 1 to alert"):
            his.subscribe("alert#1")
        with pytest.raises(whence.ForbiddenError):
            his.subscribe("alert", most=10, who="ann")
        with pytest.raises(whence.WhenceError):
            his.subscribe("offer")
        db._coordinator.next_ids.clear()  # as after opening the database again: rows that he may not read count
        assert his.subscribe("alert", most=5000).id == 2
        assert sorted(db["alert"].rows) == [(1, "ann", 10), (2, "bob", 5000)]


def test_http_makes_a_subscription_and_deletes_it(db: whence.Database) -> None:
    with whence.serve(db, port=0) as server:

        def ask(method: str, path: str, body: object = None) -> dict[str, object]:
            request = urllib.request.Request(
                server.url + path,
                method=method,
                data=None if body is None else json.dumps(body).encode(),
                headers={"Authorization": f"Bearer {server.token}", "Content-Type": "application/json"},
            )
            with urllib.request.urlopen(request, timeout=30) as answer:
                found: dict[str, object] = json.load(answer)
                return found

        made = ask("POST", "/v1/template/alert", {"parameters": {"most": 10}})
        assert (made["id"], made["count"]) == (1, 1)
        assert db.subscription("alert", 1).rows == [("tea", 3)]
        assert ask("DELETE", "/v1/table/alert?id=1")["count"] == 1
        assert db["alert"].rows == []


def test_command_line_subscribes_with_set(db: whence.Database, monkeypatch: pytest.MonkeyPatch) -> None:
    with whence.serve(db, port=0) as server:
        monkeypatch.setenv("WHENCE_TOKEN", str(server.token))
        command = ["subscribe", server.url, "alert", "--set", "most=10", "--once", "--format", "csv"]
        found = CliRunner().invoke(app, command)
    assert found.exit_code == 0, found.output
    assert "tea,3" in found.output
    assert db["alert"].rows == []  # it is cancelled at the end


@pytest.mark.skipif(shutil.which("node") is None, reason="there is no Node.js here")
def test_javascript_client_subscribes_with_parameters(db: whence.Database) -> None:
    with whence.serve(db, port=0) as server:
        script = Script(
            server,
            """
            const subscription = await client.subscribeTo("alert", { most: 10 });
            for await (const update of subscription) { say([subscription.number, update.came]); break; }
            await subscription.cancel();
            say("cancelled");
            """,
        )
        assert script.hear() == [1, [{"item": "tea", "price": 3}]]
        assert script.hear() == "cancelled"
        script.end()
        assert db["alert"].rows == []
