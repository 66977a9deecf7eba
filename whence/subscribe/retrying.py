"""When to try again: at once, then soon, then seldom, and never all clients at the same time."""

from __future__ import annotations

SOON, SELDOM = (0.05, 0.25), 5.0
"""Seconds between two attempts: at first, at random between these, and at most."""

EAGER = 10.0
"""Seconds for which a lost server is looked for often: as long as a restart takes."""


def retry_delay(attempt: int, away: float, random: float) -> float:
    """Return the seconds to wait before an attempt, counted from 0, when the server has been away for some seconds;
    `random` is from 0 to 1.

    >>> [retry_delay(0, 0, 0.5), retry_delay(1, 0.1, 0), retry_delay(2, 9, 1), retry_delay(90, 3600, 1)]
    [0.0, 0.05, 0.25, 5.0]
    >>> retry_delay(50, 20, 0.5) < retry_delay(60, 40, 0.5) < retry_delay(99, 100, 0.5)
    True
    """
    if attempt == 0:
        return 0.0
    low, high = SOON
    if away > EAGER:
        growth = min(away / EAGER, SELDOM / high)
        low, high = low * growth, high * growth
    return low + (high - low) * random
