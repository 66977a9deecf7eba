"""An instrumented copy of the network behind a view: the same plan, with sets of tids, in a dataflow of its own.

The plan is `plan/streams/replay.py`'s; a `StreamFeed` stands in for each stream that it reads. Operators of the copy
and of the running network are the same, one for one, apart from those that only pass rows on: so the images of one
restore the other.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from whence.engine.build import Builder
from whence.engine.core.dataflow import Dataflow
from whence.engine.core.image import Image, StaleImage, inside, nested
from whence.engine.core.operator import Batch, Operator, upwards
from whence.engine.streams.connection_point import ConnectionPoint
from whence.engine.streams.generate import DropProvenance, Generate
from whence.engine.streams.replay.align import Align
from whence.engine.streams.replay.checkpoints import Checkpoint, Checkpoints
from whence.engine.streams.retain import Retain
from whence.engine.streams.stream import StreamOperator
from whence.engine.streams.stream_scan import StreamScan
from whence.model.codes import Codes, Dictionary
from whence.model.errors import ExpiredError, ReplayError
from whence.plan.algebra.logical import Node, walk
from whence.plan.streams import model as nodes
from whence.plan.streams.model import Retention, without_at

CHUNK = 1 << 18  # arrivals of one run
RESULT = "result"
Sink = Callable[[Codes, Codes], None]  # takes rows that come out, and what they carry


class StreamFeed(StreamScan):
    """A substitute for a stream: passes on what it is given, and keeps nothing."""

    def apply(self, deltas: list[Batch]) -> Batch:
        return deltas[0]

    def commit(self) -> None:
        """Do nothing: there is no state."""


class NetworkReplica:
    """The copy of a view's query, empty; it is fed from the retained rows of the streams."""

    def __init__(
        self,
        view: str,
        query: Node,
        kept: Mapping[str, ConnectionPoint],
        dictionary: Dictionary,
        way_out: Callable[[], str] | None = None,
    ) -> None:
        """Copy the network; `way_out` is the advice of the error when rows that it needs are gone."""
        self.view, self._kept = view, kept
        self._way_out = way_out or (lambda: f"give {view} provenance = 'lineage'")
        self.flow = flow = Dataflow()
        flow.warns = False
        for node in walk(query):
            if isinstance(node, nodes.Stream):
                flow.tables[node.stream] = StreamFeed(node.stream, without_at(node.schema), Retention(rows=0))
        self.end = Builder(flow, dictionary, no_views).build(query)
        flow.views[RESULT] = self.end
        flow.order = [op for op in upwards([self.end]) if not isinstance(op, StreamScan)]
        for op in flow.order:
            op.primed = True
        assert self.end.tracer is not None
        self.tracer = self.end.tracer
        self.generators = [op for op in flow.order if isinstance(op, Generate)]

    def names(self) -> list[str]:
        """The streams that feed it."""
        return list(self.flow.tables)

    def start(self, nexts: dict[str, int]) -> None:
        """Start empty, before the row with the given tid of each stream."""
        for op in self.flow.order:
            if isinstance(op, StreamOperator):
                op.clear()
        for generator in self.generators:
            generator.next = nexts[_fed_by(generator)]

    def resume(self, running: Checkpoints, checkpoint: Checkpoint) -> dict[str, int]:
        """Restore the state of the running network at a checkpoint; return the next tid of each stream."""
        nexts = {_name_of(op): int(tid) for op, tid in zip(running.generators, checkpoint.nexts.tolist(), strict=True)}
        self.start(nexts)
        place = {id(op): n for n, op in enumerate(running.ops)}
        for theirs, mine in _pairs(running.end, self.end):
            image = checkpoint.images.get(place[id(theirs)])
            if image is not None:
                mine.restore(image)
        return nexts

    def feed(self, nexts: dict[str, int], upto: int, sink: Sink) -> None:
        """Run the copy over the rows from the given tids on, as far as they arrived until `upto`; advance the tids."""
        ends = self.check(nexts, upto)
        while any(nexts[name] < ends[name] for name in nexts):
            cut = upto
            for name, first in nexts.items():
                if ends[name] - first > CHUNK:
                    cut = min(cut, int(self._kept[name].between(first + CHUNK, first + CHUNK)[0][0, -1]))
            until = ends if cut == upto else {n: min(ends[n], self._kept[n].find_at(cut + 1)) for n in nexts}
            self.run(nexts, until, sink)
            nexts |= until
            self.flow.commit()

    def check(self, nexts: Mapping[str, int], upto: int) -> dict[str, int]:
        """Return the tids after the rows that arrived until `upto`; ExpiredError if rows from `nexts` on are gone."""
        for name, first in nexts.items():
            kept = self._kept[name]
            if first < kept.first and first < kept.next:
                raise ExpiredError(
                    f"{self.view} cannot be replayed: it needs {name} from tid {first:,} on, and {name} keeps its rows "
                    f"from {kept.first:,} on (retain = '{kept.retention.text}'); {self._way_out()}"
                )
        return {name: max(first, self._kept[name].find_at(upto + 1)) for name, first in nexts.items()}

    def run(self, nexts: Mapping[str, int], ends: Mapping[str, int], sink: Sink) -> int:
        """Run it once over the rows from `nexts` until before `ends`; return how many rows came out."""
        deltas = {}
        for name, first in nexts.items():
            if ends[name] > first:
                rows, _ = self._kept[name].between(first, ends[name] - 1)
                deltas[name] = Batch(rows, np.ones(len(rows), np.int64), True)
        out = self.flow.run(deltas).get(RESULT)
        if out is None or not len(out):
            return 0
        sink(out.rows, out.ann)
        return len(out)

    def image(self) -> Image:
        """Return the state of its operators, by their order."""
        found: Image = {}
        for number, op in enumerate(self.flow.order):
            found |= nested(str(number), op.image())
        return found

    def restore(self, image: Image) -> None:
        """Take the state from an image; StaleImage if it is of another copy."""
        for number, op in enumerate(self.flow.order):
            mine = inside(str(number), image)
            if bool(mine) != bool(op.image()):
                raise StaleImage("the state of another instrumented copy")
            if mine:
                op.restore(mine)


def _pairs(theirs: Operator, mine: Operator) -> list[tuple[Operator, Operator]]:
    """Pair the operators of the running network with their copies."""
    found, todo, seen = [], [(theirs, mine)], set()
    while todo:
        a, b = todo.pop()
        while isinstance(a, (Retain, DropProvenance, Align)):
            a = a.inputs[0]
        if (id(a), id(b)) in seen:
            continue
        seen.add((id(a), id(b)))
        if type(a) is not type(b):
            raise ReplayError(f"a copy cannot begin at a checkpoint: {a.describe()} was copied as {b.describe()}")
        found.append((a, b))
        if not isinstance(a, Generate):
            todo.extend(zip(a.inputs, b.inputs, strict=True))
    return found


def _fed_by(generator: Generate) -> str:
    feed = generator.inputs[0]
    assert isinstance(feed, StreamFeed)
    return feed.name


def _name_of(generator: Generate) -> str:
    """Return the stream or view that a generator of the running network reads."""
    read = generator.inputs[0]
    assert isinstance(read, (StreamScan, Retain))
    return read.name


def no_views(name: str) -> Operator:
    """Resolve the views of a plan that has none."""
    raise ReplayError(f"view {name} is not written out in the copy of a network")
