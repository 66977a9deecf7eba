"""What a subscriber waits for: publishers that have not been heard of."""

from __future__ import annotations

import datetime as dt
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
