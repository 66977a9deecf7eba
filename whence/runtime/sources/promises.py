"""Promises of publishers as writes of a broker: that an ordered column has reached a value, and that keys are closed.

A promise that comes with rows is written in their epoch, so that whoever is shown the rows has bounds as tight as the
publisher's. One that comes alone makes an epoch of its own, not more often than it is worth.

The law: a promise is in the log behind all rows that the publisher had told before it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from whence.engine.streams.promise import Promise
from whence.io.rows import encode
from whence.model.codes import NULL, encode_value
from whence.plan.algebra.program import closed_name
from whence.runtime.sources.definition import CLOSED
from whence.runtime.writing.tables import WriteSet
from whence.runtime.writing.transaction import Transaction
from whence.subscribe.messages import PlainColumns
from whence.subscribe.plain import column_from_plain, from_plain

if TYPE_CHECKING:
    from whence.runtime.coordinator import Coordinator
    from whence.runtime.sources.source_feed import SourceFeed


def close_keys(coordinator: Coordinator, writes: Transaction, name: str, keys: PlainColumns) -> None:
    """Note that no more rows of a stream with some keys come."""
    table = coordinator.program.tables.get(name)
    if table is None or table.promises.closes is None:
        return
    schema, pending = table.closed_keys.schema, writes.table(closed_name(name))
    assert isinstance(pending, WriteSet)
    codes = encode(from_plain(keys, schema.types), schema, coordinator.dictionary, name)
    new = codes[pending.counts(codes) == 0]
    if len(new):
        pending.insert(np.unique(new, axis=0))


def advance(coordinator: Coordinator, writes: Transaction, name: str, column: int, value: Any) -> bool:
    """Promise that nothing below a value of a column comes any more, nor at it if the column is ordered strictly;
    return False if the epoch has another promise already."""
    found = coordinator.program.tables.get(name)
    if found is None:
        return True
    bound, ordered = encode_value(value, found.schema.types[column], coordinator.dictionary), found.promises.ordered
    if bound == NULL:
        return True
    if writes.source_positions:
        return False
    if ordered is not None and ordered.column == column:
        bound = ordered.after(bound)
    at = coordinator.catalog.flow.last_at + writes.appended + 1
    writes.source_positions = Promise({name: column}, bound, at).marks()
    return True


def promise_along(feed: SourceFeed, writes: Transaction, name: str, value: Any) -> tuple[str, Any] | None:
    """Write a promise of a publisher in the epoch of its rows; return the column and its value that are promised by
    that, for `Broker.note_promise`, or None if it must wait for an epoch of its own."""
    broker, table = feed.broker, feed.table
    coordinator = broker.coordinator
    if feed.is_result or broker.ordered.takes(feed):
        return None
    if name.startswith(CLOSED):
        close_keys(coordinator, writes, table.name, value)
        return name, None
    if table.stream is None or name not in table.schema.names:
        return name, None
    place = table.schema.names.index(name)
    [bound] = column_from_plain([value], table.schema.types[place])
    if coordinator.catalog.flow.reaches_operators(Promise({table.name: place}, 0, 0)):
        return None  # all of them would be looked at
    return (name, bound) if advance(coordinator, writes, table.name, place, bound) else None
