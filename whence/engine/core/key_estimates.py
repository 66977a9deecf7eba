"""How many rows of an input match a key on a path: what joins and recursive rules estimate in the same way.

Law: of estimates only the work depends, never the rows. A fan-out is what the running path has met, where it has met
enough; else the rows divided by the distinct keys of the input or of those that the path has met, whichever has more: a
key that has been selected away is not found.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from whence.plan.algebra.join_paths import Members
from whence.plan.algebra.work_costs import DEFAULTS, WorkCosts

_ENOUGH = 256  # probes after which the fan-out that was met counts

Met = Mapping[tuple[int, int, tuple[int, ...]], tuple[int, int]]  # of a path, input and key: probes and matches


class KeyEstimates:
    """Fan-outs by rows and distinct keys, which subclasses count; `met` are probes and matches of steps so far."""

    def __init__(self, met: Met, costs: WorkCosts = DEFAULTS) -> None:
        self._met, self.costs = met, costs
        self._keys: dict[tuple[int, tuple[int, ...]], float] = {}
        self._fan_outs: dict[tuple[int, tuple[int, ...], tuple[Members, ...]], float] = {}

    def rows_of(self, input: int) -> float:
        """Return how many rows an input has."""
        raise NotImplementedError

    def count_keys(self, input: int, cols: tuple[int, ...]) -> float:
        """Return how many distinct keys an input has in some columns."""
        raise NotImplementedError

    def fan_out(self, first: int, input: int, cols: tuple[int, ...], known: tuple[Members, ...]) -> float:
        probes, matches = self._met.get((first, input, cols), (0, 0))
        if probes >= _ENOUGH:
            return matches / probes
        asked = (input, cols, known)
        found = self._fan_outs.get(asked)
        if found is None:
            keys = max(1.0, self._distinct(input, cols), self._keys_met(known))
            found = self._fan_outs[asked] = self.rows_of(input) / keys
        return found

    def _keys_met(self, known: tuple[Members, ...]) -> float:
        """Return how many keys a path's rows may have: of columns of one input together, of several independent."""
        owners: dict[int, list[int]] = {}
        for members in known:
            if members:  # not a constant, nor computed
                owner, column = min(members, key=lambda m: self._distinct(m[0], (m[1],)))
                owners.setdefault(owner, []).append(column)
        return math.prod(self._distinct(owner, tuple(sorted(set(columns)))) for owner, columns in owners.items())

    def _distinct(self, input: int, cols: tuple[int, ...]) -> float:
        keys = self._keys.get((input, cols))
        if keys is None:
            keys = self._keys[input, cols] = self.count_keys(input, cols)
        return keys
