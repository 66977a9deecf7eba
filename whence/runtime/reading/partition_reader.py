"""What may be asked of a partition between two epochs, by method name and arguments that can be sent to it."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from whence.adapt.statistics import JoinReading
from whence.engine.core.operator import Batch
from whence.engine.core.operator_stats import OperatorStats, measure
from whence.engine.exchange.heavy_keys import Key, KeyCounts
from whence.engine.streams.retain import is_stream
from whence.engine.streams.stream import Missed
from whence.io import files
from whence.io.rows import to_arrow
from whence.model.codes import Codes
from whence.plan.algebra.logical import HoldKey
from whence.plan.algebra.program import Program, is_owed
from whence.plan.partitions.heavy_keys import RowsBy
from whence.plan.streams.model import without_at
from whence.runtime.partition import Partition
from whence.runtime.reading.late_rows import lates_under, stream_figures
from whence.runtime.reading.missed_pairs import missed_under
from whence.runtime.spark.frames import frames
from whence.state.chain import ImageChain, Writer
from whence.state.manifest import STATE, Link

if TYPE_CHECKING:
    from whence.engine.streams.replay.ragged import Ragged
    from whence.explain.retrieve.site import Site
    from whence.runtime.spark.driver.retrieving import StreamPartition


class PartitionReader:
    """Answers for one partition."""

    def __init__(self, partition: Partition) -> None:
        self._partition, self._flow = partition, partition.flow

    # -- rows --------------------------------------------------------------------------------------------------------

    def contents(self, name: str) -> Batch:
        """Return the distinct rows of a table or view, and how often each is there; of a stream all that are kept, with
        their `$at`, in their order."""
        batch = self._partition.operator(name).contents()
        return self._partition.plain(name, Batch(batch.rows, batch.ann, True))

    def size(self, name: str) -> int:
        return self._partition.operator(name).size

    def sizes(self) -> dict[str, int]:
        """Return the distinct rows of every table, the rows of every stream that are kept, and the rows of every view;
        of debts all."""
        tables = {n: scan.size if is_owed(n) else scan.state_rows for n, scan in self._flow.tables.items()}
        return {**tables, **{name: op.size for name, op in self._flow.views.items()}}

    def read_joins(self, wanted: tuple[str, ...]) -> dict[str, JoinReading]:
        """Return readings of some joins, by fingerprint."""
        return self._partition.read_joins(wanted)

    def heavy_keys(self, asked: tuple[tuple[RowsBy, int, tuple[Key, ...]], ...]) -> list[KeyCounts]:
        """Count the most frequent keys of some rows, at most so many, and keys that are known."""
        return [self._partition.heavy_keys(*each) for each in asked]

    def counts(self, name: str, rows: Codes) -> Codes:
        """Return how often each of these rows is there."""
        return self._partition.operator(name).count_of(np.ascontiguousarray(rows))

    def at_keys(self, table: str, cols: tuple[int, ...], keys: Codes) -> Batch:
        """Return the rows of a table that have one of some keys in columns that are indexed."""
        return self._flow.tables[table].relation.at_keys(cols, np.ascontiguousarray(keys))

    def find(self, name: str, cols: tuple[int, ...], keys: Codes) -> Batch:
        """Return the rows of a table or view that have one of some keys in any columns; of a stream with their `$at`,
        in their order."""
        return self._partition.plain(name, self._partition.operator(name).find(cols, np.ascontiguousarray(keys)))

    def due_rows(self, table: str, now: int) -> Codes:
        """Return the rows whose time is up."""
        return self._partition.lifetimes[table].due_rows(now)

    def deadlines(self) -> dict[str, int]:
        """Return when the first row of each table with a time-to-live is due."""
        return self._partition.deadlines()

    def pending(self) -> dict[HoldKey, int]:
        """Return how many rows wait before held views."""
        return self._partition.flow.pending()

    def export(self, name: str, folder: str) -> None:
        """Write the rows of a table or view to a Parquet file."""
        op = self._partition.operator(name)
        batch, schema = self.contents(name), op.schema
        if is_stream(op):
            batch, schema = Batch(np.ascontiguousarray(batch.rows[:, :-1]), batch.ann), without_at(schema)
        table = to_arrow(batch.rows, batch.ann, schema, self._partition.dictionary)
        file = f"part-{self._partition.number:04d}-{secrets.token_hex(4)}.parquet"
        files.write(frames.plain(table), Path(folder) / file)

    # -- streams -----------------------------------------------------------------------------------------------------

    def lates(self, name: str) -> list[tuple[int, Codes]]:
        """Return what came too late for each operator of a view that notes it: how many rows, and the last of them."""
        return [(late.count, late.rows) for late, _ in lates_under(self._flow, name)]

    def missed(self, name: str) -> list[Missed]:
        """Return what each join of a view has missed here."""
        return missed_under(self._flow, name)

    def stream_figures(self) -> dict[str, dict[str, int]]:
        return stream_figures(self._flow)

    def share(self, name: str) -> StreamPartition:
        """Return what is kept of a stream here."""
        from whence.runtime.spark.driver.retrieving import StreamPartition

        kept = self._site().kept(name)
        return StreamPartition(kept.rows.copy(), kept.first, kept.next, kept.last_at, kept.promised)

    def backward_tids(self, view: str, source: str | None, wanted: Codes) -> dict[str, Ragged]:
        """Return the tids behind results of a stream view; all tids are of this share."""
        from whence.explain.retrieve.backward import backward_tids

        return backward_tids(self._site(), view, wanted, source)

    def forward_tids(self, view: str, source: str, tid: int) -> Codes:
        """Return the results that an input reached; all tids are of this share."""
        from whence.explain.retrieve.forward import forward_tids

        return forward_tids(self._site(), view, source, tid)

    def _site(self) -> Site:
        from whence.explain.retrieve.site import Site  # loaded with the first question

        plan = self._partition.plan
        return Site(self._flow, Program(dict(plan.tables), dict(plan.views)), self._partition.dictionary)

    # -- state -------------------------------------------------------------------------------------------------------

    def figures(self) -> dict[str, OperatorStats]:
        """Return how much every operator holds, by fingerprint."""
        return {op.fingerprint: measure(op) for op in [*self._flow.tables.values(), *self._flow.order]}

    def damage(self) -> list[str]:
        """Return what was damaged in the image that it was restored from, and has been computed."""
        return self._partition.damage

    def restored(self) -> tuple[int, int]:
        """Return how many operators took their state from images, and how many were computed."""
        return self._flow.restored, self._flow.primed

    def save(self, links: tuple[Link, ...], file: str, epoch: int) -> Link:
        """Write an image; if there are links, what has changed since them, unless they are damaged. Two attempts never
        meet in one file."""
        partition = self._partition
        assert partition.folder is not None
        stem, _, kind = file.rpartition(".")
        if partition.damage:
            links, kind = (), "base"
        file, before = f"{stem}-{secrets.token_hex(4)}.{kind}", None
        if links:
            with ImageChain(partition.folder / STATE, links) as chain:
                before = chain.directory
        with Writer(partition.disk, partition.folder / STATE / file, before) as writer:
            for key, image in self._images():
                writer.add(key, image)
            written = writer.finish({"epoch": epoch, "partition": partition.number}).written
        return Link("base" if before is None else "patch", file, epoch, written)

    def _images(self) -> Iterator[tuple[str, Any]]:
        seen = set()
        for key, _, image in self._flow.parts():
            if key not in seen:  # equal operators of different changes of the catalog have equal state
                seen.add(key)
                yield key, image()
