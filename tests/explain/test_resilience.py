"""The fewest losses against trying all, and against least cuts of networks."""

from __future__ import annotations

from itertools import combinations, product

import networkx as nx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.depth import seeds
from tests.explain.graphs import build, graphs, reachable, table
from whence.explain.ask.resilience import find_smallest_loss
from whence.explain.graph import Derivations


def check(graph: Derivations) -> None:
    function = table(graph)
    found = find_smallest_loss(graph)
    lost = [sum(not t for t in case) for case, held in function.items() if not held]
    assert found.exact
    assert found.size == min(lost, default=None)
    if found.rows is not None:
        alive = tuple(int(n) not in found.rows for n in graph.base)
        assert not function[alive]


@given(graphs())
def test_all_losses(graph: Derivations) -> None:
    check(graph)


@given(graphs(most=6, tallies=True))
def test_all_losses_with_tallies(graph: Derivations) -> None:
    check(graph)


def test_what_needs_no_base_row_cannot_be_removed() -> None:
    graph = build(1, [(2, [1]), (2, [0])], [2], absences=1)
    found = find_smallest_loss(graph)
    assert (found.rows, found.size, found.exact) == (None, None, True)


@pytest.mark.parametrize("seed", seeds(6))
def test_least_cuts_of_networks(seed: int) -> None:
    network = nx.gnp_random_graph(20, 0.25, seed=seed, directed=True)
    arcs = list(network.edges)
    for t in range(1, 20, 3):
        found = find_smallest_loss(reachable(arcs, 0, t))
        assert found.exact
        assert found.size == (nx.edge_connectivity(network, 0, t) if nx.has_path(network, 0, t) else 0)
        left = network.copy()
        left.remove_edges_from(arcs[n] for n in found.rows)
        assert not nx.has_path(left, 0, t)


def test_joins_that_are_no_network() -> None:
    """r(x), s(x, y), t(y) for all x, y of 3: a vertex cover, which is 3."""
    derivations = [(15, [x, 3 + 3 * x + y, 12 + y]) for x, y in product(range(3), repeat=2)]
    found = find_smallest_loss(build(15, derivations, [15]))
    assert (found.size, found.exact) == (3, True)


@given(st.lists(st.frozensets(st.integers(0, 7), min_size=2, max_size=3), min_size=1, max_size=16))
def test_fewest_that_meet_all(sets: list[frozenset[int]]) -> None:
    found = find_smallest_loss(build(8, [(8, sorted(s)) for s in sets], [8]))
    least = min(n for n in range(9) for c in combinations(range(8), n) if all(s & set(c) for s in sets))
    assert (found.size, found.low) == (least, least)


def test_triangles_of_six_nodes() -> None:
    """15 edges, of which a graph without triangles has 9 at most (Turán)."""
    place = {e: i for i, e in enumerate(combinations(range(6), 2))}
    triangles = [(15, [place[a, b], place[b, c], place[a, c]]) for a, b, c in combinations(range(6), 3)]
    found = find_smallest_loss(build(15, triangles, [15]))
    assert (found.size, found.exact) == (6, True)


def test_without_enough_trials_it_is_an_interval() -> None:
    """Triangles of a random graph with 14 nodes: the fewest edges that meet all of them."""
    network = nx.gnp_random_graph(14, 0.6, seed=2)
    edges = list(network.edges)
    triangles = [c for c in nx.enumerate_all_cliques(network) if len(c) == 3]
    place = {frozenset(e): i for i, e in enumerate(edges)}
    derivations = [(len(edges), [place[frozenset(p)] for p in ((a, b), (b, c), (a, c))]) for a, b, c in triangles]
    graph = build(len(edges), derivations, [len(edges)])
    found = find_smallest_loss(graph, budget=5)
    assert not found.exact
    assert found.size is not None
    assert 1 <= found.low < found.size
    assert found.rows is not None
    lost = set(found.rows.tolist())
    assert all(lost & set(body) for _, body in derivations)
