"""An instrumented copy of a chain that starts cold: stretches of one stream side by side, each in its own windows.

The copy's rows have one more column, the stretch they are of, and every window is by it: so nothing has to be forgotten
between two stretches, and all of them go through the operators together, in as few batches as they fill.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from whence.engine.build import Builder
from whence.engine.core.dataflow import Dataflow
from whence.engine.core.operator import Batch, upwards
from whence.engine.streams.connection_point import ConnectionPoint
from whence.engine.streams.replay.ragged import ranges
from whence.engine.streams.replay.replica import CHUNK, RESULT, Sink, StreamFeed, no_views
from whence.engine.streams.stream import StreamOperator
from whence.engine.streams.stream_scan import StreamScan
from whence.model.codes import Codes, Dictionary
from whence.model.types import BIGINT, Column, Schema
from whence.plan.algebra.expressions import Col, Expr, substitute
from whence.plan.algebra.logical import Lateral, Node, Project, Select
from whence.plan.streams import model as nodes
from whence.plan.streams.model import Retention, without_at
from whence.plan.streams.replay import LINEAGE

_STRETCH = Column("$stretch", BIGINT, nullable=False)


class ReplayChain:
    """The copy of a chain's query, fed from the retained rows of its stream."""

    def __init__(self, query: Node, kept: Mapping[str, ConnectionPoint], dictionary: Dictionary) -> None:
        stream, self.source, query = _split_chain(query)
        self.name, self.kept = stream.stream, kept[stream.stream]
        self.flow = flow = Dataflow()
        flow.warns = False
        self.tracer = flow.tracer(LINEAGE)
        self._feed = StreamFeed(self.name, without_at(stream.schema), Retention(rows=0))
        self._feed.tracer = self.tracer  # what it passes on is annotated
        flow.tables[self.name] = self._feed
        end = Builder(flow, dictionary, no_views).build(query)
        flow.views[RESULT] = end
        flow.order = [op for op in upwards([end]) if not isinstance(op, StreamScan)]

    def run(self, firsts: Codes, ends: Codes, sink: Sink) -> int:
        """Run the copy, empty at first, over stretches of tids, each up to its end; return the number of rows."""
        for op in self.flow.order:
            if isinstance(op, StreamOperator):
                op.clear()
        sizes = ends - firsts
        tids, stretch = ranges(firsts, sizes), np.repeat(np.arange(len(firsts)), sizes)
        for start in range(0, len(tids), CHUNK):
            some = tids[start : start + CHUNK]
            rows = self.kept.at(some)
            fed = np.empty((len(some), rows.shape[1] + 1), np.int64)
            fed[:, :-2], fed[:, -2], fed[:, -1] = rows[:, :-1], stretch[start : start + CHUNK], rows[:, -1]
            delta = Batch(fed, self.tracer.generate(self.source, some), True)
            out = self.flow.run({self.name: delta}).get(RESULT)
            if out is not None and len(out):
                sink(np.delete(out.rows, -2, axis=1), out.ann)
            self.flow.commit()
        return len(tids)


def _split_chain(query: Node) -> tuple[nodes.Stream, str, Node]:
    """Return the stream of a chain with the number of the stretch, its name as a source, and the query over it.

    The number stands before `$at` wherever that stands last; other columns keep their order."""
    match query:
        case nodes.Generate(input=nodes.Stream() as stream, source=str() as source):
            schema = Schema((*stream.schema.columns[:-1], _STRETCH, stream.schema.columns[-1]))
            leaf = nodes.Stream(schema, stream.stream)
            return leaf, source, leaf
    (below,) = query.inputs
    stream, source, under = _split_chain(below)
    place = under.schema.columns.index(_STRETCH)

    def moved(index: int) -> int:
        return index + (index >= place)

    def over(expr: Expr) -> Expr:
        return substitute(expr, lambda c: Col(c.type, moved(c.index)))

    match query:
        case Select():
            return stream, source, Select(under.schema, under, over(query.predicate))
        case Project():
            exprs = [over(e) for e in query.exprs]
            exprs.insert(-1, Col(BIGINT, place))
            columns = query.schema.columns
            return stream, source, Project(Schema((*columns[:-1], _STRETCH, columns[-1])), under, tuple(exprs))
        case Lateral():
            more = query.schema.columns[len(below.schema) :]
            schema, args = Schema((*under.schema.columns, *more)), tuple(map(over, query.args))
            return stream, source, Lateral(schema, under, query.name, query.function, args)
        case nodes.Window():
            return stream, source, _window(query, under, place)
    raise TypeError(f"{type(query).__name__} is in no chain")


def _window(window: nodes.Window, under: Node, place: int) -> Node:
    """Return the window by stretches, with its columns in the old order."""
    keys = tuple(k + (k >= place) for k in window.keys)
    aggs = tuple(a if a.column is None else replace(a, column=a.column + (a.column >= place)) for a in window.aggs)
    on = window.span.on
    span = replace(window.span, by=(place,), on=None if on is None else on + (on >= place))
    columns = window.schema.columns
    schema = Schema((*columns[: len(keys)], _STRETCH, *columns[len(keys) :]))
    made = nodes.Window(schema, under, span, (*keys, place), aggs, window.owner)
    back = [*range(len(keys)), *range(len(keys) + 1, len(schema) - 1), len(keys), len(schema) - 1]
    exprs = tuple(Col(schema.types[i], i) for i in back)
    return Project(Schema(tuple(schema.columns[i] for i in back)), made, exprs)
