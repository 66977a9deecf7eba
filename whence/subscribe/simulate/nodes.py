"""A database in a simulation: publisher, broker or both, around the cores that a server runs.

A node has a log of epochs, of which a crash keeps those that are synced, a base relation if it publishes, sources
(`SourceState`), views (model transforms over whole bags), sessions of other nodes (`PublishingSession`) and subscribers
(`Cursor`). Everything it keeps between crashes is in the records of its log: rows, the ranges that each source
reflects, the filters in effect.

The law: what a node decides is decided by the cores; this file only carries it out. So a run shows the cores' faults.
A position is told only when it is synced and **sufficient**: when the filters in effect let through all that the views
need, such as the rows of every key that a list has. Otherwise a view would be shown that is not that of its position.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from whence.engine.core.operator import Batch
from whence.subscribe.cursor import Cursor, TellLost, TellState, TellUpdate
from whence.subscribe.positions import Era, HistoryLineage, Position
from whence.subscribe.publishing import (
    DeliveryBound,
    DeliveryFilter,
    FilterChange,
    Key,
    Publication,
    PublishingSession,
    RangeChange,
    RangeState,
    Told,
)
from whence.subscribe.ranges import EVER, RangeSet, reflects_as_much
from whence.subscribe.recent import RecentChanges
from whence.subscribe.simulate.oracle import NOTHING, Cut, Delta, EpochRecord, SimulationError, Vector
from whence.subscribe.simulate.plans import BEST, MARGIN, Bag, Curiosity, Kind, PlanInputs, Row, ViewTree, row_order
from whence.subscribe.sources import (
    MOST_HELD,
    Action,
    Apply,
    ApplyState,
    Ask,
    LoseRange,
    Opened,
    Resubscribe,
    SendAmend,
    SourceState,
    StartOver,
)

if TYPE_CHECKING:
    from whence.subscribe.simulate.world import World

HEARTBEAT = 1.0
SILENT_COMMIT = 0.3
"""Seconds at most until silence that was heard is committed."""

MOVE_PATIENCE = 8.0
"""Seconds that a subscriber who moved waits for this node to reflect what it has seen."""

WIDTHS = {"stream": 6, "table": 3, "view": 1}


class SourceMeta(NamedTuple):
    """What is stored of a source, in the records."""

    position: Position | None = None
    ranges: RangeSet = RangeSet()
    lost: RangeSet = RangeSet()
    time: int = 0
    filter: DeliveryFilter = DeliveryFilter()
    dropped: tuple[
        tuple[int, int], ...
    ] = ()  # keys of a stream that were asked for once, and the tick they were dropped


@dataclass(frozen=True)
class SourceSpec:
    """What a source is: where it comes from, and what the view above can use of it."""

    name: str
    urls: tuple[str, ...]
    relation: str
    tree: ViewTree
    curiosity: Curiosity = "everything"

    @property
    def kind(self) -> Kind:
        return self.tree.kind


@dataclass(frozen=True)
class ViewSpec:
    """A view of a node, over relations of it."""

    name: str
    tree: ViewTree
    inputs: tuple[str, ...]


@dataclass
class NodeSession:
    """Another node's subscription."""

    number: int
    relation: str
    core: PublishingSession
    heard: float = 0.0


@dataclass
class NodeSubscriber:
    """A client's subscription."""

    number: int
    view: str
    cursor: Cursor
    seen: dict[str, RangeSet] | None  # what the client has seen elsewhere; None once this node reflects as much
    until: float
    busy_until: float = 0.0
    heard: float = 0.0
    reason: str = ""
    has_waited: bool = False  # in vain, for what it has seen elsewhere
    steps: list[Any] = field(default_factory=list)


def bag_of(batch: Batch) -> Bag:
    found: Bag = Counter()
    for row, count in zip(map(tuple, batch.rows.tolist()), batch.ann.tolist(), strict=True):
        found[row] += count
    return found


