"""Sources of rows: tables and views, absences, and rows in between that have no name of their own.

A source gives its rows nodes only when a derivation has them (`nodes`); the places that it is asked for are positions
in its `rows`.
"""

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
        """Return the nodes of rows, which the extractor finds the derivations of."""
        ascending = bool((places[1:] > places[:-1]).all())
        used, back = (places, slice(None)) if ascending else np.unique(places, return_inverse=True)
        copies = None if self.copies is None else self.copies[used]
        found: Ints = self.query.owner.nodes(self.of, np.ascontiguousarray(self.rows[used]), copies)[back]
        return found


@dataclass
class Absent:
    """Rows that are not there: one relation of the graph for each `key`. `schema` may have only some of the columns of
    `node`, the query that has no such rows."""

    query: PlanEvaluator
    name: str
    key: object
    schema: Schema
    rows: Codes
    node: Node

    def nodes(self, places: Codes) -> Ints:
        """Return the nodes of absences, which are leaves."""
        builder = self.query.owner.builder
        source = self.query.source_of(self.node)
        partial, where = len(self.schema) < len(source.schema), self.query.condition_of(self.node)
        relation = builder.relation(
            ("absent", self.key), self.name[3:], "absence", self.schema, partial=partial, where=where
        )
        return builder.intern(relation, self.rows[places])[0]


@dataclass
class MadeRows:
    """Rows in between, each with a node of its own."""

    query: PlanEvaluator
    name: str
    schema: Schema
    rows: Codes

    def __post_init__(self) -> None:
        self._nodes: Ints = np.full(len(self.rows), -1, np.int32)

    def nodes(self, places: Codes) -> Ints:
        """Return the nodes of rows; new ones get their derivations at once."""
        fresh = np.unique(places[self._nodes[places] < 0])
        if len(fresh):
            builder = self.query.owner.builder
            self.query.keep(self)
            relation = builder.relation(("made", id(self)), self.name, "inner", self.schema, plain=True)
            self._nodes[fresh] = builder.append(relation, self.rows[fresh])
            self._derive(fresh)
        return self._nodes[places]

    def _derive(self, fresh: Codes) -> None:
        """Add the derivations of rows that are new in the graph."""
        raise NotImplementedError


@dataclass
class Between(MadeRows):
    """Rows that are there if one of their ways is: parts with the place of the row that each of their rows leads to."""

    ways: list[tuple[Part, Codes]]

    def _derive(self, fresh: Codes) -> None:
        new = np.zeros(len(self.rows), bool)
        new[fresh] = True
        for part, to in self.ways:
            at = np.flatnonzero(new[to])
            if len(at):
                self.query.derive(self._nodes[to[at]], part.take(at), self.name)
