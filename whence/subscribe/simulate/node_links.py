"""Connections of a simulation to a served database: messages of the wire over links that lose, repeat and reorder.

`NodeLink` is what a session of the server writes to, in place of a WebSocket; `BrokerLink` is what a broker's sources
read from. Saying hello is not subject to the faults of links: it either happens or the connection is not made.

The law (R): a server has at most `WINDOW` bytes and two messages under way to one client, however long it stalls. What
a client has not taken is under way, so one that stalls blocks its own link, and nothing is kept for it.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from whence.model.errors import DisconnectedError
from whence.runtime.sources.connection import Listener, ServerAddress
from whence.server.delivery.frames import payloads
from whence.server.sockets.session import ClientSession
from whence.subscribe import messages as ms
from whence.subscribe.simulate.oracle import SimulationError

if TYPE_CHECKING:
    from whence.server.delivery.subscriber import Subscriber
    from whence.subscribe.simulate.served_nodes import ServedNode

WINDOW = 600
"""Bytes under way to a client above which its link is blocked."""

LOST = 0.8
"""Seconds after which a message that has not arrived is under way no more."""

Receive = Callable[[Any], None]


class NodeLink:
    """One connection to a served database, both ends of it."""

    def __init__(
        self, node: ServedNode, peer: str, token: str | None, receive: Receive, lost: Callable[[str], None]
    ) -> None:
        """`receive` is given each message that arrives, `lost` why there will be no more. Connecting says hello."""
        self.node, self.peer, self._receive, self._lost = node, peer, receive, lost
        self.kind: Any = "msgpack"
        self.closing_since: float | None = None
        self.heard = self.pinged = node.time.now
        self.stalled_until = 0.0
        self._under_way = self._largest = 0
        self._greetings: list[Any] | None = []
        self.is_lost = False
        gateway = node.gateway
        self.session: ClientSession | None = ClientSession(gateway, self, peer, None)  # type: ignore[arg-type]  # as much of a connection as it uses
        gateway.connections.add(self)  # type: ignore[arg-type]
        self.session.receive(ms.encode_message(ms.Hello(token=token, publisher=peer), "msgpack"), False)
        greetings, self._greetings = self._greetings, None
        self.greeting: ms.Welcome | None = next((one for one in greetings or [] if isinstance(one, ms.Welcome)), None)

    # -- what the server does ----------------------------------------------------------------------------------------

    @property
    def blocked(self) -> bool:
        """Whether what is sent would have to wait."""
        return self._under_way > WINDOW or self.is_lost

    @property
    def is_clogged(self) -> bool:
        """Whether so much waits for the client that no more is to be read from it."""
        return self.blocked

    def send(self, frames: bytes) -> None:
        """Send whole frames down."""
        if self.is_lost:
            return
        for data in payloads(frames):
            if self._greetings is not None:
                self._greetings.append(ms.decode_down(data, "msgpack"))
                continue
            self.node.note_sent(self, data)
            self._under_way += len(data)
            self._largest = max(self._largest, len(data))
            if self._under_way > WINDOW + 2 * self._largest:
                raise SimulationError(
                    "R", f"{self._under_way} bytes are under way from {self.node.name} to {self.peer}"
                )
            arrived = [False]
            self.node.network.send(self.node.name, self.peer, (self._arrive_down, data, arrived))
            self.node.time.after(LOST, partial(self._take_off, len(data), arrived))

    def drop(self, subscriber: Subscriber) -> None:
        """Note that a subscription has ended by itself."""
        if self.session is not None:
            self.session.drop(subscriber)

    def close(self, code: int, reason: str) -> None:
        """Close the connection."""
        self.lose(f"{code} {reason}")

    def abort(self) -> None:
        """Drop the connection."""
        self.lose("the server dropped it")

    def ping(self, now: float) -> None:
        """Everyone is alive who is connected."""
        self.heard = self.pinged = now

    def pause_reading(self) -> None:
        """What arrives is read in any case."""

    def resume_reading(self) -> None:
        """Read on."""

    # -- arrivals ----------------------------------------------------------------------------------------------------

    def _arrive_down(self, data: bytes, arrived: list[bool]) -> None:
        now = self.node.time.now
        if self.stalled_until > now:
            self.node.time.at(self.stalled_until, lambda: self._arrive_down(data, arrived))
            return
        self._take_off(len(data), arrived)
        if not self.is_lost:
            self._receive(ms.decode_down(data, "msgpack"))

    def _take_off(self, size: int, arrived: list[bool]) -> None:
        """Note that a message is not under way any more: it has arrived, or is lost."""
        if arrived[0] or self.is_lost:
            return
        if self.stalled_until > self.node.time.now:
            self.node.time.at(self.stalled_until, lambda: self._take_off(size, arrived))
            return
        arrived[0], was_blocked = True, self.blocked
        self._under_way -= size
        if was_blocked and not self.blocked and self.session is not None:
            self.node.loop.call_soon(self._drained)

    def _drained(self) -> None:
        if self.session is not None:
            self.session.drained()

    def send_up(self, message: Any) -> None:
        """Send a message to the server."""
        if not self.is_lost:
            data = ms.encode_message(message, "msgpack")
            self.node.network.send(self.peer, self.node.name, (self._arrive_up, data, None))

    def _arrive_up(self, data: bytes, _: object) -> None:
        self.node.loop.call_soon(self._take, data)

    def _take(self, data: bytes) -> None:
        if self.session is not None and not self.is_lost:
            self.heard = self.node.time.now
            self.session.receive(data, False)

    # -- the end -----------------------------------------------------------------------------------------------------

    def lose(self, why: str) -> None:
        """End it: both ends are told."""
        if self.hang_up():
            self._lost(why)

    def hang_up(self) -> bool:
        """End it from the client's side; return whether it was there."""
        if self.is_lost:
            return False
        self.is_lost = True
        self.closing_since = self.node.time.now
        self.node.gateway.connections.discard(self)
        self.node.links.pop(self, None)
        session, self.session = self.session, None
        if session is not None:
            session.end()
        return True


