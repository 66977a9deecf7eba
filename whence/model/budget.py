"""Budget of a long task: report its progress, and end it when its time is up or its caller wants no more.

A task runs inside `within`, and calls `reach` from its loops, however deep they are. There the caller's callback is
called, and what it raises ends the task; so does the deadline. Loops call `reach` every tenth of a second of work or
so, and kernels, which run without the interpreter, are called in slices of that length: that also lets a signal, such
as Ctrl-C, end the task. Where there is no budget, `reach` does nothing. What restores a state is `shielded`.

The budget belongs to the thread that runs the task.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from whence.model.codes import format_value
from whence.model.errors import DataError, LimitError, QuestionTimeout
from whence.model.progress import Progress
from whence.model.sizes import in_bytes
from whence.model.text import read_interval

clock = time.monotonic
_PATIENCE = 0.1  # seconds that a task waits for a lock at a time
Timeout = float | str | None
"""Seconds, or a text such as '30 s' or '2 min'; None for no end."""


class Budget:
    """What one task may take, and how far it is."""

    def __init__(self, progress: Progress | None, timeout: Timeout) -> None:
        self._progress = progress
        self._seconds = None if timeout is None else seconds_of(timeout)
        self._end = None if self._seconds is None else clock() + self._seconds
        self._what, self._done, self._total = "", 0, 0

    def reach(self, what: str, done: int, total: int) -> None:
        """Report that the task is here; raise if it must end. Without a name it is where it was before."""
        if what:
            self._what, self._done, self._total = what, done, total
        if self._progress is not None and self._what:
            self._progress(self._what, self._done, self._total)
        if self._end is not None and clock() >= self._end:
            raise QuestionTimeout(self._seconds or 0.0, self._what, self._done, self._total)


_CURRENT: ContextVar[Budget | None] = ContextVar("budget", default=None)


@contextmanager
def within(progress: Progress | None = None, timeout: Timeout = None) -> Iterator[None]:
    """Give what runs inside a budget; with neither argument it keeps the one it has.

    >>> with within(lambda *reached: print(*reached)):
    ...     reach("looking for witnesses", 1, 2)
    looking for witnesses 1 2
    """
    if progress is None and timeout is None:
        yield
        return
    token = _CURRENT.set(Budget(progress, timeout))
    try:
        yield
    finally:
        _CURRENT.reset(token)


@contextmanager
def shielded() -> Iterator[None]:
    """Let what runs inside come to its end, whatever the budget is."""
    token = _CURRENT.set(None)
    try:
        yield
    finally:
        _CURRENT.reset(token)


def reach(what: str = "", done: int = 0, total: int = 0) -> None:
    """Report how far the running task is: `done` of `total`, 0 if that is not known. Raise if it must end."""
    budget = _CURRENT.get()
    if budget is not None:
        budget.reach(what, done, total)


_MEMORY: ContextVar[int | None] = ContextVar("memory", default=None)


@contextmanager
def memory_limit(size: int | None) -> Iterator[None]:
    """Let nothing that runs inside make more than so many bytes at a time, where that is known beforehand."""
    token = _MEMORY.set(size)
    try:
        yield
    finally:
        _MEMORY.reset(token)


def claim(size: int) -> None:
    """Raise LimitError if so many bytes, which are about to be made, are more than the task may take.

    >>> with memory_limit(1_000_000):
    ...     claim(2_000_000)
    Traceback (most recent call last):
    whence.model.errors.LimitError: 2.0 MB are needed at a time, and a query may take 1.0 MB of memory: ask for fewer \
rows, or filter them first
    """
    limit = _MEMORY.get()
    if limit is not None and size > limit:
        raise LimitError(
            f"{in_bytes(size)} are needed at a time, and a query may take {in_bytes(limit)} of memory: ask for fewer "
            "rows, or filter them first"
        )


def has_budget() -> bool:
    """Return whether `reach` does anything."""
    return _CURRENT.get() is not None


@contextmanager
def held(lock: threading.RLock, what: str) -> Iterator[None]:
    """Hold a lock; while another thread has it, the task can end."""
    while not lock.acquire(timeout=_PATIENCE if has_budget() else -1):
        reach(what)
    try:
        yield
    finally:
        lock.release()


def seconds_of(timeout: float | str) -> float:
    """Return a timeout in seconds.

    >>> seconds_of(2), seconds_of("1 min 30 s")
    (2.0, 90.0)
    """
    try:
        if isinstance(timeout, bool) or not isinstance(timeout, (int, float, str)):
            raise ValueError(timeout)
        seconds = read_interval(timeout).span / 1e6 if isinstance(timeout, str) else float(timeout)
    except (ValueError, ArithmeticError):
        seconds = -1.0
    if not 0 <= seconds < float("inf"):
        raise DataError(f"a timeout is a number of seconds or a text such as '30 s', not {format_value(timeout)}")
    return seconds
