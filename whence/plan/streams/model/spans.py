"""What the nodes of stream networks are told: windows, what is kept of a stream, how rows are traced."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Literal

FIRST: Literal["first"] = "first"
ADDED = {"added": True}  # a field that plans written before do not have; it counts only where it is not the default


@dataclass(frozen=True)
class Span:
    """A window over a stream: so many rows, or so much of an ordered column; None for everything since the start.

    With `on` it is a column, and `size`, `every` and `origin` are in its units: whole numbers, DECIMALs as their
    scaled whole numbers, TIMESTAMPs in microseconds, DATEs in days, DOUBLEs as floats. Windows are
    `[origin + k·every, origin + k·every + size)` for whole k; if the origin is FIRST, it is the value of the first row
    (of each key), and k is not negative. A window closes when the watermark reaches its end: the greatest value so far
    (of its key) less `lateness`, or what was promised. A row is in the windows of its value that have not closed, and
    late if there are others; NULL is in no window.
    Without `on` the windows are rows k·every + 1 to k·every + size. Each key of the columns `by` has its own windows.
    """

    size: int | float | None
    every: int | float | None = None
    on: int | None = None
    by: tuple[int, ...] = ()
    origin: int | float | Literal["first"] = 0
    lateness: int | float = field(default=0, metadata=ADDED)

    def describe(self) -> str:
        """Return a window as text.

        >>> Span(3, 1, by=(1,)).describe(), Span(None, 10, on=0).describe()
        ('3 rows, every 1, by #1', 'all of #0, every 10')
        """
        size = "all" if self.size is None else str(self.size)
        out = f"{size} rows" if self.on is None else f"{size} of #{self.on}"
        out += f", every {self.every}" if self.every is not None else ""
        out += f", from {'the first' if self.origin == FIRST else self.origin}" if self.origin else ""
        out += f", lateness {self.lateness}" if self.lateness else ""
        return out + (f", by {', '.join(f'#{c}' for c in self.by)}" if self.by else "")

    def parts(self, column: int) -> bool:
        """Return whether rows that differ in a column meet in no window; in a landmark of rows it does not matter."""
        return column in self.by or (self.size is None and self.on is None)


@dataclass(frozen=True)
class Retention:
    """What of a stream is kept: the last rows, so many, so many bytes of them, or so many microseconds; None: all."""

    rows: int | None = None
    nbytes: int | None = None
    micros: int | None = None
    text: str = "all"

    def share(self, partitions: int) -> Retention:
        """Return what a partition keeps of a stream of which it has a part."""
        rows = None if self.rows is None else max(-(-self.rows // partitions), 1)
        nbytes = None if self.nbytes is None else max(-(-self.nbytes // partitions), 1)
        return replace(self, rows=rows, nbytes=nbytes)


@dataclass(frozen=True)
class MemoryLimit:
    """How many rows a join of streams keeps at most, and which: those with the greatest score by `keep`.

    `model` and `period` are how the join values go on; `lifetime` is how many arrivals rows are expected to stay for.
    What is not given is learnt. Joins of one `pool` share the memory."""

    rows: int | None = None
    nbytes: int | None = None
    text: str = ""
    keep: Literal["heeb", "prob", "life", "random", "lru", "lfu"] = "heeb"
    model: Literal["auto", "stationary", "trend", "walk", "ar1", "seasonal"] = "auto"
    period: int | None = None
    lifetime: float | None = None
    pool: str = field(default="", metadata=ADDED)

    def share(self, partitions: int) -> MemoryLimit:
        """Return the limit of one of some partitions."""
        rows = None if self.rows is None else max(self.rows // partitions, 1)
        nbytes = None if self.nbytes is None else max(self.nbytes // partitions, 1)
        return replace(self, rows=rows, nbytes=nbytes)

    def describe(self) -> str:
        return f"at most {self.text}" + (f", shared in the pool {self.pool}" if self.pool else "")


DEFAULT_RETENTION = Retention(nbytes=64 << 20, text="64 MB")


@dataclass(frozen=True)
class Tracing:
    """How rows are annotated. Covering intervals are laid out by `sources`, the streams that are traced; sets of tids
    name their sources themselves, so that all networks of one encoding share a tracer."""

    mode: Literal["lineage", "covering"]
    sources: tuple[str, ...] = ()
    encoding: Literal["adaptive", "ids", "intervals", "deltas", "dictionary"] = "adaptive"
