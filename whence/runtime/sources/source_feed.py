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
import time
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from whence.model.errors import WhenceError
from whence.plan.algebra.program import Table
from whence.runtime.sources.asking import UpstreamQuery
from whence.runtime.sources.connection import ServerAddress, SourceConnection
from whence.runtime.sources.nats_connection import NatsConnection
from whence.runtime.sources.reflected import SourceRecord
from whence.sql.addresses import source_address
from whence.subscribe import messages as ms
from whence.subscribe.plain import schema_of
from whence.subscribe.positions import Era, HistoryLineage, Position
from whence.subscribe.publishing import FilterAmended, RangeChange, RangeLost, RangeState
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
        self.asked = UpstreamQuery(self.addresses[0].relation)
        self.generation = 0  # what was handed to the writer before is of no use
        self.error: str | None = None  # why nothing comes
        self.lineage = record.lineage  # as of what was received, perhaps ahead of what is written
        self._loop = broker.loop
        self._connection: SourceConnection | NatsConnection | None = None
        self._wire_id = 0
        self._task: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._attempt, self._down_since = 0, time.monotonic()
        self._chunks: list[ms.State] = []
        self._columns: list[int] | None = None  # of the source, by those of the query; None if they are the same
        self._have: Position | None = None
        self.caught_up = asyncio.Event()  # everything that there was when it first subscribed is in
        self._goal: int | None = None
        self.is_started = False
        self._number = 0  # that of the filter in effect
        self._bounds: dict[int, ms.WireBound | None] = {}  # of filters, by their numbers
        self._closed = False
        self.told_time = 0  # the last time that was promised
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

    def reload(self) -> None:
        """Begin again from what the database has."""
        self._leave()
        self.generation += 1
        self.lineage = self.record.lineage
        self.state, self._number = self._make_state(fresh=self._is_partial_table), 0
        self.broker.curiosity.rejected(self)
        self.start()

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

    def ask(self, asked: UpstreamQuery) -> None:
        """Ask for other rows or columns than before. A table's rows are replaced by those. A stream goes on with them:
        what is here must be enough, or `start_over` comes before."""
        if asked == self.asked:
            return
        self.asked = asked
        self._leave()
        self.state.disconnect()
        self.generation += 1
        if self.table.stream is None:  # the state takes the place of the rows in one transaction
            self.begin_fresh()
            self.start()
        else:
            self.broker.writer.then(self.reload, self._loop)  # from what is being written now

    def start_over(self, done: Callable[[], object]) -> None:
        """Forget all rows; call a function when that is done. `ask` begins again."""
        self._leave()
        self.state.disconnect()
        self.generation += 1
        self.broker.writer.submit(self, StartOver(Position("", "", 0)))
        self.broker.writer.then(done, self._loop)

    def prepare(self, asked: UpstreamQuery) -> None:
        """Say what to ask for, before it is started."""
        self.asked = asked
        if self._is_partial_table:
            self.begin_fresh()

    @property
    def _is_partial_table(self) -> bool:
        """Whether rows that are here depend on a filter, which is not stored with them."""
        return self.table.stream is None and self.asked.needs is not None

    @property
    def _is_quenching(self) -> bool:
        """Whether rows that are here may be old in columns that are not watched."""
        asked = self.asked.filter_now() if self._is_partial_table else None
        return asked is not None and bool(asked.quenched)

    def _distrust_rows(self) -> None:
        """Ask for the state in the next session. Which keys the server had quenched when the connection was lost is not
        known here, and a row that is taken for quenched in the wrong would stay old."""
        self.state.disconnect()
        self.generation += 1
        self.begin_fresh()
        self.broker.curiosity.rejected(self)

    def begin_fresh(self) -> None:
        """Ask for the state next, whatever was reflected: what is here was asked for otherwise."""
        self.state, self._number = self._make_state(fresh=True), 0
        self._goal = None
        self.caught_up.clear()

    def amend(self, change: ms.Amend) -> None:
        """Move the filter of the subscription; its number and subscription are filled in."""
        self._do(self.state.amend(change, self._now))

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
                    self.broker.writer.submit(self, action)
                    if action.number != self._number:
                        self._number = action.number
                        upto = action.upto if isinstance(action, Apply) else action.at
                        bound = self._bounds.pop(action.number, None)
                        amended = partial(self.broker.curiosity.amended, self, bound, upto)
                        self.broker.writer.then(amended, self._loop)
                case LoseRange():
                    self.broker.writer.submit(self, action)
                case StartOver():
                    log.warning("source %s: %s has another past; starting over", self.table.name, self.url)
                    self.broker.writer.submit(self, action)
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
        await asyncio.sleep(retry_delay(self._attempt, time.monotonic() - self._down_since, random.random()))
        self._attempt += 1
        address = self.addresses[action.url]
        try:
            connection = await self.broker.connection(self._server(address.server))
        except Exception as error:
            self._failed(f"{error}")
            return
        self._connection, self._wire_id = connection, connection.attach(self)
        have, self._have = None, action.have
        if action.have is not None:
            have = f"{action.have.history}.{action.have.era}.{action.ranges}"
        query = self.asked.query_of(address.relation)
        every = self.broker.needs_every_change(self.table.name)
        message = ms.Subscribe(
            self._wire_id, [query], have=have, ticks=True, filter=self.asked.filter_now(), every_change=every
        )
        connection.send(message)

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
            self._down_since = time.monotonic()
            if self._is_quenching:
                self._distrust_rows()
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
        try:
            told = self._read(message)
        except WhenceError as error:
            self._leave()
            self._failed(f"{error}")
            return
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
                return FilterAmended(message.number, _tick(message.at), message.part)
            case ms.ErrorMessage():
                if self.asked.needs is not None and not self.state.is_open and message.code in _REFUSALS:
                    self.broker.curiosity.refused(self, message.message)
                raise WhenceError(f"{message.code}: {message.message}")
        return None

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
            self.lineage = theirs
            self.broker.writer.submit(self, theirs)
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

    # -- for people --------------------------------------------------------------------------------------------------

    @property
    def condition(self) -> str:
        """What it is doing, in a word."""
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
