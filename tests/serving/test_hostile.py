"""A client that sends mutated messages and frames to a real server process: 100,000 of them.

Every frame is answered or closes its own connection with a code; the server lives, its memory is flat, another client
notices nothing, and nothing is written but what the hostile client may write.
"""

from __future__ import annotations

import base64
import random
import socket
import struct
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
import pytest

import whence
from tests.depth import DEEP
from tests.server.served import client_frame
from tests.serving.processes import PATIENCE, ProcessGroup, ServerProcess
from whence.server.access.tokens import make_token
from whence.subscribe import messages as ms

FRAMES = 500_000 if DEEP else 100_000
BATCH = 100
SETUP = """
CREATE TABLE t (a INT, b TEXT);
CREATE TABLE secret (a INT, b TEXT);
CREATE VIEW v AS SELECT b, COUNT(*) AS n FROM t GROUP BY b;
CREATE TABLE allowed (who TEXT, name TEXT, what TEXT);
INSERT INTO allowed VALUES ('ann', '*', 'define'), ('mallory', 't', 'insert'), ('mallory', 'v', 'read');
INSERT INTO secret VALUES (1, 'hidden');
"""
MESSAGES: list[dict[str, Any]] = [
    {"type": "insert", "seq": 1, "table": "t", "rows": [[1, "x"]]},
    {"type": "insert", "seq": 2, "table": "t", "rows": [[1, "x"]], "number": 7, "awaiting": 3, "after": 6},
    {"type": "insert", "seq": 3, "table": "secret", "columns": ["a", "b"], "rows": [[1, "x"]]},
    {"type": "insert", "seq": 4, "table": "t", "arrow": b"ARROW1\0\0", "missing": "null"},
    {"type": "subscribe", "id": 1, "queries": ["v", "SELECT a FROM t WHERE b = ?"], "params": ["x"]},
    {"type": "subscribe", "id": 2, "queries": ["SELECT b FROM secret"], "every": 0.5, "every_change": True},
    {"type": "subscribe", "id": 3, "queries": ["t"], "have": "0123456789ab.00c0ffee.17", "why": True},
    {"type": "unsubscribe", "id": 1},
    {"type": "wait", "id": 1, "at": "0123456789ab.00c0ffee.17"},
    {"type": "call", "seq": 5, "verb": "read", "args": {"name": "v", "where": {"b": "x"}, "limit": 3}},
    {"type": "call", "seq": 6, "verb": "query", "args": {"sql": "SELECT * FROM secret", "params": [1]}},
    {"type": "call", "seq": 7, "verb": "transaction", "args": {"operations": [{"verb": "insert", "table": "t"}]}},
    {"type": "call", "seq": 8, "verb": "why", "args": {"name": "v", "row": ["x", 1]}},
    {"type": "call", "seq": 9, "verb": "execute", "args": {"sql": "DROP TABLE secret"}},
    {"type": "cancel", "seq": 5},
    {"type": "renew", "token": "whence_nothing"},
    {"type": "hello", "version": 1},
]
_CHEAP = [0, 1, 2, 3, 7, 8, 14]  # those that many of are sent
JUNK: list[Any] = [
    None, True, -1, 0, 2**31, 2**53, 2**63 - 1, -(2**63), 2**64 - 1, 0.5, float("nan"), float("inf"), "", "x", "t", "v",
    "secret", "'; DROP TABLE t; --", "\0", "\ud7ff", "x" * 5_000, b"", b"\xff" * 100, [], [[]], [[[]]], [None] * 300,
    {}, {"a": {"b": {}}}, {"type": "hello"}, "0123456789ab.00c0ffee.99999999999", "SELECT", ["SELECT 1"], ["v"] * 200,
]  # fmt: skip


