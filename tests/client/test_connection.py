"""Connections that are lost: whatever is cut, each write is done once, and subscribers end with what is true."""

from __future__ import annotations

import asyncio
import gc
import http.server
import shutil
import socket
import ssl
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import whence
from tests.client.relay import Relay
from tests.depth import seeds
from whence.client.blocking import Client
from whence.model.codes import Interval
from whence.runtime.database import Database
from whence.server.access.tokens import make_token
from whence.server.app import Server

PATIENCE = 60.0


def wait_until(condition: Callable[[], Any]) -> None:
    end = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < end, "it did not come about in time"
        time.sleep(0.01)


def connect(relay: Relay, server: Server, **options: Any) -> Client:
    return whence.connect(relay.url, token=server.token, timeout=PATIENCE, **options)


# -- exactly once ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", seeds(4))
def test_inserts_are_done_once_however_connections_are_cut(
    db: Database, server: Server, relay: Relay, seed: int
) -> None:
    relay.cut_at_random(seed, connections=12, most=6_000)
    relay.cut_next((1 << 60, 1 << 60), *relay._cut_after)
    with connect(relay, server) as client:
        relay.cut()
        futures = [client.insert("link", (str(i), "x"), wait=False) for i in range(300)]
        for i in range(300, 320):
            assert client.insert("link", [(str(i), "x")]) == 1
        assert [future.result(PATIENCE) for future in futures] == [1] * 300
    assert relay.connections > 2
    assert Counter(row[0] for row in db["link"].rows) == Counter(map(str, range(320)))


@pytest.mark.parametrize("seed", seeds(2))
def test_other_writes_are_done_once_however_connections_are_cut(
    db: Database, server: Server, relay: Relay, seed: int
) -> None:
    db.execute("CREATE TABLE counter (id INT PRIMARY KEY, n INT)")
    db.insert("counter", (1, 0))
    db.insert("link", [("copy", "x")] * 50)
    with connect(relay, server) as client:
        relay.cut_at_random(seed, connections=20, most=3_000)
        relay.cut()
        for i in range(20):
            assert client.execute("UPDATE counter SET n = n + 1 WHERE id = 1").count in (1, -1)
            client.delete("link", ("copy", "x"))
            with client.transaction():
                client.insert("s", (i,))
                client.insert("link", (str(i), "y"))
    assert db["counter"].rows == [(1, 20)]
    assert Counter(row[0] for row in db["link"].rows) == Counter(map(str, range(20))) + Counter({"copy": 30})
    assert db["s"].rows == [(i,) for i in range(20)]


def test_failing_inserts_among_others_fail_once_and_alone(db: Database, server: Server, relay: Relay) -> None:
    with connect(relay, server) as client:
        relay.cut_at_random(5, connections=10, most=4_000)
        relay.cut()
        futures: list[Any] = []
        for i in range(200):
            row: Any = (str(i), "x") if i % 7 else (str(i), i)
            futures.append(client.insert("link", row, wait=False))
        errors = [i for i, future in enumerate(futures) if future.exception(PATIENCE) is not None]
    assert errors == list(range(0, 200, 7))
    assert all(isinstance(futures[i].exception(), whence.DataError) for i in errors)
    assert Counter(row[0] for row in db["link"].rows) == Counter(str(i) for i in range(200) if i % 7)


def test_a_publisher_that_counts_its_own_inserts_goes_on_after_a_restart(db: Database, server: Server) -> None:
    for _ in range(2):  # the second run sends everything again
        with whence.connect(server.url, token=server.token, publisher="loader") as client:
            for number in range(5):
                client.insert("link", (str(number), "x"), number=number)
    assert len(db["link"]) == 5
    with whence.connect(server.url, token=server.token, publisher="loader") as client:
        client.insert("link", ("more", "x"))
    with whence.connect(server.url, token=server.token, publisher="loader") as client:
        client.insert("link", ("more", "x"))
    assert len(db["link"]) == 7


