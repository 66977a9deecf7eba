"""The giving end of a subscription with ticks: what a publisher tells a broker next, and how it answers curiosity.

A broker is told *ranges*: "after tick 17 and up to tick 20, what passes your filter changed by exactly this", and a
range in which nothing passes is silence. Ticks are the epochs of the publisher's history. A range that was lost on the
way is asked for again, and answered from the recent changes, from the rows that a stream retains, from the state; or it
is told to be lost, never skipped.

A relay tells what it has of somebody else's history: a set of ticks, perhaps with gaps. It tells what is there, also
beyond a gap, and the rest when it comes. Ticks that it has reflected but whose rows it has let go of are **elsewhere**:
they are asked for where it has them from (`PassedWants`), and are lost only if they are lost there.

| what is told   | what it says |
|----------------|-----------------|
| `RangeChange`  | what came and went in a range; without rows, that the range is silent |
| `RangeState`   | all rows that pass the filter, as of a tick: it stands for the whole range from 0 |
| `RangeLost`    | the changes of a range are gone from here, one by one |
| `FilterAmended`| as of a tick another filter is in effect, and what comes and goes by that |

The law: let `n` be the number of the filter in effect (0 is the one subscribed with). The rows of filter `n` as of tick
`a`, plus the `RangeChange`s of number `n` for any ranges that cover `a` to `b` once, are the rows of filter `n` as of
`b`. The rows of the filter before as of `at`, plus `FilterAmended(n, at)`, are the rows of filter `n` as of `at`.
Everything up to `at` is told by the filter before, also when it is asked for again; everything after `at` by the new.

A `DeliveryFilter` looks at single rows: key sets (dynamic subscriptions), a bound (best-k), and quenched keys. Of a
quenched key a change is told only if it touches a watched column, or if the row comes or goes. So the receiver's row
may be old in the columns that are not watched, until the key is lifted. Therefore rows of a relation with a primary key
are applied *by that key*: what went names the key of the row that goes, what came replaces the row of its key. A key
is quenched only as long as nothing that is watched changes: the first change of it that is told lifts it, and so does a
state. So a row
that comes to matter again is current, and stays so, without a further question. And a key is quenched only if nothing
that is watched has changed since the tick at which the subscriber decided that (`FilterChange.as_of`). To tell more of
a quenched key than is needed is always right.

There is no clock, no socket and no thread in here: a simulation drives it as a server does. Rows are arrays of codes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from whence.engine.core.batch import take
from whence.engine.core.operator import Batch
from whence.model.codes import NULL, Codes
from whence.model.errors import WhenceError
from whence.subscribe.ranges import Range, RangeSet
from whence.subscribe.recent import RecentChanges

Key = tuple[int, ...]
Mask = NDArray[np.bool_]


@dataclass(frozen=True)
class RangeChange:
    """After `since` and up to `upto`, what passes filter `number` changed by exactly these rows; None: not at all.

    `time` and `horizons` are promises as of `upto`: they hold once every tick up to there is known. An empty range
    (`since == upto`) only says where the publisher is. `rows` is whatever the receiver applies: a `Batch` here."""

    since: int
    upto: int
    rows: Any | None = None
    number: int = 0
    time: int | None = None
    horizons: dict[str, Any] | None = None


@dataclass(frozen=True)
class RangeState:
    """All rows that pass filter `number`, whose bound is `bound`, as of `at`; no key is quenched any more. Of a stream,
    which does not retain everything, rows that came up to `lost_upto` and are gone are not among them."""

    at: int
    rows: Any
    number: int = 0
    lost_upto: int = 0
    time: int | None = None
    horizons: dict[str, Any] | None = None
    bound: Any | None = None


@dataclass(frozen=True)
class RangeLost:
    """The changes after `since` and up to `upto` cannot be told one by one any more."""

    since: int
    upto: int


@dataclass(frozen=True)
class FilterAmended:
    """As of `at`, filter `number` is in effect. `rows` come and go by that (a `Batch`; None if there are none). `bound`
    is the one in effect: if rows beyond it were asked for, the publisher has moved it. Keys that were `refused` are not
    quenched: something that is watched has changed meanwhile."""

    number: int
    at: int
    rows: Any | None = None
    bound: Any | None = None
    refused: frozenset[Key] = frozenset()


Told = RangeChange | RangeState | RangeLost | FilterAmended

Stable = int | RangeSet
"""What may be told: everything up to an epoch; or, at a relay, the ticks that are there."""


@dataclass(frozen=True)
class DeliveryBound:
    """Only rows whose column is at most (or, not `at_most`, at least) a code pass. NULL does not; without a code,
    nothing does."""

    column: int
    code: int | None
    at_most: bool = True


@dataclass(frozen=True)
class FilterChange:
    """A change of a filter: keys that are added and dropped, another bound, keys that are quenched and lifted.

    `bound` is Ellipsis if it stays; with `more` it moves so far that as many rows more pass (a pull), with all that are
    equal to the last one, and goes if there are no others. Of a stream, rows of added keys after tick `since` come
    along; without one, only those after the amendment do. Keys are quenched for what the subscriber knew `as_of` a
    tick: its horizon."""

    add: frozenset[Key] = frozenset()
    drop: frozenset[Key] = frozenset()
    bound: Any = ...
    quench: frozenset[Key] = frozenset()
    lift: frozenset[Key] = frozenset()
    since: int | None = None
    as_of: int = 0
    more: int = 0


@dataclass(frozen=True)
class DeliveryFilter:
    """What of a relation is told to one subscriber, row by row. Without keys and bound, everything.

    columns   the columns that keys are of
    keys      only rows of these keys pass; None: of all keys
    bound     only rows within it pass
    quenched  keys of which only changes of watched columns are told; `watched` are these columns, by number
    key       the columns that quenched keys are of, if they are others than `columns`

    >>> cheap = DeliveryFilter((0,), frozenset({(7,), (8,)}), DeliveryBound(1, 500))
    >>> cheap.passes(np.array([[7, 450], [7, 501], [9, 100], [8, 500]])).tolist()
    [True, False, False, True]
    """

    columns: tuple[int, ...] = ()
    keys: frozenset[Key] | None = None
    bound: DeliveryBound | None = None
    quenched: frozenset[Key] = frozenset()
    watched: tuple[int, ...] = ()
    key: tuple[int, ...] = ()
    comparable: Callable[[int, Codes], Codes] | None = field(default=None, compare=False)
    """Gives codes of a column that order like its values, where the codes themselves do not (text)."""

    @property
    def passes_all(self) -> bool:
        """Whether nothing is held back but changes of quenched keys."""
        return self.keys is None and self.bound is None

    def passes(self, rows: Codes) -> Mask:
        """Return which rows pass."""
        found = np.ones(len(rows), np.bool_) if self.keys is None else _has_key(rows, self.columns, self.keys)
        bound = self.bound
        if bound is not None and bound.code is None:
            return np.zeros(len(rows), np.bool_)
        if bound is not None:
            codes, limit = rows[:, bound.column], np.array([bound.code], np.int64)
            known = codes != NULL
            if self.comparable is not None:
                codes, limit = self.comparable(bound.column, codes), self.comparable(bound.column, limit)
            found &= known & ((codes <= limit[0]) if bound.at_most else (codes >= limit[0]))
        return found

    def is_quenched(self, rows: Codes) -> Mask:
        """Return which rows are of a quenched key."""
        return _has_key(rows, self.key or self.columns, self.quenched)

    def keys_of(self, rows: Codes) -> frozenset[Key]:
        """Return the keys of rows by which they may be quenched."""
        return frozenset(map(tuple, rows[:, self.key or self.columns].tolist())) if len(rows) else frozenset()

    def without(self, lifted: frozenset[Key]) -> DeliveryFilter:
        """Return the filter with fewer keys quenched."""
        return replace(self, quenched=self.quenched - lifted) if lifted & self.quenched else self

    def amended(self, change: FilterChange) -> DeliveryFilter:
        """Return the filter that a change leads to. A key that is dropped is no longer quenched.

        >>> before = DeliveryFilter((0,), frozenset({(7,)}))
        >>> sorted(before.amended(FilterChange(add=frozenset({(8,)}), drop=frozenset({(7,)}))).keys)
        [(8,)]
        """
        keys = self.keys
        if change.add or change.drop:
            if keys is None:
                raise WhenceError("a filter without keys cannot be given some: subscribe again")
            keys = (keys - change.drop) | change.add
        quenched = (self.quenched | change.quench) - change.lift
        if not self.key or self.key == self.columns:
            quenched -= change.drop - change.add
        bound = self.bound if change.bound is ... else change.bound
        return replace(self, keys=keys, bound=bound, quenched=quenched)


def _has_key(rows: Codes, columns: tuple[int, ...], keys: frozenset[Key]) -> Mask:
    """Return which rows have one of some keys in the columns."""
    if not keys or not len(rows):
        return np.zeros(len(rows), np.bool_)
    if len(rows) > 64 and len(columns) == 1:
        return np.isin(rows[:, columns[0]], np.fromiter((key[0] for key in keys), np.int64, len(keys)))
    return np.fromiter((key in keys for key in map(tuple, rows[:, columns].tolist())), np.bool_, len(rows))


class Publication:
    """A relation that is told to brokers: its recent changes and its state, through a filter.

    recent       the last changes, shared by all
    read_state   returns the epoch and all rows (a `Batch` of counts) as of it: a stable epoch
    key          the columns of the primary key, if there is one: what quenching needs
    append_only  whether it is a stream
    read_past    of a stream, returns the rows that came after one tick and up to another, from what it retains; None
                 if it does not retain all of them any more. The last resort
    read_lost    of a stream, returns the tick up to which its rows are not retained
    read_absent  of a stream at a relay, returns the ticks of a range that are lost, and those that are elsewhere
    """

    def __init__(
        self,
        recent: RecentChanges,
        read_state: Callable[[], tuple[int, Batch]],
        key: tuple[int, ...] = (),
        append_only: bool = False,
        read_past: Callable[[int, int], Batch | None] | None = None,
        read_lost: Callable[[], int] | None = None,
        read_absent: Callable[[int, int], tuple[RangeSet, RangeSet]] | None = None,
    ) -> None:
        self.recent, self.read_state, self.key, self.append_only = recent, read_state, key, append_only
        self._read_past, self._read_lost, self._read_absent = read_past, read_lost, read_absent

    def absent(self, since: int, upto: int) -> tuple[RangeSet, RangeSet]:
        """Return the ticks of a range that are lost, and those that are elsewhere."""
        return (RangeSet(), RangeSet()) if self._read_absent is None else self._read_absent(since, upto)

    @property
    def lost_upto(self) -> int:
        """The tick up to which rows of a stream are gone from its state."""
        return 0 if self._read_lost is None else self._read_lost()

    @property
    def known_from(self) -> int:
        """The tick after which every change is known."""
        return self.recent.start if self._read_past is None else min(self.recent.start, self.lost_upto)

    def changes(self, since: int, upto: int, filter: DeliveryFilter) -> Batch | None:
        """Return what is told of a range: the net change of what passes; None if it is not known any more."""
        batch = self.recent.difference(since, upto)
        if batch is None and self._read_past is not None:
            batch = self._read_past(since, upto)
        if batch is None or not len(batch.ann):
            return batch
        if not filter.passes_all:
            batch = take(batch, np.flatnonzero(filter.passes(batch.rows)))
        return self._unquenched(batch, filter) if filter.quenched and self.key and len(batch.ann) else batch

    def _unquenched(self, batch: Batch, filter: DeliveryFilter) -> Batch:
        """Leave out changes of quenched keys that touch no watched column."""
        quenched = np.flatnonzero(filter.is_quenched(batch.rows))
        if not len(quenched):
            return batch
        bound = (filter.bound.column,) if filter.bound else ()
        watched = sorted({*self.key, *filter.columns, *filter.watched, *bound})
        net: dict[Key, int] = {}
        seen = list(map(tuple, batch.rows[quenched][:, watched].tolist()))
        for one, count in zip(seen, batch.ann[quenched].tolist(), strict=True):
            net[one] = net.get(one, 0) + count
        keep = np.ones(len(batch.ann), np.bool_)
        keep[quenched] = [net[one] != 0 for one in seen]
        return take(batch, np.flatnonzero(keep))

    def without_touched(self, filter: DeliveryFilter, change: FilterChange, epoch: int) -> DeliveryFilter:
        """Return a filter that is amended as of an epoch, without the keys that are not to be quenched after all:
        something watched has changed since the subscriber decided that."""
        fresh = filter.quenched & change.quench
        if not fresh or change.as_of >= epoch:
            return filter
        batch = self.changes(change.as_of, epoch, replace(filter, quenched=fresh)) if self.key else None
        return filter.without(fresh if batch is None else fresh & filter.keys_of(batch.rows))

    def state(self, filter: DeliveryFilter) -> tuple[int, Batch]:
        """Return the epoch of the state, and the rows of it that pass."""
        epoch, batch = self.read_state()
        return epoch, batch if filter.passes_all else take(batch, np.flatnonzero(filter.passes(batch.rows)))

    def amend(self, before: DeliveryFilter, change: FilterChange) -> tuple[DeliveryFilter, int, Batch | None]:
        """Return the new filter, the epoch as of which it is in effect, and the rows that come and go by that.

        Rows of lifted keys come, too, as they are now: they take the place of the rows of their primary keys."""
        epoch, batch = self.read_state()
        after = self.without_touched(before.amended(change), change, epoch)
        if self.append_only:  # rows that were told stay, and rows that were not are not told but from `since` on
            fresh = None
            if change.since is not None and change.since < epoch and change.add:
                added = replace(after, keys=change.add - (before.keys or frozenset()))
                fresh = self.changes(change.since, epoch, added)
                if fresh is None:
                    raise RangeLostError(change.since, epoch)
            return after, epoch, fresh if fresh is not None and len(fresh.ann) else None
        if change.more and after.bound is not None:
            after = replace(after, bound=_further(after, after.bound, batch, change.more))
        had, has = before.passes(batch.rows), after.passes(batch.rows)
        comes = has & ~had
        lifted = before.quenched - after.quenched
        if lifted:
            comes |= has & replace(after, quenched=lifted).is_quenched(batch.rows)
        goes = np.flatnonzero(had & ~has)
        came = np.flatnonzero(comes)
        if not len(goes) and not len(came):
            return after, epoch, None
        rows = np.concatenate([batch.rows[goes], batch.rows[came]])
        after = after.without(after.keys_of(rows))
        return after, epoch, Batch(rows, np.concatenate([-batch.ann[goes], batch.ann[came]]))


def _further(filter: DeliveryFilter, bound: DeliveryBound, batch: Batch, more: int) -> DeliveryBound | None:
    """Return the bound that lets so many rows more pass, and all that are equal to the last; None if there are none
    beyond it."""
    beyond = replace(filter, bound=None).passes(batch.rows) & ~filter.passes(batch.rows)
    places = np.flatnonzero(beyond & (batch.rows[:, bound.column] != NULL))
    codes = batch.rows[places, bound.column]
    ordered = codes if filter.comparable is None else filter.comparable(bound.column, codes)
    order = np.argsort(ordered, kind="stable")
    order = order if bound.at_most else order[::-1]
    last = int(np.searchsorted(np.cumsum(batch.ann[places[order]]), more))
    if last >= len(order) or bool((ordered[order[last:]] == ordered[order[last]]).all()):
        return None
    return replace(bound, code=int(codes[order[last]]))


class RangeLostError(WhenceError):
    """Changes that were asked for are gone."""

    def __init__(self, since: int, upto: int) -> None:
        super().__init__(f"the changes after epoch {since} and up to {upto} are not retained any more")
        self.since, self.upto = since, upto


class PublishingSession:
    """What one subscriber with ticks has been sent, by which filter.

    sent    the ticks that have been sent once, or that the subscriber had; they are sent again only if asked for
    absent  the ticks that are elsewhere, and that the subscriber is still to be told of: who takes them asks for them
    number  that of the filter in effect; the one before is kept until the subscriber says that it has taken the new one
            in, which it does by amending that
    """

    def __init__(
        self,
        publication: Publication,
        filter: DeliveryFilter | None = None,
        have: RangeSet | None = None,
        every_change: bool = False,
    ) -> None:
        """`have` are the ticks that the subscriber reflects by this filter; None if it needs the state."""
        self.publication = publication
        self.sent = have or RangeSet()
        self.absent = list[Range]()
        self.number, self._from = 0, 0  # the filter in effect, and the tick after which it is
        self.filter = filter or DeliveryFilter()
        self._base_number, self._base = 0, self.filter
        self._needs_state = have is None
        self._every_change = every_change
        self._wanted: list[Range] = []
        self._amended: FilterAmended | None = None  # still to be told

    # -- what the subscriber asks for --------------------------------------------------------------------------------

    def want(self, ranges: Iterable[Range]) -> None:
        """Note that ranges are to be told again. One that ends at `EVER` asks for everything after its start."""
        self._wanted += [(since, upto) for since, upto in ranges if 0 <= since <= upto][:_MOST_WANTED]

    def amend(self, number: int, base: int, change: FilterChange) -> bool:
        """Change the filter that has the number `base`; the new one has `number`.

        A number that is not above the last one is a repeat. An amendment of the filter before the one in effect takes
        the place of the one in effect, which the subscriber then has never taken in. Return False if the base is not
        known: the subscriber must subscribe again."""
        if number <= self.number:
            return True
        if base == self.number:
            self._base_number, self._base = self.number, self.filter
        elif base != self._base_number:
            return False
        self.filter, self._from, rows = self.publication.amend(self._base, change)
        refused = change.quench - self.filter.quenched
        self.number, self._amended = number, FilterAmended(number, self._from, rows, self.filter.bound, refused)
        return True

    # -- what it is told ---------------------------------------------------------------------------------------------

    def has_news(self, told: Stable) -> bool:
        """Return whether `next` has something to tell, given what is stable."""
        here = _ticks(told)
        if self._needs_state or self._wanted or (self._amended is not None and here.covers(0, self._from)):
            return True
        return bool(here.minus(self.sent))

    def tell_state_again(self) -> None:
        """Tell the state next: the one that was made is not sent."""
        self._needs_state = True

    @property
    def only_follows(self) -> bool:
        """Whether nothing is asked for: all that there is to tell is what is new."""
        return not self._needs_state and not self._wanted and self._amended is None

    def next(self, told: Stable) -> list[Told]:
        """Return what to tell now, given what is stable: answers first, then what is new.

        With nothing new there is nothing to tell; `heartbeat` says where the publisher is."""
        if self._needs_state:
            return self._tell_state()
        found, here = list[Told](), _ticks(told)
        wanted, self._wanted = self._wanted, []
        for since, upto in wanted:
            if since >= here.last:
                found.append(RangeChange(here.last, here.last, number=self.number))  # nothing is missing
            elif self._tell_all(RangeSet([(since, min(upto, here.last))]), here, found):
                return found
        amended = self._amended if here.covers(0, self._from) else None
        if amended is not None:
            if self._tell_all(RangeSet([(0, self._from)]).minus(self.sent), here, found):
                return found
            found.append(amended)
            self._amended = None
        if not self._tell_all(here.minus(self.sent), here, found):
            self.sent = here.union(self.sent)
        return found

    def _tell_all(self, ticks: RangeSet, here: RangeSet, found: list[Told]) -> bool:
        """Tell what is here of some ticks; return whether the state was told, which is everything there is."""
        for since, upto in ticks:
            start = since
            for gap, end in [*here.missing(since, upto), (upto, upto)]:
                if start < gap:
                    found += self._tell(start, gap)
                    if _has_state(found):
                        return True
                    self.sent = self.sent.add(start, gap)
                start = end
        return False

    def heartbeat(self, told: Stable) -> RangeChange:
        """Return what says that there is nothing after what was sent; `next` must have been asked before."""
        last = _ticks(told).last
        return RangeChange(last, last, number=self.number)

    def answer(self, since: int, upto: int, read: Callable[[DeliveryFilter], Any] | None) -> Told:
        """Return what says what happened in a range that was elsewhere: `read` gives the rows that pass a filter, or
        None if there are none. Without it, the range is lost there too."""
        if read is None:
            return RangeLost(since, upto)
        filter, number = self._told_by(upto)
        return RangeChange(since, upto, read(filter), number)

    def _tell_state(self) -> list[Told]:
        self.filter, self._base = self.filter.without(self.filter.quenched), self._base.without(self._base.quenched)
        epoch, rows = self.publication.state(self.filter)
        self._needs_state, self._wanted, self.sent = False, [], self.sent.add(0, epoch)
        if self._amended is not None and self._from <= epoch:
            self._amended, self._base, self._base_number = None, self.filter, self.number
        return [RangeState(epoch, rows, self.number, self.publication.lost_upto, bound=self.filter.bound)]

    def _tell(self, since: int, upto: int) -> list[Told]:
        """Return what says what happened in a range, told by the filter that was in effect."""
        if since < self._from < upto:
            before = self._tell(since, self._from)
            return before if _has_state(before) else before + self._tell(self._from, upto)
        lost, elsewhere = self.publication.absent(since, upto)
        if lost or elsewhere:
            return self._tell_around(since, upto, lost, elsewhere)
        filter, number = self._told_by(upto)
        if self._every_change:
            return self._tell_each(since, upto, filter, number)
        rows = self.publication.changes(since, upto, filter)
        if rows is None:
            return self._tell_lost(since, upto)
        self._lift(rows, filter)
        return [RangeChange(since, upto, rows if len(rows.ann) else None, number)]

    def _told_by(self, upto: int) -> tuple[DeliveryFilter, int]:
        """Return the filter that was in effect up to a tick, and its number."""
        old = upto <= self._from and self.number != self._base_number
        return (self._base, self._base_number) if old else (self.filter, self.number)

    def _tell_around(self, since: int, upto: int, lost: RangeSet, elsewhere: RangeSet) -> list[Told]:
        """Return what says what is known of a range at a relay; what is elsewhere waits in `absent`."""
        found: list[Told] = [RangeLost(*one) for one in lost]
        self.absent += elsewhere
        for start, end in RangeSet([(since, upto)]).minus(lost.union(elsewhere)):
            found += self._tell(start, end)
        return found

    def _lift(self, rows: Batch, filter: DeliveryFilter) -> None:
        """Quench the keys no more of which something is told."""
        if filter.quenched and len(rows.ann):
            told = filter.quenched & filter.keys_of(rows.rows)
            self.filter, self._base = self.filter.without(told), self._base.without(told)

    def _tell_each(self, since: int, upto: int, filter: DeliveryFilter, number: int) -> list[Told]:
        """Return the change of each epoch by itself, each with the silence before it."""
        recent, found = self.publication.recent, list[Told]()
        if not recent.reaches(since):
            known = min(recent.start, upto)
            past = self.publication.changes(since, known, filter)
            if past is None:
                return self._tell_lost(since, upto)
            found.append(RangeChange(since, known, past if len(past.ann) else None, number))
            since = known
        while since < upto:
            at, start = since, since
            rows: Batch | None = None
            while rows is None or not len(rows.ann):
                change = recent.next_change(at, upto)
                if change is None:
                    return [*found, RangeChange(start, upto, None, number)]
                rows = self.publication.changes(change - 1, change, filter)
                if rows is None:  # let go of meanwhile
                    return found + self._tell_lost(start, upto)
                self._lift(rows, filter)
                at = change
            found.append(RangeChange(start, at, rows, number))
            since = at
        return found

    def _tell_lost(self, since: int, upto: int) -> list[Told]:
        """Return what there is instead of changes that are gone: of a stream, that they are lost, and what is known
        after them; else the state."""
        if self.publication.append_only:
            known = min(max(self.publication.known_from, since), upto)
            rest = self._tell(known, upto) if since < known < upto else []
            return [RangeLost(since, known if rest else upto), *rest]
        lost: list[Told] = [RangeLost(since, upto)] if self._every_change else []
        return lost + self._tell_state()


def _has_state(told: list[Told]) -> bool:
    return bool(told) and isinstance(told[-1], RangeState)


_MOST_WANTED = 1000  # ranges of one message that are answered


def _ticks(told: Stable) -> RangeSet:
    return RangeSet([(0, told)]) if isinstance(told, int) else told
