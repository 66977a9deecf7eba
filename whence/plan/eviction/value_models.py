"""Models of the values of a stream: what its next rows will have in the join column, given what has come.

| model | the next value is |
|---|---|
| `Counted` | any value, as often as it came so far: stationary; also of texts, and keys of several columns |
| `Independent` | on a line, plus noise: X(t) = start + slope·t + noise |
| `Chain` | near the last one: X(t) = mean(t) + Y(t), Y(t) = φ·Y(t−1) + noise |

A `Chain` is AR(1), around one mean or around one per phase of a period (a season). With φ = 1 it is a random walk,
whose drift is the mean of its noise.

Values are whole numbers: codes of integers, dates, timestamps and scaled decimals. t counts the rows of the stream.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from whence.model.codes import Codes
from whence.plan.eviction.lifetimes import Floats

_FEWEST = 16  # values that a model is fitted to, and tried on
_WIDEST = 1 << 24  # differences of values beyond which only counting is tried
_NEAR = 2  # how far beyond the values that came others may come
_UNLIKELY = 1e-6  # the probability of what a model rules out, when models are compared
_SMOOTHING = 20  # the part of a period over which the mean of a phase is taken


@dataclass(frozen=True)
class Noise:
    """A distribution of the whole numbers `low`, `low` + 1, …"""

    low: int
    p: Floats

    @property
    def high(self) -> int:
        return self.low + len(self.p) - 1

    @property
    def mean(self) -> float:
        return float(np.arange(self.low, self.high + 1) @ self.p)

    @property
    def deviation(self) -> float:
        values = np.arange(self.low, self.high + 1)
        return float(np.sqrt(max(float(self.p @ (values - self.mean) ** 2), 1e-12)))

    def at(self, values: Codes) -> Floats:
        """Return the probabilities of values.

        >>> Noise.uniform(1).at(np.array([-2, -1, 0, 1, 2])).round(3).tolist()
        [0.0, 0.333, 0.333, 0.333, 0.0]
        """
        index = np.asarray(values) - self.low
        inside = (index >= 0) & (index < len(self.p))
        return np.where(inside, self.p[np.clip(index, 0, len(self.p) - 1)], 0.0)

    @classmethod
    def uniform(cls, bound: int) -> Noise:
        """Return the noise in which every number from −bound to bound is as likely."""
        return cls(-bound, np.full(2 * bound + 1, 1 / (2 * bound + 1)))

    @classmethod
    def normal(cls, deviation: float, bound: int | None = None, mean: float = 0.0) -> Noise:
        """Return normal noise in whole numbers, cut off at `bound` from its mean (or at five deviations)."""
        reach = bound if bound is not None else max(int(np.ceil(5 * deviation)), 1)
        values = np.arange(round(mean) - reach, round(mean) + reach + 1)
        p = np.exp(-(((values - mean) / deviation) ** 2) / 2)
        return cls(int(values[0]), p / p.sum())

    @classmethod
    def observed(cls, values: Codes) -> Noise:
        """Return the distribution of the values that came; each value near them came half a time more.

        >>> Noise.observed(np.array([3, 5, 3, 4]))
        Noise(low=1, p=array([0.06666667, 0.06666667, 0.33333333, 0.2       , 0.2       ,
               0.06666667, 0.06666667]))
        """
        low = int(values.min()) - _NEAR
        counts = np.bincount(values - low, minlength=int(values.max()) - low + 1 + _NEAR) + 0.5
        return cls(low, counts / counts.sum())


@dataclass(frozen=True)
class Counted:
    """Any value, as often as it came among `rows` rows."""

    rows: int

    def describe(self) -> str:
        return "stationary"

    def likelihood(self, values: Codes, first: int, offset: int = 0) -> Floats:
        """Return the probability of each value from number `first` on, given all before it; a value that never came
        has a share of its own, as in Good and Turing's estimate."""
        found = np.empty(len(values) - first)
        seen: dict[int, int] = {}
        once = 0  # values that came once
        for t, value in enumerate(values.tolist()):
            count = seen.get(value, 0)
            if t >= first:
                found[t - first] = max((count or max(once, 1) / max(t, 1)) / (t + 1), _UNLIKELY)
            seen[value] = count + 1
            once += (count == 0) - (count == 1)
        return found


@dataclass(frozen=True)
class Independent:
    """X(t) = start + slope·t + noise, whatever came before."""

    start: float
    slope: float
    noise: Noise

    def describe(self) -> str:
        return f"trend of {self.slope:.3g} per row"

    def center(self, t: Codes) -> Codes:
        return np.asarray(np.floor(self.start + self.slope * t + 0.5), np.int64)

    def likelihood(self, values: Codes, first: int, offset: int = 0) -> Floats:
        """Return the probability of each value from number `first` on; the first of all has the number `offset`."""
        t = np.arange(first, len(values))
        return np.maximum(self.noise.at(values[first:] - self.center(t + offset)), _UNLIKELY)


