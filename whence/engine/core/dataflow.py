"""The dataflow of a partition: operators in topological order, the views that read them, and the epochs that run.

Invariant between epochs: every operator's state, every arrangement and every view equals its definition over the
tables. An operator whose inputs did not change is skipped. After `run` comes `commit` or `undo`; an error in `run`
leaves the caller to `undo`, which restores everything that ran. Operators live as long as a view needs them, an
arrangement or an index as long as an operator or a view does.

Stages. An operator's stage is the number of exchanges that must come before it: the largest sum of its inputs' delays
(a Ship delays by one). Without peers there are no delays and one stage, and `run` is the whole epoch. With peers an
epoch goes from stage to stage by `run_stage`; every operator runs at most once in it, when the deltas of all its inputs
are there, so the law of the engine holds as it does in one piece. What a stage leaves for later ones stays here between
two calls.

Messages. A Ship's rows are for the next stage. A recursion across partitions has some stages of its own, each of which
is run again, in the partitions that were sent something for it, until nothing is on its way for it; only then does the
next one begin. Other operators run in the first of these rounds.

Views are replaced by `install`, see `installation.py`.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from time import perf_counter
from typing import TYPE_CHECKING, NamedTuple, cast

import numpy as np

from whence.annotate.tracing import Tracer
from whence.engine.core.arrangement import declare_indexes
from whence.engine.core.batch import consolidate
from whence.engine.core.epoch_context import EpochContext
from whence.engine.core.image import Image, Images
from whence.engine.core.installation import Installation
from whence.engine.core.operator import Batch, Operator, upwards
from whence.engine.core.relation import Relation
from whence.engine.exchange.messages import PartitionMessage, message_of_rows
from whence.engine.exchange.ship import Ship
from whence.engine.exchange.traffic import Traffic, counted
from whence.engine.recursion.iterative import IterativeOperator, has_peers
from whence.engine.relational.hold import Hold
from whence.engine.relational.scan import Scan
from whence.engine.relational.select import Select
from whence.engine.relational.selections import Selections
from whence.engine.streams.late import warn_of_late_rows
from whence.engine.streams.promise import Promise, reaches
from whence.engine.streams.retain import Retain
from whence.engine.streams.sort import BSort
from whence.engine.streams.stream import StreamOperator
from whence.engine.streams.stream_scan import StreamScan
from whence.engine.streams.windows.latest import Latest
from whence.engine.streams.windows.window import Window
from whence.model.budget import has_budget, reach
from whence.model.errors import QuestionTimeout, StorageError, WhenceError
from whence.model.progress import Progress
from whence.model.types import Schema
from whence.model.word_marks import WordMarks
from whence.plan.algebra.logical import HoldKey
from whence.plan.streams.model import MemoryLimit, Retention, Tracing

if TYPE_CHECKING:
    from whence.engine.streams.outside_lookup import OutsideLookup
    from whence.engine.streams.windows.memory_pool import MemoryPool

log = logging.getLogger("whence")
_FEW = 3  # selections that are not worth deciding together
_REMEMBERED = 64  # sets of tables that changed together, with what they reach


class _Step(NamedTuple):
    """An operator, those whose batches it takes, and the linear operators that each batch passes on the way, if any
    does: they run as a part of the only operator that reads them. `done` are those whose batches no later step takes,
    by their ids. If the only batch passes a selection first that is decided with others, `selected` are those and its
    id, and it is not on the way."""

    op: Operator
    sources: list[Operator]
    through: list[list[Operator]] | None = None
    done: tuple[int, ...] = ()
    selected: tuple[Selections, int] | None = None


class Dataflow:
    """Tables in, views out; in one of some partitions."""

    def __init__(self, partition: int = 0, partitions: int = 1) -> None:
        self.partition, self.partitions = partition, partitions
        self.context = EpochContext()
        self.tables: dict[str, Scan] = {}  # and streams
        self.tracers: dict[Tracing, Tracer] = {}  # one for each way in which streams are traced
        self.views: dict[str, Operator] = {}
        self.order: list[Operator] = []  # topological; tables are not in it
        self.before: Callable[[Operator], None] | None = None  # called with an operator that is about to change
        self.restored = self.primed = 0  # operators that began from images, and from their inputs' contents
        self.recomputed: list[Operator] = []  # those that began so because images did not have them
        self.warns = True  # of the first rows that come too late for a view
        self._ran: dict[Operator, None] = {}  # in this epoch, in their order
        self._changed: list[Relation] = []
        self.row_counts: dict[str, int] = {}  # by how many rows the last run changed each view
        self._outs: dict[int, Batch] = {}  # of this epoch, while they are needed
        self._sizes: dict[int, int] = {}  # of this epoch's batches
        self._promise: Promise | None = None  # of this epoch
        self._traffic: dict[str, Traffic] = {}  # of this epoch, by the fingerprints of those who send
        self._ships: dict[str, Ship] = {}  # by channel
        self._iterative: list[IterativeOperator] = []
        self.outside_lookups: list[OutsideLookup] = []
        self._pools: dict[tuple[str, int], MemoryPool] = {}
        self._checkpointed: list[Retain] = []
        self._holds: dict[HoldKey, list[Hold]] = {}
        self._releasing: list[Hold] = []  # in this epoch
        self._installing: Installation | None = None
        self._reached: dict[tuple[object, ...], tuple[list[_Step], list[tuple[str, Operator]]]] = {}

    # -- the plan ----------------------------------------------------------------------------------------------------

    def table(self, name: str, schema: Schema, key: tuple[int, ...] = (), extra: int = 0) -> Scan:
        """Declare a table, with so many accumulators a row."""
        scan = self.tables[name] = Scan(name, schema, key, extra)
        return scan

    def stream(self, name: str, schema: Schema, retention: Retention) -> StreamScan:
        """Declare a stream of these columns; `$at` is added to them."""
        self.tables[name] = scan = StreamScan(name, schema, retention)
        scan.context = self.context
        return scan

    @property
    def streams(self) -> dict[str, StreamScan]:
        """The tables that are streams."""
        return {name: scan for name, scan in self.tables.items() if isinstance(scan, StreamScan)}

    @property
    def last_at(self) -> int:
        """When the last row, or promise, of any stream arrived."""
        return max((scan.kept.reached for scan in self.tables.values() if isinstance(scan, StreamScan)), default=0)

    def pool(self, limit: MemoryLimit) -> MemoryPool:
        """Return the memory that the joins of one pool share."""
        from whence.engine.streams.windows.memory_pool import MemoryPool  # seldom

        size = limit.rows or limit.nbytes or 1
        return self._pools.setdefault((limit.pool, size), MemoryPool(size))

    def tracer(self, tracing: Tracing) -> Tracer:
        """Return the tracer that all operators of one tracing share."""
        found = self.tracers.get(tracing)
        if found is None:
            found = self.tracers[tracing] = _tracer(tracing)
        return found

    def install(
        self,
        views: Mapping[str, Operator],
        images: Images | None = None,
        progress: Progress | None = None,
        alone: bool = True,
    ) -> None:
        """Begin to keep these views, and no others. With images all that is new is restored, and they are installed;
        else the stages fill it, and `commit` ends or `undo` aborts the installation. `alone` says that operators which
        images lack may be computed here."""
        self._installing = install = Installation(dict(views), progress)
        for op in install.fresh:
            op.context = self.context
        self._ships |= {op.channel: op for op in install.fresh if isinstance(op, Ship)}
        self._iterative += [op for op in install.fresh if has_peers(op)]
        self.outside_lookups += _outside_among(install.fresh)
        if images is not None:
            try:
                self.recomputed += install.restore(images, alone)
            except BaseException:
                self._abort_install(install)
                raise
            self._end_install(install)

    def add_view(self, name: str, op: Operator, progress: Progress | None = None) -> None:
        """Keep one more view, filled at once without peers; on an error nothing has changed."""
        self.install({**self.views, name: op}, progress=progress)
        try:
            self.fill()
        except BaseException:
            self.undo()
            raise
        self.commit()

    def fill(self) -> None:
        """Fill what is being installed, without peers."""
        stage: int | None = 0
        while stage is not None and self._installing is not None:
            self.run_stage(stage, {}, {})
            stage = self.waits(stage)

    def pretend(self) -> None:
        """End an installation as if all had been filled: of a dataflow that is only looked at."""
        if self._installing is not None:
            for op in self._installing.fresh:
                op.primed = True
            self._end_install(self._installing)

    def _end_install(self, install: Installation) -> None:
        self.order.extend(install.fresh)
        install.commit()
        self.primed += install.filled
        self.restored += install.restored
        self.views, self._installing = install.views, None
        self.sweep()

    def _abort_install(self, install: Installation) -> None:
        self._installing = None
        install.undo()
        self.sweep()

    def parts(self, transient: bool = True) -> Iterator[tuple[str, Operator, Callable[[], Image]]]:
        """All state there is: the key of each part, the operator that changes it, and what gives its image; what only
        views of subscriptions need is `transient`.

        A table is `table/<name>`; of other operators `op/<fingerprint>` is the state of its own, and
        `arranged/<fingerprint>` the relation of its output. `before` is called with the operator before either changes.
        """
        for name, scan in self.tables.items():
            yield f"table/{name}", scan, scan.image
        for op in self.order:
            if op.transient and not transient:
                continue
            if op.image():
                yield f"op/{op.fingerprint}", op, op.image
            if op.arranged is not None and not op.arranged.for_lookups:
                yield f"arranged/{op.fingerprint}", op, op.arranged.image

    def mark_words(self, marks: WordMarks) -> None:
        """Mark the words that any state refers to, between two epochs."""
        for scan in self.tables.values():
            scan.mark_words(marks)
        for op in self.order:
            op.mark_words(marks)
            if op.arranged is not None:
                op.arranged.mark_words(marks, op.schema.types)

    def sweep(self) -> None:
        """Drop operators, arrangements and indexes that nothing needs any more."""
        self._reached.clear()
        needed = upwards(list(self.views.values()))
        alive = {id(o) for o in needed}
        for op in self.order:
            op.dropped, op.replanned = id(op) not in alive, False
        self.order = [o for o in self.order if not o.dropped]
        wanted: dict[int, set[tuple[int, ...]]] = {id(o): set() for o in self.views.values() if not o.keeps_output}
        ranges: dict[int, set[tuple[int, ...]]] = {}
        for op in needed:
            for target, cols in op.needs():
                wanted.setdefault(id(target), set()).add(cols)
            for target, cols in op.range_needs():
                ranges.setdefault(id(target), set()).add(cols)
        for op in [*self.order, *self.tables.values()]:
            if op.arranged is None:
                continue
            keep = wanted.get(id(op), set())
            if isinstance(op, Scan):
                keep = keep | {op.key} if op.key else keep
            elif id(op) not in wanted and not op.arranged.for_lookups:
                op.arranged = None
                continue
            keep = keep | op.arranged.lookups.kept
            for cols in list(op.arranged.indexes):
                if cols not in keep:
                    op.arranged.drop_index(cols)
            op.arranged.drop_ranges(ranges.get(id(op), ()))
        self._holds = _holds_among(self.order)
        self._checkpointed = [op for op in self.order if isinstance(op, Retain) and op.checkpoints is not None]
        self._ships = {op.channel: op for op in self.order if isinstance(op, Ship)}
        self._iterative = [op for op in self.order if has_peers(op)]
        self.outside_lookups = _outside_among(self.order)
        used = {id(op.tracer) for op in self.order}
        self.tracers = {tracing: tracer for tracing, tracer in self.tracers.items() if id(tracer) in used}

    def declare_indexes(self, wanted: Mapping[str, Collection[tuple[int, ...]]]) -> None:
        """Have exactly these indexes declared, by the names of tables and views; between two epochs."""
        ops = {**self.tables, **self.views}
        columns: dict[int, set[tuple[int, ...]]] = {}
        for name, op in ops.items():  # two views may have one operator
            columns.setdefault(id(op), set()).update(wanted.get(name, ()))
        for op in ops.values():
            declare_indexes(op, columns[id(op)])

    # -- epochs ------------------------------------------------------------------------------------------------------

    def pending(self) -> dict[HoldKey, int]:
        """Return how many rows wait before held views, where any do."""
        holds_now = self._holds
        if self._installing is not None:
            holds_now = _holds_among(upwards(list(self._installing.views.values())))
        found = {key: sum(hold.pending_rows for hold in holds) for key, holds in holds_now.items()}
        return {key: rows for key, rows in found.items() if rows}

    def release(self, keys: Iterable[HoldKey]) -> None:
        """Let the next run, of all its stages, release what is pending, together with what it brings."""
        for key in keys:
            for hold in self._holds.get(key, ()):
                hold.releasing = True
                self._releasing.append(hold)

    def run(
        self, deltas: Mapping[str, Batch], promise: Promise | None = None, wanted: Collection[str] | None = None
    ) -> dict[str, Batch]:
        """Push the tables' deltas through, and then a promise, without peers; return the consolidated change of each
        view that changed and is `wanted`: each by default."""
        outs, self.row_counts = self._outs, {}
        self._take(deltas)
        if promise is not None:
            self._arrive(promise)
        if self._promise is None and not outs and not self._releasing:
            return {}
        steps, views = self._reach(tuple(deltas)) if self._promise is None else self._everything()
        if wanted is None:
            wanted = self.views
        self._follow(steps, {id(op) for name, op in views if name in wanted} if wanted else ())
        sizes = self._sizes
        changed = [(name, id(op)) for name, op in views if id(op) in sizes]
        self.row_counts = {name: sizes[op] for name, op in changed}
        return {name: outs[op] for name, op in changed if name in wanted and op in outs} if wanted else {}

    def _everything(self) -> tuple[list[_Step], list[tuple[str, Operator]]]:
        return [_Step(op, op.inputs) for op in self.order], list(self.views.items())

    def _reach(self, tables: tuple[str, ...]) -> tuple[list[_Step], list[tuple[str, Operator]]]:
        """Return the steps, in their order, and the views that changes of these tables can reach."""
        key = (*tables, *(hold.key for hold in self._releasing))
        found = self._reached.get(key)
        if found is None:
            if len(self._reached) >= _REMEMBERED:
                self._reached.clear()
            below, steps, folded = {id(self.tables[name]) for name in tables}, [], self._folded()
            for op in self.order:
                waits = isinstance(op, Hold) and not op.releasing
                if any(id(i) in below for i in op.inputs) or (isinstance(op, Hold) and op.releasing):
                    if not waits:
                        below.add(id(op))
                    if id(op) not in folded:
                        steps.append(_step_of(op, folded))
            views = [(name, op) for name, op in self.views.items() if id(op) in below]
            found = self._reached[key] = _with_ends(_with_selections(steps)), views
        return found

    def _folded(self) -> set[int]:
        """Return the linear operators that one operator alone reads, and that need not run by themselves."""
        readers = Counter(id(i) for op in self.order for i in op.inputs)
        views = {id(op) for op in self.views.values()}
        kept = views | {id(i) for op in self.order if op.follows or op.tracer is not None for i in op.inputs}
        return {
            id(op)
            for op in self.order
            if op.linear and op.arranged is None and readers[id(op)] == 1 and id(op) not in kept
        }

    def run_stage(
        self,
        stage: int,
        deltas: Mapping[str, Batch],
        received: Mapping[str, Batch],
        promise: Promise | None = None,
    ) -> list[PartitionMessage]:
        """Run one stage with the tables' deltas and a promise (at first), and what other partitions sent; return what
        is to be sent on."""
        if self._installing is not None:
            return self._install_stage(self._installing, stage, received)
        ran = self._ran
        before = len(ran)
        self._take(deltas)
        if promise is not None:
            self._arrive(promise)
        for ship, batch in self._for_ships(received):
            with blamed(ship):
                self._deliver(ship, batch)
        for op in self._iterative:
            if op.stage + op.delay == stage and op in ran:
                with blamed(op):
                    op.finish()
        self._follow([_Step(op, op.inputs) for op in self.order if op.stage == stage and op not in ran])
        sent = self._shipped(list(ran)[before:], stage)
        for op in self._iterative:
            phase = stage - op.stage
            if 0 <= phase < op.delay and ((mail := _mail(op, received)) or op.waits(phase)):
                if op not in ran:
                    self.touch(op)
                    ran[op] = None
                with blamed(op):
                    sent += self._sent(op, stage, op.work(phase, mail))
        return sent

    def waits(self, stage: int) -> int | None:
        """Return the next stage after this one that has something to do with what is here already."""
        if self._installing is not None:
            return self._installing.after(stage)
        phases = (
            op.stage + phase
            for op in self._iterative
            if op in self._ran
            for phase in range(1, op.delay)
            if op.stage + phase > stage and op.waits(phase)
        )
        found = min(phases, default=None)
        for op in self.order:
            if op.stage > stage and (found is None or op.stage < found) and op not in self._ran and self._is_ready(op):
                found = op.stage
        return found

    def changes(self, stage: int) -> dict[str, Batch]:
        """Return what views have changed by in a stage."""
        found = ((name, op) for name, op in self.views.items() if op.stage + op.delay == stage)
        return {name: out for name, op in found if (out := self._outs.get(id(op))) is not None}

    def _take(self, deltas: Mapping[str, Batch]) -> None:
        for name, delta in deltas.items():
            if len(delta.ann):
                self._step(self.tables[name], [delta])

    def reaches_operators(self, promise: Promise) -> bool:
        """Return whether a promise concerns any operator; else it only moves horizons, which costs nothing here."""
        return any(reaches(promise, op) for op in self.order)

    def _arrive(self, promise: Promise) -> None:
        """Let the streams of a promise know that it has arrived."""
        self._promise = promise if self.reaches_operators(promise) else None
        for name in promise.columns:
            scan = self.tables[name]
            self.touch(scan)
            self._ran[scan] = None
            scan.kept.reach(promise.at)  # type: ignore[attr-defined]  # only streams are promised of

    def _is_ready(self, op: Operator) -> bool:
        """Return whether an operator has something to do."""
        if self._promise is not None and reaches(self._promise, op):
            return True
        if op.follows:
            return any(i in self._ran for i in op.inputs)
        return op.is_due or any(id(i) in self._outs for i in op.inputs)

    def _follow(self, steps: Iterable[_Step], kept: Collection[int] = ()) -> None:
        """Run the operators, in their order, that have something to do. Batches that nothing will take are let go of,
        unless they are to be `kept`."""
        ran, outs, promise = self._ran, self._outs, self._promise
        watched = has_budget()
        decided: dict[Selections, dict[int, Batch]] = {}
        for op, sources, through, done, selected in steps:
            if watched:
                reach(f"running the epoch: {len(ran)} operators")
            ins = [outs.get(id(i)) for i in sources]
            if selected is not None:
                (batch,), (selections, select) = ins, selected
                if batch is None:
                    continue
                found = decided.get(selections)
                if found is None:
                    found = decided[selections] = selections.apply(batch)
                if select not in found:
                    continue
                ins = [found[select]]
            if through is not None:
                try:
                    ins = [
                        _passed(batch, way) if batch is not None else None
                        for batch, way in zip(ins, through, strict=True)
                    ]
                except WhenceError as error:
                    blame(error, op)
                    raise
            if promise is not None and reaches(promise, op):
                pass
            elif op.follows:
                if not any(i in ran for i in op.inputs):
                    continue
            elif ins.count(None) == len(ins) and not op.is_due:
                continue
            try:
                self._step(
                    op, [Batch.empty(len(i.schema)) if d is None else d for i, d in zip(op.inputs, ins, strict=True)]
                )
            except WhenceError as error:
                blame(error, op)
                raise
            for source in done:
                if source not in kept:
                    outs.pop(source, None)

    def touch(self, op: Operator) -> None:
        """Note that an operator's state is about to change."""
        if self.before is not None:
            self.before(op)
        op.changed = True

    def _step(self, op: Operator, deltas: list[Batch]) -> None:
        if self.before is not None:
            self.before(op)
        op.changed = True
        self._ran[op] = None
        began = perf_counter()
        out = op.apply(deltas)
        op.seconds += perf_counter() - began
        op.runs += 1
        for delta in deltas:
            op.rows_in += len(delta.ann)
        op.rows_out += len(out.ann)
        promise = self._promise
        if promise is not None and isinstance(op, (Window, BSort, Latest)) and reaches(promise, op):
            more = op.promise(promise.bound, promise.at)  # type: ignore[arg-type]  # a flush does not reach Latest
            if len(out.ann):
                more = Batch(np.concatenate((out.rows, more.rows)), np.concatenate((out.ann, more.ann)))
            out = more
        if not len(out.ann):
            return
        if op.arranged is not None:
            out = consolidate(out)
            if not len(out.ann):
                return
            self._changed.append(op.arranged)
            op.arranged.add(out)
        self._outs[id(op)] = out
        self._sizes[id(op)] = len(out.ann)

    def commit(self) -> None:
        """Keep what the last run, or the installation, did."""
        if self._installing is not None:
            self._end_install(self._installing)
        replanned = False
        for op in self._ran:
            op.commit()
            replanned = replanned or op.replanned
            if self.warns and isinstance(op, StreamOperator) and not op.transient:
                warn_of_late_rows(self.views, op)
        for relation in self._changed:
            relation.commit()
        if self._ships or self._iterative:
            senders: list[Ship | IterativeOperator] = [*self._ships.values(), *self._iterative]
            for sender in senders:
                sender.shipped = sender.shipped.after(self._traffic.get(sender.fingerprint, Traffic()))
        self._end_run()
        if replanned:
            self.sweep()
        for tracer in self.tracers.values():
            # What was dropped while a snapshot waits for it is not renamed, so nothing is until it has been copied.
            if tracer.grown and self.before is None:
                streams = [op for op in self.order if isinstance(op, StreamOperator) and op.tracer is tracer]
                tracer.collect([column for op in streams for column in op.held()])
        for view in self._checkpointed:
            if view.checkpoints is not None and view.checkpoints.due:
                self.touch(view)
                view.checkpoints.take(view.kept.next)

    def undo(self) -> None:
        """Undo the last run, whether it returned or raised, or an installation. If a part fails to, the others still
        do, and the first error is raised when they have."""
        if self._installing is not None:
            self._abort_install(self._installing)
        parts: list[Operator | Relation] = [*reversed(self._ran), *reversed(self._changed)]
        self._end_run()
        failed: BaseException | None = None
        for part in parts:
            try:
                part.undo()
            except BaseException as error:
                failed = failed or error
        if failed is not None:
            raise failed

    def _end_run(self) -> None:
        self._ran, self._changed, self._outs, self._sizes = {}, [], {}, {}
        for hold in self._releasing:
            hold.releasing = False
        self._releasing = []
        self._traffic, self._promise = {}, None

    @property
    def state_bytes(self) -> int:
        own = sum(op.state_bytes for op in [*self.tables.values(), *self.order])
        traced = sum(tracer.nbytes for tracer in self.tracers.values())
        return own + traced + sum(op.arranged.nbytes for op in self.order if op.arranged is not None)

    # -- messages ----------------------------------------------------------------------------------------------------

    def _for_ships(self, received: Mapping[str, Batch]) -> list[tuple[Ship, Batch]]:
        """Return what is not for a recursion; KeyError if it is for no operator."""
        others = {channel for op in self._iterative for channel in op.channels}
        return [(self._ships[channel], batch) for channel, batch in received.items() if channel not in others]

    def _deliver(self, ship: Ship, batch: Batch) -> None:
        batch = ship.received(batch)
        if not len(batch.ann):
            return
        if self._promise is not None and ship.ordered and (batch.rows[:, -1] == self._promise.at).sum() > 1:
            raise WhenceError(
                "advance and flush close windows of several keys at once, and a view takes their results in order: in "
                "partitions they have none. Group that view by the key, or open the database without partitions"
            )
        self.touch(ship)
        if ship.arranged is not None:
            self._changed.append(ship.arranged)
            ship.arranged.add(batch)
        self._outs[id(ship)] = batch

    def _install_stage(
        self, install: Installation, stage: int, received: Mapping[str, Batch]
    ) -> list[PartitionMessage]:
        for ship, batch in self._for_ships(received):
            install.receive(ship, batch)
        sent = self._shipped(install.fill(stage), stage)
        for op in install.fresh:
            if has_peers(op) and 0 <= stage - op.stage < op.delay:
                sent += self._sent(op, stage, op.work(stage - op.stage, _mail(op, received)))
        return sent

    def _shipped(self, ran: Iterable[Operator], stage: int) -> list[PartitionMessage]:
        out = []
        for op in ran:
            if isinstance(op, Ship):
                out += self._sent(op, stage + 1, [message_of_rows(op.channel, to, b) for to, b in op.send().items()])
        return out

    def _sent(self, op: Operator, stage: int, messages: list[PartitionMessage]) -> list[PartitionMessage]:
        for message in messages:
            traffic = counted(message, self.partition, self.partitions)
            self._traffic[op.fingerprint] = self._traffic.get(op.fingerprint, Traffic()).plus(traffic)
        return [message._replace(stage=stage) for message in messages]


