"""The top-down optimizer (Volcano, branch and bound), from scratch and incremental.

It searches from the root within a limit, so entries and alternatives that cannot be part of a plan within it are never
costed. After a change the limit is what the running plan costs now, bounds of what the change reaches are moved by the
most that costs have fallen, and the search begins at the root again: pruned entries come back when their bound falls
below what is left for them, and others are pruned when it does not.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import numpy as np

from whence.plan.optimizer.changes import CostChange, Moved
from whence.plan.optimizer.kernels import top_down as kernels
from whence.plan.optimizer.kernels.costs import ENTRY, LEFT, NO_COST
from whence.plan.optimizer.kernels.top_down import PRUNES, REMEMBERS, STOPS
from whence.plan.optimizer.space import PlanModel, users


class TopDown:
    """Best costs of those entries that a best plan may need."""

    def __init__(
        self,
        model: PlanModel,
        memo: Literal["none", "best", "all", "likely"] = "all",
        conditional: bool = True,
        prunes: bool = True,
    ) -> None:
        self.model, self.memo, self.conditional, self.prunes = model, memo, conditional, prunes
        model.complete()
        entries, alternatives = len(model.names), model.alternative_count
        self._begins, self._users = users(model)
        self._low, self._exact, self._choice, self._dirty = (np.zeros(entries, np.int64) for _ in range(4))
        self._plan, self._known = (np.zeros(alternatives, np.int64) for _ in range(2))
        self._moved = Moved(model)
        self._counts = np.zeros(3, np.int64)
        self.recomputed = self.optimize()

    def optimize(self) -> tuple[int, int]:
        """Search with nothing known; return how many entries and alternatives were costed."""
        for array in (self._low, self._exact, self._known):
            array[:] = 0
        self._choice[:] = -1
        return self._search(start=True)

    def _search(self, start: bool, still: int = 0) -> tuple[int, int]:
        self._counts[:] = still, 0, 0
        model = self.model
        mode = PRUNES * self.prunes | REMEMBERS * (self.memo == "all") | STOPS * self.conditional
        for root in model.roots:
            limit = NO_COST - 1
            if not start and self.prunes:
                limit = kernels.tree_cost(root, model.alternatives, model.local, self._choice)
            kernels.search(
                root,
                limit,
                model.entries,
                model.alternatives,
                model.local,
                self._low,
                self._exact,
                self._choice,
                self._plan,
                self._known,
                mode,
                self._counts,
            )
        return int(self._counts[0]), int(self._counts[1])

    def apply(self, change: CostChange) -> None:
        moved, model = self._moved, self.model
        moved.apply(model, change)
        if self.memo == "none":
            self.recomputed = self.optimize()
        else:
            self._dirty[model.alternatives[moved.alternatives, ENTRY]] = 1
            self._known[moved.alternatives] = 0
            still = np.count_nonzero(moved.entries.astype(bool) & ~self._dirty.astype(bool))
            kernels.move_bounds(
                model.alternatives,
                self._begins,
                self._users,
                self._dirty,
                self._known,
                self._low,
                self._exact,
                moved.fallen,
            )
            self.recomputed = self._search(False, int(still))
        moved.hit[:] = 0
        moved.clear()

    def best_of(self, entry: int) -> int:
        return int(self._low[entry])

    def choice_of(self, entry: int) -> int:
        return int(self._choice[entry])

    def held(self) -> Mapping[int, int]:
        """Return the entries whose best plans are known, and how many of their alternatives were costed."""
        found = {}
        for entry in np.flatnonzero(self._exact).tolist():
            first, last = self.model.entries[entry, 1:].tolist()
            found[entry] = last - first
        return found

    @property
    def remembered(self) -> int:
        """Return how many costs are remembered between changes."""
        joins = self.model.alternatives[:, LEFT] >= 0
        return int(np.count_nonzero(self._exact) + np.count_nonzero(self._known.astype(bool) & joins))
