"""The network of paper 002's chapter 5: brokers in an overlay on a power-law graph, and four ways to tell an update.

The physical graph has 20,000 nodes, each new one linked to two earlier ones by preferential attachment. 1,000 of them
are brokers, in a tree: each broker, the nearest to the server first, hangs below the physically nearest one that has a
place left. A subscription's gateway is chosen by its range, so that near ranges share their way: the plane of ranges is
halved into as many cells as brokers, and cells go to brokers depth first. (The paper leaves both choices to another
text.) Bytes are counted between overlay nodes, as there, and times the physical hops below them.

| way | what is sent for an update |
|---|---|
| S-CN, rectangles | each message along the tree, to where some range lies in its rectangle |
| S-UN, unicast | one message per affected subscription, straight to its gateway |
| S-UN by broker | one message per gateway, with all its affected subscriptions |
| CN, relaxed ranges | the update along the tree, to where some range is stabbed, whatever it changes |
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.sparse import csr_matrix
from scipy.sparse.csgraph import shortest_path

from whence.engine.matching.boxes import Boxes
from whence.engine.matching.range_minima import Rectangles
from whence.model.codes import Codes

DOMAIN, NODES, BROKERS, DOWN = 10_000, 20_000, 1_000, 4
HEADER, FIELD = 20, 8  # bytes
WAYS = ("S-CN", "S-UN", "S-UN by broker", "CN")


@dataclass
class Traffic:
    """Bytes between overlay nodes, bytes times physical hops, and the most messages that start at a node."""

    bytes: float = 0
    hop_bytes: float = 0
    stress: int = 0

    def add(self, copies: Codes, hops: float, size: int) -> None:
        """Add an event: how many messages of a size each node sends, and how many hops all take together."""
        self.bytes += int(copies.sum()) * size
        self.hop_bytes += hops * size
        self.stress = max(self.stress, int(copies.max(initial=0)))


def power_law_graph(nodes: int, random: np.random.Generator, links: int = 2) -> csr_matrix:
    """Preferential attachment: a node is linked to earlier ones in proportion to their links."""
    ends = np.empty(2 * links * nodes, np.int64)
    ends[: 2 * links] = np.arange(2 * links) % links
    used = 2 * links
    for node in range(links, nodes):
        picked = ends[random.integers(0, used, links)]
        ends[used : used + links], ends[used + links : used + 2 * links] = node, picked
        used += 2 * links
    pairs = ends[2 * links : used].reshape(-1, 2, links)
    a, b = pairs[:, 0].ravel(), pairs[:, 1].ravel()
    return csr_matrix((np.ones(len(a)), (a, b)), (nodes, nodes))


class PhysicalTree:
    """Brokers in a tree over a physical graph. Broker 0 is the server's; a parent comes before its children."""

    def __init__(self, random: np.random.Generator, nodes: int = NODES, brokers: int = BROKERS):
        graph, places = power_law_graph(nodes, random), random.choice(nodes, brokers, replace=False)
        hops = shortest_path(graph, directed=False, unweighted=True, indices=places)[:, places]
        order = np.argsort(hops[0], kind="stable")
        order = np.concatenate(([0], order[order != 0]))
        self.hops = hops[np.ix_(order, order)].astype(np.int64)
        self.parent, children = np.full(brokers, -1, np.int64), np.zeros(brokers, np.int64)
        for broker in range(1, brokers):
            free = np.flatnonzero(children[:broker] < DOWN)
            self.parent[broker] = free[self.hops[broker, free].argmin()]
            children[self.parent[broker]] += 1
        self.below = [np.flatnonzero(self.parent == broker) for broker in range(brokers)]
        self.up = np.concatenate(([0], self.hops[np.arange(1, brokers), self.parent[1:]]))  # hops to the parent

    def depth_first(self) -> list[int]:
        """Brokers so that a subtree is a run."""
        found, waiting = [], [0]
        while waiting:
            broker = waiting.pop()
            found.append(broker)
            waiting += self.below[broker][::-1].tolist()
        return found

    def forwards(self, brokers: Codes) -> tuple[Codes, int]:
        """How many messages each broker sends so that one reaches these, and the physical hops of all."""
        needed = np.zeros(len(self.parent), bool)
        needed[brokers] = True
        parent = self.parent
        reached = np.flatnonzero(needed)
        while len(reached := np.unique(parent[reached[reached > 0]])):
            reached = reached[~needed[reached]]
            needed[reached] = True
        links = np.flatnonzero(needed[1:]) + 1
        return np.bincount(parent[links], minlength=len(parent)), int(self.up[links].sum())


