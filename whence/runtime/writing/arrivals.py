"""Arrivals: which rows of streams came in which epoch.

Rows of all streams are numbered by one counter (`$at`), so for each epoch that brought some it is enough to know the
last number: the rows of any stream in the epochs after `since` and up to `upto` are those whose number is above that of
`since` and at most that of `upto`. So whoever asks for a range of epochs again, perhaps after a restart, is answered
from the rows that the stream retains.

The law: for epochs that are known (`start` and later), `span(since, upto)` has exactly the rows of those epochs. The
last `KEPT` epochs are known, and those of them that an image has after a restart.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from whence.engine.core.epoch import Epoch
from whence.model.codes import Codes
from whence.plan.algebra.program import Table

if TYPE_CHECKING:
    from whence.runtime.backend import PartitionBackend

KEPT = 100_000
"""Epochs that are known at least, if there were so many."""

RECENT = 1_000
"""Epochs whose times are known, whatever they brought."""

IN_IMAGE = 10_000
"""Epochs that an image has."""


class EpochArrivals:
    """The numbers and times of the last epochs that brought rows of streams.

    >>> arrivals = EpochArrivals(); arrivals.add(3, 1_000, 7); arrivals.add(5, 2_000, 9)
    >>> arrivals.span(0, 3), arrivals.span(3, 5), arrivals.span(3, 4), arrivals.start
    ((0, 7), (7, 9), (7, 7), 0)
    >>> [each.tolist() for each in arrivals.ticks(np.array([1, 7, 8]))]
    [[3, 3, 5], [1000, 1000, 2000]]
    """

    def __init__(self) -> None:
        self.start = 0  # rows of epochs up to this one are not told apart
        self._first = 0  # the number of the last row of these
        self._epochs: list[int] = []
        self._times: list[int] = []
        self._numbers: list[int] = []
        self._last: deque[tuple[int, int]] = deque(maxlen=RECENT)  # the last epochs of all, and their times

    def time_of(self, epoch: int) -> int:
        """Return the time of an epoch, or of an earlier one; 0 if that is too long ago."""
        return next((time for number, time in reversed(self._last) if number <= epoch), 0)

    def reach(self, epoch: int, time: int) -> None:
        """Note the time of an epoch, whatever it brought."""
        self._last.append((epoch, time))

    def note(self, epoch: Epoch, tables: Mapping[str, Table], backend: PartitionBackend) -> None:
        """Take in an epoch that is committed."""
        self.reach(epoch.number, epoch.time)
        if (
            epoch.sections
            or epoch.source_positions
            or any(name in tables and tables[name].stream is not None for name in epoch.deltas)
        ):
            last = backend.flow.last_at
            if last > (self._numbers[-1] if self._numbers else self._first):
                self.add(epoch.number, epoch.time, last)

    def add(self, epoch: int, time: int, last: int) -> None:
        """Note the number of the last row that came in an epoch."""
        self._epochs.append(epoch)
        self._times.append(time)
        self._numbers.append(last)
        if len(self._epochs) >= 2 * KEPT:
            gone = len(self._epochs) - KEPT
            self.start, self._first = self._epochs[gone - 1], self._numbers[gone - 1]
            del self._epochs[:gone], self._times[:gone], self._numbers[:gone]

    def last_number(self, epoch: int) -> int:
        """Return the number of the last row that had come by an epoch; of those before the known ones as of `start`."""
        at = bisect_right(self._epochs, epoch)
        return self._numbers[at - 1] if at else self._first

    def span(self, since: int, upto: int) -> tuple[int, int]:
        """Return the numbers that rows of the epochs after `since` and up to `upto` are above, and at most. From 0 on
        all rows are meant, whether their epochs are known or not."""
        return self.last_number(since) if since else 0, self.last_number(upto)

    def next_epoch(self, since: int, upto: int) -> int | None:
        """Return the first epoch after `since` and up to `upto` that brought rows."""
        if since < self.start <= upto:
            return self.start
        at = bisect_right(self._epochs, since)
        return self._epochs[at] if at < len(self._epochs) and self._epochs[at] <= upto else None

    def ticks(self, numbers: Codes) -> tuple[Codes, Codes]:
        """Return the epochs in which rows with these numbers came, and their times; of rows before the known epochs
        `start`, and no time."""
        if not len(numbers):
            return numbers[:0], numbers[:0]
        lowest, highest = int(numbers.min()), int(numbers.max())
        among = slice(bisect_left(self._numbers, lowest), bisect_left(self._numbers, highest) + 1)
        epochs, times, lasts = self._epochs[among], self._times[among], self._numbers[among]
        if lowest <= self._first:
            epochs, times, lasts = [self.start, *epochs], [0, *times], [self._first, *lasts]
        at = np.searchsorted(np.array(lasts, np.int64), numbers, "left")
        return np.array(epochs, np.int64)[at], np.array(times, np.int64)[at]

    def image(self) -> list[int]:
        """Return the last epochs, for an image."""
        kept = slice(-IN_IMAGE, None)
        parts = zip(self._epochs[kept], self._times[kept], self._numbers[kept], strict=True)
        gone = len(self._epochs) - IN_IMAGE
        first = [self._epochs[gone - 1], self._numbers[gone - 1]] if gone > 0 else [self.start, self._first]
        return [*first, *(number for part in parts for number in part)]

    def restore(self, image: Sequence[int], epoch: int, last: int) -> None:
        """Begin with what an image has; with the epoch of the image, if it is an older one without."""
        self.__init__()  # type: ignore[misc]  # it begins anew
        self.start, self._first = image[:2] if image else (epoch, last)
        for at in range(2, len(image), 3):
            self.add(*image[at : at + 3])
