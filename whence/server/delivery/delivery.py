"""Delivery: what is new goes from the database to all who subscribe, over all their connections.

The thread that makes an epoch stable wakes the event loop, once for however many epochs. The loop goes through those
who follow what changed in rounds, a slice at a time, so that it stays responsive. All of a round are told up to the
same epoch, so that those at one position share a frame, and stay together. What becomes stable during a round is told
in the next. So a server that is overloaded tells net changes less often; it never queues.

The law: `told` rises only when the rights of every subscription have been checked as of the new epoch, and nothing of a
later epoch than `told` is sent. So whoever loses a right sees nothing of the epoch that takes it away.

No connection has a timer of its own: a sweep every second looks after deadlines (hello, pings, tokens that expire,
states that stall), and one timer wakes those that asked to be told only every so often.
"""

from __future__ import annotations

import asyncio
import heapq
import logging
import threading
from collections import Counter, deque
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Any

from whence.runtime.coordinator import Coordinator
from whence.runtime.subscriptions.channels import Channel
from whence.server.delivery.admissions import Admissions
from whence.server.delivery.audience import LARGE_CHANGE, Audience, MovedOnError
from whence.server.delivery.subscriber import Subscriber
from whence.server.worker_threads import WorkerThreads

log = logging.getLogger("whence.server")
SLICE = 200
"""Subscribers that are told before the event loop does something else."""

BUDGET = 0.005
"""Seconds after which it does so in any case."""

LINGER = 30.0
"""Seconds that what was subscribed to is kept for the next subscriber."""

_WORKERS = 4
_LOOK = 0.2  # seconds between two looks at epochs that are not stable yet
_FORGOTTEN = 100  # subscribers that are gone and would still be reminded
_MISSING: Any = object()


@dataclass(slots=True)
class DeliveryMetrics:
    """Counters since the server began."""

    messages_in: int = 0
    messages_out: int = 0
    bytes_out: int = 0
    updates: int = 0
    coalesced: int = 0  # updates of several epochs
    states: int = 0
    states_again: int = 0  # states that were begun again, since the client stalled
    lost: int = 0
    refused: int = 0  # handshakes
    closes: Counter[int] = field(default_factory=Counter)  # by code


