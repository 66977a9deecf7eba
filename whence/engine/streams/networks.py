"""Which operators run the nodes of stream networks: loaded by `engine/build.py` when a plan first has one."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from whence.engine.core.operator import Operator
from whence.engine.expressions.evaluate import compile_expr
from whence.engine.streams.box_lookup import BoxLookup
from whence.engine.streams.generate import DropProvenance, Generate, StreamToRelation
from whence.engine.streams.lookup import Lookup
from whence.engine.streams.merge import Merge
from whence.engine.streams.replay.align import Align
from whence.engine.streams.replay.provenance_join import ProvenanceJoin
from whence.engine.streams.retain import Retain
from whence.engine.streams.sort import BSort
from whence.engine.streams.stream_scan import RetainingOperator
from whence.engine.streams.windows.latest import Latest
from whence.engine.streams.windows.window import Window
from whence.engine.streams.windows.window_join import WindowJoin
from whence.plan.algebra.logical import Node
from whence.plan.streams import model as streams
from whence.plan.streams.lookup_boxes import box_of

if TYPE_CHECKING:
    from whence.engine.build import Builder, Factory


def _provenance_join(node: streams.ProvenanceJoin, inputs: list[Operator], to: Builder) -> Operator:
    (input,), words, source = inputs, to.dictionary, to.kept_of(node.source)
    if node.copy is None:
        return ProvenanceJoin(input, source, node.source, node.schema)
    from whence.engine.streams.replay.covering_join import CoveringJoin  # it builds operators itself

    kept = {name: cast(RetainingOperator, to.kept_of(name)).kept for name in node.replayed}
    join = CoveringJoin(cast(Retain, input), node.copy, kept, words)
    where = compile_expr(node.where, words) if node.where is not None else None
    return ProvenanceJoin(input, source, node.source, node.schema, join, where)


def _lookup(node: streams.Lookup, inputs: list[Operator], to: Builder) -> Operator:
    if node.outside:
        from whence.engine.streams.outside_lookup import OutsideLookup  # seldom

        return OutsideLookup(inputs, node, to.dictionary)
    width = len(node.input.schema) - 1
    box = box_of(node.keys, node.residual, width) if node.is_matched and node.kind == "inner" else None
    return Lookup(inputs, node, to.dictionary) if box is None else BoxLookup(inputs, node, box, to.dictionary)


def _window_join(node: streams.WindowJoin, inputs: list[Operator], to: Builder) -> Operator:
    (left, right), spans = inputs, (node.left_span, node.right_span)
    if node.limit is None:
        return WindowJoin(left, right, *spans, node.keys, node.residual, node.schema, to.dictionary)
    from whence.engine.streams.windows.bounded_join import BoundedJoin  # seldom

    pool = to.dataflow.pool(node.limit) if node.limit.pool else None
    return BoundedJoin(left, right, *spans, node.keys, node.residual, node.schema, to.dictionary, node.limit, pool)


STREAM_OPERATORS: dict[type[Node], Factory] = {
    streams.Merge: lambda node, inputs, to: Merge(inputs, node.schema),
    streams.Window: lambda node, inputs, to: Window(
        inputs[0], node.span, node.keys, node.aggs, node.schema, to.dictionary
    ),
    streams.WindowJoin: _window_join,
    streams.Lookup: _lookup,
    streams.BSort: lambda node, inputs, to: BSort(inputs[0], node.column, node.slack, node.within),
    streams.Latest: lambda node, inputs, to: Latest(inputs[0], node.span, node.schema),
    streams.StreamToRelation: lambda node, inputs, to: StreamToRelation(inputs[0], node.schema),
    streams.Retain: lambda node, inputs, to: Retain(inputs[0], node.retention, node.owner),
    streams.Generate: lambda node, inputs, to: Generate(inputs[0], node.source, to.dataflow.tracer(node.tracing)),
    streams.DropProvenance: lambda node, inputs, to: DropProvenance(inputs[0]),
    streams.Align: lambda node, inputs, to: Align(inputs[0], to.dataflow.tracer(node.after)),
    streams.ProvenanceJoin: _provenance_join,
}
