"""WebSocket connections: the handshake, the hello, inserts and calls, and what closes a connection with which code."""

from __future__ import annotations

import shutil
import ssl
import struct
import subprocess
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import connect

import whence
from tests.server.served import RawSocket, ServedDatabase, TestClient, client_frame, served, wait_until
from whence.server.access.tokens import Tokens, make_token
from whence.server.sockets import gateway, websocket
from whence.subscribe import messages as ms

FORMATS: tuple[ms.Format, ...] = ("json", "msgpack")


@pytest.fixture
def db() -> Any:
    with whence.open() as db:
        db.execute("CREATE TABLE t (a INT, b TEXT); CREATE TABLE k (id INT PRIMARY KEY, at TIMESTAMP, x DECIMAL(10,2))")
        yield db


@pytest.fixture
def server(db: Any) -> Any:
    with served(db) as server:
        yield server


# -- the handshake and the hello -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("headers", "path", "status"),
    [
        ("", "/v1/ws", 101),
        ("", "/v1/ws?x=1", 101),
        ("", "/elsewhere", 404),
        ("Origin: http://evil.example\r\n", "/v1/ws", 403),
        ("Host: evil.example\r\n", "/v1/ws", 403),
        ("Origin: http://evil.example\r\nOrigin: http://evil.example\r\n", "/v1/ws", 400),
    ],
)
def test_the_handshake_is_checked(server: ServedDatabase, headers: str, path: str, status: int) -> None:
    with RawSocket(server.port, headers=headers, path=path) as raw:
        assert raw.status == status
    refused = 0 if status == 101 else 1
    wait_until(lambda: not server.gateway.connections and server.gateway.metrics.refused == refused)


def test_a_page_of_this_server_may_connect(server: ServedDatabase) -> None:
    with RawSocket(server.port, headers=f"Origin: http://127.0.0.1:{server.port}\r\n") as raw:
        assert raw.status == 101


def test_a_token_may_come_in_the_header(server: ServedDatabase) -> None:
    with RawSocket(server.port, headers=f"Authorization: Bearer {server.token}\r\n") as raw:
        raw.send('{"type":"hello"}')
        assert '"welcome"' in str(raw.recv())


@pytest.mark.parametrize("token", ["", "whence_nonsense", "x" * 100_000])
def test_a_wrong_token_is_refused(server: ServedDatabase, token: str) -> None:
    with TestClient(server, hello=False) as client:
        client.send(ms.Hello(token=token))
        assert client.close_code() == (4401, "the token is missing, wrong or expired")
    assert server.gateway.metrics.closes[4401] == 1


def test_no_hello_in_time(db: Any) -> None:
    with served(db, limits={"hello_seconds": 0.1}) as server, TestClient(server, hello=False) as client:
        assert client.close_code() == (1008, "no hello within 0.1 s")


def test_too_many_connections_are_refused(db: Any) -> None:
    with served(db, limits={"connections": 3}) as server, TestClient(server), TestClient(server):
        third, fourth = RawSocket(server.port), RawSocket(server.port)
        assert (third.status, fourth.status) == (101, 503)
        third.close()
        fourth.close()


# -- hostile frames --------------------------------------------------------------------------------------------------

