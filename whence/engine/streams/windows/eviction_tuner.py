"""EvictionTuner: learns how two joined streams go on, and with which time constant their rows are scored best.

Law: what it decides depends on the order of arrivals only. Models are fitted to the last arrivals when their number
reaches 64, 128, … 4,096, then every 4,096, and less and less often while nothing changes. Time constants are tried on
the same arrivals: the join of as many as are remembered is run with each, and the one that finds most pairs is chosen.
State: the last arrivals. Cost: a constant per arrival; some milliseconds per fit.
"""

from __future__ import annotations

import numpy as np

from whence.engine.core.image import Image, expect, with_room
from whence.engine.streams.windows.kept_rows import KeptRows
from whence.engine.streams.windows.kernels import bounded as bk
from whence.model.codes import Codes
from whence.model.types import Kind, Type
from whence.plan.eviction.scoring import Scoring, heeb
from whence.plan.eviction.value_models import Counted, ValueModel, choose_model

_FIRST, _EVERY, _SELDOM = 64, 4096, 1 << 20  # arrivals from fit to fit
_REMEMBERED = 4096  # arrivals that models are fitted to
_TRIED = 128  # rows that are kept at most when a time constant is tried
_GAIN = 0.99  # of the most pairs: with so many the time constant stays
_PARTS = (32, 10, 3, 1)  # time constants that are tried: the capacity by these
_NUMERIC = (Kind.INTEGER, Kind.BIGINT, Kind.DATE, Kind.TIMESTAMP, Kind.DECIMAL)


def has_numbers(type: Type) -> bool:
    """Return whether the codes of a type are numbers, whose course can be foretold."""
    return type.kind in _NUMERIC and not type.is_wide


