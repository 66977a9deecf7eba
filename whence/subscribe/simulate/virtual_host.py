"""A host of brokers in virtual time: an event loop and workers whose every step is an event of the simulation.

The law: nothing runs but by `VirtualTime`, one thing at a time. A broker that has crashed runs no more, and one that is
paused goes on where it was.

What would be other threads are events, too, so a thread that waits lets time pass from inside (`VirtualHost.wait`). It
may hold locks that others would wait for, and a lock that a thread has is none to itself: so work for threads that is
new waits until it goes on, but for the writer and the sync, which are what it waits for.
"""

from __future__ import annotations

import asyncio
import random
import threading
from asyncio import events
from collections import deque
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from contextvars import Context
from typing import Any, TypeVar

from whence.runtime.sources.connection import ServerAddress
from whence.runtime.sources.host import Connection, Step
from whence.subscribe.simulate.network import VirtualTime

T = TypeVar("T")


class VirtualLoop(asyncio.AbstractEventLoop):
    """As much of an event loop as a broker uses."""

    def __init__(self, time: VirtualTime) -> None:
        self._time, self.is_over = time, False
        self.failures: list[BaseException] = []
        self.waiting = 0  # threads that wait for something
        self._work: deque[Callable[[], None]] = deque()  # for threads, in its order
        self._paused: list[asyncio.Handle] | None = None

    def time(self) -> float:
        return self._time.now

    def get_debug(self) -> bool:
        return False

    def is_running(self) -> bool:
        return not self.is_over

    def is_closed(self) -> bool:
        return self.is_over

    def create_future(self) -> asyncio.Future[Any]:
        return asyncio.Future(loop=self)

    def create_task(self, coro: Any, **options: Any) -> asyncio.Task[Any]:
        return asyncio.Task(coro, loop=self, **options)

    def call_soon(self, callback: Callable[..., object], *args: Any, context: Context | None = None) -> asyncio.Handle:  # type: ignore[override]
        handle = asyncio.Handle(callback, args, self, context)
        self._plan(handle, self._time.now)
        return handle

    def call_soon_threadsafe(  # type: ignore[override]
        self, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.Handle:
        return self.call_soon(callback, *args, context=context)

    def call_later(  # type: ignore[override]
        self, delay: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        return self.call_at(self._time.now + delay, callback, *args, context=context)

    def call_at(  # type: ignore[override]
        self, when: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        handle = asyncio.TimerHandle(when, callback, args, self, context)
        self._plan(handle, when)
        return handle

    def _plan(self, handle: asyncio.Handle, when: float) -> None:
        self._time.at(when, lambda: self._call(handle))

    def _call(self, handle: asyncio.Handle) -> None:
        if self.is_over or handle.cancelled():
            return
        if self._paused is not None:
            self._paused.append(handle)
            return
        before = events._get_running_loop()
        events._set_running_loop(self)
        try:
            handle._run()
        finally:
            events._set_running_loop(before)
        if self.failures:
            raise self.failures.pop()

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        """A handle that is cancelled is passed over when its time comes."""

    def run_in_executor(self, executor: Any, func: Callable[..., T], *args: Any) -> asyncio.Future[T]:  # type: ignore[override]
        found = self.create_future()

        def work() -> None:
            try:
                result = func(*args)
            except BaseException as error:
                if not found.done():
                    found.set_exception(error)
            else:
                if not found.done():
                    found.set_result(result)

        self._work.append(work)
        self.call_soon(self._work_on)
        return found

    def _work_on(self) -> None:
        """Do what there is for threads, unless one waits that may hold locks."""
        while self._work and not self.waiting:
            self._work.popleft()()

    @contextmanager
    def thread_waits(self) -> Iterator[None]:
        """Let no other thread begin something while one waits."""
        before = events._get_running_loop()
        events._set_running_loop(None)
        self.waiting += 1
        try:
            yield
        finally:
            self.waiting -= 1
            events._set_running_loop(before)
            self.call_soon(self._work_on)

    @property
    def is_paused(self) -> bool:
        """Whether it does nothing for a while."""
        return self._paused is not None

    def pause(self) -> None:
        """Do nothing for a while."""
        if self._paused is None:
            self._paused = []

    def resume(self) -> None:
        """Go on with what was to be done."""
        handles, self._paused = self._paused or [], None
        for handle in handles:
            self._plan(handle, self._time.now)

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        error = context.get("exception")
        if error is not None and not isinstance(error, asyncio.CancelledError):
            self.failures.append(error)


def make_loop(time: VirtualTime) -> VirtualLoop:
    """Return a loop that has what brokers and servers use."""
    return VirtualLoop(time)  # type: ignore[abstract]  # not all of it


class VirtualWorker:
    """A worker whose steps are events."""

    def __init__(self, host: VirtualHost, name: str, step: Step, after: Callable[[], object]) -> None:
        self._host, self._step, self._after = host, step, after
        self._longest = 0.4 if name == "sync" else 0.02
        self._is_waited_for = name in ("sync", "writer")
        self._planned: float | None = None
        self._closed = False

    def wake(self) -> None:
        """Have the step called soon."""
        self._plan(self._host.now() + self._host.dice.random() * self._longest)

    def close(self, wait: bool = True) -> None:
        """Call it no more."""
        self._closed = True

    def _plan(self, when: float) -> None:
        if self._planned is None or when < self._planned:
            self._planned = when
            self._host.loop.call_at(when, self._run, when)

    def _run(self, when: float) -> None:
        if self._closed or self._planned != when:
            return
        self._planned = None
        if self._host.loop.waiting and not self._is_waited_for:
            self._plan(self._host.now() + 0.01)
            return
        due = self._step()
        self._after()
        if due is not None:
            self._plan(max(due, self._host.now() + 0.001))


class VirtualHost:
    """Does the work of a broker in virtual time."""

    def __init__(
        self,
        time: VirtualTime,
        dice: random.Random,
        connect: Callable[[VirtualLoop, ServerAddress, Callable[[Any], None]], Connection],
        after: Callable[[str], object],
        loop: VirtualLoop | None = None,
    ) -> None:
        """`after` is called after every step of a worker, with its name."""
        self._time, self.dice, self._connect, self._after = time, dice, connect, after
        self.loop: VirtualLoop = loop or make_loop(time)

    def now(self) -> float:
        """Return the virtual time."""
        return self._time.now

    def call(self, function: Callable[..., object], *args: Any) -> None:
        """Call a function in the loop, soon."""
        self.loop.call_soon(function, *args)

    def submit(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        """Run a coroutine, and let happen what happens until it is done."""
        found: Future[T] = Future()
        task = self.loop.create_task(work)

        def end(done: asyncio.Task[T]) -> None:
            if done.cancelled():
                found.cancel()
            elif (error := done.exception()) is not None:
                found.set_exception(error)
            else:
                found.set_result(done.result())

        task.add_done_callback(end)
        with self.loop.thread_waits():
            while not found.done() and not self.loop.is_over:
                self._time.run(self._time.now + 0.01)
        if not found.done():
            found.set_exception(TimeoutError())
        return found

    def wait(self, done: threading.Event, seconds: float) -> bool:
        """Let happen what happens up to then."""
        until = self._time.now + seconds
        with self.loop.thread_waits():
            while not done.is_set() and self._time.now < until and not self.loop.is_over:
                self._time.run(min(until, self._time.now + 0.01))
        return done.is_set()

    def worker(self, name: str, step: Step) -> VirtualWorker:
        """Return a worker: one that syncs takes its time."""
        return VirtualWorker(self, name, step, lambda: self._after(name))

    def connect(self, address: ServerAddress, ended: Callable[[Any], None], room: asyncio.Event) -> Connection:
        """Connect to a publisher of the simulation."""
        return self._connect(self.loop, address, ended)

    def close(self) -> None:
        """Run nothing any more."""
        self.loop.is_over = True