HELLO = '{"type":"hello","token":"%s"}'
CLOSES: dict[str, tuple[list[bytes], int]] = {
    "an unmasked frame": ([b"\x81\x02{}"], 1002),
    "a reserved bit": ([b"\xc1\x80\0\0\0\0"], 1002),
    "a reserved opcode": ([b"\x83\x80\0\0\0\0"], 1002),
    "a reserved control opcode": ([b"\x8b\x80\0\0\0\0"], 1002),
    "a continuation of nothing": ([client_frame(0, b"x")], 1002),
    "a message in a message": ([client_frame(1, b"x", fin=False), client_frame(1, b"y")], 1002),
    "a ping in fragments": ([client_frame(9, b"x", fin=False)], 1002),
    "a long ping": ([client_frame(9, b"x" * 126)], 1002),
    "a close with one byte": ([client_frame(8, b"x")], 1002),
    "a close with no code": ([client_frame(8, struct.pack("!H", 999))], 1002),
    "a close with bad text": ([client_frame(8, struct.pack("!H", 1000) + b"\xff")], 1007),
    "a huge length": ([b"\x81\xff" + b"\x7f" * 8 + b"\0" * 4], 1009),
    "a large message": ([client_frame(1, b" " * 5000)], 1009),
    "large fragments": ([client_frame(op, b" " * 900, fin=False) for op in (1, 0, 0, 0, 0, 0)], 1009),
    "many empty fragments": ([client_frame(1, b"", fin=False)] + [client_frame(0, b"", fin=False)] * 1100, 1008),
    "text that is not UTF-8": ([client_frame(1, b'{"type":"hello","token":"\xff\xfe"}')], 1007),
    "half a letter": ([client_frame(1, "é".encode()[:1])], 1007),
    "no JSON": ([client_frame(1, b"hello")], 1007),
    "nothing": ([client_frame(1, b"")], 1007),
    "deep JSON": ([client_frame(1, b"[" * 900)], 1007),
    "deep arguments": ([client_frame(1, b'{"type":"call","seq":1,"verb":"query","args":{"a":' + b"[" * 600)], 1007),
    "another type": ([client_frame(1, b'{"type":"shout"}')], 1007),
    "no type": ([client_frame(1, b"{}")], 1007),
    "a type of field": ([client_frame(1, b'{"type":"subscribe","id":"x","queries":[]}')], 1007),
    "a missing field": ([client_frame(1, b'{"type":"subscribe"}')], 1007),
    "a huge number": ([client_frame(1, b'{"type":"wait","id":1' + b"0" * 500 + b',"at":"x"}')], 1007),
    "binary after text": ([client_frame(2, ms.encode_message(ms.Unsubscribe(1), "msgpack"))], 1003),
    "no msgpack": ([client_frame(2, b"\xc1")], 1007),
    "a second hello": ([client_frame(1, b'{"type":"hello"}')], 1008),
    "a number in use": (
        [
            client_frame(1, b'{"type":"subscribe","id":1,"queries":["%b"]}' % query)
            for query in (b"t", b"SELECT a FROM t")
        ],
        1008,
    ),
}


@pytest.fixture(scope="module")
def hostile_server() -> Any:
    with whence.open() as db:
        db.execute("CREATE TABLE t (a INT, b TEXT)")
        with served(db, limits={"message_bytes": 4000}) as server:
            yield server


def test_a_message_that_comes_twice_is_taken_once(server: ServedDatabase) -> None:
    with TestClient(server) as client:
        for _ in range(2):
            client.send(ms.Hello(token=server.token))
            client.send(ms.Subscribe(1, ["t"]))
        client.apply(client.receive(ms.Subscribed))
        client.follow()
        server.db.insert("t", (1, "x"))
        assert client.follow().parts[0].came == [[1], ["x"]]


@pytest.mark.parametrize("what", CLOSES)
def test_a_hostile_frame_closes_its_connection(hostile_server: ServedDatabase, what: str) -> None:
    server, (frames, code) = hostile_server, CLOSES[what]
    with TestClient(server) as other, TestClient(server, raw=True) as client:
        other.subscribe("t")
        other.follow()
        assert isinstance(client.socket, RawSocket)
        client.socket.socket.sendall(b"".join(frames))
        found, reason = client.close_code()
        assert found == code, reason
        assert reason or code == 1002
        server.db.insert("t", (1, what))
        other.follow_until(lambda: (1, what) in other.rows[1][0])  # it is not disturbed
    wait_until(lambda: not server.gateway.connections)


