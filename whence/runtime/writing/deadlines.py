"""A thread that sleeps until something is due: rows that expire, silence that is to be told.

It holds its owner, and so the database, only weakly and is a daemon: it keeps neither the database nor the process
alive.
"""

from __future__ import annotations

import queue
import threading
import weakref
from typing import Protocol

from whence.engine.core.lifetimes import NEVER

_SECOND = 1_000_000
_LONGEST = 60.0  # seconds of sleep, since the clock may be set forward meanwhile
BUSY = 0.05  # seconds until the next try when a writer is at work
REFUSED = 5.0  # and when the disk would not take the epoch


class DeadlineOwner(Protocol):
    """Does what is due."""

    def take_turn(self, thread: DeadlineThread) -> float:
        """Do what is due now; return how many seconds the thread may sleep."""


class DeadlineThread:
    """A thread that calls its owner at the next deadline, in microseconds since 1970."""

    def __init__(self, owner: DeadlineOwner, name: str) -> None:
        # SimpleQueue may be put to from a weak reference's callback, whatever this thread is doing then.
        self._mail: queue.SimpleQueue[bool] = queue.SimpleQueue()
        self._until = NEVER
        mail = self._mail
        self._owner = weakref.ref(owner, lambda _: mail.put(False))
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def expect(self, deadline: int) -> None:
        """Something will be due by then: wake up if that is before the end of the sleep. Under the state's lock."""
        if deadline < self._until:
            self._until = deadline
            self._mail.put(True)

    def sleep_until(self, deadline: int, now: int) -> float:
        """How many seconds to sleep, for the thread itself. Under the state's lock."""
        self._until = deadline
        return min(max(deadline - now, 0) / _SECOND, _LONGEST)

    def stop(self) -> None:
        """End the thread; when this returns it does nothing any more."""
        self._mail.put(False)
        if threading.current_thread() is not self._thread:
            self._thread.join()

    def _run(self) -> None:
        delay = 0.0
        while self._wait(delay):
            owner = self._owner()
            if owner is None:
                return
            delay = owner.take_turn(self)
            del owner  # or it would live through the sleep

    def _wait(self, seconds: float) -> bool:
        try:
            return self._mail.get(timeout=seconds)
        except queue.Empty:
            return True
