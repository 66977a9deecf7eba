"""CachedKeys: which keys of a relation that is elsewhere are kept, of at most so many.

Caching is joining (Theorem 7 of paper 002): a cache is a stream of supply, joined with the stream of references. A
reference finds the row of its key, if it is kept, or has it kept, and stays in no window itself. So the kept rows of a
join (`kept_rows.py`) serve, and all its policies. What differs is the benefit of a kept row: only the next reference to
a key counts, for with that the row would be supplied anyhow.

Law: at most `capacity` keys are kept after each reference, and which ones depends on the order of references only.
State: the kept keys, and what is known of keys. Cost: a constant per reference, and a share of an eviction.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from whence.engine.streams.windows.eviction_tuner import EvictionTuner
from whence.engine.streams.windows.kept_rows import KeptRows
from whence.engine.streams.windows.kernels import bounded as bk
from whence.engine.streams.windows.recent import KeyNumbers
from whence.model.codes import Codes
from whence.plan.eviction.scoring import Scoring, heeb
from whence.plan.eviction.value_models import ValueModel
from whence.plan.streams.model import MemoryLimit

SMALL = 4096  # keys of a capacity that are evicted one by one: a fetch takes longer than to look at them
_ONLY = np.zeros(1, np.int64)  # the column of keys


class CacheTuner(EvictionTuner):
    """Learns how references go on, which are the right stream."""

    def clear(self) -> None:
        super().clear()
        self.alpha = self._alphas[len(self._alphas) // 3]
        self._begin()

    def _scorings(
        self, models: list[ValueModel], alpha: float, windows: tuple[int | None, int | None]
    ) -> list[Scoring]:
        return [Scoring("lfu"), heeb(models[1], alpha, cached=True)]  # nothing waits for the left

    def _pairs(
        self, recent: Codes, models: list[ValueModel], alpha: float, capacity: int, windows: tuple[int | None, ...]
    ) -> int:
        """Return how many of the second half of some references a cache of this capacity answers."""
        kept = KeptRows(capacity, (None, 0), SMALL)
        values, ids = np.unique(recent[:, 1], return_inverse=True)
        kept.know_keys(values)
        kept.sides[1].meta[bk.CAME] = int(self._came[1]) - len(recent)
        kept.score_by(1, self._scorings(models, alpha, self.windows)[1])
        return int(kept.refer(ids.astype(np.int64))[len(recent) // 2 :].sum())

    def describe(self) -> str:
        return f"{self.models[1].describe()}; time constant {self.alpha:.3g} references"


class CachedKeys:
    """The keys that a cache keeps; they are codes of one column."""

    def __init__(self, capacity: int, limit: MemoryLimit, is_numeric: bool) -> None:
        self._kept = KeptRows(capacity, (None, 0), SMALL)
        self._numbers = KeyNumbers(1)
        self._tuner: CacheTuner | None = None
        if limit.keep == "heeb":
            self._tuner = CacheTuner(capacity, (None, 0), is_numeric, limit.model, limit.period, limit.lifetime)
        else:
            self._kept.score_by(1, Scoring(limit.keep))
        self._rescore()

    def _rescore(self) -> None:
        if self._tuner is not None:
            self._kept.score_by(1, self._tuner.scorings()[1])

    @property
    def capacity(self) -> int:
        return self._kept.capacity

    @property
    def nbytes(self) -> int:
        return self._kept.nbytes + self._numbers.nbytes + (0 if self._tuner is None else self._tuner.nbytes)

    def __len__(self) -> int:
        return int(self._kept.sides[0].meta[bk.LIVE])

    def refer(self, keys: Codes) -> tuple[NDArray[np.bool_], Codes]:
        """Take in references, in their order. Return which found their key kept, and the keys that were kept and no
        longer are, or came and are not."""
        known = len(self._numbers)
        ids = self._numbers.number(np.ascontiguousarray(keys[:, None]), _ONLY)
        self._kept.know_keys(np.ascontiguousarray(self._numbers.image()[known:, 0]))
        found, start = np.empty(len(keys), np.bool_), 0
        while start < len(keys):
            end = min(len(keys), start + self._until_change())
            found[start:end] = self._kept.refer(ids[start:end])
            self._learn(keys[start:end])
            start = end
        return found, self._commit()

    def _until_change(self) -> int:
        """Return how many references there are before counts are halved or models fitted."""
        ageing = self._kept.until_ageing()
        return ageing if self._tuner is None else min(ageing, self._tuner.until_fit())

    def _learn(self, keys: Codes) -> None:
        if self._tuner is not None and self._tuner.arrive(np.ones(len(keys), np.int64), keys, len(self)):
            self._rescore()
        if self._kept.until_ageing() == self._kept.ageing:
            self._kept.age()

    def _commit(self) -> Codes:
        """Forget what nothing depends on; return the keys that left for good."""
        side, shared = self._kept.sides[0], self._kept.shared
        gone = np.unique(side.ids[side.gone[: side.meta[bk.GONE]]])
        gone = gone[shared.attrs[gone, bk.FIRST] < 0]
        evicted: Codes = shared.values[gone]
        shared.attrs[: self._kept.keys, bk.LOST : bk.LOST + 2] = 0  # what was missed is of no interest: it was fetched
        _, keys = self._kept.commit()
        self._numbers.commit()
        if keys is not None:
            self._numbers.restore(self._numbers.image()[keys])
        if self._tuner is not None:
            self._tuner.commit()
        return evicted

    def describe(self) -> str:
        return f"keeps {len(self)} of {self.capacity} keys" + (
            "" if self._tuner is None else f", {self._tuner.describe()}"
        )
