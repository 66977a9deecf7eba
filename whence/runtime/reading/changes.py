"""The changes of a view, epoch by epoch, as they happen.

The invariant: for one iterator, the snapshot it began from plus every change it has yielded equals the view as of the
last epoch it has reached. Within an epoch a row occurs with one sign only, withdrawals before additions.
"""

from __future__ import annotations

import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any, NamedTuple, Protocol

import numpy as np

from whence.io import html
from whence.io.grid import SHOWN, Grid, count_rows, text_of
from whence.io.rows import expand, to_tuples
from whence.model.codes import Codes, Dictionary
from whence.model.errors import CatalogError
from whence.model.types import Schema
from whence.model.word_marks import WordMarks


class Feed(Protocol):
    """Is given the changes of a relation with every epoch, before that is stable."""

    name: str

    def push(self, epoch: int, rows: Codes, counts: Codes) -> None:
        """Add what an epoch changed; the rows are not to be written to afterwards."""

    def mark_words(self, marks: WordMarks) -> None:
        """Mark the words that must not be forgotten."""

    def decode(self, codes: Codes) -> None:
        """Do without the words of these codes: they are about to be forgotten."""

    def end(self, why: str = "", forget: bool = False) -> None:
        """No more will come."""


class Change(NamedTuple):
    """A row that came or went in an epoch; a row that came twice is two changes.

    epoch  the number of the epoch
    row    the row, a tuple
    sign   1 for a row that came, -1 for one that went

    >>> db = whence.open(); _ = db.execute("CREATE TABLE a (x INT)"); changes = db.changes("a")
    >>> _ = db.insert("a", (7,)); change = next(iter(changes)); change.epoch, change.row, change.sign
    (1, (7,), 1)
    """

    epoch: int
    row: tuple[Any, ...]
    sign: int

    def _repr_html_(self) -> str:
        shown = f"{'+' if self.sign > 0 else '−'} ({', '.join(map(text_of, self.row))})"
        return html.fragment(
            html.line(shown, "new" if self.sign > 0 else "gone"), html.line(f"epoch {self.epoch:,}", "dim")
        )


