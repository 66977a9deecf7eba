"""The receiving end of a subscription with ticks: what a broker has of one source, and what it asks for.

A `SourceState` is given what a publisher tells (`subscribe/publishing.py`), in any order, repeated and with losses, and
returns what is to be done. It holds no rows but those that wait for others. What is applied is in the broker's
database, and so are the ranges of ticks that are reflected: they are rows of the same transaction. After a restart it
is made from those rows, and knows what it has.

| action        | what the caller does |
|---------------|------------------------|
| `Apply`       | commit the rows, the ranges and the promises in one transaction |
| `ApplyState`  | the same; the rows take the place of all that there are |
| `LoseRange`   | commit that ticks are lost: they count as reflected, and nothing is final that depends on them |
| `StartOver`   | forget all rows and ranges of the source, in one transaction with what follows: the publisher has |
|               | another past |
| `Resubscribe` | connect to a URL and subscribe from what is there |
| `Ask`         | send a `Want` |
| `SendAmend`   | send an `Amend` |

The law: the rows of the source are always those of the publisher's history at exactly the ticks in `reflected`, through
the filter in effect. No tick is applied twice, whatever is told twice; ranges that overlap with what is there are asked
for again exactly. Positions of two pasts are never merged. While the publisher can be reached and anything is missing
there is a timer, so everything is asked for until it is here, or known to be lost.

In mode "ahead" (rows that only come: a stream) any range that is not here yet is applied at once: with ticks 1, 2 and 4
here and 3 lost, 4 is applied, and 3 when it comes. In mode "in order" a range waits for all before it.

Two timers: a gap that is older than `gap_after` (a message may only have been overtaken), and a horizon that stands
still for `stall_after` (the last message before silence was lost). A gap is asked for at most once per `answer_after`,
which grows up to eightfold while nobody answers.

Promises (`time`, `horizons`) hold only once every tick before them is known, so they wait until the horizon is there.
One that was told as of a tick that is reflected is as lasting as the tick: it waits from one session to the next, since
nobody tells it again when a gap before it is filled. With the past of its tick it is forgotten.

Cost: about constant per message, also of one that opens a gap or fills one, however many gaps there are; memory by the
number of gaps, and in order mode by the rows that wait, at most `MOST_HELD` messages. There is no clock, no socket and
no thread in here.
"""

from __future__ import annotations

from bisect import insort
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from whence.subscribe.gaps import NEVER, SourceGaps
from whence.subscribe.positions import Position
from whence.subscribe.publishing import FilterAmended, Key, RangeChange, RangeLost, RangeState, Told
from whence.subscribe.ranges import EVER, Range, RangeSet

MOST_HELD = 1_000
"""Messages that wait for others before them; beyond these, later ones are dropped and asked for again."""

STALLS = 3
"""Unanswered questions after which the source subscribes again, at its next URL."""

_DOUBLINGS = 3

Mode = Literal["ahead", "in order"]


@dataclass(frozen=True)
class Apply:
    """Commit rows, if there are any, as the change after `since` and up to `upto`, with what has become known.

    ranges    the ticks that are reflected after it
    time      nothing more comes before this time, if that is news
    horizons  the horizons that have moved
    number    that of the filter in effect
    amends    whether the rows come and go because the filter changed: then the ticks are the same as before
    refused   keys that are not quenched by the new filter although that was asked for

    The filter in effect, which is to be stored with the ranges, loses a quenched key with the first rows of it.
    """

    since: int
    upto: int
    rows: Any | None
    ranges: RangeSet
    time: int | None = None
    horizons: dict[str, Any] | None = None
    number: int = 0
    amends: bool = False
    refused: frozenset[Key] = frozenset()


@dataclass(frozen=True)
class ApplyState:
    """Commit rows, in place of all that there are, as what the publisher has as of `at`. No key is quenched any more.
    If the number of the filter is another one, the amendment that is under way is in effect."""

    at: int
    rows: Any
    ranges: RangeSet
    time: int | None = None
    horizons: dict[str, Any] | None = None
    number: int = 0
    lost_upto: int = 0  # ticks up to this one are lost, but for what is in the rows


@dataclass(frozen=True)
class LoseRange:
    """Commit that the ticks after `since` and up to `upto` are lost."""

    since: int
    upto: int
    ranges: RangeSet


@dataclass(frozen=True)
class StartOver:
    """Forget everything of the source: from now on it follows the history of `position`.

    It comes together with the first `Apply` or `ApplyState` of that history, and is one transaction with it: readers go
    from one past to the other. An amendment that was under way is given up, since it may speak of ticks of the old
    past, and one that is asked for before this is not sent; the filter in effect stays."""

    position: Position


