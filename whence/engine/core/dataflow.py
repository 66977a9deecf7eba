"""The dataflow: operators in topological order, the views that read them, and the epoch that runs through them.

Invariant between epochs: every operator's state, every arrangement and every view equals its definition over the
tables. An operator whose inputs did not change is skipped. After `run` comes `commit` or `undo`; an error in `run`
leaves the caller to `undo`, which restores everything that ran. Operators live as long as a view needs them, an
arrangement or an index as long as an operator or a view does.

A new view's operators are primed from the contents of their inputs, or restored from images (`engine/core/image.py`)
that operators with the same fingerprints gave over the same tables.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from functools import partial

import numpy as np

from whence.annotate.tracing import Tracer
from whence.engine.core.arrangement import arrangement
from whence.engine.core.batch import consolidate
from whence.engine.core.image import Image, Images, StaleImage
from whence.engine.core.operator import Batch, Operator
from whence.engine.core.relation import Relation
from whence.engine.relational.scan import Scan
from whence.engine.streams.late import warn_of_late_rows
from whence.engine.streams.promise import Promise, reaches
from whence.engine.streams.retain import Retain
from whence.engine.streams.sort import BSort
from whence.engine.streams.stream import StreamOperator
from whence.engine.streams.stream_scan import StreamScan
from whence.engine.streams.windows.window import Window
from whence.model.errors import DataError
from whence.model.types import Schema
from whence.plan.streams.model import Retention, Tracing

log = logging.getLogger("whence")
Steps = Callable[[int, int, str], None]  # done, in all, what is being done


class Dataflow:
    """Tables in, views out."""

    def __init__(self) -> None:
        self.tables: dict[str, Scan] = {}  # and streams
        self.tracers: dict[Tracing, Tracer] = {}  # one for each way in which streams are traced
        self.views: dict[str, Operator] = {}
        self.order: list[Operator] = []  # topological; tables are not in it
        self.before: Callable[[Operator], None] | None = None  # told of an operator that is about to change
        self.restored = self.primed = 0  # operators that began from images, and from their inputs' contents
        self.recomputed: list[Operator] = []  # those that began so because images did not have them
        self._ran: list[Operator] = []
        self._changed: list[Relation] = []
        self._checkpointed: list[Retain] = []
        self.warns = True  # of the first rows that come too late for a view

    # -- the plan ----------------------------------------------------------------------------------------------------

    def table(self, name: str, schema: Schema, key: tuple[int, ...] = (), extra: int = 0) -> Scan:
        """Declare a table, with so many accumulators a row."""
        scan = self.tables[name] = Scan(name, schema, key, extra)
        return scan

    def stream(self, name: str, schema: Schema, retention: Retention) -> StreamScan:
        """Declare a stream of these columns; `$at` is added to them."""
        self.tables[name] = scan = StreamScan(name, schema, retention)
        return scan

    @property
    def streams(self) -> dict[str, StreamScan]:
        """The tables that are streams."""
        return {name: scan for name, scan in self.tables.items() if isinstance(scan, StreamScan)}

    @property
    def last_at(self) -> int:
        """When the last row, or promise, of any stream arrived."""
        return max((stream.kept.reached for stream in self.streams.values()), default=0)

    def tracer(self, tracing: Tracing) -> Tracer:
        """Return the tracer that all operators of one tracing share."""
        found = self.tracers.get(tracing)
        if found is None:
            found = self.tracers[tracing] = _tracer(tracing)
        return found

    def remove_table(self, name: str) -> None:
        del self.tables[name]

    def add_view(self, name: str, op: Operator, progress: Steps | None = None, images: Images | None = None) -> None:
        """Keep an operator's output as a view, restoring or filling what is new; on an error nothing has changed."""
        had = op.arranged
        try:
            if not op.keeps_output:
                arrangement(op)
            self._prime(op, progress, images)
        except BaseException:
            if had is None:
                op.arranged = None
            running = {id(o) for o in self.order}
            for new in upwards([op]):
                new.dropped = id(new) not in running and not isinstance(new, Scan)
            self.sweep()
            raise
        if op.arranged is not None:
            op.arranged.commit()
        self.views[name] = op

    def remove_view(self, name: str) -> None:
        """Forget a view and everything that only it needed."""
        del self.views[name]
        self.sweep()

    def _prime(self, op: Operator, progress: Steps | None, images: Images | None) -> None:
        fresh = [o for o in upwards([op]) if not o.primed]
        kept = BackfillInputs(fresh)
        for done, new in enumerate(fresh):
            if progress is not None:
                progress(done, len(fresh), new.describe())
                new.watch = partial(progress, done, len(fresh))
            if images is None or not self._restore(new, images):
                self._fill(new, kept)
                if images is not None:
                    self.recomputed.append(new)
            new.primed, new.watch = True, None
            kept.used_by(new)
        self.order.extend(fresh)
        if progress is not None:
            progress(len(fresh), len(fresh), "done")

    def _fill(self, new: Operator, kept: BackfillInputs) -> None:
        """The first run of an operator, over the contents of its inputs."""
        out = new.prime([kept.contents(i) for i in new.inputs])
        if new.arranged is not None:
            out = arrange(new, out)
        new.commit()
        kept.keep(new, out)
        self.primed += 1

    def _restore(self, op: Operator, images: Images) -> bool:
        """Begin from images; False, and nothing done, if the operator must be primed. One that keeps nothing has
        nothing to begin from, and gives its output when someone asks for it."""
        stateful, arranged = bool(op.image()), op.arranged
        if stateful and not _taken(op, images.get(f"op/{op.fingerprint}")):
            return False
        if arranged is not None:
            found = _taken(arranged, images.get(f"arranged/{op.fingerprint}"))
            if not found and not stateful:
                return False
            if not found:
                arrange(op, op.recompute())
            op.changed = not found
        elif stateful:
            op.changed = False
        self.restored += stateful or arranged is not None
        return True

    def parts(self) -> Iterator[tuple[str, Operator, Callable[[], Image]]]:
        """All state there is: the key of each part, the operator that changes it, and what gives its image.

        A table is `table/<name>`; of other operators `op/<fingerprint>` is the state of its own, and
        `arranged/<fingerprint>` the relation of its output. `before` is told of the operator before either changes.
        """
        for name, scan in self.tables.items():
            yield f"table/{name}", scan, scan.image
        for op in self.order:
            if op.image():
                yield f"op/{op.fingerprint}", op, op.image
            if op.arranged is not None:
                yield f"arranged/{op.fingerprint}", op, op.arranged.image

    def sweep(self) -> None:
        """Drop operators, arrangements and indexes that nothing needs any more."""
        needed = upwards(list(self.views.values()))
        alive = {id(o) for o in needed}
        for op in self.order:
            op.dropped = id(op) not in alive
        self.order = [o for o in self.order if not o.dropped]
        wanted: dict[int, set[tuple[int, ...]]] = {id(o): set() for o in self.views.values() if not o.keeps_output}
        for op in needed:
            for target, cols in op.needs():
                wanted.setdefault(id(target), set()).add(cols)
        for op in [*self.order, *self.tables.values()]:
            if op.arranged is None:
                continue
            keep = wanted.get(id(op), set())
            if isinstance(op, Scan):
                keep = keep | {op.key} if op.key else keep
            elif id(op) not in wanted:
                op.arranged = None
                continue
            keep = keep | set(op.arranged.lookups.built)
            for cols in list(op.arranged.indexes):
                if cols not in keep:
                    op.arranged.drop_index(cols)
        self._checkpointed = [op for op in self.order if isinstance(op, Retain) and op.checkpoints is not None]
        used = {id(op.tracer) for op in self.order}
        self.tracers = {tracing: tracer for tracing, tracer in self.tracers.items() if id(tracer) in used}

    # -- epochs ------------------------------------------------------------------------------------------------------

    def run(self, deltas: dict[str, Batch], promise: Promise | None = None) -> dict[str, Batch]:
        """Push the tables' deltas through, and then a promise; the consolidated change of each view that changed."""
        outs: dict[int, Batch] = {}
        self._take(deltas, outs)
        if promise is not None:
            self._arrive(promise)
        elif not outs:
            return {}
        self._follow(self.order, outs, promise)
        return {name: out for name, op in self.views.items() if (out := outs.get(id(op))) is not None}

    def _take(self, deltas: Mapping[str, Batch], outs: dict[int, Batch]) -> None:
        for name, delta in deltas.items():
            if len(delta.ann):
                self._step(self.tables[name], [delta], outs)

    def _arrive(self, promise: Promise) -> None:
        """Let the streams of a promise know that it has arrived."""
        for name in promise.columns:
            scan = self.tables[name]
            self.touch(scan)
            self._ran.append(scan)
            scan.kept.reach(promise.at)  # type: ignore[attr-defined]  # only streams are promised of

    def _follow(self, order: list[Operator], outs: dict[int, Batch], promise: Promise | None = None) -> None:
        """Run the operators, in their order, that have something to do."""
        ran = self._ran
        for op in order:
            inputs = op.inputs
            if promise is not None and reaches(promise, op):
                pass
            elif op.follows:
                if not any(i in ran for i in inputs):
                    continue
            else:
                for i in inputs:
                    if id(i) in outs:
                        break
                else:
                    continue
            ins = []
            for i in inputs:
                delta = outs.get(id(i))
                ins.append(delta if delta is not None else Batch.empty(len(i.schema)))
            self._step(op, ins, outs, promise)

    def touch(self, op: Operator) -> None:
        """An operator's state is about to change."""
        if self.before is not None:
            self.before(op)
        op.changed = True

    def _step(self, op: Operator, deltas: list[Batch], outs: dict[int, Batch], promise: Promise | None = None) -> None:
        self.touch(op)
        self._ran.append(op)
        out = op.apply(deltas)
        if promise is not None and isinstance(op, (Window, BSort)) and reaches(promise, op):
            more = op.promise(promise.bound, promise.at)
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
            op.arranged.apply(out)
        outs[id(op)] = out

    def commit(self) -> None:
        """Keep what the last run did."""
        for op in self._ran:
            op.commit()
            if self.warns and isinstance(op, StreamOperator):
                warn_of_late_rows(self.views, op)
        for relation in self._changed:
            relation.commit()
        self._ran, self._changed = [], []
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
        """Go back to before the last run, whether it returned or raised. If a part fails to, the others still do, and
        the first error is raised when they have."""
        parts: list[Operator | Relation] = [*reversed(self._ran), *reversed(self._changed)]
        self._ran, self._changed = [], []
        failed: BaseException | None = None
        for part in parts:
            try:
                part.undo()
            except BaseException as error:
                failed = failed or error
        if failed is not None:
            raise failed

    @property
    def state_bytes(self) -> int:
        own = sum(op.state_bytes for op in [*self.tables.values(), *self.order])
        traced = sum(tracer.nbytes for tracer in self.tracers.values())
        return own + traced + sum(op.arranged.nbytes for op in self.order if op.arranged is not None)


