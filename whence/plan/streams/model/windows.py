"""Nodes over windows of streams: Slide, Window, WindowJoin, Latest, BSort.

`owner` is the view that a node with state belongs to: views share it only by naming each other. In partitions, rows of
one key `by` must meet, for each key has windows of its own; without `by`, everything must be in one place. A join wants
rows together that may be paired, and rows of one key of either side.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, ClassVar

from whence.plan.algebra.distribution import ALL, are_together, equate_columns, match_columns
from whence.plan.algebra.expressions import Expr
from whence.plan.algebra.logical.aggregate import Agg, describe_groups
from whence.plan.algebra.logical.join import describe_match, routable_keys
from whence.plan.algebra.logical.node import Binary, Columns, Unary
from whence.plan.streams.model.spans import ADDED, MemoryLimit, Span
from whence.plan.streams.model.tracing import DropProvenance

if TYPE_CHECKING:
    from whence.plan.knowledge.derive import KnowledgeDeriver
    from whence.plan.knowledge.facts import Facts
    from whence.plan.partitions.enforce import DistributionEnforcer, Placed


def counterparts(
    left: tuple[int, ...], right: tuple[int, ...], keys: tuple[tuple[int, int], ...]
) -> tuple[int, ...] | None:
    """Return the columns of a join's right side that equal those of the left, which must be all of both; None if they
    do not.

    >>> counterparts((1,), (0,), ((1, 0), (2, 2))), counterparts((1,), (), ((1, 0),))
    ((0,), None)
    >>> counterparts((0, 1), (0, 1), ((0, 1), (0, 0), (1, 1)))  # columns may equal several
    (0, 1)
    """
    taken: dict[int, int] = {}  # columns of the right, and whose they are

    def found(a: int, tried: set[int]) -> bool:
        for mine, b in keys:
            if mine == a and b in right and b not in tried:
                tried.add(b)
                if b not in taken or found(taken[b], tried):
                    taken[b] = a
                    return True
        return False

    if len(left) != len(right) or not all(found(a, set()) for a in left):
        return None
    return tuple({a: b for b, a in taken.items()}[a] for a in left)


@dataclass(frozen=True)
class Slide(Unary):
    """As bound: the windows of a stream. Value windows have two more columns, `window_start` and `window_end`."""

    span: Span

    def describe(self) -> str:
        return f"windows of {self.span.describe()}"


@dataclass(frozen=True)
class Window(Unary):
    """Schema: the columns `keys`, the aggregates, `$at`. A window's rows are grouped by `keys`; a group without rows
    gives none. Beyond the functions of SQL there are window_start and window_end, without a column."""

    span: Span
    keys: tuple[int, ...]
    aggs: tuple[Agg, ...]
    owner: str = ""

    passes: ClassVar[bool] = True

    def shape(self) -> object:
        return ("window", self.schema.types, self.span, self.keys, self.aggs, self.owner)

    def describe(self) -> str:
        return f"window of {self.span.describe()}: {describe_groups(self.aggs, self.keys)}"

    def knows(self, deriver: KnowledgeDeriver) -> Facts:
        return deriver.flowing(self, delayed=True)

    def together(self) -> tuple[Columns | None, ...]:
        return (self.span.by,)

    def origin(self, side: int, column: int) -> int | None:
        return self.keys[column] if column < len(self.keys) else None


@dataclass(frozen=True)
class WindowJoin(Binary):
    """Schema: left without `$at`, right without `$at`, `$at`. `keys` pairs columns; `residual` is over left columns
    and then right ones, both without `$at`. With a `limit` only so many rows are kept, of windows of rows or of all."""

    left_span: Span
    right_span: Span
    keys: tuple[tuple[int, int], ...] = ()
    residual: Expr | None = None
    owner: str = ""
    limit: MemoryLimit | None = field(default=None, metadata=ADDED)

    passes: ClassVar[bool] = True

    def shape(self) -> object:
        limit = () if self.limit is None else (self.limit,)
        return ("window join", (self.left_span, self.right_span), self.keys, self.residual, self.owner, *limit)

    def describe(self) -> str:
        spans = f"{self.left_span.describe()} with {self.right_span.describe()}"
        join = f"window join of {spans} on {describe_match(self.keys, self.residual)}"
        return join if self.limit is None else f"{join}, approximate: {self.limit.describe()}"

    def knows(self, deriver: KnowledgeDeriver) -> Facts:
        return deriver.flowing(self, delayed=True)

    def _pairs(self) -> list[tuple[int, int]]:
        """Return the columns by which both sides can be routed: equal in pairs, and part of either's windows."""
        pairs = routable_keys(self.left, self.right, self.keys)
        return [(a, b) for a, b in pairs if self.left_span.parts(a) and self.right_span.parts(b)]

    def together(self) -> tuple[Columns | None, ...]:
        pairs = self._pairs()
        return tuple(a for a, _ in pairs), tuple(b for _, b in pairs)

    def origin(self, side: int, column: int) -> int | None:
        width = len(self.left.schema) - 1
        own = (column, None) if column < width else (None, column - width)
        if own[side] is not None:
            return own[side]
        return next((pair[side] for pair in self.keys if pair[1 - side] == own[1 - side]), None)

    def place(self, planner: DistributionEnforcer) -> Placed:
        left, right, pairs = planner.place(self.left), planner.place(self.right), self._pairs()
        everywhere = left.everywhere and right.everywhere
        if not everywhere and not are_together(left.place, right.place, pairs):
            planner.check_untraced(self, left, right)
            cols = match_columns(left.place, pairs)
            left = left if cols is not None else left.moved(tuple(a for a, _ in pairs))
            right = right.moved(tuple(b for _, b in pairs) if cols is None else cols)
        width = len(self.left.schema) - 1
        place = ALL if everywhere else equate_columns(left.place, [(a, b + width) for a, b in pairs])
        join = replace(self, left=left.node, right=right.node)
        if self.limit is not None and pairs and not everywhere:
            join = replace(join, limit=self.limit.share(planner.partitions))
        return planner.at(join, place)


