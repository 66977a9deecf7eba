"""Assumed lifetimes of kept rows: the probability L(d) that a row is still there at the d-th arrival.

Laws: 0 ≤ L ≤ 1, and L never rises. Where the same L is assumed of all rows, a row whose benefit is at least another's
over every horizon has at least its score. A row of a sliding window has L = 0 once it has left the window.
"""

from __future__ import annotations

from typing import Literal

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Kind = Literal["fixed", "infinite", "inverse", "exponential"]

_NEGLIGIBLE = 1e-9  # of the weights: where an exponential is cut


def lifetime(kind: Kind, steps: int, parameter: float = 1.0, window: int | None = None) -> Floats:
    """Return L(1), …, L(steps). `parameter` is ΔT of `fixed` and α of `exponential`; `window` the steps that a row is
    still in its window.

    >>> lifetime("fixed", 4, 2).tolist(), lifetime("inverse", 4).tolist(), lifetime("infinite", 4, window=3).tolist()
    ([1.0, 1.0, 0.0, 0.0], [1.0, 0.5, 0.3333333333333333, 0.25], [1.0, 1.0, 1.0, 0.0])
    """
    step = np.arange(1, steps + 1, dtype=np.float64)
    match kind:
        case "fixed":
            weights = np.where(step <= parameter, 1.0, 0.0)
        case "infinite":
            weights = np.ones(steps)
        case "inverse":
            weights = 1 / step
        case "exponential":
            weights = np.exp(-step / parameter)
    return weights if window is None else np.where(step <= window, weights, 0.0)


def horizon(alpha: float) -> int:
    """Return the steps after which an exponential lifetime no longer counts."""
    return max(int(-alpha * np.log(_NEGLIGIBLE)), 1)


def alpha_of(mean: float) -> float:
    """Return the α with which rows are kept for `mean` steps on average: 1 / (1 − e^(−1/α)) = mean.

    >>> round(1 / float(1 - np.exp(-1 / alpha_of(12.5))), 9)
    12.5
    """
    return float(-1 / np.log1p(-1 / mean)) if mean > 1 else 1e-3
