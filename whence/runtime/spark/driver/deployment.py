"""A database in partitions: in this process, or in Spark's workers.

The log is that of an embedded database, what came to the tables and nothing else, so either deployment opens what the
other has written. Images of partitions are taken up if they are of the same plan; else tables are spread from the
images of all of them, and views computed.
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from whence.engine.core.epoch import Epoch
from whence.engine.core.image import Images, SoundImages, StaleImage
from whence.engine.core.operator import Batch
from whence.engine.core.relation import Relation
from whence.engine.streams.connection_point import ConnectionPoint
from whence.model.codes import Codes, Dictionary
from whence.model.errors import CorruptionError
from whence.model.progress import Progress
from whence.plan.algebra.distribution import Distribution
from whence.plan.algebra.program import Program, Table, closed_name, is_beside, owed_name, owner_of
from whence.plan.recursion.strata import Component
from whence.plan.rewrite.hold_inputs import holds_in
from whence.plan.streams.model import Retention
from whence.runtime.catalog import Catalog
from whence.runtime.durable.uniting import check_recomputable
from whence.runtime.partition_plan import NOTHING, PartitionPlan
from whence.runtime.spark.driver.arrival_counter import ArrivalCounter
from whence.runtime.spark.driver.driver import SparkDriver
from whence.runtime.spark.driver.heavy_joins import from_json
from whence.runtime.spark.driver.options import Options
from whence.runtime.spark.driver.partitioned_backend import PartitionedBackend
from whence.runtime.spark.driver.planner import PartitionPlanner
from whence.runtime.spark.driver.supersteps import SuperstepRunner
from whence.runtime.spark.session.session import driver_host
from whence.runtime.spark.worker.commands import PartitionCommand
from whence.runtime.spark.worker.dictionary_server import DictionaryServer
from whence.sql import statements as st
from whence.sql.reader import deep_stack
from whence.state.folder import Folder, RecoveryPoint
from whence.state.store import Store

if TYPE_CHECKING:
    from whence.runtime.coordinator import Coordinator

log = logging.getLogger("whence")
_RECOMPUTED = "partitions compute rows again when they catch up"
_Whole = Mapping[str, Relation | ConnectionPoint]


class PartitionedDeployment:
    """Partitions as some options say, in the folder of a store."""

    def __init__(self, options: Options) -> None:
        self.options, self.spark = options, options.spark
        self.partitions = options.partitions or 1
        self.folder = Path()  # known when the store is
        self.words: DictionaryServer | None = None
        self._life = 0  # how often a catalog has been opened
        self._nonce = secrets.token_hex(4)
        self.backend: PartitionedBackend
        self.planner: PartitionPlanner

    @property
    def nonce(self) -> str:
        """A name for the last catalog of this driver: no other ever has the same."""
        return f"{self._nonce}-{self._life}"

    def use(self, store: Store) -> None:
        """Have as many partitions as the options and the store say, in the store's folder."""
        self.partitions = self.options.choose(store.folder.starts()[-1].partitions or None)
        self.folder = store.folder.path  # whatever folder workers are in

    def open(self, recursion_limit: int, recomputed: str = "") -> Catalog:
        options, dictionary = self.options, Dictionary()
        self._life += 1
        runner = SuperstepRunner(
            self.partitions,
            dictionary,
            self.folder,
            inline_rows=options.inline_rows,
            inline_bytes=options.inline_bytes,
        )
        self.close()
        if self.spark is not None and self.folder.parts:
            from whence.runtime.spark.driver.jobs import SparkJobBackend

            self.words = DictionaryServer(dictionary, host=options.host or driver_host(self.spark), port=options.port)
            runner.jobs = SparkJobBackend(
                self.spark, runner, self.words, self.nonce, options.worker_memory, options.choose_mail()
            )
        self.backend = PartitionedBackend(dictionary, runner)
        self.planner = PartitionPlanner(self.backend, recursion_limit, options.copied_rows, options.heavy_rows)
        return Catalog(recursion_limit, dictionary, self.backend, self.planner, _RECOMPUTED)

    def close(self) -> None:
        """Stop serving the dictionary."""
        if self.words is not None:
            self.words.close()
            self.words = None

    def driver(self, coordinator: Coordinator) -> SparkDriver:
        return SparkDriver(coordinator, self)

    # -- images ------------------------------------------------------------------------------------------------------

    @deep_stack()
    def restore(
        self,
        coordinator: Coordinator,
        creates: Sequence[st.Statement],
        images: SoundImages,
        folder: Folder,
        start: RecoveryPoint,
        meta: Mapping[str, Any],
        progress: Progress | None,
    ) -> None:
        """Begin from the images of the partitions, if they are of this plan, else from the tables alone."""
        placed, lost = meta.get("partitions"), None
        if placed is not None and placed["count"] == self.partitions:
            lost = images.note  # as many as before: there is no better way to open it
            fixed = {name: Distribution(d["kind"], tuple(d["cols"])) for name, d in placed["tables"].items()}
            plan = replace(NOTHING, heavy=from_json(placed.get("heavy", {})), ranked=placed.get("ranked", False))
            self._declare(coordinator.catalog, creates, fixed, frozenset(placed["small"]), placed["since"], plan)
            if self.backend.digest == placed["digest"] and self._begin_from(images, folder, start, placed):
                return
            words, replaying = coordinator.dictionary.since(0), self.backend.replaying
            coordinator.renew_catalog()
            coordinator.dictionary.extend(0, words)
            self.backend.replaying = replaying
        log.info("%s: its tables are spread over %d partitions, and its views computed", folder.path, self.partitions)
        self._restore_tables(coordinator.catalog, creates, images, progress, lost)

    def _declare(
        self,
        catalog: Catalog,
        creates: Sequence[st.Statement],
        fixed: Mapping[str, Distribution],
        small: frozenset[str],
        since: Mapping[str, int],
        decided: PartitionPlan,
    ) -> None:
        """Know tables and views, and how they are placed, without telling the partitions."""

        def planned(bound: Program, planned: Program, ordered: list[Component]) -> PartitionPlan:
            return self.planner.restored(bound, planned, ordered, fixed, small, since, decided)

        catalog.declare(creates, planned)
        self.backend.pretend(catalog.plan)

    def _begin_from(self, images: SoundImages, folder: Folder, start: RecoveryPoint, placed: Mapping[str, Any]) -> bool:
        """Let the partitions load their images; return False if some cannot, and all must be computed from tables."""
        backend, runner = self.backend, self.backend.runner
        backend.flow.arrivals |= {name: ArrivalCounter(**given) for name, given in placed.get("streams", {}).items()}
        backend.begin_from({p: folder.partition_chain(p, start) for p in range(self.partitions)})
        runner.bytes, runner.owed = list(placed["bytes"]), list(placed.get("owed", runner.owed))
        try:
            for damage in runner.ask_all("damage"):
                for message in damage:
                    images.note(message)
            counts = runner.ask_all("restored")
        except (StaleImage, CorruptionError) as error:
            images.note(str(error))
            return False
        backend.flow.restored, backend.flow.primed = (sum(count) for count in zip(*counts, strict=True))
        if backend.lifetimes:
            runner.deadlines = runner.ask_all("deadlines")
        if any(holds_in(node, {}) for piece in backend.plan.distributed.pieces for node in piece.plans):
            runner.pending = runner.ask_all("pending")
        return True

    def _restore_tables(
        self,
        catalog: Catalog,
        creates: Sequence[st.Statement],
        images: Images,
        progress: Progress | None,
        lost: Callable[[str], None] | None,
    ) -> None:
        """Take up tables and views as they were declared, with rows as images of whole tables have them."""
        whole = _whole_tables([c.table for c in creates if isinstance(c, st.CreateTable)], images, progress)
        few = self.planner.copied_rows
        small = (n for n, held in whole.items() if isinstance(held, Relation) and not is_beside(n) and len(held) <= few)
        self._declare(catalog, creates, {}, frozenset(small), {}, NOTHING)
        streams = {name: kept for name, kept in whole.items() if isinstance(kept, ConnectionPoint)}
        check_recomputable(catalog.planned, streams, lost=lost)
        backend, runner = self.backend, self.backend.runner
        for name, kept in streams.items():
            backend.flow.arrivals[name] = ArrivalCounter(kept.next, kept.reached)
        backend.take_up(catalog.plan, 0)
        runner.commit()
        try:
            runner.run(self._shares(whole, catalog.program), (), sum(map(len, whole.values())))
        except BaseException:
            runner.undo()
            raise
        runner.commit()
        backend.flow.primed = len(backend.flow.order) * self.partitions

    def _shares(self, whole: _Whole, program: Program) -> dict[int, PartitionCommand]:
        """Return what each partition is given of whole tables: its rows, and when they are due."""
        deltas: dict[int, dict[str, Batch]] = {p: {} for p in range(self.partitions)}
        deadlines: dict[int, dict[str, Codes]] = {p: {} for p in range(self.partitions)}
        for name, relation in whole.items():
            for p, part in self.backend.to_partitions(name, relation.scan()).items():
                deltas[p][name] = part
                if isinstance(relation, Relation) and program.tables[owner_of(name)].notes_arrivals:
                    deadlines[p][name] = relation.acc[relation.lookup(part.rows), 0]
        return {p: PartitionCommand(Epoch(0, 0, deltas[p]), deadlines=deadlines[p]) for p in deltas}


