"""Nodes that match subscriptions with rows in groups: MatchRows, MatchPairs.

Both stand for a join of a table of parameters with a query: column 0 of the result is the subscription's id, the others
are `exprs`, over the id and then the columns of the data. Only the root of a template's view is such a node: nothing
reads its rows, so its operator keeps none, and tells changes only.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from whence.plan.algebra.distribution import ALL, DistributionProperty, match_columns
from whence.plan.algebra.expressions import Col, Expr
from whence.plan.algebra.logical.join import routable_keys
from whence.plan.algebra.logical.node import Node

if TYPE_CHECKING:
    from whence.plan.partitions.enforce import DistributionEnforcer, Placed


@dataclass(frozen=True)
class Range:
    """A column of the data that is not NULL and between two columns of the parameters, of which NULL is no bound and
    None is not there; an open end is not part of the range."""

    column: int
    low: int | None
    high: int | None
    open_low: bool = False
    open_high: bool = False


@dataclass(frozen=True)
class MatchRows(Node):
    """Subscriptions with the rows that they select. `equal` pairs the first columns of the data with parameters that
    they equal; `ranges` are of the columns behind. With `is_read` it is not the root: an aggregate reads its rows."""

    data: Node
    parameters: Node
    equal: tuple[int, ...]
    ranges: tuple[Range, ...]
    exprs: tuple[Expr, ...]
    is_read: bool = False

    @property
    def inputs(self) -> tuple[Node, ...]:
        return (self.data, self.parameters)

    def with_inputs(self, inputs: Sequence[Node]) -> Node:
        return replace(self, data=inputs[0], parameters=inputs[1])

    def shape(self) -> object:
        return ("match rows", self.schema.types, self.equal, self.ranges, self.exprs, self.is_read)

    def describe(self) -> str:
        return f"match subscriptions with rows by {describe_sides(self.equal, self.ranges)}"

    def place(self, planner: DistributionEnforcer) -> Placed:
        """Subscriptions come to the rows: to those of their key, where rows live by it, else copied to all of them."""
        data, parameters = planner.place(self.data), planner.place(self.parameters)
        cols = match_columns(data.place, key_pairs(self.data, self.parameters, self.equal))
        parameters = parameters.moved(cols) if cols and not data.everywhere else parameters.copied()
        made = self.with_inputs([data.node, parameters.node])
        return planner.at(made, ALL if data.everywhere else shown_place(data.place, self.exprs, 1))


def key_pairs(data: Node, parameters: Node, equal: Sequence[int]) -> tuple[tuple[int, int], ...]:
    """Return the columns of the data that equal parameters, with these, by which both can be routed."""
    return tuple(routable_keys(data, parameters, tuple(enumerate(equal))))


def describe_sides(equal: Sequence[int], ranges: Sequence[Range]) -> str:
    """Return how many parameters of which kind there are."""
    found = [f"{len(equal)} equal"] * bool(equal) + [f"{len(ranges)} range{'s' * (len(ranges) > 1)}"] * bool(ranges)
    return " and ".join(found) or "nothing"


def shown_place(place: DistributionProperty, exprs: Sequence[Expr], start: int) -> DistributionProperty:
    """Return where rows are whose columns `exprs` shows, given where those of an input are that begin at `start`."""
    shown: dict[int, list[int]] = {}
    for at, expr in enumerate(exprs):
        if isinstance(expr, Col):
            shown.setdefault(expr.index - start, []).append(at)
    return place.mapped(lambda c: shown.get(c, ()))


@dataclass(frozen=True)
class Side:
    """What subscriptions ask of one side of a join, whose columns are: the keys, its lead, those of `equal`, those of
    `ranges`, and others. `equal` are parameters. The lead has a range of its own unless there is a band."""

    equal: tuple[int, ...]
    lead: Range | None
    ranges: tuple[Range, ...]


@dataclass(frozen=True)
class MatchPairs(Node):
    """Subscriptions with the pairs of rows of two inputs that they select: the first `keys` columns of both are equal
    and not NULL, each row is inside the ranges of its side, and, if there is a `band`, the lead of the right minus that
    of the left is inside it."""

    left: Node
    right: Node
    parameters: Node
    keys: int
    sides: tuple[Side, Side]
    band: Range | None
    exprs: tuple[Expr, ...]

    @property
    def inputs(self) -> tuple[Node, ...]:
        return (self.left, self.right, self.parameters)

    def with_inputs(self, inputs: Sequence[Node]) -> Node:
        return replace(self, left=inputs[0], right=inputs[1], parameters=inputs[2])

    def shape(self) -> object:
        return ("match pairs", self.schema.types, self.keys, self.sides, self.band, self.exprs)

    def describe(self) -> str:
        sides = [describe_sides(s.equal, (*([s.lead] if s.lead else []), *s.ranges)) for s in self.sides]
        band = "a band first, then " if self.band is not None else ""
        on = f"{self.keys} equal column{'s' * (self.keys > 1)}, " if self.keys else ""
        return f"match subscriptions with pairs by {on}{band}{sides[0]} of the left, {sides[1]} of the right"

    def place(self, planner: DistributionEnforcer) -> Placed:
        """Subscriptions are copied to the rows; rows meet by their keys, or one side is copied to the other."""
        pairs = [(c, c) for c in range(self.keys)]
        left, right = planner.align(planner.place(self.left), planner.place(self.right), pairs, (True, True))
        parameters = planner.place(self.parameters).copied()
        made = self.with_inputs([left.node, right.node, parameters.node])
        if left.everywhere and right.everywhere:
            return planner.at(made, ALL)
        if left.everywhere:
            return planner.at(made, shown_place(right.place, self.exprs, 1 + len(self.left.schema)))
        return planner.at(made, shown_place(left.place, self.exprs, 1))
