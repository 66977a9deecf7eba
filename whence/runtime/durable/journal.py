"""The journal: what makes the epochs of a runtime durable.

The law: whoever is told of an epoch, be it the writer whose transaction ended or a reader who saw it, is told only when
it is stable (as far as the durability asks for that). A record is appended while the epoch can still be undone, and
waited for when no lock is held, so that the writers who wait share one sync. If a sync fails, nobody was told of what
it was for: the log is cut back to what is stable, and the runtime begins again from there once the disk allows it.
"""

from __future__ import annotations

import logging
from contextlib import suppress
from typing import TYPE_CHECKING

from whence.engine.core.epoch import Epoch
from whence.model.errors import StorageError
from whence.model.progress import Progress
from whence.runtime.durable.recovery import Recovery, recover
from whence.state.store import Store

if TYPE_CHECKING:
    from whence.runtime.durable.durable import Durable

log = logging.getLogger("whence")


class Journal:
    """The durable side of one runtime. Written to under the runtime's writer lock."""

    recovery: Recovery

    def __init__(self, runtime: Durable, store: Store, progress: Progress | None = None):
        self._runtime, self.store = runtime, store
        self.snapshots = runtime.snapshots_of(store, lambda: self.broken)
        self._last = 0  # the ticket of the last record
        self._doubt: int | None = None  # the one before it, until the runtime has what it says
        self._recover(progress)
        if store.log.torn is not None:
            path, offset, size = store.log.torn
            log.warning("%s: %d bytes from offset %d on were cut off: they were never acknowledged", path, size, offset)

    def _recover(self, progress: Progress | None = None) -> None:
        store = self.store
        while True:
            seen = store.folder.manifest
            try:
                found = recover(self._runtime, store.folder, torn=store.log.torn, progress=progress)
                break
            except StorageError:
                if store.folder.manifest == seen:
                    raise
                self._runtime.start_anew("a snapshot took the place of another")  # and what that stood on is gone
        store.resume(found.report.replayed, found.log_bytes, found.words)
        if found.report.damaged:
            store.distrust_images()
        self.recovery = found.report
        log.info("%s opened: %s", store.path, found.report)

    # -- writing -----------------------------------------------------------------------------------------------------

    def write_epoch(self, epoch: Epoch) -> None:
        """Append an epoch, which an error undoes; `epoch_done` must follow."""
        self._doubt = self.store.log.written
        try:
            with self.store.appending():
                ticket = self.store.write_epoch(epoch, self._runtime.dictionary)
        except BaseException:
            if self.store.log.written == self._doubt:
                self._doubt = None
            raise
        self._last = ticket

    def epoch_done(self) -> None:
        """The runtime has the epoch, too. If it never says so (Ctrl-C), the log and the runtime may differ."""
        self._doubt = None

    def write_statements(self, statements: list[str]) -> None:
        """Append what has changed the catalog, which an error undoes."""
        runtime = self._runtime
        with self.store.appending():
            ticket = self.store.write_statements(statements, runtime.epoch, runtime.time, runtime.dictionary)
        self._last = ticket

    @property
    def last(self) -> int:
        """The ticket to settle: that of all that has been written so far."""
        return self._last

    def settle(self, ticket: int) -> None:
        """Return when what was written up to a ticket is stable. No lock may be held."""
        self.store.sync(ticket)
        self.snapshots.consider()

    @property
    def broken(self) -> bool:
        """Whether the runtime is ahead of what can be made stable, or an epoch broke off between log and runtime."""
        return self.store.failed or self._doubt is not None

    def mend(self) -> None:
        """Go back to the last stable epoch, in the log and in the runtime; StorageError while that is not possible."""
        self.store.fall_back(self._doubt)
        self._runtime.start_anew("the disk failed or an epoch broke off, and what was not stable is lost")
        self._last = 0
        self._recover()
        self._doubt = None
        log.warning("the log has been cut back to epoch %d, the last one that was stable", self._runtime.epoch)

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
