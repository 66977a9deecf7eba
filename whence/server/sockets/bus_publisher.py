"""A server on a bus: it publishes relations there once for all who listen, and answers those who miss something.

What is published is what a broker would be told over a WebSocket, by the same `TickSubscriber`: updates and silence, in
ticks, of what the user `bus` may read. A question is answered by a subscription that lives until it has told all that
was asked for. A state is only told to who asks for it.

The law: a message goes out only when it may be told to any subscriber, and says which ticks it covers. Nothing is kept
for those who do not listen, so a bus that is slow or gone costs memory that does not grow.
"""

from __future__ import annotations

import asyncio
import logging
import random
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass
from itertools import count
from typing import TYPE_CHECKING, Any

import msgspec

from whence.model.errors import WhenceError
from whence.runtime.sources.nats_connection import connect_nats
from whence.server.access.tokens import Caller
from whence.server.delivery.admissions import RequestedQueries
from whence.server.delivery.frames import Kind, payloads
from whence.server.delivery.tick_subscriber import TickSubscriber
from whence.subscribe import messages as ms
from whence.subscribe.bus import GROUP, PIECE, ask_subject, live_subject, split
from whence.subscribe.positions import Position
from whence.subscribe.ranges import RangeSet
from whence.subscribe.retrying import retry_delay

if TYPE_CHECKING:
    from whence.server.delivery.subscriber import Subscriber
    from whence.server.sockets.gateway import Gateway

log = logging.getLogger("whence.server")
WHO = "bus"
"""Whose rights decide what is published."""

LONGEST_ANSWER = 60.0
"""Seconds after which a question must have been answered."""

MOST_ANSWERS = 100
"""Questions about one relation that are answered at a time; who is not answered asks again."""

_WAITING = 4 << 20  # bytes to be sent before nothing more is made
_SPARE = 4 << 10  # bytes of a NATS message that are left for its subject and headers


@dataclass(frozen=True)
class BusAddress:
    """A NATS server, and the relations that are published there."""

    url: str
    relations: tuple[str, ...]
    token: str | None = None


class _Head(msgspec.Struct, frozen=True):
    """What is read of a message that is passed on."""

    type: str
    at: str = ""
    since: str = ""


class BusPublisher:
    """Publishes relations of one server on a bus. It is used in the event loop of the server."""

    def __init__(self, gateway: Gateway, address: BusAddress) -> None:
        self.gateway, self.address = gateway, address
        self._task = asyncio.get_running_loop().create_task(self._run())
        self._relations: list[_PublishedRelation] = []
        self._outgoing: asyncio.Queue[tuple[str, bytes]] = asyncio.Queue()
        self._waiting = 0
        self._node, self._numbers = secrets.token_hex(4), count()
        self.is_connected = False

    async def close(self) -> None:
        """Publish nothing more."""
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self) -> None:
        attempt, since = 0, time.monotonic()
        while True:
            try:
                await self._serve()
                attempt, since = 0, time.monotonic()
            except asyncio.CancelledError:
                raise
            except Exception as error:
                if attempt == 0:
                    log.warning("bus %s: %s; trying again", self.address.url, error or type(error).__name__)
            await asyncio.sleep(retry_delay(attempt, time.monotonic() - since, random.random()))
            attempt += 1

    async def _serve(self) -> None:
        gone = asyncio.Event()

        async def lost() -> None:
            gone.set()

        async def noted(error: Exception) -> None:
            log.debug("bus %s: %s", self.address.url, error)

        connection = await connect_nats(
            self.address.url, self.address.token, None, error_cb=noted, disconnected_cb=lost, closed_cb=lost
        )
        self._outgoing, self._waiting = asyncio.Queue(), 0
        self._relations = [_PublishedRelation(self, name) for name in self.address.relations]
        sender = asyncio.create_task(self._send_all(connection))
        ended = asyncio.create_task(gone.wait())
        try:
            for relation in self._relations:
                await relation.listen(connection)
            self.is_connected = True
            log.info("publishing %s on %s", ", ".join(self.address.relations), self.address.url)
            await asyncio.wait([sender, ended], return_when=asyncio.FIRST_COMPLETED)
            raise WhenceError("the connection is lost")
        finally:
            self.is_connected = False
            for relation in self._relations:
                relation.close()
            for task in (sender, ended):
                task.cancel()
            await asyncio.gather(sender, ended, connection.close(), return_exceptions=True)

    # -- sending -----------------------------------------------------------------------------------------------------

    @property
    def blocked(self) -> bool:
        """Whether what is sent would have to wait."""
        return self._waiting > _WAITING

    def send(self, subject: str, payload: bytes) -> None:
        """Publish a message."""
        self._outgoing.put_nowait((subject, payload))
        self._waiting += len(payload)

    async def _send_all(self, connection: Any) -> None:
        most = connection.max_payload - _SPARE
        while True:
            subject, payload = await self._outgoing.get()
            for piece, header in split(payload, most, f"{self._node}-{next(self._numbers)}"):
                await connection.publish(subject, piece, headers=None if header is None else {PIECE: header})
            was_blocked, self._waiting = self.blocked, self._waiting - len(payload)
            if self._outgoing.empty() or was_blocked:
                await connection.flush()
            if was_blocked and not self.blocked:
                for relation in self._relations:
                    relation.drained()