@dataclass(frozen=True)
class Resubscribe:
    """Subscribe at the URL with this place in the list, under a new session number.

    `have` is the position of the last tick that is reflected, and `ranges` all of them; None if there are none. The
    filter to subscribe with is the one in effect, number `number`, which is number 0 from now on."""

    session: int
    url: int
    have: Position | None
    ranges: RangeSet
    number: int


@dataclass(frozen=True)
class Ask:
    """Ask for ranges; one that ends at `EVER` asks for all that there is after its start."""

    ranges: tuple[Range, ...]


@dataclass(frozen=True)
class SendAmend:
    """Ask for a change of the filter that has number `base`; the new one is to have `number`."""

    number: int
    base: int
    change: Any


Action = Apply | ApplyState | LoseRange | StartOver | Resubscribe | Ask | SendAmend


@dataclass(frozen=True)
class Opened:
    """The publisher has accepted a subscription, and is at `position`: its era is the current one, also if the last
    epoch that may be told is from before it.

    verdict  on the position that the source has: "resumed", it is part of the publisher's past; "behind", it is of its
             era and later than what this server has (a copy of the publisher's folder that lags); "unknown", it is no
             part of it, or there was none
    """

    position: Position
    verdict: Literal["resumed", "behind", "unknown"]


@dataclass(slots=True)
class _Amendment:
    number: int
    change: Any
    due: float
    asked: int = 1
    answer: FilterAmended | None = None
    held: list[RangeChange] = field(default_factory=list)  # told by the new filter, which is not in effect yet


