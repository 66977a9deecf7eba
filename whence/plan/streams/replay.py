"""Write the query of a stream view as an instrumented copy, which is replayed to find the tids behind its results.

Views in between are written out, down to the streams that the view is traced from (of one that is not traced, down to
the base streams), with generators of sets of tids there. The copy has the operators of the running network, one for
one, apart from those that only pass rows on.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from whence.model.errors import CatalogError
from whence.plan.algebra.functions import functions_of, volatile_in
from whence.plan.algebra.logical import Node, Ref, bottom_up, walk
from whence.plan.algebra.program import Program, is_template, template_of
from whence.plan.rewrite import optimize
from whence.plan.streams import model as nodes
from whence.plan.streams.instrument import traces_of
from whence.plan.streams.model import Tracing
from whence.plan.streams.tid_chains import strip_to_arrivals

LINEAGE = Tracing("lineage")


def copy_query(view: str, program: Program, sources: Collection[str]) -> Node:
    """Return the instrumented copy of a stream view of a program of networks, traced from these sources."""

    def copy(node: Node) -> Node:
        match node:
            case nodes.Stream():
                source = node.stream if node.stream in sources else None
                return nodes.Generate(node.schema, node, source, LINEAGE)
            case nodes.Generate(input=nodes.Stream(stream=name)) | nodes.Generate(input=Ref(view=name)):
                return nodes.Generate(node.schema, nodes.Stream(node.schema, name), node.source, LINEAGE)
            case Ref():
                return whole(node.view)
            case nodes.Retain() | nodes.DropProvenance() | nodes.Align():
                return copy(node.inputs[0])
            case nodes.Lookup() if is_template(view):
                raise CatalogError(
                    f"rows that template {template_of(view)} has told of a stream are not explained: each met the "
                    "subscriptions of its time, which are not kept. Read the stream for what it retains"
                )
            case nodes.Lookup():
                raise CatalogError(
                    f'"{view}" joins a stream with a relation as it was when each row came, which cannot be replayed: '
                    "make it WITH (provenance = 'lineage') to have what is behind its results"
                )
            case nodes.WindowJoin(limit=nodes.MemoryLimit()):
                raise CatalogError(
                    f'"{view}" keeps a part of the rows that it joins, which depends on all rows that ever came: make '
                    "it WITH (provenance = 'lineage') to have what is behind its results"
                )
            case nodes.ProvenanceJoin() | nodes.StreamToRelation() | nodes.Latest():
                raise CatalogError(f'"{view}" reads provenance(), which cannot be replayed: ask of the view it is of')
        return node.with_inputs([copy(child) for child in node.inputs])

    def whole(name: str) -> Node:
        query = program.views[name].query
        called = volatile_in(query)
        if called is not None:
            raise CatalogError(
                f'"{view}" calls {called}, which is declared with deterministic=False and cannot be replayed: make it '
                "WITH (provenance = 'lineage') to have what is behind its results"
            )
        return copy(optimize(query))

    return whole(view)


def called_by(query: Node) -> tuple[str, ...]:
    """Return the names of the Python functions that a query calls."""
    return tuple(sorted({name for name, _ in functions_of(query)}))


def short_copy(query: Node) -> Node:
    """Return the copy of a chain that starts cold without the columns that decide on no tid.

    Where a Python function has a say in the tids, the copy keeps all columns: they are compared with the published."""
    short = strip_to_arrivals(query)
    return query if called_by(short) else short


def with_copies(query: Node, program: Program) -> Node:
    """Return a query in which every provenance() of a view that keeps covering intervals has the copy it replays."""

    def copied(node: Node) -> Node:
        if not isinstance(node, nodes.ProvenanceJoin) or node.copy is not None:
            return node
        traces = traces_of(node.view, program)
        if traces is None or traces.tracing.mode != "covering":
            return node
        return replace(node, copy=copy_query(node.view, program, traces.sources))

    return bottom_up(query, copied) if any(isinstance(n, nodes.ProvenanceJoin) for n in walk(query)) else query
