"""Measurements of `serving` about what a client does not have to get: alerts, absence, memory, restarts.

| measurement | what is done |
|---|---|
| `traders` | a client follows the issues with over 500,000 shares in the last hour: messages and bytes |
| `away` | a client is gone for millions of trades: seconds and bytes until it is current again |
| `memory` | the server's memory between 2 and 10 million trades over the same keys |
| `restart` | kill -9; from when the server listens again until each client has a trade that came after |
"""

from __future__ import annotations

import asyncio
from typing import Any

from benchmarks.peers.nats_peer import CORE, EVERY, JETSTREAM, STREAM_NAME, UNSYNCED, NatsServer
from benchmarks.peers.nats_raw import Replay, fill_stream
from benchmarks.peers.postgres_peer import POSTGRES
from benchmarks.peers.served import Endpoint
from benchmarks.report import WHENCE, Check, Figure
from benchmarks.serving_data import (
    HIGH_TRADERS,
    VOLUME,
    ClientState,
    HighTraders,
    Market,
    Row,
    compare,
    expect,
)
from benchmarks.serving_processes import HOST, Child, Link, bytes_received, memory_of, now
from benchmarks.serving_roles import (
    follow,
    follow_after_absence,
    follow_alerts,
    follow_through_restart,
    publish_batches,
    publish_singles,
    publish_when_possible,
)
from benchmarks.serving_run import Run, Section, sample

REPLAY, REPLAY_RAW, LAST = "JetStream replay, nats-py", "JetStream replay, raw socket", "JetStream last per subject"
ALL_KEPT, LAST_KEPT = "JetStream, all kept", "JetStream, last per subject kept"
FIRST = 1_000  # trades before a client leaves
LOAD = 10_000  # trades of a batch that only loads
MS, MEGABYTE = 1e3, 1e6


def traders(run: Run) -> Section:
    """Count messages and bytes of a client that follows the high traders."""
    sizes, figures = run.sizes, dict[str, Figure]()
    count, market = sizes.trader_events, Market()
    every = market.trades(0, count)
    expected = expect([HIGH_TRADERS], every)
    oracle = HighTraders(market.issues, HIGH_TRADERS.high or 0)
    for batch in market.batches(0, count, sizes.trader_batch):
        oracle.apply(batch)
    compare("the oracle", {HIGH_TRADERS.name: oracle.rows()}, expected)
    what = f"high traders of {count:,} trades"
    for peer in run.among(WHENCE, CORE, POSTGRES):
        with (
            run.turn(peer, [HIGH_TRADERS], market) as (_, endpoint),
            Child(follow_alerts, endpoint, HIGH_TRADERS, count - 1) as client,
        ):
            client.wait_ready()
            if peer == CORE:  # raw delivery: a message a trade
                job = Child(publish_singles, endpoint, 0, count, 1, 1)
            else:
                job = Child(publish_batches, endpoint, 0, count, sizes.trader_batch, 4)
            with job as publisher:
                publisher.wait_ready()
                publisher.tell()
                published = publisher.result()
            client.tell(published.position)
            followed = client.result()
            compare(peer, followed.rows, expected)
            sample(figures, f"{what}: messages", "messages", peer, followed.messages)
            sample(figures, f"{what}: bytes", "bytes", peer, followed.bytes)
            seconds = followed.at[-1] - published.begin
            run.say(f"traders: {peer} {followed.messages:,} messages, {followed.bytes:,} bytes, {seconds:.1f} s")
    section = Section(list(figures.values()))
    section.notes.append(
        f"traders: {oracle.changes} times an issue came or went, looked at every {sizes.trader_batch} trades"
    )
    for kind in ("messages", "bytes"):
        figure = figures.get(f"{what}: {kind}")
        if figure is not None and {WHENCE, CORE} <= figure.samples.keys():
            section.checks.append(Check(f"times fewer {kind} than raw delivery", figure.times(CORE, WHENCE), 100))
    return section


