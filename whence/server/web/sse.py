"""Subscriptions over HTTP: a stream of events (`text/event-stream`), for `fetch` in a browser and for curl.

It is for those who only follow: one subscription a request, which ends with the connection. The events are the messages
that a WebSocket client gets, in JSON, named by their type: `subscribed`, `state`, `update`, `lost` and `error`. The id
of an event is the position of the rows that the client has by then; sent back as `Last-Event-ID`, or as `have`, it goes
on from there. A comment every so often says that the connection lives.

The law: the same cursor, the same rights and the same limits as over a WebSocket; at most one message waits.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from whence.model.errors import AuthenticationError
from whence.server.access.tokens import Caller, Tokens
from whence.server.delivery.admissions import RequestedQueries
from whence.server.delivery.frames import Kind
from whence.server.delivery.subscriber import Subscriber
from whence.server.failures import RequestError
from whence.server.sockets.session import check_pause
from whence.server.verbs.arguments import SubscribeArguments
from whence.server.web.endpoints import ENDPOINTS
from whence.server.web.requests import read_request

if TYPE_CHECKING:
    from whence.server.sockets.gateway import Gateway

BEAT = 15.0
"""Seconds without an event after which a comment is sent."""

_ALIVE = b": alive\n\n"
_HEADERS = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}  # or a proxy would collect events


class EventStream:
    """One subscription over HTTP."""

    kind: Kind = "sse"

    def __init__(self, gateway: Gateway, request: RequestedQueries, caller: Caller) -> None:
        self._gateway, self._caller = gateway, caller
        self._waiting: list[bytes] = []
        self._news = asyncio.Event()
        self._sent_at = gateway.now()
        self._ended = False
        self.blocked = False
        self._subscriber = Subscriber(gateway.delivery, self, 1, request, caller)
        gateway.streams.add(self)
        self._subscriber.open()

    # -- from the subscriber -----------------------------------------------------------------------------------------

    def send(self, frames: bytes) -> None:
        """Send events when the client takes them."""
        self._gateway.metrics.bytes_out += len(frames)
        self._waiting.append(frames)
        self._sent_at = self._gateway.now()
        self.blocked = True
        self._news.set()

    def drop(self, subscriber: Subscriber) -> None:
        """Note that the subscription has ended: what waits is the last."""
        self._ended = True
        self._news.set()

    # -- from the server ---------------------------------------------------------------------------------------------

    def beat(self, now: float) -> None:
        """Say that the connection lives, if nothing else was said for a while."""
        if not self.blocked and not self._ended and now - self._sent_at >= BEAT:
            self.send(_ALIVE)

    def check_token(self, now: float, changed: bool, tokens: Tokens) -> None:
        """End the stream if the token has expired or was revoked."""
        if self._caller.is_expired(now) or (changed and not tokens.is_valid(self._caller)):
            self._subscriber.fail(AuthenticationError("the token has expired or was revoked"))

    def close(self) -> None:
        """End the stream, since the server stops."""
        self._subscriber.end()
        self._ended = True
        self._news.set()

    # -- to the client -----------------------------------------------------------------------------------------------

    async def begin(self) -> None:
        """Wait for the first event; raise the error if there is none."""
        await self._news.wait()
        if self._subscriber.error is not None:
            self.end()
            raise self._subscriber.error

    async def events(self) -> AsyncIterator[bytes]:
        """Yield events as the client takes them."""
        try:
            while True:
                await self._news.wait()
                self._news.clear()
                frames, self._waiting = self._waiting, []
                if frames:
                    yield b"".join(frames)
                if self._ended and not self._waiting:
                    return
                self.blocked = bool(self._waiting)
                if not self.blocked:
                    self._gateway.delivery.enqueue(self._subscriber)
        finally:
            self.end()

    def end(self) -> None:
        """Let go of the subscription."""
        self._gateway.streams.discard(self)
        self._subscriber.end()


async def event_response(gateway: Gateway, request: Request, caller: Caller) -> Response:
    """Answer a request to follow queries."""
    endpoint = next(each for each in ENDPOINTS if each.answer == "events" and each.method == request.method)
    found = await read_request(endpoint, request, gateway.limits)
    assert isinstance(found, SubscribeArguments)
    check_pause(found.every)
    refused = gateway.refusal(request.headers.get("host"), request.headers.get("origin"))
    if refused is not None:
        raise RequestError(refused[1], status=refused[0])
    asked = RequestedQueries(
        tuple(found.queries),
        found.params,
        found.have if found.have is not None else request.headers.get("last-event-id") or None,
        found.every or 0.0,
        found.why,
        found.every_change,
        bounds="values" if found.bounds else False,
        ordered=found.ordered,
    )
    stream = EventStream(gateway, asked, caller)
    try:
        await stream.begin()
    except BaseException:
        stream.end()
        raise
    return StreamingResponse(stream.events(), media_type="text/event-stream", headers=_HEADERS)
