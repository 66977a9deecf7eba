"""One subscription of one client: its cursor, the channel it follows, and what it is being sent.

`pump` is called when there may be something to tell and the client can take it. It asks the cursor what is next
(`subscribe/cursor.py`) and sends that: a net change, a chunk of the state, or that changes are lost. What takes long
(opening, reading a state, explaining rows) runs in other threads; meanwhile the subscriber is `busy`.

The law: nothing of an epoch is sent before `Delivery.told` has reached it, and that rises only when every right has
been checked as of it. A right that is given counts from the epoch that gives it: nothing is sent before that is stable,
and no state of an earlier one. All parts of a subscription are told in one message, or in one state, so they move
together.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from whence.model.errors import CatalogError, ForbiddenError, WhenceError
from whence.runtime.subscriptions.channels import Snapshot
from whence.server.access.tokens import Caller
from whence.server.delivery.admissions import Admission, RequestedQueries
from whence.server.delivery.audience import Audience, MovedOnError
from whence.server.delivery.explained import explain_next
from whence.server.delivery.frames import Kind, format_of, message_frame
from whence.server.delivery.states import Chunk, StateChunks
from whence.server.delivery.telling import ROWS_ONLY
from whence.server.failures import describe_failure
from whence.subscribe.cursor import Cursor, TellLost, TellState, TellUpdate
from whence.subscribe.messages import ErrorMessage, Lost, State, Subscribed, UpdateMessage
from whence.subscribe.plain import plain_schema

if TYPE_CHECKING:
    from whence.server.delivery.delivery import Delivery

_SOON = 0.02  # seconds between two looks whether sources have come as far as elsewhere
STALLED = 5.0
"""Seconds without progress after which a client in the middle of a state may have to begin it again."""


class Outlet(Protocol):
    """Where the messages of one client go."""

    kind: Kind
    blocked: bool
    """Whether what is sent would have to wait."""

    def send(self, frames: bytes) -> None:
        """Send frames."""

    def drop(self, subscriber: Subscriber) -> None:
        """Note that a subscription has ended."""


@dataclass(slots=True)
class StateSending:
    """How far the state is that a client is being sent."""

    chunks: StateChunks
    snapshot: Snapshot
    reason: str
    at: str
    index: int
    progress: float
    why: Sequence[Sequence[Any]] | None = None  # per part, the witnesses of its first rows


class Subscriber:
    """A subscription of a client."""

    __slots__ = (
        "_delivery",
        "_job",
        "_lineage",
        "admission",
        "audience",
        "busy",
        "caller",
        "cursor",
        "direct",
        "error",
        "gone",
        "key",
        "outlet",
        "queued",
        "reminder",
        "request",
        "sending",
    )

    def __init__(self, delivery: Delivery, outlet: Outlet, id: int, request: RequestedQueries, caller: Caller):
        self._delivery, self.outlet, self.request, self.caller = delivery, outlet, request, caller
        self.key = outlet.kind, id, ROWS_ONLY
        self.cursor = Cursor(None, request.every, request.every_change)
        self.admission: Admission | None = None
        self.audience: Audience
        self.sending: StateSending | None = None
        self._job = 0  # the number of what is being done in other threads
        self.busy = True  # until it is open
        self.gone = self.queued = False
        self.reminder = 0.0  # when it is looked at again
        self.error: BaseException | None = None  # that has ended it
        self.direct = False  # whether it is told whatever is new at once: see `Delivery`

    def __repr__(self) -> str:
        return f"subscription {self.key[1]} of {self.caller.who}"

    # -- opening and ending ------------------------------------------------------------------------------------------

    def open(self) -> None:
        """Begin: open the channel, and tell its columns."""
        self._work(self._open)

    async def _open(self, job: int) -> None:
        delivery, have = self._delivery, self.request.have
        since = None if have is None else delivery.hub.since(have)
        admission = await delivery.admissions.open(self.request, self.caller)
        if job != self._job:
            delivery.admissions.release(admission)
            return
        if have is not None and since is None:
            self.cursor.restart("restarted")
        elif since is not None:
            self.cursor.reached(since)
            if since < admission.changed:  # what the client has may be rows of other rights
                self.cursor.restart("rights")
        self._join(admission)
        await delivery.reaches(admission.changed)
        if since is None:  # else it goes on here, where it was
            await self._reflect_as_much(job, admission)

    async def _reflect_as_much(self, job: int, admission: Admission) -> None:
        """Wait until all that the client has seen at another broker is reflected here."""
        seen, coordinator = self.request.reflects, self._delivery.coordinator
        doubt = coordinator.doubt_of(admission.channel) if seen else None
        while doubt is not None and job == self._job and not doubt.has_seen(seen, self._delivery.told):
            await asyncio.sleep(_SOON)

    def tell_doubt(self) -> None:
        """Tell that other sources are waited for than before, although nothing has changed."""
        known = self.cursor.known
        if self.admission is not None and known is not None and self.sending is None and not self.busy:
            at, parts = self._delivery.position(known), [None] * len(self.admission.channel.parts)
            message = UpdateMessage(self.key[1], at, at, self.audience.time_of(known), parts)
            message.reflects, message.waiting_for = self.audience.doubt(known)
            message.waiting_for = message.waiting_for or {}
            self._tell(message)

    def _join(self, admission: Admission) -> None:
        """Follow the channel of an admission, and tell its columns."""
        delivery = self._delivery
        self.admission, self.audience = admission, delivery.audience_of(admission.channel)
        self.audience.members[self] = None
        self._lineage = delivery.coordinator.lineage  # names what it is told, also when that is another one's past
        channel = admission.channel
        self.key = *self.key[:2], admission.telling(self.request.bounds)
        parts = [
            plain_schema(part.shown_schema if self.key[2].hides(part, place) else part.schema)
            for place, part in enumerate(channel.parts)
        ]
        knowledge, known = self.key[2].knowledge(channel), self.cursor.known
        horizons = None if known is None else self.key[2].horizons(channel, None, known)
        self._tell(Subscribed(self.key[1], delivery.position(delivery.told), parts, knowledge, horizons))

    def _leave(self) -> None:
        self.direct, self.sending = False, None
        if self.admission is not None:
            self.audience.members.pop(self, None)
            self._delivery.admissions.release(self.admission)
            self.admission = None

    def end(self) -> None:
        """Follow no more; the client is told nothing."""
        if not self.gone:
            self.gone = True
            self._job += 1
            self._delivery.forget(self)
            self._leave()

    def fail(self, error: BaseException) -> None:
        """End with an error, which is the last thing that the client is told of it."""
        if self.gone:
            return
        failure = describe_failure(error, sees_all=self.admission is not None and self.admission.sees_all)
        self.error = error
        self.end()
        self.outlet.drop(self)
        self._tell(ErrorMessage(failure.code, failure.message, id=self.key[1], final=True, details=failure.details))

    def reopen(self, reason: str, why: str | None = None) -> None:
        """Follow what the queries are now: their relations, or the rights of the client, have changed."""
        if not self.gone:
            self.sending = None
            self._work(self._reopen, reason, why)

    async def _reopen(self, job: int, reason: str, why: str | None) -> None:
        delivery, known = self._delivery, self.cursor.known
        former = None if known is None else self._lineage.at(known)
        try:
            admission = await delivery.admissions.open(self.request, self.caller)
        except WhenceError as error:
            moved = delivery.admissions.moved(self.request)
            if moved is not None:
                raise moved from None
            if why is None or isinstance(error, ForbiddenError):
                raise
            raise CatalogError(f"{why}; {error}") from None
        if job != self._job:
            delivery.admissions.release(admission)
            return
        if former is not None and delivery.hub.since(former) is None:
            reason = "restarted"
        self._leave()
        self.cursor.restart(reason)
        self._join(admission)
        await delivery.reaches(admission.changed)

    # -- telling -----------------------------------------------------------------------------------------------------

    def wait_for(self, epoch: int) -> None:
        """Tell an update as soon as an epoch is reached, even if nothing changes; if it was told, where the client
        should be by now."""
        self.cursor.wait_for(epoch)
        known = self.cursor.known
        if self.cursor.is_waited_for:
            self.direct = False
            self._delivery.watch(self)
        elif self.admission is not None and known is not None:
            at, parts = self._delivery.position(known), [None] * len(self.admission.channel.parts)
            self._tell(UpdateMessage(self.key[1], at, at, self.audience.time_of(known), parts))
        self._delivery.enqueue(self)

    def pump(self, now: float) -> None:
        """Tell the client what is next, as long as it can take it. Of a state only one chunk at a time."""
        outlet = self.outlet
        while not (self.busy or self.gone or outlet.blocked):
            if self.sending is not None:
                self._send_chunk(self.sending, now)
                if not self.gone and not outlet.blocked:
                    self._delivery.enqueue(self)  # others come first
                return
            if not self._step(now):
                break
        request = self.request
        if not (self.busy or self.gone or request.every or request.every_change or request.why):
            self.direct = self.sending is None and not self.cursor.is_waited_for

    def _step(self, now: float) -> bool:
        """Tell one thing; return whether there may be more to tell."""
        audience, cursor, told = self.audience, self.cursor, self._delivery.told
        audience.turn_to(told)
        ended = audience.channel.ended
        if ended is not None:
            untold = self._first_untold()
            if untold is None:
                self.reopen("redefined", ended)
                return True
            if untold > told:
                return False  # until it may be told
        step = cursor.next(self.key[2].moves(audience.channel), told, now)
        match step:
            case TellUpdate() if not self.request.why:
                return self._tell_update(step, now)
            case TellState(reason) if not self.request.why:
                return self._begin_state(reason)
            case TellLost(since):
                position = self._delivery.position
                self._delivery.metrics.lost += 1
                self._tell(Lost(self.key[1], position(since), position(told)))
                return True
            case None:
                if cursor.not_before > now:
                    self._delivery.remind(self, cursor.not_before)
                return False
        self._work(self._tell_explained, now)
        return True

    def _first_untold(self) -> int | None:
        """Return the epoch of the next change before the end of the channel, if each is to be told."""
        cursor = self.cursor
        if not cursor.every_change or self.request.why or cursor.known is None:
            return None
        return cursor.next_untold(self.key[2].moves(self.audience.channel))

    def _tell_update(self, step: TellUpdate, now: float) -> bool:
        audience, cursor = self.audience, self.cursor
        if audience.is_large(step.since, step.upto):
            self._work(self._tell_large, step)
            return True
        try:
            frame = audience.update_frame(
                *self.key, step.known, step.since, step.upto, empty=cursor.is_waited_for and step.upto > step.known
            )
        except MovedOnError:
            return True  # the next step is the state
        self._send_update(step.since, step.upto, frame, now)
        return True

    async def _tell_large(self, job: int, step: TellUpdate) -> None:
        """Tell a change that another thread makes; perhaps only a part of it, then the rest comes next."""
        audience, delivery = self.audience, self._delivery
        upto, frame = await audience.large_update(delivery.workers, *self.key, step.known, step.since, step.upto)
        if job == self._job:
            self._send_update(step.since, upto, frame, delivery.now())

    def _send_update(self, since: int, upto: int, frame: bytes | None, now: float) -> None:
        if frame is None:
            self.cursor.passed(upto)
            return
        metrics = self._delivery.metrics
        metrics.updates += 1
        metrics.messages_out += 1
        metrics.coalesced += self.audience.spans_epochs(since, upto)
        self.cursor.reached(upto, now)
        self.outlet.send(frame)

    def _tell(self, message: msgspec.Struct) -> None:
        self._delivery.metrics.messages_out += 1
        self.outlet.send(message_frame(message, self.key[0]))

    # -- states ------------------------------------------------------------------------------------------------------

    def _begin_state(self, reason: str) -> bool:
        assert self.admission is not None
        snapshot = self.audience.usable_snapshot(self.admission.changed, self._delivery.told)
        if snapshot is not None and not self._delivery.hub.lacks_rows(snapshot.epoch):
            self._send_state(snapshot, reason)
        else:
            self._work(self._fetch_state, reason)
        return True

    async def _fetch_state(self, job: int, reason: str) -> None:
        audience, delivery, is_fit = self.audience, self._delivery, False
        while not is_fit:
            admission = self.admission
            if admission is None:
                return
            read = partial(delivery.hub.snapshot, audience.channel, admission.changed)
            snapshot = await audience.fetch_snapshot(delivery.workers, read)
            if len(snapshot.parts) < len(audience.channel.parts) or job != self._job:
                return  # a part has ended
            await delivery.reaches(snapshot.epoch)
            lacks_rows = delivery.hub.lacks_rows(snapshot.epoch)  # then later ones may be told, and this never
            is_fit = not lacks_rows and snapshot.epoch >= admission.changed  # rights may have gone and come back since
        audience.keep_snapshot(snapshot, delivery.now())
        if job == self._job and audience.channel.ended is None:
            self._send_state(snapshot, reason)

    def _send_state(self, snapshot: Snapshot, reason: str, why: Sequence[Sequence[Any]] | None = None) -> None:
        delivery, format = self._delivery, format_of(self.key[0])
        chunks, at = self.audience.chunks(snapshot, format, self.key[2]), delivery.position(snapshot.epoch)
        self.sending = StateSending(chunks, snapshot, reason, at, 0, delivery.now(), why)
        delivery.metrics.states += 1

    def _send_chunk(self, sending: StateSending, now: float) -> None:
        chunk, first = sending.chunks[sending.index], sending.index == 0
        sending.index += 1
        sending.progress = now
        if chunk.is_last:
            self.sending = None
            self.cursor.reached(sending.snapshot.epoch, now)
        why = None if sending.why is None else _cut(sending.why[chunk.part], chunk)
        self._tell(
            State(
                self.key[1],
                sending.at,
                chunk.part,
                chunk.columns,  # type: ignore[arg-type]  # encoded already
                chunk.arrow,
                first,
                chunk.is_last,
                sending.reason,
                sending.snapshot.time,
                why,
                sending.index - 1,
                chunk.bounds,
                chunk.states,
                self.key[2].horizons(self.audience.channel, None, sending.snapshot.epoch) if first else None,
                *(self.audience.doubt(sending.snapshot.epoch) if first else ()),
            )
        )

    def begin_again_if_stalled(self, now: float) -> None:
        """Let go of a state that the client is not reading, and that could not be continued by changes anyway."""
        sending = self.sending
        if sending is None or now - sending.progress < STALLED or self.audience.reaches(sending.snapshot):
            return
        self.sending = None
        self.cursor.restart(sending.reason)
        self._delivery.metrics.states_again += 1
        self._delivery.enqueue(self)

    # -- witnesses ---------------------------------------------------------------------------------------------------

    async def _tell_explained(self, job: int, now: float) -> None:
        """Tell a change, or the state, with the witnesses of the rows that came, as of the same epoch."""
        delivery, channel, admission = self._delivery, self.audience.channel, self.admission
        assert admission is not None
        found = await delivery.explainers.run(
            explain_next, delivery.coordinator, channel, self.cursor, now, admission.witnesses, self.key[2]
        )
        if found is None:
            return
        await delivery.reaches(found.epoch)
        if job != self._job or channel.ended is not None or found.epoch < admission.changed:
            return
        if found.snapshot is not None:
            self._send_state(found.snapshot, found.reason, found.why)
            return
        position = delivery.position
        self.cursor.reached(found.upto, now)
        delivery.metrics.updates += 1
        at = position(found.known), position(found.upto)
        horizons = self.key[2].horizons(channel, found.known, found.upto)
        self._tell(UpdateMessage(self.key[1], *at, found.time, list(found.parts), horizons))

    # -- work --------------------------------------------------------------------------------------------------------

    def _work(self, work: Callable[..., Awaitable[None]], *args: Any) -> None:
        """Do something in other threads, and go on telling afterwards. What was begun before is given up."""
        self.busy, self.direct = True, False
        self._job += 1
        self._delivery.run(self._finish(self._job, work, *args))

    async def _finish(self, job: int, work: Callable[..., Awaitable[None]], *args: Any) -> None:
        try:
            await work(job, *args)
        except MovedOnError:
            pass  # the next step is the state
        except Exception as error:
            if job == self._job:
                self.fail(error)
            return
        if job == self._job:
            self.busy = False
            self._delivery.enqueue(self)


def _cut(why: Sequence[Any], chunk: Chunk) -> list[Any] | None:
    """Return the witnesses of a chunk's rows, as far as they are known."""
    return list(why[chunk.start : chunk.start + chunk.rows]) or None
