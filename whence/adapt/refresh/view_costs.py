"""The costs of one held view, learnt from all its releases.

Where tables are released one by one, each release is an observation of its table. Where they share a job, the least of
the last releases is what they share, and the rest of a release is attributed to its tables as they are known. The view
is recomputed when that is cheaper; its cost is proportional to the rows it reads, from the first fill on.

Estimates are means, and a bound is to be kept by nearly all refreshes: `margin` is how much longer than estimated all
but one in a hundred of the last refreshes took.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence

from whence.adapt.refresh.costs import RefreshCosts
from whence.adapt.refresh.learnt_cost import LearntCost

_REMEMBERED = 64  # releases that tell what is shared
_RATIOS = 256  # refreshes that tell the margin
_QUANTILE = 0.99
_FIRST_MARGIN, _LARGEST_MARGIN = 1.25, 4.0


class ViewCosts:
    """Costs of the tables of one held view. With `together` they are released in one job."""

    def __init__(self, tables: Sequence[LearntCost], *, together: bool = False) -> None:
        self.tables = tuple(tables)
        self.together = together
        self._latest: deque[float] = deque(maxlen=_REMEMBERED)
        self._ratios: deque[float] = deque(maxlen=_RATIOS)
        self._recompute: tuple[float, int] | None = None  # seconds, and the rows that were read
        self.margin = _FIRST_MARGIN

    @property
    def shared(self) -> float:
        """What tables that are released together pay once."""
        return min(self._latest, default=0.0) if self.together else 0.0

    def costs(self, rows: Sequence[int]) -> RefreshCosts:
        """Return the costs now that the view reads so many rows of each table; none are known if there are none."""
        return RefreshCosts(self.tables, self.shared, self._recomputing(rows))

    def _recomputing(self, rows: Sequence[int]) -> float:
        """Return what recomputing costs: in proportion to the rows since it was last done, and no more than it would
        cost to release all rows."""
        if not rows:
            return math.inf if self._recompute is None else self._recompute[0]
        found = self.shared + math.fsum(map(_call, self.tables, rows))
        if self._recompute is not None:
            seconds, read = self._recompute
            found = min(found, seconds * max(1.0, sum(rows) / max(read, 1)))
        return found

    def is_unknown(self, counts: Sequence[int]) -> bool:
        """Return whether one of these tables has never been released."""
        return any(count and not table.known for table, count in zip(self.tables, counts, strict=True))

    def observe(self, counts: Sequence[int], seconds: float) -> None:
        """Take in that a release of so many rows of each table took so long."""
        released = [i for i, count in enumerate(counts) if count]
        if not self.together:
            (table,) = released
            self.tables[table].observe(counts[table], seconds)
            return
        self._latest.append(seconds)
        rest = max(0.0, seconds - self.shared)
        guesses = {i: self.tables[i](counts[i]) for i in released}
        if not all(self.tables[i].known for i in released) or not any(guesses.values()):
            guesses = {i: float(counts[i]) for i in released}
        whole = math.fsum(guesses.values())
        for table, guess in guesses.items():
            self.tables[table].observe(counts[table], rest * guess / whole)

    def observe_recomputing(self, rows: Sequence[int], seconds: float) -> None:
        """Take in how long it took to compute the view from so many rows of each table."""
        read, before = sum(rows), self._recompute
        if before is not None:
            seconds = (seconds + before[0] * max(1.0, read / max(before[1], 1))) / 2
        self._recompute = seconds, read

    def observe_refresh(self, estimated: float, seconds: float) -> None:
        """Take in how a refresh compares with its estimate."""
        if estimated > 0:
            self._ratios.append(seconds / estimated)
            ranked = sorted(self._ratios)
            found = ranked[max(0, len(ranked) - 1 - max(1, math.floor((1 - _QUANTILE) * len(ranked))))]
            few = _FIRST_MARGIN if len(ranked) < _REMEMBERED else 1.0
            self.margin = min(_LARGEST_MARGIN, max(few, found))


def _call(table: LearntCost, rows: int) -> float:
    return table(rows)
