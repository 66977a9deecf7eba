"""Silence: epochs without rows that promise, of every stream with a tick time, that no earlier row is to come.

The law: a silence epoch at time t says that no row with a tick time below t will follow. It is an epoch like any other:
logged, and synced before subscribers are told of it; and time never goes back, after a crash neither (`Clock.reach`).
So the promise holds whatever happens. It moves the windows on tick times, and lets rows leave `latest`. The horizon of
a tick time rises with every epoch, silent or not.

Silence is made only where something depends on it: where a promise would move an operator, which operators know from
their own state, or while a subscriber wants to be told how far time has come, unless another epoch has told so. Commits
and reads make what is due before they begin; the thread (with the machine's clock only) does it for those who follow
changes. Operators are moved at most once per `every` seconds, at most once per tenth of that for readers and while a
subscriber waits. In partitions, whose state is elsewhere, silence is made while their windows may have rows.
"""

from __future__ import annotations

import logging
from collections import Counter
from typing import TYPE_CHECKING

from whence.engine.core.epoch import Epoch
from whence.engine.core.lifetimes import NEVER
from whence.engine.core.operator import Operator
from whence.engine.streams.promise import Promise, reaches
from whence.engine.streams.sort import BSort
from whence.engine.streams.windows.latest import Latest
from whence.engine.streams.windows.window import Window
from whence.model.budget import shielded
from whence.model.errors import StorageError, WhenceError
from whence.plan.algebra.logical import walk
from whence.runtime.writing.deadlines import BUSY, REFUSED, DeadlineThread
from whence.runtime.writing.expiry import gather
from whence.runtime.writing.transaction import Transaction

if TYPE_CHECKING:
    from whence.runtime.coordinator import Coordinator

log = logging.getLogger("whence")
_SECOND = 1_000_000
_FAST = 10  # times as often for those who wait


