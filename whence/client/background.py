"""An event loop in a thread of its own, for those who want to wait without one."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from queue import SimpleQueue
from typing import Any, TypeVar

from whence.model.errors import WhenceError
from whence.model.progress import Progress

T = TypeVar("T")


class BackgroundLoop:
    """Runs coroutines in a background thread. Any thread may wait for them; Ctrl-C cancels what the main one waits
    for."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="whence client", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_forever()
        left = asyncio.all_tasks(self._loop)
        for task in left:
            task.cancel()
        self._loop.run_until_complete(asyncio.gather(*left, return_exceptions=True))
        self._loop.close()

    def submit(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        """Have something done; the future has what comes of it."""
        if threading.current_thread() is self._thread:
            work.close()
            raise WhenceError("a blocking client cannot be called from its own callbacks: they run in its event loop")
        if self._loop.is_closed() or not self._thread.is_alive():
            work.close()
            raise WhenceError("this client is closed")
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Wait for something; whatever interrupts the waiting cancels it."""
        future = self.submit(work)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def run_reporting(self, work: Callable[[Progress | None], Coroutine[Any, Any, T]], progress: Progress | None) -> T:
        """Wait for something that reports its progress, which is called in this thread; what it raises cancels it."""
        if progress is None:
            return self.run(work(None))
        news: SimpleQueue[tuple[str, int, int] | None] = SimpleQueue()
        future = self.submit(work(lambda what, done, total: news.put((what, done, total))))
        future.add_done_callback(lambda _: news.put(None))
        try:
            while (reached := news.get()) is not None:
                progress(*reached)
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def call(self, function: Callable[[], None]) -> None:
        """Call a function in the loop, if that still runs."""
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(function)

    def stop(self, last: Callable[[], Coroutine[Any, Any, None]], seconds: float) -> None:
        """Do one more thing, for so long at most, and end the thread."""
        if not self._thread.is_alive() or threading.current_thread() is self._thread:
            return
        with contextlib.suppress(Exception):
            asyncio.run_coroutine_threadsafe(last(), self._loop).result(seconds)
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(seconds)
