"""How hard random tests look: few and fixed examples in the suite, many and new ones in `make test-deep`.

Every random test takes its number of examples or its seeds from here, so there is one switch, `WHENCE_DEEP=1`. In the
suite Hypothesis is derandomized: a failure is a change, not luck. The deep profile draws new examples on every run, and
prints how to repeat one that fails. `HYPOTHESIS_PROFILE=search` draws new ones in the suite's numbers.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TypeVar

import pytest
from hypothesis import settings

DEEP = bool(os.environ.get("WHENCE_DEEP"))
_TIMES = 5
_T = TypeVar("_T")

deep_only = pytest.mark.skipif(not DEEP, reason="make test-deep runs it")
"""Marks what takes long and seldom breaks alone: benchmarks whose parts other tests run."""

settings.register_profile("suite", derandomize=True, deadline=None)
settings.register_profile("search", deadline=None, print_blob=True)
settings.register_profile("deep", deadline=None, print_blob=True, max_examples=100 * _TIMES)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "deep" if DEEP else "suite"))


def examples(count: int) -> int:
    """Return how many examples Hypothesis draws where the suite draws `count`."""
    return count * _TIMES if DEEP else count


def some(values: Sequence[_T], count: int) -> Sequence[_T]:
    """Return the first `count` of the cases of a test in the suite, and all of them in the deep profile: for cases that
    take long and go the same way."""
    return values if DEEP else values[:count]


def seeds(count: int, first: int = 0) -> range:
    """Return the seeds of a random test that has `count` of them in the suite."""
    return range(first, first + examples(count))
