"""What the client processes of `serving` do. Each function runs in a process of its own, by `Child`.

| role | what it does |
|---|---|
| `follow` | keeps views up to date to a trade; says when it reflected what, and what it ended with |
| `follow_alerts` | the same for one view that seldom changes, without anything beside it |
| `publish_batches` | inserts batches as fast as they are acknowledged, or as the peer takes them |
| `publish_at_rate` | inserts by the clock; what is late stays due, so a server that stalls is charged for it |
| `publish_singles` | inserts one trade at a time from many connections, each of which waits for some |
| `publish_when_possible` | inserts as soon as a server that was killed can be reached again |
| `follow_after_absence` | leaves, and comes back when told to; says how long it takes to be current |
| `follow_through_restart` | many followers, and when each of them is current after the server was killed |
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from benchmarks.peers.served import RETRY, Endpoint, Follower, Publisher
from benchmarks.serving_data import Row, ServedView
from benchmarks.serving_processes import PATIENCE, Link, bytes_received, now

Times = NDArray[np.float64]


@dataclass(frozen=True)
class Followed:
    """What a follower went through."""

    at: Times  # when it had taken news in
    numbers: NDArray[np.int64]  # of the last trade that its views reflected then
    rows: dict[str, list[Row]]  # at the end
    messages: int
    bytes: int

    def latencies(self, published: Times, first: int) -> Times:
        """Return the seconds until each trade from `first` on was reflected; `published` says when each was due."""
        place = np.searchsorted(self.numbers, first + np.arange(len(published)))
        return np.asarray(self.at[place] - published)


def follow(link: Link, endpoint: Endpoint, views: Sequence[ServedView], last: int) -> Followed:
    """Follow views until they reflect the trade `last`."""
    return asyncio.run(_follow(link, endpoint, views, last))


async def _follow(link: Link, endpoint: Endpoint, views: Sequence[ServedView], last: int) -> Followed:
    follower = await endpoint.follower(views)
    at, numbers = [now()], [follower.number]
    before = bytes_received(endpoint.port)
    link.ready()
    async with asyncio.timeout(PATIENCE):
        while numbers[-1] < last:
            numbers.append(await follower.advance())
            at.append(now())
    received = bytes_received(endpoint.port) - before
    found = Followed(np.array(at), np.array(numbers), follower.rows(), follower.messages, received)
    await follower.close()
    return found


def follow_alerts(link: Link, endpoint: Endpoint, view: ServedView, last: int) -> Followed:
    """Follow a view that seldom changes until it reflects the trade `last`; the parent says where that is."""
    return asyncio.run(_follow_alerts(link, endpoint, view, last))


async def _follow_alerts(link: Link, endpoint: Endpoint, view: ServedView, last: int) -> Followed:
    follower = await endpoint.alert_follower(view)
    before, first = bytes_received(endpoint.port), follower.messages
    link.ready()
    async with asyncio.timeout(PATIENCE):
        await follower.reach(last, lambda: link.wait() if link.asked() else None)
    received, messages = bytes_received(endpoint.port) - before, follower.messages - first
    found = Followed(np.array([now()]), np.array([follower.number]), follower.rows(), messages, received)
    await follower.close()
    return found


@dataclass(frozen=True)
class Published:
    """When trades were published."""

    begin: float
    end: float  # all are acknowledged
    position: str = ""  # of the last acknowledgement, where there is one


def publish_batches(
    link: Link, endpoint: Endpoint, first: int, count: int, size: int, in_flight: int, warm: int = 0
) -> Published:
    """Insert trades in batches, some of them at the same time, when told to; the first `warm` trades before that."""
    return asyncio.run(_publish_batches(link, endpoint, first, count, size, in_flight, warm))


async def _publish_batches(
    link: Link, endpoint: Endpoint, first: int, count: int, size: int, in_flight: int, warm: int
) -> Published:
    publisher = await endpoint.publisher()
    trades = endpoint.market.trades(first, count)  # made before the clock starts
    for start in range(0, warm, size):
        await publisher.insert(trades[start : min(start + size, warm)])
    link.ready()
    link.wait()
    begin = now()
    window = Window(min(in_flight, publisher.in_flight))
    for start in range(warm, count, size):
        await window.run(publisher.insert(trades[start : start + size]))
    await window.close()
    end = now()
    position = publisher.position
    await publisher.close()
    return Published(begin, end, position)


class Window:
    """Tasks of which a few run at the same time, begun in order."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def full(self) -> bool:
        """Would another task have to wait?"""
        return len(self._tasks) >= self._size

    async def run(self, work: Awaitable[None]) -> None:
        """Begin a task as soon as there is room for it."""
        while self.full:
            await self._reap(asyncio.FIRST_COMPLETED)
        self._tasks.add(asyncio.ensure_future(work))
        await asyncio.sleep(0)

    async def wait_room(self) -> None:
        """Wait until a task would not have to wait."""
        while self.full:
            await self._reap(asyncio.FIRST_COMPLETED)

    async def _reap(self, when: str) -> None:
        done, self._tasks = await asyncio.wait(self._tasks, return_when=when)
        for task in done:
            task.result()

    async def close(self) -> None:
        """Wait for all tasks."""
        if self._tasks:
            await self._reap(asyncio.ALL_COMPLETED)


