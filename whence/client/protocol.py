"""The client's side of the protocol, without input or output: what to send, and what a message means.

It holds what must survive a connection: calls and writes that have no answer yet, and subscriptions with the positions
that they have reached. A connection (`connection.py`) says when it has begun, what came and that it was lost, and sends
what `take_outgoing` gives.

The laws, whatever is lost, cut or comes twice:
- A write that has a number is sent on every connection until it is answered, in the order of the numbers, so that the
  server does it once. A read is sent again, too. A write without a number is not: if its connection is lost, it is
  answered with an error that says that its outcome is not known.
- A subscription is asked for on every connection from the position that it has reached (`feeds.py`).
- Inserts are sent without waiting for answers; a numbered call is sent alone, since a server queues it later.
- Nothing is sent before the server has said welcome but `Hello`; and no more at a time than its limits allow.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Literal

from whence.client.events import (
    Answered,
    Event,
    FeedNews,
    Greeted,
    PendingCall,
    Progressed,
    Repeat,
    TokenExpires,
)
from whence.client.failures import error_of
from whence.client.feeds import SubscriptionFeed, SubscriptionRequest
from whence.model.errors import DisconnectedError, WhenceError
from whence.subscribe.messages import (
    CallMessage,
    Cancel,
    Done,
    ErrorMessage,
    Expiring,
    Hello,
    InsertMessage,
    Lost,
    ProgressMessage,
    Renew,
    ResultMessage,
    State,
    Subscribed,
    Unsubscribe,
    UpdateMessage,
    Wait,
    Welcome,
)
from whence.subscribe.positions import Position

MOST_WRITES, MOST_CALLS = 1_000, 16
"""Writes and calls that are under way at a time, unless the server allows less; others wait their turn."""


class ClientProtocol:
    """What one client has under way, over all its connections.

    position  the position of the last write that was acknowledged
    server    the position of the server when the connection began
    """

    def __init__(
        self,
        publisher: str,
        first_number: int = 1,
        patience: float = 15.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """After `patience` seconds without an answer that should have come, it is asked for again."""
        self.publisher, self._patience, self._clock = publisher, patience, clock
        self.position: Position | None = None
        self.server: Position | None = None
        self.limits: Mapping[str, Any] = {}
        self.who = ""
        self.is_ready = False  # welcome was said on this connection
        self._next_number, self._next_seq, self._next_id = first_number, 1, 1
        self._calls: dict[int, PendingCall] = {}  # by seq, so in their order
        self._unsent: deque[PendingCall] = deque()  # calls that only read
        self._unsent_writes: deque[PendingCall] = deque()
        self._running_calls = self._running_writes = 0
        self._numbered_call = False  # whether a call that has a number is under way
        self._last_insert: int | None = None  # the number of the last that was sent on this connection
        self._feeds: dict[SubscriptionFeed, None] = {}
        self._by_id: dict[int, SubscriptionFeed] = {}
        self._outgoing: list[Any] = []

    # -- connections -------------------------------------------------------------------------------------------------

    def connect(self, token: str | None) -> None:
        """Begin on a new connection."""
        self._outgoing, self._last_insert = [Hello(token=token, publisher=self.publisher)], None

    def disconnect(self) -> list[Event]:
        """Note that the connection is lost; what cannot be sent again ends with an error."""
        self.is_ready, self._outgoing = False, []
        self._by_id.clear()
        for feed in self._feeds:
            feed.disconnect()
        events: list[Event] = []
        for call in list(self._calls.values()):
            if call.sent is not None:
                call.sent, call.since = None, self._clock()
                if call.repeat == "never":
                    lost = DisconnectedError(
                        "the connection was lost before the server answered: whether it has done this is not known"
                    )
                    events.append(self._answer(call, lost))
        self._running_calls, self._running_writes, self._numbered_call = 0, 0, False
        calls = self._calls.values()
        self._unsent = deque(call for call in calls if call.repeat == "read")
        self._unsent_writes = deque(call for call in calls if call.repeat != "read")
        return events

    def refuse(self, error: WhenceError) -> list[Event]:
        """End everything with an error: the server will not take it."""
        events: list[Event] = [self._answer(call, error) for call in list(self._calls.values())]
        for feed in list(self._feeds):
            events += self._end(feed, error)
        self.is_ready, self._outgoing = False, []
        return events

    def take_outgoing(self) -> list[Any]:
        """Return the messages to send, in order; they count as sent."""
        if self.is_ready:
            self._outgoing += self._next_calls()
        found, self._outgoing = self._outgoing, []
        return found

    @property
    def has_outgoing(self) -> bool:
        return bool(self._outgoing) or (self.is_ready and self._may_send())

    # -- calls and writes --------------------------------------------------------------------------------------------

    def call(self, verb: str, args: dict[str, Any], repeat: Repeat = "read", number: int | None = None) -> PendingCall:
        """Call a verb; `Answered` has the seq of what is returned."""
        return self._submit(CallMessage(0, verb, args), repeat, number)

    def insert(
        self,
        table: str,
        rows: list[Any] | None = None,
        columns: list[str] | None = None,
        arrow: bytes | None = None,
        missing: Literal["error", "null"] = "error",
        number: int | None = None,
    ) -> PendingCall:
        """Insert rows, under the next number or one of the user's own."""
        return self._submit(InsertMessage(0, table, rows, columns, arrow, missing=missing), "numbered", number)

    def _submit(self, message: CallMessage | InsertMessage, repeat: Repeat, number: int | None) -> PendingCall:
        seq = message.seq = self._next_seq
        self._next_seq += 1
        call = self._calls[seq] = PendingCall(seq, message, repeat, self._clock(), patience=self._patience)
        if repeat == "numbered":
            call.number = self._next_number if number is None else number
            self._next_number = max(self._next_number, call.number) + 1
            if isinstance(message, InsertMessage):
                message.number = call.number
            else:
                message.args |= {"publisher": self.publisher, "number": call.number}
        (self._unsent if repeat == "read" else self._unsent_writes).append(call)
        return call

    def cancel(self, call: PendingCall) -> None:
        """Give up on a call: no answer to it is wanted."""
        if self._calls.pop(call.seq, None) is None:
            return
        if call.sent is None:
            (self._unsent if call.repeat == "read" else self._unsent_writes).remove(call)
        else:
            self._finished(call)
            if self.is_ready and call.is_call:
                self._outgoing.append(Cancel(call.seq))

    def fail(self, call: PendingCall, error: WhenceError) -> list[Event]:
        """End a call that cannot be sent, or has waited too long."""
        if call.seq not in self._calls:
            return []
        event = self._answer(call, error)
        waiting = self._unsent if call.repeat == "read" else self._unsent_writes
        if call in waiting:
            waiting.remove(call)
        return [event]

    @property
    def pending_calls(self) -> list[PendingCall]:
        """The calls that have no answer yet, in their order."""
        return list(self._calls.values())

    def _next_calls(self) -> Iterator[Any]:
        """Yield what may be sent now: reads as they come, writes in the order of their numbers."""
        while (call := self._first_to_send()) is not None:
            (self._unsent if call.repeat == "read" else self._unsent_writes).popleft()
            call.sent = self._clock()
            self._running_calls += call.is_call
            self._running_writes += not call.is_call
            self._numbered_call |= call.is_call and call.repeat == "numbered"
            if isinstance(call.message, InsertMessage):
                call.message.awaiting = self._lowest_number()
                call.message.after, self._last_insert = self._last_insert, call.number
            elif call.repeat == "numbered":
                call.message.args["awaiting"] = self._lowest_number()
            yield call.message

    def _first_to_send(self) -> PendingCall | None:
        room = self._running_calls < min(MOST_CALLS, self.limits.get("calls", MOST_CALLS))
        if self._unsent_writes:
            write = self._unsent_writes[0]
            if write.repeat == "never":
                if room:
                    return write
            elif write.is_call:  # the server may take its time before it queues one: it must not be overtaken
                if room and not self._running_writes and not self._numbered_call:
                    return write
            elif not self._numbered_call and self._running_writes < self._most_writes:
                return write
        return self._unsent[0] if self._unsent and room else None

    @property
    def _most_writes(self) -> int:
        return min(MOST_WRITES, int(self.limits.get("connection_writes", MOST_WRITES)))

    def _may_send(self) -> bool:
        return self._first_to_send() is not None

    def _lowest_number(self) -> int:
        """Return the lowest number that has no answer yet."""
        return next((call.number for call in self._calls.values() if call.number is not None), 0)

    def _answer(self, call: PendingCall, answer: Done | ResultMessage | WhenceError) -> Answered:
        del self._calls[call.seq]
        if call.sent is not None:
            self._finished(call)
        return Answered(call.seq, answer)

    def _finished(self, call: PendingCall) -> None:
        self._running_calls -= call.is_call
        self._running_writes -= not call.is_call
        if call.is_call and call.repeat == "numbered":
            self._numbered_call = False

    # -- subscriptions -----------------------------------------------------------------------------------------------

    def subscribe(self, request: SubscriptionRequest) -> SubscriptionFeed:
        """Follow queries."""
        feed = SubscriptionFeed(request)
        self._feeds[feed] = None
        if self.is_ready:
            self._ask(feed)
        return feed

    def unsubscribe(self, feed: SubscriptionFeed) -> None:
        """Follow no more."""
        self._feeds.pop(feed, None)
        self._leave(feed)

    def wait(self, feed: SubscriptionFeed, position: Position) -> None:
        """Have the server tell when a subscription has reached a position, even if nothing changes."""
        feed.wanted = position
        if feed.is_open and feed.wire_id is not None and self.is_ready:
            feed.heard = self._clock()
            self._outgoing.append(Wait(feed.wire_id, str(position)))

    def taken(self, feed: SubscriptionFeed) -> None:
        """Note that the user has taken something: one that was full can go on."""
        if self.is_ready and feed in self._feeds and feed.wire_id is None and not feed.is_full:
            self._ask(feed)

    @property
    def feeds(self) -> list[SubscriptionFeed]:
        """The subscriptions that go on."""
        return list(self._feeds)

    def end(self, feed: SubscriptionFeed, error: WhenceError) -> list[Event]:
        """End a subscription with an error."""
        self._leave(feed)
        return self._end(feed, error)

    def _ask(self, feed: SubscriptionFeed) -> None:
        self._leave(feed)
        wire_id, self._next_id = self._next_id, self._next_id + 1
        self._by_id[wire_id] = feed
        feed.heard = self._clock()
        feed.patience = min(max(feed.patience * 2, self._patience), 300.0)
        self._outgoing.append(feed.subscribe(wire_id))

    def _leave(self, feed: SubscriptionFeed) -> None:
        if feed.wire_id is not None:
            self._by_id.pop(feed.wire_id, None)
            if self.is_ready:
                self._outgoing.append(Unsubscribe(feed.wire_id))
            feed.disconnect()

    def _end(self, feed: SubscriptionFeed, error: WhenceError) -> list[Event]:
        self._feeds.pop(feed, None)
        feed.ended = error
        return [FeedNews(feed)]

    # -- what comes --------------------------------------------------------------------------------------------------

    def receive(self, message: Any) -> list[Event]:
        """Take in a message of the server."""
        match message:
            case Welcome():
                return self._welcome(message)
            case Done() | ResultMessage():
                return self._receive_answer(message)
            case ProgressMessage(seq, what, done, total):
                return [Progressed(seq, what, done, total)] if seq in self._calls else []
            case Subscribed() | State() | UpdateMessage() | Lost():
                return self._receive_fed(message)
            case ErrorMessage():
                return self._receive_error(message)
            case Expiring(at):
                return [TokenExpires(at)]
        return []

    def renew(self, token: str) -> None:
        """Go on with another token."""
        if self.is_ready:
            self._outgoing.append(Renew(token))

    def _welcome(self, message: Welcome) -> list[Event]:
        if self.is_ready:
            return []
        self.is_ready, self.limits, self.who = True, message.limits, message.who
        self.server = Position.parse(message.position)
        for feed in self._feeds:
            if not feed.is_full:
                self._ask(feed)
        return [Greeted(message)]

    def _receive_answer(self, message: Done | ResultMessage) -> list[Event]:
        call = self._calls.get(message.seq)
        if call is None or call.sent is None:
            return []  # given up, or answered before
        at = message.at if isinstance(message, Done) else position_of(message.value) if call.repeat != "read" else None
        if at is not None:
            self._acknowledge(Position.parse(at))
        return [self._answer(call, message)]

    def _acknowledge(self, at: Position) -> None:
        """Note the position of a write; answers may overtake each other, but not those of a later era."""
        if self.position is None or self.position[:2] != at[:2] or at.epoch >= self.position.epoch:
            self.position = at

    def _receive_fed(self, message: Subscribed | State | UpdateMessage | Lost) -> list[Event]:
        feed = self._by_id.get(message.id)
        if feed is None:
            return []  # of a subscription that was left
        feed.heard = self._clock()
        try:
            whole = feed.receive(message)
        except WhenceError as error:
            return self.end(feed, error)
        if not whole:
            self._ask(feed)
            return []
        if not isinstance(message, (Subscribed, Lost)):
            feed.patience = 0.0
        elif isinstance(message, Subscribed) and feed.wanted is not None:
            self.wait(feed, feed.wanted)
        if feed.wanted is not None and feed.position is not None and feed.position.reaches(feed.wanted):
            feed.wanted = None
        if feed.is_full:
            self._leave(feed)
        return [FeedNews(feed)]

    def _receive_error(self, message: ErrorMessage) -> list[Event]:
        if message.seq is not None:
            call = self._calls.get(message.seq)
            return [] if call is None or call.sent is None else [self._answer(call, error_of(message))]
        feed = None if message.id is None else self._by_id.get(message.id)
        if feed is None:
            return []
        if feed.is_open and not message.final:
            if feed.wanted is not None:  # a position that can never be reached
                feed.wanted, feed.complaint = None, error_of(message)
            else:  # it asked whether anything is missing after a position that the server never had: the state is
                self._ask(feed)
            return [FeedNews(feed)]
        self._by_id.pop(message.id or 0, None)
        feed.disconnect()
        return self._end(feed, error_of(message))

    # -- time --------------------------------------------------------------------------------------------------------

    def check(self) -> None:
        """Ask again for what should have come long ago: a subscription's first message, a position that is waited
        for, the answer to a call or an insert. Each time with twice the patience; a server passes over calls that are
        under way. And ask whether a subscription that is quiet has missed anything: the last update before a silence
        may be lost."""
        if not self.is_ready:
            return
        now = self._clock()
        for feed in list(self._feeds):
            if feed.is_awaited:
                if now - feed.heard >= max(feed.patience, self._patience):
                    self._ask(feed)
            elif feed.is_open and feed.wire_id is not None and now - feed.heard >= self._patience:
                feed.heard = now
                self._outgoing.append(Wait(feed.wire_id, str(feed.position)))
        for call in self._calls.values():
            if call.repeat != "never" and call.sent is not None and now - call.sent >= call.patience:
                call.sent, call.patience = now, call.patience * 2
                self._outgoing.append(call.message)


def position_of(value: Any) -> str | None:
    """Return the position that the answer of a call has, if it has one."""
    found = value.get("position") if isinstance(value, Mapping) else None
    return found if isinstance(found, str) else None