@dataclass(frozen=True)
class Chain:
    """X(t) = mean(t) + Y(t), Y(t) = φ·Y(t−1) + noise; `mean` has a value per phase, one if there is no season."""

    phi: float
    noise: Noise
    mean: Floats = field(default_factory=lambda: np.zeros(1))

    @property
    def is_walk(self) -> bool:
        return self.phi == 1

    def describe(self) -> str:
        if self.is_walk:
            return f"random walk, drift {self.noise.mean:.3g}"
        season = f" around a season of {len(self.mean)}" if len(self.mean) > 1 else ""
        return f"AR(1) of {self.phi:.2f}{season}"

    def likelihood(self, values: Codes, first: int, offset: int = 0) -> Floats:
        """Return the probability of each value from number `first` ≥ 1 on, given the one before it."""
        t = np.arange(len(values)) + offset
        y = values - self.mean[t % len(self.mean)]
        steps = np.rint(y[first:] - self.phi * y[first - 1 : -1]).astype(np.int64)
        return np.maximum(self.noise.at(steps), _UNLIKELY)


ValueModel = Counted | Independent | Chain


# -- fitting ---------------------------------------------------------------------------------------------------------


def fit_line(values: Codes, offset: int = 0) -> Independent:
    """Return the linear trend of values by least squares, with the noise observed around it; the first value has the
    number `offset`.

    >>> model = fit_line(np.array([5, 7, 9, 11])); round(model.slope, 6), round(model.start, 6)
    (2.0, 5.0)
    """
    t = np.arange(len(values)) + offset
    slope = float(np.polyfit(t - t[0], values, 1)[0]) if len(values) > 1 else 0.0
    start = float((values - slope * t).mean())
    line = Independent(start, slope, Noise.uniform(0))
    return Independent(start, slope, Noise.observed(values - line.center(t)))


def fit_walk(values: Codes) -> Chain:
    """Return the random walk with the steps that were observed."""
    return Chain(1.0, Noise.observed(np.diff(values)))


def fit_chain(values: Codes, period: int = 1, offset: int = 0) -> Chain:
    """Return AR(1) around the mean of each phase, by least squares.

    >>> rng = np.random.default_rng(1); x = [0.0]
    >>> for _ in range(4000): x.append(0.7 * x[-1] + rng.normal(0, 10))
    >>> model = fit_chain(np.rint(x).astype(np.int64)); round(model.phi, 1), round(model.noise.deviation)
    (0.7, 10)
    """
    mean = _phase_means(values, period, offset)
    y = values - mean[(np.arange(len(values)) + offset) % period]
    below = float(y[:-1] @ y[:-1])
    phi = float(np.clip((y[:-1] @ y[1:]) / below, -0.99, 0.99)) if below > 0 else 0.0
    rest = y[1:] - phi * y[:-1]
    return Chain(phi, Noise.normal(max(float(rest.std()), 0.3)), mean)


def _phase_means(values: Codes, period: int, offset: int) -> Floats:
    """Return the mean value of each phase, over the phases near it."""
    if period == 1:
        return np.array([values.mean()])
    phase = (np.arange(len(values)) + offset) % period
    total = np.bincount(phase, values, period)
    count = np.bincount(phase, minlength=period).astype(np.float64)
    reach = max(period // _SMOOTHING, 1)
    window = np.ones(2 * reach + 1)
    sums, counts = (np.convolve(np.concatenate((a[-reach:], a, a[:reach])), window, "valid") for a in (total, count))
    return np.asarray(np.where(counts > 0, sums / np.maximum(counts, 1), values.mean()))


def choose_model(values: Codes, offset: int = 0, period: int | None = None, name: str = "auto") -> ValueModel:
    """Return the model of this name, fitted to values of which the first has the number `offset`; or, if it is 'auto',
    the one that, fitted to the first half of them, explains the second half best.

    >>> rng = np.random.default_rng(7); t = np.arange(400)
    >>> noise = rng.integers(-5, 6, 400)
    >>> choose_model(t + noise).slope.__round__(1), choose_model(np.cumsum(noise)).is_walk
    (1.0, True)
    >>> choose_model(rng.integers(0, 20, 400))
    Counted(rows=400)
    """
    rows, half = offset + len(values), len(values) // 2
    if half < _FEWEST or name == "stationary" or int(values.max()) - int(values.min()) > _WIDEST:
        return Counted(rows)
    fits: dict[str, Callable[[Codes], ValueModel]] = {
        "trend": lambda part: fit_line(part, offset),
        "walk": lambda part: fit_walk(part),
        "ar1": lambda part: fit_chain(part, 1, offset),
        "seasonal": lambda part: fit_chain(part, period or 1, offset),
    }
    if name != "auto":
        return fits[name](values)
    if period is None or half < period:
        del fits["seasonal"]
    found = {kind: fit(values[:half]).likelihood(values, half, offset) for kind, fit in fits.items()}
    found["stationary"] = Counted(rows).likelihood(values, half, offset)
    best = max(found, key=lambda kind: float(np.log(found[kind]).mean()))
    return Counted(rows) if best == "stationary" else fits[best](values)
