"""Measurements of `delivery` over three servers in a row, with distinct subscriptions at the last.

| measurement | what is timed |
|---|---|
| `flow` | batches as fast as the first server takes them, until a client at the last has all; not the first tenth |
| `steady` | batches at a given rate: how late trades are in the middle third and in the last; memory gained |
| `latency` | single trades at a steady rate: from when one is due to be published until a client's views reflect it |
| `kill` | kill -9 of the middle server under load: until a client has what is published when it listens again |

What a client ends with is compared with what DuckDB computes from the same trades. Core NATS is left out of `kill`: it
does not send again what a server that was killed had.
"""

from __future__ import annotations

import time

import numpy as np

from benchmarks.delivery_run import Run, Section, sample
from benchmarks.peers.nats_peer import CORE, JETSTREAM
from benchmarks.peers.rows import Row, RowEndpoint
from benchmarks.report import WHENCE, Check, Figure
from benchmarks.serving_data import Market, ServedView, compare, distinct_views, expect
from benchmarks.serving_processes import Child, memory_of
from benchmarks.serving_roles import Times, due_times, follow, publish_at_rate, publish_batches

MS, MEGABYTE = 1e3, 1e6
ASKED_RATE, ASKED_P50, ASKED_P99, ASKED_KILL = 30_000, 15.0, 60.0, 2_000.0
MIDDLE, END = "in the middle third", "in the last third"


def flow(run: Run) -> Section:
    """Measure events a second from the first server to views at the last."""
    sizes, figures = run.sizes, dict[str, Figure]()
    views = distinct_views(sizes.views)
    count, warm = sizes.flow_events, sizes.flow_events // 10
    expected = expect(views, Market().trades(0, count))
    what = f"three in a row, {sizes.views} subscriptions, batches of {sizes.flow_batch:,}"
    for _ in range(sizes.rounds):
        for peer in run.among(WHENCE, CORE, JETSTREAM):
            with run.turn(peer, views) as (_, endpoint), Child(follow, endpoint, views, count - 1) as client:
                client.wait_ready()
                job = (publish_batches, endpoint, 0, count, sizes.flow_batch, sizes.flow_in_flight, warm)
                with Child(*job) as publisher:
                    publisher.wait_ready()
                    publisher.tell()
                    published, followed = publisher.result(), client.result()
                compare(peer, followed.rows, expected)
                sample(figures, what, "events/s", peer, (count - warm) / (followed.at[-1] - published.begin))
                run.say(f"flow: {peer} {figures[what].samples[peer][-1]:,.0f} events/s")
    section = Section(list(figures.values()))
    if run.among(CORE, JETSTREAM):
        section.notes.append("flow: clients of NATS compute the views with NumPy; core NATS stores nothing")
    if run.among(WHENCE):
        section.checks.append(Check(f"{what}: events/s", figures[what].of(WHENCE), ASKED_RATE))
    return section


