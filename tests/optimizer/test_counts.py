"""Section 5.3: how many entries and alternatives a change of a clique computes again, unpruned and unconditional."""

from __future__ import annotations

import pytest

from tests.optimizer.queries import clique
from whence.adapt.optimizer import PlanOptimizer

WAYS = ["bottom_up/all", "bottom_up/best", "top_down/best"]


def unpruned(way: str, count: int) -> PlanOptimizer:
    kind, memo = way.split("/")
    return clique(count).optimizer(kind, memo=memo, prune="none", conditional=False)  # type: ignore[arg-type]  # names


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("n", range(3, 8))
def test_rows_of_an_expression(way: str, n: int) -> None:
    plan = unpruned(way, n)
    names = plan.search.model.graph.relations
    for k in range(1, n + 1):
        assert plan.change(rows={names[:k]: 5_000 + k}).recomputed == (
            2 ** (n - k),
            2**k * 3 ** (n - k) - 2**k - 2 ** (n - k + 1) + 2,
        )


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("n", range(3, 8))
def test_selectivity_of_an_expression(way: str, n: int) -> None:
    plan = unpruned(way, n)
    names = plan.search.model.graph.relations
    for k in range(2, n + 1):
        assert plan.change(selectivity={names[:k]: 1.5}).recomputed == (
            2 ** (n - k),
            2**k * 3 ** (n - k) - 2 ** (n - k + 1),
        )


@pytest.mark.parametrize("way", WAYS)
def test_six_relations(way: str) -> None:
    plan = unpruned(way, 6)
    names = plan.search.model.graph.relations
    rows = [plan.change(rows={names[:k]: 9_000}).recomputed for k in range(1, 7)]
    assert rows == [(32, 422), (16, 290), (8, 194), (4, 122), (2, 62), (1, 0)]
    found = [plan.change(selectivity={names[:k]: 3}).recomputed for k in range(2, 7)]
    assert found == [(16, 292), (8, 200), (4, 136), (2, 92), (1, 62)]


def test_conditional_testing_computes_less() -> None:
    """A join that is in no best plan becomes dearer: only its entry is looked at."""
    plan = clique(6).optimizer("bottom_up", memo="best", conditional=True)
    other = clique(6).optimizer("bottom_up", memo="best", conditional=False)
    worst = (("r4",), ("r5",))
    local = plan.alternative(("r4", "r5"), worst).local
    plan.change(local={worst: 8 * local})
    other.change(local={worst: 8 * local})
    assert plan.cost == other.cost
    assert plan.recomputed[0] < other.recomputed[0]
    assert plan.recomputed[1] < other.recomputed[1]


def test_branch_and_bound_costs_less_than_everything() -> None:
    plan = clique(7).optimizer("top_down")
    assert plan.recomputed[0] < 127
    assert plan.recomputed[1] < 1932
