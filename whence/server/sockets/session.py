"""One client over a WebSocket: its hello, and then its subscriptions, inserts and calls.

The law: before a hello with a valid token nothing else is answered; a message that cannot be read, or that breaks a
limit of the connection, closes the connection with a code and a reason, and touches nothing else. Everything that can
be answered is: a write or call with `done`, `result` or `error` and its number, a subscription that ends with an error.

| code | why a connection is closed |
|------|-----------------------------|
| 1002, 1009 | what is no frame of RFC 6455; a message that is too large |
| 1003 | a frame of the other kind than the hello |
| 1007 | a message that cannot be read |
| 1008 | no hello, too many messages, a number that is in use |
| 4000 | an insert that was sent before another one is missing: what is not answered should be sent again |
| 4401 | no valid token, or one that has expired or was revoked |
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from whence.model.errors import AuthenticationError, DataError, LimitError, WhenceError
from whence.server.access.tokens import Caller
from whence.server.delivery.admissions import RequestedQueries
from whence.server.delivery.frames import message_frame
from whence.server.delivery.subscriber import Subscriber
from whence.server.delivery.tick_subscriber import TickSubscriber
from whence.server.failures import describe_failure
from whence.server.limits import RateLimit
from whence.server.sockets.inserts import prepare_insert
from whence.server.verbs.verb_calls import CallAnswer
from whence.server.writing.write_queue import Outcome, Refusal
from whence.subscribe import messages as ms

if TYPE_CHECKING:
    from whence.server.sockets.gateway import Gateway
    from whence.server.sockets.websocket import WebSocketConnection

NO_TOKEN, MISSING = 4401, 4000
WARNING = 60.0
"""Seconds before a token expires at which its client is told."""

PROGRESS = 0.1
"""Seconds at least between two messages about the progress of a call."""

_LONGEST_PAUSE = 86_400.0  # seconds between two updates


class ClientSession:
    """One client."""

    __slots__ = (
        "_calls",
        "_connection",
        "_gateway",
        "_last_insert",
        "_peer",
        "_pending",
        "_pending_bytes",
        "_publisher",
        "_rate",
        "_reading",
        "_subscribers",
        "_token",
        "_warned",
        "caller",
        "since",
    )

    def __init__(self, gateway: Gateway, connection: WebSocketConnection, peer: str, token: str | None) -> None:
        self._gateway, self._connection, self._peer, self._token = gateway, connection, peer, token
        self.caller: Caller | None = None
        self.since = gateway.now()
        self._publisher: str | None = None
        self._rate = RateLimit(gateway.limits.messages_per_second)
        self._subscribers: dict[int, Subscriber] | None = None
        self._calls: dict[int, threading.Event] | None = None
        self._pending = self._pending_bytes = 0  # inserts without an answer
        self._last_insert: int | None = None  # the number of the last one
        self._reading = True
        self._warned = False

    def __str__(self) -> str:
        return f"the connection of {self.caller.who if self.caller else 'nobody yet'} from {self._peer}"

    # -- messages ----------------------------------------------------------------------------------------------------

    def receive(self, data: bytes, is_text: bool) -> None:
        """Take a message."""
        if not self.count_message():
            return
        connection, format = self._connection, "json" if is_text else "msgpack"
        try:
            message = ms.decode_up(str(data, "utf-8") if is_text else data, format)  # type: ignore[arg-type]
        except UnicodeDecodeError as error:
            connection.close(1007, f"text that is not UTF-8: {error.reason}")
            return
        except ms.MessageError as error:
            connection.close(1007, str(error))
            return
        if self.caller is None:
            if isinstance(message, ms.Hello):
                connection.kind = format  # type: ignore[assignment]
                self._hello(message)
            else:
                connection.close(1008, "the first message is hello")
        elif format != connection.kind:
            connection.close(1003, f"the hello was {connection.kind}, and so is every message")
        else:
            self._take(message, len(data))

    def count_message(self) -> bool:
        """Count a message or ping; close the connection if there are too many."""
        self._gateway.metrics.messages_in += 1
        if self._rate.allows():
            return True
        most = self._gateway.limits.messages_per_second
        self._connection.close(1008, f"more than {most:,} messages per second (limit messages_per_second)")
        return False

    def _take(self, message: Any, size: int) -> None:
        match message:
            case ms.InsertMessage():
                self._insert(message, size)
            case ms.Subscribe():
                self._subscribe(message)
            case ms.CallMessage():
                self._call(message)
            case ms.Wait():
                self._wait(message)
            case ms.Want() | ms.Amend():
                self._ask(message)
            case ms.Unsubscribe(id):
                subscriber = self._subscribers.pop(id, None) if self._subscribers else None
                if subscriber is not None:
                    subscriber.end()
            case ms.Cancel(seq):
                cancelled = self._calls.get(seq) if self._calls else None
                if cancelled is not None:
                    cancelled.set()
            case ms.Renew(token):
                self._renew(token)
            case ms.Hello():
                self._hello_again(message)

    def _send(self, message: Any) -> None:
        self._gateway.metrics.messages_out += 1
        self._connection.send(message_frame(message, self._connection.kind))

    def _fail(
        self, error: BaseException, *, seq: int | None = None, id: int | None = None, final: bool = False
    ) -> None:
        assert self.caller is not None
        failure = describe_failure(error, sees_all=self._gateway.service.sees_all(self.caller))
        self._send(ms.ErrorMessage(failure.code, failure.message, seq, id, final, failure.details))

    def drained(self) -> None:
        """Go on with subscriptions, since the client takes messages again."""
        if self._subscribers:
            for subscriber in self._subscribers.values():
                self._gateway.delivery.enqueue(subscriber)
        self._read_on()

    def end(self) -> None:
        """End everything that the client has begun; inserts that were taken are done."""
        for subscriber in list((self._subscribers or {}).values()):
            subscriber.end()
        for cancelled in list((self._calls or {}).values()):
            cancelled.set()
        self._subscribers = self._calls = None

    # -- who it is ---------------------------------------------------------------------------------------------------

    def _hello(self, hello: ms.Hello) -> None:
        gateway = self._gateway
        if hello.version != ms.VERSION:
            self._connection.close(1008, f"this server speaks version {ms.VERSION} of the protocol")
            return
        try:
            self.caller = gateway.service.authenticate(hello.token if hello.token is not None else self._token)
        except AuthenticationError as error:
            self._connection.close(NO_TOKEN, str(error))
            return
        self._token, self._publisher = None, hello.publisher
        delivery = gateway.delivery
        limits = gateway.limits.describe()
        self._send(ms.Welcome(ms.VERSION, delivery.position(delivery.told), self.caller.who, limits))

    def _hello_again(self, hello: ms.Hello) -> None:
        """Pass over a hello that was sent again."""
        assert self.caller is not None
        try:
            self._gateway.service.tokens.renew(self.caller, hello.token)
        except AuthenticationError:
            self._connection.close(1008, "hello was said already")

    def _renew(self, token: str) -> None:
        assert self.caller is not None
        try:
            self.caller = self._gateway.service.tokens.renew(self.caller, token)
        except AuthenticationError as error:
            self._connection.close(NO_TOKEN, str(error))
            return
        self._warned = False
        for subscriber in (self._subscribers or {}).values():
            subscriber.caller = self.caller

    def check_token(self, now: float, changed: bool) -> None:
        """Tell the client that its token is about to expire; close the connection when it has, or was revoked."""
        caller = self.caller
        if caller is None:
            return
        if caller.expires is not None:
            if now >= caller.expires:
                self._connection.close(NO_TOKEN, "the token has expired")
                return
            if not self._warned and now >= caller.expires - WARNING:
                self._warned = True
                self._send(ms.Expiring(caller.expires))
        if changed and not self._gateway.service.tokens.is_valid(caller):
            self._connection.close(NO_TOKEN, "the token was revoked")

    # -- subscriptions -----------------------------------------------------------------------------------------------

    def _subscribe(self, message: ms.Subscribe) -> None:
        assert self.caller is not None
        if self._subscribers is None:
            self._subscribers = {}
        known, request = self._subscribers, RequestedQueries.of(message)
        if message.id in known:
            if known[message.id].request != request:  # else it was sent again
                self._connection.close(1008, f"there is a subscription {message.id} already")
            return
        try:
            self._gateway.limits.check("subscriptions", len(known) + 1, "subscriptions of a connection")
            check_pause(message.every)
        except WhenceError as error:
            self._fail(error, id=message.id, final=True)
            return
        kind = TickSubscriber if message.ticks else Subscriber
        subscriber = known[message.id] = kind(
            self._gateway.delivery, self._connection, message.id, request, self.caller
        )
        subscriber.open()

    def drop(self, subscriber: Subscriber) -> None:
        """Note that a subscription has ended by itself."""
        if self._subscribers is not None:
            self._subscribers.pop(subscriber.key[1], None)

    def _ask(self, message: ms.Want | ms.Amend) -> None:
        """Pass on what a broker asks for."""
        subscriber = self._subscribers.get(message.id) if self._subscribers else None
        if not isinstance(subscriber, TickSubscriber):
            return
        if isinstance(message, ms.Want):
            subscriber.want(message.ranges)
        else:
            subscriber.amend(message)

    def _wait(self, message: ms.Wait) -> None:
        subscriber = self._subscribers.get(message.id) if self._subscribers else None
        if subscriber is None:
            return
        try:
            subscriber.wait_for(self._gateway.delivery.hub.epoch_to_wait_for(message.at))
        except DataError as error:
            self._fail(error, id=message.id)

    # -- inserts -----------------------------------------------------------------------------------------------------

    def _insert(self, message: ms.InsertMessage, size: int) -> None:
        assert self.caller is not None
        gateway, publisher = self._gateway, None
        if message.after is not None and (self._last_insert is None or message.after > self._last_insert):
            # Done before the one that is missing, it would let that one pass for done.
            self._connection.close(MISSING, f"insert {message.after} is missing: connect again")
            return
        if message.number is not None:
            self._last_insert = max(message.number, self._last_insert or 0)
        try:
            if message.number is not None:
                if self._publisher is None:
                    raise DataError("inserts are numbered by those who give a publisher in their hello")
                publisher = gateway.publisher_of(self.caller, self._publisher)
            rows = 0
            try:
                write, rows = prepare_insert(gateway.service, self.caller, message)
            except WhenceError as error:
                if publisher is None:
                    raise
                write = Refusal(error)
            gateway.service.write_queue.submit(
                write,
                partial(gateway.answer, self, message.seq, size),
                publisher=publisher,
                number=message.number,
                awaiting=message.awaiting,
                rows=rows,
                size=size,
            )
        except WhenceError as error:
            self._fail(error, seq=message.seq)
            return
        self._pending += 1
        self._pending_bytes += size
        self.hold_if_behind()

    def hold_if_behind(self) -> None:
        """Read no more if the client has too much under way, or does not take the answers."""
        if self._reading and self._is_behind:
            self._reading = False
            self._connection.pause_reading()

    @property
    def _is_behind(self) -> bool:
        limits = self._gateway.limits
        return (
            self._pending >= limits.connection_writes
            or self._pending_bytes >= 4 * limits.message_bytes
            or self._connection.is_clogged
        )

    def answer(self, seq: int, size: int, outcome: Outcome) -> bytes:
        """Return the answer to an insert as a frame."""
        self._pending -= 1
        self._pending_bytes -= size
        self._gateway.metrics.messages_out += 1
        message: Any
        if outcome.error is None:
            at = self._gateway.position_of(outcome.epoch)
            message = ms.Done(seq, outcome.count, at, outcome.repeated)
        else:
            assert self.caller is not None
            failure = describe_failure(outcome.error, sees_all=self._gateway.service.sees_all(self.caller))
            message = ms.ErrorMessage(failure.code, failure.message, seq, details=failure.details)
        return message_frame(message, self._connection.kind)

    def send_answers(self, frames: bytes) -> None:
        """Send the answers to some inserts."""
        self._connection.send(frames)
        self._read_on()

    def _read_on(self) -> None:
        if not self._reading and not self._is_behind:
            self._reading = True
            self._connection.resume_reading()

    # -- calls -------------------------------------------------------------------------------------------------------

    def _call(self, message: ms.CallMessage) -> None:
        if self._calls is None:
            self._calls = {}
        if message.seq in self._calls:
            return  # it was sent again
        most = self._gateway.limits.calls
        if len(self._calls) >= most:
            error = LimitError(f"{most:,} calls are under way, and no more may be (limit calls): await an answer first")
            self._fail(error, seq=message.seq)
            return
        cancelled = self._calls[message.seq] = threading.Event()
        self._gateway.delivery.run(self._answer_call(message, cancelled))

    async def _answer_call(self, message: ms.CallMessage, cancelled: threading.Event) -> None:
        assert self.caller is not None
        gateway, seq = self._gateway, message.seq
        try:
            answer = await gateway.service.call(self.caller, message.verb, message.args, self._progress(seq), cancelled)
            frame = await gateway.delivery.workers.run(self._result, seq, answer)
        except Exception as error:
            if self._calls is not None:
                self._fail(error, seq=seq)
        else:
            gateway.metrics.messages_out += 1
            self._connection.send(frame)
        finally:
            if self._calls is not None:
                self._calls.pop(seq, None)

    def _result(self, seq: int, answer: CallAnswer) -> bytes:
        kind = self._connection.kind
        return message_frame(ms.ResultMessage(seq, answer.to_value(arrow=kind == "msgpack")), kind)

    def _progress(self, seq: int) -> Callable[[str, int, int], None]:
        """Return what a call reports its progress to, from another thread."""
        loop, next_time = self._gateway.delivery.loop, time.monotonic() + PROGRESS

        def report(what: str, done: int, total: int) -> None:
            nonlocal next_time
            now = time.monotonic()
            if now >= next_time:
                next_time = now + PROGRESS
                loop.call_soon_threadsafe(self._tell_progress, ms.ProgressMessage(seq, what, done, total))

        return report

    def _tell_progress(self, message: ms.ProgressMessage) -> None:
        if self._calls is not None and message.seq in self._calls and not self._connection.blocked:
            self._send(message)


def check_pause(every: float | None) -> None:
    """DataError unless this can be the time between two updates."""
    if every is not None and not (math.isfinite(every) and 0 <= every <= _LONGEST_PAUSE):
        raise DataError(f"every is a number of seconds from 0 to {_LONGEST_PAUSE:,.0f}, not {every!r:.40}")