@pytest.mark.parametrize(
    "message", ['{"type":"unsubscribe","id":1}', '{"type":"insert","seq":1,"table":"t","rows":[]}', "[1,2]"]
)
def test_nothing_is_done_before_the_hello(hostile_server: ServedDatabase, message: str) -> None:
    with TestClient(hostile_server, hello=False) as client:
        client.socket.send(message)
        assert client.close_code()[0] == (1007 if message == "[1,2]" else 1008)


def test_a_client_that_closes_is_answered(server: ServedDatabase) -> None:
    with TestClient(server, raw=True) as client:
        assert isinstance(client.socket, RawSocket)
        client.socket.send_frame(8, struct.pack("!H", 1000) + b"bye")
        assert client.close_code() == (1000, "bye")
    wait_until(lambda: not server.gateway.connections)
    assert server.gateway.metrics.closes == {1000: 1}


def test_a_client_that_vanishes_is_forgotten(server: ServedDatabase) -> None:
    client = TestClient(server, raw=True)
    client.subscribe("t")
    assert isinstance(client.socket, RawSocket)
    client.socket.socket.setsockopt(1, 13, struct.pack("ii", 1, 0))  # SO_LINGER: reset it
    client.socket.close()
    wait_until(lambda: not server.gateway.connections and not server.gateway.delivery.subscriptions)


def test_pings_are_answered_and_fragments_joined(server: ServedDatabase) -> None:
    with TestClient(server, raw=True) as client:
        raw = client.socket
        assert isinstance(raw, RawSocket)
        data = ms.encode_message(ms.CallMessage(1, "position", {}), "json")
        raw.send_frame(1, data[:5], fin=False)
        raw.send_frame(9, b"are you there")
        raw.send_frame(0, data[5:], fin=False)
        raw.send_frame(0, b"")
        assert raw._frame() == (10, b"are you there")
        assert client.receive(ms.ResultMessage).seq == 1


def test_too_many_messages_close_a_connection(db: Any) -> None:
    with served(db, limits={"messages_per_second": 50}) as server, TestClient(server, raw=True) as client:
        assert isinstance(client.socket, RawSocket)
        client.socket.socket.sendall(client_frame(1, b'{"type":"unsubscribe","id":1}') * 60)
        assert client.close_code() == (1008, "more than 50 messages per second (limit messages_per_second)")
        with TestClient(server, raw=True) as other:
            assert isinstance(other.socket, RawSocket)
            other.socket.socket.sendall(client_frame(9, b"") * 60)
            assert other.close_code()[0] == 1008


def test_a_flood_of_pings_is_not_kept(server: ServedDatabase) -> None:
    with TestClient(server, raw=True) as client:
        raw = client.socket
        assert isinstance(raw, RawSocket)
        raw.socket.settimeout(0.2)
        [connection] = server.gateway.connections
        stopped = False
        while not stopped:
            try:
                raw.socket.sendall(client_frame(9, b"x" * 125) * 50)
            except TimeoutError:
                stopped = True  # the server reads no more
            assert connection._waiting_bytes + connection.transport.get_write_buffer_size() < 1_000_000
            time.sleep(0.005)  # or the limit of messages ends it


def test_whoever_gives_no_sign_of_life_is_dropped(db: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gateway, "SWEEP", 0.05)
    limits = {"idle_seconds": 0.1, "pong_seconds": 0.5}
    with served(db, limits=limits) as server, TestClient(server) as alive, TestClient(server, raw=True) as dead:
        wait_until(lambda: len(server.gateway.connections) == 1)
        assert isinstance(dead.socket, RawSocket)
        assert dead.socket._frame() == (9, b"")
        alive.send(ms.CallMessage(1, "position", {}))
        alive.receive(ms.ResultMessage)


