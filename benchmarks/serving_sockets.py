"""Clients that only receive: raw sockets by the thousand in one process, which count messages and bytes.

A client library decodes what it gets, and a thousand of them in one process would be measured instead of the server.
These clients open a connection as the protocol demands, subscribe, and from then on find where each message ends, no
more. The last message of each is kept, so that a run can check that all of them have got to the end (`reflected`).

| protocol | a message is |
|---|---|
| `WebSocketFrames` | a data frame; pings are answered |
| `NatsMessages` | a `MSG`; pings are answered |
| `PostgresAnswers` | the answer to a query; a notification makes the client query again, once for all that have come |
"""

from __future__ import annotations

import base64
import json
import os
import select
import socket
import struct
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from benchmarks.serving_data import TRADE
from benchmarks.serving_processes import HOST, FailedError, Link, now

CHUNK = 1 << 18


class RawProtocol(ABC):
    """What a raw client has to know of a protocol. One object serves all clients: it has no state of its own."""

    @abstractmethod
    def opening(self) -> Sequence[tuple[bytes, bytes]]:
        """Return what to send when the connection is open, each with the bytes to wait for before the next one."""

    @abstractmethod
    def split(self, data: bytes) -> Iterator[Piece]:
        """Yield the whole messages at the beginning of `data`."""

    @abstractmethod
    def reflected(self, message: bytes) -> int:
        """Return the number of the last trade that a message reflects; -1 if it does not say."""


class Piece(NamedTuple):
    """One message of a server."""

    end: int  # where the next one begins
    body: bytes | None = None  # what counts as a message, or None
    reply: bytes = b""  # what the protocol demands in return
    again: bool = False  # the client has to ask again, as soon as it has its answer


class NatsMessages(RawProtocol):
    """Core NATS, one subject."""

    def __init__(self, subject: str) -> None:
        self._subject = subject

    def opening(self) -> Sequence[tuple[bytes, bytes]]:
        options = json.dumps({"verbose": False, "pedantic": False, "headers": True, "no_responders": True})
        return [(b"", b"\r\n"), (f"CONNECT {options}\r\nSUB {self._subject} 1\r\nPING\r\n".encode(), b"PONG\r\n")]

    def split(self, data: bytes) -> Iterator[Piece]:
        at = 0
        while (line := data.find(b"\r\n", at)) >= 0:
            if data.startswith(b"MSG ", at):
                begin = line + 2
                end = begin + int(data[data.rindex(b" ", at, line) + 1 : line]) + 2
                if end > len(data):
                    return
                at = end
                yield Piece(at, data[begin : end - 2])
            else:
                ping = data.startswith(b"PING", at)
                at = line + 2
                yield Piece(at, reply=b"PONG\r\n" if ping else b"")

    def reflected(self, message: bytes) -> int:
        return int(np.frombuffer(message[-TRADE.itemsize :], TRADE)["number"][0])


class WebSocketFrames(RawProtocol):
    """A WebSocket whose client sends text frames after the handshake, each of which is answered by a frame."""

    def __init__(self, path: str, headers: dict[str, str], texts: Sequence[tuple[str, bytes]], column: int) -> None:
        self._path, self._headers, self._texts, self._column = path, headers, texts, column

    def opening(self) -> Sequence[tuple[bytes, bytes]]:
        head = {
            "Host": HOST,
            "Upgrade": "websocket",
            "Connection": "Upgrade",
            "Sec-WebSocket-Version": "13",
            "Sec-WebSocket-Key": base64.b64encode(os.urandom(16)).decode(),
            **self._headers,
        }
        lines = [f"GET {self._path} HTTP/1.1", *(f"{name}: {value}" for name, value in head.items()), "", ""]
        return [
            ("\r\n".join(lines).encode(), b"\r\n\r\n"),
            *((frame(1, text.encode()), marker) for text, marker in self._texts),
        ]

    def split(self, data: bytes) -> Iterator[Piece]:
        at, whole = 0, len(data)
        while whole - at >= 2:
            kind, size, begin = data[at] & 15, data[at + 1] & 127, at + 2
            if size >= 126:
                wide = 2 if size == 126 else 8
                begin += wide
                if whole < begin:
                    return
                size = int.from_bytes(data[begin - wide : begin], "big")
            end = begin + size
            if end > whole:
                return
            at = end
            if kind < 8:
                yield Piece(end, data[begin:end])
            else:
                yield Piece(end, reply=frame(10, data[begin:end]) if kind == 9 else b"")

    def reflected(self, message: bytes) -> int:
        """Find the greatest value of a column among the rows that came with an update or a state."""
        told = json.loads(message)
        came = [part["came"] for part in told.get("parts") or [] if part and "came" in part]
        came += [told["columns"]] if told.get("columns") else []
        return max((int(value) for columns in came if columns for value in columns[self._column]), default=-1)