def test_the_outcome_of_a_script_that_defines_is_not_known_when_the_connection_is_lost(
    db: Database, server: Server, relay: Relay
) -> None:
    with connect(relay, server) as client:
        relay.mute()
        running = threading.Thread(target=lambda: (wait_until(lambda: "b" in db), relay.cut()))
        running.start()
        with pytest.raises(whence.DisconnectedError, match="not known"):
            client.execute("CREATE TABLE a (x INT); CREATE TABLE b (x INT)")
        running.join()
        assert client.query("SELECT 1 AS x").rows == [(1,)]


def test_reads_are_asked_again(db: Database, server: Server, relay: Relay) -> None:
    db.insert("link", [(str(i), "x") for i in range(100)])
    with connect(relay, server) as client:
        relay.cut_at_random(3, connections=10, most=3_000)
        relay.cut()
        for _ in range(10):
            assert len(client["link"].rows) == 100


# -- subscriptions ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("seed", "options"), [(0, {}), (1, {}), (2, {"every_change": True}), (3, {"why": True})])
def test_subscribers_end_with_what_is_true_however_connections_are_cut(
    db: Database, server: Server, relay: Relay, seed: int, options: dict[str, Any]
) -> None:
    history = {0: Counter[Any]()}

    def write() -> None:
        for i in range(60):
            with db.transaction():
                db.insert("link", (str(i % 20), str(i % 7)))
                db.delete("link", (str((i * 3) % 20), str(i % 5)))
            history[db.epoch] = Counter(db["link"].rows)
            time.sleep(0.01)

    with connect(relay, server) as client:
        relay.cut_at_random(seed, connections=15, most=4_000)
        subscription = client.subscribe("link", **options)
        writer = threading.Thread(target=write)
        writer.start()
        last = -1
        while writer.is_alive():
            if update := subscription.next(timeout=0.05):
                assert Counter(update.rows) == history.get(update.position.epoch, Counter(update.rows))
                assert update.position.epoch >= last
                last = update.position.epoch
            relay.cut() if last % 10 == 0 else None
        writer.join()
        subscription.wait_for(db.position, timeout=PATIENCE)
        assert Counter(subscription.rows) == Counter(db["link"].rows)
    assert relay.connections > 1


def test_a_restarted_server_is_found_again_and_nothing_is_missed(tmp_path: Path) -> None:
    states: list[tuple[bool, str]] = []
    db = whence.open(tmp_path / "db")
    db.execute("CREATE TABLE a (x INT)")
    db.insert("a", (1,))
    server = whence.serve(db, port=0)
    tokens = tmp_path / "tokens"
    server.close()
    port = int(server.url.rpartition(":")[2])
    token = make_token(tokens, "ada")
    server = whence.serve(db, port=port, token_file=tokens)
    client = whence.connect(server.url, token=token, timeout=PATIENCE, on_state=lambda *state: states.append(state))
    subscription = client.subscribe("SELECT x FROM a WHERE x > 0")
    assert [update.rows for update in subscription.follow(timeout=0.3)] == [[(1,)]]
    for x in (2, 3):
        server.close()
        wait_until(lambda: states[-1][0] is False)
        db.close()
        db = whence.open(tmp_path / "db")
        db.insert("a", (x,))
        server = whence.serve(db, port=port, token_file=tokens)
        update = subscription.next(timeout=PATIENCE)
        assert update is not None
        assert (update.came, update.went) == ([(x,)], [])
        assert update.restarted in ("", "behind")  # the state, if the server knows no changes since
        assert client.insert("a", (-x,)) == 1
    client.close()
    server.close()
    db.close()
    assert [connected for connected, _ in states[:2]] == [True, False]


def test_another_database_at_the_same_address_starts_over(tmp_path: Path) -> None:
    tokens = tmp_path / "tokens"
    token = make_token(tokens, "ada")
    with whence.open() as first, whence.open() as second:
        for number, db in enumerate((first, second)):
            db.execute("CREATE TABLE a (x INT)")
            for x in range(5):
                db.insert("a", (10 * number + x,))
        server = whence.serve(first, port=0, token_file=tokens)
        with whence.connect(server.url, token=token, timeout=PATIENCE) as client:
            subscription = client.subscribe("a")
            update = subscription.next(timeout=PATIENCE)
            assert update is not None
            assert len(update.rows) == 5
            server.close()
            server = whence.serve(second, port=int(server.url.rpartition(":")[2]), token_file=tokens)
            update = subscription.next(timeout=PATIENCE)
            assert update is not None
            assert (update.restarted, sorted(update.rows)) == ("restarted", [(10 + x,) for x in range(5)])
            assert sorted(update.went) == [(x,) for x in range(5)]
            with pytest.raises(whence.DataError, match="another history"):
                subscription.wait_for(first.position, timeout=PATIENCE)
            server.close()


