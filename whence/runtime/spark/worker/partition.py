"""A partition: its share of the tables and operators, moved by steps; in the driver or in a Python worker of Spark.

Between two runs its state is that of an embedded database over its share of the rows. A run that is under way can be
taken back; whether it was kept is known from the history that comes with the next contact.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from whence.connect import files
from whence.connect.rows import to_arrow
from whence.engine.build import Builder
from whence.engine.core.batch import concat
from whence.engine.core.dataflow import Dataflow
from whence.engine.core.epoch import Epoch, Inputs, InputSection
from whence.engine.core.image import Images, SoundImages, StaleImage
from whence.engine.core.lifetimes import Lifetimes
from whence.engine.core.operator import Batch, Operator
from whence.engine.core.operator_stats import OperatorStats, measure
from whence.engine.recursion.components import build_fixpoint, build_outputs
from whence.engine.relational.scan import Scan
from whence.engine.streams.retain import is_stream
from whence.model.codes import Codes, Dictionary
from whence.model.errors import WhenceError
from whence.plan.algebra.program import Program, is_owed, owner_of, with_debts
from whence.plan.partitions.distribute import PlannedComponent as Part
from whence.plan.streams.model import without_at
from whence.runtime.reading.late_rows import lates_under, stream_figures
from whence.runtime.spark.frames import frames
from whence.runtime.spark.worker.commands import CommandLog, PartitionCommand, PartitionPlan, Plans, Reply, fetch
from whence.runtime.writing.expiry import say_expired
from whence.runtime.writing.inputs import joined, settle
from whence.sql.reader import deep_stack
from whence.state.chain import ImageChain, Writer
from whence.state.disk import Disk
from whence.state.inputs import read_input
from whence.state.manifest import STATE, Link

if TYPE_CHECKING:
    from whence.engine.streams.replay.ragged import Ragged
    from whence.explain.retrieve.site import Site
    from whence.runtime.spark.driver.retrieving import StreamPartition


class DivergedError(Exception):
    """The partition cannot be brought to where it should be: it must be loaded anew."""


class Partition:
    """One of `of` partitions of a database in a folder."""

    def __init__(self, number: int, of: int, dictionary: Dictionary, folder: Path, plans: Plans):
        self.number, self.of, self.dictionary, self.folder, self._plans = number, of, dictionary, folder, plans
        self.disk = Disk()
        self.flow = Dataflow(number, of)
        self.lifetimes: dict[str, Lifetimes] = {}
        self.plan: PartitionPlan | None = None
        self.last = 0  # the token of the last step
        self.run: int | None = None  # the run that is under way
        self._before = 0  # the token before it
        self._undo_plan: tuple[PartitionPlan | None, dict[str, Any], dict[str, Lifetimes]] | None = None
        self._moved: list[Lifetimes] = []
        self._reply: Reply | None = None
        self._told: set[str] = set()  # whose changes the run under way has told of: a stage may have many rounds
        self._damage: list[str] = []  # of the image that it was loaded from
        self._making: dict[str, Operator] = {}
        self._builder = Builder(self.flow, dictionary, lambda name: self._making[name], number, of)

    # -- where it is -------------------------------------------------------------------------------------------------

    def settle(self, history: CommandLog, run: int | None) -> None:
        """Be where the driver says: keep or take back what was under way, and do what has been missed."""
        if self.run is not None and self.run != run and history.place(self.last) is None:
            self.undo()
        place = history.place(self.last)
        if place is None:
            raise DivergedError
        if place < len(history.tokens):
            context = self.flow.context
            before, context.replaying = context.replaying, True
            try:
                for step in history.read(self.folder, place):
                    if step.run != self.run:
                        self.commit()
                    self.do(step)
            finally:
                context.replaying = before
        if self.run != run:
            self.commit()

    def load(self, history: CommandLog) -> None:
        """Begin from the image of a history; the partition must be new."""
        if history.links and history.plan is not None:
            with ImageChain(self.folder / STATE, history.links) as chain:
                images = SoundImages(chain)
                try:
                    self._install(self._plans(history.plan), images)
                except StaleImage as error:
                    raise StaleImage("; ".join([str(error), *images.damage])) from error
                self._damage = images.damage
        self._undo_plan = None
        self.last = history.base

    def commit(self) -> None:
        """Keep what the run under way has done."""
        if self.run is None:
            return
        self.flow.commit()
        self._builder.forget()
        for life in self._moved:
            life.commit()
        self.run, self._moved, self._undo_plan = None, [], None

    def undo(self) -> None:
        """Take it back."""
        if self.run is None:
            return
        try:
            self.flow.undo()
            self._builder.forget()
            for life in self._moved:
                life.undo()
        except WhenceError as error:
            raise DivergedError from error
        if self._undo_plan is not None:
            self.plan, self.flow.tables, self.lifetimes = self._undo_plan
            self._keep_shares(self.plan)
        self.run, self.last, self._moved, self._undo_plan, self._reply = None, self._before, [], None, None

    # -- what it does ------------------------------------------------------------------------------------------------

    @deep_stack()
    def do(self, step: PartitionCommand, wanted: Collection[str] = ()) -> Reply:
        """Do a step. Doing the last one again (a task that is tried again) says the same once more."""
        if step.token == self.last and self._reply is not None:
            return self._reply
        start = time.perf_counter()
        if self.run is None:
            self.run, self._before, self._told = step.run, self.last, set()
        reply = Reply([], None, {}, {})
        try:
            deltas: dict[str, Batch] = {}
            refreshed: dict[str, Codes] = {}
            if step.plan is not None:
                self._install(self._plans(step.plan), None)
            elif step.stage == 0:
                deltas, refreshed = self._taken(step, reply)
            moved = self._before_run(deltas, refreshed, step, reply)
            self.flow.context.enter(step.epoch, step.time)
            reply.messages = self.flow.run_stage(step.stage, deltas, self._received(step), step.promise)
            reply.waits = self.flow.waits(step.stage)
            for life, delta, again in moved:
                life.after(delta, again, step.time)
            for name, deadlines in step.deadlines.items():
                relation = self.flow.tables[name].relation
                relation.acc[relation.lookup(step.deltas[name].rows), 0] = deadlines
                self.lifetimes[name].rebuild()
        except BaseException as error:
            say_expired(error, reply.expired)
            self.last = step.token
            with suppress(DivergedError):
                self.undo()
            raise
        found = {**deltas, **self.flow.changes(step.stage)} if step.plan is None else {}
        changes = {name: self._plain(name, batch) for name, batch in found.items() if name not in self._told}
        self._told |= changes.keys()
        reply.changed = {name: len(batch.ann) for name, batch in changes.items()}
        reply.changes = {name: batch for name, batch in changes.items() if name in wanted}
        reply.deadlines, reply.owed = self.deadlines(), self.owed()
        reply.bytes, reply.seconds = self.state_bytes, time.perf_counter() - start
        self.last, self._reply = step.token, reply
        return reply

    def _plain(self, name: str, batch: Batch) -> Batch:
        """Rows with how often they come or go; those of a stream come, whatever they carry."""
        return Batch(batch.rows, np.ones(len(batch), np.int64), True) if is_stream(self._operator(name)) else batch

    def _received(self, step: PartitionCommand) -> dict[str, Batch]:
        parts: dict[str, list[Batch]] = {}
        for channel, payload in step.received:
            parts.setdefault(channel, []).append(fetch(self.folder, payload))
        return {channel: concat(batches, batches[0].rows.shape[1]) for channel, batches in parts.items()}

    def _taken(self, step: PartitionCommand, reply: Reply) -> tuple[dict[str, Batch], dict[str, Codes]]:
        """What a step brings to the tables: their exact changes, and rows that live anew."""
        if step.raw is None:
            return dict(step.deltas), dict(step.refreshed)
        assert self.plan is not None
        raw = {name: self._rows(parts) for name, parts in step.raw.items()}
        tables, scans = self.plan.tables, self.flow.tables
        given = Epoch(0, step.time, {}, inputs=Inputs(early=step.early))
        epoch, reply.missing = settle(given, raw, tables, scans, self.lifetimes, self.dictionary)
        return epoch.deltas, epoch.refreshed

    def _rows(self, pieces: Sequence[InputSection]) -> tuple[Codes, Codes]:
        return joined([read_input(self.disk, self.folder, piece) for piece in pieces])

    def _before_run(
        self, deltas: dict[str, Batch], refreshed: dict[str, Codes], step: PartitionCommand, reply: Reply
    ) -> list[tuple[Lifetimes, Batch, Codes]]:
        """Let the lifetimes forget what is about to leave; those that must hear of what has come."""
        moved = []
        for name, life in self.lifetimes.items():
            if name in deltas or name in refreshed:
                delta = deltas.get(name, Batch.empty(life.width))
                moved.append((life, delta, refreshed.get(name, delta.rows[:0])))
                if not is_owed(name):
                    reply.expired[name] = life.overdue(delta, step.time)
        for life, delta, _ in moved:
            self._moved.append(life)
            life.before(delta)
        for name in refreshed:
            self.flow.touch(self.flow.tables[name])
        return moved

    # -- the plan ----------------------------------------------------------------------------------------------------

    def _install(self, plan: PartitionPlan, images: Images | None) -> None:
        """Take up another plan; with images everything is restored, else what is new is filled by the stages."""
        self._undo_plan = self.plan, dict(self.flow.tables), dict(self.lifetimes)
        had = self.plan.since if self.plan is not None else {}
        tables = with_debts(plan.tables)
        for name in [name for name in self.flow.tables if name not in tables]:
            del self.flow.tables[name]
            self.lifetimes.pop(name, None)
        for name, table in tables.items():
            if name in self.flow.tables:
                continue
            scan: Scan
            if table.stream is not None:
                scan = self.flow.stream(name, table.schema, table.stream)
            else:
                scan = self.flow.table(name, table.schema, table.key, extra=int(table.notes_arrivals))
            if images is not None:
                image = images.get(f"table/{name}")
                if image is not None:
                    scan.restore(image)
                elif not is_owed(name):  # those were written when nothing could be owed
                    raise StaleImage(f"there is no image of table {name}")
            if table.lifetime is not None:
                self.lifetimes[name] = Lifetimes(table.lifetime, scan.relation, self.dictionary)
        views = self.flow.views
        self._making = {}
        try:
            for part in plan.distributed.pieces:
                if had.get(part.views) == plan.since[part.views]:
                    self._making |= {name: views[name] for name in part.views}
                else:
                    self._making |= self._build(part)
            self.flow.install(self._making, images, alone=False)
        finally:
            self._making = {}
        self._keep_shares(plan)
        self.plan = plan

    def _keep_shares(self, plan: PartitionPlan | None) -> None:
        """Let streams keep this partition's share of what is to be kept of them; where they are may have changed."""
        for name, stream in self.flow.streams.items():
            retention = plan.tables[name].stream if plan is not None else None
            if plan is not None and retention is not None:
                dist = plan.distributed.tables[name]
                stream.kept.retention = retention if dist.kind in ("one", "all") else retention.share(self.of)

    def pretend(self, plan: PartitionPlan) -> None:
        """Take up a plan without any rows, to be looked at."""
        self._install(plan, None)
        self.flow.pretend()
        self._builder.forget()
        self._undo_plan = None

    def _build(self, part: Part) -> dict[str, Operator]:
        if part.node is not None:
            (name,) = part.views
            return {name: self._builder.build(part.node)}
        assert part.rules is not None
        assert part.settings is not None
        fixpoint = build_fixpoint(part.rules, self._builder, part.views, part.settings, part.exchange)
        return build_outputs(fixpoint, part.views, part.after, self._builder)

    # -- what may be asked of it, between two runs -------------------------------------------------------------------

    def _operator(self, name: str) -> Operator:
        return self.flow.tables.get(name) or self.flow.views[name]

    def contents(self, name: str) -> Batch:
        """The distinct rows of a table or view, and how often each is there; of a stream all that are kept, with their
        `$at`, in their order."""
        op = self._operator(name)
        batch = op.contents()
        if is_stream(op):
            return self._plain(name, batch)
        return Batch(batch.rows, batch.ann, True)

    def size(self, name: str) -> int:
        return self._operator(name).size

    def sizes(self) -> dict[str, int]:
        """Rows of every table and view."""
        tables = {n: scan.size if is_owed(n) else scan.state_rows for n, scan in self.flow.tables.items()}
        return {**tables, **{name: op.size for name, op in self.flow.views.items()}}

    def counts(self, name: str, rows: Codes) -> Codes:
        """How often each of these rows is there."""
        return self._operator(name).count_of(np.ascontiguousarray(rows))

    def at_keys(self, table: str, cols: tuple[int, ...], keys: Codes) -> Batch:
        return self.flow.tables[table].relation.at_keys(cols, np.ascontiguousarray(keys))

    def find(self, table: str, cols: tuple[int, ...], keys: Codes) -> Batch:
        """Return the rows of a table that have one of some keys in any columns."""
        return self.flow.tables[table].relation.find(cols, np.ascontiguousarray(keys))

    def lates(self, name: str) -> list[tuple[int, Codes]]:
        """What came too late for each operator of a view that notes it: how many rows, and the last of them."""
        return [(late.count, late.rows) for late, _ in lates_under(self.flow, name)]

    def stream_figures(self) -> dict[str, dict[str, int]]:
        return stream_figures(self.flow)

    def share(self, name: str) -> StreamPartition:
        """What it keeps of a stream."""
        from whence.runtime.spark.driver.retrieving import StreamPartition

        kept = self._site().kept(name)
        return StreamPartition(kept.rows.copy(), kept.first, kept.next, kept.last_at, kept.promised)

    def backward_tids(self, view: str, source: str | None, wanted: Codes) -> dict[str, Ragged]:
        """The tids behind results of a stream view; all tids are of this share."""
        from whence.explain.retrieve.backward import backward_tids

        return backward_tids(self._site(), view, wanted, source)

    def forward_tids(self, view: str, source: str, tid: int) -> Codes:
        """The results that an input reached; all tids are of this share."""
        from whence.explain.retrieve.forward import forward_tids

        return forward_tids(self._site(), view, source, tid)

    def _site(self) -> Site:
        from whence.explain.retrieve.site import Site  # loaded with the first question

        assert self.plan is not None
        return Site(self.flow, Program(dict(self.plan.tables), dict(self.plan.views)), self.dictionary)

    def export(self, name: str, folder: str) -> None:
        """Write the rows of a table or view to a Parquet file."""
        batch, schema = self.contents(name), self._operator(name).schema
        if is_stream(self._operator(name)):
            batch, schema = Batch(np.ascontiguousarray(batch.rows[:, :-1]), batch.ann), without_at(schema)
        table = to_arrow(batch.rows, batch.ann, schema, self.dictionary)
        files.write(frames.plain(table), Path(folder) / f"part-{self.number:04d}-{secrets.token_hex(4)}.parquet")

    def due_rows(self, table: str, now: int) -> Codes:
        """The rows whose time is up."""
        return self.lifetimes[table].due_rows(now)

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

    def figures(self) -> dict[str, OperatorStats]:
        """How much every operator holds, by fingerprint."""
        return {op.fingerprint: measure(op) for op in [*self.flow.tables.values(), *self.flow.order]}

    # -- images ------------------------------------------------------------------------------------------------------

    def damage(self) -> list[str]:
        """Return what was damaged in the image that it was loaded from, and has been computed."""
        return self._damage

    def save(self, links: tuple[Link, ...], file: str, epoch: int) -> Link:
        """Write an image; if there are links, what has changed since them, unless they are damaged. Two attempts never
        meet in one file."""
        stem, _, kind = file.rpartition(".")
        if self._damage:
            links, kind = (), "base"
        file, before = f"{stem}-{secrets.token_hex(4)}.{kind}", None
        if links:
            with ImageChain(self.folder / STATE, links) as chain:
                before = chain.directory
        with Writer(self.disk, self.folder / STATE / file, before) as writer:
            for key, image in self._images():
                writer.add(key, image)
            written = writer.finish({"epoch": epoch, "partition": self.number}).written
        return Link("base" if before is None else "patch", file, epoch, written)

    def _images(self) -> Iterator[tuple[str, Any]]:
        seen = set()
        for key, _, image in self.flow.parts():
            if key not in seen:  # equal operators of different changes of the catalog have equal state
                seen.add(key)
                yield key, image()
