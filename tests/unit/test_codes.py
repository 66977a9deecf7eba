"""The dictionary among threads: one code a value, one value a code."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator

import numpy as np
import pytest

from whence.model.codes import Dictionary

THREADS, VALUES = 8, 4_000


@pytest.fixture
def impatient() -> Iterator[None]:
    """Threads that take turns as often as Python lets them."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


@pytest.mark.usefixtures("impatient")
def test_threads_that_intern_at_once_agree_on_codes() -> None:
    words = Dictionary()
    start = threading.Barrier(THREADS)
    found: list[dict[str, int]] = [{} for _ in range(THREADS)]

    def work(number: int) -> None:
        shared = [f"shared {i}" for i in range(VALUES)]
        own = [f"own {number} {i}" for i in range(VALUES)]
        start.wait()
        for value in (v for pair in zip(shared, own, strict=True) for v in pair):
            code = found[number][value] = words.intern(value)
            assert words.value(code) == value
        found[number] |= dict(zip(own, words.intern_all(own).tolist(), strict=True))
        words.order_of(np.array(list(found[number].values())))

    threads = [threading.Thread(target=work, args=(n,)) for n in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    codes = {value: code for part in found for value, code in part.items()}
    assert len(codes) == len(set(codes.values())) == len(words) == VALUES * (THREADS + 1)
    assert all(part.items() <= codes.items() for part in found)
    assert all(words.value(code) == value for value, code in codes.items())
    ordered = sorted(codes)
    assert (np.diff(words.order_of(np.array([codes[v] for v in ordered]))) > 0).all()
