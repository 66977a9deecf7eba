"""Partitions of a database as its driver sees them: plans, epochs and questions go to all of them.

A change of the catalog is a run: every partition takes up the new plan, and views that are new are filled stage by
stage. An epoch is a run: its changes are split by the partitions they are for. Until the run is committed all
partitions can undo it; on an error nothing has changed, here or there.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import asdict
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from whence.adapt.statistics import JoinReading, combined
from whence.engine.core.batch import consolidate
from whence.engine.core.epoch import Epoch, InputSection
from whence.engine.core.fingerprint import fingerprint
from whence.engine.core.image import Images
from whence.engine.core.operator import Batch, Operator, upwards
from whence.engine.core.operator_stats import OperatorStats, total
from whence.engine.exchange.ship import by_arrival, parted
from whence.engine.exchange.traffic import Shipped, Traffic
from whence.engine.relational.scan import Scan
from whence.engine.streams.promise import promise_in
from whence.engine.streams.retain import is_stream
from whence.engine.streams.stream import Late, Missed
from whence.engine.streams.stream_scan import StreamScan
from whence.model.codes import Codes, Dictionary
from whence.model.progress import Progress
from whence.model.sizes import in_bytes
from whence.model.types import Schema
from whence.plan.algebra import logical
from whence.plan.algebra.distribution import Distribution, describe_distribution
from whence.plan.algebra.logical import HoldKey, Node, bottom_up
from whence.plan.algebra.program import Program, Table, View, has_closed_keys, owner_of, with_beside
from whence.plan.partitions.heavy_keys import HeavyKeys
from whence.plan.streams.model import ProvenanceJoin, Retention, has_at, with_at, without_at
from whence.runtime.backend import Scratch
from whence.runtime.catalog import table_kind
from whence.runtime.epoch_result import EpochResult
from whence.runtime.partition import Partition
from whence.runtime.partition_plan import NOTHING, PartitionPlan
from whence.runtime.reading.late_rows import lates_under
from whence.runtime.spark.driver.arrival_counter import ArrivalCounter
from whence.runtime.spark.driver.explain_skew import describe_heavy, two_steps
from whence.runtime.spark.driver.partitioned_relation import PartitionedLifetimes, PartitionedRelation
from whence.runtime.spark.driver.planner import tables_in, tables_of
from whence.runtime.spark.driver.supersteps import SuperstepRunner
from whence.runtime.spark.frames.routing import EVERY
from whence.runtime.spark.worker.commands import PartitionCommand
from whence.runtime.writing.inputs import resolve_inputs
from whence.runtime.writing.tables import Unmatched
from whence.state.manifest import Link

if TYPE_CHECKING:
    from whence.explain.retrieve.site import Site
    from whence.runtime.coordinator import Coordinator
    from whence.state.store import Store


class PartitionedFlow:
    """What is asked where an embedded database has its dataflow."""

    def __init__(self, runner: SuperstepRunner, template: Partition) -> None:
        self.tables: dict[str, PartitionedRelation] = {}
        self.views: dict[str, PartitionedRelation] = {}
        self.restored = self.primed = 0
        self.arrivals: dict[str, ArrivalCounter] = {}  # of the base streams
        self._runner, self._template = runner, template

    @property
    def order(self) -> list[Operator]:
        return self._template.flow.order

    @property
    def state_bytes(self) -> int:
        return self._runner.state_bytes

    @property
    def streams(self) -> dict[str, PartitionedRelation]:
        """The tables that are streams."""
        return {name: self.tables[name] for name in self.arrivals}

    @property
    def last_at(self) -> int:
        """When the last row, or promise, of any stream arrived."""
        return max((arrivals.last_at for arrivals in self.arrivals.values()), default=0)


class PartitionedBackend:
    """The partitions of a runner of supersteps."""

    at_hand = False

    def __init__(self, dictionary: Dictionary, runner: SuperstepRunner) -> None:
        self.dictionary, self.runner, self.partitions = dictionary, runner, runner.partitions
        self.plan = runner.plans[NOTHING.version] = NOTHING
        self._former = NOTHING  # before an installation that is open
        # Without rows: how a partition looks.
        self._template = Partition(dictionary, 0, runner.partitions, runner.folder)
        self.flow = PartitionedFlow(runner, self._template)
        self.lifetimes: dict[str, PartitionedLifetimes] = {}
        self.input_bytes = 0
        self._asked: dict[str, Codes] = {}  # by views that were filled
        runner.copied = lambda name: self.dist(name).kind == "all"

    @property
    def replaying(self) -> bool:
        return self.runner.replaying

    @replaying.setter
    def replaying(self, replaying: bool) -> None:
        self.runner.replaying = replaying

    def dist(self, name: str) -> Distribution:
        """Return where the rows of a table or view live; the closed keys of a stream are all in one partition."""
        if has_closed_keys(name):
            return Distribution("one")
        placed = self.plan.distributed
        found = placed.tables.get(owner_of(name)) or placed.views.get(name)
        return found if found is not None else Distribution("spread")

    def close(self) -> None:
        self.runner.close()

    # -- plans -------------------------------------------------------------------------------------------------------

    def install(self, plan: PartitionPlan, progress: Progress | None = None) -> None:
        tell = progress if progress is not None else lambda *_: None
        filled = [name for views, since in plan.since.items() if since == plan.version for name in views]
        rows = sum(self.flow.tables[name].size for name in plan.tables if name in self.flow.tables) if filled else 0
        for name in filled:
            tell(name, 0, 1)
        self.take_up(plan, rows)
        for name in filled:
            tell(name, 1, 1)
        self._former = self.plan
        self.show(plan)

    def take_up(self, plan: PartitionPlan, rows: int) -> None:
        """Let every partition, and the template, take up a plan; with so many rows to fill views from."""
        runner = self.runner
        runner.plans[plan.version] = plan
        try:
            self._template.pretend(plan)  # first: what cannot be built fails here
            command = PartitionCommand(Epoch(0, 0, {}), plan=plan.version)
            self._asked = runner.run(dict.fromkeys(range(self.partitions), command), (), rows).asked
        except BaseException:
            runner.undo()
            if self._template.plan is plan:
                self._template.pretend(self.plan)
            raise

    def pretend(self, plan: PartitionPlan) -> None:
        """Know a plan that the partitions have, or will have, without telling them."""
        self.runner.plans[plan.version] = plan
        self._template.pretend(plan)
        self.show(plan)
        self._former = plan

    def show(self, plan: PartitionPlan) -> None:
        """Let the tables and views of a plan be found by name."""
        self.plan = plan
        tables = with_beside(plan.tables)
        self.flow.tables = {name: self._relation(name, table) for name, table in tables.items()}
        self.flow.views = {name: self._relation(name, view) for name, view in plan.views.items()}
        streams = [name for name, table in plan.tables.items() if table.stream is not None]
        self.flow.arrivals = {name: self.flow.arrivals.get(name, ArrivalCounter()) for name in streams}
        self.lifetimes = {
            name: PartitionedLifetimes(table.lifetime, self.flow.tables[name], self.runner)
            for name, table in tables.items()
            if table.lifetime is not None
        }

    def _relation(self, name: str, what: Table | View) -> PartitionedRelation:
        base = isinstance(what, Table) and what.stream is not None
        schema = with_at(what.schema) if base else what.schema
        return PartitionedRelation(name, schema, self.runner, lambda: self.dist(name))

    def restore(self, plan: PartitionPlan, images: Images, progress: Progress | None = None) -> None:
        raise NotImplementedError("partitions are restored by their deployment")

    def begin_from(self, chains: Mapping[int, tuple[Link, ...]]) -> None:
        """Let the partitions be as their images, made by this plan, have them."""
        self.runner.begin_from(chains, self.plan.version)

    @property
    def digest(self) -> str:
        """A name for all that images of partitions depend on."""
        ops, transient = self._template.flow.views, self.plan.transient
        views = sorted((name, op.fingerprint) for name, op in ops.items() if name not in transient)
        tables = sorted((name, dist) for name, dist in self.plan.distributed.tables.items())
        return fingerprint((self.partitions, views, tables))

    def layout(self, tables: Iterable[str]) -> str:
        """Return a name for where the rows of some tables live."""
        return fingerprint((self.partitions, [(name, self.dist(name)) for name in sorted(tables)]))

    # -- epochs ------------------------------------------------------------------------------------------------------

    def run(self, epoch: Epoch, wanted: Collection[str]) -> EpochResult:
        runner, self._former = self.runner, self.plan
        rows = sum(len(b.ann) for b in epoch.deltas.values()) + sum(section.rows for section in epoch.sections)
        commands = {p: PartitionCommand(part) for p, part in self._parts(epoch).items()}
        try:
            result = runner.run(commands, wanted, rows)
        except BaseException:
            runner.undo()
            raise
        for name, batch in result.changes.items():
            if is_stream(self.operator(name)):
                result.changes = {**result.changes, name: by_arrival(batch)}
        return result

    def _parts(self, epoch: Epoch) -> dict[int, Epoch]:
        """Return what each partition gets of an epoch."""
        every = range(self.partitions)
        deltas: dict[int, dict[str, Batch]] = {}
        for name, batch in epoch.deltas.items():
            for p, part in self.to_partitions(name, batch).items():
                deltas.setdefault(p, {})[name] = part
        refreshed: dict[int, dict[str, Codes]] = {}
        for name, rows in epoch.refreshed.items():
            again = Batch(rows, np.ones(len(rows), np.int64), True)
            for p, part in self.to_partitions(name, again).items():
                refreshed.setdefault(p, {})[name] = part.rows
        sections: dict[int, list[InputSection]] = {p: [] for p in every if epoch.sections and self.lifetimes}
        for section in epoch.sections:  # with them what is due leaves everywhere
            for p in every if section.partition == EVERY else (section.partition,):
                sections.setdefault(p, []).append(section)
        promised = every if epoch.released or promise_in(epoch.source_positions) is not None else ()
        return {
            p: Epoch(
                epoch.number,
                epoch.time,
                deltas.get(p, {}),
                refreshed.get(p, {}),
                tuple(sections.get(p, ())),
                epoch.source_positions,
                epoch.layout if p in sections else "",
                epoch.early,
                epoch.released,
            )
            for p in sorted({*deltas, *refreshed, *sections, *promised})
        }

    def to_partitions(self, table: str, batch: Batch, every: int | None = None) -> dict[int, Batch]:
        """Return a table's rows by the partitions they live in; if that is all of them, under `every` if given."""
        dist = self.dist(table)
        if dist.kind == "all":
            where = range(self.partitions) if every is None else (every,)
            return dict.fromkeys(where, batch) if len(batch.ann) else {}
        return parted(batch, dist.cols, self.partitions)

    def pending(self) -> dict[HoldKey, int]:
        found: dict[HoldKey, int] = {}
        for part in self.runner.pending:
            for hold, rows in part.items():
                found[hold] = found.get(hold, 0) + rows
        return found

    def take_asked(self) -> dict[str, Codes]:
        asked, self._asked = self._asked, {}
        return asked

    def commit(self, epoch: Epoch | None = None) -> None:
        self.runner.commit()
        if epoch is None:
            self._former = self.plan
            self.runner.forget_others(op.fingerprint for op in self.flow.order)
            return
        self.input_bytes += sum(section.rows * (8 * section.width + 1) for section in epoch.sections)
        if self.flow.arrivals:
            self._count_arrivals(epoch)

    def _count_arrivals(self, epoch: Epoch) -> None:
        """Note which rows have come to streams, and which promises."""
        promise = promise_in(epoch.source_positions)
        for name, arrivals in self.flow.arrivals.items():
            if name in epoch.deltas:
                at = epoch.deltas[name].rows[:, -1]
                arrivals.note(len(at), int(at[-1]))
            sections = [section for section in epoch.sections if section.table == name]
            if sections:  # their rows are counted without a gap
                count = sum(section.rows for section in sections)
                arrivals.note(count, min(section.at for section in sections) + count - 1)
            if promise is not None and name in promise.columns:
                arrivals.note(0, promise.at)

    def undo(self) -> None:
        self.runner.undo()
        if self.plan is not self._former:
            self._template.pretend(self._former)
            self.show(self._former)

    def can_take(self, epoch: Epoch) -> bool:
        return not epoch.has_inputs or epoch.layout == self.layout({section.table for section in epoch.sections})

    def resolve(self, epoch: Epoch, raw: Mapping[str, tuple[Codes, Codes]]) -> tuple[Epoch, dict[str, Unmatched]]:
        tables: Any = self.flow.tables
        lifetimes: Any = self.lifetimes
        return resolve_inputs(epoch, raw, self.plan.tables, tables, lifetimes, self.dictionary)

    def withdraw_words(self, first: int) -> None:
        if self.runner.jobs is None:  # else partitions elsewhere know them by these codes
            self.dictionary.withdraw(first)

    # -- queries that are not kept -----------------------------------------------------------------------------------

    def scratch(self, program: Program, planned: Program, nodes: Iterable[Node]) -> Scratch:
        """Copy what plans read into a partition of one."""
        partition = Partition(self.dictionary)
        flow, read = partition.flow, {name for node in nodes for name in _names_in(node)}
        for name, table in program.tables.items():
            if table.stream is None:
                _fill(flow.table(name, table.schema, table.key), self.flow.tables[name], name in read)
            else:
                _fill(flow.stream(name, table.schema, Retention()), self.flow.tables[name], name in read)
        for name, view in planned.views.items():
            scan = Scan(name, view.schema, ())
            if has_at(view.schema):
                scan = StreamScan(name, view.schema, Retention())
            _fill(scan, self.flow.views[name], name in read)
            flow.views[name] = scan
        return Scratch(partition, lambda node: bottom_up(node, partial(self._looked_up, partition, planned)))

    def _looked_up(self, partition: Partition, planned: Program, node: Node) -> Node:
        """Return `provenance(view, source)` as a table of what the partitions know; any other node as it is."""
        if not isinstance(node, ProvenanceJoin):
            return node
        from whence.explain.retrieve.pjoin import p_join

        site, name = self.site(planned), f"{node.view}$provenance${node.source}"
        rows = p_join(site, node.view, site.source(node.view, node.source or None))
        relation = partition.flow.table(name, without_at(node.schema)).relation
        relation.apply(consolidate(Batch(rows, np.ones(len(rows), np.int64))))
        relation.commit()
        return logical.Scan(without_at(node.schema), name)

    # -- looking inside ----------------------------------------------------------------------------------------------

    def operator(self, name: str) -> Operator:
        return self._template.operator(name)

    def has_dropped(self, name: str) -> bool:
        return name in self.flow.arrivals and self.flow.tables[name].size < self.flow.arrivals[name].next - 1

    def site(self, planned: Program) -> Site:
        from whence.runtime.spark.driver.retrieving import PartitionedSite  # loaded with the first of them

        return PartitionedSite(self._template.flow, planned, self.dictionary, self)

    def lates(self, name: str) -> Iterable[tuple[Late, Schema]]:
        parts = self.runner.ask_all("lates", name)
        for number, (_, schema) in enumerate(lates_under(self._template.flow, name)):
            whole = Late(len(schema))
            for share in parts:
                count, rows = share[number]
                whole.add(rows)
                whole.count += count - len(rows)
            yield whole, schema

    def missed(self, name: str) -> list[Missed]:
        return [found for share in self.runner.ask_all("missed", name) for found in share]

    def stream_figures(self) -> dict[str, dict[str, int]]:
        parts = self.runner.ask_all("stream_figures") if self.flow.arrivals else [{}]
        once = {name for name in parts[0] if self.dist(name).kind == "all"}
        found = {
            name: {what: sum(part[name][what] for part in (parts[:1] if name in once else parts)) for what in figures}
            for name, figures in parts[0].items()
        }
        for name, arrivals in self.flow.arrivals.items():
            found[name]["rows"] = arrivals.next - 1
        return found

    def measure(self) -> Callable[[Operator], OperatorStats]:
        """Sum up over all partitions; rows of a table that every partition has count once."""
        parts = self.runner.ask_all("figures")
        copied = {
            scan.fingerprint for name, scan in self._template.flow.tables.items() if self.dist(name).kind == "all"
        }

        def summed(op: Operator) -> OperatorStats:
            shares = [part.get(op.fingerprint, OperatorStats()) for part in parts]
            added = total(shares)
            return added._replace(rows=shares[0].rows) if op.fingerprint in copied else added

        return summed

    def read_joins(self, wanted: Collection[str]) -> dict[str, JoinReading]:
        parts = self.runner.ask_all("read_joins", tuple(wanted))
        found = {name: [part[name] for part in parts if name in part] for name in wanted}
        return {name: combined(readings) for name, readings in found.items() if readings}

    def sizes(self) -> dict[str, int]:
        parts = self.runner.ask_all("sizes")
        once = {name for name in parts[0] if self.dist(name).kind in ("all", "one")}
        return {name: parts[0][name] if name in once else sum(part[name] for part in parts) for name in parts[0]}

    def placement(self, name: str, program: Program) -> list[str]:
        """Return where a view and its tables live, and how its recursion is partitioned."""
        placed = self.plan.distributed
        schema = self.plan.views[name].schema
        lines = [f"{self.runner.partitions} partitions, rows live {describe_distribution(placed.views[name], schema)}"]
        piece = next(piece for piece in placed.pieces if name in piece.views)
        if piece.strategy:
            lines.append(f"recursion {piece.strategy}")
        for table in sorted(tables_of(piece)):
            found = program.tables[table]
            lines.append(f"{table_kind(found)} {table} {describe_distribution(placed.tables[table], found.schema)}")
        lines += [f"aggregate in two steps by {groups}" for groups in two_steps(piece)]
        lines += [
            described
            for join in piece.joins
            if (described := describe_heavy(join, self.plan.heavy.get(join.name, HeavyKeys()), self.dictionary))
        ]
        stages = 1 + max((op.stage for op in upwards([self.operator(name)])), default=0)
        steps = f"{stages} superstep{'s' * (stages != 1)} an epoch" + (" or more" if piece.exchange else "")
        if self.runner.jobs is not None:
            steps += ", inline or in one job" if self.runner.jobs.exchanges else ", inline or a job each"
        lines.append(steps)
        epoch, total = self._shipped_under(upwards([self.operator(name)]))
        if total.messages:
            lines.append(f"shipped {_traffic(total)}; in the last epoch {_traffic(epoch)}")
        return lines

    def shipped(self) -> dict[str, Shipped]:
        """Return what the operators under each view have sent from partition to partition; under the first that has
        them."""
        found, seen = {}, set[int]()
        for name in self.flow.views:
            if name in self.plan.transient:
                continue
            mine = [op for op in upwards([self.operator(name)]) if id(op) not in seen]
            seen |= {id(op) for op in mine}
            found[name] = self._shipped_under(mine)
        return found

    def _shipped_under(self, operators: Iterable[Operator]) -> Shipped:
        epoch = total = Traffic()
        for op in operators:
            mine = self.runner.shipped.get(op.fingerprint, Shipped())
            epoch, total = epoch.plus(mine.epoch), total.plus(mine.total)
        return Shipped(epoch, total)

    def figures(self) -> dict[str, Any]:
        runner = self.runner
        return {
            "partitions": self.partitions,
            "partition_bytes": list(runner.bytes),
            "mail": runner.jobs.mail if runner.jobs is not None else "inline",
            "runs": asdict(runner.total),
            "last_run": asdict(runner.latest),
            "shipped": {
                view: {"epoch": shipped.epoch._asdict(), "total": shipped.total._asdict()}
                for view, shipped in self.shipped().items()
            },
        }

    # -- images ------------------------------------------------------------------------------------------------------

    def is_image_due(self, store: Store) -> bool:
        from whence.runtime.spark.driver.images import is_image_due

        return is_image_due(self, store)

    def begin_image(self, coordinator: Coordinator, store: Store) -> Callable[[], int]:
        from whence.runtime.spark.driver.images import write_image

        epoch = write_image(coordinator, self, store)
        return lambda: epoch  # nothing is left to do


def _fill(scan: Scan, relation: PartitionedRelation, wanted: bool) -> None:
    """Copy the rows of a table or view."""
    if wanted and isinstance(scan, StreamScan):
        batch = relation.contents()
        scan.kept.append(batch.rows, batch.ann)
        scan.kept.commit(None)
    elif wanted:
        scan.relation.apply(relation.contents())
        scan.relation.commit()


def _names_in(node: Node) -> Iterable[str]:
    for n in logical.walk(node):
        yield from tables_in(n)
        if isinstance(n, logical.Ref):
            yield n.view


def _traffic(traffic: Traffic) -> str:
    """Traffic for people.

    >>> _traffic(Traffic(1, 2000, 5000))
    '1 message, 2,000 rows, 5.0 kB'
    """
    parts = [f"{n:,} {what}{'s' * (n != 1)}" for n, what in ((traffic.messages, "message"), (traffic.rows, "row"))]
    return ", ".join([*parts, in_bytes(traffic.bytes)])
