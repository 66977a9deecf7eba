"""The network of `whence demo pipeline`: transit domains with stubs, each domain joined to the next by one bridge.

A transit domain has 4 transit nodes, each of which serves 3 stubs of 8 nodes: 100 nodes and 200 cables. A cable is two
links, one each way. Costs are latencies in ms: 50 between transit nodes, 10 to a stub, 2 inside one. The same seed
gives the same network and the same changes.
"""

from __future__ import annotations

import heapq
import random
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import combinations, pairwise
from typing import NamedTuple

DOMAINS = ("north", "east", "south")
_CABLES = 200  # of a domain
_TRANSIT, _GATEWAY, _STUB = 50, 10, 2


class Cable(NamedTuple):
    """A cable between two nodes, the same in both directions."""

    a: str
    b: str
    cost: int

    def links(self) -> tuple[tuple[str, str, int], tuple[str, str, int]]:
        return (self.a, self.b, self.cost), (self.b, self.a, self.cost)


class CableChange(NamedTuple):
    """A cable that is laid (+) or cut (-)."""

    op: str
    cable: Cable


@dataclass(frozen=True)
class Network:
    """Nodes with their domains, the cables inside each domain, and the bridges between one domain and the next."""

    nodes: tuple[tuple[str, str], ...]
    inside: dict[str, tuple[Cable, ...]]
    bridges: tuple[Cable, ...]


def network(seed: int = 0) -> Network:
    """Lay a network.

    >>> net = network()
    >>> len(net.nodes), [len(cables) for cables in net.inside.values()], net.bridges[0]
    (300, [200, 200, 200], Cable(a='north.t2', b='east.t1', cost=50))
    """
    rng = random.Random(f"whence/demo/{seed}")
    nodes, inside = [], {}
    for domain in DOMAINS:
        names, inside[domain] = _domain(domain, rng)
        nodes += [(name, domain) for name in names]
    bridges = [Cable(f"{one}.t2", f"{other}.t1", _TRANSIT) for one, other in pairwise(DOMAINS)]
    return Network(tuple(nodes), inside, tuple(bridges))


def _domain(domain: str, rng: random.Random) -> tuple[list[str], tuple[Cable, ...]]:
    transit = [f"{domain}.t{i}" for i in range(1, 5)]
    stubs = [[f"{hub}.{stub}{i}" for i in range(1, 9)] for hub in transit for stub in "abc"]
    cables = dict.fromkeys(_tree(transit, rng), _TRANSIT)
    for number, stub in enumerate(stubs):
        cables |= dict.fromkeys(_tree(stub, rng), _STUB)
        cables[transit[number // 3], rng.choice(stub)] = _GATEWAY
    more = [(pair, _STUB) for stub in stubs for pair in combinations(stub, 2)]
    more += [(pair, _TRANSIT) for pair in combinations(transit, 2)]
    rng.shuffle(more)
    for (a, b), cost in more:
        if len(cables) == _CABLES:
            break
        if (b, a) not in cables:
            cables.setdefault((a, b), cost)
    return transit + [node for stub in stubs for node in stub], tuple(Cable(a, b, c) for (a, b), c in cables.items())


def _tree(group: list[str], rng: random.Random) -> Iterator[tuple[str, str]]:
    for i in range(1, len(group)):
        yield group[rng.randrange(i)], group[i]


def cable_changes(net: Network, seed: int = 0) -> Iterator[list[CableChange]]:
    """Yield failures and repairs of cables inside domains, without end, a few at a time."""
    rng = random.Random(f"whence/demo/weather/{seed}")
    sound = [cable for cables in net.inside.values() for cable in cables]
    broken: list[Cable] = []
    while True:
        now: dict[Cable, str] = {}
        for _ in range(rng.randint(1, 3)):
            op = "+" if rng.random() < len(broken) / 8 else "-"
            some, other = (broken, sound) if op == "+" else (sound, broken)
            cable = rng.choice(some)
            if cable not in now:
                now[cable] = op
                some.remove(cable)
                other.append(cable)
        yield [CableChange(op, cable) for cable, op in now.items()]


def costs(links: Iterable[tuple[str, str, int]]) -> dict[tuple[str, str], int]:
    """Compute the cheapest cost of every pair that is connected, by Dijkstra's algorithm, to check Whence against.

    >>> costs([("A", "B", 1), ("B", "A", 2)])
    {('A', 'B'): 1, ('A', 'A'): 3, ('B', 'A'): 2, ('B', 'B'): 3}
    """
    after: dict[str, list[tuple[str, int]]] = defaultdict(list)
    for src, dst, cost in links:
        after[src].append((dst, cost))
    found: dict[tuple[str, str], int] = {}
    for start in list(after):
        best: dict[str, int] = {}
        queue = [(cost, node) for node, cost in after[start]]
        heapq.heapify(queue)
        while queue:
            cost, node = heapq.heappop(queue)
            if node not in best:
                best[node] = cost
                for other, more in after.get(node, ()):
                    if other not in best:
                        heapq.heappush(queue, (cost + more, other))
        found |= {(start, node): cost for node, cost in best.items()}
    return found
