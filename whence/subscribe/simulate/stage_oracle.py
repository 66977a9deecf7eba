"""What a subscriber of a stage must be shown: views recomputed by DuckDB over histories cut at exactly the ticks.

A view at a broker is computed from its inputs as of an epoch of the broker: its own tables at that epoch; a source at
the ticks that were reflected then, of the relation that it comes from; and that may be a view of another broker, which
is computed the same way at its epoch. A table is reflected up to its horizon; a stream with gaps.

| law | what is checked |
|-----|-----------------|
| S1  | what is shown as final stays; over streams, random completions lie in the bounds (`stage_completions.py`) |
| S2  | the rows that are shown are those of the view at the position that is shown |
| S3  | what is reflected of a history never gets less, and bounds never widen, but after a restart |
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

import duckdb
from sqlglot import exp, parse_one

from whence.plan.algebra.program import Table
from whence.sql.addresses import source_address
from whence.subscribe.cells import RowKnowledge
from whence.subscribe.positions import HistoryLineage, Position
from whence.subscribe.ranges import RangeSet, reflects_as_much
from whence.subscribe.simulate.node_histories import AnyRow, EraLog, SourceMark
from whence.subscribe.simulate.oracle import SimulationError
from whence.subscribe.simulate.stage_completions import RANDOM_STREAM, StreamSeen, complete, outside
from whence.subscribe.updates import Update

if TYPE_CHECKING:
    from whence.subscribe.simulate.link_clients import LinkClient
    from whence.subscribe.simulate.served_nodes import ServedNode

NOW = 2**40
"""An epoch that is after all others."""

COMPLETED_EVERY = 2
"""Values that are checked per completion."""

UNKNOWN = ("LATEST(", "LAST(", "SLIDE(", "TICK_TIME(")
"""What DuckDB cannot say, or what depends on more than the rows: order and horizons."""


class StageOracle:
    """Recomputes views."""

    def __init__(self, nodes: Mapping[str, ServedNode]) -> None:
        self._nodes = nodes
        self._duck = duckdb.connect()
        self._duck.execute("SET threads = 1")
        self._tables: dict[str, str] = {}  # by definition and rows
        self._seen: dict[LinkClient, SeenSoFar] = {}
        self._dice = random.Random(0)
        self.checked = self.completions = 0

    def close(self) -> None:
        """Let go of what was computed."""
        self._duck.close()

    def check(self, client: LinkClient, update: Update) -> None:
        """Check an update that a client is shown."""
        seen = self._seen.get(client)
        if seen is None or update.restarted in ("restarted", "redefined", "rights"):
            seen = self._seen[client] = SeenSoFar()
        if update.waiting_for:  # it says that something is missing
            return
        seen.check(client.name, update, self._pasts(client, update.position))
        expected = self.rows_of(client.node, client.query, update.position)
        if expected is None:
            return
        self.checked += 1
        rows = Counter(map(tuple, update.rows))
        if rows != expected:
            more, less = dict(rows - expected), dict(expected - rows)
            what = f"{client.name} is shown {client.query} of {client.node.name} at {update.position.epoch}"
            raise SimulationError("S2", f"{what} with {more} too many, {less} missing; it reflects {update.reflects}")
        if self.checked % COMPLETED_EVERY == 0:
            self._check_completion(client, update)

    def _check_completion(self, client: LinkClient, update: Update) -> None:
        """Check what an update says of the future against one way in which things may turn out (S1)."""
        node, relation, position = client.node, client.query, update.position
        era = node.history.at(position)
        seen = self._streams_beneath(node, era, relation, position.epoch)
        if not seen:
            return
        rows = {name: complete(one, self._dice) for name, one in seen.items()}
        made = {name: self._filled(node.history.tables[name], found) for name, found in rows.items()}
        plan = self._plan(node, era, relation, position.epoch, made, {})
        assert plan is not None
        self.completions += 1
        for wrong in outside(update, self._rows(node, relation, plan)):
            what = f"{client.name} is shown {relation} of {node.name} at {position.epoch}: {wrong}"
            raise SimulationError(
                "S1", f"{what}, if there are { ({name: dict(found) for name, found in rows.items()}) }"
            )

    def _streams_beneath(self, node: ServedNode, era: EraLog, name: str, epoch: int) -> dict[str, StreamSeen]:
        """Return what is reflected of the publishers' streams that a view reads; none if it reads anything else."""
        found, records = dict[str, StreamSeen](), node.history.records_read(node.db._coordinator, name)
        for source in self._tables_beneath(node, name):
            table, mark = node.history.tables[source], era.mark_at(records.get(source, source), epoch)
            if table.source is None or (*table.schema.names,) != RANDOM_STREAM:
                return {}
            if mark is None or mark.lineage is None or len(mark.lost):
                return {}
            address = source_address(table.source.urls[0])
            upstream, position = self._find(address.server), mark.lineage.at(mark.reflected.last)
            below = upstream.history.tables.get(address.relation)
            if (position.history, position.era) not in upstream.history.eras or below is None or below.source:
                return {}
            found[source] = StreamSeen(address.relation, mark.reflected, upstream.history.at(position))
        return found

    def _tables_beneath(self, node: ServedNode, name: str) -> set[str]:
        text = node.history.views.get(name)
        if text is None:
            return {name}
        read = {each.name for each in parse_one(text, read="duckdb").find_all(exp.Table)} - {name}
        known = read & (node.history.tables.keys() | node.history.views.keys())
        return {below for each in known for below in self._tables_beneath(node, each)}

    def rows_of(self, node: ServedNode, relation: str, position: Position | None = None) -> Counter[AnyRow] | None:
        """Return what a relation is as of a position, or in the end, when everyone has everything; None if that cannot
        be said."""
        era, epoch = (node.history.now, NOW) if position is None else (node.history.at(position), position.epoch)
        plan = self._view(node, era, relation, epoch)
        if plan is None:
            return None
        return self._rows(node, relation, plan)

    def _rows(self, node: ServedNode, relation: str, plan: str) -> Counter[AnyRow]:
        columns = ", ".join(f'"{name}"' for name in self._columns(node, relation))
        return Counter(self._duck.execute(f"SELECT {columns} FROM {plan}").fetchall())

    def _pasts(self, client: LinkClient, position: Position) -> dict[str, HistoryLineage]:
        """Return the past that each source has as of a position, by names as in `Update.reflects`."""
        node, found = client.node, dict[str, HistoryLineage]()
        era = node.history.at(position)
        for name, record in node.history.records_read(node.db._coordinator, client.query).items():
            mark = era.mark_at(record, position.epoch)
            if mark is not None and mark.lineage is not None:
                found[f"{name}@{mark.lineage.history}"] = mark.lineage
        return found

    def _columns(self, node: ServedNode, relation: str) -> Iterable[str]:
        program = node.db._coordinator.program
        found = program.tables.get(relation) or program.views[relation]
        return found.schema.names

    def _view(self, node: ServedNode, era: EraLog, name: str, epoch: int) -> str | None:
        """Return a table of DuckDB that is a relation as of an epoch."""
        return self._plan(node, era, name, epoch, {}, node.history.records_read(node.db._coordinator, name))

    def _plan(
        self, node: ServedNode, era: EraLog, name: str, epoch: int, made: dict[str, str], records: Mapping[str, str]
    ) -> str | None:
        if name in made:
            return made[name]
        table = node.history.tables.get(name)
        if table is not None and name not in node.history.views:
            if table.source is None:
                made[name] = self._filled(table, era.rows(name, RangeSet([(0, epoch)])))
            else:
                made[name] = self._source(era, table, epoch, records.get(name, name))
            return made[name]
        text = node.history.views.get(name)
        if text is None:  # it has moved to another node since
            return None
        if name in node.history.in_order or any(word in text.upper().replace(" (", "(") for word in UNKNOWN):
            return None
        query = parse_one(text, read="duckdb")
        inner = query.expression if isinstance(query, exp.Create) else query
        for each in inner.find_all(exp.Table):
            if each.name in node.history.tables or each.name in node.history.views:
                below = self._plan(node, era, each.name, epoch, made, records)
                if below is None:
                    return None
                alias = each.alias or each.name
                each.replace(exp.alias_(exp.to_table(below), alias, table=True))
        made[name] = self._make(f"AS {inner.sql('duckdb')}")
        return made[name]

    def _source(self, era: EraLog, table: Table, epoch: int, record: str) -> str:
        """Return a source as of an epoch: the upstream relation at the ticks that were reflected."""
        assert table.source is not None
        address = source_address(table.source.urls[0])
        upstream, relation = self._find(address.server), address.relation
        if epoch == NOW:
            theirs, ticks, lost = upstream.history.now, RangeSet([(0, NOW)]), RangeSet()
        else:
            mark = era.mark_at(record, epoch)
            if mark is None or mark.lineage is None or not len(mark.reflected):
                return self._filled(table, Counter())
            ticks, lost = mark.reflected, mark.lost
            if table.stream is None:
                ticks = ticks.upto(ticks.horizon)
            position = mark.lineage.at(ticks.last)
            if (position.history, position.era) not in upstream.history.eras:  # it relays the ticks of its only source
                return self._relayed(upstream, relation, table, mark._replace(reflected=ticks))
            theirs = upstream.history.at(position)
        below = upstream.history.tables.get(relation)
        if below is not None and below.source is None:
            return self._filled(table, theirs.rows(relation, ticks.minus(lost)))
        found = self._view(upstream, theirs, relation, ticks.horizon)
        if found is None:
            raise SimulationError("S2", f"{relation} of {upstream.name} is no view that can be computed")
        return found

    def _relayed(self, node: ServedNode, relation: str, table: Table, mark: SourceMark) -> str:
        """Return a relation of a relay at ticks of the source that it is of."""
        era = EraLog(node.history.now.lineage)
        records = node.history.records_read(node.db._coordinator, relation)
        for record in records.values():
            era.marks[record] = [(0, mark)]
        found = self._plan(node, era, relation, 0, {}, records)
        if found is None:
            raise SimulationError("S2", f"{relation} of {node.name} is no view that can be computed")
        return found

    def _find(self, url: str) -> ServedNode:
        return self._nodes[url.split("//")[-1].split("/")[0]]

    # -- tables ------------------------------------------------------------------------------------------------------

    def _filled(self, table: Table, rows: Counter[AnyRow]) -> str:
        columns = ", ".join(f'"{column.name}" {column.type}' for column in table.schema.columns)
        made = self._make(f"({columns})")
        values = list(rows.elements())
        if values:
            self._duck.executemany(f"INSERT INTO {made} VALUES ({', '.join('?' * len(table.schema))})", values)
        return made

    def _make(self, what: str) -> str:
        name = f"r{len(self._tables)}"
        self._tables[name] = what
        self._duck.execute(f"CREATE TEMP TABLE {name} {what}")
        return name


