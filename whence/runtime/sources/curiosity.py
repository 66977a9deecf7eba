"""Curiosity: each source is asked only for what the views above can use, and that is kept current.

`subscribe/pushdown.py` says what is needed of each source, over all views, views of subscriptions among them. When that
changes, sources are asked anew (`reconcile`); while it stays, a thread sends amendments as the relations that decide
change (`source_curiosity.py`).

The law: what subscribers are told is as if everything were forwarded. From the epoch in which rows of a source come to
be missing, or old, nothing is told (`held`), until they are here; but for no longer than `PATIENCE` seconds, so that a
publisher that is gone does not stop what comes from others. After that the source is what updates wait for.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from sqlglot import exp

from whence.model.errors import DataError, WhenceError
from whence.plan.algebra.program import Program
from whence.plan.order_sensitive import without_twins
from whence.runtime.sources.asking import UpstreamQuery
from whence.runtime.sources.source_curiosity import LackedRows, SourceCuriosity
from whence.sql.bind import bind_query_views
from whence.sql.options import duration
from whence.subscribe import messages as ms
from whence.subscribe.amendments import ALL_ROWS, NO_ROWS, Amendment, Key, Unbounded
from whence.subscribe.plain import column_from_plain, plain_columns, plain_value
from whence.subscribe.pushdown import curiosity
from whence.subscribe.results import is_result
from whence.subscribe.source_needs import SourceNeeds

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from whence.runtime.sources.broker import Broker
    from whence.runtime.sources.source_feed import SourceFeed

log = logging.getLogger("whence")
PATIENCE = 2.0
"""Seconds for which subscribers are told nothing while rows of a source are asked for."""

MARGIN, QUENCH_AFTER = 2, 1.0
"""Rows that are kept beyond the best ones that are seen; seconds after which what is of no use is not asked for."""

_NARROW_AFTER = 1.0  # seconds after a subscription has ended
_MOST_LACKED = 100
_LONGEST = 30.0  # seconds for which the rows of a stream are waited for to be forgotten


class _Refilling(NamedTuple):
    """A source that begins anew: since which epoch and time, and how many ticks there were."""

    since: int
    began: float
    ticks: int


class Curiosity:
    """What the sources of one broker are asked for. Any thread may call it."""

    def __init__(self, broker: Broker) -> None:
        self._broker, self._coordinator = broker, broker.coordinator
        self._now = broker.host.now
        self._sources: dict[str, SourceCuriosity] = {}
        self._needs: dict[str, SourceNeeds] = {}
        self._refused: set[str] = set()  # sources whose servers do not take queries
        self._planning = threading.RLock()
        self._closing = False
        self._replan_at: float | None = None
        self._told_held: int | None = None
        self._refilled: dict[str, _Refilling] = {}
        self._lacked: deque[LackedRows] = deque(maxlen=_MOST_LACKED)  # the last ones

        self._worker = broker.host.worker("curiosity", self._step)

    def close(self) -> None:
        """Ask for nothing more."""
        self._closing = True
        self._worker.close(wait=False)

    # -- what is needed ----------------------------------------------------------------------------------------------

    def reconcile(self, wait: bool = False) -> None:
        """Ask sources for what the views that are there need; with `wait`, return when rows that were missing are in,
        or after a while. Not called with a lock held."""
        if self._closing or self._coordinator.closed:
            return
        with self._planning:
            needs = self._plan()
            changed = [name for name, each in needs.items() if not _is_same(each, self._needs.get(name))]
            feeds = self._broker.feeds
            running = [n for n in changed if not needs[n].is_nothing and (feeds[n].is_started or feeds[n].is_resting)]
            for name in self._needs.keys() - needs.keys():
                self._forget(name)
            self._needs = {name: each for name, each in self._needs.items() if name in needs}
            for name in changed:
                try:
                    self._ask(name, needs[name])
                except WhenceError as error:  # what decides cannot be followed: everything is asked for
                    log.warning("source %s is asked for everything: %s", name, error)
                    self._ask(name, _everything(needs[name]))
                self._needs[name] = needs[name]
        for name in running if wait else ():
            self._broker.wait_until_caught_up(name)
        self.poke()

    def _plan(self) -> dict[str, SourceNeeds]:
        coordinator = self._coordinator
        with coordinator.looking():
            catalog = coordinator.catalog
            program: Program = catalog.planned_without(self._broker.results.given_up)
            program.tables = dict(catalog.program.tables)
            ours = {view for each in self._sources.values() for view in each.views}
            for name, transient in catalog.transient.items():
                if name not in ours:
                    program.views |= transient.planned
        hub = coordinator.hub
        feeds = self._broker.feeds
        declared = {
            name: table
            for name, table in program.tables.items()
            if table.source is not None and name in feeds and not is_result(table)
        }
        whole = [
            name for name in declared if feeds[name].takes_everything or name in self._refused or hub.follows(name)
        ]
        found = curiosity(without_twins(program), list(declared), whole)
        resting = [
            name
            for name, needs in found.items()
            if not needs.readers and name not in whole and self._broker.results.rests(name)
        ]
        return found | {name: SourceNeeds(found[name].table, (), is_nothing=True) for name in resting}

    def _ask(self, name: str, needs: SourceNeeds) -> None:
        """Ask a source for something else than before."""
        feed, before = self._broker.feeds[name], self._needs.get(name)
        self._forget(name)
        if needs.is_nothing:
            self._in_loop(partial(_do, feed.rest))
            return
        has_rows = feed.is_started or feed.is_resting
        if has_rows and needs.table.stream is not None and not _covers(before, needs):
            self._in_loop(lambda done: feed.start_over(done))
        relation = feed.addresses[0].relation
        if needs.is_everything:
            asked = UpstreamQuery(relation)
        else:
            option = feed.source.option("quench_after")
            made = SourceCuriosity(
                self._coordinator,
                needs,
                int(feed.source.option("margin") or MARGIN),
                QUENCH_AFTER if option is None else duration("quench_after", option) / 1e6,
                self.poke,
                partial(self._broker.ordered.released_tick, name),
                self._now,
                self._lacked,
            )
            made.open()
            self._sources[name] = made
            columns = tuple(needs.table.schema.names[c] for c in needs.columns)
            asked = UpstreamQuery(needs.select(relation), lambda: self._filter(made), columns, needs)

        if feed.is_resting:
            self.in_loop(partial(feed.wake, asked))
        elif feed.is_started:
            self.in_loop(partial(feed.subscribe_again, asked))
        else:
            feed.prepare(asked)
        if name in self._sources:
            self._sources[name].is_asked = True

    def in_loop(self, work: Callable[[], object]) -> None:
        """Have something done in the broker's loop, and wait for it."""
        self._in_loop(partial(_do, work))

    def _in_loop(self, work: Callable[[Callable[[], object]], object]) -> None:
        """Have something done in the broker's loop, and wait until it calls what it is given."""
        done = threading.Event()
        self._broker.call(work, done.set)
        if not self._broker.host.wait(done, _LONGEST):
            log.warning("sources: what is asked for takes its time")

    def _forget(self, name: str) -> None:
        former = self._sources.pop(name, None)
        if former is not None:
            former.note_lacked(self._coordinator.epoch)
            former.close()

    def replan_soon(self) -> None:
        """Look again what is needed, after a while: a reader is gone."""
        if self._replan_at is None:
            self._replan_at = self._now() + _NARROW_AFTER
        self._worker.wake()

    def check_query(self, query: exp.Expr) -> None:
        """Raise DataError if a query that is asked once reads rows or columns of a source that nobody asked it for."""
        partial = {name: needs for name, needs in self._needs.items() if not needs.is_everything}
        used = {table.name.lower() for table in query.find_all(exp.Table)} & partial.keys()
        if not used:
            return
        catalog = self._coordinator.catalog
        try:
            plan, hidden = bind_query_views(query.copy(), catalog.program)
            program = Program(tables=dict(catalog.program.tables), views=catalog.flowed(plan, hidden))
        except WhenceError:
            return  # what is wrong with it is said by whoever runs it
        for name, needs in curiosity(program, sorted(used)).items():
            if needs.readers and not _answers(partial[name], needs):
                asked = "; ".join(line.strip() for line in partial[name].describe())
                raise DataError(
                    f'"{name}" is a source that has only what views and subscriptions need: {asked}. Query a view, '
                    "subscribe to the query, or create the source WITH (ask = 'all')"
                )

    def describe(self, names: Collection[str] | None = None) -> list[str]:
        """Return what sources are asked for, for people."""
        found = self._needs
        lines = [line for name in found if names is None or name in names for line in found[name].describe()]
        return lines + self._broker.results.describe(names)

    # -- what may be told --------------------------------------------------------------------------------------------

    @property
    def held(self) -> int | None:
        """The epoch from which on nothing may be told yet; None if everything may."""
        now = self._now()
        behind = [(each.behind_since, each.behind_from) for each in list(self._sources.values())]
        behind += [(each.since, each.began) for each in list(self._refilled.values())]
        return min((since for since, began in behind if since is not None and now - began < PATIENCE), default=None)

    def last_whole(self, epoch: int) -> int:
        """Return the last epoch up to one in which no rows of a source are missing, or old."""
        for each in sorted(self._lacked, reverse=True):
            if each.since <= epoch <= each.upto:
                epoch = each.since - 1
        return epoch

    def lacks_rows(self, epoch: int) -> bool:
        """Return whether rows of a source are missing, or old, as of an epoch: its state is not to be shown, although
        a later one may be told."""
        held = self.held
        return (held is not None and epoch >= held) or any(e.since <= epoch <= e.upto for e in list(self._lacked))

    @property
    def waiting(self) -> list[str]:
        """The sources of which rows are missing, or old."""
        return [name for name, each in list(self._sources.items()) if each.behind_since is not None]

    def behind_for(self, name: str) -> float:
        """Return for how many seconds rows of a source have been missing, or old."""
        found, refilled = self._sources.get(name), self._refilled.get(name)
        began = [refilled.began] if refilled is not None else []
        began += [found.behind_from] if found is not None and found.behind_since is not None else []
        return self._now() - min(began) if began else 0.0

    def lacked_for(self, name: str, epoch: int) -> float | None:
        """Return how long ago rows of a source began to be missing that an epoch lacks, although they are here by now;
        None if it lacks none."""
        began = [e.began for e in list(self._lacked) if e.source == name and e.since <= epoch <= e.upto]
        return self._now() - min(began) if began else None

    # -- amendments --------------------------------------------------------------------------------------------------

    def poke(self) -> None:
        """Look soon whether there is something to send. Called while epochs are committed: it only leaves a note."""
        self._worker.wake()

    def amended(self, feed: SourceFeed, bound: ms.WireBound | None, at: int, refused: frozenset[Key]) -> None:
        """Note that an amendment of a source is in force, and its rows are committed. Called in the broker's loop."""
        found = self._sources.get(feed.table.name)
        if found is None:
            return
        value: Any = ALL_ROWS
        if bound is not None:
            table = feed.table
            type = table.schema.types[table.schema.names.index(bound.column)]
            value = NO_ROWS if bound.value is None else column_from_plain([bound.value], type)[0]
        found.amended(value, at, refused)
        self._broker.writer.later(self._broker.ordered.release)

    def rejected(self, feed: SourceFeed) -> None:
        """Note that an amendment that was under way is not any more."""
        found = self._sources.get(feed.table.name)
        if found is not None:
            found.rejected()

    def forgot(self, name: str, ticks: int) -> None:
        """Note that all ticks of a source, so many, were just forgotten: rows of it are old or missing until others are
        here. Called by the writer."""
        self._refilled[name] = _Refilling(self._coordinator.epoch, self._now(), ticks)
        self.poke()

    def reflects(self, name: str, epoch: int, horizon: int) -> None:
        """Note up to which tick a source is reflected as of an epoch. Called by the writer."""
        found = self._refilled.get(name)
        if found is not None and horizon >= found.ticks:
            self._lacked.append(LackedRows(found.since, epoch - 1, name, found.began))
            del self._refilled[name]
            self.poke()

    def start_over(self, feed: SourceFeed) -> None:
        """Note that a source follows another past from now on. Called in the broker's loop."""
        found = self._sources.get(feed.table.name)
        if found is not None:
            found.start_over()
            self._broker.writer.then(found.started_over, self._broker.loop)

    def refused(self, feed: SourceFeed, why: str) -> None:
        """Ask a source for everything, since its server does not take what it was asked for."""
        log.warning("source %s is asked for everything: %s", feed.table.name, why)
        self._refused.add(feed.table.name)
        self._replan_at = self._now()
        self._worker.wake()

    def _step(self) -> float | None:
        """Do what is due; return when there is something to do again."""
        if self._closing:
            return None
        try:
            if self._replan_at is not None and self._replan_at <= self._now():
                self._replan_at = None
                self._broker.reconcile(wait=False)
            self._send()
        except WhenceError as error:
            if self._closing or self._coordinator.closed:
                return None
            log.error("sources: %s", error)
        return self._due()

    def _due(self) -> float | None:
        found = [self._replan_at]
        for each in list(self._sources.values()):
            found.append(each.next_timer if each.is_asked else None)
            if each.behind_since is not None and self._now() < each.behind_from + PATIENCE:
                found.append(each.behind_from + PATIENCE)
        refilled = [each.began + PATIENCE for each in list(self._refilled.values())]
        found += [at for at in refilled if self._now() < at]
        return min((at for at in found if at is not None), default=None)

    def _send(self) -> None:
        """Send the amendments that are due, and tell what may be told by now."""
        again = False
        for name, each in list(self._sources.items()):
            feed = self._broker.feeds.get(name)
            if each.ended is not None:
                again = True
            elif feed is not None and each.is_asked and (amendment := each.next()) is not None:
                self._broker.call(self._amend, feed, each, amendment)
        held = self.held
        if held != self._told_held:
            self._told_held = held
            self._coordinator.hub.refresh()
        if again:  # a view that decides was dropped with one that it reads
            with self._planning:
                for name in [name for name, each in self._sources.items() if each.ended is not None]:
                    self._forget(name)
                    self._needs.pop(name, None)
            self.reconcile()

    def _amend(self, feed: SourceFeed, source: SourceCuriosity, amendment: Amendment) -> None:
        """Send an amendment, unless it was given up meanwhile. Called in the broker's loop."""
        if source.is_under_way(amendment):
            feed.amend(as_message(amendment, source.needs))

    def _filter(self, source: SourceCuriosity) -> ms.WireFilter | None:
        """Return the filter in effect, to subscribe with."""
        keeper, needs = source.keeper, source.needs
        names = needs.table.schema.names
        found = ms.WireFilter(key=[names[c] for c in needs.table.key])
        with source.guard:
            if needs.key is not None:
                found.columns = [names[c] for c in needs.key.columns]
                found.keys = _plain_keys(keeper.keys, needs.key.columns, needs)
            if needs.best:
                found.bound = None if keeper.bound is ALL_ROWS else _bound(keeper.bound, needs)
            if needs.live:
                found.watched = [names[c] for c in sorted(needs.watched)]
                found.quenched = _plain_keys(keeper.quenched, needs.table.key, needs)
        return found


