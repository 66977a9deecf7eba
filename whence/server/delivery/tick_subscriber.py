"""One subscription of a broker: it is told ranges of ticks, and of silence; it asks for ranges again, and moves its
filter.

What to tell is decided by a `PublishingSession` (`subscribe/publishing.py`) over the relation in ticks
(`runtime/sources/relayed.py`). Rows of a stream are read under the state's lock: a few in the event loop if nobody has
it, else in a worker thread. When there is nothing to tell, silence is: every second, and ten times as often for a while
after somebody has asked for it. Epochs of which nothing passes the filter are not told one by one: the next message
covers them, at the latest in 100 ms.

The law is that of `Subscriber`: nothing of an epoch is sent before `Delivery.told` has reached it.
"""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from whence.engine.core.operator import Batch
from whence.io.rows import encode
from whence.model.codes import decode_value
from whence.model.errors import DataError, WhenceError
from whence.model.types import Schema
from whence.plan.algebra.program import Table
from whence.runtime.sources.definition import CLOSED, define_relation
from whence.runtime.sources.fetched_rows import FetchedTicks, rows_through
from whence.runtime.sources.relayed import TickedRelation, base_streams, source_beneath, table_beneath, ticked_relation
from whence.runtime.subscriptions.channels import signs_of
from whence.server.delivery.admissions import Admission
from whence.server.delivery.frames import message_frame
from whence.server.delivery.subscriber import Subscriber
from whence.subscribe import messages as ms
from whence.subscribe.plain import column_from_plain, from_plain, plain_columns, plain_schema, plain_value, to_plain
from whence.subscribe.positions import HistoryLineage, Position
from whence.subscribe.publishing import (
    DeliveryBound,
    DeliveryFilter,
    FilterAmended,
    FilterChange,
    PublishingSession,
    RangeChange,
    RangeLost,
    RangeState,
    Told,
)
from whence.subscribe.ranges import RangeSet
from whence.subscribe.waiting import plain_waiting

HEARTBEAT, EAGER_HEARTBEAT, EAGER = 1.0, 0.1, 2.0
"""Seconds between two messages at most, while somebody has asked for silence, and for how long that counts."""

SILENCE_EVERY = 0.1
"""Seconds between two messages at least that only say that nothing of some epochs is of use."""

DOUBTED = 10.0
"""Seconds after a range was asked for again in which promises are told with every message: they may be lost, too, and
no gap shows that."""

AT_ONCE = 500
"""Rows that the event loop makes a message of by itself."""

CHUNK = 5_000
"""Rows of one chunk of a state."""


