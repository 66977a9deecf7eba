"""The bottom-up optimizer (System R), from scratch and incremental.

From scratch it computes every entry, inputs first. After a change it goes up from what moved, entry by entry, and looks
again at the alternatives that were hit. `memo` is what it remembers: "none" computes everything again, "best" has the
best cost of each entry, "all" that of each alternative, too, and "likely" that of the cheapest few.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import numpy as np

from whence.plan.optimizer.changes import CostChange, Moved
from whence.plan.optimizer.kernels import bottom_up as kernels
from whence.plan.optimizer.kernels.bottom_up import ALL, BEST, KEPT, LIKELY
from whence.plan.optimizer.kernels.costs import ENTRY, FIRST, LAST, LEFT
from whence.plan.optimizer.space import PlanModel, users

Memo = Literal["none", "best", "all", "likely"]
MEMOS: Mapping[str, int] = {"none": BEST, "best": BEST, "all": ALL, "likely": LIKELY}


class BottomUp:
    """Best costs of all entries, by dynamic programming."""

    def __init__(self, model: PlanModel, memo: Memo = "all", conditional: bool = True) -> None:
        self.model, self.memo, self.conditional = model, memo, conditional
        model.complete()
        entries, alternatives = len(model.names), model.alternative_count
        self._begins, self._users = users(model)
        self._best, self._choice, self._dirty, self._floors = (np.zeros(entries, np.int64) for _ in range(4))
        self._plan = np.zeros(alternatives if memo in ("all", "likely") else 0, np.int64)
        self._kept = np.full((entries if memo == "likely" else 0, KEPT), -1, np.int64)
        self._moved = Moved(model)
        self._counts = np.zeros(2, np.int64)
        self.recomputed = self.optimize()

    def optimize(self) -> tuple[int, int]:
        """Compute everything again; return how many entries and alternatives there are."""
        self._counts[:] = 0
        kernels.optimize(
            self.model.entries,
            self.model.alternatives,
            self.model.local,
            self._best,
            self._choice,
            self._plan,
            self._kept,
            self._floors,
            MEMOS[self.memo],
            self._counts,
        )
        return int(self._counts[0]), int(self._counts[1])

    def apply(self, change: CostChange) -> None:
        moved, model = self._moved, self.model
        moved.apply(model, change)
        if self.memo == "none":
            self.recomputed = self.optimize()
            moved.hit[:] = 0
        else:
            self._reoptimize()
        moved.clear()

    def _reoptimize(self) -> None:
        moved, model = self._moved, self.model
        self._dirty[model.alternatives[moved.alternatives, ENTRY]] = 1
        still = moved.entries.astype(bool) & ~self._dirty.astype(bool)  # other rows, but costs as they were
        self._counts[0], self._counts[1] = int(np.count_nonzero(still)), 0
        kernels.reoptimize(
            model.entries,
            model.alternatives,
            self._begins,
            self._users,
            model.local,
            self._best,
            self._choice,
            self._plan,
            self._kept,
            self._floors,
            self._dirty,
            moved.hit,
            MEMOS[self.memo],
            self.conditional,
            self._counts,
        )
        self.recomputed = int(self._counts[0]), int(self._counts[1])

    @property
    def remembered(self) -> int:
        """Return how many costs are remembered between changes."""
        if self.memo == "none":
            return 0
        joins = int(np.count_nonzero(self.model.alternatives[:, LEFT] >= 0)) if self.memo == "all" else 0
        return len(self._best) + joins + int(np.count_nonzero(self._kept >= 0))

    def best_of(self, entry: int) -> int:
        return int(self._best[entry])

    def choice_of(self, entry: int) -> int:
        return int(self._choice[entry])

    def held(self) -> Mapping[int, int]:
        entries = self.model.entries
        return dict(enumerate((entries[:, LAST] - entries[:, FIRST]).tolist()))