def mutated(dice: random.Random, is_json: bool) -> bytes:
    """Return a message that was valid once, as bytes."""
    place = dice.choice(_CHEAP) if dice.random() < 0.95 else dice.randrange(len(MESSAGES))
    message = dict(MESSAGES[place])
    for _ in range(dice.choice((0, 1, 1, 2))):
        key = dice.choice(list(message))
        match dice.randrange(4):
            case 0:
                del message[key]
            case 1:
                message[key] = dice.choice(JUNK)
            case 2:
                message[dice.choice(("id", "seq", "rows", "args", "zzz"))] = dice.choice(JUNK)
            case 3 if isinstance(message[key], list) and message[key]:
                message[key] = [*message[key], dice.choice(JUNK)]
        if not message:
            break
    data = msgspec.json.encode(message) if is_json else msgspec.msgpack.encode(message)
    return mangled(data, dice) if dice.random() < 0.1 else data


def mangled(data: bytes, dice: random.Random) -> bytes:
    """Return bytes with a few of them changed, missing or more."""
    found = bytearray(data)
    for _ in range(dice.choice((1, 1, 2, 8))):
        at = dice.randrange(len(found) + 1)
        match dice.randrange(4):
            case 0 if at < len(found):
                found[at] = dice.randrange(256)
            case 1:
                del found[at:]
            case 2:
                found[at:at] = bytes(dice.randrange(256) for _ in range(dice.choice((1, 4, 100))))
            case 3:
                found += found[at:]
    return bytes(found)


class Arsenal:
    """Mutated messages in one format: those that are answered or passed over, and those that close a connection."""

    def __init__(self, dice: random.Random, is_json: bool, size: int = 2_000) -> None:
        self.is_json = is_json
        self.answered: list[bytes] = []
        self.subscribing: dict[int, bytes] = {}  # by the id, which must be new on a connection
        self.closing: list[bytes] = []
        for _ in range(size):
            data = mutated(dice, is_json)
            message = self._read(data)
            frame = client_frame(1 if is_json else 2, data)
            if isinstance(message, ms.Subscribe):
                self.subscribing[message.id] = frame
            elif message is None or isinstance(message, ms.Hello | ms.Renew) or getattr(message, "after", None):
                self.closing.append(frame)
            else:
                self.answered.append(frame)

    def _read(self, data: bytes) -> Any:
        try:
            return ms.decode_up(str(data, "utf-8") if self.is_json else data, "json" if self.is_json else "msgpack")
        except (ms.MessageError, UnicodeDecodeError):
            return None


def broken_frame(data: bytes, dice: random.Random) -> bytes:
    """Return something that is no frame, or one that is out of place."""
    frame = bytearray(client_frame(dice.choice((1, 2)), data))
    match dice.randrange(6):
        case 0:
            frame[0] = dice.choice((0x83, 0x8B, 0xC1, 0xA1, 0x80, 0x09, 0x08))  # reserved, fragments, opcodes
        case 1:
            frame[1] &= 0x7F  # not masked
        case 2:
            frame = bytearray(struct.pack("!BBQ4x", 0x82, 0xFF, 2**62))
        case 3:
            frame = bytearray(struct.pack("!BBQ4x", 0x82, 0xFF, (1 << 20) + 1) + data)
        case 4:
            frame = bytearray(client_frame(8, struct.pack("!H", dice.choice((0, 999, 1005, 1006, 5000))) + b"\xff"))
        case _:
            frame = bytearray(dice.randrange(256) for _ in range(200))
    return bytes(frame)