# -- inserts ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("format", FORMATS)
def test_inserts_are_pipelined_and_answered(server: ServedDatabase, format: ms.Format) -> None:
    with TestClient(server, format) as client:
        for seq in range(500):
            client.send(ms.InsertMessage(seq, "t", rows=[[seq, "x"], [seq, "y"]]))
        answers = [client.receive(ms.Done) for _ in range(500)]
        assert [(a.seq, a.count) for a in answers] == [(seq, 2) for seq in range(500)]
        assert len(server.db["t"]) == 1000
        epochs = [int(a.at.rpartition(".")[2]) for a in answers]
        assert epochs == sorted(epochs)
        assert epochs[-1] < 250, "what arrives together is one epoch"


@pytest.mark.parametrize("format", FORMATS)
def test_values_are_of_the_types_of_the_table(server: ServedDatabase, format: ms.Format) -> None:
    with TestClient(server, format) as client:
        client.send(ms.InsertMessage(1, "K", columns=["x", "id"], rows=[["2.50", 1]], missing="null"))
        client.send(ms.InsertMessage(2, "k", rows=[[2, "2026-11-17T10:32:00", None]]))
        assert client.receive(ms.Done).count == client.receive(ms.Done).count == 1
        assert sorted(map(str, server.db["k"])) == [
            "(1, None, Decimal('2.50'))",
            "(2, datetime.datetime(2026, 11, 17, 10, 32), None)",
        ]
        bad: list[tuple[dict[str, Any], str]] = [
            ({"table": "k", "rows": [["one", None, None]]}, "DataError"),
            ({"table": "k", "rows": [[1]]}, "DataError"),
            ({"table": "k", "rows": [[1, 2, 3]], "columns": ["id"]}, "DataError"),
            ({"table": "k"}, "DataError"),
            ({"table": "ghost", "rows": []}, "CatalogError"),
            ({"table": "k", "arrow": b"nonsense"}, "RequestError"),
            ({"table": "k", "rows": [[9, None, None]], "number": 3}, "DataError"),
        ]
        for seq, (fields, code) in enumerate(bad):
            client.send(ms.InsertMessage(seq, **fields))
            error = client.receive(ms.ErrorMessage)
            assert (error.seq, error.code) == (seq, code), error
        assert len(server.db["k"]) == 2


def test_arrow_is_inserted(server: ServedDatabase) -> None:
    import pyarrow as pa

    from whence.server.web.formats import arrow_bytes

    with TestClient(server, "msgpack") as client:
        client.send(ms.InsertMessage(1, "t", arrow=arrow_bytes(pa.table({"a": [1, 2], "b": ["x", None]}))))
        assert client.receive(ms.Done).count == 2
        assert sorted(map(str, server.db["t"])) == ["(1, 'x')", "(2, None)"]


def test_numbered_inserts_are_done_once(server: ServedDatabase) -> None:
    for attempt in range(2):
        with TestClient(server, hello=False) as client:
            client.send(ms.Hello(token=server.token, publisher="loader"))
            client.receive(ms.Welcome)
            for number in range(10):
                rows = [["seven", "x"]] if number == 7 else [[number, "x"]]
                client.send(ms.InsertMessage(number, "t", rows=rows, number=number))
            answers = [client.receive() for _ in range(10)]
            assert [getattr(a, "repeated", "error") for a in answers] == [
                "error" if number == 7 else attempt == 1 for number in range(10)
            ]
    assert sorted(a for a, _ in server.db["t"]) == [0, 1, 2, 3, 4, 5, 6, 8, 9]


def test_too_many_rows_are_refused(db: Any) -> None:
    with served(db, limits={"insert_rows": 2}) as server, TestClient(server) as client:
        client.send(ms.InsertMessage(1, "t", rows=[[1, "x"]] * 3))
        assert client.receive(ms.ErrorMessage).code == "LimitError"


