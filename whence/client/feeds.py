"""What a subscription has received and its user has not taken yet. No input or output.

The law: what the user has, plus what waits here, is the queries' rows at `position`; the user is given exactly the
updates that lead there. A message that does not begin at `position` is never merged: an older one is passed over, and
after a gap the feed asks to subscribe again from where it is. A state takes the place of everything when its last chunk
is there.

Memory: updates that the user has not taken are merged into one net update, which is no larger than the rows before and
after it. With `every_change` they are kept one by one, up to a bound; a feed that is full asks for no more until the
user has taken some.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from whence.model.errors import DataError, WhenceError
from whence.model.types import Kind, Schema
from whence.plan.knowledge.model import RelationKnowledge
from whence.subscribe.horizons import NO_HORIZONS, KnownHorizons
from whence.subscribe.messages import Lost, PartChange, State, Subscribe, Subscribed, UpdateMessage
from whence.subscribe.plain import NAN, PlainReader, schema_of
from whence.subscribe.positions import Position
from whence.subscribe.relation_facts import RelationFacts
from whence.subscribe.row_bags import Row, RowBag
from whence.subscribe.updates import SubscribedRows, Update
from whence.subscribe.waiting import WaitingFor, read_waiting
from whence.subscribe.wire_knowledge import move_horizons, read_knowledge

MOST_UPDATES, MOST_ROWS = 1_000, 100_000
"""Updates, and rows of them, that wait one by one (`every_change`) before a feed is full."""

Why = Sequence[Any] | None
Doubt = tuple[Mapping[str, str] | None, Sequence[WaitingFor]]
"""What the rows reflect of sources, and which of these are waited for."""

NO_DOUBT: Doubt = (None, ())


@dataclass(frozen=True)
class SubscriptionRequest:
    """What is subscribed to, and how."""

    names: Sequence[str]
    queries: Sequence[str]
    params: list[Any] | dict[str, Any] | None = None
    have: Position | None = None
    rows: Sequence[Sequence[Row]] | None = None
    key: str | Sequence[str] | None = None
    every: float | None = None
    why: bool = False
    every_change: bool = False
    give_up_after: float | None = None
    reflects: Mapping[str, str] | None = None
    bounds: bool = True
    ordered: bool = False


class NetChange:
    """What went and came of one query, over one or more updates.

    >>> change = NetChange(); change.add([], [(1,), (2,)], None); change.add([(1,)], [(3,)], None)
    >>> change.lists()
    ([], [(2,), (3,)], None)
    """

    def __init__(self) -> None:
        self._came: list[Row] = []  # in their order, as long as nothing went
        self._counts: dict[Row, int] | None = None  # then, how often each row came (or, below 0, went)
        self._why: dict[Row, Any] | None = None

    def add(self, went: Sequence[Row], came: Sequence[Row], why: Why) -> None:
        """Add what an update says."""
        if why is not None:
            self._why = (self._why or {}) | {r: w for r, w in zip(came, why, strict=False) if w is not None}
        if not went and self._counts is None:
            self._came += came
            return
        if self._counts is None:
            self._counts = {}
            self._count(self._came, 1)
            self._came = []
        self._count(went, -1)
        self._count(came, 1)

    def _count(self, rows: Sequence[Row], sign: int) -> None:
        counts = self._counts
        assert counts is not None
        for row in rows:
            count = counts.get(row, 0) + sign
            if count:
                counts[row] = count
            else:
                del counts[row]

    def lists(self) -> tuple[list[Row], list[Row], Why]:
        """Return the rows that went and came, and the witnesses of those that came."""
        if self._counts is None:
            went, came = [], self._came
        else:
            went = [row for row, count in self._counts.items() for _ in range(-count)]
            came = [row for row, count in self._counts.items() for _ in range(count)]
        return went, came, None if self._why is None else [self._why.get(row) for row in came]


@dataclass
class PendingUpdate:
    """Changes that the user has not taken yet."""

    position: Position
    time: int
    parts: list[NetChange]
    horizons: Sequence[KnownHorizons]
    schemas: list[Schema]
    facts: list[RelationFacts | None]
    doubt: Doubt = NO_DOUBT

    def add(
        self,
        position: Position,
        time: int,
        changes: Sequence[tuple[list[Row], list[Row], Why]],
        horizons: Sequence[KnownHorizons],
    ) -> None:
        self.position, self.time, self.horizons = position, time or self.time, horizons
        for part, change in zip(self.parts, changes, strict=True):
            part.add(*change)

    def give(self, rows: SubscribedRows) -> Update:
        """Move the user's rows, and return how."""
        rows.reflects, rows.waiting_for = self.doubt
        if rows.facts is not self.facts:
            rows.describe(shown_schemas(self.schemas, self.facts), self.facts)
        return rows.update(self.position, self.time, [part.lists() for part in self.parts], self.horizons)


