"""Take rows into a database in partitions, as sources give them, and write its relations out; small epochs in this
process, others by Spark jobs.

An epoch is written to the log when all partitions have run it and can still undo it; a driver that is killed in between
finds, after recovery, all of it or nothing.
"""

from __future__ import annotations

import secrets
import shutil
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from whence.engine.core.epoch import Epoch, InputSection
from whence.engine.core.operator import Batch
from whence.io.rejects import TABLE as REJECTS
from whence.io.rejects import encode_rejects
from whence.model.codes import Codes
from whence.model.errors import WhenceError
from whence.runtime.questions import explain as explaining
from whence.runtime.spark.driver.supersteps import SuperstepRunner
from whence.runtime.spark.frames.refusals import Refusals
from whence.runtime.spark.frames.routing import EVERY, Part, Routing, counted
from whence.runtime.spark.frames.splitting import in_order
from whence.runtime.spark.frames.streams import AttachedStreams
from whence.runtime.spark.session.warming import warm_up
from whence.runtime.writing.stream_writes import StreamWriteSet
from whence.runtime.writing.tables import Early, Unmatched
from whence.state.disk import Disk
from whence.state.inputs import adopt, input_name, read_input, write_input
from whence.state.manifest import EXCHANGE, INPUTS

if TYPE_CHECKING:
    from whence.runtime.coordinator import Coordinator
    from whence.runtime.spark.driver.deployment import PartitionedDeployment


