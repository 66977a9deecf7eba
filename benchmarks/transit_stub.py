"""The papers' networks: GT-ITM-like transit-stub topologies, and streams of single-link updates over them.

A transit domain has 4 transit nodes; each transit node serves 3 stubs of 8 nodes, so a domain has 4 * (1 + 3 * 8) = 100
nodes and larger networks have more domains. A *link* is a directed tuple (src, dst, cost); every cable gives two of
them. Dense networks have 4 links a node, sparse ones 2. Costs are latencies in ms: 50 between transit nodes, 10
between a transit node and a stub, 2 inside a stub.

Invariants: the same arguments give the same network; the network is connected in both directions; no link is doubled
and none is a loop; the number of links is exactly nodes * links a node. The first cables are a spanning tree that
follows the hierarchy, so a stub hangs on its transit node by one gateway cable, and those cables (and the tails
inside sparse stubs) are the bridges whose deletion cuts rows off `reachable`.
"""

from __future__ import annotations

import random
from collections import defaultdict, deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import NamedTuple

TRANSIT_NODES = 4
STUBS_PER_TRANSIT = 3
STUB_NODES = 8
DOMAIN_NODES = TRANSIT_NODES * (1 + STUBS_PER_TRANSIT * STUB_NODES)

TRANSIT_COST, GATEWAY_COST, STUB_COST = 50, 10, 2
LINKS_PER_NODE = {"dense": 4, "sparse": 2}


class Link(NamedTuple):
    """One directed link tuple."""

    src: int
    dst: int
    cost: int


class Update(NamedTuple):
    """A link inserted (sign +1) or deleted (sign -1)."""

    sign: int
    link: Link


@dataclass(frozen=True)
class Network:
    """A topology: its size and its directed links, in the order in which they were laid."""

    nodes: int
    links: tuple[Link, ...]


@dataclass(frozen=True)
class _Domain:
    transit: list[int]
    stubs: list[list[int]]
    """Stub i hangs on transit node i // STUBS_PER_TRANSIT."""


def network(nodes: int = 100, density: str = "dense", seed: int = 0) -> Network:
    """Lay a transit-stub network of `nodes` nodes (a multiple of 100).

    >>> net = network(100)
    >>> net.nodes, len(net.links), sorted({link.cost for link in net.links})
    (100, 400, [2, 10, 50])
    """
    if nodes <= 0 or nodes % DOMAIN_NODES:
        raise ValueError(f"nodes must be a positive multiple of {DOMAIN_NODES}, not {nodes}")
    if density not in LINKS_PER_NODE:
        raise ValueError(f"density must be one of {', '.join(LINKS_PER_NODE)}, not {density!r}")
    rng = random.Random(f"transit-stub/{nodes}/{density}/{seed}")
    return _laid([_domain(first) for first in range(0, nodes, DOMAIN_NODES)], nodes, density, rng)


def grown(transit: int, density: str = "dense", seed: int = 0) -> Network:
    """Lay one domain with so many transit nodes, which is how the papers make networks smaller and larger.

    >>> [(net.nodes, len(net.links)) for net in (grown(1), grown(8), grown(2, "sparse"))]
    [(25, 100), (200, 800), (50, 100)]
    """
    domain = _domain(0, transit)
    nodes = transit * (1 + STUBS_PER_TRANSIT * STUB_NODES)
    return _laid([domain], nodes, density, random.Random(f"grown/{transit}/{density}/{seed}"))


def _laid(domains: list[_Domain], nodes: int, density: str, rng: random.Random) -> Network:
    cables: dict[tuple[int, int], int] = {}
    for a, b, cost in _spanning_tree(domains, rng):
        cables[_cable(a, b)] = cost
    wanted = nodes * LINKS_PER_NODE[density] // 2
    for a, b, cost in _extra_cables(domains, rng):
        if len(cables) >= wanted:
            break
        cables.setdefault(_cable(a, b), cost)
    links = [link for (a, b), cost in cables.items() for link in (Link(a, b, cost), Link(b, a, cost))]
    rng.shuffle(links)
    return Network(nodes, tuple(links))


def _cable(a: int, b: int) -> tuple[int, int]:
    return (a, b) if a < b else (b, a)


