"""Critical base rows against losing each, and against bridges and dominators of networks."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import networkx as nx
import numpy as np
import pytest
from hypothesis import given

from tests.depth import seeds
from tests.explain.graphs import build, graphs, meanings, reachable
from whence.explain.ask.critical import find_critical, rank_losses
from whence.explain.graph import Derivations


def check(graph: Derivations) -> None:
    there, whole = meanings(graph), (1 << len(graph.base)) - 1
    lost = [
        [n for n, cases in enumerate(there) if cases >> whole & 1 and not cases >> (whole ^ 1 << v) & 1]
        for v in range(len(graph.base))
    ]
    root = int(graph.roots[0])
    assert find_critical(graph).tolist() == [int(graph.base[v]) for v, gone in enumerate(lost) if root in gone]
    views = [n for n in range(len(graph)) if graph.kind(n) == "view"]
    rows, counts = rank_losses(replace(graph, roots=np.array(views, np.int32)))
    expected = {int(graph.base[v]): len(set(gone) & set(views)) for v, gone in enumerate(lost)}
    assert dict(zip(rows.tolist(), counts.tolist(), strict=True)) == {n: c for n, c in expected.items() if c}
    assert counts.tolist() == sorted(counts.tolist(), reverse=True)


@given(graphs())
def test_each_loss(graph: Derivations) -> None:
    check(graph)


@given(graphs(most=6, tallies=True))
def test_each_loss_with_tallies(graph: Derivations) -> None:
    check(graph)


def test_more_rows_than_a_word_has_bits() -> None:
    chain = build(200, [(200, [0]), *((200 + i, [i, 199 + i]) for i in range(1, 200))], list(range(200, 400)))
    rows, counts = rank_losses(chain)
    assert rows.tolist() == list(range(200))
    assert counts.tolist() == list(range(200, 0, -1))
    assert find_critical(replace(chain, roots=chain.roots[-1:])).tolist() == list(range(200))


@pytest.mark.parametrize("seed", seeds(5))
def test_dominating_arcs_of_a_network(seed: int) -> None:
    """An arc is critical for reachable(s, t) if its middle, put there as a node, dominates t from s."""
    network = nx.gnp_random_graph(25, 0.07, seed=seed, directed=True)
    arcs = list(network.edges)
    split = nx.DiGraph([(x, ("arc", x, y)) for x, y in arcs] + [(("arc", x, y), y) for x, y in arcs])
    for t in sorted(nx.descendants(network, 0))[:12]:
        above = nx.immediate_dominators(split, 0)
        expected, at = [], t
        while at != 0:
            at = above[at]
            if isinstance(at, tuple):
                expected.append(arcs.index(at[1:]))
        assert find_critical(reachable(arcs, 0, t)).tolist() == sorted(expected)


def test_bridges_of_a_network_with_cables_of_two_links() -> None:
    network = nx.gnp_random_graph(40, 0.05, seed=3)
    bridges = set(nx.bridges(network))
    arcs = [a for x, y in network.edges for a in ((x, y), (y, x))]
    part = sorted(max(nx.connected_components(network), key=len))
    for t in part[1:10]:
        path = nx.shortest_path(network, part[0], t)
        steps = pairwise(path)
        expected = {arcs.index((x, y)) for x, y in steps if (x, y) in bridges or (y, x) in bridges}
        assert set(find_critical(reachable(arcs, part[0], t)).tolist()) == expected
