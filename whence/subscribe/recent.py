"""The recent changes of one relation, shared by all who follow it.

A ring of the last epochs' changes, as codes, bounded in bytes: however many subscribers there are and however slow they
are, a change is kept once. A subscriber at a position that the ring still reaches gets the net difference from there;
one further back needs the state.

The law: for `start <= since <= upto`, the relation as of `since` plus `difference(since, upto)` is the relation as of
`upto`. Pushed to by the thread that commits, read by others.
"""

from __future__ import annotations

import threading
from bisect import bisect_right
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from whence.engine.core.batch import consolidate
from whence.engine.core.operator import Batch
from whence.model.codes import Codes
from whence.model.types import Schema
from whence.model.word_marks import WordMarks

RING_BYTES = 4 << 20
_OVERHEAD = 256  # bytes of an entry beside its arrays


class EpochChange(NamedTuple):
    """What one epoch changed."""

    epoch: int
    time: int
    rows: Codes
    counts: Codes

    @property
    def bytes(self) -> int:
        return int(self.rows.nbytes + self.counts.nbytes) + _OVERHEAD


class RecentChanges:
    """The last changes of a relation since an epoch.

    >>> recent = RecentChanges(in_order=False, start=3)
    >>> recent.push(5, 0, np.array([[7]]), np.array([1])); recent.push(6, 0, np.array([[7]]), np.array([-1]))
    >>> recent.difference(3, 5).ann.tolist(), len(recent.difference(3, 6).ann), recent.reaches(2)
    ([1], 0, False)
    """

    def __init__(self, in_order: bool, start: int, limit: int = RING_BYTES) -> None:
        """`in_order` is for a stream: rows only come, and their order is kept."""
        self.start = start  # every change after this epoch is here
        self._in_order, self._limit = in_order, limit
        self._entries: list[EpochChange] = []
        self._epochs: list[int] = []
        self._bytes = 0
        self._guard = threading.Lock()

    def push(self, epoch: int, time: int, rows: Codes, counts: Codes) -> None:
        """Add what an epoch changed; the arrays are not to be written to afterwards."""
        entry = EpochChange(epoch, time, rows, counts)
        with self._guard:
            self._entries.append(entry)
            self._epochs.append(epoch)
            self._bytes += entry.bytes
            if self._bytes > self._limit:
                self._shrink()

    def _shrink(self) -> None:
        """Let go of the oldest changes, a quarter of the ring at a time; the newest one always stays."""
        gone = 0
        while gone < len(self._entries) - 1 and self._bytes > self._limit * 3 // 4:
            self._bytes -= self._entries[gone].bytes
            gone += 1
        if gone:
            self.start = self._epochs[gone - 1]
            del self._entries[:gone], self._epochs[:gone]

    def forget(self, start: int) -> None:
        """Let go of all changes: from now on only those after `start` are known."""
        with self._guard:
            self._entries, self._epochs, self._bytes, self.start = [], [], 0, start

    @property
    def bytes(self) -> int:
        """The memory that the changes take."""
        return self._bytes

    def reaches(self, since: int) -> bool:
        """Return whether the difference from an epoch on is known."""
        return since >= self.start

    def next_change(self, since: int, upto: int) -> int | None:
        """Return the first epoch after `since` and up to `upto` in which the relation changed, if there is one."""
        with self._guard:
            at = bisect_right(self._epochs, since)
            return self._epochs[at] if at < len(self._epochs) and self._epochs[at] <= upto else None

    def last_change(self, upto: int) -> tuple[int, int] | None:
        """Return the last epoch up to `upto` in which the relation changed, and its time."""
        with self._guard:
            at = bisect_right(self._epochs, upto)
            return (self._entries[at - 1].epoch, self._entries[at - 1].time) if at else None

    def rows_between(self, since: int, upto: int) -> int:
        """Return how many rows changed after `since` and up to `upto`, before any of them cancel out.

        >>> recent = RecentChanges(in_order=False, start=0); recent.push(1, 0, np.array([[7], [8]]), np.array([1, 1]))
        >>> recent.rows_between(0, 1), recent.rows_between(1, 5)
        (2, 0)
        """
        with self._guard:
            first, last = bisect_right(self._epochs, since), bisect_right(self._epochs, upto)
            return sum(len(self._entries[place].counts) for place in range(first, last))

    def between(self, since: int, upto: int) -> list[EpochChange] | None:
        """Return the changes after `since` and up to `upto`, oldest first; None if they are not known any more."""
        with self._guard:
            if since < self.start:
                return None
            return self._entries[bisect_right(self._epochs, since) : bisect_right(self._epochs, upto)]

    def net(self, changes: list[EpochChange]) -> Batch:
        """Return what changes that follow each other come to."""
        if not changes:
            return Batch.empty(0)
        if len(changes) == 1:
            return Batch(changes[0].rows, changes[0].counts)
        rows, counts = np.concatenate([e.rows for e in changes]), np.concatenate([e.counts for e in changes])
        return Batch(rows, counts) if self._in_order else consolidate(Batch(rows, counts))

    def difference(self, since: int, upto: int) -> Batch | None:
        """Return the net change after `since` and up to `upto`; None if it is not known any more."""
        found = self.between(since, upto)
        return None if found is None else self.net(found)

    def mark_words(self, marks: WordMarks, schema: Schema) -> None:
        """Mark the words that the changes refer to, so that they are not forgotten."""
        for rows in self._rows():
            marks.rows(rows, schema.types)

    def _rows(self) -> Iterator[Codes]:
        with self._guard:
            found = [entry.rows for entry in self._entries]
        return iter(found)