def _do(work: Callable[[], object], done: Callable[[], object]) -> None:
    work()
    done()


def _is_same(needs: SourceNeeds, before: SourceNeeds | None) -> bool:
    """Return whether two needs ask for the same."""
    if before is None:
        return False
    plans = [
        (
            each.is_nothing,
            each.columns,
            each.filter,
            each.key,
            each.watched,
            [(r.live, r.reads) for r in each.live],
            each.best,
        )
        for each in (needs, before)
    ]
    return plans[0] == plans[1] and needs.table == before.table


def _covers(before: SourceNeeds | None, needs: SourceNeeds) -> bool:
    """Return whether rows of a stream that were asked for before are enough for what is needed now."""
    if before is None or before.key is not None or before.is_nothing:
        return False
    return {*needs.columns} <= {*before.columns} and before.filter in (None, needs.filter)


def _answers(asked: SourceNeeds, needs: SourceNeeds) -> bool:
    """Return whether the rows that a source is asked for answer a query with these needs."""
    if asked.key is not None or asked.live or asked.best or asked.is_nothing:
        return False
    return {*needs.columns} <= {*asked.columns} and asked.filter in (None, needs.filter)


def _everything(needs: SourceNeeds) -> SourceNeeds:
    return SourceNeeds(needs.table, tuple(range(len(needs.table.schema))), readers=needs.readers)