@dataclass(frozen=True)
class Latest(Unary):
    """The rows in the window now: they come, and go. As bound over a stream's query; in a network over a stream, with
    a schema that has no `$at`."""

    span: Span
    owner: str = ""

    def shape(self) -> object:
        return ("latest", self.span, self.owner)

    def describe(self) -> str:
        return f"rows in the window of {self.span.describe()} now"

    def knows(self, deriver: KnowledgeDeriver) -> Facts:
        return deriver.restless(self)

    def together(self) -> tuple[Columns | None, ...]:
        return (self.span.by,)

    def origin(self, side: int, column: int) -> int | None:
        return column

    def place(self, planner: DistributionEnforcer) -> Placed:
        below = planner.place(self.input)
        if below.node.is_traced(planner.traced):  # of no use to a relation
            below = below.under(DropProvenance(below.node.schema, below.node))
        return planner.gathered(below, self.span.by).under(self)

    def is_traced(self, views: Mapping[str, bool]) -> bool:
        return False


@dataclass(frozen=True)
class BSort(Unary):
    """The rows in the order of a column, as far as a buffer can bring it about.

    `slack` + 1 rows are held back; or, if it is None, every row until one has come that is `within` greater, or more.
    A row smaller than one that has been given out, or NULL, is late and is not given out."""

    column: int
    slack: int | None
    owner: str = ""
    within: int | float = field(default=0, metadata=ADDED)

    passes: ClassVar[bool] = True

    def shape(self) -> object:
        held = (self.slack,) if self.slack is not None else ("within", self.within)
        return ("bsort", self.column, *held, self.owner)

    def describe(self) -> str:
        held = f"within {self.within}" if self.slack is None else f"slack {self.slack}"
        return f"b-sort by #{self.column}, {held}"

    def knows(self, deriver: KnowledgeDeriver) -> Facts:
        return deriver.flowing(self, delayed=True)

    def together(self) -> tuple[Columns | None, ...]:
        return ((),)
