"""WebSocket connections: an asyncio protocol that uvicorn hands upgraded connections to (`/v1/ws`).

Frames are read by the sans-I/O protocol of `websockets`; those that are sent are encoded already, and shared by all who
get them (`frames.py`). A connection is callbacks only: it has no task, no queue and no timer, so that thousands of idle
ones cost little. One sweep of the server pings them, and closes those that break a deadline (`gateway.py`).

The law: whatever a client sends, its own connection is the only thing that it can end. A connection holds at most one
message that the socket has not taken, besides answers to what the client sent; when those are many, no more is read.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections import deque
from typing import TYPE_CHECKING, Any, cast

from websockets.frames import Frame, Opcode
from websockets.http11 import Request
from websockets.server import ServerProtocol

from whence.server.delivery.frames import PING, Kind, close_frame
from whence.server.sockets.session import ClientSession

if TYPE_CHECKING:
    from whence.server.delivery.subscriber import Subscriber
    from whence.server.sockets.gateway import Gateway

log = logging.getLogger("whence.server")
PATH = "/v1/ws"
SLICE = 64 << 10
"""Bytes of a large message that are given to the transport at a time."""

READ_AT_ONCE = 64 << 10
"""Bytes that are read before others have their turn."""

MOST_FRAGMENTS = 1024
"""Frames that one message may come in."""

MOST_WAITING = 256 << 10
"""Bytes of answers that may wait for a client that does not read, before no more is read from it."""

_FRAMES = logging.getLogger("whence.server.delivery.frames")
_FRAMES.setLevel(logging.WARNING)  # the protocol's own lines on each connection say less than ours


class WebSocketConnection(asyncio.Protocol):
    """One connection of a client."""

    __slots__ = (
        "_connections",
        "_fragments",
        "_gateway",
        "_paused",
        "_protocol",
        "_text",
        "_waiting",
        "_waiting_bytes",
        "blocked",
        "closing_since",
        "heard",
        "kind",
        "pinged",
        "session",
        "transport",
    )

    def __init__(self, gateway: Gateway, connections: set[Any]) -> None:
        """`connections` are those that uvicorn closes when it stops."""
        self._gateway, self._connections = gateway, connections
        self._protocol: ServerProtocol | None = ServerProtocol(max_size=gateway.limits.message_bytes, logger=_FRAMES)
        self._fragments: list[bytes] | None = None
        self._text = False  # of the message that is coming in fragments
        self._paused = False  # the transport takes no more
        self._waiting: deque[bytes | memoryview] | None = None  # frames for when it does
        self._waiting_bytes = 0
        self.kind: Kind = "json"  # of its frames
        self.blocked = False  # whether what is sent would have to wait
        self.closing_since: float | None = None
        self.heard = self.pinged = 0.0
        self.session: ClientSession | None = None
        self.transport: asyncio.Transport

    # -- from the transport ------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin; uvicorn gives the request next."""
        self.transport = cast(asyncio.Transport, transport)
        self.transport.set_write_buffer_limits(high=1, low=0)  # say at once that a client is slow
        if hasattr(self.transport, "max_size"):
            self.transport.max_size = READ_AT_ONCE
        self._connections.add(self)
        self.heard = self.pinged = self._gateway.now()

    def connection_lost(self, exc: Exception | None) -> None:
        """End whatever the client had begun."""
        self._connections.discard(self)
        self._gateway.connections.discard(self)
        if self.closing_since is None:
            self._gateway.count_close(1006)
            self._end()

    def pause_writing(self) -> None:
        """Note that the client does not keep up."""
        self._paused = self.blocked = True

    def resume_writing(self) -> None:
        """Go on with what waits, and then with what the client follows."""
        self._paused = False
        waiting = self._waiting
        while waiting and not self._paused:
            piece = waiting.popleft()
            if len(piece) > SLICE:
                view = memoryview(piece)
                waiting.appendleft(view[SLICE:])
                piece = view[:SLICE]
            self._waiting_bytes -= len(piece)
            self.transport.write(piece)
        if not self._paused:
            self._waiting, self.blocked = None, False
            if self.session is not None:
                self.session.drained()

    def data_received(self, data: bytes) -> None:
        """Read what the client sends."""
        if self._protocol is None:
            return  # closing: what still comes is thrown away
        try:
            self._read(self._protocol, data)
        except Exception:
            log.exception("%s failed", self.session or "a connection")
            if self.session is not None:
                self.close(1011, "an error of the server")
            else:
                self.transport.abort()

    def _read(self, protocol: ServerProtocol, data: bytes) -> None:
        self.heard = self._gateway.now()
        protocol.receive_data(data)
        for event in protocol.events_received():
            if isinstance(event, Request):
                self._handshake(event, protocol)
            elif isinstance(event, Frame):
                self._receive(event)
            if self.closing_since is not None:
                return
        written = b"".join(protocol.data_to_send())
        if protocol.close_rcvd is not None or protocol.handshake_exc is not None:
            self._finish(protocol.close_rcvd.code if protocol.close_rcvd else None, written)
        elif protocol.parser_exc is not None:
            sent = protocol.close_sent
            self.close(sent.code if sent else 1002, sent.reason if sent else "")
        elif written:
            self.send(written)  # the answers to pings
        if self.blocked and self.session is not None:
            self.session.hold_if_behind()

    def eof_received(self) -> None:
        """Close, since a client that sends no more follows nothing either."""

    # -- the handshake -----------------------------------------------------------------------------------------------

    def _handshake(self, request: Request, protocol: ServerProtocol) -> None:
        gateway, headers = self._gateway, request.headers
        path = request.path.partition("?")[0]
        refused = None
        try:
            host, origin, given = headers.get("Host"), headers.get("Origin"), headers.get("Authorization")
        except LookupError:
            host = origin = given = None
            refused = 400, "a header is there twice"
        if refused is None and path != PATH:
            refused = 404, f"there is nothing here: WebSocket connections are made to {PATH}"
        refused = refused or gateway.refusal(host, origin)
        response = protocol.accept(request) if refused is None else protocol.reject(*refused)
        protocol.send_response(response)
        written = b"".join(protocol.data_to_send())
        if response.status_code != 101:
            gateway.metrics.refused += 1
            log.info("connection refused: %d %s", response.status_code, refused[1] if refused else "no handshake")
            self._finish(None, written)
            return
        self.transport.write(written)
        sock = self.transport.get_extra_info("socket")
        if sock is not None and sock.family in (socket.AF_INET, socket.AF_INET6):
            # The system takes twice of what is asked for, and counts its own overhead in it.
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, gateway.limits.send_bytes // 2)
        peer = self.transport.get_extra_info("peername")
        token = given[7:].strip() if given is not None and given[:7].lower() == "bearer " else None
        self.session = ClientSession(gateway, self, f"{peer[0]}:{peer[1]}" if peer else "a local socket", token)
        gateway.connections.add(self)

    # -- messages ----------------------------------------------------------------------------------------------------

    def _receive(self, event: Frame) -> None:
        opcode, data = event.opcode, event.data
        if opcode is Opcode.TEXT or opcode is Opcode.BINARY:
            self._text = opcode is Opcode.TEXT
            if not event.fin:
                self._fragments = [bytes(data)]
                return
        elif opcode is Opcode.CONT:
            assert self._fragments is not None  # or the protocol would have refused it
            self._fragments.append(bytes(data))
            if not event.fin:
                if len(self._fragments) > MOST_FRAGMENTS:
                    self.close(1008, f"a message in more than {MOST_FRAGMENTS:,} frames")
                return
            data, self._fragments = b"".join(self._fragments), None
        elif opcode is Opcode.PING and self.session is not None:
            self.session.count_message()
            return
        else:
            return
        if self.session is not None:
            self.session.receive(bytes(data), self._text)

    def send(self, frames: bytes) -> None:
        """Send one or more whole frames: now, or as the client takes them."""
        if self.closing_since is not None:
            return
        self._gateway.metrics.bytes_out += len(frames)
        if not self.blocked and len(frames) <= SLICE:
            self.transport.write(frames)
            return
        if self._waiting is None:
            self._waiting = deque()
        self._waiting.append(frames)
        self._waiting_bytes += len(frames)
        if not self.blocked:
            self.blocked = True
            self.resume_writing()

    def ping(self, now: float) -> None:
        """Ask the client for a sign of life."""
        self.pinged = now
        if not self.blocked:
            self.send(PING)

    def drop(self, subscriber: Subscriber) -> None:
        """Note that a subscription has ended by itself."""
        if self.session is not None:
            self.session.drop(subscriber)

    @property
    def is_clogged(self) -> bool:
        """Whether so much waits for the client that no more is to be read from it."""
        return self._waiting_bytes + self.transport.get_write_buffer_size() > MOST_WAITING

    def pause_reading(self) -> None:
        """Read no more for now."""
        if not self.transport.is_closing():
            self.transport.pause_reading()

    def resume_reading(self) -> None:
        """Read on."""
        if not self.transport.is_closing():
            self.transport.resume_reading()

    # -- the end -----------------------------------------------------------------------------------------------------

    def close(self, code: int, reason: str) -> None:
        """Close the connection; the client is told the code and the reason, and what it sends is no longer read."""
        if self.closing_since is not None:
            return
        transport, waiting = self.transport, self._waiting
        in_a_frame = waiting is not None and len(waiting) > 0 and isinstance(waiting[0], memoryview)
        reason = "".join(letter if letter.isprintable() else " " for letter in reason)
        if code not in (1000, 1001):
            log.info("%s closed: %d %s", self.session or "a connection", code, reason)
        self._gateway.count_close(code)
        self._end()
        if in_a_frame:  # which cannot be ended: the client sees that the connection is lost
            transport.abort()
            return
        transport.write(close_frame(code, reason))
        # The client closes its side when it has read this. Closing ours now could make the system throw away what the
        # client has not read yet; the sweep does it when the client takes too long.
        transport.resume_reading()
        if transport.can_write_eof():
            transport.write_eof()
        else:
            transport.close()

    def _finish(self, code: int | None, written: bytes) -> None:
        """Close after the client did, or without a connection having come about."""
        if code is not None:
            self._gateway.count_close(code)
        self._end()
        self.transport.write(written)
        self.transport.close()

    def _end(self) -> None:
        self.closing_since = self._gateway.now()
        self._protocol, self._waiting, self._fragments, self.blocked = None, None, None, True
        if self.session is not None:
            self.session.end()
            self.session = None

    def abort(self) -> None:
        """Drop the connection."""
        self.transport.abort()

    def shutdown(self) -> None:
        """Close the connection as the server stops; uvicorn calls it."""
        if self.closing_since is None:
            self.close(1001, "the server stops")
        else:
            self.transport.close()
