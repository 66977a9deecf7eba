"""Messages of templates over the network: what a local feed tells, once each, with the rights of reading."""

from __future__ import annotations

import datetime as dt
import json
import shutil
import urllib.request
from decimal import Decimal
from pathlib import Path

import pytest

import whence
from tests.server.test_javascript import Script
from whence.server.access.tokens import make_token
from whence.server.verbs import message_verbs

DAY = "2026-01-03"
CHEAPEST = "CREATE TEMPLATE cheapest AS SELECT MIN(per) AS per FROM stock WHERE risk BETWEEN :low AND :high"


@pytest.fixture
def db() -> whence.Database:
    db = whence.open()
    db.execute("CREATE TABLE stock (symbol TEXT, risk DECIMAL(6, 1), per DATE)")
    db.execute(CHEAPEST)
    db.execute("CREATE TEMPLATE days AS SELECT DISTINCT per FROM stock WHERE symbol = :s AND risk > :low")
    db.execute("CREATE TEMPLATE least AS SELECT MIN(risk) AS r FROM stock WHERE risk > :low AND per BETWEEN :a AND :b")
    db.execute("CREATE TEMPLATE named AS SELECT symbol, per FROM stock WHERE risk < :high")
    return db


def day(number: int) -> dt.date:
    return dt.date(2026, 1, number)


@pytest.mark.parametrize("template", ["cheapest", "days", "named", "least"])
def test_remote_messages_equal_local_ones(db: whence.Database, template: str) -> None:
    with whence.serve(db, port=0) as server, whence.connect(server.url, token=server.token) as client:
        local, remote = db.messages(template), client.messages(template)
        assert list(remote) == []
        for epoch in ([("a", Decimal(20), day(3)), ("b", Decimal("30.5"), day(8))], [("a", Decimal(20), day(3))]):
            client.insert("stock", epoch)
        db.execute("DELETE FROM stock WHERE symbol = 'a'")
        expected = list(local)
        assert len({message.epoch for message in expected}) > 1
        assert list(remote.follow("0.2 s")) == expected
        assert list(remote) == []


def test_message_is_waited_for_and_survives_a_lost_connection(db: whence.Database) -> None:
    with whence.serve(db, port=0) as server, whence.connect(server.url, token=server.token) as client:
        remote = client.messages("named")
        for connection in list(server._gateway.connections):  # every client connects again
            server._gateway.delivery.loop.call_soon_threadsafe(connection.close, 1001, "a fault")
        future = client.insert("stock", [("a", Decimal(1), day(1))], wait=False)
        first = next(remote.follow())
        assert first == whence.RowMessage(1, 1, {"symbol": "a", "risk": Decimal(1), "per": day(1)})
        assert future.result() == 1


def test_messages_take_the_right_to_read_all_subscriptions(db: whence.Database, tmp_path: Path) -> None:
    db.execute("CREATE TABLE allowed (who TEXT, name TEXT, what TEXT)")
    some = ("bob", "cheapest", "read where id < 5")
    db.insert("allowed", [("ann", "cheapest", "read"), some, ("eve", "stock", "read")])
    tokens = {who: make_token(tmp_path / "tokens", who) for who in ("ann", "bob", "eve")}
    with whence.serve(db, port=0, token_file=tmp_path / "tokens") as server:
        with whence.connect(server.url, token=tokens["ann"]) as ann:
            assert list(ann.messages("cheapest")) == []
        with whence.connect(server.url, token=tokens["bob"]) as bob, pytest.raises(whence.ForbiddenError):
            bob.messages("cheapest")
        with whence.connect(server.url, token=tokens["eve"]) as eve, pytest.raises(whence.CatalogError):
            eve.messages("cheapest")