def steady(run: Run) -> Section:
    """Measure whether queues stay flat at the rate that is asked for."""
    sizes, figures = run.sizes, dict[str, Figure]()
    views, rate, seconds = distinct_views(sizes.views), sizes.steady_rate, sizes.steady_seconds
    what = f"{rate:,}/s in batches of {sizes.flow_batch:,}"
    for _ in range(sizes.rounds):
        for peer in run.among(WHENCE, CORE):
            with run.turn(peer, views) as (row, endpoint):
                pids = [pid for node in row.nodes for pid in node.pids()]
                before = memory_of(pids)
                late = _late(peer, endpoint, views, rate, seconds, min(sizes.flow_batch, rate))
                grown = (memory_of(pids) - before) / MEGABYTE
            middle, end = (MS * float(np.median(late[a : a + len(late) // 3])) for a in _thirds(len(late)))
            sample(figures, f"{what}, late {MIDDLE}", "ms", peer, middle)
            sample(figures, f"{what}, late {END}", "ms", peer, end)
            sample(figures, f"{what}, memory gained", "MB", peer, grown)
            run.say(f"steady: {peer} {middle:.1f} ms late {MIDDLE}, {end:.1f} ms {END}; {grown:+.1f} MB")
    section = Section(list(figures.values()))
    if run.among(WHENCE):
        middle, end = (figures[f"{what}, late {when}"].of(WHENCE) for when in (MIDDLE, END))
        bound = max(1.5 * middle, middle + 50.0)
        section.checks.append(Check(f"{what}: queues flat, ms late at the end", end, bound, at_least=False))
    return section


def _thirds(count: int) -> tuple[int, int]:
    return count // 3, count - count // 3


def latency(run: Run) -> Section:
    """Measure the time from publishing at the first server to a client of the last."""
    sizes, figures = run.sizes, dict[str, Figure]()
    views = distinct_views(sizes.views)
    what = f"publish to client over three, {sizes.latency_rate:,}/s, {sizes.views} subscriptions"
    for _ in range(sizes.rounds):
        for peer in run.among(WHENCE, CORE, JETSTREAM):
            with run.turn(peer, views) as (_, endpoint):
                late = _late(peer, endpoint, views, sizes.latency_rate, sizes.latency_seconds, 1)
            p50, p99 = (MS * float(np.quantile(late, share)) for share in (0.5, 0.99))
            sample(figures, f"{what}, p50", "ms", peer, p50)
            sample(figures, f"{what}, p99", "ms", peer, p99)
            run.say(f"latency: {peer} p50/p99 {p50:.2f}/{p99:.2f} ms")
    section = Section(list(figures.values()))
    if run.among(WHENCE):
        for name, bound in (("p50", ASKED_P50), ("p99", ASKED_P99)):
            figure = figures[f"{what}, {name}"]
            section.checks.append(Check(f"{figure.what}: ms", figure.of(WHENCE), bound, at_least=False))
    return section


def _late(peer: str, endpoint: RowEndpoint, views: list[ServedView], rate: float, seconds: float, size: int) -> Times:
    """Publish for some seconds; return how late each trade is, but those of the first tenth."""
    count = int(rate * seconds)
    with (
        Child(follow, endpoint, views, count - 1) as client,
        Child(publish_at_rate, endpoint, 0, count, rate, size) as publisher,
    ):
        client.wait_ready()
        publisher.wait_ready()
        publisher.tell()
        published, followed = publisher.result(), client.result()
    compare(peer, followed.rows, expect(views, endpoint.market.trades(0, count)))
    return followed.latencies(due_times(published, count, rate, size), 0)[count // 10 :]


def kill(run: Run) -> Section:
    """Measure how long a client at the last server is behind after the middle one was killed."""
    sizes, figures = run.sizes, dict[str, Figure]()
    views = distinct_views(sizes.views)
    what = f"kill -9 of the middle server at {sizes.kill_rate:,}/s"
    for _ in range(sizes.rounds):
        for peer in run.among(WHENCE, JETSTREAM):
            with run.turn(peer, views) as (row, endpoint):
                killed, listens, current = _kill(peer, row, endpoint, views, run)
            sample(figures, f"{what}: from listening again until current", "ms", peer, MS * (current - listens))
            sample(figures, f"{what}: from the kill until current", "ms", peer, MS * (current - killed))
            run.say(f"kill: {peer} {MS * (current - listens):,.0f} ms after it listens again, "
                    f"{MS * (current - killed):,.0f} ms after the kill")  # fmt: skip
    section = Section(list(figures.values()))
    if run.among(WHENCE):
        figure = figures[f"{what}: from listening again until current"]
        section.checks.append(Check(f"{figure.what}: ms", figure.of(WHENCE), ASKED_KILL, at_least=False))
    return section


def _kill(peer: str, row: Row, endpoint: RowEndpoint, views: list[ServedView], run: Run) -> tuple[float, float, float]:
    """Kill the middle server in the middle of a run; return when that was, when it listened again, and when the client
    had the first trade that was due after that, and so all before it."""
    rate, size = run.sizes.kill_rate, run.sizes.kill_batch
    count = int(rate * run.sizes.kill_seconds)
    middle = row.nodes[1]
    with (
        Child(follow, endpoint, views, count - 1) as client,
        Child(publish_at_rate, endpoint, 0, count, rate, size) as publisher,
    ):
        client.wait_ready()
        publisher.wait_ready()
        publisher.tell()
        time.sleep(run.sizes.kill_seconds / 4)
        killed = time.clock_gettime(time.CLOCK_MONOTONIC)
        middle.kill()
        listens = middle.start()
        published, followed = publisher.result(), client.result()
    compare(peer, followed.rows, expect(views, endpoint.market.trades(0, count)))
    due = min(count - 1, (int((listens - published.begin) * rate) // size + 1) * size)  # the first that is due then
    current = float(followed.at[np.searchsorted(followed.numbers, due)])
    return killed, listens, max(current, listens)