class SourceState:
    """What a broker has of one source.

    position   history and era of the publisher, and the last tick that is reflected; None before the first contact
    reflected  the ticks that are reflected, those that are lost among them
    lost       the ticks that are lost
    number     that of the filter in effect

    >>> source = SourceState("quote", "ahead"); source.connect(0.0)[0].have is None
    True
    >>> at = Position("0123456789ab", "00c0ffee", 4)
    >>> _ = source.receive(Opened(at, "unknown"), 1, 0.0)
    >>> for told in (RangeChange(0, 2, "a, b"), RangeChange(3, 4, "d"), RangeChange(0, 2, "a, b")):
    ...     print([action.rows for action in source.receive(told, 1, 0.0)], source.reflected)
    ['a, b'] 0-2
    ['d'] 0-2,3-4
    [] 0-2,3-4
    >>> source.tick(source.next_timer)
    [Ask(ranges=((2, 3),))]
    """

    def __init__(
        self,
        name: str,
        mode: Mode,
        position: Position | None = None,
        reflected: RangeSet | None = None,
        lost: RangeSet | None = None,
        append_only: bool | None = None,
        urls: int = 1,
        gap_after: float = 0.05,
        answer_after: float = 0.5,
        stall_after: float = 2.0,
    ) -> None:
        """`append_only` is whether rows only come; as a rule this is why the mode is "ahead"."""
        self.name, self.mode, self.position = name, mode, position
        self.reflected, self.lost = reflected or RangeSet(), lost or RangeSet()
        self.append_only = mode == "ahead" if append_only is None else append_only
        self.session = self.number = 0
        self.url, self._urls = 0, urls
        self.is_connected = self.is_open = False
        self._gap_after, self._answer_after, self._stall_after = gap_after, answer_after, stall_after
        self._known = self.reflected.last  # the publisher has at least so many ticks
        self._gaps = SourceGaps()
        self._unsure: list[Range] = []  # regions in which gaps are to be looked for
        self._held: list[tuple[int, RangeChange]] = []  # by where they begin
        self._held_ranges = RangeSet()
        self._stall_due = NEVER
        self._stalls = 0
        self._moved = 0.0  # when the horizon moved last, or was confirmed
        self._behind = 0  # URLs in a row that lag behind us
        self._amendment: _Amendment | None = None
        self._promises: list[tuple[int, int | None, dict[str, Any] | None]] = []  # told as of a tick we are not at
        self._start_over: StartOver | None = None  # the rows there are are of another past; still to be told

    # -- connection --------------------------------------------------------------------------------------------------

    def connect(self, now: float, failed: bool = False) -> list[Action]:
        """Begin a new session; if the last one `failed`, at the next URL."""
        if failed:
            self.url = (self.url + 1) % self._urls
        self.disconnect()
        self.session += 1
        self._stalls = 0
        number, self.number = self.number, 0
        if self._amendment is not None:  # it is asked for again when the session stands
            self._amendment = _Amendment(1, self._amendment.change, NEVER)
        self._stall_due = now + self._stall_after
        have = self.position if len(self.reflected) else None
        if have is not None:
            have = have._replace(epoch=self.reflected.last)
        self.is_connected = True
        return [Resubscribe(self.session, self.url, have, self.reflected, number)]

    def disconnect(self) -> None:
        """Note that the connection is lost: what waits is asked for again in the next session, but for promises of
        ticks that are here."""
        self.is_connected = self.is_open = False
        self._held, self._held_ranges = [], RangeSet()
        self._gaps.clear()
        self._unsure.clear()
        self._promises = [one for one in self._promises if one[0] <= self.reflected.last]
        self._known = self.reflected.last
        self._stall_due = NEVER

    @property
    def waiting_for(self) -> tuple[str, int, float] | None:
        """The name of the source, the place of its URL and since when something is missing; None if nothing is."""
        behind = self.reflected.horizon < self._known
        return (self.name, self.url, self._moved) if behind or self._stalls or not self.is_open else None

    @property
    def is_amending(self) -> bool:
        """Whether an amendment of the filter is under way."""
        return self._amendment is not None

    def amend(self, change: Any, now: float) -> list[Action]:
        """Ask for a change of the filter in effect. It takes the place of one that is under way. While a `StartOver` is
        still to be told it is given up: who asks does not know yet that its ticks are of another past."""
        if self._start_over is not None:
            return []
        before = self._amendment
        number = max(self.number, before.number if before else 0) + 1
        self._amendment = _Amendment(number, change, now + self._answer_after * 2)
        if not self.is_open:
            self._amendment.due = NEVER
            return []
        return [SendAmend(number, self.number, change)]

    # -- messages ----------------------------------------------------------------------------------------------------

    def receive(self, told: Told | Opened, session: int, now: float) -> list[Action]:
        """Take in what a publisher tells in a session, and return what is to be done."""
        if session != self.session or not self.is_connected:
            return []
        if isinstance(told, Opened):
            return self._open(told, now)
        if not self.is_open:
            return []  # it is not known yet whether this is our past
        actions: list[Action] = []
        before = self.reflected.horizon
        match told:
            case RangeChange():
                self._take_change(told, actions, now)
            case RangeState():
                self._take_state(told, actions, now)
            case RangeLost():
                self._take_lost(told, actions, now)
            case FilterAmended():
                self._take_amended(told, actions, now)
        self._finish_if_reached(actions, now)
        if self._unsure:
            self._find_gaps(now)
        if self._start_over is not None and actions:
            actions.insert(0, self._start_over)
            self._start_over = None
        is_silence = isinstance(told, RangeChange) and told.rows is None
        if self.reflected.horizon > before or (is_silence and self._known <= before):
            self._moved, self._stalls = now, 0
            self._stall_due = now + self._stall_after
        return actions

    def _open(self, opened: Opened, now: float) -> list[Action]:
        if self.is_open:
            return []
        actions: list[Action] = []
        has_some = bool(len(self.reflected))
        if opened.verdict == "behind" and has_some and self._same_history(opened.position):
            self._behind += 1
            if self._behind < self._urls:
                return self.connect(now, failed=True)
            return []  # all lag: wait here, the stall timer tries again
        self._behind = 0
        if has_some and (opened.verdict != "resumed" or not self._same_history(opened.position)):
            self._forget()
            self._start_over = StartOver(opened.position)
        self.position = opened.position
        self.is_open = True
        self._known = max(self.reflected.last, opened.position.epoch)
        self._moved = now
        self._stall_due = now + self._stall_after
        self._unsure.append((0, self._known))
        self._find_gaps(now, wait=self._answer_after)  # subscribing has asked for them
        if self._amendment is not None:
            self._amendment.due = now + self._answer_after * 2
            actions.append(SendAmend(self._amendment.number, 0, self._amendment.change))
        return actions

    def _same_history(self, position: Position) -> bool:
        return self.position is not None and self.position.history == position.history

    def _forget(self) -> None:
        self.reflected, self.lost = RangeSet(), RangeSet()
        self._held, self._held_ranges = [], RangeSet()
        self._gaps.clear()
        self._unsure.clear()
        self._promises.clear()
        self._known = 0
        self._amendment = None

    def _take_change(self, told: RangeChange, actions: list[Action], now: float) -> None:
        amendment = self._amendment
        if told.number != self.number:
            if amendment is not None and told.number == amendment.number and len(amendment.held) < MOST_HELD:
                amendment.held.append(told)
            return
        self._note_promise(told)
        if self._start_over is not None and not told.upto:  # the other past is empty so far
            actions.append(Apply(0, 0, None, self.reflected, number=self.number))
        if self._is_new(told):
            in_order = told.since == self.reflected.last and not self._held
            if told.since == self.reflected.horizon or (self._may_run_ahead and told.rows is not None):
                self._apply(told, actions)
            elif told.rows is not None:
                self._hold(told)
            elif self._start_over is None:  # silence is known at once
                self._apply(told, actions)
            self._release(actions)
            if in_order and told.since == self._known:
                self._known = told.upto
            else:
                self._look_at(told.since, told.upto)
                self._find_gaps(now)
        elif not self.reflected.covers(told.since, told.upto):  # a part of it: ask for the rest, exactly
            self._look_at(told.since, told.upto)
            self._find_gaps(now, at_once=True)
        elif told.upto > self._known:  # an empty range: where the publisher is
            self._look_at(told.since, told.upto)
            self._find_gaps(now)
        self._release_promises(actions)

    @property
    def _may_run_ahead(self) -> bool:
        """Whether ranges beyond a gap are applied. Not those of another past, before its beginning is here: readers
        would see less than they have seen."""
        return self.mode == "ahead" and self._start_over is None

    def _is_new(self, told: RangeChange) -> bool:
        """Tell whether a change may be taken in: no tick of it is here. Silence is, if any tick of it is not."""
        missing = self.reflected.missing(told.since, told.upto)
        return bool(missing) if told.rows is None else missing == [(told.since, told.upto)]

    def _apply(self, told: RangeChange, actions: list[Action]) -> None:
        self.reflected = self.reflected.add(told.since, told.upto)
        actions.append(Apply(told.since, told.upto, told.rows, self.reflected, number=self.number))

    def _hold(self, told: RangeChange) -> None:
        if self._held_ranges.missing(told.since, told.upto) != [(told.since, told.upto)]:
            return  # it waits already, or overlaps with what does; asked for again when that is released
        if len(self._held) >= MOST_HELD:
            _, dropped = self._held.pop()
            self._held_ranges = self._held_ranges.minus(RangeSet([(dropped.since, dropped.upto)]))
            self._look_at(dropped.since, dropped.upto)
        insort(self._held, (told.since, told), key=lambda one: one[0])
        self._held_ranges = self._held_ranges.add(told.since, told.upto)

    def _release(self, actions: list[Action]) -> None:
        """Apply what has waited for the horizon to be where it is now."""
        released = 0
        for since, told in self._held:
            horizon = self.reflected.horizon
            ahead = self.mode == "ahead" and (self._start_over is None or horizon > 0)
            if since > horizon and not ahead:
                break
            released += 1
            if (since == horizon or ahead) and self._is_new(told):
                self._apply(told, actions)
            else:
                self._look_at(told.since, told.upto)
        if released:
            del self._held[:released]
            self._held_ranges = RangeSet((told.since, told.upto) for _, told in self._held)

    def _take_state(self, told: RangeState, actions: list[Action], now: float) -> None:
        amendment = self._amendment
        amends = amendment is not None and told.number == amendment.number
        if told.number != self.number and not amends:
            return
        if told.at <= self.reflected.horizon and not amends and self._start_over is None:
            return
        self._look_at(0, told.at)
        if self.append_only and len(self.reflected):  # rows cannot be replaced: ask for what is missing
            self._find_gaps(now, at_once=True)
            return
        self.reflected = self.reflected.add(0, told.at)
        if amends:
            self.number = told.number
        self._promises = [one for one in self._promises if one[0] > told.at]
        self.lost = self.lost.add(0, told.lost_upto)
        actions.append(
            ApplyState(told.at, told.rows, self.reflected, told.time, told.horizons, self.number, told.lost_upto)
        )
        if amends and amendment is not None:
            self._finish_amendment(amendment, actions, now)
        self._release(actions)
        self._find_gaps(now)
        self._release_promises(actions)

    def _take_lost(self, told: RangeLost, actions: list[Action], now: float) -> None:
        if not self.append_only:
            return  # a state follows
        for since, upto in self.reflected.missing(told.since, told.upto):
            self.reflected, self.lost = self.reflected.add(since, upto), self.lost.add(since, upto)
            actions.append(LoseRange(since, upto, self.reflected))
        self._look_at(told.since, told.upto)
        self._release(actions)
        self._find_gaps(now)
        self._release_promises(actions)

    # -- filters -----------------------------------------------------------------------------------------------------

    def _take_amended(self, told: FilterAmended, actions: list[Action], now: float) -> None:
        amendment = self._amendment
        if amendment is None or told.number != amendment.number:
            return
        amendment.answer = told
        self._look_at(told.at, told.at)
        self._finish_if_reached(actions, now)
        if self._amendment is not None:
            self._find_gaps(now)

    def _finish_if_reached(self, actions: list[Action], now: float) -> None:
        """Put the new filter in effect once everything up to it is here."""
        amendment = self._amendment
        if amendment is None or amendment.answer is None or self.reflected.horizon < amendment.answer.at:
            return
        answer = amendment.answer
        self.number = answer.number
        at, number = answer.at, answer.number
        actions.append(Apply(at, at, answer.rows, self.reflected, None, None, number, True, answer.refused))
        self._finish_amendment(amendment, actions, now)

    def _finish_amendment(self, amendment: _Amendment, actions: list[Action], now: float) -> None:
        self._amendment = None
        for since, told in self._held:  # told by the filter before: they are asked for again
            self._look_at(since, told.upto)
        self._held, self._held_ranges = [], RangeSet()
        for told in amendment.held:
            self._take_change(told, actions, now)

    # -- promises ----------------------------------------------------------------------------------------------------

    def _note_promise(self, told: RangeChange) -> None:
        if told.time is not None or told.horizons:
            insort(self._promises, (told.upto, told.time, told.horizons), key=lambda one: one[0])
            if len(self._promises) > MOST_HELD:
                self._promises.pop()

    def _release_promises(self, actions: list[Action]) -> None:
        """Add promises to the last action, or to one of their own, once every tick before them is here."""
        horizon, time, horizons = self.reflected.horizon, None, dict[str, Any]()
        while self._promises and self._promises[0][0] <= horizon:
            _, promised, moved = self._promises.pop(0)
            time = promised if time is None or (promised is not None and promised > time) else time
            horizons |= moved or {}
        if time is None and not horizons:
            return
        last = actions[-1] if actions else None
        if isinstance(last, Apply) and last.time is None and not last.horizons:
            actions[-1] = replace(last, ranges=self.reflected, time=time, horizons=horizons or None)
        else:
            actions.append(Apply(horizon, horizon, None, self.reflected, time, horizons or None, self.number))

    # -- timers ------------------------------------------------------------------------------------------------------

    def _look_at(self, since: int, upto: int) -> None:
        """Have it looked for gaps in a range, and up to its end: the publisher has at least so many ticks."""
        if upto > self._known:
            since, self._known = min(since, self._known), upto
        if since < upto:
            self._unsure.append((since, upto))

    def _find_gaps(self, now: float, at_once: bool = False, wait: float | None = None) -> None:
        """Note what is missing where it is not sure; a part of a gap that was known has that one's timer. If what is
        missing is known to be no longer on its way, it is asked for `at_once`."""
        due = now + (self._gap_after if wait is None else wait)
        for region in self._unsure:
            since, upto = self._gaps.around(*region)
            not_reflected = self.reflected.missing(since, upto)
            missing = [part for each in not_reflected for part in self._held_ranges.missing(*each)]
            self._gaps.update(since, upto, missing, due, now if at_once else None)
        self._unsure.clear()

    @property
    def next_timer(self) -> float | None:
        """The time at which `tick` is to be called next; None if nothing is waited for."""
        due = min(self._gaps.due, self._stall_due, self._amendment.due if self._amendment else NEVER)
        return None if due == NEVER else due

    def tick(self, now: float) -> list[Action]:
        """Do what is due: ask for gaps, for what may be missing at the end, for an amendment again."""
        actions: list[Action] = []
        if now >= self._stall_due:
            self._stalls += 1
            self._stall_due = now + self._stall_after
            if not self.is_open or self._stalls >= STALLS:
                self._behind = 0
                return self.connect(now, failed=True)
            actions.append(Ask(((self.reflected.last, EVER),)))
        if now >= self._gaps.due:
            actions.append(Ask(self._gaps.ask(now, self._answer_after)))
        amendment = self._amendment
        if amendment is not None and now >= amendment.due:
            asked = amendment.asked + 1
            wait = self._answer_after * 2 ** min(asked, _DOUBLINGS)
            self._amendment = _Amendment(amendment.number + 1, amendment.change, now + wait, asked)
            actions.append(SendAmend(self._amendment.number, self.number, amendment.change))
        return actions
