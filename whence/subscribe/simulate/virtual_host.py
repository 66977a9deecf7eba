"""A host of brokers in virtual time: an event loop and workers whose every step is an event of the simulation.

The law: nothing runs but by `VirtualTime`, one thing at a time. A broker that has crashed runs no more.
"""

from __future__ import annotations

import asyncio
import random
import threading
from asyncio import events
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
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
        self.call_soon(lambda: found.set_result(func(*args)))
        return found

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        error = context.get("exception")
        if error is not None and not isinstance(error, asyncio.CancelledError):
            self.failures.append(error)


class VirtualWorker:
    """A worker whose steps are events."""

    def __init__(self, host: VirtualHost, step: Step, longest: float, after: Callable[[], object]) -> None:
        self._host, self._step, self._longest, self._after = host, step, longest, after
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
    ) -> None:
        """`after` is called after every step of a worker, with its name."""
        self._time, self.dice, self._connect, self._after = time, dice, connect, after
        self.loop: VirtualLoop = VirtualLoop(time)  # type: ignore[abstract]  # it has what a broker uses

    def now(self) -> float:
        """Return the virtual time."""
        return self._time.now

    def call(self, function: Callable[..., object], *args: Any) -> None:
        """Call a function in the loop, soon."""
        self.loop.call_soon(function, *args)

    def submit(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        """Run nothing: nobody can wait for it while time stands still."""
        work.close()
        found: Future[T] = Future()
        found.set_exception(TimeoutError())
        return found

    def wait(self, done: threading.Event, seconds: float) -> bool:
        """Let happen what happens up to then."""
        until = self._time.now + seconds
        while not done.is_set() and self._time.now < until:
            self._time.run(min(until, self._time.now + 0.01))
        return done.is_set()

    def worker(self, name: str, step: Step) -> VirtualWorker:
        """Return a worker: one that syncs takes its time."""
        return VirtualWorker(self, step, 0.4 if name == "sync" else 0.02, lambda: self._after(name))

    def connect(self, address: ServerAddress, ended: Callable[[Any], None], room: asyncio.Event) -> Connection:
        """Connect to a publisher of the simulation."""
        return self._connect(self.loop, address, ended)

    def close(self) -> None:
        """Run nothing any more."""
        self.loop.is_over = True
