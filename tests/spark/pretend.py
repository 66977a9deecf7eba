"""A stand-in for the runtime on Spark: an embedded database that takes what streams and frames hand over."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import whence
from tests import inside
from whence.engine.core.epoch import InputSection
from whence.engine.core.operator import Batch
from whence.engine.exchange.kernels.routing import route
from whence.io import files
from whence.plan.partitions.distribute import Distribution
from whence.runtime.spark.frames import frames
from whence.runtime.spark.frames.refusals import Refusals
from whence.runtime.spark.frames.routing import EVERY, Routing
from whence.runtime.spark.worker.dictionary_server import DictionaryServer
from whence.runtime.writing.tables import Early
from whence.state.disk import Disk
from whence.state.inputs import read_input


class Pretend:
    """Has what a coordinator and its driver have, as far as streams, frames and sinks ask for it."""

    def __init__(self, spark: Any, folder: Path, sql: str, partitions: int = 3, **dists: Distribution) -> None:
        import numpy as np

        self.np = np
        self.spark, self.path, self.partitions = spark, folder, partitions
        self.db = whence.open()
        self.db.execute(sql)
        self.inner = inside.coordinator(self.db)
        self.program, self.dictionary = self.inner.program, self.inner.dictionary
        self.driver, self.reader = self, self.inner.reader
        self.source_positions: dict[str, int] = {}
        self.sinks: list[Callable[[int, dict[str, Any]], None]] = []
        self.server = DictionaryServer(self.dictionary)
        self.dists = {
            name: dists.get(name, Distribution("hash", t.key or (0,))) for name, t in self.program.tables.items()
        }
        self.epochs: list[dict[str, int]] = []  # rows of each, by table
        self.trouble: Callable[[int], None] = lambda epoch: None  # called right before a commit
        self.later: Callable[[int], None] = lambda epoch: None  # and right after it
        self._one = threading.Lock()

    @property
    def epoch(self) -> int:
        return len(self.epochs)

    def routing(self) -> Routing:
        tables = {name: (table.schema, self.dists[name]) for name, table in self.program.tables.items()}
        return Routing(self.partitions, tables, self.server.address, str(self.path), "n0")

    def ingest(
        self,
        parts: dict[str, list[Batch | InputSection]],
        marks: dict[str, int],
        early: Early = "ignore",
        refusals: Refusals | None = None,
    ) -> int:
        with self._one:
            taken = {name: [self._rows(name, part) for part in some] for name, some in parts.items()}
            self.trouble(self.epoch + 1)
            with self.inner.transaction() as writes:
                for name, some in taken.items():
                    for rows, signs in some:
                        writes.table(name).take(rows, signs, early)
            self.epochs.append({name: sum(len(rows) for rows, _ in some) for name, some in taken.items()})
            self.source_positions.update(marks)
            self._forget(parts)
            self.later(self.epoch)
            return self.epoch

    def _forget(self, parts: dict[str, list[Batch | InputSection]]) -> None:
        for name in {part.file for some in parts.values() for part in some if isinstance(part, InputSection)}:
            (self.path / "inputs" / name).unlink()

    def _rows(self, name: str, part: Batch | InputSection) -> tuple[Any, Any]:
        if isinstance(part, Batch):
            return part.rows, part.ann
        rows, signs = read_input(Disk(), self.path, part)
        dist = self.dists[name]
        if dist.kind == "all":
            assert part.partition == EVERY
        elif dist.kind == "hash":
            to = route(rows, self.np.array(dist.cols, self.np.int64), self.partitions)
            assert (to == part.partition).all()
        return rows, signs

    def rows(self, name: str) -> list[Any]:
        return sorted(self.db[name].rows)

    # What sinks and snapshots read.

    retained: range = range(0)
    past: dict[int, Any] = {}  # noqa: RUF012 - set by a test

    def at(self, epoch: int) -> Any:
        return self.past[epoch]

    def reading(self) -> Any:
        return self.inner.reading()

    def table_of(self, name: str) -> Any:
        return self.inner.table_of(name)

    def export_parts(self, name: str, folder: Path) -> Path:
        folder.mkdir(parents=True, exist_ok=True)
        files.write(frames.plain(self.reader.read_arrow(name)[1]), folder / "part-0.parquet")
        return folder

    def progress(self) -> dict[str, Any]:
        return {}

    metrics = progress

    def sync(self) -> None:
        self.inner.sync()

    def close(self) -> None:
        self.server.close()
        self.db.close()
