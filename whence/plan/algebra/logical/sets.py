"""Nodes that put whole rows together: Union, Distinct, SetOp. Rows that are equal must meet; of UNION ALL none need to.

A union counts each row once, so none of its branches may be everywhere unless all are.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal

from whence.plan.algebra.distribution import ALL, DistributionProperty, common_place
from whence.plan.algebra.logical.moves import Ship
from whence.plan.algebra.logical.node import Binary, Branching, Columns, Unary

if TYPE_CHECKING:
    from whence.plan.knowledge.derive import KnowledgeDeriver
    from whence.plan.knowledge.facts import Facts
    from whence.plan.partitions.enforce import DistributionEnforcer, Placed


@dataclass(frozen=True)
class Union(Branching):
    """All rows of all branches: UNION ALL. UNION is Distinct over it."""

    def shape(self) -> object:
        return ("union", self.schema.types)

    def describe(self) -> str:
        return "union all"

    def knows(self, deriver: KnowledgeDeriver) -> Facts:
        return deriver.united(self)

    def place(self, planner: DistributionEnforcer) -> Placed:
        branches = [planner.place(b) for b in self.branches]
        if all(b.everywhere for b in branches):
            return planner.at(self.with_inputs([b.node for b in branches]), ALL)
        place = common_place([b.place for b in branches if not b.everywhere])
        own = [b.moved(place.dist.cols) if b.everywhere and place.kind == "hash" else b.once() for b in branches]
        return planner.at(self.with_inputs([b.node for b in own]), place)


@dataclass(frozen=True)
class Distinct(Unary):
    """Each row once."""

    passes: ClassVar[bool] = True

    def shape(self) -> object:
        return ("distinct",)

    def knows(self, deriver: KnowledgeDeriver) -> Facts:
        return deriver.compared(self)

    def together(self) -> tuple[Columns | None, ...]:
        return (tuple(range(len(self.schema))),)

    def place(self, planner: DistributionEnforcer) -> Placed:
        below, (cols,) = planner.place(self.input), self.together()
        if not cols and not below.everywhere:  # whether there is a row at all: every partition hears of all others
            return planner.at(Distinct(self.schema, Ship(self.schema, below.under(self).node, "all")), ALL)
        return planner.gathered(below, cols or ()).under(self)

    @property
    def is_small(self) -> bool:
        return not self.schema.columns or self.input.is_small


@dataclass(frozen=True)
class SetOp(Binary):
    """INTERSECT and EXCEPT, with or without ALL; NULLs are equal here."""

    kind: Literal["intersect", "except"]
    all: bool = False

    def shape(self) -> object:
        return ("setop", self.kind, self.all)

    def describe(self) -> str:
        return f"{self.kind}{' all' if self.all else ''}"

    def refuses_recursion(self, side: int) -> str | None:
        if self.kind == "except" and side == 1:
            return "EXCEPT"
        return f"{self.kind.upper()} ALL" if self.all else None

    def knows(self, deriver: KnowledgeDeriver) -> Facts:
        return deriver.compared(self)

    def together(self) -> tuple[Columns | None, ...]:
        return (tuple(range(len(self.schema))),) * 2

    def place(self, planner: DistributionEnforcer) -> Placed:
        pairs = [(c, c) for c in range(len(self.schema))]
        left, right = planner.align(planner.place(self.left), planner.place(self.right), pairs, (False, False))
        cols = tuple(a & b for a, b in zip(left.place.cols, right.place.cols, strict=True))
        return planner.at(self.with_inputs([left.node, right.node]), DistributionProperty(left.place.kind, cols))
