"""Decide how the filter of a source is to change, as the relations that decide about it change.

A `FilterKeeper` is told what becomes of the local relations (keys that are wanted, keys that are live, rows that are
there, values of the best rows) and says which `Amendment` to send next. What is urgent (keys that are wanted, keys that
have become live while they were quenched, best rows that have run out) is asked for at once. What only saves messages
(keys that are wanted no more, keys that are no longer live) waits for `delay` seconds, so that what flips back and
forth is not amended each time. There is one amendment under way at a time.

The law: unless `is_behind`, the rows that are here are enough for every view: each wanted key is in the filter, no
quenched key is live, and the best rows are all here or there are no others. While it is behind, an amendment that
repairs it is under way or is the next one.

There is no clock, no socket and no thread in here. Keys are tuples of values.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

Key = tuple[Any, ...]
_NOTHING: frozenset[Key] = frozenset()
MOST_PULLED = 100_000
"""Rows that one amendment asks for."""


class Unbounded:
    """The bound of a filter that lets all rows pass, and the one that lets none."""

    def __init__(self, text: str) -> None:
        self._text = text

    def __repr__(self) -> str:
        return self._text


ALL_ROWS, NO_ROWS = Unbounded("all rows"), Unbounded("no rows")


@dataclass(frozen=True)
class Amendment:
    """A change of a filter.

    add, drop     keys whose rows are asked for, and no longer
    since         of a stream: rows of added keys after this tick come along
    quench, lift  keys of which only watched columns are asked for, and those of which everything is again
    bound         another bound, a value; None if it stays
    more          how many rows beyond the bound are asked for: a pull. The answer says the new bound
    as_of         the tick as of which keys were found to be idle
    """

    add: frozenset[Key] = _NOTHING
    drop: frozenset[Key] = _NOTHING
    since: int | None = None
    quench: frozenset[Key] = _NOTHING
    lift: frozenset[Key] = _NOTHING
    bound: Any = None
    more: int = 0
    as_of: int = 0

    def __bool__(self) -> bool:
        return bool(self.add or self.drop or self.quench or self.lift or self.bound is not None or self.more)


@dataclass(frozen=True)
class RelationChange:
    """What an epoch did to the relations that decide: rows that came and went, of each.

    keys   wanted keys
    live   per live rule, keys
    rows   primary keys of the source's own rows
    found  per best rule, values of the bound's column
    """

    keys: tuple[Collection[Key], Collection[Key]] = ((), ())
    live: tuple[tuple[Collection[Key], Collection[Key]], ...] = ()
    rows: tuple[Collection[Key], Collection[Key]] = ((), ())
    found: tuple[tuple[Collection[Any], Collection[Any]], ...] = ()


class FilterKeeper:
    """The filter of one source, as it is in force and as it should be.

    >>> keeper = FilterKeeper(is_keyed=True)
    >>> keeper.change(RelationChange(keys=([("IBM",)], [])), now=0.0); keeper.start()
    >>> sorted(keeper.keys), keeper.next(0.0)
    ([('IBM',)], None)
    >>> keeper.change(RelationChange(keys=([("MOT",)], [("IBM",)])), now=1.0, reflected=7)
    >>> amendment = keeper.next(1.0); sorted(amendment.add), sorted(amendment.drop), keeper.is_behind
    ([('MOT',)], [('IBM',)], True)
    >>> keeper.amended(); sorted(keeper.keys), keeper.is_behind
    ([('MOT',)], False)
    """

    def __init__(
        self,
        is_keyed: bool = False,
        live_rules: int = 0,
        best: Sequence[int] = (),
        descending: bool = False,
        margin: int = 0,
        delay: float = 0.0,
        is_stream: bool = False,
    ) -> None:
        """`best` says per best rule how many rows are seen; `margin` how many more are kept at hand."""
        self.is_keyed, self.quenches, self.is_stream = is_keyed, live_rules > 0, is_stream
        self.keys: set[Key] = set()  # in force
        self.quenched: set[Key] = set()
        self.bound: Any = NO_ROWS if best else ALL_ROWS
        self._best, self._descending, self._margin, self._delay = list(best), descending, margin, delay
        self._wanted: dict[Key, int | None] = {}  # and what was reflected when the key came to be wanted
        self._missing: dict[Key, None] = {}  # wanted keys that are not in force, or are about not to be
        self._unwanted: dict[Key, float] = {}  # keys in force that nobody wants, and since when
        self._dropped: dict[Key, int] = {}  # of a stream: up to which tick rows of dropped keys were told
        self._live: list[set[Key]] = [set() for _ in range(live_rules)]
        self._rows: dict[Key, int] = {}
        self._idle: dict[Key, float] = {}  # keys of rows that are not live, and since when
        self._stale: set[Key] = set()  # keys that are live and quenched
        self._found: list[list[Any]] = [[] for _ in best]
        self._tries = 0
        self._reflected = 0
        self._lifted: set[Key] = set()  # keys that are about to be quenched, and have changed meanwhile
        self._pending: Amendment | None = None

    # -- what happens ------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Begin with a filter of all that is wanted now."""
        self.keys, self.quenched, self._pending = set(self._wanted), set(), None
        self._unwanted.clear()
        self._missing.clear()
        self._stale.clear()
        self.bound = NO_ROWS if self._best else ALL_ROWS

    def change(self, change: RelationChange, now: float, reflected: int | None = None) -> None:
        """Take in what an epoch did; `reflected` is the last tick of the source that was applied by then."""
        self._reflected = self._reflected if reflected is None else reflected
        came, went = change.keys
        for key in went:
            self._wanted.pop(key, None)
            self._missing.pop(key, None)
            if key in self.keys:
                self._unwanted[key] = now
        for key in came:
            self._wanted[key] = reflected
            self._unwanted.pop(key, None)
            if key not in self.keys or (self._pending is not None and key in self._pending.drop):
                self._missing[key] = None
        self._change_live(change, now)
        for values, (came_values, went_values) in zip(self._found, change.found, strict=False):
            for value in went_values:
                at = bisect_left(values, value)
                if at < len(values) and values[at] == value:
                    del values[at]
            for value in came_values:
                insort(values, value)

    def _change_live(self, change: RelationChange, now: float) -> None:
        if not self.quenches:
            return
        touched = dict[Key, None]()
        came, went = change.rows
        for key in (*went, *came):  # the publisher has lifted a key of which it tells a change
            self.quenched.discard(key)
            if self._pending is not None and key in self._pending.quench:
                self._lifted.add(key)
        for key in went:
            self._rows[key] = self._rows.get(key, 0) - 1
            touched[key] = None
        for key in came:
            self._rows[key] = self._rows.get(key, 0) + 1
            touched[key] = None
        for live, (more, fewer) in zip(self._live, change.live, strict=False):
            live.difference_update(fewer)
            live.update(more)
            touched.update(dict.fromkeys([*more, *fewer]))
        for key in touched:
            if self._rows.get(key, 0) <= 0:
                self._rows.pop(key, None)
            is_live = any(key in live for live in self._live)
            if is_live or key not in self._rows:
                self._idle.pop(key, None)
            elif key not in self._idle and key not in self.quenched:
                self._idle[key] = now
            if is_live and self._is_quenched(key):
                self._stale.add(key)
            else:
                self._stale.discard(key)

    def _is_quenched(self, key: Key) -> bool:
        if key in self.quenched:
            return True
        return self._pending is not None and key in self._pending.quench and key not in self._lifted

    def amended(
        self,
        bound: Any = None,
        at: int | None = None,
        now: float = 0.0,
        refused: frozenset[Key] = _NOTHING,
        reflected: int = 0,
    ) -> None:
        """Note that the amendment under way is in force, and its rows are applied; `bound` is the new one of a pull.
        Keys that were `refused` are not quenched: they are decided about again, as of the tick that is `reflected` by
        now. As of an earlier one they would be refused for ever."""
        self._reflected = max(self._reflected, reflected)
        done, self._pending = self._pending, None
        if done is None:
            return
        self._lifted |= done.quench & refused
        self.keys = (self.keys - done.drop) | done.add
        self.quenched = (self.quenched | (done.quench - self._lifted)) - done.lift
        if done.more:
            self.bound = bound
            self._tries += 1
        elif done.bound is not None:
            self.bound = done.bound
        if not self._is_short:
            self._tries = 0
        if self.is_stream and at is not None:
            self._dropped.update(dict.fromkeys(done.drop, at))
            for key in done.add:
                self._dropped.pop(key, None)
        for key in done.add:
            self._missing.pop(key, None)
            if key not in self._wanted:
                self._unwanted.setdefault(key, now)
        self._stale = {key for key in self._stale | done.quench if self._is_live(key) and key in self.quenched}
        for key in done.quench & self.quenched:
            self._idle.pop(key, None)
        lifted, self._lifted = done.lift | self._lifted, set()
        for key in lifted:
            if key in self._rows and not self._is_live(key):
                self._idle.setdefault(key, now)

    def _is_live(self, key: Key) -> bool:
        return any(key in live for live in self._live)

    def rejected(self) -> None:
        """Note that the amendment under way never came to be in force: it is decided again."""
        given, self._pending, self._lifted = self._pending, None, set()
        if given is not None:
            self._unwanted.update(dict.fromkeys(given.drop - self._wanted.keys(), 0.0))
            idle = {key: 0.0 for key in given.quench if key in self._rows and not self._is_live(key)}
            self._idle = idle | self._idle
            self._stale = {key for key in self._stale if key in self.quenched}

    def begin_again(self) -> None:
        """Note that the publisher has another past: ticks of the one before say nothing of it."""
        self.rejected()
        self._dropped.clear()
        self._wanted = dict.fromkeys(self._wanted, 0)

    def is_under_way(self, amendment: Amendment) -> bool:
        """Return whether an amendment that `next` gave is still to be sent, or answered."""
        return self._pending is amendment

    # -- what to do about it -----------------------------------------------------------------------------------------

    @property
    def is_behind(self) -> bool:
        """Whether rows may be missing or old that a view needs."""
        return bool(self._missing or self._stale or self._is_short)

    @property
    def is_amending(self) -> bool:
        """Whether an amendment is under way."""
        return self._pending is not None

    @property
    def _is_short(self) -> bool:
        """Whether best rows have run out, and there may be others."""
        if self.bound is ALL_ROWS:
            return False
        return any(len(values) < rows for values, rows in zip(self._found, self._best, strict=True))

    def next(self, now: float) -> Amendment | None:
        """Return the amendment to send now, if there is one; it is under way until `amended` or `rejected`."""
        if self._pending is not None:
            return None
        add, since = self._additions()
        lift = frozenset(self._stale)
        more = self._pull()
        drop = self._due(self._unwanted, now) if self.is_keyed else _NOTHING
        quench = self._due(self._idle, now) if self.quenches else _NOTHING
        bound = self._tighter() if not more else None
        found = Amendment(add, drop, since if add else None, quench, lift, bound, more, self._reflected)
        if not found:
            return None
        for key in drop:
            del self._unwanted[key]
        for key in quench:
            del self._idle[key]
        self._pending = found
        return found

    def _additions(self) -> tuple[frozenset[Key], int | None]:
        """Return the keys to be added. Of a stream these are keys that came to be wanted at one tick, the first."""
        if not self.is_stream or not self._missing:
            return frozenset(self._missing), None
        starts = {key: max(self._wanted[key] or 0, self._dropped.get(key, 0)) for key in self._missing}
        first = min(starts.values())
        return frozenset(key for key, start in starts.items() if start == first), first

    def _pull(self) -> int:
        if not self._is_short:
            return 0
        lacking = max(rows + self._margin - len(found) for found, rows in zip(self._found, self._best, strict=True))
        return int(min(max(lacking, 1) << min(self._tries, 20), MOST_PULLED))

    def _tighter(self) -> Any:
        """Return a bound that leaves fewer rows, if there are many more than needed."""
        kept = [rows + self._margin for rows in self._best]
        if not kept or any(len(found) <= 2 * few for found, few in zip(self._found, kept, strict=True)):
            return None
        ends = [
            found[-few] if self._descending else found[few - 1] for found, few in zip(self._found, kept, strict=True)
        ]
        end = min(ends) if self._descending else max(ends)
        if isinstance(self.bound, Unbounded):
            return end
        return end if (end > self.bound if self._descending else end < self.bound) else None

    def _due(self, since: dict[Key, float], now: float) -> frozenset[Key]:
        found = []
        for key, start in since.items():
            if start + self._delay > now:
                break
            found.append(key)
        return frozenset(found)

    @property
    def next_timer(self) -> float | None:
        """When something that waits is due; None if nothing waits."""
        if self._pending is not None:
            return None
        starts = [next(iter(waiting.values())) for waiting in (self._unwanted, self._idle) if waiting]
        return min(starts) + self._delay if starts else None


def merged(changes: Iterable[RelationChange]) -> RelationChange:
    """Return the changes of several epochs as one.

    >>> merged([RelationChange(keys=([(1,)], [])), RelationChange(keys=([(2,)], [(1,)]))]).keys
    ([(2,)], [])
    """
    found = list(changes)

    def net(pairs: list[tuple[Collection[Any], Collection[Any]]]) -> tuple[list[Any], list[Any]]:
        counts: dict[Any, int] = {}
        for came, went in pairs:
            for value in came:
                counts[value] = counts.get(value, 0) + 1
            for value in went:
                counts[value] = counts.get(value, 0) - 1
        more = [value for value, count in counts.items() for _ in range(count)]
        return more, [value for value, count in counts.items() for _ in range(-count)]

    live = tuple(net([c.live[i] for c in found]) for i in range(len(found[0].live))) if found else ()
    best = tuple(net([c.found[i] for c in found]) for i in range(len(found[0].found))) if found else ()
    return RelationChange(net([c.keys for c in found]), live, net([c.rows for c in found]), best)
