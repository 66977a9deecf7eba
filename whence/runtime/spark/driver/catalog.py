"""The catalog of a partitioned database: the program as ever, its plan for the partitions, and who carries it out.

A change of the catalog is a run of the crew: every partition takes up the new plan, and views that are new are filled
stage by stage. On an error nothing has changed, here or there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from whence.engine.core.batch import consolidate
from whence.engine.core.fingerprint import fingerprint
from whence.engine.core.image import Images, StaleImage
from whence.engine.core.operator import Batch, Operator, upwards
from whence.engine.core.operator_stats import OperatorStats
from whence.engine.core.relation import Relation
from whence.engine.exchange.ship import parted
from whence.engine.exchange.traffic import Shipped, Traffic
from whence.engine.relational.scan import Scan
from whence.engine.streams.connection_point import ConnectionPoint
from whence.engine.streams.stream import Late
from whence.engine.streams.stream_scan import StreamScan
from whence.model.codes import Codes, Dictionary
from whence.model.progress import Progress
from whence.model.types import Schema
from whence.plan.algebra import logical
from whence.plan.algebra.distribution import Distribution, describe_distribution
from whence.plan.algebra.logical import Node, bottom_up
from whence.plan.algebra.program import Program, Table, View, is_owed, owed_name, owner_of, with_debts
from whence.plan.partitions.distribute import Distributed, PlannedComponent, distribute
from whence.plan.partitions.streams import MisplacedError
from whence.plan.recursion.rule_model import RuleProgram
from whence.plan.recursion.strata import changed_views, components, dependents
from whence.plan.streams.model import ProvenanceJoin, Retention, Stream, has_at, with_at, without_at
from whence.runtime.catalog import Catalog, Saved, Written, table_kind
from whence.runtime.durable.uniting import check_recomputable
from whence.runtime.questions.explain import in_bytes
from whence.runtime.reading.late_rows import lates_under
from whence.runtime.spark.driver.arrival_counter import ArrivalCounter
from whence.runtime.spark.driver.crew import SuperstepRunner
from whence.runtime.spark.driver.shards import PartitionedRelation, ShardedLifetimes
from whence.runtime.spark.worker.commands import PartitionCommand, PartitionPlan
from whence.runtime.spark.worker.partition import Partition
from whence.sql import statements as st
from whence.sql.bind import bind_table, bind_views
from whence.sql.reader import deep_stack
from whence.state.manifest import Link

if TYPE_CHECKING:
    from whence.explain.retrieve.site import Site

_NOTHING = PartitionPlan(0, {}, Distributed(0, {}, {}, ()), {})


class ShardedFlow:
    """What stands where an embedded database has its dataflow."""

    def __init__(self, crew: SuperstepRunner, template: Partition):
        self.tables: dict[str, PartitionedRelation] = {}
        self.views: dict[str, PartitionedRelation] = {}
        self.restored = self.primed = 0
        self.numbers: dict[str, ArrivalCounter] = {}  # of the base streams
        self._crew, self._template = crew, template

    @property
    def order(self) -> list[Operator]:
        return self._template.flow.order

    @property
    def state_bytes(self) -> int:
        return self._crew.state_bytes

    @property
    def streams(self) -> dict[str, PartitionedRelation]:
        """The tables that are streams."""
        return {name: self.tables[name] for name in self.numbers}

    @property
    def last_at(self) -> int:
        """When the last row, or promise, of any stream arrived."""
        return max((numbers.last_at for numbers in self.numbers.values()), default=0)


class ShardedCatalog(Catalog):
    """Program, plan and crew, changed together. Copies of tables of up to `copied_rows` may be in all partitions."""

    recomputed = "partitions compute rows again when they catch up"

    def __init__(self, recursion_limit: int, dictionary: Dictionary, crew: SuperstepRunner, copied_rows: int):
        super().__init__(recursion_limit, dictionary)
        self.crew, self._copied_rows = crew, copied_rows
        self.plan = crew.plans[_NOTHING.version] = _NOTHING
        self._version = 0  # of the last plan, whether or not it was taken up: workers know plans by it
        self.pinned: set[str] = set()  # tables that stay where they are, even empty
        self.small: frozenset[str] = frozenset()  # the tables that were held to be so
        # Without rows: how a partition looks.
        self.template = Partition(0, crew.partitions, dictionary, crew.folder, lambda version: crew.plans[version])
        self.flow: ShardedFlow = ShardedFlow(crew, self.template)  # type: ignore[assignment]  # asked alike
        crew.copied = lambda name: self.dist(name).kind == "all"

    @property
    def replaying(self) -> bool:
        return self.crew.replaying

    @replaying.setter
    def replaying(self, known: bool) -> None:
        self.crew.replaying = known

    def dist(self, name: str) -> Distribution:
        """Where the rows of a table or view live."""
        placed = self.plan.distributed
        found = placed.tables.get(owner_of(name)) or placed.views.get(name)
        return found if found is not None else Distribution("spread")

    # -- changes -----------------------------------------------------------------------------------------------------

    def create_table(self, create: st.CreateTable) -> bool:
        program = bind_table(create, self.program)
        if program is self.program:
            return False
        self._install(program)
        return True

    def _install(self, bound: Program, progress: Progress | None = None, images: Images | None = None) -> None:
        planned = self._as_it_runs(bound)
        ordered = components(planned)
        sizes = {name: self.flow.tables[name].size for name in bound.tables if name in self.flow.tables}
        new = changed_views(self.planned, planned)
        self._check_copies(new, planned)
        plan, small = self._plan(bound, planned, new, sizes)
        tell = progress if progress is not None else lambda *_: None
        filled = [name for views, since in plan.since.items() if since == plan.version for name in views]
        for name in filled:
            tell(name, 0, 1)
        self._take_up(plan, sum(sizes.values()) if filled else 0)
        for name in filled:
            tell(name, 1, 1)
        self.program, self.planned, self.components, self.small = bound, planned, ordered, small
        self._show(plan)

    def _has_dropped(self, name: str) -> bool:
        return name in self.flow.numbers and self.flow.tables[name].size < self.flow.numbers[name].next - 1

    def save(self) -> Saved:
        self._former = self.plan, self.planned, self.components, self.small
        return super().save()

    def stay(self) -> None:
        self.crew.keep()
        self.crew.forget_others(op.fingerprint for op in self.flow.order)

    def go_back(self, saved: Saved) -> None:
        """Undo the last change, which the partitions can still take back."""
        plan, self.planned, self.components, self.small = self._former
        self.crew.take_back()
        self.template.pretend(plan)
        self.program = saved.program
        self._show(plan)

    def _show(self, plan: PartitionPlan) -> None:
        """Let tables and views be found."""
        self.plan = plan
        tables = with_debts(plan.tables)
        self.flow.tables = {name: self._shards(name, table) for name, table in tables.items()}
        self.flow.views = {name: self._shards(name, view) for name, view in self.planned.views.items()}
        streams = [name for name, table in plan.tables.items() if table.stream is not None]
        self.flow.numbers = {name: self.flow.numbers.get(name, ArrivalCounter()) for name in streams}
        self.lifetimes = {
            name: ShardedLifetimes(table.lifetime, self.flow.tables[name], self.crew)  # type: ignore[misc]  # asked alike
            for name, table in tables.items()
            if table.lifetime is not None
        }

    def _shards(self, name: str, what: Table | View) -> PartitionedRelation:
        base = isinstance(what, Table) and what.stream is not None
        return PartitionedRelation(
            name, with_at(what.schema) if base else what.schema, self.crew, lambda: self.dist(name)
        )

    def _take_up(self, plan: PartitionPlan, rows: int) -> None:
        """Let every partition, and the template, take up a plan; with so many rows to fill views from."""
        crew = self.crew
        crew.plans[plan.version] = plan
        try:
            self.template.pretend(plan)  # first: what cannot be built fails here
            crew.run({p: PartitionCommand(0, 0, 0, plan=plan.version) for p in range(crew.partitions)}, (), rows)
        except BaseException:
            crew.take_back()
            if self.template.plan is plan:
                self.template.pretend(self.plan)
            raise

    def _plan(
        self, bound: Program, planned: Program, new: set[str], sizes: Mapping[str, int]
    ) -> tuple[PartitionPlan, frozenset[str]]:
        """The next plan: what is kept stays as it is, and where it is. If a stream cannot stay, but nothing has come to
        it yet, it goes elsewhere, and what reads it is made anew."""
        try:
            return self._plan_over(bound, planned, new, sizes)
        except MisplacedError as error:
            free = {name for name in error.streams if not self.flow.numbers[name].last_at}
            if not free:
                raise
            over = {view for name in free for view in dependents(planned, name)}
            if over <= new:
                raise
            return self._plan(bound, planned, new | over, sizes)

    def _plan_over(
        self, bound: Program, planned: Program, new: set[str], sizes: Mapping[str, int]
    ) -> tuple[PartitionPlan, frozenset[str]]:
        old = self.plan
        kept = {views: v for views, v in old.since.items() if not new & {*views} and planned.views.keys() >= {*views}}
        pieces = [piece for piece in old.distributed.pieces if piece.views in kept]
        used = {t for piece in pieces for t in tables_of(piece)}
        used |= {name for name, numbers in self.flow.numbers.items() if numbers.last_at}
        used |= self.pinned | {name for owed in self.crew.owed for name in owed}
        fixed = {n: d for n, d in old.distributed.tables.items() if n in used or sizes.get(n)}
        tables = [name for name, table in bound.tables.items() if table.stream is None]
        small = frozenset(name for name in tables if sizes.get(name, 0) <= self._copied_rows)
        self._version += 1
        return self._planned(bound, planned, fixed, small, kept, self._version), small

    def _planned(
        self,
        bound: Program,
        planned: Program,
        fixed: Mapping[str, Distribution],
        small: frozenset[str],
        kept: Mapping[tuple[str, ...], int],
        version: int,
        stamps: Mapping[str, int] | None = None,
    ) -> PartitionPlan:
        old = self.plan.distributed
        placed = distribute(
            planned,
            components(planned),
            partitions=self.crew.partitions,
            fixed=fixed,
            small=small.__contains__,
            depth_limit=self.recursion_limit,
            kept=replace(old, pieces=tuple(piece for piece in old.pieces if piece.views in kept)),
        )
        known = stamps if stamps is not None else {}
        since = {p.views: kept.get(p.views, known.get(p.views[0], version)) for p in placed.pieces}
        pieces = tuple(p if p.views in kept else _stamped(p, since[p.views]) for p in placed.pieces)
        return PartitionPlan(version, dict(bound.tables), replace(placed, pieces=pieces), since, dict(planned.views))

    # -- looking inside ----------------------------------------------------------------------------------------------

    def operator(self, name: str) -> Operator:
        flow = self.template.flow
        return flow.tables.get(name) or flow.views[name]

    def site(self) -> Site:
        """Where questions about streams are answered."""
        from whence.runtime.spark.driver.retrieving import PartitionedSite  # loaded with the first of them

        return PartitionedSite(self.template.flow, self.planned, self.dictionary, self)

    def lates(self, name: str) -> Iterable[tuple[Late, Schema]]:
        parts = self.crew.ask_all("lates", name)
        for number, (_, schema) in enumerate(lates_under(self.template.flow, name)):
            whole = Late(len(schema))
            for share in parts:
                count, rows = share[number]
                whole.add(rows)
                whole.count += count - len(rows)
            yield whole, schema

    def stream_figures(self) -> dict[str, dict[str, int]]:
        parts = self.crew.ask_all("stream_figures") if self.flow.numbers else [{}]
        once = {name for name in parts[0] if self.dist(name).kind == "all"}
        found = {
            name: {what: sum(part[name][what] for part in (parts[:1] if name in once else parts)) for what in figures}
            for name, figures in parts[0].items()
        }
        for name, numbers in self.flow.numbers.items():
            found[name]["rows"] = numbers.next - 1
        return found

    def measure(self) -> Callable[[Operator], OperatorStats]:
        """The sum over all partitions; rows of a table that every partition has count once."""
        parts = self.crew.ask_all("figures")
        copied = {scan.fingerprint for name, scan in self.template.flow.tables.items() if self.dist(name).kind == "all"}

        def total(op: Operator) -> OperatorStats:
            shares = [part.get(op.fingerprint, OperatorStats()) for part in parts]
            added = OperatorStats(*map(sum, zip(*shares, strict=True)))
            return added._replace(rows=shares[0].rows) if op.fingerprint in copied else added

        return total

    def sizes(self) -> dict[str, int]:
        parts = self.crew.ask_all("sizes")
        once = {name for name in parts[0] if self.dist(name).kind in ("all", "one")}
        return {name: parts[0][name] if name in once else sum(part[name] for part in parts) for name in parts[0]}

    def placement(self, name: str) -> list[str]:
        """Where a view and its tables live, and how its recursion is partitioned."""
        placed = self.plan.distributed
        schema = self.planned.views[name].schema
        lines = [f"{self.crew.partitions} partitions, rows live {describe_distribution(placed.views[name], schema)}"]
        piece = next(piece for piece in placed.pieces if name in piece.views)
        if piece.strategy:
            lines.append(f"recursion {piece.strategy}")
        for table in sorted(tables_of(piece)):
            found = self.program.tables[table]
            lines.append(f"{table_kind(found)} {table} {describe_distribution(placed.tables[table], found.schema)}")
        stages = 1 + max((op.stage for op in upwards([self.operator(name)])), default=0)
        lines.append(f"{stages} superstep{'s' * (stages != 1)} an epoch" + (" or more" if piece.exchange else ""))
        epoch, total = self._shipped_under(upwards([self.operator(name)]))
        if total.messages:
            lines.append(f"shipped {_traffic(total)}; in the last epoch {_traffic(epoch)}")
        return lines

    def shipped(self) -> dict[str, Shipped]:
        """What the operators under each view have sent from partition to partition; under the first that has them."""
        found, seen = {}, set[int]()
        for name in self.flow.views:
            mine = [op for op in upwards([self.operator(name)]) if id(op) not in seen]
            seen |= {id(op) for op in mine}
            found[name] = self._shipped_under(mine)
        return found

    def _shipped_under(self, operators: Iterable[Operator]) -> Shipped:
        epoch = total = Traffic()
        for op in operators:
            mine = self.crew.shipped.get(op.fingerprint, Shipped())
            epoch, total = epoch.plus(mine.epoch), total.plus(mine.total)
        return Shipped(epoch, total)

    # -- what lasts --------------------------------------------------------------------------------------------------

    @property
    def digest(self) -> str:
        """A name for all that images of partitions depend on."""
        views = sorted((name, op.fingerprint) for name, op in self.template.flow.views.items())
        tables = sorted((name, dist) for name, dist in self.plan.distributed.tables.items())
        return fingerprint((self.crew.partitions, views, tables))

    @deep_stack()
    def declare(
        self,
        creates: Iterable[st.Statement],
        fixed: Mapping[str, Distribution],
        small: frozenset[str],
        since: Mapping[str, int] | None = None,
    ) -> None:
        """Know tables and views, and how they are placed, without telling the partitions."""
        creates = list(creates)
        for create in creates:
            if isinstance(create, st.CreateTable):
                self.program = bind_table(create, self.program)
        bound = bind_views([c for c in creates if isinstance(c, st.CreateView)], self.program)
        self.planned = self._as_it_runs(bound)
        self.program, self.components, self.small = bound, components(self.planned), small
        self._version = 1 + max((since or {}).values(), default=self._version)
        plan = self._planned(bound, self.planned, fixed, small, {}, self._version, since)
        self.crew.plans[plan.version] = plan
        self.template.pretend(plan)
        self._show(plan)

    def begin_from(self, chains: Mapping[int, tuple[Link, ...]]) -> None:
        """The partitions are as their images, made by this plan, say."""
        self.crew.begin_from(chains, self.plan.version)
        self.flow.restored = len(self.flow.order) * self.crew.partitions

    def restore(
        self,
        creates: Iterable[st.Statement],
        images: Images,
        progress: Progress | None = None,
        lost: Callable[[str], None] | None = None,
    ) -> None:
        """Tables and views as they were declared, with rows as images of whole tables have them."""
        creates = list(creates)
        tables = [create.table for create in creates if isinstance(create, st.CreateTable)]
        whole: dict[str, Relation | ConnectionPoint] = {}
        for done, table in enumerate(tables):
            if progress is not None:
                progress(f"loading table {table.name}", done, len(tables))
            image = images.get(f"table/{table.name}")
            if image is None:
                raise StaleImage(f"there is no image of table {table.name}")
            found: Relation | ConnectionPoint = Relation(len(table.schema), int(table.notes_arrivals))
            if table.stream is not None:
                found = ConnectionPoint(len(table.schema) + 1, Retention(), name=table.name)
            found.restore(image)
            whole[table.name] = found
            owed = images.get(f"table/{owed_name(table.name)}") if table.stream is None else None
            if owed is not None:
                whole[owed_name(table.name)] = debts = Relation(len(table.schema), int(table.notes_arrivals))
                debts.restore(owed)
        small = [
            name
            for name, found in whole.items()
            if isinstance(found, Relation) and not is_owed(name) and len(found) <= self._copied_rows
        ]
        self.declare(creates, {}, frozenset(small))
        streams = {name: kept for name, kept in whole.items() if isinstance(kept, ConnectionPoint)}
        check_recomputable(self.planned, streams, lost=lost)
        for name, kept in streams.items():
            self.flow.numbers[name] = ArrivalCounter(kept.next, kept.reached)
        self._take_up(self.plan, 0)
        self.crew.keep()
        crew, shares = self.crew, self._shares(whole)
        try:
            crew.run(shares, (), sum(map(len, whole.values())))
        except BaseException:
            crew.take_back()
            raise
        crew.keep()
        self.flow.primed = len(self.flow.order) * crew.partitions

    def _shares(self, whole: Mapping[str, Relation | ConnectionPoint]) -> dict[int, PartitionCommand]:
        """What each partition is given of whole tables: its rows, and when they are due."""
        deltas: dict[int, dict[str, Batch]] = {p: {} for p in range(self.crew.partitions)}
        deadlines: dict[int, dict[str, Codes]] = {p: {} for p in range(self.crew.partitions)}
        for name, relation in whole.items():
            for p, part in self.to_partitions(name, relation.scan()).items():
                deltas[p][name] = part
                if isinstance(relation, Relation) and self.program.tables[owner_of(name)].notes_arrivals:
                    deadlines[p][name] = relation.acc[relation.lookup(part.rows), 0]
        return {p: PartitionCommand(0, 0, 0, deltas=deltas[p], deadlines=deadlines[p]) for p in deltas}

    def to_partitions(self, table: str, batch: Batch, every: int | None = None) -> dict[int, Batch]:
        """A table's rows by the partitions they live in; if that is all of them, under the number `every` if given."""
        dist = self.dist(table)
        if dist.kind == "all":
            where = range(self.crew.partitions) if every is None else (every,)
            return dict.fromkeys(where, batch) if len(batch.ann) else {}
        return parted(batch, dist.cols, self.crew.partitions)

    # -- queries that are not kept -----------------------------------------------------------------------------------

    def evaluate(self, plan: Node, hidden: dict[str, View], written: Written | None = None) -> Batch:
        """In this process, over copies of what the plan reads."""
        scratch = Catalog(self.recursion_limit, self.dictionary)
        scratch.program, scratch.planned = self.program, self.planned
        read = {name for node in [plan, *(view.query for view in hidden.values())] for name in _names_in(node)}
        for name, table in self.program.tables.items():
            scan = scratch.flow.table(name, table.schema, table.key)
            if table.stream is not None:
                scan = scratch.flow.stream(name, table.schema, Retention())
            fill(scan, self.flow.tables[name], name in read)
        for name, view in self.planned.views.items():
            scan = Scan(name, view.schema, ())
            if has_at(view.schema):
                scan = StreamScan(name, view.schema, Retention())
            fill(scan, self.flow.views[name], name in read)
            scratch.flow.views[name] = scan
        looked_up = partial(self._looked_up, scratch=scratch)
        hidden = {name: replace(view, query=bottom_up(view.query, looked_up)) for name, view in hidden.items()}
        return scratch.evaluate(bottom_up(plan, looked_up), hidden, written)

    def _looked_up(self, node: Node, scratch: Catalog) -> Node:
        """`provenance(view, source)` as a table of what the partitions know; any other node as it is."""
        if not isinstance(node, ProvenanceJoin):
            return node
        from whence.explain.retrieve.pjoin import p_join

        site, name = self.site(), f"{node.view}$provenance${node.source}"
        rows = p_join(site, node.view, site.source(node.view, node.source or None))
        relation = scratch.flow.table(name, without_at(node.schema)).relation
        relation.apply(consolidate(Batch(rows, np.ones(len(rows), np.int64))))
        relation.commit()
        return logical.Scan(without_at(node.schema), name)


