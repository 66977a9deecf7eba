"""Lower bounds of what entries cost that are not enumerated, or no longer kept.

Law: a plan scans each of its relations, and its last join writes the rows it finds; so much every entry costs at least.
What was computed of an entry before is a better bound, and remains one after a change if it is lowered by the most that
all costs below it have fallen together, since a plan has each entry at most once.
"""

from __future__ import annotations

import numpy as np

from whence.model.codes import Codes
from whence.plan.optimizer.cost import CostModel
from whence.plan.optimizer.kernels.costs import FOUND, NO_COST, PER_FOUND
from whence.plan.optimizer.space import PlanModel
from whence.plan.optimizer.split import AGGREGATED, MemoEntry


class LowerBounds:
    """Bounds of the entries of a model."""

    def __init__(self, model: PlanModel) -> None:
        self._model = model
        self._leaves = [model.number(MemoEntry(1 << n)) for n in range(len(model.graph.relations))]
        for leaf in self._leaves:
            model.open(leaf)
        self._allowed = np.zeros(0, np.int64)
        self._limits: tuple[int, ...] = ()

    def _scans(self) -> Codes:
        """Return the least cost of scanning each relation."""
        model = self._model
        found = []
        for leaf, name in zip(self._leaves, model.graph.relations, strict=True):
            cost = int(model.local[model.open(leaf)[0]])
            indexed = isinstance(model.costs, CostModel) and model.physical.indexes.get(name)
            found.append(min(cost, 1) if indexed else cost)
        return np.array(found, np.int64)

    def _scanned(self, entries: Codes) -> Codes:
        """Return what it costs to scan all relations of some entries."""
        expressions = self._model.entries[entries, 0]
        bits = expressions[:, None] >> np.arange(len(self._leaves)) & 1
        return np.asarray(bits @ self._scans())

    def static(self, entries: Codes) -> Codes:
        """Return the bounds of some entries of which nothing else is known."""
        model = self._model
        found = self._scanned(entries)
        if isinstance(model.costs, CostModel):
            rate = min((model.costs.rates(join.name)[PER_FOUND] for join in model.physical.joins), default=0)
            expressions = model.entries[entries, 0]
            joins = (expressions & (expressions - 1) != 0) & (expressions & AGGREGATED == 0)
            joins &= ~np.isin(expressions, list(model.overridden))
            found = found + np.where(joins, rate * model.rows[entries, FOUND], 0)
        return found

    def fill(self, known: Codes) -> None:
        """Give entries of which nothing is known, -1, their bounds."""
        fresh = np.flatnonzero(known < 0)
        if len(fresh):
            known[fresh] = self.static(fresh)

    def after_change(self, known: Codes, held: Codes, reached: Codes, fallen: int) -> Codes:
        """Lower the bounds of entries that are not kept, where a change reaches them; return which these are."""
        model, self._limits = self._model, ()
        outside = np.flatnonzero((held == 0) & (reached != 0))
        if not len(outside):
            return outside
        static = self.static(outside)
        closed = model.entries[outside, 1] >= 0
        fallen += int(np.maximum(known[outside] - static, 0)[~closed].sum())
        known[outside] = np.where(closed, np.maximum(static, known[outside] - fallen), static)
        return outside

    def allowed(self, limits: tuple[int, ...]) -> Codes:
        """Return what a plan of each entry may cost in a plan of a root within the root's limit."""
        model = self._model
        if limits == self._limits and len(self._allowed) == len(model.names):
            return self._allowed
        everything = np.arange(len(model.names))
        if not limits or min(limits) >= NO_COST:
            allowed = np.full(len(model.names), NO_COST, np.int64)
        else:
            scanned, expressions = self._scanned(everything), model.entries[:, 0]
            allowed = np.full(len(model.names), -1, np.int64)
            for root, limit in zip(model.roots, limits, strict=True):
                part = expressions & ~expressions[root] == 0
                allowed[part] = np.maximum(allowed[part], limit - scanned[root] + scanned[part])
        self._allowed, self._limits = allowed, limits
        return allowed
