"""Q3S (Figure 21): its costs, what each pruning leaves, and the flip; then the cases of section 4.3, one by one."""

from __future__ import annotations

import numpy as np
import pytest

from tests.optimizer.queries import Q3S_COSTS, q3s
from whence.adapt.declarative import Declarative, Pruning
from whence.adapt.optimizer import GivenCosts, PlanOptimizer, Prune
from whence.adapt.private_flow import PrivateFlow
from whence.adapt.rules import BEST_COST, BEST_PLAN, BOUND, SPACE

C_OL = (("C",), ("O", "L"))
L_CO = (("L",), ("C", "O"))
SCANS = {"C": 4, "O": 19, "L": 50}


def plan(prune: tuple[Pruning, ...] = ("aggregate", "count", "bound")) -> PlanOptimizer:
    return q3s().optimizer("declarative", costs=Q3S_COSTS, prune=prune)


def space(optimizer: PlanOptimizer) -> dict[str, int]:
    """Return the entries of the space, and how many alternatives each has there."""
    return {"".join(entry.relations): entry.alternatives for entry in optimizer.entries}


@pytest.mark.parametrize("kind", ["declarative", "bottom_up", "top_down"])
def test_best_costs_100_and_second_101(kind: str) -> None:
    optimizer = q3s().optimizer(kind, costs=Q3S_COSTS)  # type: ignore[arg-type]  # by its name
    assert optimizer.cost == 100
    assert optimizer.alternative(("C", "O", "L"), C_OL).whole_plan == 100
    second = optimizer.alternative(("C", "O", "L"), L_CO)
    assert (second.cost, second.whole_plan) == (101, 101)
    assert optimizer.alternative(("C", "O"), ("C", "O")).cost == 30
    assert optimizer.alternative(("C", "O"), ("C", "O")).whole_plan == 101


@pytest.mark.parametrize("kind", ["declarative", "bottom_up", "top_down"])
def test_flip_at_two_hundredths(kind: str) -> None:
    optimizer = q3s().optimizer(kind, costs=Q3S_COSTS)  # type: ignore[arg-type]  # by its name
    assert optimizer.change(local={C_OL: 8}).cost == 101
    assert optimizer.change(local={C_OL: 9}).cost == 101
    assert optimizer.tree[1:] in (
        (("local scan", "L"), ("pipe-hash", ("local scan", "C"), ("local scan", "O"))),
        (("pipe-hash", ("local scan", "C"), ("local scan", "O")), ("local scan", "L")),
    )
    assert optimizer.change(local={C_OL: 7}).cost == 100


def test_everything_stays_without_pruning() -> None:
    assert space(plan(())) == {"C": 1, "O": 1, "L": 1, "CO": 1, "OL": 1, "COL": 2}


def test_aggregate_selection_drops_the_dearer_join() -> None:
    optimizer = plan(("aggregate",))
    assert space(optimizer) == {"C": 1, "O": 1, "L": 1, "CO": 1, "OL": 1, "COL": 1}


def test_reference_counting_drops_what_nothing_reads() -> None:
    assert space(plan(("aggregate", "count"))) == {"C": 1, "O": 1, "L": 1, "OL": 1, "COL": 1}


def test_recursive_bounding_enumerates_less() -> None:
    """Through CO a plan costs at least the scans, 73, and the join with L: at 900 that is beyond any bound, and CO is
    never enumerated. Pruning against equivalent plans alone enumerates it."""
    dear = GivenCosts(
        Q3S_COSTS.scan, {pair: 900 if pair == ("L", ("C", "O")) else c for pair, c in Q3S_COSTS.local.items()}
    )
    ways: dict[str, Prune] = {"none": "none", "evita": "evita", "bound": ("aggregate", "bound")}
    calls = {}
    for name, prune in ways.items():
        optimizer = q3s().optimizer("declarative", costs=dear, prune=prune)
        assert optimizer.cost == 100
        calls[name] = optimizer.split_calls
    assert calls == {"none": 6, "evita": 6, "bound": 5}
    assert "CO" not in space(optimizer)


# -- 4.3.1: four cases of aggregate selection ----------------------------------------------------------------------


class Program:
    """The rules over one entry, 9, whose alternatives are scans; a tree of it is what an alternative costs."""

    def __init__(self, *costs: int) -> None:
        self.flow = PrivateFlow(SPACE + BEST_COST + BEST_PLAN + BOUND)
        self.flow.run({"goal": _rows([[9]], 1)})
        for number, cost in enumerate(costs):
            self.insert(number, cost)

    def insert(self, number: int, cost: int, sign: int = 1) -> None:
        row = [[number, 9, -1, -1]]
        self.flow.run({"space": _rows(row, sign), "cost": _rows([[number, cost]], sign)})

    def update(self, number: int, old: int, new: int) -> None:
        rows, signs = np.array([[number, old], [number, new]], np.int64), np.array([-1, 1], np.int64)
        self.flow.run({"cost": (rows, signs)})

    def best(self) -> tuple[int, int]:
        """Return the best cost, and the alternative that has it."""
        ((_, cost),), ((_, number),) = self.flow.rows("best_cost").tolist(), self.flow.rows("best_plan").tolist()
        return cost, number


