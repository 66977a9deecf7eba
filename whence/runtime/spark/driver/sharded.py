"""The runtime on Spark: a durable database whose tables and views are in partitions.

The log is that of an embedded database, what came to the tables and nothing else, so either runtime opens what the
other has written. An epoch is a run of the crew (`crew.py`): small ones in this process, others as Spark jobs. It is
written to the log when all partitions have done it and can still take it back; whoever is killed in between finds,
after recovery, all of it or nothing.
"""

from __future__ import annotations

import logging
import secrets
import shutil
import tempfile
import threading
import time
import weakref
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np

from whence.engine.core.epoch import Epoch, Inputs, InputSection
from whence.engine.core.fingerprint import fingerprint
from whence.engine.core.image import SoundImages, StaleImage
from whence.engine.core.operator import Batch
from whence.engine.exchange.ship import by_arrival
from whence.engine.streams.promise import promise_in
from whence.model.codes import Codes, Dictionary
from whence.model.errors import CorruptionError, SparkError, WhenceError
from whence.model.progress import Progress
from whence.plan.algebra.distribution import Distribution
from whence.runtime.durable.durable import Durable
from whence.runtime.durable.snapshots import Snapshots
from whence.runtime.questions import explain as explaining
from whence.runtime.spark.driver.arrival_counter import ArrivalCounter
from whence.runtime.spark.driver.catalog import ShardedCatalog
from whence.runtime.spark.driver.crew import SuperstepRunner
from whence.runtime.spark.driver.options import Options
from whence.runtime.spark.driver.snapshots import ShardedSnapshots
from whence.runtime.spark.frames.routing import EVERY, RawRows, Routing, counted
from whence.runtime.spark.frames.sinks import Sink
from whence.runtime.spark.frames.streams import AttachedStreams
from whence.runtime.spark.session.session import driver_host
from whence.runtime.spark.session.warming import warm_up
from whence.runtime.spark.worker.commands import PartitionCommand
from whence.runtime.spark.worker.dictionary_server import DictionaryServer
from whence.runtime.writing.epochs import Told
from whence.runtime.writing.tables import Early, Unmatched
from whence.sql import statements as st
from whence.state.disk import Disk
from whence.state.folder import Folder, RecoveryPoint
from whence.state.inputs import adopt, input_name, write_input
from whence.state.manifest import EXCHANGE, INPUTS
from whence.state.store import Store

log = logging.getLogger("whence")


