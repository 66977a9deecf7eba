"""Where the rows of parts come from: tables and views, absences, and rows in between that have no name."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from whence.explain.derive.parts import Part
from whence.explain.graph import Ints
from whence.model.codes import Codes
from whence.model.types import Schema
from whence.plan.algebra.logical import Node

if TYPE_CHECKING:
    from whence.explain.derive.plan_evaluator import PlanEvaluator


@dataclass(frozen=True)
class Given(Node):
    """A query whose wanted rows are known already."""

    node: Node
    parts: list[Part] = field(compare=False)

    @property
    def inputs(self) -> tuple[Node, ...]:
        return (self.node,)


@dataclass
class StoredRows:
    """Rows of a table or view."""

    query: PlanEvaluator
    name: str
    of: str
    rows: Codes
    copies: Codes | None = None

    def nodes(self, places: Codes) -> Ints:
        ascending = bool((places[1:] > places[:-1]).all())
        used, back = (places, slice(None)) if ascending else np.unique(places, return_inverse=True)
        copies = None if self.copies is None else self.copies[used]
        found: Ints = self.query.owner.nodes(self.of, np.ascontiguousarray(self.rows[used]), copies)[back]
        return found


@dataclass
class Absent:
    """Rows that are not there."""

    query: PlanEvaluator
    name: str
    key: object
    schema: Schema
    rows: Codes

    def nodes(self, places: Codes) -> Ints:
        builder = self.query.owner.builder
        relation = builder.relation(("absent", self.key), self.name[3:], "absence", self.schema)
        return builder.intern(relation, self.rows[places])[0]


@dataclass
class Between:
    """Rows in between: each is there if one of its ways is. Ways are parts with the place of the row they lead to."""

    query: PlanEvaluator
    name: str
    schema: Schema
    rows: Codes
    ways: list[tuple[Part, Codes]]
    _nodes: Ints = field(init=False)

    def __post_init__(self) -> None:
        self._nodes = np.full(len(self.rows), -1, np.int32)

    def nodes(self, places: Codes) -> Ints:
        builder = self.query.owner.builder
        fresh = np.unique(places[self._nodes[places] < 0])
        if len(fresh):
            relation = builder.relation(("between", id(self)), self.name, "inner", self.schema, plain=True)
            self.query.keep(self)
            self._nodes[fresh] = builder.append(relation, self.rows[fresh])
            new = np.zeros(len(self.rows), bool)
            new[fresh] = True
            for part, to in self.ways:
                at = np.flatnonzero(new[to])
                if len(at):
                    self.query.derive(self._nodes[to[at]], part.take(at), self.name)
        return self._nodes[places]
