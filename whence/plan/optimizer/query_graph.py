"""Relations of a query and the equalities that join them, closed over equality classes.

An expression is a set of relations, as the bits of an integer. Columns that are equal to each other form a class, and
any two relations with a column in one class can be joined, whether or not the query says so: in TPC-H's Q5 customers
and nations have no predicate of their own, but `c_nationkey = s_nationkey` and `s_nationkey = n_nationkey` imply one.

Invariant: what is estimated of an expression depends on its relations alone, never on the way they were joined. Logs of
row counts are integers (`FRACTION` bits after the point), so sums are exact in any order.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import log2

from whence.model.errors import DataError
from whence.plan.optimizer.kernels.costs import FRACTION

MOST_RELATIONS = 60
Expression = int  # the set of its relations
Edges = Mapping[tuple[str, str], float]


def fixed_log(value: float) -> int:
    """Return log2 of a positive number as an integer of `FRACTION` bits after the point."""
    if not value > 0:
        raise DataError(f"rows and selectivities are positive, not {value}")
    return round(log2(value) * (1 << FRACTION))


@dataclass(frozen=True)
class Equality:
    """Two columns that are equal: relation and column of each, and which part of all pairs are."""

    left: tuple[int, str]
    right: tuple[int, str]
    selectivity: float


@dataclass(frozen=True)
class EqualityClass:
    """Columns that are all equal to each other: one of each relation, and the log of the selectivity of each pair."""

    columns: Mapping[int, str]
    pairs: Mapping[tuple[int, int], int]

    @cached_property
    def relations(self) -> Expression:
        """Return the relations that have a column in this class."""
        return sum(1 << relation for relation in self.columns)

    def selectivity(self, expression: Expression) -> int:
        """Return the log of the selectivity of all equalities within an expression: of the weakest that imply them."""
        trees = {r: r for r in self.columns if expression >> r & 1}
        total = 0
        for (left, right), log in sorted(self.pairs.items(), key=lambda pair: -pair[1]):
            if left in trees and right in trees and trees[left] != trees[right]:
                gone, stays = trees[left], trees[right]
                trees = {r: stays if tree == gone else tree for r, tree in trees.items()}
                total += log
        return total


class QueryGraph:
    """The relations of some queries, their row counts, and the classes of columns by which they are joined.

    Edges are named by relations, or by their columns: `("c.nationkey", "s.nationkey"): 0.04`.
    """

    def __init__(
        self, rows: Mapping[str, float], edges: Edges, queries: Iterable[Collection[str]] | None = None
    ) -> None:
        if not 0 < len(rows) <= MOST_RELATIONS:
            raise DataError(f"a join graph has 1 to {MOST_RELATIONS} relations, not {len(rows)}")
        self.relations = tuple(rows)
        self.rows = dict(rows)
        for count in rows.values():
            fixed_log(count)  # refuses what is not positive
        self._numbers = {name: number for number, name in enumerate(self.relations)}
        self.classes = _classes([self._equality(names, part) for names, part in edges.items()])
        self.neighbours = [self._neighbours(number) for number in range(len(rows))]
        self._connected: dict[Expression, bool] = {}
        wanted = [self.relations] if queries is None else list(queries)
        self.queries = tuple(self.expression(query) for query in wanted)
        for query in self.queries:
            if not self.is_connected(query):
                raise DataError(f"{self.name(query)} are not connected by equalities; a join would be a cross product")

    def _equality(self, names: tuple[str, str], selectivity: float) -> Equality:
        ends = []
        for name in names:
            relation, _, column = name.partition(".")
            ends.append((self.number(relation), column or "|".join(sorted(names))))
        if ends[0][0] == ends[1][0]:
            raise DataError(f"an edge joins two relations, not {names[0]} with itself")
        return Equality(ends[0], ends[1], selectivity)

    def number(self, relation: str) -> int:
        """Return the number of a relation."""
        if relation not in self._numbers:
            raise DataError(f'there is no relation "{relation}"; there are {", ".join(self.relations)}')
        return self._numbers[relation]

    def expression(self, relations: str | Iterable[str]) -> Expression:
        """Return the set of some relations."""
        names = (relations,) if isinstance(relations, str) else tuple(relations)
        return sum(1 << number for number in {self.number(name) for name in names})

    def members(self, expression: Expression) -> tuple[str, ...]:
        """Return the names of an expression's relations."""
        return tuple(name for number, name in enumerate(self.relations) if expression >> number & 1)

    def name(self, expression: Expression) -> str:
        """Return an expression as text."""
        return " ".join(self.members(expression))

    def _neighbours(self, number: int) -> Expression:
        joined = 0
        for each in self.classes:
            if number in each.columns:
                joined |= each.relations
        return joined & ~(1 << number)

    def is_connected(self, expression: Expression) -> bool:
        """Return whether equalities connect all relations of an expression."""
        found = self._connected.get(expression)
        if found is None:
            reached, fresh = 0, expression & -expression
            while fresh:
                reached |= fresh
                around = 0
                while fresh:
                    low = fresh & -fresh
                    around |= self.neighbours[low.bit_length() - 1]
                    fresh ^= low
                fresh = around & expression & ~reached
            found = self._connected[expression] = reached == expression
        return found

    def splits(self, expression: Expression) -> Iterator[tuple[Expression, Expression]]:
        """Yield all pairs of connected expressions, in both orders, that make up an expression."""
        part = (expression - 1) & expression
        while part:
            rest = expression ^ part
            if self.is_connected(part) and self.is_connected(rest):
                yield part, rest
            part = (part - 1) & expression

    def crossing(self, left: Expression, right: Expression) -> list[int]:
        """Return the numbers of the classes that join two expressions."""
        return [n for n, each in enumerate(self.classes) if each.relations & left and each.relations & right]

    def log_selectivity(self, expression: Expression) -> int:
        """Return the log of the selectivity of all equalities within an expression."""
        return sum(each.selectivity(expression) for each in self.classes)


def _classes(equalities: Sequence[Equality]) -> tuple[EqualityClass, ...]:
    """Return the classes of equal columns, each with all its pairs: an implied one is as selective as the sharpest
    equality on the way between its columns."""
    ends = {end for each in equalities for end in (each.left, each.right)}
    root = {end: end for end in ends}

    def find(end: tuple[int, str]) -> tuple[int, str]:
        while root[end] != end:
            end = root[end]
        return end

    for each in equalities:
        root[find(each.left)] = find(each.right)
    groups: dict[tuple[int, str], list[Equality]] = {}
    for each in equalities:
        groups.setdefault(find(each.left), []).append(each)
    return tuple(_class_of(group) for group in groups.values())


def _class_of(equalities: list[Equality]) -> EqualityClass:
    columns: dict[int, str] = {}
    for relation, column in (end for each in equalities for end in (each.left, each.right)):
        columns.setdefault(relation, column)
    said: dict[tuple[int, int], int] = {}
    for each in equalities:
        log = fixed_log(each.selectivity)
        for pair in ((each.left[0], each.right[0]), (each.right[0], each.left[0])):
            said[pair] = min(log, said.get(pair, log))
    widest = dict(said)
    for middle in columns:  # Floyd and Warshall: the way whose sharpest equality is the weakest
        for a in columns:
            for b in columns:
                if (a, middle) in widest and (middle, b) in widest:
                    through = min(widest[a, middle], widest[middle, b])
                    widest[a, b] = max(widest.get((a, b), through), through)
    pairs = {(a, b): said.get((a, b), widest[a, b]) for a in columns for b in columns if a < b}
    return EqualityClass(columns, pairs)
