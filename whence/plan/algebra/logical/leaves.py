"""Nodes that read no other node: a table, a view by its name, constants."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from whence.plan.algebra.distribution import ALL
from whence.plan.algebra.logical.node import SMALL, Node

if TYPE_CHECKING:
    from whence.plan.knowledge.derive import KnowledgeDeriver
    from whence.plan.knowledge.facts import Facts
    from whence.plan.partitions.enforce import DistributionEnforcer, Placed


@dataclass(frozen=True)
class Scan(Node):
    """A base table."""

    table: str

    @property
    def names(self) -> tuple[str, ...]:
        return (self.table,)

    def describe(self) -> str:
        return f"scan {self.table}"

    def knows(self, deriver: KnowledgeDeriver) -> Facts:
        return deriver.table(self)

    def place(self, planner: DistributionEnforcer) -> Placed:
        return planner.at(self, planner.tables[self.table])


@dataclass(frozen=True)
class Ref(Node):
    """Another view, or this one: recursion."""

    view: str

    @property
    def names(self) -> tuple[str, ...]:
        return (self.view,)

    def describe(self) -> str:
        return f"view {self.view}"

    def knows(self, deriver: KnowledgeDeriver) -> Facts:
        return deriver.view(self)

    def place(self, planner: DistributionEnforcer) -> Placed:
        return planner.at(self, planner.views[self.view])

    def is_traced(self, views: Mapping[str, bool]) -> bool:
        return views.get(self.view, False)


@dataclass(frozen=True)
class Values(Node):
    """Constant rows, tuples of Python values of the schema's types. `SELECT 1` is a projection of one empty row."""

    rows: tuple[tuple[Any, ...], ...]

    def shape(self) -> object:
        return ("values", self.schema.types, self.rows)

    def describe(self) -> str:
        return f"values, {len(self.rows)} row{'s' * (len(self.rows) != 1)}"

    def knows(self, deriver: KnowledgeDeriver) -> Facts:
        return deriver.constant(self)

    def place(self, planner: DistributionEnforcer) -> Placed:
        return planner.at(self, ALL)

    @property
    def is_small(self) -> bool:
        return len(self.rows) <= SMALL