def away(run: Run) -> Section:
    """Measure how long a client that was gone takes to be current, and how many bytes."""
    sizes, figures = run.sizes, dict[str, Figure]()
    market = Market(issues=sizes.away_issues)
    count = FIRST + sizes.away_events
    expected = expect([VOLUME], market.trades(0, count))
    what = f"away for {sizes.away_events:,} trades"

    def note(peer: str, seconds: float, taken: int, rows: dict[str, list[Row]]) -> None:
        compare(peer, rows, expected)
        sample(figures, f"{what}: until current", "ms", peer, MS * seconds)
        sample(figures, f"{what}: bytes", "bytes", peer, taken)
        run.say(f"away: {peer} {MS * seconds:,.1f} ms, {taken:,} bytes")

    for peer in run.among(WHENCE, POSTGRES):
        with (
            run.turn(peer, [VOLUME], market) as (_, endpoint),
            Child(follow_after_absence, endpoint, [VOLUME], FIRST - 1, count - 1) as client,
        ):
            client.wait_ready()
            _load(endpoint, 0, FIRST)
            client.wait_ready()
            _load(endpoint, FIRST, sizes.away_events)
            client.tell()
            found = client.result()
            note(peer, found.at[-1] - found.at[0], found.bytes, found.rows)
    notes = []
    if run.among(UNSYNCED):
        with (
            run.turn(UNSYNCED, [VOLUME], market) as (_, endpoint),
            Child(follow_after_absence, endpoint, [VOLUME], FIRST - 1, count - 1) as client,
        ):
            client.wait_ready()
            fill_stream(endpoint.port, market, 0, FIRST)
            client.wait_ready()
            seconds = fill_stream(endpoint.port, market, FIRST, sizes.away_events)
            notes.append(f"away: JetStream was loaded without sync, in {seconds:.1f} s")
            client.tell()
            found = client.result()
            note(REPLAY, found.at[-1] - found.at[0], found.bytes, found.rows)
            with Child(replay, endpoint, FIRST, sizes.away_events) as other:
                note(REPLAY_RAW, *other.result())
            with Child(read_last, endpoint) as third:
                seconds, taken, last = third.result()
            found_last = {"last": sorted(last.items())}
            compare(LAST, found_last, {"last": [(row[0], row[4]) for row in expected[VOLUME.name]]})
            sample(figures, f"{what}: until current", "ms", LAST, MS * seconds)
            sample(figures, f"{what}: bytes", "bytes", LAST, taken)
            run.say(f"away: {LAST} {MS * seconds:,.1f} ms, {taken:,} bytes")
        notes.append("away: last per subject has the last trade of each row, not its sums")
    notes.append(f"away: {len(expected[VOLUME.name]):,} rows")
    section = Section(list(figures.values()), notes=notes)
    until, taken_bytes = (figures.get(f"{what}: {kind}") for kind in ("until current", "bytes"))
    if until is not None and taken_bytes is not None and WHENCE in until.samples:
        section.checks.append(Check(f"{what}: ms until current", until.of(WHENCE), 300, at_least=False))
        for peer in (REPLAY, REPLAY_RAW):
            if peer in until.samples:
                section.checks.append(Check(f"times fewer bytes than {peer}", taken_bytes.times(peer, WHENCE), 1_000))
                section.checks.append(Check(f"times less time than {peer}", until.times(peer, WHENCE), 100))
    return section


def _load(endpoint: Endpoint, first: int, count: int) -> None:
    with Child(publish_batches, endpoint, first, count, LOAD, 2) as publisher:
        publisher.wait_ready()
        publisher.tell()
        publisher.result()


def replay(link: Link, endpoint: Endpoint, after: int, count: int) -> tuple[float, int, dict[str, list[Row]]]:
    """Read a stream's messages by a raw socket, and compute the view; return seconds, bytes and rows."""
    state = ClientState([VOLUME], endpoint.market)
    state.apply([endpoint.market.trades(0, after).tobytes()])
    begin = now()
    messages = Replay(endpoint.port, after, count)
    for part in messages:
        state.apply([part])
    return now() - begin, messages.bytes, state.rows()


def read_last(link: Link, endpoint: Endpoint) -> tuple[float, int, dict[int, int]]:
    """Read the last message of each subject; return seconds, bytes, and the number of each issue's last trade."""
    return asyncio.run(_read_last(endpoint))