def _whole_tables(tables: Sequence[Table], images: Images, progress: Progress | None) -> _Whole:
    """Return tables, their debts and their closed keys as images have them."""
    whole: dict[str, Relation | ConnectionPoint] = {}
    relation = partial(_restored, images=images)
    for done, table in enumerate(tables):
        if progress is not None:
            progress(f"loading table {table.name}", done, len(tables))
        if table.stream is not None:
            empty: Relation | ConnectionPoint = ConnectionPoint(len(table.schema) + 1, Retention(), name=table.name)
        else:
            empty = Relation(len(table.schema), int(table.notes_arrivals))
        found = relation(table.name, empty)
        if found is None:
            raise StaleImage(f"there is no image of table {table.name}")
        whole[table.name] = found
        if table.stream is None:
            owed = relation(owed_name(table.name), Relation(len(table.schema), int(table.notes_arrivals)))
            if owed is not None:
                whole[owed_name(table.name)] = owed
        elif table.promises.closes is not None:
            closed = relation(closed_name(table.name), Relation(len(table.closed_keys.schema)))
            if closed is None:
                raise StaleImage(f"there is no image of the closed keys of {table.name}")
            whole[closed_name(table.name)] = closed
    return whole


def _restored(name: str, target: Relation | ConnectionPoint, images: Images) -> Relation | ConnectionPoint | None:
    image = images.get(f"table/{name}")
    if image is None:
        return None
    target.restore(image)
    return target
