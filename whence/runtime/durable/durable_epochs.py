"""Report which epochs are stable: the only ones that subscribers may be told of.

The law: a reported epoch is committed here, and everything that belongs to it is on stable storage. Numbers that a
listener is given rise, until it is told that the database began anew from its storage, perhaps at an earlier epoch.

An epoch is complete in two steps, in either order. The coordinator commits it, and names the ticket of its last record:
with a view that is redefined that is not the epoch's own record but the statement's. The storage reports how far it is
stable, from whatever thread has synced. A record alone is not enough: it may still be withdrawn. Whichever thread finds
that the number has risen calls the listeners, one thread at a time; others leave it to that one and never wait.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable

from whence.subscribe.positions import HistoryLineage, Position

log = logging.getLogger("whence")
EpochListener = Callable[[int], object]


class DurableEpochs:
    """The last stable epoch of one coordinator, its history, and who wants to know when the number rises."""

    def __init__(self, lineage: HistoryLineage) -> None:
        self.lineage = lineage  # of the epochs that listeners are given
        self.epoch = 0
        self._guard = threading.Lock()
        self._pending: deque[tuple[int, int]] = deque()  # tickets and epochs that are committed and not stable yet
        self._restarted: HistoryLineage | None = None  # since the listeners were called last
        self._reported = 0
        self._reporting = False
        self._listeners: tuple[tuple[EpochListener, EpochListener | None], ...] = ()

    @property
    def position(self) -> Position:
        """The position of the last stable epoch."""
        with self._guard:
            return (self._restarted or self.lineage).at(self.epoch)

    def add(self, listener: EpochListener, restarted: EpochListener | None = None) -> None:
        """Call a listener when the number rises, and perhaps another when the database has begun anew."""
        with self._guard:
            if not self._listeners:
                self._reported = self.epoch  # nobody was told of it, and nobody is to be
            self._listeners = (*self._listeners, (listener, restarted))

    def remove(self, listener: EpochListener) -> None:
        """Do not call a listener any more, nor the one that was given with it; a call may be under way."""
        with self._guard:
            self._listeners = tuple(pair for pair in self._listeners if pair[0] != listener)

    def commit(self, epoch: int, ticket: int) -> None:
        """Note that an epoch is committed, and the ticket of its last record. `settle` must follow."""
        with self._guard:
            self._pending.append((ticket, epoch))

    def settle(self, stable: int) -> None:
        """Note that everything up to a ticket is stable, and report what that completes."""
        if not self._pending:
            return  # whoever commits settles afterwards
        with self._guard:
            while self._pending and self._pending[0][0] <= stable:
                self.epoch = max(self.epoch, self._pending.popleft()[1])
        if self._listeners:
            self.report()

    def extend(self, lineage: HistoryLineage) -> None:
        """Go on with a lineage that has more eras: all that was reported is part of it."""
        with self._guard:
            if self._restarted is not None:
                self._restarted = lineage
            else:
                self.lineage = lineage

    def restart(self, lineage: HistoryLineage, epoch: int) -> None:
        """Begin anew at an epoch, which is stable. `report` must follow, when no lock is held."""
        with self._guard:
            self._pending.clear()
            self._restarted, self.epoch = lineage, epoch

    def report(self) -> None:
        """Call the listeners if there is news for them and no other thread is just doing that."""
        with self._guard:
            if self._reporting:
                return  # that thread looks again before it ends
            self._reporting = True
        try:
            while (news := self._next()) is not None:
                restarted, epoch = news
                for pair in self._listeners:
                    listener = pair[restarted]
                    if listener is not None:
                        _call(listener, epoch)
        except BaseException:  # Ctrl-C
            with self._guard:
                self._reporting = False
            raise

    def _next(self) -> tuple[bool, int] | None:
        """Return whether the database began anew and the epoch to report; None, and end reporting, if there is no
        news."""
        with self._guard:
            if self._restarted is not None:
                self.lineage, self._restarted, self._reported = self._restarted, None, self.epoch
                return True, self.epoch
            if self.epoch > self._reported:
                self._reported = self.epoch
                return False, self.epoch
            self._reporting = False
            return None


def _call(listener: EpochListener, epoch: int) -> None:
    try:
        listener(epoch)
    except Exception:  # a listener's fault is not the writer's, whose epoch is stable
        log.exception("a listener failed at epoch %d", epoch)