class Changes:
    """The changes of one view since this object was made (`Database.changes`). Iterating ends when it has caught up,
    and may be resumed.

    name             the view
    columns, schema  the names of its columns; their names and types

    >>> db = whence.open(); _ = db.execute("CREATE TABLE a (x INT); CREATE VIEW b AS SELECT DISTINCT x FROM a")
    >>> changes = db.changes("b")
    >>> db.insert("a", [(1,), (1,)]); list(changes)
    2
    [Change(epoch=1, row=(1,), sign=1)]
    >>> db.delete("a", [(1,)]), list(changes)
    (1, [])
    """

    def __init__(
        self, name: str, schema: Schema, dictionary: Dictionary, stable: Callable[[], int], poll: float | None = None
    ) -> None:
        """`stable` gives the last epoch that may be told of; with `poll`, waiting asks for it every so many seconds."""
        self.name, self.schema, self.columns = name, schema, schema.names
        self._dictionary, self._stable, self._poll = dictionary, stable, poll
        self._waiting: deque[tuple[int, Codes, Codes]] = deque()
        self._ready: deque[Change] = deque()
        self._early: deque[Change] = deque()  # before those that wait: decoded because their words were forgotten
        self._news = threading.Condition()
        self._end: str | None = None

    def __iter__(self) -> Iterator[Change]:
        while True:
            until = self._stable() if self._end is None else None
            while (change := self._next(until)) is not None:
                yield change
            if not self._waiting and not self._early:
                return

    def follow(self, timeout: float | None = None) -> Iterator[Change]:
        """Yield changes for as long as the database is open; end after `timeout` seconds in which nothing changed.

        >>> db = whence.open(); _ = db.execute("CREATE TABLE a (x INT)"); changes = db.changes("a")
        >>> _ = db.insert("a", [(1,), (2,)])
        >>> [change.row for change in changes.follow(timeout=0.01)]
        [(1,), (2,)]
        """
        quiet_since = time.monotonic()
        while True:
            for change in self:
                yield change
                quiet_since = time.monotonic()
            with self._news:
                if self._waiting or self._early:
                    continue
                if self._end is not None:
                    return
                left = None if timeout is None else quiet_since + timeout - time.monotonic()
                if left is not None and left <= 0:
                    return
                pauses = [pause for pause in (left, self._poll) if pause is not None]
                self._news.wait(min(pauses, default=None))

    def _next(self, until: int | None) -> Change | None:
        with self._news:
            if not self._ready:
                if self._early:
                    return None if until is not None and self._early[0].epoch > until else self._early.popleft()
                if not self._waiting:
                    if self._end:
                        raise CatalogError(self._end)
                    return None
                if until is not None and self._waiting[0][0] > until:
                    return None
                self._ready.extend(self._decode(*self._waiting.popleft()))
            return self._ready.popleft()

    def _decode(self, epoch: int, rows: Codes, counts: Codes) -> Iterator[Change]:
        """Yield what an epoch changed, withdrawals first."""
        order = np.argsort(counts > 0, kind="stable")
        rows, counts = rows[order], counts[order]
        values = to_tuples(expand(rows, np.abs(counts)), self.schema, self._dictionary)
        signs = np.repeat(np.sign(counts), np.abs(counts)).tolist()
        return (Change(epoch, row, sign) for row, sign in zip(values, signs, strict=True))

    def mark_words(self, marks: WordMarks) -> None:
        """Mark nothing: what has not been read is decoded before words are forgotten."""

    def decode(self, codes: Codes) -> None:
        """Decode what has not been read yet: its words may be forgotten afterwards."""
        with self._news:
            while self._waiting:
                self._early.extend(self._decode(*self._waiting.popleft()))

    def _repr_html_(self) -> str:
        """Show the changes that the next iteration yields first, and how many there are; they stay to be yielded."""
        until = self._stable() if self._end is None else None
        with self._news:
            ready = [*self._ready, *(c for c in self._early if until is None or c.epoch <= until)]
            shown = ready[:SHOWN]
            waiting = [w for w in self._waiting if until is None or w[0] <= until]
            total = len(ready) + sum(int(np.abs(counts).sum()) for _, _, counts in waiting)
            for epoch, rows, counts in waiting if len(shown) < SHOWN else ():
                order = np.argsort(counts > 0, kind="stable")[: SHOWN - len(shown)]
                shown += islice(self._decode(epoch, rows[order], counts[order]), SHOWN - len(shown))
        return Grid(
            ["epoch", "", *self.columns],
            [(change.epoch, "+" if change.sign > 0 else "−", *change.row) for change in shown],
            total,
            f"changes of {self.name}",
            count_rows(len(shown), total, "change") + " to be read",
            ["", "", *map(str, self.schema.types)],
            signs=["+" if change.sign > 0 else "-" for change in shown],
        ).html()

    def push(self, epoch: int, rows: Codes, counts: Codes) -> None:
        """Add what an epoch changed; the rows are not to be written to afterwards."""
        with self._news:
            self._waiting.append((epoch, rows, counts))
            self._news.notify_all()

    def end(self, why: str = "", forget: bool = False) -> None:
        """No more will come. With a reason, iterating past the last change raises it as a CatalogError.

        With `forget` what has come and was not told of has not happened."""
        with self._news:
            self._end = why
            if forget:
                self._waiting.clear()
                self._early.clear()
            self._news.notify_all()


class Feeds:
    """Who listens to which relation. A feed nobody holds any more is forgotten."""

    def __init__(self) -> None:
        self._by_name: dict[str, weakref.WeakSet[Feed]] = {}
        self._guard = threading.Lock()

    def __contains__(self, name: str) -> bool:
        return name in self._by_name

    def __bool__(self) -> bool:
        return bool(self._by_name)

    @property
    def names(self) -> list[str]:
        """What is listened to."""
        with self._guard:
            return list(self._by_name)

    def add(self, feed: Feed) -> None:
        with self._guard:
            self._by_name.setdefault(feed.name, weakref.WeakSet()).add(feed)

    def remove(self, feed: Feed) -> None:
        with self._guard:
            feeds = self._by_name.get(feed.name)
            if feeds is not None:
                feeds.discard(feed)
                if not feeds:
                    del self._by_name[feed.name]

    def push(self, name: str, epoch: int, rows: Codes, counts: Codes) -> None:
        feeds = list(self._by_name.get(name, ()))
        if not feeds:
            with self._guard:
                self._by_name.pop(name, None)
        for feed in feeds:
            feed.push(epoch, rows, counts)

    def mark_words(self, marks: WordMarks) -> None:
        """Mark the words that feeds cannot do without."""
        for feed in self._all():
            feed.mark_words(marks)

    def decode(self, codes: Codes) -> None:
        """Let every feed do without the words of these codes."""
        for feed in self._all():
            feed.decode(codes)

    def _all(self) -> list[Feed]:
        with self._guard:
            return [feed for feeds in self._by_name.values() for feed in feeds]

    def end(self, names: list[str] | None = None, why: str = "", forget: bool = False) -> None:
        with self._guard:
            for name in list(self._by_name) if names is None else names:
                for feed in self._by_name.pop(name, ()):
                    feed.end(why, forget)
