"""Publishers of a simulation that speak the messages of the wire: what a server tells a broker, encoded and decoded.

A publisher has one relation, a stream or a table, in the epochs of its history. What it tells is decided by
`PublishingSession`, as in a server. A restored backup begins another era, or another history.
"""

from __future__ import annotations

import asyncio
import itertools
import random
from collections import Counter
from collections.abc import Callable
from typing import Any

from whence.engine.core.operator import Batch
from whence.model.types import BIGINT, Column, Schema
from whence.runtime.sources.connection import Listener, ServerAddress
from whence.subscribe import messages as ms
from whence.subscribe.plain import plain_schema
from whence.subscribe.positions import Era, HistoryLineage, Position
from whence.subscribe.publishing import Publication, PublishingSession, RangeChange, RangeLost, RangeState, Told
from whence.subscribe.ranges import RangeSet
from whence.subscribe.recent import RecentChanges
from whence.subscribe.simulate.bags import add_to, bag_of, batch_of
from whence.subscribe.simulate.network import LinkNetwork
from whence.subscribe.simulate.oracle import Delta
from whence.subscribe.simulate.plans import Bag

SCHEMA = Schema((Column("id", BIGINT), Column("tick", BIGINT), Column("v", BIGINT)))
"""The columns of every relation; a table's primary key is `id`, a stream's rows have their tick."""

Down = Callable[[Any], None]


class WirePublisher:
    """One publisher, and the sessions of those who follow it."""

    def __init__(self, name: str, is_stream: bool, network: LinkNetwork, dice: random.Random) -> None:
        self.name, self.is_stream, self._network, self._dice = name, is_stream, network, dice
        self._ring = dice.choice([0, 700, 1 << 20])
        self.log: list[Delta] = []
        self.logs: dict[str, list[Delta]] = {}  # of every era that there was
        self.content: Bag = Counter()
        self._sessions: dict[tuple[str, int], tuple[PublishingSession, Down]] = {}
        self.connections: list[LinkConnection] = []
        self._begin(HistoryLineage(self._id(12), (Era(self._id(8), 0),)))

    def _id(self, digits: int) -> str:
        return f"{self._dice.getrandbits(4 * digits):0{digits}x}"

    def _begin(self, lineage: HistoryLineage) -> None:
        self.lineage = lineage
        self.logs[lineage.era.id] = self.log
        self._sessions.clear()
        self._recent = RecentChanges(self.is_stream, len(self.log), self._ring)
        past = self._past if self.is_stream else None
        key = () if self.is_stream else (0,)
        self._publication = Publication(self._recent, self._state, key, self.is_stream, past)

    def _state(self) -> tuple[int, Batch]:
        rows = [] if self.is_stream else [(row, count) for row, count in self.content.items() if count]
        return len(self.log), batch_of(rows, len(SCHEMA))

    def _past(self, since: int, upto: int) -> Batch:
        return batch_of([one for delta in self.log[since:upto] for one in delta], len(SCHEMA))

    def restore(self, epoch: int, same_history: bool) -> None:
        """Come back from a backup of an epoch; connections are lost."""
        for connection in list(self.connections):
            connection.lose()
        self.log = self.log[:epoch]
        self.content = Counter()
        for delta in self.log:
            add_to(self.content, delta)
        before = tuple(era for era in self.lineage.eras if era.start <= epoch) if same_history else ()
        history = self.lineage.history if same_history else self._id(12)
        self._begin(HistoryLineage(history, (*before, Era(self._id(8), epoch))))

    def rows_at(self, lineage: HistoryLineage, ticks: RangeSet) -> Bag:
        """Return the rows of exactly some ticks of a past that there was."""
        log, found = self.logs[lineage.era.id], Counter[tuple[int, ...]]()
        for since, upto in ticks:
            for delta in log[since:upto]:
                add_to(found, delta)
        return found

    def publish(self) -> None:
        """Make an epoch, which may be silent."""
        dice, tick = self._dice, len(self.log) + 1
        delta: Delta = []
        if self.is_stream:
            delta = [((n, tick, dice.randrange(4)), 1) for n in range(dice.choice([0, 1, 1, 3]))]
        else:
            rows = {row[0]: row for row in self.content}
            for key in dice.sample(range(6), dice.choice([0, 1, 2])):
                if key in rows:
                    delta.append((rows[key], -1))
                if key not in rows or dice.random() < 0.7:
                    delta.append(((key, tick, dice.randrange(4)), 1))
        self.log.append(delta)
        add_to(self.content, delta)
        if delta:
            batch = batch_of(delta, len(SCHEMA))
            self._recent.push(tick, self.time_of(tick), batch.rows, batch.ann)
        self.pump()

    def time_of(self, tick: int) -> int:
        """Return the time of an epoch, in microseconds."""
        return 1_000_000 + tick

    # -- messages ----------------------------------------------------------------------------------------------------

    def receive(self, who: str, message: Any, down: Down) -> None:
        """Take a message of a broker; `down` sends one back."""
        match message:
            case ms.Subscribe(id=id):
                if (who, id) in self._sessions:
                    return
                ranges = RangeSet() if self.is_stream else None
                if message.have:
                    history, era, text = message.have.split(".")
                    known = RangeSet.parse(text)
                    if self.lineage.knows(Position(history, era, known.last), len(self.log)):
                        ranges = known
                session = PublishingSession(self._publication, None, ranges, message.every_change)
                self._sessions[who, id] = session, down
                eras = [(era.id, era.start) for era in self.lineage.eras]
                down(ms.Subscribed(id, str(self.lineage.at(len(self.log))), [plain_schema(SCHEMA)], eras=eras))
            case ms.Want(id=id, ranges=ranges) if (who, id) in self._sessions:
                self._sessions[who, id][0].want(ranges)
            case ms.Unsubscribe(id=id):
                self._sessions.pop((who, id), None)
        self.pump()

    def forget(self, who: str) -> None:
        """Note that a connection is gone."""
        self._sessions = {key: one for key, one in self._sessions.items() if key[0] != who}

    def pump(self, beat: bool = False) -> None:
        """Tell everyone what is new; with `beat`, where this is."""
        for (_, id), (session, down) in list(self._sessions.items()):
            facts = session.next(len(self.log))
            for fact in [*facts, *([session.heartbeat(len(self.log))] if beat and not facts else [])]:
                down(self._message(id, fact))

    def _message(self, id: int, told: Told) -> Any:
        at, time = self.lineage.at, self.time_of(len(self.log))
        match told:
            case RangeChange(since, upto, None, number):
                return ms.Silence(id, str(at(since)), str(at(upto)), time, number=number)
            case RangeChange(since, upto, rows, number):
                return ms.UpdateMessage(id, str(at(since)), str(at(upto)), time, [self._part(rows)], number=number)
            case RangeState(tick, rows, number):
                columns = [list(column) for column in zip(*bag_of(rows).elements(), strict=True)] or [[], [], []]
                return ms.State(id, str(at(tick)), 0, columns, first=True, last=True, time=time, number=number)
            case RangeLost(since, upto):
                return ms.Lost(id, str(at(since)), str(at(upto)))
        raise AssertionError(f"no filter is amended here: {told}")

    def _part(self, batch: Any) -> ms.PartChange:
        rows = list(zip(map(tuple, batch.rows.tolist()), batch.ann.tolist(), strict=True))
        if not self.is_stream:
            sides = [[row for row, count in rows for _ in range(sign * count)] for sign in (-1, 1)]
            went, came = ([list(column) for column in zip(*side, strict=True)] or None for side in sides)
            return ms.PartChange(went, came)
        ticks = [
            (tick, self.time_of(tick), len(list(group))) for tick, group in itertools.groupby(r[1] for r, _ in rows)
        ]
        return ms.PartChange(
            None, [list(column) for column in zip(*(row for row, _ in rows), strict=True)], ticks=ticks
        )


