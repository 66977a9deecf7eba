"""The worked examples once more, each in 2 or 5 partitions, with an embedded database beside them."""

from __future__ import annotations

import os
import zlib
from collections.abc import Iterator
from importlib import import_module

import pytest

from tests.oracle import on_partitions

EXAMPLES = ("access", "endings", "networks", "orders", "recursion", "regions", "trees")
EMBEDDED = {"test_a_counter_without_end_is_stopped_and_the_batch_undone"}  # partitions may name another input row
PICKED = 4  # one of so many; WHENCE_FUZZ=1 runs them all

for example in EXAMPLES:
    for name, test in vars(import_module(f"tests.worked.test_{example}")).items():
        if name.startswith("test_") and name not in EMBEDDED:
            globals()[f"test_{example}_{name.removeprefix('test_')}"] = test


@pytest.fixture(autouse=True)
def partitions(request: pytest.FixtureRequest) -> Iterator[None]:
    """Some number of them, always the same for a test."""
    dice = zlib.crc32(request.node.name.encode())
    if not os.environ.get("WHENCE_FUZZ") and dice % PICKED and "[" in request.node.name:
        pytest.skip("one of a few seeds and policies is enough")
    with on_partitions((2, 5)[dice // PICKED % 2]):
        yield