@dataclass
class PendingState:
    """A state that the user has not taken yet."""

    position: Position
    time: int
    reason: str
    schemas: list[Schema]
    facts: list[RelationFacts | None]
    parts: list[RowBag]
    why: list[dict[Row, Any]] | None
    horizons: Sequence[KnownHorizons]
    lost: tuple[Position, Position] | None = None
    doubt: Doubt = NO_DOUBT

    def add(
        self,
        position: Position,
        time: int,
        changes: Sequence[tuple[list[Row], list[Row], Why]],
        horizons: Sequence[KnownHorizons],
    ) -> None:
        self.position, self.time, self.horizons = position, time or self.time, horizons
        for i, (went, came, why) in enumerate(changes):
            self.parts[i].apply(went, came)
            if self.why is not None and why is not None:
                self.why[i] |= {row: w for row, w in zip(came, why, strict=False) if w is not None}

    def give(self, rows: SubscribedRows) -> Update:
        """Replace the user's rows, and return how they differ."""
        rows.reflects, rows.waiting_for = self.doubt
        rows.describe(shown_schemas(self.schemas, self.facts), self.facts)
        if self.lost is not None:
            rows.lose(*self.lost)
        states: list[tuple[Sequence[Row], Why]] = []
        for i, bag in enumerate(self.parts):
            found = bag.rows
            states.append((found, None if self.why is None else [self.why[i].get(row) for row in found]))
        return rows.replace(self.position, self.time, states, self.reason, self.horizons)


@dataclass
class _Chunks:
    """The chunks of a state, as far as they are there."""

    at: str
    reason: str
    rows: list[list[Row]]
    why: list[dict[Row, Any]] = field(default_factory=list)
    count: int = 0
    horizons: Mapping[str, Any] | None = None
    doubt: Doubt = NO_DOUBT


