"""Acknowledgements of writes: a thread that waits until the log is stable, while the next epoch runs.

The law: what is handed over is answered in that order, each once; with success only after it is on stable storage,
whatever the durability. One sync is for all that has been handed over by then; under the durabilities "interval" and
"none" there is a pause between two syncs, so that they stay as cheap as their users expect.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Generic, TypeVar

from whence.runtime.durable.journal import Journal

if TYPE_CHECKING:
    from whence.runtime.coordinator import Coordinator

log = logging.getLogger("whence")
T = TypeVar("T")


class Acknowledger(Generic[T]):
    """Answers writes when they are stable.

    answer      called with what was handed over and with the error if it is lost; from a thread of its own, but at
                once where there is nothing to wait for
    sync_every  seconds between two syncs, unless a commit waits for its own
    """

    def __init__(
        self,
        coordinator: Coordinator,
        answer: Callable[[list[T], BaseException | None], None],
        sync_every: float,
    ) -> None:
        self._coordinator, self._answer = coordinator, answer
        storage = coordinator.storage
        lazy = isinstance(storage, Journal) and storage.store.log.durability != "commit"
        self._pause = sync_every if lazy else 0.0
        self._turn = threading.Condition(threading.Lock())
        self._waiting: list[tuple[int, list[T]]] = []
        self._busy = self._closing = False
        self._thread: threading.Thread | None = None
        if storage.folder is not None:
            self._thread = threading.Thread(target=self._run, name="whence acknowledgements", daemon=True)
            self._thread.start()

    def hand_over(self, items: list[T], ticket: int) -> None:
        """Answer some writes when all up to a ticket of the storage is stable."""
        if self._thread is None:
            self._answer(items, None)
            return
        with self._turn:
            self._waiting.append((ticket, items))
            self._turn.notify_all()

    def drain(self) -> None:
        """Return when everything that was handed over has been answered."""
        with self._turn:
            while self._waiting or self._busy:
                self._turn.wait()

    def close(self) -> None:
        """Answer what was handed over, and end."""
        with self._turn:
            self._closing = True
            self._turn.notify_all()
        if self._thread is not None:
            self._thread.join()

    def _run(self) -> None:
        synced = 0.0
        while True:
            with self._turn:
                while not self._waiting and not self._closing:
                    self._turn.wait()
                if self._pause and not self._closing:
                    self._turn.wait_for(lambda: self._closing, synced + self._pause - time.monotonic())
                taken, self._waiting = self._waiting, []
                if not taken:
                    return
                self._busy = True
            try:
                self._answer_all(taken)
            except BaseException:
                log.exception("acknowledgements failed")
            synced = time.monotonic()
            with self._turn:
                self._busy = False
                self._turn.notify_all()

    def _answer_all(self, taken: list[tuple[int, list[T]]]) -> None:
        if self._failure(max(ticket for ticket, _ in taken)) is None:
            self._answer([item for _, items in taken for item in items], None)
            return
        for ticket, items in taken:  # some may have been stable before the sync that failed
            self._answer(items, self._failure(ticket))

    def _failure(self, ticket: int) -> BaseException | None:
        try:
            self._coordinator.storage.make_durable(ticket)
        except BaseException as error:
            return error
        return None
