"""The gateway: all connections of a server that follow the database, and what they share.

uvicorn is given `connect` as its class of WebSocket connections, and the HTTP application `events` for those who follow
over HTTP. The gateway begins with the first of them, in the event loop that serves it.

The law: a connection that breaks a deadline is closed, and one that is gone leaves nothing behind. One sweep a second
looks at all of them: who has not said hello, who gives no sign of life, whose token is about to expire or was revoked.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from whence.server.access.network_policy import NetworkPolicy
from whence.server.access.tokens import Caller
from whence.server.delivery.admissions import Admissions
from whence.server.delivery.delivery import Delivery, DeliveryMetrics
from whence.server.sockets.session import ClientSession
from whence.server.sockets.websocket import WebSocketConnection
from whence.server.verbs.calls import Service, own_publisher
from whence.server.web.metrics import MetricRegistry
from whence.server.web.sse import EventStream, event_response
from whence.server.writing.write_queue import Outcome

log = logging.getLogger("whence.server")
SWEEP = 1.0
"""Seconds between two looks at all connections."""

CLOSING = 3.0
"""Seconds that a client has to close its side of a connection."""


class Gateway:
    """The connections of one server."""

    def __init__(self, service: Service, policy: NetworkPolicy, registry: MetricRegistry | None = None) -> None:
        self.service, self.limits, self._policy = service, service.limits, policy
        self.metrics = DeliveryMetrics()
        self.connections: set[WebSocketConnection] = set()
        self.streams: set[EventStream] = set()
        self._delivery: Delivery | None = None
        self._answers: deque[tuple[ClientSession, int, int, Outcome]] = deque()
        self._answering = False
        self._position = -1, ""  # the last epoch that was named, and its name
        self._tokens_seen = service.tokens.version
        self._sweeping: asyncio.TimerHandle | None = None
        self._stopping = False
        if registry is not None:
            self._register(registry)

    # -- beginning and ending ----------------------------------------------------------------------------------------

    @property
    def delivery(self) -> Delivery:
        """What tells subscribers. It begins with its first use, in the event loop."""
        if self._delivery is None:
            service, loop = self.service, asyncio.get_running_loop()
            admissions = Admissions(service.coordinator, service.rights, service.limits)
            service.coordinator.hub.ring_bytes = self.limits.ring_bytes
            self._delivery = Delivery(service.coordinator, admissions, loop, self.metrics)
            self._delivery.start()
            self._sweeping = loop.call_later(SWEEP, self._sweep)
        return self._delivery

    def connect(self, *, config: Any, server_state: Any, app_state: Any) -> WebSocketConnection:
        """Return a connection; uvicorn calls it with what it has upgraded."""
        return WebSocketConnection(self, server_state.connections)

    async def events(self, request: Request, caller: Caller) -> Response:
        """Answer a request to follow queries with a stream of events."""
        return await event_response(self, request, caller)

    async def close(self) -> None:
        """Close all connections, since the server stops: they are told so, and have a moment to go."""
        self._stopping = True
        for connection in list(self.connections):
            connection.close(1001, "the server stops")
        for stream in list(self.streams):
            stream.close()
        end = time.monotonic() + CLOSING
        while self.connections and time.monotonic() < end:
            await asyncio.sleep(0.01)
        for connection in list(self.connections):
            connection.abort()
        if self._sweeping is not None:
            self._sweeping.cancel()
        if self._delivery is not None:
            self._delivery.close()

    # -- for connections ---------------------------------------------------------------------------------------------

    def now(self) -> float:
        """Return the time of the event loop's clock."""
        return self.delivery.now()

    def refusal(self, host: str | None, origin: str | None) -> tuple[int, str] | None:
        """Return why a connection is refused, as a status and a reason; None if it is not."""
        reason = self._policy.refusal(host, origin)
        if reason is not None:
            return 403, reason
        if self._stopping or not self.service.is_ready:
            return 503, "the server is stopping"
        if len(self.connections) + len(self.streams) >= self.limits.connections:
            return 503, f"the server has {self.limits.connections:,} connections already (limit connections)"
        return None

    def count_close(self, code: int) -> None:
        """Count a connection that was closed."""
        self.metrics.closes[code] += 1

    def publisher_of(self, caller: Caller, publisher: str) -> str:
        """Return the name under which a caller's numbered writes are noted."""
        return own_publisher(caller, publisher)

    def position_of(self, epoch: int) -> str:
        """Return the position of an epoch."""
        if self._position[0] != epoch:
            self._position = epoch, self.delivery.position(epoch)
        return self._position[1]

    def answer(self, session: ClientSession, seq: int, size: int, outcome: Outcome) -> None:
        """Answer an insert, together with others. Called by any thread."""
        self._answers.append((session, seq, size, outcome))
        if not self._answering:
            self._answering = True
            try:
                self.delivery.loop.call_soon_threadsafe(self._answer)
            except RuntimeError:  # the loop is closed: nobody is there to be answered
                log.debug("a write was done after the end of the server")

    def _answer(self) -> None:
        self._answering = False  # first: what is appended from now on is either taken here or wakes us again
        answers, frames = self._answers, dict[ClientSession, list[bytes]]()
        while answers:
            session, seq, size, outcome = answers.popleft()
            frames.setdefault(session, []).append(session.answer(seq, size, outcome))
        for session, each in frames.items():
            session.send_answers(b"".join(each))

    # -- the sweep ---------------------------------------------------------------------------------------------------

    def _sweep(self) -> None:
        delivery = self.delivery
        self._sweeping = delivery.loop.call_later(SWEEP, self._sweep)
        try:
            now, limits, tokens = delivery.now(), self.limits, self.service.tokens
            wall = time.time()
            tokens_changed = self._tokens_changed()
            for connection in list(self.connections):
                closing, session = connection.closing_since, connection.session
                if closing is not None:
                    if now - closing > CLOSING:
                        connection.abort()
                    continue
                if session is None:
                    continue
                if session.caller is None:
                    if now - session.since > limits.hello_seconds:
                        connection.close(1008, f"no hello within {limits.hello_seconds:g} s")
                    continue
                session.check_token(wall, tokens_changed)
                quiet = now - connection.heard
                if quiet > limits.idle_seconds + limits.pong_seconds:
                    log.info("%s gives no sign of life", session)
                    self.count_close(1006)
                    connection.abort()
                elif quiet > limits.idle_seconds and now - connection.pinged > limits.idle_seconds:
                    connection.ping(now)
            for stream in list(self.streams):
                stream.check_token(wall, tokens_changed, tokens)
                stream.beat(now)
            delivery.sweep(now)
        except Exception:  # the next sweep may do better; without sweeps nothing would be closed any more
            log.exception("a sweep failed")

    def _tokens_changed(self) -> bool:
        tokens = self.service.tokens
        tokens.refresh()
        changed, self._tokens_seen = tokens.version != self._tokens_seen, tokens.version
        return changed

    # -- metrics -----------------------------------------------------------------------------------------------------

    def _register(self, registry: MetricRegistry) -> None:
        metrics = self.metrics
        counters = {
            "messages_in": "messages received over WebSocket",
            "messages_out": "messages sent to those who follow",
            "bytes_out": "bytes sent to those who follow",
            "updates": "net changes sent",
            "coalesced": "net changes sent that are of several epochs",
            "states": "states sent",
            "states_again": "states that were begun again, since the client stalled",
            "lost": "times that changes could not be sent one by one any more",
            "refused": "WebSocket connections that were refused",
        }
        for name, help in counters.items():
            registry.sample(f"whence_{name}_total", "counter", help, lambda name=name: getattr(metrics, name))  # type: ignore[misc]
        registry.sample("whence_connections", "gauge", "open WebSocket connections", lambda: len(self.connections))
        registry.sample("whence_event_streams", "gauge", "open streams of events", lambda: len(self.streams))
        registry.sample("whence_subscriptions", "gauge", "subscriptions", self._subscriptions)
        closes = "WebSocket connections that were closed, by code"
        registry.sample(
            "whence_closes_total",
            "counter",
            closes,
            lambda: {str(code): count for code, count in sorted(metrics.closes.items())},
            "code",
        )
        hub = self.service.coordinator.hub
        for name, help in (
            ("channels", "distinct sets of queries that are followed"),
            ("definitions", "views that are kept for subscriptions"),
            ("ring_bytes", "bytes of the last changes that are kept for subscribers"),
        ):
            registry.sample(f"whence_{name}", "gauge", help, lambda name=name: hub.counts[name])  # type: ignore[misc]

    def _subscriptions(self) -> float:
        return 0 if self._delivery is None else self._delivery.subscriptions
