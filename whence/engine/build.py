"""From logical nodes to running operators; equal nodes become one operator.

An operator that a view has dropped is never taken up again: its state stood still.
"""

from __future__ import annotations

from collections.abc import Callable

from whence.engine.core.dataflow import Dataflow
from whence.engine.core.fingerprint import fingerprint
from whence.engine.core.operator import Operator
from whence.engine.exchange.ship import LocalFilter, Ship
from whence.engine.relational.aggregate import Aggregate
from whence.engine.relational.join import Join
from whence.engine.relational.lateral import Lateral
from whence.engine.relational.outer import outer_join
from whence.engine.relational.project import Project
from whence.engine.relational.select import Select
from whence.engine.relational.semijoin import Semijoin
from whence.engine.relational.setop import Distinct, SetOp
from whence.engine.relational.topk import TopK
from whence.engine.relational.union import Union
from whence.engine.relational.values import Values
from whence.model.codes import Dictionary
from whence.model.errors import CatalogError
from whence.model.types import Kind
from whence.plan.algebra import logical
from whence.plan.algebra.multiway_join import many_way
from whence.plan.streams import model as streams
from whence.plan.streams.replay import streams_read


class Builder:
    """Builds plans on one dataflow. `resolve` gives the operator behind a view's name."""

    def __init__(
        self,
        dataflow: Dataflow,
        dictionary: Dictionary,
        resolve: Callable[[str], Operator],
        partition: int = 0,
        partitions: int = 1,
    ):
        self.dataflow, self.dictionary, self.resolve = dataflow, dictionary, resolve
        self.partition, self.partitions = partition, partitions
        self._built: dict[tuple[object, ...], Operator] = {}

    def build(self, node: logical.Node) -> Operator:
        """The operator for a node, new or already running."""
        match node:
            case logical.Scan():
                scan = self._table(node.table)
                return self._as_relation(scan, node) if streams.has_at(scan.schema) else scan
            case streams.Stream():
                return self._table(node.stream)
            case logical.Ref():
                view = self.resolve(node.view)
                unsaid = streams.has_at(view.schema) and not streams.has_at(node.schema)
                return self._as_relation(view, node) if unsaid else view
        join = many_way(node)
        inputs = [self.build(i) for i in (node.inputs if join is None else join.sources)]
        shape = _shape(node) if join is None else ("inner", join.schema.types, join.classes, join.tests, join.out)
        # Not by the fingerprint alone: a transaction's stand-in for a table has that of the table.
        beside = [self._kept_of(name) for name in _fetched(node)]
        own = fingerprint(shape, [i.fingerprint for i in inputs])
        key = (own, *(id(i) for i in (*inputs, *beside)))
        found = self._built.get(key)
        if found is None or found.dropped:
            found = self._make(node, inputs) if join is None else Join(inputs, join, self.dictionary)
            _name(found, own)
            self._built[key] = found
        return found

    def _table(self, name: str) -> Operator:
        scan = self.dataflow.tables.get(name)
        if scan is None:
            raise CatalogError(f"there is no table {name}")
        return scan

    def _kept_of(self, stream: str) -> Operator:
        """The operator that keeps the rows of a stream."""
        return self.dataflow.tables.get(stream) or self.resolve(stream)

    def _as_relation(self, stream: Operator, node: logical.Node) -> Operator:
        """A stream that a plan reads as a relation without saying so."""
        own = fingerprint("relate", [stream.fingerprint])
        found = self._built.get((own, id(stream)))
        if found is None or found.dropped:
            from whence.engine.streams.generate import StreamToRelation

            found = StreamToRelation(stream, node.schema)
            _name(found, own)
            self._built[own, id(stream)] = found
        return found

    def forget(self) -> None:
        """Let go of operators that were dropped, and of those that were built for a view that then failed."""
        self._built = {k: op for k, op in self._built.items() if op.primed and not op.dropped}

    def _make(self, node: logical.Node, inputs: list[Operator]) -> Operator:
        schema, words = node.schema, self.dictionary
        match node:
            case logical.Values():
                return Values(node.rows, schema, words)
            case logical.Select():
                return Select(inputs[0], node.predicate, words)
            case logical.Project():
                return Project(inputs[0], node.exprs, schema, words)
            case logical.Union():
                return Union(inputs, schema)
            case logical.Aggregate():
                return Aggregate(inputs[0], node.keys, node.aggs, schema, words)
            case logical.Join(kind="semi" | "anti" | "mark" as kind):
                return Semijoin(inputs[0], inputs[1], kind, node.keys, node.residual, schema, words)
            case logical.Join():
                return outer_join(inputs[0], inputs[1], node, words)
            case logical.Distinct():
                return Distinct(inputs[0])
            case logical.SetOp():
                return SetOp(inputs[0], inputs[1], node.kind, node.all, schema)
            case logical.TopK():
                return TopK(inputs[0], node.order, node.limit, node.offset, words)
            case logical.Lateral():
                return Lateral(inputs[0], node.name, node.function, node.args, schema, words)
            case logical.Ship():
                return Ship(inputs[0], node.to, node.cols, self.partitions)
            case logical.LocalFilter():
                return LocalFilter(inputs[0], node.cols, self.partition, self.partitions)
        from whence.engine.streams.networks import make  # loaded with the first stream: most databases have none

        return make(node, inputs, self.dataflow, words, self._kept_of)


def _name(op: Operator, own: str) -> None:
    """Set an operator's fingerprint, and those of the operators that were made together with it, under it."""
    op.fingerprint = own
    for number, under in enumerate(op.inputs):
        if not under.fingerprint:
            _name(under, fingerprint(("part", number), [own]))


def _layout(node: logical.Aggregate) -> tuple[str, ...]:
    """Return the name of an accumulators' layout that is not the first one: images of that one are recomputed."""
    types = node.input.schema.types
    sums = (a.column for a in node.aggs if a.function in ("sum", "avg"))
    return ("exact doubles",) if any(c is not None and types[c].kind is Kind.DOUBLE for c in sums) else ()


def _fetched(node: logical.Node) -> tuple[str, ...]:
    """The streams whose kept rows an operator fetches, beside its inputs."""
    if not isinstance(node, streams.ProvenanceJoin):
        return ()
    return (node.source, *(streams_read(node.copy) if node.copy is not None else ()))


def _shape(node: logical.Node) -> object:
    """What distinguishes a node from others over the same inputs."""
    types = node.schema.types
    match node:
        case logical.Values():
            return ("values", types, node.rows)
        case logical.Select():
            return ("select", node.predicate)
        case logical.Project():
            return ("project", types, node.exprs)
        case logical.Union():
            return ("union", types)
        case logical.Distinct():
            return ("distinct",)
        case logical.Join():
            return ("join", node.kind, node.keys, node.residual)
        case logical.SetOp():
            return ("setop", node.kind, node.all)
        case logical.Aggregate():
            return ("aggregate", types, node.keys, node.aggs, *_layout(node))
        case logical.TopK():
            return ("topk", "nulls last", node.order, node.limit, node.offset)
        case logical.Lateral():
            return ("lateral", types, node.name, node.args)
        case logical.Ship():
            return ("ship", node.to, node.cols, node.since)
        case logical.LocalFilter():
            return ("mine", node.cols)
    from whence.engine.streams.networks import shape  # see _make

    return shape(node)
