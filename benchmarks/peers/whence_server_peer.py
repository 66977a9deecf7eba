"""Whence as it is served: `whence serve` in a process of its own, and its async client.

The table of trades is a stream, of which the server keeps the last rows only; the views are maintained, and a follower
subscribes to all of its views at once, so that they move together. Every insert is acknowledged when it is on stable
storage, and nothing else is ever sent to a subscriber.
"""

from __future__ import annotations

import hashlib
import json
import secrets
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.peers.served import pipeline
from benchmarks.report import WHENCE
from benchmarks.serving_data import COLUMNS, PROGRESS, PROGRESS_SELECT, STREAM, Market, Row, ServedView, Trades
from benchmarks.serving_processes import HOST, ServerProcess
from benchmarks.serving_sockets import WebSocketFrames

ARROW_LEAST = 64  # rows from which a batch is sent as Arrow
LIMITS = ("queries=1000", "connections=20000", "messages_per_second=1000000")
LAST = 4  # the column of a view by venue that has the number of its last trade


def missing() -> str | None:
    """Return why this peer cannot run: it can."""
    return None


class WhenceServer(ServerProcess):
    """A database in a folder, served by `whence serve`."""

    name = WHENCE

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.token = "whence_" + secrets.token_urlsafe(32)
        tokens = self.folder / "tokens"
        tokens.touch(0o600)
        tokens.write_text(f"bench sha256:{hashlib.sha256(self.token.encode()).hexdigest()}\n")

    def command(self) -> list[str]:
        limits = [word for limit in LIMITS for word in ("--limit", limit)]
        where = ["--listen", f"{HOST}:{self.port}", "--token-file", str(self.folder / "tokens")]
        return [sys.executable, "-m", "whence.cli", "serve", str(self.folder / "db"), *where, *limits]

    def open(self, views: Sequence[ServedView]) -> None:
        """Make the database with its views, and serve it."""
        import whence

        with whence.open(self.folder / "db") as db:
            db.execute(STREAM)
            for view in views:
                db.execute(f"CREATE VIEW {view.name} AS {view.select(whence=True)}")
            db.execute(f"CREATE VIEW {PROGRESS} AS {PROGRESS_SELECT}")
        self.start()

    def endpoint(self, market: Market) -> WhenceEndpoint:
        return WhenceEndpoint(self.port, market, self.token)


@dataclass(frozen=True)
class WhenceEndpoint:
    """The address of a server."""

    port: int
    market: Market
    token: str
    name: str = WHENCE

    async def connect(self) -> Any:
        """Return a client that is connected."""
        import whence

        return await whence.connect_async(f"http://{HOST}:{self.port}", token=self.token)

    async def publisher(self) -> WhencePublisher:
        arrow_table(self.market.trades(0, 1))  # what has to be imported is, before any clock starts
        return WhencePublisher(await self.connect())

    async def follower(self, views: Sequence[ServedView]) -> WhenceFollower:
        follower = WhenceFollower(self, [*(view.name for view in views), PROGRESS])
        await follower.come_back()
        return follower

    async def alert_follower(self, view: ServedView) -> WhenceFollower:
        follower = WhenceFollower(self, [view.name])
        await follower.come_back()
        return follower

    def raw(self, view: ServedView) -> WebSocketFrames:
        """A raw client speaks JSON, and is open when it has the view's state."""
        hello = json.dumps({"type": "hello", "version": 1, "token": self.token})
        subscribe = json.dumps({"type": "subscribe", "id": 1, "queries": [view.name]})
        said = [(hello, b'"welcome"'), (subscribe, b'"last":true')]
        return WebSocketFrames("/v1/ws", {"Host": f"{HOST}:{self.port}"}, said, LAST)


class WhencePublisher:
    """Inserts over one connection; many inserts may wait for their acknowledgement."""

    gathers, in_flight = False, 256

    def __init__(self, client: Any) -> None:
        self._client = client

    async def insert(self, trades: Trades) -> None:
        await self._client.insert("trade", trades.tolist() if len(trades) < ARROW_LEAST else arrow_table(trades))

    @property
    def position(self) -> str:
        return str(self._client.position)

    async def insert_each(self, trades: Trades, in_flight: int) -> None:
        await pipeline(self, trades, in_flight)

    async def close(self) -> None:
        await self._client.close()


def arrow_table(trades: Trades) -> Any:
    """Return trades as an Arrow table. Its buffers are made here: pyarrow imports pandas to look at NumPy's arrays."""
    import pyarrow as pa

    columns = {}
    for name in COLUMNS:
        column = np.ascontiguousarray(trades[name])
        kind = pa.int64() if column.itemsize == 8 else pa.int32()
        columns[name] = pa.Array.from_buffers(kind, len(column), [None, pa.py_buffer(column)])
    return pa.table(columns)


class WhenceFollower:
    """Subscribes to views; if `PROGRESS` is among them, it knows the number of the last trade that they reflect."""

    def __init__(self, endpoint: WhenceEndpoint, names: Sequence[str]) -> None:
        self._endpoint = endpoint
        self._names = names
        self._client: Any = None
        self._subscription: Any = None
        self._update: Any = None
        self.number = -1
        self.messages = 0

    async def come_back(self) -> None:
        """Connect, and subscribe from the position that this client has."""
        self._client = await self._endpoint.connect()
        have: dict[str, Any] = {}
        if self._update is not None:
            have = {"have": self._update.position, "rows": [self._update[name].rows for name in self._names]}
        self._subscription = self._client.subscribe({name: name for name in self._names}, **have)
        await self.advance()

    async def advance(self) -> int:
        self._take(await self._subscription.next())
        return self.number

    def _take(self, update: Any) -> None:
        self._update = update
        self.messages += 1
        if PROGRESS in self._names:
            for (number,) in update[PROGRESS].came:
                self.number = -1 if number is None else number

    async def reach(self, number: int, position: Callable[[], str | None]) -> None:
        """Take in update by update. Where the view does not change, only the server knows how far it has got."""
        while (wanted := position()) is None:
            if (update := await self._subscription.next(0.1)) is not None:
                self._take(update)
        while (update := await self._subscription.next(0.0)) is not None:
            self._take(update)
        self._take(await self._subscription.wait_for(wanted))
        self.number = number

    def rows(self) -> dict[str, list[Row]]:
        return {name: self._update[name].rows for name in self._names if name != PROGRESS}

    async def leave(self) -> None:
        await self._client.close()

    async def close(self) -> None:
        await self._client.close()
