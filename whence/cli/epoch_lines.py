"""Output of a running database on Spark: one line per epoch, and counters.

An epoch comes from `Running.recentProgress`: its number, the rows that came, and what its run has cost.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from rich.table import Table
from rich.text import Text

from whence.model.sizes import in_bytes
from whence.runtime.spark.frames.streams import Running


class EpochWatcher:
    """The epochs of running streams that were not shown yet."""

    def __init__(self, running: Running, since: int) -> None:
        self._running, self._last = running, since

    def fresh(self) -> list[dict[str, Any]]:
        """Return the epochs since the last call, oldest first."""
        fresh = [epoch for epoch in self._running.recentProgress if epoch["epoch"] > self._last]
        if fresh:
            self._last = fresh[-1]["epoch"]
        return fresh


def describe_jobs(epoch: Mapping[str, Any]) -> str:
    """Describe where an epoch ran.

    >>> describe_jobs({"jobs": 0}), describe_jobs({"jobs": 1}), describe_jobs({"jobs": 3})
    ('inline', '1 job', '3 jobs')
    """
    jobs = epoch["jobs"]
    return f"{jobs} job{'s' * (jobs != 1)}" if jobs else "inline"


def line(epoch: Mapping[str, Any]) -> Text:
    """Describe an epoch in one line."""
    steps = epoch["supersteps"]
    parts = [
        f"{epoch['rows']:,} rows in",
        f"{epoch['rows_out']:,} out",
        f"{steps} superstep{'s' * (steps != 1)} {'inline' if not epoch['jobs'] else 'as jobs'}",
        f"{epoch['rows_shipped']:,} rows ({in_bytes(epoch['bytes_shipped'])}) shipped",
        f"state {in_bytes(epoch['state_bytes'])}",
        f"{epoch['seconds'] * 1000:.0f} ms",
    ]
    return Text.assemble((f"epoch {epoch['epoch']}", "bold"), (" · " + " · ".join(parts), "dim"))


def table(epochs: Iterable[Mapping[str, Any]]) -> Table:
    """Format epochs as a table, one per line, in the given order."""
    shown = Table(box=None, header_style="dim", pad_edge=False)
    for title in ("epoch", "rows in", "rows out", "supersteps", "", "rows shipped", "bytes", "state", "ms"):
        shown.add_column(title, justify="left" if not title else "right")
    for epoch in epochs:
        shown.add_row(
            str(epoch["epoch"]),
            f"{epoch['rows']:,}",
            f"{epoch['rows_out']:,}",
            str(epoch["supersteps"]),
            describe_jobs(epoch),
            f"{epoch['rows_shipped']:,}",
            in_bytes(epoch["bytes_shipped"]),
            in_bytes(epoch["state_bytes"]),
            f"{epoch['seconds'] * 1000:.0f}",
        )
    return shown
