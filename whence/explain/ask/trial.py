"""Trials: questions answered by taking base rows out of a copy of the database, and putting them back.

For rows whose derivations do not say everything (`Derivations.exact`): a group that keeps a row by another value, an
OFFSET, a negation of a negation. The copy is a dataflow of its own, so no writer waits, and each trial is an epoch that
is undone: it costs what the loss changes. Every base row of the tables that the view reads is a variable here, since
any may matter. All sets of rows are tried where they are few; else what is found is bounded or sampled, and says so.
"""

from __future__ import annotations

import math
from itertools import combinations

import numpy as np

from whence.engine.core.dataflow import Dataflow
from whence.engine.core.operator import Batch
from whence.explain.ask.contribution import ShapleyValues, sort_values
from whence.explain.ask.evaluate import Bools
from whence.explain.ask.intervals import clopper_pearson, normal_quantile
from whence.explain.ask.reliability import Probability
from whence.explain.ask.resilience import SmallestLoss
from whence.explain.ask.simplify import Floats
from whence.explain.derive.graph_builder import GraphBuilder
from whence.explain.graph import Derivations, Ints
from whence.model.budget import reach, shielded
from whence.model.codes import Codes, Dictionary
from whence.model.types import Schema
from whence.plan.algebra.program import is_beside

MOST = 5_000  # base rows, and trials, of a question
MOST_ORDERED = 250  # base rows of which some orders can be tried, for contributions
FEW = 10  # base rows of which all sets are tried


class Trial:
    """A row of a view in a dataflow of its own."""

    def __init__(self, flow: Dataflow, dictionary: Dictionary, view: str, schema: Schema, rows: Codes) -> None:
        self._flow, self._view, self._rows = flow, view, rows
        builder = GraphBuilder(dictionary)
        self._tables: list[tuple[str, Codes, Codes]] = []
        for name, scan in flow.tables.items():
            if is_beside(name):
                continue
            batch = scan.contents()
            nodes = builder.append(builder.relation(("base", name), name, "base", scan.schema), batch.rows)
            builder.copies |= {int(n): int(c) for n, c in zip(nodes, batch.ann, strict=True) if c > 1}
            self._tables.append((name, batch.rows, batch.ann))
        roots = builder.append(builder.relation(("view", view), view, "view", schema), rows)
        self.graph: Derivations = builder.finish(roots)

    def left(self, alive: Bools) -> Bools:
        """Return whether each of the rows is there when only these base rows are: one column per case."""
        found = np.empty((len(self._rows), alive.shape[1]), bool)
        for case in range(alive.shape[1]):
            reach("trials", case, alive.shape[1])
            found[:, case] = self._left(alive[:, case])
        return found

    def _left(self, alive: Bools) -> Bools:
        lost: dict[str, Batch] = {}
        at = 0
        for name, rows, copies in self._tables:
            gone = ~alive[at : at + len(rows)]
            at += len(rows)
            if gone.any():
                lost[name] = Batch(np.ascontiguousarray(rows[gone]), -copies[gone], True)
        with shielded():  # it is short, and what it does must be undone
            try:
                self._flow.run(lost)
                counts: Codes = self._flow.views[self._view].count_of(self._rows)
            finally:
                self._flow.undo()
        there: Bools = counts > 0
        return there

    def holds(self, alive: Bools) -> Bools:
        """Return whether the first row is there in each case."""
        there: Bools = self.left(alive)[0]
        return there

    @property
    def variables(self) -> int:
        return len(self.graph.base)


def try_losses(trial: Trial) -> tuple[Ints, Codes]:
    """Try the loss of each base row; return those that remove rows, and how many each removes: most first."""
    alive = ~np.eye(trial.variables, dtype=bool)
    counts = (~trial.left(alive)).sum(axis=0)
    by = np.lexsort((trial.graph.base, -counts))
    by = by[counts[by] > 0]
    return trial.graph.base[by], counts[by].astype(np.int64)


