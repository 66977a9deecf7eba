"""Build running operators of logical nodes; equal nodes become one operator.

Which operator runs a node is one line in `OPERATORS`, or in that of `engine/streams/networks.py`; `runs` adds one from
elsewhere. What distinguishes a node from others, for sharing and for images, it says itself (`Node.shape`). An operator
that a view has dropped is never taken up again: its state stood still.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from whence.engine.core.dataflow import Dataflow
from whence.engine.core.fingerprint import fingerprint
from whence.engine.core.operator import Operator
from whence.engine.exchange.ship import LocalFilter, Ship
from whence.engine.matching.match_distinct import MatchDistinct
from whence.engine.matching.match_least import MatchLeast
from whence.engine.matching.match_pairs import MatchPairs
from whence.engine.matching.match_rows import MatchRows
from whence.engine.matching.match_top import MatchTop
from whence.engine.relational.aggregate import Aggregate
from whence.engine.relational.hold import Hold
from whence.engine.relational.join import Join
from whence.engine.relational.lateral import Lateral
from whence.engine.relational.outer import outer_join
from whence.engine.relational.project import Project
from whence.engine.relational.select import Select
from whence.engine.relational.semijoin import Semijoin
from whence.engine.relational.setop import Distinct, SetOp
from whence.engine.relational.topk import TopK
from whence.engine.relational.topk_per_group import TopKPerGroup
from whence.engine.relational.union import Union
from whence.engine.relational.values import Values
from whence.model.codes import Dictionary
from whence.model.errors import CatalogError
from whence.plan.algebra import logical
from whence.plan.algebra.arrival import has_at
from whence.plan.algebra.logical import Node
from whence.plan.algebra.multiway_join import MultiwayJoin, merge_joins
from whence.plan.streams.model import Stream

Factory = Callable[[Any, list[Operator], "Builder"], Operator]  # a node, its inputs' operators, who builds


def _join(node: logical.Join, inputs: list[Operator], to: Builder) -> Operator:
    if node.kind in ("semi", "anti", "mark"):
        return Semijoin(inputs[0], inputs[1], node.kind, node.keys, node.residual, node.schema, to.dictionary)
    return outer_join(inputs[0], inputs[1], node, to.dictionary)


OPERATORS: dict[type[Node], Factory] = {
    logical.Values: lambda node, inputs, to: Values(node.rows, node.schema, to.dictionary),
    logical.Select: lambda node, inputs, to: Select(inputs[0], node.predicate, to.dictionary),
    logical.Project: lambda node, inputs, to: Project(inputs[0], node.exprs, node.schema, to.dictionary),
    logical.Union: lambda node, inputs, to: Union(inputs, node.schema),
    logical.Distinct: lambda node, inputs, to: Distinct(inputs[0]),
    logical.SetOp: lambda node, inputs, to: SetOp(inputs[0], inputs[1], node.kind, node.all, node.schema),
    logical.Aggregate: lambda node, inputs, to: Aggregate(inputs[0], node.keys, node.aggs, node.schema, to.dictionary),
    logical.TopK: lambda node, inputs, to: TopK(inputs[0], node.order, node.limit, node.offset, to.dictionary),
    logical.TopKPerGroup: lambda node, inputs, to: TopKPerGroup(inputs[0], node, to.dictionary),
    logical.Lateral: lambda node, inputs, to: Lateral(
        inputs[0], node.name, node.function, node.args, node.schema, to.dictionary
    ),
    logical.Join: _join,
    MultiwayJoin: lambda node, inputs, to: Join(inputs, node, to.dictionary),
    logical.MatchLeast: lambda node, inputs, to: MatchLeast(inputs, node, to.dictionary),
    logical.MatchDistinct: lambda node, inputs, to: MatchDistinct(inputs, node, to.dictionary),
    logical.MatchRows: lambda node, inputs, to: MatchRows(inputs, node, to.dictionary),
    logical.MatchTop: lambda node, inputs, to: MatchTop(inputs, node, to.dictionary),
    logical.MatchPairs: lambda node, inputs, to: MatchPairs(inputs, node, to.dictionary),
    logical.Hold: lambda node, inputs, to: Hold(inputs[0], node.key),
    logical.Ship: lambda node, inputs, to: Ship(
        inputs[0], node.to, node.cols, to.partitions, rows_of=node.rows_of, divided=node.divided, copied=node.copied
    ),
    logical.LocalFilter: lambda node, inputs, to: LocalFilter(inputs[0], node.cols, to.partition, to.partitions),
}


def runs(node: type[Node]) -> Callable[[Factory], Factory]:
    """Register what makes the operator of a kind of node: `@runs(MyNode)` over a function."""

    def register(factory: Factory) -> Factory:
        OPERATORS[node] = factory
        return factory

    return register


def factory(node: type[Node]) -> Factory:
    """Return what makes the operator of a kind of node."""
    found = OPERATORS.get(node)
    if found is None:
        from whence.engine.streams.networks import STREAM_OPERATORS  # most databases have no stream

        found = STREAM_OPERATORS.get(node)
    if found is None:
        raise TypeError(f"{node.__name__} has no operator")
    return found


class Builder:
    """Builds plans on one dataflow. `resolve` gives the operator behind a view's name.

    A `transient` builder shares nothing with another one but tables and whole views: its operators have fingerprints of
    their own. A view that is kept must not begin from the state of one that no log knows."""

    dataflow: Dataflow
    dictionary: Dictionary
    partition: int
    partitions: int

    def __init__(
        self,
        dataflow: Dataflow,
        dictionary: Dictionary,
        resolve: Callable[[str], Operator],
        partition: int = 0,
        partitions: int = 1,
        transient: bool = False,
    ):
        self.dataflow, self.dictionary, self.resolve = dataflow, dictionary, resolve
        self.partition, self.partitions, self.transient = partition, partitions, transient
        self._built: dict[tuple[object, ...], Operator] = {}

    def build(self, node: Node) -> Operator:
        """Return the operator for a node, new or already running."""
        if isinstance(node, (logical.Scan, Stream, logical.Ref)):
            return self._named(node)
        if isinstance(node, logical.Keep):
            return self.build(node.input)
        node = merge_joins(node)
        inputs = [self.build(i) for i in node.inputs]
        # Not by the fingerprint alone: a transaction's stand-in for a table has that of the table, and an operator that
        # begins anew has that of the one before.
        beside = [self.kept_of(name) for name in node.fetches]
        own = self.fingerprint(node.shape(), inputs)
        key = (own, node.generation, *(id(i) for i in (*inputs, *beside)))
        found = self._built.get(key)
        if found is None or found.dropped:
            found = factory(type(node))(node, inputs, self)
            self.name(found, own)
            self._built[key] = found
        return found

    def _named(self, node: logical.Scan | logical.Ref | Stream) -> Operator:
        """Return the operator of a table, a stream or a view; a stream as a relation if the node does not say `$at`."""
        (name,) = node.names
        found = self.resolve(name) if isinstance(node, logical.Ref) else self.dataflow.tables.get(name)
        if found is None:
            raise CatalogError(f"there is no table {name}")
        return self._as_relation(found, node) if has_at(found.schema) and not has_at(node.schema) else found

    def kept_of(self, stream: str) -> Operator:
        """Return the operator that keeps the rows of a stream."""
        return self.dataflow.tables.get(stream) or self.resolve(stream)

    def _as_relation(self, stream: Operator, node: logical.Node) -> Operator:
        """A stream that a plan reads as a relation without saying so."""
        own = self.fingerprint("relate", [stream])
        found = self._built.get((own, id(stream)))
        if found is None or found.dropped:
            from whence.engine.streams.generate import StreamToRelation

            found = StreamToRelation(stream, node.schema)
            self.name(found, own)
            self._built[own, id(stream)] = found
        return found

    def fingerprint(self, shape: object, inputs: Sequence[Operator]) -> str:
        """Return the fingerprint of an operator over others."""
        return fingerprint(("transient", shape) if self.transient else shape, [i.fingerprint for i in inputs])

    def name(self, op: Operator, own: str) -> None:
        """Set an operator's fingerprint, and those of the operators that were made together with it, under it."""
        op.fingerprint, op.transient = own, self.transient
        for number, under in enumerate(op.inputs):
            if not under.fingerprint:
                self.name(under, fingerprint(("part", number), [own]))

    def forget(self) -> None:
        """Let go of operators that were dropped, and of those that were built for a view that then failed."""
        self._built = {k: op for k, op in self._built.items() if op.primed and not op.dropped}
