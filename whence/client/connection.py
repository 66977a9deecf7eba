"""The link to a server: makes the connection, makes it again when it is lost, and carries what the protocol says.

It runs in one event loop. Users of it wait for answers and for news of their subscriptions; that the connection is lost
meanwhile is not their business, unless it stays away for longer than they want to wait.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import logging
import random
import secrets
import ssl as ssl_
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import Any

from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed

from whence.client.events import Answered, Event, FeedNews, Greeted, PendingCall, Progressed, Repeat, TokenExpires
from whence.client.failures import FAULTS, TOO_LARGE, UNAUTHENTICATED, closing_error, final_handshake_error
from whence.client.feeds import SubscriptionFeed, SubscriptionRequest
from whence.client.protocol import ClientProtocol
from whence.model.errors import AuthenticationError, DisconnectedError, LimitError, WhenceError
from whence.model.progress import Progress
from whence.subscribe.messages import Done, ResultMessage, decode_down, encode_message
from whence.subscribe.retrying import retry_delay
from whence.subscribe.urls import is_loopback, websocket_url

log = logging.getLogger("whence")
Token = str | Callable[[], str | Awaitable[str]] | None
"""A token, or a function that returns one and is called whenever one is needed: to connect, and before it expires."""

OnState = Callable[[bool, str], None]
"""Called when the connection is there (True) or lost (False), with what there is to say about it."""

_OPEN_SECONDS, _CLOSE_SECONDS, _PING_SECONDS = 5.0, 1.0, 15.0
_LASTING = 1.0  # seconds after which a connection that is lost is made again without a pause
_TICK = 0.1  # seconds between two looks at who has waited too long without a connection
_MOST_FAULTS = 3  # times in a row that a server may close the connection for what it was sent


@dataclass(frozen=True)
class LinkOptions:
    """How to reach a server. `timeout` is for calls without a connection, `patience` for answers with one."""

    url: str
    token: Token = None
    timeout: float = 10.0
    patience: float = 15.0
    ssl: ssl_.SSLContext | None = None
    on_state: OnState | None = None
    also: tuple[str, ...] = ()  # other servers that may be gone on at


class ServerLink:
    """A client's connection to a server, whichever it is at the moment."""

    def __init__(self, protocol: ClientProtocol, options: LinkOptions) -> None:
        self.protocol, self.options = protocol, options
        self.failure: WhenceError | None = None  # why the server will not have this client
        self._answers: dict[int, asyncio.Future[Any]] = {}
        self._progress: dict[int, Progress] = {}
        self._news: dict[SubscriptionFeed, asyncio.Event] = {}
        self._wake = asyncio.Event()
        self._changed = asyncio.Event()  # an attempt to connect has ended, one way or another
        self._task: asyncio.Task[None] | None = None
        self._ticker: asyncio.Task[None] | None = None
        self._background: set[asyncio.Task[None]] = set()
        self._down_since: float | None = time.monotonic()
        self._last_fault = ""
        self._faults = 0
        self._refused_token: str | None = None
        self.is_closed = False
        self._elsewhere: dict[str, ServerLink] = {}

    # -- for users ---------------------------------------------------------------------------------------------------

    async def open(self) -> None:
        """Connect; raise if the server refuses it, or cannot be reached within the timeout."""
        self._start()
        begun, tried = time.monotonic(), False
        while not self.protocol.is_ready:
            if self.failure is not None:
                raise self.failure
            left = begun + self.options.timeout - time.monotonic()
            if left <= 0 and tried:
                raise self._unreachable()
            self._changed.clear()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._changed.wait(), max(left, 0.0 if tried else 1.0))
            tried = True

    def _start(self) -> None:
        if self._task is None:
            loop = asyncio.get_running_loop()
            self._task = loop.create_task(self._run())
            self._ticker = loop.create_task(self._tick())

    async def close(self) -> None:
        """End the connection and everything that waits for it."""
        self.is_closed = True
        for other in self._elsewhere.values():
            await other.close()
        tasks = [task for task in (self._task, self._ticker, *self._background) if task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._dispatch(self.protocol.refuse(WhenceError("this client is closed")))

    def elsewhere(self, url: str) -> ServerLink | None:
        """Return a connection to another server, if this client was told of it; it ends with this one."""
        address = websocket_url(url)
        if address not in self.options.also:
            return None
        if address not in self._elsewhere:
            protocol = ClientProtocol(secrets.token_hex(8), 1, self.options.patience)
            self._elsewhere[address] = ServerLink(protocol, replace(self.options, url=address))
        return self._elsewhere[address]

    def check(self) -> None:
        """Raise if nothing can be asked for any more."""
        if self.is_closed:
            raise WhenceError("this client is closed")
        if self.failure is not None:
            raise self.failure

    async def call(
        self,
        verb: str,
        args: dict[str, Any],
        repeat: Repeat = "read",
        progress: Progress | None = None,
        number: int | None = None,
    ) -> Any:
        """Return the answer to a call. Whoever stops waiting for it cancels it at the server, too."""
        self.check()
        answer = await self._await(self.protocol.call(verb, args, repeat, number), progress)
        return answer.value if isinstance(answer, ResultMessage) else answer

    async def insert(self, **given: Any) -> Done:
        """Return the acknowledgement of an insert."""
        self.check()
        answer = await self._await(self.protocol.insert(**given), None)
        assert isinstance(answer, Done)
        return answer

    async def _await(self, call: PendingCall, progress: Progress | None) -> Done | ResultMessage:
        self._start()
        future = self._answers[call.seq] = asyncio.get_running_loop().create_future()
        if progress is not None:
            self._progress[call.seq] = progress
        self.wake()
        try:
            found: Done | ResultMessage = await future
            return found
        finally:
            self._answers.pop(call.seq, None)
            self._progress.pop(call.seq, None)
            self.protocol.cancel(call)  # if it has no answer
            self.wake()

    def subscribe(self, request: SubscriptionRequest) -> SubscriptionFeed:
        """Follow queries."""
        self.check()
        feed = self.protocol.subscribe(request)
        self._news[feed] = asyncio.Event()
        self._start()
        self.wake()
        return feed

    def unsubscribe(self, feed: SubscriptionFeed) -> None:
        """Follow no more."""
        self.protocol.unsubscribe(feed)
        self.wake()
        news = self._news.pop(feed, None)
        if news is not None:
            news.set()

    async def wait_for_news(self, feed: SubscriptionFeed, seconds: float | None) -> bool:
        """Return when something has happened to a subscription; False if nothing did for so long."""
        news = self._news.get(feed)
        if news is None:
            return True
        news.clear()
        try:
            await asyncio.wait_for(news.wait(), seconds)
        except TimeoutError:
            return False
        return True

    def wake(self) -> None:
        """Send what there is to send."""
        if self.protocol.has_outgoing:
            self._wake.set()

    # -- connections -------------------------------------------------------------------------------------------------

    async def _run(self) -> None:
        attempt = 0
        while self.failure is None:
            away = time.monotonic() - (self._down_since or time.monotonic())
            await asyncio.sleep(retry_delay(attempt, away, random.random()))
            attempt += 1
            try:
                token = await self._read_token()
                socket = await self._connect()
            except asyncio.CancelledError:
                raise
            except Exception as error:
                self._missed(error)
                continue
            begun = time.monotonic()
            try:
                self.protocol.connect(token)
                self._wake.set()
                await self._use(socket)
            except asyncio.CancelledError:
                await self._hang_up(socket)
                raise
            except Exception as error:
                fault = error
            else:
                fault = ConnectionError("no more messages came")
            if self._lost(socket, fault, token) and time.monotonic() - begun > _LASTING:
                attempt = 0  # else it would be tried without a pause
            await self._hang_up(socket)

    async def _connect(self) -> ClientConnection:
        options = self.options
        more: dict[str, Any] = {} if options.ssl is None else {"ssl": options.ssl}
        return await connect(
            options.url, compression=None, max_size=None, open_timeout=_OPEN_SECONDS, close_timeout=_CLOSE_SECONDS,
            ping_interval=_PING_SECONDS, ping_timeout=_PING_SECONDS, proxy=None if is_loopback(options.url) else True,
            **more,
        )  # fmt: skip

    async def _read_token(self) -> str | None:
        token = self.options.token
        if token is None or isinstance(token, str):
            return token
        found = token() if inspect.iscoroutinefunction(token) else await asyncio.to_thread(token)
        return await found if inspect.isawaitable(found) else found

    async def _use(self, socket: ClientConnection) -> None:
        """Send and receive until the connection ends."""
        sender = asyncio.get_running_loop().create_task(self._send_all(socket))
        deadline = asyncio.get_running_loop().call_later(self.options.patience, self._give_up_greeting, socket)
        try:
            async for data in socket:
                message = decode_down(data, "msgpack" if isinstance(data, bytes) else "json")
                self._dispatch(self.protocol.receive(message))
                if self.protocol.has_outgoing:
                    self._wake.set()
            raise ConnectionError("the server closed the connection")
        finally:
            deadline.cancel()
            sender.cancel()
            with contextlib.suppress(asyncio.CancelledError, ConnectionClosed):
                await sender

    def _give_up_greeting(self, socket: ClientConnection) -> None:
        if not self.protocol.is_ready:
            socket.transport.abort()

    async def _send_all(self, socket: ClientConnection) -> None:
        protocol = self.protocol
        while True:
            await self._wake.wait()
            self._wake.clear()
            while messages := protocol.take_outgoing():
                for message in messages:
                    data = encode_message(message, "msgpack")
                    if len(data) > protocol.limits.get("message_bytes", len(data)) and protocol.is_ready:
                        self._refuse_large(message, len(data))
                    else:
                        await socket.send(data)

    def _refuse_large(self, message: Any, size: int) -> None:
        most = self.protocol.limits["message_bytes"]
        error = LimitError(
            f"{size:,} bytes in one message, and the server takes at most {most:,} (limit message_bytes): send fewer "
            "rows at a time, as insert(…, batch=…) does"
        )
        for call in self.protocol.pending_calls:
            if call.message is message:
                self._dispatch(self.protocol.fail(call, error))
        for feed in self.protocol.feeds:
            if feed.wire_id == getattr(message, "id", None):
                self._dispatch(self.protocol.end(feed, error))

    def _missed(self, error: Exception) -> None:
        """Note that a connection could not be made."""
        final = error if isinstance(error, WhenceError) else final_handshake_error(error, self.options.url)
        if final is not None:
            self._refuse(final)
            return
        said = f"{error!s:.300}" or type(error).__name__
        if said != self._last_fault:
            self._say(False, f"cannot connect to {self.options.url}: {said}; trying again")
        self._last_fault = said
        self._changed.set()

    def _lost(self, socket: ClientConnection, fault: Exception, token: str | None) -> bool:
        """Note that a connection is lost; return whether it had been of use."""
        greeted, self._down_since = self.protocol.is_ready, time.monotonic()
        code, reason = socket.close_code, socket.close_reason or ""
        error = closing_error(code, reason, self.options.url)
        if isinstance(fault, WhenceError):  # a message that cannot be read
            error, code = fault, 1002
        if code == TOO_LARGE and error is not None:
            self._blame_largest(error)
        self._dispatch(self.protocol.disconnect())
        if code == UNAUTHENTICATED and callable(self.options.token) and token != self._refused_token:
            self._refused_token = token  # it may have expired: ask for another, once
        elif error is not None and code == UNAUTHENTICATED:
            self._refuse(error)
        elif error is not None and code in FAULTS:
            self._faults += 1
            if self._faults >= _MOST_FAULTS:
                self._refuse(error)
        self._last_fault = reason or f"{fault!s:.300}" or type(fault).__name__
        if self.failure is None:
            self._say(False, f"connection to {self.options.url} lost: {self._last_fault}; connecting again")
        self._changed.set()
        return greeted and error is None

    def _blame_largest(self, error: WhenceError) -> None:
        """End the largest message that has no answer: it must have been that."""
        sent = [call for call in self.protocol.pending_calls if call.sent is not None]
        if sent:
            largest = max(sent, key=lambda call: len(encode_message(call.message, "msgpack")))
            self._dispatch(self.protocol.fail(largest, error))

    def _refuse(self, error: WhenceError) -> None:
        self.failure = error
        self._say(False, f"{self.options.url} refused this client: {error}")
        self._dispatch(self.protocol.refuse(error))
        self._changed.set()

    @staticmethod
    async def _hang_up(socket: ClientConnection) -> None:
        with contextlib.suppress(Exception):
            await asyncio.wait_for(socket.close(), _CLOSE_SECONDS)

    def _say(self, connected: bool, what: str) -> None:
        log.info(what)
        if self.options.on_state is not None:
            try:
                self.options.on_state(connected, what)
            except Exception:  # the caller's own; it must not end the connection
                log.exception("on_state failed")

    # -- what has happened -------------------------------------------------------------------------------------------

    def _dispatch(self, events: list[Event]) -> None:
        for event in events:
            match event:
                case Answered(seq, answer):
                    self._faults = 0
                    self._finish(seq, answer)
                case FeedNews(feed):
                    self._faults = 0
                    if feed in self._news:
                        self._news[feed].set()
                case Progressed(seq, what, done, total):
                    self._report(seq, what, done, total)
                case Greeted(welcome):
                    self._greeted(welcome.who)
                case TokenExpires(at):
                    self._renew_later(at)

    def _finish(self, seq: int, answer: Done | ResultMessage | WhenceError) -> None:
        future = self._answers.get(seq)
        if future is None or future.done():
            return
        if isinstance(answer, WhenceError):
            future.set_exception(answer)
        else:
            future.set_result(answer)

    def _report(self, seq: int, what: str, done: int, total: int) -> None:
        progress, future = self._progress.get(seq), self._answers.get(seq)
        if progress is None or future is None or future.done():
            return
        try:
            progress(what, done, total)
        except BaseException as error:  # which is how a caller cancels: the call ends with it
            future.set_exception(error)

    def _greeted(self, who: str) -> None:
        away = time.monotonic() - (self._down_since or time.monotonic())
        self._down_since, self._refused_token = None, None
        again = f", back after {away:.1f} s" if self._last_fault else ""
        self._last_fault = ""
        self._say(True, f"connected to {self.options.url} as {who}{again}")
        self._changed.set()

    def _renew_later(self, at: float) -> None:
        if not callable(self.options.token):
            log.warning("the token for %s expires, and token= is not a function that gets another", self.options.url)
            return
        task = asyncio.get_running_loop().create_task(self._renew())
        self._background.add(task)
        task.add_done_callback(self._background.discard)

    async def _renew(self) -> None:
        try:
            token = await self._read_token()
        except Exception:  # the caller's own; the server will ask for another token when this one has expired
            log.exception("no new token for %s", self.options.url)
            return
        if token is not None:
            self.protocol.renew(token)
            self.wake()

    # -- time --------------------------------------------------------------------------------------------------------

    async def _tick(self) -> None:
        """End what has waited too long without a connection, and ask again for what should have come."""
        while self.failure is None:
            down = self._down_since
            await asyncio.sleep(_TICK if down is not None else min(self.options.patience / 4, 1.0))
            if down is None:
                self.protocol.check()
                self.wake()
                continue
            now = time.monotonic()
            for call in self.protocol.pending_calls:
                if call.sent is None and now - max(call.since, down) >= self.options.timeout:
                    self._dispatch(self.protocol.fail(call, self._unreachable()))
            for feed in self.protocol.feeds:
                patience = feed.request.give_up_after
                if patience is not None and now - down >= patience:
                    self._dispatch(self.protocol.end(feed, self._unreachable(patience)))

    def _unreachable(self, seconds: float | None = None) -> WhenceError:
        waited = self.options.timeout if seconds is None else seconds
        why = self._last_fault or "it does not answer"
        if isinstance(self.failure, AuthenticationError):
            return self.failure
        return DisconnectedError(f"no connection to {self.options.url} within {waited:g} s: {why}")
