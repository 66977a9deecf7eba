"""Take snapshots of a database: in a thread of its own when the log has grown, or when asked.

What an image is, and how long others wait for it, is the backend's matter (`images.py`, `spark/driver/images.py`). When
the image stands, the log before it is no longer needed. The law: an image has what the log says up to its epoch, so it
is begun under both locks, of the state as it is then, and only when the two cannot differ.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from whence.model.errors import StorageError
from whence.state.store import Store

if TYPE_CHECKING:
    from whence.runtime.coordinator import Coordinator

log = logging.getLogger("whence")
_PAUSE = 5.0  # seconds before a snapshot that failed is tried again


class Snapshots:
    """The snapshots of one database."""

    def __init__(self, coordinator: Coordinator, store: Store, broken: Callable[[], bool]) -> None:
        """`broken` says whether the state and the log may differ: then there is nothing to be kept."""
        self._coordinator, self._store, self._broken = coordinator, store, broken
        self._one = threading.Lock()  # one at a time
        self._thread: threading.Thread | None = None
        self._not_before = 0.0
        self.taken = 0
        self.seconds = 0.0

    def consider(self) -> None:
        """Start one in the background, after an epoch, if replaying the log would take long."""
        if self._thread is not None or time.monotonic() < self._not_before:
            return
        if not self._coordinator.catalog.backend.is_image_due(self._store):
            return
        self._not_before = time.monotonic() + _PAUSE
        thread = self._thread = threading.Thread(target=self._in_background, name="whence-snapshot", daemon=True)
        try:
            thread.start()
        except RuntimeError as error:  # the system has no thread left, or the interpreter is ending
            self._thread = None
            log.warning("no snapshot was taken: %s", error)

    def _in_background(self) -> None:
        try:
            self.take()
            self._not_before = 0.0
        except StorageError as error:
            log.warning("no snapshot was taken, the log keeps growing: %s", error)
        finally:
            self._thread = None

    def finish(self) -> None:
        """Wait for a snapshot that is under way."""
        thread = self._thread
        if thread is not None:
            thread.join()

    def take(self, asked: bool = False) -> bool:
        """Take a snapshot now; return False if there is nothing that the last one does not have.

        Words that nothing refers to any more are forgotten before: when they may be many, or if it was `asked` for."""
        with self._one:
            if self._store.tail_records and not self._broken():
                self._coordinator.words.collect(asked)
            return self._take()

    def last(self) -> None:
        """Take one when the database is closed; if that fails, the log has everything."""
        self.finish()
        try:
            self.take()
        except StorageError as error:
            log.warning("no snapshot was taken, opening will replay the log: %s", error)

    def _take(self) -> bool:
        start, coordinator = time.perf_counter(), self._coordinator
        with coordinator.paused():
            if not self._store.tail_records or self._broken():
                return False
            backend = coordinator.catalog.backend  # not before: whoever had the locks may have begun anew from the log
            write = backend.begin_image(coordinator, self._store)
        epoch = write()
        self.taken += 1
        self.seconds = time.perf_counter() - start
        log.info("snapshot of epoch %d taken in %.1f ms", epoch, self.seconds * 1000)
        return True
