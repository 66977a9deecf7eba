"""What an n-way join knows of its inputs when it orders its paths.

Law: of estimates only the work depends, never the rows. Fan-outs are those of `engine/core/key_estimates.py` over the
inputs' relations as they are. Tests are evaluated on sampled rows of their inputs, except those that may fail. State:
none; a plan asks once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from whence.engine.core.key_estimates import KeyEstimates, Met
from whence.engine.core.machine_costs import machine_costs
from whence.engine.core.relation import Relation
from whence.engine.core.statistics import distinct_keys, sample_rows
from whence.model.codes import Codes

_SAMPLE = 1024  # rows on which tests are evaluated
_UNDECIDED = 0.5  # what a test that may fail is taken to let through


class JoinEstimates(KeyEstimates):
    """`Estimates` over the relations of a join's inputs; `met` are probes and matches of its steps so far."""

    def __init__(
        self, relations: Sequence[Relation], tests: Sequence[tuple[Callable[[Codes], Codes], bool]], met: Met
    ) -> None:
        super().__init__(met, machine_costs())
        self._relations, self._tests = relations, tests
        self._passing: list[NDArray[np.bool_] | None] | None = None

    def rows_of(self, input: int) -> float:
        return len(self._relations[input])

    def count_keys(self, input: int, cols: tuple[int, ...]) -> float:
        return distinct_keys(self._relations[input], cols)

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