class HostileConnection:
    """A connection that has said hello."""

    def __init__(self, port: int, token: str, is_json: bool) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=PATIENCE)
        key = base64.b64encode(b"0123456789abcdef").decode()
        head = f"GET /v1/ws HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        self._socket.sendall(f"{head}Sec-WebSocket-Key: {key}\r\nSec-WebSocket-Version: 13\r\n\r\n".encode())
        self._read, self._at = b"", 0
        while b"\r\n\r\n" not in self._read:
            self._more()
        self._at = self._read.index(b"\r\n\r\n") + 4
        hello = ms.encode_message(ms.Hello(token=token, publisher="mallory"), "json" if is_json else "msgpack")
        self._socket.sendall(client_frame(1 if is_json else 2, hello))

    def _more(self) -> None:
        data = self._socket.recv(1 << 16)
        if not data:
            raise ConnectionError
        self._read, self._at = self._read[self._at :] + data, 0

    def _frames(self) -> Iterator[tuple[int, bytes]]:
        while True:
            while (found := self._take_frame()) is None:
                self._more()
            yield found

    def _take_frame(self) -> tuple[int, bytes] | None:
        data, at = self._read, self._at
        if len(data) < at + 2:
            return None
        start, size = at + 2, data[at + 1] & 127
        if size >= 126:
            start = at + (4 if size == 126 else 10)
            if len(data) < start:
                return None
            size = int.from_bytes(data[at + 2 : start], "big")
        if len(data) < start + size:
            return None
        self._at = start + size
        return data[at] & 15, data[start : start + size]

    def send(self, data: bytes) -> None:
        """Send bytes, whatever becomes of them."""
        sending = threading.Thread(target=self._send, args=(data,), daemon=True)
        sending.start()

    def _send(self, data: bytes) -> None:
        with suppress(OSError):  # the server has closed
            self._socket.sendall(data)

    def closed_or_ponged(self) -> int | None:
        """Return the code by which the server closes, 0 if it drops the connection; None if it answers a ping."""
        try:
            for opcode, data in self._frames():
                if opcode == 8:
                    return int(struct.unpack("!H", data[:2])[0])
                if opcode == 10:
                    return None
        except OSError:
            pass
        return 0

    def close(self) -> None:
        self._socket.close()


@pytest.mark.parametrize("seed", [0])
def test_mutated_frames(seed: int, tmp_path: Path) -> None:
    with whence.open(tmp_path / "db") as db:
        db.execute(SETUP)
    mallory, ann = (make_token(tmp_path / "tokens", who) for who in ("mallory", "ann"))
    limits = ("messages_per_second=10000000", "definitions_per_user=20")
    dice, closes, sent = random.Random(seed), Counter[int](), 0
    states: list[bool] = []
    arsenals = [Arsenal(dice, is_json) for is_json in (True, False) for _ in range(5 if DEEP else 1)]
    with ProcessGroup() as group:
        server = group.add(
            ServerProcess(tmp_path / "db", tmp_path / "tokens", log=tmp_path / "server.log", limits=limits)
        )
        server.start()
        with whence.connect(server.url, token=ann, on_state=lambda up, what: states.append(up)) as client:
            subscription = client.subscribe("SELECT a FROM secret")
            memory = 0
            while sent < FRAMES:
                client.insert("secret", (sent, "more"))
                for _ in range(5):
                    sent += attack(server.port, mallory, dice.choice(arsenals), dice, closes)
                assert server.is_alive, server.log()
                assert subscription.wait_for(client.position, timeout=PATIENCE).rows
                if not memory and sent > FRAMES // 5:
                    memory = server.memory
            assert states == [True], "the other client was never disconnected"
            assert sorted(subscription.rows) == sorted(client.query("SELECT a FROM secret").rows)
            assert not client.query("SELECT * FROM secret WHERE NOT b IN ('more', 'hidden')").rows
            assert server.memory < 1.1 * memory + (16 << 20), f"{memory:,} bytes became {server.memory:,}"
    assert not set(closes) - {1000, 1002, 1003, 1007, 1008, 1009, 4000, 4401, 0}, closes
    assert sum(closes.values()) > FRAMES // BATCH / 2


def attack(port: int, token: str, arsenal: Arsenal, dice: random.Random, closes: Counter[int]) -> int:
    """Send mutated frames over a connection until it is closed; return how many the server has read."""
    connection = HostileConnection(port, token, arsenal.is_json)
    answered = dice.choices(arsenal.answered, k=dice.randrange(2 * BATCH))
    answered += dice.sample(list(arsenal.subscribing.values()), k=min(5, len(arsenal.subscribing)))
    dice.shuffle(answered)
    last = dice.choice(arsenal.closing) if dice.random() < 0.7 else broken_frame(b"{}", dice)
    try:
        connection.send(b"".join(answered) + client_frame(9, b""))
        code = connection.closed_or_ponged()
        assert code is None, f"closed by {code} for messages that can be answered"
        connection.send(last + client_frame(9, b""))
        code = connection.closed_or_ponged()
        if code is not None:
            closes[code] += 1
    finally:
        connection.close()
    return len(answered) + 1
