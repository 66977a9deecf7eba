"""Mutated handshakes, frames and messages: the server lives, its memory stays flat, and another client is undisturbed.

`WHENCE_DEEP=1` sends 100,000 of them.
"""

from __future__ import annotations

import base64
import os
import random
import re
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest

from tests.depth import DEEP
from tests.server.served import PATIENCE, TestClient, client_frame
from whence.subscribe import messages as ms

COUNT = 100_000 if DEEP else 2_000
GROWTH = 24 << 20  # bytes that caches and the allocator may take

SERVER = """
import sys, whence
db = whence.open()
db.execute("CREATE TABLE t (a INT, b TEXT); CREATE VIEW n AS SELECT b, COUNT(*) AS n FROM t GROUP BY b")
db.execute("CREATE TABLE safe (a INT)")
with whence.serve(db, port=0, limits={"message_bytes": 65_536, "query_seconds": 1.0}) as server:
    print(server.url, server.token, flush=True)
    for line in sys.stdin:
        if line.startswith("insert"):
            db.insert("safe", (int(line.split()[1]),))
            db.delete("t", where="TRUE")
            print("done", flush=True)
"""

MESSAGES: list[Any] = [
    ms.Subscribe(1, ["n"]),
    ms.Subscribe(2, ["SELECT a FROM t WHERE b = ?"], params=["x"], every=0.5),
    ms.Subscribe(3, ["t", "n"], every_change=True, have="0123456789ab.00c0ffee.17"),
    ms.Subscribe(4, ["SELECT b FROM n"], why=True),
    ms.Unsubscribe(1),
    ms.Wait(2, "0123456789ab.00c0ffee.17"),
    ms.InsertMessage(1, "t", rows=[[1, "x"], [2, None]], columns=["a", "b"]),
    ms.InsertMessage(2, "t", rows=[[1, "y"]], number=7, awaiting=3),
    ms.InsertMessage(3, "t", arrow=b"\x00\x01\x02"),
    ms.CallMessage(1, "position", {}),
    ms.CallMessage(2, "describe", {"name": "t"}),
    ms.CallMessage(3, "insert", {"table": "t", "rows": [[1, "z"]]}),
    ms.Cancel(1),
    ms.Renew("whence_x"),
    ms.Hello(token="whence_x"),
]


class ServerProcess:
    """A server in a process of its own."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-c", SERVER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert self._process.stdout is not None
        self.address, self.token = self._process.stdout.readline().split()
        self.port = int(self.address.rpartition(":")[2])
        self.url = f"{self.address.replace('http', 'ws')}/v1/ws"

    def insert(self, value: int) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"insert {value}\n")
        self._process.stdin.flush()
        assert self._process.stdout.readline() == "done\n"

    @property
    def memory(self) -> int:
        with open(f"/proc/{self._process.pid}/statm") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    def metric(self, name: str) -> dict[str, float]:
        request = urllib.request.Request(f"{self.address}/metrics", headers={"Authorization": f"Bearer {self.token}"})
        text = urllib.request.urlopen(request, timeout=PATIENCE).read().decode()
        return {label: float(value) for label, value in re.findall(rf"^{name}(\S*) (\S+)$", text, re.MULTILINE)}

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        assert self._process.wait(PATIENCE) == 0


@pytest.fixture
def server() -> Iterator[ServerProcess]:
    process = ServerProcess()
    try:
        yield process
    finally:
        process.close()


def mutate(data: bytes, random_: random.Random) -> bytes:
    """Change some bytes."""
    found = bytearray(data)
    for _ in range(random_.choice((1, 1, 1, 2, 5))):
        place = random_.randrange(len(found) + 1)
        match random_.randrange(8):
            case 0 if place < len(found):
                found[place] ^= 1 << random_.randrange(8)
            case 1 if place < len(found):
                found[place] = random_.randrange(256)
            case 2:
                found[place:place] = random_.randbytes(random_.choice((1, 2, 8)))
            case 3:
                del found[place : place + random_.choice((1, 2, 8))]
            case 4:
                del found[place:]
            case 5:
                other = random_.randrange(len(found) + 1)
                found[place:place] = found[min(place, other) : max(place, other)]
            case 6:
                found[place:place] = random_.choice(
                    (b"9" * 30, b"[" * 200, b"\xff\xfe", b"\x00", b"null", b"-1", b"1e999", b'"', b"\\ud800", b"{}")
                )
            case _:
                found.reverse()
    return bytes(found)


def mutated_frames(random_: random.Random, format: ms.Format) -> bytes:
    """Return some frames, of which one is no longer what it was: in its bytes, or as a message."""
    opcode, sent = (1 if format == "json" else 2), b""
    for _ in range(random_.choice((0, 0, 1, 3))):
        sent += client_frame(opcode, ms.encode_message(random_.choice(MESSAGES[:13]), format))
    data = ms.encode_message(random_.choice(MESSAGES), format)
    match random_.randrange(4):
        case 0:
            return sent + mutate(client_frame(opcode, data), random_)
        case 1:
            cut = random_.randrange(len(data))
            both = client_frame(opcode, data[:cut], fin=False) + client_frame(0, data[cut:])
            return sent + mutate(both, random_)
        case 2:
            return sent + client_frame(random_.choice((0, 1, 2, 3, 8, 9, 10, 15)), mutate(data, random_)[:60_000])
    return sent + client_frame(opcode, mutate(data, random_))


def handshake(port: int) -> bytes:
    key = base64.b64encode(os.urandom(16)).decode()
    return (
        f"GET /v1/ws HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        f"Sec-WebSocket-Key: {key}\r\nSec-WebSocket-Version: 13\r\n\r\n"
    ).encode()


def attack(server: ServerProcess, random_: random.Random) -> None:
    """Connect, send mutated frames, and read whatever comes until the server has closed."""
    with socket.create_connection(("127.0.0.1", server.port), timeout=PATIENCE) as peer:
        try:
            request, kind = handshake(server.port), random_.randrange(10)
            if kind == 0:  # the handshake itself
                peer.sendall(mutate(request, random_))
                peer.shutdown(socket.SHUT_WR)
            else:
                peer.sendall(request)
                head = b""
                while b"\r\n\r\n" not in head:
                    head += peer.recv(4096)
                format: ms.Format = random_.choice(("json", "msgpack"))
                hello = ms.encode_message(ms.Hello(token=server.token, publisher="loader"), format)
                opening = client_frame(1 if format == "json" else 2, hello)
                if kind == 1:  # before the hello is said
                    opening = mutate(opening, random_)
                peer.sendall(opening + mutated_frames(random_, format))
                peer.shutdown(socket.SHUT_WR)
            while peer.recv(65536):
                pass
        except ConnectionError:
            pass  # the server may close while we still send


def test_mutated_frames_touch_nothing_else(server: ServerProcess) -> None:
    random_ = random.Random(16)
    with TestClient(server) as other:  # type: ignore[arg-type]  # it has an address and a token
        other.subscribe("safe")
        other.follow()
        memory = 0
        for number in range(COUNT):
            attack(server, random_)
            if number % 100 == 0:
                server.insert(number)
                other.follow_until(lambda number=number: (number,) in other.rows[1][0])  # type: ignore[misc]
            if number == COUNT // 3:
                memory = server.memory
        assert server.memory < memory + GROWTH
        closes = server.metric("whence_closes_total")
        assert '{code="1011"}' not in closes, "no error of the server itself"
        assert {'{code="1002"}', '{code="1007"}', '{code="1009"}'} <= closes.keys()
        assert server.metric("whence_connections") == {"": 1}
        assert server.metric("whence_subscriptions") == {"": 1}
