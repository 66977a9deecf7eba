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

from whence.engine.streams.connection_point import ConnectionPoint
from whence.engine.streams.stream_scan import StreamScan
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
_MOST_GONE = 10_000
ReflectsRow = tuple[str, int, int, bool]
"""A row of `$reflects` but for the source: the history, the first and the last tick, and whether they are lost."""


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


class StoredRanges(NamedTuple):
    """What the rows of `$reflects` say of a source: the ticks of a history that are in, and those that are lost."""

    history: str = ""
    here: RangeSet = RangeSet()
    lost: RangeSet = RangeSet()

    def rows_after(self, before: StoredRanges) -> tuple[list[ReflectsRow], list[ReflectsRow]]:
        """Return the rows that go and those that come since other ranges were stored."""
        kept = before if self.history == before.history else StoredRanges()
        gone, new = list[ReflectsRow](), list[ReflectsRow]()
        for lost, now, then in ((False, self.here, kept.here), (True, self.lost, kept.lost)):
            less, more = now.rewritten(then)
            gone += [(before.history, since + 1, upto, lost) for since, upto in less]
            new += [(self.history, since + 1, upto, lost) for since, upto in more]
        if kept is not before:
            gone = [(before.history, since + 1, upto, False) for since, upto in before.here]
            gone += [(before.history, since + 1, upto, True) for since, upto in before.lost]
        return gone, new


class SourceRecord:
    """What a broker has of one source."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.lineage: HistoryLineage | None = None  # that of the ticks
        self.reflected = RangeSet()
        self.lost = RangeSet()
        self.time = 0  # nothing more comes before it
        self._written = StoredRanges()
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
        self.lineage = None
        self._marks.clear()
        for row in internal_rows(coordinator, SOURCES):
            if row[0] == self.name and row[1]:
                eras = (pair.split(":") for pair in row[2].split(",") if pair)
                self.lineage = HistoryLineage(row[1], tuple(Era(id, int(start)) for id, start in eras))
        rows = [row[1:] for row in internal_rows(coordinator, REFLECTS) if row[0] == self.name]
        here, self.lost = (RangeSet((row[1] - 1, row[2]) for row in rows if row[3] is lost) for lost in (False, True))
        self._written = StoredRanges(rows[0][0] if rows else "", here, self.lost)
        self.reflected = here.union(self.lost)
        self._marks.append(ReflectedMark(coordinator.epoch, self.reflected, 0))

    def write_lineage(self, coordinator: Coordinator, writes: Transaction, lineage: HistoryLineage | None) -> None:
        """Write which history the source follows; None: it is to begin anew, and has none."""
        history = "" if lineage is None else lineage.history
        eras = "" if lineage is None else ",".join(f"{era.id}:{era.start}" for era in lineage.eras)
        _table(writes, SOURCES).insert(_encoded(coordinator, SOURCES, [(self.name, history, eras)]))

    def write_ranges(
        self, coordinator: Coordinator, writes: Transaction, reflected: RangeSet, lost: RangeSet
    ) -> StoredRanges:
        """Write what is reflected, as far as it is not there already; return it, for `wrote` when it is committed."""
        history = "" if self.lineage is None else self.lineage.history
        wanted = StoredRanges(history, reflected.minus(lost) if lost else reflected, lost)
        gone, new = wanted.rows_after(self._written)
        table = _table(writes, REFLECTS)
        if gone:
            table.delete(_encoded(coordinator, REFLECTS, [(self.name, *row) for row in gone]))
        if new:
            table.insert(_encoded(coordinator, REFLECTS, [(self.name, *row) for row in new]))
        return wanted

    def wrote(self, stored: StoredRanges) -> None:
        """Note that rows are committed."""
        self._written = stored

    def forget(self, coordinator: Coordinator, writes: Transaction) -> None:
        """Take the rows away: the source is gone, or begins anew."""
        gone, _ = StoredRanges().rows_after(self._written)
        if gone:
            _table(writes, REFLECTS).delete(_encoded(coordinator, REFLECTS, [(self.name, *row) for row in gone]))


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
    """The ticks of one stream that `$ticks` still has. Under the state's lock.

    entries  in the order of ticks
    arrived  the same in the order in which their rows arrived
    """

    def __init__(self, coordinator: Coordinator, source: str) -> None:
        self._coordinator, self._source = coordinator, source
        self.entries: list[TickEntry] = []
        self.arrived: list[TickEntry] = []
        self._gone = 0  # so many of `arrived` are without rows, or gone from `$ticks`
        self._next = 1  # the tid of the first row of `$ticks` that has not been read
        self._dropped = 0  # a tick up to which some may be missing

    @property
    def _kept(self) -> ConnectionPoint:
        scan = self._coordinator.catalog.flow.tables[TICKS]
        assert isinstance(scan, StreamScan)
        return scan.kept

    def refresh(self) -> None:
        """Take in what has come since."""
        kept = self._kept
        if kept.next == self._next:
            return
        if kept.next < self._next or kept.first > self._next:  # another past, or too long ago
            self.entries, self.arrived, self._gone, self._next = [], [], 0, kept.first
        codes, _ = kept.between(max(self._next, kept.first), kept.next - 1)
        self._next = kept.next
        type, words = self._coordinator.program.tables[TICKS].schema.types[0], self._coordinator.dictionary
        names = dict[int, Any]()
        for code, tick, time, back, count, at in codes.tolist():
            if code not in names:
                names[code] = decode_value(code, type, words)
            if names[code] != self._source:
                continue
            entry = TickEntry(tick, time, at - back, count)
            self.arrived.append(entry)
            if not self.entries or tick > self.entries[-1].tick:
                self.entries.append(entry)
            else:
                insort(self.entries, entry)
        if kept.first > 1 and self.entries and not self._dropped:
            self._dropped = self.entries[0].tick

    def start(self, first: int) -> int:
        """Return the tick after which every one is here, with its rows: those before the arrival number `first` are
        not."""
        kept, arrived = self._kept, self.arrived
        oldest = 0 if kept.complete or not len(kept) else int(kept.rows[0, -1])
        while self._gone < len(arrived):
            entry = arrived[self._gone]
            if entry.first >= first and entry.first + entry.rows > oldest:
                break
            self._dropped = max(self._dropped, entry.tick)
            self._gone += 1
        if self._gone > max(_MOST_GONE, len(arrived) // 2):
            del arrived[: self._gone]
            self.entries, self._gone = sorted(arrived), 0
        return self._dropped


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