def fill(scan: Scan, shards: PartitionedRelation, wanted: bool) -> None:
    """Copy the rows of a table or view."""
    if wanted and isinstance(scan, StreamScan):
        batch = shards.contents()
        scan.kept.append(batch.rows, batch.ann)
        scan.kept.commit(None)
    elif wanted:
        scan.relation.apply(shards.contents())
        scan.relation.commit()


def _stamped(piece: PlannedComponent, since: int) -> PlannedComponent:
    """A piece whose ships say since when they have been."""

    def stamp(node: Node) -> Node:
        if node.inputs:
            node = node.with_inputs(tuple(map(stamp, node.inputs)))
        return replace(node, since=since) if isinstance(node, logical.Ship) else node

    def over(rules: RuleProgram) -> RuleProgram:
        relations = [r if r.source is None else replace(r, source=stamp(r.source)) for r in rules.relations]
        return replace(rules, relations=relations)

    return replace(
        piece,
        node=None if piece.node is None else stamp(piece.node),
        rules=None if piece.rules is None else over(piece.rules),
        after=tuple((name, stamp(node)) for name, node in piece.after),
        exchange=None if piece.exchange is None else replace(piece.exchange, rules=over(piece.exchange.rules)),
    )


def tables_of(piece: PlannedComponent) -> set[str]:
    """The tables that a piece reads."""
    nodes = [piece.node] if piece.node is not None else []
    nodes += [r.source for r in piece.rules.relations if r.source is not None] if piece.rules is not None else []
    nodes += [node for _, node in piece.after]
    return {name for node in nodes for n in logical.walk(node) for name in _tables_in(n)}


def _tables_in(node: Node) -> tuple[str, ...]:
    match node:
        case logical.Scan():
            return (node.table,)
        case Stream():
            return (node.stream,)
    return ()


def _names_in(node: Node) -> Iterable[str]:
    for n in logical.walk(node):
        yield from _tables_in(n)
        if isinstance(n, logical.Ref):
            yield n.view


def _traffic(traffic: Traffic) -> str:
    """Traffic for people.

    >>> _traffic(Traffic(1, 2000, 5000))
    '1 message, 2,000 rows, 5.0 kB'
    """
    parts = [f"{n:,} {what}{'s' * (n != 1)}" for n, what in ((traffic.messages, "message"), (traffic.rows, "row"))]
    return ", ".join([*parts, in_bytes(traffic.bytes)])
