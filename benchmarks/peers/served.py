"""What the peers of `serving` have in common: a server, an address that any process can connect to, and two roles.

| | what it is | where it runs |
|---|---|---|
| `Server` | the process that serves; started, killed, started again | its own process, held by the run |
| `Endpoint` | how to reach it; can be sent to other processes | everywhere |
| `Publisher` | inserts trades, and knows when they are acknowledged | a client's process |
| `Follower` | keeps the rows of some views up to date, from whatever its server sends | a client's process |

A follower is current with trade n when all of its views reflect every trade up to n. That is the same for all peers,
whether the server maintains the views (Whence), the client computes them from raw trades (NATS) or asks for them again
(PostgreSQL), and every latency is measured by it. Another peer is another `Server` with its `Endpoint`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol, Self

from benchmarks.serving_data import Market, Row, ServedView, Trades
from benchmarks.serving_sockets import RawProtocol

UNBOUNDED = 1 << 30
RETRY = 0.05  # seconds between attempts to reach a server that is gone, the same for all peers


class Publisher(Protocol):
    """A connection that inserts."""

    gathers: bool  # what is due goes into one insert, since each insert is waited for
    in_flight: int  # inserts that may wait for their acknowledgement at the same time

    @property
    def position(self) -> str:
        """Return where the last acknowledgement was, if the server says that; else an empty text."""

    async def insert(self, trades: Trades) -> None:
        """Insert trades together; return when they are acknowledged."""

    async def insert_each(self, trades: Trades, in_flight: int) -> None:
        """Insert trades one by one, each acknowledged by itself, some at a time."""

    async def close(self) -> None:
        """Disconnect."""


class Follower(Protocol):
    """A client that follows views. It reconnects by itself."""

    messages: int  # it has received

    @property
    def number(self) -> int:
        """Return the number of the last trade that its views reflect."""

    async def advance(self) -> int:
        """Wait for news and take it in; return the number."""

    async def reach(self, number: int, position: Callable[[], str | None]) -> None:
        """Follow until the views reflect a trade. `position` returns where it was acknowledged, once that is known."""

    def rows(self) -> dict[str, list[Row]]:
        """Return the rows of each view."""

    async def leave(self) -> None:
        """Disconnect, and keep what is needed to go on later."""

    async def come_back(self) -> None:
        """Connect again and go on; a server may bring the views up to date before this returns."""

    async def close(self) -> None:
        """Disconnect."""


class Endpoint(Protocol):
    """How to reach a server."""

    @property
    def name(self) -> str:
        """Return the peer's name."""

    @property
    def port(self) -> int:
        """Return the port that connections are made to."""

    @property
    def market(self) -> Market:
        """Return where the trades come from."""

    async def publisher(self) -> Publisher:
        """Connect to insert."""

    async def follower(self, views: Sequence[ServedView]) -> Follower:
        """Connect to follow views; return when they are subscribed to."""

    async def alert_follower(self, view: ServedView) -> Follower:
        """Connect to follow a view that seldom changes, and nothing beside it."""

    def raw(self, view: ServedView) -> RawProtocol:
        """Return what a raw client of a view has to say and to understand."""


class Server(Protocol):
    """A server in a process of its own."""

    name: str
    folder: Path

    def open(self, views: Sequence[ServedView]) -> None:
        """Start it for the first time, with the table of trades and these views."""

    def start(self, timeout: float = 60.0) -> float:
        """Start it; return the time at which it listens."""

    def endpoint(self, market: Market) -> Endpoint:
        """Return how to reach it."""

    def kill(self) -> None:
        """Kill it."""

    def pids(self) -> list[int]:
        """Return its processes."""

    def __enter__(self) -> Self:
        """Hold it."""

    def __exit__(self, *_: object) -> None:
        """Stop it and delete its folder."""


async def pipeline(publisher: Publisher, trades: Trades, in_flight: int) -> None:
    """Insert trades one by one, some at a time, by tasks that each wait for their acknowledgement."""
    position = 0

    async def work() -> None:
        nonlocal position
        while position < len(trades):
            mine, position = position, position + 1
            await publisher.insert(trades[mine : mine + 1])

    async with asyncio.TaskGroup() as group:
        for _ in range(in_flight):
            group.create_task(work())
