"""Connections between driver and tasks, and between tasks: first both sides prove that they know a secret.

    greeting    server: 16 random bytes; client: 16 of its own and a proof; server: a proof of its own
    frame       <length> a seal of 32 bytes, the body

A proof is an HMAC of both sides' random bytes under a secret that workers get with their task and that never travels
here. Whoever cannot give it loses the connection and nothing more. The dictionary's conversation goes on in messages of
its own (`dictionary_server.py`). Others go on in frames: their seals are HMACs under a key of this one connection, over
the number and the direction of the frame and its body. A body is unpickled only under a right seal, so what somebody
else writes into the connection ends it before it is looked at.
"""

from __future__ import annotations

import contextlib
import hmac
import pickle
import secrets
import socket
import struct
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

_LENGTH = struct.Struct("<Q")
_NONCE, _PROOF = 16, 32
_AT_ONCE = 1 << 20  # bytes
GREETING_PATIENCE = 10.0  # seconds
_KEEPALIVE = {
    "TCP_KEEPIDLE": 30,
    "TCP_KEEPINTVL": 10,
    "TCP_KEEPCNT": 3,
}  # notice a lost machine in a minute


@dataclass(frozen=True)
class Address:
    """Where somebody listens; goes to the workers with their tasks."""

    host: str
    port: int
    secret: str = field(repr=False)


class StrangerError(ValueError):
    """The other side does not know the secret, or somebody has written into the connection."""


class FrameConnection:
    """A connection that has been greeted, and carries frames. One thread may send while another receives."""

    def __init__(self, connection: socket.socket, key: bytes, is_server: bool):
        self._socket, self._key = connection, key
        self._sending, self._receiving = (b"s", b"c") if is_server else (b"c", b"s")
        self._sent = self._received = 0

    @property
    def own_host(self) -> str:
        """The address of this machine on the way to the other side."""
        return str(self._socket.getsockname()[0])

    def wait_at_most(self, seconds: float | None) -> None:
        """Let sending and receiving fail after so long without a byte."""
        self._socket.settimeout(seconds)

    def send(self, what: object) -> None:
        body = pickle.dumps(what, protocol=5)
        seal = self._seal(self._sending, self._sent, body)
        self._sent += 1
        head = _LENGTH.pack(len(body)) + seal
        if len(body) < _AT_ONCE:
            self._socket.sendall(head + body)
        else:
            self._socket.sendall(head)
            self._socket.sendall(body)

    def receive(self) -> Any:
        """Return what the other side sends next; ConnectionError if it has hung up."""
        head = receive_exactly(self._socket, _LENGTH.size + _PROOF)
        (length,) = _LENGTH.unpack_from(head)
        body = receive_exactly(self._socket, length)
        if not hmac.compare_digest(head[_LENGTH.size :], self._seal(self._receiving, self._received, body)):
            raise StrangerError("a frame with a wrong seal")
        self._received += 1
        return pickle.loads(body)

    def _seal(self, direction: bytes, number: int, body: bytes) -> bytes:
        seal = hmac.new(self._key, direction + _LENGTH.pack(number), "sha256")
        seal.update(body)
        return seal.digest()

    def close(self) -> None:
        """Hang up; wakes whoever receives."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()

    def __enter__(self) -> FrameConnection:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def connect(address: Address, client: bytes, server: bytes) -> tuple[socket.socket, bytes]:
    """Return a connection on which both sides have proved to be what they say, and a key for its frames."""
    connection = socket.create_connection((address.host, address.port), GREETING_PATIENCE)
    try:
        set_up(connection)
        theirs, ours = receive_exactly(connection, _NONCE), secrets.token_bytes(_NONCE)
        connection.sendall(ours + _proof(address.secret, client, theirs + ours))
        if not hmac.compare_digest(receive_exactly(connection, _PROOF), _proof(address.secret, server, theirs + ours)):
            raise ConnectionError("somebody else listens there")
    except BaseException:
        connection.close()
        raise
    return connection, _proof(address.secret, b"frames", theirs + ours)


def connect_for_frames(address: Address, client: bytes, server: bytes) -> FrameConnection:
    """Return a connection that carries frames."""
    return FrameConnection(*connect(address, client, server), is_server=False)


def greet(connection: socket.socket, expected: Iterable[tuple[str, bytes, bytes]]) -> tuple[int, bytes]:
    """Let a client prove itself, as one of some (secret, what it is, what this side is to it); return the place of that
    one, and a key for the frames of this connection. StrangerError if it is none of them."""
    set_up(connection)
    connection.settimeout(GREETING_PATIENCE)
    ours = secrets.token_bytes(_NONCE)
    connection.sendall(ours)
    answer = receive_exactly(connection, _NONCE + _PROOF)
    theirs, proof = bytes(answer[:_NONCE]), answer[_NONCE:]
    for place, (secret, client, server) in enumerate(expected):
        if hmac.compare_digest(proof, _proof(secret, client, ours + theirs)):
            connection.sendall(_proof(secret, server, ours + theirs))
            return place, _proof(secret, b"frames", ours + theirs)
    raise StrangerError("a wrong secret")


def set_up(connection: socket.socket) -> None:
    """Send small messages at once, and notice a machine that is gone."""
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in _KEEPALIVE.items():
        if hasattr(socket, name):  # not on every system
            connection.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)


def receive_exactly(connection: socket.socket, size: int) -> bytes:
    """Return so many bytes; takes memory as they come, not as they are announced."""
    parts = []
    while size:
        part = connection.recv(min(size, _AT_ONCE))
        if not part:
            raise ConnectionError("the connection was closed")
        parts.append(part)
        size -= len(part)
    return parts[0] if len(parts) == 1 else b"".join(parts)


def _proof(secret: str, role: bytes, nonces: bytes) -> bytes:
    return hmac.digest(secret.encode(), role + nonces, "sha256")
