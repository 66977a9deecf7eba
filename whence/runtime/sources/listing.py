"""SHOW SOURCES: where each source is, what it has, and what it waits for."""

from __future__ import annotations

import datetime as dt
import time
from typing import TYPE_CHECKING

import pyarrow as pa

from whence.runtime.sources.reflected import SourceRecord

if TYPE_CHECKING:
    from whence.runtime.coordinator import Coordinator


def list_sources(coordinator: Coordinator) -> pa.Table:
    """Return one row per source: its state, the tick up to which every one is here, since when it waits for the next,
    all ranges of ticks that are here and those that are lost, and the address that it comes from."""
    rows = []
    broker = coordinator.broker
    for name, table in coordinator.program.tables.items():
        if table.source is None:
            continue
        feed = broker.feeds.get(name) if broker is not None else None
        record = feed.record if feed is not None else SourceRecord(name)
        if feed is None:
            with coordinator.looking():
                record.load(coordinator)
        waiting = feed.state.waiting_for if feed is not None else None
        since = None
        if waiting is not None and broker is not None:
            ago = max(broker.loop.time() - waiting[2], 0.0)
            since = dt.datetime.fromtimestamp(time.time() - ago, dt.UTC).replace(tzinfo=None)
        rows.append(
            (
                name,
                "table" if table.stream is None else "stream",
                "not fed" if feed is None else feed.condition,
                record.reflected.horizon,
                since,
                str(record.reflected),
                str(record.lost),
                table.source.urls[0] if feed is None else feed.url,
                None if feed is None else feed.error,
            )
        )
    columns = list(zip(*rows, strict=True)) or [()] * 9
    names = ("source", "kind", "state", "horizon", "waiting_since", "ranges", "lost", "url", "error")
    text, types = pa.string(), {"horizon": pa.int64(), "waiting_since": pa.timestamp("us")}
    return pa.table({n: pa.array(c, types.get(n, text)) for n, c in zip(names, columns, strict=True)})