class SparkDriver:
    """The driver of one coordinator."""

    def __init__(self, coordinator: Coordinator, deployment: PartitionedDeployment) -> None:
        self._coordinator, self._deployment = coordinator, deployment
        self.spark = deployment.spark
        self.missing = Unmatched()  # deletions that found nothing, since the database was opened
        self.streams = AttachedStreams(coordinator)
        self.temporary: Path | None = None  # the folder of a database that has no name
        self._warming: threading.Thread | None = None

    @property
    def runner(self) -> SuperstepRunner:
        return self._deployment.backend.runner

    def warm_up(self) -> None:
        """Start workers while the database is opened."""
        if self.spark is not None:
            self._warming = warm_up(self.spark)

    def end_streams(self) -> None:
        self.streams.close()

    def close(self) -> None:
        self.runner.close()
        if self._warming is not None:
            self._warming.join()
        self._deployment.close()
        if self.temporary is not None:
            shutil.rmtree(self.temporary, ignore_errors=True)

    # -- taking rows in ----------------------------------------------------------------------------------------------

    def routing(self) -> Routing:
        """Return what a task must know to encode and route rows."""
        deployment, backend, program = self._deployment, self._deployment.backend, self._coordinator.program
        assert deployment.words is not None
        deployment.planner.pinned |= program.tables.keys()  # what is on its way must not find them elsewhere
        tables = {name: (table.schema, backend.dist(name)) for name, table in program.tables.items()}
        streams = frozenset(backend.flow.arrivals)
        checked = {name: table for name, table in program.tables.items() if table.promises.checks}
        folder, words = str(deployment.folder), deployment.words.address
        return Routing(backend.partitions, tables, words, folder, deployment.nonce, streams, checked)

    def ingest(
        self,
        parts: Mapping[str, Sequence[Part]],
        positions: Mapping[str, int],
        early: Early = "ignore",
        refusals: Refusals | None = None,
    ) -> int:
        """Commit one epoch of what sources gave, and of how far they have come; return the number of the last epoch.
        With `refusals`, rows that break the order or a closed key of a stream are set apart."""
        self._take_in(lambda: parts, positions, early, refusals)
        return self._coordinator.epoch

    def take_in(
        self, parts: Mapping[str, Sequence[Part]], positions: Mapping[str, int], early: Early = "ignore"
    ) -> Unmatched:
        """Commit one epoch of what sources gave; return how many deletions found no row."""
        return self._take_in(lambda: parts, positions, early)

    def _take_in(
        self,
        encode: Callable[[], Mapping[str, Sequence[Part]]],
        positions: Mapping[str, int],
        early: Early,
        refusals: Refusals | None = None,
    ) -> Unmatched:
        """Commit one epoch of what `encode` returns. It is called when the database is ready to write: codes of before
        would be those of another dictionary, if it has just gone back after a failed sync."""
        coordinator = self._coordinator
        with coordinator.writer:
            coordinator.check_open()
            coordinator.storage.ready_to_write()
            if coordinator.open_transaction is not None:
                raise WhenceError("rows of a stream cannot be taken in inside a transaction")
            parts = encode()
            if not parts and not positions:
                return Unmatched()
            tables = coordinator.program.tables
            ordered = any(name in tables and tables[name].promises.follows_order for name in parts)
            if ordered:  # each row depends on those before it, in whatever task they were
                parts = {name: self._read_back(name, some) for name, some in parts.items()}
            raw = {name: [part for part in some if isinstance(part, Batch)] for name, some in parts.items()}
            small = all(isinstance(part, Batch) for some in parts.values() for part in some)
            if ordered or (small and self.runner.is_inline(sum(len(part) for some in raw.values() for part in some))):
                missing = self._take_in_here(raw, positions, early, refusals)
            else:
                missing = self.take_in_files(parts, positions, early)
            self.missing = self.missing.plus(missing)
            written = coordinator.storage.last
        coordinator.storage.wait_durable(written)
        return missing

    def left_to_jobs(self, table: str, sign: int) -> bool:
        """Return whether partitions elsewhere would have to be asked about rows that are inserted or deleted: then they
        are better left to them altogether."""
        if self._coordinator.is_writing or self.runner.is_inline(0):
            return False
        found = self._coordinator.table_of(table)
        if found.stream is not None:
            return False
        owes = any(table in owed for owed in self.runner.owed)
        return bool(found.key or found.lifetime is not None or owes) if sign > 0 else not found.key

    def take(self, table: str, encode: Callable[[], Codes | None], sign: int, early: Early = "ignore") -> int | None:
        """Insert or delete the rows that `encode` returns in an epoch of their own, by one job; return how many were,
        or were there. If it returns None, nothing is done, and None returned."""
        rows: Codes | None = None
        coordinator = self._coordinator

        def parts() -> Mapping[str, Sequence[Part]]:
            nonlocal rows
            rows = encode()
            promises = coordinator.table_of(table).promises
            if sign > 0 and promises.checks and rows is not None:
                coordinator.guard_of(coordinator.table_of(table)).check(rows)
            return {table: [Batch(rows, np.full(len(rows), sign, np.int64))]} if rows is not None and len(rows) else {}

        missing = self._take_in(parts, {}, early)
        return None if rows is None else len(rows) - sum(missing)

    def _read_back(self, name: str, parts: Sequence[Part]) -> list[Part]:
        """Return the rows of a table without those of files, which are removed; those of a stream in their order."""
        folder, disk = self._deployment.folder, Disk()
        found: list[Part] = []
        for file, some in groupby(parts, lambda part: part.file if isinstance(part, InputSection) else ""):
            if not file:
                found += some
                continue
            sections = [part for part in some if isinstance(part, InputSection)]
            read = [Batch(*read_input(disk, folder, section)) for section in sections]
            found += in_order(read, sections) if name in self._deployment.backend.flow.arrivals else read
            disk.remove(folder / INPUTS / file)
        return found

    def _routed_again(self, name: str, parts: Sequence[Part]) -> Sequence[Part]:
        """Return the rows of a table without those of files that were written for every partition, if they live
        elsewhere by now: those are read."""
        copied = self._deployment.backend.dist(name).kind == "all"
        if copied or not any(isinstance(part, InputSection) and part.partition == EVERY for part in parts):
            return parts
        return self._read_back(name, parts)

    def _take_in_here(
        self,
        parts: Mapping[str, Sequence[Batch]],
        positions: Mapping[str, int],
        early: Early,
        refusals: Refusals | None = None,
    ) -> Unmatched:
        missing = Unmatched()
        with self._coordinator.transaction() as writes:
            writes.source_positions = dict(positions)
            for name, some in parts.items():
                if some:
                    rows, signs = np.concatenate([p.rows for p in some]), np.concatenate([p.ann for p in some])
                    pending = writes.table(name)
                    if refusals is not None and isinstance(pending, StreamWriteSet):
                        refusals.append(pending, rows, self._coordinator.dictionary)
                    else:
                        missing = missing.plus(pending.take(rows, signs, early))
            if refusals is not None and refusals.to_keep:
                kept = encode_rejects(refusals.to_keep, refusals.source, refusals.batch, self._coordinator.dictionary)
                writes.table(REJECTS).insert(kept)
        return missing

    def take_in_files(
        self, parts: Mapping[str, Sequence[Part]], positions: Mapping[str, int], early: Early
    ) -> Unmatched:
        """Commit an epoch whose rows are in files, where the partitions find them. Under the writer's lock."""
        coordinator, deployment = self._coordinator, self._deployment
        number = coordinator.epoch + 1
        coordinator.replan({name: sum(map(_rows_in, some)) for name, some in parts.items()})
        parts = {name: self._routed_again(name, some) for name, some in parts.items()}
        listed, unwritten, begins = self._listed(parts)
        written: list[InputSection] = []
        if unwritten:
            name = input_name(number, f"driver-{deployment.nonce}-{time.monotonic_ns()}")
            written = write_input(Disk(), deployment.folder / INPUTS / name, unwritten)
            written = [replace(section, at=begin) for section, begin in zip(written, begins, strict=True)]
        sections = [written[part] if isinstance(part, int) else part for part in listed]
        epoch = Epoch(
            number,
            coordinator.clock.now(),
            {},
            sections=adopt(Disk(), deployment.folder, sections, number),
            source_positions=dict(positions),
            layout=deployment.backend.layout(parts),
            early={} if early == "ignore" else dict.fromkeys(parts, early),
        )
        return coordinator.apply(epoch, record=True).unmatched

    def _listed(
        self, parts: Mapping[str, Sequence[Part]]
    ) -> tuple[list[InputSection | int], list[tuple[str, int, Codes, Codes]], list[int]]:
        """Return the sections of an epoch in order, of which a number is one that is yet to be written; what is yet to
        be written; and what the `$at`s of its rows are counted from."""
        backend = self._deployment.backend
        listed: list[InputSection | int] = []
        unwritten: list[tuple[str, int, Codes, Codes]] = []
        begins: list[int] = []
        at = backend.flow.last_at + 1
        for name, some in parts.items():
            stream, files = name in backend.flow.arrivals, dict[str, int]()
            for part in some:
                if isinstance(part, InputSection):
                    if stream and part.file not in files:
                        files[part.file] = at
                        at += sum(p.rows for p in some if isinstance(p, InputSection) and p.file == part.file)
                    listed.append(replace(part, at=files.get(part.file, 0)))
                    continue
                rows = counted(part.rows) if stream else part.rows
                for p, own in backend.to_partitions(name, Batch(rows, part.ann), EVERY).items():
                    listed.append(len(unwritten))
                    unwritten.append((name, p, own.rows, own.ann))
                    begins.append(at if stream else 0)
                at += len(rows) if stream else 0
        return listed, unwritten, begins

    # -- giving rows out ---------------------------------------------------------------------------------------------

    def export_parts(self, name: str, folder: str | Path | None = None) -> Path:
        """Let the partitions write a table or view as Parquet, to a folder that is theirs alone; return that folder."""
        coordinator = self._coordinator
        with coordinator.reading():
            self.runner.write_down()  # first: the folder of the exchange may have to be made anew
            if folder is None:
                folder = self._deployment.folder / EXCHANGE / f"{name}-{coordinator.epoch}-{secrets.token_hex(4)}"
            Path(folder).mkdir(parents=True, exist_ok=True)
            flow = self._deployment.backend.flow
            homes = (flow.tables.get(name) or flow.views[name]).homes
            many = self._deployment.options.inline_rows + 1
            self.runner.ask({p: ("export", (name, str(folder))) for p in homes}, many)
        return Path(folder)

    # -- looking inside ----------------------------------------------------------------------------------------------

    def progress(self) -> dict[str, Any]:
        """Return figures of the last epoch, at no cost."""
        coordinator, runner = self._coordinator, self.runner
        return {
            **asdict(runner.latest),
            "epoch": coordinator.epoch,
            "rows_out": coordinator.last_rows_out,
            "state_bytes": runner.state_bytes,
        }

    def metrics(self) -> dict[str, Any]:
        """Return all counters of the database."""
        return explaining.metrics(self._coordinator)

    def figures(self) -> dict[str, Any]:
        """Return what metrics say of rows that were taken in."""
        return {"missing_deletions": self.missing.passed, "held_deletions": self.missing.held}


def _rows_in(part: Part) -> int:
    return part.rows if isinstance(part, InputSection) else len(part)
