"""Build the operators of stream networks from their plan nodes; `engine/build.py` builds the others."""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

from whence.engine.core.dataflow import Dataflow
from whence.engine.core.operator import Operator
from whence.engine.expressions.evaluate import compile_expr
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
from whence.model.codes import Dictionary
from whence.plan.algebra.logical import Node
from whence.plan.streams import model as streams
from whence.plan.streams.replay import streams_read


def make(
    node: Node, inputs: list[Operator], dataflow: Dataflow, words: Dictionary, kept_of: Callable[[str], Operator]
) -> Operator:
    """Make the operator of a node over its inputs; `kept_of` gives the operator that retains a stream's rows."""
    schema = node.schema
    match node:
        case streams.Merge():
            return Merge(inputs, schema)
        case streams.Window():
            return Window(inputs[0], node.span, node.keys, node.aggs, schema, words)
        case streams.WindowJoin():
            spans = node.left_span, node.right_span
            return WindowJoin(inputs[0], inputs[1], *spans, node.keys, node.residual, schema, words)
        case streams.Lookup():
            return Lookup(inputs[0], inputs[1], node.kind, node.keys, node.residual, schema, words)
        case streams.BSort():
            return BSort(inputs[0], node.column, node.slack, node.within)
        case streams.Latest():
            return Latest(inputs[0], node.span, schema)
        case streams.StreamToRelation():
            return StreamToRelation(inputs[0], schema)
        case streams.Retain():
            return Retain(inputs[0], node.retention, node.owner)
        case streams.Generate():
            return Generate(inputs[0], node.source, dataflow.tracer(node.tracing))
        case streams.DropProvenance():
            return DropProvenance(inputs[0])
        case streams.Align():
            return Align(inputs[0], dataflow.tracer(node.after))
        case streams.ProvenanceJoin():
            return _traced(node, inputs[0], words, kept_of)
    raise TypeError(f"{type(node).__name__} has no operator")


def shape(node: Node) -> object:
    """Return what distinguishes a node from others over the same inputs; those with state belong to their owner."""
    types = node.schema.types
    match node:
        case streams.Merge():
            return ("merge", types)
        case streams.Window():
            return ("window", types, node.span, node.keys, node.aggs, node.owner)
        case streams.WindowJoin():
            spans = node.left_span, node.right_span
            return ("window join", spans, node.keys, node.residual, node.owner)
        case streams.Lookup():
            return ("lookup", node.kind, node.keys, node.residual)
        case streams.BSort():
            held = (node.slack,) if node.slack is not None else ("within", node.within)
            return ("bsort", node.column, *held, node.owner)
        case streams.Latest():
            return ("latest", node.span, node.owner)
        case streams.StreamToRelation():
            return "relate"
        case streams.Retain():
            kept = node.retention
            return ("retain", kept.rows, kept.nbytes, kept.micros, node.owner)
        case streams.Generate():
            return ("generate", node.source, node.tracing)
        case streams.DropProvenance():
            return ("plain",)
        case streams.Align():
            return ("align", node.before, node.after)
        case streams.ProvenanceJoin():
            own = "traced", types, node.view, node.source
            return own if node.copy is None else (*own, node.copy, node.where)
    return node


def _traced(
    node: streams.ProvenanceJoin, input: Operator, words: Dictionary, kept_of: Callable[[str], Operator]
) -> Operator:
    source = kept_of(node.source)
    if node.copy is None:
        return ProvenanceJoin(input, source, node.source, node.schema)
    from whence.engine.streams.replay.covering_join import CoveringJoin  # it builds operators itself

    kept = {name: cast(RetainingOperator, kept_of(name)).kept for name in streams_read(node.copy)}
    join = CoveringJoin(cast(Retain, input), node.copy, kept, words)
    where = compile_expr(node.where, words) if node.where is not None else None
    return ProvenanceJoin(input, source, node.source, node.schema, join, where)
