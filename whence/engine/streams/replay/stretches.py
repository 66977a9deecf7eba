"""Choose the rows that a replay runs over: stretches of a stream for a chain that starts cold, else checkpoints.

Laws: every interval that is asked for lies in one stretch; what overlaps is one, and nothing between two is run (unless
the gaps are so small that running them costs less). A checkpoint is before every tid that is needed after it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from whence.engine.streams.connection_point import ConnectionPoint
from whence.engine.streams.replay.checkpoints import Checkpoint, Checkpoints
from whence.engine.streams.replay.matching import Wanted
from whence.model.codes import Codes
from whence.model.errors import ReplayError

DENSE = 0.6  # stretches that are so much of all rows from the first to the last are run with the gaps between them
NOTHING = np.iinfo(np.int64).max  # needed of a stream that a result has nothing of


def stretches_of(firsts: Codes, arrivals: Codes, fed: ConnectionPoint) -> tuple[Codes, Codes]:
    """Return where stretches begin, and the tids after their ends, for results whose intervals begin at `firsts` and
    which came out at `arrivals`."""
    order = np.lexsort((arrivals, firsts))
    begins = firsts[order]
    until = np.maximum.accumulate(np.searchsorted(fed.rows[:, -1], arrivals[order], "right") + fed.first)
    starts = np.flatnonzero(np.concatenate(([True], begins[1:] >= until[:-1])))
    return begins[starts], until[np.concatenate((starts[1:], [len(order)])) - 1]


def is_dense(begins: Codes, ends: Codes) -> bool:
    """Check whether running the gaps as well is cheaper than keeping the stretches apart."""
    return int((ends - begins).sum()) > DENSE * int(ends[-1] - begins[0])


@dataclass(frozen=True)
class ReplayNeeds:
    """The rows that results need of a network's streams: the first tid of each generator's stream, one row per
    result."""

    checkpoints: Checkpoints
    tids: Codes  # [results, generators]

    @staticmethod
    def of(wanted: Wanted) -> ReplayNeeds:
        """Find what results need, from their intervals."""
        checkpoints = wanted.retain.checkpoints
        if checkpoints is None:
            raise ReplayError(f"{wanted.retain.name} has no checkpoints to be replayed from")
        names = [op.source for op in checkpoints.generators]
        found = np.full((len(wanted.tids), len(names)), NOTHING)
        for source in wanted.sources:
            spans = wanted.spans(source)
            has = spans[:, 0] <= spans[:, 1]
            for column, name in enumerate(names):
                if name == source:
                    found[has, column] = spans[has, 0]
        return ReplayNeeds(checkpoints, found)

    @property
    def some(self) -> Codes:
        """The results that need anything."""
        return np.flatnonzero((self.tids < NOTHING).any(axis=1))

    @property
    def nexts(self) -> Codes:
        """How far each stream had come at each checkpoint: [checkpoints, generators]."""
        there = self.checkpoints.kept
        return np.array([c.nexts for c in there], np.int64).reshape(-1, self.tids.shape[1])

    def starts(self) -> Codes:
        """Return the number of the last checkpoint before what each result needs; -1 if there is none."""
        there = self.nexts
        before = np.full(len(self.tids), len(there), np.int64)
        for column in range(there.shape[1]):
            before = np.minimum(before, np.searchsorted(there[:, column], self.tids[:, column], "right"))
        return before - 1

    def last_before(self) -> Checkpoint | None:
        """Return the last checkpoint before all that is needed, if there is one after which every row is kept."""
        start = int(self.starts()[self.some].min())
        return self.checkpoints.kept[start] if start >= 0 and self.usable()[start] else None

    def usable(self) -> np.ndarray:
        """Return of each checkpoint whether the streams still keep all rows after it."""
        first = np.array([op.inputs[0].kept.first for op in self.checkpoints.generators])  # type: ignore[attr-defined]
        return np.asarray(np.all(self.nexts >= first, axis=1))
