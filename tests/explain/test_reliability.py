"""Probabilities against enumeration, of real networks against their undirected form, and intervals over many seeds."""

from __future__ import annotations

import math
from itertools import product

import networkx as nx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.explain.graphs import build, graphs, reachable, table
from whence.explain.ask.evaluate import Evaluator
from whence.explain.ask.intervals import clopper_pearson
from whence.explain.ask.reliability import compute_reliability, sample_reliability
from whence.explain.graph import Derivations
from whence.model.errors import DataError

CHANCES = st.sampled_from([0.0, 0.1, 0.25, 0.5, 0.9, 1.0])


def enumerated(graph: Derivations, chances: list[float]) -> float:
    return math.fsum(
        math.prod(p if there else 1 - p for p, there in zip(chances, case, strict=True))
        for case, held in table(graph).items()
        if held
    )


@given(graphs(), st.data())
def test_exact_is_enumeration(graph: Derivations, data: st.DataObject) -> None:
    chances = data.draw(st.lists(CHANCES, min_size=len(graph.base), max_size=len(graph.base)))
    found = compute_reliability(graph, np.array(chances))
    assert found.method == "exact"
    assert found.probability == pytest.approx(enumerated(graph, chances), abs=1e-12)
    assert found.low == found.high == found.probability


@given(graphs(most=6, tallies=True), st.data())
def test_exact_with_tallies(graph: Derivations, data: st.DataObject) -> None:
    chances = data.draw(st.lists(CHANCES, min_size=len(graph.base), max_size=len(graph.base)))
    assert compute_reliability(graph, np.array(chances)).probability == pytest.approx(
        enumerated(graph, chances), abs=1e-12
    )


@st.composite
def networks(draw: st.DrawFn) -> tuple[list[tuple[int, int]], list[float]]:
    """Cables, some of one direction, whose two links often have the same chance."""
    cables = draw(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4)), min_size=1, max_size=7, unique=True))
    arcs, chances = [], []
    for x, y in cables:
        if x != y and (x, y) not in arcs:
            arcs.append((x, y))
            chances.append(draw(st.sampled_from([0.5, 0.75])))
            if (y, x) not in arcs and draw(st.booleans()) and len(arcs) < 9:
                arcs.append((y, x))
                chances.append(draw(st.sampled_from([chances[-1], chances[-1], 0.9])))
    return arcs, chances


@given(networks())
def test_networks(network: tuple[list[tuple[int, int]], list[float]]) -> None:
    arcs, chances = network
    expected = 0.0
    for case in product([False, True], repeat=len(arcs)):
        weight = math.prod(p if there else 1 - p for p, there in zip(chances, case, strict=True))
        left = nx.DiGraph([a for a, there in zip(arcs, case, strict=True) if there])
        expected += weight * (0 in left and 4 in left and nx.has_path(left, 0, 4))
    graph = reachable(arcs, 0, 4)
    assert compute_reliability(graph, np.array(chances)).probability == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("back", [0.5, 0.6])
def test_a_bridge_whose_cable_has_two_chances(back: float) -> None:
    arcs = [(0, 1), (0, 2), (1, 2), (2, 1), (1, 4), (2, 4)]
    chances = [0.9, 0.3, 0.5, back, 0.2, 0.8]
    graph = reachable(arcs, 0, 4)
    assert compute_reliability(graph, np.array(chances)).probability == pytest.approx(
        enumerated(graph, chances), abs=1e-14
    )


def test_a_ladder_of_two_links_a_cable() -> None:
    """40 rungs: the chance of a ladder by its transfer matrix, which knows cables only."""
    rungs, p = 40, 0.9
    cables = [((0, i), (1, i)) for i in range(rungs)]
    cables += [((side, i), (side, i + 1)) for side in (0, 1) for i in range(rungs - 1)]
    arcs = [a for x, y in cables for a in ((x, y), (y, x))]
    found = compute_reliability(reachable(arcs, (0, 0), (0, rungs - 1)), np.full(len(arcs), p))
    assert found.method == "exact"
    states = {"a": 1 - p, "ab": p, "b": 0.0}  # which of the two sides the start leads to
    for _ in range(rungs - 1):
        new = dict.fromkeys(states, 0.0)
        for state, weight in states.items():
            for up, down, rung in product([False, True], repeat=3):
                chance = weight * math.prod(p if t else 1 - p for t in (up, down, rung))
                a, b = up and "a" in state, down and "b" in state
                if rung:
                    a = b = a or b
                if a or b:
                    new["a" * a + "b" * b] += chance
        states = new
    assert found.probability == pytest.approx(states["a"] + states["ab"], abs=1e-12)


def test_a_limit_that_is_too_small_is_answered_by_sampling() -> None:
    grid = nx.grid_2d_graph(4, 4).to_directed()
    graph = reachable(list(grid.edges), (0, 0), (3, 3))
    chances = np.full(len(graph.base), 0.8)
    exact = compute_reliability(graph, chances)
    found = compute_reliability(graph, chances, limit=50, samples=4096)
    assert (exact.method, found.method, found.samples, found.nodes) == ("exact", "sampled", 4096, None)
    assert found.low <= exact.probability <= found.high
    assert found.high - found.low < 0.05


def test_sampled_intervals_cover_as_often_as_they_say() -> None:
    """At 90 %, of 300 intervals at most some 50 miss (45 would be five standard deviations above the 30 expected)."""
    bridge = reachable([(0, 1), (0, 2), (1, 2), (2, 1), (1, 3), (2, 3)], 0, 3)
    tally = build(4, [(4, [0, 1]), (4, [2]), (4, [3, 2])], [4])
    for graph in (bridge, tally):
        chances = np.linspace(0.3, 0.9, len(graph.base))
        truth = enumerated(graph, chances.tolist())
        evaluator = Evaluator(graph)
        missed = sum(
            not (found.low <= truth <= found.high)
            for seed in range(300)
            for found in [sample_reliability(evaluator, chances, 200, 0.9, seed)]
        )
        assert missed <= 30 + 5 * math.sqrt(27)
        assert missed >= 3


def test_clopper_pearson_against_scipy() -> None:
    from scipy.stats import beta

    for k, n in [(1, 10), (5, 10), (9, 10), (50, 100_000), (99_990, 100_000), (31_337, 100_000)]:
        low, high = clopper_pearson(k, n, 0.99)
        assert low == pytest.approx(beta.ppf(0.005, k, n - k + 1), rel=1e-8)
        assert high == pytest.approx(beta.ppf(0.995, k + 1, n - k), rel=1e-8)


def test_chances_out_of_range_are_refused() -> None:
    graph = build(1, [(1, [0])], [1])
    for bad in ([1.5], [-0.1], [0.5, 0.5], [math.nan]):
        with pytest.raises(DataError, match="from 0 to 1"):
            compute_reliability(graph, np.array(bad))
