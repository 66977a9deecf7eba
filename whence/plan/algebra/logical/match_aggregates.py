"""Nodes that keep an aggregate, a set of values or first rows for each subscription, in groups: MatchLeast,
MatchDistinct, MatchTop.

As the nodes of `match.py` they are the root of a template's view, and tell changes only.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from whence.plan.algebra.distribution import ALL
from whence.plan.algebra.expressions import Col, Expr
from whence.plan.algebra.logical.match import Range, describe_sides, key_pairs
from whence.plan.algebra.logical.node import Node
from whence.plan.algebra.logical.topk import Order

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
        return _place_rows(self, planner)


def _place_rows(node: _MatchRange | MatchTop, planner: DistributionEnforcer) -> Placed:
    """Bring rows to the subscriptions, whose answers need all of theirs: both by their key, or rows to all of them."""
    data, parameters = planner.place(node.data), planner.place(node.parameters)
    pairs = key_pairs(node.data, node.parameters, node.equal)
    if pairs:
        data, parameters = planner.align(data, parameters, pairs, (True, False))
    else:
        data = data.copied()
    made = node.with_inputs([data.node, parameters.node])
    if parameters.everywhere:
        return planner.at(made, ALL)
    ids = [at for at, expr in enumerate(node.exprs) if isinstance(expr, Col) and expr.index == 0]
    return planner.at(made, parameters.place.mapped(lambda c: () if c else ids))


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


@dataclass(frozen=True)
class MatchTop(Node):
    """Each subscription with the first rows of its selection, after `offset` of them and up to `limit`: a number, None
    for all, or a Col of the parameters, of which NULL is all. The columns of the data are those that are equal to
    parameters (`equal`), those of the ranges, then the others in the `order` that is asked for; `exprs` are over the id
    and all of them. With `is_read` it is not the root: a join reads its rows."""

    data: Node
    parameters: Node
    equal: tuple[int, ...]
    ranges: tuple[Range, ...]
    order: tuple[Order, ...]
    limit: int | Col | None
    offset: int
    exprs: tuple[Expr, ...]
    is_read: bool = False

    @property
    def is_value(self) -> bool:
        """Whether it is the least or greatest value of a selection, which a join reads."""
        return self.is_read

    @property
    def inputs(self) -> tuple[Node, ...]:
        return (self.data, self.parameters)

    def with_inputs(self, inputs: Sequence[Node]) -> Node:
        return replace(self, data=inputs[0], parameters=inputs[1])

    def place(self, planner: DistributionEnforcer) -> Placed:
        return _place_rows(self, planner)

    def describe(self) -> str:
        match self.limit:
            case None:
                first = "all rows"
            case Col(index=column):
                first = f"first {self.parameters.schema.columns[column].name} rows"
            case number:
                first = f"first {number} row{'s' * (number != 1)}"
        after = f" after {self.offset}" if self.offset else ""
        sides = describe_sides(self.equal, self.ranges)
        return f"{first}{after} of each subscription, by {sides} and the value of the last of them"
