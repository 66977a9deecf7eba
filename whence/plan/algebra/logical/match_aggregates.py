"""Nodes that keep an aggregate or a set of values for each subscription, in groups: MatchLeast, MatchDistinct.

As the nodes of `match.py` they are the root of a template's view, and tell changes only.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from whence.plan.algebra.distribution import ALL
from whence.plan.algebra.expressions import Expr
from whence.plan.algebra.logical.match import Range, shown_place
from whence.plan.algebra.logical.node import Node

if TYPE_CHECKING:
    from whence.plan.partitions.enforce import DistributionEnforcer, Placed


@dataclass(frozen=True)
class _MatchRange(Node):
    """Subscriptions with equalities and one range. The columns of the data are those that are equal to parameters
    (`equal`), that of the range, then the values; `exprs` are over the id and what is kept of the values."""

    data: Node
    parameters: Node
    equal: tuple[int, ...]
    range: Range
    exprs: tuple[Expr, ...]

    @property
    def inputs(self) -> tuple[Node, ...]:
        return (self.data, self.parameters)

    def with_inputs(self, inputs: Sequence[Node]) -> Node:
        return replace(self, data=inputs[0], parameters=inputs[1])

    def place(self, planner: DistributionEnforcer) -> Placed:
        """Rows are copied to the subscriptions: an answer needs all of them."""
        data, parameters = planner.place(self.data).copied(), planner.place(self.parameters)
        made = self.with_inputs([data.node, parameters.node])
        return planner.at(made, ALL if parameters.everywhere else shown_place(parameters.place, self.exprs, 0))


@dataclass(frozen=True)
class MatchLeast(_MatchRange):
    """Each subscription with the least or greatest value of its range, or NULL: the last column of the data."""

    greatest: bool = False

    def shape(self) -> object:
        return ("match least", self.schema.types, self.equal, self.range, self.exprs, self.greatest)

    def describe(self) -> str:
        return f"{'MAX' if self.greatest else 'MIN'} of each subscription's range, by maximum affected ranges"


@dataclass(frozen=True)
class MatchDistinct(_MatchRange):
    """Each subscription with the distinct values of its range: the columns of the data behind that of the range."""

    def shape(self) -> object:
        return ("match distinct", self.schema.types, self.equal, self.range, self.exprs)

    def describe(self) -> str:
        return "distinct values of each subscription's range, by the range among equal values"
