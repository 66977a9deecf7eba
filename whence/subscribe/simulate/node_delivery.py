"""What a node of a simulation tells: sessions of other nodes (`PublishingSession`) and subscribers (`Cursor`).

The law: nothing is told that is not synced, and nothing to whom it is not allowed.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

from whence.engine.core.operator import Batch
from whence.subscribe.cursor import Cursor, TellLost, TellState, TellUpdate
from whence.subscribe.positions import Position
from whence.subscribe.publishing import DeliveryFilter, PublishingSession, RangeChange, RangeState, Told
from whence.subscribe.ranges import RangeSet, reflects_as_much
from whence.subscribe.recent import RecentChanges
from whence.subscribe.simulate.bags import bag_of
from whence.subscribe.simulate.node_epochs import NodeEpochs
from whence.subscribe.simulate.node_parts import HEARTBEAT, MOVE_PATIENCE, NodeSession, NodeSubscriber, seen_at
from whence.subscribe.simulate.oracle import SimulationError
from whence.subscribe.simulate.plans import Bag
from whence.subscribe.sources import Opened


class NodeDelivery(NodeEpochs):
    """A node that tells others what it has."""

    session_class: type[PublishingSession] = PublishingSession
    sessions: dict[tuple[str, str], NodeSession]
    subscribers: dict[str, NodeSubscriber]

    def begin(self) -> None:
        self.sessions, self.subscribers = {}, {}
        super().begin()

    # -- giving ------------------------------------------------------------------------------------------------------

    def pump(self) -> None:
        """Tell everyone what is new."""
        told = self.told()
        for (to, source), session in self.sessions.items():
            for fact in session.core.next(told):
                self._tell(to, source, session, fact)
        for client in list(self.subscribers):
            self._serve(client, told)

    def _tell(self, to: str, source: str, session: NodeSession, fact: Told) -> None:
        session.heard = self.world.now
        upto = fact.at if not isinstance(fact, RangeChange) and hasattr(fact, "at") else getattr(fact, "upto", 0)
        if upto > self.synced:
            raise SimulationError("S5", f"{self.name} tells epoch {upto}, and {self.synced} is synced")
        is_stream = self.base is not None and self.base.kind == "stream" and session.relation == self.base.name
        if is_stream and upto and isinstance(fact, RangeChange | RangeState):
            time = self.log[upto - 1].time
            self.world.oracle.promise(self.lineage.history, upto, time)
            fact = replace(fact, time=time)
        if isinstance(fact, RangeState) or getattr(fact, "rows", None) is not None:
            self.world.last_rows = self.world.now
        self.world.send(self.name, to, ("told", source, session.number, self.lineage.at(upto), fact))

    def _beat(self) -> None:
        now = self.world.now
        if (
            self.base is not None
            and self.base.kind == "stream"
            and (not self.log or self.log[-1].time < self.clock() - 900_000)
        ):
            self.commit({})
        if self._is_curious:
            self._be_curious()
        told = self.told()
        self.pump()
        for (to, source), session in self.sessions.items():
            if session.heard <= now - HEARTBEAT * 0.9:
                self._tell(to, source, session, session.core.heartbeat(told))
        for client, subscriber in self.subscribers.items():
            known = subscriber.cursor.known
            idle = subscriber.heard <= now - HEARTBEAT * 0.9 and subscriber.busy_until <= now
            if idle and known is not None and not subscriber.seen and self.may_read(client) and known <= told:
                self._send_update(client, subscriber, known, told, Counter())
                subscriber.cursor.reached(told, now)

    def _serve(self, client: str, told: int) -> None:
        """Ask a client's cursor what to tell it, if it can take a message."""
        subscriber, now = self.subscribers[client], self.world.now
        if subscriber.busy_until > now:
            return
        if not self.may_read(client):
            del self.subscribers[client]
            return
        if subscriber.seen is not None and not self.may_tell(subscriber, told):
            if now < subscriber.until:
                return
            subscriber.reason, subscriber.has_waited = "restarted", True
        subscriber.seen = None
        recent = self.recents[subscriber.view]
        while True:
            step = subscriber.cursor.next([recent], told, now)
            match step:
                case TellUpdate(known, since, upto):
                    batch = self.difference(recent, known, since, upto)
                    bag = bag_of(batch) if batch is not None and len(batch.ann) else Counter()
                    if not any(bag.values()) and not subscriber.cursor.is_waited_for:
                        subscriber.cursor.passed(upto)
                        continue
                    self._send_update(client, subscriber, known, upto, bag)
                    subscriber.cursor.reached(upto, now)
                case TellState(reason):
                    if not told and subscriber.view in self.views:
                        return  # views are computed with the first epoch
                    bag = bag_of(self._state_of(subscriber.view, 1)[1])
                    at, vector = self.lineage.at(told), self.vector_at(subscriber.view, told)
                    self.world.last_rows = now
                    self._send(client, subscriber, told, ("state", at, bag, vector, subscriber.reason or reason))
                    subscriber.reason = ""
                    subscriber.cursor.reached(told, now)
                case TellLost():
                    continue
                case _:
                    pass
            return

    def may_read(self, client: str) -> bool:
        """Whether a client has the right to read, now."""
        return client not in self.denied

    def may_tell(self, subscriber: NodeSubscriber, told: int) -> bool:
        """Whether this node reflects what a client that moved here has seen."""
        if not told or subscriber.seen is None:
            return not subscriber.seen
        return reflects_as_much(seen_at(self.vector_at(subscriber.view, told)), subscriber.seen)

    def difference(self, recent: RecentChanges, known: int, since: int, upto: int) -> Batch | None:
        """What a client is told that is at `known`, where nothing has changed up to `since`."""
        return recent.difference(since, upto)

    def _send_update(self, client: str, subscriber: NodeSubscriber, known: int, upto: int, bag: Bag) -> None:
        if any(bag.values()):
            self.world.last_rows = self.world.now
        vector = self.vector_at(subscriber.view, upto)
        message = ("update", self.lineage.at(known), self.lineage.at(upto), bag, vector)
        self._send(client, subscriber, upto, message)

    def _send(self, client: str, subscriber: NodeSubscriber, upto: int, message: tuple[Any, ...]) -> None:
        if upto > self.synced:
            raise SimulationError("S5", f"{self.name} tells {client} epoch {upto}, and {self.synced} is synced")
        subscriber.heard, subscriber.busy_until = self.world.now, self.busy_until()
        subscriber.sent += 1
        head = message[0], (subscriber.number, subscriber.sent), subscriber.resumed
        self.world.send(self.name, client, (*head, *message[1:]))

    def busy_until(self) -> float:
        """When a client may be told more that does not say that it has what it was told: never. It asks again."""
        return float("inf")

    # -- messages ----------------------------------------------------------------------------------------------------

    def take(self, message: tuple[Any, ...]) -> None:
        """Take in what another node or a client asks for."""
        match message:
            case ("subscribe", who, source, number, relation, have, ranges, filter):
                self._subscribe((who, source), number, relation, have, ranges, filter)
            case ("want", who, source, number, ranges):
                session = self.sessions.get((who, source))
                if session is not None and session.number == number:
                    session.core.want(ranges)
                    self.pump()
            case ("amend", who, source, number, amendment, base, change):
                session = self.sessions.get((who, source))
                if session is not None and session.number == number:
                    if not session.core.amend(amendment, base, change):
                        del self.sessions[who, source]
                    self.pump()
            case ("follow", who, number, view, have, seen, every_change):
                known = self.subscribers.get(who)
                if not self.may_read(who) or (known is not None and known.number >= number):
                    return
                is_past = have is not None and self.lineage.knows(have, self.told())
                cursor = Cursor(have.epoch if is_past else None, every_change=every_change)
                until = self.world.now + MOVE_PATIENCE
                if known is not None and (known.seen is not None or known.has_waited):
                    until = known.until  # it has waited before
                self.subscribers[who] = NodeSubscriber(number, view, cursor, seen, until)
                self.subscribers[who].resumed = is_past
                if have is not None and not is_past:
                    self.subscribers[who].reason = "restarted"
                self.pump()
            case ("ack", who, message_id):
                known = self.subscribers.get(who)
                if known is not None and (known.number, known.sent) == message_id:
                    known.busy_until = 0.0
                    self._serve(who, self.told())
            case ("leave", who):
                self.subscribers.pop(who, None)

    def verdict_on(self, have: Position | None) -> str:
        """Say whether a position is part of this node's past."""
        if have is None:
            return "unknown"
        told = self.told()
        if self.lineage.knows(have, told):
            return "resumed"
        mine = self.lineage.at(told)
        return "behind" if have[:2] == mine[:2] and have.epoch > told else "unknown"

    def _subscribe(
        self, who: tuple[str, str], number: int, relation: str, have: Any, ranges: RangeSet, filter: DeliveryFilter
    ) -> None:
        known = self.sessions.get(who)
        if known is not None and known.number >= number:
            return
        verdict = self.verdict_on(have)
        told = self.told()
        if verdict != "behind":
            core = self.session_class(self.publications[relation], filter, ranges if verdict == "resumed" else None)
            self.sessions[who] = NodeSession(number, relation, core)
        here = Position(self.lineage.history, self.lineage.era.id, told)
        opened = Opened(here, verdict)  # type: ignore[arg-type]  # one of the three
        self.world.send(self.name, who[0], ("opened", who[1], number, self.lineage, opened))
        self.pump()
