"""A partition: the one thing that owns tables, lifetimes and a dataflow, and can run, commit and undo an epoch.

It knows its number and how many partitions there are; one of one is an embedded database. It takes up plans
(`partition_plan.py`) and runs epochs: alone in one go (`run`), with others stage by stage (`run_stage`), exchanging
messages between two stages. Law: after `commit` its state is that of a database over its share of the rows, and after
`undo` it is as if the epoch, or the new plan, had not been.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from pathlib import Path

import numpy as np

from whence.adapt.statistics import JoinReader, JoinReading
from whence.engine.build import Builder
from whence.engine.core.dataflow import Dataflow
from whence.engine.core.epoch import Epoch
from whence.engine.core.image import Images, StaleImage
from whence.engine.core.lifetimes import Lifetimes
from whence.engine.core.operator import Batch, Operator
from whence.engine.exchange.heavy_keys import Key, KeyCounts, count_heavy
from whence.engine.exchange.ship import Ship, parted
from whence.engine.recursion.components import build_fixpoint, build_outputs
from whence.engine.relational.join import Join
from whence.engine.relational.scan import Scan
from whence.engine.streams.promise import promise_in
from whence.engine.streams.retain import is_stream
from whence.model.budget import shielded
from whence.model.codes import Codes, Dictionary
from whence.model.errors import WhenceError
from whence.model.progress import Progress
from whence.plan.algebra.join_paths import JoinOrders
from whence.plan.algebra.program import Table, is_beside, is_owed, owner_of, with_beside
from whence.plan.partitions.distribute import PlannedComponent
from whence.plan.partitions.heavy_keys import RowsBy
from whence.runtime.epoch_result import EpochResult, is_unanswered
from whence.runtime.partition_plan import NOTHING, PartitionPlan
from whence.runtime.writing.expiry import say_expired
from whence.runtime.writing.inputs import joined, resolve_inputs
from whence.runtime.writing.tables import Unmatched
from whence.sql.reader import deep_stack
from whence.state.disk import Disk
from whence.state.inputs import read_input

_Moved = list[tuple[Lifetimes, Batch, Codes]]


class Partition:
    """One of `of` partitions of a database; `folder` is where it finds rows that an epoch has in files."""

    def __init__(self, dictionary: Dictionary, number: int = 0, of: int = 1, folder: Path | None = None) -> None:
        self.dictionary, self.number, self.of, self.folder = dictionary, number, of, folder
        self.disk = Disk()
        self.flow = Dataflow(number, of)
        self.lifetimes: dict[str, Lifetimes] = {}
        self.plan = NOTHING
        self.damage: list[str] = []  # of the images that it was restored from
        self._former: tuple[PartitionPlan, dict[str, Scan], dict[str, Lifetimes]] | None = None  # before a new plan
        self._pinned: list[tuple[Join, JoinOrders, bool]] = []  # by a new plan, and as they were before
        self._readers: dict[str, JoinReader] = {}  # of joins, by fingerprint
        self._moved: list[Lifetimes] = []  # by the epoch that is being run
        self._making: dict[str, Operator] = {}

        def builder(transient: bool) -> Builder:
            return Builder(self.flow, dictionary, lambda name: self._making[name], number, of, transient)

        self._builder, self._transient_builder = builder(transient=False), builder(transient=True)

    def operator(self, name: str) -> Operator:
        """The operator behind a table or view."""
        return self.flow.tables.get(name) or self.flow.views[name]

    # -- epochs ------------------------------------------------------------------------------------------------------

    def run(self, epoch: Epoch, wanted: Collection[str]) -> EpochResult:
        """Run an epoch of exact changes without peers, and say what changed of the views that are `wanted`; then
        `commit` or, also after an error, `undo`."""
        flow, deltas, number = self.flow, epoch.deltas, epoch.number
        moved: _Moved = []
        expired: dict[str, int] = {}
        if self.lifetimes:
            moved = self._before_run(deltas, epoch.refreshed, epoch.time, expired)
        flow.context.enter(number, epoch.time)
        try:
            if epoch.released:
                flow.release(epoch.released)
            views = flow.run(deltas, promise_in(epoch.source_positions) if epoch.source_positions else None, wanted)
            for life, delta, refreshed in moved:
                life.after(delta, refreshed, epoch.time)
        except BaseException as error:
            asked = self.take_asked()
            if isinstance(error, WhenceError) and is_unanswered(asked):  # it will be run again, with what is missing
                return EpochResult({}, {}, asked=asked)
            say_expired(error, expired)
            raise
        finally:
            flow.context.enter(0, 0)
        changed = {name: len(delta.ann) for name, delta in deltas.items()} | flow.row_counts
        return EpochResult(changed, deltas | views if views else deltas, expired, asked=self.take_asked())

    def run_stage(
        self,
        stage: int,
        epoch: Epoch,
        received: Mapping[str, Batch],
        deadlines: Mapping[str, Codes],
        reported: Collection[str],
        wanted: Collection[str],
    ) -> EpochResult:
        """Run one stage of an epoch, of which only the first brings changes, with what other partitions sent; say what
        changed that has not been `reported`. `deadlines` are those of new rows, where they are known."""
        result = EpochResult({}, {})
        deltas, refreshed = self._resolved(epoch, result) if stage == 0 else ({}, {})
        flow, now = self.flow, epoch.time
        try:
            moved = self._before_run(deltas, refreshed, now, result.expired)
            flow.context.enter(epoch.number, now)
            promise = promise_in(epoch.source_positions) if stage == 0 else None
            if stage == 0:
                flow.release(epoch.released)
            result.messages = flow.run_stage(stage, deltas, received, promise)
            result.waits = flow.waits(stage)
            for life, delta, again in moved:
                life.after(delta, again, now)
            for name, due in deadlines.items():
                relation = flow.tables[name].relation
                relation.acc[relation.lookup(epoch.deltas[name].rows), 0] = due
                self.lifetimes[name].rebuild()
        except BaseException as error:
            asked = self.take_asked()
            if isinstance(error, WhenceError) and is_unanswered(asked):
                return EpochResult({}, {}, asked=asked)
            say_expired(error, result.expired)
            raise
        finally:
            flow.context.enter(0, 0)
        result.asked = self.take_asked()
        found = {**deltas, **flow.changes(stage)}
        changes = {name: self.plain(name, batch) for name, batch in found.items() if name not in reported}
        result.changed = {name: len(batch.ann) for name, batch in changes.items()}
        result.changes = {name: batch for name, batch in changes.items() if name in wanted}
        return result

    def commit(self) -> None:
        """Commit the epoch that has been run, or the plan that has been taken up."""
        self.flow.commit()
        for life in self._moved:
            life.commit()
        self._moved = []
        if self._former is not None:
            self._former = None
            self._forget_built()
        if self._pinned:
            self._pinned = []
            self.flow.sweep()  # of indexes that only the former orders needed

    def undo(self) -> None:
        """Undo the epoch that is being run, or the plan that is being taken up, however far it has come."""
        moved, self._moved = self._moved, []
        try:
            with shielded():
                self.flow.undo()
        finally:
            for life in moved:
                life.undo()
            for join, plan, pinned in reversed(self._pinned):
                if pinned:
                    join.pin(plan, firm=self.of > 1)
                else:
                    join.release(plan)
            self._pinned = []
            if self._former is not None:
                self.plan, self.flow.tables, self.lifetimes = self._former
                self._former = None
                self._forget_built()
                self._retain_shares()

    def _before_run(
        self, deltas: Mapping[str, Batch], refreshed: Mapping[str, Codes], now: int, expired: dict[str, int]
    ) -> _Moved:
        """Let the lifetimes forget what is about to leave; return those that an epoch moves, with the table's changes
        and the rows that live anew."""
        moved = []
        for name, life in self.lifetimes.items():
            if name in deltas or name in refreshed:
                delta = deltas.get(name, Batch.empty(life.width))
                moved.append((life, delta, refreshed.get(name, delta.rows[:0])))
                if not is_owed(name):
                    expired[name] = life.overdue(delta, now)
        for life, delta, _ in moved:
            self._moved.append(life)
            life.before(delta)
        for name in refreshed:
            self.flow.touch(self.flow.tables[name])
        return moved

    def _resolved(self, epoch: Epoch, result: EpochResult) -> tuple[dict[str, Batch], dict[str, Codes]]:
        """Return what an epoch brings to the tables: their exact changes, and rows that live anew."""
        if not epoch.layout:
            return dict(epoch.deltas), dict(epoch.refreshed)
        assert self.folder is not None
        parts: dict[str, list[tuple[Codes, Codes]]] = {}
        for section in epoch.sections:
            parts.setdefault(section.table, []).append(read_input(self.disk, self.folder, section))
        raw = {name: joined(some) for name, some in parts.items()}
        found, result.missing = self.resolve(epoch, raw)
        return found.deltas, found.refreshed

    def resolve(self, epoch: Epoch, raw: Mapping[str, tuple[Codes, Codes]]) -> tuple[Epoch, dict[str, Unmatched]]:
        """Turn raw rows into exact changes of the tables as they are; return the epoch with them, and how many
        deletions of each table found nothing."""
        return resolve_inputs(epoch, raw, self.plan.tables, self.flow.tables, self.lifetimes, self.dictionary)

    def plain(self, name: str, batch: Batch) -> Batch:
        """Return rows with how often they come or go; those of a stream come, whatever they carry."""
        return Batch(batch.rows, np.ones(len(batch), np.int64), True) if is_stream(self.operator(name)) else batch

    # -- plans -------------------------------------------------------------------------------------------------------

    @deep_stack()
    def install(self, plan: PartitionPlan, progress: Progress | None = None) -> None:
        """Begin to take up another plan; what is new is filled by the stages to come (`run_stage`) or by `fill`."""
        self._former = self.plan, dict(self.flow.tables), dict(self.lifetimes)
        self._declare(plan, None)
        if plan.since != self.plan.since:
            self.flow.install(self._built(plan), progress=progress)
        self._take_up(plan)

    def fill(self) -> None:
        """Fill what is new of a plan, without peers."""
        self.flow.fill()

    @deep_stack()
    def restore(self, plan: PartitionPlan, images: Images, progress: Progress | None = None) -> None:
        """Take up a plan with the state that images have; the partition must be new. StaleImage if a table's own rows
        cannot be taken, or what has no image cannot be computed here."""
        self._declare(plan, images, progress)
        self.flow.install(self._built(plan), images, progress, alone=self.of == 1)
        self.take_asked()
        self._forget_built()
        self._take_up(plan)

    @deep_stack()
    def pretend(self, plan: PartitionPlan) -> None:
        """Take up a plan without any rows, to be looked at."""
        self._declare(plan, None)
        self.flow.install(self._built(plan))
        self.flow.pretend()
        self._forget_built()
        self._take_up(plan)

    @deep_stack()
    def evaluate(self, components: Iterable[PlannedComponent], name: str, tables: Mapping[str, Scan]) -> Batch:
        """Return the rows of the view `name` among some components that are not kept, computed once over what is here
        and some `tables` in the place of others."""
        flow, kept = self.flow, self.flow.tables
        try:
            flow.tables = {**kept, **tables}
            self._making = dict(flow.views)
            for component in components:
                self._making |= self._build(component)
            flow.install(self._making)
            flow.fill()
            return self._making[name].contents()
        finally:
            self._making, flow.tables = {}, kept
            flow.undo()
            self._builder.forget()

    def _declare(self, plan: PartitionPlan, images: Images | None, progress: Progress | None = None) -> None:
        """Have the tables of a plan, with their rows if there are images of them."""
        tables, flow = with_beside(plan.tables), self.flow
        for name in [name for name in flow.tables if name not in tables]:
            del flow.tables[name]
            self.lifetimes.pop(name, None)
        names = list(plan.tables)
        for name, table in tables.items():
            if name in flow.tables:
                self._keep_own(name, table, plan)
                continue
            if progress is not None and images is not None and not is_beside(name):
                progress(f"loading table {name}", names.index(name), len(names))
            scan = self._scan(name, table)
            if images is not None:
                image = images.get(f"table/{name}")
                if image is not None:
                    scan.restore(image)
                    scan.changed = False
                elif not is_owed(name):  # those were written when nothing could be owed
                    raise StaleImage(f"there is no image of table {name}")
            if table.lifetime is not None:
                self.lifetimes[name] = Lifetimes(table.lifetime, scan.relation, self.dictionary)

    def _keep_own(self, name: str, table: Table, plan: PartitionPlan) -> None:
        """Drop the rows that live elsewhere, if a table was in every partition and no longer is. Nothing that was built
        over it is used again: the scan is another one, and the former is as it was until the plan is committed."""
        owner = owner_of(name)
        before, now = (placed.distributed.tables.get(owner) for placed in (self.plan, plan))
        if self.of == 1 or before is None or now is None or before.kind != "all" or now.kind == "all":
            return
        whole = self.flow.tables[name].relation.scan()
        own = parted(whole, now.cols, self.of).get(self.number)
        scan = self._scan(name, table)
        if own is not None:
            scan.relation.apply(own)
            scan.relation.commit()

    def _scan(self, name: str, table: Table) -> Scan:
        if table.stream is not None:
            return self.flow.stream(name, table.schema, table.stream)
        return self.flow.table(name, table.schema, table.key, extra=int(table.notes_arrivals))

    def _take_up(self, plan: PartitionPlan) -> None:
        if plan.orders and plan.orders is not self.plan.orders:
            for join in self.joins():
                orders = plan.orders.get(join.fingerprint)
                if orders is not None and not (join.pinned and join.plan == orders):
                    self._pinned.append((join, join.plan, join.pinned))
                    join.pin(orders, firm=self.of > 1)
        self.plan = plan
        self._retain_shares()

    def _retain_shares(self) -> None:
        """Let streams keep this partition's share of what is to be kept of them; where they are may have changed."""
        if self.of == 1:
            return
        for name, stream in self.flow.streams.items():
            retention = self.plan.tables[name].stream
            if retention is not None:
                dist = self.plan.distributed.tables[name]
                stream.kept.retention = retention if dist.kind in ("one", "all") else retention.share(self.of)

    def _built(self, plan: PartitionPlan) -> dict[str, Operator]:
        """Return the operators of a plan's views; those of components that were there already are as they are."""
        had, views = self.plan.since, self.flow.views
        made: dict[str, Operator] = {}
        self._making = made
        try:
            for piece in plan.distributed.pieces:
                if had.get(piece.views) == plan.since[piece.views]:
                    made |= {name: views[name] for name in piece.views}
                else:
                    made |= self._build(piece, piece.views[0] in plan.transient)
            return made
        finally:
            self._making = {}

    def _build(self, piece: PlannedComponent, transient: bool = False) -> dict[str, Operator]:
        builder = self._transient_builder if transient else self._builder
        if piece.node is not None:
            (name,) = piece.views
            return {name: builder.build(piece.node)}
        assert piece.rules is not None
        assert piece.settings is not None
        fixpoint = build_fixpoint(piece.rules, builder, piece.views, piece.settings, piece.exchange)
        return build_outputs(fixpoint, piece.views, piece.after, builder)

    def _forget_built(self) -> None:
        """Let go of operators that no view needs."""
        self._builder.forget()
        self._transient_builder.forget()

    def take_asked(self) -> dict[str, Codes]:
        """Return what the run under way has asked for of each relation from outside."""
        found: dict[str, list[Codes]] = {}
        for op in self.flow.outside_lookups:
            asked = op.take_asked()
            if asked is not None:
                found.setdefault(op.outside, []).append(asked)
        return {name: np.concatenate(parts) for name, parts in found.items()}

    def joins(self) -> list[Join]:
        """Return the joins whose orders can be decided."""
        return [op for op in self.flow.order if isinstance(op, Join) and op.follows_data]

    def read_joins(self, wanted: Collection[str]) -> dict[str, JoinReading]:
        """Return readings of some joins, by fingerprint; between two epochs."""
        joins = {join.fingerprint: join for join in self.joins() if join.fingerprint in wanted}
        self._readers = {
            name: found if (found := self._readers.get(name)) is not None and found.join is join else JoinReader(join)
            for name, join in joins.items()
        }
        return {name: reader.read() for name, reader in self._readers.items()}

    def heavy_keys(self, source: RowsBy, room: int, known: tuple[Key, ...]) -> KeyCounts:
        """Count the most frequent keys of some rows that are here, at most `room` of them, and those that are `known`;
        none if the rows are not kept."""
        if source.relation:
            found = self.operator(source.relation).arranged
        else:
            ships = (op for op in self.flow.order if isinstance(op, Ship) and op.rows_of == source.moved)
            found = next((ship.arranged for ship in ships if ship.arranged is not None), None)
        return KeyCounts(0, {}) if found is None else count_heavy(found, source.cols, room, known)

    # -- how it stands -----------------------------------------------------------------------------------------------

    def deadlines(self) -> dict[str, int]:
        """When the first row of each table with a time-to-live is due."""
        return {name: life.soonest for name, life in self.lifetimes.items()}

    def owed(self) -> dict[str, int]:
        """How many distinct rows each table owes that owes any."""
        debts = ((name, len(scan.relation)) for name, scan in self.flow.tables.items() if is_owed(name))
        return {owner_of(name): count for name, count in debts if count}

    @property
    def state_bytes(self) -> int:
        return self.flow.state_bytes + sum(life.nbytes for life in self.lifetimes.values())
