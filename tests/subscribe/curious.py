"""A broker and its publisher in one process: real databases, the publisher's session, and the broker's curiosity.

Messages travel when a test says so: `deliver` brings what the publisher has to tell, `send` the broker's amendments.
"""

from __future__ import annotations

from typing import Any

import numpy as np

import whence
from whence.engine.core.operator import Batch
from whence.io.rows import encode, to_tuples
from whence.model.codes import Codes, decode_value
from whence.model.types import Schema
from whence.runtime.sources.source_curiosity import SourceCuriosity
from whence.runtime.subscriptions.channels import signs_of
from whence.runtime.subscriptions.queries import parse_subscription
from whence.subscribe.amendments import ALL_ROWS, NO_ROWS, Amendment
from whence.subscribe.publishing import (
    DeliveryBound,
    DeliveryFilter,
    FilterAmended,
    FilterChange,
    Publication,
    PublishingSession,
    RangeChange,
    RangeState,
)
from whence.subscribe.pushdown import SourceNeeds, curiosity
from whence.subscribe.ranges import RangeSet


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
        self.messages = self.rows = self.requests = 0
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
        filter = DeliveryFilter(
            () if self.needs.key is None else (places[self.needs.key.column],),
            None if self.needs.key is None else self._keys(keys, (places[self.needs.key.column],)),
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
        amendment = self.local.next()
        if amendment is None:
            return False
        self.requests += 1
        self._number += 1
        assert self.session.amend(self._number, self._number - 1, self._change(amendment))
        return True

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
        for told in self.session.next(self.publisher.epoch):
            match told:
                case RangeChange(_, upto, rows):
                    if rows is not None:
                        self.messages += 1
                        self._apply(rows, upto)
                    self.reflected = upto
                case RangeState(at, rows, number):
                    self._replace(rows)
                    self.reflected = at
                    if number == self._number:  # an amendment is in the state already
                        self._amended(at, told.bound)
                case FilterAmended(_, at, rows, bound):
                    if rows is not None:
                        self._apply(rows, at)
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

    def _apply(self, batch: Batch, at: int) -> None:
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
