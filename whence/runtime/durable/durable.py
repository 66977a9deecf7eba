"""Runtimes of a database that has a folder: the one that writes to it, and those that only read.

`Durable` is the embedded runtime with a journal. `Following` shows what another process has written, and replays what
that adds whenever it is asked something; with `until` it stays at one epoch of the past.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from dataclasses import asdict, replace
from typing import Any

from whence.engine.core.epoch import Epoch
from whence.model.errors import StorageError, WhenceError
from whence.model.progress import Progress
from whence.runtime.catalog import Catalog
from whence.runtime.durable.journal import Journal
from whence.runtime.durable.recovery import Follower
from whence.runtime.durable.snapshots import Snapshots
from whence.runtime.embedded import Embedded
from whence.state.store import Folder, Store

_POLL = 0.05  # seconds between two looks at a log that another process writes


class _Lasting(Embedded):
    """What writers and readers of a folder share: its past."""

    folder: Folder

    def _new_catalog(self) -> Catalog:
        found = super()._new_catalog()
        found.recomputed = found.recomputed or "a database in a folder computes rows again from its log"
        return found

    def _take_up(self, folder: Folder) -> None:
        """Be empty, with a dictionary that knows nothing, and as the database was set."""
        self.recursion_limit = folder.recursion_limit or self.recursion_limit
        self.start_anew("the database was opened")

    def storage(self) -> dict[str, Any]:
        return {"recovery": asdict(self.recovery) if self.recovery is not None else None}

    @property
    def retained(self) -> range:
        return range(self.folder.oldest, self.epoch + 1)

    def at(self, epoch: int) -> Embedded:
        with self.reading():
            if not 0 <= epoch <= self.epoch:
                raise StorageError(f"{self.folder.path}: there is no epoch {epoch} yet; the last one is {self.epoch}")
        past = Following(self.recursion_limit)
        past.catalog.program = replace(self.program, tables={}, views={})
        past.show(Folder(self.folder.path, self.folder.disk), until=epoch)
        return past


class Durable(_Lasting):
    """Keeps everything that is done in a store, from `keep` on."""

    def __init__(self, recursion_limit: int, clock: Callable[[], float] | None = None):
        super().__init__(recursion_limit, clock)
        self.journal: Journal | None = None

    def keep(self, store: Store, progress: Progress | None = None) -> None:
        """Take up what a store has, and keep in it everything that is done from now on."""
        with self.paused():  # nothing may expire before the journal is there to write it down
            try:
                self._take_up(store.folder)
                journal = Journal(self, store, progress)
            except BaseException:
                store.close()
                raise
            self.folder, self.recovery, self.journal = store.folder, journal.recovery, journal
        weakref.finalize(self, store.close)  # should nobody close the database

    def close(self) -> None:
        super().close()
        if self.journal is not None:
            self.journal.close()

    def _ready_to_write(self) -> None:
        self._check_open()
        self._mend()

    def refresh(self) -> None:
        if not self.closed:
            self._mend()

    def _before_reading(self) -> None:
        self._mend()
        self.catch_up()

    def _mend(self) -> None:
        """After a failed sync: go back to what is stable. A transaction that is under way fails when it ends."""
        if not self._is_broken():
            return
        with self._state:  # which a writer holds who is just between the log and the end of its epoch
            if not self._is_broken():
                return
        with self.paused():
            if self._is_broken() and self._open is None and self.journal is not None:
                self.journal.mend()

    def _is_broken(self) -> bool:
        return self.journal is not None and self.journal.broken

    def _write_epoch(self, epoch: Epoch) -> None:
        if self.journal is not None:
            self.journal.write_epoch(epoch)

    def _epoch_done(self) -> None:
        if self.journal is not None:
            self.journal.epoch_done()

    def _write_statements(self, statements: list[str]) -> None:
        if self.journal is not None:
            self.journal.write_statements(statements)

    def _written(self) -> int:
        return self.journal.last if self.journal is not None else 0

    def _settle(self, ticket: int) -> None:
        if self.journal is not None:
            self.journal.settle(ticket)

    def sync(self) -> None:
        self._check_open()
        self._mend()
        if self.journal is not None:
            self.journal.store.log.flush()

    def storage(self) -> dict[str, Any]:
        if self.journal is None:
            return super().storage()
        store, snapshots, recovery = self.journal.store, self.journal.snapshots, self.journal.recovery
        return {
            **super().storage(),
            "synced_epoch": max(store.log.synced_epoch, recovery.epoch),
            "log_bytes": store.log.size,
            "log_bytes_since_snapshot": store.tail_bytes,
            "image_bytes": sum(link.bytes for of in self.folder.manifest.chains.values() for c in of for link in c),
            "snapshots": snapshots.taken,
            "snapshot_seconds": snapshots.seconds,
        }

    def snapshots_of(self, store: Store, broken: Callable[[], bool]) -> Snapshots:
        """Who takes snapshots of this database."""
        return Snapshots(self, store, broken)

    def snapshot(self) -> bool:
        self._check_open()
        self._check_not_writing("snapshot")
        self._mend()
        return self.journal is not None and self.journal.snapshots.take()


class Following(_Lasting):
    """Shows what a folder has, from `show` on; for reading only."""

    read_only = True
    poll = _POLL
    _follower: Follower | None = None

    def show(self, folder: Folder, until: int | None = None, progress: Progress | None = None) -> None:
        """Read the folder: its last epoch, whichever that is when someone looks, or an earlier one."""
        self._take_up(folder)
        follower = Follower(self, folder, until, progress)
        self.folder, self.recovery, self._follower = folder, follower.recovery, follower

    def _ready_to_write(self) -> None:
        self._check_open()
        raise WhenceError("this database is open for reading only")

    def refresh(self) -> None:
        if not self.closed and self._follower is not None:
            self._follower.catch_up()

    def _before_reading(self) -> None:
        self.refresh()

    def snapshot(self) -> bool:
        raise WhenceError("this database is open for reading only")
