"""TopK: the first rows in an order. All rows must be in one place, or at least the first ones of every partition.

TopKPerGroup: the same for each group, of which all rows must be in one place.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

from whence.plan.algebra.expressions import Expr
from whence.plan.algebra.logical.node import SMALL, Columns, Unary

if TYPE_CHECKING:
    from whence.plan.knowledge.derive import KnowledgeDeriver
    from whence.plan.knowledge.facts import Facts
    from whence.plan.partitions.enforce import DistributionEnforcer, Placed


@dataclass(frozen=True)
class Order:
    """A column to order by."""

    column: int
    descending: bool = False
    nulls_first: bool = False


@dataclass(frozen=True)
class TopK(Unary):
    """The first `limit` rows after `offset`, ordered by `order`, then by the remaining columns left to right, so that
    the cut is deterministic."""

    order: tuple[Order, ...]
    limit: int | None
    offset: int = 0

    stays_small: ClassVar[bool] = True

    def shape(self) -> object:
        return ("topk", "nulls last", self.order, self.limit, self.offset)

    def describe(self) -> str:
        order = ", ".join(f"#{o.column}{' desc' if o.descending else ''}" for o in self.order)
        size = "all" if self.limit is None else str(self.limit)
        return f"first {size}" + (f" after {self.offset}" if self.offset else "") + f" by {order or 'all columns'}"

    def refuses_recursion(self, side: int) -> str | None:
        return "LIMIT"

    def knows(self, deriver: KnowledgeDeriver) -> Facts:
        return deriver.cut(self) if self.limit is not None or self.offset else deriver.of(self.input)

    def origin(self, side: int, column: int) -> int | None:
        return column

    def place(self, planner: DistributionEnforcer) -> Placed:
        below = planner.place(self.input)
        if below.is_whole or (self.limit is None and not self.offset):
            return below.under(self)
        if self.limit is not None:  # what is not among the first of its own partition is not among the first of all
            below = below.under(replace(self, limit=self.limit + self.offset, offset=0))
        return below.moved(()).under(self)

    @property
    def is_small(self) -> bool:
        return (self.limit is not None and self.limit <= SMALL) or self.input.is_small


@dataclass(frozen=True)
class TopKPerGroup(Unary):
    """The first `limit` rows after `offset` of each group of rows that are equal in `keys`, ordered as by TopK.

    The limit is None for all rows, a number, or a column among the keys, where NULL means all. While a query is bound
    it may be a parameter."""

    keys: Columns
    order: tuple[Order, ...]
    limit: Expr | None
    offset: int = 0

    def describe(self) -> str:
        order = ", ".join(f"#{o.column}{' desc' if o.descending else ''}" for o in self.order)
        by = ", ".join(f"#{k}" for k in self.keys)
        after = f" after {self.offset}" if self.offset else ""
        size = "all" if self.limit is None else str(self.limit)
        return f"first {size}{after} by {order or 'all columns'} of each {by}"

    def refuses_recursion(self, side: int) -> str | None:
        return "LIMIT"

    def together(self) -> tuple[Columns | None, ...]:
        return (self.keys,)

    def origin(self, side: int, column: int) -> int | None:
        return column