class _PublishedRelation:
    """One relation: what is published of it, and the questions about it."""

    def __init__(self, bus: BusPublisher, name: str) -> None:
        self._bus, self._name = bus, name
        self._live: _BusSubscription | None = None
        self._answers: set[_BusSubscription] = set()
        self._at: Position | None = None  # the last tick that was published
        self._connection: Any = None
        self._asked_of: str | None = None  # the history under which questions are heard
        self._questions: Any = None
        self._closed = False

    async def listen(self, connection: Any) -> None:
        """Hear questions, and begin to publish."""
        self._connection = connection
        await connection.subscribe(ask_subject(self._name), queue=GROUP, cb=self._asked)
        self._begin()

    def close(self) -> None:
        """Publish nothing more."""
        self._closed = True
        for each in [self._live, *self._answers]:
            if each is not None:
                each.end()

    def drained(self) -> None:
        """Go on, since there is room again."""
        for each in [self._live, *self._answers]:
            if each is not None:
                each.wake()

    # -- publishing --------------------------------------------------------------------------------------------------

    def _begin(self, have: str | None = None) -> None:
        """Follow the relation: first to know where it is, and then from there on."""
        if not self._closed:
            self._live = _BusSubscription(self._bus, self._name, have, self._publish, self._ended)

    def _publish(self, head: _Head, payload: bytes) -> None:
        assert self._live is not None
        if head.type == "subscribed":
            at, known = Position.parse(head.at), self._live.have
            self._live.end()
            if known is not None and known.startswith(f"{at.history}.{at.era}."):
                known = None  # it has other columns now: begin again
            if known is None:
                self._at = at
                self._begin(f"{at.history}.{at.era}." + (f"0-{at.epoch}" if at.epoch else ""))
            return
        if head.type in ("update", "silence", "lost"):
            self._at = Position.parse(head.at)
            self._bus.send(live_subject(self._at.history, self._name), payload)
            if head.type != "lost" and self._asked_of != self._at.history:
                self._asked_of = self._at.history
                asyncio.get_running_loop().create_task(self._hear(self._at.history))

    async def _hear(self, history: str) -> None:
        before, self._questions = self._questions, None
        if before is not None:
            await before.unsubscribe()
        subject = ask_subject(self._name, history)
        self._questions = await self._connection.subscribe(subject, queue=GROUP, cb=self._asked)

    def _ended(self, subscription: _BusSubscription) -> None:
        """Try again after a while, since the relation is gone, or may not be read."""
        if subscription is self._live and not self._closed:
            self._live = None
            asyncio.get_running_loop().call_later(1.0, self._begin)

    # -- questions ---------------------------------------------------------------------------------------------------

    async def _asked(self, message: Any) -> None:
        if not message.reply or len(self._answers) >= MOST_ANSWERS or self._closed:
            return
        try:
            asked = ms.decode_up(message.data, "msgpack")
        except ms.MessageError:
            return
        match asked:
            case ms.Subscribe():
                self._answer(message.reply, asked.have, asked.every_change)
            case ms.Want() if self._at is not None:
                at = self._at
                here = RangeSet([(0, at.epoch)]).minus(RangeSet(asked.ranges))
                self._answer(message.reply, f"{at.history}.{at.era}.{here}", False)

    def _answer(self, inbox: str, have: str | None, every_change: bool) -> None:
        def passed(head: _Head, payload: bytes) -> None:
            self._bus.send(inbox, payload)
            if head.type == "error" or (head.type == "silence" and head.since == head.at):
                done(answer)  # a heartbeat: all has been told

        def done(subscription: _BusSubscription) -> None:
            subscription.end()
            self._answers.discard(subscription)

        answer = _BusSubscription(self._bus, self._name, have, passed, done, every_change)
        self._answers.add(answer)
        asyncio.get_running_loop().call_later(LONGEST_ANSWER, done, answer)


class _BusSubscription:
    """A subscription whose messages go to a bus. An `Outlet`."""

    kind: Kind = "msgpack"

    def __init__(
        self,
        bus: BusPublisher,
        relation: str,
        have: str | None,
        take: Callable[[_Head, bytes], None],
        ended: Callable[[_BusSubscription], None],
        every_change: bool = False,
    ) -> None:
        self._bus, self.have, self._take, self._gone = bus, have, take, ended
        request = RequestedQueries((relation,), have=have or None, every_change=every_change, ticks=True)
        delivery = bus.gateway.delivery
        self._subscriber = TickSubscriber(delivery, self, 1, request, Caller(WHO))
        self._is_over = False
        self._subscriber.open()

    @property
    def blocked(self) -> bool:
        return self._bus.blocked

    def send(self, frames: bytes) -> None:
        for payload in payloads(frames):
            if not self._is_over:
                self._take(_HEADS.decode(payload), payload)

    def drop(self, subscriber: Subscriber) -> None:
        """Note that it has ended by itself; the error follows."""
        asyncio.get_running_loop().call_soon(self._gone, self)

    def wake(self) -> None:
        """Look at it again."""
        self._bus.gateway.delivery.enqueue(self._subscriber)

    def end(self) -> None:
        """Tell nothing more."""
        if not self._is_over:
            self._is_over = True
            self._subscriber.end()


_HEADS = msgspec.msgpack.Decoder(_Head)