def test_a_connection_with_many_writes_is_not_read(db: Any) -> None:
    with served(db, limits={"connection_writes": 10}) as server, TestClient(server) as client:
        reading = server.gateway.service.write_queue
        with db._coordinator.writer:  # nothing is committed meanwhile
            for seq in range(5000):
                client.send(ms.InsertMessage(seq, "t", rows=[[seq, "x" * 100]]))
                if reading.pending[0] >= 10:
                    break
            [connection] = server.gateway.connections
            wait_until(lambda: not connection.transport.is_reading())  # type: ignore[attr-defined]
        for _ in range(seq + 1):
            client.receive(ms.Done)
        wait_until(lambda: connection.transport.is_reading())  # type: ignore[attr-defined]  # after the last answer


def test_inserts_of_a_client_that_goes_are_done(server: ServedDatabase) -> None:
    with TestClient(server) as client:
        for seq in range(100):
            client.send(ms.InsertMessage(seq, "t", rows=[[seq, "x"]]))
    wait_until(lambda: len(server.db["t"]) == 100)


# -- calls -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("format", FORMATS)
def test_calls_are_answered(server: ServedDatabase, format: ms.Format) -> None:
    server.db.insert("t", [(1, "x"), (2, "y")])
    with TestClient(server, format) as client:
        client.send(ms.CallMessage(1, "query", {"sql": "SELECT a FROM t ORDER BY a"}))
        value = client.receive(ms.ResultMessage).value
        assert value["position"] == str(server.db.position)
        assert ("arrow" in value) == (format == "msgpack")
        if format == "json":
            assert (value["columns"], value["rows"]) == ([["a", "INTEGER"]], [[1], [2]])
        for verb, args, code in (("shout", {}, "RequestError"), ("query", {"sql": "SELECT"}, "SqlError")):
            client.send(ms.CallMessage(2, verb, args))
            error = client.receive(ms.ErrorMessage)
            assert (error.seq, error.code) == (2, code)


def test_calls_report_progress_and_are_cancelled(server: ServedDatabase) -> None:
    server.db.create_function("slow", lambda x: time.sleep(0.02) or x, args=["INT"], returns="INT")
    server.db.execute("CREATE TABLE s (x INT)")
    server.db.insert("s", [(i,) for i in range(50)])
    with TestClient(server) as client:
        lock = server.db._coordinator.state
        with lock:
            client.send(ms.CallMessage(7, "query", {"sql": "SELECT * FROM s"}))
            client.send(ms.Cancel(7))
            client.send(ms.Cancel(8))
            client.send(ms.CallMessage(9, "position", {}))
            time.sleep(0.1)
        answers = {m.seq: m for m in (client.receive(), client.receive())}
        assert isinstance(answers[9], ms.ResultMessage)
        assert answers[7].seq == 7


def test_too_many_calls_are_refused(db: Any) -> None:
    with served(db, limits={"calls": 2}) as server, TestClient(server) as client:
        with db._coordinator.paused():
            for seq in range(3):
                client.send(ms.CallMessage(seq, "query", {"sql": "SELECT * FROM t"}))
            error = client.receive(ms.ErrorMessage)
            assert (error.seq, error.code) == (2, "LimitError")
        assert {client.receive(ms.ResultMessage).seq for _ in range(2)} == {0, 1}


# -- tokens ----------------------------------------------------------------------------------------------------------


def test_a_token_is_renewed_in_place(db: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gateway, "SWEEP", 0.05)
    file = tmp_path / "tokens"
    token = make_token(file, "ann", expires=time.time() + 2.0)
    later = make_token(file, "ann", expires=time.time() + 3600)
    foreign = make_token(file, "bob", expires=time.time() + 3600)
    with served(db, token_file=file) as server, TestClient(server, token=token) as one:
        two, three = TestClient(server, token=token), TestClient(server, token=token)
        for client in (one, two, three):
            assert client.receive(ms.Expiring).at < time.time() + 60
        one.send(ms.Renew(later))
        three.send(ms.Renew(foreign))
        assert three.close_code()[0] == 4401, "not by the token of another"
        assert two.close_code() == (4401, "the token has expired")
        one.subscribe("t")
        one.follow()
        db.insert("t", (1, "x"))
        assert one.follow().parts[0].came == [[1], ["x"]]


