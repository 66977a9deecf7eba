"""The curiosity of one source: follow the local relations that decide what is asked of it.

Each plan of `SourceNeeds` (wanted keys, live keys, best rows) is kept by the engine as a view that only this sees, and
its changes come with every epoch, before that may be told to anybody. `FilterKeeper` (`subscribe/amendments.py`)
decides what becomes of the filter.

The law: from the epoch in which something comes to be missing until it is here, `behind_since` is that epoch. What is
told meanwhile stops before it, so nobody sees a row that is old, or a view that lacks one.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from whence.io.rows import expand, to_tuples
from whence.model.codes import Codes
from whence.model.errors import WhenceError
from whence.model.types import Schema
from whence.model.word_marks import WordMarks
from whence.sql.plan_text import plan_text
from whence.subscribe.amendments import Amendment, FilterKeeper, Key, RelationChange
from whence.subscribe.source_needs import SourceNeeds

if TYPE_CHECKING:
    from whence.runtime.coordinator import Coordinator

Role = tuple[Literal["keys", "live", "rows", "found"], int]
Rows = list[tuple[Any, ...]]


class LackedRows(NamedTuple):
    """Epochs in which rows of a source were missing, or old: the first and the last, and when that began."""

    since: int
    upto: int
    source: str
    began: float


class DecidingRelation:
    """A relation whose rows decide what is asked for. A feed (`reading/changes.py`)."""

    def __init__(self, curiosity: SourceCuriosity, name: str, role: Role, schema: Schema, columns: tuple[int, ...]):
        self.name, self.role, self.schema = name, role, schema
        self._curiosity, self._columns = curiosity, columns
        self._shown = Schema(tuple(schema.columns[c] for c in columns))

    def read(self, rows: Codes, counts: Codes) -> tuple[Rows, Rows]:
        """Return the values of rows that came, and of those that went."""
        words = self._curiosity.coordinator.dictionary
        found = []
        for sign in (1, -1):
            chosen = counts * sign > 0
            some = expand(rows[chosen], counts[chosen] * sign)
            found.append(to_tuples(some[:, self._columns], self._shown, words) if len(some) else [])
        return found[0], found[1]

    def push(self, epoch: int, rows: Codes, counts: Codes) -> None:
        """Take in what an epoch changed."""
        self._curiosity.take(epoch, self.role, *self.read(rows, counts))

    def mark_words(self, marks: WordMarks) -> None:
        """Mark nothing: values are held, not codes."""

    def decode(self, codes: Codes) -> None:
        """Do nothing: values are held, not codes."""

    def end(self, why: str = "", forget: bool = False) -> None:
        """Note that what decides is not known any more: it is planned again."""
        self._curiosity.ended = why or "the database was closed"
        self._curiosity.poke()


class SourceCuriosity:
    """What one source is asked for, kept current. Any thread may call it, but `open` and `close` wait for epochs."""

    def __init__(
        self,
        coordinator: Coordinator,
        needs: SourceNeeds,
        margin: int = 2,
        delay: float = 0.0,
        poke: Callable[[], object] = lambda: None,
        reflected: Callable[[], int] = lambda: 0,
        clock: Callable[[], float] = time.monotonic,
        lacked: deque[LackedRows] | None = None,
    ) -> None:
        """`poke` is called when there may be an amendment to send; `reflected` gives the last tick that is applied;
        `lacked` is where epochs are noted in which rows were missing or old."""
        self.lacked: deque[LackedRows] = deque() if lacked is None else lacked
        self.coordinator, self.needs, self.poke = coordinator, needs, poke
        self.ended: str | None = None
        self.is_asked = False  # whether the source is subscribed to with the filter that this keeps
        self.is_starting_over = False  # whether what is reflected is about to be of another past
        self.behind_since: int | None = None  # the epoch since which rows may be missing or old
        self.behind_from = 0.0  # and the time
        self._reflected, self._clock = reflected, clock
        self.keeper = FilterKeeper(
            is_keyed=needs.key is not None,
            live_rules=len(needs.live),
            best=[rule.rows for rule in needs.best],
            descending=bool(needs.best) and needs.best[0].descending,
            margin=margin,
            delay=delay,
            is_stream=needs.table.stream is not None,
        )
        self.guard = threading.Lock()
        self._feeds: list[DecidingRelation] = []
        self.views: list[str] = []  # those that were made for this

    def open(self) -> None:
        """Follow what decides, from now on."""
        needs, roles = self.needs, list[tuple[Role, str]]()
        try:
            if needs.key is not None:
                roles.append((("keys", 0), self._make(plan_text(needs.key.values))))
            roles += [(("live", i), self._make(plan_text(rule.live))) for i, rule in enumerate(needs.live)]
            roles += [(("found", i), self._make(plan_text(rule.found))) for i, rule in enumerate(needs.best)]
            self._follow(roles)
        except BaseException:
            self.close()
            raise

    def _make(self, sql: str) -> str:
        name = self.coordinator.definitions.create_transient(sql)
        self.views.append(name)
        return name

    def _follow(self, roles: list[tuple[Role, str]]) -> None:
        coordinator, table = self.coordinator, self.needs.table
        with coordinator.looking():
            found = []
            for role, name in roles:
                schema = coordinator.reader.schema(name)
                found.append(DecidingRelation(self, name, role, schema, tuple(range(len(schema)))))
            if self.needs.live:
                found.append(DecidingRelation(self, table.name, ("rows", 0), table.schema, table.key))
            for feed in found:
                self._change(feed.role, *feed.read(*coordinator.reader.contents(feed.name)))
                coordinator.feeds.add(feed)
            self._feeds = found
            self.keeper.start()
            self._note(coordinator.epoch)

    def close(self) -> None:
        """Follow nothing any more."""
        for feed in self._feeds:
            self.coordinator.feeds.remove(feed)
        self._feeds, views, self.views = [], self.views, []
        try:
            self.coordinator.definitions.drop_transient(*views)
        except WhenceError:  # closed
            return

    # -- what happens ------------------------------------------------------------------------------------------------

    def take(self, epoch: int, role: Role, came: Rows, went: Rows) -> None:
        """Take in what an epoch did to one relation. Called by the thread that commits."""
        with self.guard:
            self._change(role, came, went)
            self._note(epoch)
        self.poke()

    def _change(self, role: Role, came: Rows, went: Rows) -> None:
        kind, number = role
        now, reflected = self._clock(), self._reflected()
        match kind:
            case "keys":
                change = RelationChange(keys=(came, went))
            case "rows":
                change = RelationChange(rows=(came, went))
            case "live":
                change = RelationChange(live=_at(number, len(self.needs.live), (came, went)))
            case "found":
                values = _values(came), _values(went)
                change = RelationChange(found=_at(number, len(self.needs.best), values))
        self.keeper.change(change, now, reflected)

    def _note(self, epoch: int) -> None:
        if not self.keeper.is_behind:
            self.note_lacked(epoch - 1)
            self.behind_since = None
        elif self.behind_since is None:
            self.behind_since, self.behind_from = epoch, self._clock()

    def note_lacked(self, upto: int) -> None:
        """Note that rows were missing, if they were, up to an epoch."""
        if self.behind_since is not None:
            self.lacked.append(LackedRows(self.behind_since, upto, self.needs.table.name, self.behind_from))

    def amended(self, bound: Any = None, at: int | None = None, refused: frozenset[Key] = frozenset()) -> None:
        """Note that the amendment under way is in force here: its rows are committed."""
        with self.guard:
            self.keeper.amended(bound, at, self._clock(), refused, self._reflected())
            self._note(self.coordinator.epoch)
        self.poke()

    def rejected(self) -> None:
        """Note that the amendment under way never came to be in force."""
        with self.guard:
            self.keeper.rejected()
        self.poke()

    def start_over(self) -> None:
        """Note that the publisher has another past: ask for nothing until `started_over`."""
        with self.guard:
            self.is_starting_over = True
            self.keeper.rejected()

    def started_over(self) -> None:
        """Note that what was reflected is forgotten."""
        with self.guard:
            self.is_starting_over = False
            self.keeper.begin_again()
        self.poke()

    def next(self) -> Amendment | None:
        """Return the amendment to send now, if there is one."""
        with self.guard:
            return None if self.is_starting_over else self.keeper.next(self._clock())

    def is_under_way(self, amendment: Amendment) -> bool:
        """Return whether an amendment is still to be sent."""
        with self.guard:
            return self.keeper.is_under_way(amendment)

    @property
    def next_timer(self) -> float | None:
        """When `next` is to be asked again even if nothing happens."""
        with self.guard:
            return self.keeper.next_timer


def _values(rows: Iterable[tuple[Any, ...]]) -> list[Any]:
    """Return the values of one column, without NULLs: those have no bound."""
    return [row[0] for row in rows if row[0] is not None]


def _at(place: int, count: int, pair: tuple[Any, Any]) -> tuple[tuple[Any, Any], ...]:
    return tuple(pair if i == place else ((), ()) for i in range(count))
