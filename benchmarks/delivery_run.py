"""What the measurements of `delivery` share: sizes, rows of servers, and turns.

A turn is one peer's part in one round: its servers are started in new folders, do their part alone on the machine, and
are stopped. Rounds go through all peers before any has its next turn.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from rich.console import Console

from benchmarks.peers import nats_peer
from benchmarks.peers.nats_peer import CORE, JETSTREAM
from benchmarks.peers.rows import NatsRow, Row, RowEndpoint, WhenceRow
from benchmarks.report import WHENCE, Check, Figure
from benchmarks.serving_data import Market, ServedView


@dataclass(frozen=True)
class Sizes:
    """How much is done. The defaults are those of the targets."""

    rounds: int = 3
    views: int = 100  # distinct subscriptions at the last server
    flow_events: int = 300_000
    flow_batch: int = 1_000
    flow_in_flight: int = 4  # batches that wait for their acknowledgement
    steady_rate: int = 30_000
    steady_seconds: float = 12.0
    latency_rate: int = 2_000
    latency_seconds: float = 10.0
    kill_rate: int = 2_000
    kill_batch: int = 20
    kill_seconds: float = 10.0
    gap_events: tuple[int, ...] = (10_000, 100_000, 1_000_000, 10_000_000)
    gaps: tuple[int, ...] = (0, 10, 100, 1_000, 10_000, 100_000)
    broker_events: tuple[int, ...] = (10_000, 100_000, 1_000_000)
    flights: int = 1_000
    flight_changes: int = 20_000
    issues: int = 1_000
    bought: int = 20  # issues on the buy list at a time
    quotes: int = 20_000
    offers: int = 1_000
    offer_changes: int = 4_000
    margins: tuple[int, ...] = (0, 2, 5, 10)
    quench_delays: tuple[float, ...] = (0.001, 0.1, 1.0, 10.0)

    def scaled(self, scale: float) -> Sizes:
        """Return these sizes with fewer events and seconds; rates, views, batches, gaps and margins stay."""
        small: dict[str, Any] = {
            name: tuple(n for n in getattr(self, name) if n <= max(10_000, 1e7 * scale))
            for name in ("gap_events", "broker_events")
        }
        for name in ("flow_events", "flight_changes", "quotes", "offer_changes"):
            small[name] = max(200, int(getattr(self, name) * scale))
        for one in fields(self):
            if one.name.endswith("_seconds"):
                small[one.name] = max(1.0, getattr(self, one.name) * scale)
        return replace(self, **small)


QUICK = replace(
    Sizes().scaled(0.01),
    rounds=1,
    views=10,
    steady_rate=2_000,
    latency_rate=200,
    kill_rate=200,
    kill_seconds=3.0,
    gap_events=(1_000, 10_000),
    gaps=(0, 10, 100),
    broker_events=(1_000, 3_000),
    flights=100,
    flight_changes=500,
    quotes=500,
    issues=100,
    offers=100,
    offer_changes=300,
    margins=(0, 2),
    quench_delays=(0.001, 1.0),
)


@dataclass
class Curve:
    """Points of a plot: one name, and for each setting what it is called, how long was waited and what was sent."""

    panel: str
    name: str
    points: list[tuple[str, float, float]] = field(default_factory=list)  # label, x, y
    x: str = ""
    y: str = ""


@dataclass
class Section:
    """What a measurement found, what was promised of it, and what a reader has to know."""

    figures: list[Figure] = field(default_factory=list)
    checks: list[Check] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    curves: list[Curve] = field(default_factory=list)

    def add(self, more: Section) -> None:
        """Take over what another section has."""
        self.figures += more.figures
        self.checks += more.checks
        self.notes += more.notes
        self.curves += more.curves


@dataclass(frozen=True)
class RowPeer:
    """A peer whose servers can be started in a folder."""

    name: str
    make: Callable[[Path], Row]
    missing: Callable[[], str | None]  # why it cannot run


PEERS = {
    peer.name: peer
    for peer in (
        RowPeer(WHENCE, WhenceRow, lambda: None),
        RowPeer(CORE, NatsRow, nats_peer.missing),
        RowPeer(JETSTREAM, lambda folder: NatsRow(folder, jetstream=True), nats_peer.missing),
    )
}


@dataclass(frozen=True)
class Run:
    """A run of `delivery`."""

    sizes: Sizes
    console: Console
    folder: Path
    peers: tuple[str, ...] = tuple(PEERS)

    def among(self, *names: str) -> list[str]:
        """Return those of some peers that take part."""
        return [name for name in names if name in self.peers and PEERS[name].missing() is None]

    @contextlib.contextmanager
    def turn(self, peer: str, views: Sequence[ServedView]) -> Iterator[tuple[Row, RowEndpoint]]:
        """Start a peer's servers with some views at the last; stop them at the end."""
        with PEERS[peer].make(self.folder) as row:
            row.open(views)
            yield row, row.endpoint(Market())

    def say(self, text: str) -> None:
        """Print what has just been measured."""
        self.console.print(f"[dim]{text}", highlight=False)


def sample(figures: dict[str, Figure], what: str, unit: str, peer: str, value: float) -> None:
    """Add a sample to the figure of that name."""
    figures.setdefault(what, Figure(what, unit)).samples.setdefault(peer, []).append(float(value))
