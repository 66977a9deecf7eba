"""What an n-way join knows of its inputs when it orders its paths.

Law: of estimates only the work depends, never the rows. Fan-outs are those that the running paths have met, where they
have met enough; else rows divided by the distinct keys of the input or of those that the path has met, whichever has
more: a key that has been selected away is not found. Tests are evaluated on sampled rows of their inputs, except those
that may fail. State: none; a plan asks once and everything is read from the inputs' relations as they are.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from whence.engine.core.relation import Relation
from whence.engine.core.statistics import distinct_keys, sample_rows
from whence.model.codes import Codes
from whence.plan.algebra.join_paths import Members

_SAMPLE = 1024  # rows on which tests are evaluated
_ENOUGH = 256  # probes after which the fan-out that was met counts
_UNDECIDED = 0.5  # what a test that may fail is taken to let through

Met = Mapping[tuple[int, int, tuple[int, ...]], tuple[int, int]]  # of a path, input and key: probes and matches


class JoinEstimates:
    """`Estimates` over the relations of a join's inputs; `met` are probes and matches of its steps so far."""

    def __init__(
        self, relations: Sequence[Relation], tests: Sequence[tuple[Callable[[Codes], Codes], bool]], met: Met
    ) -> None:
        self._relations, self._tests, self._met = relations, tests, met
        self._keys: dict[tuple[int, tuple[int, ...]], float] = {}
        self._fan_outs: dict[tuple[int, tuple[int, ...], tuple[Members, ...]], float] = {}
        self._passing: list[NDArray[np.bool_] | None] | None = None

    def fan_out(self, first: int, input: int, cols: tuple[int, ...], known: tuple[Members, ...]) -> float:
        probes, matches = self._met.get((first, input, cols), (0, 0))
        if probes >= _ENOUGH:
            return matches / probes
        asked = (input, cols, known)
        found = self._fan_outs.get(asked)
        if found is None:
            keys = max(1.0, self._distinct(input, cols), self._keys_met(known))
            found = self._fan_outs[asked] = len(self._relations[input]) / keys
        return found

    def _keys_met(self, known: tuple[Members, ...]) -> float:
        """Return how many keys a path's rows may have: of columns of one input together, of several independent."""
        owners: dict[int, list[int]] = {}
        for members in known:
            owner, column = min(members, key=lambda m: self._distinct(m[0], (m[1],)))
            owners.setdefault(owner, []).append(column)
        return math.prod(self._distinct(owner, tuple(sorted(set(columns)))) for owner, columns in owners.items())

    def _distinct(self, input: int, cols: tuple[int, ...]) -> float:
        keys = self._keys.get((input, cols))
        if keys is None:
            keys = self._keys[input, cols] = distinct_keys(self._relations[input], cols)
        return keys

    def passing(self, tests: Sequence[int]) -> float:
        if self._passing is None:
            self._passing = self._evaluated()
        sampled = [p for t in tests if (p := self._passing[t]) is not None]
        part = _UNDECIDED ** (len(tests) - len(sampled))
        if sampled:
            part *= (int(np.logical_and.reduce(sampled).sum()) + 1) / (_SAMPLE + 1)
        return part

    def has_index(self, input: int, cols: tuple[int, ...], ordered: bool) -> bool:
        relation = self._relations[input]
        return cols in (relation.ranges if ordered else relation.indexes)

    def _evaluated(self) -> list[NDArray[np.bool_] | None]:
        """Return for which sampled rows each test holds; None if it is not asked."""
        if not all(len(r) for r in self._relations):
            return [None] * len(self._tests)
        random = np.random.default_rng(0)
        rows = np.concatenate([sample_rows(r, _SAMPLE, random) for r in self._relations], axis=1)
        return [None if may_fail else test(rows) == 1 for test, may_fail in self._tests]
