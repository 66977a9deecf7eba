"""Evaluate derivations: which rows are there when some base rows are lost.

64 cases at a time are the bits of one word a node. Without tallies one least fixpoint gives all nodes. A tally is
compared when everything below it is known, so nodes are taken level by level, a level for each tally on the way; a
tally in a cycle has no meaning and is refused.

Cost: a pass over the derivations for each round of the fixpoint, for 64 cases.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from whence.explain.ask.tally import Scale, eliminate_tallies
from whence.explain.graph import Derivations, Ints
from whence.explain.kernels import spread
from whence.model.budget import reach
from whence.model.codes import Codes
from whence.model.errors import EvaluationError

Bools = NDArray[np.bool_]
Words = NDArray[np.uint64]
STEPS = 4_000_000  # elements of tested aggregates that are gone through for one question: some 10 s


@dataclass
class Evaluator:
    """A graph made ready to be evaluated many times."""

    graph: Derivations

    def __post_init__(self) -> None:
        self.asked = len(self.graph)
        self.graph = eliminate_tallies(self.graph)

    @cached_property
    def uses(self) -> tuple[Codes, Ints]:
        return spread.uses(len(self.graph), self.graph.start, self.graph.body)

    @cached_property
    def absences(self) -> Bools:
        kinds = np.array([r.kind == "absence" for r in self.graph.relations], bool)
        found: Bools = kinds[self.graph.relation]
        return found

    @cached_property
    def full(self) -> tuple[Ints, Ints]:
        """Derive with nothing lost: the nodes in the order in which they come, and the derivation of each."""
        return self.derive(np.ones(len(self.graph.base), bool))

    def derive(self, alive: Bools) -> tuple[Ints, Ints]:
        """Order and chosen derivations when these variables are there; tallies want their whole body."""
        reach()
        leaf = self.absences.copy()
        leaf[self.graph.base[alive]] = True
        return spread.derive(leaf, self.graph.head, self.graph.start, *self.uses)

    @cached_property
    def _stages(self) -> list[tuple[list[int], Ints]]:
        """Yield the tallies of each level, and its other nodes in order."""
        graph = self.graph
        order, chosen = self.full
        order = order[chosen[order] >= 0]
        if not graph.tallies:
            return [([], order)]
        tallied = np.zeros(len(graph), np.int64)
        tallied[list(graph.tallies)] = 1
        level = spread.levels(len(graph), graph.head, graph.start, graph.body, tallied, len(graph.tallies))
        if len(level) and level[0] < 0:
            raise EvaluationError("an aggregate depends on itself: its rows cannot be told without it")
        plain_nodes = order[tallied[order] == 0]
        return [
            ([n for n in graph.tallies if level[n] == at], plain_nodes[level[plain_nodes] == at])
            for at in range(int(level.max()) + 1)
        ]

    @property
    def affordable(self) -> int:
        """Return how many cases can be evaluated in seconds: tests of aggregates (HAVING) take each by itself."""
        tested = sum(len(t.values) for t in self.graph.tallies.values() if t.test is not None)
        return STEPS // tested if tested else STEPS

    @cached_property
    def _scales(self) -> dict[int, Scale]:
        return {n: Scale(t) for n, t in self.graph.tallies.items()}

    def words(self, alive: Words) -> Words:
        """Return 64 cases of each node, given those of each variable."""
        reach()
        graph = self.graph
        found = np.zeros(len(graph), np.uint64)
        found[self.absences] = ~np.uint64(0)
        found[graph.base] = alive
        for tallies, nodes in self._stages:
            for node in tallies:
                left = unpack(found[graph.bodies(int(graph.first[node]))], 64)
                found[node] = pack(self._scales[node].holds(left)[None, :])[0, 0]
            spread.saturate(nodes, graph.first, graph.head, graph.start, graph.body, *self.uses, found)
        return found

    def holds(self, alive: Bools) -> bool:
        """Return whether the first root is there with these variables."""
        if self.graph.tallies:
            return bool(self.words(np.where(alive, ~np.uint64(0), np.uint64(0)))[self.graph.roots[0]] & np.uint64(1))
        return bool(self.derive(alive)[1][self.graph.roots[0]] != -2)

    def root(self, alive: Bools) -> Bools:
        """Return whether the first root is there in each case (column)."""
        there: Bools = unpack(self.root_words(pack(alive))[None, :], alive.shape[1])[0]
        return there

    def without_each(self, alive: Bools, variables: Ints) -> Bools:
        """Return whether the first root is there when one of these variables is lost too, for each of them."""
        found = np.empty(len(variables), bool)
        for low in range(0, len(variables), 64):
            some = variables[low : low + 64]
            words = np.where(alive, ~np.uint64(0), np.uint64(0))
            words[some] &= ~(np.uint64(1) << np.arange(len(some), dtype=np.uint64))
            found[low : low + 64] = unpack(self.root_words(words[:, None])[None, :], len(some))[0]
        return found

    def root_words(self, alive: Words) -> Words:
        """Return whether the first root is there, 64 cases per word."""
        node = self.graph.roots[0]
        return np.array([self.words(alive[:, w].copy())[node] for w in range(alive.shape[1])], np.uint64)


def evaluate(graph: Derivations, alive: Bools) -> Bools:
    """Return whether each node is there, given whether each variable is: one case, or a column for each case."""
    evaluator = Evaluator(graph)
    packed = pack(alive.reshape(len(alive), -1))
    cases = alive.reshape(len(alive), -1).shape[1]
    found = np.empty((evaluator.asked, packed.shape[1]), np.uint64)
    for w in range(packed.shape[1]):
        found[:, w] = evaluator.words(packed[:, w].copy())[: evaluator.asked]
    bits = unpack(found, cases)
    return bits if alive.ndim == 2 else bits[:, 0]


def pack(bits: Bools) -> Words:
    """Pack rows of bits into rows of words; the last word is filled with zeros."""
    rows, cases = bits.shape
    padded = np.zeros((rows, -(-cases // 64) * 64), bool)
    padded[:, :cases] = bits
    words: Words = np.packbits(padded, axis=1, bitorder="little").view("<u8").astype(np.uint64).reshape(rows, -1)
    return words


def unpack(words: Words, cases: int) -> Bools:
    """Unpack rows of words (or one word per row) into rows of bits."""
    listed = np.ascontiguousarray(words.reshape(len(words), -1), dtype="<u8")
    return np.unpackbits(listed.view(np.uint8), axis=1, bitorder="little")[:, :cases].astype(bool)