class Overlay:
    """Subscribed ranges at their gateways."""

    def __init__(self, tree: PhysicalTree, subscribed: Codes, unit: int = 1):
        """Ranges end at multiples of `unit`."""
        self.tree, self._unit, brokers = tree, unit, len(tree.parent)
        cells = [np.arange(len(subscribed))]
        while len(cells) < brokers:  # halve the fullest cell, across its wider side
            cells.sort(key=len)
            full = cells.pop()
            side = int(np.ptp(subscribed[full], axis=0).argmax())
            order = full[np.argsort(subscribed[full, side], kind="stable")]
            cells += [order[: len(order) // 2], order[len(order) // 2 :]]
        cells.sort(key=lambda cell: tuple(subscribed[cell].mean(axis=0)) if len(cell) else (0.0, 0.0))
        home = np.zeros(len(subscribed), np.int64)
        for broker, cell in zip(tree.depth_first(), cells, strict=True):
            home[cell] = broker
        self._ranges = Boxes(2)
        self._ranges.put(self._ranges.lines(subscribed, subscribed, home))
        covered = np.zeros((brokers, DOMAIN + 2), np.int32)  # how many ranges of a broker have each x
        np.add.at(covered, (home, subscribed[:, 0] // unit), 1)
        np.add.at(covered, (home, subscribed[:, 1] // unit + 1), -1)
        self._covered = np.cumsum(covered, axis=1) > 0
        self.traffic = {way: Traffic() for way in WAYS}
        self.events = self.felt = self.affected = 0

    def tell(self, x: int, changed: Rectangles) -> None:
        """Send an update of a point at x by every way."""
        found, tree = self.traffic, self.tree
        at, homes = self._ranges.find(
            np.ascontiguousarray(changed.bounds[:, ::2]), np.ascontiguousarray(changed.bounds[:, 1::2])
        )
        copies, hops = np.zeros(len(tree.parent), np.int64), 0
        for message in range(len(changed)):
            sent, far = tree.forwards(np.unique(homes[at == message]))
            copies, hops = copies + sent, hops + far
        found["S-CN"].add(copies, hops, HEADER + 5 * FIELD)
        gateways, counts = np.unique(homes, return_counts=True)
        far = tree.hops[0, gateways]
        found["S-UN"].add(np.array([len(homes)]), int((far * counts).sum()), HEADER + 2 * FIELD)
        several = found["S-UN by broker"]
        several.add(np.array([len(gateways)]), int(far.sum()), HEADER)
        several.bytes += 2 * FIELD * len(homes)
        several.hop_bytes += 2 * FIELD * int((far * counts).sum())
        found["CN"].add(*tree.forwards(np.flatnonzero(self._covered[:, x // self._unit])), HEADER + 3 * FIELD)
        self.events += 1
        self.felt += bool(len(changed))
        self.affected += len(homes)

    def means(self) -> dict[str, dict[str, float]]:
        """Bytes and bytes times hops of an event, and the greatest stress, by way."""
        return {
            way: {"bytes": one.bytes / self.events, "hop bytes": one.hop_bytes / self.events, "stress": one.stress}
            for way, one in self.traffic.items()
        }