def frame(kind: int, body: bytes) -> bytes:
    """Return a frame of a client: masked, by a key of zeros, which leaves the body as it is."""
    size = len(body)
    if size < 126:
        head = struct.pack("!BB", 128 | kind, 128 | size)
    elif size < 1 << 16:
        head = struct.pack("!BBH", 128 | kind, 254, size)
    else:
        head = struct.pack("!BBQ", 128 | kind, 255, size)
    return head + b"\0\0\0\0" + body


class PostgresAnswers(RawProtocol):
    """PostgreSQL's protocol: LISTEN, and the view's query after each notification."""

    IDLE = b"Z\0\0\0\5I"

    def __init__(self, user: str, database: str, select: str) -> None:
        self._start = f"user\0{user}\0database\0{database}\0\0".encode()
        self.query = self._simple(select)

    @staticmethod
    def _simple(sql: str) -> bytes:
        return b"Q" + struct.pack("!i", len(sql.encode()) + 5) + sql.encode() + b"\0"

    def opening(self) -> Sequence[tuple[bytes, bytes]]:
        start = struct.pack("!ii", len(self._start) + 8, 196_608) + self._start
        return [(start, self.IDLE), (self._simple("LISTEN trade"), self.IDLE)]

    def split(self, data: bytes) -> Iterator[Piece]:
        at, whole, row = 0, len(data), None
        while whole - at >= 5:
            kind, end = data[at], at + 1 + int.from_bytes(data[at + 1 : at + 5], "big")
            if end > whole:
                return
            if kind == ord("D"):
                row = data[at:end]
            at = end
            if kind == ord("A"):
                yield Piece(end, again=True)
            elif kind == ord("Z"):
                yield Piece(end, body=row or b"")
                row = None

    def reflected(self, message: bytes) -> int:
        """Read the last column of a row: views are asked for in its order, so the last row has the greatest number."""
        return int(message[message.rindex(b"\0") + 2 :]) if message else -1


class _Connection:
    """A socket, what it has counted, and the bytes of a message that is not whole yet."""

    __slots__ = ("asking", "bytes", "last", "messages", "rest", "socket", "waiting")

    def __init__(self, one: socket.socket) -> None:
        self.socket = one
        self.messages = self.bytes = 0
        self.rest = self.last = b""
        self.asking = self.waiting = False


@dataclass(frozen=True)
class Counted:
    """What raw clients have received."""

    messages: int
    bytes: int
    at: float  # of the last message
    behind: int  # clients whose last message does not reflect the trade that was asked for
    closed: int  # clients whose connection the server has closed


def connect(port: int, protocol: RawProtocol, buffer: int | None = None) -> tuple[socket.socket, bytes]:
    """Open a connection and subscribe; return it, and what has come beyond the answers."""
    one = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    if buffer is not None:
        one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer)
    one.settimeout(60.0)
    one.connect((HOST, port))
    one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    heard = b""
    for step, (said, marker) in enumerate(protocol.opening()):
        if said:
            one.sendall(said)
        while (end := _end_of_answer(protocol, heard, marker, framed=step > 0)) < 0:
            more = one.recv(CHUNK)
            if not more:
                raise FailedError(f"the server closed a raw client's connection, after {heard[-500:]!r}")
            heard += more
        heard = heard[end:]
    return one, heard


