"""Read a folder that another process may write to: at its last committed epoch, or at one of the past."""

from __future__ import annotations

import logging
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
from whence.runtime.durable.storage import RECOMPUTED
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
    last = 0
    recovery: Recovery | None = None

    def __init__(self, coordinator: Coordinator, folder: Folder, until: int | None = None) -> None:
        self._coordinator, self.folder, self._until = coordinator, folder, until
        self._at: Recovered | None = None  # where it is; None if it must begin anew

    def recover(self, progress: Progress | None = None) -> None:
        """Read everything, for the first time."""
        self.recovery = self._begin(progress).report

    def _begin(self, progress: Progress | None = None) -> Recovered:
        """Read everything; again, if the writer has changed the folder meanwhile."""
        while True:
            seen = self.folder.manifest
            try:
                self._at = recover(self._coordinator, self.folder, until=self._until, progress=progress)
                return self._at
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
        self.folder.look_again(reader)
        with replaying(self._coordinator):
            for record in self.folder.read(reader):
                replay(self._coordinator, record, self.folder)

    def ready_to_write(self) -> None:
        raise WhenceError(_READ_ONLY)

    def write_epoch(self, epoch: Epoch) -> None:
        raise WhenceError(_READ_ONLY)

    def write_statements(self, statements: list[str]) -> None:
        raise WhenceError(_READ_ONLY)

    def write_forgotten(self, codes: Codes) -> None:
        raise WhenceError(_READ_ONLY)

    def snapshot(self) -> bool:
        raise WhenceError(_READ_ONLY)

    def epoch_done(self) -> None: ...

    def wait_durable(self, ticket: int) -> None: ...

    def sync(self) -> None: ...

    def close(self) -> None: ...

    def metrics(self) -> dict[str, Any]:
        return {"recovery": asdict(self.recovery) if self.recovery is not None else None}