def _domain(first: int, transit: int = TRANSIT_NODES) -> _Domain:
    stubs_at = first + transit
    count = transit * STUBS_PER_TRANSIT
    stubs = [list(range(stubs_at + i * STUB_NODES, stubs_at + (i + 1) * STUB_NODES)) for i in range(count)]
    return _Domain(list(range(first, stubs_at)), stubs)


def _spanning_tree(domains: Sequence[_Domain], rng: random.Random) -> Iterator[tuple[int, int, int]]:
    """A random tree over each group of nodes, joined upwards: stub to transit node, domain to an earlier domain."""
    for i, domain in enumerate(domains):
        yield from _random_tree(domain.transit, TRANSIT_COST, rng)
        if i:
            yield rng.choice(domain.transit), rng.choice(rng.choice(domains[:i]).transit), TRANSIT_COST
        for j, stub in enumerate(domain.stubs):
            yield from _random_tree(stub, STUB_COST, rng)
            yield domain.transit[j // STUBS_PER_TRANSIT], rng.choice(stub), GATEWAY_COST


def _random_tree(group: Sequence[int], cost: int, rng: random.Random) -> Iterator[tuple[int, int, int]]:
    for i in range(1, len(group)):
        yield group[i], group[rng.randrange(i)], cost


def _extra_cables(domains: list[_Domain], rng: random.Random) -> Iterator[tuple[int, int, int]]:
    """Redundant cables in random order: mostly inside stubs, the rest inside domains and between them."""
    extra = [(a, b, STUB_COST) for d in domains for stub in d.stubs for a, b in combinations(stub, 2)]
    extra += [(a, b, TRANSIT_COST) for d in domains for a, b in combinations(d.transit, 2)]
    for d, e in zip(domains, domains[1:] + domains[:1], strict=True):
        if d is not e:
            extra += [(a, b, TRANSIT_COST) for a in d.transit[:2] for b in e.transit[2:]]
    rng.shuffle(extra)
    yield from extra


def updates(net: Network, count: int, seed: int = 0) -> list[Update]:
    """`count` deletions of single links, each followed by its re-insertion: 2 * count updates.

    Every other deletion takes a bridge, a link without which its dst cannot be reached from its src any more, so at
    least half of the deletions change `reachable`; the others take any link. The network is whole again after each
    pair.

    >>> net = network(100)
    >>> stream = updates(net, 4)
    >>> [u.sign for u in stream]
    [-1, 1, -1, 1, -1, 1, -1, 1]
    >>> sum(is_bridge(net.links, u.link) for u in stream if u.sign < 0) >= 2
    True
    """
    rng = random.Random(f"updates/{net.nodes}/{len(net.links)}/{seed}")
    candidates = rng.sample(net.links, len(net.links))
    bridges = _some_bridges(net.links, candidates, (count + 1) // 2)
    stream = []
    for i in range(count):
        link = bridges[i // 2 % len(bridges)] if i % 2 == 0 else rng.choice(candidates)
        stream += [Update(-1, link), Update(+1, link)]
    return stream


def _some_bridges(links: Iterable[Link], candidates: Sequence[Link], count: int) -> list[Link]:
    reached = _adjacency(links)
    bridges: list[Link] = []
    for link in candidates:
        if len(bridges) == count:
            break
        if _is_bridge(reached, link):
            bridges.append(link)
    if not bridges:
        raise ValueError("the network has no bridge to delete")
    return bridges


def is_bridge(links: Iterable[Link], link: Link) -> bool:
    """Does deleting `link` from `links` change which node reaches which?"""
    return _is_bridge(_adjacency(links), link)


def _is_bridge(reached: dict[int, list[int]], link: Link) -> bool:
    seen, queue = {link.src}, deque([link.src])
    while queue:
        node = queue.popleft()
        for after in reached[node]:
            if after in seen or (node == link.src and after == link.dst):
                continue
            if after == link.dst:
                return False
            seen.add(after)
            queue.append(after)
    return True


def _adjacency(links: Iterable[Link]) -> dict[int, list[int]]:
    reached: dict[int, list[int]] = defaultdict(list)
    for link in links:
        reached[link.src].append(link.dst)
    return reached