class Delivery:
    """Tells subscribers of one database what is new. All of it but `_news` runs in the event loop."""

    def __init__(
        self,
        coordinator: Coordinator,
        admissions: Admissions,
        loop: asyncio.AbstractEventLoop,
        metrics: DeliveryMetrics,
        budget: float = BUDGET,
    ) -> None:
        self._budget = budget
        self.coordinator, self.hub, self.admissions, self.loop = coordinator, coordinator.hub, admissions, loop
        self.now: Callable[[], float] = loop.time
        self.metrics = metrics
        self.workers = WorkerThreads(loop, _WORKERS, "whence subscriptions")
        self.explainers = WorkerThreads(loop, 1, "whence witnesses")
        self.told = 0
        self._audiences: dict[Channel, Audience] = {}
        self._guard = threading.Lock()
        self._changed: dict[Channel, None] = {}  # since the loop was woken
        self._woken = False
        self._fresh: dict[Channel, None] = {}  # that the next round is about
        self._round: deque[Subscriber] = deque()  # those still to be told in this round
        self._others: deque[Subscriber] = deque()  # those to be looked at besides
        self._turning = self._checking = self._more = False
        self._watched: dict[Subscriber, None] = {}  # those who wait for a position
        self._awaited: list[tuple[int, int, asyncio.Future[None]]] = []  # by epoch
        self._reminders: list[tuple[float, int, Subscriber]] = []  # by time
        self._reminder: asyncio.TimerHandle | None = None
        self._looking: asyncio.TimerHandle | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._number = count()
        self._closed = False
        self._linger, self.hub.linger = self.hub.linger, max(self.hub.linger, LINGER)

    def start(self) -> None:
        """Begin to follow the database."""
        self.told = self.hub.told
        self.admissions.start(self.workers)
        self.hub.listen(self._news)
        self._advance()
        self._look()

    def _look(self) -> None:
        """Look for epochs that nothing tells of: those of a database that another process writes, and those that the
        durability "none" leaves to the system."""
        coordinator, poll = self.coordinator, self.coordinator.storage.poll
        if self._audiences and (poll is not None or coordinator.epoch > coordinator.durable_epoch):
            self.workers.run(self.hub.catch_up)
        self._looking = self.loop.call_later(_LOOK if poll is None else poll, self._look)

    def close(self) -> None:
        """Tell nothing more."""
        if not self._closed:
            self._closed = True
            self.hub.unlisten(self._news)
            self.admissions.close()
            for timer in (self._reminder, self._looking):
                if timer is not None:
                    timer.cancel()
            for audience in list(self._audiences.values()):
                for subscriber in list(audience.members):
                    subscriber.end()
            for task in self._tasks:
                task.cancel()
            self.workers.close()
            self.explainers.close()
            self.hub.linger = self._linger
            self.hub.sweep()

    # -- what subscribers use ----------------------------------------------------------------------------------------

    def position(self, epoch: int) -> str:
        """Return the position of an epoch."""
        return str(self.coordinator.lineage.at(epoch))

    def audience_of(self, channel: Channel) -> Audience:
        """Return the audience of a channel, for one who joins it."""
        found = self._audiences.get(channel)
        if found is None:
            found = self._audiences[channel] = Audience(self.coordinator, channel)
        return found

    def enqueue(self, subscriber: Subscriber) -> None:
        """Look at a subscriber soon."""
        if not subscriber.queued:
            subscriber.queued = True
            self._others.append(subscriber)
            self._turn_soon()

    def watch(self, subscriber: Subscriber) -> None:
        """Look at a subscriber with every epoch, until it no longer waits."""
        self._watched[subscriber] = None

    def remind(self, subscriber: Subscriber, at: float) -> None:
        """Look at a subscriber at a time."""
        if subscriber.reminder >= at:
            return  # it is looked at then anyway
        subscriber.reminder = at
        heapq.heappush(self._reminders, (at, next(self._number), subscriber))
        if self._reminder is None or self._reminder.when() > at:
            if self._reminder is not None:
                self._reminder.cancel()
            self._reminder = self.loop.call_at(at, self._remind)

    def remind_soonest(self, subscriber: Subscriber, at: float) -> None:
        """Look at a subscriber at a time, or before."""
        if subscriber.reminder > at or subscriber.reminder <= self.now():
            subscriber.reminder = 0.0
            self.remind(subscriber, at)

    def _remind(self) -> None:
        self._reminder, now = None, self.now()
        while self._reminders and (self._reminders[0][0] <= now or self._reminders[0][2].gone):
            self.enqueue(heapq.heappop(self._reminders)[2])
        if self._reminders:
            self._reminder = self.loop.call_at(self._reminders[0][0], self._remind)

    def forget(self, subscriber: Subscriber) -> None:
        """Note that a subscriber is gone."""
        self._watched.pop(subscriber, None)

    async def reaches(self, epoch: int) -> None:
        """Wait until an epoch may be told."""
        if epoch > self.told:
            reached = self.loop.create_future()
            heapq.heappush(self._awaited, (epoch, next(self._number), reached))
            self._advance()
            await reached

    def run(self, work: Coroutine[Any, Any, None]) -> None:
        """Run a task."""
        if self._closed:
            work.close()
            return
        task = self.loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("a task of the server failed", exc_info=error)

    # -- news --------------------------------------------------------------------------------------------------------

    def _news(self, changed: Sequence[Channel]) -> None:
        """Wake the event loop. Called by any thread."""
        with self._guard:
            self._changed |= dict.fromkeys(changed)
            if self._woken:
                return
            self._woken = True
        try:
            self.loop.call_soon_threadsafe(self._wake)
        except RuntimeError:  # the loop is closed
            log.debug("news after the end of the server")

    def _wake(self) -> None:
        with self._guard:
            changed, self._changed, self._woken = self._changed, {}, False
        self._fresh |= changed
        self._advance()

    def _advance(self) -> None:
        """Begin the next round, unless one is under way: the last stable epoch may be told from now on."""
        if self._closed:
            return
        if self._checking or self._round:
            self._more = True
            return
        self._more = False
        told = self.hub.told  # first: rights are at least as new
        if not self.admissions.are_current:
            self._checking = True
            self.run(self._check_rights())
            return
        if any(each.takes_long(told, LARGE_CHANGE) for channel in self._fresh for each in channel.closings):
            self._checking = True
            self.run(self._find_closed(told, list(self._fresh)))
            return
        self._tell_up_to(told)

    def _tell_up_to(self, told: int) -> None:
        began_anew, self.told = told < self.told, told
        while self._awaited and (began_anew or self._awaited[0][0] <= told):
            reached = heapq.heappop(self._awaited)[2]
            if not reached.done():
                reached.set_result(None)
        fresh, self._fresh = self._fresh, {}
        round = self._round
        for channel in fresh:
            audience = self._audiences.get(channel)
            if audience is not None:
                audience.turn_to(told)
                round.extend(audience.members)
        for subscriber in [each for each in self._watched if not each.cursor.is_waited_for]:
            self._watched.pop(subscriber, None)
        round.extend(self._watched)
        if round:
            self._turn_soon()

    async def _find_closed(self, told: int, channels: list[Channel]) -> None:
        """Find out in another thread which rows have become final; then go on."""
        try:
            for channel in channels:
                await self.workers.run(channel.advance, told)
        finally:
            self._checking = False
        if not self._closed:
            self._tell_up_to(told)
            if self._more:
                self._advance()

    async def _check_rights(self) -> None:
        """Check every subscription again, since rights have changed; then go on."""
        try:
            told = self.hub.told
            while not self.admissions.are_current:
                told = self.hub.told
                for admission, error in await self.admissions.check_again():
                    for subscriber in self._members_of(admission):
                        if error is not None:
                            subscriber.fail(error)
                        else:
                            subscriber.reopen("rights")
        finally:
            self._checking = False
        if not self._closed:
            self._tell_up_to(told)
            if self._more:
                self._advance()

    def _members_of(self, admission: Any) -> list[Subscriber]:
        audience = self._audiences.get(admission.channel)
        return [] if audience is None else [each for each in audience.members if each.admission is admission]

    # -- rounds ------------------------------------------------------------------------------------------------------

    def _turn_soon(self) -> None:
        if not self._turning:
            self._turning = True
            self.loop.call_soon(self._turn)

    def _turn(self) -> None:
        """Tell some subscribers what is next."""
        self._turning = False
        if self._closed:
            return
        now, told, left = self.now(), self.told, SLICE
        round, metrics = self._round, self.metrics
        while round and left:
            left -= 1
            subscriber = round.popleft()
            outlet = subscriber.outlet
            if subscriber.direct and not outlet.blocked:
                cursor, audience = subscriber.cursor, subscriber.audience
                known = cursor.known
                found = audience.direct.get((known, subscriber.key), _MISSING)  # type: ignore[arg-type]  # None finds none
                if found is _MISSING:
                    found = self._next_frame(audience, known, subscriber.key)
                if found is not None:
                    frame, coalesced = found
                    cursor.reached(told)
                    metrics.updates += 1
                    metrics.messages_out += 1
                    metrics.coalesced += coalesced
                    outlet.send(frame)
                    continue
            subscriber.pump(now)
            if self.now() - now > self._budget:
                break
        others = self._others
        while others and self.now() - now < self._budget:
            subscriber = others.popleft()
            subscriber.queued = False
            subscriber.pump(now)
        if round or others:
            self._turn_soon()
        if self._more and not round:
            self._advance()

    def _next_frame(self, audience: Audience, known: int | None, key: Any) -> tuple[bytes, bool] | None:
        audience.turn_to(self.told)
        if known is None:
            return None
        try:
            return audience.next_frame(known, key)
        except MovedOnError:
            return None

    # -- the sweep ---------------------------------------------------------------------------------------------------

    def sweep(self, now: float) -> None:
        """Look after what takes too long. Called about every second."""
        for channel, audience in list(self._audiences.items()):
            audience.sweep(now)
            if not audience.members:
                del self._audiences[channel]
                continue
            for subscriber in list(audience.members):
                if subscriber.sending is not None:
                    subscriber.begin_again_if_stalled(now)
            self._tell_doubt(audience)
        if sum(subscriber.gone for _, _, subscriber in self._reminders) > _FORGOTTEN:
            self._reminders = [each for each in self._reminders if not each[2].gone]
            heapq.heapify(self._reminders)
        self.admissions.sweep()
        self.workers.run(self.hub.sweep)

    def _tell_doubt(self, audience: Audience) -> None:
        """Tell those who follow sources when one is waited for, and when it is heard of again."""
        waiting = frozenset(audience.doubt(self.told)[1] or ())
        if waiting != audience.waits_for:
            audience.waits_for = waiting
            for subscriber in list(audience.members):
                if not subscriber.outlet.blocked:
                    subscriber.tell_doubt()

    @property
    def subscriptions(self) -> int:
        """How many subscriptions there are."""
        return sum(len(audience.members) for audience in self._audiences.values())
