"""The writes of one epoch: each in a savepoint of the open transaction, so that an error takes back only its own.

Consecutive inserts of rows into one table are encoded as one, which gives the same rows in the same order; if that
fails, they are made one by one. Nothing here is committed: the caller does that.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, NamedTuple

from whence.io.rows import Missing
from whence.model.errors import LimitError, WhenceError
from whence.runtime.database import Database
from whence.server.writing.publishers import PublisherLedger

Write = Callable[[Database], int]
"""What a write does, inside a transaction; returns the number of rows."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a write: how many rows it wrote, the epoch that has it (or a later one), whether it was done
    before, and the error if it failed."""

    count: int
    epoch: int
    repeated: bool = False
    error: BaseException | None = None


Reply = Callable[[Outcome], None]


class TableInsert(NamedTuple):
    """A write that inserts a list of rows, tuples or dicts; consecutive ones into one table are encoded together."""

    table: str
    rows: list[Any]
    missing: Missing = "error"

    def __call__(self, db: Database) -> int:
        return db.insert(self.table, self.rows, missing=self.missing)


@dataclass(frozen=True, slots=True)
class Refusal:
    """A write that fails. A numbered write that is refused before it comes to the queue must still be submitted, as
    this: or, sent again, it would be taken for one that was done."""

    error: BaseException

    def __call__(self, db: Database) -> int:
        raise self.error


class QueuedWrite(NamedTuple):
    """A write that waits for its epoch."""

    write: Write
    reply: Reply
    publisher: str | None
    number: int
    awaiting: int | None
    alone: bool
    rows: int
    size: int
    deadline: float | None

    def check_deadline(self) -> None:
        """Raise LimitError if it has waited for too long."""
        if self.deadline is not None and time.monotonic() > self.deadline:
            raise LimitError("the write had not begun when its time was up: too many others were before it; try again")


Done = tuple[int, bool, BaseException | None]
"""What a write did in an epoch that is not committed yet: rows, whether it was done before, and its error."""

_NOTHING: Done = (0, False, None)
_REPEATED: Done = (0, True, None)


class EpochWrites:
    """Runs writes in the open transaction of this thread."""

    def __init__(self, db: Database, ledger: PublisherLedger, batch: Sequence[QueuedWrite]) -> None:
        self._db, self._ledger, self._batch = db, ledger, batch
        self._done = [_NOTHING] * len(batch)
        self._group: list[int] = []  # inserts that are to be encoded together
        self._kind: tuple[str, Missing] | None = None  # their table, and what missing columns are
        self._numbers: dict[str, int] = {}  # the largest number of each publisher in the group

    def run(self) -> list[Done]:
        """Run all writes; return what each did."""
        for at, item in enumerate(self._batch):
            if item.publisher is not None and not self._is_due(at, item):
                continue
            write = item.write
            if type(write) is not TableInsert or item.deadline is not None:
                self._flush()
                self._run_one(at)
                continue
            kind = (write.table, write.missing)
            if kind != self._kind:
                self._flush()
                self._kind = kind
            self._group.append(at)
            if item.publisher is not None:
                self._numbers[item.publisher] = item.number
        self._flush()
        return self._done

    def _is_due(self, at: int, item: QueuedWrite) -> bool:
        """Return whether a numbered write is to be done."""
        publisher, number = item.publisher, item.number
        assert publisher is not None
        if self._numbers and number <= self._numbers.get(publisher, -1):
            self._flush()  # whether it is done depends on what becomes of the group
        try:
            if self._ledger.is_due(publisher, number, item.awaiting):
                return True
            self._done[at] = _REPEATED
        except WhenceError as error:
            self._done[at] = (0, False, error)
        return False

    def _flush(self) -> None:
        """Do the inserts of the group."""
        group, batch = self._group, self._batch
        if not group:
            return
        self._group, self._numbers = [], {}
        if len(group) > 1:
            assert self._kind is not None
            table, missing = self._kind
            rows = list(chain.from_iterable(batch[at].write.rows for at in group))  # type: ignore[attr-defined]  # TableInsert
            try:
                self._db.insert(table, rows, missing=missing)
            except Exception:  # of one of them, or of several: each for itself
                pass
            else:
                for at in group:
                    self._succeed(at, len(batch[at].write.rows))  # type: ignore[attr-defined]  # TableInsert
                return
        for at in group:
            self._run_one(at)

    def _run_one(self, at: int) -> None:
        item = self._batch[at]
        try:
            item.check_deadline()
            if type(item.write) is TableInsert:
                count = item.write(self._db)
            else:
                with self._db.transaction():
                    count = item.write(self._db)
        except Exception as error:
            self._done[at] = (0, False, error)
            if item.publisher is not None:
                self._ledger.fail(item.publisher, item.number, error)
        else:
            self._succeed(at, count)

    def _succeed(self, at: int, count: int) -> None:
        item = self._batch[at]
        self._done[at] = (count, False, None)
        if item.publisher is not None:
            self._ledger.succeed(item.publisher, item.number)
