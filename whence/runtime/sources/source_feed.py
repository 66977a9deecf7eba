"""One source: its subscription upstream, from messages to actions and back.

`SourceState` (`subscribe/sources.py`) decides; this gives it what comes in the form that it takes, and does what it
says: rows go to the writer, questions to the server, and a new session to whichever URL it names. Everything here runs
in the broker's event loop.

The law: what is handed to the writer is in the order of the state's decisions, so what is committed is always what the
state was at some moment; when the database begins again from its storage, the state is made from its rows anew.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from whence.model.errors import WhenceError
from whence.plan.algebra.program import Table
from whence.runtime.sources.asking import UpstreamQuery
from whence.runtime.sources.connection import ServerAddress
from whence.runtime.sources.fetched_rows import FetchedTicks
from whence.runtime.sources.host import Connection
from whence.runtime.sources.reflected import SourceRecord
from whence.sql.addresses import source_address
from whence.subscribe import messages as ms
from whence.subscribe.passed_wants import PassedWants
from whence.subscribe.plain import from_plain, schema_of
from whence.subscribe.positions import Era, HistoryLineage, Position
from whence.subscribe.publishing import FilterAmended, RangeChange, RangeLost, RangeState
from whence.subscribe.ranges import Range
from whence.subscribe.results import is_result
from whence.subscribe.retrying import retry_delay
from whence.subscribe.sources import (
    Action,
    Apply,
    ApplyState,
    Ask,
    LoseRange,
    Mode,
    Opened,
    Resubscribe,
    SendAmend,
    SourceState,
    StartOver,
)
from whence.subscribe.waiting import UpstreamDoubts, WaitingFor, read_waiting

if TYPE_CHECKING:
    from whence.runtime.sources.broker import Broker

log = logging.getLogger("whence")
GAP_AFTER, ANSWER_AFTER, STALL_AFTER = 0.05, 0.5, 3.0
"""Seconds after which a gap is asked for, asked for again, and after which a horizon that stands still is doubted."""

_REFUSALS = (
    "SqlError",
    "LimitError",
    "DataError",
)  # of a query that a server does not take, though it has the relation


class SourceFeed:
    """Feeds one source."""

    def __init__(self, broker: Broker, table: Table, record: SourceRecord) -> None:
        self.broker, self.table, self.record = broker, table, record
        assert table.source is not None
        self.source = table.source
        self.addresses = [source_address(url) for url in self.source.urls]
        self.is_result = is_result(table)
        queries = broker.results.queries(table) if self.is_result else ()
        self.asked = UpstreamQuery(self.addresses[0].relation, results=queries)
        self.generation = 0  # what was handed to the writer before is of no use
        self.error: str | None = None  # why nothing comes
        self.lineage = record.lineage  # as of what was received, perhaps ahead of what is written
        self._loop = broker.loop
        self._connection: Connection | None = None
        self._wire_id = 0
        self._task: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._attempt, self._down_since = 0, self.broker.host.now()
        self._chunks: list[ms.State] = []
        self._columns: list[int] | None = None  # of the source, by those of the query; None if they are the same
        self._have: Position | None = None
        self._unwritten: HistoryLineage | None = None  # that of a publisher with another past, until rows of it come
        self.caught_up = asyncio.Event()  # everything that there was when it first subscribed is in
        self._goal: int | None = None
        self.is_started = False
        self._every_change = False  # whether changes of a table are asked for one by one
        self.is_resting = False  # nothing is asked for: views read results in place of its rows
        self._number = 0  # that of the filter in effect
        self._bounds: dict[int, ms.WireBound | None] = {}  # of filters, by their numbers
        self._closed = False
        self.told_time = 0  # the last time that was promised
        self._doubts = UpstreamDoubts()
        self._passed = PassedWants(ANSWER_AFTER)
        self.began = broker.loop.time()
        self.state = self._make_state()

    def _make_state(self, fresh: bool = False) -> SourceState:
        record = self.record
        if fresh:
            record = SourceRecord(self.table.name)
        position = None
        if record.lineage is not None and len(record.reflected):
            position = record.lineage.at(record.reflected.last)
        mode: Mode = "ahead" if self.table.stream is not None else "in order"
        return SourceState(
            self.table.name, mode, position, record.reflected, record.lost, urls=len(self.addresses),
            gap_after=GAP_AFTER, answer_after=ANSWER_AFTER, stall_after=STALL_AFTER,
        )  # fmt: skip

    # -- beginning and ending ----------------------------------------------------------------------------------------

    def start(self) -> None:
        """Subscribe."""
        self.is_started = True
        self._do(self.state.connect(self._now))

    def close(self) -> None:
        """Ask for nothing more."""
        self._closed = True
        self.generation += 1
        self.caught_up.set()
        self._leave()
        if self._timer is not None:
            self._timer.cancel()

    def _leave(self) -> None:
        if self._task is not None:
            self._task.cancel()
            self._task = None
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.send(ms.Unsubscribe(self._wire_id))
            connection.detach(self._wire_id)
        self._wire_id, self._chunks = 0, []

    # -- what is asked for -------------------------------------------------------------------------------------------

    @property
    def takes_everything(self) -> bool:
        """Whether all rows and columns are asked for, whatever the views need. A bus carries whole relations."""
        return self.source.option("ask") == "all" or any(self._server(each.server).is_bus for each in self.addresses)

    @property
    def takes_every_change(self) -> bool:
        """Whether changes come one by one: rows of a stream always do."""
        return self.table.stream is not None or self._every_change or not self._wire_id

    def subscribe_again(self, asked: UpstreamQuery | None = None) -> None:
        """End the subscription and make another one, from what the database has when everything that is under way to it
        is written; what comes until then is not. With `asked`, for other rows or columns.

        A table whose rows depend on a filter that is not known any more, or that is another one now, gets them anew:
        the state takes their place in one transaction. A stream goes on with those it has: they must be enough, or
        `start_over` comes before."""
        if asked == self.asked:
            return
        is_other, self.asked = asked is not None, asked or self.asked
        self._leave()
        self.state.disconnect()
        self.generation += 1
        if self.table.stream is None and (is_other or self._is_partial_table):
            self.begin_fresh()
            self.broker.curiosity.rejected(self)
            self.start()
        else:
            self.broker.writer.then(self._go_on, self._loop)

    def _go_on(self) -> None:
        """Subscribe from what the database has."""
        if self._closed:
            return
        self.lineage = self.record.lineage
        self.state, self._number = self._make_state(), 0
        self.broker.curiosity.rejected(self)
        self.start()

    def start_over(self, done: Callable[[], object]) -> None:
        """Forget all rows; call a function when that is done. `subscribe_again` begins again."""
        self._leave()
        self.state.disconnect()
        self.generation += 1
        self.broker.writer.submit(self, StartOver(Position("", "", 0)))
        self.broker.writer.then(done, self._loop)

    def rest(self) -> None:
        """Ask for nothing, until `wake`."""
        self.is_resting = True
        self._leave()
        self.state.disconnect()
        self.generation += 1
        self.caught_up.set()

    def wake(self, asked: UpstreamQuery) -> None:
        """Ask for rows again. Those of a stream that are here are of no use: `start_over` comes before."""
        self.is_resting, self.is_started, self.asked = False, True, asked
        self.catch_up_anew()
        if self.table.stream is None:
            self.begin_fresh()
            self.start()
        else:
            self.broker.writer.then(self._go_on, self._loop)

    def prepare(self, asked: UpstreamQuery) -> None:
        """Say what to ask for, before it is started."""
        self.asked = asked
        if self._is_partial_table:
            self.begin_fresh()

    @property
    def _is_partial_table(self) -> bool:
        """Whether rows that are here depend on a filter, which is not stored with them."""
        return self.table.stream is None and self.asked.needs is not None

    def begin_fresh(self) -> None:
        """Ask for the state next, whatever was reflected: what is here was asked for otherwise."""
        self.state, self._number = self._make_state(fresh=True), 0
        self.catch_up_anew()

    def catch_up_anew(self) -> None:
        """Be caught up only when everything is in that there is when it subscribes next."""
        self._goal = None
        self.caught_up.clear()

    def amend(self, change: ms.Amend) -> None:
        """Move the filter of the subscription; its number and subscription are filled in."""
        self._do(self.state.amend(change, self._now))

    def fetch(self, take: Callable[[FetchedTicks], object], ranges: Sequence[Range]) -> None:
        """Ask for ticks that are reflected here, and whose rows were let go of, for a subscriber. Who asks again asks
        again; however many do, the server is asked once at a time."""
        due = self._passed.ask(take, ranges, self._now) if self.state.is_open else []
        if due:
            self._send(ms.Want(self._wire_id, due))

    def _pass_on(self, told: Any) -> None:
        """Give what has come to those who wait for it."""
        if not isinstance(told, RangeChange | RangeLost) or told.since >= told.upto:
            return
        part = told.rows if isinstance(told, RangeChange) else None
        fetched = FetchedTicks(told.since, told.upto, part, self._columns, isinstance(told, RangeLost))
        for take in self._passed.arrived(told.since, told.upto):
            take(fetched)

    def hurry(self) -> None:
        """Ask where the publisher is by now."""
        if self.state.is_open:
            self._send(ms.Want(self._wire_id, []))

    # -- actions -----------------------------------------------------------------------------------------------------

    @property
    def _now(self) -> float:
        return self._loop.time()

    def _do(self, actions: list[Action]) -> None:
        for action in actions:
            match action:
                case Apply() | ApplyState():
                    if action.time is not None:
                        self.told_time = max(self.told_time, action.time)
                    if self._unwritten is not None:
                        self.broker.writer.submit(self, self._unwritten, action)
                        self._unwritten = None
                    else:
                        self.broker.writer.submit(self, action)
                    if action.number != self._number:
                        self._number = action.number
                        upto = action.upto if isinstance(action, Apply) else action.at
                        bound = self._bounds.pop(action.number, None)
                        refused: frozenset[Any] = action.refused if isinstance(action, Apply) else frozenset()
                        amended = partial(self.broker.curiosity.amended, self, bound, upto, refused)
                        self.broker.writer.then(amended, self._loop)
                case LoseRange():
                    self.broker.writer.submit(self, action)
                case StartOver():
                    self._doubts = UpstreamDoubts()
                    log.warning("source %s: %s has another past; starting over", self.table.name, self.url)
                    self.broker.writer.submit(self, action)
                    self._unwritten = None
                    self.broker.curiosity.start_over(self)
                    if self.lineage is not None:  # it was forgotten with the ticks
                        self.broker.writer.submit(self, self.lineage)
                case Ask(ranges):
                    self._send(ms.Want(self._wire_id, [list(each) for each in ranges]))  # type: ignore[misc]
                case SendAmend(number, base, change):
                    self._send(replace_amend(change, self._wire_id, number, base))
                case Resubscribe():
                    self._number = 0
                    self._bounds.clear()
                    self._leave()
                    self._task = self._loop.create_task(self._subscribe(action))
        if self._goal is not None and self.state.reflected.horizon >= self._goal:
            self._goal = None
            self.broker.writer.then(self.caught_up.set, self._loop)
        self._set_timer()

    def _send(self, message: Any) -> None:
        if self._connection is not None:
            self._connection.send(message)

    def _set_timer(self) -> None:
        due = None if self._closed else self.state.next_timer
        if self._timer is not None:
            if due is not None and self._timer.when() <= due:
                return  # it looks then when the next is due
            self._timer.cancel()
            self._timer = None
        if due is not None:
            self._timer = self._loop.call_at(due, self._tick)

    def _tick(self) -> None:
        self._timer = None
        due = self.state.next_timer
        if due is not None and due <= self._now and not self._closed:
            self._do(self.state.tick(self._now))
        else:
            self._set_timer()

    @property
    def url(self) -> str:
        return self.source.urls[self.state.url]

    async def _subscribe(self, action: Resubscribe) -> None:
        """Subscribe at a URL, after a pause if it has been tried before."""
        await asyncio.sleep(retry_delay(self._attempt, self.broker.host.now() - self._down_since, random.random()))
        self._attempt += 1
        address = self.addresses[action.url]
        await self._written()
        try:
            connection = await self.broker.connection(self._server(address.server))
        except Exception as error:
            self._failed(f"{error}")
            return
        self._connection, self._wire_id = connection, connection.attach(self)
        have, self._have = None, action.have
        if action.have is not None:
            have = f"{action.have.history}.{action.have.era}.{action.ranges}"
        query = self.asked.query_of(address.relation, action.url)
        self._every_change = every = self.broker.needs_every_change(self.table.name)
        message = ms.Subscribe(
            self._wire_id, [query], have=have, ticks=True, filter=self.asked.filter_now(), every_change=every
        )
        connection.send(message)

    async def _written(self) -> None:
        """Return when everything that was handed to the writer is written. The filter in effect is known then: an
        amendment that has come is part of it, and a key is not taken for quenched of which a change has come."""
        written = asyncio.Event()
        self.broker.writer.then(written.set, self._loop)
        await written.wait()

    def _server(self, url: str) -> ServerAddress:
        return ServerAddress(url, self.source.option("token_file"), self.source.option("ca_file"))

    def _failed(self, why: str) -> None:
        """Note that the session has ended; try the next URL."""
        if self._closed:
            return
        if why != self.error:
            log.info("source %s: %s: %s; trying again", self.table.name, self.url, why)
        self.error = why
        if self._connection is not None:
            self._down_since = self.broker.host.now()
        self._connection, self._wire_id, self._chunks = None, 0, []
        self._do(self.state.connect(self._now, failed=True))

    # -- messages ----------------------------------------------------------------------------------------------------

    def lost(self, wire_id: int, why: str) -> None:
        """Note that the connection is lost."""
        if wire_id == self._wire_id:
            self._failed(why)

    def receive(self, wire_id: int, message: Any) -> None:
        """Take a message of the subscription that stands."""
        if wire_id != self._wire_id:
            return
        if isinstance(message, ms.Subscribed) and self.state.is_open:
            self._do(self.state.connect(self._now))  # the server has begun again, perhaps with another past
            return
        try:
            told = self._read(message)
        except WhenceError as error:
            self._leave()
            self._failed(f"{error}")
            return
        if isinstance(message, ms.UpdateMessage | ms.Silence | ms.State):
            self._doubts.note(_tick(message.at), read_waiting(message.waiting_for))
        if self._passed:
            self._pass_on(told)
        if told is not None:
            self._do(self.state.receive(told, self.state.session, self._now))

    def _read(self, message: Any) -> Any:
        match message:
            case ms.Subscribed():
                return self._opened(message)
            case ms.UpdateMessage():
                part = message.parts[0]
                since, upto = _tick(message.since), _tick(message.at)
                return RangeChange(since, upto, part, message.number, message.time or None, message.horizons)
            case ms.Silence():
                since, upto = _tick(message.since), _tick(message.at)
                return RangeChange(since, upto, None, message.number, message.time or None, message.horizons)
            case ms.State():
                return self._state(message)
            case ms.Lost():
                return RangeLost(_tick(message.since), _tick(message.at))
            case ms.Amended():
                self._bounds[message.number] = message.bound
                return FilterAmended(
                    message.number, _tick(message.at), message.part, refused=self._keys(message.refused)
                )
            case ms.ErrorMessage():
                if self.is_result and message.code in (*_REFUSALS, "ForbiddenError", "CatalogError"):
                    self.broker.results.refuse(self, message.message)
                if self.asked.needs is not None and not self.state.is_open and message.code in _REFUSALS:
                    self.broker.curiosity.refused(self, message.message)
                raise WhenceError(f"{message.code}: {message.message}")
        return None

    def _keys(self, plain: ms.PlainColumns | None) -> frozenset[Any]:
        """Return primary keys as they are sent as tuples of values."""
        types = [self.table.schema.types[place] for place in self.table.key]
        return frozenset() if plain is None else frozenset(from_plain(plain, types))

    def _opened(self, message: ms.Subscribed) -> Opened:
        at = Position.parse(message.at)
        theirs = HistoryLineage(at.history, tuple(Era(id, start) for id, start in message.eras or ()))
        names = [name for name, _ in message.parts[0]]
        self._check_columns(message)
        wanted = self.asked.columns or self.table.schema.names
        known = self.table.schema.names
        self._columns = None if tuple(names) == known else [known.index(name) for name in wanted]
        verdict = compare(self.lineage, theirs, self._have, at)
        if verdict != "behind":
            self.lineage, self._unwritten = theirs, None
            if verdict == "resumed" or not (len(self.state.reflected) or len(self.record.reflected)):
                self.broker.writer.submit(self, theirs)
            else:  # the ticks that are written are not of it
                self._unwritten = theirs
        self.error, self._attempt = None, 0
        if self._goal is None and not self.caught_up.is_set():
            self._goal = at.epoch
        return Opened(at, verdict)

    def _check_columns(self, message: ms.Subscribed) -> None:
        theirs = {column.name: column.type for column in schema_of(message.parts[0]).columns}
        for name in self.asked.columns or self.table.schema.names:
            mine = self.table.schema.types[self.table.schema.names.index(name)]
            if theirs.get(name) != mine:
                what = "no column" if name not in theirs else f"another type ({theirs[name]}) in column"
                raise WhenceError(f'{self.url} has {what} "{name}": drop the source and create it anew')

    def _state(self, message: ms.State) -> RangeState | None:
        if message.first:
            self._chunks = []
        if message.chunk != len(self._chunks):
            self._chunks = []
            if message.chunk:
                raise WhenceError("a chunk of the state is missing")
        self._chunks.append(message)
        if not message.last:
            return None
        chunks, self._chunks = self._chunks, []
        self._bounds[message.number] = message.bound
        return RangeState(_tick(message.at), chunks, message.number, 0, message.time or None, message.horizons)

    @property
    def columns(self) -> list[int] | None:
        """The columns of the source that the query gives, by their places; None if it gives all in their order."""
        return self._columns

    def waits_for(self, tick: int) -> list[WaitingFor]:
        """Return what the server said that it waits for, as of a tick."""
        return self._doubts.as_of(tick)

    # -- for people --------------------------------------------------------------------------------------------------

    @property
    def condition(self) -> str:
        """What it is doing, in a word."""
        if self.is_resting:
            return "resting"
        if self.state.is_open:
            return "catching up" if self.state.waiting_for is not None else "live"
        return "connecting" if self.error is None else "waiting"


def compare(ours: HistoryLineage | None, theirs: HistoryLineage, have: Position | None, at: Position) -> Any:
    """Say whether what we have is part of a server's past ("resumed"), later than what it has ("behind"), or neither.

    >>> old = HistoryLineage("0123456789ab", (Era("aaaaaaaa", 0),))
    >>> new = HistoryLineage("0123456789ab", (Era("aaaaaaaa", 0), Era("bbbbbbbb", 5)))
    >>> [compare(old, new, old.at(epoch), new.at(9)) for epoch in (5, 6)]
    ['resumed', 'unknown']
    >>> compare(new, old, new.at(7), old.at(4)), compare(new, old, new.at(7), old.at(9))
    ('behind', 'unknown')
    """
    if have is None or ours is None or have.history != theirs.history:
        return "unknown"
    if theirs.knows(have, at.epoch):
        return "resumed"
    if theirs.era.id == have.era and have.epoch > at.epoch:
        return "behind"
    if ours.knows(at, have.epoch) and all(era in ours.eras for era in theirs.eras):
        return "behind"
    return "unknown"


def replace_amend(change: Any, wire_id: int, number: int, base: int) -> ms.Amend:
    """Return an amendment as it is sent."""
    made = ms.Amend(wire_id, number, base)
    for name in ("add", "drop", "bound", "quench", "unbound", "lift", "since", "more", "as_of"):
        setattr(made, name, getattr(change, name))
    return made


def _tick(text: str) -> int:
    return Position.parse(text).epoch
