"""What a client has under way, and what can happen to it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from whence.client.feeds import SubscriptionFeed
from whence.model.errors import WhenceError
from whence.subscribe.messages import CallMessage, Done, InsertMessage, ResultMessage, Welcome

Repeat = Literal["read", "numbered", "never"]
"""Whether a call may be sent again: it changes nothing, it has a number, or not at all."""


@dataclass(eq=False)
class PendingCall:
    """A call or a write that has no answer yet."""

    seq: int
    message: CallMessage | InsertMessage
    repeat: Repeat
    since: float  # when it began, or began to wait for a connection
    sent: float | None = None  # when, on the connection there is
    number: int | None = None
    patience: float = 0.0

    @property
    def is_call(self) -> bool:
        return isinstance(self.message, CallMessage)


# -- what has happened -----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Greeted:
    """The server said welcome: the connection can be used."""

    welcome: Welcome


@dataclass(frozen=True)
class Answered:
    """A call has an answer: the message, or an error."""

    seq: int
    answer: Done | ResultMessage | WhenceError


@dataclass(frozen=True)
class Progressed:
    """A call has come so far."""

    seq: int
    what: str
    done: int
    total: int


@dataclass(frozen=True)
class FeedNews:
    """A subscription has something to take, has reached a position, or has ended."""

    feed: SubscriptionFeed


@dataclass(frozen=True)
class TokenExpires:
    """The token must be renewed by then, in seconds since 1970."""

    at: float


Event = Greeted | Answered | Progressed | FeedNews | TokenExpires