def publish_at_rate(link: Link, endpoint: Endpoint, first: int, count: int, rate: float, size: int) -> Published:
    """Insert `rate` trades a second, `size` of them at a time, when told to; the nth is due n / rate after `begin`."""
    return asyncio.run(_publish_at_rate(link, endpoint, first, count, rate, size))


async def _publish_at_rate(link: Link, endpoint: Endpoint, first: int, count: int, rate: float, size: int) -> Published:
    publisher = await endpoint.publisher()
    trades = endpoint.market.trades(first, count)
    link.ready()
    link.wait()
    window = Window(publisher.in_flight)
    begin, done = now(), 0
    while done < count:
        await window.wait_room()
        due = min(count, size * (1 + math.floor((now() - begin) * rate / size)))
        if due <= done:
            await asyncio.sleep(begin + done / rate - now())
            continue
        step = due - done if publisher.gathers else size
        for start in range(done, due, step):
            await window.run(publisher.insert(trades[start : min(start + step, due)]))
        done = due
    await window.close()
    end = now()
    await publisher.close()
    return Published(begin, end)


def due_times(published: Published, count: int, rate: float, size: int) -> Times:
    """Return when each trade of `publish_at_rate` was due."""
    return published.begin + np.arange(count) // size * size / rate


def publish_singles(
    link: Link, endpoint: Endpoint, first: int, count: int, connections: int, in_flight: int, warm: int = 0
) -> Published:
    """Insert single trades from some connections at the same time, when told to; each waits for `in_flight` of them.

    The first `warm` trades are inserted before that, by one connection."""
    return asyncio.run(_publish_singles(link, endpoint, first, count, connections, in_flight, warm))


async def _publish_singles(
    link: Link, endpoint: Endpoint, first: int, count: int, connections: int, in_flight: int, warm: int
) -> Published:
    publishers: list[Publisher] = [await endpoint.publisher() for _ in range(connections)]
    trades = endpoint.market.trades(first, count)
    if warm:
        await publishers[0].insert_each(trades[:warm], in_flight)
    shares = np.array_split(trades[warm:], connections)
    link.ready()
    link.wait()
    begin = now()
    async with asyncio.TaskGroup() as group:
        for publisher, share in zip(publishers, shares, strict=True):
            group.create_task(publisher.insert_each(share, in_flight))
    end = now()
    for publisher in publishers:
        await publisher.close()
    return Published(begin, end)


def publish_when_possible(link: Link, endpoint: Endpoint, first: int, count: int) -> Published:
    """Insert one batch as soon as the server can be reached, when told to."""
    return asyncio.run(_publish_when_possible(link, endpoint, first, count))


async def _publish_when_possible(link: Link, endpoint: Endpoint, first: int, count: int) -> Published:
    await (await endpoint.publisher()).close()  # what has to be imported is
    trades = endpoint.market.trades(first, count)
    link.ready()
    link.wait()
    begin = now()
    async with asyncio.timeout(PATIENCE):
        while True:
            try:
                publisher = await endpoint.publisher()
                await publisher.insert(trades)
                break
            except Exception:  # each peer has its own; a server that never comes back ends by the timeout
                await asyncio.sleep(RETRY)
    end = now()
    await publisher.close()
    return Published(begin, end)


def follow_after_absence(
    link: Link, endpoint: Endpoint, views: Sequence[ServedView], before: int, last: int
) -> Followed:
    """Follow views to the trade `before`, leave, and when told to, come back and follow them to the trade `last`."""
    return asyncio.run(_follow_after_absence(link, endpoint, views, before, last))


async def _follow_after_absence(
    link: Link, endpoint: Endpoint, views: Sequence[ServedView], before: int, last: int
) -> Followed:
    follower = await endpoint.follower(views)
    link.ready()
    async with asyncio.timeout(PATIENCE):
        while follower.number < before:
            await follower.advance()
    await follower.leave()
    link.ready()
    link.wait()
    at, messages = [now()], follower.messages
    numbers = [follower.number]
    await follower.come_back()
    async with asyncio.timeout(PATIENCE):
        while follower.number < last:
            await follower.advance()
    at.append(now())
    numbers.append(follower.number)
    received = bytes_received(endpoint.port)
    found = Followed(np.array(at), np.array(numbers), follower.rows(), follower.messages - messages, received)
    await follower.close()
    return found


def follow_through_restart(
    link: Link, endpoint: Endpoint, views: Sequence[ServedView], clients: int, before: int, after: int
) -> list[Followed]:
    """Follow with many clients to the trade `before`, then to the trade `after`."""
    return asyncio.run(_follow_through_restart(link, endpoint, views, clients, before, after))


async def _follow_through_restart(
    link: Link, endpoint: Endpoint, views: Sequence[ServedView], clients: int, before: int, after: int
) -> list[Followed]:
    followers: list[Follower] = [await endpoint.follower(views) for _ in range(clients)]
    times: list[float] = [0.0] * clients
    link.ready()

    async def reach(place: int, number: int) -> None:
        while followers[place].number < number:
            await followers[place].advance()
        times[place] = now()

    for number in (before, after):
        async with asyncio.timeout(PATIENCE), asyncio.TaskGroup() as group:
            for place in range(clients):
                group.create_task(reach(place, number))
        if number == before:
            link.ready()
    found = []
    for follower, at in zip(followers, times, strict=True):
        numbers = np.array([follower.number])
        found.append(Followed(np.array([at]), numbers, follower.rows(), follower.messages, 0))
        await follower.close()
    return found
