"""Caches in bounded memory: Figures 3.14, 3.16 and 3.17 of paper 002, the daily temperatures of Melbourne.

A relation has a row per tenth of a degree, and is referred to by the temperature of each day. The paper's data are
3,650 days of 1981 to 1990; with `--temperatures` they are read from a file of days and degrees, without they are
generated: AR(1) around a season, with the paper's numbers. HEEB learns its model and time constant while it runs, and
is told the length of the season: AR(1), AR(1) around the mean of the season, and others are compared. LRU, LFU and RAND
are Whence's own, one reference after the other; LFD knows the future. All begin with an empty cache.
"""

from __future__ import annotations

import csv
from collections.abc import Iterable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from benchmarks.bounds_measured import Measured
from benchmarks.report import Check
from whence.engine.streams.windows.cached_keys import CachedKeys
from whence.plan.eviction.benefit import benefits
from whence.plan.eviction.value_models import Chain, Noise
from whence.plan.streams.model import MemoryLimit

Numbers = NDArray[np.int64]
SEASON = 365
MEMORIES = (10, 25, 50, 75, 100, 150, 200, 250, 300)
LEARNT_UP_TO = 250  # of memories that HEEB is held to
PHI, DEVIATION = 0.72, 42.2  # the paper's AR(1), in tenths of a degree
RATIO, RATIO_AT_100 = 0.97, 1.15


def temperatures(path: Path | None, days: int = 10 * SEASON) -> Numbers:
    """Return daily maximum temperatures in tenths of a degree, from a file or generated."""
    if path is not None:
        with open(path, newline="", encoding="utf-8") as file:
            rows = [row for row in csv.reader(file) if len(row) > 1]
        return np.array([round(10 * float(value)) for _, value in rows[1:]], np.int64)
    rng, day = np.random.default_rng(1981), np.arange(days)
    around = np.zeros(days)
    for i in range(1, days):
        around[i] = 0.5 * around[i - 1] + rng.normal(0, DEVIATION)
    return np.rint(200 + 55 * np.cos(2 * np.pi * day / SEASON) + around).astype(np.int64)


def furthest(values: Iterable[int], memory: int) -> int:
    """Return the hits of LFD, which lets go of the key whose next reference is furthest away: the most there can be.

    >>> furthest([1, 2, 3, 1, 2, 3], 2)
    2
    """
    given = list(values)
    following, after = [len(given)] * len(given), dict[int, int]()
    for i in range(len(given) - 1, -1, -1):
        following[i] = after.get(given[i], len(given))
        after[given[i]] = i
    kept: dict[int, int] = {}  # by their next reference
    hits = 0
    for value, later in zip(given, following, strict=True):
        hits += value in kept
        kept[value] = later
        if len(kept) > memory:
            del kept[max(kept, key=kept.__getitem__)]
    return hits


def hits_of(values: Numbers, memory: int, limit: MemoryLimit) -> tuple[int, str]:
    """Return the hits of a cache, and what it says of itself at the end."""
    cache = CachedKeys(memory, limit, is_numeric=True)
    found, _ = cache.refer(values)
    return int(found.sum()), cache.describe()


def policies(memory: int) -> dict[str, MemoryLimit]:
    """Return what is compared."""
    return {
        "HEEB": MemoryLimit(memory, keep="heeb", period=SEASON),
        "HEEB without a season": MemoryLimit(memory, keep="heeb"),
        "HEEB as printed": MemoryLimit(memory, keep="heeb", model="ar1", lifetime=float(memory)),
        "LRU": MemoryLimit(memory, keep="lru"),
        "LFU": MemoryLimit(memory, keep="lfu"),
        "RAND": MemoryLimit(memory, keep="random"),
    }


def compare_caches(
    values: Numbers, memories: Iterable[int]
) -> tuple[list[str], list[Check], dict[str, dict[str, int]]]:
    """Run every policy on some memories (Figure 3.14)."""
    lines, checks, figures = [f"Hits of {len(values):,} references"], list[Check](), dict[str, dict[str, int]]()
    for memory in memories:
        found = {"LFD": furthest(values.tolist(), memory)}
        said = ""
        for name, limit in policies(memory).items():
            found[name], text = hits_of(values, memory, limit)
            said = text.partition(", ")[2] if name == "HEEB" else said
        lines.append(f"{memory} rows: " + ", ".join(f"{name} {hits:,}" for name, hits in found.items()) + f" ({said})")
        figures[str(memory)] = found
        if memory <= LEARNT_UP_TO:
            for other in ("LRU", "LFU"):
                checks.append(Check(f"{memory} rows: HEEB by {other}", found["HEEB"] / max(found[other], 1), RATIO))
        if memory == 100:
            checks.append(Check("100 rows: HEEB by LRU", found["HEEB"] / max(found["LRU"], 1), RATIO_AT_100))
    return lines, checks, figures


def surfaces() -> list[str]:
    """Return the benefit of temperatures by today's (Figure 3.16, α = 100), and how far a bicubic surface through 25
    control points is off (Figure 3.17); Whence has the table itself."""
    from scipy.interpolate import RectBivariateSpline

    low, table = benefits(Chain(PHI, Noise.normal(DEVIATION)), 100.0, cached=True)
    at = np.linspace(0, len(table) - 1, 5).astype(int)
    surface = RectBivariateSpline(at, at, table[np.ix_(at, at)], kx=3, ky=3)
    every = np.arange(len(table))
    off = np.abs(surface(every, every) - table)
    lines = [
        "Expected benefit of a row by its distance from the mean (columns), by today's: " + str((at + low).tolist())
    ]
    lines += [f"today {x + low}: " + " ".join(f"{table[x, v]:.3f}" for v in at) for x in at]
    return [*lines, f"bicubic through 25 points: off by {off.mean():.4f} on average, {off.max():.3f} at most"]


def measure_caches(path: Path | None, quick: bool) -> Measured:
    """Return everything that is run of caches."""
    values = temperatures(path, 800 if quick else 10 * SEASON)
    lines, checks, figures = compare_caches(values, (10, 100) if quick else MEMORIES)
    source = "as in the file" if path is not None else "generated: --temperatures names a file of the real ones"
    return Measured(
        "caches", [f"Temperatures, {source}", *lines, *surfaces()], checks if path is not None else [], figures
    )
