"""A database in a simulation: publisher, broker or both, around the cores that a server runs.

A node has a log of epochs (`node_epochs`), sessions of other nodes and subscribers (`node_delivery`), and sources
(`SourceState`), which are here, with the filters that they are asked for with.

The law: what a node decides is decided by the cores; this only carries it out. So a run shows the cores' faults.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from whence.subscribe.positions import HistoryLineage, Position
from whence.subscribe.publishing import DeliveryBound, FilterChange, Key, Told
from whence.subscribe.ranges import EVER
from whence.subscribe.simulate.bags import add_to, bag_of, batch_of, difference_of
from whence.subscribe.simulate.node_delivery import NodeDelivery
from whence.subscribe.simulate.node_parts import HEARTBEAT, SILENT_COMMIT, SourceMeta, SourceSpec, list_of
from whence.subscribe.simulate.oracle import SimulationError
from whence.subscribe.simulate.plans import BEST, MARGIN, Bag, Row
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


class SimulatedNode(NodeDelivery):
    """One database of a simulation."""

    source_class: type[SourceState] = SourceState

    def start(self) -> None:
        """Be what the synced log says, and ask the sources for the rest."""
        self.begin()
        self.states: dict[str, SourceState] = {}
        self._lineages: dict[str, HistoryLineage] = {}  # by source: the publisher's, as its session was opened
        self._numbers = dict.fromkeys(self.sources, 0)
        self._changes: dict[str, FilterChange] = {}
        self._asked: dict[tuple[str, int, int], float] = {}
        self._timers: dict[str, float] = {}
        self._flushing = False
        for name, spec in self.sources.items():
            meta = self.metas[name]
            mode: Any = "ahead" if spec.kind == "stream" else "in order"
            state = self.source_class(name, mode, meta.position, meta.ranges, meta.lost, urls=len(spec.urls))
            self.states[name] = state
            self._act(name, state.connect(self.world.now))
        self._every(HEARTBEAT, self._beat)

    def receive(self, message: tuple[Any, ...]) -> None:
        """Take in a message of another node or of a client."""
        if not self.is_up:
            return
        if self.paused_until > self.world.now:
            self._later(self.paused_until - self.world.now, lambda: self.receive(message))
            return
        match message:
            case ("opened", source, number, lineage, opened):
                self._open(source, number, lineage, opened)
            case ("told", source, number, at, fact):
                self._hear(source, number, at, fact)
            case _:
                self.take(message)

    # -- receiving ---------------------------------------------------------------------------------------------------

    def _open(self, source: str, number: int, lineage: HistoryLineage, opened: Opened) -> None:
        state = self.states[source]
        if number == state.session and not state.is_open:
            self._lineages[source] = lineage
        self._act(source, state.receive(opened, number, self.world.now))

    def _hear(self, source: str, number: int, at: Position, fact: Told) -> None:
        """Take in what is of the past that the source was opened with, as the connection to a bus does
        (`runtime/sources/nats_connection.py`). A repeat of a `subscribe` that comes late opens the same session again
        at a publisher that has another past by now: then the source subscribes anew, and compares them."""
        state, now = self.states[source], self.world.now
        if number == state.session and state.is_open and not self._lineages[source].knows(at, last=at.epoch):
            self._act(source, state.connect(now, failed=True))
        else:
            self._act(source, state.receive(fact, number, now))

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
                self.commit({source: difference_of(self.contents[source], bag_of(action.rows))})
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
        self.commit({source: difference_of(content, after)})

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
                case "listed" if not {(row[0],) for row in self.contents[list_of(name)]} <= (filter.keys or set()):
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
                listed = frozenset((row[0],) for row in self.contents[list_of(name)])
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
                add_to(self.contents[name], delta)
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
