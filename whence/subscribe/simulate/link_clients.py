"""A client of a served database in a simulation: the client's own protocol and feeds, over a link.

What ships is `client/protocol.py` and `client/feeds.py`; here are only the connection, which is made again when it is
lost, and the timers. A client whose view has moved goes on where it is told to.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from whence.client.feeds import SubscriptionFeed
from whence.client.protocol import ClientProtocol
from whence.client.subscriptions import make_request
from whence.model.errors import MovedError, WhenceError
from whence.subscribe.simulate.node_links import NodeLink
from whence.subscribe.updates import Update

if TYPE_CHECKING:
    from whence.subscribe.simulate.stages import VirtualStage

PATIENCE, TICK = 2.0, 0.5
"""Seconds without a message after which a client asks, and between two looks at whether it should."""


class LinkClient:
    """One subscription of one client."""

    def __init__(
        self, stage: VirtualStage, name: str, node: Any, query: str, token: str | None = None, **options: Any
    ) -> None:
        self.stage, self.name, self.node, self.query = stage, name, node, query
        self.protocol = ClientProtocol(name, patience=PATIENCE, clock=lambda: stage.time.now)
        self.feed: SubscriptionFeed = self.protocol.subscribe(make_request(query, **options))
        self.token = token
        self.link: NodeLink | None = None
        self.updates: list[Update] = []  # taken, and not asked for
        self.failure: WhenceError | None = None
        self.takes = True  # as soon as something is there
        self.is_closed = False
        self._tick()

    def _tick(self) -> None:
        if self.is_closed:
            return
        if self.link is None:
            self._connect()
        else:
            self.protocol.check()
        self._flush()
        self.stage.time.after(TICK, self._tick)

    def _connect(self) -> None:
        node = self.stage.reach(self.name, self.node)
        link = None if node is None else node.connect(self.name, self.token, self._receive, self._lost)
        if link is not None:
            assert link.greeting is not None
            self.link = link
            self.protocol.connect(None)
            self.protocol.take_outgoing()  # hello was said
            self.protocol.receive(link.greeting)

    def _flush(self) -> None:
        if self.link is not None:
            for message in self.protocol.take_outgoing():
                self.link.send_up(message)

    def _receive(self, message: Any) -> None:
        if self.is_closed:
            return
        self.protocol.receive(message)
        if self.takes:
            self.take()
        if self.feed.ended is not None and self.failure is None:
            self._end(self.feed.ended)
        self._flush()

    def _end(self, error: WhenceError) -> None:
        """Go on where the view has moved to; or note that it is over."""
        node = self.stage.find(error.url) if isinstance(error, MovedError) else None
        if node is None:
            self.failure = error
            return
        self.move(node)

    def move(self, node: Any) -> None:
        """Go on at another server, from what is here. Nothing is told before that server reflects as much."""
        self.take()
        request = self.feed.elsewhere()
        self.protocol.unsubscribe(self.feed)
        self._flush()
        self.connect_anew()
        self.node = node
        self.feed = self.protocol.subscribe(request)

    def connect_anew(self) -> None:
        """Give the connection up, and make another one soon."""
        if self.link is not None:
            self.link.hang_up()
            self._lost("given up")

    def take(self) -> None:
        """Take what has come."""
        while (update := self.feed.take()) is not None:
            self.protocol.taken(self.feed)
            self.stage.shown(self, update)
            self.updates.append(update)

    def _lost(self, why: str) -> None:
        self.link = None
        self.protocol.disconnect()

    def close(self) -> None:
        """End the subscription."""
        self.is_closed = True
        self.protocol.unsubscribe(self.feed)
        self._flush()
        if self.link is not None:
            self.link.hang_up()
            self.link = None

    @property
    def rows(self) -> list[Any]:
        """The rows as of the last update."""
        return self.feed.rows.first_rows
