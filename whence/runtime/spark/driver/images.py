"""Images of a partitioned database: one of every partition, and one of what the driver has.

Each is written by the process that has the partition, while no epoch runs. All state is read for one, so it is due when
as much has come in as there is.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from whence.plan.rewrite.keep_joins import to_json
from whence.runtime.durable.images import words_meta, write_words
from whence.runtime.spark.driver import heavy_joins
from whence.state.folder import chain_name
from whence.state.store import Store

if TYPE_CHECKING:
    from whence.runtime.coordinator import Coordinator
    from whence.runtime.spark.driver.partitioned_backend import PartitionedBackend

_MUCH = 64 << 20  # bytes to take in again
_MANY = 20_000  # records to replay
_PLANS = 1_000  # that commands still name


def is_image_due(backend: PartitionedBackend, store: Store) -> bool:
    """Return whether recovery would have to take in much."""
    tail = store.tail_bytes + backend.input_bytes
    if store.tail_records and len(backend.runner.plans) >= _PLANS:
        return True  # subscriptions come and go, and each plan stays until an image stands for it
    return store.tail_records >= _MANY or tail >= max(_MUCH, backend.runner.state_bytes)


def write_image(coordinator: Coordinator, backend: PartitionedBackend, store: Store) -> int:
    """Write images of all partitions and of the driver, under both locks; return their epoch."""
    words, catalog, runner = coordinator.dictionary, coordinator.catalog, backend.runner
    epoch, now = coordinator.epoch, coordinator.time
    store.write_words(words, epoch, now)
    store.rotate()
    writer, before = store.begin_image(epoch)
    try:
        meta: dict[str, Any] = {"epoch": epoch, "time": now, "statements": catalog.statements()}
        meta |= words_meta(words)
        write_words(writer, before, words, meta)
        files = {p: store.partition_image(p, epoch) for p in range(backend.partitions)}
        chains = runner.save(files, epoch)
        meta["keeps"] = to_json(catalog.planner.keeps)
        meta["marks"] = dict(coordinator.source_positions)
        meta["horizons"] = coordinator.horizon_history.image()
        meta["arrivals"] = coordinator.arrivals.image()
        meta["plans"] = coordinator.adaptation.image()
        plan = backend.plan
        meta["partitions"] = {
            "count": backend.partitions,
            "digest": backend.digest,
            "small": sorted(plan.small),
            "heavy": heavy_joins.to_json(plan.heavy),
            "ranked": plan.ranked,
            "bytes": list(runner.bytes),
            "owed": list(runner.owed),
            "since": {v[0]: since for v, since in plan.since.items() if v[0] not in plan.transient},
            "tables": {name: asdict(dist) for name, dist in plan.distributed.tables.items()},
            "streams": {name: asdict(arrivals) for name, arrivals in backend.flow.arrivals.items()},
        }
        store.publish(writer, meta, epoch, now, {chain_name(p): links for p, links in chains.items()})
    except BaseException:
        writer.abort()
        raise
    backend.input_bytes = 0
    now_there = store.folder.starts()[-1]
    runner.begin_from({p: store.folder.partition_chain(p, now_there) for p in range(backend.partitions)}, plan.version)
    return epoch