# -- what is final ---------------------------------------------------------------------------------------------------


def test_a_wrong_token_is_an_error_at_once(server: Server, relay: Relay) -> None:
    with pytest.raises(whence.AuthenticationError):
        whence.connect(relay.url, token="wrong", timeout=PATIENCE)
    with pytest.raises(whence.AuthenticationError):
        whence.connect(relay.url, timeout=PATIENCE)
    assert relay.connections == 2


def test_a_function_is_asked_for_a_token_again_when_one_is_refused(server: Server, relay: Relay) -> None:
    given: list[str] = ["expired", str(server.token), str(server.token)]
    with whence.connect(relay.url, token=lambda: given.pop(0), timeout=PATIENCE) as client:
        assert given == [str(server.token)]
        relay.cut()
        assert client.query("SELECT 1 AS x").rows == [(1,)]
        assert given == []
    with pytest.raises(whence.AuthenticationError):
        whence.connect(relay.url, token=lambda: "wrong", timeout=PATIENCE)


def test_a_token_that_is_revoked_ends_everything(db: Database, tmp_path: Path) -> None:
    tokens = tmp_path / "tokens"
    token = make_token(tokens, "ada")
    with (
        whence.serve(db, port=0, token_file=tokens) as server,
        whence.connect(server.url, token=token, timeout=PATIENCE) as client,
    ):
        subscription = client.subscribe("link")
        subscription.next()
        tokens.write_text("")
        with pytest.raises(whence.AuthenticationError):
            for _ in subscription:
                pass
        with pytest.raises(whence.AuthenticationError):
            client.query("SELECT 1 AS x")


def test_a_token_is_renewed_before_it_expires(db: Database, tmp_path: Path) -> None:
    tokens, asked = tmp_path / "tokens", []
    first, second = make_token(tokens, "ada", time.time() + 3), make_token(tokens, "ada")

    def token() -> str:
        asked.append(1)
        return first if len(asked) == 1 else second

    with (
        whence.serve(db, port=0, token_file=tokens) as server,
        Relay(int(server.url.rpartition(":")[2])) as relay,
        whence.connect(relay.url, token=token, timeout=PATIENCE) as client,
    ):
        wait_until(lambda: len(asked) == 2)
        time.sleep(4)
        assert client.query("SELECT 1 AS x").rows == [(1,)]
        assert (relay.connections, len(asked)) == (1, 2)


def test_no_server_is_a_disconnected_error_after_the_timeout() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with pytest.raises(whence.DisconnectedError, match=r"within 0\.2 s"):
        whence.connect(f"http://127.0.0.1:{port}", timeout="200 ms")


def test_calls_wait_for_a_connection_only_so_long(server: Server, relay: Relay) -> None:
    with whence.connect(relay.url, token=server.token, timeout=0.3) as client:
        subscription = client.subscribe("link")
        short = client.subscribe("link", give_up_after="0.5 s")
        assert [bool(one.next(timeout=PATIENCE)) for one in (short, subscription)] == [False, False]
        relay.refuse(True)
        relay.cut()
        for call in (lambda: client.query("SELECT 1 AS x"), lambda: client.insert("link", ("a", "b"))):
            with pytest.raises(whence.DisconnectedError):
                call()
        with pytest.raises(whence.DisconnectedError, match=r"0\.5 s"):
            short.next(timeout=PATIENCE)
        assert subscription.next(timeout=0.1) is None
        relay.refuse(False)
        wait_until(lambda: "not connected" not in repr(client))
        client.insert("link", ("c", "d"))
        assert subscription.wait_for(client.position or "", timeout=PATIENCE).came


