"""Which keys a cache keeps: by brute force, however references are cut, and with what can be foretold."""

from __future__ import annotations

from collections import Counter, OrderedDict

import numpy as np
import pytest

from tests.depth import seeds
from whence.engine.streams.windows.cached_keys import CachedKeys
from whence.plan.streams.model import MemoryLimit


def cache(capacity: int, keep: str, **more: object) -> CachedKeys:
    return CachedKeys(capacity, MemoryLimit(capacity, keep=keep, **more), is_numeric=True)  # type: ignore[arg-type]


def hits_of_lru(values: list[int], capacity: int) -> list[bool]:
    kept: OrderedDict[int, None] = OrderedDict()
    found = []
    for value in values:
        found.append(value in kept)
        kept[value] = None
        kept.move_to_end(value)
        if len(kept) > capacity:
            kept.popitem(last=False)
    return found


def hits_of_lfu(values: list[int], capacity: int) -> list[bool]:
    kept: dict[int, int] = {}  # by when they came
    counts: Counter[int] = Counter()
    found = []
    for t, value in enumerate(values):
        found.append(value in kept)
        counts[value] += 1
        kept.setdefault(value, t)
        if len(kept) > capacity:
            del kept[min(kept, key=lambda v: (counts[v], kept[v]))]
    return found


@pytest.mark.parametrize("seed", seeds(8))
@pytest.mark.parametrize(("keep", "brute"), [("lru", hits_of_lru), ("lfu", hits_of_lfu)])
def test_hits_are_those_of_brute_force(keep, brute, seed):
    rng = np.random.default_rng(seed)
    values = rng.zipf(1.4, 400) % 50 * 3
    capacity = int(rng.integers(1, 20))
    found, _ = cache(capacity, keep).refer(values.astype(np.int64))
    assert found.tolist() == brute(values.tolist(), capacity)


@pytest.mark.parametrize("keep", ["heeb", "lru", "random"])
def test_what_is_kept_does_not_depend_on_how_references_are_cut(keep):
    rng = np.random.default_rng(3)
    values = (np.cumsum(rng.integers(-2, 3, 700)) + rng.integers(0, 3, 700)).astype(np.int64)
    whole, cut = cache(7, keep), cache(7, keep)
    found, _ = whole.refer(values)
    parts, kept = [], set()
    for part in np.array_split(values, 150):
        hits, evicted = cut.refer(part)
        parts.append(hits)
        kept = (kept | set(part.tolist())) - set(evicted.tolist())
        assert len(kept) == len(cut) <= 7
    assert (np.concatenate(parts) == found).all()


def test_what_is_known_of_keys_stays_small():
    seen = cache(10, "lru")
    for start in range(0, 400_000, 4000):
        seen.refer(np.arange(start, start + 4000))
    assert len(seen) == 10
    assert seen.nbytes < 40_000_000


def test_walk_is_foretold_better_than_by_recency_or_frequency():
    rng = np.random.default_rng(1)
    values = np.cumsum(rng.integers(-3, 4, 2000)).astype(np.int64)
    hits = {keep: int(cache(8, keep).refer(values)[0].sum()) for keep in ("heeb", "lru", "lfu", "random")}
    assert hits["heeb"] > max(hits["lru"], hits["random"])
    assert hits["heeb"] > 3 * hits["lfu"]
