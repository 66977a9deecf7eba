"""Views on their way into a dataflow: operators that are new are restored from images, or filled stage by stage.

Law: an operator that has been filled is as if it had been there when the first row came. It is primed from the contents
of its inputs, or takes its state from the image (`engine/core/image.py`) that an operator of the same fingerprint gave
over the same tables. In stages, what a new Ship sends is the whole contents of its input. Until `commit` the dataflow's
views are as they were, and `undo` leaves no trace.
"""

from __future__ import annotations

import logging
from time import perf_counter

from whence.engine.core.arrangement import arrangement
from whence.engine.core.batch import consolidate
from whence.engine.core.image import Image, Images, StaleImage
from whence.engine.core.operator import Batch, Operator, upwards
from whence.engine.core.relation import Relation
from whence.engine.exchange.ship import Ship
from whence.engine.recursion.iterative import has_peers
from whence.engine.relational.hold import Hold
from whence.engine.relational.scan import Scan
from whence.engine.streams.stream import StreamOperator
from whence.model.budget import reach
from whence.model.errors import DataError
from whence.model.progress import Progress

log = logging.getLogger("whence")


class Installation:
    """The views that a dataflow is to keep, and what is new among their operators."""

    def __init__(self, views: dict[str, Operator], progress: Progress | None = None) -> None:
        self.views = views
        self.fresh = [op for op in upwards(list(views.values())) if not op.primed]
        for op in self.fresh:
            op.stage = max((i.stage + i.delay for i in op.inputs), default=0)
        self._new = set(map(id, self.fresh))
        self._arranged = [op for op in views.values() if op.arranged is None and not op.keeps_output]
        for op in self._arranged:
            arrangement(op)
        self.restored = self.filled = 0  # operators
        self._contents = BackfillInputs(self.fresh)
        self._progress = _FillProgress(progress, views) if progress is not None else None

    def restore(self, images: Images, alone: bool) -> list[Operator]:
        """Begin all operators from images; return those that had to be computed. Where that is not `alone` a matter of
        this partition, or takes the past of a stream, StaleImage is raised instead."""
        computed = []
        astray: set[int] = set()  # what lies behind a hold whose pending rows are lost: its image is of other inputs
        for op in self.fresh:
            self._begin(op)
            behind = any(id(i) in astray for i in op.inputs)
            if behind or not self._restored(op, images):
                if behind or isinstance(op, Hold):
                    astray.add(id(op))
                if not alone and (_is_remote(op) or not all(i.is_readable for i in op.inputs)):
                    raise StaleImage(f"there is no image of {op.describe()}")
                self._fill(op)
                computed.append(op)
            self._end(op)
        return computed

    def fill(self, stage: int) -> list[Operator]:
        """Fill the operators of a stage; return them."""
        now = [op for op in self.fresh if op.stage == stage and not op.primed]
        for done, op in enumerate(now):
            reach("filling operators", done, len(now))
            self._begin(op)
            for i in op.inputs:
                if isinstance(i, Ship) and id(i) in self._new:
                    self._contents.keep_if_none(i, Batch.empty(len(i.schema)))
            if isinstance(op, Ship) or has_peers(op):
                op.prime([self._contents.of(i) for i in op.inputs])
            else:
                self._fill(op)
            self._end(op)
        return now

    def receive(self, ship: Ship, batch: Batch) -> None:
        """Take what other partitions sent as the contents of a Ship."""
        batch = ship.received(batch)
        self._contents.keep(ship, _arrange(ship, batch) if ship.arranged is not None else batch)

    def after(self, stage: int) -> int | None:
        """Return the next stage that fills something."""
        stages = [o.stage + p for o in self.fresh for p in range(o.delay if has_peers(o) else 1)]
        return min((s for s in stages if s > stage), default=None)

    def commit(self) -> None:
        """Keep what has been filled."""
        for op in self._arranged:
            assert op.arranged is not None
            op.arranged.commit()
        for op in self.fresh:
            if has_peers(op):
                op.commit()

    def undo(self) -> None:
        """Drop what is new."""
        for op in self._arranged:
            if id(op) not in self._new:
                op.arranged = None
        for op in self.fresh:
            op.dropped = not isinstance(op, Scan)

    def _begin(self, op: Operator) -> None:
        if self._progress is not None:
            self._progress.begin(op)

    def _end(self, op: Operator) -> None:
        op.primed, op.watch = True, None
        self._contents.used_by(op)
        if self._progress is not None:
            self._progress.end(op)

    def _fill(self, op: Operator) -> None:
        """Run an operator for the first time, over the contents of its inputs."""
        inputs, began = [self._contents.of(i) for i in op.inputs], perf_counter()
        out = op.prime(inputs)
        seconds, rows_in = perf_counter() - began, sum(len(each.ann) for each in inputs)
        if rows_in or len(out.ann):
            op.runs, op.seconds = op.runs + 1, op.seconds + seconds
            op.rows_in, op.rows_out = op.rows_in + rows_in, op.rows_out + len(out.ann)
        if op.arranged is not None:
            out = _arrange(op, out)
        op.commit()
        self._contents.keep(op, out)
        self.filled += 1

    def _restored(self, op: Operator, images: Images) -> bool:
        """Begin from images; return False, with nothing done, if the operator must be primed. One that keeps nothing
        has nothing to begin from, and computes its output when it is asked for."""
        stateful, arranged = bool(op.image()), op.arranged
        if stateful and not _taken(op, images.get(f"op/{op.fingerprint}")):
            return False
        if arranged is not None:
            found = _taken(arranged, images.get(f"arranged/{op.fingerprint}"))
            if not found and not stateful:
                return False
            if not found:
                _arrange(op, op.recompute())
            op.changed = not found
        elif stateful:
            op.changed = False
        self.restored += stateful or arranged is not None
        return True


