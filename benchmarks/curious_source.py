"""A broker and its publisher in one process: real databases, the publisher's session, and the broker's curiosity.

Messages travel when the caller says so: `deliver` brings what the publisher has to tell, `send` the broker's
amendments. `VirtualLink` lets them take their time, on a clock of its own, and counts how long rows were waited for.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

import whence
from whence.engine.core.operator import Batch
from whence.io.rows import encode, to_tuples
from whence.model.codes import Codes, decode_value
from whence.model.types import Schema
from whence.runtime.sources.curiosity import as_message
from whence.runtime.sources.source_curiosity import SourceCuriosity
from whence.runtime.subscriptions.channels import signs_of
from whence.runtime.subscriptions.queries import parse_subscription
from whence.subscribe.amendments import ALL_ROWS, NO_ROWS, Amendment
from whence.subscribe.messages import PartChange, UpdateMessage, encode_message
from whence.subscribe.plain import to_plain
from whence.subscribe.publishing import (
    DeliveryBound,
    DeliveryFilter,
    FilterAmended,
    FilterChange,
    Publication,
    PublishingSession,
    RangeChange,
    RangeLost,
    RangeState,
    Told,
)
from whence.subscribe.pushdown import curiosity
from whence.subscribe.ranges import RangeSet
from whence.subscribe.source_needs import SourceNeeds


class CuriousSource:
    """One source of a broker, which is asked for what the broker's views need."""

    def __init__(
        self,
        publisher: whence.Database,
        broker: whence.Database,
        name: str,
        margin: int = 2,
        delay: float = 0.0,
        curious: bool = True,
        sources: tuple[str, ...] = (),
    ) -> None:
        self.publisher, self.broker, self.name = publisher, broker, name
        self.messages = self.rows = self.requests = self.bytes = 0
        self.now = 0.0
        self.reflected = 0
        here = broker._now
        program = here.catalog.planned.copy()
        program.tables = dict(here.program.tables)
        table = program.tables[name]
        self.needs = SourceNeeds(table, tuple(range(len(table.schema))))
        if curious:
            self.needs = curiosity(program, [name, *sources])[name]
        self.local = SourceCuriosity(
            here, self.needs, margin, delay, reflected=lambda: self.reflected, clock=lambda: self.now
        )
        self.local.open()
        self._channel = publisher._now.hub.open([parse_subscription(self.needs.select(name))])
        part = self._channel.parts[0]
        self.schema: Schema = part.schema
        places = {column: at for at, column in enumerate(self.needs.columns)}
        key = tuple(places[c] for c in table.key)
        keys = self.local.keeper.keys
        best = self.needs.best
        keyed = () if self.needs.key is None else tuple(places[c] for c in self.needs.key.columns)
        filter = DeliveryFilter(
            keyed,
            None if self.needs.key is None else self._keys(keys, keyed),
            DeliveryBound(places[best[0].column], None, not best[0].descending) if best else None,
            watched=tuple(places[c] for c in self.needs.watched),
            key=key,
        )
        self._places, self._bound = places, filter.bound
        self.publication = Publication(part.recent, self._state, key, append_only=table.stream is not None)
        have = None if table.stream is None else RangeSet([(0, publisher.epoch)] if publisher.epoch else [])
        self.session = PublishingSession(self.publication, filter, have)
        self.reflected = publisher.epoch if have is not None else 0
        self._number = 0

    def _state(self) -> tuple[int, Batch]:
        coordinator = self.publisher._now
        with coordinator.reading():
            rows, counts = coordinator.reader.contents(self._channel.parts[0].name)
            return coordinator.epoch, Batch(rows, counts)

    def _keys(self, keys: Any, columns: tuple[int, ...]) -> frozenset[tuple[int, ...]]:
        if not keys:
            return frozenset()
        schema = Schema(tuple(self.schema.columns[c] for c in columns))
        codes = encode(sorted(keys, key=repr), schema, self.publisher._now.dictionary, "filter")
        return frozenset(map(tuple, codes.tolist()))

    # -- from the broker ---------------------------------------------------------------------------------------------

    def send(self) -> bool:
        """Send the amendment that is due, if there is one."""
        amendment = self.ask()
        if amendment is not None:
            self.answer(amendment)
        return amendment is not None

    def ask(self) -> Amendment | None:
        """Return the amendment that is due, if there is one."""
        amendment = self.local.next()
        if amendment is not None:
            self.requests += 1
            self.bytes += len(encode_message(as_message(amendment, self.needs), "msgpack"))
        return amendment

    def answer(self, amendment: Amendment) -> None:
        """Let the publisher take in an amendment."""
        self._number += 1
        is_known = self.session.amend(self._number, self._number - 1, self._change(amendment))
        assert is_known

    def _change(self, amendment: Amendment) -> FilterChange:
        filter = self.session.filter
        bound: Any = ...
        if amendment.bound is not None:
            assert self._bound is not None
            schema = Schema((self.schema.columns[self._bound.column],))
            [[code]] = encode([(amendment.bound,)], schema, self.publisher._now.dictionary, "filter").tolist()
            bound = DeliveryBound(self._bound.column, code, self._bound.at_most)
        return FilterChange(
            self._keys(amendment.add, filter.columns),
            self._keys(amendment.drop, filter.columns),
            bound,
            self._keys(amendment.quench, filter.key),
            self._keys(amendment.lift, filter.key),
            amendment.since,
            amendment.as_of,
            amendment.more,
        )

    # -- from the publisher ------------------------------------------------------------------------------------------

    def deliver(self) -> None:
        """Apply all that the publisher has to tell."""
        for told in self.tell():
            self.take(told)

    def tell(self) -> list[Told]:
        """Return what the publisher has to tell."""
        found = self.session.next(self.publisher.epoch)
        for told in found:
            rows = None if isinstance(told, RangeLost) else told.rows
            if rows is not None:
                self.messages += 1
                self.bytes += self._size(rows)
        return found

    def _size(self, rows: Batch) -> int:
        words, parts = self.publisher._now.dictionary, signs_of(rows)
        went, came = (to_plain(part, self.schema, words) if len(part) else None for part in parts)
        at = str(self.publisher.position)
        return len(encode_message(UpdateMessage(1, at, at, 0, [PartChange(went, came)]), "msgpack"))

    def take(self, told: Told) -> None:
        """Apply what the publisher has told."""
        match told:
            case RangeChange(_, upto, rows):
                if rows is not None:
                    self._apply(rows)
                self.reflected = upto
            case RangeState(at, rows, number):
                self._replace(rows)
                self.reflected = at
                if number and number == self._number:  # an amendment is in the state already
                    self._amended(at, told.bound)
            case FilterAmended(_, at, rows, bound):
                if rows is not None:
                    self._apply(rows)
                self._amended(at, bound)

    def _amended(self, at: int, bound: DeliveryBound | None) -> None:
        value: Any = ALL_ROWS
        if bound is not None:
            type, words = self.schema.types[bound.column], self.publisher._now.dictionary
            value = NO_ROWS if bound.code is None else decode_value(bound.code, type, words)
        self.local.amended(value, at)

    def _values(self, codes: Codes) -> list[tuple[Any, ...]]:
        width = len(self.needs.table.schema)
        found = []
        for row in to_tuples(codes, self.schema, self.publisher._now.dictionary):
            whole: list[Any] = [None] * width
            for column, at in self._places.items():
                whole[column] = row[at]
            found.append(tuple(whole))
        return found

    def _apply(self, batch: Batch) -> None:
        went, came = map(self._values, signs_of(batch))
        self.rows += len(went) + len(came)
        here = self.broker._now
        with here.transaction() as writes:
            table = here.program.tables[self.name]
            pending = writes.table(self.name)
            if table.stream is not None:
                pending.insert(encode(came, table.schema, here.dictionary, self.name))
            else:
                codes = encode([*went, *came], table.schema, here.dictionary, self.name)
                pending.take(codes, np.array([-1] * len(went) + [1] * len(came), np.int64))

    def _replace(self, batch: Batch) -> None:
        _, came = map(self._values, signs_of(batch))
        with self.broker.transaction():
            self.broker.execute(f"DELETE FROM {self.name}")
            if came:
                self.broker.insert(self.name, came)

    def settle(self) -> int:
        """Let messages and amendments travel until there are none; return how many amendments were sent."""
        before = self.requests
        self.deliver()
        while self.send():
            self.deliver()
        return self.requests - before

    @property
    def is_exposed(self) -> bool:
        """Whether what the broker has may be told."""
        return self.local.behind_since is None


