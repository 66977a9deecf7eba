"""Threads for what takes longer than an event loop may wait: opening channels, reading states, explaining rows."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


class WorkerThreads:
    """A few threads, which an event loop gives work to."""

    def __init__(self, loop: asyncio.AbstractEventLoop, count: int, name: str) -> None:
        self._loop, self._pool = loop, ThreadPoolExecutor(count, name)

    def run(self, function: Callable[P, T], *args: P.args, **options: P.kwargs) -> asyncio.Future[T]:
        """Call a function in one of the threads."""
        return self._loop.run_in_executor(self._pool, partial(function, *args, **options))

    def close(self) -> None:
        """Take no more work; what waits is not begun."""
        self._pool.shutdown(wait=False, cancel_futures=True)
