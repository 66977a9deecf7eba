"""The nodes of stream networks: what a query over ordered, append-only inputs means.

A **stream** is a sequence of rows that only grows. Its rows have tids, contiguous from 1 in the order of the stream. In
plans the last column of every stream is hidden: `$at` (`plan/algebra/arrival.py`); a row that an operator makes has the
`$at` of the row that brought it about. Rows of a batch are in the order of `$at`, and those with equal `$at` in the
order in which they were made. So nothing depends on how arrivals fall into epochs.

The binder makes queries of `slide(s, …)` (Slide), `latest(s, …)` (Latest), `bsort(s, …)` (BSort) and
`provenance(view, stream)` (ProvenanceJoin), without the hidden column; `plan/streams/networks.py` makes networks of
those, and `plan/streams/instrument.py` adds Generate, DropProvenance and Align. Select, Project and Lateral of
`plan/algebra/logical` are what they are, on streams too.

| module | what it holds |
|---|---|
| `spans` | windows, retention and tracing, as nodes are told of them |
| `network` | Stream, Merge, Lookup (streams out); StreamToRelation (a relation); Retain (keeps the last rows) |
| `windows` | Window, WindowJoin, BSort (streams out); Latest (a relation); Slide (as bound) |
| `tracing` | ProvenanceJoin; Generate, DropProvenance, Align of instrumented networks |
"""

from whence.plan.algebra.arrival import AT, AT_COLUMN, has_at, with_arrival, with_at, without_at
from whence.plan.streams.model.network import Lookup, Merge, Retain, Stream, StreamToRelation
from whence.plan.streams.model.spans import ADDED, DEFAULT_RETENTION, FIRST, MemoryLimit, Retention, Span, Tracing
from whence.plan.streams.model.tracing import Align, DropProvenance, Generate, ProvenanceJoin, streams_read
from whence.plan.streams.model.windows import BSort, Latest, Slide, Window, WindowJoin, counterparts

__all__ = [
    "ADDED",
    "AT",
    "AT_COLUMN",
    "DEFAULT_RETENTION",
    "FIRST",
    "Align",
    "BSort",
    "DropProvenance",
    "Generate",
    "Latest",
    "Lookup",
    "MemoryLimit",
    "Merge",
    "ProvenanceJoin",
    "Retain",
    "Retention",
    "Slide",
    "Span",
    "Stream",
    "StreamToRelation",
    "Tracing",
    "Window",
    "WindowJoin",
    "counterparts",
    "has_at",
    "streams_read",
    "with_arrival",
    "with_at",
    "without_at",
]
