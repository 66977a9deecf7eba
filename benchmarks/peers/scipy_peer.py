"""SciPy recomputing from scratch: the strongest simple opponent, because it knows what the program means.

A general engine runs rules; this peer is told by hand that `reachable` is a transitive closure and uses strongly
connected components, that `cheapest` is all-pairs shortest paths and uses Dijkstra, and that `same_generation` is a
fixpoint of sparse-by-dense matrix products. What it must give is what a view is, rows: its time is until they stand in
arrays. Two leaner readings have lines of their own: the matrix alone, from which nothing can be joined or shipped, and
the matrix with the rows that changed.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.sparse import csgraph

from benchmarks.peers.common import Change, Digest, Rows, digest

Ends = NDArray[np.int32]
Costs = NDArray[np.float64]
Matrix = NDArray[np.float64] | NDArray[np.bool_]


class ScipyPeer:
    """Recomputes the whole view after every batch."""

    name = "SciPy recompute"

    def __init__(self, program: str, nodes: int) -> None:
        self._program = program
        self._nodes = nodes
        self._links: Rows = np.empty((0, 3), dtype=np.int64)
        self._view: Matrix = np.zeros((nodes, nodes), dtype=bool)
        compute: dict[str, Callable[[Ends, Ends, Costs, int], Matrix]] = {
            "reachable": closure,
            "reachable_nonlinear": closure,
            "cheapest": cheapest_costs,
            "same_generation": same_generation,
        }
        self._compute = compute[program]
        self.changed = 0
        self.matrix_only = 0.0
        """Seconds of the last update until the matrix stood, no row made."""
        self.with_difference = 0.0
        """Seconds of the last update until the matrix and the rows that changed stood."""

    def load(self, tables: dict[str, Rows]) -> float:
        """Time the first computation."""
        return self.update([Change("link", +1, tables["link"])])

    def update(self, batch: Sequence[Change]) -> float:
        """Time the change of the links and the recomputation."""
        started = time.perf_counter()
        for change in batch:
            if change.sign > 0:
                self._links = np.concatenate([self._links, change.rows])
            else:
                gone = [np.flatnonzero((self._links == row).all(axis=1))[0] for row in change.rows]
                self._links = np.delete(self._links, gone, axis=0)
        src, dst = self._links[:, 0].astype(np.int32), self._links[:, 1].astype(np.int32)
        before, self._view = self._view, self._compute(src, dst, self._links[:, 2].astype(np.float64), self._nodes)
        recomputed = time.perf_counter()
        self.changed = len(np.nonzero(self._view != before)[0])
        differed = time.perf_counter()
        _as_columns(self._view)
        self.matrix_only, self.with_difference = recomputed - started, differed - started
        return time.perf_counter() - differed + self.matrix_only

    def digest(self) -> Digest:
        """Fingerprint the rows."""
        return digest(self.rows())

    def rows(self) -> Rows:
        """The matrix as rows."""
        return np.column_stack(_as_columns(self._view)).astype(np.int64)

    def close(self) -> None:
        """Nothing to let go of."""


def _as_columns(view: Matrix) -> list[NDArray[Any]]:
    """The rows of a view, a column at a time."""
    if view.dtype == bool:
        return list(np.nonzero(view))
    src, dst = np.nonzero(np.isfinite(view))
    return [src, dst, view[src, dst]]


def closure(src: Ends, dst: Ends, costs: Costs, nodes: int) -> NDArray[np.bool_]:
    """Which node reaches which over one link or more, by strongly connected components.

    Nodes of a component reach each other (a component of one node reaches itself only by a loop); between components
    the closure of their acyclic graph is taken in topological order and spread over the nodes.
    """
    graph = sparse.csr_array((np.ones(len(src), dtype=np.int8), (src, dst)), shape=(nodes, nodes))
    count, label = csgraph.connected_components(graph, directed=True, connection="strong")
    if count == 1 and nodes > 1:
        return np.ones((nodes, nodes), dtype=bool)
    between = np.zeros((count, count), dtype=bool)
    between[label[src], label[dst]] = True
    within = np.bincount(label, minlength=count) > 1
    within |= between.diagonal()
    np.fill_diagonal(between, False)
    indegree = between.sum(axis=0)
    order, ready = [], list(np.flatnonzero(indegree == 0))
    while ready:
        component = ready.pop()
        order.append(component)
        for after in np.flatnonzero(between[component]):
            indegree[after] -= 1
            if not indegree[after]:
                ready.append(after)
    reach = between.copy()
    for component in reversed(order):
        for after in np.flatnonzero(between[component]):
            reach[component] |= reach[after]
    np.fill_diagonal(reach, within)
    spread: NDArray[np.bool_] = np.take(np.take(reach, label, axis=0), label, axis=1)
    return spread


def cheapest_costs(src: Ends, dst: Ends, costs: Costs, nodes: int) -> NDArray[np.float64]:
    """The cheapest way from each node to each, the diagonal being the cheapest way out and back, infinity if none."""
    graph = sparse.csr_array((costs, (src, dst)), shape=(nodes, nodes))
    distance: NDArray[np.float64] = csgraph.shortest_path(graph, method="D", directed=True)
    cycle = np.full(nodes, np.inf)
    np.minimum.at(cycle, src, costs + distance[dst, src])
    np.fill_diagonal(distance, cycle)
    return distance


def same_generation(src: Ends, dst: Ends, costs: Costs, nodes: int) -> NDArray[np.bool_]:
    """Pairs reached from one node by walks of equal length: the least S with S = A'A + A'SA, new pairs only a round."""
    down = sparse.csr_array((np.ones(len(src), dtype=np.float32), (dst, src)), shape=(nodes, nodes))
    new: NDArray[np.bool_] = (down @ down.T).toarray() > 0
    pairs = new.copy()
    while new.any():
        step = down @ new.astype(np.float32)
        step = (down @ np.ascontiguousarray(step.T)).T
        new = (step > 0) & ~pairs
        pairs |= new
    return pairs
