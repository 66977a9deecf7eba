"""A server for tests of the protocol, without input or output: one table of integers, its history, its connections.

It keeps what a server promises: a numbered write is done once, a subscriber is told the net difference from its
position or the state, and a position of another history is answered with the state. What happens to messages on the way
is the test's to decide.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from whence.subscribe.messages import (
    CallMessage,
    Cancel,
    Done,
    ErrorMessage,
    Hello,
    InsertMessage,
    Lost,
    PartChange,
    ResultMessage,
    State,
    Subscribe,
    Subscribed,
    Unsubscribe,
    UpdateMessage,
    Wait,
    Welcome,
    decode_down,
    decode_up,
    encode_message,
)
from whence.subscribe.positions import Position

COLUMNS = [[("x", "INTEGER")]]
RING = 6
"""Epochs back to which differences are known."""


@dataclass
class Follower:
    """A subscription on the server: the epoch that it was told of, None if it needs the state."""

    id: int
    known: int | None
    reason: str = "begin"
    every_change: bool = False
    wanted: int | None = None


@dataclass
class ScriptedServer:
    """A database in memory with at most one connection."""

    history: str = "0" * 12
    epochs: list[Counter[int]] = field(default_factory=lambda: [Counter()])
    done: dict[tuple[str, int], int] = field(default_factory=dict)  # the epoch of each numbered write
    calls: list[str] = field(default_factory=list)
    publisher: str = ""
    followers: dict[int, Follower] = field(default_factory=dict)
    lists: dict[str, list[Counter[int]]] = field(default_factory=dict)  # of all histories

    def __post_init__(self) -> None:
        self.lists[self.history] = self.epochs

    @property
    def epoch(self) -> int:
        return len(self.epochs) - 1

    def at(self, epoch: int) -> str:
        return str(Position(self.history, "a" * 8, epoch))

    def rows_at(self, position: Position) -> Counter[int]:
        """Return the rows that there were at a position of any history."""
        return self.lists[position.history][position.epoch]

    def commit(self, came: list[int], went: list[int] | None = None) -> None:
        """Make an epoch of rows that come, and of those that go if they are there."""
        new = self.epochs[-1] + Counter(came)
        new -= Counter(went or [])
        self.epochs.append(new)

    def replace_history(self, upto: int) -> None:
        """Go on as a copy that was taken after some epoch."""
        self.history = f"{int(self.history) + 1:012}"
        self.epochs = list(self.epochs[: min(upto, self.epoch) + 1])
        self.done = {key: epoch for key, epoch in self.done.items() if epoch <= self.epoch}
        self.lists[self.history] = self.epochs
        self.drop_connection()

    def drop_connection(self) -> None:
        self.followers.clear()
        self.publisher = ""

    # -- messages ----------------------------------------------------------------------------------------------------

    def receive(self, message: Any) -> list[Any]:
        """Take in a message of the client, and return the answers."""
        message = decode_up(encode_message(message, "msgpack"), "msgpack")
        match message:
            case Hello():
                self.publisher = message.publisher or ""
                return self._sent([Welcome(1, self.at(self.epoch), "ada", {"calls": 4, "connection_writes": 8})])
            case Subscribe():
                return self._sent(self._subscribe(message))
            case Unsubscribe(id):
                self.followers.pop(id, None)
            case Wait(id, at):
                if id in self.followers:
                    self.followers[id].wanted = Position.parse(at).epoch
            case InsertMessage():
                return self._sent([self._insert(message)])
            case CallMessage(seq, verb, args):
                self.calls.append(verb)
                if verb == "fail":
                    return self._sent([ErrorMessage("CatalogError", "there is none", seq=seq)])
                return self._sent([ResultMessage(seq, args)])
            case Cancel():
                pass
        return []

    def _subscribe(self, message: Subscribe) -> list[Any]:
        if message.queries[0] == "ghost":
            return [ErrorMessage("CatalogError", "there is no ghost", id=message.id, final=True)]
        have = None if message.have is None else Position.parse(message.have)
        known = have.epoch if have is not None and have.history == self.history and have.epoch <= self.epoch else None
        reason = "restarted" if have is not None and known is None else "begin"
        self.followers[message.id] = Follower(message.id, known, reason, message.every_change)
        return [Subscribed(message.id, self.at(self.epoch), COLUMNS)]

    def _insert(self, message: InsertMessage) -> Any:
        assert message.number is not None
        key = (self.publisher, message.number)
        last = max((number for who, number in self.done if who == self.publisher), default=-1)
        if message.number <= last:
            assert key in self.done, "a write would be taken for one that was done"
            return Done(message.seq, len(message.rows or []), self.at(self.done[key]), repeated=True)
        self.commit([row[0] for row in message.rows or []])
        self.done[key] = self.epoch
        return Done(message.seq, len(message.rows or []), self.at(self.epoch))

    def tell(self) -> list[Any]:
        """Return what followers are to be told now."""
        found: list[Any] = []
        for follower in self.followers.values():
            found += self._tell(follower)
        return self._sent(found)

    def _tell(self, follower: Follower) -> list[Any]:
        found: list[Any] = []
        known = follower.known
        if known is not None and known < self.epoch - RING:
            if follower.every_change:
                found.append(Lost(follower.id, self.at(known), self.at(self.epoch)))
            known, follower.reason = None, "behind"
        if known is None:
            follower.known = self.epoch
            return found + self._chunks(follower.id, follower.reason)
        while known < self.epoch or (follower.wanted is not None and follower.wanted <= self.epoch):
            upto = min(known + 1, self.epoch) if follower.every_change else self.epoch
            before, after = self.epochs[known], self.epochs[upto]
            went, came = list((before - after).elements()), list((after - before).elements())
            if went or came or (follower.wanted is not None and follower.wanted <= upto):
                part = PartChange([went], [came]) if went or came else None
                found.append(UpdateMessage(follower.id, self.at(follower.known or 0), self.at(upto), 0, [part]))
                follower.known = upto
                if follower.wanted is not None and follower.wanted <= upto:
                    follower.wanted = None
            known = upto
        return found

    def _chunks(self, id: int, reason: str) -> list[Any]:
        rows = list(self.epochs[-1].elements())
        third = len(rows) // 3
        parts = [rows[:third], rows[third : 2 * third], rows[2 * third :]]
        return [
            State(id, self.at(self.epoch), 0, [part], first=i == 0, last=i == len(parts) - 1, reason=reason, chunk=i)
            for i, part in enumerate(parts)
        ]

    @staticmethod
    def _sent(messages: list[Any]) -> list[Any]:
        """Return messages as they are after the wire."""
        return [decode_down(encode_message(message, "msgpack"), "msgpack") for message in messages]