def databases(schema: str, views: str = "", local: str = "") -> tuple[whence.Database, whence.Database]:
    """Return a publisher and a broker: both with the same relations, the broker with views and relations of its own."""
    publisher, broker = whence.open(), whence.open()
    publisher.execute(schema)
    broker.execute(schema)
    if local:
        broker.execute(local)
    if views:
        broker.execute(views)
    return publisher, broker


class VirtualLink:
    """Lets messages of a source take `delay` seconds each way, on a virtual clock."""

    def __init__(self, source: CuriousSource, delay: float) -> None:
        self.source, self._delay = source, delay
        self._heap: list[tuple[float, int, Callable[[], object]]] = []
        self._count = itertools.count()
        self._behind_from: float | None = None
        self.waits: list[float] = []  # seconds for which something was held back, each time

    def at(self, when: float, what: Callable[[], object]) -> None:
        """Have something happen at a time."""
        heapq.heappush(self._heap, (when, next(self._count), what))

    def run(self) -> None:
        """Let everything happen that is to happen."""
        source = self.source
        while self._heap:
            now, _, what = heapq.heappop(self._heap)
            source.now = now
            what()
            self._pump()
            due = source.local.next_timer
            if due is not None and not self._heap:
                self.at(max(due, now), lambda: None)

    def publish(self) -> None:
        """Tell what the publisher has to tell."""
        for told in self.source.tell():
            self.at(self.source.now + self._delay, partial(self.source.take, told))

    def _pump(self) -> None:
        source, now = self.source, self.source.now
        amendment = source.ask()
        if amendment is not None:
            self.at(now + self._delay, partial(self._answer, amendment))
        if not source.is_exposed and self._behind_from is None:
            self._behind_from = now
        elif source.is_exposed and self._behind_from is not None:
            self.waits.append(now - self._behind_from)
            self._behind_from = None

    def _answer(self, amendment: Amendment) -> None:
        self.source.answer(amendment)
        self.publish()
