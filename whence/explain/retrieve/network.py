"""An instrumented copy of the network behind a view: the same plan, with sets of tids, in a dataflow of its own.

Views in between are written out, down to the streams that the view is traced from (of one that is not traced, down to
the base streams); a `Feed` stands in for each of those. Operators of the copy and of the running network are the same,
one for one, apart from those that only pass rows on: so the images of one restore the other.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

import numpy as np

from whence.annotate.counting import COUNTING
from whence.annotate.tracing import Tracer
from whence.engine.align import Align
from whence.engine.build import Builder
from whence.engine.checkpoints import Checkpoint, Checkpoints
from whence.engine.generate import Generate, Plain
from whence.engine.graph import Dataflow, upwards
from whence.engine.operator import Batch, Operator
from whence.engine.retain import Retain
from whence.engine.stream import StreamOperator
from whence.engine.stream_scan import StreamScan
from whence.errors import CatalogError, ExpiredError, ReplayError
from whence.explain.retrieve.site import Site
from whence.model.codes import Codes
from whence.plan import stream_model as nodes
from whence.plan.functions import volatile_in
from whence.plan.logical import Node, Ref, walk
from whence.plan.rewrite import optimize
from whence.plan.rewrite.inputs import with_inputs
from whence.plan.stream_model import Retention, Tracing, without_at

LINEAGE = Tracing("lineage")
CHUNK = 1 << 18  # arrivals of one run
RESULT = "result"
Sink = Callable[[Codes, Codes], None]  # takes rows that come out, and what they carry


class Feed(StreamScan):
    """Stands in for a stream: passes on what it is given, and keeps nothing."""

    def apply(self, deltas: list[Batch]) -> Batch:
        return deltas[0]

    def commit(self) -> None:
        """There is nothing to keep."""


class Copy:
    """The copy, empty; it is fed from what the streams keep."""

    def __init__(self, site: Site, view: str, query: Node | None = None) -> None:
        self.site, self.view = site, view
        self.sources = sources_of(site, view)
        query = query if query is not None else copied(view, site, self.sources)
        self.flow = flow = Dataflow()
        for node in walk(query):
            if isinstance(node, nodes.Stream):
                flow.tables[node.stream] = Feed(node.stream, without_at(node.schema), Retention(rows=0), COUNTING)
        self.end = Builder(flow, site.dictionary, nothing).build(query)
        flow.views[RESULT] = self.end
        flow.order = [op for op in upwards([self.end]) if not isinstance(op, StreamScan)]
        for op in flow.order:
            op.primed = True
        self.tracer = cast(Tracer, self.end.algebra)
        self.generators = [op for op in flow.order if isinstance(op, Generate)]

    def names(self) -> list[str]:
        """The streams that feed it."""
        return list(self.flow.tables)

    def start(self, nexts: dict[str, int]) -> None:
        """Be empty, before the row with the given tid of each stream."""
        for op in self.flow.order:
            if isinstance(op, StreamOperator):
                op.clear()
        for generator in self.generators:
            generator.next = nexts[_fed_by(generator)]

    def resume(self, running: Checkpoints, checkpoint: Checkpoint) -> dict[str, int]:
        """Be as the running network was at a checkpoint; the next tid of each stream."""
        nexts = {_name_of(op): int(tid) for op, tid in zip(running.generators, checkpoint.nexts.tolist(), strict=True)}
        self.start(nexts)
        place = {id(op): n for n, op in enumerate(running.ops)}
        for theirs, mine in _pairs(running.end, self.end):
            image = checkpoint.images.get(place[id(theirs)])
            if image is not None:
                mine.restore(image)
        return nexts

    def feed(self, nexts: dict[str, int], upto: int, sink: Sink) -> None:
        """Run it over the rows from the given tids on, as far as they arrived until `upto`; the tids move on."""
        kept = {name: self.site.kept(name) for name in nexts}
        for name, first in nexts.items():
            if first < kept[name].first and first < kept[name].next:
                raise ExpiredError(
                    f"{self.view} cannot be replayed: it needs {name} from tid {first:,} on, and {name} keeps its rows "
                    f"from {kept[name].first:,} on (retain = '{kept[name].retention.text}'); "
                    f"{self.site.recreated(self.view, 'lineage')}"
                )
        ends = {name: kept[name].find_at(upto + 1) for name in nexts}
        while any(nexts[name] < ends[name] for name in nexts):
            cut = upto
            for name, first in nexts.items():
                if ends[name] - first > CHUNK:
                    cut = min(cut, int(kept[name].between(first + CHUNK, first + CHUNK)[0][0, -1]))
            deltas = {}
            for name, first in nexts.items():
                end = ends[name] if cut == upto else min(ends[name], kept[name].find_at(cut + 1))
                if end > first:
                    rows, _ = kept[name].between(first, end - 1)
                    deltas[name] = Batch(rows, np.ones(len(rows), np.int64), True)
                    nexts[name] = end
            out = self.flow.run(deltas).get(RESULT)
            if out is not None and len(out):
                sink(out.rows, out.ann)
            self.flow.commit()


def sources_of(site: Site, view: str) -> tuple[str, ...]:
    """The streams that the results of a view are traced from, or would be."""
    traces = site.traces(view)
    return traces.sources if traces is not None else tuple(s for s in site.upstream(view) if site.is_stream(s))


def copied(view: str, site: Site, sources: tuple[str, ...]) -> Node:
    """The query of a stream view, with generators of sets of tids at the sources and at other streams."""

    def copy(node: Node) -> Node:
        match node:
            case nodes.Stream():
                source = node.stream if node.stream in sources else None
                return nodes.Generate(node.schema, node, source, LINEAGE)
            case nodes.Generate(input=nodes.Stream(stream=name)) | nodes.Generate(input=Ref(view=name)):
                return nodes.Generate(node.schema, nodes.Stream(node.schema, name), node.source, LINEAGE)
            case Ref():
                return whole(node.view)
            case nodes.Retain() | nodes.Plain() | nodes.Align():
                return copy(node.inputs[0])
            case nodes.Lookup():
                raise CatalogError(
                    f'"{view}" joins a stream with a relation as it was when each row came, which cannot be replayed: '
                    "make it WITH (provenance = 'lineage') to have what is behind its results"
                )
            case nodes.Traced() | nodes.Relate() | nodes.Latest():
                raise CatalogError(f'"{view}" reads provenance(), which cannot be replayed: ask of the view it is of')
        return with_inputs(node, [copy(child) for child in node.inputs])

    def whole(name: str) -> Node:
        query = site.planned.views[name].query
        called = volatile_in(query)
        if called is not None:
            raise CatalogError(
                f'"{view}" calls {called}, which is declared with deterministic=False and cannot be replayed: make it '
                "WITH (provenance = 'lineage') to have what is behind its results"
            )
        return copy(optimize(query))

    return whole(view)


def _pairs(theirs: Operator, mine: Operator) -> list[tuple[Operator, Operator]]:
    """The operators of the running network, each with its copy."""
    found, todo, seen = [], [(theirs, mine)], set()
    while todo:
        a, b = todo.pop()
        while isinstance(a, (Retain, Plain, Align)):
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
    assert isinstance(feed, Feed)
    return feed.name


def _name_of(generator: Generate) -> str:
    """The stream or view that a generator of the running network reads."""
    read = generator.inputs[0]
    assert isinstance(read, (StreamScan, Retain))
    return read.name


def nothing(name: str) -> Operator:
    """Resolves the views of a plan that has none."""
    raise ReplayError(f"view {name} is not written out in the copy of a network")