class SilenceEpochs:
    """Makes the silence epochs of one coordinator."""

    def __init__(self, coordinator: Coordinator) -> None:
        self._coordinator = coordinator
        self.error: Exception | None = None  # why what is due was not made; cleared by the next change
        self.made = 0  # epochs
        self._every: int | None = _SECOND  # microseconds between two epochs; None: never any
        self._streams: dict[str, int] = {}  # those that have a tick time, and its column
        self._order: list[Operator] | None = None  # all operators, when these were found
        self._moved: list[Window | BSort | Latest] = []  # operators that silence moves
        self._deadline = NEVER  # no operator has anything to do before
        self._noted = False  # rows have come since the deadline was found
        self._last = self._rows = 0  # times: of the last silence, and of the last rows
        self._wants: Counter[tuple[str, bool]] = Counter()
        self._wanted: int | None = None  # microseconds after which a subscriber wants to know the time
        self._thread: DeadlineThread | None = None

    def set_pace(self, seconds: float | None) -> None:
        """Make at most one epoch in so many seconds, ten times as many for those who wait; None: none at all."""
        if seconds is not None and not 0 <= seconds < 1e6:
            raise WhenceError(f"silence is the least number of seconds between two epochs, or None, not {seconds!r}")
        self._every = None if seconds is None else round(seconds * _SECOND)

    def stop(self) -> None:
        """End the thread."""
        if self._thread is not None:
            self._thread.stop()

    # -- who depends on it ---------------------------------------------------------------------------------------------

    def want(self, name: str, fast: bool = False) -> None:
        """Note that a subscriber of a stream or view wants to know how far time has come; `release` it in the end."""
        with self._coordinator.state:
            self._wants[name, fast] += 1
            self._find_wanted()
            self._expect()

    def release(self, name: str, fast: bool = False) -> None:
        """Note that a subscriber that wanted to know is gone."""
        with self._coordinator.state:
            self._wants[name, fast] -= 1
            self._wants += Counter()  # without those that are zero
            self._find_wanted()

    def declare(self) -> None:
        """Find the streams and operators that silence is for, after a change of the catalog. Under the state's lock."""
        coordinator = self._coordinator
        tables = coordinator.program.tables.values()
        self._streams = {table.name: table.tick for table in tables if table.tick is not None}
        self._find_operators()
        self._find_wanted()
        self._expect()

    def _find_operators(self) -> None:
        self._order = order = self._coordinator.catalog.flow.order
        promise = Promise(self._streams, 0, 0)
        found = (op for op in order if isinstance(op, (Window, BSort, Latest))) if self._streams else ()
        self._moved = [op for op in found if reaches(promise, op)]
        self._deadline, self._noted = 0 if self._moved else NEVER, False
        self._rows = self._coordinator.time

    def _find_wanted(self) -> None:
        fast = [is_fast for name, is_fast in self._wants if self._streams and self._reads_ticks(name, set())]
        self._wanted = None if not fast or self._every is None else self._every // (_FAST if any(fast) else 1)

    def _reads_ticks(self, name: str, seen: set[str]) -> bool:
        """Return whether a stream has a tick time, or a view reads one that has."""
        if name in self._streams:
            return True
        catalog = self._coordinator.catalog
        view, transient = catalog.program.views.get(name), catalog.transient.get(name)
        if name in seen or (view is None and transient is None):
            return False
        seen.add(name)
        found = transient.bound.values() if transient is not None else [view] if view is not None else []
        read = {other for each in found for node in walk(each.query) for other in node.names}
        return any(self._reads_ticks(other, seen) for other in read)

    # -- when it is due ------------------------------------------------------------------------------------------------

    def look_ahead(self, epoch: Epoch) -> None:
        """Note what an epoch has brought. Under the state's lock."""
        self.error = None
        if not self._streams:
            return
        if self._order is not self._coordinator.catalog.flow.order:
            self._find_operators()
        for name, column in self._streams.items():  # whatever the epoch is of, none before it comes any more
            self._coordinator.horizon_history.rise(name, column, epoch.time, epoch.number)
        if self._moved and any(name in epoch.deltas for name in self._streams):
            self._rows = epoch.time
            if not self._noted:  # later rows have later times
                self._noted = True
                self._deadline = min(self._deadline, *(op.due_after(epoch.time) for op in self._moved))
        self._expect()

    def _expect(self) -> None:
        """Let the thread know of the next deadline, and start it with the first."""
        coordinator, until = self._coordinator, self._next()
        if until == NEVER or not coordinator.clock.real or coordinator.storage.read_only or coordinator.closed:
            return
        if self._thread is None:
            self._thread = DeadlineThread(self, "whence silence")
        self._thread.expect(until)

    def _next(self) -> int:
        """Return when something is to be looked at."""
        if self._every is None or self.error is not None:
            return NEVER
        until = NEVER
        if self._deadline != NEVER:
            pace = self._every if self._wanted is None else self._wanted
            until = max(self._deadline, self._last + pace)
        return until if self._wanted is None else min(until, self._coordinator.time + self._wanted)

    def _may_be_due(self, now: int, pace: int) -> bool:
        moved = self._deadline <= now and self._last + pace <= now
        return moved or (self._wanted is not None and self._coordinator.time + self._wanted <= now)

    def _is_due(self, now: int, pace: int) -> bool:
        """Return whether silence is due; under the writer's lock. Operators are asked if it may be."""
        if self._deadline <= now and self._last + pace <= now:
            self._noted = False
            self._deadline = self._find_deadline()
            if self._deadline <= now:
                return True
        return self._wanted is not None and self._coordinator.time + self._wanted <= now

    def _find_deadline(self) -> int:
        """Return the least time that would move an operator."""
        if self._coordinator.catalog.backend.at_hand:
            due = [op.next_due() for op in self._moved]
            return min((found for found in due if found is not None), default=NEVER)
        found = NEVER
        for op in self._moved:  # they may have anything of the rows that came so long ago
            span = 0 if isinstance(op, BSort) else int(op.span.size or 0) + int(op.span.every or 0)
            if self._last <= self._rows + span or (isinstance(op, Window) and op.span.size is None):
                found = min(found, op.due_after(self._last) if isinstance(op, Window) else self._last + 1)
        return found

    # -- making it -----------------------------------------------------------------------------------------------------

    def tell_due(self, fast: bool = False) -> bool:
        """Make an epoch if silence is due, for a reader if `fast`; return False if a writer is at work, who will.

        An error is kept, for neither a reader nor a writer can help it, and until something changes there is no other
        try. The epoch may not be stable yet: a reader waits for that in the end, and a writer for its own.
        """
        if (self._deadline == NEVER and self._wanted is None) or self._every is None or self.error is not None:
            return True
        coordinator, pace = self._coordinator, self._every // _FAST if fast or self._wanted else self._every
        if coordinator.storage.read_only or not self._may_be_due(coordinator.clock.now(), pace):
            return True
        if not coordinator.writer.acquire(blocking=False):
            return False
        try:
            if coordinator.open_transaction is None and not coordinator.closed:
                coordinator.storage.ready_to_write()
                now = coordinator.clock.now()
                if self._is_due(now, pace):
                    self._make(now)
        except Exception as error:
            self.error = error
            log.warning("silence cannot be told: %s", error)
        finally:
            coordinator.writer.release()
        return True

    def _make(self, now: int) -> None:
        coordinator = self._coordinator
        writes = Transaction(coordinator.open_table)
        writes.source_positions = Promise(self._streams, now, coordinator.catalog.flow.last_at + 1).marks()
        epoch = gather(writes, coordinator.catalog.backend.lifetimes, coordinator.epoch + 1, now)
        self._last = now
        with shielded():
            coordinator.apply(epoch, record=True)
        self.made += 1
        with coordinator.state:
            if self._moved:
                self._deadline = self._find_deadline()

    def take_turn(self, thread: DeadlineThread) -> float:
        """Do one turn of the thread. A disk that refused may take it now."""
        if isinstance(self.error, StorageError):
            self.error = None
        coordinator, made = self._coordinator, self.made
        if not self.tell_due():
            return BUSY
        if self.made > made:
            try:
                coordinator.storage.make_durable(coordinator.storage.last)
            except StorageError as error:
                self.error = error
        if isinstance(self.error, StorageError):
            return REFUSED
        with coordinator.state:
            return thread.sleep_until(self._next(), coordinator.clock.now())