def test_messages_that_are_not_held_any_more_are_an_error(db: whence.Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(message_verbs, "HELD", 2)
    with whence.serve(db, port=0) as server, whence.connect(server.url, token=server.token) as client:
        remote = client.messages("named")
        for number in range(1, 5):
            client.insert("stock", [("a", Decimal(1), day(number))])
        with pytest.raises(whence.ExpiredError, match="read the answers anew"):
            list(remote)
        assert list(client.messages("named")) == []


def test_log_that_nobody_asks_for_ends(db: whence.Database, monkeypatch: pytest.MonkeyPatch) -> None:
    with whence.serve(db, port=0) as server, whence.connect(server.url, token=server.token) as client:
        remote = client.messages("named")
        log = server._service.message_logs.of("named")
        log.used -= message_verbs.IDLE + 1
        server._service.message_logs._end_idle()
        client.insert("stock", [("a", Decimal(1), day(1))])
        with pytest.raises(whence.ExpiredError):  # what came meanwhile was not noted
            list(remote)


def test_messages_over_http(db: whence.Database) -> None:
    with whence.serve(db, port=0) as server:

        def get(address: str) -> tuple[list[object], str]:
            request = urllib.request.Request(server.url + address)
            request.add_header("Authorization", f"Bearer {server.token}")
            with urllib.request.urlopen(request) as answer:
                return json.load(answer)["rows"], answer.headers["Whence-Position"]

        rows, position = get("/v1/messages/named")
        assert rows == []
        db.insert("stock", [("a", Decimal(1), day(1))])
        rows, _ = get(f"/v1/messages/named?after={position}&wait=5")
        assert rows == [[1, 1, "a", "1.0", "2026-01-01"]]


@pytest.mark.skipif(shutil.which("node") is None, reason="there is no Node.js here")
@pytest.mark.parametrize("template", ["cheapest", "days", "named"])
def test_javascript_has_the_messages_of_python(db: whence.Database, template: str) -> None:
    ends = [None, "5.0", "19.9", "20.0", "30.5", "100.0"]
    with whence.serve(db, port=0) as server:
        script = Script(
            server,
            f"""
            const messages = await client.messages({json.dumps(template)}), ends = {json.dumps(ends)};
            say(messages.template);
            await pause();
            for await (const one of messages) {{
              const reached = one.reaches ? ends.flatMap((a) => ends.map((b) => one.reaches(a, b, one.key))) : [];
              const other = one.reaches ? one.reaches(null, null, ["x"]) : false;
              say([one.epoch, one.sign, one.row ?? one.value, one.inner ?? null, one.outer ?? null, reached, other]);
              if (one.epoch === 4) break;
            }}
            """,
        )
        assert script.hear() == template
        local = db.messages(template)
        db.insert("stock", [("a", Decimal(20), day(3)), ("b", Decimal("30.5"), day(8))])
        db.insert("stock", [("a", Decimal("9.5"), day(1))])
        db.execute("DELETE FROM stock WHERE symbol = 'a' AND risk < 10")
        db.insert("stock", [("c", Decimal("9.5"), day(1))])
        script.go_on()
        for message in local:
            found = script.hear()
            if isinstance(message, whence.RowMessage):
                expected = [message.row, None, None, [], False]
            else:
                bounds = [None if end is None else Decimal(end) for end in ends]
                reached = [message.reaches(a, b, message.key) for a in bounds for b in bounds]
                value = list(message.value) if isinstance(message.value, tuple) else message.value
                expected = [value, list(message.inner), list(message.outer), reached, False]
            assert found == json.loads(json.dumps([message.epoch, message.sign, *expected], default=str))
            if message.epoch == 4:
                break
        script.end()


@pytest.mark.skipif(shutil.which("node") is None, reason="there is no Node.js here")
def test_javascript_has_contours(db: whence.Database) -> None:
    boxes = [[[low, None], [first, last]] for low in ("5.0", "20.0") for first, last in ((None, None), (DAY, DAY))]
    with whence.serve(db, port=0) as server:
        script = Script(
            server,
            f"""
            const messages = await client.messages("least");
            say("ready");
            await pause();
            for (const one of await messages.take(5)) {{
              say([one.value, one.inner, one.outside, {json.dumps(boxes)}.map((box) => one.reaches(box))]);
            }}
            """,
        )
        assert script.hear() == "ready"
        db.insert("stock", [("a", Decimal(20), day(3)), ("b", Decimal("30.5"), day(8)), ("c", Decimal("9.5"), day(3))])
        script.go_on()
        assert [script.hear() for _ in range(3)] == [
            ["9.5", [["9.5", "9.5"], [DAY, DAY]], [], [True, True, False, False]],
            ["20.0", [["20.0", "20.0"], [DAY, DAY]], [["9.5", DAY]], [False, False, False, False]],
            ["30.5", [["30.5", "30.5"], ["2026-01-08"] * 2], [["20.0", DAY]], [False, False, True, False]],
        ]
        script.end()