def test_a_revoked_token_ends_its_connections(db: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gateway, "SWEEP", 0.05)
    file = tmp_path / "tokens"
    token, kept = make_token(file, "ann"), make_token(file, "ann")
    with served(db, token_file=file) as server, TestClient(server, token=kept) as other:
        client = TestClient(server, token=token)
        file.write_text(file.read_text().splitlines(keepends=True)[1])
        assert client.close_code() == (4401, "the token was revoked")
        other.send(ms.CallMessage(1, "position", {}))
        other.receive(ms.ResultMessage)


# -- the end ---------------------------------------------------------------------------------------------------------


def test_a_server_that_stops_says_so(db: Any) -> None:
    server = ServedDatabase(db)
    clients = [TestClient(server, format) for format in FORMATS for _ in range(3)]
    codes: list[int] = []
    threads = [threading.Thread(target=lambda c=c: codes.append(c.close_code()[0])) for c in clients]
    for thread in threads:
        thread.start()
    server.close()
    for thread in threads:
        thread.join()
    assert codes == [1001] * 6
    with pytest.raises((ConnectionClosed, OSError)):
        TestClient(server)


def test_a_large_answer_does_not_wait_in_the_transport(server: ServedDatabase) -> None:
    server.db.insert("t", [(i, "x" * 100) for i in range(20_000)])
    with TestClient(server, raw=True) as client:
        client.send(ms.CallMessage(1, "query", {"sql": "SELECT * FROM t"}))
        [connection] = server.gateway.connections
        wait_until(lambda: connection.blocked)
        assert connection.transport.get_write_buffer_size() <= websocket.SLICE
        assert len(client.receive(ms.ResultMessage).value["rows"]) == 20_000


def test_tokens_of_memory_are_for_the_owner() -> None:
    tokens = Tokens(None)
    assert tokens.check(tokens.printed()).who == "owner"


# -- over TLS --------------------------------------------------------------------------------------------------------


@pytest.mark.skipif(shutil.which("openssl") is None, reason="makes a certificate with openssl")
def test_connections_over_tls(db: Any, tmp_path: Path) -> None:
    cert, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost", "-addext",
         "subjectAltName=DNS:localhost,IP:127.0.0.1", "-keyout", str(key), "-out", str(cert)],
        check=True, capture_output=True,
    )  # fmt: skip
    db.execute("CREATE TABLE k2 (id INT PRIMARY KEY, v TEXT)")
    text = "z" * 20_000
    with served(db, cert=cert, key=key) as server:
        context = ssl.create_default_context(cafile=str(cert))
        url = server.url
        assert url.startswith("wss://")
        with connect(url, ssl=context, compression=None, max_size=None, max_queue=1, ping_interval=None) as socket:
            socket.send(f'{{"type":"hello","token":"{server.token}"}}')
            assert '"welcome"' in str(socket.recv())
            socket.send('{"type":"subscribe","id":1,"queries":["k2"]}')
            assert '"subscribed"' in str(socket.recv())
            assert '"state"' in str(socket.recv())
            for i in range(300):  # more than fits on the way to a client that does not read
                db.insert("k2", [(j, f"{text}{i}") for j in range(5)])
            wait_until(lambda: any(connection.blocked for connection in server.gateway.connections))
            rows: dict[int, str] = {}
            while len(rows) < 5 or any(value != f"{text}299" for value in rows.values()):
                change = ms.decode_down(socket.recv(timeout=20), "json").parts[0]
                rows |= dict(zip(*change.came, strict=True))
            socket.send("nonsense")
            with pytest.raises(ConnectionClosed) as closed:
                socket.recv(timeout=20)
            assert closed.value.rcvd is not None
            assert closed.value.rcvd.code == 1007
    assert server.gateway.metrics.coalesced