class Sharded(Durable):
    """A database in partitions, from `keep` on."""

    def __init__(self, recursion_limit: int, options: Options, clock: Callable[[], float] | None = None):
        self.options, self.spark = options, options.spark
        self.partitions = options.partitions or 1
        self._place = Path()  # known when the store is
        self._words: DictionaryServer | None = None
        self._life = 0  # how often it has begun anew
        self._nonce = secrets.token_hex(4)
        self.missing = Unmatched()  # deletions that found nothing, since the database was opened
        self._run_missing = Unmatched()  # those of the last run
        self._told = Told(0, 0, set(), {})  # of the last epoch
        self.input_bytes = 0  # of files that recovery would have to take in again
        self.after_epoch: list[Sink] = []  # told of an epoch when it is committed, by whoever has committed it
        self.streams = AttachedStreams(self)
        self.temporary: Path | None = None
        self._warming: threading.Thread | None = None
        super().__init__(recursion_limit, clock)

    # -- beginning and ending ----------------------------------------------------------------------------------------

    def _new_catalog(self) -> ShardedCatalog:
        dictionary = Dictionary()
        self._life += 1
        options = self.options
        crew = SuperstepRunner(
            self.partitions,
            dictionary,
            self._place,
            inline_rows=options.inline_rows,
            inline_bytes=options.inline_bytes,
        )
        if self._words is not None:
            self._words.close()
            self._words = None
        if self.spark is not None and self._place.parts:
            from whence.runtime.spark.driver.jobs import SparkJobBackend

            self._words = DictionaryServer(dictionary, host=options.host or driver_host(self.spark), port=options.port)
            crew.workers = SparkJobBackend(self.spark, crew, self._words.address, self.nonce, options.worker_memory)
        return ShardedCatalog(self.recursion_limit, dictionary, crew, options.copied_rows)

    @property
    def nonce(self) -> str:
        """Of this life of this driver."""
        return f"{self._nonce}-{self._life}"

    @property
    def crew(self) -> SuperstepRunner:
        return self.sharded.crew

    @property
    def sharded(self) -> ShardedCatalog:
        assert isinstance(self.catalog, ShardedCatalog)
        return self.catalog

    def keep(self, store: Store, progress: Progress | None = None) -> None:
        start = store.folder.starts()[-1]
        self.partitions = self.options.choose(start.partitions or None)
        self._place = store.folder.path  # whatever folder workers are in
        if self.spark is not None:
            self._warming = warm_up(self.spark)
        super().keep(store, progress)

    def close(self) -> None:
        self.streams.close()
        try:
            super().close()
        finally:
            self.crew.close()
            if self._warming is not None:
                self._warming.join()
            if self._words is not None:
                self._words.close()
            if self.temporary is not None:
                shutil.rmtree(self.temporary, ignore_errors=True)

    def restore(
        self,
        creates: list[st.Statement],
        images: SoundImages,
        folder: Folder,
        start: RecoveryPoint,
        meta: dict[str, Any],
        progress: Progress | None,
    ) -> None:
        """Begin from an image: from those of the partitions, if they are of this plan, else from the tables alone."""
        catalog, placed, lost = self.sharded, meta.get("partitions"), None
        if placed is not None and placed["count"] == self.partitions:
            lost = images.note  # as many as before: nobody could open it in a better way
            fixed = {name: Distribution(d["kind"], tuple(d["cols"])) for name, d in placed["tables"].items()}
            catalog.declare(creates, fixed, frozenset(placed["small"]), placed["since"])
            if catalog.digest == placed["digest"] and self._begin_from(images, folder, start, placed):
                return
            functions, replaying = self.program, catalog.replaying
            self.catalog = self._new_catalog()
            self.catalog.replaying = replaying
            self.catalog.program = replace(functions, tables={}, views={})
            self.catalog.dictionary.extend(0, self.dictionary.since(0))
            self.dictionary = self.catalog.dictionary
        log.info("%s: its tables are spread over %d partitions, and its views computed", folder.path, self.partitions)
        self.catalog.restore(creates, images, progress, lost)

    def _begin_from(self, images: SoundImages, folder: Folder, start: RecoveryPoint, placed: Mapping[str, Any]) -> bool:
        """Let the partitions load their images; return False if some cannot, and all must be computed from tables."""
        catalog, crew = self.sharded, self.crew
        catalog.flow.numbers |= {name: ArrivalCounter(**given) for name, given in placed.get("streams", {}).items()}
        catalog.begin_from({p: folder.partition_chain(p, start) for p in range(self.partitions)})
        crew.bytes, crew.owed = list(placed["bytes"]), list(placed.get("owed", crew.owed))
        try:
            for damage in crew.ask_all("damage"):
                for message in damage:
                    images.note(message)
        except (StaleImage, CorruptionError) as error:
            images.note(str(error))
            return False
        if catalog.lifetimes:
            crew.deadlines = crew.ask_all("deadlines")
        return True

    # -- epochs ------------------------------------------------------------------------------------------------------

    def _run(self, epoch: Epoch, wanted: Collection[str] | None = None) -> Told:
        crew, catalog = self.crew, self.sharded
        if wanted is None:
            wanted = self._follows()
        steps, rows = self._first_steps(epoch)
        try:
            outcome = crew.run(steps, wanted, rows)
        except BaseException:
            crew.take_back()
            raise
        self._expired, self._run_missing = outcome.expired, outcome.missing
        tables = {name: n for name, n in outcome.changed.items() if name in catalog.program.tables}
        views = {name: n for name, n in outcome.changed.items() if name in catalog.flow.views}
        changes = {n: by_arrival(b) if self.is_stream(n) else b for n, b in outcome.changes.items()}
        self._told = Told(sum(tables.values()), sum(views.values()), {*outcome.changed}, changes)
        return self._told

    def _supposed(self, epoch: Epoch, names: Collection[str]) -> Mapping[str, Batch]:
        told, latest = self._told, self.crew.latest
        try:
            return self._run(epoch, names).changes
        finally:
            self._told, self.crew.latest = told, latest

    def _forget_words(self, first: int) -> None:
        if self.crew.workers is None:  # else partitions elsewhere know them by these codes
            super()._forget_words(first)

    def _first_steps(self, epoch: Epoch) -> tuple[dict[int, PartitionCommand], int]:
        """What each partition gets of an epoch, and how many rows that are."""
        catalog, pieces = self.sharded, epoch.inputs.pieces if epoch.inputs is not None else ()
        deltas: dict[int, dict[str, Batch]] = {}
        for name, batch in epoch.deltas.items():
            for p, part in catalog.to_partitions(name, batch).items():
                deltas.setdefault(p, {})[name] = part
        refreshed: dict[int, dict[str, Any]] = {}
        for name, rows in epoch.refreshed.items():
            again = Batch(rows, np.ones(len(rows), np.int64), True)
            for p, part in catalog.to_partitions(name, again).items():
                refreshed.setdefault(p, {})[name] = part.rows
        raw: dict[int, dict[str, list[InputSection]]] = {}
        early = epoch.inputs.early if epoch.inputs is not None else {}
        if pieces:
            for p in range(self.partitions) if catalog.lifetimes else ():
                raw[p] = {}  # what is due leaves everywhere
            for piece in pieces:
                for p in range(self.partitions) if piece.partition == EVERY else (piece.partition,):
                    raw.setdefault(p, {}).setdefault(piece.table, []).append(piece)
        promise = promise_in(epoch.inputs.marks) if epoch.inputs is not None else None
        told = range(self.partitions) if promise is not None else ()
        first = PartitionCommand(0, 0, 0, epoch.time, early=early, epoch=epoch.number, promise=promise)
        steps = {
            p: replace(first, deltas=deltas.get(p, {}), refreshed=refreshed.get(p, {}), raw=raw.get(p))
            for p in sorted({*deltas, *refreshed, *raw, *told})
        }
        count = sum(len(b.ann) for b in epoch.deltas.values()) + sum(piece.rows for piece in pieces)
        return steps, count

    def _apply(self, epoch: Epoch, record: bool) -> int:
        gone = super()._apply(epoch, record)
        if record:
            self._hand_over(epoch.number, self._told.changes)
        return gone

    def _hand_over(self, epoch: int, changes: Mapping[str, Batch]) -> None:
        """Hand an epoch's changes to every sink; what the first of them raises is raised when all have been called."""
        failures = []
        for hook in list(self.after_epoch):
            try:
                hook(epoch, changes)
            except SparkError as error:
                failures.append(error)
        if failures:
            raise failures[0]

    def create_views(self, creates: list[st.CreateView], progress: Progress | None = None) -> list[str]:
        with self._writer:  # so that sinks are told before the next epoch begins
            before, self._differences = self.epoch, {}
            names = super().create_views(creates, progress)
            if self.epoch > before:
                for hook in self.after_epoch:
                    hook.redefine()
                self._hand_over(self.epoch, self._differences)
            return names

    _differences: Mapping[str, Batch] = {}  # of views that were redefined in the last epoch

    def _follows(self) -> set[str]:
        return super()._follows() | {hook.view for hook in self.after_epoch}

    def _redefined(self, name: str, change: Batch) -> None:
        super()._redefined(name, change)
        self._differences = {**self._differences, name: change}

    def _end_followers(self, name: str, why: str) -> None:
        super()._end_followers(name, why)
        for hook in [hook for hook in self.after_epoch if hook.view == name]:
            hook.end(why)

    def _take_back(self) -> None:
        self.crew.take_back()

    def contents(self, name: str) -> tuple[Codes, Codes]:
        batch = self._operator(name).contents()
        if self.is_stream(name):
            batch = self.visible(name, batch)
        return batch.rows, batch.ann

    def _keep(self, epoch: Epoch) -> None:
        self.crew.keep()
        self._number(epoch)
        if epoch.inputs is not None:
            self.marks.update(epoch.inputs.marks)
            self.input_bytes += sum(piece.rows * (8 * piece.width + 1) for piece in epoch.inputs.pieces)

    def _number(self, epoch: Epoch) -> None:
        """Note which rows have come to streams, and which promises."""
        promise = promise_in(epoch.inputs.marks) if epoch.inputs is not None else None
        for name, numbers in self.sharded.flow.numbers.items():
            if name in epoch.deltas:
                at = epoch.deltas[name].rows[:, -1]
                numbers.note(len(at), int(at[-1]))
            pieces = [p for p in epoch.inputs.pieces if p.table == name] if epoch.inputs is not None else []
            if pieces:  # their rows are counted without a gap
                count = sum(piece.rows for piece in pieces)
                numbers.note(count, min(piece.at for piece in pieces) + count - 1)
            if promise is not None and name in promise.columns:
                numbers.note(0, promise.at)

    def can_take(self, epoch: Epoch) -> bool:
        inputs = epoch.inputs
        return inputs is None or inputs.layout == self._layout({piece.table for piece in inputs.pieces})

    def _layout(self, tables: Iterable[str]) -> str:
        """A name for where the rows of some tables live."""
        return fingerprint((self.partitions, [(name, self.sharded.dist(name)) for name in sorted(tables)]))

    # -- streams -----------------------------------------------------------------------------------------------------

    def routing(self) -> Routing:
        """What a task must know to encode and route rows."""
        assert self._words is not None
        self.sharded.pinned |= self.program.tables.keys()  # what is on its way must not find them elsewhere
        tables = {name: (table.schema, self.sharded.dist(name)) for name, table in self.program.tables.items()}
        streams = frozenset(self.sharded.flow.numbers)
        return Routing(self.partitions, tables, self._words.address, str(self._place), self.nonce, streams)

    def ingest(
        self, parts: Mapping[str, Sequence[RawRows | InputSection]], marks: Mapping[str, int], early: Early = "ignore"
    ) -> int:
        """One epoch of what sources gave, and of how far they have come; the number of the last epoch then."""
        self._ingest(parts, marks, early)
        return self.epoch

    def _ingest(
        self, parts: Mapping[str, Sequence[RawRows | InputSection]], marks: Mapping[str, int], early: Early
    ) -> Unmatched:
        """The same; how many deletions found no row."""
        small = all(isinstance(part, RawRows) for some in parts.values() for part in some)
        with self._writer:
            self._ready_to_write()
            if self._open is not None:
                raise WhenceError("rows of a stream cannot be taken in inside a transaction")
            raw = {n: [part for part in some if isinstance(part, RawRows)] for n, some in parts.items()}
            if small and self.crew.is_inline(sum(len(part.signs) for some in raw.values() for part in some)):
                missing = self._ingest_here(raw, marks, early)
            else:
                missing = self._ingest_files(parts, marks, early)
            self.missing = self.missing.plus(missing)
            written = self._written()
        self._settle(written)
        return missing

    def left_to_jobs(self, table: str, sign: int) -> bool:
        """Whether partitions elsewhere would have to be asked about rows that are inserted or deleted: then they are
        better left to them altogether."""
        if self.is_writing or self.crew.is_inline(0):
            return False
        found = self.table_of(table)
        if found.stream is not None:
            return False
        owes = any(table in owed for owed in self.crew.owed)
        return bool(found.key or found.lifetime is not None or owes) if sign > 0 else not found.key

    def take(self, table: str, rows: Codes, sign: int, early: Early = "ignore") -> int:
        """Insert or delete rows in an epoch of their own, by one job; how many were, or were there."""
        if not len(rows):
            return 0
        return len(rows) - sum(self._ingest({table: [RawRows(rows, np.full(len(rows), sign, np.int64))]}, {}, early))

    def _ingest_here(self, parts: Mapping[str, Sequence[RawRows]], marks: Mapping[str, int], early: Early) -> Unmatched:
        self._marks_due, missing = dict(marks), Unmatched()
        try:
            with self._outermost() as writes:
                for name, some in parts.items():
                    if some:
                        rows = np.concatenate([part.rows for part in some])
                        signs = np.concatenate([part.signs for part in some])
                        missing = missing.plus(writes.table(name).take(rows, signs, early))
        finally:
            self._marks_due = {}
        return missing

    _marks_due: Mapping[str, int] = {}

    def _gathered(self, epoch: Epoch) -> Epoch:
        """An epoch of a transaction, before it is applied; with marks it is one even if no row changes."""
        epoch = super()._gathered(epoch)
        return replace(epoch, inputs=Inputs((), dict(self._marks_due))) if self._marks_due else epoch

    def _ingest_files(
        self, parts: Mapping[str, Sequence[RawRows | InputSection]], marks: Mapping[str, int], early: Early
    ) -> Unmatched:
        number = self.epoch + 1
        listed: list[InputSection | int] = []  # in order; a number is a section yet to be written
        sections: list[tuple[str, int, Any, Any]] = []
        begins: list[int] = []  # what their rows' `$at`s are counted from
        at = self.sharded.flow.last_at + 1
        for name, some in parts.items():
            stream, files = name in self.sharded.flow.numbers, dict[str, int]()
            for part in some:
                if isinstance(part, InputSection):
                    if stream and part.file not in files:
                        files[part.file] = at
                        at += sum(p.rows for p in some if isinstance(p, InputSection) and p.file == part.file)
                    listed.append(replace(part, at=files.get(part.file, 0)))
                    continue
                rows = counted(part.rows) if stream else part.rows
                for p, own in self.sharded.to_partitions(name, Batch(rows, part.signs), EVERY).items():
                    listed.append(len(sections))
                    sections.append((name, p, own.rows, own.ann))
                    begins.append(at if stream else 0)
                at += len(rows) if stream else 0
        written: list[InputSection] = []
        if sections:
            name = input_name(number, f"driver-{self.nonce}-{time.monotonic_ns()}")
            written = write_input(Disk(), self._place / INPUTS / name, sections)
            written = [replace(piece, at=begin) for piece, begin in zip(written, begins, strict=True)]
        pieces = [written[part] if isinstance(part, int) else part for part in listed]
        otherwise = {} if early == "ignore" else dict.fromkeys(parts, early)
        inputs = Inputs(tuple(pieces), dict(marks), self._layout(parts), otherwise)
        inputs = adopt(Disk(), self._place, inputs, number)
        epoch = Epoch(number, self.clock.now(), {}, {}, inputs)
        self._apply(epoch, record=True)
        return self._run_missing

    def export_parts(self, name: str, folder: str | Path | None = None) -> Path:
        """Let the partitions write a table or view as Parquet, to a folder that is theirs alone; that folder."""
        with self.reading():
            self.crew.write_down()  # first: the folder of the exchange may have to be made anew
            if folder is None:
                folder = self._place / EXCHANGE / f"{name}-{self.epoch}-{secrets.token_hex(4)}"
            Path(folder).mkdir(parents=True, exist_ok=True)
            flow = self.sharded.flow
            homes = (flow.tables.get(name) or flow.views[name]).homes
            self.crew.ask({p: ("export", (name, str(folder))) for p in homes}, self.options.inline_rows + 1)
        return Path(folder)

    # -- what lasts --------------------------------------------------------------------------------------------------

    def snapshots_of(self, store: Store, broken: Callable[[], bool]) -> Snapshots:
        return ShardedSnapshots(self, store, broken)

    def progress(self) -> dict[str, Any]:
        """Of the last epoch, at no cost."""
        crew = self.crew
        return {
            **asdict(crew.latest),
            "epoch": self.epoch,
            "rows_out": self._told.rows_out,
            "state_bytes": crew.state_bytes,
        }

    def metrics(self) -> dict[str, Any]:
        return explaining.metrics(self)

    def storage(self) -> dict[str, Any]:
        crew = self.crew
        return {
            **super().storage(),
            "partitions": self.partitions,
            "partition_bytes": list(crew.bytes),
            "missing_deletions": self.missing.passed,
            "held_deletions": self.missing.held,
            "runs": asdict(crew.total),
            "last_run": asdict(crew.latest),
            "shipped": {
                view: {"epoch": shipped.epoch._asdict(), "total": shipped.total._asdict()}
                for view, shipped in self.sharded.shipped().items()
            },
        }


def temporary_folder(runtime: Sharded) -> Path:
    """A place for a database that nobody named; it goes with it, closed or not."""
    runtime.temporary = Path(tempfile.mkdtemp(prefix="whence-"))
    weakref.finalize(runtime, shutil.rmtree, runtime.temporary, ignore_errors=True)
    return runtime.temporary
