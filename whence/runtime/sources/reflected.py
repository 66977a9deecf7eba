"""The ticks that a broker reflects, as rows of tables that only it sees.

| table       | a row says |
|-------------|-------------|
| `$sources`  | which history a source follows, and its eras |
| `$reflects` | that the ticks from `first` to `last` are in, or lost |
| `$released` | up to which tick the ordered twin of a stream has its rows (`ordered.py`) |
| `$ticks`    | which rows of a stream came in a tick: `count` rows, the first of them `back` arrivals before this row |

They are written in the transactions that write the rows themselves, so both are in the log, in images and in backups,
or neither. The law: the rows of a source are those of its history at exactly the ticks that are reflected.

`SourceRecord` is the same in memory: as of the last commit, and as of the last epochs, since only what is stable is
told to brokers below. Silence alone is not written at once: who forgets it asks again.
"""

from __future__ import annotations

from bisect import insort
from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from whence.io.rows import encode, to_tuples
from whence.model.codes import Codes, decode_value
from whence.plan.algebra.program import INTERNAL
from whence.runtime.writing.stream_writes import StreamWriteSet
from whence.runtime.writing.tables import WriteSet
from whence.runtime.writing.transaction import Transaction
from whence.sql import statements as st
from whence.sql.parse import parse_one
from whence.subscribe.positions import Era, HistoryLineage
from whence.subscribe.ranges import RangeSet

if TYPE_CHECKING:
    from whence.runtime.coordinator import Coordinator

SOURCES, REFLECTS, TICKS, RELEASED = INTERNAL
KEPT_TICKS = 200_000
"""Ticks with rows that are told apart, of all streams."""

_DECLARED = (
    f'CREATE TABLE "{SOURCES}" (source TEXT PRIMARY KEY, history TEXT, eras TEXT)',
    f'CREATE TABLE "{REFLECTS}" (source TEXT, history TEXT, first BIGINT, last BIGINT, lost BOOLEAN)',
    f'CREATE TABLE "{RELEASED}" (source TEXT PRIMARY KEY, tick BIGINT, time BIGINT)',
    f'CREATE STREAM "{TICKS}" (source TEXT, tick BIGINT, time BIGINT, back BIGINT, count BIGINT)'
    f" WITH (retain = '{KEPT_TICKS} rows')",
)
_MOST_MARKS = 10_000


def declare_tables(coordinator: Coordinator) -> None:
    """Make the tables, unless they are there."""
    for sql in _DECLARED:
        create = parse_one(sql)
        assert isinstance(create, st.CreateTable)
        if create.table.name not in coordinator.program.tables:
            coordinator.definitions.create_table(create, internal=True)


class ReflectedMark(NamedTuple):
    """What was reflected as of an epoch of ours: ticks, and the time up to which all are known."""

    epoch: int
    reflected: RangeSet
    time: int