@pytest.fixture
def website() -> Iterator[str]:
    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            self.send_error(404, "nothing here")

        def log_message(self, *args: Any) -> None: ...

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as other:
        threading.Thread(target=other.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{other.server_port}"
        other.shutdown()


def test_something_else_at_the_address_is_an_error_at_once(website: str) -> None:
    with pytest.raises(whence.WhenceError, match="is not a served database: HTTP 404"):
        whence.connect(website, timeout=PATIENCE)


@pytest.mark.skipif(shutil.which("openssl") is None, reason="makes a certificate with openssl")
def test_encrypted_connections(db: Database, tmp_path: Path) -> None:
    cert, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost", "-addext",
         "subjectAltName=IP:127.0.0.1", "-keyout", key, "-out", cert], check=True, capture_output=True,
    )  # fmt: skip
    with whence.serve(db, port=0, cert=cert, key=key) as server:
        with whence.connect(server.url, token=server.token, ca=cert) as client:
            assert client.insert("link", ("a", "b")) == 1
        context = ssl.create_default_context(cafile=str(cert))
        with whence.connect(server.url, token=server.token, ssl=context) as client:
            assert client["link"].rows == [("a", "b")]
        with pytest.raises(whence.WhenceError, match="give ca="):
            whence.connect(server.url, token=server.token, timeout=PATIENCE)
        with pytest.raises(whence.DataError, match="not both"):
            whence.connect(server.url, ca=cert, ssl=context)
    with pytest.raises(whence.DataError, match="not encrypted"):
        whence.connect("http://127.0.0.1:1", ca=cert)
    with pytest.raises(whence.DataError, match="cannot be read"):
        whence.connect("https://127.0.0.1:1", ca=tmp_path / "none")


@pytest.mark.parametrize("url", ["127.0.0.1:8080", "ftp://x", "http://", "http://x:99999", 7, "http://x?token=secret"])
def test_addresses_that_are_none(url: Any) -> None:
    with pytest.raises(whence.DataError) as error:
        whence.connect(url)
    assert "secret" not in str(error.value)


def test_queries_that_cannot_be_subscribed_to(client: Client, db: Database) -> None:
    with pytest.raises(whence.SqlError) as error:
        client.subscribe("SELECT nope FROM link")
    assert error.value.line == 1
    with pytest.raises(whence.CatalogError):
        client.subscribe("ghost")
    with pytest.raises(whence.DataError, match="key"):
        client.subscribe("link", key="nope")
    with pytest.raises(whence.DataError):
        client.subscribe([])
    with pytest.raises(whence.DataError, match="not a position"):
        client.subscribe("link", have="yesterday")
    assert client.query("SELECT 1 AS x").rows == [(1,)]


def test_a_dropped_view_ends_its_subscription_with_an_error(client: Client, db: Database) -> None:
    db.execute("CREATE VIEW short AS SELECT DISTINCT src FROM link")
    subscription = client.subscribe("short")
    subscription.next()
    db.execute("DROP VIEW short")
    for _ in range(2):
        with pytest.raises(whence.CatalogError, match="short"):
            subscription.next(timeout=PATIENCE)


def test_a_replaced_view_goes_on_with_its_new_columns(client: Client, db: Database) -> None:
    db.execute("CREATE VIEW short AS SELECT DISTINCT src FROM link")
    db.insert("link", ("a", "b"))
    subscription = client.subscribe("short")
    assert subscription.next(timeout=PATIENCE) is not None
    db.execute("CREATE OR REPLACE VIEW short AS SELECT DISTINCT dst, src FROM link")
    update = subscription.next(timeout=PATIENCE)
    assert update is not None
    assert (update.restarted, update.columns, update.rows) == ("redefined", ["dst", "src"], [("b", "a")])
    assert subscription.columns == ["dst", "src"]


# -- updates ---------------------------------------------------------------------------------------------------------


