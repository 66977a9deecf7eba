"""The networks and streams are what the papers describe; every benchmark runs and its peers agree."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from benchmarks.peers.common import RECURSIONS, Change, Digest, digest, installed
from benchmarks.star import Star
from benchmarks.transit_stub import LINKS_PER_NODE, Link, Network, is_bridge, network, updates

SIZES = (100, 400, 800, 1600)
EVERY = [(nodes, density) for nodes in SIZES for density in LINKS_PER_NODE]


@pytest.mark.parametrize(("nodes", "density"), EVERY)
def test_network_has_the_papers_shape(nodes: int, density: str) -> None:
    net = network(nodes, density)
    assert {node for link in net.links for node in link[:2]} == set(range(nodes))
    assert len(net.links) == nodes * LINKS_PER_NODE[density]
    assert len({link[:2] for link in net.links}) == len(net.links)
    assert all(link.src != link.dst for link in net.links)
    assert set(net.links) == {Link(dst, src, cost) for src, dst, cost in net.links}


def test_costs_follow_the_hierarchy() -> None:
    def is_transit(node: int) -> bool:
        return node % 100 < 4

    for link in network(400).links:
        transit_ends = is_transit(link.src) + is_transit(link.dst)
        assert link.cost == {2: 50, 1: 10, 0: 2}[transit_ends]


def test_each_stub_hangs_on_one_gateway() -> None:
    gateways = Counter(link.dst for link in network(100).links if link.cost == 10 and link.dst < 4)
    assert gateways == {0: 3, 1: 3, 2: 3, 3: 3}


@pytest.mark.parametrize(("nodes", "density"), EVERY)
def test_network_is_connected(nodes: int, density: str) -> None:
    pytest.importorskip("scipy")
    assert _strong_components(network(nodes, density).links, nodes) == 1


def test_same_seed_same_network() -> None:
    assert network(400, "sparse", seed=3) == network(400, "sparse", seed=3)
    assert network(400, "sparse", seed=3) != network(400, "sparse", seed=4)
    net = network(100)
    assert updates(net, 10, seed=1) == updates(net, 10, seed=1) != updates(net, 10, seed=2)


@pytest.mark.parametrize(("nodes", "density"), [(150, "dense"), (0, "dense"), (100, "thick")])
def test_impossible_networks_are_refused(nodes: int, density: str) -> None:
    with pytest.raises(ValueError, match="must be"):
        network(nodes, density)


@pytest.mark.parametrize(("nodes", "density"), EVERY)
def test_half_of_the_deletions_change_reachable(nodes: int, density: str) -> None:
    pytest.importorskip("scipy")
    net = network(nodes, density)
    stream = updates(net, 10)
    assert [update.sign for update in stream] == [-1, +1] * 10
    assert all(gone.link == back.link for gone, back in zip(stream[::2], stream[1::2], strict=True))
    assert {update.link for update in stream} <= set(net.links)
    # A connected network stays one component unless the deletion cuts some pair off.
    cut = [_strong_components([link for link in net.links if link != update.link], nodes) > 1 for update in stream[::2]]
    assert cut == [is_bridge(net.links, update.link) for update in stream[::2]]
    assert sum(cut) >= 5


def test_networks_without_bridges_are_refused() -> None:
    ring = Network(3, tuple(Link(a, b, 1) for a in range(3) for b in range(3) if a != b))
    with pytest.raises(ValueError, match="no bridge"):
        updates(ring, 1)


def test_star_batches_delete_what_is_there() -> None:
    star = Star(2_000)
    before = {table: {tuple(row) for row in rows.tolist()} for table, rows in star.tables.items()}
    batch = star.batch(100)
    assert 90 <= sum(len(change.rows) for change in batch) <= 140
    for change in batch:
        rows = {tuple(row) for row in change.rows.tolist()}
        assert rows <= before[change.table] if change.sign < 0 else not rows & before[change.table]
        before[change.table] = before[change.table] - rows if change.sign < 0 else before[change.table] | rows
    after = {table: {tuple(row) for row in rows.tolist()} for table, rows in star.tables.items()}
    assert after == before


@pytest.mark.parametrize("program", RECURSIONS)
def test_recomputing_peers_agree(program: str) -> None:
    """Every state of a short stream: SciPy's routines, told what the program means, against DuckDB, which is not."""
    pytest.importorskip("scipy")
    from benchmarks.peers.duckdb_peer import DuckdbPeer
    from benchmarks.peers.scipy_peer import ScipyPeer

    net = network(100, "sparse")
    peers = (ScipyPeer(program, net.nodes), DuckdbPeer(program, net.nodes))
    states: list[list[Digest]] = []
    for peer in peers:
        peer.load({"link": np.array(net.links)})
        seen = [digest(peer.rows())]
        for update in updates(net, 2):
            peer.update([Change("link", update.sign, np.array([update.link]))])
            seen.append(digest(peer.rows()))
        states.append(seen)
        peer.close()
    assert states[0] == states[1]
    if program != "same_generation":  # a bridge leaves every pair of a well-connected network at some common distance
        assert len(set(states[0])) > 1


def test_recursive_benchmark_runs(tmp_path: Path) -> None:
    from benchmarks import recursive_peers

    document = tmp_path / "figures.json"
    peers = ["whence", "duckdb", *(["scipy"] if installed("scipy") else [])]
    arguments = ["--quick", "--peers", ",".join(peers), "--json", str(document), "--plot", str(tmp_path / "plot.png")]
    assert recursive_peers.main(arguments) == 0
    series = json.loads(document.read_text())["series"]
    lines = len(peers) + 2 * ("scipy" in peers)  # SciPy has two leaner lines
    assert Counter(s["workload"] for s in series) == {recursion.title: lines for recursion in RECURSIONS.values()}
    assert all(len(s["deletes"]) == len(s["inserts"]) == 4 for s in series)


def test_join_benchmark_runs(tmp_path: Path) -> None:
    from benchmarks import join_peers

    document = tmp_path / "figures.json"
    arguments = ["--quick", "--peers", "whence,duckdb", "--json", str(document), "--plot", str(tmp_path / "plot.png")]
    assert join_peers.main(arguments) == 0
    series = json.loads(document.read_text())["series"]
    assert [s["peer"] for s in series] == ["Whence", "DuckDB recompute", "DuckDB, query alone"]


def test_growth_benchmark_runs() -> None:
    """The figure itself is for a benchmark on a quiet machine to judge, not for a test."""
    from benchmarks import limits

    assert limits.state_growth("reachable", nodes=100, count=3).measured > 0


@pytest.mark.skipif(not installed("pathway"), reason="pathway is not installed")
def test_pathway_agrees_with_scipy(tmp_path: Path) -> None:
    pytest.importorskip("scipy")
    from benchmarks import recursive_peers

    arguments = [
        "--quick",
        "--programs",
        "reachable,cheapest",
        "--peers",
        "scipy,pathway",
        "--plot",
        str(tmp_path / "plot.png"),
    ]
    assert recursive_peers.main(arguments) == 0


def _strong_components(links: list[Link] | tuple[Link, ...], nodes: int) -> int:
    from scipy.sparse import csr_array
    from scipy.sparse.csgraph import connected_components

    ends = np.array([link[:2] for link in links])
    graph = csr_array((np.ones(len(ends)), (ends[:, 0], ends[:, 1])), shape=(nodes, nodes))
    return int(connected_components(graph, connection="strong")[0])
