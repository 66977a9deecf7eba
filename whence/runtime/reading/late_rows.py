"""Rows that came too late: `db.late(view)`, `SELECT * FROM late(view)`, and what metrics say of streams.

A view's late rows are those of its own operators, back to the streams and views that it reads; what came too late for a
view that it reads is that view's. Each is as its operator got it, in the order it came.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from whence.engine.core.dataflow import Dataflow
from whence.engine.core.operator import Operator
from whence.engine.streams.late import late_stores, operators_of
from whence.engine.streams.retain import Retain
from whence.engine.streams.stream import Late
from whence.engine.streams.stream_scan import StreamScan
from whence.io.arrow import arrow_schema
from whence.io.rows import to_arrow
from whence.model.errors import CatalogError
from whence.model.types import Schema
from whence.plan.algebra.program import is_transient
from whence.plan.streams.model import without_at
from whence.runtime.reading.handles import Result
from whence.runtime.reading.missed_pairs import missed_rows

if TYPE_CHECKING:
    from whence.runtime.coordinator import Coordinator


class LateRows(Result):
    """The rows that came too late for a view (`Database.late`): `count` of them in all, of which the last are here.

    >>> db = whence.open(); _ = db.execute("CREATE STREAM s (x INT)")
    >>> _ = db.execute("CREATE VIEW sorted AS SELECT x FROM bsort(s, on => x, slack => 0)")
    >>> _ = db.insert("s", [(5,), (7,), (1,), (8,)])
    >>> late = db.late("sorted"); late.count, late.rows
    (1, [(1,)])
    """


def late(coordinator: Coordinator, name: str) -> LateRows:
    """What came too late for a view."""
    with coordinator.reading():
        return LateRows(late_rows(coordinator, name), count=late_count(coordinator, name))


def late_count(coordinator: Coordinator, name: str) -> int:
    """How many rows came too late for a view."""
    return sum(found.count for found, _ in _lates(coordinator, name))


def late_rows(coordinator: Coordinator, name: str) -> pa.Table:
    """The last of them; those of operators that have other columns have NULLs in the rest."""
    found = list(_lates(coordinator, name))
    if not found:
        return arrow_schema(coordinator.reader.schema(name)).empty_table()
    tables = [to_arrow(late.rows, np.ones(len(late.rows), np.int64), s, coordinator.dictionary) for late, s in found]
    return pa.concat_tables([t for t in tables if t.num_rows] or tables[:1], promote_options="permissive")


def _lates(coordinator: Coordinator, name: str) -> Iterator[tuple[Late, Schema]]:
    """Where a view's operators keep what came too late, and the columns that it has."""
    coordinator.reader.schema(name)
    catalog = coordinator.catalog
    if name in catalog.program.tables:
        kind = "stream" if catalog.program.tables[name].stream is not None else "table"
        raise CatalogError(f'"{name}" is a {kind}, for which no row is late: ask for a view that orders it')
    yield from catalog.backend.lates(name)


def lates_under(flow: Dataflow, name: str) -> Iterator[tuple[Late, Schema]]:
    """Where the operators of a view in a dataflow do."""
    for op in operators_of(flow.views[name], flow.views):
        yield from lates_of(op)


def lates_of(op: Operator) -> Iterator[tuple[Late, Schema]]:
    """Where an operator keeps what came too late, of each of its inputs that can be late."""
    for found, source in zip(late_stores(op), op.inputs, strict=False):
        yield found, without_at(source.schema)


def stream_figures(flow: Dataflow) -> dict[str, dict[str, int]]:
    """Of each stream of a dataflow, how many rows came, are kept and were dropped, and the bytes that takes."""
    return {
        name: {"rows": op.kept.next - 1, "kept": len(op.kept), "dropped": op.dropped_rows, "bytes": op.kept.nbytes}
        for name, op in [*flow.tables.items(), *flow.views.items()]
        if isinstance(op, (StreamScan, Retain))
    }


def metrics(coordinator: Coordinator) -> dict[str, Any]:
    """What metrics say of streams: how many rows came, how many are kept and were dropped since the database was
    opened, how many came too late for each view, and what joins in bounded memory have missed; nothing, if there are no
    streams."""
    with coordinator.looking():
        return _metrics(coordinator)


def _metrics(coordinator: Coordinator) -> dict[str, Any]:
    hidden = [name for name, view in coordinator.program.views.items() if view.hidden]
    streams = {
        name: found
        for name, found in coordinator.catalog.backend.stream_figures().items()
        if name not in hidden and not is_transient(name)
    }
    if not streams:
        return {}
    late = {name: count for name in coordinator.reader.views() if (count := late_count(coordinator, name))}
    missed = missed_rows(coordinator)
    return {"streams": streams, "late": late} | ({"missed": missed} if missed else {})