class TickSubscriber(Subscriber):
    """A subscription of a broker."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._relation: TickedRelation | None = None
        self._session: PublishingSession | None = None
        self._frames: deque[bytes] = deque()
        self._asked: list[ms.Amend | list[tuple[int, int]] | FetchedTicks] = []  # still to be taken up
        self._later: list[ms.Amend] = []  # to be taken up when there is no gap any more
        self._spoke = 0.0  # when something was sent last
        self._eager_until = 0.0
        self._definition, self._schema = "", Schema(())
        self._begun: HistoryLineage | None = None  # the history that the subscriber knows of
        self._horizons_told = 0
        self._doubted_until = 0.0
        self._silence: RangeChange | None = None  # a range that is silent, which the next message will cover

    # -- opening -----------------------------------------------------------------------------------------------------

    async def _open(self, job: int) -> None:
        delivery = self._delivery
        if len(self.request.queries) != 1:
            raise DataError("a subscription with ticks has one query")
        admission = await delivery.admissions.open(self.request, self.caller)
        if job != self._job:
            delivery.admissions.release(admission)
            return
        self._join(admission)
        await self._begin(job, admission, self.request.have)

    async def _reopen(self, job: int, reason: str, why: str | None) -> None:
        await super()._reopen(job, reason, why)
        if job == self._job and self.admission is not None:
            await self._begin(job, self.admission, None)

    def _join(self, admission: Admission) -> None:
        """Follow the channel of an admission; `_begin` tells its columns."""
        delivery = self._delivery
        self.admission, self.audience = admission, delivery.audience_of(admission.channel)
        self.audience.members[self] = None
        self._lineage = delivery.coordinator.lineage

    async def _begin(self, job: int, admission: Admission, have: str | None) -> None:
        delivery = self._delivery
        await delivery.reaches(admission.changed)
        await delivery.workers.run(partial(self._prepare, admission, have))
        if job != self._job:  # its rights have changed meanwhile
            return
        relation = self._relation
        assert relation is not None
        self._begun = relation.lineage
        at = self._begun.at(relation.told(delivery.told).last)
        eras = [(era.id, era.start) for era in self._begun.eras]
        self._say(
            ms.Subscribed(self.key[1], str(at), [plain_schema(self._schema)], definition=self._definition, eras=eras)
        )

    def _prepare(self, admission: Admission, have: str | None) -> None:
        """Find out what is followed, and from where on. Runs in a worker thread."""
        coordinator, [part] = self._delivery.coordinator, admission.channel.parts
        with coordinator.looking():
            self._schema = part.schema
            self._definition = define_relation(coordinator, part.name)
            relation = self._relation = ticked_relation(coordinator, admission.channel)
        ranges = None
        if have:
            history, _, rest = have.partition(".")
            era, _, text = rest.partition(".")
            ranges = RangeSet.parse(text)
            told = relation.told(coordinator.durable_epoch)
            if not relation.lineage.knows(Position(history, era, ranges.last), told.last):
                ranges = None
        if ranges is None and relation.is_stream:
            ranges = RangeSet()
        filter = self._filter(self.request.filter)
        self._session = PublishingSession(relation.publication, filter, ranges, self.request.every_change)
        self._frames.clear()
        self._asked, self._later, self._horizons_told, self._silence = [], [], 0, None

    # -- what the broker asks for ------------------------------------------------------------------------------------

    def want(self, ranges: list[tuple[int, int]]) -> None:
        """Tell ranges of ticks again; if there are none, tell silence at once, and often for a while."""
        now = self._delivery.now()
        if not ranges:
            self._eager_until = now + EAGER
            self._delivery.workers.run(self._hurry)
        else:
            self._horizons_told, self._doubted_until = 0, now + DOUBTED
        self._asked.append(ranges)
        self._spoke = 0.0
        self._delivery.enqueue(self)

    def _hurry(self) -> None:
        """Have the time go on: by an epoch of silence here, or by asking the publisher. Runs in a worker thread."""
        coordinator, source = self._delivery.coordinator, self._source
        broker = coordinator.broker
        if source is not None and broker is not None:
            broker.hurry(source)
        elif coordinator.clock.now() - coordinator.time > EAGER_HEARTBEAT * 500_000:
            coordinator.be_silent()

    def amend(self, message: ms.Amend) -> None:
        """Move the filter."""
        self._asked.append(message)
        self._delivery.enqueue(self)

    # -- telling -----------------------------------------------------------------------------------------------------

    def wait_for(self, epoch: int) -> None:
        """Tell where the server is, soon."""
        self.want([])

    def pump(self, now: float) -> None:
        """Send what is ready; make more when there is something to tell; be heard of in silence."""
        outlet, delivery = self.outlet, self._delivery
        self._send_frames(now)
        if self.busy or self.gone or outlet.blocked or self._session is None or self._relation is None:
            return
        ended = self.audience.channel.ended
        if ended is not None:
            self.reopen("redefined", ended)
            return
        if self._relation.lineage != self._begun:
            self.fail(WhenceError("the history that this is told in has begun a new era: subscribe again"))
            return
        told = self._relation.told(delivery.told)
        if self._later and told.horizon == told.last:
            self._asked, self._later = [*self._later, *self._asked], []
        if self._asked or self._session.has_news(told):
            if self._asked or not self._tell_at_once(self._session, self._relation, told):
                self._work(self._tell_ticks, delivery.told)
                return
            self._send_frames(now)
            if self._frames:
                return
        pause = EAGER_HEARTBEAT if now < self._eager_until else HEARTBEAT
        if self._silence is not None:
            pause = min(pause, SILENCE_EVERY)
        if now >= self._spoke + pause:  # the very time that it is reminded at
            self._spoke = now
            if now < self._doubted_until:
                self._horizons_told = 0
                self._asked.append([])
                self._work(self._tell_ticks, delivery.told)
                return
            self._tell_silence(told)
        delivery.remind_soonest(self, self._spoke + pause)

    def _send_frames(self, now: float) -> None:
        outlet = self.outlet
        while self._frames and not outlet.blocked and not self.gone:
            self._delivery.metrics.messages_out += 1
            self._spoke = now
            outlet.send(self._frames.popleft())

    def _tell_at_once(self, session: PublishingSession, relation: TickedRelation, told: RangeSet) -> bool:
        """Make frames of what is new here, in the event loop: if it is of a stream and little, and no epoch is being
        run, which the loop must not wait for. Return whether that was done."""
        state = self._delivery.coordinator.state
        if not relation.is_stream or not session.only_follows or not state.acquire(blocking=False):
            return False
        try:
            if relation.small_step(session.sent, told, AT_ONCE) is not told:
                return False
            self._frames.extend(self._make([], self._delivery.told)[0])
        except Exception as error:
            self.fail(error)
        finally:
            state.release()
        return True

    def tell_doubt(self) -> None:
        """Say nothing: silence tells brokers of it."""

    def begin_again_if_stalled(self, now: float) -> None:
        """Nothing is sent in parts that could stall."""

    def _tell_silence(self, told: RangeSet) -> None:
        assert self._session is not None
        assert self._relation is not None
        beat, time = self._session.heartbeat(told), self._relation.time(self._delivery.told)
        *before, last = self._after_silence([beat])
        for each in before:
            self._frames.extend(message_frame(one, self.key[0]) for one in self._messages(each, time, None))
        assert isinstance(last, RangeChange)
        beat = last
        at = self._relation.lineage.at
        silence = ms.Silence(self.key[1], str(at(beat.since)), str(at(beat.upto)), time, number=beat.number)
        self._say(*self._doubtful([silence], beat, self._delivery.told))

    def _say(self, *messages: Any) -> None:
        self._frames.extend(message_frame(message, self.key[0]) for message in messages)

    def _doubtful(self, messages: list[Any], told: Told, epoch: int) -> list[Any]:
        """Return messages with the sources that what is told waits for: brokers behind this one pass it on, or what is
        incomplete here would be complete there. Ticks of a relay are not its epochs."""
        doubt = None if self.admission is None else self._delivery.coordinator.doubt_of(self.admission.channel)
        if doubt is None:
            return messages
        if self._source is None:
            epoch = told.at if isinstance(told, RangeState) else getattr(told, "upto", epoch)
        waiting = plain_waiting(doubt.waiting_for(epoch))
        for message in messages if waiting is not None else ():
            if isinstance(message, ms.Silence | ms.UpdateMessage | ms.State):
                message.waiting_for = waiting
        return messages

    async def _tell_ticks(self, job: int, epoch: int) -> None:
        delivery, asked = self._delivery, self._asked
        self._asked = []
        frames, upto = await delivery.workers.run(partial(self._make, asked, epoch))
        await delivery.reaches(upto)
        if job != self._job:
            return
        if upto > epoch and self._session is not None and delivery.hub.lacks_rows(upto):
            self._session.tell_state_again()  # the one that was made is of an epoch that is never told
        else:
            self._frames.extend(frames)

    def _make(self, asked: list[Any], epoch: int) -> tuple[list[bytes], int]:
        """Return what to tell as frames, and the epoch that it is of at most. Runs in a worker thread, unless
        that is known to take a moment only."""
        session, relation, coordinator = self._session, self._relation, self._delivery.coordinator
        assert session is not None
        assert relation is not None
        told, answers = relation.told(epoch), list[Told]()
        for each in asked:
            if isinstance(each, ms.Amend):
                if told.horizon < told.last:
                    self._later.append(each)  # it is in effect as of a tick before which nothing is missing
                elif not session.amend(each.number, each.base, self._change(each)):
                    raise WhenceError("an amendment of a filter that is not in effect: subscribe again")
            elif isinstance(each, FetchedTicks):
                answers.append(session.answer(each.since, each.upto, None if each.is_lost else self._reading(each)))
            else:
                session.want(each)
        with coordinator.looking():
            step = relation.small_step(session.sent, told)
            found = session.next(step) if relation.is_stream else None
            horizons = self._horizons(epoch) if step == told else None
        if found is None:
            found = session.next(told)
        found = [*answers, *found]
        self._fetch(session)
        time = relation.time(epoch) if step == told else 0
        found = self._after_silence(found)
        if horizons is None and not asked and (silence := self._that_may_wait(found)) is not None:
            self._silence = silence
            return [], epoch
        frames = []
        reaches_last = any(getattr(each, "upto", told.last) >= told.last for each in found)
        if step == told and (horizons is not None or asked) and not reaches_last:
            found.append(session.heartbeat(told))  # promises are told with it
        for each in found:  # promises are those as of the last tick: they hold only when all before it are known
            is_last = getattr(each, "upto", told.last) >= told.last
            told_now = self._messages(each, *((time, horizons) if is_last else (0, None)))
            frames += [message_frame(message, self.key[0]) for message in self._doubtful(told_now, each, epoch)]
        has_state = any(isinstance(each, RangeState) for each in found)  # as of the last epoch, stable or not
        return frames, coordinator.epoch if has_state else epoch

    def _fetch(self, session: PublishingSession) -> None:
        """Ask where this source comes from for ticks that are to be told, and whose rows are not here any more."""
        absent, session.absent = session.absent, []
        source, broker = self._source, self._delivery.coordinator.broker
        if absent and source is not None and broker is not None:
            broker.fetch(source, self._take_fetched, absent)

    def _take_fetched(self, fetched: FetchedTicks) -> None:
        """Tell what has come. Called in the broker's loop."""

        def take() -> None:
            self._asked.append(fetched)
            self._delivery.enqueue(self)

        with contextlib.suppress(RuntimeError):  # the server has ended
            self._delivery.loop.call_soon_threadsafe(take)

    def _reading(self, fetched: FetchedTicks) -> Callable[[DeliveryFilter], Any]:
        """Return what gives the rows of fetched ticks that pass a filter."""
        coordinator, admission, source = self._delivery.coordinator, self.admission, self._source
        assert admission is not None
        assert source is not None
        [part] = admission.channel.parts
        return partial(rows_through, coordinator, part, coordinator.program.tables[source], fetched)

    @property
    def _source(self) -> str | None:
        """The source that the relation is, or selects rows and columns of."""
        admission = self.admission
        return (
            None if admission is None else source_beneath(self._delivery.coordinator, admission.channel.parts[0].name)
        )

    def _after_silence(self, found: Sequence[Told]) -> list[Told]:
        """Return what is to be told with the silence before it, in one message if it goes on there."""
        silence, self._silence = self._silence, None
        if silence is None:
            return list(found)
        first = found[0] if found else None
        if isinstance(first, RangeChange) and (first.since, first.number) == (silence.upto, silence.number):
            return [replace(first, since=silence.since), *found[1:]]
        return [silence, *found]

    def _that_may_wait(self, found: list[Told]) -> RangeChange | None:
        """Return what is to be told if it is only silence, of which enough was told lately."""
        now = self._delivery.now()
        if len(found) != 1 or now < self._eager_until or now - self._spoke >= SILENCE_EVERY:
            return None
        [only] = found
        return only if isinstance(only, RangeChange) and only.rows is None else None

    def _horizons(self, epoch: int) -> dict[str, Any] | None:
        """Return what promises have established since it was last told: per ordered column the value that it has
        reached, and keys that were closed, under a name of their own each time."""
        coordinator, admission = self._delivery.coordinator, self.admission
        if admission is None:
            return None
        name = admission.channel.parts[0].name
        own = table_beneath(coordinator, name)
        streams = [own] if own is not None else sorted(base_streams(coordinator, name))
        tables = [t for each in streams if (t := coordinator.program.tables[each]).promises.follows_order]
        if not tables:
            return None
        known, self._horizons_told = self._horizons_told, epoch
        found = dict[str, Any]()
        for table in tables:
            found |= self._horizons_of(table, known, epoch, "" if own is not None else f"{table.name}.")
        return found or None

    def _horizons_of(self, table: Table, known: int, epoch: int, prefix: str) -> dict[str, Any]:
        """Return what a stream has promised since an epoch; the names of it in a result begin with that of the
        stream."""
        coordinator, found = self._delivery.coordinator, dict[str, Any]()
        now = coordinator.horizons(epoch)
        ordered = table.promises.ordered
        if ordered is not None:
            name = table.schema.names[ordered.column]
            horizon, before = now.of(table.name, name), coordinator.horizons(known).of(table.name, name)
            if horizon is not None and horizon != before and (prefix or name in self._schema.names):
                found[f"{prefix}{name}"] = plain_value(horizon.value)
        if table.promises.closes is not None:
            changes = now.changed_since(known)
            closed = changes.closed.get(table.name, ()) if changes.complete else now.closed_keys(table.name)
            if closed:
                found[f"{CLOSED}{prefix}{epoch}"] = plain_columns(closed, table.closed_keys.schema.types)
        return found

    def _messages(self, told: Told, time: int, horizons: dict[str, Any] | None) -> list[Any]:
        assert self._relation is not None
        id, at, delivery = self.key[1], self._relation.lineage.at, self._delivery
        match told:
            case RangeChange(since, upto, rows, number):
                here = str(at(since)), str(at(upto))
                if rows is None:
                    return [ms.Silence(id, *here, time, horizons, number=number)]
                delivery.metrics.updates += 1
                told_rows = rows if isinstance(rows, ms.PartChange) else self._part(rows, upto)
                return [ms.UpdateMessage(id, *here, time, [told_rows], horizons, number=number)]
            case RangeLost(since, upto):
                delivery.metrics.lost += 1
                return [ms.Lost(id, str(at(since)), str(at(upto)))]
            case FilterAmended(number, tick, rows, bound, refused):
                part = None if rows is None else self._part(rows)
                bounds = self._wire_bound(bound)
                return [ms.Amended(id, number, str(at(tick)), part, bounds, self._wire_keys(refused))]
            case RangeState():
                delivery.metrics.states += 1
                return self._state(told, time, horizons)

    def _state(self, told: RangeState, time: int, horizons: dict[str, Any] | None) -> list[Any]:
        assert self._relation is not None
        rows = signs_of(told.rows)[1]
        chunks = [rows[start : start + CHUNK] for start in range(0, len(rows), CHUNK)] or [rows]
        at, words = str(self._relation.lineage.at(told.at)), self._delivery.coordinator.dictionary
        return [
            ms.State(
                self.key[1],
                at,
                0,
                to_plain(chunk, self._schema, words),
                None,
                place == 0,
                place == len(chunks) - 1,
                "begin",
                time,
                chunk=place,
                horizons=horizons,
                number=told.number,
                bound=self._wire_bound(told.bound),
            )
            for place, chunk in enumerate(chunks)
        ]

    def _part(self, batch: Batch, upto: int | None = None) -> ms.PartChange:
        assert self._relation is not None
        words = self._delivery.coordinator.dictionary
        if self._relation.is_stream:
            rows = np.ascontiguousarray(batch.rows[:, :-1])
            runs = self._relation.runs(batch.rows[:, -1])
            return ms.PartChange(None, to_plain(rows, self._schema, words), ticks=runs)
        went, came = signs_of(batch)
        return ms.PartChange(
            to_plain(went, self._schema, words) if len(went) else None,
            to_plain(came, self._schema, words) if len(came) else None,
            ticks=None if upto is None else [(upto, self._relation.time_of_change(upto), len(batch.ann))],
        )

    # -- filters -----------------------------------------------------------------------------------------------------

    def _filter(self, wire: ms.WireFilter | None) -> DeliveryFilter | None:
        if wire is None:
            return None
        columns, key = self._places(wire.columns), self._places(wire.key)
        return DeliveryFilter(
            columns,
            None if wire.keys is None else self._keys(wire.keys, columns),
            self._bound(wire.bound),
            frozenset() if wire.quenched is None else self._keys(wire.quenched, key or columns),
            self._places(wire.watched),
            key,
        )

    def _change(self, message: ms.Amend) -> FilterChange:
        assert self._session is not None
        columns, key = self._session.filter.columns, self._session.filter.key
        keys = [
            frozenset() if given is None else self._keys(given, own)
            for given, own in (
                (message.add, columns),
                (message.drop, columns),
                (message.quench, key or columns),
                (message.lift, key or columns),
            )
        ]
        bound: Any = ... if message.bound is None else self._bound(message.bound)
        bound = None if message.unbound else bound
        add, drop, quench, lift = keys
        return FilterChange(add, drop, bound, quench, lift, message.since, message.as_of, message.more)

    def _places(self, names: list[str]) -> tuple[int, ...]:
        known = self._schema.names
        missing = [name for name in names if name not in known]
        if missing:
            raise DataError(f"a filter by columns that are not there: {', '.join(missing)}")
        return tuple(known.index(name) for name in names)

    def _keys(self, columns: ms.PlainColumns, places: tuple[int, ...]) -> frozenset[tuple[int, ...]]:
        schema = Schema(tuple(self._schema.columns[place] for place in places))
        rows = from_plain(columns, schema.types)
        codes = self._codes(rows, schema)
        return frozenset(map(tuple, codes.tolist()))

    def _bound(self, wire: ms.WireBound | None) -> DeliveryBound | None:
        if wire is None:
            return None
        [place] = self._places([wire.column])
        schema = Schema((self._schema.columns[place],))
        if wire.value is None:
            return DeliveryBound(place, None, at_most=not wire.is_least)
        [value] = column_from_plain([wire.value], schema.types[0])
        return DeliveryBound(place, int(self._codes([(value,)], schema)[0, 0]), at_most=not wire.is_least)

    def _wire_bound(self, bound: DeliveryBound | None) -> ms.WireBound | None:
        if bound is None:
            return None
        column, words = self._schema.columns[bound.column], self._delivery.coordinator.dictionary
        value = None if bound.code is None else plain_value(decode_value(bound.code, column.type, words))
        return ms.WireBound(column.name, value, is_least=not bound.at_most)

    def _wire_keys(self, keys: frozenset[tuple[int, ...]]) -> ms.PlainColumns | None:
        """Return keys by which rows may be quenched as they are sent."""
        if not keys:
            return None
        assert self._session is not None
        places = self._session.filter.key or self._session.filter.columns
        schema = Schema(tuple(self._schema.columns[place] for place in places))
        return to_plain(np.array(sorted(keys), np.int64), schema, self._delivery.coordinator.dictionary)

    def _codes(self, rows: list[tuple[Any, ...]], schema: Schema) -> Any:
        """Encode values of a filter; their words are kept as long as the relation is followed."""
        coordinator = self._delivery.coordinator
        with coordinator.writer, coordinator.looking():
            codes = encode(rows, schema, coordinator.dictionary, "filter")
            if self.admission is not None:
                self.admission.channel.parts[0].keep_words(codes, schema)
            return codes
