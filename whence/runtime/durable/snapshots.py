"""Snapshots: an exact image of one epoch, taken while later epochs go on.

A snapshot begins between two epochs: it notes the epoch, the end of the log, and the operators that have changed since
the snapshot before. These are copied one by one, each under the state lock; an epoch that is about to change one of
them that is not copied yet copies it first. What is copied is hashed, compressed and written without any lock, and only
blocks that the chain does not hold already. A change of the catalog does not disturb: operators that it drops stand
still, and its statements are in the log behind the image.

Cost: reading the state of the operators that have changed and writing their changed blocks; nobody waits for more than
one operator's copy. When the image stands, the log before it is no longer needed.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Any

from whence.engine.core.dataflow import Dataflow
from whence.engine.core.image import Image
from whence.engine.core.operator import Operator
from whence.model.errors import StorageError
from whence.state.codec import pack_words
from whence.state.store import WORDS, Store

if TYPE_CHECKING:
    from whence.runtime.embedded import Embedded

log = logging.getLogger("whence")
_PAUSE = 5.0  # seconds before a snapshot that failed is tried again


class Capture:
    """The state of a dataflow at one moment. Made, asked and told of changes under the state lock.

    `known` parts that have not changed since the last capture are `kept`: they need no copy.
    """

    def __init__(self, flow: Dataflow, known: Collection[str]):
        self._flow = flow
        self._waiting: dict[Operator, list[tuple[str, Callable[[], Image]]]] = {}
        self._copied: deque[tuple[str, Image]] = deque()
        self._changed: set[Operator] = set()  # since then
        self.kept: list[str] = []
        for key, op, image in flow.parts():
            if key in known and not op.changed:
                self.kept.append(key)
            else:
                self._waiting.setdefault(op, []).append((key, image))
        self._asked = list(self._waiting)
        flow.before = self._before

    def _before(self, op: Operator) -> None:
        self._changed.add(op)
        self._copy(op)

    def _copy(self, op: Operator) -> None:
        for key, image in self._waiting.pop(op, ()):
            self._copied.append((key, {name: array.copy() for name, array in image().items()}))

    def take(self) -> tuple[str, Image] | None:
        """The next part, copied now unless an epoch has made that necessary before; None when all are taken."""
        if not self._copied:
            if not self._waiting:
                return None
            self._copy(next(iter(self._waiting)))
        return self._copied.popleft()

    def end(self, kept: bool) -> None:
        """Stop watching; if the image is kept, what has not changed since need not be copied for the next one."""
        self._flow.before = None
        if kept:
            for op in self._asked:
                op.changed = op in self._changed


class Snapshots:
    """Takes the snapshots of one database: in a thread of its own when the log has grown, or when asked."""

    def __init__(self, runtime: Embedded, store: Store, broken: Callable[[], bool]):
        """`broken` says whether the runtime and the log may differ: then there is nothing to be kept."""
        self._runtime, self._store, self._broken = runtime, store, broken
        self._one = threading.Lock()  # one at a time
        self._thread: threading.Thread | None = None
        self._not_before = 0.0
        self.taken = 0
        self.seconds = 0.0

    def consider(self) -> None:
        """After an epoch: start one in the background if replaying the log would take long."""
        if not self._is_due() or self._thread is not None or time.monotonic() < self._not_before:
            return
        self._not_before = time.monotonic() + _PAUSE
        thread = self._thread = threading.Thread(target=self._in_background, name="whence-snapshot", daemon=True)
        try:
            thread.start()
        except RuntimeError as error:  # the system has no thread left, or the interpreter is ending
            self._thread = None
            log.warning("no snapshot was taken: %s", error)

    def _is_due(self) -> bool:
        return self._store.tail_is_long

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

    def take(self) -> bool:
        """Take a snapshot now; False if there is nothing that the last one does not have."""
        with self._one:
            return self._take()

    def last(self) -> None:
        """Take one when the database is closed; if that fails, the log has everything."""
        self.finish()
        try:
            self.take()
        except StorageError as error:
            log.warning("no snapshot was taken, opening will replay the log: %s", error)

    def _take(self) -> bool:
        runtime, store, start = self._runtime, self._store, time.perf_counter()
        with runtime.paused():
            if not store.tail_records or self._broken():
                return False
            words = runtime.dictionary
            store.write_words(words, runtime.epoch, runtime.time)
            store.rotate()
            writer, before = store.begin_image(runtime.epoch)
            known = before.parts if before is not None else ()
            capture = Capture(runtime.catalog.flow, known)
            meta: dict[str, Any] = {"epoch": runtime.epoch, "time": runtime.time}
            meta |= {"statements": runtime.catalog.statements(), "words": len(words)}
            meta["marks"] = dict(runtime.marks)
        kept = False
        try:
            for key in [*capture.kept, *(key for key in known if key.startswith(WORDS))]:
                writer.keep_unchanged(key)
            while (part := self._next(capture)) is not None:
                writer.add(*part)
            first = before.meta["words"] if before is not None else 0
            if meta["words"] > first:
                writer.add(f"{WORDS}{first}", pack_words(words.since(first)[: meta["words"] - first]))
            store.publish(writer, meta, runtime.epoch, runtime.time)
            kept = True
        finally:
            with runtime.looking():
                capture.end(kept)
            if not kept:
                writer.abort()
        self.taken += 1
        self.seconds = time.perf_counter() - start
        log.info("snapshot of epoch %d taken in %.1f ms", meta["epoch"], self.seconds * 1000)
        return True

    def _next(self, capture: Capture) -> tuple[str, Image] | None:
        with self._runtime.looking():
            return capture.take()