def batch_of(bag: Iterable[tuple[Row, int]], width: int) -> Batch:
    items = list(bag)
    if not items:
        return Batch(np.empty((0, width), np.int64), np.empty(0, np.int64))
    return Batch(np.array([row for row, _ in items], np.int64), np.array([count for _, count in items], np.int64))


class SimulatedNode:
    """One database of a simulation."""

    source_class: type[SourceState] = SourceState
    session_class: type[PublishingSession] = PublishingSession
    publication_class: type[Publication] = Publication

    def __init__(self, world: World, name: str, number: int, base: ViewTree | None) -> None:
        self.world, self.name, self.number, self.base = world, name, number, base
        self.dice = random.Random(world.dice.random())
        self.sources: dict[str, SourceSpec] = {}
        self.views: dict[str, ViewSpec] = {}
        self.lineage = HistoryLineage(self._id(12), (Era(self._id(8), 0),))
        self.log: list[EpochRecord] = []
        self.synced = 0
        self.clock_offset = 0
        self.incarnation = 0
        self.ring = self.dice.choice([0, 700, 3000, 1 << 20])
        self.retain = self.dice.choice([None, None, None, 12]) if base is not None and base.kind == "stream" else None
        self.needs_past = False  # a stream that somebody joins with a list: all of it stays readable
        self.denied: set[str] = set()
        self.paused_until = 0.0
        self.is_up = True

    def _id(self, digits: int) -> str:
        return f"{self.dice.getrandbits(4 * digits):0{digits}x}"

    # -- starting and stopping ---------------------------------------------------------------------------------------

    def start(self) -> None:
        """Be what the synced log says."""
        self.is_up = True
        self.incarnation += 1
        self.contents: dict[str, Bag] = {name: Counter() for name in (*self.sources, *self.views)}
        if self.base is not None:
            self.contents[self.base.name] = Counter()
        for record in self.log:
            for name, delta in record.deltas.items():
                _add(self.contents[name], delta)
        last = self.log[-1] if self.log else None
        self.metas: dict[str, SourceMeta] = {
            name: SourceMeta(filter=_first_filter(s)) for name, s in self.sources.items()
        }
        if last is not None:
            self.metas |= last.metas  # type: ignore[arg-type]  # a record does not know what metas are
        self.pins = last.pins if last is not None else frozenset[int]()
        self.floor = self._first_time()
        self.sessions: dict[tuple[str, str], NodeSession] = {}
        self.subscribers: dict[str, NodeSubscriber] = {}
        self.recents: dict[str, RecentChanges] = {}
        self.publications: dict[str, Publication] = {}
        self._told = 0
        for name in (*self.views, *(() if self.base is None else (self.base.name,))):
            self._publish_relation(name)
        self._unpushed: dict[str, Bag] = {}
        for record in self.log[self.told() :]:
            self._push(record)
        self.states: dict[str, SourceState] = {}
        self._numbers = dict.fromkeys(self.sources, 0)
        self._changes: dict[str, FilterChange] = {}
        self._asked: dict[tuple[str, int, int], float] = {}
        self._timers: dict[str, float] = {}
        self._syncing = self._flushing = False
        self._arrivals: dict[Row, int] = {}
        self._replaced = set[str]()  # sources whose rows are of another past, and go with the next commit
        self._is_curious = any(spec.curiosity != "everything" for spec in self.sources.values())
        self.world.oracle.logs[self.lineage.history, self.lineage.era.id] = self.log
        self.world.oracle.lineages[self.lineage.history] = self.lineage
        self.world.oracle.lasts[self.lineage.history] = len(self.log)
        for name, spec in self.sources.items():
            meta = self.metas[name]
            mode: Any = "ahead" if spec.kind == "stream" else "in order"
            state = self.source_class(name, mode, meta.position, meta.ranges, meta.lost, urls=len(spec.urls))
            self.states[name] = state
            self._act(name, state.connect(self.world.now))
        self._every(HEARTBEAT, self._beat)

    def _first_time(self) -> int:
        """The time that no epoch may go below: that of the last one in the log."""
        return self.log[-1].time if self.log else 0

    def _publish_relation(self, name: str) -> None:
        is_base = self.base is not None and name == self.base.name
        is_stream = is_base and self.base is not None and self.base.kind == "stream"
        width = WIDTHS[self.base.kind] if is_base and self.base is not None else 1
        self.recents[name] = RecentChanges(is_stream, self.told(), self.ring)

        def read_state() -> tuple[int, Batch]:
            return self._state_of(name, width, self._lost_upto() if is_stream else 0)

        def read_past(since: int, upto: int) -> Batch | None:
            if since < self._lost_upto():
                return None
            found = [one for record in self.log[since:upto] for one in record.deltas.get(name, ())]
            return batch_of(found, width)

        key = (0,) if is_base and not is_stream else ()
        past = read_past if is_stream and (self.needs_past or self.ring == 0) else None
        self.publications[name] = self.publication_class(
            self.recents[name], read_state, key, is_stream, past, self._lost_upto if is_stream else None
        )

    def _state_of(self, name: str, width: int, lost: int = 0) -> tuple[int, Batch]:
        told = self.told()
        bag = Counter(self.contents[name])
        for record in self.log[told:]:
            for row, count in record.deltas.get(name, ()):
                bag[row] -= count
        rows = ((row, count) for row, count in bag.items() if count and not (lost and row[2] <= lost))
        return told, batch_of(rows, width)

    def _lost_upto(self) -> int:
        """The tick up to which a stream's rows are not retained."""
        return 0 if self.retain is None or self.needs_past else max(0, self.told() - self.retain)

    def crash(self) -> None:
        """Lose everything that is not synced."""
        self.is_up = False
        self.incarnation += 1
        self._begin_era(self.synced)

    def restore(self, epoch: int, same_history: bool) -> None:
        """Come back from a backup of an epoch: as another history, or as a folder that was copied by hand."""
        self.is_up = False
        self.incarnation += 1
        self._begin_era(min(epoch, self.synced), None if same_history else self._id(12))

    def _begin_era(self, epoch: int, history: str | None = None) -> None:
        self.log = self.log[:epoch]
        self.synced = epoch
        era = Era(self._id(8), epoch)
        if history is None:
            self.world.oracle.cut_back(self.lineage.history, epoch)
            before = tuple(one for one in self.lineage.eras if one.start <= epoch)  # those that the backup knows
            self.lineage = HistoryLineage(self.lineage.history, (*before, era))
        else:
            self.lineage = HistoryLineage(history, (era,))
            for i, record in enumerate(self.log if self.base is not None else ()):
                assert self.base is not None
                own: dict[str, Vector] = {self.base.name: {"": self._own_cut(record.epoch, record.time)}}
                self.log[i] = record._replace(vectors=own)
        oracle = self.world.oracle
        oracle.logs[self.lineage.history, era.id] = self.log
        oracle.lineages[self.lineage.history] = self.lineage
        oracle.lasts[self.lineage.history] = epoch

    def _every(self, seconds: float, act: Callable[[], None]) -> None:
        incarnation = self.incarnation

        def again() -> None:
            if self.incarnation == incarnation:
                self._when_awake(act)
                self.world.time.after(seconds, again)

        self.world.time.after(seconds * self.dice.random(), again)

    def _later(self, seconds: float, act: Callable[[], None]) -> None:
        incarnation = self.incarnation

        def once() -> None:
            if self.incarnation == incarnation:
                self._when_awake(act)

        self.world.time.after(seconds, once)

    def _when_awake(self, act: Callable[[], None]) -> None:
        if self.paused_until > self.world.now:
            self._later(self.paused_until - self.world.now, act)
        else:
            act()

    # -- epochs ------------------------------------------------------------------------------------------------------

    def clock(self) -> int:
        """The node's clock, in microseconds."""
        return int(self.world.now * 1e6) + 1_000_000_000 + self.clock_offset

    def next_time(self) -> int:
        """The time of the next epoch: no clock that goes back changes what was promised."""
        self.floor = max(self.floor, self.clock())
        return self.floor

    def publish(self, make: Callable[[int, int], dict[Row, int]]) -> None:
        """Commit rows of the base relation; `make` is given the time and the epoch."""
        assert self.base is not None
        time, epoch = self.next_time(), len(self.log) + 1
        rows = make(time, epoch)
        if rows and self.base.kind == "stream":
            self.world.oracle.check_promises(self.lineage.history, time)
        self.commit({self.base.name: list(rows.items())}, time)

    def commit(self, deltas: dict[str, Delta], time: int | None = None) -> None:
        """Make an epoch: rows, what the sources reflect, and the views over them."""
        time = self.next_time() if time is None else time
        epoch = len(self.log) + 1
        for name in self._replaced:
            gone = [(row, -count) for row, count in self.contents[name].items()]
            deltas[name] = [*gone, *deltas.get(name, [])]
        self._replaced.clear()
        deltas = {name: delta for name, delta in deltas.items() if delta}
        for name, delta in deltas.items():
            _add(self.contents[name], delta)
            for row, _ in delta:
                self._arrivals.setdefault(row, len(self._arrivals))
        self.write(deltas, time)
        vectors: dict[str, Vector] = {}
        for name, view in self.views.items():
            given = PlanInputs(
                [self.contents[one] for one in view.inputs], self.horizon_of(view, time), self.pins, self.order
            )
            made, old = self.compute(view, given), self.contents[name]
            if made != old:
                delta = [(row, made[row] - old[row]) for row in made.keys() | old.keys() if made[row] != old[row]]
                deltas[name] = sorted(delta)
                self.contents[name] = made
            vectors[name] = self._vector_of(view, epoch, time)
        if self.base is not None:
            vectors[self.base.name] = {"": self._own_cut(epoch, time)}
        record = EpochRecord(epoch, time, deltas, dict(self.metas), self.pins, vectors, self.is_sufficient())
        self.log.append(record)
        self.world.oracle.lasts[self.lineage.history] = epoch
        self._push(record)
        if not self._syncing:
            self._syncing = True
            self._later(self.dice.random() * 0.25, self._sync)
        if self._is_curious:
            self._later(0.0, self._be_curious)

    def write(self, deltas: dict[str, Delta], time: int) -> None:
        """Write an epoch where it is kept, before the views are computed. A model has only its log."""

    def compute(self, view: ViewSpec, given: PlanInputs) -> Bag:
        """Return the rows of a view."""
        assert view.tree.plan is not None
        return view.tree.plan.compute(given)

    def close(self) -> None:
        """Let go of files, at the end of a run."""

    def _push(self, record: EpochRecord) -> None:
        """Add an epoch to the recent changes: at an epoch that may be told, with those before that may not."""
        for name, recent in self.recents.items():
            delta = record.deltas.get(name, [])
            waiting = self._unpushed.setdefault(name, Counter())
            if waiting or not record.sufficient:
                _add(waiting, delta)
                delta = list(waiting.items())
            if record.sufficient and delta:
                batch = batch_of(delta, 1)
                recent.push(record.epoch, record.time, batch.rows, batch.ann)
                self._unpushed[name] = Counter()

    def order(self, row: Row) -> object:
        """What rows of several publishers are ordered by."""
        return row_order(row)

    def horizon_of(self, view: ViewSpec, own: int) -> int:
        """The time before which all inputs of a view are complete: the least of theirs."""
        return min(self._horizons(view, own), default=2**62)

    def _horizons(self, view: ViewSpec, own: int) -> list[int]:
        trees = zip(view.inputs, view.tree.inputs, strict=True)
        return [self.metas[n].time if n in self.metas else own for n, tree in trees if tree.kind == "stream"]

    def _own_cut(self, epoch: int, time: int) -> Cut:
        at = self.lineage.at(epoch)
        return Cut(self.number, at.history, at.era, RangeSet([(0, epoch)]), RangeSet(), time)

    def _vector_of(self, view: ViewSpec, epoch: int, time: int) -> Vector:
        found: dict[str, Cut | frozenset[int] | None] = {":pins": self.pins}
        for i, name in enumerate(view.inputs):
            if name not in self.metas:
                found[f"/{i}"] = self._own_cut(epoch, time)
                continue
            meta, spec = self.metas[name], self.sources[name]
            if meta.position is None or (spec.kind == "view" and not meta.ranges.horizon):
                found[f"/{i}"] = NOTHING if spec.tree.publisher >= 0 else None
            elif spec.tree.publisher >= 0:
                history, era, _ = meta.position
                found[f"/{i}"] = Cut(spec.tree.publisher, history, era, meta.ranges, meta.lost, meta.time)
            else:
                log = self.world.oracle.logs[meta.position.history, meta.position.era]
                if meta.ranges.horizon > len(log):
                    raise SimulationError("S5", f"{self.name} reflects more of {spec.relation} than there is")
                below = log[meta.ranges.horizon - 1].vectors[spec.relation]
                found |= {f"/{i}{path}": cut for path, cut in below.items()}
        return found

    def _sync(self) -> None:
        self._syncing = False
        self.synced = len(self.log)
        self.pump()

    def told(self) -> int:
        """The last epoch that may be told: synced, and sufficient for the views."""
        epoch = max(self._told, self.synced)
        while epoch > self._told and not self.log[epoch - 1].sufficient:
            epoch -= 1
        self._told = epoch
        return epoch

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
        self.world.send(self.name, to, ("told", source, session.number, fact))

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
            if idle and known is not None and not subscriber.seen and client not in self.denied and known <= told:
                self._send_update(client, subscriber, known, told, Counter())
                subscriber.cursor.reached(told, now)

    def _serve(self, client: str, told: int) -> None:
        """Ask a client's cursor what to tell it, if it can take a message."""
        subscriber, now = self.subscribers[client], self.world.now
        if subscriber.busy_until > now:
            return
        if client in self.denied:
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
                    if not told:
                        return
                    bag = bag_of(self._state_of(subscriber.view, 1)[1])
                    at, vector = self.lineage.at(told), self.log[told - 1].vectors[subscriber.view]
                    self.world.last_rows = now
                    self._send(client, subscriber, told, ("state", at, bag, vector, subscriber.reason or reason))
                    subscriber.reason = ""
                    subscriber.cursor.reached(told, now)
                case TellLost():
                    continue
                case _:
                    pass
            return

    def may_tell(self, subscriber: NodeSubscriber, told: int) -> bool:
        """Whether this node reflects what a client that moved here has seen."""
        if not told or subscriber.seen is None:
            return not subscriber.seen
        return reflects_as_much(seen_at(self.log[told - 1].vectors[subscriber.view]), subscriber.seen)

    def difference(self, recent: RecentChanges, known: int, since: int, upto: int) -> Batch | None:
        """What a client is told that is at `known`, where nothing has changed up to `since`."""
        return recent.difference(since, upto)

    def _send_update(self, client: str, subscriber: NodeSubscriber, known: int, upto: int, bag: Bag) -> None:
        if not upto:
            return
        if any(bag.values()):
            self.world.last_rows = self.world.now
        vector = self.log[upto - 1].vectors[subscriber.view]
        message = ("update", self.lineage.at(known), self.lineage.at(upto), bag, vector)
        self._send(client, subscriber, upto, message)

    def _send(self, client: str, subscriber: NodeSubscriber, upto: int, message: tuple[Any, ...]) -> None:
        if upto > self.synced:
            raise SimulationError("S5", f"{self.name} tells {client} epoch {upto}, and {self.synced} is synced")
        if client in self.denied:
            raise SimulationError("S6", f"{self.name} tells {client} what it may not read")
        subscriber.heard, subscriber.busy_until = self.world.now, self.world.now + 2.0
        self.world.send(self.name, client, (message[0], subscriber.number, *message[1:]))

    # -- messages ----------------------------------------------------------------------------------------------------

    def receive(self, message: tuple[Any, ...]) -> None:
        """Take in a message of another node or of a client."""
        if not self.is_up:
            return
        if self.paused_until > self.world.now:
            self._later(self.paused_until - self.world.now, lambda: self.receive(message))
            return
        match message:
            case ("told" | "opened", source, number, fact):
                self._act(source, self.states[source].receive(fact, number, self.world.now))
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
                if who in self.denied or (known is not None and known.number >= number):
                    return
                is_past = have is not None and self.lineage.knows(have, self.told())
                cursor = Cursor(have.epoch if is_past else None, every_change=every_change)
                until = self.world.now + MOVE_PATIENCE
                if known is not None and (known.seen is not None or known.has_waited):
                    until = known.until  # it has waited before
                self.subscribers[who] = NodeSubscriber(number, view, cursor, seen, until)
                if have is not None and not is_past:
                    self.subscribers[who].reason = "restarted"
                self.pump()
            case ("ack", who, number):
                known = self.subscribers.get(who)
                if known is not None and known.number == number:
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
        self.world.send(self.name, who[0], ("opened", who[1], number, opened))
        self.pump()

    # -- receiving ---------------------------------------------------------------------------------------------------

    def _act(self, source: str, actions: list[Action]) -> None:
        for action in actions:
            self._do(source, action)
        state = self.states[source]
        if len(state._held) > MOST_HELD:
            raise SimulationError("R", f"{len(state._held)} messages wait at {self.name}")
        due = state.next_timer
        if due is not None and due < self._timers.get(source, float("inf")):
            self._timers[source] = due
            self._later(max(due - self.world.now, 0.001), lambda: self._tick(source, due))

    def _tick(self, source: str, due: float) -> None:
        if self._timers.get(source) == due:
            del self._timers[source]
            state = self.states[source]
            next_due = state.next_timer
            self._act(source, state.tick(self.world.now) if next_due is not None and next_due <= self.world.now else [])

    def _do(self, source: str, action: Action) -> None:
        meta, spec = self.metas[source], self.sources[source]
        match action:
            case Apply():
                if action.number != self._numbers[source]:
                    meta = self._in_effect(source, meta, action.number, action.upto, action.refused)
                position = self.states[source].position
                time = max(meta.time, action.time or 0)
                self.metas[source] = meta._replace(position=position, ranges=action.ranges, time=time)
                if action.rows is not None:
                    self._put(source, spec, bag_of(action.rows))
                elif action.amends:
                    self.commit({})
                else:
                    self._note_silence()
            case ApplyState():
                if action.number != self._numbers[source]:
                    meta = self._in_effect(source, meta, action.number, action.at)
                meta = meta._replace(filter=meta.filter.without(meta.filter.quenched))
                position = self.states[source].position
                time, lost = max(meta.time, action.time or 0), meta.lost.add(0, action.lost_upto)
                self.metas[source] = meta._replace(position=position, ranges=action.ranges, time=time, lost=lost)
                self._replaced.discard(source)
                self.commit({source: _difference(self.contents[source], bag_of(action.rows))})
            case LoseRange(since, upto, ranges):
                lost = meta.lost.add(since, upto)
                self.metas[source] = meta._replace(position=self.states[source].position, ranges=ranges, lost=lost)
                self._note_silence()
            case StartOver(position):
                self.metas[source] = SourceMeta(position, filter=meta.filter)
                self._replaced.add(source)
            case Resubscribe(session, url, have, ranges, _):
                self._numbers[source] = 0
                self._asked.clear()
                message = ("subscribe", self.name, source, session, spec.relation, have, ranges, meta.filter)
                self.world.send(self.name, spec.urls[url], message)
            case Ask(ranges):
                self._check_asked(source, ranges)
                state = self.states[source]
                self.world.send(self.name, spec.urls[state.url], ("want", self.name, source, state.session, ranges))
            case SendAmend(number, base, change):
                self._changes[source] = change
                state = self.states[source]
                amend = ("amend", self.name, source, state.session, number, base, change)
                self.world.send(self.name, spec.urls[state.url], amend)

    def _check_asked(self, source: str, ranges: Iterable[tuple[int, int]]) -> None:
        for since, upto in ranges:
            least = 1.9 if upto == EVER else 0.45
            key = (source, -1 if upto == EVER else since, upto)
            if self._asked.get(key, -9.0) > self.world.now - least:
                raise SimulationError("L3", f"{self.name} asks for {since}-{upto} of {source} twice in {least} s")
            self._asked[key] = self.world.now

    def _note_silence(self) -> None:
        """Commit what is known of ranges soon, together."""
        if not self._flushing:
            self._flushing = True
            self._later(SILENT_COMMIT, self._flush)

    def _flush(self) -> None:
        self._flushing = False
        if not self.log or self.log[-1].metas != self.metas:
            self.commit({})

    def _put(self, source: str, spec: SourceSpec, bag: Bag) -> None:
        """Commit rows of a source: those of a table by their primary key."""
        content = Counter[Row]() if source in self._replaced else self.contents[source]
        if spec.kind != "table":
            for row, count in bag.items():
                if content[row] + count not in (0, 1) and (spec.kind == "stream" or content[row] + count < 0):
                    raise SimulationError("S4", f"{self.name} has {row} {content[row] + count} times")
            self.commit({source: [(row, count) for row, count in bag.items() if count]})
            return
        came = {row[0]: row for row, count in bag.items() if count > 0}
        gone = {row[0] for row, count in bag.items() if count < 0} | came.keys()
        after = Counter(
            {row: 1 for row in content if row[0] not in gone and content[row]} | dict.fromkeys(came.values(), 1)
        )
        if spec.curiosity == "available":  # something of these was told: they are quenched no more
            meta = self.metas[source]
            self.metas[source] = meta._replace(filter=meta.filter.without(frozenset((key,) for key in gone)))
        self.commit({source: _difference(content, after)})

    # -- curiosity ---------------------------------------------------------------------------------------------------

    def _in_effect(
        self, source: str, meta: SourceMeta, number: int, at: int, refused: frozenset[Key] = frozenset()
    ) -> SourceMeta:
        """Have the filter that was asked for."""
        self._numbers[source] = number
        change = self._changes.pop(source)
        dropped = dict(meta.dropped) | {key[0]: at for key in change.drop}
        for key in change.add:
            dropped.pop(key[0], None)
        filter = meta.filter.amended(change).without(refused)
        return meta._replace(filter=filter, dropped=tuple(sorted(dropped.items())))

    def is_sufficient(self) -> bool:
        """Whether the filters in effect let through all that the views need."""
        for name, spec in self.sources.items():
            filter = self.metas[name].filter
            match spec.curiosity:
                case "best" if filter.bound is not None and len(self.contents[name]) < BEST:
                    return False
                case "listed" if not {(row[0],) for row in self.contents[_list_of(name)]} <= (filter.keys or set()):
                    return False
                case "available" if {(pin,) for pin in self.pins} & filter.quenched:
                    return False
        return True

    def _be_curious(self) -> None:
        """Ask for what is needed at once, and for what is not needed any more at times."""
        for name, spec in self.sources.items():
            state = self.states[name]
            if spec.curiosity == "everything" or not state.is_open or state.is_amending:
                continue
            change = self._change_of(name, spec, state.reflected.horizon)
            if change is not None:
                self._act(name, state.amend(change, self.world.now))

    def _change_of(self, name: str, spec: SourceSpec, horizon: int) -> FilterChange | None:
        meta, rows, saves = self.metas[name], self.contents[name], self.dice.random() < 0.4
        filter = meta.filter
        match spec.curiosity:
            case "available":
                pins = frozenset((pin,) for pin in self.pins)
                lift = pins & filter.quenched
                full = frozenset((row[0],) for row in rows if row[1] == 0) - pins - filter.quenched
                if lift or (full and saves):
                    return FilterChange(quench=full, lift=lift, as_of=horizon)
            case "best":
                prices = sorted(row[2] for row in rows)
                if filter.bound is not None and len(prices) < BEST + (saves and MARGIN):
                    higher = (filter.bound.code or 0) + 1
                    return FilterChange(bound=None if higher >= 3 else DeliveryBound(2, higher))
                if saves and len(prices) > BEST + MARGIN and prices[-1] > prices[BEST + MARGIN - 1]:
                    return FilterChange(bound=DeliveryBound(2, prices[BEST + MARGIN - 1]))
            case "listed":
                listed = frozenset((row[0],) for row in self.contents[_list_of(name)])
                keys = filter.keys or frozenset()
                dropped = dict(meta.dropped)
                missing = listed - keys
                if missing:
                    since = dropped.get(min(missing)[0], 0)
                    add = frozenset(key for key in missing if dropped.get(key[0], 0) == since)
                    return FilterChange(add=add, since=since if spec.kind == "stream" else None)
                if keys - listed and saves:
                    return FilterChange(drop=keys - listed)
        return None

    def pin(self, keys: frozenset[int]) -> None:
        """Have other keys pinned by users."""
        if keys != self.pins:
            self.pins = keys
            self.commit({})