class SourceRecord:
    """What a broker has of one source."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.lineage: HistoryLineage | None = None  # that of the ticks
        self.reflected = RangeSet()
        self.lost = RangeSet()
        self.time = 0  # nothing more comes before it
        self._written: set[tuple[str, int, int, bool]] = set()  # the rows of `$reflects`
        self._marks: deque[ReflectedMark] = deque(maxlen=_MOST_MARKS)
        self._released: deque[tuple[int, int]] = deque(maxlen=_MOST_MARKS)

    def note(self, epoch: int, reflected: RangeSet, time: int | None) -> None:
        """Note what is reflected as of an epoch, which is committed."""
        self.reflected, self.time = reflected, max(self.time, time or 0)
        if self._marks and self._marks[-1].epoch == epoch:
            self._marks.pop()
        self._marks.append(ReflectedMark(epoch, reflected, self.time))

    def as_of(self, epoch: int) -> ReflectedMark:
        """Return what was reflected as of an epoch."""
        for mark in reversed(self._marks):
            if mark.epoch <= epoch:
                return mark
        return ReflectedMark(epoch, RangeSet(), 0)

    def note_released(self, epoch: int, tick: int) -> None:
        """Note up to which tick the ordered twin has its rows, as of an epoch."""
        self._released.append((epoch, tick))

    def released_as_of(self, epoch: int) -> int | None:
        """Return up to which tick the ordered twin had its rows; None if that is not known."""
        return next((tick for at, tick in reversed(self._released) if at <= epoch), None)

    @property
    def frontier(self) -> tuple[int, str, int]:
        """The time, history and tick that everything which is still to come is behind."""
        history = "" if self.lineage is None else self.lineage.history
        return self.time, history, self.reflected.horizon

    @property
    def marks(self) -> list[ReflectedMark]:
        """What was reflected as of the last epochs, oldest first."""
        return list(self._marks)

    # -- rows --------------------------------------------------------------------------------------------------------

    def load(self, coordinator: Coordinator) -> None:
        """Read what the tables say. Called while the state is looked at."""
        self.lineage, self._written = None, set()
        self._marks.clear()
        for row in internal_rows(coordinator, SOURCES):
            if row[0] == self.name and row[1]:
                eras = (pair.split(":") for pair in row[2].split(",") if pair)
                self.lineage = HistoryLineage(row[1], tuple(Era(id, int(start)) for id, start in eras))
        self._written = {row[1:] for row in internal_rows(coordinator, REFLECTS) if row[0] == self.name}
        self.reflected = RangeSet((first - 1, last) for _, first, last, _ in self._written)
        self.lost = RangeSet((first - 1, last) for _, first, last, lost in self._written if lost)
        self._marks.append(ReflectedMark(coordinator.epoch, self.reflected, 0))

    def write_lineage(self, coordinator: Coordinator, writes: Transaction, lineage: HistoryLineage | None) -> None:
        """Write which history the source follows; None: it is to begin anew, and has none."""
        history = "" if lineage is None else lineage.history
        eras = "" if lineage is None else ",".join(f"{era.id}:{era.start}" for era in lineage.eras)
        _table(writes, SOURCES).insert(_encoded(coordinator, SOURCES, [(self.name, history, eras)]))

    def write_ranges(
        self, coordinator: Coordinator, writes: Transaction, reflected: RangeSet, lost: RangeSet
    ) -> set[tuple[str, int, int, bool]]:
        """Write what is reflected; return the rows, for `wrote` when they are committed."""
        history = "" if self.lineage is None else self.lineage.history
        here = reflected.minus(lost) if len(lost) else reflected
        wanted = {(history, since + 1, upto, False) for since, upto in here}
        wanted |= {(history, since + 1, upto, True) for since, upto in lost}
        table = _table(writes, REFLECTS)
        gone, new = self._written - wanted, wanted - self._written
        if gone:
            table.delete(_encoded(coordinator, REFLECTS, [(self.name, *row) for row in sorted(gone)]))
        if new:
            table.insert(_encoded(coordinator, REFLECTS, [(self.name, *row) for row in sorted(new)]))
        return wanted

    def wrote(self, rows: set[tuple[str, int, int, bool]]) -> None:
        """Note that rows are committed."""
        self._written = rows

    def forget(self, coordinator: Coordinator, writes: Transaction) -> None:
        """Take the rows away: the source is gone, or begins anew."""
        if self._written:
            rows = [(self.name, *row) for row in sorted(self._written)]
            _table(writes, REFLECTS).delete(_encoded(coordinator, REFLECTS, rows))


def write_ticks(
    coordinator: Coordinator, writes: Transaction, source: str, runs: list[tuple[int, int, int]], rows: int
) -> None:
    """Note the ticks of rows that were just appended to a stream, so many of them."""
    offset, found = 0, list[tuple[str, int, int, int, int]]()
    for place, (tick, time, count) in enumerate(runs):
        found.append((source, tick, time, rows + place - offset, count))
        offset += count
    if found:
        pending = writes.table(TICKS)
        assert isinstance(pending, StreamWriteSet)
        pending.insert(_encoded(coordinator, TICKS, found))


class TickEntry(NamedTuple):
    """The rows of one tick: the arrival number of the first, and how many there are."""

    tick: int
    time: int
    first: int
    rows: int


class TickIndex:
    """The ticks of one stream that `$ticks` still has, in their order. Under the state's lock."""

    def __init__(self, coordinator: Coordinator, source: str) -> None:
        self._coordinator, self._source = coordinator, source
        self.entries: list[TickEntry] = []
        self._next = 1  # the tid of the first row of `$ticks` that has not been read
        self._dropped = 0  # a tick up to which some may be missing

    def refresh(self) -> None:
        """Take in what has come since."""
        coordinator = self._coordinator
        kept = coordinator.catalog.flow.streams[TICKS].kept
        if kept.next == self._next:
            return
        if kept.next < self._next or kept.first > self._next:  # another past, or too long ago
            self.entries, self._next = [], kept.first
        codes, _ = kept.between(max(self._next, kept.first), kept.next - 1)
        self._next = kept.next
        for place in np.flatnonzero(codes[:, 0] == self._code(codes[:, 0])):
            _, tick, time, back, count, at = (int(code) for code in codes[place])
            entry = TickEntry(tick, time, at - back, count)
            if not self.entries or tick > self.entries[-1].tick:
                self.entries.append(entry)
            else:
                insort(self.entries, entry)
        if kept.first > 1 and self.entries and not self._dropped:
            self._dropped = self.entries[0].tick

    def _code(self, codes: Codes) -> int:
        """Return which of some codes is that of the source's name."""
        type, words = self._coordinator.program.tables[TICKS].schema.types[0], self._coordinator.dictionary
        found = (int(code) for code in np.unique(codes) if decode_value(int(code), type, words) == self._source)
        return next(found, -1)

    @property
    def start(self) -> int:
        """The tick after which every one is here."""
        kept = self._coordinator.catalog.flow.streams[TICKS].kept
        if kept.complete:
            return 0
        oldest = int(kept.rows[0, -1]) if len(kept) else 0
        gone = [entry.tick for entry in self.entries if entry.first + entry.rows <= oldest]
        return max([*gone, self._dropped])


def internal_rows(coordinator: Coordinator, table: str) -> list[tuple[Any, ...]]:
    """Return the rows of a table of the database's own. Called while the state is looked at."""
    if table not in coordinator.program.tables:
        return []
    rows, _ = coordinator.reader.contents(table)
    return to_tuples(rows, coordinator.reader.schema(table), coordinator.dictionary)


def _encoded(coordinator: Coordinator, table: str, rows: Sequence[tuple[Any, ...]]) -> Codes:
    return encode(rows, coordinator.program.tables[table].schema, coordinator.dictionary, table)


def _table(writes: Transaction, name: str) -> WriteSet:
    found = writes.table(name)
    assert isinstance(found, WriteSet)
    return found
