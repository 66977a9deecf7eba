"""Snapshots of a partitioned database: an image of every partition, and one of what the driver has."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import asdict
from typing import TYPE_CHECKING

from whence.runtime.durable.snapshots import Snapshots
from whence.state.codec import pack_words
from whence.state.folder import WORDS, chain_name
from whence.state.store import Store

if TYPE_CHECKING:
    from whence.runtime.spark.driver.sharded import Sharded

log = logging.getLogger("whence")
_MUCH = 64 << 20  # bytes to take in again
_MANY = 20_000  # records to replay


class ShardedSnapshots(Snapshots):
    """Images of all partitions at one epoch, written by whoever has them, while no epoch runs.

    All state is read for one, so it is due when as much has come in as there is.
    """

    def __init__(self, runtime: Sharded, store: Store, broken: Callable[[], bool]):
        super().__init__(runtime, store, broken)
        self._sharded = runtime

    def _is_due(self) -> bool:
        runtime, store = self._sharded, self._store
        tail = store.tail_bytes + runtime.input_bytes
        return store.tail_records >= _MANY or tail >= max(_MUCH, runtime.crew.state_bytes)

    def _take(self) -> bool:
        runtime, store, start = self._sharded, self._store, time.perf_counter()
        with runtime.paused():
            if not store.tail_records or self._broken():
                return False
            words, catalog, crew, epoch, now = (
                runtime.dictionary,
                runtime.sharded,
                runtime.crew,
                runtime.epoch,
                runtime.time,
            )
            store.write_words(words, epoch, now)
            store.rotate()
            writer, before = store.begin_image(epoch)
            try:
                for key in before.parts if before is not None else ():
                    if key.startswith(WORDS):
                        writer.keep_unchanged(key)
                first = before.meta["words"] if before is not None else 0
                if len(words) > first:
                    writer.add(f"{WORDS}{first}", pack_words(words.since(first)))
                files = {p: store.partition_image(p, epoch) for p in range(crew.partitions)}
                chains = crew.save(files, epoch)
                meta = {"epoch": epoch, "time": now, "statements": catalog.statements(), "words": len(words)}
                meta["marks"] = dict(runtime.marks)
                placed = catalog.plan.distributed
                meta["partitions"] = {
                    "count": crew.partitions,
                    "digest": catalog.digest,
                    "small": sorted(catalog.small),
                    "bytes": list(crew.bytes),
                    "owed": list(crew.owed),
                    "since": {views[0]: since for views, since in catalog.plan.since.items()},
                    "tables": {name: asdict(dist) for name, dist in placed.tables.items()},
                    "streams": {name: asdict(numbers) for name, numbers in catalog.flow.numbers.items()},
                }
                store.publish(writer, meta, epoch, now, {chain_name(p): links for p, links in chains.items()})
            except BaseException:
                writer.abort()
                raise
            runtime.input_bytes = 0
            now_there = store.folder.starts()[-1]
            crew.begin_from(
                {p: store.folder.partition_chain(p, now_there) for p in range(crew.partitions)}, catalog.plan.version
            )
        self.taken += 1
        self.seconds = time.perf_counter() - start
        log.info("snapshot of epoch %d in %d partitions taken in %.1f ms", epoch, crew.partitions, self.seconds * 1000)
        return True
