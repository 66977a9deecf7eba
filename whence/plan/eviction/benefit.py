"""Expected benefit of a kept row: how many results it will make, weighed by how likely it is still kept.

H(v) = Σ P(X(d) = v)·L(d) over the arrivals d = 1, 2, … that are still to come (HEEB of paper 002, section 3.4). Of a
cached row only the first arrival counts: with exponential lifetimes the generating function of first passages is
F(x, v) = S(x, v) / (1 + S(v, v)), where S is that of all visits.

Tables are by distance from the model's center; far from it the benefit is 0.
"""

from __future__ import annotations

import numpy as np

from whence.plan.eviction.lifetimes import Floats, horizon, lifetime
from whence.plan.eviction.value_models import Chain, Independent, Noise

_WIDEST = 1 << 12  # how far from the center values are looked at
_LONGEST = 1 << 20  # steps that are looked ahead
_STATES = 800  # values of a chain
_REACH = 4.5  # deviations of a chain that are looked at


def expected_benefit(probabilities: Floats, lifetimes: Floats, cached: bool = False) -> Floats:
    """Return the benefit of each value, given its probability at each step (rows are steps), if steps are independent.

    The example of section 3.6: three rows that stay in their windows for 1, 50 and 51 steps.

    >>> from whence.plan.eviction.lifetimes import lifetime
    >>> rows = [(0.50, 1), (0.49, 50), (0.01, 51)]
    >>> [round(float(expected_benefit(np.full((60, 1), p), lifetime("exponential", 60, 10, w))[0]), 3) for p, w in rows]
    [0.452, 4.628, 0.095]
    """
    if cached:
        first = probabilities * np.cumprod(np.vstack((np.ones_like(probabilities[:1]), 1 - probabilities[:-1])), axis=0)
        return np.asarray(first.T @ lifetimes)
    return np.asarray(probabilities.T @ lifetimes)


def benefits(model: Independent | Chain, alpha: float, cached: bool = False) -> tuple[int, Floats]:
    """Return a table of benefits under exponential lifetimes, and the distance from the center of its first column. It
    has a row per newest value, from the same distance on, if the next value depends on it; else one."""
    if isinstance(model, Independent):
        return _on_a_line(model, lifetime("exponential", min(horizon(alpha), _LONGEST), alpha), cached)
    if model.is_walk:
        low, visits = _of_a_walk(model.noise, float(np.exp(-1 / alpha)))
        return low, visits / (1 + visits[0, -low]) if cached else visits
    return _of_a_chain(model, float(np.exp(-1 / alpha)), cached)


def _on_a_line(model: Independent, lifetimes: Floats, cached: bool) -> tuple[int, Floats]:
    """Return the benefits around a line; the first step is at the center."""
    noise = model.noise
    moved = np.floor(model.slope * np.arange(len(lifetimes)) + 0.5).astype(np.int64)
    near = np.abs(moved) <= _WIDEST
    moved, lifetimes = moved[near], lifetimes[near]
    if cached:
        low, high = noise.low + int(moved.min()), noise.high + int(moved.max())
        values = np.arange(low, high + 1)
        return low, expected_benefit(noise.at(values[None, :] - moved[:, None]), lifetimes, True)[None, :]
    first = int(moved.min())
    return noise.low + first, np.convolve(noise.p, np.bincount(moved - first, lifetimes))[None, :]


def _of_a_walk(noise: Noise, q: float) -> tuple[int, Floats]:
    """Return the benefits around the newest value of a random walk: the sum of its powers, weighed by q, q², …, by
    way of its spectrum. The walk is on a circle, so wide that what comes round hardly matters."""
    size = 4 * _WIDEST
    circle = np.bincount(np.arange(noise.low, noise.high + 1) % size, noise.p, size)
    spectrum = q * np.fft.rfft(circle)
    visits = np.maximum(np.fft.irfft(spectrum / (1 - spectrum), size), 0)
    reach = _WIDEST // 2
    return -reach, np.concatenate((visits[-reach:], visits[: reach + 1]))[None, :]


def _of_a_chain(model: Chain, q: float, cached: bool) -> tuple[int, Floats]:
    """Return the benefits around a chain's mean, for each newest value; lifetimes are q, q², …"""
    spread = model.noise.deviation / np.sqrt(max(1 - model.phi**2, 1 / _STATES))
    reach = min(max(int(np.ceil(_REACH * spread)), 1), _STATES // 2)
    values = np.arange(-reach, reach + 1)
    next_of = np.rint(model.phi * values).astype(np.int64)
    step = q * model.noise.at(values[None, :] - next_of[:, None])
    visits = np.linalg.solve(np.eye(len(values)) - step, step)
    if cached:
        visits = visits / (1 + np.diag(visits))[None, :]
    return -reach, np.asarray(visits, np.float64)
