"""The pace of epochs: how long a busy writer waits for more rows before it begins the next epoch.

An epoch has costs of its own, however few rows it brings: here, and again at everyone who is told of it. A writer that
begins the next one as soon as it can spends all of its time on them, at rates that larger epochs carry easily. So it
rests after an epoch, for a few times as long as epochs take here: the busier the machine, the longer they take, and the
more rows are in the next one.

The law: an epoch begins at the latest `longest` seconds after the one before it, if there are rows for it. After a
longer pause the next begins at once.
"""

from __future__ import annotations

_SMOOTHING = 8  # one long epoch, such as the first, moves the mean by this fraction


class EpochPace:
    """Says when the next epoch is due.

    times    an epoch begins so many times its usual duration after the one before it
    longest  seconds that this is at most

    >>> pace = EpochPace(4, 0.01)
    >>> pace.begin(5.0); pace.end(5.008); round(pace.due, 6)
    5.004
    >>> pace.begin(6.0); pace.end(6.08); round(pace.due, 6)
    6.01
    """

    def __init__(self, times: float, longest: float) -> None:
        self._times, self._longest = times, longest
        self._began, self._usual = -longest, 0.0

    def begin(self, now: float) -> None:
        """Note that an epoch begins."""
        self._began = now

    def end(self, now: float) -> None:
        """Note that it has ended."""
        self._usual += (now - self._began - self._usual) / _SMOOTHING

    @property
    def due(self) -> float:
        """The time at which the next epoch is to begin."""
        return self._began + min(self._longest, self._times * self._usual)