class BackfillInputs:
    """The contents of inputs, while operators that are being filled still need them."""

    def __init__(self, fresh: list[Operator]):
        self._left = {id(o): sum(o is i for f in fresh for i in f.inputs) for f in fresh for o in f.inputs}
        self._batches: dict[int, Batch] = {}

    def contents(self, op: Operator) -> Batch:
        if id(op) not in self._batches:
            self._batches[id(op)] = op.contents()
        return self._batches[id(op)]

    def keep(self, op: Operator, out: Batch) -> None:
        if self._left.get(id(op)):
            self._batches[id(op)] = out

    def keep_if_none(self, op: Operator, out: Batch) -> None:
        if id(op) not in self._batches:
            self.keep(op, out)

    def used_by(self, new: Operator) -> None:
        """An operator has been filled: let go of what nobody else waits for."""
        for i in new.inputs:
            self._left[id(i)] -= 1
            if not self._left[id(i)]:
                self._batches.pop(id(i), None)


def arrange(op: Operator, out: Batch) -> Batch:
    """Fill the empty arrangement of an operator with its output."""
    assert op.arranged is not None
    out = consolidate(out)
    op.arranged.apply(out)
    op.arranged.commit()
    return out


def _taken(target: Operator | Relation, image: Image | None) -> bool:
    """Whether there was an image, and it did."""
    if image is None:
        return False
    try:
        target.restore(image)
    except (StaleImage, DataError) as why:
        log.info("an image is not taken up: %s", why)
        return False
    return True


def _tracer(tracing: Tracing) -> Tracer:
    if tracing.mode == "covering":
        from whence.annotate.covering import Covering  # most databases trace nothing

        return Covering(tracing.sources)
    from whence.annotate.lineage import Lineage

    return Lineage(tracing.sources, tracing.encoding)


def upwards(ops: list[Operator]) -> list[Operator]:
    """The operators and all they read, inputs first."""
    out: list[Operator] = []
    seen: set[int] = set()
    stack: list[tuple[Operator, bool]] = [(op, False) for op in reversed(ops)]
    while stack:
        op, ready = stack.pop()
        if ready:
            out.append(op)
        elif id(op) not in seen:
            seen.add(id(op))
            stack.append((op, True))
            stack.extend((i, False) for i in reversed(op.inputs))
    return out
