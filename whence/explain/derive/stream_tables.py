"""Streams under relations: what a relational view reads of a stream is base rows, as far as they are known.

A part of a plan that makes a relation of a stream (`StreamToRelation`, `Latest`) is taken for a table of its rows,
named after the stream or the stream view; of what is in between, such as windows that have no view, after the streams
they are of. The rows of `latest` are what its operator holds. All rows so far can be had only while the streams keep
them all.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from whence.engine.build import Builder as Plans
from whence.engine.core.dataflow import Dataflow
from whence.engine.core.kernels.batches import add_up
from whence.engine.core.operator import upwards
from whence.engine.streams.retain import Retain as RetainOperator
from whence.engine.streams.stream_scan import StreamScan
from whence.engine.streams.windows.latest import Latest as LatestOperator
from whence.model.codes import Codes, Dictionary
from whence.model.errors import CatalogError, ExpiredError
from whence.model.types import Schema
from whence.plan.algebra.logical import Node, Project, Ref, Scan, Select, Union, walk
from whence.plan.algebra.program import Program
from whence.plan.streams.model import (
    DropProvenance,
    Latest,
    Lookup,
    Merge,
    ProvenanceJoin,
    Retain,
    Stream,
    StreamToRelation,
    without_at,
)


class StreamTables:
    """The streams of one graph, as tables."""

    def __init__(self, flow: Dataflow, planned: Program):
        self.flow, self.planned = flow, planned
        self._nodes: dict[str, Node] = {}  # by the name of the table that stands for it
        self._rows: dict[str, tuple[Codes, Codes]] = {}

    def as_tables(self, node: Node) -> Node:
        """Return a plan in which tables stand for what is made of streams."""
        if isinstance(node, StreamToRelation) and node.keeps_arrival:
            raise CatalogError(
                "FIRST and LAST go by the arrival of rows, of which a relation keeps nothing to explain: ask about a "
                "row of the stream, or of latest(stream, rows => 1, by => …)"
            )
        if isinstance(node, StreamToRelation) and (above := _above(node)) is not None:
            return self.as_tables(above)
        if isinstance(node, (StreamToRelation, Latest)):
            name = _name(node)
            while self._nodes.setdefault(name, node) != node:
                name += "'"
            return Scan(node.schema, name)
        inputs = [self.as_tables(child) for child in node.inputs]
        return node if all(a is b for a, b in zip(inputs, node.inputs, strict=True)) else node.with_inputs(inputs)

    def schema(self, name: str) -> Schema | None:
        """Return the columns, if the name is that of a stream, of a view that is one, or of a table that stands for
        some."""
        if (node := self._nodes.get(name)) is not None:
            return node.schema
        op = self.flow.tables.get(name) or self.flow.views.get(name)
        if isinstance(op, StreamScan):
            return without_at(op.schema)
        return without_at(self.planned.views[name].schema) if isinstance(op, RetainOperator) else None

    def rows(self, name: str, dictionary: Dictionary) -> tuple[Codes, Codes]:
        """Return the distinct rows of one of these, and how often each is there."""
        found = self._rows.get(name)
        if found is None:
            node = self._nodes.get(name)
            found = self._rows[name] = add_up(*(self._kept(name) if node is None else self._made(node, dictionary)))
        return found

    def _kept(self, name: str) -> tuple[Codes, Codes]:
        op = self.flow.tables.get(name) or self.flow.views[name]
        assert isinstance(op, (StreamScan, RetainOperator))
        _check_complete(op)
        return np.ascontiguousarray(op.kept.rows[:, :-1]), np.ones(len(op.kept), np.int64)

    def _made(self, node: Node, dictionary: Dictionary) -> tuple[Codes, Codes]:
        """Return the rows of a part of a plan: what its operator holds, or made again of all that its streams keep."""
        built = Plans(self.flow, dictionary, self.flow.views.__getitem__).build(node)
        running = next((op for op in self.flow.order if op.fingerprint == built.fingerprint), None)
        if running is not None and (running.arranged is not None or isinstance(running, LatestOperator)):
            batch = running.contents()
        else:
            if any(isinstance(n, (Lookup, ProvenanceJoin)) for n in walk(node)):
                raise CatalogError(
                    "a stream joined with a relation as it was when each row came cannot be made again: give that part "
                    "of the query a view of its own, and ask about its rows"
                )
            for op in upwards([built]):
                if isinstance(op, (StreamScan, RetainOperator)):
                    _check_complete(op)
            batch = built.contents()
        return np.ascontiguousarray(batch.rows), batch.ann.astype(np.int64)

    def counts(self, name: str, rows: Codes, dictionary: Dictionary) -> Codes:
        """Count how often rows are there."""
        there, counts = self.rows(name, dictionary)
        both, signs = np.concatenate([rows, there]), np.concatenate([np.zeros(len(rows), np.int64), counts])
        _, first, number = np.unique(both, axis=0, return_index=True, return_inverse=True)
        sums = np.zeros(len(first), np.int64)
        np.add.at(sums, number.ravel(), signs)
        found: Codes = sums[number.ravel()[: len(rows)]]
        return found


def list_streams(node: Node, program: Program, planned: Program) -> list[str]:
    """List the streams that a query as it was bound reads itself, and views that are streams."""
    found = []
    for n in walk(node):
        if isinstance(n, Scan) and program.tables[n.table].stream is not None:
            found.append(n.table)
        elif isinstance(n, Ref) and n.view in planned.views and isinstance(planned.views[n.view].query, Retain):
            found.append(n.view)
    return list(dict.fromkeys(found))


def _above(node: StreamToRelation) -> Node | None:
    """Return the same relation, with what takes rows one by one outside of it."""
    match node.input:
        case DropProvenance(input=below):
            return replace(node, input=below)
        case Select(input=below, predicate=predicate):
            return Select(node.schema, _related(below), predicate)
        case Project(input=below, exprs=exprs):
            return Project(node.schema, _related(below), exprs[:-1])
        case Merge(branches=branches):
            return Union(node.schema, tuple(map(_related, branches)))
    return None


def _related(node: Node) -> StreamToRelation:
    return StreamToRelation(without_at(node.schema), node)


def _check_complete(op: StreamScan | RetainOperator) -> None:
    kept = op.kept
    if not kept.complete:
        raise ExpiredError(
            f"a relation over {op.name} stands on all rows it ever had, and it no longer keeps those before tid "
            f"{kept.first:,} (retain = '{kept.retention.text}'): let it keep more, or make a stream view WITH "
            "(provenance = 'lineage') of what is to be explained"
        )


def _name(node: Node) -> str:
    (input,) = node.inputs
    names = dict.fromkeys(
        n.stream if isinstance(n, Stream) else n.view for n in walk(input) if isinstance(n, (Stream, Ref))
    )
    listed = ", ".join(names)
    if isinstance(node, Latest):
        return f"latest {listed}"
    return listed if isinstance(input, (Stream, Ref)) else f"made of {listed}"
