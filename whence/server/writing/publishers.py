"""Publishers: the numbers of their writes, so that a write that is sent again is done once.

A publisher numbers its writes, in rising order, gaps allowed, and sends those it has no answer to again, in the same
order. The table `publishers` has the last number of each that was done, written in the epoch of the rows themselves,
and the numbers below it that failed.

The law: a number is done at most once, and after every smaller number that is done at all; a number that was not done
is never answered as if it had been. A number that failed may be tried again as long as none behind it is done; from
then on it stays failed, and its answer is an error.

Failures live in memory until the publisher's next success stores them with its number: if the process dies before that,
nothing behind them is done, so that they are tried again. Numbers below the lowest that the publisher still awaits an
answer to are never sent again: failures among them are forgotten. Should there be too many ranges of failed numbers
left, the lowest two become one, and the numbers between them are answered with an error, too.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection
from copy import copy
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np

from whence.io.rows import encode, to_tuples
from whence.model.codes import format_value
from whence.model.errors import CatalogError, DataError, WhenceError
from whence.model.types import BIGINT, TEXT, Column, Schema
from whence.plan.algebra.program import Table
from whence.runtime import statements
from whence.runtime.writing.tables import WriteSet

if TYPE_CHECKING:
    from whence.runtime.coordinator import Coordinator
    from whence.runtime.writing.transaction import Transaction

TABLE = "publishers"
TTL = "7 days"
"""How long the number of a publisher that writes nothing more is kept."""

SCHEMA = Schema((Column("id", TEXT, nullable=False), Column("last", BIGINT), Column("failed", TEXT)))
LONGEST_ID = 200
MOST_RANGES = 100
"""Ranges of failed numbers that are kept of one publisher."""

MOST_CACHED = 10_000
"""Publishers that are kept in memory, and as many again whose failures alone are."""

_MOST_ERRORS = 16  # that are kept of one publisher
_LARGEST = 2**63 - 1
_NONE = -1  # the last number of a publisher that has none yet
Ranges = tuple[tuple[int, int], ...]
"""Numbers as disjoint ranges, both ends included, in rising order."""


def union(ranges: Ranges, others: Ranges) -> Ranges:
    """Return the numbers of both.

    >>> union(((3, 4), (7, 7)), ((5, 5),)), union(((3, 4), (6, 6)), ((5, 5),)), union((), ((5, 5),))
    (((3, 5), (7, 7)), ((3, 6),), ((5, 5),))
    """
    found: list[tuple[int, int]] = []
    for first, last in sorted((*ranges, *others)):
        if found and first <= found[-1][1] + 1:
            found[-1] = (found[-1][0], max(found[-1][1], last))
        else:
            found.append((first, last))
    extra = len(found) - MOST_RANGES
    if extra > 0:
        found[: extra + 1] = [(found[0][0], found[extra][1])]
    return tuple(found)


def remove_number(ranges: Ranges, number: int) -> Ranges:
    """Return the ranges without a number.

    >>> remove_number(((3, 5),), 4), remove_number(((3, 3),), 3)
    (((3, 3), (5, 5)), ())
    """
    found: list[tuple[int, int]] = []
    for first, last in ranges:
        if first <= number <= last:
            found += [part for part in ((first, number - 1), (number + 1, last)) if part[0] <= part[1]]
        else:
            found.append((first, last))
    return tuple(found)


def forget_below(ranges: Ranges, number: int) -> Ranges:
    """Return the ranges without what is below a number.

    >>> forget_below(((1, 2), (4, 9)), 5)
    ((5, 9),)
    """
    return tuple((max(first, number), last) for first, last in ranges if last >= number)


def format_ranges(ranges: Ranges) -> str:
    """Write ranges as text.

    >>> format_ranges(((3, 3), (7, 9)))
    '3 7-9'
    """
    return " ".join(str(first) if first == last else f"{first}-{last}" for first, last in ranges)


def parse_ranges(text: str | None) -> Ranges:
    """Read what `format_ranges` wrote.

    >>> parse_ranges("3 7-9"), parse_ranges(None)
    (((3, 3), (7, 9)), ())
    """
    found: Ranges = ()
    try:
        for part in (text or "").split():
            first, _, last = part.partition("-")
            found = (*found, (int(first), int(last or first)))
    except ValueError:
        raise DataError(f"table {TABLE}, column failed: {format_value(text)} is not a list of numbers") from None
    return found


def check_numbered(publisher: str, number: int | None) -> None:
    """Raise DataError unless this can name a write."""
    if not isinstance(publisher, str) or not 0 < len(publisher) <= LONGEST_ID:
        raise DataError(
            f"a publisher's name is text of 1 to {LONGEST_ID} characters, not {format_value(publisher):.100}"
        )
    if isinstance(number, bool) or not isinstance(number, int) or not 0 <= number <= _LARGEST:
        raise DataError(f"the number of a write is a whole number from 0 on, not {format_value(number):.100}")


@dataclass(slots=True)
class PublisherState:
    """What is known of one publisher."""

    last: int = _NONE
    failed: Ranges = ()
    errors: dict[int, BaseException] = field(default_factory=dict)  # of the latest failures

    def fail(self, number: int, error: BaseException) -> None:
        self.failed = union(self.failed, ((number, number),))
        if isinstance(error, WhenceError):
            self.errors[number] = copy(error)  # without its traceback, which holds rows
        if len(self.errors) > _MOST_ERRORS:
            del self.errors[next(iter(self.errors))]

    def fail_after_last(self, doubtful: PublisherState) -> None:
        """Take over the failures of numbers that are not done."""
        self.failed = union(self.failed, forget_below(doubtful.failed, self.last + 1))
        self.errors |= {number: error for number, error in doubtful.errors.items() if number > self.last}

    def forget_below(self, awaiting: int) -> None:
        """Forget the failures below the lowest number that is awaited."""
        if self.failed and self.failed[0][0] < awaiting:
            self.failed = forget_below(self.failed, awaiting)
            self.errors = {number: error for number, error in self.errors.items() if number >= awaiting}

    def has_failed(self, number: int) -> bool:
        return any(first <= number <= last for first, last in self.failed)


class PublisherLedger:
    """The numbers of all publishers. One thread uses it, with the writer's lock held.

    `begin`, then `is_due`, `succeed` and `fail` for each write of an epoch, `write`, and when the epoch is committed
    `commit`, or else `rollback`.
    """

    def __init__(self, coordinator: Coordinator) -> None:
        self._coordinator = coordinator
        self._known: OrderedDict[str, PublisherState] = OrderedDict()
        self._unread: OrderedDict[str, PublisherState] = OrderedDict()  # failures of publishers that are not known
        self._doubtful: OrderedDict[str, PublisherState] = OrderedDict()  # failures, unless they are done
        self._open: dict[str, PublisherState] = {}  # what the open epoch makes of them
        self._advanced: set[str] = set()  # those whose rows the open epoch writes
        self._table: Table | None = None

    def ensure_table(self) -> None:
        """Create the table, unless it is there; one with other columns is an error. Not inside a transaction."""
        coordinator = self._coordinator
        table = coordinator.program.tables.get(TABLE)
        if table is not None and table is self._table:
            return
        self.forget()
        if table is None:
            wanted = f"{TABLE} (id TEXT PRIMARY KEY, last BIGINT, failed TEXT) WITH (ttl = '{TTL}')"
            for _ in statements.execute(coordinator, f"CREATE TABLE {wanted}"):
                pass
            table = coordinator.program.tables[TABLE]
        if table.schema.names != SCHEMA.names or table.schema.types != SCHEMA.types or table.key != (0,):
            raise CatalogError(
                f"numbered writes are noted in a table {TABLE} (id TEXT PRIMARY KEY, last BIGINT, failed TEXT), but "
                f"there is one {table.schema}; rename it, or send writes without a publisher"
            )
        self._table = table

    def forget(self) -> None:
        """Read every publisher again: the table is another, or went back to an earlier epoch. Failures are kept."""
        while self._known:
            self._put_away(*self._known.popitem(last=False))
        self._table = None

    def _put_away(self, name: str, state: PublisherState) -> None:
        """Keep the failures of a publisher whose row is to be read again."""
        if state.failed:
            unread = self._unread.setdefault(name, PublisherState())
            unread.failed, unread.errors = union(unread.failed, state.failed), unread.errors | state.errors
            while len(self._unread) > MOST_CACHED:
                self._unread.popitem(last=False)

    def begin(self, writes: Transaction, publishers: Collection[str]) -> None:
        """Read the publishers of an epoch's writes."""
        self._open.clear()
        self._advanced.clear()
        missing = [name for name in publishers if name not in self._known]
        if missing:
            self._read(writes, missing)
        for name in publishers:
            self._known.move_to_end(name)
            if name in self._doubtful:
                self._known[name].fail_after_last(self._doubtful.pop(name))
        while len(self._known) > max(MOST_CACHED, len(publishers)):
            self._put_away(*self._known.popitem(last=False))

    def _read(self, writes: Transaction, names: list[str]) -> None:
        dictionary = self._coordinator.dictionary
        codes = np.array([code for name in names if (code := dictionary.find(name)) is not None], np.int64)
        for name in names:
            self._known[name] = PublisherState()
        if len(codes):
            rows, _ = self._write_set(writes).find((0,), codes.reshape(-1, 1))
            for name, last, failed in to_tuples(rows, SCHEMA, dictionary):
                self._known[name] = PublisherState(_NONE if last is None else last, parse_ranges(failed))
        for name in names:
            unread = self._unread.pop(name, None)
            if unread is not None:
                state = self._known[name]
                state.failed, state.errors = union(state.failed, unread.failed), unread.errors

    def _write_set(self, writes: Transaction) -> WriteSet:
        found = writes.table(TABLE)
        assert isinstance(found, WriteSet)
        return found

    # -- the writes of an epoch --------------------------------------------------------------------------------------

    def is_due(self, publisher: str, number: int, awaiting: int | None) -> bool:
        """Return whether a write is to be done: False if it was; its error if it failed and others came after it."""
        state = self._state(publisher)
        if awaiting is not None:
            state.forget_below(awaiting)
        if number > state.last:
            return True
        if not state.failed or not state.has_failed(number):
            return False
        raise state.errors.get(number) or DataError(
            f"write {number} of publisher {publisher} failed or was given up before, and later ones are done: send it "
            "again under a new number"
        )

    def succeed(self, publisher: str, number: int) -> None:
        """Note that a write is done in this epoch."""
        state = self._state(publisher)
        state.last = number
        if state.failed and state.has_failed(number):
            state.failed = remove_number(state.failed, number)
            state.errors.pop(number, None)
        self._advanced.add(publisher)

    def fail(self, publisher: str, number: int, error: BaseException) -> None:
        """Note that a write is not done in this epoch."""
        self._state(publisher).fail(number, error)

    def _state(self, publisher: str) -> PublisherState:
        found = self._open.get(publisher)
        if found is None:
            known = self._known[publisher]
            found = self._open[publisher] = replace(known, errors=dict(known.errors) if known.errors else {})
        return found

    def write(self, writes: Transaction) -> None:
        """Write the rows of the publishers that have something done in this epoch."""
        if self._advanced:
            states = [(name, self._open[name]) for name in self._advanced]
            rows = [(name, state.last, format_ranges(state.failed) or None) for name, state in states]
            self._write_set(writes).insert(encode(rows, SCHEMA, self._coordinator.dictionary, TABLE))

    def commit(self) -> None:
        """Keep what the epoch has made of the publishers."""
        self._known.update(self._open)
        self.rollback()

    def rollback(self) -> None:
        """Forget what the epoch has made of the publishers."""
        self._open.clear()
        self._advanced.clear()

    def note_failure(self, publisher: str, number: int, error: BaseException) -> None:
        """Note that a write was not done now: it was refused, or its epoch was lost. If it is one that was sent again,
        it may be done."""
        self._doubtful.setdefault(publisher, PublisherState()).fail(number, error)
        if len(self._doubtful) > MOST_CACHED:
            self._doubtful.popitem(last=False)