def blame(error: WhenceError, op: Operator) -> None:
    """Note in an error that an operator which only views of subscriptions need failed on the rows."""
    if op.transient and not isinstance(error, (StorageError, QuestionTimeout)):
        error.transient = op.fingerprint


@contextmanager
def blamed(op: Operator) -> Iterator[None]:
    """Let an operator be blamed for what fails inside."""
    try:
        yield
    except WhenceError as error:
        blame(error, op)
        raise


def _outside_among(ops: Iterable[Operator]) -> list[OutsideLookup]:
    return [cast("OutsideLookup", op) for op in ops if op.outside]


def _holds_among(ops: Iterable[Operator]) -> dict[HoldKey, list[Hold]]:
    found: dict[HoldKey, list[Hold]] = {}
    for op in ops:
        if isinstance(op, Hold):
            found.setdefault(op.key, []).append(op)
    return found


def _mail(op: IterativeOperator, received: Mapping[str, Batch]) -> dict[str, Batch]:
    return {channel: batch for channel in op.channels if (batch := received.get(channel)) is not None}


def _tracer(tracing: Tracing) -> Tracer:
    if tracing.mode == "covering":
        from whence.annotate.covering import Covering  # most databases trace nothing

        return Covering(tracing.sources)
    from whence.annotate.lineage import Lineage

    return Lineage(tracing.sources, tracing.encoding)


