"""Banzhaf and Shapley values against their definitions."""

from __future__ import annotations

from itertools import product
from math import factorial

import networkx as nx
import numpy as np
import pytest
from hypothesis import given

from tests.explain.graphs import build, graphs, reachable, table
from whence.explain.ask.contribution import compute_contribution
from whence.explain.graph import Derivations


def defined(graph: Derivations) -> tuple[dict[int, float], dict[int, float]]:
    """Shapley's and Banzhaf's values of each base node."""
    function, n = table(graph), len(graph.base)
    shapley, banzhaf = {}, {}
    for v in range(n):
        others = [c for c in product([False, True], repeat=n) if not c[v]]
        gains = [function[(*c[:v], True, *c[v + 1 :])] - function[c] for c in others]
        weights = [factorial(sum(c)) * factorial(n - sum(c) - 1) / factorial(n) for c in others]
        shapley[int(graph.base[v])] = sum(g * w for g, w in zip(gains, weights, strict=True))
        banzhaf[int(graph.base[v])] = sum(gains) / 2 ** (n - 1)
    return shapley, banzhaf


def check(graph: Derivations) -> None:
    found = compute_contribution(graph)
    shapley, banzhaf = defined(graph)
    assert found.method == "exact"
    listed = set(found.rows.tolist())
    assert {n for n, s in banzhaf.items() if s} <= listed
    assert found.shapley == pytest.approx([shapley[n] for n in found.rows.tolist()], abs=1e-10)
    assert found.banzhaf == pytest.approx([banzhaf[n] for n in found.rows.tolist()], abs=1e-10)
    assert all(a >= b - 1e-10 for a, b in zip(found.shapley, found.shapley[1:], strict=False))


@given(graphs())
def test_by_definition(graph: Derivations) -> None:
    check(graph)


@given(graphs(most=6, tallies=True))
def test_by_definition_with_tallies(graph: Derivations) -> None:
    check(graph)


def test_two_ways_one_of_two_rows() -> None:
    found = compute_contribution(build(3, [(3, [0]), (3, [1, 2])], [3]))
    assert found.rows.tolist() == [0, 1, 2]
    assert found.shapley == pytest.approx([2 / 3, 1 / 6, 1 / 6])
    assert found.banzhaf == pytest.approx([3 / 4, 1 / 4, 1 / 4])


def test_many_rows_share_alike() -> None:
    """All of 800 rows, or of 400 rows each of which has another to take its place: each is as good as any other."""
    derivations = [(800 + i, [2 * i + k]) for i in range(400) for k in (0, 1)] + [(1200, list(range(800, 1200)))]
    for graph in (build(800, [(800, list(range(800)))], [800]), build(800, derivations, [1200])):
        assert compute_contribution(graph).shapley == pytest.approx(np.full(800, 1 / 800), rel=1e-9)


def test_sampled_values_are_close() -> None:
    grid = nx.grid_2d_graph(3, 3).to_directed()
    graph = reachable(list(grid.edges), (0, 0), (2, 2))
    exact, found = compute_contribution(graph), compute_contribution(graph, limit=10, samples=8192)
    assert found.method == "sampled"
    assert found.error < 0.05
    assert found.shapley.sum() == pytest.approx(1)
    for name in ("shapley", "banzhaf"):
        truth = dict(zip(exact.rows.tolist(), getattr(exact, name), strict=True))
        wrong = [abs(truth[n] - x) for n, x in zip(found.rows.tolist(), getattr(found, name), strict=True)]
        assert max(wrong) < 1.5 * found.error
        assert np.mean([w <= found.error for w in wrong]) > 0.9