class LinkConnection:
    """A connection over a link of the simulation. Every message is encoded and decoded."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        address: ServerAddress,
        ended: Callable[[Any], None],
        me: str,
        publisher: WirePublisher,
        network: LinkNetwork,
    ) -> None:
        self.address, self._ended, self._me, self._publisher, self._network = address, ended, me, publisher, network
        self.ready: asyncio.Future[Any] = loop.create_future()
        self.ready.set_result(None)
        self._loop, self._listeners, self._ids = loop, dict[int, Listener](), itertools.count(1)
        self._is_lost = False
        publisher.connections.append(self)

    def attach(self, listener: Listener) -> int:
        """Return a number for a subscription."""
        number = next(self._ids)
        self._listeners[number] = listener
        return number

    def detach(self, wire_id: int) -> None:
        """Pass no more messages on."""
        self._listeners.pop(wire_id, None)

    def send(self, message: Any) -> None:
        """Send a message up."""
        data = ms.encode_message(message, "msgpack")
        self._network.send(self._me, self._publisher.name, (self, data))

    def send_down(self, message: Any) -> None:
        """Send a message of the publisher down."""
        data = ms.encode_message(message, "msgpack")
        self._network.send(self._publisher.name, self._me, (self, data))

    def arrive_up(self, data: bytes) -> None:
        """Give a message to the publisher."""
        if self._is_lost:
            return
        self._publisher.receive(f"{self._me} {id(self)}", ms.decode_up(data, "msgpack"), self.send_down)

    def arrive_down(self, data: bytes) -> None:
        """Give a message to whoever subscribed."""
        if self._is_lost:
            return
        message = ms.decode_down(data, "msgpack")
        listener = self._listeners.get(message.id)
        if listener is not None:
            self._loop.call_soon(listener.receive, message.id, message)

    def lose(self) -> None:
        """End it from the other side: everyone who uses it is told."""
        listeners, self._listeners = self._listeners, {}
        self.close()
        for number, listener in listeners.items():
            self._loop.call_soon(listener.lost, number, "the publisher was restored")

    def close(self) -> None:
        """End it."""
        if not self._is_lost:
            self._is_lost = True
            self._publisher.connections.remove(self)
            self._publisher.forget(f"{self._me} {id(self)}")
            self._ended(self)
