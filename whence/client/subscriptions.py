"""Subscriptions to a served database: an async one, and the blocking one on top of it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Generator, Iterator, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from whence.client.connection import ServerLink
from whence.client.encoding import wire_params
from whence.client.feeds import SubscriptionFeed, SubscriptionRequest
from whence.model.budget import Timeout, seconds_of
from whence.model.errors import DisconnectedError, MovedError, QuestionTimeout
from whence.subscribe.part_updates import Row
from whence.subscribe.positions import Position
from whence.subscribe.updates import Update, named_queries

if TYPE_CHECKING:
    from whence.client.background import BackgroundLoop


def make_request(
    queries: str | Mapping[str, str] | Sequence[str],
    params: Any = None,
    *,
    have: Position | str | None = None,
    rows: Sequence[Any] | None = None,
    key: str | Sequence[str] | None = None,
    every: Timeout = None,
    why: bool = False,
    every_change: bool = False,
    ordered: bool = False,
    give_up_after: Timeout = None,
    reflects: Mapping[str, str] | None = None,
) -> SubscriptionRequest:
    """Return what is subscribed to, as `Client.subscribe` takes it."""
    names, texts = named_queries(queries)
    position = Position.parse(have) if isinstance(have, str) else have
    given = None if rows is None else [list(rows)] if isinstance(queries, str) else [list(part) for part in rows]
    return SubscriptionRequest(
        names,
        texts,
        wire_params(params),
        position,
        given,
        key,
        None if every is None else seconds_of(every),
        why,
        every_change,
        None if give_up_after is None else seconds_of(give_up_after),
        reflects=reflects,
        ordered=ordered,
    )


class AsyncSubscription:
    """Updates of queries of a served database (`AsyncClient.subscribe`), for `async for`. Awaiting it returns when the
    server has said that it stands, or raises why it does not.

    rows      the rows as of the last update, of the first query
    position  the position of the last update; None before the first
    """

    def __init__(self, link: ServerLink, request: SubscriptionRequest) -> None:
        self._link = link
        self._feed: SubscriptionFeed = link.subscribe(request)
        self._closed = False

    @property
    def rows(self) -> list[Row]:
        return self._feed.rows.first_rows

    @property
    def position(self) -> Position | None:
        return self._feed.rows.position

    @property
    def columns(self) -> list[str]:
        """The names of the columns, of the first query; none before the server has told them."""
        schemas = self._feed.rows.schemas
        return list(schemas[0].names) if schemas else []

    def __await__(self) -> Generator[Any, None, Self]:
        return self._opened().__await__()

    async def _opened(self) -> Self:
        feed, link = self._feed, self._link
        end = time.monotonic() + link.options.timeout
        while not feed.is_open and not feed.is_ready:
            if feed.ended is not None:
                raise feed.ended
            if not await link.wait_for_news(feed, 0.1) and time.monotonic() > end and not link.protocol.is_ready:
                self.close()
                raise DisconnectedError(f"no connection to {link.options.url} within {link.options.timeout:g} s")
        return self

    def __aiter__(self) -> AsyncIterator[Update]:
        return self

    async def __anext__(self) -> Update:
        update = await self.next()
        if update is None:
            raise StopAsyncIteration
        return update

    async def next(self, timeout: Timeout = None) -> Update | None:
        """Return the next update; None if there is none within `timeout`, or the subscription is closed."""
        seconds = None if timeout is None else seconds_of(timeout)
        end = None if seconds is None else time.monotonic() + seconds
        while not self._closed:
            update = self._take()
            if update is not None:
                return update
            if self._feed.ended is not None and not self._go_on_elsewhere():
                raise self._feed.ended
            left = None if end is None else end - time.monotonic()
            if left is not None and left <= 0:
                return None
            await self._link.wait_for_news(self._feed, left)
        return None

    async def follow(self, timeout: Timeout = None) -> AsyncIterator[Update]:
        """Yield updates as they come, until `close`; end after a time in which there was none."""
        while (update := await self.next(timeout)) is not None:
            yield update

    async def wait_for(self, position: Position | str, timeout: Timeout = None) -> Update:
        """Return the update that reaches a position, passing over those before it: `rows` are then as of it or
        later."""
        wanted = Position.parse(position) if isinstance(position, str) else position
        seconds = None if timeout is None else seconds_of(timeout)
        end = None if seconds is None else time.monotonic() + seconds
        feed, link, asked = self._feed, self._link, False
        while True:
            while (update := self._take()) is not None:
                if update.position.reaches(wanted):
                    await self._check_history(wanted, update.position)
                    return update
            if feed.rows.position is not None and feed.rows.position.reaches(wanted):
                await self._check_history(wanted, feed.rows.position)
                return feed.rows.unchanged()
            if feed.ended is not None:
                raise feed.ended
            if feed.complaint is not None:
                complaint, feed.complaint = feed.complaint, None
                raise complaint
            left = None if end is None else end - time.monotonic()
            if self._closed or (left is not None and left <= 0):
                reached = 0 if feed.rows.position is None else feed.rows.position.epoch
                raise QuestionTimeout(seconds or 0.0, "waiting for a position", reached, wanted.epoch)
            if not asked:
                asked = True
                link.protocol.wait(feed, wanted)
                link.wake()
            await link.wait_for_news(feed, left)

    async def _check_history(self, wanted: Position, reached: Position) -> None:
        """Raise if a position is not part of the past of another one: an older copy of the folder may have taken its
        place, and have as many epochs by now. The server knows, unless both are of one era."""
        if wanted.era != reached.era:
            await self._link.call("query", {"sql": "SELECT 1 AS x", "at_least": str(wanted)})

    def _go_on_elsewhere(self) -> bool:
        """Go on at the server that the view has moved to, from what is here, if this client was told of that server;
        return whether it does. Nothing is told before that server reflects as much."""
        feed, moved = self._feed, self._feed.ended
        if not isinstance(moved, MovedError) or len(feed.request.names) != 1:
            return False
        link = self._link.elsewhere(moved.url)
        if link is None:
            return False
        request = feed.elsewhere()
        self._link.unsubscribe(feed)
        self._link, self._feed = link, link.subscribe(request)
        return True

    def _take(self) -> Update | None:
        update = self._feed.take()
        if update is not None:
            self._link.protocol.taken(self._feed)
            self._link.wake()
        return update

    def close(self) -> None:
        """End the subscription."""
        if not self._closed:
            self._closed = True
            self._link.unsubscribe(self._feed)

    async def __aenter__(self) -> Self:
        return await self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        self.close()


class Subscription:
    """Updates of queries of a served database (`Client.subscribe`). Iterating waits for the next update, for ever; the
    connection is made again when it is lost, and nothing is missed, merged or told twice.

    rows      the rows as of the last update, of the first query
    position  the position of the last update; None before the first
    columns   the names of the columns, of the first query
    id        the id of the subscription, if it was made with parameters of a template

    Updates that are not taken in time are told as one, unless each was asked for.

    >>> db = whence.open(); _ = db.execute("CREATE TABLE a (x INT)"); _ = db.insert("a", (1,))
    >>> with whence.serve(db, port=0) as server, whence.connect(server.url, token=server.token) as client:
    ...     subscription = client.subscribe("a")
    ...     for update in subscription:
    ...         print(update.came, update.went, update.rows, update.position.epoch)
    ...         if update.rows == [(2,)]:
    ...             break
    ...         with client.transaction():
    ...             _ = client.delete("a", (1,)); _ = client.insert("a", (2,))
    [(1,)] [] [(1,)] 1
    [(2,)] [(1,)] [(2,)] 2
    """

    def __init__(self, loop: BackgroundLoop, subscription: AsyncSubscription, client: object = None) -> None:
        self._loop, self._subscription = loop, subscription
        self._client = client  # which ends with its last user
        self.id: int | None = None
        self._cancel: Callable[[], object] | None = None

    @property
    def rows(self) -> list[Row]:
        return self._subscription.rows

    @property
    def position(self) -> Position | None:
        return self._subscription.position

    @property
    def columns(self) -> list[str]:
        return self._subscription.columns

    def __iter__(self) -> Iterator[Update]:
        return self

    def __next__(self) -> Update:
        """Wait for the next update; the iteration ends when the subscription is closed."""
        update = self.next()
        if update is None:
            raise StopIteration
        return update

    def next(self, timeout: Timeout = None) -> Update | None:
        """Return the next update; None if there is none within `timeout`, or the subscription is closed.

        >>> db = whence.open(); _ = db.execute("CREATE TABLE a (x INT)")
        >>> with whence.serve(db, port=0) as server, whence.connect(server.url, token=server.token) as client:
        ...     subscription = client.subscribe("a"); _ = subscription.next()
        ...     print(subscription.next(timeout=0.01))
        ...     _ = client.insert("a", (1,)); print(subscription.next(timeout=60).came)
        None
        [(1,)]
        """
        return self._loop.run(self._subscription.next(timeout))

    def follow(self, timeout: Timeout = None) -> Iterator[Update]:
        """Yield updates as they come, until `close`; end after a time in which there was none.

        >>> db = whence.open(); _ = db.execute("CREATE TABLE a (x INT)"); _ = db.insert("a", (1,))
        >>> with whence.serve(db, port=0) as server, whence.connect(server.url, token=server.token) as client:
        ...     for update in client.subscribe("a").follow(timeout=0.2): print(update.rows)
        [(1,)]
        """
        while (update := self.next(timeout)) is not None:
            yield update

    def wait_for(self, position: Position | str, timeout: Timeout = None) -> Update:
        """Return the update that reaches a position, passing over those before it: `rows` are then as of it or later.

        >>> db = whence.open(); _ = db.execute("CREATE TABLE a (x INT)")
        >>> with whence.serve(db, port=0) as server, whence.connect(server.url, token=server.token) as client:
        ...     with client.subscribe("a") as subscription:
        ...         _ = client.insert("a", (1,)); subscription.wait_for(client.position).rows
        [(1,)]
        """
        return self._loop.run(self._subscription.wait_for(position, timeout))

    def close(self) -> None:
        """End the subscription, and whoever waits for its next update. A `with` statement does this at its end.

        >>> db = whence.open(); _ = db.execute("CREATE TABLE a (x INT)")
        >>> with whence.serve(db, port=0) as server, whence.connect(server.url, token=server.token) as client:
        ...     subscription = client.subscribe("a"); subscription.close(); list(subscription)
        []
        """
        self._loop.call(self._subscription.close)

    def cancel(self) -> None:
        """End it, and if it was made with parameters of a template delete it there.

        >>> db = whence.open(); _ = db.execute("CREATE TABLE a (x INT)"); _ = db.insert("a", [(3,), (7,)])
        >>> _ = db.execute("CREATE TEMPLATE above AS SELECT x FROM a WHERE x > :low")
        >>> with whence.serve(db, port=0) as server, whence.connect(server.url, token=server.token) as client:
        ...     subscription = client.subscribe("above", low=5); subscription.next().came, db["above"].rows
        ...     subscription.cancel(); db["above"].rows
        ([(7,)], [(1, 5)])
        []
        """
        self.close()
        if self._cancel is not None:
            self._cancel()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()


async def open_subscription(link: ServerLink, request: SubscriptionRequest) -> AsyncSubscription:
    """Subscribe, and return when the server has said that it stands."""
    subscription = AsyncSubscription(link, request)
    try:
        return await subscription
    except asyncio.CancelledError:
        subscription.close()
        raise
