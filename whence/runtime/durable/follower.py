"""Read a folder that another process may write to: at its last committed epoch, or at one of the past."""

from __future__ import annotations

import logging
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, replace
from typing import Any

from whence.engine.core.epoch import Epoch
from whence.model.codes import Codes
from whence.model.errors import StorageError, WhenceError
from whence.model.progress import Progress
from whence.plan.algebra.program import Program
from whence.runtime.coordinator import Coordinator
from whence.runtime.deployment import InlineDeployment
from whence.runtime.durable.recovery import Recovered, Recovery, recover, replay, replaying
from whence.runtime.durable.storage import RECOMPUTED, lineage_of
from whence.state.log import Reader
from whence.state.store import Folder

log = logging.getLogger("whence")
_POLL = 0.05  # seconds between two looks at a log that another process writes
_READ_ONLY = "this database is open for reading only"


def follow(
    folder: Folder,
    recursion_limit: int,
    functions: Program,
    until: int | None = None,
    progress: Progress | None = None,
) -> Coordinator:
    """Return a database that reads a folder, at its last epoch or `until` an earlier one, and has the functions of a
    program."""
    coordinator = Coordinator(InlineDeployment(), recursion_limit)
    coordinator.catalog.program = replace(functions, tables={}, views={}, indexes={})
    coordinator.keep(Follower(coordinator, folder, until), progress)
    return coordinator


class Follower:
    """Keeps a coordinator that only reads at the last committed epoch of a folder, or at an earlier one.

    It begins anew when it cannot go on: the writer has dropped the segment it was reading or cut off a record that was
    not stable, or a query has added words to the dictionary here that the writer knows by other codes.
    """

    read_only = True
    poll: float | None = _POLL
    recomputed = RECOMPUTED
    last = synced = 0
    recovery: Recovery | None = None

    def __init__(self, coordinator: Coordinator, folder: Folder, until: int | None = None) -> None:
        self._coordinator, self.folder, self._until = coordinator, folder, until
        self._at: Recovered | None = None  # where it is; None if it must begin anew
        self._known, self.lineage = folder.manifest, lineage_of(folder.manifest)

    def recover(self, progress: Progress | None = None) -> None:
        """Read everything, for the first time."""
        self.recovery = self._begin(progress).report

    def _begin(self, progress: Progress | None = None) -> Recovered:
        """Read everything; again, if the writer has changed the folder meanwhile."""
        while True:
            seen = self.folder.manifest
            try:
                found = recover(self._coordinator, self.folder, until=self._until, progress=progress)
                self._known, self.lineage = seen, lineage_of(seen)
                self._take_up_eras()
                self._coordinator.durable.restart(self.lineage, self._coordinator.epoch)
                self._at = found
                return found
            except StorageError:
                self._coordinator.start_anew("the writer went ahead")
                self.folder.reload()
                if self.folder.manifest == seen:
                    raise

    def refresh(self) -> None:
        """Replay what has been added since the last time. After an error the next call begins anew."""
        if self.recovery is None or (self._until is not None and self._at is not None):
            return
        with self._coordinator.paused():
            self._refresh()
        self._coordinator.durable.settle(self.synced)
        self._coordinator.durable.report()

    def _refresh(self) -> None:
        at, self._at = self._at, None
        if at is not None:
            try:
                self._go_on(at.reader)
                self._at = at
                return
            except StorageError as error:
                log.info("reading %s again from the start: %s", self.folder.path, error)
        self._coordinator.start_anew("the database had to be read again")
        self.folder.reload()
        self._begin()

    def _go_on(self, reader: Reader) -> None:
        coordinator, before = self._coordinator, self._coordinator.epoch
        self.folder.look_again(reader)
        self._take_up_eras()
        with replaying(coordinator):
            for record in self.folder.read(reader):
                replay(coordinator, record, self.folder)
        if coordinator.epoch > before:
            self._take_up_eras()
            coordinator.durable.commit(coordinator.epoch, self.last)

    def _take_up_eras(self) -> None:
        """Take up the eras that have begun; StorageError if one began before the epoch that has been read.

        Before records are read and once more after that, so that it is known which era each of them is of."""
        if self.folder.has_changed:
            self.folder.reload()
        if self.folder.manifest is self._known:
            return
        lineage = lineage_of(self.folder.manifest)
        if not lineage.continues(self.lineage, self._coordinator.epoch):
            raise StorageError(f"{self.folder.path}: its history was cut back or replaced")
        self._known, self.lineage = self.folder.manifest, lineage
        self._coordinator.durable.extend(lineage)

    def ready_to_write(self) -> None:
        raise WhenceError(_READ_ONLY)

    def appending(self) -> AbstractContextManager[None]:
        return nullcontext()

    def write_epoch(self, epoch: Epoch) -> None:
        raise WhenceError(_READ_ONLY)

    def write_statements(self, statements: list[str]) -> None:
        raise WhenceError(_READ_ONLY)

    def write_forgotten(self, codes: Codes) -> None:
        raise WhenceError(_READ_ONLY)

    def write_plans(self, record: bytes) -> None:
        raise WhenceError(_READ_ONLY)

    def snapshot(self) -> bool:
        raise WhenceError(_READ_ONLY)

    def epoch_done(self) -> None: ...

    def wait_durable(self, ticket: int) -> None: ...

    def make_durable(self, ticket: int) -> None: ...

    def sync(self) -> None: ...

    def close(self) -> None: ...

    def metrics(self) -> dict[str, Any]:
        return {"recovery": asdict(self.recovery) if self.recovery is not None else None}
