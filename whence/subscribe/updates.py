"""Updates: what a subscriber iterates over, the same in this process and over the network.

The law: `update.rows` is the state as of `update.position`; it is the state before, less `went`, plus `came`. An update
that replaces the state (`restarted`) says how the new one differs from the one before, too.

An update keeps only what changed (`part_updates.py`): the rows as of an update that is no longer the last are found by
taking back the later ones, which it refers to.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from whence.model.errors import DataError
from whence.model.types import Schema
from whence.subscribe.horizons import HorizonView
from whence.subscribe.known_rows import KnownRow
from whence.subscribe.part_updates import KnownPart, PartUpdate, Row
from whence.subscribe.positions import Position
from whence.subscribe.relation_facts import RelationFacts
from whence.subscribe.row_bags import RowBag
from whence.subscribe.waiting import WaitingFor

PartChanges = tuple[list[Row], list[Row], Sequence[Any] | None]
"""What went from and came to one query, and the witnesses of what came."""

_WITNESSES = 10_000  # rows whose witnesses are remembered


class Update(PartUpdate):
    """A change of a subscription (`Database.subscribe`, `Client.subscribe`): true at its position, and net since the
    update before.

    position   where it leads (`Position`); give it as have= to go on from there
    time       the time of that epoch, in microseconds since 1970
    came, went, columns, why  as in `PartUpdate`: of the first query, if there are several
    restarted  why the state was sent anew, if it was: 'begin', 'behind', 'redefined', 'restarted' (another history) or
               'rights'; came and went are then the difference to the rows before. Else an empty text
    lost       with every_change: the positions between which single changes are lost, or None
    waiting_for  in a database with sources: those that have not been heard of for a while (`WaitingFor`): name, address
               and since when
    reflects   the ticks of each source that the rows are of; give it as reflects= to go on at another broker
    parts      the changes of all queries, in their order
    is_idle    whether only columns have changed that are not shown

    `update[name]` is the part of a query that was given with a name.

    >>> db = whence.open(); _ = db.execute("CREATE TABLE a (x INT)"); _ = db.insert("a", [(1,), (2,)])
    >>> subscription = db.subscribe("SELECT x FROM a WHERE x > 1")
    >>> [update] = subscription; update.came, update.restarted, update.position.epoch
    ([(2,)], 'begin', 1)
    >>> _ = db.delete("a", (2,)); [update] = subscription; update.came, update.went, update.rows, update.lost
    ([], [(2,)], [], None)
    """

    def __init__(
        self,
        position: Position,
        time: int,
        parts: Sequence[PartUpdate],
        names: Sequence[str],
        restarted: str = "",
        lost: tuple[Position, Position] | None = None,
        waiting_for: Sequence[WaitingFor] = (),
        reflects: Mapping[str, str] | None = None,
    ) -> None:
        first = parts[0]
        self.came, self.went, self.columns, self.why = first.came, first.went, first.columns, first.why
        self.position, self.time, self.restarted, self.lost = position, time, restarted, lost
        self.waiting_for = list(waiting_for)
        self._is_idle = False  # whether only columns have changed that are not shown
        self.reflects: dict[str, str] = dict(reflects or {})
        self.parts = list(parts)
        for part in parts if lost is not None else ():
            part._lost = True
        self._names = list(names)

    def __getitem__(self, name: str) -> PartUpdate:
        """Return the change of a query by its name.

        >>> db = whence.open(); _ = db.execute("CREATE TABLE a (x INT)"); _ = db.insert("a", (1,))
        >>> [update] = db.subscribe({"all": "a"}); update["all"].came
        [(1,)]
        """
        if name not in self._names:
            raise DataError(f"no query of this subscription is called {name!r:.80}; there is {', '.join(self._names)}")
        return self.parts[self._names.index(name)]

    @property
    def rows(self) -> list[Row]:
        """The state that the update leaves, of the first query."""
        return self.parts[0].rows

    @property
    def changed(self) -> list[tuple[Any, Row | None, Row | None]]:
        """With `key=`: per key that changed, its row before and after, of the first query.

        >>> db = whence.open(); _ = db.execute("CREATE TABLE a (id INT PRIMARY KEY, x TEXT)")
        >>> _ = db.insert("a", (1, "new")); [update] = db.subscribe("a", key="id"); update.changed
        [(1, None, (1, 'new'))]
        """
        return self.parts[0].changed

    @property
    def final(self) -> list[Row]:
        """The rows that have become final since the update before, of the first query.

        >>> db = whence.open(); _ = db.execute("CREATE STREAM a (x INT)"); _ = db.insert("a", (1,))
        >>> [update] = db.subscribe("a"); update.final
        [(1,)]
        """
        return self.parts[0].final

    def row(self, key: Any = None, /, **columns: Any) -> KnownRow:
        """Return what is known of a row of the first query; see `PartUpdate.row`.

        >>> db = whence.open(); _ = db.execute("CREATE STREAM a (x INT)"); _ = db.insert("a", (1,))
        >>> [update] = db.subscribe("SELECT x, COUNT(*) AS n FROM a GROUP BY x")
        >>> print(update.row(1)); print(update.row(2))
        x = 1, n ≥ 1
        x = 2: not there, may come
        """
        return self.parts[0].row(key, **columns)

    def known_row(self, row: Row) -> KnownRow:
        """Return what is known of a row of the first query that is there; see `PartUpdate.known_row`.

        >>> db = whence.open(); _ = db.execute("CREATE STREAM a (x INT)"); _ = db.insert("a", (1,))
        >>> [update] = db.subscribe("a"); update.known_row((1,)).is_final
        True
        """
        return self.parts[0].known_row(row)

    def __bool__(self) -> bool:
        return any(self.parts)

    def __repr__(self) -> str:
        what = "; ".join(
            f"{name} {part!r}" if len(self.parts) > 1 else repr(part)
            for name, part in zip(self._names, self.parts, strict=True)
        )
        return f"<update at epoch {self.position.epoch}: {what}{f', {self.restarted}' * bool(self.restarted)}>"


class SubscribedRows:
    """The rows of a subscription's queries at the subscriber, moved from update to update."""

    def __init__(
        self, names: Sequence[str], key: str | Sequence[str] | None = None, rows: Sequence[Sequence[Row]] | None = None
    ) -> None:
        """`rows` are those of each query at the position that the subscription goes on from."""
        self.names = list(names)
        self.key = None if key is None else [key] if isinstance(key, str) else list(key)
        self.position: Position | None = None
        self.schemas: list[Schema] = []
        self._bags = [RowBag(known=rows is not None) for _ in self.names]
        for bag, given in zip(self._bags, rows or (), strict=rows is not None):
            bag.replace(list(given))
        self.parts = [KnownPart() for _ in self.names]
        self.facts: Sequence[RelationFacts | None] | None = None  # as they were described last
        self._hides = False  # whether rows are received with columns that are not shown
        self._last: list[PartUpdate | None] = [None] * len(self.names)
        self._witnesses: list[dict[Row, Any]] = [{} for _ in self.names]
        self._lost: tuple[Position, Position] | None = None
        self.reflects: Mapping[str, str] | None = None
        self.waiting_for: Sequence[WaitingFor] = ()
        self._waited_for: list[WaitingFor] = []  # when last told

    @property
    def first_rows(self) -> list[Row]:
        """The rows of the first query."""
        return self._bags[0].rows

    def unchanged(self) -> Update:
        """Return an update that says that nothing has changed since the last one."""
        assert self.position is not None
        return self._make(self.position, 0, [([], [], None) for _ in self.names], "")

    def describe(self, schemas: Sequence[Schema], facts: Sequence[RelationFacts | None] | None = None) -> None:
        """Note the columns of the queries, those that are shown, and what is known of each."""
        self.schemas = list(schemas)
        for part, known in zip(self.parts, facts or [None] * len(self.parts), strict=True):
            if part.facts is not known and (part.facts is None or known is None or part.facts != known):
                part.describe(known)
        self.facts, self._hides = facts, any(part.has_hidden for part in self.parts)
        for schema in schemas if self.key is not None else ():
            missing = [name for name in self.key or () if name not in schema.names]
            if missing:
                raise DataError(f"key: there is no column {', '.join(missing)} in {schema}")

    def lose(self, since: Position, upto: Position) -> None:
        """Note that single changes between two positions are lost; the next update says so."""
        self._lost = (self._lost[0] if self._lost else since, upto)

    def update(
        self,
        position: Position,
        time: int,
        changes: Sequence[PartChanges],
        horizons: Sequence[HorizonView] | None = None,
    ) -> Update:
        """Apply what went and came, with the witnesses of what came, and return it as an update. `horizons` are those
        as of the position, or none if they are as before."""
        if self._hides:
            changes = [self._hide(part, *change) for part, change in zip(self.parts, changes, strict=True)]
        for bag, (went, came, _) in zip(self._bags, changes, strict=True):
            bag.apply(went, came)
        self._move(horizons)
        same, self._waited_for = self._waited_for == list(self.waiting_for), list(self.waiting_for)
        update = self._make(position, time, changes, "")
        if self._hides:
            update._is_idle = not update and not any(part.final for part in update.parts) and same
        return update

    @staticmethod
    def _hide(part: KnownPart, went: list[Row], came: list[Row], why: Sequence[Any] | None) -> PartChanges:
        if not part.has_hidden:
            return went, came, why
        known = {} if why is None else dict(zip(part.shown(came), why, strict=False))
        went, came = part.hide(went, came)
        return went, came, None if why is None else [known.get(row) for row in came]

    def begin(self, horizons: Sequence[HorizonView]) -> None:
        """Go on from a position with these horizons."""
        for part, known in zip(self.parts, horizons, strict=True):
            part.begin(known)

    def _move(self, horizons: Sequence[HorizonView] | None) -> None:
        for part, moved in zip(self.parts, horizons or (), strict=horizons is not None):
            part.horizons = moved

    def replace(
        self,
        position: Position,
        time: int,
        states: Sequence[tuple[Sequence[Row], Sequence[Any] | None]],
        reason: str,
        horizons: Sequence[HorizonView] | None = None,
    ) -> Update:
        """Have another state, and return the difference to the rows before as an update."""
        changes = []
        if reason in ("redefined", "restarted", "rights"):  # what was known of rows before was of something else
            for part in self.parts:
                part.describe(part.facts)
        self._move(horizons)
        hidden = [(part.hide_all(rows), why) for part, (rows, why) in zip(self.parts, states, strict=True)]
        for bag, (rows, why) in zip(self._bags, hidden, strict=True):
            known = dict(zip(rows, why, strict=False)) if why else {}
            went, came = bag.replace(rows)
            changes.append((went, came, [known.get(row) for row in came] if why else None))
        return self._make(position, time, changes, reason)

    def _make(
        self,
        position: Position,
        time: int,
        changes: Sequence[PartChanges],
        reason: str,
    ) -> Update:
        parts = []
        for i, (went, came, why) in enumerate(changes):
            explained = self._explain(self._witnesses[i], went, came, why)
            part = PartUpdate(self.schemas[i], came, went, self._bags[i], self.key, explained, time, self.parts[i])
            last, self._last[i] = self._last[i], part
            if last is not None:
                last._later = part
            parts.append(part)
        self.position = position
        lost, self._lost = self._lost, None
        return Update(position, time, parts, self.names, reason, lost, self.waiting_for, self.reflects)

    @staticmethod
    def _explain(
        known: dict[Row, Any], went: Sequence[Row], came: Sequence[Row], why: Sequence[Any] | None
    ) -> dict[Row, Any]:
        """Return the witnesses of rows that came, and of those that went the ones that they had last."""
        found = {row: known.pop(row) for row in went if row in known}
        if why is not None:
            fresh = {row: given for row, given in zip(came, why, strict=False) if given is not None}
            found |= fresh
            known |= fresh
            while len(known) > _WITNESSES:
                del known[next(iter(known))]
        return found


def named_queries(
    queries: str | Mapping[str, str] | Sequence[str],
) -> tuple[list[str], list[str]]:
    """Return the names and the texts of a subscription's queries.

    >>> named_queries("SELECT 1"), named_queries({"a": "t", "b": "u"}), named_queries(["t", "u"])
    ((['rows'], ['SELECT 1']), (['a', 'b'], ['t', 'u']), (['t', 'u'], ['t', 'u']))
    """
    if isinstance(queries, str):
        return ["rows"], [queries]
    if isinstance(queries, Mapping):
        names, texts = list(queries), list(queries.values())
    else:
        texts = list(queries)
        names = list(texts)
    if not texts or not all(isinstance(text, str) for text in [*names, *texts]) or len(set(names)) < len(names):
        raise DataError("subscribe takes a query or a name of a view, or a dict of names and queries")
    return names, texts
