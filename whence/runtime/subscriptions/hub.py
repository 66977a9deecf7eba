"""The hub: everything that is subscribed to in one database.

It opens channels (a query that is not a whole relation gets a transient view), shares them between equal subscriptions,
lets go of them a while after the last, and says up to which epoch subscribers may be told: what is on stable storage.

The law: a subscriber that has the rows of a channel at epoch `since` and is given `difference(since, upto)` has the
rows at `upto`, for every `upto <= told`. Nothing after `told` is given out, so no crash can take back what was told.

Cost: an epoch costs each followed relation that changed one entry in its ring, however many subscribers there are.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import msgspec
from sqlglot import exp

from whence.model.errors import DataError, WhenceError
from whence.plan.algebra.constructors import names_read
from whence.plan.algebra.program import subscription_of
from whence.runtime.subscriptions.channels import Channel, FollowedRelation, KnownRelation, Snapshot
from whence.runtime.subscriptions.closings import Closings
from whence.runtime.subscriptions.horizons import ClosedKeyLog, RelationHorizons
from whence.runtime.subscriptions.queries import channel_key, followed_name, text_of_query
from whence.runtime.transient_views import needs_extras
from whence.subscribe.positions import Position
from whence.subscribe.recent import RING_BYTES
from whence.subscribe.relation_facts import RelationFacts
from whence.subscribe.wire_knowledge import outline

if TYPE_CHECKING:
    from whence.runtime.coordinator import Coordinator

log = logging.getLogger("whence")
Listener = Callable[[Sequence[Channel]], None]


class SubscriptionHub:
    """The subscriptions of one coordinator. Any thread may call it."""

    def __init__(self, coordinator: Coordinator) -> None:
        self._coordinator = coordinator
        self.linger = 0.0  # seconds that a channel stays after its last subscriber
        self.ring_bytes = RING_BYTES
        self._guard = threading.RLock()  # taken after the coordinator's locks, never before
        self._opening = threading.Lock()  # held while channels are opened and let go of
        self._relations: dict[str, FollowedRelation] = {}
        self._transient: dict[str, str] = {}  # the view of a query, by the query's identity
        self._channels: dict[tuple[str, ...], Channel] = {}
        self._channels_of: dict[FollowedRelation, dict[Channel, None]] = {}  # in the order of opening
        self._news: dict[FollowedRelation, tuple[int, int]] = {}
        """What changed and listeners were not told of: the first and the last epoch of it."""

        self._closing: dict[FollowedRelation, None] = {}  # whose rows a horizon can make final
        self._listeners: list[Listener] = []
        self._told = 0
        self._closed_keys: dict[str, ClosedKeyLog] = {}  # by stream
        coordinator.on_durable(self._stable, self._stable)

    # -- what may be told --------------------------------------------------------------------------------------------

    @property
    def told(self) -> int:
        """The last epoch that may be told of: it is stable, and no source has been asked for rows that it needs."""
        durable, broker = self._coordinator.durable_epoch, self._coordinator.broker
        if broker is None or durable < self._told:
            self._told = durable
        else:
            held = broker.curiosity.held
            upto = durable if held is None else min(durable, held - 1)
            self._told = max(self._told, broker.curiosity.last_whole(upto))
        return self._told

    def lacks_rows(self, epoch: int) -> bool:
        """Return whether a state as of an epoch must not be shown: rows of a source were, or are, on their way."""
        broker = self._coordinator.broker
        return broker is not None and broker.curiosity.lacks_rows(epoch)

    def catch_up(self) -> int:
        """Make everything that is committed stable, whatever the durability; return the last epoch."""
        coordinator = self._coordinator
        coordinator.before_reading()
        if coordinator.durable_epoch < coordinator.epoch:
            coordinator.sync()
        return self.told

    def position(self, epoch: int) -> Position:
        """Return the position of an epoch."""
        return self._coordinator.lineage.at(epoch)

    def since(self, position: Position | str) -> int | None:
        """Return the epoch of a position, or None if it is not part of this history: then the state must be told."""
        found = Position.parse(position) if not isinstance(position, Position) else position
        return found.epoch if self._coordinator.lineage.knows(found, self.told) else None

    def epoch_to_wait_for(self, position: Position | str) -> int:
        """Return the epoch of a position that is to be reached; DataError if it is of another history."""
        found = Position.parse(position) if not isinstance(position, Position) else position
        lineage = self._coordinator.lineage
        if lineage.knows(found, self.told) or (found.history, found.era) == (lineage.history, lineage.era.id):
            return found.epoch
        raise DataError(f"{found} is a position of another history than this database has: it was replaced")

    # -- channels ----------------------------------------------------------------------------------------------------

    def open(
        self, queries: Sequence[exp.Expr], extras: bool = True, ordered: bool = False, conditional: bool = False
    ) -> Channel:
        """Return the channel of some queries, opened if it is new; `release` it in the end. With `extras` its rows have
        the columns that their bounds need; with `ordered` they come in the order of the publishers' ticks. A
        `conditional` subscriber is told when a condition turns true, so held views stay held.

        It may make views, and waits for epochs to end: not for an event loop."""
        if not queries:
            raise DataError("a subscription has at least one query")
        key = channel_key(queries, extras, ordered)
        with self._opening:
            channel = self._channels.get(key)
            is_new = channel is None or channel.ended is not None
            if channel is None or is_new:
                channel = self._make(key, queries, extras, ordered)
            channel.users += 1
            channel.conditional += conditional
        broker = self._coordinator.broker
        if is_new and broker is not None:  # sources may have to be asked for more
            broker.curiosity.reconcile(wait=True)
        return channel

    def open_again(self, channel: Channel, conditional: bool = False) -> Channel:
        """Open the queries of a channel that has ended again, and release that one."""
        try:
            return self.open(channel.queries, channel.extras, channel.ordered, conditional)
        finally:
            self.release(channel, conditional)

    def release(self, channel: Channel, conditional: bool = False) -> None:
        """Note that one subscriber of a channel is gone."""
        with self._opening:
            channel.users -= 1
            channel.conditional -= conditional
            channel.idle_since = time.monotonic()
        self.sweep()

    def sweep(self, linger: float | None = None) -> None:
        """Let go of channels that have had no subscriber for a while, and of the views behind them."""
        now, linger = time.monotonic(), self.linger if linger is None else linger
        with self._opening:
            for channel in list(self._channels.values()):
                if channel.users <= 0 and (channel.ended is not None or now - channel.idle_since >= linger):
                    self._close(channel)

    def close(self) -> None:
        """Let go of everything."""
        self._coordinator.off_durable(self._stable)
        with self._opening:
            for channel in list(self._channels.values()):
                self._close(channel)

    @property
    def channels(self) -> list[Channel]:
        """Everything that is subscribed to."""
        return list(self._channels.values())

    @property
    def counts(self) -> dict[str, int]:
        """How much there is, for metrics."""
        return {
            "channels": len(self._channels),
            "definitions": len(self._transient),
            "ring_bytes": sum(relation.recent.bytes for relation in list(self._relations.values())),
        }

    def _make(self, key: tuple[str, ...], queries: Sequence[exp.Expr], extras: bool, ordered: bool) -> Channel:
        parts = list[FollowedRelation]()
        try:
            for query in queries:
                parts.append(self._follow(query, extras, ordered))
        except BaseException:
            for part in parts:
                self._unfollow(part)
            raise
        channel = Channel(key, queries, parts, extras, ordered)
        former = self._channels.get(key)
        if former is not None:
            self._close(former)
        with self._guard:
            self._channels[key] = channel
            for part in parts:
                self._channels_of.setdefault(part, {})[channel] = None
        log.info("subscription to %s opened", "; ".join(key)[:300])
        return channel

    def _follow(self, query: exp.Expr, extras: bool, ordered: bool) -> FollowedRelation:
        """Return what follows the rows of a query."""
        name = followed_name(query)
        if name is None or ordered or (extras and self._needs_columns(name)):
            [known] = channel_key([query], extras, ordered)
            name = self._transient.get(known)
            if name is not None and self._relations[name].ended is not None:
                self._forget(self._relations[name])
                name = None
            if name is None:
                sql = text_of_query(query)
                name = self._coordinator.definitions.create_transient(sql, extras=extras, ordered=ordered)
                try:
                    relation = self._attach(name)
                except BaseException:
                    self._drop(name)
                    raise
                self._transient[known] = name
                return relation
        return self._attach(name)

    def _attach(self, name: str) -> FollowedRelation:
        coordinator = self._coordinator
        coordinator.before_reading()
        with coordinator.looking():
            coordinator.held.refresh(name)
            relation = self._relations.get(name)
            if relation is None or relation.ended is not None:
                known = self._known(name)
                relation = FollowedRelation(coordinator, name, self.ring_bytes, self._changed, known)
                self._relations[name] = relation
            relation.users += 1
        if relation.closings is not None:
            relation.closings.fill(relation.recent)
            with self._guard:
                is_new = relation not in self._closing
                self._closing[relation] = None
            if is_new:
                coordinator.silence.want(name)  # rows may become final with nothing but time
        return relation

    def _needs_columns(self, name: str) -> bool:
        """Return whether bounds of a relation's rows need columns that it does not show."""
        catalog = self._coordinator.catalog
        return name in catalog.program.views and needs_extras(catalog.knowledge(name))

    def _known(self, name: str) -> KnownRelation:
        """Return what the rows of a relation can still become."""
        coordinator = self._coordinator
        schema = coordinator.reader.schema(name)
        transient = coordinator.catalog.transient.get(name)
        knowledge = coordinator.catalog.knowledge(name) if transient is None else transient.knowledge
        if knowledge.is_plain:
            knowledge = outline(knowledge)
        elif len(schema.columns) == len(knowledge.columns):  # it does without the columns that bounds need
            knowledge = msgspec.structs.replace(knowledge, extras=())
        facts = RelationFacts(knowledge)
        horizons = RelationHorizons(coordinator, knowledge, self._closed_keys)
        closings = Closings(coordinator, name, schema, facts, horizons) if facts.events else None
        apart = subscription_of(name)
        reads = frozenset([name]) if apart is None else frozenset(names_read(coordinator.program.views[apart[0]].query))
        return KnownRelation(facts, horizons, closings, reads if transient is None else transient.named)

    def _unfollow(self, relation: FollowedRelation) -> None:
        relation.users -= 1
        if relation.users <= 0:
            self._forget(relation)

    def _forget(self, relation: FollowedRelation) -> None:
        """Stop following a relation; drop it if it is a transient view."""
        with self._guard:
            if self._relations.get(relation.name) is relation:
                del self._relations[relation.name]
            self._channels_of.pop(relation, None)
            wanted = relation in self._closing
            self._closing.pop(relation, None)
            self._news.pop(relation, None)
        if wanted:
            self._coordinator.silence.release(relation.name)
        known = next((known for known, name in self._transient.items() if name == relation.name), None)
        if known is not None:
            del self._transient[known]
            if relation.ended is None:
                self._drop(relation.name)
        self._coordinator.feeds.remove(relation)

    def _drop(self, name: str) -> None:
        try:
            self._coordinator.definitions.drop_transient(name)
        except WhenceError as error:  # closed, or gone already
            log.debug("the view of a subscription was not dropped: %s", error)

    def _close(self, channel: Channel) -> None:
        with self._guard:
            if self._channels.get(channel.key) is channel:
                del self._channels[channel.key]
            for part in channel.parts:
                self._channels_of.get(part, {}).pop(channel, None)
        for part in channel.parts:
            self._unfollow(part)
        broker = self._coordinator.broker
        if broker is not None:
            broker.curiosity.replan_soon()
        log.info("subscription to %s closed", "; ".join(channel.key)[:300])

    # -- reading -----------------------------------------------------------------------------------------------------

    def follows(self, name: str) -> bool:
        """Return whether somebody follows all rows of a relation."""
        relation = self._relations.get(name)
        return relation is not None and relation.ended is None and relation.users > 0

    def followed_eagerly(self) -> set[str]:
        """Return the relations of which somebody is told with every epoch, not only when a condition turns true."""
        return {
            part.name
            for channel in list(self._channels.values())
            if channel.users > channel.conditional
            for part in channel.parts
        }

    def snapshot(self, channel: Channel, since: int = 0) -> Snapshot:
        """Return the state of a channel at a stable epoch, none before `since`; see `Channel.snapshot`."""
        found = channel.snapshot(self._coordinator, lambda epoch: epoch < since or self.lacks_rows(epoch))
        channel.advance(found.epoch)
        return found

    # -- news --------------------------------------------------------------------------------------------------------

    def listen(self, listener: Listener) -> None:
        """Call a function, in whatever thread, whenever there is more to tell: with the channels that changed or
        ended, often none. It must be quick and not raise."""
        with self._guard:
            self._listeners.append(listener)

    def unlisten(self, listener: Listener) -> None:
        """Call a function no more."""
        with self._guard:
            if listener in self._listeners:
                self._listeners.remove(listener)

    def _changed(self, relation: FollowedRelation, epoch: int) -> None:
        with self._guard:
            first, _ = self._news.get(relation, (epoch, epoch))
            self._news[relation] = min(first, epoch), epoch  # epochs may begin again from an earlier one
        if relation.ended is not None:
            self._stable(self.told)

    def refresh(self) -> None:
        """Tell listeners what may be told by now."""
        self._stable(self.told)

    def _stable(self, epoch: int) -> None:
        """Tell listeners what changed up to an epoch that is stable now."""
        epoch = min(epoch, self.told)
        with self._guard:
            if not self._listeners:
                self._news.clear()
                return
            ready = [each for each, (first, _) in self._news.items() if first <= epoch or each.ended is not None]
            ready += [each for each in self._closing if each.closings is not None and each.closings.is_due(epoch)]
            self._news = {
                each: (max(first, epoch + 1), last) for each, (first, last) in self._news.items() if last > epoch
            }
            changed = list(dict.fromkeys(channel for one in ready for channel in self._channels_of.get(one, ())))
            listeners = list(self._listeners)
        for listener in listeners:
            listener(changed)