def _plain_keys(keys: Collection[Key], columns: tuple[int, ...], needs: SourceNeeds) -> list[list[Any]]:
    types = [needs.table.schema.types[c] for c in columns]
    return plain_columns(sorted(keys, key=repr), types) if keys else [[] for _ in columns]


def _bound(value: Any, needs: SourceNeeds) -> ms.WireBound:
    rule = needs.best[0]
    plain = None if isinstance(value, Unbounded) else plain_value(value)
    return ms.WireBound(needs.table.schema.names[rule.column], plain, is_least=rule.descending)


def as_message(amendment: Amendment, needs: SourceNeeds) -> ms.Amend:
    """Return an amendment as it travels; the feed fills in its number."""
    made, table = ms.Amend(0, 0), needs.table
    if needs.key is not None:
        chosen = needs.key.columns
        made.add = _plain_keys(amendment.add, chosen, needs) if amendment.add else None
        made.drop = _plain_keys(amendment.drop, chosen, needs) if amendment.drop else None
        made.since = amendment.since
    made.quench = _plain_keys(amendment.quench, table.key, needs) if amendment.quench else None
    made.lift = _plain_keys(amendment.lift, table.key, needs) if amendment.lift else None
    made.bound = None if amendment.bound is None else _bound(amendment.bound, needs)
    made.more, made.as_of = amendment.more, amendment.as_of
    return made
