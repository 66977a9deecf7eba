"""Confidence intervals of a share from independent trials."""

from __future__ import annotations

import math


def clopper_pearson(successes: int, trials: int, confidence: float) -> tuple[float, float]:
    """Return the interval that covers the true share with at least this confidence, whatever it is.

    >>> clopper_pearson(0, 10, 0.95)[0]
    0.0
    >>> round(clopper_pearson(0, 10, 0.95)[1], 4)
    0.3085
    """
    tail = (1 - confidence) / 2
    low = 0.0 if successes == 0 else _quantile(tail, successes, trials - successes + 1)
    high = 1.0 if successes == trials else _quantile(1 - tail, successes + 1, trials - successes)
    return low, high


def _quantile(share: float, a: float, b: float) -> float:
    """Return where the Beta(a, b) distribution function is `share`, by halving."""
    low, high = 0.0, 1.0
    for _ in range(60):
        middle = (low + high) / 2
        if _beta(middle, a, b) < share:
            low = middle
        else:
            high = middle
    return (low + high) / 2


def _beta(x: float, a: float, b: float) -> float:
    """Compute the distribution function of Beta(a, b) by its continued fraction (Lentz's method)."""
    if x <= 0 or x >= 1:
        return float(x >= 1)
    if x > (a + 1) / (a + b + 2):
        return 1 - _beta(1 - x, b, a)
    tiny = 1e-300
    front = math.exp(math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log1p(-x)) / a
    c, d, found = 1.0, 0.0, 1.0
    for i in range(10_000):
        m = i // 2
        if i == 0:
            term = 1.0
        elif i % 2 == 0:
            term = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
        else:
            term = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
        d = 1 / (1 + term * d or tiny)
        c = 1 + term / c or tiny
        found *= c * d
        if abs(1 - c * d) < 1e-14:
            break
    return front * (found - 1)


def normal_quantile(confidence: float) -> float:
    """Return how many standard deviations to either side cover this share.

    >>> round(normal_quantile(0.95), 3)
    1.96
    """
    low, high = 0.0, 40.0
    for _ in range(80):
        middle = (low + high) / 2
        low, high = (middle, high) if math.erf(middle / math.sqrt(2)) < confidence else (low, middle)
    return low
