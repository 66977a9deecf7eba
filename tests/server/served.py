"""A real server for tests, uvicorn in a thread, and a client that speaks the protocol message by message."""

from __future__ import annotations

import asyncio
import base64
import os
import socket
import struct
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import Any, Self

import pyarrow as pa
from websockets.exceptions import ConnectionClosed, ConnectionClosedError
from websockets.sync.client import ClientConnection, connect

from whence.runtime.database import Database
from whence.server.app import serve
from whence.server.sockets.gateway import Gateway
from whence.server.web.formats import plain_rows
from whence.subscribe import messages as ms

PATIENCE = 60.0
"""Seconds after which a test that waits has failed."""


class ServedDatabase:
    """A database that is served."""

    def __init__(self, db: Database, **options: Any) -> None:
        self.db = db
        self._server = serve(db, port=0, **options)
        self.gateway: Gateway = self._server._gateway
        self.registry = self._server._registry
        self.address = self._server.url
        self.port = int(self.address.rpartition(":")[2])
        self.url = f"{self.address.replace('http', 'ws')}/v1/ws"
        self.token = self._server.token or ""

    def close(self) -> None:
        self._server.close()

    def call(self, function: Callable[[], Any]) -> Any:
        """Call something in the event loop."""

        async def run() -> Any:
            return function()

        return asyncio.run_coroutine_threadsafe(run(), self.gateway.delivery.loop).result(PATIENCE)


@contextmanager
def served(db: Database, **options: Any) -> Iterator[ServedDatabase]:
    """Serve a database, with options of `whence.serve`."""
    server = ServedDatabase(db, **options)
    try:
        yield server
    finally:
        server.close()


def wait_until(condition: Callable[[], Any]) -> Any:
    """Wait until something is so."""
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        if found := condition():
            return found
        time.sleep(0.005)
    raise AssertionError("it did not come about in time")


class RawSocket:
    """A WebSocket connection without a library: it sends what it is given, and reads when it is asked to."""

    def __init__(self, port: int, receive_buffer: int | None = 4096, headers: str = "", path: str = "/v1/ws") -> None:
        self.socket = socket.socket()
        if receive_buffer is not None:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        self.socket.settimeout(PATIENCE)
        self.socket.connect(("127.0.0.1", port))
        self._read = b""
        self.close_code: int | None = None
        self.close_reason = ""
        key = base64.b64encode(os.urandom(16)).decode()
        host = "" if "Host:" in headers else f"Host: 127.0.0.1:{port}\r\n"
        request = f"GET {path} HTTP/1.1\r\n{host}Upgrade: websocket\r\nConnection: Upgrade\r\n"
        request += f"Sec-WebSocket-Key: {key}\r\nSec-WebSocket-Version: 13\r\n{headers}\r\n"
        self.socket.sendall(request.encode())
        while b"\r\n\r\n" not in self._read:
            self._more()
        head, _, self._read = self._read.partition(b"\r\n\r\n")
        self.status = int(head.split()[1])

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self.socket.close()

    def send(self, data: str | bytes) -> None:
        """Send a message."""
        self.send_frame(0x1 if isinstance(data, str) else 0x2, data.encode() if isinstance(data, str) else data)

    def send_frame(self, opcode: int, data: bytes, *, fin: bool = True) -> None:
        self.socket.sendall(client_frame(opcode, data, fin=fin))

    def recv(self, timeout: float = PATIENCE) -> str | bytes:
        """Return the next message; ConnectionClosedError if there is none any more."""
        while True:
            opcode, data = self._frame()
            if opcode in (1, 2):
                return data.decode() if opcode == 1 else data
            if opcode == 8:
                self.close_code, self.close_reason = struct.unpack("!H", data[:2])[0], data[2:].decode()
                raise ConnectionClosedError(None, None)

    def _frame(self) -> tuple[int, bytes]:
        self._need(2)
        start, length = 2, self._read[1] & 127
        if length >= 126:
            start = 4 if length == 126 else 10
            self._need(start)
            length = int.from_bytes(self._read[2:start], "big")
        self._need(start + length)  # nothing is taken before: whoever loses patience may ask again
        opcode, data = self._read[0] & 15, self._read[start : start + length]
        self._read = self._read[start + length :]
        return opcode, data

    def _need(self, size: int) -> None:
        while len(self._read) < size:
            self._more()

    def _more(self) -> None:
        data = self.socket.recv(1 << 16)
        if not data:
            raise ConnectionClosedError(None, None)
        self._read += data


