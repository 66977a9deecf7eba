"""Measurements of `serving` while events flow: how many a second, how late they are, and what a stalled client costs.

| measurement | what is timed |
|---|---|
| `ingest` | batches of trades, until one client has all views as of the last trade; the first tenth is not timed |
| `single` | single inserts, each acknowledged when durable, from 16 connections; the first tenth is not timed |
| `latency` | from when a trade is due to be published until a client's views reflect it |
| `stalled` | the same beside a client that reads nothing, in turn with rounds without it; memory of the server |
"""

from __future__ import annotations

import asyncio
from contextlib import nullcontext

import numpy as np

from benchmarks.peers.nats_peer import CORE, JETSTREAM
from benchmarks.peers.postgres_peer import POSTGRES
from benchmarks.peers.served import Endpoint
from benchmarks.report import WHENCE, Check, Figure
from benchmarks.serving_data import BY_VENUE, Market, Row, ServedView, compare, distinct_views, expect
from benchmarks.serving_processes import Child, memory_of
from benchmarks.serving_roles import (
    Times,
    due_times,
    follow,
    publish_at_rate,
    publish_batches,
    publish_singles,
)
from benchmarks.serving_run import Run, Section, sample
from benchmarks.serving_sockets import stall

MS = 1e3
MEGABYTE = 1e6
ALONE, BESIDE = "undisturbed", "beside a stalled client"


def ingest(run: Run) -> Section:
    """Measure events a second into 100 distinct views, which a client follows."""
    sizes, figures = run.sizes, dict[str, Figure]()
    views = distinct_views(sizes.ingest_views)
    count, warm = sizes.ingest_events, sizes.ingest_events // 10
    expected = expect(views, Market().trades(0, count))
    what = f"{sizes.ingest_views} views, batches of {sizes.ingest_batch:,}"
    for _ in range(sizes.rounds):
        for peer in run.among(WHENCE, CORE, JETSTREAM, POSTGRES):
            with run.turn(peer, views) as (_, endpoint), Child(follow, endpoint, views, count - 1) as client:
                client.wait_ready()
                job = (publish_batches, endpoint, 0, count, sizes.ingest_batch, sizes.ingest_in_flight, warm)
                with Child(*job) as publisher:
                    publisher.wait_ready()
                    publisher.tell()
                    published, followed = publisher.result(), client.result()
                compare(peer, followed.rows, expected)
                sample(figures, what, "events/s", peer, (count - warm) / (followed.at[-1] - published.begin))
                run.say(f"ingest: {peer} {figures[what].samples[peer][-1]:,.0f} events/s")
    section = Section(list(figures.values()))
    if run.among(CORE, JETSTREAM):
        section.notes.append("ingest: clients of NATS compute the views with NumPy; NATS core stores nothing")
    if run.among(WHENCE):
        section.checks.append(Check(f"{what}: events/s", figures[what].of(WHENCE), 50_000))
    return section


def single(run: Run) -> Section:
    """Measure single acknowledged durable inserts a second."""
    sizes, figures = run.sizes, dict[str, Figure]()
    views = [*distinct_views(sizes.single_views), BY_VENUE]
    count, warm = sizes.single_events, sizes.single_events // 10
    expected = expect(views, Market().trades(0, count))
    what = f"single durable inserts, {sizes.single_connections} connections"
    for _ in range(sizes.rounds):
        for peer in run.among(WHENCE, JETSTREAM, POSTGRES):
            with run.turn(peer, views) as (_, endpoint):
                job = (publish_singles, endpoint, 0, count, sizes.single_connections, sizes.single_in_flight, warm)
                with Child(*job) as publisher:
                    publisher.wait_ready()
                    publisher.tell()
                    published = publisher.result()
                compare(peer, _read(endpoint, views, count), expected)
                sample(figures, what, "inserts/s", peer, (count - warm) / (published.end - published.begin))
                run.say(f"single: {peer} {figures[what].samples[peer][-1]:,.0f} inserts/s")
    section = Section(list(figures.values()))
    if run.among(WHENCE):
        section.checks.append(Check(f"{what}: inserts/s", figures[what].of(WHENCE), 5_000))
    return section


def _read(endpoint: Endpoint, views: list[ServedView], count: int) -> dict[str, list[Row]]:
    """Read views as a client that comes late does. Trades of several connections come in any order."""
    with Child(follow_count, endpoint, views, count) as client:
        return client.result()


