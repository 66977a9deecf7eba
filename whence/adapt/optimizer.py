"""`whence.optimizer`: the best join plan of a query, kept while statistics and costs change.

>>> import whence
>>> graph = whence.optimizer.JoinGraph(
...     rows={"customer": 1_500, "orders": 15_000, "lineitem": 60_000},
...     edges={("customer.custkey", "orders.custkey"): 1 / 1_500, ("orders.key", "lineitem.orderkey"): 1 / 15_000},
... )
>>> plan = graph.optimizer("bottom_up")
>>> plan.tree
('hash', ('local scan', 'lineitem'), ('hash', ('local scan', 'orders'), ('local scan', 'customer')))
>>> plan.change(rows={"lineitem": 600}, selectivity={("customer", "orders"): 8}).tree
('hash', ('local scan', 'customer'), ('hash', ('local scan', 'orders'), ('local scan', 'lineitem')))
>>> plan.recomputed  # entries and alternatives
(4, 8)
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Literal, get_args

from whence.adapt.declarative import EVITA, PRUNINGS, Declarative, Pruning
from whence.model.errors import DataError
from whence.plan.optimizer.bottom_up import BottomUp, Memo
from whence.plan.optimizer.changes import CostChange
from whence.plan.optimizer.cost import CostModel, Costs, GivenCosts, Names
from whence.plan.optimizer.physical import (
    HASH,
    NESTED_LOOP,
    PIPE_HASH,
    SORT_MERGE,
    Aggregation,
    JoinOperator,
    Physical,
    Splits,
)
from whence.plan.optimizer.plans import PlanAlternative, PlanEntry, PlanReader, Tree
from whence.plan.optimizer.query_graph import Edges, QueryGraph
from whence.plan.optimizer.space import PlanModel
from whence.plan.optimizer.top_down import TopDown

__all__ = ["CostModel", "GivenCosts", "JoinGraph", "JoinOperator", "PlanAlternative", "PlanEntry", "PlanOptimizer"]

Kind = Literal["declarative", "bottom_up", "top_down"]
Prune = Literal["all", "none", "evita"] | Collection[Pruning]
JOINS = {join.name: join for join in (HASH, PIPE_HASH, SORT_MERGE, NESTED_LOOP)}
KEEPS_ENTRIES: tuple[Pruning, ...] = ("aggregate", "bound")  # the fastest after a change


class JoinGraph:
    """The relations of a query, how many rows they have, and which of their columns are equal.

    Edges are named by relations or columns and have selectivities; columns that are equal by way of others are joined,
    too. `queries` are several queries over these relations, optimized in one memo. `joins` are the physical operators
    that may be used, by name; `orders` and `indexes` say how relations are stored, `aggregate` how many groups a query
    ends in.
    """

    def __init__(
        self,
        rows: Mapping[str, float],
        edges: Edges,
        *,
        queries: Iterable[Collection[str]] | None = None,
        joins: Iterable[str | JoinOperator] = ("hash",),
        orders: Mapping[str, str] | None = None,
        indexes: Mapping[str, tuple[str, ...]] | None = None,
        only: Splits | None = None,
        sorts: bool = True,
        aggregate: float | None = None,
        aggregate_by: str = "",
    ) -> None:
        self.graph = QueryGraph(rows, edges, queries)
        self._joins = tuple(_join_operator(join) for join in joins)
        self._orders, self._indexes, self._only, self._sorts = orders or {}, indexes or {}, only or {}, sorts
        self._aggregation = Aggregation(aggregate, aggregate_by) if aggregate is not None else None

    def optimizer(
        self,
        kind: Kind = "declarative",
        *,
        costs: Costs | None = None,
        memo: Memo = "all",
        prune: Prune | None = None,
        conditional: bool = True,
        shape: Literal["bushy", "left"] = "bushy",
    ) -> PlanOptimizer:
        """Return an optimizer that has the best plan.

        "declarative" is a program on Whence's own engine, pruned by some of "aggregate", "count", "bound" and
        "outside"; "evita" prunes as Evita Raced does. "bottom_up" and "top_down" are procedural: `memo` is what they
        remember between changes, `conditional` is conditional testing; "top_down" branches and bounds unless `prune` is
        "none". All three find a plan of the same cost: the least.
        """
        physical = Physical(
            self._joins,
            self._orders,
            self._indexes,
            self._sorts,
            self._only,
            only_these=bool(self._only),
            shape=shape,
            aggregation=self._aggregation,
        )
        if memo not in get_args(Memo):
            raise DataError(f"memo is one of {', '.join(get_args(Memo))}, not {memo}")
        model = PlanModel(self.graph, physical, costs)
        if kind == "bottom_up":
            return PlanOptimizer(BottomUp(model, memo, conditional))
        if kind == "top_down":
            return PlanOptimizer(TopDown(model, memo, conditional, prune != "none"))
        if kind == "declarative":
            return PlanOptimizer(Declarative(model, _prunings(prune)))
        raise DataError(f"an optimizer is one of {', '.join(get_args(Kind))}, not {kind}")


class PlanOptimizer:
    """The best plan of a query, kept while statistics and costs change."""

    def __init__(self, chosen: BottomUp | TopDown | Declarative) -> None:
        self.search = chosen
        self._reader = PlanReader(chosen)

    def change(
        self,
        rows: Mapping[Names, float] | None = None,
        selectivity: Mapping[Names, float] | None = None,
        local: Mapping[tuple[Names, Names] | int, int | None] | None = None,
        scan: Mapping[str, int | None] | None = None,
    ) -> PlanOptimizer:
        """Change statistics and costs, several at once, and return the optimizer with the plan that is best now.

        `rows` of a relation are what it has, of an expression what it passes on to joins above it. `selectivity` is a
        factor on the estimate for an expression. `local` is the cost of joining a pair of expressions, `scan` that of
        scanning a relation; None leaves it to the cost model again.
        """
        self.search.apply(CostChange(rows or {}, selectivity or {}, local or {}, scan or {}))
        return self

    @property
    def cost(self) -> int:
        """Return the cost of the best plan; of several queries, of all together."""
        return sum(self.costs)

    @property
    def costs(self) -> tuple[int, ...]:
        """Return the cost of the best plan of each query."""
        return tuple(self.search.best_of(root) for root in self.search.model.roots)

    @property
    def tree(self) -> Tree:
        """Return the best plan of the (first) query: operators over operators, down to scans."""
        return self._reader.tree()

    @property
    def trees(self) -> tuple[Tree, ...]:
        """Return the best plan of each query."""
        return tuple(self._reader.tree(query) for query in range(len(self.search.model.roots)))

    @property
    def entries(self) -> tuple[PlanEntry, ...]:
        """Return the entries that are not pruned."""
        return self._reader.entries()

    @property
    def recomputed(self) -> tuple[int, int]:
        """Return how many entries (OR nodes) and alternatives (AND nodes) the last change computed again."""
        return self.search.recomputed

    @property
    def split_calls(self) -> int:
        """Return how many entries have been enumerated."""
        return self.search.model.splitter.calls

    def alternative(self, expression: Names, pair: tuple[Names, Names] | int) -> PlanAlternative:
        """Return an alternative of an expression, with what the cheapest whole plan through it costs."""
        return self._reader.alternative(expression, pair)


def _join_operator(join: str | JoinOperator) -> JoinOperator:
    if isinstance(join, JoinOperator):
        return join
    if join not in JOINS:
        raise DataError(f'there is no join operator "{join}"; there are {", ".join(JOINS)}')
    return JOINS[join]


def _prunings(prune: Prune | None) -> Collection[Pruning]:
    named: Mapping[str, Collection[Pruning]] = {"all": PRUNINGS, "none": (), "evita": EVITA}
    if prune is None:
        return KEEPS_ENTRIES
    if isinstance(prune, str):
        if prune not in named:
            raise DataError(f"prune is all, none, evita, or some of {', '.join(PRUNINGS)}, not {prune}")
        return named[prune]
    return prune
