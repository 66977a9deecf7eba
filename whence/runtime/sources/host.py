"""What does the work of a broker: an event loop, workers and connections; in a simulation, virtual time.

A broker has one event loop, which messages come in by, and workers for what would hold it up: writing, syncing,
amending. The host decides what they are. `ThreadHost` has threads and sockets. `subscribe/simulate` has one in which
everything is an event of virtual time, so that what is simulated is what runs.

The law: a worker's step is called soon after `wake`, and when it was due; never twice at once.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import Future
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from whence.runtime.sources.connection import ServerAddress, SourceConnection
from whence.runtime.sources.nats_connection import NatsConnection

if TYPE_CHECKING:
    from whence.runtime.sources.connection import Listener

T = TypeVar("T")
Step = Callable[[], float | None]
"""Does what there is to do; returns the time at which it is to be called again in any case."""


class Connection(Protocol):
    """A connection to a server, shared by the sources that come from there. `ready` is made when it stands."""

    address: ServerAddress
    ready: asyncio.Future[Any]

    def attach(self, listener: Listener) -> int:
        """Return a number for a subscription; messages that have it go to the listener."""

    def detach(self, wire_id: int) -> None:
        """Pass no more messages on; the connection ends with its last user."""

    def send(self, message: Any) -> None:
        """Send a message."""

    def close(self) -> None:
        """End it."""


class Worker(Protocol):
    """Calls a step when there is something to do."""

    def wake(self) -> None:
        """Have the step called soon."""

    def close(self, wait: bool = True) -> None:
        """Call it no more; with `wait`, return when it is not being called."""


class BrokerHost(Protocol):
    """Does the work of one broker."""

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """The event loop, which messages come in by."""

    def now(self) -> float:
        """Return the time in seconds, which never goes back."""

    def call(self, function: Callable[..., object], *args: Any) -> None:
        """Call a function in the loop, soon."""

    def submit(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        """Run a coroutine in the loop."""

    def wait(self, done: threading.Event, seconds: float) -> bool:
        """Wait until something is done in the loop or by a worker, not longer than so; return whether it is."""

    def worker(self, name: str, step: Step) -> Worker:
        """Return a worker that begins to work when it is woken."""

    def connect(self, address: ServerAddress, ended: Callable[[Any], None], room: asyncio.Event) -> Connection:
        """Connect to a server. `room` is set while messages can be taken in."""

    def close(self) -> None:
        """End the loop, soon."""


class ThreadWorker:
    """A thread that calls a step."""

    def __init__(self, name: str, step: Step) -> None:
        self._name, self._step = name, step
        self._turn = threading.Condition(threading.Lock())
        self._woken = self._closing = False
        self._thread: threading.Thread | None = None

    def wake(self) -> None:
        """Have the step called soon. Any thread may call it."""
        with self._turn:
            self._woken = True
            if self._thread is None and not self._closing:
                self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)
                self._thread.start()
            self._turn.notify_all()

    def close(self, wait: bool = True) -> None:
        """Call the step no more; with `wait`, wait for it, unless it is the one that closes."""
        with self._turn:
            self._closing = True
            self._turn.notify_all()
        if wait and self._thread is not None and threading.current_thread() is not self._thread:
            self._thread.join(10)

    def _run(self) -> None:
        due: float | None = None
        while True:
            with self._turn:
                while not self._woken and not self._closing:
                    pause = None if due is None else due - time.monotonic()
                    if pause is not None and pause <= 0:
                        break
                    self._turn.wait(pause)
                if self._closing:
                    return
                self._woken = False
            due = self._step()


class ThreadHost:
    """An event loop in a thread of its own, workers that are threads, and sockets."""

    def __init__(self) -> None:
        self.loop: asyncio.AbstractEventLoop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="whence sources", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        asyncio.set_event_loop(self.loop)
        self.loop.run_forever()
        left = asyncio.all_tasks(self.loop)
        for task in left:
            task.cancel()
        self.loop.run_until_complete(asyncio.gather(*left, return_exceptions=True))
        self.loop.close()

    def now(self) -> float:
        """Return the time in seconds, which never goes back."""
        return time.monotonic()

    def call(self, function: Callable[..., object], *args: Any) -> None:
        """Call a function in the loop, soon. Any thread may call it."""
        with contextlib.suppress(RuntimeError):
            self.loop.call_soon_threadsafe(function, *args)

    def submit(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        """Run a coroutine in the loop."""
        return asyncio.run_coroutine_threadsafe(work, self.loop)

    def wait(self, done: threading.Event, seconds: float) -> bool:
        """Wait until something is done in the loop or by a worker, not longer than so; return whether it is."""
        return done.wait(seconds)

    def worker(self, name: str, step: Step) -> Worker:
        """Return a thread that begins to work when it is woken."""
        return ThreadWorker(f"whence sources: {name}", step)

    def connect(self, address: ServerAddress, ended: Callable[[Any], None], room: asyncio.Event) -> Connection:
        """Connect to a server, or to a bus."""
        return NatsConnection(address, ended, room) if address.is_bus else SourceConnection(address, ended, room)

    def close(self) -> None:
        """End the loop, soon, and wait for it."""
        self.call(self.loop.call_later, 0.05, self.loop.stop)
        if threading.current_thread() is not self._thread:
            self._thread.join(5)


_MAKE: ContextVar[Callable[[], BrokerHost]] = ContextVar("what does the work of a broker", default=ThreadHost)


def make_host() -> BrokerHost:
    """Return a host for a new broker."""
    return _MAKE.get()()


@contextlib.contextmanager
def hosted_by(make: Callable[[], BrokerHost]) -> Iterator[None]:
    """Have brokers that are opened in here run by other hosts than threads."""
    token = _MAKE.set(make)
    try:
        yield
    finally:
        _MAKE.reset(token)
