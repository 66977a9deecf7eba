"""Scores of kept rows as kernels take them: one form for every policy.

A row's score depends on its join value and on the model of the stream that it waits for: a table by distance from the
model's center (and by the newest value, where the next depends on it), or how often or when its value came. Scores are
whole numbers, so that ties are ties on every machine.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from whence.model.codes import Codes
from whence.plan.eviction.benefit import benefits
from whence.plan.eviction.lifetimes import Floats
from whence.plan.eviction.value_models import Counted, Independent, ValueModel

Kind = Literal["table", "count", "prob", "life", "random", "lru", "lfu"]
Center = Literal["nowhere", "line", "newest", "season"]
KINDS: tuple[Kind, ...] = ("table", "count", "prob", "life", "random", "lru", "lfu")
CENTERS: tuple[Center, ...] = ("nowhere", "line", "newest", "season")
BITS = 20  # of fractions
_UNIT = 1 << 30  # a benefit of one result
_MOST = 1 << 41


@dataclass(frozen=True)
class Scoring:
    """How rows that wait for a stream are scored.

    `low` and `state_low` are the distances from the center that the first column and the first row of the table stand
    for; `weights[d]` is what is left of the worth of a row that stays in its window for d more arrivals."""

    kind: Kind
    center: Center = "nowhere"
    start: float = 0.0
    slope: float = 0.0
    means: Codes = field(default_factory=lambda: np.zeros(1, np.int64))
    low: int = 0
    state_low: int = 0
    table: Codes = field(default_factory=lambda: np.zeros((1, 1), np.int64))
    weights: Codes = field(default_factory=lambda: np.full(1, 1 << BITS, np.int64))


def heeb(model: ValueModel, alpha: float, window: int | None = None, cached: bool = False) -> Scoring:
    """Return the scores by estimated expected benefit: lifetimes are exponential with α, and end with the window."""
    steps = np.array([np.inf]) if window is None else np.arange(window + 1, dtype=np.float64)
    if isinstance(model, Counted):
        return Scoring("count", weights=_fixed(_until(alpha, steps) / max(model.rows, 1)))
    weights = _fixed(_until(alpha, steps) / _until(alpha, np.array([np.inf])), 1 << BITS)
    low, benefit = benefits(model, alpha, cached)
    table = _fixed(benefit)
    if isinstance(model, Independent):
        return Scoring("table", "line", model.start, model.slope, low=low, table=table, weights=weights)
    if model.is_walk:
        return Scoring("table", "newest", low=low, table=table, weights=weights)
    means = np.rint(model.mean).astype(np.int64)
    return Scoring("table", "season", means=means, low=low, state_low=low, table=table, weights=weights)


def _until(alpha: float, steps: Floats) -> Floats:
    """Return the sum of an exponential lifetime over the first steps."""
    q = np.exp(-1 / alpha)
    return np.asarray(q * (1 - np.exp(-steps / alpha)) / (1 - q))


def _fixed(numbers: Floats, unit: int = _UNIT) -> Codes:
    return np.ascontiguousarray(np.minimum(np.rint(numbers * unit), _MOST), np.int64)
