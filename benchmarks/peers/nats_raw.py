"""JetStream without a client library, as fast as Python can: filling a stream, and reading it from its beginning.

nats-py takes some 20 µs for a message, which would make minutes of nine million. Here messages are cut out of whole
buffers by a regular expression, and acknowledgements are counted, not read. It is the fairest peer for a client that
has been away: what remains is what the server takes.
"""

from __future__ import annotations

import json
import re
import socket
from collections.abc import Iterator

from benchmarks.peers.nats_peer import EVERY, STREAM_NAME
from benchmarks.serving_data import TRADE, Market, Trades
from benchmarks.serving_processes import HOST, FailedError, now

WINDOW = 4_096  # messages that may wait for their acknowledgement: JetStream drops what exceeds its queue
CHUNK = 1 << 20
_OPTIONS = json.dumps({"verbose": False, "pedantic": False, "headers": True, "no_responders": True})
_SIZE = TRADE.itemsize
_MESSAGE = re.compile(rb"MSG \S+ \d+ \S+ %d\r\n(.{%d})\r\n" % (_SIZE, _SIZE), re.DOTALL)


def _open(port: int) -> socket.socket:
    one = socket.create_connection((HOST, port), timeout=120.0)
    one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    one.sendall(f"CONNECT {_OPTIONS}\r\nPING\r\n".encode())
    heard = b""
    while b"PONG\r\n" not in heard:
        heard += one.recv(CHUNK)
    return one


def fill_stream(port: int, market: Market, first: int, count: int) -> float:
    """Publish each trade as a message of its issue's subject, all acknowledged; return the seconds."""
    begin = now()
    with _open(port) as one:
        one.sendall(b"SUB acks 1\r\n")
        owed = 0
        rest = b""
        for batch in market.batches(first, count, WINDOW // 2):
            one.sendall(_publications(batch))
            owed += len(batch)
            while owed > WINDOW // 2:
                owed, rest = _take_acknowledgements(one, owed, rest)
        while owed:
            owed, rest = _take_acknowledgements(one, owed, rest)
    return now() - begin


def _publications(trades: Trades) -> bytes:
    body = trades.tobytes()
    parts = []
    for place, issue in enumerate(trades["issue"].tolist()):
        parts.append(b"PUB trade.%d acks %d\r\n%b\r\n" % (issue, _SIZE, body[place * _SIZE : (place + 1) * _SIZE]))
    return b"".join(parts)


def _take_acknowledgements(one: socket.socket, owed: int, rest: bytes) -> tuple[int, bytes]:
    data = rest + one.recv(CHUNK)
    if not data:
        raise FailedError("the server closed the connection while its stream was filled")
    if b'"error"' in data:
        raise FailedError(f"JetStream refused a message: {data[:300]!r}")
    if b"PING\r\n" in data:
        one.sendall(b"PONG\r\n")
    end = data.rfind(b"}\r\n") + 3  # an acknowledgement is JSON, so it ends like this
    if end < 3:
        return owed, data
    return owed - data.count(b"}\r\n"), data[end:]


class Replay:
    """A consumer of all messages after a sequence number; iterate over their trades, as they come."""

    def __init__(self, port: int, after: int, count: int) -> None:
        self._port, self._after, self._count = port, after, count
        self.bytes = 0
        self.messages = 0

    def __iter__(self) -> Iterator[bytes]:
        config = {
            "deliver_subject": "replay",
            "deliver_policy": "by_start_sequence",
            "opt_start_seq": self._after + 1,
            "ack_policy": "none",
            "filter_subject": EVERY,
        }
        request = json.dumps({"stream_name": STREAM_NAME, "config": config}).encode()
        with _open(self._port) as one:
            create = f"PUB $JS.API.CONSUMER.CREATE.{STREAM_NAME} made {len(request)}\r\n".encode() + request + b"\r\n"
            one.sendall(b"SUB replay 1\r\nSUB made 2\r\n" + create)
            rest = b""
            while self.messages < self._count:
                data = one.recv(CHUNK)
                if not data:
                    raise FailedError(f"the server closed a replay after {self.messages:,} messages")
                self.bytes += len(data)
                data = rest + data
                end = 0
                found = []
                for match in _MESSAGE.finditer(data):
                    found.append(match.group(1))
                    end = match.end()
                if b"PING\r\n" in data[end:]:
                    one.sendall(b"PONG\r\n")
                rest = data[end:]
                self.messages += len(found)
                if found:
                    yield b"".join(found)
