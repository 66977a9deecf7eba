"""What a served database has been: the rows of its base relations by epoch, and what its sources reflected.

It is kept apart from the database, from the changes that its commits pass to feeds, so that the oracle can cut a
history at any ticks. A database that comes back without epochs it had begins another era (`positions`), whose log goes
on from the last epoch that is left.
"""

from __future__ import annotations

from collections import Counter
from typing import Any, NamedTuple

from whence.io.rows import to_tuples
from whence.model.codes import Codes
from whence.model.word_marks import WordMarks
from whence.plan.algebra.program import Table
from whence.plan.order_sensitive import ordered_views
from whence.runtime.coordinator import Coordinator
from whence.runtime.sources.doubt import records_read
from whence.subscribe.positions import HistoryLineage, Position
from whence.subscribe.ranges import RangeSet
from whence.subscribe.simulate.oracle import SimulationError

AnyRow = tuple[Any, ...]


class SourceMark(NamedTuple):
    """What was reflected of a source: the history and its ticks."""

    lineage: HistoryLineage | None
    reflected: RangeSet
    lost: RangeSet


class EraLog:
    """The epochs of one era, those before it included."""

    def __init__(self, lineage: HistoryLineage, before: EraLog | None = None, upto: int = 0) -> None:
        self.lineage = lineage
        self.deltas: dict[int, dict[str, Counter[AnyRow]]] = {}
        self.marks: dict[str, list[tuple[int, SourceMark]]] = {}  # by source, with the epochs that they hold from
        if before is not None:
            self.deltas = {epoch: delta for epoch, delta in before.deltas.items() if epoch <= upto}
            self.marks = {name: [one for one in marks if one[0] <= upto] for name, marks in before.marks.items()}

    def rows(self, relation: str, ticks: RangeSet) -> Counter[AnyRow]:
        """Return the rows of exactly some ticks."""
        found: Counter[AnyRow] = Counter()
        for since, upto in ticks:
            for epoch, deltas in self.deltas.items():
                if since < epoch <= upto:
                    for row, count in deltas.get(relation, {}).items():
                        found[row] += count
        return +found

    def mark_at(self, source: str, epoch: int) -> SourceMark | None:
        """Return what was reflected of a source as of an epoch."""
        return next((mark for at, mark in reversed(self.marks.get(source, [])) if at <= epoch), None)


class NodeHistory:
    """All that a node has been."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.eras: dict[tuple[str, str], EraLog] = {}
        self._now: EraLog | None = None
        self._feeds: dict[str, _RelationFeed] = {}
        self.tables: dict[str, Table] = {}
        self.views: dict[str, str] = {}  # the queries, as SQL
        self._records: dict[str, dict[str, str]] = {}
        self.in_order: frozenset[str] = frozenset()  # views that depend on the order of rows

    @property
    def now(self) -> EraLog:
        """The log of the current era."""
        assert self._now is not None
        return self._now

    def at(self, position: Position) -> EraLog:
        """Return the log that a position is one of."""
        found = self.eras.get((position.history, position.era))
        if found is None:
            raise SimulationError("S5", f"{position} is none that {self.name} ever had")
        return found

    def begin(self, coordinator: Coordinator) -> None:
        """Follow the base relations that there are by now."""
        lineage = coordinator.lineage
        key = (lineage.history, lineage.era.id)
        if key not in self.eras:
            self._now = self.eras[key] = EraLog(lineage, self._now, coordinator.epoch)
        program = coordinator.program
        self._records.clear()
        for name, table in program.tables.items():
            if not name.startswith("$") and table.source is None and name not in self._feeds:
                feed = self._feeds[name] = _RelationFeed(self, coordinator, name)
                with coordinator.looking():
                    coordinator.feeds.add(feed)
            self.tables[name] = table
        self.views |= {name: view.sql for name, view in program.views.items() if not view.hidden}
        self.in_order = ordered_views(program)
        for gone in self.views.keys() - program.views.keys():
            del self.views[gone]

    def records_read(self, coordinator: Coordinator, name: str) -> dict[str, str]:
        """Return what holds the ticks of each source beneath a relation."""
        found = self._records.get(name)
        if found is None:
            with coordinator.looking():
                found = self._records[name] = records_read(coordinator, name)
        return found

    def end(self, coordinator: Coordinator) -> None:
        """Follow nothing any more: the database is about to be closed."""
        for feed in self._feeds.values():
            coordinator.feeds.remove(feed)
        self._feeds.clear()

    def note_marks(self, coordinator: Coordinator) -> None:
        """Take in what sources reflect since the last look."""
        broker = coordinator.broker
        for name, record in (broker.records if broker is not None else {}).items():
            known = self.now.marks.setdefault(name, [])
            last = known[-1][0] if known else -1
            fresh = [mark for mark in record.marks[-20:] if mark.epoch >= last]
            while fresh and known and known[-1][0] >= fresh[0].epoch:
                known.pop()
            known += [(mark.epoch, SourceMark(record.lineage, mark.reflected, record.lost)) for mark in fresh]


class _RelationFeed:
    """The changes of one base relation."""

    def __init__(self, history: NodeHistory, coordinator: Coordinator, name: str) -> None:
        self._history, self._coordinator, self.name = history, coordinator, name
        self._schema = coordinator.reader.schema(name)

    def push(self, epoch: int, rows: Codes, counts: Codes) -> None:
        """Add what an epoch changed."""
        found = to_tuples(rows, self._schema, self._coordinator.dictionary)
        delta = self._history.now.deltas.setdefault(epoch, {}).setdefault(self.name, Counter())
        for row, count in zip(found, counts.tolist(), strict=True):
            delta[row] += count

    def mark_words(self, marks: WordMarks) -> None:
        """It keeps values."""

    def decode(self, codes: Codes) -> None:
        """It keeps values."""

    def end(self, why: str = "", forget: bool = False) -> None:
        """No more will come."""