def test_several_queries_move_together(client: Client, db: Database) -> None:
    queries = {"links": "link", "many": "SELECT COUNT(*) AS n FROM link"}
    subscription = client.subscribe(queries)
    first = subscription.next(timeout=PATIENCE)
    assert first is not None
    assert (first["links"].rows, first["many"].rows) == ([], [(0,)])
    with client.transaction():
        client.insert("link", [("a", "b"), ("b", "c")])
    update = subscription.next(timeout=PATIENCE)
    assert update is not None
    assert (sorted(update["links"].came), update["many"].came, update["many"].went) == (
        [("a", "b"), ("b", "c")], [(2,)], [(0,)],
    )  # fmt: skip


def test_every_type_comes_as_it_is(client: Client, db: Database) -> None:
    numbers = [True, 7, 2**60, float("nan"), "2.50", 10**20]
    db.insert("t", [(1, *numbers, "ada", "2026-01-01", "2026-01-02 03:04:05", Interval(1, 2, 3))])
    subscription = client.subscribe("t", key="id")
    update = subscription.next(timeout=PATIENCE)
    assert update is not None
    assert list(map(repr, update.rows)) == list(map(repr, db["t"].rows))
    db.update("t", {"name": "bob"}, key=1)
    update = subscription.next(timeout=PATIENCE)
    assert update is not None
    [(key, old, new)] = update.changed
    assert (key, old and old[7], new and new[7]) == (1, "ada", "bob")
    db.delete("t", key=1)
    update = subscription.next(timeout=PATIENCE)
    assert update is not None
    assert update.rows == []


def test_large_states_come_in_chunks(client: Client, db: Database) -> None:
    rows = [(f"{i:050}", "x") for i in range(20_000)] + [("twice", "y")] * 2
    db.insert("link", rows)
    subscription = client.subscribe("link")
    update = subscription.next(timeout=PATIENCE)
    assert update is not None
    assert Counter(update.rows) == Counter(rows)
    db.delete("link", where="dst = 'x'")
    update = subscription.wait_for(db.position, timeout=PATIENCE)
    assert subscription.rows == [("twice", "y")] * 2


def test_reasons_come_with_updates(client: Client, db: Database) -> None:
    subscription = client.subscribe("reachable", why=True)
    subscription.next(timeout=PATIENCE)
    client.insert("link", [("a", "b"), ("b", "c")])
    update = subscription.next(timeout=PATIENCE)
    assert update is not None
    assert update.why[("a", "c")] == [[("link", {"src": "a", "dst": "b"}), ("link", {"src": "b", "dst": "c"})]]
    client.delete("link", ("b", "c"))
    update = subscription.next(timeout=PATIENCE)
    assert update is not None
    assert ("a", "c") in update.went
    assert update.why[("a", "c")]


def test_going_on_from_a_position_of_an_earlier_run(server: Server, client: Client, db: Database) -> None:
    db.insert("link", ("a", "b"))
    with client.subscribe("link") as subscription:
        first = subscription.next(timeout=PATIENCE)
    assert first is not None
    have, rows = str(first.position), first.rows
    db.insert("link", ("b", "c"))
    with whence.connect(server.url, token=server.token) as another:
        update = another.subscribe("link", have=have, rows=rows).next(timeout=PATIENCE)
        assert update is not None
        assert (update.came, update.restarted or "", len(update.rows)) == ([("b", "c")], update.restarted, 2)
        update = another.subscribe("link", have=whence.Position("0" * 12, "0" * 8, 1), rows=[("z", "z")]).next()
        assert update is not None
        assert (update.restarted, update.went) == ("restarted", [("z", "z")])


def test_every_lies_between_two_updates(client: Client, db: Database) -> None:
    subscription = client.subscribe("link", every="2 s")
    subscription.next(timeout=PATIENCE)
    for i in range(20):
        client.insert("link", (str(i), "x"))
    updates = list(subscription.follow(timeout="3 s"))
    assert 1 <= len(updates) < 20
    assert len(subscription.rows) == 20


def test_waiting_for_a_position(client: Client, db: Database) -> None:
    subscription = client.subscribe("SELECT src FROM link WHERE src = 'never'")
    client.insert("link", ("a", "b"))
    update = subscription.wait_for(client.position or "", timeout=PATIENCE)
    assert update.position.epoch >= 1
    assert not update.rows
    assert not subscription.wait_for(str(client.position), timeout=PATIENCE)
    with pytest.raises(whence.QuestionTimeout):
        subscription.wait_for(db.position._replace(epoch=99), timeout=0.1)


