"""The connection of a broker to a NATS server, by which it hears relations that other nodes publish on that bus.

It has the interface of `SourceConnection`, and the same users. A subscription is a request, which any node that holds
the relation answers with what the broker lacks; from then on it listens where all nodes publish, and a `Want` is
another request. Core NATS delivers at most once: to a broker that reads too slowly, messages are dropped. That is seen
as a gap, or by the next silence, and asked for.

The bus carries whole relations, once for all who listen, so a filter is not sent; the address says which history is
meant if there are several: `nats://host:4222/<history>/quote`. Needs nats-py (`pip install 'whence[nats]'`).
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import ssl
from collections.abc import Callable
from itertools import count
from typing import Any
from urllib.parse import urlsplit

from whence.model.errors import DisconnectedError, WhenceError
from whence.runtime.sources.connection import OPEN_SECONDS, Listener, ServerAddress
from whence.subscribe import messages as ms
from whence.subscribe.bus import PIECE, Joiner, ask_subject, live_subject
from whence.subscribe.positions import Era, HistoryLineage, Position

log = logging.getLogger("whence")
PENDING_MESSAGES, PENDING_BYTES = 65_536, 64 << 20
"""What may wait to be read of one subject; beyond that, NATS drops."""

PATIENCE = 2.0
"""Seconds after which it is asked for again what a relation is, while nobody answers."""


async def connect_nats(url: str, token: str | None, ca_file: str | None, **callbacks: Any) -> Any:
    """Connect to a NATS server; DisconnectedError if that does not work."""
    try:
        import nats
    except ImportError:
        raise WhenceError("nats-py is not installed: `pip install 'whence[nats]'`") from None
    parts = urlsplit(url)
    more: dict[str, Any] = callbacks | ({"token": token} if token else {})
    if ca_file is not None:
        more["tls"] = ssl.create_default_context(cafile=ca_file)
    try:
        return await nats.connect(
            f"nats://{parts.netloc}", allow_reconnect=False, connect_timeout=int(OPEN_SECONDS), **more
        )
    except Exception as error:
        raise DisconnectedError(f"{url}: {error or type(error).__name__}") from None


class NatsConnection:
    """A connection to a bus. `ready` is made when it stands."""

    def __init__(self, address: ServerAddress, ended: Callable[[Any], None], room: asyncio.Event) -> None:
        """`room` is set while messages can be taken in."""
        self.address, self._ended, self._room = address, ended, room
        self._history = urlsplit(address.url).path.strip("/") or None
        self._ids = count(1)
        self._followed: dict[int, _Followed] = {}
        self._connection: Any = None
        self._gone = asyncio.Event()
        self._why = "the connection was closed"
        loop = asyncio.get_running_loop()
        self.ready: asyncio.Future[None] = loop.create_future()
        self.ready.add_done_callback(lambda future: future.cancelled() or future.exception())
        self._tasks: set[asyncio.Task[None]] = set()
        self._task = loop.create_task(self._run())

    def attach(self, listener: Listener) -> int:
        """Return a number for a subscription; its messages go to the listener."""
        wire_id = next(self._ids)
        self._followed[wire_id] = _Followed(self, wire_id, listener)
        return wire_id

    def detach(self, wire_id: int) -> None:
        """Pass no more messages on; the connection ends with its last user."""
        followed = self._followed.pop(wire_id, None)
        if followed is not None:
            self.begin(followed.leave())
        if not self._followed:
            self._gone.set()

    def send(self, message: Any) -> None:
        """Ask for something."""
        followed = self._followed.get(message.id)
        if followed is not None and not isinstance(message, ms.Unsubscribe):
            self.begin(followed.ask(message))

    def close(self) -> None:
        """End it."""
        self._gone.set()

    # -- for what is followed ----------------------------------------------------------------------------------------

    def begin(self, work: Any) -> None:
        """Run something in the background."""
        task = asyncio.get_running_loop().create_task(self._done(work))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _done(self, work: Any) -> None:
        try:
            await work
        except Exception as error:  # of the library: the connection is gone, or is about to be
            log.debug("%s: %s", self.address.url, error)

    async def subscribe(self, subject: str, take: Callable[[bytes], Any]) -> Any:
        """Listen to a subject. While there is no room nothing is taken, and what does not fit is dropped."""
        joiner, room = Joiner(), self._room

        async def receive(message: Any) -> None:
            if not room.is_set():
                await room.wait()
            whole = joiner.add(message.data, (message.headers or {}).get(PIECE))
            if whole is not None:
                await take(whole)

        return await self._connection.subscribe(
            subject, cb=receive, pending_msgs_limit=PENDING_MESSAGES, pending_bytes_limit=PENDING_BYTES
        )

    async def publish(self, subject: str, message: Any, reply: str) -> None:
        """Send a request."""
        await self._connection.publish(subject, ms.encode_message(message, "msgpack"), reply=reply)

    async def flush(self) -> None:
        """Return when the server has taken what was sent."""
        await self._connection.flush(timeout=int(OPEN_SECONDS))

    def inbox(self) -> str:
        """Return a subject that nobody else has."""
        return str(self._connection.new_inbox())

    @property
    def history(self) -> str | None:
        """The history that the address names, if it does."""
        return self._history

    # -- the connection ----------------------------------------------------------------------------------------------

    async def _run(self) -> None:
        try:
            await self._use()
        except asyncio.CancelledError:
            pass
        except Exception as error:
            self._why = f"{error!s:.200}" or type(error).__name__
            if not self.ready.done():
                self.ready.set_exception(error)
        finally:
            self._ended(self)
            if not self.ready.done():
                self.ready.set_exception(DisconnectedError(self._why))
            for wire_id, followed in list(self._followed.items()):
                followed.listener.lost(wire_id, self._why)
            self._followed.clear()

    async def _use(self) -> None:
        async def noted(error: Exception) -> None:
            """A slow consumer: what is missing is asked for."""
            log.debug("%s: %s", self.address.url, error)

        async def lost() -> None:
            self._why = "the connection to the bus is lost"
            self._gone.set()

        address = self.address
        token = await asyncio.to_thread(address.token)
        self._connection = await connect_nats(
            address.url, token, address.ca_file, error_cb=noted, disconnected_cb=lost, closed_cb=lost
        )
        self.ready.set_result(None)
        try:
            await self._gone.wait()
        finally:
            with contextlib.suppress(Exception):
                await self._connection.close()


class _Followed:
    """One subscription over the bus."""

    def __init__(self, connection: NatsConnection, wire_id: int, listener: Listener) -> None:
        self._connection, self._wire_id, self.listener = connection, wire_id, listener
        self._relation, self._history = "", connection.history
        self._inbox = ""
        self._answers: Any = None  # what comes to the inbox
        self._live: Any = None
        self._lineage = HistoryLineage("")
        self._opened = asyncio.Event()

    async def leave(self) -> None:
        """Listen no more."""
        for each in (self._answers, self._live):
            if each is not None:
                with contextlib.suppress(Exception):
                    await each.unsubscribe()

    async def ask(self, message: Any) -> None:
        """Pass on a question of the broker."""
        match message:
            case ms.Subscribe():
                await self._open(message)
            case ms.Want():
                if self._opened.is_set():
                    subject = ask_subject(self._relation, self._history)
                    await self._connection.publish(subject, message, self._inbox)
            case _:
                raise WhenceError("over a bus whole relations are told: there is no filter to change")

    async def _open(self, message: ms.Subscribe) -> None:
        """Ask who has the relation until somebody says so, for as long as the source waits for it."""
        [self._relation] = message.queries
        self._inbox = self._connection.inbox()
        self._answers = await self._connection.subscribe(self._inbox, self._take_answer)
        subject = ask_subject(self._relation, self._connection.history)
        while not self._opened.is_set():
            await self._connection.publish(subject, message, self._inbox)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._opened.wait(), PATIENCE)

    async def _take_answer(self, payload: bytes) -> None:
        message = ms.decode_down(payload, "msgpack")
        if isinstance(message, ms.Subscribed):
            if self._opened.is_set():
                return  # of an answer to a question; the one that was told stands
            at = Position.parse(message.at)
            self._history = at.history
            self._lineage = HistoryLineage(at.history, tuple(Era(id, start) for id, start in message.eras or ()))
            await self._listen()
            self._opened.set()
            self.listener.receive(self._wire_id, message)
        elif isinstance(message, ms.ErrorMessage):
            self.listener.receive(self._wire_id, message)
        else:
            self._pass_on(message)

    async def _listen(self) -> None:
        """Hear what is published from now on, before what was before is taken in: so there is no gap between them."""
        assert self._history is not None
        self._live = await self._connection.subscribe(live_subject(self._history, self._relation), self._take_live)
        await self._connection.flush()

    async def _take_live(self, payload: bytes) -> None:
        self._pass_on(ms.decode_down(payload, "msgpack"))

    def _pass_on(self, message: Any) -> None:
        """Pass on what is of the past that the source knows. If it is of another one, since the publisher was opened
        again, the source has to compare them first: so it subscribes anew."""
        if not self._opened.is_set():
            return
        places = [Position.parse(text) for text in (getattr(message, "since", None), message.at) if text is not None]
        if all(self._lineage.knows(place, last=place.epoch) for place in places):
            self.listener.receive(self._wire_id, message)
        else:
            self._opened.clear()
            self.listener.lost(self._wire_id, "the publisher has begun a new era")
            self._connection.detach(self._wire_id)