def _end_of_answer(protocol: RawProtocol, heard: bytes, marker: bytes, framed: bool) -> int:
    """Return where the message that has the marker ends, or -1. The first answer need not be one of messages."""
    found = heard.find(marker)
    if found < 0 or not framed:
        return found if found < 0 else found + len(marker)
    return next((piece.end for piece in protocol.split(heard) if piece.end > found), -1)


class Receivers:
    """Many raw clients of one server."""

    def __init__(self, port: int, protocol: RawProtocol, clients: int) -> None:
        self._protocol = protocol
        self._query = protocol.query if isinstance(protocol, PostgresAnswers) else b""
        self._open: dict[int, _Connection] = {}
        self._poll = select.epoll()
        self._at = now()
        self._closed = 0
        for _ in range(clients):
            one, beyond = connect(port, protocol)
            one.setblocking(False)
            self._open[one.fileno()] = connection = _Connection(one)
            self._poll.register(one.fileno(), select.EPOLLIN)
            self._feed(connection, beyond)
        self._every = list(self._open.values())

    def watch(self, descriptor: int) -> None:
        """Let `receive` return when another descriptor can be read."""
        self._poll.register(descriptor, select.EPOLLIN)

    def receive(self, timeout: float) -> None:
        """Read what has come, once."""
        for descriptor, _ in self._poll.poll(timeout, 1024):
            connection = self._open.get(descriptor)
            if connection is not None:
                self._read(descriptor, connection)

    def _read(self, descriptor: int, connection: _Connection) -> None:
        try:
            data = connection.socket.recv(CHUNK)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self._closed += 1
            del self._open[descriptor]
            self._poll.unregister(descriptor)
            return
        self._feed(connection, data)

    def _feed(self, connection: _Connection, data: bytes) -> None:
        connection.bytes += len(data)
        data = connection.rest + data if connection.rest else data
        end = 0
        for piece in self._protocol.split(data):
            end, body, reply, again = piece
            if body is not None:
                connection.messages += 1
                connection.last = body
                connection.asking = False
            if again:
                connection.waiting = True
            if reply:
                connection.socket.sendall(reply)
        connection.rest = data[end:]
        if connection.waiting and not connection.asking:
            connection.waiting, connection.asking = False, True
            connection.socket.sendall(self._query)
        self._at = now()

    def count(self, number: int) -> Counted:
        """Return what has been received; `number` is the trade that every client should have got to."""
        reached = [one.messages > 0 and self._protocol.reflected(one.last) >= number for one in self._every]
        return Counted(
            messages=sum(one.messages for one in self._every),
            bytes=sum(one.bytes for one in self._every),
            at=self._at,
            behind=len(reached) - sum(reached),
            closed=self._closed,
        )

    def close(self) -> None:
        """Close all connections."""
        for one in self._every:
            one.socket.close()
        self._poll.close()


def receive(link: Link, port: int, protocol: RawProtocol, clients: int) -> None:
    """Hold many raw clients; asked for a trade's number, say what they have received (`Counted`); None ends it."""
    receivers = Receivers(port, protocol, clients)
    receivers.watch(link.fileno())
    link.ready()
    while True:
        receivers.receive(1.0)
        if link.asked():
            number = link.wait()
            if number is None:
                receivers.close()
                return
            link.ready(receivers.count(number))


def stall(link: Link, port: int, protocol: RawProtocol) -> str:
    """Subscribe and read nothing until told to; then say whether the client gets to a trade, or was cut off."""
    one, rest = connect(port, protocol, buffer=4_096)
    link.ready()
    number = link.wait()
    query = protocol.query if isinstance(protocol, PostgresAnswers) else b""
    one.settimeout(10.0)
    one.sendall(query)
    try:
        while data := one.recv(CHUNK):
            rest, end, last = rest + data, 0, b""
            for piece in protocol.split(rest):
                end, body, reply, again = piece
                last = body or last
                if reply:
                    one.sendall(reply)
                if again:
                    one.sendall(query)
            rest = rest[end:]
            if last and protocol.reflected(last) >= number:
                return "current"
    except TimeoutError:
        return "behind"
    except OSError:
        return "cut off"
    return "cut off"
