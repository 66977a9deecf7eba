"""The epochs of a node in a simulation: its log, of which a crash keeps what is synced, and the views over it.

The law: everything that a node keeps between crashes is in the records of its log: rows, the ranges that each source
reflects, the filters in effect. A position is told only when it is synced and **sufficient**: when the filters in
effect let through all that the views need, such as the rows of every key that a list has. Otherwise a view would be
shown that is not that of its position.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING

from whence.engine.core.operator import Batch
from whence.subscribe.positions import Era, HistoryLineage
from whence.subscribe.publishing import Publication
from whence.subscribe.ranges import RangeSet
from whence.subscribe.recent import RecentChanges
from whence.subscribe.simulate.bags import add_to, batch_of
from whence.subscribe.simulate.node_parts import WIDTHS, SourceMeta, SourceSpec, ViewSpec, first_filter
from whence.subscribe.simulate.oracle import NOTHING, Cut, Delta, EpochRecord, SimulationError, Vector
from whence.subscribe.simulate.plans import Bag, PlanInputs, Row, ViewTree, row_order

if TYPE_CHECKING:
    from whence.subscribe.simulate.world import World


class NodeEpochs:
    """The log of a node, and what is kept in it."""

    publication_class: type[Publication] = Publication
    contents: dict[str, Bag]
    metas: dict[str, SourceMeta]
    pins: frozenset[int]
    recents: dict[str, RecentChanges]
    publications: dict[str, Publication]
    floor: int

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

    def pump(self) -> None:
        """Tell everyone what is new."""
        raise NotImplementedError

    def is_sufficient(self) -> bool:
        """Whether the filters in effect let through all that the views need."""
        raise NotImplementedError

    def _be_curious(self) -> None:
        """Ask for what is needed."""
        raise NotImplementedError

    def begin(self) -> None:
        """Be what the synced log says."""
        self.is_up = True
        self.incarnation += 1
        self.contents = {name: Counter() for name in (*self.sources, *self.views)}
        if self.base is not None:
            self.contents[self.base.name] = Counter()
        for record in self.log:
            for name, delta in record.deltas.items():
                add_to(self.contents[name], delta)
        last = self.log[-1] if self.log else None
        self.metas = {name: SourceMeta(filter=first_filter(s)) for name, s in self.sources.items()}
        if last is not None:
            self.metas |= last.metas  # type: ignore[arg-type]  # a record does not know what metas are
        self.pins = last.pins if last is not None else frozenset[int]()
        self.floor = self._first_time()
        self.recents, self.publications = {}, {}
        self._told = 0
        for name in (*self.views, *(() if self.base is None else (self.base.name,))):
            self._publish_relation(name)
        self._unpushed: dict[str, Bag] = {}
        for record in self.log[self.told() :]:
            self._push(record)
        self._syncing = False
        self._arrivals: dict[Row, int] = {}
        self._replaced = set[str]()  # sources whose rows are of another past, and go with the next commit
        self._is_curious = any(spec.curiosity != "everything" for spec in self.sources.values())
        self.world.oracle.logs[self.lineage.history, self.lineage.era.id] = self.log
        self.world.oracle.lineages[self.lineage.history] = self.lineage
        self.world.oracle.lasts[self.lineage.history] = len(self.log)

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
            add_to(self.contents[name], delta)
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
            self._later(self.dice.random() * self.dice.choice([0.1, 0.25, 1.0]), self._sync)
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
                add_to(waiting, delta)
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

    def vector_at(self, name: str, epoch: int) -> Vector:
        """What a relation reflects as of an epoch. A base relation is there before the first one, and empty."""
        return self.log[epoch - 1].vectors[name] if epoch else {"": self._own_cut(0, 0)}

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