def client_frame(opcode: int, data: bytes, *, fin: bool = True) -> bytes:
    """Return a frame as clients send it: masked, here by zeros."""
    head, size = (0x80 if fin else 0) | opcode, len(data)
    if size < 126:
        return struct.pack("!BB4x", head, 0x80 | size) + data
    if size < 65536:
        return struct.pack("!BBH4x", head, 0x80 | 126, size) + data
    return struct.pack("!BBQ4x", head, 0x80 | 127, size) + data


class TestClient:
    """A client that sends and receives single messages, and applies what it is told to its rows."""

    __test__ = False

    def __init__(
        self,
        server: ServedDatabase,
        format: ms.Format = "json",
        *,
        token: str | None = None,
        hello: bool = True,
        raw: bool = False,
    ) -> None:
        """With `raw` nothing is read before it is asked for."""
        self.format = format
        self._stack = ExitStack()
        self.socket: ClientConnection | RawSocket = self._stack.enter_context(
            RawSocket(server.port)
            if raw
            else connect(server.url, compression=None, max_size=None, ping_interval=None, close_timeout=0.5)
        )
        self.rows: dict[int, list[list[tuple[Any, ...]]]] = {}
        self.at: dict[int, str] = {}
        self._coming: dict[int, list[list[tuple[Any, ...]]]] = {}
        self._columns: dict[int, list[Any]] = {}
        self.told: list[Any] = []
        if hello:
            self.send(ms.Hello(token=server.token if token is None else token))
            self.welcome = self.receive(ms.Welcome)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def send(self, message: Any) -> None:
        data = ms.encode_message(message, self.format)
        self.socket.send(data.decode() if self.format == "json" else data)

    def receive(self, kind: Any = None) -> Any:
        """Return the next message, which is of a kind; without one, passing over reports of progress."""
        while True:
            message = ms.decode_down(self.socket.recv(timeout=PATIENCE), self.format)
            if kind is ms.ProgressMessage or not isinstance(message, ms.ProgressMessage):
                break
        assert kind is None or isinstance(message, kind), message
        return message

    def follow(self, id: int = 1) -> Any:
        """Return the next message about a subscription, after applying it."""
        message = self.receive()
        assert message.id == id, message
        self.apply(message)
        self.told.append(message)
        return message

    def follow_until(self, condition: Callable[[], Any], id: int = 1) -> list[Any]:
        """Apply messages until something is so; return them."""
        found = []
        while not condition():
            found.append(self.follow(id))
        return found

    def apply(self, message: Any) -> None:
        """Do to our rows what a message says."""
        match message:
            case ms.Subscribed():
                self._columns[message.id] = message.parts
            case ms.State():
                if message.first:
                    self._coming[message.id] = [[] for _ in self._columns[message.id]]
                self._coming[message.id][message.part] += self._rows(message.id, message.part, message)
                if message.last:
                    self.rows[message.id] = self._coming.pop(message.id)
                    self.at[message.id] = message.at
            case ms.UpdateMessage():
                assert message.since == self.at[message.id], (message, self.at)
                for part, change in enumerate(message.parts):
                    if change is None:
                        continue
                    for row in _tuples(change.went):
                        self.rows[message.id][part].remove(row)
                    self.rows[message.id][part] += _tuples(change.came)
                self.at[message.id] = message.at

    def _rows(self, id: int, part: int, message: ms.State) -> list[tuple[Any, ...]]:
        if message.arrow is not None:
            return [tuple(row) for row in plain_rows(pa.ipc.open_stream(message.arrow).read_all())]
        return _tuples(message.columns)

    def subscribe(self, *queries: str, id: int = 1, **options: Any) -> Any:
        """Subscribe, and return the answer."""
        self.send(ms.Subscribe(id, list(queries), **options))
        message = self.receive()
        self.apply(message)
        return message

    def close_code(self) -> tuple[int, str]:
        """Return with what code and reason the server closes the connection, passing over messages."""
        with suppress(ConnectionClosed):
            while True:
                self.socket.recv(timeout=PATIENCE)
        return self.socket.close_code or 0, self.socket.close_reason or ""


def _tuples(columns: list[list[Any]] | None) -> list[tuple[Any, ...]]:
    return [] if columns is None else list(zip(*columns, strict=True))