class BackfillInputs:
    """The contents of inputs, while operators that are being filled still need them."""

    def __init__(self, fresh: list[Operator]):
        self._left: dict[int, int] = {}
        for op in fresh:
            for i in op.inputs:
                self._left[id(i)] = self._left.get(id(i), 0) + 1
        self._batches: dict[int, Batch] = {}

    def of(self, op: Operator) -> Batch:
        """Return all rows of an operator's output."""
        if id(op) not in self._batches:
            self._batches[id(op)] = op.contents()
        return self._batches[id(op)]

    def keep(self, op: Operator, out: Batch) -> None:
        if self._left.get(id(op)):
            self._batches[id(op)] = out

    def keep_if_none(self, op: Operator, out: Batch) -> None:
        if id(op) not in self._batches:
            self.keep(op, out)

    def used_by(self, op: Operator) -> None:
        """Let go of what no operator needs after this one has been filled."""
        for i in op.inputs:
            self._left[id(i)] -= 1
            if not self._left[id(i)]:
                self._batches.pop(id(i), None)


class _FillProgress:
    """Reports how many of a view's new operators have been filled, and how far a long first run has come."""

    def __init__(self, progress: Progress, views: dict[str, Operator]) -> None:
        self._progress = progress
        self._places: dict[int, tuple[str, int, int]] = {}  # the view that needs it first; its place; of how many
        for name, top in views.items():
            fresh = [op for op in upwards([top]) if not op.primed and id(op) not in self._places]
            self._places |= {id(op): (name, place, len(fresh)) for place, op in enumerate(fresh)}

    def begin(self, op: Operator) -> None:
        name, place, total = self._places[id(op)]
        self._progress(name, place, total)
        op.watch = lambda what: self._progress(f"{name}: {what}" if what.endswith("rows") else name, place, total)

    def end(self, op: Operator) -> None:
        name, place, total = self._places[id(op)]
        if place + 1 == total:
            self._progress(name, total, total)


def _is_remote(op: Operator) -> bool:
    return isinstance(op, (Ship, StreamOperator)) or has_peers(op)


def _arrange(op: Operator, out: Batch) -> Batch:
    """Fill the empty arrangement of an operator with its output."""
    assert op.arranged is not None
    out = consolidate(out)
    op.arranged.apply(out)
    op.arranged.commit()
    return out


def _taken(target: Operator | Relation, image: Image | None) -> bool:
    """Restore from an image; return whether there was one that fits."""
    if image is None:
        return False
    try:
        target.restore(image)
    except (StaleImage, DataError) as why:
        log.info("an image is not taken up: %s", why)
        return False
    return True
