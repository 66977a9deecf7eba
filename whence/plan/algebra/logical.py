"""The logical algebra: what a query means, before anyone decides how to keep it up to date.

Nodes are frozen and compare by value, so two views that contain the same sub-query contain equal nodes, and the
physical plan keeps one operator for both. Columns are positions; names live in the schemas for people.

| node      | rows out |
|-----------|----------|
| Scan      | a base table |
| Ref       | another view (or this one: recursion) |
| Values    | constants |
| Select    | rows for which the predicate is true |
| Project   | one row of expressions for each row in |
| Join      | inner/left/right/full: pairs with equal keys (NULL never is) for which the residual is true, padded;
              semi/anti: left rows that have some / no match; mark: left rows with a BOOLEAN "has a match" appended |
| Union     | all rows of all inputs (UNION ALL; UNION is Distinct over it) |
| Distinct  | each row once |
| SetOp     | INTERSECT, EXCEPT, with or without ALL; NULLs are equal here |
| Aggregate | one row a group: keys, then aggregates; without keys one row always |
| TopK      | the first `limit` rows after `offset` in an order |
| Lateral   | each input row with each row that a table function yields for it |
| Ship      | the same rows, in other partitions: only in plans that `plan/partitions/distribute.py` has made |
| Mine      | of rows that every partition has, those that live in this one |
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Literal

from whence.model.types import Schema
from whence.plan.algebra.expressions import Expr

JoinKind = Literal["inner", "left", "right", "full", "semi", "anti", "mark"]


@dataclass(frozen=True)
class Node:
    """A relational expression with a known schema."""

    schema: Schema

    @property
    def inputs(self) -> tuple[Node, ...]:
        return ()


@dataclass(frozen=True)
class Scan(Node):
    table: str


@dataclass(frozen=True)
class Ref(Node):
    view: str


@dataclass(frozen=True)
class Values(Node):
    """Constant rows, tuples of Python values of the schema's types. `SELECT 1` is a projection of one empty row."""

    rows: tuple[tuple[Any, ...], ...]


@dataclass(frozen=True)
class Select(Node):
    input: Node
    predicate: Expr

    @property
    def inputs(self) -> tuple[Node, ...]:
        return (self.input,)


@dataclass(frozen=True)
class Project(Node):
    input: Node
    exprs: tuple[Expr, ...]

    @property
    def inputs(self) -> tuple[Node, ...]:
        return (self.input,)


@dataclass(frozen=True)
class Join(Node):
    """`keys` pairs a left column with a right column of the same type; `residual` is over left then right columns."""

    left: Node
    right: Node
    kind: JoinKind
    keys: tuple[tuple[int, int], ...] = ()
    residual: Expr | None = None

    @property
    def inputs(self) -> tuple[Node, ...]:
        return (self.left, self.right)


@dataclass(frozen=True)
class Union(Node):
    branches: tuple[Node, ...]

    @property
    def inputs(self) -> tuple[Node, ...]:
        return self.branches


@dataclass(frozen=True)
class Distinct(Node):
    input: Node

    @property
    def inputs(self) -> tuple[Node, ...]:
        return (self.input,)


@dataclass(frozen=True)
class SetOp(Node):
    left: Node
    right: Node
    kind: Literal["intersect", "except"]
    all: bool = False

    @property
    def inputs(self) -> tuple[Node, ...]:
        return (self.left, self.right)


@dataclass(frozen=True)
class Agg:
    """One aggregate: `column` of the input, or None for COUNT(*). Only windows have those of the second line."""

    function: Literal[
        "count", "sum", "avg", "min", "max",
        "first", "last", "stddev", "stddev_pop", "quantile", "window_start", "window_end",
    ]  # fmt: skip
    column: int | None
    distinct: bool = False
    parameter: float | None = None  # the quantile


@dataclass(frozen=True)
class Aggregate(Node):
    input: Node
    keys: tuple[int, ...]
    aggs: tuple[Agg, ...]

    @property
    def inputs(self) -> tuple[Node, ...]:
        return (self.input,)


@dataclass(frozen=True)
class Order:
    column: int
    descending: bool = False
    nulls_first: bool = False


@dataclass(frozen=True)
class TopK(Node):
    """Rows are ordered by `order`, then by the remaining columns left to right, so the cut is deterministic."""

    input: Node
    order: tuple[Order, ...]
    limit: int | None
    offset: int = 0

    @property
    def inputs(self) -> tuple[Node, ...]:
        return (self.input,)


@dataclass(frozen=True)
class Lateral(Node):
    """`function(*args)` yields rows (tuples) that are appended to the input row."""

    input: Node
    name: str
    function: Callable[..., Any] = field(repr=False)
    args: tuple[Expr, ...]

    @property
    def inputs(self) -> tuple[Node, ...]:
        return (self.input,)


@dataclass(frozen=True)
class Ship(Node):
    """Rows move: to the partition that `cols` route to, to all partitions, or to the first one.

    `since` numbers the change of the catalog that it came with: what was shipped before is not there for newcomers."""

    input: Node
    to: Literal["hash", "all", "one"]
    cols: tuple[int, ...] = ()
    since: int = 0

    @property
    def inputs(self) -> tuple[Node, ...]:
        return (self.input,)


@dataclass(frozen=True)
class LocalFilter(Node):
    """Every partition has all rows of the input; this one keeps those whose `cols` route to it, or, where `cols` is
    None, the first partition keeps all of them and the others none."""

    input: Node
    cols: tuple[int, ...] | None

    @property
    def inputs(self) -> tuple[Node, ...]:
        return (self.input,)


def walk(node: Node) -> Iterator[Node]:
    """The node and everything under it, parents first."""
    yield node
    for child in node.inputs:
        yield from walk(child)
