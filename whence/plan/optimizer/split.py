"""`split`: the alternatives of an entry, which is an expression with a property (Fn_split and Fn_phyOp of Figure 19).

Every optimizer gets its search space from here. Answers are memoised, and the calls that had to be computed are
counted: a pruning that prunes calls less.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from whence.plan.optimizer.physical import (
    HASH_AGGREGATE,
    INDEX_SCAN,
    PLAIN,
    SCAN,
    SORT,
    SORT_AGGREGATE,
    JoinOperator,
    Physical,
    Property,
)
from whence.plan.optimizer.query_graph import Expression, QueryGraph

AGGREGATED: Expression = 1 << 61  # beside the relations of an expression: under the aggregate of the query


class MemoEntry(NamedTuple):
    """An OR node: an expression, and a property that its rows are to have."""

    expression: Expression
    property: Property = PLAIN


class Alternative(NamedTuple):
    """An AND node: a physical operator over entries; a scan has none, a sort or an aggregate one."""

    operator: str
    left: MemoEntry | None = None
    right: MemoEntry | None = None


class Splitter:
    """The search space of a query, entry by entry."""

    def __init__(self, graph: QueryGraph, physical: Physical) -> None:
        self.graph, self.physical = graph, physical
        self.calls = 0  # that were not memoised
        self._known: dict[MemoEntry, tuple[Alternative, ...]] = {}
        aggregation = physical.aggregation
        self.roots = tuple(MemoEntry(query | (AGGREGATED if aggregation else 0)) for query in graph.queries)

    def split(self, entry: MemoEntry) -> tuple[Alternative, ...]:
        """Return all alternatives of an entry."""
        found = self._known.get(entry)
        if found is None:
            self.calls += 1
            found = self._known[entry] = tuple(self._alternatives(entry))
        return found

    def forget(self) -> None:
        """Drop what is memoised, and begin to count anew."""
        self._known.clear()
        self.calls = 0

    def is_leaf(self, entry: MemoEntry) -> bool:
        """Return whether an entry is one relation (Fn_isleaf)."""
        return entry.expression & (entry.expression - 1) == 0

    def _alternatives(self, entry: MemoEntry) -> Iterator[Alternative]:
        if entry.expression & AGGREGATED:
            yield from self._aggregates(entry)
        elif self.is_leaf(entry):
            yield from self._scans(entry)
        else:
            for left, right in self.graph.splits(entry.expression):
                yield from self._joins(entry, left, right)
            yield from self._sort(entry)

    def _aggregates(self, entry: MemoEntry) -> Iterator[Alternative]:
        below = entry.expression & ~AGGREGATED
        yield Alternative(HASH_AGGREGATE, MemoEntry(below))
        aggregation = self.physical.aggregation
        if aggregation is not None and aggregation.by:
            relation, _, column = aggregation.by.partition(".")
            by = self._class_of(relation, column)
            if by is not None:
                yield Alternative(SORT_AGGREGATE, MemoEntry(below, Property("order", by)))

    def _class_of(self, relation: str, column: str) -> int | None:
        number = self.graph.number(relation)
        return next((n for n, c in enumerate(self.graph.classes) if c.columns.get(number) == column), None)

    def _scans(self, entry: MemoEntry) -> Iterator[Alternative]:
        (name,) = self.graph.members(entry.expression)
        kind, by = entry.property
        if kind == "index":
            yield Alternative(INDEX_SCAN)
        elif not kind or self._class_of(name, self.physical.orders.get(name, "")) == by:
            yield Alternative(SCAN)
        if kind == "order":
            yield from self._sort(entry)

    def _sort(self, entry: MemoEntry) -> Iterator[Alternative]:
        if entry.property.kind == "order" and self.physical.sorts:
            yield Alternative(SORT, MemoEntry(entry.expression))

    def _joins(self, entry: MemoEntry, left: Expression, right: Expression) -> Iterator[Alternative]:
        if self.physical.shape == "left" and right & (right - 1):
            return
        pair = frozenset(self.graph.members(left)), frozenset(self.graph.members(right))
        joins = () if self.physical.only_these else self.physical.joins
        for operator in self.physical.only.get(pair, joins) if self.physical.only else self.physical.joins:
            if not (operator.symmetric and self._is_mirrored(left, right, pair)):
                yield from self._joined(entry, operator, left, right)

    def _is_mirrored(self, left: Expression, right: Expression, pair: tuple[frozenset[str], frozenset[str]]) -> bool:
        """Return whether the same pair comes once more, in the other order."""
        again = self.physical.shape == "bushy" or left & (left - 1) == 0
        if self.physical.only:
            again = again and (pair[1], pair[0]) in self.physical.only
        return again and left > right

    def _joined(
        self, entry: MemoEntry, operator: JoinOperator, left: Expression, right: Expression
    ) -> Iterator[Alternative]:
        """Yield a join by each class that gives what is asked for; one that has no use for classes comes once."""
        by_class = operator.left or operator.right or operator.gives == "join"
        for by in self.graph.crossing(left, right) if by_class else [-1]:
            ordered = operator.gives == "any" or (operator.gives == "join" and entry.property == Property("order", by))
            if entry.property.kind and not ordered:
                continue
            sides = [self._required(kind, by, side) for kind, side in ((operator.left, left), (operator.right, right))]
            if sides[0] is not None and sides[1] is not None:
                yield Alternative(operator.name, sides[0], sides[1])

    def _required(self, kind: str, by: int, side: Expression) -> MemoEntry | None:
        """Return an input with what is required of it, or None if it cannot have that."""
        if kind == "index":
            names = self.graph.members(side)
            column = self.graph.classes[by].columns.get(self.graph.number(names[0])) if len(names) == 1 else None
            indexed = column is not None and column in self.physical.indexes.get(names[0], ())
            return MemoEntry(side, Property("index", by)) if indexed else None
        return MemoEntry(side, Property("order", by)) if kind == "order" else MemoEntry(side)
