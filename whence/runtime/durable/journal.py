"""The journal: makes the epochs of a coordinator durable.

The law: the writer whose transaction ended, or a reader who saw an epoch, returns only when it is stable (as far as the
durability asks for that). A record is appended while the epoch can still be undone, and waited for when no lock is
held, so that the writers who wait share one sync. If a sync fails, no caller was told of what it was for: the log is
cut back to what is stable, and the coordinator begins again from there once the disk allows it.
"""

from __future__ import annotations

import logging
import weakref
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from whence.engine.core.epoch import Epoch
from whence.model.codes import Codes
from whence.model.errors import StorageError
from whence.model.progress import Progress
from whence.runtime.durable.recovery import Recovery, recover
from whence.runtime.durable.snapshots import Snapshots
from whence.runtime.durable.storage import RECOMPUTED, lineage_of
from whence.state.store import Store

if TYPE_CHECKING:
    from whence.runtime.coordinator import Coordinator

log = logging.getLogger("whence")


class Journal:
    """The store of one coordinator. Written to under the coordinator's writer lock."""

    read_only = False
    poll: float | None = None
    recomputed = RECOMPUTED
    recovery: Recovery | None = None

    def __init__(self, coordinator: Coordinator, store: Store) -> None:
        self._coordinator, self.store, self.folder = coordinator, store, store.folder
        self.snapshots = Snapshots(coordinator, store, lambda: self.broken)
        self.last = 0
        self._doubt: int | None = None  # the ticket before the last, until the coordinator has committed that
        self.lineage = lineage_of(store.folder.manifest)
        self._report_syncs()
        weakref.finalize(coordinator, store.close)  # should the database never be closed

    def _report_syncs(self) -> None:
        """Let the log report how far it is stable. It must not hold the coordinator, which may be left unclosed."""
        durable = weakref.ref(self._coordinator.durable)

        def settle(ticket: int) -> None:
            found = durable()
            if found is not None:
                found.settle(ticket)

        self.store.log.on_synced = settle

    @property
    def synced(self) -> int:
        """The ticket of all that is stable."""
        return self.store.log.synced

    def recover(self, progress: Progress | None = None) -> None:
        """Bring the coordinator, which is empty, to where the store is."""
        self._recover(progress)
        if self.store.log.torn is not None:
            path, offset, size = self.store.log.torn
            log.warning("%s: %d bytes from offset %d on were cut off: they were never acknowledged", path, size, offset)

    def _recover(self, progress: Progress | None = None) -> None:
        store = self.store
        while True:
            seen = store.folder.manifest
            try:
                found = recover(self._coordinator, store.folder, torn=store.log.torn, progress=progress)
                break
            except StorageError:
                if store.folder.manifest == seen:
                    raise
                self._coordinator.start_anew("a snapshot took the place of another")  # and what that stood on is gone
        self.lineage = lineage_of(store.folder.manifest, store.begin_era(self._coordinator.epoch))
        self._coordinator.durable.restart(self.lineage, self._coordinator.epoch)
        store.resume(found.report.replayed, found.log_bytes, found.words)  # last: now it is whole again
        if found.report.damaged:
            store.distrust_images()
        self.recovery = found.report
        log.info("%s opened: %s", store.path, found.report)

    # -- writing -----------------------------------------------------------------------------------------------------

    @contextmanager
    def appending(self) -> Iterator[None]:
        """Withdraw the record that was written inside the block if it raises."""
        last = self.last
        try:
            with self.store.appending():
                yield
        except BaseException:
            self.last = last
            raise

    def write_epoch(self, epoch: Epoch) -> None:
        """Append an epoch, which an error undoes; `epoch_done` must follow."""
        with self._doubted():
            ticket = self.store.write_epoch(epoch, self._coordinator.dictionary)
        self.last = ticket

    def write_forgotten(self, codes: Codes) -> None:
        """Append which words are forgotten, which an error withdraws; `epoch_done` must follow."""
        coordinator = self._coordinator
        with self._doubted():
            ticket = self.store.write_forgotten(codes, coordinator.epoch, coordinator.time, coordinator.dictionary)
        self.last = ticket

    @contextmanager
    def _doubted(self) -> Iterator[None]:
        """Append something that is in doubt until `epoch_done`."""
        self._doubt = self.store.log.written
        try:
            with self.store.appending():
                yield
        except BaseException:
            if self.store.log.written == self._doubt:
                self._doubt = None
            raise

    def epoch_done(self) -> None:
        """Note that what was appended is done, too. Without it (Ctrl-C), the log and the state may differ."""
        self._doubt = None

    def write_statements(self, statements: list[str]) -> None:
        """Append what has changed the catalog, which an error undoes."""
        coordinator = self._coordinator
        with self.store.appending():
            ticket = self.store.write_statements(
                statements, coordinator.epoch, coordinator.time, coordinator.dictionary
            )
        self.last = ticket

    def write_plans(self, record: bytes) -> None:
        """Append which plans are switched, which an error undoes."""
        coordinator = self._coordinator
        with self.store.appending():
            ticket = self.store.write_plans(record, coordinator.epoch, coordinator.time)
        self.last = ticket

    def wait_durable(self, ticket: int) -> None:
        """Return when what was written up to a ticket is stable. No lock may be held."""
        self.store.sync(ticket)
        self.snapshots.consider()

    def make_durable(self, ticket: int) -> None:
        """Make what was written up to a ticket stable, whatever the durability. No lock may be held."""
        if ticket:
            self.store.log.make_stable(ticket)
        self.snapshots.consider()

    def sync(self) -> None:
        """Make everything stable."""
        self.refresh()
        self.store.log.flush()

    def snapshot(self) -> bool:
        """Write an image of all state now."""
        self.refresh()
        return self.snapshots.take(asked=True)

    def metrics(self) -> dict[str, Any]:
        """Return what `metrics` says of the disk."""
        store, recovery = self.store, self.recovery
        links = [link for of in self.folder.manifest.chains.values() for chain in of for link in chain]
        return {
            "recovery": asdict(recovery) if recovery is not None else None,
            "synced_epoch": self._coordinator.durable.epoch,
            "log_bytes": store.log.size,
            "log_bytes_since_snapshot": store.tail_bytes,
            "image_bytes": sum(link.bytes for link in links),
            "snapshots": self.snapshots.taken,
            "snapshot_seconds": self.snapshots.seconds,
        }

    # -- after a failed sync -----------------------------------------------------------------------------------------

    @property
    def broken(self) -> bool:
        """Whether the state is ahead of what can be made stable, or an epoch broke off between log and state."""
        return self._is_broken()

    def _is_broken(self) -> bool:
        return self.store.failed or self._doubt is not None

    def refresh(self) -> None:
        """Go back to what is stable after a failed sync. A transaction that is open fails when it ends."""
        if not self._is_broken():
            return
        coordinator = self._coordinator
        with coordinator.looking():  # which a writer holds who is just between the log and the end of its epoch
            if not self._is_broken():
                return
        with coordinator.paused():
            if self._is_broken() and coordinator.open_transaction is None:
                self._mend()
        coordinator.durable.report()

    ready_to_write = refresh

    def _mend(self) -> None:
        """Go back to the last stable epoch, in the log and in the state; StorageError while that is not possible."""
        self.store.fall_back(self._doubt)
        self._coordinator.start_anew("the disk failed or an epoch broke off, and what was not stable is lost")
        self.last = 0
        self._recover()
        self._doubt = None
        log.warning("the log has been cut back to epoch %d, the last one that was stable", self._coordinator.epoch)

    # -- ending ------------------------------------------------------------------------------------------------------

    def close(self) -> None:
        """Leave the folder such that it opens quickly. The log holds everything, should the last snapshot fail."""
        try:
            if not self.store.is_ours:
                pass
            elif self.broken:
                with suppress(StorageError):  # or opening finds what nobody was told of
                    self.store.fall_back(self._doubt)
            else:
                self.snapshots.last()
        finally:
            self.store.close()
