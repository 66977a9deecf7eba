"""Servers in a row, as `delivery` measures them: what is published at the first reaches clients at the last.

    publisher ── first ── middle ── last ── clients

| row | what the servers do |
|---|---|
| Whence | the first has the stream; the others are brokers with a source from the one before; views at the last |
| NATS core | leaf nodes pass raw trades on, as far as somebody downstream listens; clients compute the views |
| JetStream | the same, and the first stores the trades, synced; a client at the last goes on where it was |

A row is a `Server` (`served.py`) whose `Endpoint` publishes at its first server and follows at its last.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, Self

from benchmarks.peers.nats_peer import CORE, JETSTREAM, NatsServer
from benchmarks.peers.served import Endpoint, Follower, Publisher
from benchmarks.peers.whence_server_peer import WhenceServer
from benchmarks.report import WHENCE
from benchmarks.serving_data import COLUMNS, PROGRESS, PROGRESS_SELECT, Market, ServedView
from benchmarks.serving_processes import HOST, ServerProcess, free_port

NODES = 3
DOMAIN = "first"  # by this name clients of the last find what the first stores
TRADES = "CREATE STREAM trade (" + ", ".join(
    f"{name} {'BIGINT' if name in ('number', 'time') else 'INTEGER'}" for name in COLUMNS
) + ")"  # fmt: skip


class Row(Protocol):
    """Servers in a row."""

    name: str
    nodes: Sequence[ServerProcess]

    def open(self, views: Sequence[ServedView]) -> None:
        """Start all servers for the first time, with these views at the last."""

    def endpoint(self, market: Market) -> RowEndpoint:
        """Return how to publish at the first and to follow at the last."""

    def __enter__(self) -> Self:
        """Hold them."""

    def __exit__(self, *_: object) -> None:
        """Stop them and delete their folders."""


@dataclass(frozen=True)
class RowEndpoint:
    """The addresses of both ends."""

    first: Any  # Endpoint
    last: Any

    @property
    def name(self) -> str:
        return str(self.last.name)

    @property
    def port(self) -> int:
        return int(self.last.port)

    @property
    def market(self) -> Market:
        market: Market = self.last.market
        return market

    async def publisher(self) -> Publisher:
        publisher: Publisher = await self.first.publisher()
        return publisher

    async def follower(self, views: Sequence[ServedView]) -> Follower:
        follower: Follower = await self.last.follower(views)
        return follower

    async def alert_follower(self, view: ServedView) -> Follower:
        follower: Follower = await self.last.alert_follower(view)
        return follower

    def raw(self, view: ServedView) -> Any:
        return self.last.raw(view)


class _Nodes:
    """Servers that are started first to last, and stopped the other way round."""

    name = ""
    nodes: Sequence[Any]  # ServerProcess

    def endpoint(self, market: Market) -> RowEndpoint:
        first: Endpoint = self.nodes[0].endpoint(market)
        last: Endpoint = self.nodes[-1].endpoint(market)
        return RowEndpoint(first, last)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.ExitStack() as stack:
            for node in self.nodes:
                stack.callback(node.close)


class WhenceRow(_Nodes):
    """Three databases that are served; the second and third are brokers."""

    name = WHENCE

    def __init__(self, folder: Path) -> None:
        self.nodes = [WhenceServer(folder) for _ in range(NODES)]

    def open(self, views: Sequence[ServedView]) -> None:
        import whence

        before: WhenceServer | None = None
        for node in self.nodes:
            with whence.open(node.folder / "db") as db:
                db.execute(TRADES if before is None else source_of(before, node, "trade"))
                if node is self.nodes[-1]:
                    for view in views:
                        db.execute(f"CREATE VIEW {view.name} AS {view.select(whence=True)}")
                    db.execute(f"CREATE VIEW {PROGRESS} AS {PROGRESS_SELECT}")
            node.start()
            before = node


def source_of(upstream: WhenceServer, node: ServerProcess, relation: str, options: str = "") -> str:
    """Return the statement that makes a relation of one server a source of another."""
    token = node.folder / "upstream"
    token.touch(0o600)
    token.write_text(upstream.token)
    return (
        f"CREATE SOURCE {relation} FROM 'ws://{HOST}:{upstream.port}/{relation}' "
        f"WITH (token_file = '{token}'{', ' + options if options else ''})"
    )


class NatsRow(_Nodes):
    """Three NATS servers, each a leaf node of the one before it."""

    def __init__(self, folder: Path, jetstream: bool = False) -> None:
        self.name = JETSTREAM if jetstream else CORE
        self.nodes = [NatsServer(folder, jetstream=jetstream and place == 0, domain=DOMAIN) for place in range(NODES)]
        self.nodes[-1].reads_jetstream = jetstream
        ports = [free_port() for _ in range(NODES)]
        for place, node in enumerate(self.nodes):
            node.add_settings(f"server_name: row{place}", "leafnodes {", f"  host: {HOST}", f"  port: {ports[place]}")
            if place:
                node.add_settings("  reconnect: 1s", f'  remotes: [{{url: "nats://{HOST}:{ports[place - 1]}"}}]')
            node.add_settings("}")

    def open(self, views: Sequence[ServedView]) -> None:
        for node in self.nodes:
            node.open(views)