def follow_count(link: object, endpoint: Endpoint, views: list[ServedView], count: int) -> dict[str, list[Row]]:
    """Follow views until they reflect so many trades, and return their rows."""

    async def read() -> dict[str, list[Row]]:
        follower = await endpoint.follower(views)
        async with asyncio.timeout(120):
            while sum(row[1] for row in follower.rows().get(BY_VENUE.name, [])) < count:
                await follower.advance()
        rows = follower.rows()
        await follower.close()
        return rows

    return asyncio.run(read())


def latency(run: Run) -> Section:
    """Measure the time from publishing to a client's views, at a steady rate."""
    sizes, figures = run.sizes, dict[str, Figure]()
    views = distinct_views(sizes.latency_views)
    what = f"publish to client, {sizes.latency_rate:,}/s, {sizes.latency_views} views"
    for _ in range(sizes.rounds):
        for peer in run.among(WHENCE, CORE, JETSTREAM, POSTGRES):
            with run.turn(peer, views) as (_, endpoint):
                late = _late(peer, endpoint, views, 0, sizes.latency_rate, sizes.latency_seconds, 1)
            for name, share in (("p50", 0.5), ("p99", 0.99)):
                sample(figures, f"{what}, {name}", "ms", peer, MS * float(np.quantile(late, share)))
            run.say(f"latency: {peer} p50/p99 {MS * np.quantile(late, 0.5):.2f}/{MS * np.quantile(late, 0.99):.2f} ms")
    section = Section(list(figures.values()))
    if run.among(WHENCE):
        for name, bound in (("p50", 5.0), ("p99", 25.0)):
            figure = figures[f"{what}, {name}"]
            section.checks.append(Check(f"{figure.what}: ms", figure.of(WHENCE), bound, at_least=False))
    return section


def _late(
    peer: str, endpoint: Endpoint, views: list[ServedView], first: int, rate: float, seconds: float, size: int
) -> Times:
    """Publish for some seconds from trade `first` on; return how late each trade is, but those of the first tenth."""
    count = int(rate * seconds)
    with (
        Child(follow, endpoint, views, first + count - 1) as client,
        Child(publish_at_rate, endpoint, first, count, rate, size) as publisher,
    ):
        client.wait_ready()
        publisher.wait_ready()
        publisher.tell()
        published, followed = publisher.result(), client.result()
    if first == 0 or peer != CORE:  # which does not tell a client what was before
        compare(peer, followed.rows, expect(views, endpoint.market.trades(0, first + count)))
    return followed.latencies(due_times(published, count, rate, size), first)[count // 10 :]


def stalled(run: Run) -> Section:
    """Measure what a client that does not read costs the server and the other clients."""
    sizes, figures = run.sizes, dict[str, Figure]()
    rate, seconds, size = sizes.stalled_rate, sizes.stalled_seconds, sizes.stalled_batch
    notes = [f"stalled: {rate:,} events/s in batches of {size}, {seconds:g} s a round"]
    for peer in run.among(WHENCE, CORE, POSTGRES):
        ends = []
        with run.turn(peer, [BY_VENUE]) as (server, endpoint):
            _late(peer, endpoint, [BY_VENUE], 0, rate, seconds / 10, size)  # what a server does once is done
            first = int(rate * seconds / 10)
            for who in (ALONE, BESIDE) * sizes.stalled_rounds:
                before = memory_of(server.pids())
                with Child(stall, endpoint.port, endpoint.raw(BY_VENUE)) if who == BESIDE else nullcontext() as idle:
                    if idle is not None:
                        idle.wait_ready()
                    late = _late(peer, endpoint, [BY_VENUE], first, rate, seconds, size)
                    grown = (memory_of(server.pids()) - before) / MEGABYTE
                    first += int(rate * seconds)
                    if idle is not None:
                        idle.tell(first - 1)
                        ends.append(idle.result())
                p99 = MS * float(np.quantile(late, 0.99))
                sample(figures, f"p99 of the others, {who}", "ms", peer, p99)
                sample(figures, f"memory that a round adds, {who}", "MB", peer, grown)
                run.say(f"stalled: {peer} {who}: p99 {p99:.2f} ms, memory {grown:+.2f} MB")
        notes.append(f"stalled: {peer}: told to read again, the stalled client was {', '.join(ends)}")
    section = Section(list(figures.values()), notes=notes)
    if run.among(WHENCE):
        late_alone, late_beside = (figures[f"p99 of the others, {who}"].of(WHENCE) for who in (ALONE, BESIDE))
        bound = max(1.2 * late_alone, late_alone + 2.0)
        section.checks.append(Check("stalled: p99 of others, ms", late_beside, bound, at_least=False))
        alone, beside = (figures[f"memory that a round adds, {who}"].of(WHENCE) for who in (ALONE, BESIDE))
        section.checks.append(Check("stalled: MB of memory", beside - alone, 1.0, at_least=False))
    return section