def _rows(rows: list[list[int]], sign: int) -> tuple[np.ndarray, np.ndarray]:
    return np.array(rows, np.int64), np.full(len(rows), sign, np.int64)


def test_case_1_insertion_lowers_the_best_only_if_cheaper() -> None:
    program = Program(50)
    program.insert(1, 60)
    assert program.best() == (50, 0)
    program.insert(2, 40)
    assert program.best() == (40, 2)


def test_case_2_deletion_of_the_best_brings_the_next() -> None:
    program = Program(50, 60, 70)
    program.insert(2, 70, -1)
    assert program.best() == (50, 0)
    program.insert(0, 50, -1)
    assert program.best() == (60, 1)


def test_case_3_a_rise_of_the_best_brings_the_lesser_of_it_and_the_next() -> None:
    program = Program(50, 60)
    program.update(0, 50, 55)
    assert program.best() == (55, 0)
    program.update(0, 55, 65)
    assert program.best() == (60, 1)
    program.update(0, 65, 90)  # not the best: nothing happens
    assert program.best() == (60, 1)


def test_case_4_a_fall_counts_if_it_is_the_best_or_passes_it() -> None:
    program = Program(50, 60)
    program.update(0, 50, 45)
    assert program.best() == (45, 0)
    program.update(1, 60, 46)
    assert program.best() == (45, 0)
    program.update(1, 46, 44)
    assert program.best() == (44, 1)


# -- 4.3.2: two cases of reference counting -------------------------------------------------------------------------


def test_a_count_from_0_to_1_brings_an_entry_back() -> None:
    optimizer = plan(("aggregate", "count"))
    assert "CO" not in space(optimizer)
    optimizer.change(local={C_OL: 9})
    assert space(optimizer) == {"C": 1, "O": 1, "L": 1, "CO": 1, "COL": 1}


def test_a_count_from_1_to_0_removes_an_entry_and_what_only_it_reads() -> None:
    """OL goes, and its join (O, L) with it; O and L are still read by others."""
    optimizer = plan(("aggregate", "count"))
    assert "OL" in space(optimizer)
    optimizer.change(local={C_OL: 9})
    search = optimizer.search
    assert isinstance(search, Declarative)
    counts = {search.model.graph.name(search.model.names[e].expression): n for e, n in search.rows("reference_count")}
    assert counts == {"C O L": 1, "L": 1, "C O": 1, "C": 1, "O": 1}


# -- 4.3.3: three cases of bounds -----------------------------------------------------------------------------------


def bounds(optimizer: PlanOptimizer) -> dict[str, int]:
    """Return the bound of each entry of an optimizer that prunes nothing, by Figure 22 as a shortest path."""
    search = optimizer.search
    assert isinstance(search, Declarative)
    search.explained()
    named = {number: "".join(search.model.graph.members(e.expression)) for number, e in enumerate(search.model.names)}
    return {named[entry]: cost for entry, cost in search.rows("bound").tolist()}


def test_bounds_are_those_of_figure_22() -> None:
    """CO may cost 29: then the plan through it would cost 100."""
    assert bounds(plan(())) == {"COL": 100, "OL": 89, "CO": 29, "C": 4, "O": 19, "L": 50}


def test_case_1_a_plan_cost_that_passes_its_bound() -> None:
    """(L, CO) at 101 is beyond the bound, 100; at 99 it is within, and sets the bound."""
    optimizer = plan()
    assert "CO" not in space(optimizer)
    optimizer.change(local={L_CO: 19})
    assert optimizer.cost == 99
    assert space(optimizer) == {"COL": 1, "CO": 1, "C": 1, "O": 1, "L": 1}


def test_case_2_a_bound_that_rises_brings_alternatives_back() -> None:
    """The bound of CO rises from 29 to 31; its join, at 30, is between them."""
    marks = plan(())
    assert bounds(marks)["CO"] == 29
    marks.change(local={C_OL: 9})
    assert bounds(marks)["CO"] == 30  # its best cost: it is on the best plan now
    assert bounds(marks)["OL"] == 88
    optimizer = plan()
    optimizer.change(local={C_OL: 9})
    assert "CO" in space(optimizer)


def test_case_3_a_bound_that_falls_prunes() -> None:
    optimizer = plan()
    optimizer.change(local={C_OL: 9})
    optimizer.change(local={C_OL: 7})
    assert space(optimizer) == {"C": 1, "O": 1, "L": 1, "OL": 1, "COL": 1}


def test_changes_in_opposite_directions_at_once() -> None:
    """The parents of OL become cheaper and OL itself dearer, in one change; then the other way round."""
    for optimizer in (plan(()), plan(("aggregate",)), plan(), q3s().optimizer("top_down", costs=Q3S_COSTS)):
        optimizer.change(local={C_OL: 2, L_CO: 30, ("O", "L"): 23}, scan={"C": 10})
        assert optimizer.cost == 2 + 10 + (19 + 50 + 23)
        optimizer.change(local={C_OL: 20, L_CO: 1, ("O", "L"): 10}, scan={"C": 4, "L": 60})
        assert optimizer.cost == min(20 + 4 + (19 + 60 + 10), 1 + 60 + (4 + 19 + 7))
