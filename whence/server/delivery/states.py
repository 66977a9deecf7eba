"""The state of a subscription in chunks: each encoded once, when the first client needs it, for all who are sent it.

The law: the chunks of a snapshot, in order, have each of its rows as often as it is there. Chunks are cut where the
first encoding of them was, so every client is sent the same ones; those that take too much memory are encoded again.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa

from whence.io.rows import to_arrow
from whence.model.codes import Codes
from whence.runtime.subscriptions.channels import Channel, Snapshot
from whence.server.delivery.telling import ROWS_ONLY, Telling
from whence.subscribe.messages import Format, encode_message
from whence.subscribe.plain import to_plain

CHUNK_BYTES = 64 << 10
PLAIN_ROWS = 1_000
"""Rows of a chunk of plain values. Of a query with more, a client that takes binary frames is sent Arrow."""

ARROW_ROWS = 8_192
CACHED_BYTES = 4 << 20
"""Bytes of encoded chunks that are kept of one snapshot."""


@dataclass(frozen=True)
class Chunk:
    """Some rows of one part: encoded columns of plain values, or an Arrow stream."""

    part: int
    start: int  # the place of its first row in the part
    rows: int
    columns: msgspec.Raw | None
    arrow: bytes | None
    is_last: bool
    bounds: list[Any] | None = None
    states: list[str] | None = None

    @property
    def bytes(self) -> int:
        return len(memoryview(self.columns)) if self.columns is not None else len(self.arrow or b"")


class PartRows:
    """The rows of one part of a snapshot, each as often as it is there, by place."""

    def __init__(self, rows: Codes, counts: Codes) -> None:
        self._rows, self._counts = rows, counts
        repeated = len(counts) and int(counts.max()) > 1
        self._ends = np.cumsum(counts) if repeated else None
        self.total = int(self._ends[-1]) if self._ends is not None else len(rows)

    def between(self, start: int, end: int) -> Codes:
        """Return the rows from a place on, up to another.

        >>> PartRows(np.array([[7], [8], [9]]), np.array([1, 3, 1])).between(2, 5).tolist()
        [[8], [8], [9]]
        """
        if self._ends is None:
            return self._rows[start:end]
        first, last = np.searchsorted(self._ends, [start, end - 1], side="right").tolist()
        counts = self._counts[first : last + 1].copy()
        counts[-1] -= int(self._ends[last]) - end
        counts[0] -= start - (int(self._ends[first - 1]) if first else 0)
        return np.repeat(self._rows[first : last + 1], counts, axis=0)


class StateChunks:
    """The chunks of a snapshot in one format."""

    def __init__(self, snapshot: Snapshot, channel: Channel, format: Format, telling: Telling = ROWS_ONLY) -> None:
        self._channel, self._telling, self._epoch = channel, telling, snapshot.epoch
        self._dictionary, self._format = snapshot.dictionary, format
        self._parts = [PartRows(rows, counts) for rows, counts in snapshot.parts]
        self._cuts: list[tuple[int, int, int]] = []  # part, first and last place of each chunk so far
        self._guess = [ARROW_ROWS if self._is_arrow(i) else PLAIN_ROWS for i in range(len(self._parts))]
        self._cached: OrderedDict[int, Chunk] = OrderedDict()
        self._bytes = 0

    @property
    def rows(self) -> int:
        """How many rows there are."""
        return sum(part.total for part in self._parts)

    def __getitem__(self, index: int) -> Chunk:
        """Return a chunk; the one with `is_last` is the last one."""
        found = self._cached.get(index)
        if found is not None:
            return found
        if index < len(self._cuts):
            part, start, end = self._cuts[index]
            found = self._encode(part, start, end)
        else:
            assert index == len(self._cuts)
            found = self._cut()
        self._cached[index] = found
        self._bytes += found.bytes
        while self._bytes > CACHED_BYTES and len(self._cached) > 1:
            self._bytes -= self._cached.popitem(last=False)[1].bytes
        return found

    def _cut(self) -> Chunk:
        """Encode the next chunk, of about the size that a chunk should have."""
        part, start = 0, 0
        if self._cuts:
            part, _, start = self._cuts[-1]
            if start >= self._parts[part].total:
                part, start = part + 1, 0
        most = ARROW_ROWS if self._is_arrow(part) else PLAIN_ROWS
        rows = min(self._guess[part], self._parts[part].total - start)
        found = self._encode(part, start, start + rows)
        while found.bytes > 2 * CHUNK_BYTES and rows > 1:
            rows = max(1, min(rows - 1, rows * CHUNK_BYTES // found.bytes))
            found = self._encode(part, start, start + rows)
        if rows:
            self._guess[part] = max(1, min(most, rows * CHUNK_BYTES // max(found.bytes, 1)))
        self._cuts.append((part, start, start + rows))
        return found

    def _is_arrow(self, part: int) -> bool:
        is_plain = self._telling.bounds == "values"
        return self._format == "msgpack" and self._parts[part].total > PLAIN_ROWS and not is_plain

    def _encode(self, part: int, start: int, end: int) -> Chunk:
        relation, rows = self._channel.parts[part], self._parts[part].between(start, end)
        bounds, states = None, None
        if self._telling.bounds == "values" and len(rows):
            bounds, states = self._telling.row_bounds(self._channel, part, rows, self._dictionary, self._epoch)
        schema = relation.schema
        if self._telling.hides(relation, part):
            schema = relation.shown_schema
            rows = np.ascontiguousarray(rows[:, : len(schema.columns)])
        is_last = part == len(self._parts) - 1 and end >= self._parts[part].total
        if self._is_arrow(part):
            table = to_arrow(rows, np.ones(len(rows), np.int64), schema, self._dictionary)
            return Chunk(part, start, end - start, None, _stream(table), is_last)
        columns = msgspec.Raw(encode_message(to_plain(rows, schema, self._dictionary), self._format))
        return Chunk(part, start, end - start, columns, None, is_last, bounds, states)


def _stream(table: Any) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue())
