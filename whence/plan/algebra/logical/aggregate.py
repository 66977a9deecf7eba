"""Aggregate: one row per group. Rows of a group must meet, or the results of their parts where that is exact."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, ClassVar, Literal

from whence.model.types import Kind, Schema
from whence.plan.algebra.distribution import SPREAD, by
from whence.plan.algebra.logical.node import Columns, Node, Unary

if TYPE_CHECKING:
    from whence.plan.knowledge.derive import KnowledgeDeriver
    from whence.plan.knowledge.facts import Facts
    from whence.plan.partitions.enforce import DistributionEnforcer, Placed

_SUMMED_DIGITS = 28  # so that 2**31 numbers, as many as an aggregate takes in, have a sum of 38 digits


@dataclass(frozen=True)
class Agg:
    """One aggregate: `column` of the input, or None for COUNT(*). FIRST and LAST are over streams, and go by two
    columns `order`, of which the second is the arrival; only windows have those of the last line."""

    function: Literal[
        "count", "sum", "avg", "min", "max",
        "first", "last",
        "stddev", "stddev_pop", "quantile", "window_start", "window_end",
    ]  # fmt: skip
    column: int | None
    distinct: bool = False
    parameter: float | None = None  # the quantile
    order: tuple[int, ...] = field(default=(), metadata={"added": True})

    @property
    def reads(self) -> tuple[int, ...]:
        """The columns that it reads."""
        return self.order if self.column is None else (self.column, *self.order)

    def moved(self, place: Callable[[int], int]) -> Agg:
        """Return the aggregate of the same columns at other places."""
        column = None if self.column is None else place(self.column)
        return replace(self, column=column, order=tuple(map(place, self.order)))

    def describe(self) -> str:
        """Return it as text."""
        if self.function in ("window_start", "window_end"):
            return self.function
        column = "*" if self.column is None else f"#{self.column}"
        more = f", {self.parameter:g}" if self.parameter is not None else ""
        more += f" order by {', '.join(f'#{c}' for c in self.order)}" if self.order else ""
        return f"{self.function}({'distinct ' if self.distinct else ''}{column}{more})"


def by_arrival(aggs: Iterable[Agg]) -> Agg | None:
    """Return the first aggregate that goes by the arrival of rows, and does not know the column of that yet."""
    return next((agg for agg in aggs if agg.function in ("first", "last") and len(agg.order) < 2), None)


def describe_groups(aggs: tuple[Agg, ...], keys: tuple[int, ...]) -> str:
    """Return aggregates and keys as text."""
    return f"{', '.join(a.describe() for a in aggs) or 'nothing'} by {', '.join(f'#{k}' for k in keys) or 'nothing'}"


@dataclass(frozen=True)
class Aggregate(Unary):
    """The keys of a group, then its aggregates; without keys one row always."""

    keys: tuple[int, ...]
    aggs: tuple[Agg, ...]

    stays_small: ClassVar[bool] = True

    def shape(self) -> object:
        types = self.input.schema.types
        sums = (a.column for a in self.aggs if a.function in ("sum", "avg"))
        exact = any(c is not None and types[c].kind is Kind.DOUBLE for c in sums)
        # Accumulators of a layout that is not the first one: images of that one are recomputed.
        return ("aggregate", self.schema.types, self.keys, self.aggs, *(("exact doubles",) if exact else ()))

    def describe(self) -> str:
        return f"aggregate {describe_groups(self.aggs, self.keys)}"

    def refuses_recursion(self, side: int) -> str | None:
        for agg in self.aggs:
            if agg.function not in ("min", "max"):
                return agg.function.upper() + ("(DISTINCT)" if agg.distinct else "")
        return None if self.keys else "an aggregate without GROUP BY"

    def knows(self, deriver: KnowledgeDeriver) -> Facts:
        return deriver.grouped(self)

    def together(self) -> tuple[Columns | None, ...]:
        return (self.keys,)

    def origin(self, side: int, column: int) -> int | None:
        return self.keys[column] if column < len(self.keys) else None

    def place(self, planner: DistributionEnforcer) -> Placed:
        below, keys = planner.place(self.input), range(len(self.keys))
        here, parts = below.under(self), self._combining()
        if below.everywhere:
            return here
        if here.place.kind == "hash":
            return here.only_first()
        if parts is None:
            made = self.with_inputs([below.moved(self.keys).node])
        else:
            made = Aggregate(self.schema, planner.at(here.node, SPREAD).moved(tuple(keys)).node, tuple(keys), parts)
        return planner.at(made, by(keys)).only_first()

    def _combining(self) -> tuple[Agg, ...] | None:
        """Return the aggregates that make the result of results of parts of the rows; None if that is not exact."""
        found = []
        for number, agg in enumerate(self.aggs):
            at = len(self.keys) + number
            if agg.function in ("min", "max"):
                found.append(Agg(agg.function, at))
            elif agg.distinct:
                return None
            elif agg.function == "count" or (agg.function == "sum" and _fits(self.input.schema, agg.column)):
                found.append(Agg("sum", at))
            else:
                return None
        return tuple(found)

    @property
    def is_small(self) -> bool:
        return not self.keys or self.input.is_small

    @property
    def has_row_over_nothing(self) -> bool:
        return not self.keys

    def gathered_everywhere(self) -> Node | None:
        return None if self.keys else super().gathered_everywhere()


def _fits(schema: Schema, column: int | None) -> bool:
    """Return whether no sum of some rows can be too large: else a part might be where the whole is not."""
    if column is None:
        return False
    type = schema.types[column]
    return type.kind is Kind.INTEGER or (type.kind is Kind.DECIMAL and type.precision <= _SUMMED_DIGITS)
