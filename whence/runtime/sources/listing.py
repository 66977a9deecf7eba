"""SHOW SOURCES: where each source is, what it has, and what it waits for."""

from __future__ import annotations

import datetime as dt
import time
from typing import TYPE_CHECKING

import pyarrow as pa

from whence.runtime.sources.reflected import SourceRecord
from whence.subscribe.results import is_result, result_sources

if TYPE_CHECKING:
    from whence.runtime.coordinator import Coordinator
    from whence.runtime.sources.broker import Broker


def list_sources(coordinator: Coordinator) -> pa.Table:
    """Return one row per source and result: its state, the tick up to which every one is here, since when it waits for
    the next, all ranges of ticks that are here and those that are lost, the address that it comes from, and what it is
    asked for."""
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
        is_idle = feed is None or feed.is_resting
        waiting = None if is_idle or feed is None else feed.state.waiting_for
        since = None
        if waiting is not None and broker is not None:
            ago = max(broker.loop.time() - waiting[2], 0.0)
            since = dt.datetime.fromtimestamp(time.time() - ago, dt.UTC).replace(tzinfo=None)
        rows.append(
            (
                name if not is_result(table) else " and ".join(result_sources(table)),
                "result" if is_result(table) else "table" if table.stream is None else "stream",
                "not fed" if feed is None else feed.condition,
                record.reflected.horizon,
                since,
                str(record.reflected),
                str(record.lost),
                table.source.urls[0] if feed is None else feed.url,
                None if feed is None else feed.error,
                None if broker is None or feed is None else _asked(broker, name),
            )
        )
    columns = list(zip(*rows, strict=True)) or [()] * 10
    names = ("source", "kind", "state", "horizon", "waiting_since", "ranges", "lost", "url", "error", "asked")
    text, types = pa.string(), {"horizon": pa.int64(), "waiting_since": pa.timestamp("us")}
    return pa.table({n: pa.array(c, types.get(n, text)) for n, c in zip(names, columns, strict=True)})


def _asked(broker: Broker, name: str) -> str:
    """Return what a source or result is asked for, in a line."""
    return "; ".join(line.strip() for line in broker.curiosity.describe([name]))