def _step_of(op: Operator, folded: set[int]) -> _Step:
    """Return the step of an operator with what is folded into it."""
    sources, through = [], []
    for source in op.inputs:
        way: list[Operator] = []
        while id(source) in folded:
            way.insert(0, source)
            (source,) = source.inputs
        sources.append(source)
        through.append(way)
    return _Step(op, sources, through if any(through) else None)


def _with_selections(steps: list[_Step]) -> list[_Step]:
    """Return steps that know which selections from one operator are decided together."""
    from_one: dict[int, list[Select]] = {}
    for step in steps:
        if (select := _first_selection(step)) is not None:
            from_one.setdefault(id(step.sources[0]), []).append(select)
    together = {source: Selections(selects) for source, selects in from_one.items() if len(selects) > _FEW}
    return [_selected(step, together.get(id(step.sources[0]))) for step in steps]


def _selected(step: _Step, selections: Selections | None) -> _Step:
    """Return a step whose first selection, if it has one, is decided with others."""
    select = _first_selection(step)
    if select is None or selections is None or step.through is None:
        return step
    [[_, *rest]] = step.through
    return step._replace(through=[rest] if rest else None, selected=(selections, id(select)))


def _first_selection(step: _Step) -> Select | None:
    """Return the selection that the only batch of an operator passes first, if it can be decided with others."""
    if step.through is None or len(step.through) != 1 or not step.through[0] or step.op.follows:
        return None
    [[first, *_]] = step.through
    return first if isinstance(first, Select) and first.program is not None else None


def _with_ends(steps: list[_Step]) -> list[_Step]:
    """Return steps that know whose batches none of the later ones takes."""
    last: dict[int, int] = {}
    for place, step in enumerate(steps):
        last |= {id(op): place for op in (*step.sources, step.op)}
    done: list[list[int]] = [[] for _ in steps]
    for op, place in last.items():
        done[place].append(op)
    return [step._replace(done=tuple(ids)) for step, ids in zip(steps, done, strict=True)]


def _passed(batch: Batch, way: list[Operator]) -> Batch | None:
    """Return what linear operators make of a batch; None if nothing is left."""
    for op in way:
        batch = op.apply([batch])
        if not len(batch.ann):
            return None
    return batch