class EvictionTuner:
    """Scores rows by estimated expected benefit (HEEB), with what it has learnt.

    `model` names one instead of the best: 'stationary', 'trend', 'walk', 'ar1', or 'seasonal' with a `period`.
    `lifetime` is the time constant, if it is not to be learnt."""

    def __init__(
        self, capacity: int, windows: tuple[int | None, int | None], is_numeric: bool, model: str = "auto",
        period: int | None = None, lifetime: float | None = None,
    ) -> None:  # fmt: skip
        self.capacity, self.windows, self._is_numeric = capacity, windows, is_numeric
        self._named, self._period = model, period
        self._alphas = [lifetime] if lifetime is not None else [max(capacity / part, 1.0) for part in _PARTS]
        self.clear()

    def clear(self) -> None:
        """Reset to the initial state."""
        self._recent = np.empty((2 * _REMEMBERED, 2), np.int64)  # side and value, in order of arrival
        self._end = 0
        self._came = np.zeros(2, np.int64)  # rows of each side
        self._next, self._gap = _FIRST, _FIRST  # when the next fit is due, and how long after the last
        self._basis = self._recent[:0]  # what models were fitted to, and the rows of each side at that time
        self._fitted = np.zeros(2, np.int64)
        self.alpha = self._alphas[len(self._alphas) // 2]
        self.models: list[ValueModel] = [Counted(0), Counted(0)]
        self._begin()

    def _begin(self) -> None:
        fitted = self._basis, self._fitted, self.alpha, list(self.models)
        self._before = self._end, self._came.copy(), self._next, self._gap, fitted

    @property
    def arrivals(self) -> int:
        return int(self._came.sum())

    def until_fit(self) -> int:
        """Return how many arrivals there are before the next fit."""
        return self._next - self.arrivals

    def arrive(self, sides: Codes, values: Codes, rows: int) -> bool:
        """Take in arrivals, the last at the next fit at most, after which `rows` are kept; return whether models were
        fitted. They are not while it will take long before a row has to leave."""
        end = self._end + len(sides)
        if end > len(self._recent):
            self._recent = with_room(self._recent, 2 * end)
        self._recent[self._end : end, 0], self._recent[self._end : end, 1] = sides, values
        self._end = end
        self._came += np.bincount(sides, minlength=2)
        if self.arrivals < self._next:
            return False
        if 2 * rows < self.capacity:
            self._next = self.arrivals + min(self._gap, self.capacity // 4 + 1)
            return False
        self._fit()
        return True

    def finds(self, capacity: int) -> float:
        """Return the pairs per arrival that a join of the last arrivals finds, if it keeps so many rows."""
        recent = self._recent[max(self._end - _REMEMBERED, 0) : self._end]
        if len(recent) < 2:
            return 0.0
        pairs, arrivals = self._found(recent, self.models, self.alpha, capacity)
        return 2 * pairs / max(arrivals, 1)

    def scorings(self) -> list[Scoring]:
        """Return how rows that wait for each side are scored now."""
        return self._scorings(self.models, self.alpha, self.windows)

    def _scorings(
        self, models: list[ValueModel], alpha: float, windows: tuple[int | None, int | None]
    ) -> list[Scoring]:
        return [heeb(model, alpha, windows[1 - s]) for s, model in enumerate(models)]

    # -- learning ----------------------------------------------------------------------------------------------------

    def _fit(self) -> None:
        recent = self._recent[max(self._end - _REMEMBERED, 0) : self._end].copy()
        models = self._models_of(recent, self._came)
        alpha = self._best_alpha(recent, models) if len(self._alphas) > 1 else self.alpha
        is_same = alpha == self.alpha and all(type(a) is type(b) for a, b in zip(models, self.models, strict=True))
        self.models, self.alpha, self._basis, self._fitted = models, alpha, recent, self._came.copy()
        if self.arrivals < _EVERY:
            self._gap = self.arrivals
        else:
            self._gap = min(2 * self._gap, _SELDOM) if is_same else _EVERY
        self._next = self.arrivals + self._gap

    def _models_of(self, recent: Codes, came: Codes) -> list[ValueModel]:
        """Return how each side goes on after these arrivals, when so many rows of it have come."""
        models: list[ValueModel] = []
        for s, rows in enumerate(came.tolist()):
            values = np.ascontiguousarray(recent[recent[:, 0] == s, 1])
            if self._is_numeric and len(values):
                models.append(choose_model(values, rows - len(values), self._period, self._named))
            else:
                models.append(Counted(rows))
        return models

    def _best_alpha(self, recent: Codes, models: list[ValueModel]) -> float:
        """Return the time constant with which a join of the recent arrivals finds most pairs."""
        found = [self._found(recent, models, alpha, self.capacity)[0] for alpha in self._alphas]
        if found[self._alphas.index(self.alpha)] >= _GAIN * max(found):
            return self.alpha
        return self._alphas[max(range(len(found)), key=lambda i: (found[i], i))]

    def _found(self, recent: Codes, models: list[ValueModel], alpha: float, capacity: int) -> tuple[int, int]:
        """Return the pairs that a join finds in the second half of some arrivals, and of how many. Where it keeps many
        rows, it is as much smaller as some of the values are fewer."""
        bits = max(int(np.ceil(np.log2(capacity / _TRIED))), 0)
        if bits:
            recent = recent[bk.sampled(np.ascontiguousarray(recent[:, 1]), bits, np.empty(len(recent), np.bool_))]
        windows = tuple(None if w is None else max(w >> bits, 1) for w in self.windows)
        return self._pairs(recent, models, alpha, max(capacity >> bits, 1), windows), len(recent)

    def _pairs(
        self, recent: Codes, models: list[ValueModel], alpha: float, capacity: int, windows: tuple[int | None, ...]
    ) -> int:
        """Return how many pairs a join that keeps `capacity` rows finds in the second half of some arrivals."""
        kept = KeptRows(capacity, (windows[0], windows[1]))
        values, ids = np.unique(recent[:, 1], return_inverse=True)
        kept.know_keys(values)
        order = np.empty(len(recent), np.int64)
        for s in (0, 1):
            mine = np.flatnonzero(recent[:, 0] == s)
            kept.append(s, ids[mine].astype(np.int64))
            order[mine] = 2 * np.arange(len(mine)) + s
            first = int(self._came[s]) - len(mine)
            kept.sides[s].meta[bk.CAME] = first
        for s, scoring in enumerate(self._scorings(models, alpha, (windows[0], windows[1]))):
            kept.score_by(s, scoring)
        found, state, half = 0, np.array([0, bk.NOT_BEGUN], np.int64), len(order) // 2
        pairs = np.empty((2, 1 << 14), np.int64)
        for end in (half, len(order)):
            found = 0
            while state[0] < end:
                found += kept.run(order, end, state, pairs[0], pairs[1])
        return found

    # -- epochs ------------------------------------------------------------------------------------------------------

    def commit(self) -> None:
        if self._end > 2 * _REMEMBERED:
            self._recent = with_room(self._recent[self._end - _REMEMBERED : self._end], 3 * _REMEMBERED)
            self._end = _REMEMBERED
        self._begin()

    def undo(self) -> None:
        self._end, came, self._next, self._gap, fitted = self._before
        self._basis, self._fitted, self.alpha, models = fitted
        self._came, self.models = came.copy(), list(models)

    def image(self) -> Image:
        return {
            "recent": self._recent[max(self._end - _REMEMBERED, 0) : self._end].copy(),
            "basis": self._basis,
            "tuned": np.array([self._next, self._gap, *self._came.tolist(), *self._fitted.tolist()], np.int64),
            "alpha": np.array([self.alpha]).view(np.int64),
        }

    def restore(self, image: Image) -> None:
        """Take an image; raise StaleImage if it is none."""
        expect(
            image,
            recent=(len(image.get("recent", ())), 2),
            basis=(len(image.get("basis", ())), 2),
            tuned=(6,),
            alpha=(1,),
        )
        self.clear()
        recent, self._basis = image["recent"], image["basis"].copy()
        self._recent, self._end = with_room(recent, max(2 * len(recent), 2 * _REMEMBERED)), len(recent)
        self._next, self._gap = image["tuned"][:2].tolist()
        self._came, self._fitted = image["tuned"][2:4].copy(), image["tuned"][4:].copy()
        self.alpha = float(image["alpha"].view(np.float64)[0])
        if len(self._basis):
            self.models = self._models_of(self._basis, self._fitted)
        self._begin()

    @property
    def nbytes(self) -> int:
        return self._recent.nbytes

    def describe(self) -> str:
        left, right = (model.describe() for model in self.models)
        return f"left: {left}; right: {right}; time constant {self.alpha:.3g} arrivals"
