"""The write queue: one thread that commits what connections ask for, many writes in one epoch.

The law: a write that is acknowledged is on stable storage and in exactly one epoch; one that fails changes nothing and
does not disturb its neighbours. Writes happen in the order in which they were submitted, and those that a publisher
numbers at most once each (`publishers.py`).

What arrives while an epoch is being committed becomes the next epoch: an idle queue commits at once, and a busy one in
large epochs, whose size follows the time that they take. For those who wait for each answer before they write again,
waiting for more before an epoch was measured, over 3 and over 100 views: it gains nothing. A publisher that writes on
without waiting has its few rows gathered for some milliseconds (`pace.py`), so that a stream of single rows does not
become a stream of epochs, which everyone who follows it has to bear. If an epoch cannot be committed, for instance
since a view fails on one row, its halves are tried as epochs of their own, down to the write that is the cause.

A second thread (`acknowledger.py`) waits until the log is stable, while the next epoch runs. If the log fails, every
write whose epoch is lost is answered with that error, before anything else is committed: then the database is back at
its last stable epoch, and so is what is known of publishers.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Collection
from typing import NamedTuple

from whence.model.errors import LimitError, StorageError, WhenceError
from whence.runtime.database import Database
from whence.runtime.writing.pace import EpochPace
from whence.server.writing.acknowledger import Acknowledger
from whence.server.writing.epoch_writes import (
    Done,
    EpochWrites,
    Outcome,
    QueuedWrite,
    Refusal,
    Reply,
    TableInsert,
    Write,
)
from whence.server.writing.publishers import PublisherLedger, check_numbered

__all__ = ["Outcome", "QueueMetrics", "Refusal", "Reply", "TableInsert", "Write", "WriteQueue"]

log = logging.getLogger("whence")
MOST_ROWS = 10_000
"""Rows of one epoch, unless a single write has more."""

GATHER_TIMES, GATHER_SECONDS, GATHER_ROWS = 8, 0.005, 64
"""How many times its duration lies between the beginnings of two epochs of few rows, at most how many seconds, and how
many rows are not few."""

_FEWEST_ROWS = 256
_LONG_EPOCH = 0.05  # seconds: in longer ones writes would wait for others too long
Deliver = Callable[[list[tuple[Reply, Outcome]]], None]
_Answered = tuple[QueuedWrite, Outcome]


class QueueMetrics(NamedTuple):
    """Counters of a write queue since it began, and what waits now."""

    epochs: int
    writes: int
    failed: int
    repeated: int
    seconds: float
    largest_epoch: int
    split_epochs: int
    pending_writes: int
    pending_bytes: int


class _RestartedError(Exception):
    """The database went back to its last stable epoch since this queue last wrote to it."""


def _reply_to_each(answered: list[tuple[Reply, Outcome]]) -> None:
    for reply, outcome in answered:
        try:
            reply(outcome)
        except Exception:
            log.exception("a reply of the write queue failed")


class WriteQueue:
    """Commits the writes of many connections to one database.

    db           the database; others may write to it meanwhile
    deliver      called with many replies and their outcomes at once, from a thread of the queue
    most_writes  writes that may wait or run; with more `submit` raises a LimitError
    most_bytes   the same for their sizes
    sync_every   seconds between two syncs under the durabilities "interval" and "none"
    pause        least seconds between the beginnings of two epochs, for those who rather have few of them

    >>> outcomes = []
    >>> with whence.open() as db:
    ...     _ = db.execute("CREATE TABLE a (x INT)")
    ...     queue = WriteQueue(db)
    ...     queue.submit(TableInsert("a", [(1,)]), outcomes.append)
    ...     queue.submit(TableInsert("a", [("one",)]), outcomes.append)
    ...     queue.close()
    >>> [(outcome.count, str(outcome.error)) for outcome in outcomes]
    [(1, 'None'), (0, "table a, row 1, column x: 'one' (str) is not a value of type INTEGER")]
    """

    def __init__(
        self,
        db: Database,
        deliver: Deliver = _reply_to_each,
        *,
        most_writes: int = 100_000,
        most_bytes: int = 256 << 20,
        sync_every: float = 0.05,
        pause: float = 0.0,
    ) -> None:
        self._db, self._coordinator, self._deliver = db, db._coordinator, deliver
        self._most_writes, self._most_bytes, self._pause = most_writes, most_bytes, pause
        self._ledger = PublisherLedger(self._coordinator)
        self._restarts = self._coordinator.restarts
        self._ready = threading.Condition(threading.Lock())
        self._waiting: deque[QueuedWrite] = deque()
        self._given_up: list[tuple[str, int, BaseException]] = []  # numbered writes that were not done
        self._idle = self._gathering = self._pipelined = self._closing = False
        self._waiting_rows = 0
        self._pace = EpochPace(GATHER_TIMES, GATHER_SECONDS)
        self._pending_writes = self._pending_bytes = 0
        self._most_rows, self._began = MOST_ROWS, 0.0
        self._epochs = self._writes = self._failed = self._repeated = self._largest = self._split = 0
        self._seconds = 0.0
        self._acknowledger = Acknowledger(self._coordinator, self._answer, sync_every)
        self._thread = threading.Thread(target=self._run, name="whence writes", daemon=True)
        self._thread.start()

    # -- from any thread ---------------------------------------------------------------------------------------------

    def submit(
        self,
        write: Write,
        reply: Reply,
        *,
        publisher: str | None = None,
        number: int | None = None,
        awaiting: int | None = None,
        alone: bool = False,
        rows: int | None = None,
        size: int = 0,
        timeout: float | None = None,
    ) -> None:
        """Have a write done; `reply` is called with its outcome, once.

        publisher  who numbers this write, by `number`; `awaiting` is the lowest number without an answer so far
        alone      run it by itself, outside a transaction: a script that defines something
        rows       about how many rows it writes, if that is known
        size       its bytes, which count as long as there is no outcome
        timeout    seconds; if it has not begun by then, it fails
        """
        if publisher is not None:
            check_numbered(publisher, number)
            if alone:
                raise WhenceError("a write that runs alone has no number: what it defines is no part of an epoch")
        if rows is None:
            rows = len(write.rows) if type(write) is TableInsert else 1
        deadline = None if timeout is None else time.monotonic() + timeout
        item = QueuedWrite(write, reply, publisher, number or 0, awaiting, alone, rows, size, deadline)
        with self._ready:
            if self._closing:
                raise WhenceError("the server is stopping: it takes no more writes")
            if self._pending_writes >= self._most_writes or self._pending_bytes + size > self._most_bytes:
                error = self._too_many(size)
                if publisher is not None:
                    self._given_up.append((publisher, item.number, error))
                raise error
            self._waiting.append(item)
            self._pending_writes += 1
            self._pending_bytes += size
            self._waiting_rows += rows
            if self._idle or (self._gathering and (alone or self._waiting_rows >= GATHER_ROWS)):
                self._idle = self._gathering = False
                self._ready.notify()

    def _too_many(self, size: int) -> LimitError:
        if self._pending_writes >= self._most_writes:
            return LimitError(
                f"{self._pending_writes:,} writes wait already, and no more than {self._most_writes:,} may: "
                "try again later"
            )
        return LimitError(
            f"writes of {self._pending_bytes:,} bytes wait already; with {size:,} more that is over "
            f"{self._most_bytes:,}: send less at a time, or try again later"
        )

    @property
    def pending(self) -> tuple[int, int]:
        """How many writes have no outcome yet, and their bytes."""
        return self._pending_writes, self._pending_bytes

    def metrics(self) -> QueueMetrics:
        """Return the counters."""
        return QueueMetrics(
            self._epochs, self._writes, self._failed, self._repeated, self._seconds, self._largest, self._split,
            self._pending_writes, self._pending_bytes,
        )  # fmt: skip

    def close(self) -> None:
        """Take no more writes, do all that wait, and return when every reply has been called."""
        with self._ready:
            self._closing = True
            self._ready.notify()
        self._thread.join()
        self._acknowledger.close()

    # -- the thread that commits -------------------------------------------------------------------------------------

    def _run(self) -> None:
        while batch := self._next():
            try:
                if batch[0].alone:
                    self._run_alone(batch[0])
                else:
                    self._commit(batch)
            except BaseException as error:  # nothing may end this thread, or what waits would never be answered
                log.exception("the write queue failed")
                self._fail(batch, error)

    def _next(self) -> list[QueuedWrite]:
        """Wait for writes; return those of the next epoch, or one that runs alone; none when the queue is closed."""
        with self._ready:
            while not self._waiting:
                if self._closing:
                    return []
                self._idle = True
                self._ready.wait()
            self._idle = False
            if self._pause:
                self._ready.wait_for(lambda: self._closing, self._began + self._pause - time.monotonic())
                self._began = time.monotonic()
            else:
                self._gather()
            self._note_given_up()
            waiting, batch = self._waiting, [self._waiting.popleft()]
            rows = batch[0].rows
            while not batch[0].alone and waiting and not waiting[0].alone:
                rows += waiting[0].rows
                if rows > self._most_rows:
                    break
                batch.append(waiting.popleft())
            self._waiting_rows -= sum(item.rows for item in batch)
            self._pipelined = _is_pipelined(batch)
            return batch

    def _gather(self) -> None:
        """Wait for more of a publisher that writes on without waiting for answers, if there are few rows. Called with
        the queue's lock held."""
        due, waiting = self._pace.due, self._waiting
        while not self._closing and self._waiting_rows < GATHER_ROWS and not waiting[-1].alone:
            pause = due - time.monotonic()
            if pause <= 0 or not (self._pipelined or _is_pipelined(waiting)):
                break
            self._gathering = True
            self._ready.wait(pause)
        self._gathering = False

    def _note_given_up(self) -> None:
        for publisher, number, error in self._given_up:
            self._ledger.note_failure(publisher, number, error)
        self._given_up.clear()

    def _run_alone(self, item: QueuedWrite) -> None:
        coordinator = self._coordinator
        try:
            item.check_deadline()
            count, error = item.write(self._db), None
        except Exception as failure:
            count, error = 0, failure
        with coordinator.writer:
            epoch, ticket = coordinator.epoch, coordinator.storage.last
        self._hand_over([(item, Outcome(count, epoch, False, error))], ticket)

    def _commit(self, batch: list[QueuedWrite]) -> None:
        """Make an epoch of some writes; if that cannot be committed, of each half of them."""
        start = time.perf_counter()
        self._pace.begin(time.monotonic())
        try:
            answered, ticket = self._make_epoch(batch)
        except _RestartedError:
            self._start_over()
            self._commit(batch)
        except BaseException as error:
            if len(batch) == 1 or isinstance(error, StorageError) or not isinstance(error, Exception):
                self._fail(batch, error)
                return
            self._split += 1
            half = len(batch) // 2
            self._commit(batch[:half])
            self._commit(batch[half:])
        else:
            self._pace.end(time.monotonic())
            self._adapt(sum(item.rows for item in batch), time.perf_counter() - start)
            self._hand_over(answered, ticket)

    def _make_epoch(self, batch: list[QueuedWrite]) -> tuple[list[_Answered], int]:
        """Commit some writes; return their outcomes, and the ticket of the storage to wait for."""
        coordinator, ledger = self._coordinator, self._ledger
        publishers = {item.publisher for item in batch if item.publisher is not None}
        before: int | None = None
        with coordinator.writer:
            if publishers:
                ledger.ensure_table()
            try:
                with coordinator.transaction(wait=False) as writes:
                    if coordinator.restarts != self._restarts:
                        raise _RestartedError
                    before = coordinator.epoch
                    if publishers:
                        ledger.begin(writes, publishers)
                    done = EpochWrites(self._db, ledger, batch).run()
                    if publishers:
                        ledger.write(writes)
            except BaseException as error:
                if before is None or coordinator.epoch == before:
                    ledger.rollback()
                    raise
                log.warning("%s", error)  # the epoch is committed, but a sink did not take it
            ledger.commit()
            epoch, ticket = coordinator.epoch, coordinator.storage.last
        return list(zip(batch, _outcomes(done, epoch), strict=True)), ticket

    def _start_over(self) -> None:
        """Go on after the database went back to its last stable epoch."""
        self._restarts = self._coordinator.restarts
        self._acknowledger.drain()  # what is lost has failed, before anything behind it is done
        with self._ready:
            self._note_given_up()
        self._ledger.forget()

    def _adapt(self, rows: int, seconds: float) -> None:
        """Count an epoch, and let the next ones take no longer than they should."""
        self._epochs += 1
        self._seconds += seconds
        self._largest = max(self._largest, rows)
        if seconds > _LONG_EPOCH:
            self._most_rows = max(_FEWEST_ROWS, min(rows, self._most_rows) // 2)
        elif 2 * rows > self._most_rows and seconds < _LONG_EPOCH / 2:
            self._most_rows = min(MOST_ROWS, 2 * self._most_rows)

    def _fail(self, batch: list[QueuedWrite], error: BaseException) -> None:
        """Answer writes of which none was done."""
        for item in batch:
            if item.publisher is not None:
                self._ledger.note_failure(item.publisher, item.number, error)
        outcome = Outcome(0, self._coordinator.epoch, False, error)
        self._hand_over([(item, outcome) for item in batch], 0)

    # -- answers -----------------------------------------------------------------------------------------------------

    def _hand_over(self, answered: list[_Answered], ticket: int) -> None:
        self._acknowledger.hand_over(answered, ticket)

    def _answer(self, answered: list[_Answered], lost: BaseException | None) -> None:
        """Call the replies of writes that are stable, or lost."""
        if lost is not None:
            answered = [(item, _lose(outcome, lost)) for item, outcome in answered]
        outcomes = [outcome for _, outcome in answered]
        with self._ready:
            if lost is not None:
                self._given_up += [(i.publisher, i.number, lost) for i, _ in answered if i.publisher is not None]
            self._writes += len(answered)
            self._failed += sum(outcome.error is not None for outcome in outcomes)
            self._repeated += sum(outcome.repeated for outcome in outcomes)
            self._pending_writes -= len(answered)
            self._pending_bytes -= sum(item.size for item, _ in answered)
        try:
            self._deliver([(item.reply, outcome) for item, outcome in answered])
        except Exception:
            log.exception("replies of the write queue failed")


def _is_pipelined(writes: Collection[QueuedWrite]) -> bool:
    """Return whether a publisher has several of some writes: it does not wait for the answer to each."""
    publishers = [item.publisher for item in writes if item.publisher is not None]
    return len(publishers) > 1 and len(set(publishers)) < len(publishers)


def _outcomes(done: list[Done], epoch: int) -> list[Outcome]:
    """Return the outcomes of what was done in an epoch. Many are alike: those are one object."""
    plain: dict[int, Outcome] = {}
    found = []
    for count, repeated, error in done:
        outcome = None if repeated or error is not None else plain.get(count)
        if outcome is None:
            outcome = Outcome(count, epoch, repeated, error)
            if not repeated and error is None:
                plain[count] = outcome
        found.append(outcome)
    return found


def _lose(outcome: Outcome, error: BaseException) -> Outcome:
    return outcome if outcome.error is not None else Outcome(0, outcome.epoch, False, error)