class SimulatedReplica(SimulatedNode):
    """A reader of a publisher's folder, which lags behind it and serves the same history."""

    def __init__(self, world: World, name: str, primary: SimulatedNode) -> None:
        super().__init__(world, name, primary.number, primary.base)
        self.primary = primary
        self.retain, self.needs_past = primary.retain, primary.needs_past

    def start(self) -> None:
        self.lineage = self.primary.lineage
        self.log = self.primary.log[: self.primary.synced]
        self.synced = len(self.log)
        logs, key = self.world.oracle.logs, (self.lineage.history, self.lineage.era.id)
        kept, last = logs[key], self.world.oracle.lasts[self.lineage.history]
        super().start()
        logs[key], self.world.oracle.lasts[self.lineage.history] = kept, last  # they are the primary's
        self._every(0.7, self._follow)

    def crash(self) -> None:
        self.is_up = False
        self.incarnation += 1

    def _follow(self) -> None:
        """Read what the folder has."""
        if self.primary.lineage != self.lineage:
            self.incarnation += 1
            self.start()
            return
        for record in self.primary.log[len(self.log) : self.primary.synced]:
            self.log.append(record)
            for name, delta in record.deltas.items():
                _add(self.contents[name], delta)
                if name in self.recents:
                    batch = batch_of(delta, 1)
                    self.recents[name].push(record.epoch, record.time, batch.rows, batch.ann)
        self.synced = len(self.log)
        self.pump()

    def _beat(self) -> None:
        told = self.told()
        for (to, source), session in self.sessions.items():
            if session.heard <= self.world.now - HEARTBEAT * 0.9:
                self._tell(to, source, session, session.core.heartbeat(told))


def seen_at(vector: Vector) -> dict[str, RangeSet]:
    """Return a vector as what a client says it has seen: by place and history, the ticks."""
    cuts = ((path, cut) for path, cut in vector.items() if isinstance(cut, Cut) and cut.history)
    return {f"{path}:{cut.history}": cut.ranges for path, cut in cuts}


def _first_filter(spec: SourceSpec) -> DeliveryFilter:
    match spec.curiosity:
        case "available":
            return DeliveryFilter((0,), watched=(1,))
        case "best":
            return DeliveryFilter((0,))
        case "listed":
            return DeliveryFilter((4,) if spec.kind == "stream" else (0,), frozenset())
    return DeliveryFilter()


def _list_of(source: str) -> str:
    """The source that has the keys which another one is asked for: the second input of the same view."""
    return source.removesuffix(".0") + ".1"


def _add(bag: Bag, delta: Delta) -> None:
    for row, count in delta:
        left = bag[row] + count
        if left:
            bag[row] = left
        else:
            del bag[row]


def _difference(before: Bag, after: Bag) -> Delta:
    return [
        (row, after[row] - before[row]) for row in sorted(before.keys() | after.keys()) if after[row] != before[row]
    ]