def try_resilience(trial: Trial, budget: int = MOST) -> SmallestLoss:
    """Try all losses of one row, of two rows, … as long as the budget lasts."""
    count = trial.variables
    for size in range(1, count + 1):
        if budget < math.comb(count, size):
            return SmallestLoss(None, size)
        budget -= math.comb(count, size)
        for lost in combinations(range(count), size):
            alive = np.ones((count, 1), bool)
            alive[list(lost)] = False
            if not trial.holds(alive)[0]:
                return SmallestLoss(trial.graph.base[list(lost)], size)
    return SmallestLoss(None, 0)


def try_reliability(
    trial: Trial, probabilities: Floats, samples: int | None = None, confidence: float = 0.99, seed: int = 0
) -> Probability:
    """Compute the probability over all cases if few rows are uncertain, else by sampling."""
    unsure = np.flatnonzero((probabilities > 0) & (probabilities < 1))
    if len(unsure) <= FEW:
        alive, weights = _cases(unsure, probabilities)
        chance = float(weights[trial.holds(alive)].sum())
        return Probability(chance, chance, chance, "exact", None, None, 1.0)
    samples = min(samples or MOST, MOST)
    rng = np.random.default_rng(seed)
    alive = rng.random((trial.variables, samples)) < probabilities[:, None]
    there = int(trial.holds(alive).sum())
    low, high = clopper_pearson(there, samples, confidence)
    return Probability(there / samples, low, high, "sampled", None, samples, confidence)


def _cases(unsure: Codes, probabilities: Floats) -> tuple[Bools, Floats]:
    """Return every case of some base rows, the others being as sure as they are; and how likely each is."""
    bits = (np.arange(1 << len(unsure)) >> np.arange(len(unsure))[:, None] & 1).astype(bool)
    alive = np.repeat((probabilities == 1)[:, None], bits.shape[1], axis=1)
    alive[unsure] = bits
    chance = probabilities[unsure][:, None]
    weights: Floats = np.where(bits, chance, 1 - chance).prod(axis=0)
    return alive, weights


def try_contribution(
    trial: Trial, samples: int | None = None, confidence: float = 0.99, seed: int = 0
) -> ShapleyValues:
    """Compute contributions over all sets if rows are few, else from random orders, each of which tells of every
    row."""
    count = trial.variables
    if count <= FEW:
        there = trial.holds(_cases(np.arange(count), np.full(count, 0.5))[0]).astype(float)
        masks = np.arange(1 << count)
        size = np.array([int(m).bit_count() for m in masks])
        weight = np.array([1 / (count * math.comb(count - 1, int(s))) if s < count else 0.0 for s in size])
        shapley, banzhaf = np.zeros(count), np.zeros(count)
        for i in range(count):
            without = masks[masks >> i & 1 == 0]
            decides = there[without | 1 << i] - there[without]
            shapley[i], banzhaf[i] = (decides * weight[without]).sum(), decides.mean()
        return sort_values(trial.graph, _mattering(shapley, banzhaf), shapley, banzhaf, "exact", None, None, 0.0, 1.0)
    rng = np.random.default_rng(seed)
    orders = max(1, min(samples or MOST, MOST // (2 * count + 2)))
    shapley, banzhaf = np.zeros(count), np.zeros(count)
    for _ in range(orders):
        order = rng.permutation(count)
        alive = np.zeros((count, count + 1), bool)
        for k, v in enumerate(order.tolist()):
            alive[v, k + 1 :] = True
        there = trial.holds(alive).astype(float)
        shapley[order] += np.diff(there)
        some = rng.random(count) < 0.5
        with_, without = np.repeat(some[:, None], count, axis=1), np.repeat(some[:, None], count, axis=1)
        np.fill_diagonal(with_, True)
        np.fill_diagonal(without, False)
        banzhaf += trial.holds(with_).astype(float) - trial.holds(without)
    error = normal_quantile(confidence) / math.sqrt(orders)
    shapley, banzhaf = shapley / orders, banzhaf / orders
    below = _mattering(shapley, banzhaf)
    return sort_values(trial.graph, below, shapley, banzhaf, "sampled", None, orders, error, confidence)


def _mattering(shapley: Floats, banzhaf: Floats) -> Ints:
    return np.flatnonzero((shapley != 0) | (banzhaf != 0)).astype(np.int32)