class SubscriptionFeed:
    """One subscription: what it is at, and what waits for its user.

    wire_id    its number on the connection there is; None while it has none
    position   the position of all that was received; what to go on from
    wanted     the position that the user waits for
    complaint  why the position that was waited for cannot be reached
    ended      why no more comes: the error to raise, or None while it goes on
    """

    def __init__(self, request: SubscriptionRequest) -> None:
        self.request = request
        self.wire_id: int | None = None
        self.position = request.have
        self.wanted: Position | None = None
        self.complaint: WhenceError | None = None
        self.ended: WhenceError | None = None
        self.is_open = False  # the server has said that it stands, on the connection there is
        self.heard = self.patience = 0.0  # when a message came last, and for how long none need come
        given = None if request.rows is None else [_same_nans(list(part)) for part in request.rows]
        self.rows = SubscribedRows(request.names, request.key, given)
        self.schemas: list[Schema] = []  # of the rows that are received, with columns that only bounds need
        self._readers: list[PlainReader] = []
        self._facts: list[RelationFacts | None] = [None] * len(request.names)
        self._horizons: list[KnownHorizons] = [NO_HORIZONS] * len(request.names)  # as of `position`
        self._pending: deque[PendingUpdate | PendingState] = deque()
        self._waiting_rows = 0
        self._chunks: _Chunks | None = None
        self._lost: tuple[Position, Position] | None = None
        self._doubt = NO_DOUBT
        self._reason = ""  # why the next state is sent, if the server does not know

    # -- what the user takes -----------------------------------------------------------------------------------------

    @property
    def is_ready(self) -> bool:
        """Whether there is something to take."""
        return bool(self._pending)

    @property
    def is_full(self) -> bool:
        """Whether no more is to be asked for now."""
        return len(self._pending) > MOST_UPDATES or self._waiting_rows > MOST_ROWS

    @property
    def is_awaited(self) -> bool:
        """Whether a message of the server should come, however quiet the queries are."""
        if self.wire_id is None:
            return False
        return self.position is None or not self.is_open or self.wanted is not None or self._chunks is not None

    def take(self) -> Update | None:
        """Return the next update for the user; None if there is none yet."""
        while self._pending:
            update = self._pending.popleft().give(self.rows)
            self._waiting_rows = 0 if not self._pending else self._waiting_rows - _size(update)
            if not update._is_idle:
                return update
        return None

    # -- messages ----------------------------------------------------------------------------------------------------

    def subscribe(self, wire_id: int) -> Subscribe:
        """Return what asks the server for everything after `position`."""
        asked = self.request
        self.wire_id, self.is_open, self._chunks = wire_id, False, None
        have = None if self.position is None else str(self.position)
        return Subscribe(
            wire_id,
            list(asked.queries),
            asked.params,
            have,
            asked.every or None,
            asked.why,
            asked.every_change,
            reflects=self._seen(),
            bounds=asked.bounds,
            ordered=asked.ordered,
        )

    def _seen(self) -> dict[str, str] | None:
        """Return what was seen of sources, here or at another broker: less must not be told."""
        seen = self._doubt[0] or self.request.reflects
        return dict(seen) if seen else None

    def elsewhere(self) -> SubscriptionRequest:
        """Return what to ask another server for, from what the user has: nothing is told before that server reflects as
        much."""
        rows, asked = self.rows, self.request
        if rows.position is None:
            return asked
        return replace(asked, have=rows.position, rows=[rows.first_rows], reflects=rows.reflects)

    def disconnect(self) -> None:
        """Note that the connection is lost; what came of a state that is not whole is of no use."""
        self.wire_id, self.is_open, self._chunks = None, False, None

    def receive(self, message: Subscribed | State | UpdateMessage | Lost) -> bool:
        """Take in a message; return False if something is missing before it: then the feed must subscribe again."""
        match message:
            case Subscribed():
                return self._describe([schema_of(part) for part in message.parts], message.knowledge, message.horizons)
            case State():
                return self._receive_state(message)
            case UpdateMessage():
                return self._receive_update(message)
            case Lost():
                since, upto = Position.parse(message.since), Position.parse(message.at)
                self._lost = (self._lost[0] if self._lost else since, upto)
                return True

    def _describe(
        self, schemas: list[Schema], knowledge: Sequence[Any] | None, horizons: Mapping[str, Any] | None
    ) -> bool:
        if len(schemas) != len(self.request.names):
            raise DataError(f"the server has {len(schemas)} queries in a subscription of {len(self.request.names)}")
        redefined = bool(self.schemas) and schemas != self.schemas and not self.is_open
        self.schemas, self.is_open = schemas, not redefined
        self._readers = [PlainReader(schema.types) for schema in schemas]
        known = [read_knowledge(each) for each in knowledge or [None] * len(schemas)]
        facts = [None if each is None else RelationFacts(each) for each in known]
        self._facts = self._facts if facts == self._facts else facts
        self._horizons = move_horizons([NO_HORIZONS] * len(facts), known, horizons)  # as of the position we have
        if not self.rows.schemas:
            self.rows.describe(shown_schemas(schemas, facts), facts)
            self.rows.begin(self._horizons)
        if redefined:  # while there was no connection: rows that we have are not of this query
            self.position, self._reason = None, "redefined"
        return not redefined

    def _receive_update(self, message: UpdateMessage) -> bool:
        since, position = Position.parse(message.since), Position.parse(message.at)
        mine = self.position
        if not self.is_open or mine is None or since.history != mine.history or len(message.parts) != len(self.schemas):
            return False
        if since.epoch != mine.epoch:  # an era may have ended in between: the server has checked that it is our past
            return position.epoch <= mine.epoch  # told before; else there is a gap
        if position.epoch <= mine.epoch:
            if message.waiting_for is not None:
                self._wait_for(message)
            return True  # the answer to whether anything is missing
        self._doubt = message.reflects, read_waiting(message.waiting_for)
        changes = [self._read_change(part, i) for i, part in enumerate(message.parts)]
        self.position = position
        if message.horizons:
            self._horizons = move_horizons(self._horizons, self._knowledge, message.horizons)
        last = self._pending[-1] if self._pending else None
        if last is None or (self.request.every_change and any(went or came for went, came, _ in changes)):
            net = [NetChange() for _ in changes]
            last = PendingUpdate(position, message.time, net, self._horizons, self.schemas, self._facts)
            self._pending.append(last)
        last.add(position, message.time, changes, self._horizons)
        last.doubt = self._doubt
        self._waiting_rows += sum(len(went) + len(came) for went, came, _ in changes)
        return True

    def _wait_for(self, message: UpdateMessage) -> None:
        """Note that other sources are waited for than before."""
        assert self.position is not None
        self._doubt = message.reflects, read_waiting(message.waiting_for)
        if not self._pending:
            net = [NetChange() for _ in self.schemas]
            self._pending.append(
                PendingUpdate(self.position, message.time, net, self._horizons, self.schemas, self._facts)
            )
        self._pending[-1].doubt = self._doubt

    @property
    def _knowledge(self) -> list[RelationKnowledge | None]:
        return [None if each is None else each.knowledge for each in self._facts]

    def _read_change(self, part: PartChange | None, i: int) -> tuple[list[Row], list[Row], Why]:
        if part is None:
            return [], [], None
        read = self._readers[i].rows
        went, came = [] if part.went is None else read(part.went), [] if part.came is None else read(part.came)
        return went, came, None if part.why is None else [read_witnesses(one) for one in part.why]

    def _receive_state(self, message: State) -> bool:
        if not self.is_open or not 0 <= message.part < len(self.schemas):
            return False
        position, mine = Position.parse(message.at), self.position
        if mine is not None and mine[:2] == position[:2] and position.epoch < mine.epoch:
            return True  # a message that came twice: states only go forward within an era
        if message.first:
            parts = len(self.schemas)
            why: list[dict[Row, Any]] = [{} for _ in range(parts)] if self.request.why else []
            doubt = message.reflects, read_waiting(message.waiting_for)
            begun: list[list[Row]] = [[] for _ in range(parts)]
            self._chunks = _Chunks(message.at, message.reason, begun, why, 0, message.horizons, doubt)
        chunks = self._chunks
        if chunks is None or chunks.at != message.at or chunks.reason != message.reason:
            return False
        if message.chunk != chunks.count:
            return message.chunk < chunks.count  # one that came twice; else one is missing
        chunks.count += 1
        rows = self._read_chunk(message)
        chunks.rows[message.part] += rows
        if chunks.why and message.why is not None:
            told = zip(rows, message.why, strict=False)
            chunks.why[message.part] |= {row: read_witnesses(one) for row, one in told if one is not None}
        if message.last:
            self._chunks = None
            self._replace(position, message.time, chunks)
        return True

    def _read_chunk(self, message: State) -> list[Row]:
        schema = self.schemas[message.part]
        if message.arrow is not None:
            from whence.client.encoding import read_arrow
            from whence.io.results import python_rows

            rows = python_rows(read_arrow(message.arrow))
            return _same_nans(rows) if any(t.kind is Kind.DOUBLE for t in schema.types) else rows
        return self._readers[message.part].rows(message.columns) if message.columns is not None else []

    def _replace(self, position: Position, time: int, chunks: _Chunks) -> None:
        """Have a new state: it takes the place of all that waits, but for what must be told one by one."""
        bags = []
        for rows in chunks.rows:
            bag = RowBag()
            bag.replace(rows)
            bags.append(bag)
        self._horizons = move_horizons([NO_HORIZONS] * len(bags), self._knowledge, chunks.horizons)
        reason, lost = self._reason or chunks.reason, self._lost
        self._reason = ""
        last = self._pending[-1] if self._pending else None
        if isinstance(last, PendingState):  # the user has not seen that one: its reason still holds
            reason = last.reason if reason in ("begin", "behind") else reason
            lost = (last.lost[0], lost[1]) if last.lost and lost else last.lost or lost
            self._pending.pop()
        if not self.request.every_change:
            self._pending.clear()
        why = chunks.why or None
        self._doubt = chunks.doubt
        state = PendingState(
            position, time, reason, self.schemas, self._facts, bags, why, self._horizons, lost, self._doubt
        )
        self._pending.append(state)
        self.position, self._lost = position, None
        self._waiting_rows = 0 if len(self._pending) == 1 else self._waiting_rows


def shown_schemas(schemas: Sequence[Schema], facts: Sequence[RelationFacts | None]) -> list[Schema]:
    """Return the columns that users see: without those behind them that only bounds need."""
    return [
        schema if known is None or not known.has_extras else Schema(schema.columns[: known.shown])
        for schema, known in zip(schemas, facts, strict=True)
    ]


def _size(update: Update) -> int:
    return sum(len(part.came) + len(part.went) for part in update.parts)


def _same_nans(rows: list[Row]) -> list[Row]:
    if not any(value != value for row in rows for value in row):
        return rows
    return [tuple(NAN if value != value else value for value in row) for row in rows]


def read_witnesses(given: Any) -> Any:
    """Return witnesses as `Update.why` has them: lists of pairs of a table and a row."""
    if given is None:
        return None
    return [[_base_row(row) for row in witness] for witness in given]


def _base_row(given: Any) -> Any:
    if isinstance(given, Mapping):
        return given.get("table"), given.get("row")
    return tuple(given)
