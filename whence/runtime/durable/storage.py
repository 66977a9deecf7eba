"""What a coordinator asks of where its database is stored: a journal, a folder that is only read, or nothing.

The journal (`journal.py`) writes epochs to a store, a follower (`follower.py`) replays what another process writes, and
a database in memory has neither. None is a base class of the coordinator: each is given to it.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any, Protocol

from whence.engine.core.epoch import Epoch
from whence.model.codes import Codes
from whence.model.errors import StorageError, WhenceError
from whence.state.manifest import Manifest
from whence.state.store import Folder
from whence.subscribe.positions import HISTORY_DIGITS, Era, HistoryLineage

if TYPE_CHECKING:
    from whence.runtime.coordinator import Coordinator
    from whence.runtime.durable.recovery import Recovery

RECOMPUTED = "a database in a folder computes rows again from its log"
_IN_MEMORY = "this database is in memory: whence.open(path) makes one that lasts"


class Storage(Protocol):
    """Where the epochs of a coordinator are stored."""

    read_only: bool
    poll: float | None  # seconds between two looks for changes of which nothing tells
    recovery: Recovery | None
    recomputed: str  # why rows may be computed again, if they may
    last: int  # the ticket of all that has been written so far
    lineage: HistoryLineage  # whose epochs these are

    @property
    def folder(self) -> Folder | None:
        """The folder of the database."""

    @property
    def synced(self) -> int:
        """The ticket of all that is stable."""

    def ready_to_write(self) -> None:
        """Make sure that writing is possible. Called with the writer's lock held, before anything is written."""

    def refresh(self) -> None:
        """Move to the last epoch that is safe to read: replay new records, or undo what a failed sync left."""

    def appending(self) -> AbstractContextManager[None]:
        """Withdraw the record that was written inside the block if it raises."""

    def write_epoch(self, epoch: Epoch) -> None:
        """Write an epoch that has run but is not committed yet; an error here undoes it."""

    def epoch_done(self) -> None:
        """Note that what was written is done, too: the epoch is committed, or the words are forgotten."""

    def write_statements(self, statements: list[str]) -> None:
        """Write what has changed the catalog; an error here changes it back."""

    def write_forgotten(self, codes: Codes) -> None:
        """Write which words are about to be forgotten; `epoch_done` must follow when they are."""

    def write_plans(self, record: bytes) -> None:
        """Write which plans are about to be switched; an error here switches them back."""

    def wait_durable(self, ticket: int) -> None:
        """Wait, without a lock, until what was written up to a ticket is stable."""

    def make_durable(self, ticket: int) -> None:
        """Make what was written up to a ticket stable, whatever the durability; StorageError if it was lost."""

    def sync(self) -> None:
        """Make everything stable."""

    def snapshot(self) -> bool:
        """Write an image of all state."""

    def metrics(self) -> dict[str, Any]:
        """Return what `metrics` says of the disk."""

    def close(self) -> None:
        """End."""


class InMemory:
    """Stores nothing."""

    read_only = False
    poll: float | None = None
    folder: Folder | None = None
    recovery: Recovery | None = None
    recomputed = ""
    last = synced = 0

    def __init__(self) -> None:
        self.lineage = HistoryLineage.fresh()

    def ready_to_write(self) -> None: ...

    def refresh(self) -> None: ...

    def appending(self) -> AbstractContextManager[None]:
        return nullcontext()

    def write_epoch(self, epoch: Epoch) -> None: ...

    def epoch_done(self) -> None: ...

    def write_statements(self, statements: list[str]) -> None: ...

    def write_forgotten(self, codes: Codes) -> None: ...

    def write_plans(self, record: bytes) -> None: ...

    def wait_durable(self, ticket: int) -> None: ...

    def make_durable(self, ticket: int) -> None: ...

    def sync(self) -> None: ...

    def snapshot(self) -> bool:
        raise WhenceError(_IN_MEMORY)

    def metrics(self) -> dict[str, Any]:
        return {}

    def close(self) -> None: ...


def lineage_of(manifest: Manifest, eras: Mapping[str, int] | None = None) -> HistoryLineage:
    """Return the lineage of a folder: as its manifest has it, or with other eras."""
    found = manifest.eras if eras is None else eras
    return HistoryLineage(manifest.id[:HISTORY_DIGITS], tuple(Era(*era) for era in found.items()))


def retained(coordinator: Coordinator) -> range:
    """Return the epochs that `at` can read."""
    folder = coordinator.storage.folder
    if folder is None:
        raise WhenceError(_IN_MEMORY)
    return range(folder.oldest, coordinator.epoch + 1)


def at(coordinator: Coordinator, epoch: int) -> Coordinator:
    """Return the database as it was after an epoch, for reading only."""
    from whence.runtime.durable.follower import follow

    folder = coordinator.storage.folder
    if folder is None:
        raise WhenceError(_IN_MEMORY)
    with coordinator.reading():
        if not 0 <= epoch <= coordinator.epoch:
            raise StorageError(f"{folder.path}: there is no epoch {epoch} yet; the last one is {coordinator.epoch}")
    return follow(Folder(folder.path, folder.disk), coordinator.recursion_limit, coordinator.program, until=epoch)
