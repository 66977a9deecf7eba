"""Put a coordinator together: in memory, with a journal, following a folder, or in partitions.

It is made first, so that the functions which its views call can be given to it, and takes up what its folder has then.
"""

from __future__ import annotations

import shutil
import tempfile
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from whence.model.errors import StorageError, WhenceError
from whence.model.paths import local_path
from whence.model.progress import Progress
from whence.plan.recursion.settings import DEPTH_LIMIT
from whence.runtime.coordinator import Coordinator
from whence.runtime.deployment import InlineDeployment
from whence.runtime.durable.follower import Follower
from whence.runtime.durable.journal import Journal
from whence.runtime.spark.driver.deployment import PartitionedDeployment
from whence.runtime.spark.driver.options import Options
from whence.state.disk import Disk
from whence.state.folder import Folder
from whence.state.log import Durability
from whence.state.store import Store


@dataclass(frozen=True)
class StoreOptions:
    """How the folder of a database is written; see `whence.open`."""

    durability: Durability = "commit"
    sync_interval: float = 0.1
    retain: int | str | None = None
    recursion_limit: int | None = None
    disk: Disk | None = None

    def open(self, folder: Path) -> Store:
        """Return the store of a folder, made if it is not there."""
        return Store(
            folder,
            self.disk or Disk(),
            durability=self.durability,
            sync_interval=self.sync_interval,
            retain=self.retain,
            recursion_limit=self.recursion_limit,
        )


class Opening(NamedTuple):
    """A coordinator, and how it takes up what its folder has; None in memory."""

    coordinator: Coordinator
    begin: Callable[[Progress | None], None] | None = None


def prepare(
    path: str | Path | None,
    read_only: bool,
    partitioned: Options | None,
    options: StoreOptions,
    clock: Callable[[], float] | None,
) -> Opening:
    """Make a coordinator, as the arguments of `whence.open` say."""
    if options.recursion_limit is not None and options.recursion_limit < 1:
        raise WhenceError("recursion_limit must be at least 1")
    limit = options.recursion_limit or DEPTH_LIMIT
    if partitioned is not None:
        if read_only:
            raise WhenceError(
                "use read_only without spark and partitions: a reader follows the folder from this process alone"
            )
        return _partitioned(path, PartitionedDeployment(partitioned), options, limit, clock)
    coordinator = Coordinator(InlineDeployment(), limit, clock)
    if path is None:
        if read_only or options.retain is not None:
            raise WhenceError("read_only and retain are for a database that has a path")
        return Opening(coordinator)
    folder = _folder(path)

    def begin(progress: Progress | None) -> None:
        if read_only:
            coordinator.keep(Follower(coordinator, Folder(folder, options.disk or Disk())), progress)
        else:
            coordinator.keep(Journal(coordinator, options.open(folder)), progress)

    return Opening(coordinator, begin)


def _partitioned(
    path: str | Path | None,
    deployment: PartitionedDeployment,
    options: StoreOptions,
    limit: int,
    clock: Callable[[], float] | None,
) -> Opening:
    coordinator = Coordinator(deployment, limit, clock)

    def begin(progress: Progress | None) -> None:
        driver = coordinator.driver
        assert driver is not None
        if path is None:
            driver.temporary = folder = _temporary_folder(coordinator)
        else:
            folder = _folder(path)
        store = options.open(folder)
        try:
            deployment.use(store)
            driver.warm_up()
        except BaseException:
            store.close()
            raise
        coordinator.keep(Journal(coordinator, store), progress)

    return Opening(coordinator, begin)


def _temporary_folder(coordinator: Coordinator) -> Path:
    """Return a folder for a database that has no name; it goes with it, closed or not."""
    folder = Path(tempfile.mkdtemp(prefix="whence-"))
    weakref.finalize(coordinator, shutil.rmtree, folder, ignore_errors=True)
    return folder


def _folder(path: str | Path) -> Path:
    if "\0" in str(path):
        raise StorageError(f"{str(path)!r} is not a path")
    return local_path(path)