class BrokerLink:
    """A broker's connection to a served database, shared by its sources (`runtime/sources/host.py`)."""

    def __init__(
        self,
        node: ServedNode | None,
        broker: ServedNode,
        address: ServerAddress,
        ended: Callable[[Any], None],
    ) -> None:
        """`node` is None if it cannot be reached."""
        self.address, self._ended, self._loop = address, ended, broker.loop
        self.ready: asyncio.Future[Any] = self._loop.create_future()
        self.ready.add_done_callback(lambda future: future.cancelled() or future.exception())
        self._listeners, self._ids = dict[int, Listener](), itertools.count(1)
        self._link: NodeLink | None = None
        if node is not None:
            self._link = node.connect(broker.name, None, self._receive, self._lose)
        if self._link is None:
            self._loop.call_later(0.5, self._fail)
        else:
            self.ready.set_result(self._link.greeting)

    def _fail(self) -> None:
        self._ended(self)
        if not self.ready.done():
            self.ready.set_exception(DisconnectedError(f"{self.address.url} cannot be reached"))

    def attach(self, listener: Listener) -> int:
        """Return a number for a subscription."""
        number = next(self._ids)
        self._listeners[number] = listener
        return number

    def detach(self, wire_id: int) -> None:
        """Pass no more messages on; the connection ends with its last user."""
        self._listeners.pop(wire_id, None)
        if not self._listeners:
            self.close()

    def send(self, message: Any) -> None:
        """Send a message up."""
        if self._link is not None:
            self._link.send_up(message)

    def _receive(self, message: Any) -> None:
        self._loop.call_soon(self._pass_on, message)

    def _pass_on(self, message: Any) -> None:
        listener = self._listeners.get(getattr(message, "id", None) or 0)
        if listener is not None:
            listener.receive(message.id, message)

    def _lose(self, why: str) -> None:
        self._link = None
        self._ended(self)
        listeners, self._listeners = self._listeners, {}
        for number, listener in listeners.items():
            self._loop.call_soon(listener.lost, number, why)

    def close(self) -> None:
        """End it."""
        link, self._link = self._link, None
        if link is not None:
            link.hang_up()
        self._ended(self)
