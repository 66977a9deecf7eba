"""What the measurements of `serving` share: sizes, peers, and turns.

A turn is one peer's part in one round: its server is started in a new folder, does its part alone on the machine, and
is stopped. Rounds go through all peers before any has its next turn.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path

from rich.console import Console

from benchmarks.peers import nats_peer, postgres_peer, whence_server_peer
from benchmarks.peers.nats_peer import CORE, JETSTREAM, UNSYNCED, NatsServer
from benchmarks.peers.postgres_peer import POSTGRES, PostgresServer
from benchmarks.peers.served import Endpoint, Server
from benchmarks.peers.whence_server_peer import WhenceServer
from benchmarks.report import WHENCE, Check, Figure
from benchmarks.serving_data import Market, ServedView


@dataclass(frozen=True)
class Sizes:
    """How much is done. The defaults are those of the targets."""

    rounds: int = 3
    ingest_events: int = 500_000
    ingest_views: int = 100
    ingest_batch: int = 1_000
    ingest_in_flight: int = 4  # batches that wait for their acknowledgement
    single_events: int = 20_000
    single_connections: int = 16
    single_in_flight: int = 32  # of each connection
    single_views: int = 10
    latency_rate: int = 2_000
    latency_seconds: float = 10.0
    latency_views: int = 10
    clients: int = 1_000  # of one view
    fan_rate: float = 44.0  # epochs a second: a tenth more than promised, so that the promise can be seen to be kept
    fan_seconds: float = 10.0
    flat_out: int = 200  # epochs, as fast as they go
    idle_seconds: float = 10.0
    trader_events: int = 1_000_000
    trader_batch: int = 100
    away_events: int = 9_000_000
    away_issues: int = 2_000
    stalled_rate: int = 10_000
    stalled_batch: int = 100
    stalled_seconds: float = 60.0
    stalled_rounds: int = 2
    memory_from: int = 2_000_000
    memory_to: int = 10_000_000
    restart_clients: int = 100
    restart_events: int = 100_000

    def scaled(self, scale: float) -> Sizes:
        """Return these sizes with fewer events, clients and seconds; rates, views and batches stay."""
        small = {}
        for one in fields(self):
            value = getattr(self, one.name)
            if one.name.endswith("_events") or one.name in ("clients", "restart_clients", "memory_from", "memory_to"):
                small[one.name] = max(20, int(value * scale))
            elif one.name.endswith("_seconds"):
                small[one.name] = max(0.4, value * scale)
        return replace(self, **small)


QUICK = replace(
    Sizes().scaled(0.01),
    rounds=1,
    stalled_rounds=1,
    ingest_views=10,
    latency_views=4,
    latency_rate=200,
    stalled_rate=1_000,
    flat_out=5,
    trader_batch=1_000,
    trader_events=20_000,
    away_events=20_000,
    memory_from=2_000,
    memory_to=10_000,
    restart_clients=3,
    single_connections=4,
    single_events=400,
)


@dataclass
class Section:
    """What a measurement found, what was promised of it, and what a reader has to know."""

    figures: list[Figure] = field(default_factory=list)
    checks: list[Check] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def add(self, more: Section) -> None:
        """Take over what another section has."""
        self.figures += more.figures
        self.checks += more.checks
        self.notes += more.notes


@dataclass(frozen=True)
class ServedPeer:
    """A peer that can be started in a folder."""

    name: str
    make: Callable[[Path, int], Server]  # the folder, and how many clients it has to bear
    missing: Callable[[], str | None]  # why it cannot run


PEERS = {
    peer.name: peer
    for peer in (
        ServedPeer(WHENCE, lambda folder, _: WhenceServer(folder), whence_server_peer.missing),
        ServedPeer(CORE, lambda folder, _: NatsServer(folder), nats_peer.missing),
        ServedPeer(JETSTREAM, lambda folder, _: NatsServer(folder, jetstream=True), nats_peer.missing),
        ServedPeer(UNSYNCED, lambda folder, _: NatsServer(folder, jetstream=True, sync=False), nats_peer.missing),
        ServedPeer(POSTGRES, lambda folder, clients: PostgresServer(folder, 2 * clients), postgres_peer.missing),
    )
}


@dataclass(frozen=True)
class Run:
    """A run of `serving`."""

    sizes: Sizes
    console: Console
    folder: Path
    peers: tuple[str, ...] = tuple(PEERS)

    def among(self, *names: str) -> list[str]:
        """Return those of some peers that take part."""
        return [name for name in names if name in self.peers and name in PEERS and PEERS[name].missing() is None]

    @contextlib.contextmanager
    def turn(
        self, peer: str, views: Sequence[ServedView], market: Market | None = None, clients: int = 40
    ) -> Iterator[tuple[Server, Endpoint]]:
        """Start a peer's server with some views; stop it at the end."""
        with PEERS[peer].make(self.folder, clients) as server:
            server.open(views)
            yield server, server.endpoint(market or Market())

    def say(self, text: str) -> None:
        """Print what has just been measured."""
        self.console.print(f"[dim]{text}", highlight=False)


def sample(figures: dict[str, Figure], what: str, unit: str, peer: str, value: float) -> None:
    """Add a sample to the figure of that name."""
    figures.setdefault(what, Figure(what, unit)).samples.setdefault(peer, []).append(float(value))
