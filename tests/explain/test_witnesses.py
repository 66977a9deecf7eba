"""Minimal witnesses against all subsets, and against simple paths of networks."""

from __future__ import annotations

from itertools import pairwise

import networkx as nx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import whence
from tests.depth import seeds
from tests.explain.graphs import build, graphs, minimal, reachable, table
from whence.explain.ask.witnesses import WitnessList, find_witnesses
from whence.explain.graph import Derivations


def sets(graph: Derivations, found: WitnessList) -> list[frozenset[int]]:
    return [frozenset(graph.variable[w].tolist()) for w in found.found]


def check(graph: Derivations) -> None:
    expected = minimal(table(graph))
    found = find_witnesses(graph, limit=1000, extra=10**9)
    assert found.complete
    assert found.count == len(expected)
    assert set(sets(graph, found)) == expected
    assert len(found.found) == len(expected)
    few = find_witnesses(graph, limit=2, extra=0)
    assert [len(w) for w in few.found] == sorted(map(len, expected))[:2]
    assert set(sets(graph, few)) <= expected
    assert few.count <= len(expected)
    assert few.count == len(expected) or not few.complete


@given(graphs())
def test_all_and_the_smallest(graph: Derivations) -> None:
    check(graph)


@given(graphs(most=6, tallies=True))
def test_with_tallies(graph: Derivations) -> None:
    check(graph)


@given(graphs(), st.integers(0, 30))
def test_without_enough_steps_they_are_still_minimal(graph: Derivations, budget: int) -> None:
    expected = minimal(table(graph))
    found = find_witnesses(graph, limit=5, budget=budget)
    assert set(sets(graph, found)) <= expected
    assert found.count <= len(expected)
    assert len(found.found) >= min(1, len(expected))
    if found.smallest:
        assert [len(w) for w in found.found] == sorted(map(len, expected))[: len(found.found)]


@pytest.mark.parametrize("seed", seeds(8))
def test_paths_of_a_network(seed: int) -> None:
    network = nx.gnp_random_graph(9, 0.3, seed=seed, directed=True)
    arcs = list(network.edges)
    graph = reachable(arcs, 0, 8)
    paths = {frozenset(arcs.index(a) for a in p) for p in nx.all_simple_edge_paths(network, 0, 8)}
    found = find_witnesses(graph, limit=10_000, extra=10**9)
    assert set(sets(graph, found)) == paths
    lengths = sorted(map(len, paths))
    assert [len(w) for w in found.found] == lengths
    for limit in range(1, len(lengths)):
        few = find_witnesses(graph, limit=limit, extra=0)
        assert [len(w) for w in few.found] == lengths[:limit]
        assert set(sets(graph, few)) <= paths


def test_many_choices_side_by_side_end_within_the_budget() -> None:
    """2 ** 60 witnesses of 60 rows each: none can be found smallest first, some are."""
    base, derivations = 120, []
    for i in range(60):
        derivations += [(base + i, [2 * i]), (base + i, [2 * i + 1])]
    derivations.append((base + 60, list(range(base, base + 60))))
    found = find_witnesses(build(base, derivations, [base + 60]), limit=4, budget=100_000)
    assert not found.complete
    assert not found.smallest
    assert [len(w) for w in found.found] == [60] * 4
    assert all((np.sort(w // 2) == np.arange(60)).all() for w in found.found)


_RULES = {
    "first step first": "SELECT l.src, r.dst FROM link l JOIN reachable r ON l.dst = r.src",
    "first step last": "SELECT l.src, r.dst FROM reachable r JOIN link l ON l.dst = r.src",
    "last step last": "SELECT r.src, l.dst FROM reachable r JOIN link l ON r.dst = l.src",
    "last step first": "SELECT r.src, l.dst FROM link l JOIN reachable r ON r.dst = l.src",
    "halves": "SELECT a.src, b.dst FROM reachable b JOIN reachable a ON a.dst = b.src",
}


@pytest.mark.parametrize("rule", _RULES.values(), ids=_RULES)
@pytest.mark.parametrize("seed", seeds(3))
def test_rows_of_a_path_are_in_path_order(rule: str, seed: int) -> None:
    network = nx.gnp_random_graph(7, 0.35, seed=seed, directed=True)
    db = whence.open()
    db.execute("CREATE TABLE link (dst INT, src INT)")
    db.execute(f"CREATE VIEW reachable AS SELECT src, dst FROM link UNION {rule}")
    db.insert("link", [(b, a) for a, b in network.edges])
    for src, dst in db["reachable"]:
        why = db.why("reachable", src=src, dst=dst)
        for witness in why.witnesses:
            path = [(row["src"], row["dst"]) for _, row in witness]
            assert path[0][0] == src
            assert path[-1][1] == dst
            assert all(a[1] == b[0] for a, b in pairwise(path))
        critical = [why.witnesses[0].index(row) for row in why.critical]
        assert critical == sorted(critical)
