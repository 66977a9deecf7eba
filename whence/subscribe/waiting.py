"""What a subscriber waits for: publishers that have not been heard of."""

from __future__ import annotations

import datetime as dt
from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple


class WaitingFor(NamedTuple):
    """A source that is behind (`Update.waiting_for`): its name, where it comes from, and since when, in UTC.

    >>> one = WaitingFor("quote", "ws://127.0.0.1:8080/quote", dt.datetime(2026, 11, 18, 10, 32))
    >>> read_waiting(plain_waiting([one])) == [one], read_waiting(None)
    (True, [])
    """

    source: str
    url: str
    since: dt.datetime


def plain_waiting(waiting: Sequence[WaitingFor]) -> dict[str, Any] | None:
    """Return what is waited for as it is sent."""
    return {each.source: [each.url, each.since.isoformat()] for each in waiting} or None


def read_waiting(plain: Mapping[str, Any] | None) -> list[WaitingFor]:
    """Return what was sent."""
    return [WaitingFor(name, url, dt.datetime.fromisoformat(since)) for name, (url, since) in (plain or {}).items()]


class UpstreamDoubts:
    """What a server said that its rows wait for, by the tick that they are of. The last word on a tick counts.

    >>> doubts, one = UpstreamDoubts(), WaitingFor("quote", "ws://a/quote", dt.datetime(2026, 11, 18))
    >>> doubts.note(3, []); doubts.note(5, [one]); doubts.note(7, [])
    >>> [len(doubts.as_of(tick)) for tick in (2, 4, 5, 6, 7, 9)]
    [0, 0, 1, 1, 0, 0]
    """

    def __init__(self) -> None:
        self._said: list[tuple[int, list[WaitingFor]]] = []  # in the order of ticks, where it changes

    def note(self, tick: int, waiting: list[WaitingFor]) -> None:
        """Note what was said with what leads to a tick."""
        said = self._said
        if waiting == said[-1][1] and tick >= said[-1][0] if said else not waiting:
            return
        at = bisect_left(said, tick, key=_tick_of)
        rest = said[at + 1 :] if at < len(said) and said[at][0] == tick else said[at:]
        before = said[:at]
        if not before or before[-1][1] != waiting:
            before = [*before, (tick, waiting)][-_MOST_DOUBTS:]
        self._said = [*before, *rest]

    def as_of(self, tick: int) -> list[WaitingFor]:
        """Return what rows that are of the ticks up to one wait for."""
        said = self._said
        at = bisect_right(said, tick, key=_tick_of)
        return said[at - 1][1] if at else []


def _tick_of(said: tuple[int, list[WaitingFor]]) -> int:
    return said[0]


_MOST_DOUBTS = 100