class SeenSoFar:
    """What one client has been shown: S3, and that what is final stays (S1)."""

    def __init__(self) -> None:
        self._reflects: dict[str, RangeSet] = {}
        self._pasts: dict[str, HistoryLineage] = {}
        self._finals: set[AnyRow] = set()
        self._known: dict[AnyRow, RowKnowledge] = {}  # by the key of a row

    def check(self, who: str, update: Update, pasts: Mapping[str, HistoryLineage]) -> None:
        """Check that nothing goes back, unless a publisher has another past since."""
        now = {name: RangeSet.parse(text) for name, text in update.reflects.items()}
        for name, seen in self._reflects.items():
            past = self._pasts.get(name)
            if len(seen) and past is not None:
                theirs = next((p for p in pasts.values() if p.history == past.history), None)
                if theirs is None or not theirs.knows(past.at(seen.last), last=2**62):
                    self._finals.clear()
                    self._known.clear()
                elif not reflects_as_much(now, {name: seen}):
                    raise SimulationError("S3", f"{who} was shown {name} up to {seen}, and is now shown {now}")
        self._reflects, self._pasts = now, dict(pasts)
        rows = set(map(tuple, update.rows))
        gone = self._finals - rows
        if gone:
            raise SimulationError("S1", f"{who} was shown {sorted(gone, key=repr)} as final, and they are gone")
        part = update.parts[0]
        facts = part._knowing.facts
        before, self._known = self._known, {}
        for row in rows if facts is not None else ():
            assert facts is not None
            whole = part._knowing.whole(row)
            if whole is None:
                continue
            known = facts.evaluate(whole, part._horizons)
            if known.is_final:
                self._finals.add(row)
            if facts.key:
                key = tuple(row[place] for place in facts.key)
                self._known[key] = known
                if key in before and not before[key] <= known:
                    raise SimulationError("S3", f"{who} was shown {key} with {before[key]}, and now with {known}")
