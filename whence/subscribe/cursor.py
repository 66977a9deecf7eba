"""A subscriber is a cursor, not a queue: a position in the shared recent changes, and what to tell it next.

`Cursor.next` is asked when the subscriber's connection can take a message, and says which one: the net difference from
what it has, the state, or that changes are lost. Nothing waits for it meanwhile, so a slow subscriber costs what a fast
one does, and skips what has been and gone.

The law: what a subscriber has, plus every step told since, is the queries' rows at the position of the last step; and
positions only grow. A row that became final without changing is told, too: by a step that changes no rows and only
moves horizons to those of its position. There is no clock, no socket and no thread in here: a simulation drives it as a
server does.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

_EVER = 2**62  # later than any epoch


class Followed(Protocol):
    """Something that is told of: the changes of a relation (`recent.py`), or that its rows become final."""

    def reaches(self, since: int) -> bool:
        """Return whether everything since an epoch is known."""

    def next_change(self, since: int, upto: int) -> int | None:
        """Return the first epoch after `since` and up to `upto` in which there is something to tell, if any."""


@dataclass(frozen=True)
class TellUpdate:
    """Tell the net change after `since` and up to `upto`; what the subscriber knows is as of `known`."""

    known: int
    since: int
    upto: int


@dataclass(frozen=True)
class TellState:
    """Tell the whole state, for a reason."""

    reason: str


@dataclass(frozen=True)
class TellLost:
    """Tell that single changes after `since` are gone; the state follows."""

    since: int


Step = TellUpdate | TellState | TellLost


class Cursor:
    """What one subscriber has, and how it wants to be told.

    >>> import numpy as np
    >>> from whence.subscribe.recent import RecentChanges
    >>> recent = RecentChanges(in_order=False, start=0); cursor = Cursor()
    >>> cursor.next([recent], 0, now=0.0)
    TellState(reason='begin')
    >>> cursor.reached(0); cursor.next([recent], 0, now=0.0)
    >>> recent.push(1, 0, np.array([[7]]), np.array([1])); cursor.next([recent], 1, now=0.0)
    TellUpdate(known=0, since=0, upto=1)
    """

    def __init__(self, have: int | None = None, every: float = 0.0, every_change: bool = False) -> None:
        self.known = have  # the last epoch that the subscriber was told of; None if it needs the state
        self._since = have if have is not None else 0  # the change from here on is still to be told
        self._reason = "begin"
        self._wanted: int | None = None
        self.every, self.every_change = every, every_change
        self.not_before = 0.0

    def next(self, parts: Sequence[Followed], told: int, now: float) -> Step | None:
        """Return what to tell next, given the last stable epoch; None if there is nothing to tell now."""
        if self.known is None:
            return TellState(self._reason)
        if told > self._since and not all(part.reaches(self._since) for part in parts):
            since = self.known
            self.restart("behind")
            return TellLost(since) if self.every_change else TellState(self._reason)
        waited = self._wanted is not None and self._wanted <= told
        if now < self.not_before and not waited:
            return None
        upto = self._next_change(parts, told)
        if upto is not None and not self.every_change:
            upto = told
        if upto is None:
            if not waited:
                return None
            upto = told
        return TellUpdate(self.known, self._since, upto) if upto > self.known or waited else None

    def _next_change(self, parts: Sequence[Followed], told: int) -> int | None:
        found = [part.next_change(self._since, told) for part in parts]
        return min((epoch for epoch in found if epoch is not None), default=None)

    def next_untold(self, parts: Sequence[Followed]) -> int | None:
        """Return the next epoch that has a change to be told, whether or not it may be told yet; None if there is none
        that is known."""
        return self._next_change(parts, _EVER) if all(part.reaches(self._since) for part in parts) else None

    def passed(self, upto: int) -> None:
        """Note that nothing has changed up to an epoch after all: what came has gone."""
        self._since = upto

    @property
    def is_waited_for(self) -> bool:
        """Whether the subscriber waits to be told a position, even if nothing changes."""
        return self._wanted is not None

    def reached(self, epoch: int, now: float = 0.0) -> None:
        """Note that the subscriber was told everything up to an epoch."""
        self.known = self._since = epoch
        self.not_before = now + self.every
        if self._wanted is not None and self._wanted <= epoch:
            self._wanted = None

    def wait_for(self, epoch: int) -> None:
        """Tell an update as soon as an epoch is reached, even if nothing changes."""
        if self.known is None or epoch > self.known:
            self._wanted = epoch if self._wanted is None else min(self._wanted, epoch)

    def restart(self, reason: str) -> None:
        """Tell the whole state next."""
        self.known, self._reason = None, reason
