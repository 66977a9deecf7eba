"""Time, as the database sees it, and the expiring that is part of every epoch.

Time never goes backwards: a clock that does is held still until it has caught up. The thread is a convenience for those
who follow changes; every commit and every read lets go of what is due by itself.
"""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from whence.engine.core.epoch import Epoch
from whence.engine.core.lifetimes import NEVER, Lifetimes
from whence.engine.core.operator import Batch
from whence.model.budget import shielded
from whence.model.codes import DAY, FIRST_DAY, LAST_DAY, Codes
from whence.model.errors import StorageError, WhenceError
from whence.runtime.writing.deadlines import BUSY, REFUSED, DeadlineThread
from whence.runtime.writing.transaction import Transaction

if TYPE_CHECKING:
    from whence.runtime.coordinator import Coordinator

log = logging.getLogger("whence")
_SECOND = 1_000_000


class Clock:
    """Microseconds since 1970, from a function that gives seconds.

    >>> times = iter([5, 3.5, 7]); clock = Clock(lambda: next(times))
    >>> clock.now(), clock.now(), clock.now()
    (5000000, 5000000, 7000000)
    """

    def __init__(self, source: Callable[[], float] | None = None) -> None:
        self.real = source is None
        self._source = time.time if source is None else source
        self._last = FIRST_DAY * DAY
        self._guard = threading.Lock()

    def now(self) -> int:
        seconds = self._source()
        if isinstance(seconds, bool) or not isinstance(seconds, (int, float)) or not math.isfinite(seconds):
            raise WhenceError(f"the clock must give seconds since 1970 as a number, not {seconds!r}")
        now = round(seconds * _SECOND)
        if not FIRST_DAY * DAY <= now < (LAST_DAY + 1) * DAY:
            raise WhenceError(f"the clock gives {seconds!r} seconds since 1970, outside the years 1 to 9999")
        return self.reach(now)

    def reach(self, moment: int) -> int:
        """Let it be at least that late; the time it then is."""
        with self._guard:
            self._last = max(self._last, moment)
            return self._last


def gather(writes: Transaction, tables: Mapping[str, Lifetimes], number: int, now: int) -> Epoch:
    """Return an epoch of what a transaction has written, and of what is due now in any table."""
    deltas = writes.deltas(now)
    if not tables:
        return Epoch(number, now, deltas, {}, (), writes.source_positions)
    refreshed: dict[str, Codes] = {}
    for name, lifetimes in tables.items():
        written = deltas.pop(name, None) or Batch.empty(lifetimes.width)
        again = writes.refreshed(name, written) if lifetimes.by_arrival else written.rows[:0]
        if len(again):
            refreshed[name] = again
        delta = lifetimes.expire(written, again, now)
        if len(delta.ann):
            deltas[name] = delta
    return Epoch(number, now, deltas, refreshed, (), writes.source_positions)


def say_expired(error: BaseException, expired: Mapping[str, int]) -> None:
    """Let the error of an epoch say that rows were to expire in it, for that may be the cause."""
    found = [f"{count:,} row{'s' * (count != 1)} of {name}" for name, count in expired.items() if count]
    if found and isinstance(error, WhenceError):
        error.args = (
            f"{error} (in this epoch {', '.join(found)} were to expire; if that is the cause, it will be so in every "
            "epoch until the view that cannot follow is dropped or other rows make up for it)",
        )


class Expiry:
    """Lets rows whose time is up leave a database: with every commit, and before a read, by `expire`, or by a thread in
    epochs of their own."""

    def __init__(self, coordinator: Coordinator) -> None:
        self._coordinator = coordinator
        self.error: Exception | None = None  # why what is due has not left; cleared by the next change
        self._deadline = NEVER  # of the row that is due next
        self._thread: DeadlineThread | None = None

    def stop(self) -> None:
        """End the thread."""
        if self._thread is not None:
            self._thread.stop()

    def begin(self, writes: Transaction) -> None:
        """Let a transaction see no row whose time is up, in whatever table."""
        if self._is_due():
            now, tables = self._coordinator.clock.now(), self._coordinator.program.tables
            for name, lifetimes in self._coordinator.catalog.backend.lifetimes.items():
                if lifetimes.soonest <= now and (
                    name not in tables or tables[name].lookup is None
                ):  # nobody writes there
                    writes.table(name)

    def expire(self) -> int:
        """Let the rows leave whose time is up; return how many did."""
        coordinator = self._coordinator
        with coordinator.writer:
            if coordinator.open_transaction is not None:
                raise WhenceError("expire cannot stand inside a transaction: its end expires what is due")
        with coordinator.transaction() as writes:
            pass
        return writes.expired

    def expire_due(self) -> bool:
        """Expire what is due before a read; return False if a writer is at work, who will do it.

        An error is kept, for a reader cannot help it, and until something changes there is no other try. The epoch may
        not be stable yet: a reader waits for that in the end.
        """
        if self._deadline == NEVER or self.error is not None or not self._is_due():
            return True
        coordinator = self._coordinator
        if coordinator.storage.read_only:
            return True
        if not coordinator.writer.acquire(blocking=False):
            return False
        try:
            if coordinator.open_transaction is None and not coordinator.closed:
                writes = coordinator.begin()
                try:
                    with shielded():
                        coordinator.commit(writes)
                finally:
                    coordinator.open_transaction = None
        except Exception as error:
            self.error = error
            log.warning("rows whose time is up cannot leave: %s", error)
        finally:
            coordinator.writer.release()
        return True

    def take_turn(self, thread: DeadlineThread) -> float:
        """Do one turn of the thread; return how many seconds it may sleep. A disk that refused may take it now."""
        if isinstance(self.error, StorageError):
            self.error = None
        if not self.expire_due():
            return BUSY
        if isinstance(self.error, StorageError):
            return REFUSED
        coordinator = self._coordinator
        with coordinator.state:
            until = NEVER if self.error is not None else self._deadline
            return thread.sleep_until(until, coordinator.clock.now())

    def _is_due(self) -> bool:
        return self._deadline != NEVER and self._deadline <= self._coordinator.clock.now()

    def look_ahead(self) -> None:
        """Find the next deadline after tables, views or lifetimes have changed, and try again what could not expire."""
        self.error = None
        coordinator = self._coordinator
        lifetimes = coordinator.catalog.backend.lifetimes
        if not lifetimes and self._thread is None:
            self._deadline = NEVER
            return
        self._deadline = min((life.soonest for life in lifetimes.values()), default=NEVER)
        if self._thread is None and coordinator.clock.real and not coordinator.storage.read_only:
            self._thread = DeadlineThread(self, "whence expiry")
        if self._thread is not None:
            self._thread.expect(self._deadline)
