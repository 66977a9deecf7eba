"""How far a stream has come whose rows are in partitions: the driver counts them, and gives out when they arrive."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass
class ArrivalCounter:
    """Of one stream: the tid that the next row gets, and the `$at` of the last, or of a promise.

    >>> arrivals = ArrivalCounter(); arrivals.note(3, 7); arrivals
    ArrivalCounter(next=4, last_at=7)
    """

    next: int = 1
    last_at: int = 0

    def note(self, count: int, last_at: int) -> None:
        """Count rows that have come, the last one at `last_at`."""
        self.next += count
        self.last_at = last_at
