"""Rows of a source that break the order of a stream, or come after their key is closed: set apart, the rest is kept.

Whether a row does depends on all rows before it, in whatever task they were, so it is found out in the driver.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from whence.io.files import Reject
from whence.io.rejects import OnError, isolate, reason, record_of
from whence.io.rows import to_tuples
from whence.model.codes import Codes, Dictionary
from whence.runtime.writing.stream_writes import StreamWriteSet


@dataclass
class Refusals:
    """What becomes of rows of a source that come too late for a stream; and those of one epoch."""

    on_error: OnError
    source: str
    batch: int | None
    found: list[Reject] = field(default_factory=list)

    @property
    def to_keep(self) -> list[Reject]:
        """The rows that are to be written to the table of rejects."""
        return self.found if self.on_error == "reject" else []

    def append(self, pending: StreamWriteSet, rows: Codes, dictionary: Dictionary) -> None:
        """Append rows to a stream, but for those that break a promise."""
        table = pending.table
        _, faults = isolate(len(rows), lambda start, stop: pending.insert(rows[start:stop]))
        for at, error in faults:
            record = record_of(to_tuples(rows[at : at + 1], table.schema, dictionary)[0])
            self.found.append(Reject(None, None, reason(error, table.name), record))