async def _read_last(endpoint: Endpoint) -> tuple[float, int, dict[int, int]]:
    import nats
    from nats.js.api import AckPolicy, ConsumerConfig, DeliverPolicy

    state = ClientState([VOLUME], endpoint.market)
    done = asyncio.Event()
    messages: list[bytes] = []

    async def take(message: Any) -> None:
        messages.append(message.data)
        if message.metadata.num_pending == 0:
            done.set()

    begin = now()
    connection = await nats.connect(f"nats://{HOST}:{endpoint.port}")
    config = ConsumerConfig(ack_policy=AckPolicy.NONE, deliver_policy=DeliverPolicy.LAST_PER_SUBJECT)
    await connection.jetstream().subscribe(EVERY, stream=STREAM_NAME, cb=take, config=config, manual_ack=True)
    await done.wait()
    state.apply(messages)
    seconds, taken = now() - begin, bytes_received(endpoint.port)
    await connection.close()
    return seconds, taken, {row[0]: row[4] for row in state.rows()[VOLUME.name]}


def memory(run: Run) -> Section:
    """Measure the memory of a server while trades over the same keys go through it."""
    sizes, figures = run.sizes, dict[str, Figure]()
    market = Market()
    early, late = sizes.memory_from, sizes.memory_to

    def note(peer: str, number: int, taken: int) -> None:
        sample(figures, f"memory after {number:,} trades", "MB", peer, taken / MEGABYTE)
        run.say(f"memory: {peer} {taken / MEGABYTE:.1f} MB after {number:,} trades")

    for peer in run.among(WHENCE):
        with run.turn(peer, [VOLUME], market) as (server, endpoint):
            for first, last in ((0, early), (early, late)):
                _load(endpoint, first, last - first)
                note(peer, last, memory_of(server.pids()))
            with Child(follow, endpoint, [VOLUME], late - 1) as client:
                compare(peer, client.result().rows, expect([VOLUME], market.trades(0, late)))
    if run.among(UNSYNCED):
        for name, last_only in ((ALL_KEPT, False), (LAST_KEPT, True)):
            with NatsServer(run.folder, jetstream=True, sync=False, last_only=last_only) as other:
                other.open([VOLUME])
                endpoint = other.endpoint(market)
                for first, last in ((0, early), (early, late)):
                    fill_stream(other.port, market, first, last - first)
                    note(name, last, memory_of(other.pids()))
                with Child(read_last, endpoint) as reader:
                    found = {"last": sorted(reader.result()[2].items())}
                    rows = expect([VOLUME], market.trades(0, late))[VOLUME.name]
                    compare(name, found, {"last": [(row[0], row[4]) for row in rows]})
    notes = ["memory: JetStream was loaded without sync"] if run.among(UNSYNCED) else []
    section = Section(list(figures.values()), notes=notes)
    before, after = (figures.get(f"memory after {number:,} trades") for number in (early, late))
    if before is not None and after is not None and WHENCE in before.samples:
        growth = 100 * (after.of(WHENCE) / before.of(WHENCE) - 1)
        section.checks.append(Check(f"% of memory from {early:,} to {late:,} trades", growth, 5.0, at_least=False))
    return section


def restart(run: Run) -> Section:
    """Kill the server; measure from when it listens again until every client has the next trades."""
    sizes, figures = run.sizes, dict[str, Figure]()
    market = Market()
    before = sizes.restart_events
    after = before + 16
    expected = expect([VOLUME], market.trades(0, after))
    what = f"kill -9, {sizes.restart_clients:,} clients: from listening to all current"
    for _ in range(sizes.rounds):
        for peer in run.among(WHENCE, JETSTREAM, POSTGRES):
            with (
                run.turn(peer, [VOLUME], market, sizes.restart_clients) as (server, endpoint),
                Child(
                    follow_through_restart, endpoint, [VOLUME], sizes.restart_clients, before - 1, after - 1
                ) as clients,
                Child(publish_when_possible, endpoint, before, after - before) as publisher,
            ):
                publisher.wait_ready()
                clients.wait_ready()
                _load(endpoint, 0, before)
                clients.wait_ready()
                server.kill()
                listening = server.start()
                publisher.tell()
                publisher.result()
                found = clients.result()
                for followed in found:
                    compare(peer, followed.rows, expected)
                current = max(float(followed.at[-1]) for followed in found) - listening
                sample(figures, what, "ms", peer, MS * current)
                run.say(f"restart: {peer} {MS * current:,.0f} ms")
    section = Section(list(figures.values()))
    if run.among(WHENCE):
        section.checks.append(Check(f"{what}, ms", figures[what].of(WHENCE), 500, at_least=False))
    return section
