"""What tests of all rooms share.

`tests/depth.py` sets how hard random tests look. Tests that ask for `spark` get one session for the whole run: they
stand in one xdist group, so that one Java is started.
"""

from __future__ import annotations

import gc
import logging
import os
from collections.abc import Iterator
from typing import Any

import pytest

import tests.depth  # noqa: F401  # loads the profile of Hypothesis

# A child that a test forks leaves the garbage of earlier tests alone: some of it is native, with threads that the child
# does not have, and finalizing it there ends in a segmentation fault.
os.register_at_fork(after_in_child=gc.freeze)


@pytest.hookimpl(tryfirst=True)  # before xdist reads the groups
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "spark" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.xdist_group("spark"))


@pytest.fixture(autouse=True)
def logs_as_before() -> Iterator[None]:
    """Let no test leave the logger otherwise than it was: `whence serve` in this process sets its level."""
    logger = logging.getLogger("whence")
    level, handlers = logger.level, list(logger.handlers)
    yield
    logger.setLevel(level)
    logger.handlers[:] = handlers


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A session in `local[2,4]` whose files are all in a temporary folder."""
    from tests.spark.places import places
    from whence.runtime.spark.session.session import session

    folder = tmp_path_factory.mktemp("spark")
    running = session("local[2,4]", app="tests", conf=places(folder))
    yield running
    running.stop()
