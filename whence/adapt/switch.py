"""A switch on its way: the indexes that a join's next plan needs are built in slices between epochs; the plan is taken
when they are whole, so that no epoch waits for one."""

from __future__ import annotations

from whence.adapt.adaptive_join import JoinAdvice
from whence.engine.relational.join import Join

LEAST, MOST = 1 << 10, 1 << 16  # rows of a slice


class PendingSwitch:
    """Builds what the advice for a join needs."""

    def __init__(self, join: Join, advice: JoinAdvice) -> None:
        self.join, self.advice = join, advice
        self.slices = 0

    def advance(self, rows: int) -> bool:
        """Build a slice of so many rows; return whether everything is there. Between two epochs."""
        self.slices += 1
        for input, cols, ordered in self.advice.missing:
            if not self.join.relations[input].grow_index(cols, ordered, max(LEAST, min(rows, MOST))):
                return False
        return True

    def stop(self) -> None:
        """Forget what is not whole."""
        for relation in self.join.relations:
            relation.stop_growing()
