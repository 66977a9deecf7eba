"""The margin of a plan: how far costs may move before it can have stopped being the best.

Law. Let the regret r(a) of an alternative be what the cheapest whole plan through it costs more than the best plan, and
m the smallest regret off the best plan. After a change, a plan Q through alternatives a that fell by f(a) is still no
cheaper than the best plan P whose alternatives rose by R altogether, if R + Σ f(a) ≤ c(Q) − c(P). Since c(Q) − c(P) is
at least m and at least r(a) for each a of Q, and Q has one alternative a level of the graph, that holds while

    R / m + Σ over levels of max f(a) / r(a) ≤ 1.

The left side is the part of the margin that is *used*. A plan that is not the best but near enough (within `slack`) has
regrets that are larger by the slack: then no plan is cheaper by more than that. Costs are those of the last search and
now, so changes that cancel use nothing.
"""

from __future__ import annotations

import numpy as np

from whence.model.codes import Codes
from whence.plan.optimizer.kernels.costs import ENTRY, EXPRESSION, LEFT
from whence.plan.optimizer.paths import PathSpace


class Margin:
    """How much of a running plan's margin the costs of a space have used since they were searched."""

    def __init__(
        self, space: PathSpace, regrets: Codes, running: list[list[int]], behind: list[int], slack: list[int]
    ) -> None:
        """Begin after a search: `running` are the alternatives of each delta's path, `behind` what it costs more than
        the best, and `slack` what it may."""
        self._space, self._before = space, space.local.copy()
        self._running = running
        firsts = np.array([first for first, _ in space.numbers], np.int64)[space.alternatives[:, ENTRY]]
        taken = space.alternatives[:, LEFT] < 0  # where all paths begin
        taken[[number for path in running for number in path]] = True
        room = regrets + (np.array(slack) - np.array(behind))[firsts]  # what each may fall by
        self._room = np.maximum(room, 0).astype(np.float64)
        self._off, self._firsts = ~taken, firsts
        sizes = space.entries[space.alternatives[:, ENTRY], EXPRESSION]
        self._levels = np.array([int(size).bit_count() for size in sizes.tolist()], np.int64)
        self.smallest = [self._smallest(first) for first in range(space.inputs)]

    def _smallest(self, first: int) -> float:
        """Return what may be used of the margin of a delta's path, as a cost."""
        mine = self._off & (self._firsts == first)
        return float(self._room[mine].min()) if mine.any() else float("inf")

    def used(self) -> float:
        """Return the part of the margin that the costs of the space, as they are now, have used: of the path that has
        used most. At 1 or below no search is needed."""
        moved = self._space.local - self._before
        if not moved.any():
            return 0.0
        worst = 0.0
        for first, path in enumerate(self._running):
            rises = float(np.maximum(moved[path], 0).sum())
            used = rises / self.smallest[first] if rises and self.smallest[first] > 0 else (np.inf if rises else 0.0)
            worst = max(worst, used + self._falls(first, moved))
        return float(worst)

    def _falls(self, first: int, moved: Codes) -> float:
        mine = np.flatnonzero(self._off & (self._firsts == first) & (moved < 0))
        if not len(mine):
            return 0.0
        with np.errstate(divide="ignore"):
            parts = -moved[mine] / self._room[mine]
        most = np.zeros(self._space.inputs + 1)
        np.maximum.at(most, self._levels[mine], parts)
        return float(most.sum())
