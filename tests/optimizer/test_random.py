"""Random queries and changes: every optimizer, every memo and every pruning has the cost of the best of all plans."""

from __future__ import annotations

from itertools import pairwise
from random import Random
from typing import Any

import pytest

from tests.depth import seeds
from tests.optimizer.oracle import Statistics
from tests.optimizer.queries import PRUNINGS
from whence.adapt.optimizer import JoinGraph, PlanOptimizer
from whence.plan.optimizer.plans import recost

WAYS: list[tuple[str, dict[str, Any]]] = [
    *(("bottom_up", {"memo": m, "conditional": c}) for m in ("none", "best", "all", "likely") for c in (False, True)),
    *(
        ("top_down", {"memo": m, "conditional": c, "prune": p})
        for m in ("none", "best", "all")
        for c in (False, True)
        for p in ("none", "all")
    ),
    *(("declarative", {"prune": prune}) for prune in PRUNINGS),
]
SHAPES = ("chain", "star", "cycle", "clique")


def check(plan: PlanOptimizer, cost: int, what: object) -> None:
    """The cost, and that of the tree added up."""
    root = plan.search.model.roots[0]
    assert (plan.cost, recost(plan.search.model, plan.search, root)) == (cost, cost), what


@pytest.mark.parametrize("seed", seeds(6))
@pytest.mark.parametrize("shape", SHAPES)
def test_incremental_is_from_scratch_is_the_best_of_all_trees(shape: str, seed: int) -> None:
    random = Random(f"{shape} {seed}")
    statistics = Statistics(shape, 3 + seed % 5, random)  # up to 7 relations
    plans = [(way, statistics.graph().optimizer(way[0], **way[1])) for way in WAYS]  # type: ignore[arg-type]  # by name
    for _ in range(6):
        best = statistics.all_trees()
        for way, plan in plans:
            check(plan, best, way)
        change = statistics.change()
        for _, plan in plans:
            plan.change(**change)  # type: ignore[arg-type]  # as it was drawn


@pytest.mark.parametrize("shape", SHAPES)
def test_ten_relations_by_an_independent_program(shape: str) -> None:
    size = 8 if shape == "clique" else 10
    statistics = Statistics(shape, size, Random(shape))
    ways = [WAYS[0], WAYS[5], WAYS[7], WAYS[-12], ("declarative", {}), ("declarative", {"prune": "all"})]
    plans = [(way, statistics.graph().optimizer(way[0], **way[1])) for way in ways]  # type: ignore[arg-type]  # by name
    for _ in range(3):
        best = statistics.program()
        for way, plan in plans:
            check(plan, best, way)
        change = statistics.change()
        for _, plan in plans:
            plan.change(**change)  # type: ignore[arg-type]  # as it was drawn


@pytest.mark.parametrize("seed", seeds(4))
def test_physical_properties_and_aggregates(seed: int) -> None:
    """Orders, indexes and sorts: all ways agree with dynamic programming that remembers nothing."""
    random = Random(seed)
    names = [f"r{number}" for number in range(random.randint(2, 5))]
    edges = {(f"{a}.k", f"{b}.k" if random.random() < 0.3 else f"{b}.j"): 0.01 for a, b in pairwise(names)}
    graph = JoinGraph(
        {name: random.choice([10, 300, 8_000]) for name in names},
        edges,
        joins=random.choice([("hash", "sort-merge", "nested-loop"), ("pipe-hash", "sort-merge")]),
        orders={names[0]: "k"},
        indexes=dict.fromkeys(names, ("j",)),
        aggregate=random.choice([None, 12]),
        aggregate_by=f"{names[0]}.k",
    )
    shape = random.choice(["bushy", "left"])
    plans = [(way, graph.optimizer(way[0], **way[1], shape=shape)) for way in WAYS]  # type: ignore[arg-type]  # by name
    for _ in range(5):
        for way, plan in plans:
            check(plan, plans[0][1].cost, way)
        rows = {random.choice(names): random.choice([1, 50, 40_000]) for _ in range(2)}
        for _, plan in plans:
            plan.change(rows=rows)  # type: ignore[arg-type]  # names of relations


@pytest.mark.parametrize("kind", ["declarative", "bottom_up", "top_down"])
def test_several_queries_in_one_memo(kind: str) -> None:
    """Each has the plan it would have alone, and entries are shared, also by queries that are the same."""
    names = [f"r{number}" for number in range(8)]
    rows = {name: 10 * (number + 1) ** 3 for number, name in enumerate(names)}
    edges = dict.fromkeys(pairwise(names), 0.01)
    queries = [names[:5], names[2:7], names[4:], names[:3], names[:5]]  # one of them twice
    together = JoinGraph(rows, edges, queries=queries).optimizer(kind)  # type: ignore[arg-type]  # by name
    alone = [JoinGraph(rows, edges, queries=[query]).optimizer("bottom_up") for query in queries]
    for name in ("r2", "r5", "r0"):
        change = {name: 7 * rows[name]}
        together.change(rows=change)  # type: ignore[arg-type]  # names of relations
        for plan in alone:
            plan.change(rows=change)  # type: ignore[arg-type]  # names of relations
        assert together.costs == tuple(plan.cost for plan in alone)
    assert len(together.entries) < sum(len(plan.entries) for plan in alone)