def test_a_subscription_holds_its_client(server: Server, db: Database) -> None:
    subscription = whence.connect(server.url, token=server.token).subscribe("link")
    gc.collect()
    db.insert("link", ("a", "b"))
    assert subscription.wait_for(db.position, timeout=PATIENCE).rows == [("a", "b")]
    threads = threading.active_count()
    del subscription
    gc.collect()
    wait_until(lambda: threading.active_count() < threads)


def test_closing_ends_whoever_waits(client: Client) -> None:
    subscription = client.subscribe("link")
    subscription.next()
    threading.Timer(0.2, subscription.close).start()
    assert list(subscription) == []


def test_calls_inside_an_iteration_do_not_block_it(client: Client, db: Database) -> None:
    seen = []
    for update in client.subscribe("s", every_change=True):
        seen += update.came
        if len(seen) >= 50:
            break
        client.insert("s", [(len(seen),)])
        client.insert("s", [(-len(seen),)], wait=False)
        assert client.query("SELECT 1 AS x").rows == [(1,)]
    assert len(seen) == len(set(seen)) or len(seen) >= 50


# -- async -----------------------------------------------------------------------------------------------------------


def test_async_clients_do_many_things_at_once(db: Database, server: Server) -> None:
    async def main() -> None:
        async with whence.connect_async(server.url, token=server.token) as client:
            subscription = await client.subscribe("SELECT COUNT(*) AS n FROM link")
            counts = []

            async def follow() -> None:
                async for update in subscription:
                    counts.append(update.rows[0][0])
                    if counts[-1] == 100:
                        return

            following = asyncio.create_task(follow())
            await asyncio.gather(*(client.insert("link", (str(i), "x")) for i in range(100)))
            queries = await asyncio.gather(*(client.query("SELECT ? AS x", [i]) for i in range(60)))
            assert [found.rows[0][0] for found in queries] == list(range(60))
            await asyncio.wait_for(following, PATIENCE)
            assert counts == sorted(counts)
            assert [row async for row in client["link"].where(src="7")] == [("7", "x")]
            assert await client["link"].contains(("7", "x"))
            assert await client["link"].columns() == ["src", "dst"]
            subscription.close()
            assert [update async for update in subscription] == []

    asyncio.run(main())


def test_cancelling_a_task_cancels_its_question(db: Database, server: Server) -> None:
    db.execute("CREATE TABLE e (a INT, b INT, p DOUBLE); CREATE VIEW r AS SELECT a, b FROM e "
               "UNION SELECT e.a, r.b FROM e JOIN r ON e.b = r.a")  # fmt: skip
    db.insert("e", [(i, j, 0.5) for i in range(12) for j in range(12) if i != j])

    async def main() -> None:
        async with whence.connect_async(server.url, token=server.token) as client:
            begun = asyncio.Event()
            asking = asyncio.create_task(
                client.reliability(
                    "r", a=0, b=11, given={"e": "p"}, samples=50_000_000, progress=lambda *_: begun.set()
                )
            )
            await asyncio.wait_for(begun.wait(), PATIENCE)
            asking.cancel()
            with pytest.raises(asyncio.CancelledError):
                await asking
            assert client._link.protocol.pending_calls == []
            assert (await client.query("SELECT 1 AS x")).rows == [(1,)]

    asyncio.run(main())


def test_errors_of_async_subscriptions(db: Database, server: Server) -> None:
    async def main() -> None:
        async with whence.connect_async(server.url, token=server.token) as client:
            with pytest.raises(whence.CatalogError):
                await client.subscribe("ghost")
            with pytest.raises(whence.CatalogError):
                async for _ in client.subscribe("ghost"):
                    pass
            async with client.subscribe("link") as subscription:
                assert (await subscription.wait_for(db.position)).rows == []
                assert await subscription.next(timeout=0.01) is None
                assert [update async for update in subscription.follow(timeout=0.01)] == []

    asyncio.run(main())
