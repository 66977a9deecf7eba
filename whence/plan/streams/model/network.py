"""Nodes of every stream network: Stream, Merge, Lookup, StreamToRelation, Retain."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

from whence.plan.algebra.distribution import common_place, match_columns
from whence.plan.algebra.expressions import Expr
from whence.plan.algebra.logical.join import JoinKind, describe_match, routable_keys
from whence.plan.algebra.logical.node import Branching, Columns, Node, Unary
from whence.plan.streams.model.spans import Retention

if TYPE_CHECKING:
    from whence.plan.knowledge.derive import KnowledgeDeriver
    from whence.plan.knowledge.facts import Facts
    from whence.plan.partitions.enforce import DistributionEnforcer, Placed


@dataclass(frozen=True)
class Stream(Node):
    """The rows of a base stream."""

    stream: str

    @property
    def names(self) -> tuple[str, ...]:
        return (self.stream,)

    def describe(self) -> str:
        return f"stream {self.stream}"

    def knows(self, deriver: KnowledgeDeriver) -> Facts:
        return deriver.stream(self)

    def place(self, planner: DistributionEnforcer) -> Placed:
        return planner.at(self, planner.tables[self.stream])


@dataclass(frozen=True)
class Merge(Branching):
    """All rows of all branches, by arrival."""

    def shape(self) -> object:
        return ("merge", self.schema.types)

    def knows(self, deriver: KnowledgeDeriver) -> Facts:
        return deriver.flowing(self)

    def place(self, planner: DistributionEnforcer) -> Placed:
        branches = [planner.place(b) for b in self.branches]
        return planner.at(self.with_inputs([b.node for b in branches]), common_place([b.place for b in branches]))


@dataclass(frozen=True)
class Lookup(Node):
    """A stream joined with a relation as it is when the row comes. Schema: the stream's columns without `$at`, the
    relation's (of inner and left), whether there is a match (of mark), `$at`; `residual` is over the stream's without
    `$at` and then the relation's. The relation's rows come to where the stream is; the stream does not move.
    `is_matched`: the relation is the parameters of a template, whose first column identifies its rows. That changes how
    matches are found, not which, so it is no part of the shape that images go by.
    `outside` names the table that is a lookup, if the relation is one, by whose key alone it is joined."""

    input: Node
    relation: Node
    kind: JoinKind  # inner, left, semi, anti, mark
    keys: tuple[tuple[int, int], ...] = ()
    residual: Expr | None = None
    is_matched: bool = False
    outside: str = ""

    passes: ClassVar[bool] = True

    @property
    def inputs(self) -> tuple[Node, ...]:
        return (self.input, self.relation)

    def with_inputs(self, inputs: Sequence[Node]) -> Node:
        return replace(self, input=inputs[0], relation=inputs[1])

    def shape(self) -> object:
        return ("lookup", self.kind, self.keys, self.residual)

    def describe(self) -> str:
        return f"{self.kind} lookup on {describe_match(self.keys, self.residual)}"

    def knows(self, deriver: KnowledgeDeriver) -> Facts:
        return deriver.looked_up(self)

    def together(self) -> tuple[Columns | None, ...]:
        return None, tuple(b for _, b in routable_keys(self.input, self.relation, self.keys))

    def origin(self, side: int, column: int) -> int | None:
        return column if side == 0 and column < len(self.input.schema) - 1 else None

    def place(self, planner: DistributionEnforcer) -> Placed:
        stream, relation = planner.place(self.input), planner.place(self.relation)
        if not (stream.everywhere or relation.everywhere):
            cols = match_columns(stream.place, routable_keys(self.input, self.relation, self.keys))
            relation = relation.copied() if cols is None else relation.moved(cols)
        return planner.at(self.with_inputs([stream.node, relation.node]), stream.place)

    def is_traced(self, views: Mapping[str, bool]) -> bool:
        return self.input.is_traced(views)


@dataclass(frozen=True)
class StreamToRelation(Unary):
    """All rows so far, without order and provenance; `$at` is left out, or is an ordinary column (`with_arrival`)."""

    @property
    def keeps_arrival(self) -> bool:
        return len(self.schema) == len(self.input.schema)

    def shape(self) -> object:
        return ("relate", "arrival") if self.keeps_arrival else "relate"

    def describe(self) -> str:
        return "all rows so far, by arrival" if self.keeps_arrival else "all rows so far"

    def knows(self, deriver: KnowledgeDeriver) -> Facts:
        return deriver.related(self)

    def together(self) -> tuple[Columns | None, ...]:
        return (None,)

    def origin(self, side: int, column: int) -> int | None:
        return column

    def is_traced(self, views: Mapping[str, bool]) -> bool:
        return False


@dataclass(frozen=True)
class Retain(Unary):
    """The same rows; the last of them are kept for reading, joining and explaining."""

    retention: Retention
    owner: str = ""

    passes: ClassVar[bool] = True

    def shape(self) -> object:
        kept = self.retention
        return ("retain", kept.rows, kept.nbytes, kept.micros, self.owner)

    def describe(self) -> str:
        return f"keep {self.retention.text}"

    def knows(self, deriver: KnowledgeDeriver) -> Facts:
        return deriver.flowing(self)

    def place(self, planner: DistributionEnforcer) -> Placed:
        below = planner.place(self.input)
        kept = self.retention if below.is_whole else self.retention.share(planner.partitions)
        return below.under(replace(self, retention=kept))
