"""Measurements of `serving` with many clients of one view: what leaves a server process, and what idle clients cost.

The clients are raw sockets that count (`serving_sockets`), all in one process. Whence sends each epoch's change of the
view; NATS a message of the same size, which somebody else has to have computed; PostgreSQL's clients are notified and
ask for the view. An epoch is one trade per venue, so every row of the view changes.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

from benchmarks.peers.nats_peer import CORE
from benchmarks.peers.postgres_peer import POSTGRES
from benchmarks.peers.served import Endpoint, Server
from benchmarks.report import WHENCE, Check, Figure
from benchmarks.serving_data import BY_VENUE, Market
from benchmarks.serving_processes import Child, FailedError, cpu_of, memory_of, now
from benchmarks.serving_roles import publish_at_rate, publish_batches
from benchmarks.serving_run import Run, Section, sample
from benchmarks.serving_sockets import Counted, receive

KILOBYTE = 1e3
SETTLE = 60.0  # seconds within which all clients have to be current


def fanout(run: Run) -> Section:
    """Measure messages a second to many clients of one view, and what the clients cost while nothing happens."""
    sizes, figures, notes = run.sizes, dict[str, Figure](), list[str]()
    market = Market()
    steady = f"{sizes.clients:,} clients, {sizes.fan_rate:g} epochs/s"
    flat = f"{sizes.clients:,} clients, as fast as it goes"
    for peer in run.among(WHENCE, CORE, POSTGRES):
        with run.turn(peer, [BY_VENUE], market, sizes.clients) as (server, endpoint):
            _prime(endpoint)
            before = memory_of(server.pids())
            with Child(receive, endpoint.port, endpoint.raw(BY_VENUE), sizes.clients) as clients:
                clients.wait_ready()
                _idle(run, server, peer, before, figures)
                first = market.venues
                for what, epochs, rate in (
                    (steady, int(sizes.fan_rate * sizes.fan_seconds), sizes.fan_rate),
                    (flat, sizes.flat_out, None),
                ):
                    found = _deliver(server, endpoint, clients, first, epochs, rate)
                    first += epochs * market.venues
                    sample(figures, f"{what}: messages", "messages/s", peer, found.messages / found.seconds)
                    sample(figures, f"{what}: CPU of the server", "% of a core", peer, 100 * found.cpu / found.seconds)
                    notes.append(
                        f"fanout: {what}: {peer}: {found.messages:,} messages for {epochs:,} epochs, "
                        f"{found.bytes / max(1, found.messages):.0f} bytes each"
                    )
                    run.say(f"{notes[-1]}, {found.messages / found.seconds:,.0f} messages/s")
                clients.tell(None)
    section = Section(list(figures.values()), notes=[f"fanout: a message of {market.venues} rows an epoch", *notes])
    for what, bound, at_least in (
        (f"{steady}: messages", 40_000, True),
        (f"{sizes.clients:,} idle clients: CPU", 5.0, False),
        (f"{sizes.clients:,} idle clients: memory each", 50.0, False),
    ):
        if what in figures and WHENCE in figures[what].samples:
            section.checks.append(Check(f"{what} ({figures[what].unit})", figures[what].of(WHENCE), bound, at_least))
    return section


def _prime(endpoint: Endpoint) -> None:
    """Publish one epoch, so that the view has its rows before clients come."""
    with Child(publish_batches, endpoint, 0, endpoint.market.venues, endpoint.market.venues, 1) as publisher:
        publisher.wait_ready()
        publisher.tell()
        publisher.result()


def _idle(run: Run, server: Server, peer: str, before: int, figures: dict[str, Figure]) -> None:
    count = run.sizes.clients
    time.sleep(min(1.0, run.sizes.idle_seconds))  # what connecting has left to do is done
    pids = server.pids()
    each = (memory_of(pids) - before) / count / KILOBYTE
    used, begin = cpu_of(pids), now()
    time.sleep(run.sizes.idle_seconds)
    share = 100 * (cpu_of(pids) - used) / (now() - begin)
    sample(figures, f"{count:,} idle clients: CPU", "% of a core", peer, share)
    sample(figures, f"{count:,} idle clients: memory each", "kB", peer, each)
    run.say(f"idle: {peer} {share:.2f} % of a core, {each:.1f} kB each")


@dataclass(frozen=True)
class Delivered:
    """What clients got from the first epoch's publication until all were current, and what it cost the server."""

    messages: int
    bytes: int
    seconds: float
    cpu: float


def _deliver(
    server: Server, endpoint: Endpoint, clients: Child[None], first: int, epochs: int, rate: float | None
) -> Delivered:
    """Publish epochs, `rate` a second or as fast as it goes, until every client is current."""
    size = endpoint.market.venues
    count = epochs * size
    before: Counted = clients.ask(-1)
    used = cpu_of(server.pids())
    if rate is None:
        job = Child(publish_batches, endpoint, first, count, size, 1)
    else:
        job = Child(publish_at_rate, endpoint, first, count, rate * size, size)
    with job as publisher:
        publisher.wait_ready()
        publisher.tell()
        published = publisher.result()
    after = _settle(clients, first + count - 1, endpoint.name)
    return Delivered(
        messages=after.messages - before.messages,
        bytes=after.bytes - before.bytes,
        seconds=after.at - published.begin,
        cpu=cpu_of(server.pids()) - used,
    )


def _settle(clients: Child[None], last: int, peer: str) -> Counted:
    until = now() + SETTLE
    while True:
        counted: Counted = clients.ask(last)
        if counted.behind == 0:
            return counted
        if now() > until or counted.closed:
            raise FailedError(f"{peer}: {counted.behind} clients are not current, {counted.closed} were cut off")
        time.sleep(0.05)
