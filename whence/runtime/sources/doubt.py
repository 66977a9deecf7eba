"""Doubt: what the rows of a subscription reflect of each source, and which of them it waits for.

`reflects` says, per source and history, which ticks the rows are of (`quote@0123456789ab`: `0-17,19-30`). A client that
moves to another broker gives it, and is told nothing before that broker reflects as much, so it never goes back.
`waiting_for` says which publishers have not been heard of for a while: without it, a dead one looks like a calm one.
"""

from __future__ import annotations

import datetime as dt
import time
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from whence.plan.algebra import logical
from whence.plan.order_sensitive import ordered_views
from whence.runtime.subscriptions.channels import Channel
from whence.subscribe.ranges import RangeSet, reflects_as_much
from whence.subscribe.results import is_result, result_sources
from whence.subscribe.waiting import WaitingFor

if TYPE_CHECKING:
    from whence.runtime.coordinator import Coordinator

PATIENCE = 1.0
"""Seconds for which a source may be behind before that is worth telling."""


class SourceDoubt:
    """What the relations of a channel reflect."""

    def __init__(self, coordinator: Coordinator, channel: Channel) -> None:
        """Called while the state is looked at."""
        self._coordinator = coordinator
        found = _beneath(coordinator, [part.name for part in channel.parts])
        program = coordinator.program.copy()
        for transient in coordinator.catalog.transient.values():
            program.views |= transient.bound
        tables = coordinator.program.tables
        self.sources = sorted(name for name in found if name in tables and tables[name].source is not None)
        self._read_as = results_read(coordinator, found)
        self._in_order = bool(found & ordered_views(program)) if self.sources else False

    @property
    def reads(self) -> set[str]:
        """The sources, and the results that are read in place of them."""
        return {self._read_as.get(name, name) for name in self.sources}

    def reflects(self, epoch: int) -> dict[str, str] | None:
        """Return the ticks of each source that the rows of an epoch are of."""
        broker = self._coordinator.broker
        found = dict[str, str]()
        for name in self.sources if broker is not None else ():
            record = broker.records.get(self._read_as.get(name, name))  # type: ignore[union-attr]  # there is one
            if record is None or record.lineage is None:
                continue
            ranges = record.as_of(epoch).reflected
            if self._in_order and (released := record.released_as_of(epoch)) is not None:
                ranges = ranges.upto(released)
            found[f"{name}@{record.lineage.history}"] = str(ranges)
        return found or None

    def waiting_for(self, epoch: int) -> list[WaitingFor]:
        """Return the sources that have been behind for a while, or of which rows were missing in an epoch: what was
        let go when patience ended says so also when it is told after they have come. Among them are those that the
        servers of sources wait for."""
        broker, found = self._coordinator.broker, list[WaitingFor]()
        for name in self.sources if broker is not None else ():
            feed = broker.feeds.get(self._read_as.get(name, name))  # type: ignore[union-attr]  # there is one
            waiting = None if feed is None else feed.state.waiting_for
            if feed is None or broker is None:
                continue
            ago = 0.0 if waiting is None else broker.loop.time() - (waiting[2] or feed.began)
            lacked = broker.curiosity.lacked_for(name, epoch)
            ago = max(ago, broker.curiosity.behind_for(name), lacked or 0.0)
            if ago >= PATIENCE or lacked is not None:
                since = dt.datetime.fromtimestamp(time.time() - ago, dt.UTC).replace(tzinfo=None, microsecond=0)
                found.append(WaitingFor(name, feed.url, since))
            record = broker.records.get(feed.table.name)
            if record is not None:
                theirs = feed.waits_for(record.as_of(epoch).reflected.last)
                found += [each for each in theirs if each.source not in {one.source for one in found}]
        return found

    def has_seen(self, seen: Mapping[str, str], epoch: int) -> bool:
        """Return whether the rows of an epoch reflect all that was seen elsewhere."""
        mine = {key: RangeSet.parse(text) for key, text in (self.reflects(epoch) or {}).items()}
        return reflects_as_much(mine, {key: RangeSet.parse(text) for key, text in seen.items()})


def doubt_of(coordinator: Coordinator, channel: Channel) -> SourceDoubt | None:
    """Return what the relations of a channel reflect; None if none of them comes from another database."""
    if coordinator.broker is None:
        return None
    found: SourceDoubt | None = getattr(channel, "doubt", None)
    if found is None:
        with coordinator.looking():
            found = channel.doubt = SourceDoubt(coordinator, channel)
    return found if found.sources else None


def records_read(coordinator: Coordinator, name: str) -> dict[str, str]:
    """Return what holds the ticks of each source beneath a relation: the source, or a result in place of its rows."""
    found, tables = _beneath(coordinator, [name]), coordinator.program.tables
    sources = {each: each for each in found if each in tables and tables[each].source is not None}
    return sources | results_read(coordinator, found)


def results_read(coordinator: Coordinator, names: Iterable[str]) -> dict[str, str]:
    """Return the results that relations read in place of rows, by their sources."""
    catalog, tables, found = coordinator.catalog, coordinator.program.tables, dict[str, str]()
    for name in names:
        transient = catalog.transient.get(name)
        views = [] if name not in catalog.planned.views else [catalog.planned.views[name]]
        for view in views if transient is None else transient.planned.values():
            for read in {name for node in logical.walk(view.query) for name in node.names}:
                if is_result(tables.get(read)):
                    found |= dict.fromkeys(result_sources(tables[read]), read)
    return found


def _beneath(coordinator: Coordinator, names: Iterable[str]) -> set[str]:
    """Return relations and all that they read, directly or not."""
    seen, waiting = set[str](), list(names)
    while waiting:
        one = waiting.pop()
        if one in seen:
            continue
        seen.add(one)
        transient = coordinator.catalog.transient.get(one)
        view: Any = coordinator.program.views.get(one) if transient is None else transient.view
        if view is not None:
            waiting += [other for node in logical.walk(view.query) for other in node.names]
            if transient is not None:
                waiting += list(transient.named)
    return seen
