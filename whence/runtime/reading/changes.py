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
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

import numpy as np

from whence.io import html
from whence.io.grid import SHOWN, Grid, count_rows, text_of
from whence.io.rows import expand, to_tuples
from whence.model.codes import Codes, Dictionary
from whence.model.errors import CatalogError
from whence.model.types import Schema
from whence.model.word_marks import WordMarks
from whence.plan.algebra.program import subscription_of


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


class Dated(Protocol):
    """Something that happened in an epoch."""

    @property
    def epoch(self) -> int: ...


C = TypeVar("C", bound=Dated)


class ChangeQueue(Generic[C]):
    """A feed that is read by iterating: what has been pushed and not been read yet, decoded as it is read.

    name             the relation
    columns, schema  the names of its columns; their names and types
    """

    def __init__(
        self, name: str, schema: Schema, dictionary: Dictionary, stable: Callable[[], int], poll: float | None = None
    ) -> None:
        """`stable` gives the last epoch that may be told of; with `poll`, waiting asks for it every so many seconds."""
        self.name, self.schema, self.columns = name, schema, schema.names
        self._dictionary, self._stable, self._poll = dictionary, stable, poll
        self._waiting: deque[tuple[int, Codes, Codes]] = deque()
        self._ready: deque[C] = deque()
        self._early: deque[C] = deque()  # before those that wait: decoded because their words were forgotten
        self._news = threading.Condition()
        self._end: str | None = None

    def __iter__(self) -> Iterator[C]:
        while True:
            until = self._stable() if self._end is None else None
            while (change := self._next(until)) is not None:
                yield change
            if not self._waiting and not self._early:
                return

    def follow(self, timeout: float | None = None) -> Iterator[C]:
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

    def _next(self, until: int | None) -> C | None:
        with self._news:
            while not self._ready:  # an epoch may have nothing to tell
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

    def _made(self, epoch: int, row: tuple[Any, ...], sign: int) -> C:
        """Return what a row that came or went is read as."""
        raise NotImplementedError

    def _decode(self, epoch: int, rows: Codes, counts: Codes) -> Iterator[C]:
        """Yield what an epoch changed, withdrawals first."""
        order = np.argsort(counts > 0, kind="stable")
        rows, counts = rows[order], counts[order]
        values = to_tuples(expand(rows, np.abs(counts)), self.schema, self._dictionary)
        signs = np.repeat(np.sign(counts), np.abs(counts)).tolist()
        return (self._made(epoch, row, sign) for row, sign in zip(values, signs, strict=True))

    def mark_words(self, marks: WordMarks) -> None:
        """Mark nothing: what has not been read is decoded before words are forgotten."""

    def decode(self, codes: Codes) -> None:
        """Decode what has not been read yet: its words may be forgotten afterwards."""
        with self._news:
            while self._waiting:
                self._early.extend(self._decode(*self._waiting.popleft()))

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


class Changes(ChangeQueue[Change]):
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

    def _made(self, epoch: int, row: tuple[Any, ...], sign: int) -> Change:
        return Change(epoch, row, sign)

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


class Feeds:
    """Who listens to which relation. A feed nobody holds any more is forgotten."""

    def __init__(self) -> None:
        self._by_name: dict[str, list[weakref.ref[Feed]]] = {}  # lists are replaced, never changed
        self._names: frozenset[str] | None = None  # of `names`, until it changes
        self._apart: dict[str, dict[int, str]] = {}  # by the view of a template and the id of a subscription
        self._guard = threading.Lock()

    def __contains__(self, name: str) -> bool:
        return name in self._by_name or name in self._apart

    def __bool__(self) -> bool:
        return bool(self._by_name)

    @property
    def names(self) -> frozenset[str]:
        """The relations that are listened to; the view of a template where a subscription is."""
        with self._guard:
            if self._names is None:
                self._names = frozenset(_source(name) for name in self._by_name)
            return self._names

    def add(self, feed: Feed) -> None:
        with self._guard:
            self._by_name[feed.name] = [*self._by_name.get(feed.name, ()), weakref.ref(feed)]
            self._names = None
            apart = subscription_of(feed.name)
            if apart is not None:
                self._apart.setdefault(apart[0], {})[apart[1]] = feed.name

    def remove(self, feed: Feed) -> None:
        self._let_go(feed.name, feed)

    def _let_go(self, name: str, gone: Feed | None = None) -> None:
        """Forget a feed of a relation, and those that nobody holds any more."""
        with self._guard:
            left = [each for each in self._by_name.get(name, ()) if each() is not None and each() is not gone]
            if left:
                self._by_name[name] = left
            else:
                self._forget(name)

    def _forget(self, name: str) -> None:
        self._by_name.pop(name, None)
        self._names = None
        apart = subscription_of(name)
        if apart is not None:
            followed = self._apart.get(apart[0], {})
            followed.pop(apart[1], None)
            if not followed:
                self._apart.pop(apart[0], None)

    def push(self, name: str, epoch: int, rows: Codes, counts: Codes) -> None:
        """Add what an epoch changed; of the view of a template, each subscription's rows to those who follow it."""
        for id, own in self._split(name, rows):
            self._push(id, epoch, np.ascontiguousarray(rows[own, 1:]), counts[own])
        if name in self._by_name:
            self._push(name, epoch, rows, counts)

    def _push(self, name: str, epoch: int, rows: Codes, counts: Codes) -> None:
        is_gone = False
        for each in self._by_name.get(name, ()):
            feed = each()
            if feed is None:
                is_gone = True
            else:
                feed.push(epoch, rows, counts)
        if is_gone:
            self._let_go(name)

    def _split(self, name: str, rows: Codes) -> Iterator[tuple[str, Codes]]:
        """Yield the name of each subscription that is followed and has changed, and the places of its rows."""
        if name not in self._apart or not len(rows):
            return
        followed = dict(self._apart.get(name, ()))
        order = np.argsort(rows[:, 0], kind="stable")
        ids, starts = np.unique(rows[order, 0], return_index=True)
        ends = np.append(starts[1:], len(rows))
        wanted = np.flatnonzero(np.isin(ids, np.fromiter(followed, np.int64, len(followed))))
        for at in wanted.tolist():
            yield followed[int(ids[at])], order[starts[at] : ends[at]]

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
            return [feed for feeds in self._by_name.values() for each in feeds if (feed := each()) is not None]

    def end(self, names: list[str] | None = None, why: str = "", forget: bool = False) -> None:
        with self._guard:
            ended = None if names is None else set(names)
            for name in [n for n in self._by_name if ended is None or n in ended or _source(n) in ended]:
                feeds = self._by_name[name]
                self._forget(name)
                for each in feeds:
                    if (feed := each()) is not None:
                        feed.end(why, forget)


def _source(name: str) -> str:
    """Return the relation whose changes a name is given."""
    apart = subscription_of(name)
    return name if apart is None else apart[0]
